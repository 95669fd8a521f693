//! Usage limits.

use bridge_protocol::conversation::{ContinueAt, ConversationState};
use bridge_protocol::method::Continue;
use bridge_protocol::turn::{FailureKind, StopReason};
use jiff::Timestamp;

use super::bridge::Bridge;
use crate::continuation::{GO_ON, went_on};
use crate::support::model_server::{model, user};

mod smoke {
    use super::*;

    /// When the conversation continues, the refused prompt must appear once in the messages that the model
    /// receives.
    #[test]
    #[ignore = "installs the real adapter"]
    fn d3_what_a_limit_refused_is_gone_on_with_and_reaches_the_model_once() {
        let bridge = or_skip!(Bridge::start());
        let id = bridge.begun(&["first"]);
        let resets_at = Timestamp::now().as_second() + 5400;
        let limited = format!("too much [[err 429 unified=1 n=1 reset={resets_at}]]");
        let turn = bridge.prompt(id, &limited).expect("a turn result");
        let failure = turn.failure.expect("a failure");
        assert_eq!(failure.kind, FailureKind::RateLimited, "{failure:?}");
        let now = bridge.get(id);
        assert_eq!(now.state, ConversationState::Limited);
        assert_eq!(now.limit.expect("a limit").resets_at, failure.resets_at);
        bridge.answer(Continue {
            conversation_id: id.into(),
            at: Some(ContinueAt::Time(Timestamp::UNIX_EPOCH)),
            ..Default::default()
        });
        assert_eq!(went_on(&bridge, id), StopReason::EndTurn);
        let expected = [user("first"), model("ok: first"), user(&limited), user(GO_ON)];
        assert_eq!(bridge.lab.model.asked(GO_ON), expected);
    }
}

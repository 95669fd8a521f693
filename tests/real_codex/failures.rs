//! Refusals of the model's servers: how each is reported, which conversations it affects, and how the
//! conversation continues.
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::FailureKind;

use super::bridge::Bridge;
use super::transcripts::{asked, echoed};
use crate::processes::assert_gone;
use crate::refused::{Case, failed, told_each_for_itself};
use crate::support::model_server::{Said, model, tool_result, tool_use, user};

/// Codex reports nearly all of these refusals as a normal end of the turn.
const CASES: [Case; 9] = [
    ("[[err 400]]", FailureKind::InvalidRequest, false),
    ("[[err 429]]", FailureKind::RateLimited, true),
    ("[[err 500]]", FailureKind::Overloaded, true),
    ("[[err 503]]", FailureKind::Overloaded, true),
    ("[[drop 3]]", FailureKind::Network, true),
    (
        "[[sse_error server_is_overloaded]]",
        FailureKind::Overloaded,
        true,
    ),
    (
        "[[sse_error rate_limit_exceeded]]",
        FailureKind::RateLimited,
        true,
    ),
    // No credit left: a limit that does not end with time.
    (
        "[[sse_error insufficient_quota]]",
        FailureKind::RateLimited,
        false,
    ),
    (
        "[[sse_error context_length_exceeded]]",
        FailureKind::ContextOverflow,
        false,
    ),
];

mod smoke {
    use super::*;

    /// All refusals occur at the same time in one process, together with a turn that is not refused.
    // F22: the refusals must not stop other conversations in the same process.
    #[test]
    #[ignore = "installs the real adapter"]
    fn f26_each_refusal_is_told_for_what_it_is_and_concerns_nobody_else() {
        let bridge = or_skip!(Bridge::start());
        let other = bridge.begun(&["first"]);
        let cases = CASES.map(|case| (bridge.begun(&["first"]), case));
        told_each_for_itself(&bridge, cases, (other, "beside them [[slow 20 0.1]]"));

        for (id, (refused, kind, _)) in cases {
            let next = format!("after {}", refused.trim_matches(['[', ']']));
            let turn = bridge.prompted(id, &next);
            assert_eq!(turn.resumed, None, "the session was reopened");
            let said = asked(&bridge, &next);
            if kind == FailureKind::ContextOverflow {
                // Codex first makes room with its own summary.
                assert_eq!(
                    (said.first(), said.last()),
                    (Some(&user("first")), Some(&user(&next)))
                );
                assert!(said.contains(&user(refused)), "{said:?}");
            } else {
                let expected = [&echoed("first")[..], &[user(refused), user(&next)]].concat();
                assert_eq!(said, expected);
            }
            assert_eq!(bridge.get(id).state, ConversationState::Idle);
        }
    }
}

/// A successful retry must not affect how a later failure of the turn is classified.
#[test]
#[ignore = "installs the real adapter"]
fn f26_a_retry_that_went_well_does_not_classify_what_ends_the_turn() {
    let bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["first"]);
    let refused = r#"[[err 429 n=1 then tool exec_command {"cmd":"echo hi"}]] [[err 400]]"#;
    let turn = bridge.prompt(id, refused).expect("a turn result");
    assert_eq!(failed(&turn), (FailureKind::InvalidRequest, false), "{turn:?}");
    let now = bridge.get(id);
    assert_eq!((now.state, now.limit), (ConversationState::Idle, None));
    bridge.prompted(id, "next");
    let with_tool = [
        user(refused),
        tool_use("exec_command"),
        tool_result("hi"),
        user("next"),
    ];
    let said: Vec<Said> = asked(&bridge, "next");
    let said: Vec<Said> = said
        .into_iter()
        .filter(|said| *said != model("calling"))
        .collect();
    assert_eq!(said, [&echoed("first")[..], &with_tool].concat());
}

/// The user signs in outside of the agent, which may read the account only at its start. Codex keeps closed
/// sessions until its server ends, so the other sessions in this process leave it too.
#[test]
#[ignore = "installs the real adapter"]
fn f1_a_sign_in_that_is_asked_for_is_told_and_the_sessions_go_on_in_another_process() {
    let bridge = or_skip!(Bridge::start());
    let (id, sibling) = (bridge.begun(&["first"]), bridge.begun(&["first"]));
    let heads = [id, sibling].map(|id| bridge.head(id));
    let old = bridge.agent_processes();
    let refused = "signed out [[err 401]]";
    let turn = bridge.prompt(id, refused).expect("a turn result");
    assert_eq!(failed(&turn), (FailureKind::AuthRequired, false), "{turn:?}");
    assert_eq!(bridge.get(id).state, ConversationState::Idle);

    let before = [&echoed("first")[..], &[user(refused)]].concat();
    let both = [
        (id, "signed in", before),
        (sibling, "beside it", echoed("first").to_vec()),
    ];
    for ((id, prompt, before), head) in both.into_iter().zip(heads) {
        let turn = bridge.prompted(id, prompt);
        let resumed = turn.resumed.expect("it was opened in another process");
        assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
        assert_eq!(turn.upstream_id.as_str(), head);
        assert_eq!(asked(&bridge, prompt), [&before[..], &[user(prompt)]].concat());
        assert_eq!(bridge.get(id).state, ConversationState::Idle);
    }
    assert_gone(&old);
}

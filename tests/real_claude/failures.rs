//! Refusals of the model's servers: how each is reported, which conversations it affects, and how the
//! conversation continues.
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::FailureKind;

use super::bridge::Bridge;
use crate::processes::assert_gone;
use crate::refused::{Case, failed, told_each_for_itself};
use crate::support::claude::Account;
use crate::support::model_server::{Said, What, model, user};

const CASES: [Case; 5] = [
    ("[[err 529 ra=0]]", FailureKind::Overloaded, true),
    ("[[err 500 ra=0]]", FailureKind::Unknown, true),
    ("[[err 429 ra=0]]", FailureKind::RateLimited, true),
    ("[[err 400]]", FailureKind::ContextOverflow, false),
    ("[[err 413]]", FailureKind::ContextOverflow, false),
];

/// All refusals occur at the same time in one process, together with a turn that is not refused. Afterwards
/// each conversation continues with its whole history.
// F22: the refusals must not stop other conversations in the same process.
#[test]
#[ignore = "installs the real adapter"]
fn f24_each_refusal_is_told_for_what_it_is_and_concerns_nobody_else() {
    // The context window must stay full, so the agent may not replace the history by a summary.
    let started = Bridge::start_changed(Account::Key, |entry| {
        entry.env.push(("DISABLE_COMPACT".to_owned(), "1".to_owned()));
    });
    let Some(bridge) = started else {
        return;
    };
    let other = bridge.begun(&["first"]);
    let cases = CASES.map(|case| (bridge.begun(&["first"]), case));
    let beside = "beside them [[slow 20 0.1]]";
    told_each_for_itself(&bridge, cases, (other, beside));

    for (id, (refused, ..)) in cases {
        let next = format!("after {}", refused.trim_matches(['[', ']']));
        let turn = bridge.prompted(id, &next);
        assert_eq!(turn.resumed, None, "the session was reopened");
        let expected = [&echoed("first")[..], &[user(refused), user(&next)]].concat();
        assert_eq!(bridge.lab.model.asked(&next), expected);
        let now = bridge.get(id);
        assert_eq!((now.state, now.limit), (ConversationState::Idle, None));
    }
    bridge.prompted(other, "next to them");
    let slowly = "word ".repeat(20);
    let expected = [
        &echoed("first")[..],
        &[user(beside), model(slowly.trim()), user("next to them")],
    ]
    .concat();
    assert_eq!(bridge.lab.model.asked("next to them"), expected);
}

/// By default the agent makes room with a summary and tries once more. If that does not help, the turn fails,
/// and the conversation continues from the summary.
#[test]
#[ignore = "installs the real adapter"]
fn a_window_that_stays_full_is_told_and_a_shorter_prompt_goes_on_over_a_restart() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first"]);
    bridge.prompted(id, "second");
    let refused = "[[err 400]]";
    let turn = bridge.prompt(id, refused).expect("a turn result");
    assert_eq!(failed(&turn), (FailureKind::ContextOverflow, false), "{turn:?}");
    assert_eq!(bridge.get(id).state, ConversationState::Idle);
    bridge.prompted(id, "shorter");
    bridge.stop_daemon();
    bridge.start_daemon();
    let turn = bridge.prompted(id, "in the next life");
    let resumed = turn.resumed.expect("a resume");
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
    let [summary, kept @ ..] = &bridge.lab.model.asked("in the next life")[..] else {
        panic!("the model received nothing")
    };
    let continues = "This session is being continued from a previous conversation";
    assert!(
        matches!(&summary.what, What::Text(text) if text.starts_with(continues)),
        "{summary:?}"
    );
    let expected = [
        &[model("ok: second"), user(refused)],
        &echoed("shorter")[..],
        &[user("in the next life")],
    ]
    .concat();
    assert_eq!(kept, expected);
}

/// The user signs in outside of the agent, which may read the account only at its start. So all conversations
/// continue in another process.
#[test]
#[ignore = "installs the real adapter"]
fn f1_a_sign_in_that_is_asked_for_is_told_and_everybody_goes_on_in_another_process() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let both = [(); 2].map(|()| bridge.begun(&["first"]));
    let heads = both.map(|id| bridge.head(id));
    let mut said = both.map(|_| echoed("first").to_vec());
    for (refused, next) in [
        ("signed out [[err 401]]", "signed in"),
        ("not allowed [[err 403]]", "allowed"),
    ] {
        let old = bridge.agent_processes();
        let turn = bridge.prompt(both[0], refused).expect("a turn result");
        assert_eq!(failed(&turn), (FailureKind::AuthRequired, false), "{turn:?}");
        assert_eq!(bridge.get(both[0]).state, ConversationState::Idle);
        said[0].push(user(refused));
        // The other conversation comes first, although it was not refused itself.
        for at in [1, 0] {
            let turn = bridge.prompted(both[at], next);
            let resumed = turn.resumed.expect("it was opened in another process");
            assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
            assert_eq!(turn.upstream_id.as_str(), heads[at]);
            let [asks, answer] = echoed(next);
            said[at].push(asks);
            assert_eq!(bridge.lab.model.asked(next), said[at]);
            said[at].push(answer);
        }
        assert_gone(&old);
    }
}

fn echoed(text: &str) -> [Said; 2] {
    [user(text), model(&format!("ok: {text}"))]
}

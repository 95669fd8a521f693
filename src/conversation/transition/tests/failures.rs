//! How turns fail, in which state the conversation is left, and that no failure costs it its chain.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::link::Fidelity;
use bridge_protocol::turn::FailureKind;
use serde_json::{Value, json};

use super::outside::not_resumable;
use super::world::World;
use crate::agent::profile::AgentKind;
use crate::conversation::answer::Answer;
use crate::conversation::effect::Input;
use crate::conversation::state::Session;

fn failure_of(world: &World, reply: u32) -> (FailureKind, Option<String>) {
    let Ok(Answer::Turn(turn)) = &world.answers[&reply] else {
        panic!("{:?}", world.answers[&reply])
    };
    let failure = turn.failure.as_ref().expect("a failure");
    (failure.kind, failure.resets_at.map(|at| at.to_string()))
}

#[test]
fn each_kind_of_failure_leaves_its_own_state_and_the_chain_as_it_was() {
    let cases: [(Value, FailureKind, ConversationState); 6] = [
        (
            json!({"code": -32603, "message": "You've hit your limit", "data": {"errorKind": "rate_limit"}}),
            FailureKind::RateLimited,
            ConversationState::Limited,
        ),
        (
            json!({"code": -32603, "message": "busy", "data": {"errorKind": "overloaded"}}),
            FailureKind::Overloaded,
            ConversationState::Idle,
        ),
        (
            json!({"code": -32000, "message": "Authentication required"}),
            FailureKind::AuthRequired,
            ConversationState::Idle,
        ),
        (
            json!({"code": -32603, "message": "prompt is too long", "data": {"errorKind": "invalid_request"}}),
            FailureKind::ContextOverflow,
            ConversationState::Idle,
        ),
        (
            json!({"code": -32603, "message": "ECONNREFUSED"}),
            FailureKind::Network,
            ConversationState::Idle,
        ),
        (
            json!({"code": -32603, "message": "gone", "data": {"errorKind": "transport_lost"}}),
            FailureKind::AgentDied,
            ConversationState::Interrupted,
        ),
    ];
    for (error, kind, state) in cases {
        let mut world = World::running();
        world.refuses(error);
        assert_eq!(failure_of(&world, 2).0, kind);
        assert_eq!(world.view().state, state, "{kind:?}");
        assert_eq!(world.chain(), ["s1"], "{kind:?}");
        assert_eq!(world.view().limit.is_some(), state == ConversationState::Limited);
        assert_eq!(world.disk.record.as_ref(), Some(&world.model.record), "{kind:?}");
        world.prompt("again");
        if kind == FailureKind::AuthRequired {
            world.closes();
            world.reopens();
        }
        world.ends("end_turn");
        assert_eq!(world.view().state, ConversationState::Idle, "{kind:?}");
        assert_eq!(world.view().limit, None);
    }
}

fn signed_out() -> Value {
    json!({"code": -32000, "message": "Authentication required"})
}

/// A person signs in beside the agent, whose process may have looked at its start only: the next turn has another one. Until
/// then the session stays open, for tools may run in it.
#[test]
fn f1_a_session_whose_agent_wants_a_sign_in_is_opened_in_another_process_for_the_next_turn() {
    let mut world = World::running();
    world.refuses(signed_out());
    world.expect(&[
        "retire agent",
        "event turnEnded t2 failed authRequired",
        "event state idle",
        "answer 2 turn t2 failed",
    ]);
    assert!(world.view().live && world.view().cut_short);
    world.prompt("again");
    world.expect(&["close session", "event state prompting"]);
    world.closes();
    world.expect(&["event closed"]);
    world.reopens();
    world.expect_among("send again");
    world.ends("end_turn");
    assert!(!world.view().cut_short);
    world.forget_log();
    world.prompt("and again");
    world.expect(&["event state prompting", "send and again"]);
}

/// The same for a conversation that another one's failure tells of it, and never under a running turn.
#[test]
fn a_session_leaves_a_retired_agent_between_turns_only() {
    let mut world = World::running();
    world.apply(Input::AgentRetired);
    world.expect(&[]);
    // Whoever asks for it while the turn runs has it where it is.
    world.resume(Fidelity::Text);
    assert!(matches!(&world.answers[&3], Ok(Answer::Resumed(..))));
    assert!(world.view().live);
    world.ends("end_turn");
    world.forget_log();
    world.resume(Fidelity::Text);
    world.expect(&["close session"]);
    world.closes();
    world.reopens();
    assert!(matches!(&world.answers[&4], Ok(Answer::Resumed(..))));
}

/// An agent that can bring nothing back keeps its session, whatever is the matter with it.
#[test]
fn a_session_that_cannot_be_reopened_stays_in_a_retired_agent() {
    let mut world = World::running();
    if let Session::Live(live) = &mut world.model.session {
        live.can_reopen = false;
    }
    world.refuses(signed_out());
    world.forget_log();
    world.prompt("again");
    world.expect(&["event state prompting", "send again"]);
}

/// What a person cancelled is not gone on with, whatever the agent says last.
#[test]
fn a_cancelled_turn_that_fails_is_not_cut_short() {
    for error in [signed_out(), json!({"code": -32603, "message": "ECONNREFUSED"})] {
        let mut world = World::running();
        world.cancel();
        world.refuses(error.clone());
        assert!(!world.view().cut_short, "{error}");
        // One that was cut short before it still is.
        let mut world = World::running();
        world.refuses(json!({"code": -32603, "message": "ECONNREFUSED"}));
        world.prompt("third");
        world.cancel();
        world.refuses(error.clone());
        let cut = world.model.record.cut.as_ref().unwrap();
        assert_eq!(cut.prompt.to_text(), "second", "{error}");
    }
}

#[test]
fn f25_a_limit_is_told_with_its_reset_and_is_not_a_new_conversation() {
    let mut world = World::running();
    world.updates(&json!({
        "sessionUpdate": "usage_update",
        "_meta": {"_claude/rateLimit": {"status": "rejected", "resetsAt": 1_795_215_600}}
    }));
    world.forget_log();
    world.refuses(json!({
        "code": -32603, "message": "You've hit your limit", "data": {"errorKind": "rate_limit"}
    }));
    world.expect(&[
        "event limited",
        "event turnEnded t2 failed rateLimited",
        "event state limited",
        "answer 2 turn t2 failed",
    ]);
    assert_eq!(
        failure_of(&world, 2),
        (FailureKind::RateLimited, Some("2026-11-20T23:00:00Z".to_owned()))
    );
    assert!(world.view().live);
    world.prompt("again");
    world.expect(&["event state prompting", "send again"]);
}

#[test]
fn a_limit_is_not_lifted_by_a_failure_that_passes() {
    let mut world = World::running();
    world.refuses(json!({"code": -32603, "message": "limit", "data": {"errorKind": "rate_limit"}}));
    world.dies();
    world.prompt("third");
    world.climb_fails(not_resumable());
    assert_eq!(world.view().state, ConversationState::Failed);
    world.resume(Fidelity::Text);
    world.reopens();
    assert_eq!(world.view().state, ConversationState::Limited);
}

#[test]
fn f21_a_rejected_notice_alone_ends_nothing() {
    let mut world = World::running();
    world.updates(&json!({
        "sessionUpdate": "usage_update",
        "_meta": {"_claude/rateLimit": {"status": "rejected", "resetsAt": 1_795_215_600}}
    }));
    world.ends("end_turn");
    world.expect_last("answer 2 turn t2 end_turn");
}

#[test]
fn f26_what_one_turn_went_through_does_not_classify_the_next() {
    let mut world = World::running();
    world.updates(&json!({
        "sessionUpdate": "usage_update",
        "_meta": {"_claude/rateLimit": {"status": "rejected", "resetsAt": 1_795_215_600}}
    }));
    world.ends("end_turn");
    world.prompt("third");
    world.refuses(json!({"code": -32603, "message": "limit", "data": {"errorKind": "rate_limit"}}));
    assert_eq!(failure_of(&world, 3), (FailureKind::RateLimited, None));
}

#[test]
fn a_result_that_holds_a_failure_is_a_failed_turn() {
    let mut world = World::running();
    let failure = json!({"category": "limit", "severity": "error", "title": "You've hit your limit"});
    let result = json!({
        "stopReason": "end_turn", "_meta": {"jetbrains": {"air": {"sessionFailure": failure}}}
    });
    world.apply(crate::conversation::effect::Input::PromptAnswered {
        answer: Ok(result.into()),
        in_company: false,
    });
    assert_eq!(failure_of(&world, 2).0, FailureKind::RateLimited);
    assert_eq!(world.head().turns, 1, "only the first turn was acknowledged");
}

#[test]
fn codex_says_it_in_passing() {
    let mut world = World::with_kind(AgentKind::Codex);
    world.prompt("first");
    world.opens("s1");
    world.updates(&json!({
        "sessionUpdate": "session_info_update",
        "_meta": {"codex": {
            "threadStatus": {"type": "systemError"},
            "error": {"codexErrorInfo": "serverOverloaded", "willRetry": false}
        }}
    }));
    world.ends("end_turn");
    assert_eq!(failure_of(&world, 1).0, FailureKind::Overloaded);
}

#[test]
fn f31_a_dead_agent_fails_the_turn_and_the_next_prompt_brings_the_session_back() {
    let mut world = World::running();
    world.dies();
    world.expect(&[
        "event turnEnded t2 failed agentDied",
        "event state interrupted",
        "answer 2 turn t2 failed",
    ]);
    world.prompt("third");
    world.expect(&["event state prompting"]);
    world.reopens();
    world.says_something();
    world.ends("end_turn");
    assert_eq!(world.view().state, ConversationState::Idle);
}

#[test]
fn an_agent_that_dies_before_it_accepted_the_prompt_may_have_had_it() {
    let mut world = World::live();
    world.prompt("second");
    world.forget_log();
    world.dies();
    world.expect(&[
        "event promptAccepted t2 second",
        "event turnEnded t2 failed agentDied",
        "event state interrupted",
        "answer 2 turn t2 failed",
    ]);
}

#[test]
fn f6_a_session_whose_agent_died_at_the_first_prompt_is_not_expected_to_have_a_transcript() {
    let mut world = World::new();
    world.prompt("hello");
    world.opens("s1");
    world.dies();
    let head = world.head();
    assert!(!head.written, "nothing showed that the agent took the prompt");
}

#[test]
fn f6_a_session_that_ignored_even_the_cancel_is_not_expected_to_have_a_transcript() {
    let mut world = World::new();
    world.prompt("hello");
    world.opens("s1");
    world.cancel();
    world.elapses(crate::conversation::effect::Deadline::Cancel);
    assert!(!world.head().written);
}

#[test]
fn f6_a_session_that_refused_its_first_prompt_after_a_cancel_was_not_written() {
    let mut world = World::new();
    world.prompt("hello");
    world.opens("s1");
    world.cancel();
    world.does_not_know_the_session();
    assert!(!world.head().written);
    let Ok(Answer::Turn(turn)) = &world.answers[&1] else {
        panic!("no turn")
    };
    assert_eq!(turn.stop_reason, bridge_protocol::turn::StopReason::Cancelled);
}

#[test]
fn an_agent_that_dies_while_the_prompt_is_written_down_never_had_it_and_it_goes_out_again() {
    let mut world = World::live();
    world.hold_writes = true;
    world.prompt("second");
    world.dies();
    world.forget_log();
    world.write_ends();
    world.expect(&[]);
    world.hold_writes = false;
    world.reopens();
    world.expect_last("send second");
}

#[test]
fn an_agent_that_dies_while_the_end_is_written_down_does_not_change_it() {
    let mut world = World::running();
    world.hold_writes = true;
    world.ends("end_turn");
    world.dies();
    world.release_writes();
    world.expect_last("answer 2 turn t2 end_turn");
    assert!(!world.view().live);
    assert_eq!(world.view().state, ConversationState::Idle);
}

#[test]
fn an_agent_that_dies_while_nothing_runs_is_only_detached() {
    let mut world = World::live();
    world.dies();
    world.expect(&["event closed"]);
    assert_eq!(world.view().state, ConversationState::Idle);
    assert!(!world.view().live);
    world.dies();
    world.expect(&[]);
}

#[test]
fn an_agent_that_dies_while_prompts_wait_goes_on_with_them() {
    let mut world = World::running();
    world.queue("third");
    world.forget_log();
    world.dies();
    // The waiting prompt needs a session: it is opened without being asked for.
    assert_eq!(
        world.log()[2..],
        [
            "event turnEnded t2 failed agentDied",
            "open text",
            "answer 2 turn t2 failed"
        ]
    );
}

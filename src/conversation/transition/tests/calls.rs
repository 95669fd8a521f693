//! Title and settings, reset and deletion.

use bridge_protocol::conversation::{ConversationState, Settings, TranscriptsOnDelete};
use bridge_protocol::link::Fidelity;
use serde_json::json;

use super::outside::{agent_error, not_resumable};
use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::Call;
use crate::conversation::error::ConversationError;

#[test]
fn a_title_is_answered_when_it_is_on_disk() {
    let mut world = World::live();
    world.hold_writes = true;
    world.set_title("A title");
    world.expect(&[]);
    world.write_ends();
    world.expect(&["answer 2 conversation idle"]);
    assert_eq!(world.on_disk().title, "A title");
}

#[test]
fn a_title_can_be_changed_while_a_turn_runs() {
    let mut world = World::running();
    world.set_title("A title");
    world.expect(&["answer 3 conversation prompting"]);
}

#[test]
fn an_update_of_what_has_changed_meanwhile_is_refused() {
    let mut world = World::live();
    let is = world.view().revision;
    for (expected, accepted) in [(is - 1, false), (is + 1, false), (is, true)] {
        let call = Call::Update {
            title: Some(format!("at {expected}")),
            settings: None,
            expected_revision: Some(expected),
        };
        let reply = world.call(call, None);
        assert_eq!(world.answers[&reply].is_ok(), accepted, "{expected}");
    }
    assert_eq!(world.view().title, format!("at {is}"));
    assert_eq!(world.view().revision, is + 1);
}

#[test]
fn settings_of_a_closed_session_are_applied_when_it_opens() {
    let mut world = World::hibernating();
    world.set_mode("plan");
    world.expect(&["answer 2 conversation idle"]);
    assert_eq!(
        world.disk.record.as_ref().unwrap().settings.mode.as_deref(),
        Some("plan")
    );
}

#[test]
fn settings_of_an_open_session_are_applied_before_they_are_written() {
    let mut world = World::live();
    world.set_mode("plan");
    world.expect(&[]);
    world.configured(Ok(()));
    world.expect(&["answer 2 conversation idle"]);
    world.set_mode("plan");
    world.expect(&["answer 3 conversation idle"]);
}

#[test]
fn settings_that_the_agent_refuses_are_as_they_were() {
    let mut world = World::live();
    let before = world.view();
    world.set_mode("nonsense");
    world.configured(Err(agent_error()));
    world.expect(&["answer 2 error agentError"]);
    assert_eq!(world.view(), before);
}

#[test]
fn an_update_that_is_refused_changes_nothing_at_all() {
    let mut world = World::live();
    let settings = Settings {
        mode: Some("nonsense".to_owned()),
        ..Settings::default()
    };
    let call = Call::Update {
        title: Some("A title".to_owned()),
        settings: Some(settings),
        expected_revision: None,
    };
    world.call(call, None);
    world.configured(Err(agent_error()));
    assert_eq!(world.view().title, "");
}

#[test]
fn settings_that_the_agent_has_not_taken_yet_are_not_written_by_another_call() {
    let mut world = World::live();
    world.set_mode("nonsense");
    world.set_title("A title");
    world.configured(Err(agent_error()));
    assert_eq!(world.disk.record.as_ref().unwrap().settings.mode, None);
}

#[test]
fn settings_are_laid_over_those_that_are_there() {
    let mut world = World::new();
    let config = |key: &str| Some([(key.to_owned(), json!(1).into())].into());
    for settings in [
        Settings {
            mode: Some("plan".to_owned()),
            config: config("a"),
            ..Settings::default()
        },
        Settings {
            model: Some("opus".to_owned()),
            config: config("b"),
            ..Settings::default()
        },
    ] {
        world.call(
            Call::Update {
                title: None,
                settings: Some(settings),
                expected_revision: None,
            },
            None,
        );
    }
    let settings = &world.disk.record.as_ref().unwrap().settings;
    assert_eq!(
        (settings.mode.as_deref(), settings.model.as_deref()),
        (Some("plan"), Some("opus"))
    );
    assert_eq!(settings.config.as_ref().unwrap().len(), 2);
}

#[test]
fn f2_reset_clears_the_chain_and_keeps_the_lineage() {
    let mut world = World::live();
    world.reset();
    world.expect(&["close session"]);
    world.closes();
    world.expect(&["event closed", "event reset", "answer 2 conversation idle"]);
    assert!(world.chain().is_empty());
    assert_eq!(world.lineage_on_disk(), ["created:s1", "reset:s1"]);
    world.prompt("anew");
    world.opens("s2");
    assert_eq!(world.chain(), ["s2"]);
    assert!(!world.saw("event rolled"));
}

/// It would read the lineage without the reset, and take back what came before.
#[test]
fn an_undo_is_refused_until_the_reset_before_it_is_on_disk() {
    let mut world = World::live();
    world.hold_writes = true;
    world.reset();
    world.closes();
    let early = world.undo();
    assert!(matches!(world.answers[&early], Err(ConversationError::Busy(_))));
    world.release_writes();
    let undo = world.undo();
    assert!(!world.answers.contains_key(&undo), "it has begun");
}

#[test]
fn reset_lifts_limit_failure_and_questions() {
    let mut world = World::running();
    world.asks("q1");
    world.dies();
    world.prompt("third");
    world.climb_fails(not_resumable());
    assert_eq!(world.view().state, ConversationState::Failed);
    world.reset();
    assert_eq!(world.view().state, ConversationState::Idle);
    assert_eq!(world.view().interrupts, []);
    assert_eq!(world.view().failure, None);
}

#[test]
fn after_a_reset_the_old_sessions_mode_and_model_are_not_shown() {
    let mut world = World::live();
    world.model.record.reported.mode = Some("plan".to_owned());
    world.reset();
    world.closes();
    assert_eq!(world.view().settings.mode, None);
}

#[test]
fn reset_delete_and_close_wait_for_nothing() {
    let mut world = World::running();
    world.reset();
    world.delete();
    world.close();
    world.expect(&[
        "answer 3 error busy",
        "answer 4 error busy",
        "answer 5 error busy",
    ]);
    let mut world = World::hibernating();
    world.resume(Fidelity::Text);
    world.reset();
    world.delete();
    world.close();
    world.expect(&[
        "answer 3 error busy",
        "answer 4 error busy",
        "answer 5 error busy",
    ]);
}

#[test]
fn a_deleted_conversation_says_when_and_is_never_used_again() {
    let mut world = World::live();
    world.delete();
    world.closes();
    world.expect(&["close session", "event closed", "event deleted", "answer 2 done"]);
    assert!(world.disk.record.as_ref().unwrap().deleted_at.is_some());
    let late = world.prompt("hello");
    assert!(matches!(
        world.answers[&late],
        Err(ConversationError::Deleted { .. })
    ));
}

#[test]
fn transcripts_are_deleted_at_the_agent_though_no_session_is_open() {
    let mut world = World::hibernating();
    world.call(
        Call::Delete {
            transcripts: TranscriptsOnDelete::Delete,
        },
        None,
    );
    world.expect(&["close session and delete"]);
    world.closes();
    assert!(world.ended);
}

#[test]
fn until_a_deletion_is_on_disk_it_may_fail_and_the_conversation_is_busy() {
    let mut world = World::live();
    world.hold_writes = true;
    world.delete();
    world.prompt("hello");
    world.expect(&["close session", "answer 3 error busy"]);
    world.closes();
    world.forget_log();
    world.resume(Fidelity::Text);
    world.expect(&["answer 4 error deleted"]);
    world.write_fails();
    world.expect(&["answer 2 error storeFailed"]);
    world.prompt("hello");
    world.expect(&["event state prompting"]);
}

#[test]
fn a_deletion_that_is_asked_for_again_with_its_key_is_answered_as_the_first() {
    let mut world = World::live();
    let delete = || Call::Delete {
        transcripts: TranscriptsOnDelete::Keep,
    };
    world.hold_writes = true;
    world.call(delete(), Some("k"));
    world.closes();
    let joined = world.call(delete(), Some("k"));
    world.release_writes();
    let again = world.call(delete(), Some("k"));
    for reply in [joined, again] {
        assert!(
            matches!(world.answers.get(&reply), Some(Ok(_))),
            "{:?}",
            world.answers.get(&reply)
        );
    }
}

#[test]
fn a_conversation_that_was_never_opened_can_be_reset_and_deleted() {
    let mut world = World::new();
    world.reset();
    world.delete();
    world.expect(&[
        "event reset",
        "answer 1 conversation idle",
        "event deleted",
        "answer 2 done",
    ]);
    assert!(
        world
            .disk
            .lineage
            .iter()
            .all(|entry| entry.agent.as_str() == "claude" && !entry.cwd.is_empty())
    );
}

#[test]
fn a_call_with_a_key_is_remembered_with_its_answer() {
    let mut world = World::live();
    let rename = || Call::Update {
        title: Some("x".to_owned()),
        settings: None,
        expected_revision: Some(4),
    };
    world.model.record.revision = 4;
    world.call(rename(), Some("k"));
    let again = world.call(rename(), Some("k"));
    assert!(matches!(world.answers[&again], Ok(Answer::Json(_))));
}

#[test]
fn a_key_on_any_call_is_free_again_when_the_call_is_answered() {
    for call in [
        Call::Close,
        Call::Cancel {
            turn_id: None,
            queued: false,
        },
        Call::Resume {
            min_fidelity: Fidelity::Text,
        },
        Call::Reset,
    ] {
        let mut world = World::hibernating();
        let name = format!("{call:?}");
        world.call(call, Some("k"));
        if world.job.is_some() {
            world.reopens();
        }
        // If a key stayed open, the next call with it would wait for ever.
        assert!(world.model.open_requests.is_empty(), "{name}");
    }
}

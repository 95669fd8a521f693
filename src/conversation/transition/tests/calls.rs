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

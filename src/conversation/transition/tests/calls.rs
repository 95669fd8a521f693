//! Title and settings, reset and deletion.

use bridge_protocol::conversation::{ConversationState, Settings};
use bridge_protocol::link::Fidelity;
use bridge_protocol::method::Update;
use serde_json::json;

use super::outside::{agent_error, not_resumable};
use super::world::World;
use crate::conversation::effect::Call;

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
        let call = Update {
            settings,
            ..Update::default()
        };
        world.call(Call::Update(call, None), None);
    }
    let settings = &world.disk.record.as_ref().unwrap().settings;
    assert_eq!(
        (settings.mode.as_deref(), settings.model.as_deref()),
        (Some("plan"), Some("opus"))
    );
    assert_eq!(settings.config.as_ref().unwrap().len(), 2);
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
    world.expect(&["event closed", "answer 2 error storeFailed"]);
    world.prompt("hello");
    world.expect(&["event state prompting"]);
}

#[test]
fn reset_delete_and_close_wait_for_nothing() {
    let mut opening = World::hibernating();
    opening.resume(Fidelity::Text);
    for mut world in [World::running(), opening] {
        world.reset();
        world.delete();
        world.close();
        world.expect(&[
            "answer 3 error busy",
            "answer 4 error busy",
            "answer 5 error busy",
        ]);
    }
}

#[test]
fn an_update_that_is_refused_changes_nothing_at_all() {
    let mut world = World::live();
    let settings = Settings {
        mode: Some("nonsense".to_owned()),
        ..Settings::default()
    };
    let call = Update {
        title: Some("A title".to_owned()),
        settings,
        ..Update::default()
    };
    world.call(Call::Update(call, None), None);
    world.configured(Err(agent_error()));
    assert_eq!(world.view().title, "first");
}

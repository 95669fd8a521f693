use bridge_protocol::conversation::OnLimit;
use bridge_protocol::link::Fidelity;
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::{AgentName, ConversationId, TurnId};
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::store::{ConversationRecord, PendingContinuation, PendingTurn, QueuedPromptRecord, TurnPhase};

const STRUCTURES: &[&str] = &["settings", "turn", "cut", "continuation", "waiting"];

fn record() -> ConversationRecord {
    ConversationRecord::new(
        ConversationId::from_bytes([7; 16]),
        AgentName::new("claude"),
        "/home/u/project".to_owned(),
        Timestamp::UNIX_EPOCH,
    )
}

fn with_prompt(text: &str) -> ConversationRecord {
    let turn = PendingTurn {
        turn_id: TurnId::new("turn"),
        prompt: PromptContent::text(text),
        accepted_at: Timestamp::UNIX_EPOCH,
        upstream_id: None,
        phase: TurnPhase::Sent,
        anchor: None,
        min_fidelity: None,
        continues: false,
        taken: false,
        fingerprint: None,
        edit: None,
        request_id: None,
    };
    ConversationRecord {
        turn: Some(turn),
        ..record()
    }
}

fn stored(record: &ConversationRecord, bodies: &Bodies) -> StoredValue {
    let value = StoredValue::encode("conversation", record, STRUCTURES, Some(bodies), false).unwrap();
    assert!(value.to_bytes("conversation").unwrap().len() <= VALUE_LIMIT_BYTES);
    let again = StoredValue::from_bytes("conversation", &value.to_bytes("conversation").unwrap()).unwrap();
    assert_eq!(
        &again
            .read::<ConversationRecord>("conversation", Some(bodies))
            .unwrap(),
        record
    );
    value
}

fn paths(value: &StoredValue) -> Vec<&str> {
    value.bodies.keys().map(String::as_str).collect()
}

#[test]
fn a_small_record_stays_in_one_piece() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = Bodies::in_folder(folder.path().join("bodies"));
    assert!(paths(&stored(&with_prompt("short"), &bodies)).is_empty());
    assert!(!folder.path().join("bodies").exists());
}

#[test]
fn a_large_record_moves_member_by_member() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = Bodies::in_folder(folder.path().to_owned());
    let long = "long ".repeat(10_000);
    assert_eq!(paths(&stored(&with_prompt(&long), &bodies)), ["/turn/prompt"]);

    let mut several = with_prompt(&long);
    several.settings.system_prompt = Some(long.clone());
    several.failure = Some(long.clone());
    several.settings.mcp_servers = Some(vec![RawJson::from(json!({"name": long}))]);
    assert_eq!(
        paths(&stored(&several, &bodies)),
        [
            "/failure",
            "/settings/mcpServers",
            "/settings/systemPrompt",
            "/turn/prompt"
        ]
    );
}

#[test]
fn the_next_phase_of_a_long_turn_writes_no_new_body() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = Bodies::in_folder(folder.path().to_owned());
    let mut record = with_prompt(&"long ".repeat(10_000));
    stored(&record, &bodies);
    if let Some(turn) = &mut record.turn {
        turn.phase = TurnPhase::ToolStarted;
    }
    stored(&record, &bodies);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A conversation with this many queued prompts of this length.
fn with_line(prompts: u64, length: usize) -> ConversationRecord {
    let waiting = |place: u64| QueuedPromptRecord {
        turn_id: TurnId::new(format!("turn-{place}")),
        prompt: PromptContent::text(&format!("{place} {}", "x".repeat(length))),
        asked_at: Timestamp::UNIX_EPOCH,
        min_fidelity: Fidelity::Text,
        on_limit: OnLimit::Fail,
        request: None,
    };
    ConversationRecord {
        waiting: (1..=prompts).map(|place| (place, waiting(place))).collect(),
        ..record()
    }
}

#[test]
fn removing_a_queued_prompt_rewrites_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = Bodies::in_folder(folder.path().to_owned());
    let mut record = with_line(3, 20_000);
    assert_eq!(
        paths(&stored(&record, &bodies)),
        ["/waiting/1", "/waiting/2", "/waiting/3"]
    );
    record.waiting.remove(&1);
    assert_eq!(paths(&stored(&record, &bodies)), ["/waiting/2", "/waiting/3"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_queue_of_any_length_fits() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = Bodies::in_folder(folder.path().to_owned());
    for length in [10, 600, 20_000] {
        stored(&with_line(200, length), &bodies);
    }
}

/// A continuation without its text would send another text. A queue without one prompt is the same queue.
#[test]
fn a_structure_that_lacks_a_part_is_left_out_as_a_whole_unless_it_is_divisible() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = Bodies::in_folder(folder.path().to_owned());
    let long = |mark: &str| format!("{mark} {}", "x".repeat(20_000));
    let mut record = with_line(2, 20_000);
    record.settings.system_prompt = Some(long("system"));
    record.settings.model = Some("model".to_owned());
    record.continuation = Some(PendingContinuation {
        text: Some(PromptContent::text(&long("text"))),
        ..PendingContinuation::at_once(Timestamp::UNIX_EPOCH)
    });
    let value = stored(&record, &bodies);
    let parts = [
        "/continuation/text",
        "/settings/systemPrompt",
        "/waiting/1",
        "/waiting/2",
    ];
    assert_eq!(paths(&value), parts);
    for part in &parts[..3] {
        std::fs::remove_file(folder.path().join(&value.bodies[*part].sha256)).unwrap();
    }
    let salvaged =
        value.salvage::<ConversationRecord>("conversation", &["settings", "waiting"], Some(&bodies));
    let (found, lost) = salvaged.unwrap();
    let lost: Vec<_> = lost.iter().map(|part| part.member.as_str()).collect();
    assert_eq!(lost, ["continuation", "settings.systemPrompt", "waiting.1"]);
    record.continuation = None;
    record.settings.system_prompt = None;
    record.waiting.remove(&1);
    assert_eq!(found, record);
}

#[test]
fn json_that_passes_through_keeps_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = Bodies::in_folder(folder.path().to_owned());
    let unread = format!(
        r#"{{"z": 1.000000000000000000001, "a": {{"record": null, "bodies": {{"/x": 1}}}}, "pad": "{}"}}"#,
        "x".repeat(20_000)
    );
    let mut record = record();
    record.settings.config = Some([("option".to_owned(), RawJson::from_text(unread).unwrap())].into());
    assert_eq!(paths(&stored(&record, &bodies)), ["/settings/config"]);
}

#[test]
fn many_small_members_move_with_their_structure() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = Bodies::in_folder(folder.path().to_owned());
    let members: BTreeMap<String, String> = (0..100)
        .map(|number| (format!("m{number}"), "x".repeat(100)))
        .collect();
    let record = BTreeMap::from([("settings", members)]);
    let value = StoredValue::encode("settings", &record, STRUCTURES, Some(&bodies), false).unwrap();
    assert_eq!(paths(&value), ["/settings"]);
    let flat: BTreeMap<String, String> = (0..100)
        .map(|number| (format!("m{number}"), "x".repeat(100)))
        .collect();
    assert!(matches!(
        StoredValue::encode("flat", &flat, &[], Some(&bodies), false),
        Err(StoreError::TooLarge { what: "flat", .. })
    ));
}

#[test]
fn in_memory_nothing_is_too_large() {
    let record = with_prompt(&"long ".repeat(10_000));
    let value = StoredValue::encode("conversation", &record, STRUCTURES, None, false).unwrap();
    assert!(value.bodies.is_empty());
    assert_eq!(
        value.read::<ConversationRecord>("conversation", None).unwrap(),
        record
    );
}

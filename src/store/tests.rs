use bridge_protocol::link::{Fidelity, LinkReason, Relation};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{Interrupt, InterruptKind};
use bridge_protocol::{AgentName, InterruptId, TurnId};
use jiff::Timestamp;

use super::*;
use crate::chain::NewLink;

/// Waits for a commit outside of any runtime, without a limit.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

pub(super) fn second(count: i64) -> Timestamp {
    Timestamp::from_second(count).unwrap()
}

pub(super) fn id(number: u8) -> ConversationId {
    let mut bytes = [0; 16];
    bytes[0] = number;
    bytes[15] = number;
    ConversationId::from_bytes(bytes)
}

pub(super) fn record(number: u8, at: i64) -> ConversationRecord {
    ConversationRecord::new(
        id(number),
        AgentName::new("claude"),
        "/home/u/project".to_owned(),
        second(at),
    )
}

pub(super) fn change(record: ConversationRecord) -> Change {
    Change {
        conversation: Some(record),
        ..Change::default()
    }
}

/// Creates the change that appends an upstream id to the conversation's chain.
pub(super) fn opened(record: &mut ConversationRecord, upstream_id: &str, at: i64) -> Change {
    let appended = record.chain.append(
        NewLink {
            upstream_id: upstream_id.into(),
            agent: record.agent.clone(),
            cwd: record.cwd.clone(),
            reason: LinkReason::Created,
            relation: Relation::Fresh,
            from_upstream_id: None,
            from_checkpoint_id: None,
            cause: None,
            turns: 0,
            carried_turns: 0,
            written: true,
        },
        Fidelity::None,
        second(at),
    );
    record.updated_at = second(at);
    Change {
        conversation: Some(record.clone()),
        lineage: appended
            .entries
            .into_iter()
            .map(|entry| (record.id, entry))
            .collect(),
        upstream: vec![(
            record.id,
            TranscriptRoot::new("/home/u/.claude"),
            upstream_id.into(),
        )],
        ..Change::default()
    }
}

pub(super) fn request(conversation: Option<u8>, name: &str, at: i64) -> RequestRecord {
    RequestRecord {
        version: RECORD_VERSION,
        conversation_id: conversation.map(id),
        request_id: RequestId::new(name),
        fingerprint: "f".to_owned(),
        turn_id: None,
        result: None,
        short_result: None,
        error: None,
        at: second(at),
    }
}

/// Runs a test on a store in memory and on one on disk.
fn on_both(test: impl Fn(&Store)) {
    test(&Store::ephemeral().unwrap());
    let folder = tempfile::tempdir().unwrap();
    test(&Store::open(folder.path(), StoreOptions::default()).unwrap().0);
}

#[test]
fn owners_are_separated_by_root() {
    on_both(|store| {
        for (number, root) in [
            (1, "/home/u/.claude"),
            (2, "/home/u/other"),
            (3, "/home/u/.claude"),
        ] {
            let held = Change {
                upstream: vec![(id(number), TranscriptRoot::new(root), "same".into())],
                ..change(record(number, 1))
            };
            wait(store.commit(held)).unwrap();
        }
        let root = TranscriptRoot::new("/home/u/.claude");
        assert_eq!(store.owners(&"same".into(), Some(&root)).unwrap(), [id(1), id(3)]);
        assert_eq!(store.owners(&"same".into(), None).unwrap(), [id(1), id(2), id(3)]);
        assert!(store.owners(&"sam".into(), None).unwrap().is_empty());
    });
}

#[test]
fn unfinished_conversations_are_indexed() {
    on_both(|store| {
        let long = PromptContent::text(&"long ".repeat(5_000));
        let turn = PendingTurn {
            turn_id: TurnId::new("turn"),
            prompt: long,
            accepted_at: second(1),
            upstream_id: None,
            phase: TurnPhase::Sent,
            anchor: Some(Anchor {
                owner: None,
                record_uuid: Some("uuid".to_owned()),
            }),
            min_fidelity: None,
            continues: false,
            taken: false,
            fingerprint: None,
            edit: None,
            request_id: None,
        };
        let question = Interrupt {
            id: InterruptId::new("question"),
            kind: InterruptKind::Permission,
            tool_call: None,
            options: None,
            request: RawJson::from(serde_json::json!({"pad": "x".repeat(20_000)})),
            raised_at: second(1),
            orphaned: false,
        };
        let prompted = ConversationRecord {
            turn: Some(turn),
            ..record(2, 1)
        };
        let asked = ConversationRecord {
            interrupts: vec![question],
            ..record(3, 1)
        };
        let limited = ConversationRecord {
            resting: RestingState::Limited,
            ..record(4, 1)
        };
        for written in [record(1, 1), prompted, asked.clone(), limited] {
            wait(store.commit(change(written.clone()))).unwrap();
            assert_eq!(store.conversation(written.id).unwrap(), Some(written));
        }
        assert_eq!(store.unfinished().unwrap(), [id(2), id(3), id(4)]);
        wait(store.commit(change(record(2, 2)))).unwrap();
        wait(store.commit(change(record(4, 2)))).unwrap();
        wait(store.commit(change(ConversationRecord {
            deleted_at: Some(second(3)),
            ..asked
        })))
        .unwrap();
        assert!(store.unfinished().unwrap().is_empty());
    });
}

#[test]
fn a_newer_record_is_read_and_never_rewritten() {
    on_both(|store| {
        let newer = ConversationRecord {
            version: RECORD_VERSION + 1,
            ..record(1, 1)
        };
        assert!(matches!(
            wait(store.commit(change(newer))),
            Err(StoreError::NewerRecord { version, .. }) if version == RECORD_VERSION + 1
        ));
        assert_eq!(store.conversation(id(1)).unwrap(), None);
        assert!(
            store.status().failure.is_none(),
            "a refused change is no failure of the store"
        );
    });
}

#[test]
fn changes_are_made_in_the_order_of_the_calls() {
    on_both(|store| {
        // More than one group, awaited in reverse order.
        let count = 3_000;
        let mut commits: Vec<_> = (0..count)
            .map(|number| {
                let titled = ConversationRecord {
                    title: number.to_string(),
                    ..record(1, number)
                };
                store.commit(change(titled))
            })
            .collect();
        commits.reverse();
        wait(async {
            let mut expected = u64::try_from(count).unwrap();
            for commit in futures_util::future::join_all(commits).await {
                assert_eq!(commit.unwrap(), Sequence(expected));
                expected -= 1;
            }
        });
        assert_eq!(
            store.conversation(id(1)).unwrap().unwrap().title,
            (count - 1).to_string()
        );
    });
}

#[test]
fn a_full_queue_refuses_and_loses_or_reorders_nothing() {
    let store = Store::ephemeral().unwrap();
    // While a reader holds the lock, the thread cannot apply a second group, so the queue fills up.
    let moment = store.shared.snapshot_lock.read().unwrap();
    let commits: Vec<_> = (0..COMMIT_QUEUE_LIMIT * 2)
        .map(|number| {
            let titled = ConversationRecord {
                title: number.to_string(),
                ..record(1, 1)
            };
            (number, store.commit(change(titled)))
        })
        .collect();
    drop(moment);
    let mut last = 0;
    let mut refused = 0;
    for (number, commit) in commits {
        match wait(commit) {
            Ok(_) => last = number,
            Err(StoreError::QueueFull) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let taken_out = COMMIT_QUEUE_LIMIT - refused;
    assert!(taken_out <= commit::GROUP_LIMIT, "{refused} refused");
    assert_eq!(
        store.conversation(id(1)).unwrap().unwrap().title,
        last.to_string()
    );
}

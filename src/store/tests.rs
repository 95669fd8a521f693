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
fn commits_are_visible_at_once() {
    on_both(|store| {
        assert_eq!(store.conversation(id(1)).unwrap(), None);
        let mut first = record(1, 10);
        let sequence = wait(store.commit(opened(&mut first, "up 1", 11))).unwrap();
        assert_eq!(sequence, Sequence(1));
        assert_eq!(store.conversation(id(1)).unwrap(), Some(first.clone()));
        assert_eq!(store.count(), 1);
        assert_eq!(store.status().sequence, Sequence(1));
        let lineage = store.lineage_all(id(1)).unwrap();
        assert_eq!(lineage.len(), 1);
        assert!(lineage[0].in_chain);
        assert_eq!(store.owners(&"up 1".into(), None).unwrap(), [id(1)]);
    });
}

#[test]
fn an_ephemeral_store_says_so() {
    assert!(Store::ephemeral().unwrap().status().is_ephemeral);
}

#[test]
fn names_resolve_to_conversations() {
    on_both(|store| {
        let near = |last: u8| {
            let mut bytes = [0xAB; 16];
            bytes[3] = last;
            ConversationId::from_bytes(bytes)
        };
        for (conversation, upstream_id) in [
            (near(0x10), "ses_1"),
            (near(0x11), "ses_2"),
            (near(0x20), "abababcc"),
            (near(0xCC), "shared"),
            (near(0xDD), "shared"),
            (near(0xEE), "abababdd-abab-abab-abab-abababababab"),
        ] {
            let mut record = ConversationRecord {
                id: conversation,
                ..record(1, 1)
            };
            wait(store.commit(opened(&mut record, upstream_id, 2))).unwrap();
        }
        let resolve = |name: &str| match store.resolve(&name.into()) {
            Ok(resolved) => format!("{} by {:?}", &resolved.id.to_string()[..8], resolved.by),
            Err(Lookup::Ambiguous { candidates, by }) => format!("ambiguous {} by {by:?}", candidates.len()),
            Err(Lookup::NotFound) => "not found".to_owned(),
            Err(error) => panic!("{error}"),
        };
        let cases = [
            ("abababdd-abab-abab-abab-abababababab", "abababdd by Id"),
            ("ABABABDDABABABABABABABABABABABAB", "abababdd by Id"),
            ("ababab1", "ambiguous 2 by Prefix"),
            ("ababab10", "abababd10"),
            ("abababd", "ambiguous 2 by Prefix"),
            ("abababcc", "ambiguous 2 by Prefix"),
            ("ababab", "ambiguous 6 by Prefix"),
            ("ababa", "not found"),
            ("ses_1", "ababab10 by UpstreamId"),
            ("ses_", "not found"),
            ("shared", "ambiguous 2 by UpstreamId"),
            ("", "not found"),
            ("00000000-0000-0000-0000-000000000000", "not found"),
        ];
        for (name, expected) in cases {
            let expected = if expected == "abababd10" {
                "ababab10 by Prefix"
            } else {
                expected
            };
            assert_eq!(resolve(name), expected, "{name:?}");
        }
    });
}

#[test]
fn every_past_upstream_id_resolves() {
    on_both(|store| {
        let mut record = record(1, 1);
        for step in 0..50 {
            wait(store.commit(opened(&mut record, &format!("up {step}"), step))).unwrap();
        }
        for step in 0..50 {
            assert_eq!(
                store.resolve(&format!("up {step}").as_str().into()).unwrap().id,
                id(1)
            );
        }
        let lineage = store.lineage_all(id(1)).unwrap();
        assert_eq!(
            lineage.iter().map(|entry| entry.seq).collect::<Vec<_>>(),
            (1..=50).collect::<Vec<_>>()
        );
        assert_eq!(
            lineage.iter().filter(|entry| entry.in_chain).count(),
            crate::chain::CHAIN_LIMIT
        );
        let part = store.lineage(id(1), 48, 10).unwrap();
        assert_eq!(part.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [49, 50]);
        assert_eq!(store.lineage(id(1), 10, 2).unwrap()[0].seq, 11);
        assert!(store.lineage_all(id(2)).unwrap().is_empty());
    });
}

#[test]
fn an_unambiguous_prefix_of_an_upstream_id_resolves() {
    on_both(|store| {
        for (number, upstream_id) in [(1, "session-a1"), (2, "session-b"), (3, "session-a")] {
            wait(store.commit(opened(&mut record(number, 1), upstream_id, 1))).unwrap();
        }
        let resolved = |name: &str| store.resolve(&name.into());
        assert_eq!(resolved("session-b").unwrap().id, id(2));
        assert_eq!(resolved("session-a").unwrap().id, id(3), "a whole id comes first");
        assert_eq!(resolved("session-a1").unwrap().id, id(1));
        wait(store.commit(opened(&mut record(2, 1), "second-session", 2))).unwrap();
        assert_eq!(resolved("second").unwrap().id, id(2));
        assert!(matches!(resolved("secon"), Err(Lookup::NotFound)), "5 characters");
        match resolved("session-") {
            Err(Lookup::Ambiguous { candidates, by }) => {
                assert_eq!(candidates, [id(1), id(2), id(3)]);
                assert_eq!(by, ResolvedBy::Prefix);
            }
            other => panic!("{other:?}"),
        }
    });
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
            resting: Resting::Limited,
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

/// F34: no answer is kept forever.
#[test]
fn requests_are_kept_and_expire() {
    const DAY: i64 = 24 * 60 * 60;
    let put = |store: &Store, request: RequestRecord| {
        let change = Change {
            requests: vec![request],
            ..Change::default()
        };
        wait(store.commit(change)).unwrap();
    };
    on_both(|store| {
        let known = |conversation: Option<u8>, name: &str| {
            store
                .request(conversation.map(id), &RequestId::new(name))
                .unwrap()
                .is_some()
        };
        put(store, request(Some(1), "old", 0));
        put(store, request(Some(2), "old", 0));
        put(store, request(None, "old", 0));
        put(store, request(Some(1), "six days later", 6 * DAY));
        assert!(known(Some(1), "old"));
        put(store, request(Some(1), "eight days later", 8 * DAY));
        assert!(!known(Some(1), "old"));
        assert!(known(Some(1), "six days later"));
        assert!(
            known(Some(2), "old") && known(None, "old"),
            "others are not touched"
        );

        let mut answered = request(Some(2), "old", 0);
        answered.result = Some(RawJson::from(serde_json::json!({"pad": "x".repeat(20_000)})));
        put(store, answered.clone());
        assert_eq!(
            store.request(Some(id(2)), &answered.request_id).unwrap(),
            Some(answered)
        );
    });
    let store = Store::ephemeral().unwrap();
    for number in 0..=REQUEST_MEMORY_COUNT {
        put(
            &store,
            request(Some(1), &format!("r{number}"), i64::try_from(number).unwrap()),
        );
    }
    assert!(
        store
            .request(Some(id(1)), &RequestId::new("r0"))
            .unwrap()
            .is_none()
    );
    assert!(
        store
            .request(Some(id(1)), &RequestId::new("r1"))
            .unwrap()
            .is_some()
    );
}

#[test]
fn processes_are_kept_until_they_are_removed() {
    on_both(|store| {
        let process = |mark: &str| ProcessRecord {
            version: RECORD_VERSION,
            mark: mark.to_owned(),
            pid: 4_711,
            start_time_ticks: Some(99),
            boot_id: Some("boot".to_owned()),
            agent: AgentName::new("claude"),
            spawned_at: second(1),
        };
        let put = Change {
            processes_put: vec![process("a"), process("b")],
            ..Change::default()
        };
        wait(store.commit(put)).unwrap();
        let removed = Change {
            processes_removed: vec!["a".to_owned()],
            ..Change::default()
        };
        wait(store.commit(removed)).unwrap();
        assert_eq!(store.processes().unwrap(), [process("b")]);
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
fn a_change_over_a_limit_is_refused_alone() {
    on_both(|store| {
        let long = |length| Change {
            upstream: vec![(
                id(1),
                TranscriptRoot::new("/r"),
                "x".repeat(length).as_str().into(),
            )],
            ..change(record(1, 1))
        };
        assert!(matches!(
            wait(store.commit(long(UPSTREAM_ID_LIMIT_BYTES + 1))),
            Err(StoreError::TooLarge {
                what: "upstream id",
                ..
            })
        ));
        assert_eq!(
            store.conversation(id(1)).unwrap(),
            None,
            "none of the change is made"
        );
        wait(store.commit(long(UPSTREAM_ID_LIMIT_BYTES))).unwrap();
        let nul = Change {
            upstream: vec![(id(1), TranscriptRoot::new("/r"), "a\0b".into())],
            ..Change::default()
        };
        assert!(matches!(wait(store.commit(nul)), Err(StoreError::NulInKey)));
    });
}

#[test]
fn an_empty_change_is_no_change() {
    on_both(|store| {
        wait(store.commit(change(record(1, 1)))).unwrap();
        assert_eq!(wait(store.commit(Change::default())).unwrap(), Sequence(1));
        assert_eq!(store.status().sequence, Sequence(1));
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
    let moment = store.shared.consistent.read().unwrap();
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

#[test]
fn a_commit_that_is_not_awaited_is_made() {
    on_both(|store| {
        drop(store.commit(change(record(1, 1))));
        wait(store.commit(change(record(2, 1)))).unwrap();
        assert!(store.conversation(id(1)).unwrap().is_some());
    });
}

#[test]
fn after_a_shutdown_reads_work_and_commits_fail() {
    on_both(|store| {
        wait(store.commit(change(record(1, 1)))).unwrap();
        wait(store.shutdown()).unwrap();
        assert!(matches!(
            wait(store.commit(change(record(2, 1)))),
            Err(StoreError::Closed)
        ));
        assert!(matches!(wait(store.shutdown()), Err(StoreError::Closed)));
        assert!(store.conversation(id(1)).unwrap().is_some());
    });
}

#[test]
fn a_shutdown_carries_out_queued_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(folder.path(), StoreOptions::default()).unwrap();
    let commits: Vec<_> = (0..100)
        .map(|number| store.commit(change(record(number, 1))))
        .collect();
    wait(store.shutdown()).unwrap();
    for commit in commits {
        wait(commit).unwrap();
    }
    drop(store);
    let (store, report) = Store::open(folder.path(), StoreOptions::default()).unwrap();
    assert_eq!((store.count(), report.replayed), (100, 0));
}

/// A future that a runtime may move between threads.
#[test]
fn stores_and_commits_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    fn is_shared<T: Send + Sync + Clone + 'static>(_: &T) {}
    let store = Store::ephemeral().unwrap();
    is_shared(&store);
    let commit = store.commit(Change::default());
    is_send(&commit);
    wait(commit).unwrap();
}

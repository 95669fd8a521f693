use std::path::Path;

use bridge_protocol::raw::RawJson;

use super::*;
use crate::store::journal::Journal;
use crate::store::journal::tests::{FaultyFile, nowhere};
use crate::store::keyspace::Keyspace;
use crate::store::open;
use crate::store::request_memory::MEMORY_MICROSECONDS;
use crate::store::tests::{change, id, record, request, wait};
use crate::store::trust::TrustFile;
use crate::store::{RequestId, Store, StoreOptions};

/// A writer with trees in memory and a journal file that can fail.
fn writer(folder: &Path) -> (Writer, Arc<Shared>, FaultyFile) {
    let file = FaultyFile::default();
    let journal = Journal::with_file(Box::new(file.clone()), Path::new("journal.jsonl"), nowhere());
    let mark = AppliedState::at(nowhere());
    let shared = Arc::new(Shared::new(Keyspace::in_memory(), None, &mark));
    let paths = StorePaths::in_folder(folder);
    let files = StoreFiles {
        journal,
        trust: TrustFile::at(paths.trust.clone()),
        paths,
    };
    let writer = Writer::new(Arc::clone(&shared), Some(files), mark);
    (writer, shared, file)
}

/// A writer in a folder, with its real files.
fn writer_on_disk(folder: &Path) -> (Writer, Arc<Shared>) {
    let opened = open::open(folder, false).unwrap();
    let shared = Arc::new(Shared::new(opened.keyspace, Some(opened.bodies), &opened.applied));
    let writer = Writer::new(Arc::clone(&shared), Some(opened.files), opened.applied);
    (writer, shared)
}

fn commit(writer: &mut Writer, changes: Vec<Change>) -> Vec<Result<Sequence, StoreError>> {
    let (group, answers): (Vec<_>, Vec<_>) = changes
        .into_iter()
        .map(|change| {
            let (answer, answered) = oneshot::channel();
            ((change, answer), answered)
        })
        .unzip();
    writer.commit(group);
    answers
        .into_iter()
        .map(|mut answered| answered.try_recv().unwrap())
        .collect()
}

fn lines(file: &FaultyFile) -> usize {
    let state = file.state.lock().unwrap();
    state.bytes.iter().filter(|byte| **byte == b'\n').count()
}

#[test]
fn an_unencodable_change_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, shared, file) = writer(folder.path());
    let too_long = Change {
        upstream: vec![(
            id(2),
            super::super::TranscriptRoot::new("/r"),
            "x".repeat(5_000).as_str().into(),
        )],
        ..change(record(2, 1))
    };
    let outcomes = commit(
        &mut writer,
        vec![change(record(1, 1)), too_long, change(record(3, 1))],
    );
    assert_eq!(outcomes[0].as_ref().unwrap(), &Sequence(1));
    assert!(matches!(outcomes[1], Err(StoreError::TooLarge { .. })));
    assert_eq!(outcomes[2].as_ref().unwrap(), &Sequence(2));
    assert!(shared.read(|view| view.conversation(id(2))).unwrap().is_none());
    assert_eq!(lines(&file), 2);
}

#[test]
fn a_change_sees_those_before_it_in_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, shared, _) = writer(folder.path());
    commit(&mut writer, (0..10).map(|at| change(record(1, at))).collect());
    assert_eq!(shared.status().conversations, 1);
    assert_eq!(shared.read(|view| view.recent_page(None, 10)).unwrap().len(), 1);
}

/// Changes in the journal are acknowledged even if the database fails.
#[test]
fn a_failed_database_is_replaced_from_the_journal_and_rebuilt_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, shared) = writer_on_disk(folder.path());
    for number in 1..=3 {
        assert!(commit(&mut writer, vec![change(record(number, 1))])[0].is_ok());
    }
    shared.fail_database(true);
    for number in 4..=6 {
        let outcome = commit(&mut writer, vec![change(record(number, 1))]);
        assert_eq!(outcome[0].as_ref().unwrap(), &Sequence(u64::from(number)));
    }
    for number in 1..=6 {
        assert!(
            shared
                .read(|view| view.conversation(id(number)))
                .unwrap()
                .is_some(),
            "{number}"
        );
    }
    let figures = shared.status();
    assert_eq!(figures.conversations, 6);
    assert!(figures.failure.is_none() && figures.database_failure.is_some());
    assert!(!writer.files.as_ref().unwrap().trust.is_trusted().unwrap());
    writer.close().unwrap();
    drop((writer, shared));
    let opened = open::open(folder.path(), false).unwrap();
    assert_eq!(opened.report.rebuild_reason, Some(open::RebuildReason::Untrusted));
    assert_eq!(
        (opened.applied.conversations, opened.applied.position.sequence),
        (6, 6)
    );
}

/// A change that cannot be looked up is refused once, and may be sent again.
#[test]
fn an_unreadable_database_refuses_at_most_one_change() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, shared) = writer_on_disk(folder.path());
    assert!(commit(&mut writer, vec![change(record(1, 1))])[0].is_ok());
    shared.fail_database(false);
    let refused = commit(&mut writer, vec![change(record(2, 1))]);
    assert!(
        refused[0].as_ref().is_err_and(StoreError::is_transient),
        "{refused:?}"
    );
    assert!(commit(&mut writer, vec![change(record(2, 1))])[0].is_ok());
    assert!(shared.status().failure.is_none());
    assert_eq!(shared.status().conversations, 2);
}

/// Its caller has been told. What is saved with it is saved too.
#[test]
fn an_unreadable_database_does_not_refuse_the_end_of_a_turn() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, shared) = writer_on_disk(folder.path());
    assert!(commit(&mut writer, vec![change(record(1, 1))])[0].is_ok());
    shared.fail_database(false);
    let end = |number| Change {
        may_use_reserve: true,
        ..change(record(number, 1))
    };
    let saved = commit(&mut writer, vec![end(2), end(3)]);
    assert!(saved.iter().all(Result::is_ok), "{saved:?}");
    assert_eq!(shared.status().conversations, 3);
    writer.close().unwrap();
    drop((writer, shared));
    let opened = open::open(folder.path(), false).unwrap();
    assert_eq!(opened.applied.conversations, 3);
}

/// The whole result is stored as long as a file can hold it, and so is that of a change that can be refused.
#[test]
fn only_a_result_that_no_file_can_hold_is_shortened() {
    for (has_room, is_end, expected) in [
        (true, true, Some(90_002)),
        (false, true, Some(2)),
        (false, false, None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, shared) = writer_on_disk(folder.path());
        if !has_room {
            std::fs::write(folder.path().join("bodies"), "").unwrap();
        }
        let json = |bytes| Some(RawJson::from_value(&"x".repeat(bytes)).unwrap());
        let ended = Change {
            may_use_reserve: is_end,
            requests: vec![RequestRecord {
                result: json(90_000),
                short_result: json(0),
                ..request(Some(1), "key", 0)
            }],
            ..change(record(1, 1))
        };
        assert_eq!(commit(&mut writer, vec![ended])[0].is_ok(), expected.is_some());
        let key = RequestKey {
            conversation_id: Some(id(1)),
            request_id: RequestId::new("key"),
        };
        let stored = shared.read(|view| view.request(&key)).unwrap();
        let length = stored.map(|stored| stored.result.unwrap().get().len());
        assert_eq!(length, expected, "{has_room} {is_end}");
    }
}

#[test]
fn a_database_failure_found_by_a_reader_is_handled_without_a_commit() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, shared) = writer_on_disk(folder.path());
    assert!(commit(&mut writer, vec![change(record(1, 1))])[0].is_ok());
    shared.fail_database(false);
    let error = shared.read(|view| view.conversation(id(1))).unwrap_err();
    let (line, jobs) = mpsc::channel(2);
    line.try_send(Job::DatabaseFailed(error)).unwrap();
    drop(line);
    writer.run(jobs, None);
    assert!(shared.read(|view| view.conversation(id(1))).unwrap().is_some());
    assert!(shared.status().database_failure.is_some());
}

#[test]
fn changes_are_refused_if_journal_and_database_are_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, shared) = writer_on_disk(folder.path());
    assert!(commit(&mut writer, vec![change(record(1, 1))])[0].is_ok());
    let before = writer.applied.position.clone();
    shared.fail_database(true);
    let (journal, away) = (folder.path().join("journal.jsonl"), folder.path().join("away"));
    std::fs::rename(&journal, &away).unwrap();
    for outcome in commit(&mut writer, vec![change(record(2, 1)), change(record(3, 1))]) {
        assert!(matches!(outcome, Err(StoreError::Io { .. })), "{outcome:?}");
    }
    assert!(shared.status().failure.is_some());
    assert!(writer.close().is_err());
    assert_eq!(
        std::fs::metadata(&away).unwrap().len(),
        before.end_offset,
        "unapplied lines are taken back"
    );
    std::fs::rename(&away, &journal).unwrap();
    assert!(commit(&mut writer, vec![change(record(4, 1))])[0].is_ok());
    assert!(shared.read(|view| view.conversation(id(2))).unwrap().is_none());
    assert_eq!(shared.status().conversations, 2);
}

#[test]
fn expired_requests_are_deleted_at_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, shared) = writer_on_disk(folder.path());
    let now = 1_800_000_000;
    let old = now - 8 * 24 * 60 * 60;
    let mut changes = Vec::new();
    for number in 1..=200 {
        let requests = (0..3).map(|name| request(Some(number), &format!("old {name}"), old));
        changes.push(Change {
            requests: requests.collect(),
            ..change(record(number, 1))
        });
    }
    assert!(commit(&mut writer, changes).iter().all(Result::is_ok));
    let newer = Change {
        requests: vec![request(None, "old", old), request(Some(7), "new", now)],
        ..Change::default()
    };
    assert!(commit(&mut writer, vec![newer])[0].is_ok());
    let known = |conversation: Option<u8>, name: &str| {
        let key = RequestKey {
            conversation_id: conversation.map(id),
            request_id: crate::store::RequestId::new(name),
        };
        shared.read(|view| view.request(&key)).unwrap().is_some()
    };
    // A newer request of the same conversation deletes the expired ones before it.
    assert!(!known(Some(7), "old 1") && known(Some(8), "old 1") && known(None, "old"));

    let (line, mut jobs) = mpsc::channel(1);
    drop(line);
    let oldest_kept = apply::sortable_micros(Timestamp::from_second(now).unwrap()) - MEMORY_MICROSECONDS;
    let mut pruning = Some(Vec::new());
    assert!(
        writer
            .prune_until_next_job(&mut pruning, oldest_kept, &mut jobs)
            .is_none()
    );
    assert_eq!(pruning, None);
    assert!(!known(None, "old"));
    for number in 1..=200 {
        assert!(
            !known(Some(number), "old 0") && !known(Some(number), "old 2"),
            "{number}"
        );
    }
    assert!(known(Some(7), "new"));
}

/// A journal damaged by another process is reported and rewritten, so that a database lost later can be rebuilt from
/// all acknowledged changes.
#[test]
fn a_damaged_journal_is_rewritten_and_rebuilds_a_lost_database() {
    type Damage = fn(&mut Vec<u8>);
    let table: [(&str, Damage); 5] = [
        ("a line", |bytes| {
            let begin = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            bytes[begin + 60] ^= 1;
        }),
        ("the header", |bytes| bytes[3] ^= 1),
        ("the last line", |bytes| {
            let last = bytes.len() - 3;
            bytes[last] = b' ';
        }),
        ("the end", |bytes| bytes.truncate(bytes.len() - 20)),
        ("all of it", |bytes| bytes.fill(b'\n')),
    ];
    for (what, damage) in table {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal.jsonl");
        let (store, _) = Store::open(folder.path(), StoreOptions::default()).unwrap();
        for number in 1..=5 {
            wait(store.commit(change(record(number, i64::from(number))))).unwrap();
        }
        assert_eq!(store.check_journal().unwrap(), None, "{what}");
        let mut bytes = std::fs::read(&journal).unwrap();
        damage(&mut bytes);
        std::fs::write(&journal, &bytes).unwrap();

        let found = store.check_journal().unwrap().unwrap_or_else(|| panic!("{what}"));
        assert!(!found.damaged.is_empty() || found.missing > 0, "{what}");
        assert_eq!(std::fs::read(&found.copy).unwrap(), bytes, "{what}");
        assert_eq!(store.check_journal().unwrap(), None, "{what}: it is whole again");
        wait(store.commit(change(record(6, 6)))).unwrap();
        assert_eq!(store.check_journal().unwrap(), None, "{what}: and goes on");
        drop(store);

        std::fs::remove_dir_all(folder.path().join("store")).unwrap();
        let (store, report) = Store::open(folder.path(), StoreOptions::default()).unwrap();
        assert_eq!(report.damaged, [], "{what}");
        for number in 1..=6 {
            assert!(
                store.conversation(id(number)).unwrap().is_some(),
                "{what}: {number}"
            );
        }
    }
}

/// If the database failed and the journal is damaged too, the next start merges them.
#[test]
fn a_failed_database_is_used_again_if_the_journal_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, shared) = writer_on_disk(folder.path());
    for number in 1..=3 {
        assert!(commit(&mut writer, vec![change(record(number, 1))])[0].is_ok());
    }
    shared.keyspace().sync().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let mut bytes = std::fs::read(&journal).unwrap();
    let begin = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    bytes[begin + 60] ^= 1;
    std::fs::write(&journal, &bytes).unwrap();
    shared.fail_database(true);
    assert!(commit(&mut writer, vec![change(record(4, 1))])[0].is_ok());
    assert!(
        writer.rewrite_journal().is_err(),
        "the journal is not rewritten without the database's changes"
    );
    writer.close().unwrap();
    drop((writer, shared));
    let opened = open::open(folder.path(), false).unwrap();
    assert_eq!(opened.applied.conversations, 4, "{:?}", opened.report);
}

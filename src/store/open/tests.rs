mod damage;
mod losses;

use std::collections::BTreeMap;

use super::super::apply::FORMAT;
use super::*;
use crate::store::keyspace::{PAGE_ENTRIES, TreeId};
use crate::store::tests::{change, id, opened, record, request, second, wait};
use crate::store::{Change, ConversationRecord, Sequence, Store, StoreOptions};

fn open_store(folder: &Path) -> (Store, OpenReport) {
    Store::open(folder, StoreOptions::default()).unwrap()
}

/// Everything in a store, as a reader sees it.
fn contents(store: &Store) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let scanned = store.scan_recent(None, usize::MAX, |_, _| true).unwrap();
    assert!(scanned.is_end);
    for (cursor, id) in scanned.found {
        let salvaged = store.salvaged_conversation(id).unwrap().unwrap();
        let record = salvaged.into_record().unwrap();
        let lineage = store.lineage_all(record.id).unwrap();
        all.insert(
            format!("{} {}", cursor.to_text(), record.id),
            format!("{record:?} {lineage:?}"),
        );
    }
    all.insert("count".to_owned(), store.status().conversations.to_string());
    all.insert(
        "unfinished".to_owned(),
        format!("{:?}", store.unfinished().unwrap()),
    );
    for number in 0..40 {
        let owners = store
            .owners(&format!("up {number}").as_str().into(), None)
            .unwrap();
        all.insert(format!("owners {number}"), format!("{owners:?}"));
        let known = store
            .request(Some(id(1)), &crate::store::RequestId::new(format!("r{number}")))
            .unwrap();
        all.insert(format!("request {number}"), format!("{known:?}"));
    }
    all
}

/// Fills a store with all kinds of records, and closes or drops it. Returns its content.
fn filled(folder: &Path) -> BTreeMap<String, String> {
    let (store, _) = open_store(folder);
    for number in 0..30_u8 {
        let mut record = record(number % 10, i64::from(number));
        record.title = if number == 22 {
            "long ".repeat(4_000)
        } else {
            String::new()
        };
        record.chain = store
            .conversation(record.id)
            .unwrap()
            .map_or(record.chain, |known| known.chain);
        let mut change = opened(&mut record, &format!("up {number}"), i64::from(number) + 100);
        change.requests = vec![request(Some(1), &format!("r{number}"), i64::from(number))];
        wait(store.commit(change)).unwrap();
    }
    let deleted = ConversationRecord {
        deleted_at: Some(second(9)),
        ..record(4, 500)
    };
    wait(store.commit(change(deleted))).unwrap();
    contents(&store)
}

fn paths(folder: &Path) -> StorePaths {
    StorePaths::in_folder(folder)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_missing_damaged_or_untrusted_database_is_rebuilt() {
    type Damage = fn(&StorePaths);
    let cases: [(&str, Damage, RebuildReason, bool); 6] = [
        (
            "gone",
            |paths| fs::remove_dir_all(&paths.database).unwrap(),
            RebuildReason::Missing,
            false,
        ),
        (
            "garbage in its file",
            |paths| fs::write(paths.database.join("db"), [0xA5; 70_000]).unwrap(),
            RebuildReason::CannotOpen,
            true,
        ),
        (
            "garbage in its configuration",
            |paths| fs::write(paths.database.join("conf"), "segment_size: many\n____").unwrap(),
            RebuildReason::CannotOpen,
            true,
        ),
        (
            "a machine that went down",
            |paths| fs::write(&paths.trust, "another boot").unwrap(),
            RebuildReason::Untrusted,
            true,
        ),
        (
            "a mark that cannot be read",
            |paths| {
                let keyspace = Keyspace::open(&paths.database).unwrap();
                let mut draft = WriteBatch::new(&keyspace);
                draft.put(TreeId::Meta, b"mark", b"{".to_vec());
                keyspace.apply(draft.into_writes()).unwrap();
            },
            RebuildReason::CannotOpen,
            true,
        ),
        (
            "another form",
            |paths| {
                let keyspace = Keyspace::open(&paths.database).unwrap();
                let mut mark = AppliedState::read(&keyspace).unwrap().unwrap();
                mark.format = FORMAT + 1;
                compact::record_position(&keyspace, &mark).unwrap();
            },
            RebuildReason::OtherFormat,
            true,
        ),
    ];
    for (name, damage, reason, is_kept) in cases {
        let folder = tempfile::tempdir().unwrap();
        let before = filled(folder.path());
        damage(&paths(folder.path()));
        let (store, report) = open_store(folder.path());
        assert_eq!(
            (report.rebuild_reason, report.replayed),
            (Some(reason), 31),
            "{name}"
        );
        assert_eq!(report.set_aside.is_some(), is_kept, "{name}");
        assert_eq!(
            names(folder.path()).contains(&"store.broken-1".to_owned()),
            is_kept,
            "{name}"
        );
        assert_eq!(contents(&store), before, "{name}");
        drop(store);
        let (store, report) = open_store(folder.path());
        assert_eq!(
            (report.rebuild_reason, report.replayed),
            (None, 0),
            "{name}: once is enough"
        );
        assert_eq!(contents(&store), before, "{name}");
    }
}

#[test]
fn all_set_aside_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let before = filled(folder.path());
    for number in 1..=6 {
        fs::write(folder.path().join("store.trust"), "another boot").unwrap();
        let (store, report) = open_store(folder.path());
        assert_eq!(report.rebuild_reason, Some(RebuildReason::Untrusted));
        let name = format!("store.broken-{number}");
        assert_eq!(report.set_aside.unwrap(), folder.path().join(name));
        assert_eq!(contents(&store), before);
    }
    let kept: Vec<String> = names(folder.path())
        .into_iter()
        .filter(|name| name.starts_with("store.broken"))
        .collect();
    assert_eq!(
        kept,
        (1..=6)
            .map(|number| format!("store.broken-{number}"))
            .collect::<Vec<_>>()
    );
}

#[test]
fn an_outdated_database_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let before = filled(folder.path());
    let paths = paths(folder.path());
    // The trees as a crash may leave them: closed, while the journal continued.
    let journal = fs::read(&paths.journal).unwrap();
    let copy = tempfile::tempdir().unwrap();
    let shorter: Vec<u8> = journal
        .split_inclusive(|byte| *byte == b'\n')
        .take(21)
        .flatten()
        .copied()
        .collect();
    fs::write(copy.path().join("journal.jsonl"), shorter).unwrap();
    fs::create_dir(copy.path().join("bodies")).unwrap();
    for body in fs::read_dir(&paths.bodies).unwrap() {
        let body = body.unwrap();
        fs::copy(body.path(), copy.path().join("bodies").join(body.file_name())).unwrap();
    }
    let (behind, report) = open_store(copy.path());
    assert_eq!(
        (report.rebuild_reason, report.replayed),
        (Some(RebuildReason::Missing), 20)
    );
    drop(behind);
    fs::write(copy.path().join("journal.jsonl"), journal).unwrap();
    let (store, report) = open_store(copy.path());
    assert_eq!((report.rebuild_reason, report.replayed), (None, 11));
    assert_eq!(contents(&store), before);
}

/// A database of another journal is unrelated to this one.
#[test]
fn a_database_of_another_journal_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let before = filled(folder.path());
    drop(open_store(other.path()));
    let (store, _) = open_store(other.path());
    wait(store.commit(change(record(1, 1)))).unwrap();
    drop(store);
    fs::remove_dir_all(paths(folder.path()).database).unwrap();
    fs::rename(paths(other.path()).database, paths(folder.path()).database).unwrap();
    let (store, report) = open_store(folder.path());
    assert_eq!(report.rebuild_reason, Some(RebuildReason::NotOfThisJournal));
    assert!(report.set_aside.is_some_and(|aside| aside.is_dir()));
    assert_eq!(contents(&store), before);
}

#[test]
fn a_journal_without_its_header_is_read_and_replaced() {
    for is_rebuilt in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let before = filled(folder.path());
        let paths = paths(folder.path());
        let mut bytes = fs::read(&paths.journal).unwrap();
        bytes[1] = b'?';
        fs::write(&paths.journal, bytes).unwrap();
        if is_rebuilt {
            fs::remove_dir_all(&paths.database).unwrap();
        }
        let (store, report) = open_store(folder.path());
        assert!(report.journal_copy.is_some());
        assert_eq!(report.may_have_lost(), is_rebuilt);
        assert_eq!(contents(&store), before);
        assert_eq!(wait(store.commit(change(record(1, 900)))).unwrap(), Sequence(32));
        store.delete_open_report().unwrap();
        let before = contents(&store);
        drop(store);
        let (store, report) = open_store(folder.path());
        assert!(report.journal_copy.is_none() && report.replayed == 0);
        assert_eq!(contents(&store), before);
    }
}

/// How far a compaction got before the crash.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Until {
    Written,
    InPlace,
    Adopted,
}

#[test]
fn a_compaction_may_end_after_any_step() {
    for until in [Until::Written, Until::InPlace, Until::Adopted] {
        for is_rebuilt in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let before = filled(folder.path());
            let paths = paths(folder.path());
            {
                let keyspace = Keyspace::open(&paths.database).unwrap();
                let mark = AppliedState::read(&keyspace).unwrap().unwrap();
                let compacted = compact::write(&paths.journal, &keyspace, &mark).unwrap();
                if until != Until::Written {
                    let (_, mark, _) = compacted.put_in_place().unwrap();
                    if until == Until::Adopted {
                        compact::record_position(&keyspace, &mark).unwrap();
                    }
                }
            }
            if is_rebuilt {
                fs::remove_dir_all(&paths.database).unwrap();
            }
            let (store, report) = open_store(folder.path());
            assert_eq!(report.rebuild_reason.is_some(), is_rebuilt, "{until:?}");
            assert_eq!(
                (report.damaged.len(), report.missing, report.cut_off.is_some()),
                (0, 0, false),
                "{until:?}"
            );
            assert_eq!(contents(&store), before, "{until:?}, rebuilt: {is_rebuilt}");
            assert_eq!(
                wait(store.commit(change(record(1, 900)))).unwrap(),
                Sequence(32),
                "{until:?}"
            );
            let before = contents(&store);
            drop(store);
            let (store, report) = open_store(folder.path());
            assert_eq!((report.rebuild_reason, report.replayed), (None, 0), "{until:?}");
            assert_eq!(contents(&store), before, "{until:?}");
        }
    }
}

/// Fills a journal that the next start compacts, with one referenced body and one unreferenced. Returns the store's
/// content.
fn filled_to_compact(folder: &Path) -> BTreeMap<String, String> {
    filled(folder);
    let (store, _) = open_store(folder);
    let padding = "x".repeat(7_000);
    for number in 0..400 {
        let padded = ConversationRecord {
            title: format!("{number} {padding}"),
            ..record(77, number)
        };
        wait(store.commit(change(padded))).unwrap();
    }
    let body = ConversationRecord {
        title: "body ".repeat(4_000),
        ..record(78, 1)
    };
    wait(store.commit(change(body))).unwrap();
    wait(store.commit(change(record(78, 2)))).unwrap();
    contents(&store)
}

/// A body referenced only by a damaged journal must be kept.
#[test]
fn no_body_is_removed_while_a_damaged_journal_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let before = filled_to_compact(folder.path());
    let journal = paths(folder.path()).journal;
    let long = fs::metadata(&journal).unwrap().len();
    let damaged = folder.path().join(format!("{DAMAGED_JOURNAL}-1"));
    fs::write(&damaged, "").unwrap();
    let (store, _) = open_store(folder.path());
    assert!(fs::metadata(&journal).unwrap().len() < long);
    assert_eq!(contents(&store), before);
    assert_eq!(fs::read_dir(paths(folder.path()).bodies).unwrap().count(), 2);
}

/// F34: the next start removes what nothing refers to any more.
#[test]
fn a_long_journal_is_compacted_and_unused_bodies_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let before = filled_to_compact(folder.path());
    let paths = paths(folder.path());
    assert_eq!(fs::read_dir(&paths.bodies).unwrap().count(), 2);

    let length = || fs::metadata(&paths.journal).unwrap().len();
    let long = length();
    let (store, _) = open_store(folder.path());
    let short = length();
    assert!(long > 2_000_000 && short < 100_000, "{long} to {short} bytes");
    assert_eq!(fs::read_dir(&paths.bodies).unwrap().count(), 1);
    assert_eq!(contents(&store), before);
    drop(store);
    fs::remove_dir_all(&paths.database).unwrap();
    let (store, _) = open_store(folder.path());
    assert_eq!(length(), short);
    assert_eq!(contents(&store), before);
}

#[test]
fn nothing_over_the_limit_is_in_the_trees() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let keyspace = Keyspace::open(&paths(folder.path()).database).unwrap();
    for space in TreeId::ALL {
        let pairs = keyspace
            .page(space, std::ops::Bound::Unbounded, PAGE_ENTRIES * 100)
            .unwrap();
        for (key, value) in pairs {
            assert!(
                key.len() + value.len() <= crate::store::VALUE_LIMIT_BYTES,
                "{}",
                space.name()
            );
        }
    }
}

#[test]
fn a_newer_record_from_the_journal_is_kept_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let paths = paths(folder.path());
    let line = r#"{"conversations":[{"record":{"version":9,"id":"7b000000-0000-4000-8000-000000000000","agent":"claude","cwd":"/home/u/project","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","mood":"new"}}]}"#;
    let mut bytes = fs::read(&paths.journal).unwrap();
    bytes.extend(journal::encode_line(32, line));
    fs::write(&paths.journal, bytes).unwrap();
    let (store, _) = open_store(folder.path());
    let known = "7b000000-0000-4000-8000-000000000000".parse().unwrap();
    let read = store.conversation(known).unwrap().unwrap();
    assert_eq!(read.version, 9);
    let rewritten = Change {
        conversation: Some(ConversationRecord { version: 1, ..read }),
        ..Change::default()
    };
    assert!(matches!(
        wait(store.commit(rewritten)),
        Err(StoreError::NewerRecord { version: 9, .. })
    ));
    drop(store);
    let keyspace = Keyspace::open(&paths.database).unwrap();
    let mark = AppliedState::read(&keyspace).unwrap().unwrap();
    compact::write(&paths.journal, &keyspace, &mark)
        .unwrap()
        .put_in_place()
        .unwrap();
    assert!(
        fs::read_to_string(&paths.journal)
            .unwrap()
            .contains("\"mood\":\"new\"")
    );
}

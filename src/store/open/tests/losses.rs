//! Starts with a journal or a database that lacks changes: nothing is thrown away, and possible losses are reported.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::damage::{End, copy_folder, end_as, rewrite, sound};
use super::{contents, filled, names, open_store, paths};
use crate::store::apply::AppliedState;
use crate::store::compact;
use crate::store::journal;
use crate::store::keyspace::{Keyspace, TreeId, WriteBatch};
use crate::store::tests::{change, record, wait};
use crate::store::{Store, StoreOptions};

/// Compacts the journal of a closed store.
fn compacted(folder: &Path) {
    let paths = paths(folder);
    let keyspace = Keyspace::open(&paths.database).unwrap();
    let mark = AppliedState::read(&keyspace).unwrap().unwrap();
    let (_, mark, _) = compact::write(&paths.journal, &keyspace, &mark)
        .unwrap()
        .put_in_place()
        .unwrap();
    compact::record_position(&keyspace, &mark).unwrap();
    keyspace.close();
}

/// All files below a folder, with their content.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            let inner = files(&path).into_iter();
            found.extend(inner.map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn an_old_journal_does_not_lose_what_the_database_has() {
    for (is_compacted, end) in [false, true]
        .into_iter()
        .flat_map(|is_compacted| [End::Closed, End::Killed, End::PowerLost].map(|end| (is_compacted, end)))
    {
        let what = format!("compacted: {is_compacted}, {end:?}");
        let folder = tempfile::tempdir().unwrap();
        filled(folder.path());
        let paths = paths(folder.path());
        let backup = fs::read(&paths.journal).unwrap();
        if is_compacted {
            compacted(folder.path());
        }
        let (store, _) = open_store(folder.path());
        for number in 0..5 {
            wait(store.commit(change(record(60 + number, 900)))).unwrap();
        }
        let before = contents(&store);
        drop(store);
        end_as(folder.path(), end);
        fs::write(&paths.journal, &backup).unwrap();

        let (store, report) = open_store(folder.path());
        assert_eq!(contents(&store), before, "{what}: {report:?}");
        assert!(report.is_damaged(), "{what}: {report:?}");
        assert_eq!(report.may_have_lost(), end != End::Closed, "{what}: {report:?}");
        let kept = report.journal_copy.unwrap_or_else(|| panic!("{what}"));
        assert_eq!(fs::read(kept).unwrap(), backup, "{what}");
        drop(store);
        fs::remove_dir_all(&paths.database).unwrap();
        assert_eq!(
            contents(&open_store(folder.path()).0),
            before,
            "{what}: the journal alone"
        );
    }
}

#[test]
fn a_journal_of_nothing_but_garbage_without_a_database_may_have_lost_changes() {
    for has_header in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        filled(folder.path());
        let paths = paths(folder.path());
        fs::remove_dir_all(&paths.database).unwrap();
        let mut garbage = Vec::new();
        rewrite(&paths.journal, |bytes| {
            let header = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            bytes.truncate(if has_header { header } else { 0 });
            bytes.extend(b"gar\nbage\n");
            garbage.clone_from(bytes);
        });
        let (_, report) = open_store(folder.path());
        assert!(
            report.is_damaged() && report.may_have_lost(),
            "{has_header}: {report:?}"
        );
        assert_eq!(fs::read(report.journal_copy.unwrap()).unwrap(), garbage);
    }
}

/// If both are damaged, what is readable in each is kept.
#[test]
fn one_unreadable_value_with_a_damaged_journal_costs_no_other() {
    for space in [
        TreeId::Conversations,
        TreeId::Lineage,
        TreeId::Upstream,
        TreeId::Requests,
        TreeId::Recent,
        TreeId::Meta,
    ] {
        for end in [End::Closed, End::Killed, End::PowerLost] {
            let folder = tempfile::tempdir().unwrap();
            let what = format!("{}, {end:?}", space.name());
            filled(folder.path());
            let (store, _) = open_store(folder.path());
            for number in 0..5 {
                wait(store.commit(change(record(60 + number, 900)))).unwrap();
            }
            let ids: Vec<_> = store.recent().map(|item| item.unwrap().id).collect();
            drop(store);
            let paths = paths(folder.path());
            let keyspace = Keyspace::open(&paths.database).unwrap();
            let (key, _) = keyspace
                .page(space, std::ops::Bound::Unbounded, 1)
                .unwrap()
                .remove(0);
            let mut draft = WriteBatch::new(&keyspace);
            draft.put(space, &key, b"{{{{{".to_vec());
            keyspace.apply(draft.into_writes()).unwrap();
            keyspace.sync().unwrap();
            keyspace.close();
            rewrite(&paths.journal, |bytes| {
                let half = bytes.len() / 2;
                bytes.truncate(half);
            });
            end_as(folder.path(), end);

            let (store, report) = open_store(folder.path());
            for id in &ids {
                let is_lost = space == TreeId::Conversations && key == id.as_bytes();
                let found = store.conversation(*id).unwrap();
                assert!(is_lost || found.is_some(), "{what}: {id} {report:?}");
            }
            let has_lost = matches!(
                space,
                TreeId::Conversations | TreeId::Lineage | TreeId::Upstream | TreeId::Requests
            );
            assert_eq!(report.unreadable_values > 0, has_lost, "{what}: {report:?}");
            assert!(report.may_have_lost() || !has_lost, "{what}: {report:?}");
            let kept = report.set_aside.unwrap();
            assert!(kept.join("db").exists(), "{what}: {}", kept.display());
        }
    }
}

/// A newer version wrote a valid line with unknown content. No other copy of that line exists.
#[test]
fn an_unknown_change_fails_the_start_and_changes_nothing() {
    let known = r#""record":{"version":1,"id":"7b000000-0000-4000-8000-000000000000","agent":"claude","cwd":"/p","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z"}"#;
    let lines = [
        r#"{"rooms":[{"id":1}]}"#.to_owned(),
        format!(r#"{{"conversations":[{{{known}}}],"rooms":[]}}"#),
        format!(r#"{{"conversations":[{{{known},"mood":"new"}}]}}"#),
        r#"{"upstream":[{"upstreamId":"u","root":"/r","id":"7b000000-0000-4000-8000-000000000000","since":1}]}"#.to_owned(),
        r#"{"conversations":{"all":true}}"#.to_owned(),
    ];
    for line in lines {
        for has_database in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let before = filled(folder.path());
            let paths = paths(folder.path());
            let whole = fs::read(&paths.journal).unwrap();
            rewrite(&paths.journal, |bytes| {
                bytes.extend(journal::encode_line(32, &line));
            });
            if !has_database {
                fs::remove_dir_all(&paths.database).unwrap();
            }
            let all = files(folder.path());
            for _start in 0..2 {
                let refused = Store::open(folder.path(), StoreOptions::default());
                assert!(refused.is_err(), "{line}");
                let mut found = files(folder.path());
                let keeps = |name: &String, _: &mut Vec<u8>| {
                    !name.starts_with("store/") && !name.starts_with("store.next/")
                };
                let mut all = all.clone();
                found.retain(keeps);
                all.retain(keeps);
                assert!(found == all, "{line}: {:?}", found.keys());
            }
            fs::write(&paths.journal, &whole).unwrap();
            assert_eq!(contents(&open_store(folder.path()).0), before, "{line}");
        }
    }
}

/// The newer version may have updated the database too, so that this version skips the line when it starts.
#[test]
fn an_unknown_change_is_not_lost_in_a_compaction() {
    let folder = tempfile::tempdir().unwrap();
    super::filled_to_compact(folder.path());
    let paths = paths(folder.path());
    let text = String::from_utf8(fs::read(&paths.journal).unwrap()).unwrap();
    let mut lines: Vec<Vec<u8>> = text
        .split_inclusive('\n')
        .map(|line| line.as_bytes().to_vec())
        .collect();
    let change = text.lines().nth(3).unwrap().split_once("\"change\":").unwrap().1;
    let more = format!("{{\"rooms\":[],{}", &change[1..change.len() - 1]);
    let longer = journal::encode_line(3, &more);
    let by = longer.len() - lines[3].len();
    lines[3] = longer;
    fs::write(&paths.journal, lines.concat()).unwrap();
    let keyspace = Keyspace::open(&paths.database).unwrap();
    let mut mark = AppliedState::read(&keyspace).unwrap().unwrap();
    mark.position.line_offset += by as u64;
    mark.position.end_offset += by as u64;
    compact::record_position(&keyspace, &mark).unwrap();
    keyspace.sync().unwrap();
    keyspace.close();
    assert!(Store::open(folder.path(), StoreOptions::default()).is_err());
    assert_eq!(fs::read(&paths.journal).unwrap(), lines.concat());
}

/// A later process finds no trace of the losses in the repaired files.
#[test]
fn losses_are_reported_until_they_are_settled() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let paths = paths(folder.path());
    let text = fs::read_to_string(&paths.journal).unwrap();
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.remove(5);
    fs::write(&paths.journal, lines.concat()).unwrap();
    fs::remove_dir_all(&paths.database).unwrap();
    let (store, first) = open_store(folder.path());
    assert_eq!(first.missing, 1);
    drop(store);
    for _start in 0..2 {
        let (store, report) = open_store(folder.path());
        assert!(report.may_have_lost(), "{report:?}");
        assert_eq!((report.missing, report.rebuild_reason), (1, None), "{report:?}");
        assert_eq!(report.journal_copy, first.journal_copy);
        assert!(store.open_report().may_have_lost());
        drop(store);
    }
    let (store, _) = open_store(folder.path());
    store.delete_open_report().unwrap();
    store.delete_open_report().unwrap();
    drop(store);
    let (_, report) = open_store(folder.path());
    assert!(
        !report.is_damaged() && report.journal_copy.is_none(),
        "{report:?}"
    );
}

/// A report from a newer version, or a damaged one: its content is unknown, and it is not overwritten.
#[test]
fn an_unreadable_report_is_set_aside_and_counts_as_a_loss() {
    for text in ["{", "{\"version\":2,\"isDamaged\":false}", ""] {
        let folder = tempfile::tempdir().unwrap();
        let before = filled(folder.path());
        fs::write(paths(folder.path()).report, text).unwrap();
        let (store, report) = open_store(folder.path());
        assert!(report.may_have_lost(), "{text}: {report:?}");
        assert_eq!(contents(&store), before, "{text}");
        let aside = folder.path().join("store.report.set-aside-1");
        assert_eq!(fs::read_to_string(aside).unwrap(), text);
    }
}

/// A kill may come between any two steps of building a database.
#[test]
fn a_kill_during_a_merge_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let before = filled(folder.path());
    let paths = paths(folder.path());
    rewrite(&paths.journal, |bytes| {
        let half = bytes.len() / 2;
        bytes.truncate(half);
    });
    let repaired = tempfile::tempdir().unwrap();
    copy_folder(folder.path(), repaired.path());
    drop(open_store(repaired.path()));
    let made = super::paths(repaired.path());

    let steps: [&dyn Fn(); 4] = [
        &|| copy_folder(&made.database, &paths.unfinished),
        &|| {
            fs::remove_file(&paths.trust).unwrap();
        },
        &|| {
            fs::copy(&made.journal, &paths.journal).unwrap();
        },
        &|| {
            fs::rename(&paths.database, folder.path().join("store.damaged-1")).unwrap();
        },
    ];
    for (number, step) in steps.iter().enumerate() {
        copy_folder(&made.database, &paths.unfinished);
        step();
        let killed = tempfile::tempdir().unwrap();
        copy_folder(folder.path(), killed.path());
        let (store, report) = open_store(killed.path());
        assert_eq!(contents(&store), before, "step {number}: {report:?}");
        drop(store);
        let (store, report) = open_store(killed.path());
        assert_eq!(contents(&store), before, "step {number}, then: {report:?}");
        assert_eq!(report.rebuild_reason, None, "step {number}");
    }
}

/// The journal alone does not show that it is old, but the store recorded its last change when it was closed.
#[test]
fn an_old_journal_without_a_database_is_reported_as_a_loss() {
    for database in ["missing", "garbage", "as old"] {
        let folder = tempfile::tempdir().unwrap();
        filled(folder.path());
        let backup = tempfile::tempdir().unwrap();
        copy_folder(folder.path(), backup.path());
        let (store, _) = open_store(folder.path());
        for number in 0..5 {
            wait(store.commit(change(record(60 + number, 900)))).unwrap();
        }
        drop(store);
        let paths = paths(folder.path());
        fs::copy(super::paths(backup.path()).journal, &paths.journal).unwrap();
        fs::remove_dir_all(&paths.database).unwrap();
        match database {
            "garbage" => {
                fs::create_dir(&paths.database).unwrap();
                fs::write(paths.database.join("db"), [0xA5; 70_000]).unwrap();
            }
            "as old" => copy_folder(&super::paths(backup.path()).database, &paths.database),
            _ => {}
        }
        for _start in 0..2 {
            let (_, report) = open_store(folder.path());
            assert_eq!(
                (report.missing, report.may_have_lost()),
                (5, true),
                "{database}: {report:?}"
            );
        }
    }
}

/// If two damaged files lose something, the start reports it.
#[test]
fn a_flipped_bit_in_the_database_with_half_a_journal_is_reported() {
    let original = tempfile::tempdir().unwrap();
    let before = filled(original.path());
    rewrite(&paths(original.path()).journal, |bytes| {
        let half = bytes.len() / 2;
        bytes.truncate(half);
    });
    let (_, half) = {
        let alone = tempfile::tempdir().unwrap();
        copy_folder(original.path(), alone.path());
        fs::remove_dir_all(paths(alone.path()).database).unwrap();
        let (store, _) = open_store(alone.path());
        let ids: Vec<_> = store.recent().map(|item| item.unwrap().id).collect();
        (alone, ids)
    };
    let file = paths(original.path()).database.join("db");
    let bytes = fs::read(&file).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
    for part in 0..24 {
        let at = used * part / 24;
        let folder = tempfile::tempdir().unwrap();
        copy_folder(original.path(), folder.path());
        rewrite(&paths(folder.path()).database.join("db"), |bytes| {
            bytes[at] ^= 1 << (part % 8);
        });
        let (store, report) = open_store(folder.path());
        let what = format!("byte {at}: {report:?}");
        assert!(sound(&store) == before || report.may_have_lost(), "{what}");
        for id in &half {
            assert!(store.conversation(*id).unwrap().is_some(), "{id}, {what}");
        }
    }
}

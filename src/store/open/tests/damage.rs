//! External damage to each file of a store, and what survives.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{contents, filled, names, open_store, paths};
use crate::store::apply::AppliedState;
use crate::store::keyspace::{Keyspace, PAGE_ENTRIES, TreeId, WriteBatch};
use crate::store::open::StorePaths;
use crate::store::tests::{change, id, record, wait};
use crate::store::{Change, Sequence, Store, TranscriptRoot};

/// How the last run ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// The store was closed.
    Closed,
    /// The process was killed some time after the last change.
    Killed,
    /// The machine lost power some time after the last change.
    PowerLost,
}

const ENDS: [End; 3] = [End::Closed, End::Killed, End::PowerLost];

/// A store with all kinds of records, whose last change is short, and its content.
struct Original {
    folder: tempfile::TempDir,
    contents: BTreeMap<String, String>,
    journal: Vec<u8>,
}

impl Original {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        filled(folder.path());
        let (store, _) = open_store(folder.path());
        let last = Change {
            upstream: vec![(id(2), TranscriptRoot::new("/r"), "up 39".into())],
            ..Change::default()
        };
        wait(store.commit(last)).unwrap();
        let contents = contents(&store);
        drop(store);
        let journal = fs::read(paths(folder.path()).journal).unwrap();
        Self {
            folder,
            contents,
            journal,
        }
    }

    /// Copies the store, as this end leaves it.
    fn copy(&self, end: End) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(self.folder.path(), copy.path());
        end_as(copy.path(), end);
        copy
    }

    /// Where the last line begins.
    fn last_line(&self) -> usize {
        let lines = &self.journal[..self.journal.len() - 1];
        lines.iter().rposition(|byte| *byte == b'\n').unwrap() + 1
    }

    /// Damages a copy, opens it, and expects that nothing is lost.
    #[track_caller]
    fn opens_with_all(
        &self,
        what: &str,
        end: End,
        damage: impl FnOnce(&StorePaths),
    ) -> (Store, tempfile::TempDir) {
        let copy = self.copy(end);
        let paths = paths(copy.path());
        damage(&paths);
        let damaged = fs::read(&paths.journal).ok();
        let (store, report) = open_store(copy.path());
        assert_eq!(sound(&store), self.contents, "{what}, {end:?}: {report:?}");
        assert_eq!(report.missing, 0, "{what}, {end:?}: {report:?}");
        if report.is_damaged() && damaged.is_some() {
            let kept = report.journal_copy.as_ref();
            assert_eq!(
                kept.and_then(|kept| fs::read(kept).ok()),
                damaged,
                "{what}, {end:?}: {report:?}"
            );
        }
        (store, copy)
    }

    /// The same for this run and the next ones, and for the journal alone.
    #[track_caller]
    fn survives(&self, what: &str, end: End, damage: impl FnOnce(&StorePaths)) {
        let (store, copy) = self.opens_with_all(what, end, damage);
        store.delete_open_report().unwrap();
        let what = format!("{what}, {end:?}");
        assert_eq!(
            wait(store.commit(change(record(1, 900)))).unwrap(),
            Sequence(33),
            "{what}"
        );
        let before = contents(&store);
        drop(store);
        let (store, report) = open_store(copy.path());
        assert_eq!(contents(&store), before, "{what}: the next life");
        assert!(
            report.damaged.is_empty() && report.journal_copy.is_none(),
            "{what}: {report:?}"
        );
        drop(store);
        fs::remove_dir_all(paths(copy.path()).database).unwrap();
        let (store, report) = open_store(copy.path());
        assert_eq!(contents(&store), before, "{what}: the journal alone, {report:?}");
    }
}

/// Makes a closed store look as this end leaves it.
pub(super) fn end_as(folder: &Path, end: End) {
    match end {
        End::Closed => {}
        End::Killed => {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            fs::write(paths(folder).trust, boot.trim()).unwrap();
        }
        End::PowerLost => fs::write(paths(folder).trust, "another boot").unwrap(),
    }
}

pub(super) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let target = to.join(file.file_name());
        if file.file_type().unwrap().is_dir() {
            copy_folder(&file.path(), &target);
        } else {
            fs::copy(file.path(), target).unwrap();
        }
    }
}

/// Returns the content of a store. The first read may be the one that finds the damaged database.
pub(super) fn sound(store: &Store) -> BTreeMap<String, String> {
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| contents(store)));
    found.unwrap_or_else(|_| {
        // This commit is queued after the fail-over that the failed read requested.
        wait(store.commit(Change::default())).unwrap();
        contents(store)
    })
}

pub(super) fn rewrite(path: &Path, with: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    with(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_anywhere_in_the_last_line_loses_nothing() {
    let original = Original::new();
    for at in original.last_line()..original.journal.len() {
        original.opens_with_all(&format!("byte {at} of the journal"), End::Closed, |paths| {
            rewrite(&paths.journal, |bytes| bytes[at] ^= 1 << (at % 8));
        });
    }
    for end in ENDS {
        let at = original.last_line() + 20;
        original.survives("the last line", end, |paths| {
            rewrite(&paths.journal, |bytes| bytes[at] ^= 1);
        });
    }
}

#[test]
fn a_journal_that_was_cut_emptied_or_overwritten_loses_nothing() {
    type Damage = fn(&mut Vec<u8>);
    let table: [(&str, Damage); 9] = [
        ("emptied", |bytes| bytes.clear()),
        ("cut to its half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("cut behind a line", |bytes| {
            let half = bytes.len() / 2;
            let end = bytes[..half].iter().rposition(|byte| *byte == b'\n').unwrap();
            bytes.truncate(end + 1);
        }),
        ("cut behind its header", |bytes| {
            let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
            bytes.truncate(end + 1);
        }),
        ("without its last byte", |bytes| bytes.truncate(bytes.len() - 1)),
        ("zeros", |bytes| bytes.fill(0)),
        ("line breaks", |bytes| bytes.fill(b'\n')),
        ("its second half zeros", |bytes| {
            let half = bytes.len() / 2;
            bytes[half..].fill(0);
        }),
        ("its first half zeros", |bytes| {
            let half = bytes.len() / 2;
            bytes[..half].fill(0);
        }),
    ];
    let original = Original::new();
    for end in ENDS {
        for (what, damage) in table {
            original.survives(what, end, |paths| rewrite(&paths.journal, damage));
        }
        original.survives("missing", end, |paths| fs::remove_file(&paths.journal).unwrap());
    }
}

#[test]
fn a_flipped_bit_in_any_part_of_the_journal_loses_nothing() {
    let original = Original::new();
    let text = String::from_utf8(original.journal.clone()).unwrap();
    let lines: Vec<usize> = text.match_indices("{\"seq\":").map(|(at, _)| at).collect();
    let (second, seventh, last) = (lines[1], lines[6], lines[lines.len() - 1]);
    for end in ENDS {
        for (what, at) in [
            ("the header's brace", 0),
            ("the header's generation", text.find("generation").unwrap() + 14),
            ("the header's break", text.find('\n').unwrap()),
            (
                "the seventh line",
                if end == End::PowerLost { seventh + 60 } else { 1 },
            ),
        ] {
            original.survives(what, end, |paths| {
                rewrite(&paths.journal, |bytes| bytes[at] ^= 1);
            });
        }
    }
    // A flipped bit in a line before the database's position is found when the journal is next read.
    for at in [second + 8, second + 18, seventh + 60, last - 1] {
        let copy = original.copy(End::Closed);
        rewrite(&paths(copy.path()).journal, |bytes| bytes[at] ^= 1);
        let (store, _) = open_store(copy.path());
        if let Some(found) = store.check_journal().unwrap() {
            assert!(!found.damaged.is_empty() || found.missing > 0, "byte {at}");
        }
        assert_eq!(contents(&store), original.contents, "byte {at}");
        drop(store);
        fs::remove_dir_all(paths(copy.path()).database).unwrap();
        assert_eq!(
            contents(&open_store(copy.path()).0),
            original.contents,
            "byte {at}"
        );
    }
}

#[test]
fn a_database_that_was_cut_emptied_or_overwritten_loses_nothing() {
    type Damage = fn(&mut Vec<u8>);
    let table: [(&str, Damage); 4] = [
        ("emptied", |bytes| bytes.clear()),
        ("cut to its half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("zeros", |bytes| bytes.fill(0)),
        ("its second half zeros", |bytes| {
            let half = bytes.len() / 2;
            bytes[half..].fill(0);
        }),
    ];
    let original = Original::new();
    for end in ENDS {
        for file in ["db", "conf"] {
            for (what, damage) in table {
                original.survives(&format!("{file} {what}"), end, |paths| {
                    rewrite(&paths.database.join(file), damage);
                });
            }
            original.survives(&format!("{file} missing"), end, |paths| {
                fs::remove_file(paths.database.join(file)).unwrap();
            });
        }
        original.survives("the database missing", end, |paths| {
            fs::remove_dir_all(&paths.database).unwrap();
        });
        original.survives("what it is believed by missing", end, |paths| {
            fs::remove_file(&paths.trust).unwrap();
        });
        original.survives("what it is believed by emptied", end, |paths| {
            fs::write(&paths.trust, "").unwrap();
        });
    }
}

#[test]
fn a_flipped_bit_in_any_part_of_the_database_loses_nothing() {
    let original = Original::new();
    let files: Vec<_> = fs::read_dir(paths(original.folder.path()).database)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    for file in files {
        let bytes = fs::read(&file).unwrap();
        // Only the used part of the file.
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        for part in 0..24 {
            let at = used * part / 24;
            let name = file.file_name().unwrap();
            original.survives(
                &format!("byte {at} of {}", name.display()),
                End::Closed,
                |paths| {
                    rewrite(&paths.database.join(name), |bytes| bytes[at] ^= 1 << (part % 8));
                },
            );
        }
    }
}

/// The trees whose values are damaged.
const DAMAGED: [TreeId; 8] = [
    TreeId::Conversations,
    TreeId::Upstream,
    TreeId::Lineage,
    TreeId::Requests,
    TreeId::RequestExpiry,
    TreeId::Recent,
    TreeId::Processes,
    TreeId::Meta,
];

/// Makes all values of a tree unreadable.
fn damage_values(paths: &StorePaths, space: TreeId) {
    let keyspace = Keyspace::open(&paths.database).unwrap();
    let pairs = keyspace
        .page(space, std::ops::Bound::Unbounded, PAGE_ENTRIES * 100)
        .unwrap();
    let mut draft = WriteBatch::new(&keyspace);
    for (key, _) in pairs {
        draft.put(space, &key, b"{{{{{".to_vec());
    }
    keyspace.apply(draft.into_writes()).unwrap();
    keyspace.sync().unwrap();
    keyspace.close();
}

#[test]
fn damaged_values_of_a_database_lose_nothing() {
    let original = Original::new();
    for space in DAMAGED {
        for end in ENDS {
            original.survives(space.name(), end, |paths| damage_values(paths, space));
        }
    }
}

/// Good lines of the journal are kept if the database has lost values, and no journal is written from that database.
#[test]
fn damaged_values_found_in_a_replay_cost_no_line() {
    let original = Original::new();
    let lines: Vec<&[u8]> = original.journal.split_inclusive(|byte| *byte == b'\n').collect();
    for space in DAMAGED {
        let behind = tempfile::tempdir().unwrap();
        fs::write(paths(behind.path()).journal, lines[..21].concat()).unwrap();
        copy_folder(
            &paths(original.folder.path()).bodies,
            &paths(behind.path()).bodies,
        );
        drop(open_store(behind.path()));
        damage_values(&paths(behind.path()), space);
        fs::write(paths(behind.path()).journal, &original.journal).unwrap();
        let (store, report) = open_store(behind.path());
        assert_eq!(sound(&store), original.contents, "{}: {report:?}", space.name());
        assert!(report.damaged.is_empty(), "{}: {report:?}", space.name());
        drop(store);
        fs::remove_dir_all(paths(behind.path()).database).unwrap();
        assert_eq!(
            contents(&open_store(behind.path()).0),
            original.contents,
            "{}",
            space.name()
        );
    }
}

/// If both are damaged, nothing that one of them still has is thrown away.
#[test]
fn a_database_set_aside_with_a_damaged_journal_is_kept() {
    let original = Original::new();
    let copy = original.copy(End::Closed);
    let paths = paths(copy.path());
    rewrite(&paths.journal, |bytes| bytes.truncate(bytes.len() / 2));
    fs::write(paths.database.join("db"), [0xA5; 70_000]).unwrap();
    let (store, report) = open_store(copy.path());
    assert!(
        report.journal_copy.is_some() && report.set_aside.is_some(),
        "{report:?}"
    );
    assert!(store.status().conversations > 0);
    drop(store);
    for _ in 0..5 {
        fs::write(&paths.trust, "another boot").unwrap();
        drop(open_store(copy.path()));
    }
    assert!(report.set_aside.unwrap().exists(), "{:?}", names(copy.path()));
    assert!(
        AppliedState::read(&Keyspace::open(&paths.database).unwrap())
            .unwrap()
            .is_some()
    );
}

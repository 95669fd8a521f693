//! Lists that a flipped bit has changed: no copy is deleted because of what they say.

use super::super::list::CopyList;
use super::*;
use crate::files::set_aside;

/// A session with a compressed copy, and the text of its list.
fn packed(place: &Place) -> (PathBuf, String) {
    let path = place.put("s.jsonl", &lines(0, 20));
    place.pack("s", &path);
    let list = place.folder("s").join(LIST_FILE);
    (path, fs::read_to_string(list).unwrap())
}

/// The list as older versions wrote it, without a checksum.
fn old_form(text: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut list = line["note"].clone();
    list["version"] = serde_json::json!(1);
    list.to_string()
}

#[test]
fn a_list_without_a_checksum_counts_only_if_the_copies_are_as_it_says() {
    let changes: [(&str, fn(&serde_json::Value) -> serde_json::Value); 6] = [
        ("/files/s.jsonl/0/file", |_| "3.zst".into()),
        ("/files/s.jsonl/0/file", |_| "../1.zst".into()),
        ("/files/s.jsonl/0/bytes", |old| {
            (old.as_u64().unwrap() ^ 64).into()
        }),
        ("/files/s.jsonl/0/packedBytes", |old| {
            (old.as_u64().unwrap() ^ 16).into()
        }),
        ("/files/s.jsonl/0/sha256", |old| {
            old.as_str().unwrap().replace('a', "c").into()
        }),
        ("/upstreamId", |_| "r".into()),
    ];
    for (member, change) in changes {
        let place = Place::new();
        let (path, text) = packed(&place);
        let mut list: serde_json::Value = serde_json::from_str(&old_form(&text)).unwrap();
        let value = list.pointer_mut(member).unwrap();
        *value = change(value);
        let folder = place.folder("s");
        fs::write(folder.join(LIST_FILE), list.to_string()).unwrap();
        let copy = fs::read(folder.join("1.zst")).unwrap();
        append(&path, &lines(20, 30));
        place.pack("s", &path);
        let aside = match member {
            "/upstreamId" => {
                let folders = set_aside::set_aside_files_in(folder.parent().unwrap()).unwrap();
                assert_eq!(folders.len(), 1, "{member}");
                vec![folders[0].join("1.zst")]
            }
            _ => set_aside::set_aside_files_in(&folder).unwrap(),
        };
        assert_eq!(aside.len(), 1, "{member}");
        assert_eq!(fs::read(&aside[0]).unwrap(), copy, "{member}");
        place.lose();
        place.restore("s").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), lines(0, 30), "{member}");
    }
}

/// The time that decides what is deleted first is that of a copy at least.
#[test]
fn a_list_without_a_checksum_makes_no_copy_older_than_it_is() {
    let place = Place::new();
    let (path, text) = packed(&place);
    let written = fs::metadata(&path).unwrap();
    let written_ms = written.mtime() * 1_000 + written.mtime_nsec() / 1_000_000;
    let mut list: serde_json::Value = serde_json::from_str(&old_form(&text)).unwrap();
    list["changedMs"] = serde_json::json!(1);
    fs::write(place.folder("s").join(LIST_FILE), list.to_string()).unwrap();
    let pruned = place.archive.prune(Some(written_ms), None).unwrap();
    assert_eq!(pruned, ArchiveTotal::default());
    assert_eq!(place.names("s"), ["1.zst"]);
}

/// A session with three files, each with a copy, and a list without a checksum.
fn with_old_list(place: &Place) -> (PathBuf, [PathBuf; 3]) {
    let (path, _) = packed(place);
    for name in ["s/subagents/agent-1.jsonl", "s/subagents/agent-2.jsonl"] {
        place.put(name, &lines(0, 10));
    }
    place.pack("s", &path);
    let folder = place.folder("s");
    let list = folder.join(LIST_FILE);
    fs::write(&list, old_form(&fs::read_to_string(&list).unwrap())).unwrap();
    let copies = ["1.zst", "2.zst", "3.zst"].map(|name| folder.join(name));
    assert!(copies.iter().all(|copy| copy.exists()), "{:?}", place.names("s"));
    (path, copies)
}

#[test]
fn a_damaged_copy_of_an_old_list_does_not_cost_the_others() {
    let damages: [(fn(&Path), usize); 3] = [
        (|copy| fs::remove_file(copy).unwrap(), 0),
        (|copy| fs::write(copy, "short").unwrap(), 1),
        (
            |copy| {
                let mut text = fs::read(copy).unwrap();
                let middle = text.len() / 2;
                text[middle] ^= 1;
                fs::write(copy, text).unwrap();
            },
            1,
        ),
    ];
    for (number, (damage, set_aside_files)) in damages.into_iter().enumerate() {
        let place = Place::new();
        let (path, copies) = with_old_list(&place);
        damage(&copies[1]);
        let damaged = fs::read(&copies[1]).ok();
        // The agent has deleted the file, and the copies are all that is left of it.
        fs::remove_file(path.with_extension("").join("subagents/agent-1.jsonl")).unwrap();
        place.pack("s", &path);
        assert!(place.archive.has_transcript(&place.key("s")).unwrap(), "{number}");
        assert_eq!(place.names("s"), ["1.zst", "3.zst"], "{number}");
        let folder = place.folder("s");
        assert_eq!(
            set_aside::set_aside_files_in(folder.parent().unwrap())
                .unwrap()
                .len(),
            0
        );
        let aside = set_aside::set_aside_files_in(&folder).unwrap();
        assert_eq!(aside.len(), set_aside_files, "{number}");
        assert_eq!(
            aside.first().map(|path| fs::read(path).unwrap()),
            damaged,
            "{number}"
        );
    }
}

/// What cannot be read now may be as the list says.
#[test]
fn a_copy_of_an_old_list_that_cannot_be_read_now_stays_with_the_others() {
    let place = Place::new();
    let (path, copies) = with_old_list(&place);
    let list = place.folder("s").join(LIST_FILE);
    let mut changed: serde_json::Value = serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
    // The system refuses so long a name, whatever is there.
    changed["files"]["s.jsonl"][0]["file"] = format!("{}.zst", "1".repeat(300)).into();
    let changed = changed.to_string();
    fs::write(&list, &changed).unwrap();
    let packed = place
        .archive
        .back_up(&place.key("s"), claude(), &path, None, true);
    assert!(
        matches!(packed.error, Some(TranscriptError::Io { .. })),
        "{packed:?}"
    );
    assert_eq!(fs::read_to_string(&list).unwrap(), changed);
    assert!(copies.iter().all(|copy| copy.exists()));
}

/// Writing a list gives it a checksum, which nobody may take for one that was checked.
#[test]
fn any_change_of_a_list_without_a_checksum_checks_the_copies_first() {
    let changes: [fn(&Place) -> Result<(), TranscriptError>; 2] = [
        |place| place.archive.record_continued(&place.key("s"), i64::MAX),
        |place| place.archive.pack_links(&place.key("s"), None),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let place = Place::new();
        let (_, copies) = with_old_list(&place);
        fs::write(&copies[1], "short").unwrap();
        change(&place).unwrap();
        assert_eq!(place.names("s"), ["1.zst", "3.zst"], "{number}");
        let aside = set_aside::set_aside_files_in(&place.folder("s")).unwrap();
        assert_eq!(aside.len(), 1, "{number}");
        let unusable = place.archive.unusable().unwrap().into_iter();
        let unusable: Vec<PathBuf> = unusable.map(|(path, why)| why.map(|_| path).unwrap()).collect();
        assert_eq!(unusable, aside, "{number}");
    }
}

/// A transcript's ending is longer than a mark's, so an id that names a transcript names a mark.
#[test]
fn the_longest_ids_are_marked_too() {
    let place = Place::new();
    let id = "i".repeat(249);
    let key = place.key(&id);
    let path = place.put(&format!("{id}.jsonl"), &lines(0, 10));
    place.pack(&id, &path);
    place.lose();
    let restore = |id: &str| {
        let restored = place.restore_lacking(id, 2, &mut |_, _| Ok(()));
        restored.map(|paths| paths.len())
    };
    assert_eq!(restore(&id).unwrap(), 1);
    assert_eq!(
        place.archive.unreported_missing_turns(&key).unwrap(),
        Some(MissingTurns::Known(2))
    );
    let invalid = restore(&"i".repeat(250));
    assert!(
        matches!(invalid, Err(TranscriptError::InvalidId { .. })),
        "{invalid:?}"
    );
    // What is in its place is set aside under a name that is cut.
    let mark = place.archive.mark_path(&key).unwrap();
    fs::remove_file(&mark).unwrap();
    fs::create_dir(&mark).unwrap();
    assert_eq!(
        place.archive.unreported_missing_turns(&key).unwrap(),
        Some(MissingTurns::Unknown)
    );
    place.archive.clear_restore_mark(&key).unwrap();
    assert_eq!(place.archive.unreported_missing_turns(&key).unwrap(), None);
    // As is a folder of copies.
    fs::write(place.folder(&id).join(LIST_FILE), "garbage").unwrap();
    place.pack(&id, &path);
    assert_eq!(place.names(&id), ["1.zst"]);
}

/// A kill may come after a folder is made and before its name is synced.
#[test]
fn a_mark_lasts_in_a_folder_that_was_there() {
    let place = Place::new();
    let (path, _) = packed(&place);
    let key = place.key("s");
    let disk = Disk::of(place._held.path());
    let mark = place.archive.mark_path(&key).unwrap();
    fs::create_dir_all(mark.parent().unwrap().parent().unwrap()).unwrap();
    fs::remove_file(&path).unwrap();
    place.restore_lacking("s", 2, &mut |_, _| Ok(())).unwrap();
    disk.check_lasts("a mark");
}

#[test]
fn what_is_not_restored_leaves_the_mark_as_it_was() {
    let place = Place::new();
    let (path, _) = packed(&place);
    let key = place.key("s");
    let unreported = || place.archive.unreported_missing_turns(&key).unwrap();
    for (turns, before, fails, after) in [
        (2, None, true, None),
        (2, None, false, Some(MissingTurns::Known(2))),
        (
            3,
            Some(MissingTurns::Known(2)),
            true,
            Some(MissingTurns::Known(2)),
        ),
        (
            3,
            Some(MissingTurns::Known(2)),
            false,
            Some(MissingTurns::Known(3)),
        ),
    ] {
        fs::remove_file(&path).unwrap_or_default();
        assert_eq!(unreported(), before);
        let restored = place.restore_lacking("s", turns, &mut |_, _| {
            // Another process is first.
            if fails {
                fs::write(&path, "{}\n").unwrap();
            }
            Ok(())
        });
        assert_eq!((restored.is_err(), unreported()), (fails, after), "{turns}");
    }
    // Nobody is left to report to.
    place.archive.remove(&key).unwrap();
    assert_eq!(unreported(), None);
}

#[test]
fn lists_of_earlier_versions_are_read_and_later_ones_are_not() {
    let place = Place::new();
    let (_, text) = packed(&place);
    assert!(CopyList::parse(text.as_bytes()).is_ok());
    assert!(CopyList::parse(old_form(&text).as_bytes()).is_ok());
    // Members that are not written any more.
    let mut older: serde_json::Value = serde_json::from_str(&old_form(&text)).unwrap();
    older["wasMoved"] = true.into();
    older["files"]["s.jsonl"][0]["folder"] = "projects/-elsewhere".into();
    assert!(CopyList::parse(older.to_string().as_bytes()).is_ok());
    let newer = text.replace("\"version\":3,", "\"version\":4,");
    let newer = CopyList::parse(newer.as_bytes());
    assert!(
        matches!(
            newer,
            Err(set_aside::Unreadable::Newer {
                version: 4,
                newest: 3
            })
        ),
        "{newer:?}"
    );
}

/// Versions 1 and 2 state the folder once for all copies, and the turns of the newest.
#[test]
fn the_copies_of_an_earlier_list_have_what_it_states_for_all() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 20));
    place.pack("s", &path);
    fs::write(&path, lines(5, 10)).unwrap();
    assert!(place.pack("s", &path));
    place.put("s.jsonl", &lines(5, 11));
    place.link("s", &path);
    let text = fs::read_to_string(place.folder("s").join(LIST_FILE)).unwrap();
    let mut list: serde_json::Value = serde_json::from_str(&old_form(&text)).unwrap();
    list["folder"] = "projects/-last".into();
    list["turns"] = 7.into();
    let copies = list["files"]["s.jsonl"].as_array_mut().unwrap();
    assert_eq!(copies.len(), 3);
    for copy in copies.iter_mut() {
        copy.as_object_mut().unwrap().remove("folder");
        copy.as_object_mut().unwrap().remove("turns");
    }
    copies[0]["folder"] = "projects/-first".into();
    let line = |version: u64| {
        let list = list.as_object().unwrap().iter();
        let note: serde_json::Map<_, _> = list
            .filter(|(name, _)| *name != "version")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        crate::files::checked_lines::encode(version, &note).unwrap()
    };
    for text in [list.to_string().into_bytes(), line(2)] {
        let list = CopyList::parse(&text).unwrap();
        let copies = list.files["s.jsonl"].iter();
        let stated: Vec<_> = copies.map(|copy| (copy.folder.as_str(), copy.turns)).collect();
        assert_eq!(
            stated,
            [
                ("projects/-first", None),
                ("projects/-last", Some(7)),
                ("projects/-last", None)
            ]
        );
    }
}

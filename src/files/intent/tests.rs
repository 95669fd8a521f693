//! Intents in temporary folders, as kills leave them.

use std::os::unix::ffi::OsStringExt;

use serde_json::json;

use super::*;
use crate::files::durable::tests::Disk;

const MOVES: IntentKind<String> = IntentKind {
    folder: "moves",
    log_name: Some("journal"),
    parse_headerless: |lines| {
        let about = lines.first()?.as_str()?.to_owned();
        Some(LogContent {
            descriptions: vec![about],
            groups: Vec::new(),
        })
    },
};

const COPIES: IntentKind<String> = IntentKind {
    folder: "copies",
    log_name: None,
    parse_headerless: |_| None,
};

/// What is added to a log of an earlier version can be read with it. One that is only read stays as it is.
#[test]
fn a_log_of_an_earlier_version_is_rewritten_before_anything_is_added() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("moves/1");
    fs::create_dir_all(&path).unwrap();
    let old = "\"a move\"\n";
    fs::write(path.join("journal"), old).unwrap();
    let mut intent = Intent::find(&MOVES, data.path(), "1").unwrap();
    assert_eq!(fs::read_to_string(path.join("journal")).unwrap(), old);
    intent.add_description("undone".to_owned()).unwrap();
    intent
        .record_steps(vec![vec![IntentStep::Folder(path.clone())]])
        .unwrap();
    let read = Intent::find(&MOVES, data.path(), "1").unwrap();
    assert_eq!(read.descriptions(), ["a move", "undone"]);
    assert_eq!(read.groups(), [[IntentStep::Folder(path)]]);
}

fn nobody(_: &str) -> bool {
    false
}

fn new_name(path: &Path) -> IntentStep {
    IntentStep::File(NewName {
        path: path.to_owned(),
        identity: FileIdentity::at(path).unwrap(),
        sha256: None,
        session: Some(path.file_stem().unwrap().to_str().unwrap().to_owned()),
    })
}

fn taken(from: &Path, to: &Path) -> IntentStep {
    IntentStep::Taken(Original {
        from: from.to_owned(),
        to: to.to_owned(),
        kept: "0".to_owned(),
    })
}

/// Returns everything below a folder, with the text of files.
fn tree(folder: &Path) -> Vec<(PathBuf, Option<String>)> {
    let mut found = Vec::new();
    for path in entries(folder).unwrap() {
        let text = fs::read_to_string(&path).ok();
        let is_folder = text.is_none();
        found.push((path.clone(), text));
        if is_folder {
            found.extend(tree(&path));
        }
    }
    found
}

/// Returns the data folder, and the file in the agent's folder that is moved.
fn places() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let held = tempfile::tempdir().unwrap();
    let (data, from) = (held.path().join("data"), held.path().join("agent/a.jsonl"));
    fs::create_dir(&data).unwrap();
    fs::create_dir(from.parent().unwrap()).unwrap();
    fs::write(&from, "old\n").unwrap();
    (held, data, from)
}

fn settled<S: Serialize + DeserializeOwned>(
    kind: &IntentKind<S>,
    data: &Path,
    decide: impl FnMut(&Intent<S>) -> IntentDecision,
) -> bool {
    settle(kind, &existing(kind, data).unwrap(), &nobody, decide)
}

/// Makes this many changes. Returns whether these are all.
fn changed(intent: &mut Intent<String>, data: &Path, from: &Path, is_in_place: bool, changes: usize) -> bool {
    let folder = from.parent().unwrap().join("new");
    let to = match is_in_place {
        true => from.to_owned(),
        false => folder.join("a.jsonl"),
    };
    let temporary = folder.join(".t.tmp");
    let kept = data.join("moves/m/kept");
    let take = || {
        fs::create_dir_all(&kept).unwrap();
        fs::rename(from, kept.join("0")).unwrap();
    };
    let name = || fs::rename(&temporary, &to).unwrap();
    for change in 0..changes {
        match (change, is_in_place) {
            (0, _) => fs::create_dir(&folder).unwrap(),
            (1, _) => fs::write(&temporary, "new\n").unwrap(),
            (2, _) => {
                let IntentStep::File(file) = new_name(&temporary) else {
                    unreachable!()
                };
                let path = to.clone();
                let mut group = vec![IntentStep::File(NewName { path, ..file }), taken(from, &to)];
                if is_in_place {
                    group.reverse();
                }
                intent.record_steps(vec![group]).unwrap();
            }
            (3, true) | (4, false) => take(),
            (3, false) | (4, true) => name(),
            _ => return true,
        }
    }
    false
}

#[test]
fn after_a_kill_at_any_step_everything_is_undone_or_done() {
    for is_in_place in [false, true] {
        for changes in 0.. {
            let (held, data, from) = places();
            let disk = Disk::of(held.path());
            let before = tree(held.path());
            let folder = from.parent().unwrap().join("new");
            let groups = vec![
                vec![IntentStep::Folder(folder.clone())],
                vec![IntentStep::Temporary(folder.join(".t.tmp"))],
            ];
            let intent = Intent::begin(&MOVES, &data, "m", "whose".to_owned(), groups);
            let mut intent = intent.unwrap();
            assert!(disk.lost().is_empty(), "what is about to be done");
            let is_whole = changed(&mut intent, &data, &from, is_in_place, changes);
            drop(intent);
            let waits = |intent: &Intent<String>| {
                assert_eq!(intent.descriptions(), ["whose"]);
                IntentDecision::Later
            };
            assert!(!settled(&MOVES, &data, waits));
            assert!(settled(&MOVES, &data, |_| IntentDecision::Undo));
            assert_eq!(tree(held.path()), before, "{is_in_place} {changes}");
            disk.check_lasts("what was undone");
            if is_whole {
                break;
            }
        }
        let (_held, data, from) = places();
        let mut intent = Intent::begin(&MOVES, &data, "m", "whose".to_owned(), Vec::new()).unwrap();
        changed(&mut intent, &data, &from, is_in_place, usize::MAX);
        intent.commit().unwrap();
        assert!(!data.join(MOVES.folder).exists());
        assert_eq!(from.exists(), is_in_place);
    }
}

#[test]
fn changed_files_stay() {
    for what in ["grown", "replaced", "owned", "hash"] {
        let (_held, data, from) = places();
        let mut intent = Intent::begin(&COPIES, &data, "c", String::new(), Vec::new()).unwrap();
        let IntentStep::File(mut file) = new_name(&from) else {
            unreachable!()
        };
        file.sha256 = (what == "hash").then(|| "00".repeat(32));
        intent.record_steps(vec![vec![IntentStep::File(file)]]).unwrap();
        match what {
            "grown" => fs::write(&from, "old\nand more\n").unwrap(),
            "replaced" => {
                fs::write(data.join("other"), "old\n").unwrap();
                fs::rename(data.join("other"), &from).unwrap();
            }
            _ => {}
        }
        assert!(
            intent.undo(&|session| what == "owned" && session == "a"),
            "{what}"
        );
        assert!(from.exists(), "{what}");
        assert!(!data.join("copies/c").exists(), "{what}");
    }
}

/// The store may have lost the record, and then the new file is the only copy.
#[test]
fn a_new_file_without_its_original_stays() {
    for is_in_place in [false, true] {
        let (_held, data, from) = places();
        let mut intent = Intent::begin(&MOVES, &data, "m", String::new(), Vec::new()).unwrap();
        assert!(changed(&mut intent, &data, &from, is_in_place, usize::MAX));
        fs::remove_file(data.join("moves/m/kept/0")).unwrap();
        let before = tree(from.parent().unwrap());
        assert!(!intent.undo(&nobody));
        assert_eq!(tree(from.parent().unwrap()), before);
        assert!(data.join("moves/m/journal").exists());
    }
}

/// A new file in the old place stays, and so do the original and its copy.
#[test]
fn an_original_that_cannot_be_put_back_is_kept() {
    let (_held, data, from) = places();
    let mut intent = Intent::begin(&MOVES, &data, "m", String::new(), Vec::new()).unwrap();
    assert!(changed(&mut intent, &data, &from, false, usize::MAX));
    fs::write(&from, "stub\n").unwrap();
    assert!(!intent.undo(&nobody));
    assert_eq!(fs::read_to_string(&from).unwrap(), "stub\n");
    assert_eq!(fs::read_to_string(data.join("moves/m/kept/0")).unwrap(), "old\n");
    assert!(from.with_file_name("new/a.jsonl").exists());
    // An identical file in the old place is fine.
    fs::write(&from, "old\n").unwrap();
    let intent = Intent::find(&MOVES, &data, "m").unwrap();
    assert!(intent.undo(&nobody));
    assert!(!data.join("moves").exists() && !from.with_file_name("new").join("a.jsonl").exists());
}

#[test]
fn logs_that_cannot_be_used_are_kept_and_nothing_is_undone() {
    let (_held, data, _) = places();
    let of_other_kind = Intent::begin(
        &IntentKind {
            folder: "trees",
            ..COPIES
        },
        &data,
        "t",
        String::new(),
        Vec::new(),
    );
    of_other_kind.unwrap();
    let copies = data.join("copies");
    fs::create_dir(&copies).unwrap();
    fs::rename(data.join("trees/t"), copies.join("of-other-kind")).unwrap();
    fs::write(copies.join("damaged"), "{\"intent\"").unwrap();
    fs::write(copies.join("old"), "\"old\"\n").unwrap();
    fs::write(copies.join("unbegun.new"), "{\"int").unwrap();
    let newer = json!({"intent": {"format": FORMAT + 1, "kind": "copies", "else": []}});
    fs::write(copies.join("newer"), format!("{newer}\n")).unwrap();
    let never = |_: &Intent<String>| unreachable!();
    assert!(settled(&COPIES, &data, never));
    let left = |folder: &Path| -> Vec<String> {
        let names = entries(folder).unwrap().into_iter();
        names
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect()
    };
    let aside = ["damaged", "newer", "of-other-kind", "old"];
    let aside = aside.map(|name| match name {
        "newer" => name.to_owned(),
        name => format!("{name}.set-aside-1"),
    });
    assert_eq!(left(&copies), aside);
    assert!(newer_version(&copies.join("newer")).is_some());

    let moves = data.join("moves");
    for (name, text) in [
        ("unbegun/journal.new", "{"),
        ("lost/kept/0", "original"),
        ("broken/journal", "garbage"),
        ("old/journal", "\"whose\"\n"),
        ("file", "no folder"),
    ] {
        fs::create_dir_all(moves.join(name).parent().unwrap()).unwrap();
        fs::write(moves.join(name), text).unwrap();
    }
    fs::create_dir_all(moves.join("empty/kept")).unwrap();
    let old = |intent: &Intent<String>| {
        assert_eq!(intent.descriptions(), ["whose"]);
        IntentDecision::Commit
    };
    assert!(settled(&MOVES, &data, old));
    assert_eq!(left(&moves), ["broken.set-aside-1", "file", "lost.set-aside-1"]);
}

#[test]
fn a_path_that_is_not_utf8_survives_a_round_trip() {
    let (_held, data, _) = places();
    let path: PathBuf = OsString::from_vec(b"/agent/\xff".to_vec()).into();
    let groups = vec![vec![
        IntentStep::Temporary(path),
        IntentStep::Folder("/agent/é".into()),
    ]];
    Intent::begin(&COPIES, &data, "c", String::new(), groups.clone()).unwrap();
    assert_eq!(Intent::find(&COPIES, &data, "c").unwrap().groups(), groups);
    // The form that imports wrote.
    let old: IntentStep = serde_json::from_value(json!({"temporary": {"Unix": [47, 97]}})).unwrap();
    assert_eq!(old, IntentStep::Temporary("/a".into()));
}

/// A kill after a log was written and before its rename, and one before the log.
#[test]
fn a_log_without_its_name_means_that_work_did_not_begin() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let all = data.join(COPIES.folder);
    Intent::begin(&COPIES, data, "one", "a copy".to_owned(), Vec::new()).unwrap();
    fs::rename(all.join("one"), all.join("one.new")).unwrap();
    let left = existing(&COPIES, data).unwrap();
    assert!(settle(&COPIES, &left, &nobody, |intent| {
        panic!("{intent:?} did not begin")
    }));
    assert!(!all.exists());

    fs::create_dir(&all).unwrap();
    assert_eq!(existing(&COPIES, data).unwrap(), Vec::<PathBuf>::new());
    assert!(!all.exists());
}

//! Links and files in place of the folders of copies: nothing is written, deleted or set aside through them.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use super::*;
use crate::files::entries;

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in entries(folder).unwrap() {
        match path.symlink_metadata().unwrap().is_dir() {
            true => found.extend(contents(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).unwrap_or_default())),
        }
    }
    found
}

fn restore(place: &Place, turns: u64) -> Result<Vec<PathBuf>, TranscriptError> {
    place.lose();
    place.restore_lacking("s", turns, &mut |_, _| Ok(()))
}

/// All that changes something in the folders of copies. Returns what was refused.
fn change_all(place: &Place, path: &Path) -> Vec<&'static str> {
    let (archive, key) = (&place.archive, place.key("s"));
    let ids = BTreeSet::from(["s".to_owned()]);
    let mut refused = Vec::new();
    let mut done = |what, done: Result<(), TranscriptError>| {
        if done.is_err() {
            refused.push(what);
        }
    };
    let kept = |kept: KeepOutcome| kept.error.map_or(Ok(()), Err);
    done("link", kept(archive.link(&key, claude(), path, None)));
    append(path, &lines(20, 30));
    done("pack", kept(archive.pack(&key, claude(), path, Some(0))));
    archive.forget_unpacked();
    done("restore", restore(place, 3).map(drop));
    done("note", archive.note_continued(&key, i64::MAX));
    done("report", archive.note_reported(&key));
    place.lose();
    done(
        "unpack",
        archive.unpack(claude(), &key, ADVICE.relocation).map(drop),
    );
    done(
        "remove rollouts",
        archive.remove_unneeded(&key.root, &ids, |_| false),
    );
    done("prune", archive.prune(Some(i64::MAX), Some(0)).map(drop));
    done("remove", archive.remove(&key));
    refused
}

#[test]
fn nothing_is_changed_through_a_link_or_a_file() {
    for (name, refused) in [
        (
            "ROOT",
            vec![
                "link",
                "pack",
                "restore",
                "note",
                "unpack",
                "remove rollouts",
                "remove",
            ],
        ),
        (
            "ROOT/s",
            vec![
                "link",
                "pack",
                "restore",
                "note",
                "unpack",
                "remove rollouts",
                "remove",
            ],
        ),
        ("unpacked", vec!["unpack"]),
        (
            "unreported",
            vec!["restore", "report", "remove rollouts", "remove"],
        ),
        (
            "unreported/ROOT",
            vec!["restore", "report", "remove rollouts", "remove"],
        ),
    ] {
        for is_link in [true, false] {
            let mut place = Place::new();
            let path = place.put("s.jsonl", &lines(0, 10));
            place.pack("s", &path);
            restore(&place, 2).unwrap();
            // As a daemon that is killed.
            let left = place
                .archive
                .folder()
                .join("unpacked")
                .join(uuid::Uuid::new_v4().to_string());
            fs::create_dir_all(&left).unwrap();
            fs::write(left.join("s.jsonl"), "left").unwrap();
            let root = place
                .folder("s")
                .parent()
                .unwrap()
                .file_name()
                .unwrap()
                .to_owned();
            let kept = place.archive.folder().to_owned();
            place.archive = Archive::new(kept.clone());
            let misplaced = kept.join(name.replace("ROOT", root.to_str().unwrap()));
            let elsewhere = place._held.path().join("elsewhere");
            fs::rename(&misplaced, &elsewhere).unwrap();
            match is_link {
                true => symlink(&elsewhere, &misplaced).unwrap(),
                false => fs::write(&misplaced, "mine").unwrap(),
            }
            let before = contents(&elsewhere);
            assert_eq!(change_all(&place, &path), refused, "{name} {is_link}");
            assert_eq!(contents(&elsewhere), before, "{name} {is_link}");
            assert_eq!(misplaced.is_symlink(), is_link, "{name}");
            assert!(is_link || fs::read(&misplaced).unwrap() == b"mine", "{name}");
        }
    }
}

/// A mark that is a link may lead nowhere, and still says that turns are missing.
#[test]
fn a_mark_that_is_a_link_is_an_unknown_loss() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 10));
    place.pack("s", &path);
    restore(&place, 2).unwrap();
    let (key, archive) = (place.key("s"), &place.archive);
    let mark = archive.mark(&key).unwrap();
    let elsewhere = place._held.path().join("elsewhere");
    for leads_nowhere in [false, true] {
        fs::rename(&mark, &elsewhere).unwrap();
        symlink(&elsewhere, &mark).unwrap();
        if leads_nowhere {
            fs::remove_file(&elsewhere).unwrap();
        }
        assert_eq!(archive.unreported(&key).unwrap(), Some(MissingTurns::Unknown));
        archive.note_reported(&key).unwrap();
        assert_eq!(
            (archive.unreported(&key).unwrap(), elsewhere.exists()),
            (None, !leads_nowhere)
        );
        if !leads_nowhere {
            fs::rename(&elsewhere, &mark).unwrap();
        }
    }
}

/// The agent's file or another one: what a copy's name leads to is not a copy.
#[test]
fn a_copy_that_is_a_link_is_not_appended_to() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 10));
    place.pack("s", &path);
    let copy = place.folder("s").join("1.zst");
    let elsewhere = place._held.path().join("elsewhere");
    fs::rename(&copy, &elsewhere).unwrap();
    symlink(&elsewhere, &copy).unwrap();
    let before = fs::read(&elsewhere).unwrap();
    append(&path, &lines(10, 20));
    place.pack("s", &path);
    assert_eq!(fs::read(&elsewhere).unwrap(), before);
    place.lose();
    place.restore("s").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), lines(0, 20));
}

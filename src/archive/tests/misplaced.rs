//! Links and files in place of the folders of copies: nothing is written, deleted or set aside through them.

use std::os::unix::fs::symlink;

use super::*;

fn restore(place: &Place, turns: u64) -> Result<Vec<PathBuf>, TranscriptError> {
    place.lose();
    place.restore_lacking("s", turns, &mut |_, _| Ok(()))
}

/// A mark that is a link may lead nowhere, and still says that turns are missing.
#[test]
fn a_mark_that_is_a_link_is_an_unknown_loss() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 10));
    place.pack("s", &path);
    restore(&place, 2).unwrap();
    let (key, archive) = (place.key("s"), &place.archive);
    let mark = archive.mark_path(&key).unwrap();
    let elsewhere = place._held.path().join("elsewhere");
    for leads_nowhere in [false, true] {
        fs::rename(&mark, &elsewhere).unwrap();
        symlink(&elsewhere, &mark).unwrap();
        if leads_nowhere {
            fs::remove_file(&elsewhere).unwrap();
        }
        assert_eq!(
            archive.unreported_missing_turns(&key).unwrap(),
            Some(MissingTurns::Unknown)
        );
        archive.clear_restore_mark(&key).unwrap();
        assert_eq!(
            (
                archive.unreported_missing_turns(&key).unwrap(),
                elsewhere.exists()
            ),
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

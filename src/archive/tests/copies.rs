//! Copies that cannot be read, temporarily or permanently, and files that cannot be copied.

use super::super::folder::SessionFolder;
use super::*;

/// Opens the folder of a session, changes its list and saves it.
fn change(place: &Place, id: &str, change: impl FnOnce(&mut SessionFolder<'_>)) {
    let folder = place.folder(id);
    let mut folder = SessionFolder::open(&folder, None).unwrap().unwrap();
    change(&mut folder);
    // Otherwise it would not be written.
    folder.list.changed_ms = 0;
    folder.record_change_time(i64::MAX);
    folder.save().unwrap();
}

/// A copy that cannot be read at this moment may be the one that has everything.
#[test]
fn no_older_copy_is_restored_while_the_best_cannot_be_read() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 5));
    place.pack("s", &path);
    fs::write(&path, lines(1, 20)).unwrap();
    place.pack("s", &path);
    place.lose();
    // The system refuses so long a name, whatever is there.
    let name = format!("{}.zst", "1".repeat(300));
    let copy = |folder: &mut SessionFolder<'_>, name: &str| {
        folder.list.files.get_mut("s.jsonl").unwrap()[1].file = name.to_owned();
    };
    change(&place, "s", |folder| copy(folder, &name));
    let Err(TranscriptError::Io { source, .. }) = place.restore("s") else {
        panic!("an older copy was restored")
    };
    assert_eq!(
        source.raw_os_error(),
        Some(rustix::io::Errno::NAMETOOLONG.raw_os_error())
    );
    assert!(!path.exists());
    change(&place, "s", |folder| copy(folder, "2.zst"));
    place.restore("s").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), lines(1, 20));
}

/// Nothing else has what the link has.
#[test]
fn a_link_that_could_not_be_copied_stays() {
    for is_packed in [false, true] {
        let place = Place::new();
        let path = place.put("s.jsonl", &lines(0, 20));
        place.link("s", &path);
        let link = place.folder("s").join("1.link");
        let elsewhere = place._held.path().join("elsewhere");
        fs::rename(&link, &elsewhere).unwrap();
        fs::create_dir(&link).unwrap();
        // The agent has replaced its file, and there is another one, which is kept.
        fs::remove_file(&path).unwrap();
        place.put("s.jsonl", &lines(30, 31));
        place.put("s/subagents/agent-1.jsonl", &lines(0, 1));
        let keep = |place: &Place| match is_packed {
            true => place
                .archive
                .back_up(&place.key("s"), claude(), &path, None, true),
            false => place
                .archive
                .back_up(&place.key("s"), claude(), &path, None, false),
        };
        assert!(keep(&place).error.is_some());
        assert_eq!(place.names("s").len(), 2, "{:?}", place.names("s"));
        assert_eq!(place.names("s")[0], "1.link");
        fs::remove_dir(&link).unwrap();
        fs::rename(&elsewhere, &link).unwrap();
        assert!(keep(&place).error.is_none());
        place.lose();
        place.restore("s").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), lines(0, 20));
    }
}

/// The transcript is what counts.
#[test]
fn what_is_known_of_the_transcript_is_recorded_although_another_file_failed() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 20));
    let side = place.put("s/subagents/agent-1.jsonl", &lines(0, 3));
    place.pack_with("s", &path, Some(1));
    fs::write(&path, lines(5, 10)).unwrap();
    append(&side, &lines(3, 6));
    // Neither appended to nor taken for damaged.
    change(&place, "s", |folder| {
        let copies = folder.list.files.get_mut("s/subagents/agent-1.jsonl").unwrap();
        copies[0].file = format!("{}.zst", "1".repeat(300));
    });
    let kept = place
        .archive
        .back_up(&place.key("s"), claude(), &path, Some(2), true);
    assert!(kept.error.is_some() && kept.is_rewritten, "{kept:?}");
    fs::write(&path, lines(5, 30)).unwrap();
    let kept = place
        .archive
        .back_up(&place.key("s"), claude(), &path, Some(3), true);
    assert!(kept.error.is_some() && !kept.is_rewritten, "{kept:?}");
    let behind = place.archive.missing_turns(&place.key("s"), 4).unwrap();
    assert_eq!(behind, Some(MissingTurns::Known(1)));
}

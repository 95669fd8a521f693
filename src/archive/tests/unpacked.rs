//! Copies that are unpacked to be read.

use super::*;

/// Unpacks a session, and returns where its transcript is then.
fn unpack(place: &Place, id: &str) -> (Unpacked, PathBuf) {
    let unpacked = place
        .archive
        .unpack(claude(), &place.key(id), ADVICE.find_relocation)
        .unwrap();
    let folder = own_folder(unpacked.root(), Path::new(CWD));
    (unpacked, folder.join(format!("{id}.jsonl")))
}

#[test]
fn what_is_unpacked_lasts_while_it_is_used_and_follows_its_copy() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 10));
    place.put("s/tool-results/t.txt", "a long result");
    place.pack("s", &path);
    let unpack_there = place
        .archive
        .unpack(claude(), &place.key("s"), ADVICE.find_relocation);
    assert!(matches!(unpack_there, Err(TranscriptError::NotFound { .. })));

    place.lose();
    let (first, text) = unpack(&place, "s");
    assert_eq!(fs::read_to_string(&text).unwrap(), lines(0, 10));
    assert!(text.with_file_name("s/tool-results/t.txt").exists());
    assert_eq!(
        (first.sessions(), first.has_session("s")),
        (&["s".to_owned()][..], true)
    );
    assert_eq!(unpack(&place, "s").1, text, "page by page");

    // Another state of the copy is unpacked anew, and nothing is written to what is read.
    place.put("s.jsonl", &lines(0, 20));
    place.pack("s", &path);
    place.lose();
    let (second, grown) = unpack(&place, "s");
    assert_eq!(fs::read_to_string(&grown).unwrap(), lines(0, 20));
    assert_eq!(fs::read_to_string(&text).unwrap(), lines(0, 10));

    place.archive.remove(&place.key("s")).unwrap();
    assert!(text.exists() && grown.exists(), "both are in use");
    drop((first, second));
    let unpacked = place.archive.folder().join("unpacked");
    assert_eq!(fs::read_dir(unpacked).unwrap().count(), 0);
}

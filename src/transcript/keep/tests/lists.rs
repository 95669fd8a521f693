//! Lists that a flipped bit has changed: no copy is deleted because of what they say.

use super::super::list::List;
use super::*;
use crate::files::set_aside;

/// A session with a compressed copy, and the text of its list.
fn packed(place: &Place) -> (PathBuf, String) {
    let path = place.put("s.jsonl", &lines(0, 20));
    place.pack("s", Some(&path));
    let list = place.folder("s").join(LIST);
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
fn no_flipped_bit_is_taken_for_another_list() {
    let place = Place::new();
    let (_, text) = packed(&place);
    assert!(List::read(text.as_bytes()).is_ok());
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 1 << bit;
            // The newline at the end is outside the checksum, and white space is as good as another.
            let is_newline = at + 1 == text.len();
            let read = List::read(&flipped);
            assert!(
                read.is_err() || is_newline,
                "byte {at}, bit {bit}: {}",
                String::from_utf8_lossy(&flipped)
            );
        }
    }
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
        fs::write(folder.join(LIST), list.to_string()).unwrap();
        let copy = fs::read(folder.join("1.zst")).unwrap();
        append(&path, &lines(20, 30));
        place.pack("s", Some(&path));
        let aside = set_aside::all_in(folder.parent().unwrap()).unwrap();
        assert_eq!(aside.len(), 1, "{member}");
        assert_eq!(fs::read(aside[0].join("1.zst")).unwrap(), copy, "{member}");
        place.lose();
        place.restore("s").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), lines(0, 30), "{member}");
    }
}

#[test]
fn a_list_without_a_checksum_gets_one_at_the_next_look() {
    let place = Place::new();
    let (path, text) = packed(&place);
    let list = place.folder("s").join(LIST);
    fs::write(&list, old_form(&text)).unwrap();
    // Nothing has changed since.
    place.pack("s", Some(&path));
    assert_eq!(fs::read_to_string(&list).unwrap(), text);
    assert_eq!(place.names("s"), ["1.zst"]);
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
    fs::write(place.folder("s").join(LIST), list.to_string()).unwrap();
    let pruned = place.archive.prune(Some(written_ms), None).unwrap();
    assert_eq!(pruned, Pruned::default());
    assert_eq!(place.names("s"), ["1.zst"]);
}

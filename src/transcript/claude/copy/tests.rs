use std::fs;

use super::*;
use crate::files::durable::tests::Disk;
use crate::transcript::copy::{create, create_first};
use crate::transcript::tests::{NEW, OLD, chain, transcript};

#[test]
fn a_line_that_is_too_long_to_be_held_is_copied_and_repaired_as_it_is() {
    let long = vec![b'x'; LINE_LIMIT_BYTES + 1];
    let text = |id: &str| {
        let [prompt, reply] = [("u1", "", "user"), ("a1", "u1", "assistant")]
            .map(|(uuid, parent, kind)| chain(uuid, parent, kind, "text", "").replace(OLD, id));
        [prompt.as_bytes(), &long, b"@@@", reply.as_bytes(), b""].join(&b'\n')
    };
    let content = text(OLD);
    let (folder, source) = transcript(&content);
    let copy = copy_as(&source, folder.path(), NEW).expect("a copy");
    assert!(fs::read(&copy).expect("the copy") == text(NEW), "all of it");
    let index = crate::transcript::claude::reading::index(&source).expect("an index");
    let branch = index.select(None, true).expect("a branch");
    let folder = folder.path().join("repaired");
    let repaired =
        crate::transcript::claude::repair::repair(&source, &index, &branch, &folder, NEW).expect("a copy");
    assert_eq!(repaired.left_out, 1);
    let lengths: Vec<usize> = fs::read(folder.join(format!("{NEW}.jsonl")))
        .expect("the copy")
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::len)
        .collect();
    assert_eq!((lengths.len(), lengths[1]), (4, long.len()));
}

/// A copy is whole as soon as it has its name, also after a loss of power.
#[test]
fn a_copy_is_synced_before_it_is_named_and_its_name_before_it_is_told() {
    let (folder, source) = transcript(b"{\"a\":1}\n");
    let disk = Disk::of(folder.path());
    let new = folder.path().join("projects/-home-u-project");
    let target = new.join("bundle");
    // More than is written at once.
    let text = vec![b'x'; 3 << 20];
    let fill = |writer: &mut dyn Write| {
        let written = writer.write_all(&text);
        written.map_err(TranscriptError::io("write", &target))
    };
    copy_as(&source, &new, NEW).expect("a copy");
    assert_eq!(disk.check_lasts("a copy in a new folder"), 1);
    create_in(folder.path(), NEW, "fork", fill).expect("a fork");
    assert_eq!(disk.check_lasts("a fork"), 2);
    create(&target, fill).expect("a file");
    assert_eq!(disk.check_lasts("a file"), 3);
    create_first(target.clone(), [new.join("second")], fill).expect("a file");
    // The first name was taken.
    assert_eq!(disk.check_lasts("a file of another name"), 5);
}

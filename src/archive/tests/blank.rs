//! Blank transcripts that an agent may be about to write to.

use std::process::{Command, Stdio};

use super::*;

#[cfg(target_os = "linux")]
#[test]
fn a_blank_transcript_that_another_process_holds_open_stays() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 10));
    place.pack("s", &path);
    fs::write(&path, [0; 100]).unwrap();
    let held = fs::File::open(&path).unwrap();
    let mut holder = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::from(held))
        .spawn()
        .unwrap();
    let refused = place.restore("s");
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(
        matches!(refused, Err(TranscriptError::InUse { pid, .. }) if pid == holder.id()),
        "{refused:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), [0; 100]);
    place.restore("s").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), lines(0, 10));
}

/// A loss of power may blank a rollout and those in which its history begins.
#[test]
fn each_restored_session_is_marked_with_what_it_lacks() {
    let place = Place::new();
    let all = [(PARENT, None), (CHILD, Some(PARENT))].map(|(id, base)| (id, rollout(&place, id, base)));
    for (id, path) in &all {
        rewritten(
            &place
                .archive
                .back_up(&place.key(id), codex(), path, Some(1), true),
        );
    }
    for (_, path) in &all {
        fs::write(path, [0; 100]).unwrap();
    }
    assert!(codex().is_missing(&place.root, CHILD));
    let advice = RestoreCallbacks {
        count_missing_turns: &|id| Ok(MissingTurns::Known(if id == PARENT { 1 } else { 3 })),
        ..ADVICE
    };
    let key = place.key(CHILD);
    let restored = place
        .archive
        .restore(codex(), &key, None, advice, &mut |_, _| Ok(()));
    assert_eq!(restored.unwrap().len(), 2);
    let lacking = [PARENT, CHILD].map(|id| place.archive.unreported_missing_turns(&place.key(id)).unwrap());
    assert_eq!(lacking, [1, 3].map(|turns| Some(MissingTurns::Known(turns))));
    assert!(!codex().is_missing(&place.root, CHILD));
}

/// Restoring such a copy would look like a way back.
#[test]
fn a_copy_without_content_is_no_backup() {
    for is_packed in [false, true] {
        let place = Place::new();
        let path = place.put("s.jsonl", "");
        let keep = |text: &str| {
            fs::write(&path, text).unwrap();
            match is_packed {
                true => place.pack("s", &path),
                false => place.link("s", &path),
            };
            place.archive.has_transcript(&place.key("s")).unwrap()
        };
        assert!(!keep(""));
        assert!(keep("{}\n"));
    }
}

use std::fs::OpenOptions;
use std::io::Write;

use super::*;

fn prompt(uuid: &str, parent: &str) -> String {
    let parent = if parent.is_empty() {
        "null".to_owned()
    } else {
        format!("{parent:?}")
    };
    format!(
        r#"{{"type":"user","uuid":"{uuid}","parentUuid":{parent},"origin":{{"kind":"human"}},"message":{{"content":"hi"}}}}"#
    ) + "\n"
}

fn reply(uuid: &str, parent: &str, message: &str) -> String {
    format!(r#"{{"type":"assistant","uuid":"{uuid}","parentUuid":"{parent}","message":{message}}}"#) + "\n"
}

const DONE: &str = r#"{"id":"m","stop_reason":"end_turn","content":[{"type":"text","text":"x"}]}"#;

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.jsonl");
        std::fs::write(&path, text).expect("a file");
        Self {
            _folder: folder,
            path,
        }
    }

    fn append(&self, text: &str) {
        let mut file = OpenOptions::new()
            .append(true)
            .open(&self.path)
            .expect("the file");
        file.write_all(text.as_bytes()).expect("written");
    }

    fn messages(&self, library: &Library) -> usize {
        library.open(&self.path, None).expect("a book").book.messages()
    }
}

#[test]
fn a_file_that_was_not_touched_is_not_read_again() {
    let place = Place::new(&prompt("u1", ""));
    let library = Library::default();
    let first = library.index(&place.path).expect("an index");
    assert!(Arc::ptr_eq(
        &first,
        &library.index(&place.path).expect("an index")
    ));
    let book = library.open(&place.path, None).expect("a book").book;
    assert!(Arc::ptr_eq(
        &book,
        &library.open(&place.path, None).expect("a book").book
    ));
}

// Against D8.
#[test]
fn only_what_was_appended_is_read() {
    let place = Place::new(&prompt("u1", ""));
    let library = Library::default();
    assert_eq!(place.messages(&library), 1);
    // What was read already is not looked at again: with other bytes before the tail that is compared, nothing is seen.
    let padding = format!("{{\"type\":\"x\",\"text\":\"{}\"}}\n", "y".repeat(100_000));
    place.append(&padding);
    assert_eq!(place.messages(&library), 1);
    let file = OpenOptions::new()
        .write(true)
        .open(&place.path)
        .expect("the file");
    file.write_all_at(b"@", 0).expect("written");
    place.append(&reply("a1", "u1", DONE));
    assert_eq!(place.messages(&library), 2);
    assert_eq!(place.messages(&Library::default()), 1);
}

#[test]
fn a_torn_line_is_taken_when_it_is_whole() {
    let line = reply("a1", "u1", DONE);
    let place = Place::new(&prompt("u1", ""));
    let library = Library::default();
    for (from, to) in [(0, 5), (5, 30), (30, line.len() - 1)] {
        place.append(&line[from..to]);
        let whole = to == line.len() - 1;
        assert_eq!(place.messages(&library), 1 + usize::from(whole));
        assert_eq!(library.index(&place.path).expect("an index").ends_torn(), !whole);
    }
    // It was taken without its newline, and turns out to be garbage.
    place.append("x\n");
    assert_eq!(place.messages(&library), 1);
    assert_eq!(library.index(&place.path).expect("an index").garbage_lines(), 1);
}

#[test]
fn what_was_rewritten_shrunk_or_replaced_is_read_anew() {
    let long = prompt("u1", "") + &reply("a1", "u1", DONE);
    let place = Place::new(&long);
    let library = Library::default();
    let leaf = |path: &Path| library.index(path).expect("an index").live_uuid();
    assert_eq!(leaf(&place.path).as_deref(), Some("a1"));
    std::fs::write(&place.path, prompt("v1", "")).expect("a file");
    assert_eq!(leaf(&place.path).as_deref(), Some("v1"), "shrunk");
    std::fs::write(&place.path, prompt("w1", "") + &reply("w2", "w1", DONE)).expect("a file");
    assert_eq!(
        leaf(&place.path).as_deref(),
        Some("w2"),
        "grown, with another beginning"
    );
    assert_eq!(library.standing(&place.path).expect("a standing").prompts, 1);
    assert!(
        library.open(&place.path, Some("w1")).is_ok(),
        "the beginning was read too"
    );
    let other = place.path.with_extension("new");
    std::fs::write(&other, long + &prompt("u2", "a1") + &prompt("u3", "u2")).expect("a file");
    std::fs::rename(&other, &place.path).expect("renamed");
    assert_eq!(leaf(&place.path).as_deref(), Some("u3"), "another file");
    std::fs::remove_file(&place.path).expect("removed");
    assert!(matches!(
        library.index(&place.path),
        Err(TranscriptError::Io { .. })
    ));
    assert_eq!(library.kept_bytes(), 0);
    std::fs::write(&place.path, "").expect("a file");
    assert_eq!(leaf(&place.path), None);
}

#[test]
fn a_long_file_is_read_in_two_halves_and_is_the_same() {
    let mut text = prompt("u0", "");
    text += "{\"type\":\"custom-title\",\"customTitle\":\"early\"}\n";
    text += "{\"type\":\"system\",\"uuid\":\"s0\",\"parentUuid\":\"u0\",\"cwd\":\"/early\"}\n";
    for number in 1..200 {
        text += &reply(&format!("u{number}"), &format!("u{}", number - 1), DONE);
    }
    for text in [
        text.clone() + "garbage\n" + &prompt("v", "u199"),
        text + "{\"torn",
        "\n".into(),
        "x".repeat(50),
    ] {
        let place = Place::new(&text);
        let whole = Library::default();
        let halves = Library {
            halves_bytes: 0,
            ..Library::default()
        };
        let seen = |library: &Library| {
            let index = library.index(&place.path).expect("an index");
            let found = (index.records(), index.garbage_lines(), index.ends_torn());
            (
                found,
                library.standing(&place.path).expect("a standing"),
                library.origin(&place.path).expect("an origin"),
                place.messages(library),
            )
        };
        assert_eq!(seen(&whole), seen(&halves));
        place.append("\n");
        place.append(&reply("a", "u7", DONE));
        assert_eq!(seen(&whole), seen(&halves));
    }
}

#[test]
fn only_files_are_read() {
    let library = Library::default();
    let folder = tempfile::tempdir().expect("a folder");
    let error = library
        .index(folder.path())
        .expect_err("a folder is no transcript");
    assert!(
        matches!(&error, TranscriptError::Io { path, .. } if path == folder.path()),
        "{error:?}"
    );
    assert!(library.index(&folder.path().join("none.jsonl")).is_err());
    assert_eq!(library.kept_bytes(), 0);
}

#[test]
fn how_the_last_turn_stands() {
    let call = r#"{"id":"m","content":[{"type":"tool_use","id":"t","name":"Read","input":{}}]}"#;
    let unsaid = r#"{"id":"m","stop_reason":null,"content":[{"type":"text","text":"x"}]}"#;
    let before_call = r#"{"id":"m","stop_reason":"tool_use","content":[{"type":"text","text":"x"}]}"#;
    let thought = r#"{"id":"m","content":[{"type":"thinking","thinking":"x"}]}"#;
    let interrupted = r#"{"type":"user","uuid":"i","parentUuid":"a","message":{"content":[{"type":"text","text":"[Request interrupted by user for tool use]"}]}}"#;
    let error = r#"{"type":"assistant","uuid":"e","parentUuid":"u","isApiErrorMessage":true,"message":{"content":[{"type":"text","text":"limit"}]}}"#;
    let aside = r#"{"type":"user","uuid":"c","parentUuid":"a","message":{"content":"<command-name>/cost</command-name>"}}"#;
    let mark = r#"{"type":"system","uuid":"s","parentUuid":"a"}"#;
    let side =
        r#"{"type":"assistant","uuid":"q","parentUuid":"a","isSidechain":true,"message":{"content":"x"}}"#;
    let line = |text: &str| format!("{text}\n");
    let table = [
        (String::new(), TurnEnd::Open),
        (reply("a", "u", DONE), TurnEnd::Over),
        (reply("a", "u", call), TurnEnd::Open),
        (reply("a", "u", before_call), TurnEnd::Open),
        (reply("a", "u", thought), TurnEnd::Open),
        (reply("a", "u", call) + &line(interrupted), TurnEnd::Over),
        (line(error), TurnEnd::Over),
        (reply("a", "u", DONE) + &line(aside), TurnEnd::Over),
        (reply("a", "u", call) + &line(aside), TurnEnd::Open),
        (reply("a", "u", DONE) + &line(mark), TurnEnd::Over),
        (reply("a", "u", call) + &line(side), TurnEnd::Open),
        (reply("a", "u", DONE) + &prompt("v", "a"), TurnEnd::Open),
        (reply("a", "u", DONE) + "garbage\n{\"torn", TurnEnd::Over),
        (reply("a", "u", unsaid), TurnEnd::Ambiguous),
        (reply("a", "u", unsaid) + &reply("b", "a", call), TurnEnd::Open),
        (reply("a", "u", unsaid) + &line(aside), TurnEnd::Over),
    ];
    for (number, (more, ended)) in table.into_iter().enumerate() {
        let place = Place::new(&(prompt("u", "") + &more));
        let standing = Library::default().standing(&place.path).expect("a standing");
        assert_eq!(standing.turn_end, ended, "case {number}");
        assert_eq!(standing.prompts, if number == 11 { 2 } else { 1 });
    }
}

/// Versions that write a text before they know why the model stopped, and mend that where no call follows.
#[test]
fn no_turn_of_older_files_is_over_before_its_last_record() {
    let files = [
        include_str!("../../../tests/fixtures/transcripts/claude/1.0.128.jsonl"),
        include_str!("../../../tests/fixtures/transcripts/claude/2.0.30.jsonl"),
    ];
    for text in files {
        let (place, library) = (Place::new(""), Library::default());
        // What is told of each turn, by the number of its prompt, once for each record with which it seems over.
        let mut over = Vec::new();
        for line in text.split_inclusive('\n') {
            place.append(line);
            let standing = library.standing(&place.path).expect("a standing");
            let is_reply = line.contains(r#""type":"assistant""#) && line.contains(r#""isSidechain":false"#);
            if standing.turn_end == TurnEnd::Over && is_reply {
                over.push((standing.prompts, line));
            }
        }
        let turns: Vec<u64> = over.iter().map(|(prompts, _)| *prompts).collect();
        // The last one too: these versions say why the model stopped in the record with which a turn ends.
        assert_eq!(turns, [1, 2, 3, 4]);
        assert!(over.iter().all(|(_, line)| line.contains("end_turn")));
    }
}

#[test]
fn who_asks_at_the_same_time_waits_for_the_one_who_reads() {
    let place = Place::new(&prompt("u1", ""));
    let library = Library::default();
    let slot = library.kept.slot(&place.path);
    let held = slot.lock().expect("nobody else");
    let indexes: Vec<Arc<Index>> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| library.index(&place.path)))
            .collect();
        drop(held);
        let answers = asking.into_iter().map(|thread| thread.join().expect("no panic"));
        answers.map(|index| index.expect("an index")).collect()
    });
    assert!(indexes.iter().all(|index| Arc::ptr_eq(index, &indexes[0])));
}

#[test]
fn turns_that_were_counted_are_known_while_the_file_is_the_same() {
    let place = Place::new(&(prompt("u1", "") + &reply("a1", "u1", DONE)));
    let library = Library::default();
    let identity = || Identity::of(&std::fs::metadata(&place.path).expect("a file"));
    let known = || library.known_turns(&place.path, &identity());
    assert_eq!(known(), None);
    library.index(&place.path).expect("an index");
    assert_eq!(known(), None, "nothing is counted for it");
    place.messages(&library);
    assert_eq!(known(), Some(1));
    library.open(&place.path, Some("u1")).expect("a book");
    assert_eq!(known(), Some(1), "of the live branch");

    // Who reads is not waited for.
    let slot = library.kept.slot(&place.path);
    let reading = slot.lock().expect("nobody else");
    assert_eq!(known(), None);
    drop(reading);
    assert_eq!(known(), Some(1));

    let before = identity();
    place.append(&prompt("u2", "a1"));
    assert_eq!(known(), None);
    place.messages(&library);
    assert_eq!(known(), Some(2));
    assert_eq!(library.known_turns(&place.path, &before), None);
}

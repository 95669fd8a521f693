use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::*;
use crate::transcript::open_transcript::OpenTranscript;

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

    fn messages(&self, library: &IndexCache) -> usize {
        library.open(&self.path, None).expect("a book").messages()
    }
}

// Against D8.
#[test]
fn only_what_was_appended_is_read() {
    let place = Place::new(&prompt("u1", ""));
    let library = IndexCache::default();
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
    assert_eq!(place.messages(&IndexCache::default()), 1);
}

/// As by an editor. What was read is the beginning of the old file, and does not belong to the rest of the new one.
#[test]
fn a_file_that_is_rewritten_during_a_read_is_read_again() {
    let turn = |number: u8| {
        let (prompted, replied) = (format!("u{number}"), format!("a{number}"));
        prompt(&prompted, &format!("a{}", number - 1)) + &reply(&replied, &prompted, DONE)
    };
    let place = Place::new(&(turn(1) + &turn(2)));
    let library = IndexCache::default();
    let read = |file: &File, _| {
        let index = ClaudeIndex::read(read_range(file, 0, turn(1).len() as u64));
        std::fs::write(&place.path, turn(2) + &turn(3) + &turn(4)).expect("rewritten");
        index
    };
    let look = |_: &mut CachedIndex<ClaudeHistory>, _| Ok(());
    library.claude.update(&place.path, read, look).expect("an index");
    assert!(library.open(&place.path, Some("u2")).is_ok());
    assert!(library.open(&place.path, Some("u1")).is_err());
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
        let whole = IndexCache::default();
        let halves = IndexCache {
            parallel_from_bytes: 0,
            ..IndexCache::default()
        };
        let seen = |library: &IndexCache| {
            let index = library.index(&place.path).expect("an index");
            let found = (index.records(), index.garbage_lines, index.ends_torn);
            (
                found,
                library.state(&place.path).expect("a state"),
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
        (reply("a", "u", DONE), TurnEnd::Ended),
        (reply("a", "u", call), TurnEnd::Open),
        (reply("a", "u", before_call), TurnEnd::Open),
        (reply("a", "u", thought), TurnEnd::Open),
        (reply("a", "u", call) + &line(interrupted), TurnEnd::Ended),
        (line(error), TurnEnd::Ended),
        (reply("a", "u", DONE) + &line(aside), TurnEnd::Ended),
        (reply("a", "u", call) + &line(aside), TurnEnd::Open),
        (reply("a", "u", DONE) + &line(mark), TurnEnd::Ended),
        (reply("a", "u", call) + &line(side), TurnEnd::Open),
        (reply("a", "u", DONE) + &prompt("v", "a"), TurnEnd::Open),
        (reply("a", "u", DONE) + "garbage\n{\"torn", TurnEnd::Ended),
        (reply("a", "u", unsaid), TurnEnd::Ambiguous),
        (reply("a", "u", unsaid) + &reply("b", "a", call), TurnEnd::Open),
        (reply("a", "u", unsaid) + &line(aside), TurnEnd::Ended),
    ];
    for (number, (more, ended)) in table.into_iter().enumerate() {
        let place = Place::new(&(prompt("u", "") + &more));
        let state = IndexCache::default().state(&place.path).expect("a state");
        assert_eq!(state.turn_end, ended, "case {number}");
        assert_eq!(state.prompts, Some(if number == 11 { 2 } else { 1 }));
    }
}

#[test]
fn who_asks_at_the_same_time_waits_for_the_one_who_reads() {
    let place = Place::new(&prompt("u1", ""));
    let library = IndexCache::default();
    let slot = library.claude.cache.slot(&place.path);
    let held = slot.lock().expect("nobody else");
    let indexes: Vec<Arc<ClaudeIndex>> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| library.index(&place.path)))
            .collect();
        drop(held);
        let answers = asking.into_iter().map(|thread| thread.join().expect("no panic"));
        answers.map(|index| index.expect("an index")).collect()
    });
    assert!(indexes.iter().all(|index| Arc::ptr_eq(index, &indexes[0])));
}

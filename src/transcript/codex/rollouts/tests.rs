use std::fs;

use super::*;
use crate::transcript::transcript_list::{self, Format};
use bridge_protocol::check::FindingKind;

const ROOT: &str = include_str!("../../../../tests/fixtures/transcripts/codex/0.166.0-limit.jsonl");
const EARLY: &str =
    include_str!("../../../../tests/fixtures/transcripts/codex/0.166.0-limit-early-fork.jsonl");
const DEEP: &str =
    include_str!("../../../../tests/fixtures/transcripts/codex/0.166.0-limit-fork-of-fork.jsonl");
const ROOT_ID: &str = "01a1fcbf-db36-73c1-ae0a-836a46b096da";
const EARLY_ID: &str = "01a1fcbf-e8e6-7b20-bdec-a0ea0263efff";
const DEEP_ID: &str = "01a1fcbf-e951-7fa1-baa7-4184e695b989";
const FIRST_TURN: &str = "01a1fcbf-db5c-7e90-8043-c4dd5111c2a9";

/// A fork of a fork, and both that it continues.
fn family() -> (tempfile::TempDir, [PathBuf; 3]) {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sessions/2026/11/21");
    fs::create_dir_all(&folder).expect("a folder");
    let paths = [(ROOT_ID, ROOT), (EARLY_ID, EARLY), (DEEP_ID, DEEP)].map(|(id, text)| {
        let path = folder.join(format!("rollout-2026-11-21T06-16-34-{id}.jsonl"));
        fs::write(&path, text).expect("a file");
        path
    });
    (home, paths)
}

fn pack(path: &Path) -> PathBuf {
    let packed = path.with_extension("jsonl.zst");
    let text = fs::read(path).expect("a file");
    fs::write(&packed, zstd::encode_all(&text[..], 3).expect("packed")).expect("a file");
    fs::remove_file(path).expect("a file");
    packed
}

fn deep(home: &Path) -> OpenRollout {
    OpenRollout::open(&RolloutCache::default(), home, DEEP_ID, None).expect("an open rollout")
}

/// What each message is named, and what it says.
fn told(open: &mut OpenRollout) -> Vec<(String, TranscriptMessage)> {
    let messages = open.messages();
    let read = |message| {
        let owner = open.owner(message).expect("an owner").to_owned();
        (owner, open.message(message).expect("a read").expect("a message"))
    };
    (0..messages).map(read).collect()
}

#[test]
fn a_fork_may_leave_out_what_its_source_added_to_another() {
    let (home, [_, early, deep_path]) = family();
    // The fork of the fork was made where the first one was: nothing of that one counts.
    let text = DEEP.replacen("\"end_ordinal_exclusive\":26", "\"end_ordinal_exclusive\":14", 1);
    fs::write(&deep_path, text).expect("a file");
    let open = deep(home.path());
    assert_eq!((open.turn_starts().len(), open.history.damaged_records), (2, 0));
    assert_eq!(open.history.turn_name(0), Some((FIRST_TURN, ROOT_ID)));
    assert_eq!(open.history.turn_name(1).map(|(_, owner)| owner), Some(DEEP_ID));
    assert!(early.exists());
}

#[test]
fn a_circle_and_what_is_no_rollout_are_told() {
    let (home, [root, early, deep_path]) = family();
    // The first one continues the last.
    let base = format!(r#","history_base":{{"thread_id":"{DEEP_ID}","end_ordinal_exclusive":0}},"cwd""#);
    fs::write(&root, ROOT.replacen(r#","cwd""#, &base, 1)).expect("a file");
    let open = deep(home.path());
    crate::words::check(
        "a circle of rollouts",
        "missing",
        &open.missing.as_ref().expect("a gap").detail,
    );
    assert_eq!(open.turn_starts().len(), 3);
    let kinds: Vec<_> = check(home.path(), DEEP_ID).expect("a report").findings;
    assert!(
        kinds
            .iter()
            .any(|finding| finding.kind == FindingKind::MissingSource)
    );

    for text in ["", "\n\n", "garbage\n", "[]\n7\n", "\0\0\0"] {
        fs::write(&deep_path, text).expect("a file");
        let open = deep(home.path());
        assert_eq!((open.messages(), open.turn_starts().len()), (0, 0), "{text:?}");
        let report = check(home.path(), DEEP_ID).expect("a report");
        assert!(!report.findings.is_empty(), "{text:?}");
    }
    // Compressed, and broken off: what was decoded counts; not compressed at all: it cannot be read.
    fs::remove_file(&deep_path).expect("a file");
    let packed = pack(&early);
    let bytes = fs::read(&packed).expect("a file");
    fs::write(&packed, &bytes[..bytes.len() - 9]).expect("a file");
    assert_eq!(
        OpenRollout::open(&RolloutCache::default(), home.path(), EARLY_ID, None)
            .expect("a rollout")
            .history
            .damaged_records,
        1
    );
    let torn = check(home.path(), EARLY_ID).expect("a report").findings;
    assert!(
        torn.iter().any(|finding| finding.kind == FindingKind::TornLine),
        "{torn:?}"
    );
    fs::write(&packed, "no such thing").expect("a file");
    assert!(matches!(
        OpenRollout::open(&RolloutCache::default(), home.path(), EARLY_ID, None),
        Err(TranscriptError::Io { .. })
    ));
    assert!(check(home.path(), EARLY_ID).is_err());
    fs::remove_file(&packed).expect("a file");
    fs::create_dir(&packed).expect("a folder in a file's place");
    assert!(matches!(
        find(home.path(), EARLY_ID),
        Err(TranscriptError::NotFound { .. })
    ));
}

#[test]
fn what_was_read_is_kept_until_one_of_its_files_changes() {
    let (home, [root, _, deep_path]) = family();
    let books = RolloutCache::default();
    let open = |until| OpenRollout::open(&books, home.path(), DEEP_ID, until).expect("an open rollout");
    let first = open(None);
    let mut again = open(None);
    assert!(Arc::ptr_eq(&first.history, &again.history));
    assert_eq!(told(&mut again), told(&mut deep(home.path())));
    // A shorter one beside it, and both are kept.
    assert_eq!(open(Some((ROOT_ID, FIRST_TURN))).turn_starts().len(), 1);
    assert!(Arc::ptr_eq(&first.history, &open(None).history));
    // The last of its files grows, the first is written anew, and then goes away and comes back elsewhere.
    let grown = format!("{DEEP}{}\n", DEEP.lines().nth(5).expect("a prompt"));
    fs::write(&deep_path, grown).expect("a file");
    let longer = open(None);
    assert_eq!(longer.messages(), first.messages() + 1);
    fs::write(&root, ROOT.replacen("hi one", "ho one", 2)).expect("a file");
    assert!(!Arc::ptr_eq(&longer.history, &open(None).history));
    fs::remove_file(&root).expect("a file");
    assert!(open(None).missing.is_some());
    fs::write(
        home.path()
            .join("sessions")
            .join(root.file_name().expect("a name")),
        ROOT,
    )
    .expect("a file");
    assert_eq!((open(None).missing, open(None).turn_starts().len()), (None, 3));
}

/// How much is read while something is done.
fn bytes_read<T>(work: impl FnOnce() -> T) -> (T, u64) {
    #[derive(Default)]
    struct Counter(std::sync::atomic::AtomicU64);
    impl crate::transcript::meter::Meter for Counter {
        fn expect_bytes(&self, _: u64) {}
        fn count_bytes(&self, bytes: u64) -> std::io::Result<()> {
            self.0.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }
    }
    let counter = Arc::new(Counter::default());
    let done = crate::transcript::meter::with_meter(Arc::clone(&counter) as _, work);
    (done, counter.0.load(std::sync::atomic::Ordering::Relaxed))
}

#[test]
fn what_is_listed_is_found_and_the_other_way_round() {
    use std::os::unix::fs::symlink;
    let (home, [root, early, deep_path]) = family();
    let top = home.path().join("sessions");
    let archive = home.path().join(ARCHIVE_FOLDER);
    // The archive is a folder of the others; a folder stands within itself; links lead nowhere, to each other, to a file.
    symlink(top.join("2026/11"), &archive).expect("a link");
    symlink(&top, top.join("loop")).expect("a link");
    symlink("nowhere", top.join("lost")).expect("a link");
    symlink("ring", top.join("ring")).expect("a link");
    let linked = top.join(format!("rollout-2026-11-22T06-16-34-{EARLY_ID}.jsonl"));
    symlink(&early, &linked).expect("a link");
    fs::hard_link(&root, top.join(root.file_name().expect("a name"))).expect("a second name");
    let mut listed: Vec<PathBuf> = transcript_list::transcript_versions(home.path(), Format::Codex)
        .map(|(path, _)| path)
        .collect();
    let ids = [ROOT_ID, EARLY_ID, DEEP_ID];
    let found = ids.map(|id| locate(home.path(), id).expect("a search"));
    assert_eq!(found.each_ref().map(Vec::len), [1, 2, 1]);
    assert_eq!(found[2], [deep_path], "not by way of the archive");
    let mut found = found.concat();
    listed.sort();
    found.sort();
    assert_eq!(found, listed);
}

fn append(path: &Path, text: &str) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().append(true).open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}

#[test]
fn of_a_file_that_has_grown_only_what_was_appended_is_read() {
    let (home, [root, early, deep_path]) = family();
    let books = RolloutCache::default();
    let open = || OpenRollout::open(&books, home.path(), DEEP_ID, None).expect("an open rollout");
    let whole = open().history;
    let prompt = DEEP
        .lines()
        .nth(5)
        .expect("a prompt")
        .replace("\"turn_id\":\"", "\"turn_id\":\"x");
    // A line that is still being written, and what ends it.
    let (start, end) = prompt.split_at(40);
    append(&deep_path, start);
    let (torn, read) = bytes_read(open);
    assert_eq!((torn.messages(), read), (whole.entries.len(), 40));
    append(&deep_path, &format!("{end}\n"));
    let (mut grown, read) = bytes_read(open);
    assert_eq!(read, prompt.len() as u64 + 1);
    assert_eq!(
        (grown.turn_starts().len(), grown.history.damaged_records),
        (whole.turns.len() + 1, 0)
    );
    let anew = told(&mut deep(home.path()));
    assert_eq!(told(&mut grown), anew);
    // What the sources say behind the forks does not count, so nothing is read for it.
    let (same, read) = bytes_read(|| {
        append(&root, &format!("{prompt}\n"));
        open()
    });
    assert!(Arc::ptr_eq(&same.history, &grown.history) && read == 0, "{read}");
    append(&early, "garbage\n");
    assert_eq!(told(&mut open()), anew);

    // Written anew with more in it, in place: not what had been read stands before the end of that.
    let other =
        DEEP.replacen("[[text", "[[longer text", 9) + &prompt + "\n" + &prompt + "\n" + &prompt + "\n";
    assert_ne!(other.len(), DEEP.len());
    fs::write(&deep_path, &other).expect("a file");
    assert_eq!(told(&mut open()), told(&mut deep(home.path())));
    assert_ne!(told(&mut open()), anew);
    // Shorter, then gone.
    fs::write(&deep_path, DEEP).expect("a file");
    assert_eq!(open().turn_starts().len(), whole.turns.len());
    fs::remove_file(&deep_path).expect("a file");
    assert!(matches!(
        OpenRollout::open(&books, home.path(), DEEP_ID, None),
        Err(TranscriptError::NotFound { .. })
    ));
}

#[test]
fn a_turn_ends_with_its_line_however_long_up_to_a_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rollout.jsonl");
    let event = |kind: &str, length: usize| {
        let text = "x".repeat(length);
        format!(
            "{{\"type\":\"event_msg\",\"payload\":{{\"type\":\"{kind}\",\"last_agent_message\":\"{text}\"}}}}\n"
        )
    };
    let limit = usize::try_from(TURN_END_SEARCH_BYTES).expect("it fits");
    for (length, expected) in [
        (0, LastTurn::Answered),
        (END_BYTES, LastTurn::Answered),
        (9 * END_BYTES, LastTurn::Answered),
        (limit, LastTurn::Running),
    ] {
        let text = event("task_started", 0) + &event("task_complete", length) + &event("token_count", 0);
        fs::write(&path, &text).expect("a file");
        assert_eq!(
            last_turn(&path).expect("read"),
            (expected, text.len() as u64),
            "{length}"
        );
    }
    let text = event("task_started", 0) + &event("token_count", END_BYTES);
    fs::write(&path, text).expect("a file");
    assert_eq!(last_turn(&path).expect("read").0, LastTurn::Running);
}

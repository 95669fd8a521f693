use std::fs;

use jiff::SignedDuration;

use super::*;

const PROMPT: &str = r#"{"type":"user","uuid":"u1","cwd":"/home/u/project","timestamp":"2020-11-03T12:00:00.000Z","origin":{"kind":"human"},"message":{"content":"hello"}}"#;
const CODEX_ID: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

fn told(shelf: &TranscriptList) -> Vec<(String, String)> {
    let mut told: Vec<_> = shelf
        .entries_after(None)
        .map(|entry| (entry.upstream_id.clone(), entry.title.clone()))
        .collect();
    told.sort();
    told
}

fn unreadable(shelf: &TranscriptList) -> Vec<&Path> {
    shelf.unreadable().collect()
}

fn scanned(root: &Path, format: Format) -> TranscriptList {
    let mut shelf = TranscriptList::default();
    shelf.scan(root, format);
    shelf
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(id, title)| ((*id).to_owned(), (*title).to_owned()))
        .collect()
}

#[test]
fn a_compressed_rollout_is_told_as_far_as_it_can_be_decoded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(format!(
        "archived_sessions/rollout-2026-11-03T12-00-00-{CODEX_ID}.jsonl.zst"
    ));
    fs::create_dir(folder.path().join("archived_sessions")).expect("a folder");
    let meta = |filler: &str| {
        format!(
            "{{\"timestamp\":\"2026-11-03T12:00:00Z\",\"type\":\"session_meta\",\"payload\":{{\"id\":\"{CODEX_ID}\",\"cwd\":\"/home/u/project\",\"x\":\"{filler}\"}}}}\n"
        )
    };
    let prompt = "{\"timestamp\":\"2026-11-03T12:00:05Z\",\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"hello\"}]}}\n";
    // Bytes that cannot be compressed to nothing, so that a file can be cut within them.
    let noise = |bytes: usize| -> String {
        let mut state = 1_u32;
        let letters = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + (state >> 24) as u8 % 26)
        });
        letters.take(bytes).collect()
    };
    let (near, far, lost) = (meta(""), meta(&noise(200_000)), meta(&noise(2_000_000)));
    let filler = format!(
        "{{\"timestamp\":\"2026-11-03T12:00:09Z\",\"type\":\"x\",\"payload\":{{\"x\":\"{}\"}}}}\n",
        noise(700_000)
    );
    let packed = |text: String| zstd::encode_all(text.as_bytes(), 3).expect("packed");
    let whole = packed(format!("{near}{prompt}"));
    let cut = packed(format!("{near}{prompt}{filler}"));
    let table = [
        (whole, "hello", "/home/u/project", true),
        (
            packed(format!("{near}{prompt}{filler}")),
            "hello",
            "/home/u/project",
            false,
        ),
        (packed(format!("{far}{prompt}")), "hello", "/home/u/project", true),
        (packed(format!("{lost}{prompt}")), "", "", false),
        (cut[..cut.len() / 2].to_vec(), "hello", "/home/u/project", false),
        (b"no such thing".to_vec(), "", "", false),
        (Vec::new(), "", "", false),
    ];
    for (bytes, title, cwd, tells_its_end) in table {
        fs::write(&path, &bytes).expect("a file");
        let shelf = scanned(folder.path(), Format::Codex);
        let entry = shelf.entries_after(None).next().expect("an entry");
        assert_eq!(
            (
                entry.upstream_id.as_str(),
                entry.title.as_str(),
                entry.cwd.as_str()
            ),
            (CODEX_ID, title, cwd)
        );
        assert_eq!(entry.bytes, bytes.len() as u64);
        // Else the moment at which the file was written is told, which is now.
        assert_eq!(
            entry.updated_at.to_string() == "2026-11-03T12:00:05Z",
            tells_its_end,
            "{}",
            bytes.len()
        );
    }
}

/// Large files are read at their ends, and a prompt that stands further in is found all the same.
#[test]
fn a_large_file_is_read_at_its_ends() {
    let filler = |bytes: usize| format!("{{\"type\":\"attachment\",\"x\":\"{}\"}}\n", "x".repeat(bytes));
    let last = PROMPT.replace("12:00:00", "12:00:09").replace("hello", "bye");
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let near = format!("{PROMPT}\n{}{last}\n", filler(3_000_000));
    let noted = r#"{"type":"last-prompt","lastPrompt":"and now","leafUuid":"u2"}"#;
    let far = format!(
        "{}{PROMPT}\n{}{noted}\n{last}\n",
        filler(200_000),
        filler(3_000_000)
    );
    // The first words stand behind a picture, in a line that is not read whole.
    let picture = PROMPT.replace("hello", &"x".repeat(700_000));
    let behind = format!("{picture}\n{}{noted}\n", filler(3_000_000));
    let none = filler(3_000_000);
    write(root, "projects/-a/near.jsonl", &near);
    write(root, "projects/-a/far.jsonl", &far);
    write(root, "projects/-a/none.jsonl", &none);
    write(root, "projects/-a/behind.jsonl", &behind);
    let shelf = scanned(root, Format::Claude);
    assert_eq!(
        told(&shelf),
        pairs(&[
            ("behind", "and now"),
            ("far", "hello"),
            ("near", "hello"),
            ("none", "")
        ])
    );
    let dated = |entry: &&Arc<ListedTranscript>| ["far", "near"].contains(&entry.upstream_id.as_str());
    for entry in shelf.entries_after(None).filter(dated) {
        assert_eq!(entry.updated_at.to_string(), "2020-11-03T12:00:09Z");
    }
}

#[test]
fn a_record_of_the_time_to_come_is_as_old_as_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    write(root, "projects/-a/s1.jsonl", PROMPT);
    let written: Timestamp = "2020-11-03T12:00:00Z".parse().expect("a time");
    for (behind, told) in [
        // The clock of files goes in steps.
        (SignedDuration::from_millis(3), written),
        (
            SignedDuration::from_hours(1),
            written - SignedDuration::from_hours(1),
        ),
    ] {
        let file = fs::File::options()
            .write(true)
            .open(root.join("projects/-a/s1.jsonl"))
            .expect("the file");
        file.set_modified((written - behind).into()).expect("its time");
        let shelf = scanned(root, Format::Claude);
        assert_eq!(shelf.entries_after(None).next().expect("s1").updated_at, told);
    }
}

#[test]
fn a_file_that_shrank_or_went_since_it_was_found_costs_only_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    write(root, "projects/-a/s1.jsonl", PROMPT);
    let mut finding = FolderWalk::in_root(root, Format::Claude);
    let mut found = finding.files.pop().expect("a file");
    found.identity.bytes = 1 << 40;
    let entry_of = |found: &FoundFile| read_entry(found, Format::Claude, &mut file_ends::Buffers::default());
    let read = entry_of(&found).expect("a file").expect("an entry");
    assert_eq!(read.title, "hello");
    fs::remove_file(&found.path).expect("it is gone");
    assert_eq!(
        entry_of(&found).map_err(|error| error.kind()),
        Err(io::ErrorKind::NotFound)
    );
}

/// What is told to read, and what that says after each file.
struct Told<F>(std::sync::atomic::AtomicU64, std::sync::atomic::AtomicU64, F);

impl<F: Fn(u64) -> io::Result<()> + Send + Sync> crate::transcript::meter::Meter for Told<F> {
    fn expect_bytes(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn count_bytes(&self, bytes: u64) -> io::Result<()> {
        (self.2)(self.1.fetch_add(bytes, Ordering::Relaxed) + bytes)
    }
}

// Against D10.
#[test]
fn a_scan_tells_how_far_it_is_and_is_whole_after_an_end_and_after_a_panic() {
    use crate::transcript::meter::with_meter;
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let far = format!("{PROMPT}\n{}", "\n".repeat(3 * summary_bytes()));
    write(root, "projects/-a/far.jsonl", &far);
    for number in 0..9 {
        write(root, &format!("projects/-a/s{number}.jsonl"), PROMPT);
    }
    let whole = 9 * PROMPT.len() as u64 + 2 * summary_bytes() as u64;
    let within = |shelf: &mut TranscriptList, says: fn(u64) -> io::Result<()>| {
        let meter = Arc::new(Told(0.into(), 0.into(), says));
        let counting = Arc::clone(&meter);
        let scan = || with_meter(counting, || shelf.scan(root, Format::Claude));
        let is_done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(scan)).is_ok();
        let counted = [&meter.0, &meter.1].map(|count| count.load(Ordering::Relaxed));
        (is_done, counted)
    };
    let mut shelf = TranscriptList::default();
    let ended = |_| Err(io::Error::other("nobody waits"));
    let (is_done, [expected, read]) = within(&mut shelf, ended);
    assert!(is_done && expected == whole && read < whole);
    assert!(!shelf.is_scanned() && told(&shelf).len() < 10);
    assert_eq!(unreadable(&shelf), [] as [&Path; 0]);
    // What was read is not read again.
    let (_, [expected, again]) = within(&mut shelf, |_| Ok(()));
    assert_eq!((expected, again), (whole - read, whole - read));
    assert!(shelf.is_scanned() && told(&shelf).len() == 10);

    // One that was there goes, others change, and the one who reads them panics.
    fs::remove_file(root.join("projects/-a/s0.jsonl")).expect("gone");
    write(root, "projects/-a/s1.jsonl", &PROMPT.replace("hello", "longer"));
    let (is_done, _) = within(&mut shelf, |_| panic!("while it is read"));
    assert!(!is_done && !shelf.is_scanned());
    assert_eq!(told(&shelf), []);
    shelf.scan(root, Format::Claude);
    assert_eq!(told(&shelf), told(&scanned(root, Format::Claude)));
    assert_eq!(told(&shelf).len(), 9);
}

fn summary_bytes() -> usize {
    crate::transcript::summary::END_BYTES
}

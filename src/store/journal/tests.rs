use std::sync::{Arc, Mutex};

use super::*;

/// A file in memory whose writes, syncs and cuts can be made to fail.
#[derive(Clone, Default)]
pub(crate) struct FaultyFile {
    pub(crate) state: Arc<Mutex<FaultyState>>,
}

#[derive(Default)]
pub(crate) struct FaultyState {
    pub(crate) bytes: Vec<u8>,
    /// How many bytes of the next writes still fit.
    pub(crate) room: Option<usize>,
    pub(crate) sync_fails: bool,
    pub(crate) cut_fails: bool,
    pub(crate) is_removed: bool,
}

impl AppendFile for FaultyFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        let fitting = state.room.unwrap_or(usize::MAX).min(bytes.len());
        let start = usize::try_from(offset).unwrap();
        let length = state.bytes.len().max(start + fitting);
        state.bytes.resize(length, 0);
        state.bytes[start..start + fitting].copy_from_slice(&bytes[..fitting]);
        if fitting < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn allocate(&mut self, _: u64, to: u64) -> io::Result<()> {
        let room = self.state.lock().unwrap().room;
        match room.is_some_and(|room| (room as u64) < to) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.state.lock().unwrap().sync_fails {
            return Err(io::Error::other("the sync failed"));
        }
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.cut_fails {
            return Err(io::Error::other("the cut failed"));
        }
        let length = usize::try_from(length).unwrap();
        state.bytes.resize(length, 0);
        Ok(())
    }

    fn is_removed(&self, _: &Path) -> io::Result<bool> {
        Ok(self.state.lock().unwrap().is_removed)
    }
}

pub(crate) fn nowhere() -> Position {
    Position::before_lines(Uuid::nil(), 0, 0)
}

fn append(journal: &mut Journal, change: &str) -> Result<(), StoreError> {
    let sequence = journal.position().sequence + 1;
    let line = encode_line(sequence, change);
    journal.append(&line, sequence, line.len())
}

struct Fixture {
    _folder: tempfile::TempDir,
    path: PathBuf,
    begin: Position,
}

/// A journal with the changes `1`, `2`, … `count`.
fn journal_of(count: u64) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    let begin = create(&path).unwrap();
    let mut journal = Journal::open(&path, begin.clone()).unwrap();
    for number in 1..=count {
        append(&mut journal, &number.to_string()).unwrap();
    }
    Fixture {
        _folder: folder,
        path,
        begin,
    }
}

fn scan_all(fixture: &Fixture, base: u64) -> (Vec<String>, JournalScan) {
    let mut changes = Vec::new();
    let scanned = scan(&fixture.path, &fixture.begin, Some(base), |_, change| {
        changes.push(change.to_owned());
        Ok(())
    })
    .unwrap();
    (changes, scanned)
}

fn edit(fixture: &Fixture, with: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let bytes = std::fs::read(&fixture.path).unwrap();
    std::fs::write(&fixture.path, with(bytes)).unwrap();
}

#[test]
fn a_torn_end_is_distinguished_from_damage() {
    let line_3 = encode_line(3, "3").len() as u64;
    /// What happened to a journal of three lines.
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    /// Name, damage, changes read, bytes torn off, damaged regions, missing sequences.
    type Case = (
        &'static str,
        Damage,
        &'static [&'static str],
        Option<u64>,
        usize,
        u64,
    );
    let cases: [Case; 6] = [
        (
            "unfinished line",
            |mut bytes| {
                bytes.truncate(bytes.len() - 4);
                bytes
            },
            &["1", "2"],
            Some(line_3 - 4),
            0,
            0,
        ),
        (
            "bad checksum at the end",
            |mut bytes| {
                let at = bytes.len() - 3;
                bytes[at] = b'9';
                bytes
            },
            &["1", "2"],
            Some(line_3),
            0,
            0,
        ),
        (
            "zeroes behind the end",
            |mut bytes| {
                bytes.extend([0; 100]);
                bytes
            },
            &["1", "2", "3"],
            Some(100),
            0,
            0,
        ),
        (
            "garbage with line breaks behind the end",
            |mut bytes| {
                bytes.extend(b"a\nb\nc");
                bytes
            },
            &["1", "2", "3"],
            Some(5),
            0,
            0,
        ),
        (
            "a bad line in the middle",
            |bytes| {
                let text = String::from_utf8(bytes).unwrap();
                text.replace("\"change\":2", "\"change\":7").into_bytes()
            },
            &["1", "3"],
            None,
            1,
            1,
        ),
        (
            "a line that is gone",
            |bytes| {
                let text = String::from_utf8(bytes).unwrap();
                let lines = text
                    .split_inclusive('\n')
                    .filter(|line| !line.contains("\"change\":2"));
                lines.collect::<String>().into_bytes()
            },
            &["1", "3"],
            None,
            0,
            1,
        ),
    ];
    for (name, damage, expected, torn, damaged, missing) in cases {
        let fixture = journal_of(3);
        edit(&fixture, damage);
        let (changes, scanned) = scan_all(&fixture, 0);
        assert_eq!(changes, expected, "{name}");
        assert_eq!(scanned.unreadable_end.map(|end| end.region.bytes), torn, "{name}");
        assert_eq!(scanned.damaged.len(), damaged, "{name}");
        assert_eq!(sequence_count(&scanned.missing), missing, "{name}");
    }
}

#[test]
fn a_repeated_line_counts_once() {
    let fixture = journal_of(2);
    edit(&fixture, |mut bytes| {
        bytes.extend(encode_line(2, "2"));
        bytes.extend(encode_line(3, "3"));
        bytes
    });
    let (changes, scanned) = scan_all(&fixture, 0);
    assert_eq!(changes, ["1", "2", "3"]);
    assert_eq!(scanned.damaged.len(), 1);
}

#[test]
fn a_position_holds_only_if_its_line_exists() {
    let fixture = journal_of(3);
    let (_, scanned) = scan_all(&fixture, 0);
    let good = scanned.position;
    assert!(
        contains_line_at(&fixture.path, &fixture.begin).unwrap(),
        "before the first line"
    );
    let other_sequence = Position {
        sequence: 9,
        ..good.clone()
    };
    let beyond = Position {
        line_offset: good.end_offset,
        end_offset: good.end_offset + 50,
        ..good.clone()
    };
    let backwards = Position {
        line_offset: good.end_offset + 1,
        ..good.clone()
    };
    let other_line = Position {
        line_sum: good.line_sum.map(|sum| sum ^ 1),
        ..good.clone()
    };
    let of_an_earlier_version = Position {
        line_sum: None,
        ..good.clone()
    };
    assert!(contains_line_at(&fixture.path, &of_an_earlier_version).unwrap());
    for wrong in [other_sequence, beyond, backwards, other_line] {
        assert!(!contains_line_at(&fixture.path, &wrong).unwrap(), "{wrong:?}");
    }
    edit(&fixture, |mut bytes| {
        bytes.truncate(bytes.len() - 1);
        bytes
    });
    assert!(!contains_line_at(&fixture.path, &good).unwrap());
}

#[test]
fn only_a_header_is_read_as_a_header() {
    let fixture = journal_of(1);
    assert!(read_header(&fixture.path).unwrap().is_some());
    for content in [
        "",
        "{",
        "{}\n",
        "{\"journal\":0,\"generation\":\"00000000-0000-0000-0000-000000000000\",\"base\":0}\n",
    ] {
        std::fs::write(&fixture.path, content).unwrap();
        assert_eq!(read_header(&fixture.path).unwrap(), None, "{content:?}");
    }
    // Of a newer journal, only the format must be known.
    for content in [
        "{\"journal\":2,\"generation\":\"00000000-0000-0000-0000-000000000000\",\"base\":0}\n",
        "{\"lines\":\"cbor\",\"journal\":17,\"writtenBy\":\"session-bridge 9.9.9\"}\n",
    ] {
        std::fs::write(&fixture.path, content).unwrap();
        let refused = read_header(&fixture.path);
        assert!(
            matches!(refused, Err(StoreError::NewerJournal { .. })),
            "{content:?}"
        );
    }
}

#[test]
fn a_failed_append_leaves_nothing() {
    type Fault = fn(&mut FaultyState);
    let faults: [(&str, Fault); 4] = [
        ("a full disk", |state| state.room = Some(150)),
        ("a failed sync", |state| state.sync_fails = true),
        ("no name", |state| state.is_removed = true),
        ("neither writable nor cuttable", |state| {
            state.room = Some(150);
            state.cut_fails = true;
        }),
    ];
    for (name, fault) in faults {
        let file = FaultyFile::default();
        let mut journal = Journal::with_file(Box::new(file.clone()), Path::new("journal.jsonl"), nowhere());
        append(&mut journal, "1").unwrap();
        let before = (
            journal.position().clone(),
            file.state.lock().unwrap().bytes.clone(),
        );
        fault(&mut file.state.lock().unwrap());
        // Longer than the lines appended afterwards, which would not overwrite all of it.
        let never = format!("\"{}\"", "never ".repeat(100));
        assert!(append(&mut journal, &never).is_err(), "{name}");
        assert!(append(&mut journal, &never).is_err(), "{name}");
        assert_eq!(journal.position(), &before.0, "{name}");
        {
            let mut state = file.state.lock().unwrap();
            assert_eq!(
                state.bytes == before.1,
                !state.cut_fails,
                "{name}: cut off at once if possible"
            );
            state.room = None;
            state.sync_fails = false;
            state.cut_fails = false;
            state.is_removed = false;
        }
        append(&mut journal, "2").unwrap();
        let expected = [before.1, encode_line(2, "2")].concat();
        assert_eq!(file.state.lock().unwrap().bytes, expected, "{name}");
    }
}

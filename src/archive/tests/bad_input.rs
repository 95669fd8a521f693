//! Damaged and unusual transcripts of other programs, in each format. Each of them is listed, read, checked and backed up. Each
//! operation returns a result, and nothing is written outside the archive's own folder.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::transcript::dialect::AgentHome;
use crate::transcript::index_cache::IndexCache;
use crate::transcript::tests::bad_input::sample;
use crate::transcript::transcript_list::TranscriptList;

/// Longer than any line that is read.
const LONG_LINE_BYTES: i64 = 300 * 1024 * 1024;

/// How deep the values of a record are nested that is deeper than any that is read.
const DEPTH: usize = 10_000;

/// How often a folder disappears and comes back.
const ROUNDS: usize = 300;

/// A session of a real agent, and our archive.
struct Stage {
    held: TempDir,
    format: Format,
    id: String,
    path: PathBuf,
}

impl Stage {
    fn new(format: Format) -> Self {
        let (text, id, name) = sample(format);
        let held = tempfile::tempdir().unwrap();
        let path = held.path().join("agent").join(name.replace("ID", id));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        Self {
            held,
            format,
            id: id.to_owned(),
            path,
        }
    }

    fn root(&self) -> PathBuf {
        self.held.path().join("agent")
    }

    fn key(&self, id: &str) -> SessionKey {
        SessionKey {
            root: self.root(),
            upstream_id: id.to_owned(),
        }
    }

    fn archive(&self) -> Archive {
        Archive::new(self.held.path().join("kept"))
    }

    fn append(&self, pieces: &[&[u8]], hole: i64) {
        let mut file = File::options().write(true).open(&self.path).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        for (index, piece) in pieces.iter().enumerate() {
            if index == 1 {
                // It takes no room on the disk, and reads as that many bytes.
                file.seek(SeekFrom::Current(hole)).unwrap();
            }
            file.write_all(piece).unwrap();
        }
    }

    fn listed(&self) -> Vec<String> {
        let mut listed = TranscriptList::default();
        listed.scan(&self.root(), self.format);
        let ids = listed
            .entries_after(None)
            .map(|entry| entry.upstream_id.to_string());
        ids.collect()
    }

    /// Reads and checks the session. Returns its turns, and how many findings there are.
    fn read(&self) -> Result<(usize, usize), TranscriptError> {
        let (root, dialect, library) = (&self.root(), self.format.dialect(), &IndexCache::default());
        let session = AgentHome {
            index_cache: library,
            root,
        }
        .session(None, &self.id);
        let path = dialect.find(session)?;
        let mut opened = dialect.open(session, None)?;
        for message in 0..opened.messages() {
            opened.message(message)?;
        }
        let report = dialect.check(session, &path)?;
        Ok((opened.turns(), report.findings.len()))
    }

    fn keep(&self) -> Result<(), TranscriptError> {
        let (key, dialect) = (self.key(&self.id), self.format.dialect());
        let kept = self.archive().back_up(&key, dialect, &self.path, None, true);
        kept.error.map_or(Ok(()), Err)
    }

    fn read_and_keep(&self) -> Result<(), TranscriptError> {
        self.read()?;
        self.keep()
    }
}

#[test]
fn a_record_that_is_too_long_or_too_deep_is_passed_over_and_kept() {
    for format in Format::ALL {
        let (turns, findings) = Stage::new(format).read().unwrap();
        let deep = format!(
            "{{\"type\":\"x\",\"uuid\":{}{}}}\n",
            "[".repeat(DEPTH),
            "]".repeat(DEPTH)
        );
        let unclosed = format!("{{\"type\":\"x\",\"uuid\":{}\n", "[".repeat(DEPTH));
        let long: [&[u8]; 2] = [b"{\"type\":\"x\",\"data\":\"", b"\"}\n"];
        let table: [(&str, &[&[u8]], i64); 3] = [
            ("deep", &[deep.as_bytes()], 0),
            ("unclosed", &[unclosed.as_bytes()], 0),
            ("long", &long, LONG_LINE_BYTES),
        ];
        // Tests of the daemon read long lines of the other formats.
        let inputs = if format == Format::Qwen { 3 } else { 2 };
        for (input, pieces, hole) in table.into_iter().take(inputs) {
            let stage = Stage::new(format);
            stage.append(pieces, hole);
            assert_eq!(stage.listed(), [stage.id.as_str()], "{format:?} {input}");
            let (read, found) = stage.read().unwrap();
            assert_eq!(read, turns, "{format:?} {input}");
            assert!(found > findings || input == "deep", "{format:?} {input}");
            if hole > 0 {
                // A backup reads no lines, and to compress so many bytes takes longer than all other tests.
                continue;
            }
            stage.keep().unwrap();
            let (archive, key) = (stage.archive(), stage.key(&stage.id));
            let folder = archive.open(&key).unwrap().unwrap();
            let (copy, bytes) = folder.best_transcript().unwrap().unwrap();
            let length = stage.path.metadata().unwrap().len();
            assert_eq!((copy.bytes, bytes), (length, length), "{format:?} {input}");
        }
    }
}

/// What a backup finds half-way is missing or named, and the next one has everything.
#[test]
fn a_folder_may_disappear_while_it_is_kept() {
    for format in Format::ALL {
        let stage = Stage::new(format);
        let top = &format.top_folders(&stage.root())[0];
        let away = &stage.held.path().join("away");
        let is_over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    fs::rename(top, away).unwrap();
                    fs::rename(away, top).unwrap();
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                let _listed = stage.listed();
                if let Err(error) = stage.read_and_keep() {
                    let is_named = error.to_string().contains(stage.held.path().to_str().unwrap());
                    assert!(error.is_absence() || is_named, "{format:?}: {error}");
                }
            }
        });
        stage.read_and_keep().unwrap();
        let folder = stage.archive();
        let folder = folder.open(&stage.key(&stage.id)).unwrap().unwrap();
        assert!(folder.best_transcript().unwrap().is_some(), "{format:?}");
    }
}

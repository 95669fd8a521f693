//! Ids that look like options, and folders that disappear while they are read.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use crate::transcript::TranscriptError;
use crate::transcript::dialect::AgentHome;
use crate::transcript::index_cache::IndexCache;
use crate::transcript::transcript_list::{Format, TranscriptList};

/// How often the folder of all transcripts disappears and comes back.
const ROUNDS: usize = 2_000;

/// A session of a real agent: its text, its id, and its path below the agent's folder, in which `ID` stands for the id.
pub(crate) fn sample(format: Format) -> (&'static str, &'static str, &'static str) {
    let (text, member, name) = match format {
        Format::Claude => (
            include_str!("../../../tests/fixtures/transcripts/claude/2.1.316.jsonl"),
            "\"sessionId\":\"",
            "projects/-home-u-project/ID.jsonl",
        ),
        Format::Codex => (
            include_str!("../../../tests/fixtures/transcripts/codex/0.166.0.jsonl"),
            "\"id\":\"",
            "sessions/2026/11/21/rollout-2026-11-21T06-16-34-ID.jsonl",
        ),
        Format::Qwen => (
            include_str!("../../../tests/fixtures/transcripts/qwen/0.24.4.jsonl"),
            "\"sessionId\":\"",
            "projects/-home-u-project/chats/ID.jsonl",
        ),
    };
    let (_, rest) = text.split_once(member).unwrap();
    let (id, _) = rest.split_once('"').unwrap();
    (text, id, name)
}

struct Place {
    root: TempDir,
    format: Format,
    id: String,
    path: PathBuf,
}

impl Place {
    /// A session of a real agent, under an id that begins with a dash.
    fn with(format: Format) -> Self {
        let (text, old, name) = sample(format);
        let id = match format {
            Format::Claude => "-x".to_owned(),
            Format::Codex | Format::Qwen => format!("-{}", &old[1..]),
        };
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(name.replace("ID", &id));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text.replace(old, &id)).unwrap();
        Self {
            root,
            format,
            id,
            path,
        }
    }

    /// Lists, finds, checks and reads the session. Returns its turns and the kinds of what is found.
    fn read(&self) -> Result<(usize, usize), TranscriptError> {
        let (root, id, dialect) = (self.root.path(), self.id.as_str(), self.format.dialect());
        let library = &IndexCache::default();
        let session = AgentHome {
            index_cache: library,
            root,
        }
        .session(None, id);
        TranscriptList::default().scan(root, self.format);
        let _gone = dialect.is_missing(root, id);
        let (path, _) = dialect.find_with_origin(session)?;
        assert_eq!(path, self.path, "{:?}", self.format);
        let mut opened = dialect.open(session, None)?;
        for message in 0..opened.messages() {
            opened.message(message)?;
        }
        let report = dialect.check(session, &path)?;
        dialect.own_parts(&path)?;
        Ok((opened.turns(), report.refusals.len()))
    }
}

/// Whatever a reader finds half-way, it reports what is missing or which file it could not read.
#[test]
fn a_folder_that_disappears_while_it_is_read_is_missing_or_named() {
    for format in Format::ALL {
        let place = Place::with(format);
        let top = &format.top_folders(place.root.path())[0];
        let away = &place.root.path().join("away");
        let is_over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    fs::rename(top, away).unwrap();
                    fs::rename(away, top).unwrap();
                }
                is_over.store(true, Ordering::Relaxed);
            });
            loop {
                if let Err(error) = place.read() {
                    let is_named = error.to_string().contains(place.root.path().to_str().unwrap());
                    assert!(error.is_absence() || is_named, "{format:?}: {error}");
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        assert!(place.read().is_ok(), "{format:?}");
    }
}

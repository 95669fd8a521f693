//! The agent's persistent state besides its transcripts: refused ids, and the start times of limits.
//!
//! Small files below `state`, written durably by rename, so that they apply in new processes and after a crash.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::files::digest::hex;
use crate::files::{durable, none_if_absent};

/// The files below one folder.
#[derive(Debug, Clone)]
pub(super) struct PersistentState {
    folder: PathBuf,
}

impl PersistentState {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Refuses the session from now on, in every process.
    pub(super) fn refuse(&self, session_id: &str) -> io::Result<()> {
        write_durably(&self.refused_path(session_id), b"")
    }

    pub(super) fn is_refused(&self, session_id: &str) -> bool {
        self.refused_path(session_id).exists()
    }

    /// Refuses every session from now on whose transcript begins with this record.
    pub(super) fn refuse_first_record(&self, record_uuid: &str) -> io::Result<()> {
        write_durably(&self.refused_first_records().join(digest(&[record_uuid])), b"")
    }

    /// Whether a session with this first record is refused. `first_record` is called only if some are refused.
    pub(super) fn is_first_record_refused(&self, first_record: impl FnOnce() -> Option<String>) -> bool {
        let beginnings = self.refused_first_records();
        let is_refused = |uuid: String| beginnings.join(digest(&[&uuid])).exists();
        beginnings.exists() && first_record().is_some_and(is_refused)
    }

    fn refused_first_records(&self) -> PathBuf {
        self.folder.join("refused-beginnings")
    }

    /// Returns when this prompt was first seen in this session, in milliseconds since the epoch; `now_ms` if never
    /// before.
    pub(super) fn first_seen_ms(&self, session_id: &str, prompt: &str, now_ms: i64) -> io::Result<i64> {
        let path = self.folder.join("limits").join(digest(&[session_id, prompt]));
        if let Some(text) = none_if_absent(fs::read_to_string(&path))? {
            return text.trim().parse().map_err(io::Error::other);
        }
        write_durably(&path, now_ms.to_string().as_bytes())?;
        Ok(now_ms)
    }

    fn refused_path(&self, session_id: &str) -> PathBuf {
        self.folder.join("refused").join(digest(&[session_id]))
    }
}

/// Ids and prompts are hashed, because they may not be valid file names.
fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hex(&hasher.finalize())
}

fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    durable::make_folders(path.parent().unwrap_or(Path::new(".")))?;
    durable::write(path, content)
}

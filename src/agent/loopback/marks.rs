//! What the agent remembers beside its transcripts: ids that it refuses, and limits with their beginnings.
//!
//! Small files below `state`, durable by rename, so that they hold in new processes and after a crash.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The files below one folder.
#[derive(Debug, Clone)]
pub(super) struct Marks {
    folder: PathBuf,
}

impl Marks {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// From now on the session is refused, in every process.
    pub(super) fn refuse(&self, session_id: &str) -> io::Result<()> {
        write_durably(&self.refused_path(session_id), b"")
    }

    pub(super) fn is_refused(&self, session_id: &str) -> bool {
        self.refused_path(session_id).exists()
    }

    /// From now on every session is refused whose transcript begins with this record.
    pub(super) fn refuse_beginning(&self, record_uuid: &str) -> io::Result<()> {
        write_durably(&self.beginnings().join(digest(&[record_uuid])), b"")
    }

    /// Whether the session with such a transcript is refused; `first_record` is asked for where some are.
    pub(super) fn is_beginning_refused(&self, first_record: impl FnOnce() -> Option<String>) -> bool {
        let beginnings = self.beginnings();
        let is_refused = |uuid: String| beginnings.join(digest(&[&uuid])).exists();
        beginnings.exists() && first_record().is_some_and(is_refused)
    }

    fn beginnings(&self) -> PathBuf {
        self.folder.join("refused-beginnings")
    }

    /// When this prompt was first seen in this session, in milliseconds since the epoch: `now_ms` if never
    /// before.
    pub(super) fn first_seen_ms(&self, session_id: &str, prompt: &str, now_ms: i64) -> io::Result<i64> {
        let path = self.folder.join("limits").join(digest(&[session_id, prompt]));
        match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write_durably(&path, now_ms.to_string().as_bytes())?;
                Ok(now_ms)
            }
            Err(error) => Err(error),
        }
    }

    fn refused_path(&self, session_id: &str) -> PathBuf {
        self.folder.join("refused").join(digest(&[session_id]))
    }
}

/// Ids and prompts are hashed: neither need be a file name.
fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let temporary = folder.join(format!(".{}.tmp", Uuid::new_v4()));
    let mut file = File::create_new(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_hold_for_whoever_opens_the_folder_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let marks = Marks::new(folder.path().join("state"));
        assert!(!marks.is_refused("a"));
        marks.refuse("a").expect("a mark");
        assert_eq!(marks.first_seen_ms("a", "p", 5).expect("a mark"), 5);

        let later = Marks::new(folder.path().join("state"));
        assert!(later.is_refused("a") && !later.is_refused("b"));
        assert!(!later.is_beginning_refused(|| unreachable!("none is refused")));
        later.refuse_beginning("u1").expect("a mark");
        assert!(later.is_beginning_refused(|| Some("u1".to_owned())));
        assert!(
            !later.is_beginning_refused(|| Some("u2".to_owned())) && !later.is_beginning_refused(|| None)
        );
        assert_eq!(later.first_seen_ms("a", "p", 9).expect("a mark"), 5);
        assert_eq!(
            later.first_seen_ms("a", "q", 9).expect("a mark"),
            9,
            "another text"
        );
        assert_eq!(
            later.first_seen_ms("ap", "", 7).expect("a mark"),
            7,
            "another session"
        );
    }
}

//! The conversation that the user's commands last used in each folder: the meaning of `.` on a command line.
//!
//! Owns the file that stores this. It is a convenience, not a guarantee: if the file cannot be written, that is only logged,
//! and the call succeeds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bridge_protocol::ConversationId;
use serde::{Deserialize, Serialize};

use super::lock::lock;
use crate::files::durable;
use crate::files::set_aside::{self, Unreadable};
use crate::paths::names::LAST_USED;

/// The version of the file that this program writes.
const VERSION: u64 = 1;

/// The limit on remembered folders: more than anyone works in.
const FOLDERS_LIMIT: usize = 1_000;

/// The conversation last used in each folder.
#[derive(Debug, Default)]
pub(super) struct LastUsed {
    /// `None` if nothing is written: the store is in memory, or a newer version wrote the file.
    path: Option<PathBuf>,
    uses: Mutex<Vec<FolderUse>>,
    /// Locked while the file is written. The mutex guards no data, only the order of writes.
    write_order: Mutex<()>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FolderUse {
    cwd: String,
    conversation_id: ConversationId,
}

/// The content of the file. The folder used last comes last.
#[derive(Serialize, Deserialize)]
struct LastUsedFile {
    version: u64,
    folders: Vec<FolderUse>,
}

impl LastUsed {
    /// Reads the file in the data folder. A damaged file is set aside.
    pub(super) fn in_data_folder(data: &Path) -> Self {
        let path = data.join(LAST_USED);
        let unreadable = match read(&path) {
            Ok(Ok(uses)) => {
                return Self {
                    path: Some(path),
                    uses: Mutex::new(uses),
                    ..Self::default()
                };
            }
            Ok(Err(why)) => set_aside::set_aside(&path, &why).map(|aside| aside != path),
            Err(error) => Err(error),
        };
        // Writing is allowed if the file was set aside. Any other unreadable file stays as it is.
        let is_free = unreadable.unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "cannot read which conversation was last used in each folder");
            false
        });
        Self {
            path: Some(path).filter(|_| is_free),
            ..Self::default()
        }
    }

    /// The conversation that was last used in a folder.
    pub(super) fn conversation_in(&self, cwd: &str) -> Option<ConversationId> {
        let marks = lock(&self.uses);
        marks
            .iter()
            .find(|entry| entry.cwd == cwd)
            .map(|entry| entry.conversation_id)
    }

    /// Remembers that a conversation was used in a folder. Writes only if that is a change.
    pub(super) async fn set(self: &Arc<Self>, cwd: String, id: ConversationId) {
        let previous = self.conversation_in(&cwd);
        let entry = FolderUse {
            cwd,
            conversation_id: id,
        };
        {
            let mut uses = lock(&self.uses);
            uses.retain(|other| other.cwd != entry.cwd);
            uses.push(entry);
            let excess = uses.len().saturating_sub(FOLDERS_LIMIT);
            uses.drain(..excess);
        }
        if previous == Some(id) {
            return;
        }
        let own = Arc::clone(self);
        if let Err(error) = tokio::task::spawn_blocking(move || own.save()).await {
            tracing::error!(%error, "the conversation that was last used was not written");
        }
    }

    fn save(&self) {
        let Some(path) = &self.path else { return };
        let _writing = lock(&self.write_order);
        let content = LastUsedFile {
            version: VERSION,
            folders: lock(&self.uses).clone(),
        };
        let written = serde_json::to_vec(&content).map_err(io::Error::from);
        if let Err(error) = written.and_then(|content| durable::write(path, &content)) {
            tracing::warn!(path = %path.display(), %error, "cannot write which conversation was last used in each folder");
        }
    }
}

/// The content of the file, or why it cannot be used.
fn read(path: &Path) -> io::Result<Result<Vec<FolderUse>, Unreadable>> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
    }
    let content = match fs::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(Vec::new())),
        Err(error) => return Err(error),
    };
    let damaged = |error: serde_json::Error| Unreadable::Damaged(error.to_string());
    Ok(match serde_json::from_slice(&content).map_err(damaged) {
        Ok(Versioned { version }) if version > VERSION => Err(Unreadable::Newer {
            version,
            newest: VERSION,
        }),
        Ok(_) => {
            let content = serde_json::from_slice::<LastUsedFile>(&content).map_err(damaged);
            content.map(|content| content.folders)
        }
        Err(why) => Err(why),
    })
}

//! What can go wrong in the store. It must not know wire codes; the server maps these.

use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use jiff::Timestamp;
use thiserror::Error;

use super::record::ResolvedBy;

/// A read or a commit that did not happen.
///
/// One failed write can fail every commit that waited in the same group, so the error can be cloned; the cause it
/// carries is shared.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// A file could not be read, written, synced, renamed or removed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: std::sync::Arc<io::Error>,
    },
    /// The journal was removed, so that what is written to it is gone with this process.
    #[error(
        "{} was removed while the daemon was using it, so nothing more can be saved; the daemon stops, and the next start uses what is there then",
        path.display()
    )]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// A newer version wrote the journal: nothing was read or changed.
    #[error(
        "{} was written by a newer version ({}, journal format {format}); this version, {}, reads format {newest}",
        path.display(),
        written_by.as_deref().unwrap_or("session-bridge, version unknown"),
        env!("CARGO_PKG_VERSION")
    )]
    NewerJournal {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The newest format that this program reads.
        newest: u32,
        /// The program that wrote it, where the file says so.
        written_by: Option<String>,
    },
    /// The journal has a whole line whose content this version does not know: nothing of it was carried out.
    #[error(
        "{} was written by a newer version: change {sequence}, at byte {offset}, is not known to this version, {}",
        path.display(),
        env!("CARGO_PKG_VERSION")
    )]
    UnknownChange {
        /// The journal.
        path: PathBuf,
        /// The number of the change.
        sequence: u64,
        /// Where its line begins, in bytes from the start of the file.
        offset: u64,
        /// The parser's error.
        #[source]
        source: std::sync::Arc<serde_json::Error>,
    },
    /// The journal is damaged while the database has failed: neither alone holds all changes.
    #[error(
        "the journal {} is damaged and the database has failed, so the journal cannot be written anew before the daemon is restarted",
        path.display()
    )]
    BothDamaged {
        /// The journal.
        path: PathBuf,
    },
    /// A value in the database cannot be read as what was written there.
    #[error("a {what} in the database is damaged")]
    DamagedValue {
        /// What kind of value.
        what: &'static str,
    },
    /// The query side answered with an error.
    #[error("the database in {} failed", path.display())]
    Database {
        /// Its folder; empty in memory.
        path: PathBuf,
        /// Its own error.
        #[source]
        source: sled::Error,
    },
    /// A stored value does not have the shape that its place asks for.
    #[error("a stored {what} cannot be read")]
    Unreadable {
        /// What kind of value.
        what: &'static str,
        /// The parser's error.
        #[source]
        source: std::sync::Arc<serde_json::Error>,
    },
    /// A value could not be written down as JSON.
    #[error("a {what} cannot be written down")]
    Unwritable {
        /// What kind of value.
        what: &'static str,
        /// The serializer's error.
        #[source]
        source: std::sync::Arc<serde_json::Error>,
    },
    /// A chunk of packed entries is not in the form in which it is written.
    #[error("packed entries in {space} are damaged")]
    DamagedChunk {
        /// The tree that holds it.
        space: &'static str,
    },
    /// A body file does not hold what its name says.
    #[error("the body {} does not match its name", path.display())]
    DamagedBody {
        /// The file.
        path: PathBuf,
    },
    /// The record was written by a newer version: it can be read, not rewritten.
    #[error("conversation {id} was written by a newer version (record version {version})")]
    NewerRecord {
        /// The conversation.
        id: ConversationId,
        /// The version of its record.
        version: u32,
    },
    /// Something is over its limit.
    #[error("{what} has {bytes} bytes, the limit is {limit_bytes}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// An upstream id or a transcript root holds a NUL, which no file name can and which separates them in a key.
    #[error("an upstream id or transcript root holds a NUL character")]
    NulInKey,
    /// Too many changes wait to be made durable.
    #[error("{} changes wait to be written already", super::COMMIT_LINE_LIMIT)]
    LineFull,
    /// The store is closed, or its thread ended.
    #[error("the store is closed")]
    Closed,
}

/// Why a name did not lead to one conversation.
#[derive(Clone, Debug, Error)]
pub enum Lookup {
    /// Nothing has this name.
    #[error("no conversation has this name")]
    NotFound,
    /// Several have it.
    #[error("several conversations have this name")]
    Ambiguous {
        /// A few of them.
        candidates: Vec<ConversationId>,
        /// What the name is of each.
        by: ResolvedBy,
    },
    /// The one that had it was deleted.
    #[error("conversation {id} was deleted")]
    Deleted {
        /// Its id, which is never used again.
        id: ConversationId,
        /// When.
        at: Timestamp,
    },
    /// The store could not be read.
    #[error("the store could not be read")]
    Store(#[from] StoreError),
}

impl StoreError {
    /// The file or folder for which there was no room, when that is what was wrong.
    #[must_use]
    pub fn lacks_room(&self) -> Option<&Path> {
        let (path, kind) = match self {
            Self::Io { path, source, .. } => (path, source.kind()),
            Self::Database {
                path,
                source: sled::Error::Io(source),
            } => (path, source.kind()),
            _ => return None,
        };
        matches!(
            kind,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
        .then_some(path)
    }

    /// Whether the same change may succeed later: once there is room, when less waits, or when a database that failed is no longer
    /// used.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.lacks_room().is_some() || self.is_of_database() || matches!(self, Self::LineFull)
    }

    /// Whether the database is at fault, so that the journal is to be used without it.
    pub(super) fn is_of_database(&self) -> bool {
        matches!(
            self,
            Self::Database { .. } | Self::DamagedValue { .. } | Self::DamagedChunk { .. }
        )
    }

    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source: source.into(),
        }
    }

    pub(super) fn unreadable(what: &'static str) -> impl FnOnce(serde_json::Error) -> Self {
        move |source| Self::Unreadable {
            what,
            source: source.into(),
        }
    }

    pub(super) fn unwritable(what: &'static str) -> impl FnOnce(serde_json::Error) -> Self {
        move |source| Self::Unwritable {
            what,
            source: source.into(),
        }
    }
}

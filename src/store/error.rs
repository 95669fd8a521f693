//! Errors of the store. This module does not know wire codes; the server maps them.

use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use indicatif::BinaryBytes;
use jiff::Timestamp;
use thiserror::Error;

use super::record::ResolvedBy;
use crate::files::is_passing;

/// A part of a record that is lost because its body file cannot be read.
#[derive(Clone, Debug, Error)]
#[error("{member} in {}: {loss}", path.display())]
pub struct LostPart {
    /// The member of the record: `settings.systemPrompt`.
    pub member: String,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub loss: BodyLoss,
}

/// Why a body file cannot be read.
#[derive(Clone, Debug, Error)]
pub enum BodyLoss {
    /// The file does not exist.
    #[error("the file is missing")]
    Missing,
    /// Its content does not match its name.
    #[error("the file is damaged")]
    Damaged,
    /// Reading failed. The file itself may be intact.
    #[error("{0}")]
    Unreadable(std::sync::Arc<io::Error>),
}

/// A read or a commit that failed.
///
/// Cloneable, because one failed write can fail all commits of its group. The clones share the cause.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// A file could not be read, written, synced, renamed or removed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::sync::Arc<io::Error>,
    },
    /// The journal was removed, so later writes to it would be lost when this process ends.
    #[error(
        "{} was removed while the daemon was using it, so nothing more can be saved; the daemon stops, and its next start uses the files that it finds",
        path.display()
    )]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// A newer version wrote the journal. Nothing was read or changed.
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
        /// The program that wrote it, if the file says so.
        written_by: Option<String>,
    },
    /// A valid line of the journal has content that this version does not know. The line was not applied.
    #[error(
        "{} was written by a newer version: change {sequence}, at byte {offset}, is unknown to this version, {}",
        path.display(),
        env!("CARGO_PKG_VERSION")
    )]
    UnknownChange {
        /// The journal.
        path: PathBuf,
        /// The number of the change.
        sequence: u64,
        /// The offset of its line, in bytes.
        offset: u64,
        /// The parser's error.
        #[source]
        source: std::sync::Arc<serde_json::Error>,
    },
    /// The journal is damaged and the database failed, so neither alone holds all changes.
    #[error(
        "the journal {} is damaged and the database failed, so the journal cannot be rewritten until the daemon restarts",
        path.display()
    )]
    BothDamaged {
        /// The journal.
        path: PathBuf,
    },
    /// Set-aside files may still contain data that a change erased. They were not deleted, because they may also be
    /// the only copy of other data.
    #[error(
        "these damaged files were set aside and may contain it; delete them if you do not need them: {}",
        paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(", ")
    )]
    SetAsideFilesRemain {
        /// The files and folders.
        paths: Vec<PathBuf>,
    },
    /// A value in the database differs from what was written.
    #[error("a {what} in the database is damaged")]
    DamagedValue {
        /// What kind of value.
        what: &'static str,
    },
    /// The database failed.
    #[error("the database in {} failed", path.display())]
    Database {
        /// Its folder; empty in memory.
        path: PathBuf,
        /// sled's error.
        #[source]
        source: sled::Error,
    },
    /// A stored value does not have the expected shape.
    #[error("cannot read a stored {what}")]
    Unreadable {
        /// What kind of value.
        what: &'static str,
        /// The parser's error.
        #[source]
        source: std::sync::Arc<serde_json::Error>,
    },
    /// A value cannot be encoded as JSON.
    #[error("cannot encode a {what}")]
    Unwritable {
        /// What kind of value.
        what: &'static str,
        /// The serializer's error.
        #[source]
        source: std::sync::Arc<serde_json::Error>,
    },
    /// A chunk of packed entries is malformed.
    #[error("packed entries in {space} are damaged")]
    DamagedChunk {
        /// The tree that holds it.
        space: &'static str,
    },
    /// A body file cannot be read, and a part of a record with it.
    #[error("cannot read {0}")]
    LostBody(LostPart),
    /// A newer version wrote the record. It can be read, but not rewritten.
    #[error("conversation {id} was written by a newer version (record version {version})")]
    NewerRecord {
        /// The conversation.
        id: ConversationId,
        /// The version of its record.
        version: u32,
    },
    /// A value exceeds its limit.
    #[error("{what} has {}, the limit is {}", BinaryBytes(*bytes as u64), BinaryBytes(*limit_bytes as u64))]
    TooLarge {
        /// Which value.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// An upstream id or a transcript root contains a NUL, which separates them in a key. No file name contains one.
    #[error("an upstream id or transcript root contains a NUL character")]
    NulInKey,
    /// Too many changes wait to be committed.
    #[error("{} changes are already waiting to be written", super::COMMIT_QUEUE_LIMIT)]
    QueueFull,
    /// The store is closed, or its thread ended.
    #[error("the store is closed")]
    Closed,
}

/// Why a name did not identify one conversation.
#[derive(Clone, Debug, Error)]
pub enum LookupError {
    /// No conversation has the name.
    #[error("no conversation has this name")]
    NotFound,
    /// Several conversations have the name.
    #[error("several conversations have this name")]
    Ambiguous {
        /// Some of them.
        candidates: Vec<ConversationId>,
        /// What kind of name it is.
        by: ResolvedBy,
    },
    /// The conversation with the name was deleted.
    #[error("conversation {id} was deleted")]
    Deleted {
        /// Its id, which is never used again.
        id: ConversationId,
        /// When it was deleted.
        at: Timestamp,
    },
    /// The store could not be read.
    #[error("the store could not be read")]
    Store(#[from] StoreError),
}

impl LostPart {
    /// Whether the part is this member of the record or is inside it.
    #[must_use]
    pub fn is_within(&self, member: &str) -> bool {
        self.member.split('.').next() == Some(member)
    }
}

impl StoreError {
    /// Returns the path that lacked disk space, if that was the cause.
    #[must_use]
    pub fn full_disk_path(&self) -> Option<&Path> {
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

    /// Whether a file could not be used, for a reason that may be temporary and does not depend on the file itself.
    pub(super) fn is_passing(&self) -> bool {
        // sled passes on some errors as copies without the system's number.
        self.full_disk_path().is_some()
            || match self {
                Self::Io { source, .. } => is_passing(source),
                Self::Database {
                    source: sled::Error::Io(source),
                    ..
                } => is_passing(source),
                _ => false,
            }
    }

    /// Whether the same change may succeed later: after disk space was freed, when files were closed or the queue is
    /// shorter, or after the failed database was replaced.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Io { source, .. }
            | Self::LostBody(LostPart {
                loss: BodyLoss::Unreadable(source),
                ..
            }) => is_passing(source),
            Self::QueueFull => true,
            _ => self.is_database_error(),
        }
    }

    /// Whether reading failed, not writing.
    #[must_use]
    pub fn is_read_error(&self) -> bool {
        match self {
            Self::Io { action, .. } => matches!(*action, "read" | "open" | "list"),
            Self::LostBody(_) | Self::Unreadable { .. } => true,
            _ => false,
        }
    }

    /// Whether the database failed, so that the journal must be used without it.
    pub(super) fn is_database_error(&self) -> bool {
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

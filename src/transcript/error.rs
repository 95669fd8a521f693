//! Errors of finding, reading and copying transcripts.
//!
//! Knows paths and causes. Wire codes and messages for users are added by the callers.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::files::misplaced::Misplaced;
use crate::files::set_aside::Unreadable;
use crate::files::{has_errno, is_passing, is_shortage};

/// A failure to find, read or copy a transcript.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// An operation on a file or folder failed.
    #[error("could not {action} {}", path.display())]
    Io {
        /// What was tried, as a verb in the infinitive.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The content of one of the daemon's own files cannot be read by this version.
    #[error("{} cannot be read: {why}", path.display())]
    Unreadable {
        /// The file, or the folder that it is missing from.
        path: PathBuf,
        /// Why.
        why: Unreadable,
    },
    /// An entry in the daemon's own folders is not of the kind that the daemon creates there.
    #[error("{0}; {hint}", hint = .0.hint(""))]
    Misplaced(Misplaced),
    /// An upstream id that cannot be a file name, such as one that contains a slash.
    #[error("{id:?} cannot be the name of a transcript")]
    InvalidId {
        /// The id as it was given.
        id: String,
    },
    /// The transcript has no record with this uuid.
    #[error("{} has no record {uuid}", path.display())]
    RecordNotFound {
        /// The transcript that was searched.
        path: PathBuf,
        /// The uuid that was looked for.
        uuid: String,
    },
    /// None of the agent's folders contains a transcript of this id.
    #[error("there is no transcript of {upstream_id} under {}", root.display())]
    NotFound {
        /// The id that was looked for.
        upstream_id: String,
        /// The agent's folder.
        root: PathBuf,
    },
    /// A transcript contains no message of a conversation.
    #[error("no message of a conversation is in the transcript of {upstream_id}")]
    NothingToResume {
        /// The session.
        upstream_id: String,
    },
    /// A copy would have replaced a file that exists.
    #[error("{} exists already", path.display())]
    AlreadyExists {
        /// The destination that exists.
        path: PathBuf,
    },
    /// A file changed while it was moved.
    #[error("{} changed while it was being moved; another program writes to it", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Another process holds a file open that is to be moved or replaced.
    #[error("{} is held open by the process {pid}", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process.
        pid: u32,
    },
    /// A copy differs from its source.
    #[error("the copy of {} differs from it in line {line}", path.display())]
    CopyDiffers {
        /// The source.
        path: PathBuf,
        /// The first line that differs, counted from 1.
        line: u64,
    },
}

impl TranscriptError {
    /// Whether the transcript does not exist, or does not contain the requested record.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::NotFound { .. } | Self::RecordNotFound { .. } | Self::InvalidId { .. } => true,
            // The file was deleted after it was found and before it was read.
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// Whether the error is temporary: it says nothing about the transcript, and the same call may succeed later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_passing(source))
    }

    /// Whether a resource was exhausted that may be free later, such as disk space.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_shortage(source))
    }

    /// The file that the disk failed to read or write, if that is the error.
    #[must_use]
    pub fn unreadable_path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, source, .. } if has_errno(source, &[Errno::IO]) => Some(path),
            _ => None,
        }
    }

    /// The error for a session without a transcript below an agent's folder.
    pub(super) fn not_found(root: &Path, upstream_id: &str) -> Self {
        Self::NotFound {
            upstream_id: upstream_id.to_owned(),
            root: root.to_owned(),
        }
    }

    /// Wraps an I/O error with the action and the path; for use in `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

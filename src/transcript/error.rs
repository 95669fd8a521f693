//! What can go wrong on the disk side of transcripts.
//!
//! Knows paths and causes; wire codes and words for people are given further out.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::misplaced::Misplaced;
use crate::files::set_aside::Unreadable;
use crate::files::{is_passing, is_shortage};

/// A failure to find, read or copy a transcript.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// An operation on a file or folder failed.
    #[error("could not {action} {}", path.display())]
    Io {
        /// What was tried, as a verb in the infinitive.
        action: &'static str,
        /// The file or folder that it was tried on.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A file of the daemon's own holds nothing that this program can read.
    #[error("{} cannot be read: {why}", path.display())]
    Unreadable {
        /// The file, or the folder that it is missing from.
        path: PathBuf,
        /// Why.
        why: Unreadable,
    },
    /// An entry of the daemon's own folders is not what it makes there.
    #[error("{0}; {hint}", hint = .0.hint(""))]
    Misplaced(Misplaced),
    /// An upstream id that cannot be a file name, such as one that holds a slash.
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
    /// No folder of the agent holds a transcript of this id.
    #[error("there is no transcript of {upstream_id} under {}", root.display())]
    NotFound {
        /// The id that was looked for.
        upstream_id: String,
        /// The agent's folder.
        root: PathBuf,
    },
    /// A transcript holds no message of a conversation.
    #[error("no message of a conversation is in the transcript of {upstream_id}")]
    NothingToResume {
        /// The session.
        upstream_id: String,
    },
    /// A copy would have replaced a file that exists.
    #[error("{} exists already", path.display())]
    AlreadyExists {
        /// The destination that is taken.
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
    /// A copy does not say what its source does.
    #[error("the copy of {} differs from it in line {line}", path.display())]
    CopyDiffers {
        /// The source.
        path: PathBuf,
        /// The first line that differs, counted from 1.
        line: u64,
    },
}

impl TranscriptError {
    /// Whether there is no such transcript, or none that reaches so far.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::NotFound { .. } | Self::RecordNotFound { .. } | Self::InvalidId { .. } => true,
            // It went between the look and the reading.
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// Whether it says nothing of the transcript, so that the same call may succeed later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_passing(source))
    }

    /// Whether something that may be free later was lacking, such as room on the disk.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_shortage(source))
    }

    /// Wraps an I/O error with what was tried and where; for use in `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

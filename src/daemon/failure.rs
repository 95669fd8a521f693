//! Errors that keep the daemon from starting, and what to do about them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::config::ConfigError;
use super::lock::LockError;
use crate::conversation::error::ConversationError;
use crate::files::misplaced::Misplaced;
use crate::paths::ownership::{CreateFolderError, Untrusted};
use crate::paths::{PathsError, names, shell_word};
use crate::server::BindError;
use crate::store::{StoreError, free_damaged_store};

/// Why the daemon did not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The paths of the daemon's files cannot be determined.
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// Another user owns, or can change, something that the daemon would trust.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The configuration cannot be read.
    #[error("cannot read {}", path.display())]
    ReadConfig {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The configuration cannot be used.
    #[error("cannot use {}, {problem}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: ConfigError,
    },
    /// A folder cannot be created, or another user owns it or can change it.
    #[error(transparent)]
    CreateFolder(#[from] CreateFolderError),
    /// An entry of the data folder has the wrong kind.
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
    /// Another daemon is running.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The store cannot be opened.
    #[error("cannot open the store")]
    Store(#[from] StoreError),
    /// The turns of the previous run could not be ended.
    #[error("cannot end the turns of the previous run")]
    PreviousRun(#[source] ConversationError),
    /// The daemon cannot listen on the socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system refused a step.
    #[error("{what}")]
    Io {
        /// What failed, as a sentence.
        what: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

impl StartError {
    /// An error of the system, with what failed as a sentence.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Returns what to do, if known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Lock(LockError::AlreadyRunning { .. }) => {
                Some("use the running daemon, or give this one another folder with --home".to_owned())
            }
            Self::ReadConfig { path, source } if source.kind() == io::ErrorKind::InvalidData => {
                let path = shell_word(&path.to_string_lossy());
                Some(format!(
                    "save the file as UTF-8 and start again: \"${{EDITOR:-vi}}\" {path}"
                ))
            }
            Self::ReadConfig { path, source } if source.kind() == io::ErrorKind::InvalidInput => {
                if !path.is_dir() {
                    return Some("name a regular file with --config".to_owned());
                }
                let path = shell_word(&path.to_string_lossy());
                Some(format!("name a file in it: ls -la {path}"))
            }
            Self::Config { path, .. } => {
                let path = shell_word(&path.to_string_lossy());
                Some(format!(
                    "fix the file and start again: \"${{EDITOR:-vi}}\" {path}"
                ))
            }
            Self::Untrusted(untrusted)
            | Self::CreateFolder(CreateFolderError::Untrusted(untrusted))
            | Self::Bind(BindError::Folder(CreateFolderError::Untrusted(untrusted))) => {
                Some(untrusted.hint("sessiond"))
            }
            Self::Misplaced(misplaced) => Some(misplaced.hint(" and start again")),
            Self::Store(StoreError::NewerJournal { .. } | StoreError::UnknownChange { .. }) => Some(
                "nothing was changed; install the version that wrote it, or use another folder: \
                 sessiond --home ~/session-bridge-old"
                    .to_owned(),
            ),
            Self::Store(StoreError::Io { path, source, .. })
                if source.kind() == io::ErrorKind::ResourceBusy && path.ends_with(names::NEXT_STORE) =>
            {
                let path = shell_word(&path.to_string_lossy());
                Some(format!(
                    "the daemon needs this name; unmount what is there: umount {path}"
                ))
            }
            Self::Store(StoreError::Io {
                action: "read" | "open" | "list",
                path,
                source,
            }) if is_database(path)
                && source
                    .raw_os_error()
                    .is_none_or(|number| number == Errno::IO.raw_os_error()) =>
            {
                let store = path.ancestors().find(|path| path.ends_with(names::STORE))?;
                let aside = free_damaged_store(store).ok()?;
                Some(format!(
                    "nothing was changed; if it stays unreadable, set it aside, and the next start makes it again from the \
                     journal: mv {} {}",
                    shell_word(&store.to_string_lossy()),
                    shell_word(&aside.to_string_lossy()),
                ))
            }
            Self::CreateFolder(_) | Self::Lock(_) | Self::Store(_) | Self::Io { .. } | Self::Bind(_) => {
                self.io_error_kind().and_then(hint_on_writing).map(str::to_owned)
            }
            _ => None,
        }
    }

    /// The operating system's error, if one is the cause.
    fn io_error_kind(&self) -> Option<io::ErrorKind> {
        if let Self::Store(error) = self
            && error.full_disk_path().is_some()
        {
            return Some(io::ErrorKind::StorageFull);
        }
        let mut error: &(dyn std::error::Error + 'static) = self;
        while let Some(source) = error.source() {
            error = source;
        }
        let shared = || error.downcast_ref::<Arc<io::Error>>().map(Arc::as_ref);
        let refusal = error.downcast_ref::<io::Error>().or_else(shared);
        refusal.map(io::Error::kind)
    }
}

/// Whether a file belongs to the database.
fn is_database(path: &Path) -> bool {
    path.ancestors().any(|path| path.ends_with(names::STORE))
}

/// Returns what to do if the system did not let the daemon write.
fn hint_on_writing(refusal: io::ErrorKind) -> Option<&'static str> {
    match refusal {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Some(
            "nothing was changed; make it writable for this user, or give the daemon another folder with --home",
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Some("nothing is lost; free some room on that disk and start again")
        }
        _ => None,
    }
}

//! Where the socket file is, and that nobody else can reach it.
//!
//! Owns the file's permissions, and what happens to a file that is in the way. The folder is checked before the socket is
//! made in it, and the socket accepts nobody before its own permissions are set: binding makes the file, listening opens the
//! door. Knows no protocol and not who may run (the lock does).

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use thiserror::Error;
use tokio::net::{UnixListener, UnixSocket};

use crate::paths::ownership::{self, ClaimError, Role};

#[cfg(test)]
mod tests;

/// Longest path of a socket, in bytes: `sun_path` less its closing zero.
pub const PATH_LIMIT_BYTES: usize = if cfg!(target_vendor = "apple") { 103 } else { 107 };

/// Clients that may wait to be accepted. As many as may be connected, since all may come back at once after a restart.
const LISTEN_BACKLOG: u32 = 512;

/// Why the socket could not be opened.
#[derive(Debug, Error)]
pub enum BindError {
    /// The path does not fit into a socket address.
    #[error(
        "the socket path {} has {} bytes, more than the {PATH_LIMIT_BYTES} that a socket address holds; choose a shorter one with --socket",
        .0.display(), .0.as_os_str().len()
    )]
    PathTooLong(PathBuf),
    /// The folder cannot be made, or another user owns it or can change it.
    #[error(transparent)]
    Folder(#[from] ClaimError),
    /// Something that is not a socket is in the way.
    #[error("{} exists and is not a socket; it is left as it is, choose another path with --socket", .0.display())]
    NotASocket(PathBuf),
    /// Another process listens there.
    #[error("another process already listens on {}; stop it, or choose another path with --socket", .0.display())]
    InUse(PathBuf),
    /// A service manager listens elsewhere.
    #[error(
        "the service manager listens on {}, and clients look for the daemon at {}; give both the same path, see ListenStream= of \
         the socket's unit",
        given.display(),
        path.display()
    )]
    GivenElsewhere {
        /// Where it listens; empty where the socket has no name.
        given: PathBuf,
        /// Where clients look.
        path: PathBuf,
    },
    /// The system refused a step.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was tried, as a verb that fits before the path.
        step: &'static str,
        /// What it was tried on.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// A listening socket that only this user can reach.
#[derive(Debug)]
pub struct PrivateSocket {
    /// What is to be served.
    pub listener: UnixListener,
    /// What is to be kept until the daemon ends.
    pub file: SocketFile,
}

/// The socket's file. Removed when this is dropped, unless another file has taken its place, or it is another's.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode; none if whoever gave the socket continues to listen there and looks after the file.
    identity: Option<(u64, u64)>,
}

impl PrivateSocket {
    /// Binds `path` with mode 0600 and listens. A missing folder is made with mode 0700; one that exists has to be this
    /// user's and not writable by others. A socket at which nobody answers is replaced: only who holds the daemon's lock may
    /// call this, because nobody else can know that its owner is gone and not just between making the file and listening.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`BindError`]. Nothing is removed then, and nothing is left behind but a folder.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        claim_folder(path)?;
        remove_dead_socket(path)?;
        let failed = |step| move |source| BindError::io(step, path, source);
        let socket = UnixSocket::new_stream().map_err(failed("create the socket"))?;
        socket.bind(path).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(path.to_owned()),
            _ => BindError::io("bind the socket", path, error),
        })?;
        // From here on the file is ours, and is removed again if a later step fails.
        let own = identity(path).map_err(failed("look at"))?;
        let file = SocketFile {
            path: path.to_owned(),
            identity: Some(own),
        };
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed("set the mode of"))?;
        let listener = socket.listen(LISTEN_BACKLOG).map_err(failed("listen on"))?;
        Ok(Self { listener, file })
    }

    /// A socket that a service manager listens on already, and continues to listen on after this process.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BindError::GivenElsewhere`] when it is not at `path`, and when others may write to the folder.
    pub fn from_service_manager(
        listener: std::os::unix::net::UnixListener,
        path: &Path,
    ) -> Result<Self, BindError> {
        let failed = |step| move |source| BindError::io(step, path, source);
        let address = listener.local_addr().map_err(failed("ask for the address of"))?;
        let named = address.as_pathname().unwrap_or(Path::new(""));
        if named != path {
            return Err(BindError::GivenElsewhere {
                given: named.to_owned(),
                path: path.to_owned(),
            });
        }
        claim_folder(path)?;
        let watch = || {
            // Shows clients this process as the listener in place of the service manager, so that they see that it serves.
            rustix::net::listen(&listener, LISTEN_BACKLOG.cast_signed())?;
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener)
        };
        let file = SocketFile {
            path: path.to_owned(),
            identity: None,
        };
        let listener = watch().map_err(failed("watch the socket"))?;
        Ok(Self { listener, file })
    }
}

impl BindError {
    fn io(step: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Io { step, path, source }
    }
}

impl SocketFile {
    /// Where clients connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nobody can connect there any more: the file is gone, or another one is in its place. Never reported of one
    /// that is another's. Where it cannot be seen, it is taken to be there.
    pub fn is_lost(&self) -> bool {
        self.identity.is_some_and(|own| match identity(&self.path) {
            Ok(found) => found != own,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_none() || self.is_lost() {
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// The device and the inode of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Makes the folder of the socket, and checks that only this user can change what is in it.
fn claim_folder(path: &Path) -> Result<(), BindError> {
    if path.as_os_str().len() > PATH_LIMIT_BYTES {
        return Err(BindError::PathTooLong(path.to_owned()));
    }
    Ok(ownership::create_and_check(
        Role::Run,
        path.parent().unwrap_or(path),
    )?)
}

/// Makes sure that nothing stands at `path`, and that whatever is removed for it was a dead socket.
fn remove_dead_socket(path: &Path) -> Result<(), BindError> {
    let failed = |step| move |source| BindError::io(step, path, source);
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(failed("look at"))?,
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket(path.to_owned()));
    }
    if has_listener(path).map_err(failed("ask for a listener on"))? {
        return Err(BindError::InUse(path.to_owned()));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(failed("remove the dead socket")),
    }
}

fn has_listener(path: &Path) -> io::Result<bool> {
    let probe = UnixSocket::new_stream()?;
    match rustix::net::connect(&probe, &SocketAddrUnix::new(path)?) {
        // Would block: its queue is full, so there is one.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

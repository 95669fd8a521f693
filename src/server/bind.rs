//! Creates the socket file so that no other user can connect to it.
//!
//! Owns the file's permissions, and what happens to an existing file at its path. The folder is checked before the socket is
//! created in it, and permissions are set between bind, which creates the file, and listen, which allows connections.
//! Knows no protocol. The lock, not this module, decides whether a daemon may run.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use thiserror::Error;
use tokio::net::{UnixListener, UnixSocket};

use crate::paths::ownership::{self, CreateFolderError, Role};

#[cfg(test)]
mod tests;

/// The longest path of a socket, in bytes: `sun_path` without its terminating zero.
pub const PATH_LIMIT_BYTES: usize = if cfg!(target_vendor = "apple") { 103 } else { 107 };

/// How many clients may wait to be accepted: as many as may be connected, because all may reconnect after a restart.
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
    /// The folder cannot be created, or another user owns it or can change it.
    #[error(transparent)]
    Folder(#[from] CreateFolderError),
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket; choose another path with --socket", .0.display())]
    NotASocket(PathBuf),
    /// Another process listens on the socket.
    #[error("another process already listens on {}; stop it, or choose another path with --socket", .0.display())]
    InUse(PathBuf),
    /// A service manager listens on a socket at another path.
    #[error(
        "the service manager listens on {}, and clients look for the daemon at {}; give both the same path, see ListenStream= of \
         the socket's unit",
        given.display(),
        path.display()
    )]
    PathMismatch {
        /// The path of that socket. Empty if the socket has no name.
        given: PathBuf,
        /// The path at which clients connect.
        path: PathBuf,
    },
    /// The system refused a step.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// The attempted step, as a verb before the path.
        step: &'static str,
        /// The path of that step.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A listening socket that only this user can reach.
#[derive(Debug)]
pub struct PrivateSocket {
    /// The listener to serve.
    pub listener: UnixListener,
    /// The socket's file. Keep it until the daemon ends.
    pub file: SocketFile,
}

/// The socket's file. Dropping this removes the file, unless another file has replaced it or a service manager owns it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode. `None` if a service manager passed the socket: it continues to listen and owns the file.
    identity: Option<(u64, u64)>,
}

impl PrivateSocket {
    /// Binds `path` with mode 0600 and listens. A missing folder is created with mode 0700. An existing folder must belong to
    /// this user and not be writable by others. A socket on which no process listens is replaced. The caller must hold the
    /// daemon's lock: otherwise another daemon could be between binding this socket and listening on it.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`BindError`]. On an error, no existing file is removed, and at most a new folder remains.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        claim_folder(path)?;
        remove_dead_socket(path)?;
        let failed = |step| move |source| BindError::io(step, path, source);
        let socket = UnixSocket::new_stream().map_err(failed("create the socket"))?;
        socket.bind(path).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(path.to_owned()),
            _ => BindError::io("bind the socket", path, error),
        })?;
        // From here on this process owns the file, and removes it if a later step fails.
        let own = identity(path).map_err(failed("look at"))?;
        let file = SocketFile {
            path: path.to_owned(),
            identity: Some(own),
        };
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed("set the mode of"))?;
        let listener = socket.listen(LISTEN_BACKLOG).map_err(failed("listen on"))?;
        Ok(Self { listener, file })
    }

    /// Takes over a socket from a service manager, which already listens on it and continues to after this process ends.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BindError::PathMismatch`] if the socket is not at `path`. Also fails if others may write to the folder.
    pub fn from_service_manager(
        listener: std::os::unix::net::UnixListener,
        path: &Path,
    ) -> Result<Self, BindError> {
        let failed = |step| move |source| BindError::io(step, path, source);
        let address = listener.local_addr().map_err(failed("ask for the address of"))?;
        let socket_path = address.as_pathname().unwrap_or(Path::new(""));
        if socket_path != path {
            return Err(BindError::PathMismatch {
                given: socket_path.to_owned(),
                path: path.to_owned(),
            });
        }
        claim_folder(path)?;
        let listen = || {
            // Makes this process, not the service manager, the listener that clients see, so that they know that it serves.
            rustix::net::listen(&listener, LISTEN_BACKLOG.cast_signed())?;
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener)
        };
        let file = SocketFile {
            path: path.to_owned(),
            identity: None,
        };
        let listener = listen().map_err(failed("watch the socket"))?;
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
    /// The path at which clients connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether clients can no longer connect, because the file was deleted or replaced. Always false for a socket of a service
    /// manager, and if the file cannot be inspected.
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

/// Creates the folder of the socket, and checks that only this user can change its content.
fn claim_folder(path: &Path) -> Result<(), BindError> {
    if path.as_os_str().len() > PATH_LIMIT_BYTES {
        return Err(BindError::PathTooLong(path.to_owned()));
    }
    Ok(ownership::create_and_check(
        Role::Run,
        path.parent().unwrap_or(path),
    )?)
}

/// Ensures that `path` does not exist. Removes only a socket on which no process listens.
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
        // The connection would block: a listener exists and its queue is full.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

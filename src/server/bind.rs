//! Where the socket file is, and that nobody else can reach it.
//!
//! Owns the folder's and the file's permissions, and what happens to a file that is in the way. The folder is private
//! before the socket is made in it, and the socket accepts nobody before its own permissions are set: binding makes
//! the file, listening opens the door. Knows no protocol and not who may run (the lock does).

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use thiserror::Error;
use tokio::net::UnixListener;

#[cfg(test)]
mod tests;

/// Longest path of a socket, in bytes: `sun_path` less its closing zero.
pub const PATH_LIMIT_BYTES: usize = if cfg!(target_vendor = "apple") { 103 } else { 107 };

/// Clients that may wait to be accepted. As many as may be connected, since all may come back at once after a restart.
const LISTEN_BACKLOG: i32 = 512;

/// What to do with a socket file at which nobody answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleSocket {
    /// Replace it. Only who holds the daemon's lock may say so: nobody else can know that its owner is gone and not
    /// just between making the file and listening.
    Replace,
    /// Leave it and fail.
    Keep,
}

/// Why the socket could not be opened.
#[derive(Debug, Error)]
pub enum BindError {
    /// The path does not fit into a socket address.
    #[error(
        "the socket path {} has {} bytes, more than the {PATH_LIMIT_BYTES} that a socket address holds; choose a shorter one with --socket",
        .0.display(), .0.as_os_str().len()
    )]
    PathTooLong(PathBuf),
    /// The path names no file in a folder.
    #[error("the socket path {} is not an absolute path of a file", .0.display())]
    NotAFilePath(PathBuf),
    /// The folder belongs to somebody else.
    #[error(
        "the socket's folder {} belongs to user {owner}, not to user {own}; choose a path in a folder of your own with --socket",
        folder.display()
    )]
    ForeignFolder {
        /// The folder.
        folder: PathBuf,
        /// The uid that owns it.
        owner: u32,
        /// The uid of this process.
        own: u32,
    },
    /// Others may create and remove files in the folder.
    #[error(
        "others may write to the socket's folder {} (mode {mode:03o}); run chmod 700 on it, or choose another with --socket",
        folder.display()
    )]
    WritableFolder {
        /// The folder.
        folder: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Something that is not a socket is in the way.
    #[error("{} exists and is not a socket; it is left as it is, choose another path with --socket", .0.display())]
    NotASocket(PathBuf),
    /// Another process listens there.
    #[error("another process already listens on {}; stop it, or choose another path with --socket", .0.display())]
    InUse(PathBuf),
    /// Nobody listens on the socket that exists, but it may not be replaced.
    #[error("{} is a socket without a listener, and the lock that would allow to replace it is not held", .0.display())]
    Stale(PathBuf),
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
    /// Whether whoever gave the socket goes on listening there.
    is_anothers: bool,
    device: u64,
    inode: u64,
}

impl PrivateSocket {
    /// Binds `path` with mode 0600 and listens. A missing folder is made with mode 0700; one that exists has to be this
    /// user's and not writable by others.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`BindError`]. Nothing is removed then, and nothing is left behind but a folder.
    pub fn bind(path: &Path, stale: StaleSocket) -> Result<Self, BindError> {
        let folder = check_path(path)?;
        prepare_folder(folder)?;
        clear_the_way(path, stale)?;
        let address = SocketAddrUnix::new(path).map_err(io_error("address the socket", path))?;
        let socket = new_socket().map_err(io_error("create the socket", path))?;
        rustix::net::bind(&socket, &address).map_err(|error| match error {
            Errno::ADDRINUSE => BindError::InUse(path.to_owned()),
            error => io_error("bind the socket", path)(error),
        })?;
        // From here on the file is ours, and goes away again if a later step fails.
        let file = SocketFile::of(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(io_error("set the mode of", path))?;
        rustix::net::listen(&socket, LISTEN_BACKLOG).map_err(io_error("listen on", path))?;
        let listener = UnixListener::from_std(socket.into()).map_err(io_error("watch the socket", path))?;
        Ok(Self { listener, file })
    }

    /// A socket that a service manager listens on already, and goes on listening on behind this process.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BindError::GivenElsewhere`] when it is not at `path`, and when others may write to the folder.
    pub fn given(listener: std::os::unix::net::UnixListener, path: &Path) -> Result<Self, BindError> {
        let address = listener
            .local_addr()
            .map_err(io_error("ask for the address of", path))?;
        let named = address.as_pathname().unwrap_or(Path::new(""));
        if named != path {
            return Err(BindError::GivenElsewhere {
                given: named.to_owned(),
                path: path.to_owned(),
            });
        }
        prepare_folder(check_path(path)?)?;
        listener
            .set_nonblocking(true)
            .map_err(io_error("watch the socket", path))?;
        let mut file = SocketFile::of(path)?;
        file.is_anothers = true;
        let listener = UnixListener::from_std(listener).map_err(io_error("watch the socket", path))?;
        Ok(Self { listener, file })
    }
}

impl SocketFile {
    fn of(path: &Path) -> Result<Self, BindError> {
        let metadata = fs::symlink_metadata(path).map_err(io_error("look at", path))?;
        Ok(Self {
            path: path.to_owned(),
            is_anothers: false,
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// Where clients connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nobody can connect there any more: the file is gone, or another one is in its place. Never told of one that is
    /// another's, who sees to it. Where it cannot be seen, it is taken to be there.
    pub fn is_astray(&self) -> bool {
        !self.is_anothers && matches!(self.is_still_ours(), Ok(false))
    }

    fn is_still_ours(&self) -> io::Result<bool> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) => Ok(found.dev() == self.device && found.ino() == self.inode),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_anothers {
            return;
        }
        let removed = self
            .is_still_ours()
            .and_then(|ours| if ours { fs::remove_file(&self.path) } else { Ok(()) });
        if let Err(error) = removed {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Checks what can be checked without looking at the disk; returns the folder.
fn check_path(path: &Path) -> Result<&Path, BindError> {
    if path.as_os_str().len() > PATH_LIMIT_BYTES {
        return Err(BindError::PathTooLong(path.to_owned()));
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if path.is_absolute() && name != OsStr::new("") => Ok(folder),
        _ => Err(BindError::NotAFilePath(path.to_owned())),
    }
}

fn prepare_folder(folder: &Path) -> Result<(), BindError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(io_error("create the folder", folder))?;
    let metadata = fs::metadata(folder).map_err(io_error("look at the folder", folder))?;
    let own = rustix::process::geteuid().as_raw();
    check_folder(folder, metadata.uid(), metadata.mode() & 0o7777, own)
}

fn check_folder(folder: &Path, owner: u32, mode: u32, own: u32) -> Result<(), BindError> {
    if owner != own {
        return Err(BindError::ForeignFolder {
            folder: folder.to_owned(),
            owner,
            own,
        });
    }
    if mode & 0o022 != 0 {
        return Err(BindError::WritableFolder {
            folder: folder.to_owned(),
            mode,
        });
    }
    Ok(())
}

/// Makes sure that nothing stands at `path`, and that whatever is removed for it was a dead socket.
fn clear_the_way(path: &Path, stale: StaleSocket) -> Result<(), BindError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(io_error("look at", path)(source)),
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket(path.to_owned()));
    }
    if somebody_listens(path)? {
        return Err(BindError::InUse(path.to_owned()));
    }
    if stale == StaleSocket::Keep {
        return Err(BindError::Stale(path.to_owned()));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("remove the dead socket", path)(error))
        }
        _ => Ok(()),
    }
}

fn somebody_listens(path: &Path) -> Result<bool, BindError> {
    const PROBE: &str = "ask for a listener on";
    let address = SocketAddrUnix::new(path).map_err(io_error(PROBE, path))?;
    let probe = new_socket().map_err(io_error(PROBE, path))?;
    match rustix::net::connect(&probe, &address) {
        // Would block: its queue is full, so there is one.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(io_error(PROBE, path)(error)),
    }
}

/// A Unix stream socket that does not block and that no child inherits.
fn new_socket() -> Result<OwnedFd, Errno> {
    #[cfg(not(target_vendor = "apple"))]
    {
        let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
    }
    #[cfg(target_vendor = "apple")]
    {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(socket)
    }
}

fn io_error<E: Into<io::Error>>(step: &'static str, path: &Path) -> impl FnOnce(E) -> BindError {
    let path = path.to_owned();
    move |error| BindError::Io {
        step,
        path,
        source: error.into(),
    }
}

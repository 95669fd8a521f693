//! What the system tells of folders, one event at a time, in the order in which things happened.
//!
//! Linux has inotify: what was written before a question is asked is in its queue when it is asked, so that whoever
//! empties the queue first answers with all of it. Systems without it have no kernel here, and nothing is watched.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// What a folder is known by in what the system tells.
pub(super) type FolderNumber = i32;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// It is there now, or under this name now.
    Came,
    /// It is not there any more, or not under this name.
    Went,
    /// Its content or its rights changed.
    Changed,
}

/// Something that the system told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// Events were lost: anything may have happened.
    Lost,
    /// The folder is not watched any more.
    Ended(FolderNumber),
    /// Something in a folder, or the folder itself where there is no name.
    Happened {
        /// The folder.
        folder: FolderNumber,
        /// The name in it.
        name: Option<OsString>,
        /// Whether it is a folder; a link never is.
        is_folder: bool,
        /// What.
        what: What,
    },
}

/// The system's side.
#[derive(Debug)]
pub(super) struct Kernel {
    queue: OwnedFd,
}

impl Kernel {
    /// Something that can be waited on: readable when there is something to read.
    pub(super) fn waker(&self) -> io::Result<OwnedFd> {
        self.queue.try_clone()
    }
}

/// Whether other machines may write to a file system, of which the system here tells nothing.
#[cfg(target_os = "linux")]
pub(super) fn is_remote(path: &Path) -> bool {
    /// Numbers of NFS, SMB, CIFS, SMB 2, FUSE, 9P, Ceph, AFS, VirtualBox' folders, Lustre.
    const REMOTE: [u32; 10] = [
        0x6969,
        0x517B,
        0xFF53_4D42,
        0xFE53_4D42,
        0x6573_5546,
        0x0102_1997,
        0x00C3_6400,
        0x5346_414F,
        0x786F_4256,
        0x0BD0_0BD0,
    ];
    let system = rustix::fs::statfs(path);
    system.is_ok_and(|system| {
        REMOTE
            .iter()
            .any(|remote| i128::from(system.f_type) == i128::from(*remote))
    })
}

/// The same where nothing is watched in any case.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_remote(_: &Path) -> bool {
    false
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::OsStr;
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use rustix::io::Errno;

    use super::{FolderNumber, Kernel, OsString, Path, Told, What, io};

    /// How much is read at once, in bytes: some hundred events.
    const READ_BYTES: usize = 16 * 1024;

    impl Kernel {
        pub(in super::super) fn open() -> io::Result<Self> {
            let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            Ok(Self { queue })
        }

        /// Watches a folder. One that is watched already keeps its number, whatever path it has now.
        pub(in super::super) fn add(&self, folder: &Path) -> io::Result<FolderNumber> {
            // Opening and reading are left out: the daemon's own looks would wake it.
            let flags = WatchFlags::CREATE
                | WatchFlags::MOVE
                | WatchFlags::DELETE
                | WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR
                | WatchFlags::EXCL_UNLINK;
            Ok(inotify::add_watch(&self.queue, folder, flags)?)
        }

        /// Watches it no longer.
        pub(in super::super) fn remove(&self, folder: FolderNumber) {
            // One that is gone has ended by itself.
            let _ended = inotify::remove_watch(&self.queue, folder);
        }

        /// All that has happened up to now.
        pub(in super::super) fn read(&self, mut hear: impl FnMut(Told)) -> io::Result<()> {
            let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
            let mut reader = Reader::new(&self.queue, &mut buffer);
            loop {
                let event = match reader.next() {
                    Ok(event) => event,
                    Err(Errno::AGAIN) => return Ok(()),
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                };
                let flags = event.events();
                if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                    hear(Told::Lost);
                    continue;
                }
                if flags.contains(ReadFlags::IGNORED) {
                    hear(Told::Ended(event.wd()));
                    continue;
                }
                let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                hear(Told::Happened {
                    folder: event.wd(),
                    name: name.map(OsString::from),
                    is_folder: flags.contains(ReadFlags::ISDIR),
                    what: what(flags),
                });
            }
        }
    }

    fn what(flags: ReadFlags) -> What {
        let went = ReadFlags::DELETE
            | ReadFlags::MOVED_FROM
            | ReadFlags::DELETE_SELF
            | ReadFlags::MOVE_SELF
            | ReadFlags::UNMOUNT;
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            What::Came
        } else if flags.intersects(went) {
            What::Went
        } else {
            What::Changed
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Kernel {
    pub(super) fn open() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn add(&self, _: &Path) -> io::Result<FolderNumber> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn remove(&self, _: FolderNumber) {}

    pub(super) fn read(&self, _: impl FnMut(Told)) -> io::Result<()> {
        Ok(())
    }
}

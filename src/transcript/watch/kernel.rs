//! What the system tells of folders.
//!
//! Linux has inotify, which tells one event at a time, in the order in which things happened: what was written before a
//! question is asked is in its queue when it is asked, so that whoever empties the queue first answers with all of it.
//! Other systems tell later, and only which paths something happened to: enough to be woken by, not to answer with.

#[cfg(target_os = "linux")]
mod inotify;
pub(super) mod portable;

use std::ffi::OsString;
use std::fmt::Debug;
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

/// How much of what is below a folder is of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// What stands in the folder itself.
    Folder,
    /// All folders below it too, which are added one by one as well.
    Tree,
}

/// The system's side.
pub(super) trait Kernel: Debug + Send {
    /// Something that can be waited on: readable when there is something to read.
    fn waker(&self) -> io::Result<OwnedFd>;

    /// Whether all that happened before a reading is in it.
    fn tells_at_once(&self) -> bool;

    /// Watches a folder.
    fn add(&mut self, folder: &Path, reach: Reach) -> io::Result<FolderNumber>;

    /// Watches it no longer.
    fn remove(&mut self, folder: FolderNumber);

    /// All that was told up to now.
    fn read(&mut self, hear: &mut dyn FnMut(Told)) -> io::Result<()>;
}

/// The best that this system has.
pub(super) fn open() -> io::Result<Box<dyn Kernel>> {
    #[cfg(target_os = "linux")]
    return Ok(Box::new(inotify::Inotify::open()?));
    #[cfg(not(target_os = "linux"))]
    portable()
}

/// What every system has.
pub(super) fn portable() -> io::Result<Box<dyn Kernel>> {
    Ok(Box::new(portable::Portable::open(portable::HAS_TREES)?))
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

/// The same where it is not known, and lists look at everything in any case.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_remote(_: &Path) -> bool {
    false
}

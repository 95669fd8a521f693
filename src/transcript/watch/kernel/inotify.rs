//! Linux: inotify, whose queue holds what happened before it is read.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::{FolderNumber, Kernel, Reach, Told, What};

/// How much is read at once, in bytes: some hundred events.
const READ_BYTES: usize = 16 * 1024;

/// A queue of inotify.
#[derive(Debug)]
pub(super) struct Inotify {
    queue: OwnedFd,
}

impl Inotify {
    pub(super) fn open() -> io::Result<Self> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self { queue })
    }
}

impl Kernel for Inotify {
    fn waker(&self) -> io::Result<OwnedFd> {
        self.queue.try_clone()
    }

    fn tells_at_once(&self) -> bool {
        true
    }

    /// One that is watched already keeps its number, whatever path it has now.
    fn add(&mut self, folder: &Path, reach: Reach) -> io::Result<FolderNumber> {
        // Opening and reading are left out: the daemon's own looks would wake it.
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVE
            | WatchFlags::DELETE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        let flags = flags
            | match reach {
                // On the way to a root: somebody's home may be among it, whose files are of no interest. It may also be one
                // that another root has as a whole.
                Reach::Folder => WatchFlags::MASK_ADD,
                Reach::Tree => WatchFlags::MODIFY,
            };
        Ok(inotify::add_watch(&self.queue, folder, flags)?)
    }

    fn remove(&mut self, folder: FolderNumber) {
        // One that is gone has ended by itself.
        let _ended = inotify::remove_watch(&self.queue, folder);
    }

    fn read(&mut self, hear: &mut dyn FnMut(Told)) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_the_queue_did_not_hold_is_told_to_be_lost_and_it_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        fs::write(&one, "").expect("a file");
        let mut queue = Inotify::open().expect("a queue");
        let number = queue.add(folder.path(), Reach::Tree).expect("a watch");
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("the limit");
        let limit: usize = limit.trim().parse().expect("a number");
        // Each move is two events.
        for _ in 0..=limit / 4 {
            fs::rename(&one, &other).expect("a move");
            fs::rename(&other, &one).expect("a move");
        }
        let told = |queue: &mut Inotify| {
            let mut told = Vec::new();
            queue.read(&mut |one| told.push(one)).expect("events");
            told
        };
        let all = told(&mut queue);
        assert_eq!((all.len(), all.last()), (limit + 1, Some(&Told::Lost)));
        assert_eq!(all.iter().filter(|one| **one == Told::Lost).count(), 1);

        fs::write(folder.path().join("new"), "").expect("a file");
        let came = Told::Happened {
            folder: number,
            name: Some(OsString::from("new")),
            is_folder: false,
            what: What::Came,
        };
        assert!(told(&mut queue).contains(&came));
    }
}

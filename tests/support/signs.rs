//! What tests wait for where nobody says a word: that a process ends, that something stands in a folder, that
//! something happens there. Linux tells each of them.

// Each test program uses its own part of this.
#![allow(dead_code)]
// The exemption for tests covers test functions only, not what they call.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How long anything may take before a test fails instead of hanging. No test waits for it to pass.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// How much is read of a folder's events at once, in bytes.
const EVENTS_BYTES: usize = 4096;

/// The processes whose command line or environment names one of these, with their command lines, where the system
/// shows both.
pub(crate) fn processes_naming(needles: &[&[u8]]) -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let named = pids.filter(|pid| needles.iter().any(|needle| is_naming(*pid, needle)));
    named.map(|pid| (pid, command_line(pid))).collect()
}

/// Whether a process runs whose command line or environment names this.
fn is_naming(pid: u32, needle: &[u8]) -> bool {
    // A process that ends meanwhile has nothing to show.
    ["cmdline", "environ"].iter().any(|file| {
        let shown = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        shown.windows(needle.len()).any(|window| window == needle)
    })
}

/// The command line of a process, with spaces between its words.
pub(crate) fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// A process that no later one can be taken for; none when it has gone already.
#[must_use]
pub(crate) fn descriptor_of(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Whether a process ends within this time, be it that its parent has not noted that yet.
#[must_use]
pub(crate) fn ends_within(process: impl AsFd, limit: Duration) -> bool {
    tells_within(&mut [PollFd::new(&process, PollFlags::IN)], limit)
}

/// Whether there is something to read within this time, be it the end.
#[must_use]
pub(crate) fn is_readable_within(source: impl AsFd, limit: Duration) -> bool {
    tells_within(&mut [PollFd::new(&source, PollFlags::IN)], limit)
}

/// Whether the parent of a process has noted its end within this time. Linux tells so since 6.9.
#[must_use]
pub(crate) fn is_noted_within(process: impl AsFd, limit: Duration) -> bool {
    // That it ended is not asked for; this is told unasked.
    tells_within(&mut [PollFd::new(&process, PollFlags::empty())], limit)
}

/// Waits until one of them has something to read; whether the first one has.
#[must_use]
pub(crate) fn tells_first(one: impl AsFd, other: impl AsFd) -> bool {
    let mut either = [
        PollFd::new(&one, PollFlags::IN),
        PollFd::new(&other, PollFlags::IN),
    ];
    assert!(tells_within(&mut either, PATIENCE), "nothing happens any more");
    !either[0].revents().is_empty()
}

#[must_use]
fn tells_within(descriptors: &mut [PollFd<'_>], limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).unwrap();
    loop {
        match poll(descriptors, Some(&limit)) {
            Ok(told) => return told > 0,
            Err(Errno::INTR) => {}
            Err(error) => panic!("a descriptor to poll: {error}"),
        }
    }
}

/// A file, and what is read of it.
pub(crate) struct Reads(OwnedFd);

impl Reads {
    /// Reports each read of this file from here on, and each closing of it.
    pub(crate) fn of(file: &Path) -> Self {
        let queue = inotify::init(CreateFlags::CLOEXEC).unwrap();
        let flags = WatchFlags::ACCESS | WatchFlags::CLOSE_NOWRITE;
        inotify::add_watch(&queue, file, flags).unwrap();
        Self(queue)
    }

    /// Waits for the next event; whether the file was closed.
    pub(crate) fn next_is_close(&self) -> bool {
        assert!(is_readable_within(&self.0, PATIENCE), "the file is not read");
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut is_close = false;
        loop {
            is_close |= reader.next().unwrap().events().contains(ReadFlags::CLOSE_NOWRITE);
            if reader.is_buffer_empty() {
                return is_close;
            }
        }
    }
}

/// A folder and those below it, watched.
pub(crate) struct Watched {
    root: PathBuf,
    queue: OwnedFd,
}

impl Watched {
    /// Whatever comes, goes or changes from here on is told.
    pub(crate) fn below(root: &Path) -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let watched = Self {
            root: root.to_owned(),
            queue,
        };
        watched.watch(root);
        watched
    }

    /// What this finds in the folder, looking again at each change: `what` is told when nothing comes of it.
    #[track_caller]
    pub(crate) fn wait_for<T>(&self, what: &str, mut find: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Before it is looked at: what changes from here on is told.
            self.watch(&self.root);
            if let Some(found) = find() {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let is_told = tells_within(&mut [PollFd::new(&self.queue, PollFlags::IN)], left);
            assert!(is_told, "no {what} below {}", self.root.display());
            self.take(usize::MAX);
        }
    }

    /// As [`Watched::wait_for`], where the answer to a question depends on what is in the folder.
    pub(crate) async fn wait_for_answer<T>(
        mut self,
        what: &str,
        mut ask: impl AsyncFnMut() -> Option<T>,
    ) -> T {
        loop {
            self.watch(&self.root);
            if let Some(found) = ask().await {
                return found;
            }
            let next = tokio::task::spawn_blocking(move || {
                let is_told = is_readable_within(&self.queue, PATIENCE);
                self.take(usize::MAX);
                (self, is_told)
            });
            let is_told;
            (self, is_told) = next.await.unwrap();
            assert!(is_told, "no {what} below {}", self.root.display());
        }
    }

    /// Lets so many changes pass, or fewer when this tells something before: a process its end, a pipe a word
    /// or its end.
    pub(crate) fn let_pass(&self, changes: usize, otherwise: impl AsFd) {
        let mut passed = 0;
        while passed < changes {
            if tells_first(&otherwise, &self.queue) {
                return;
            }
            passed += self.take(changes - passed);
        }
    }

    /// Watches a folder and those below it; one that is watched already stays so.
    fn watch(&self, folder: &Path) {
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR;
        // What is not there yet comes in a folder that is watched; what has gone needs no watch.
        match inotify::add_watch(&self.queue, folder, flags) {
            Ok(_) => {}
            Err(Errno::NOENT | Errno::NOTDIR) => return,
            Err(error) => panic!("{} is not watched: {error}", folder.display()),
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.watch(&entry.path());
            }
        }
    }

    /// Takes what was told so far, as much of it as is wanted; how much that was.
    fn take(&self, most: usize) -> usize {
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = Reader::new(&self.queue, &mut buffer);
        let mut taken = 0;
        while taken < most {
            match reader.next() {
                Ok(_) => taken += 1,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => panic!("the events of {}: {error}", self.root.display()),
            }
        }
        taken
    }
}

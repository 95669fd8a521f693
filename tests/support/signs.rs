//! Waits for changes that no event reports: that a process ends, that a file appears in a folder, that a
//! folder changes. Linux notifies of each of these, so nothing here polls at intervals.

// Each test program uses only some of these.
#![allow(dead_code)]
// Clippy exempts only test functions, not the functions they call.
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

/// How long anything may take before a test fails instead of hanging. No test waits for this time to pass.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Size of the buffer for a folder's events, in bytes.
const EVENTS_BYTES: usize = 4096;

/// The processes whose command line or environment contains one of these texts, with their command lines, as
/// far as `/proc` shows both.
pub(crate) fn processes_naming(needles: &[&[u8]]) -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let named = pids.filter(|pid| needles.iter().any(|needle| is_naming(*pid, needle)));
    named.map(|pid| (pid, command_line(pid))).collect()
}

/// Whether this process has the text in its command line or environment.
fn is_naming(pid: u32, needle: &[u8]) -> bool {
    // A process that ends meanwhile can no longer be read and does not match.
    ["cmdline", "environ"].iter().any(|file| {
        let shown = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        shown.windows(needle.len()).any(|window| window == needle)
    })
}

/// The command line of a process, with spaces between the arguments.
pub(crate) fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// A descriptor of a process, which never refers to a later process with the same id. `None` if the process
/// no longer exists.
#[must_use]
pub(crate) fn descriptor_of(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Whether a process ends within this time. It counts as ended even if its parent has not reaped it.
#[must_use]
pub(crate) fn ends_within(process: impl AsFd, limit: Duration) -> bool {
    tells_within(&mut [PollFd::new(&process, PollFlags::IN)], limit)
}

/// Whether data or the end of the input can be read within this time.
#[must_use]
pub(crate) fn is_readable_within(source: impl AsFd, limit: Duration) -> bool {
    tells_within(&mut [PollFd::new(&source, PollFlags::IN)], limit)
}

/// Whether the parent of a process reaps it within this time. Linux reports this since 6.9.
#[must_use]
pub(crate) fn is_noted_within(process: impl AsFd, limit: Duration) -> bool {
    // No event is requested: the end of the process must not wake this, and the kernel always reports a
    // hangup.
    tells_within(&mut [PollFd::new(&process, PollFlags::empty())], limit)
}

/// Waits until one of them is readable. Returns whether the first one is.
#[must_use]
pub(crate) fn tells_first(one: impl AsFd, other: impl AsFd) -> bool {
    let mut either = [
        PollFd::new(&one, PollFlags::IN),
        PollFd::new(&other, PollFlags::IN),
    ];
    assert!(
        tells_within(&mut either, PATIENCE),
        "neither descriptor became readable"
    );
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

/// Notifications about reads of a file.
pub(crate) struct Reads(OwnedFd);

impl Reads {
    /// Watches a file: each read and each close of it is reported from now on.
    pub(crate) fn of(file: &Path) -> Self {
        let queue = inotify::init(CreateFlags::CLOEXEC).unwrap();
        let flags = WatchFlags::ACCESS | WatchFlags::CLOSE_NOWRITE;
        inotify::add_watch(&queue, file, flags).unwrap();
        Self(queue)
    }

    /// Waits for the next events. Returns whether the file was closed.
    pub(crate) fn next_is_close(&self) -> bool {
        assert!(
            is_readable_within(&self.0, PATIENCE),
            "the file is neither read nor closed"
        );
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

/// A watched folder with all folders below it.
pub(crate) struct Watched {
    root: PathBuf,
    queue: OwnedFd,
}

impl Watched {
    /// Watches a folder: everything created, deleted or changed below it is reported from now on.
    pub(crate) fn below(root: &Path) -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let watched = Self {
            root: root.to_owned(),
            queue,
        };
        watched.watch(root);
        watched
    }

    /// Waits until `find` returns something, calling it again after each change in the folder. `what` names
    /// it in the failure message.
    #[track_caller]
    pub(crate) fn wait_for<T>(&self, what: &str, mut find: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Watching comes first: a change after the look is then reported.
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

    /// The same as [`Watched::wait_for`], for an asynchronous question whose answer depends on the contents
    /// of the folder.
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

    /// Waits for this many changes. Returns earlier if `otherwise` becomes readable: a process ends, or a
    /// pipe has data or ends.
    pub(crate) fn let_pass(&self, changes: usize, otherwise: impl AsFd) {
        let mut passed = 0;
        while passed < changes {
            if tells_first(&otherwise, &self.queue) {
                return;
            }
            passed += self.take(changes - passed);
        }
    }

    /// Watches a folder and all folders below it. Watching a folder twice has no effect.
    fn watch(&self, folder: &Path) {
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR;
        // A missing folder needs no watch: if it is created later, its parent reports that.
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

    /// Takes pending notifications, at most this many. Returns how many there were.
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

//! Makes system calls of a daemon fail as on a broken disk. The kernel asks the test about each call: calls
//! for paths that the test names get an error, all others are executed.

use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use libc::{SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND, seccomp_notif, seccomp_notif_resp};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::home::{Daemon, Home};
use crate::support::App;
use crate::test_programs;

/// Calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Open,
    Read,
    List,
    Write,
    Sync,
}

impl Call {
    const fn numbers(self) -> &'static [libc::c_long] {
        match self {
            Self::Open => &[libc::SYS_openat],
            Self::Read => &[libc::SYS_read, libc::SYS_pread64],
            Self::List => &[libc::SYS_getdents64],
            Self::Write => &[libc::SYS_write, libc::SYS_pwrite64],
            Self::Sync => &[libc::SYS_fsync, libc::SYS_fdatasync],
        }
    }
}

struct Rule {
    process: Option<u32>,
    call: Call,
    below: PathBuf,
    /// `None` lets the call succeed.
    errno: Option<Errno>,
    /// How often the rule still applies.
    left: usize,
    used: usize,
}

/// The answered system calls of a home's daemons and their agents. All calls succeed until the test makes one
/// fail.
pub(crate) struct Calls<'a> {
    home: &'a Home,
    calls: Vec<Call>,
    rules: Arc<Mutex<Vec<Rule>>>,
}

impl<'a> Calls<'a> {
    pub(crate) fn of(home: &'a Home, calls: &[Call]) -> Self {
        Self {
            home,
            calls: calls.to_owned(),
            rules: Arc::default(),
        }
    }

    /// Starts a daemon whose system calls this answers.
    pub(crate) fn start(&self) -> Daemon<'a> {
        self.home.start_command(self.command(), &[])
    }

    /// Starts such a daemon and connects to it.
    pub(crate) async fn opened(&self) -> (Daemon<'a>, App) {
        let daemon = self.start();
        let app = daemon.app().await;
        (daemon, app)
    }

    /// Returns the command of such a daemon, to be started once.
    pub(crate) fn command(&self) -> Command {
        let socket = self.home.path().join("calls.sock");
        let accepting = UnixListener::bind(&socket).unwrap();
        let numbers = self.calls.iter().flat_map(|call| call.numbers());
        let numbers: Vec<String> = numbers.map(ToString::to_string).collect();
        let inner = self.home.command();
        let mut command = Command::new(test_programs::path());
        command
            .env_clear()
            .envs(inner.get_envs().map(|(name, value)| (name, value.unwrap())))
            .current_dir(inner.get_current_dir().unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .arg("answered-calls")
            .arg(&socket)
            .arg(numbers.join(","))
            .arg(inner.get_program());
        let (calls, rules) = (self.calls.clone(), Arc::clone(&self.rules));
        std::thread::spawn(move || {
            let listener = receive(&accepting);
            fs::remove_file(socket).unwrap();
            answer(&listener, &calls, &rules);
        });
        command
    }

    /// Makes a call fail this many times for everything below this path, or until [`Self::succeed`].
    pub(crate) fn fail(&self, call: Call, below: &Path, errno: Errno, times: usize) {
        self.fail_in(None, call, below, errno, times);
    }

    /// The same as [`Self::fail`], but if `process` is given, only for calls of that process.
    pub(crate) fn fail_in(&self, process: Option<u32>, call: Call, below: &Path, errno: Errno, times: usize) {
        self.answer_with(process, call, below, Some(errno), times);
    }

    /// Lets a call succeed this many times before any rule that is added later applies.
    pub(crate) fn pass(&self, call: Call, below: &Path, times: usize) {
        self.answer_with(None, call, below, None, times);
    }

    fn answer_with(
        &self,
        process: Option<u32>,
        call: Call,
        below: &Path,
        errno: Option<Errno>,
        times: usize,
    ) {
        assert!(
            self.calls.contains(&call),
            "{call:?} is not among the intercepted calls"
        );
        self.rules.lock().unwrap().push(Rule {
            process,
            call,
            below: below.to_owned(),
            errno,
            left: times,
            used: 0,
        });
    }

    /// Makes all calls succeed again. Returns how many have failed.
    pub(crate) fn succeed(&self) -> usize {
        self.rules.lock().unwrap().drain(..).map(|rule| rule.used).sum()
    }
}

/// Receives the listener that the daemon's process sends before it becomes the daemon.
fn receive(accepting: &UnixListener) -> OwnedFd {
    let (socket, _) = accepting.accept().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut messages = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    recvmsg(&socket, &mut bytes, &mut messages, RecvFlags::CMSG_CLOEXEC).unwrap();
    let descriptors = messages.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    descriptors.flatten().next().expect("a listener")
}

/// Answers calls until no process with the filter is left.
fn answer(listener: &OwnedFd, calls: &[Call], rules: &Mutex<Vec<Rule>>) {
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(Errno::INTR) => continue,
            result => result.unwrap(),
        };
        if !ready[0].revents().contains(PollFlags::IN) {
            return;
        }
        // There is no request if the caller was killed or interrupted meanwhile.
        let Some(asked) = next(listener) else { continue };
        let number = libc::c_long::from(asked.data.nr);
        let call = calls.iter().find(|call| call.numbers().contains(&number));
        let path = call.and_then(|call| path_of(*call, &asked));
        let mut rules = rules.lock().unwrap();
        let rule = rules.iter_mut().find(|rule| {
            let is_below = path.as_ref().is_some_and(|path| path.starts_with(&rule.below));
            let is_asked = rule.left > 0 && Some(&rule.call) == call && is_below;
            // A thread belongs to the process that lists it under `task`.
            let is_in = |process| Path::new(&format!("/proc/{process}/task/{}", asked.pid)).exists();
            is_asked && rule.process.is_none_or(is_in)
        });
        let errno = rule.as_ref().and_then(|rule| rule.errno);
        // If the call was interrupted, it is made again and asked again, so the rule is not used up.
        if send(listener, asked.id, errno)
            && let Some(rule) = rule
        {
            rule.left -= 1;
            rule.used += usize::from(rule.errno.is_some());
        }
    }
}

/// The path that a call refers to, or `None` if the caller has ended.
fn path_of(call: Call, asked: &seccomp_notif) -> Option<PathBuf> {
    let process = PathBuf::from(format!("/proc/{}", asked.pid));
    // The kernel uses only the lower half too.
    let opened = |descriptor: u64| match descriptor as i32 {
        libc::AT_FDCWD => fs::read_link(process.join("cwd")),
        descriptor => fs::read_link(process.join(format!("fd/{descriptor}"))),
    };
    if call != Call::Open {
        return opened(asked.data.args[0]).ok();
    }
    let mut bytes = vec![0; libc::PATH_MAX as usize];
    let memory = fs::File::open(process.join("mem")).ok()?;
    let read = memory.read_at(&mut bytes, asked.data.args[1]).ok()?;
    let end = bytes[..read].iter().position(|byte| *byte == 0)?;
    let path = String::from_utf8(bytes[..end].to_vec()).ok()?;
    Some(opened(asked.data.args[0]).unwrap_or_default().join(path))
}

#[allow(unsafe_code, reason = "no crate of this package makes these calls")]
fn next(listener: &OwnedFd) -> Option<seccomp_notif> {
    // SAFETY: the structure consists of integers, for which 0 is valid; the kernel requires it zeroed and
    // fills it in.
    unsafe {
        let mut asked: seccomp_notif = std::mem::zeroed();
        let got = libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked);
        (got == 0).then_some(asked)
    }
}

/// Sends the answer: an error, or `None` to let the kernel execute the call. Returns whether the caller
/// received it.
#[allow(unsafe_code, reason = "no crate of this package makes these calls")]
fn send(listener: &OwnedFd, id: u64, errno: Option<Errno>) -> bool {
    let mut answer = seccomp_notif_resp {
        id,
        val: 0,
        error: errno.map_or(0, |errno| -errno.raw_os_error()),
        flags: match errno {
            Some(_) => 0,
            None => libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        },
    };
    // SAFETY: the kernel reads the structure, which lives until the call returns.
    unsafe { libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) == 0 }
}

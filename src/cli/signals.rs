//! Ctrl-C, the signal that ends a process, and the end of its terminal.
//!
//! It owns whom Ctrl-C is for: the part of the command that began to wait for it last, else this process, which then ends with
//! the terminal as it was found. A thread of its own watches, because the command may be waiting for a line, a pager or an
//! editor.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc as std_mpsc};
use std::thread;

use crossterm::cursor::Show;
use crossterm::event::DisableBracketedPaste;
use crossterm::execute;
use crossterm::terminal::LeaveAlternateScreen;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;

use super::exit::Exit;

/// Whether the alternate screen of the terminal is shown.
pub(super) static IS_FULL_SCREEN: AtomicBool = AtomicBool::new(false);

/// Those who wait for Ctrl-C; the last one gets it.
static WAITING: Mutex<Vec<Arc<Notify>>> = Mutex::new(Vec::new());

/// The numbers of the signals.
const HANG_UP: u8 = 1;
const INTERRUPT: u8 = 2;
const TERMINATE: u8 = 15;

/// Ctrl-C, for who waits for it.
pub(super) struct Interrupts(Arc<Notify>);

impl Interrupts {
    /// From here on Ctrl-C is not for those who waited before.
    pub(super) fn listen() -> Self {
        watch();
        let own = Arc::new(Notify::new());
        waiting().push(Arc::clone(&own));
        Self(own)
    }

    /// The next Ctrl-C. None is lost if the future is dropped.
    pub(super) async fn next(&self) {
        self.0.notified().await;
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        waiting().retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

/// While this exists another program uses the terminal: Ctrl-C is for that program, and this process must outlive it.
pub(super) struct Lent {
    _interrupts: Interrupts,
}

impl Lent {
    /// Lends the terminal.
    pub(super) fn now() -> Self {
        Self {
            _interrupts: Interrupts::listen(),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // What was pressed until now was for the other program, also if it is handled only now.
        if let Some(requests) = watch() {
            let (handled, all_handled) = std_mpsc::channel();
            if requests.try_send(handled).is_ok() {
                // The other end is dropped: nothing is ever sent.
                let _ = all_handled.recv();
            }
        }
    }
}

/// Runs a program that uses the terminal, to its end.
///
/// # Errors
/// It cannot be started.
pub(super) fn run_at_terminal(command: &mut Command) -> io::Result<ExitStatus> {
    let _lent = Lent::now();
    command.status()
}

/// How many can wait. One program at a time has the terminal.
const REQUESTS: usize = 8;

/// Dropped once all signals have been handled that arrived before it was sent.
type Request = std_mpsc::Sender<()>;

/// Begins to watch, once for the whole process. From here on a signal or the end of the terminal ends this process with the
/// terminal as it is now. Its end is a signal too, but not where that is ignored, as after `nohup`: `crossterm` would read the end
/// of a closed terminal for ever.
pub(super) fn watch() -> Option<&'static mpsc::Sender<Request>> {
    static WATCH: OnceLock<Option<mpsc::Sender<Request>>> = OnceLock::new();
    let started = WATCH.get_or_init(|| {
        let started = start();
        if let Err(error) = &started {
            tracing::debug!(%error, "signals cannot be watched");
        }
        started.ok()
    });
    started.as_ref()
}

fn start() -> io::Result<mpsc::Sender<Request>> {
    let found = Found::now();
    let (to_watch, requests) = mpsc::channel(REQUESTS);
    let (ready, is_ready) = std_mpsc::channel();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let failed = runtime.and_then(|runtime| runtime.block_on(handle(found, requests, &ready)));
        // Nobody waits for it any more if it worked at first.
        let _ = ready.send(failed);
    })?;
    is_ready.recv().map_err(io::Error::other)??;
    Ok(to_watch)
}

/// Handles signals until this process ends.
async fn handle(
    found: Option<Found>,
    mut requests: mpsc::Receiver<Request>,
    ready: &std_mpsc::Sender<io::Result<()>>,
) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let terminal = found.as_ref().map(|found| found.terminal.try_clone());
    let mut hung_up = std::pin::pin!(hung_up(terminal.transpose()?));
    // Nobody waits for it any more if this takes longer than the command.
    let _ = ready.send(Ok(()));
    loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => end(TERMINATE, found.as_ref()),
            _ = interrupt.recv() => match waiting().last() {
                Some(last) => last.notify_one(),
                None => end(INTERRUPT, found.as_ref()),
            },
            Some(request) = requests.recv() => drop(request),
            () = &mut hung_up => end(HANG_UP, found.as_ref()),
        }
    }
}

fn waiting() -> MutexGuard<'static, Vec<Arc<Notify>>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(
    clippy::exit,
    reason = "the main thread may be waiting for a line, a pager or an editor, and never return"
)]
fn end(signal: u8, found: Option<&Found>) -> ! {
    if let Some(found) = found {
        found.restore();
    }
    std::process::exit(Exit::Stopped(signal).code().into())
}

/// The terminal as it was found.
struct Found {
    terminal: OwnedFd,
    modes: Termios,
}

impl Found {
    /// As it is now; nothing if this process has none.
    fn now() -> Option<Self> {
        let terminal = terminal().ok()?;
        let modes = tcgetattr(&terminal).ok()?;
        Some(Self { terminal, modes })
    }

    fn restore(&self) {
        // In the background its modes are those of another program, and setting them would stop this process.
        let is_own = tcgetpgrp(&self.terminal).is_ok_and(|foreground| foreground == getpgrp());
        let is_changed = tcgetattr(&self.terminal).is_ok_and(|now| now.local_modes != self.modes.local_modes);
        if !(is_own && is_changed) {
            return;
        }
        let mut restored = execute!(io::stderr(), DisableBracketedPaste, Show);
        if IS_FULL_SCREEN.load(Ordering::Relaxed) {
            restored = restored.and(execute!(io::stderr(), LeaveAlternateScreen));
        }
        let restored = restored
            .and(tcsetattr(&self.terminal, OptionalActions::Now, &self.modes).map_err(io::Error::from));
        if let Err(error) = restored {
            tracing::debug!(%error, "the terminal could not be restored");
        }
    }
}

/// Waits until nobody holds the other end of the terminal any more.
async fn hung_up(terminal: Option<OwnedFd>) {
    let watched = terminal.map(|terminal| spawn_blocking(move || has_hung_up(&terminal)));
    let has_hung_up = match watched {
        Some(watched) => watched.await.unwrap_or(false),
        None => false,
    };
    if !has_hung_up {
        std::future::pending::<()>().await;
    }
}

/// Waits for the end of the terminal; false on a system that does not report it of terminals.
fn has_hung_up(terminal: &OwnedFd) -> bool {
    loop {
        // The system reports a hang-up without any flag.
        let mut watched = [PollFd::new(terminal, PollFlags::empty())];
        match poll(&mut watched, None) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
            Err(_) => return false,
        }
    }
}

/// The terminal that `crossterm` reads: standard input, or the controlling terminal if that is something else.
pub(super) fn terminal() -> io::Result<OwnedFd> {
    let input = io::stdin();
    if input.is_terminal() {
        return input.as_fd().try_clone_to_owned();
    }
    Ok(File::open("/dev/tty")?.into())
}

//! Handles Ctrl-C, signals that end the process, and the hang-up of its terminal.
//!
//! It decides who receives Ctrl-C: the newest listener, or if there is none, this process, which restores the terminal and
//! exits. A separate thread watches for signals, because the command may be waiting for a line, a pager or an editor.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc as std_mpsc};
use std::thread;
use std::time::Duration;

use crossterm::cursor::Show;
use crossterm::event::DisableBracketedPaste;
use crossterm::execute;
use crossterm::terminal::{LeaveAlternateScreen, is_raw_mode_enabled};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{getpgrp, kill_current_process_group};
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;

use super::problem::Exit;
use super::{lock, log_error};

/// Whether the alternate screen of the terminal is shown.
pub(super) static IS_FULL_SCREEN: AtomicBool = AtomicBool::new(false);

/// Listeners for Ctrl-C; the newest receives it.
static CTRL_C_LISTENERS: Mutex<Vec<Arc<Notify>>> = Mutex::new(Vec::new());

/// Wakes the command when this process continues after Ctrl-Z.
static CONTINUED: Notify = Notify::const_new();

/// Waits until this process continues after Ctrl-Z. None is lost if the future is dropped.
pub(super) async fn continued() {
    CONTINUED.notified().await;
}

/// Numbers of signals.
const HANG_UP: u8 = 1;
const INTERRUPT: u8 = 2;
const TERMINATE: u8 = 15;

/// Receives Ctrl-C until it is dropped.
pub(super) struct CtrlCListener(Arc<Notify>);

impl CtrlCListener {
    /// Starts to receive Ctrl-C in place of earlier listeners.
    pub(super) fn listen() -> Self {
        start_signal_watcher();
        let own = Arc::new(Notify::new());
        lock(&CTRL_C_LISTENERS).push(Arc::clone(&own));
        Self(own)
    }

    /// Waits for the next Ctrl-C. None is lost if the future is dropped.
    pub(super) async fn next_signal(&self) {
        self.0.notified().await;
    }
}

impl Drop for CtrlCListener {
    fn drop(&mut self) {
        lock(&CTRL_C_LISTENERS).retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

/// A guard for changed modes of the terminal. Dropping it sets the earlier ones again.
pub(super) struct TerminalModes {
    terminal: OwnedFd,
    before: Termios,
    /// What [`CHANGED_MODES`] was before.
    outer: Option<Termios>,
}

/// The modes that this process needs, which a shell changes while the process is stopped.
static CHANGED_MODES: Mutex<Option<Termios>> = Mutex::new(None);

/// Sets the modes again that a shell changed while this process was stopped. In the background they belong to another program.
fn set_modes_again() -> io::Result<()> {
    let terminal = open_terminal()?;
    // Locked until the modes are set, so that they cannot replace the ones that a guard restores meanwhile.
    let changed = lock(&CHANGED_MODES);
    let modes = match is_raw_mode_enabled()? {
        // A line editor or the picker reads keys; `crossterm` has set the modes.
        true => {
            let mut raw = tcgetattr(&terminal)?;
            raw.make_raw();
            Some(raw)
        }
        false => changed.clone(),
    };
    match modes {
        Some(modes) if tcgetpgrp(&terminal)? == getpgrp() => {
            Ok(tcsetattr(&terminal, OptionalActions::Now, &modes)?)
        }
        _ => Ok(()),
    }
}

impl TerminalModes {
    /// Changes the modes.
    ///
    /// # Errors
    /// There is no terminal, or its modes cannot be changed.
    pub(super) fn change(change: impl FnOnce(&mut Termios)) -> io::Result<Self> {
        let terminal = open_terminal()?;
        let before = tcgetattr(&terminal)?;
        let mut modes = before.clone();
        change(&mut modes);
        tcsetattr(&terminal, OptionalActions::Now, &modes)?;
        let outer = lock(&CHANGED_MODES).replace(modes);
        Ok(Self {
            terminal,
            before,
            outer,
        })
    }
}

impl Drop for TerminalModes {
    fn drop(&mut self) {
        let mut changed = lock(&CHANGED_MODES);
        *changed = self.outer.take();
        let restored = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
        log_error("the mode of the terminal cannot be set back", restored);
    }
}

/// Turns off the terminal's echo and line buffering. Typed text is passed on character by character, because a line editor reads
/// only the first of several lines that it gets at once. Ctrl-C stays a signal, and discards nothing.
pub(super) fn turn_echo_off() -> io::Result<TerminalModes> {
    TerminalModes::change(|modes| {
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        modes.local_modes.insert(LocalModes::NOFLSH);
        modes.input_modes.remove(InputModes::ICRNL);
    })
}

/// Whether typed keys reach this process without an echo, as after [`turn_echo_off`].
pub(super) fn is_echo_off() -> bool {
    let modes = LocalModes::ICANON | LocalModes::ECHO;
    lock(&CHANGED_MODES)
        .as_ref()
        .is_some_and(|changed| !changed.local_modes.intersects(modes))
}

/// The modes of the terminal before this process changed them, for other programs that use it meanwhile.
static ORIGINAL_MODES: OnceLock<Termios> = OnceLock::new();

/// A guard that hands the terminal to another program: Ctrl-C is for that program, and must not end this process.
pub(super) struct TerminalHandover {
    _interrupts: CtrlCListener,
    /// The modes for other programs; `None` without a terminal.
    modes: Option<TerminalModes>,
}

impl TerminalHandover {
    /// Begins the handover.
    pub(super) fn begin() -> Self {
        let interrupts = CtrlCListener::listen();
        let modes = ORIGINAL_MODES.get();
        let modes = modes.and_then(|modes| TerminalModes::change(|own| own.clone_from(modes)).ok());
        // The other program sets its own modes again.
        lock(&CHANGED_MODES).take();
        Self {
            _interrupts: interrupts,
            modes,
        }
    }
}

impl Drop for TerminalHandover {
    fn drop(&mut self) {
        drop(self.modes.take());
        // Wait until all earlier signals are handled: a Ctrl-C that arrived until now was for the other program.
        if let Some(requests) = barrier_sender() {
            let (handled, all_handled) = std_mpsc::channel();
            if requests.try_send(handled).is_ok() {
                // Returns when the sender is dropped: nothing is ever sent.
                let _ = all_handled.recv();
            }
        }
    }
}

/// Runs a program that uses the terminal, and waits until it ends.
///
/// # Errors
/// The program cannot be started.
pub(super) fn run_at_terminal(command: &mut Command) -> io::Result<ExitStatus> {
    let _lent = TerminalHandover::begin();
    command.status()
}

/// Suspends this process and the others of its job, as the terminal does at Ctrl-Z. Returns when it continues.
///
/// # Errors
/// The signal cannot be sent.
pub(super) fn suspend() -> io::Result<()> {
    let _lent = TerminalHandover::begin();
    Ok(kill_current_process_group(rustix::process::Signal::TSTP)?)
}

/// How long the screen may take to be restored when a signal ends this process.
const RESET_LIMIT: Duration = Duration::from_millis(500);

/// How many barriers can be queued: only one program at a time has the terminal.
const MAX_QUEUED_BARRIERS: usize = 1;

/// A barrier: dropped after all signals that arrived before it was sent have been handled.
type SignalBarrier = std_mpsc::Sender<()>;

/// Starts to watch for signals, once per process. From here on a signal or the hang-up of the terminal restores the terminal to
/// its current state and ends this process. A signal that was ignored stays ignored, as in a background job of a script. The
/// hang-up is watched too: if its signal is ignored, `crossterm` would endlessly read from the closed terminal.
pub(super) fn start_signal_watcher() {
    barrier_sender();
}

/// The channel to the watching thread, which the first call starts.
fn barrier_sender() -> Option<&'static mpsc::Sender<SignalBarrier>> {
    static WATCH: OnceLock<Option<mpsc::Sender<SignalBarrier>>> = OnceLock::new();
    let started = WATCH.get_or_init(|| {
        let started = spawn_watcher_thread();
        if let Err(error) = &started {
            tracing::debug!(%error, "signals cannot be watched");
        }
        started.ok()
    });
    started.as_ref()
}

fn spawn_watcher_thread() -> io::Result<mpsc::Sender<SignalBarrier>> {
    let saved = SavedTerminal::save();
    let (to_watch, requests) = mpsc::channel(MAX_QUEUED_BARRIERS);
    let (ready, is_ready) = std_mpsc::channel();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let failed = runtime.and_then(|runtime| runtime.block_on(handle_signals(saved, requests, &ready)));
        // The receiver is dropped if the start succeeded.
        let _ = ready.send(failed);
    })?;
    is_ready.recv().map_err(io::Error::other)??;
    Ok(to_watch)
}

/// Handles signals until this process ends.
async fn handle_signals(
    saved: Option<SavedTerminal>,
    mut requests: mpsc::Receiver<SignalBarrier>,
    ready: &std_mpsc::Sender<io::Result<()>>,
) -> io::Result<()> {
    // Read this before any signal is caught.
    let ignored = ignored_signals();
    let mut hang_up = catch_unless_ignored(HANG_UP, ignored)?;
    let mut interrupt = catch_unless_ignored(INTERRUPT, ignored)?;
    let mut terminate = catch_unless_ignored(TERMINATE, ignored)?;
    let mut continues = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
    // A process that does not read keys may continue after its terminal has hung up.
    let outlives = contains_signal(ignored, HANG_UP) && !io::stderr().is_terminal();
    let terminal = saved.as_ref().filter(|_| !outlives);
    let terminal = terminal.map(|saved| saved.terminal.try_clone());
    let mut hung_up = std::pin::pin!(wait_for_hang_up(terminal.transpose()?));
    // The receiver is dropped if the command ended meanwhile.
    let _ = ready.send(Ok(()));
    loop {
        tokio::select! {
            biased;
            () = next(&mut terminate) => exit_on_signal(TERMINATE, saved.as_ref()),
            () = next(&mut hang_up) => exit_on_signal(HANG_UP, saved.as_ref()),
            () = next(&mut interrupt) => match lock(&CTRL_C_LISTENERS).last() {
                Some(last) => last.notify_one(),
                None => exit_on_signal(INTERRUPT, saved.as_ref()),
            },
            Some(()) = continues.recv() => {
                log_error("the mode of the terminal cannot be set again", set_modes_again());
                CONTINUED.notify_one();
            }
            Some(request) = requests.recv() => drop(request),
            () = &mut hung_up => exit_on_signal(HANG_UP, saved.as_ref()),
        }
    }
}

/// The signals that this process inherited as ignored, as a bit mask; 0 on a system that does not report them.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or_default()
}

fn contains_signal(signals: u64, number: u8) -> bool {
    signals & (1 << (number - 1)) != 0
}

/// Catches a signal, unless it is ignored.
fn catch_unless_ignored(number: u8, ignored: u64) -> io::Result<Option<Signal>> {
    let kind = SignalKind::from_raw(number.into());
    (!contains_signal(ignored, number))
        .then(|| signal(kind))
        .transpose()
}

/// Waits for the next signal of this kind; never resolves for an ignored signal.
async fn next(caught: &mut Option<Signal>) {
    match caught {
        Some(caught) => drop(caught.recv().await),
        None => std::future::pending().await,
    }
}

/// Catches the signals that end a process, so that the caller can clean up first. The future resolves with the number of the
/// first signal.
pub(super) fn termination_signal() -> io::Result<impl Future<Output = u8>> {
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = hang_up.recv() => HANG_UP,
            _ = interrupt.recv() => INTERRUPT,
            _ = terminate.recv() => TERMINATE,
        }
    })
}

#[expect(
    clippy::exit,
    reason = "the main thread may be waiting for a line, a pager or an editor, and never return"
)]
fn exit_on_signal(signal: u8, saved: Option<&SavedTerminal>) -> ! {
    if let Some(saved) = saved {
        saved.restore();
    }
    std::process::exit(Exit::Signal(signal).code().into())
}

/// The terminal and its modes before this process changed them.
struct SavedTerminal {
    terminal: OwnedFd,
    modes: Termios,
}

impl SavedTerminal {
    /// Saves the current modes. Returns `None` if this process has no terminal.
    fn save() -> Option<Self> {
        let terminal = open_terminal().ok()?;
        let modes = tcgetattr(&terminal).ok()?;
        let modes = ORIGINAL_MODES.get_or_init(|| modes).clone();
        Some(Self { terminal, modes })
    }

    fn restore(&self) {
        // In the background the modes belong to another program, and setting them would stop this process.
        let is_own = tcgetpgrp(&self.terminal).is_ok_and(|foreground| foreground == getpgrp());
        let is_changed = tcgetattr(&self.terminal).is_ok_and(|now| now.local_modes != self.modes.local_modes);
        if !(is_own && is_changed) {
            return;
        }
        let restored = tcsetattr(&self.terminal, OptionalActions::Now, &self.modes);
        log_error("the terminal could not be restored", restored);
        // A terminal that does not accept output, as after Ctrl-S, must not delay the exit.
        let (written, is_written) = std_mpsc::channel();
        thread::spawn(move || {
            let mut stderr = io::stderr().lock();
            let mut reset = execute!(stderr, DisableBracketedPaste, Show);
            if IS_FULL_SCREEN.load(Ordering::Relaxed) {
                reset = reset.and(execute!(stderr, LeaveAlternateScreen));
            }
            if reset.is_ok() {
                // Locked until this process ends, so that nothing is drawn on the restored screen.
                let _held_to_the_end = std::mem::ManuallyDrop::new(stderr);
            }
            // The receiver is dropped if this took too long.
            let _ = written.send(reset);
        });
        if let Ok(written) = is_written.recv_timeout(RESET_LIMIT) {
            log_error("the screen could not be restored", written);
        }
    }
}

/// Waits until the terminal hangs up.
async fn wait_for_hang_up(terminal: Option<OwnedFd>) {
    let watched = terminal.map(|terminal| spawn_blocking(move || poll_for_hang_up(&terminal)));
    let has_hung_up = match watched {
        Some(watched) => watched.await.unwrap_or(false),
        None => false,
    };
    if !has_hung_up {
        std::future::pending::<()>().await;
    }
}

/// Blocks until the terminal hangs up. Returns false on a system that does not report this for terminals.
fn poll_for_hang_up(terminal: &OwnedFd) -> bool {
    loop {
        // The system reports a hang-up even if no flag is requested.
        let mut watched = [PollFd::new(terminal, PollFlags::empty())];
        match poll(&mut watched, None) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
            Err(_) => return false,
        }
    }
}

/// The terminal that `crossterm` reads: standard input, or the controlling terminal if that is something else.
pub(super) fn open_terminal() -> io::Result<OwnedFd> {
    let input = io::stdin();
    if input.is_terminal() {
        return input.as_fd().try_clone_to_owned();
    }
    Ok(File::open("/dev/tty")?.into())
}

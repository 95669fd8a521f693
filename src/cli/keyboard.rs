//! Reads what the user types at the terminal, and ends this process with it.
//!
//! `crossterm` has a stream of events. Dropping that stream leaves a wake-up behind if no key was awaited, and the next reader,
//! such as the line editor of `chat`, takes the wake-up for a terminal that does not answer.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::exit::Exit;

/// The number of the signal that a process gets when its terminal is closed.
const HANG_UP: u8 = 1;

/// How long one wait for a key lasts. A resize is noticed after it at the latest, and so is that nobody waits any more.
const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// The next event of the terminal. No event is lost if the future is dropped.
///
/// # Errors
/// The terminal cannot be read.
pub(super) async fn next_event() -> io::Result<Event> {
    loop {
        // It may have read several events at once.
        if event::poll(Duration::ZERO)? {
            return event::read();
        }
        is_typed().await?;
    }
}

/// Waits a moment for something to be typed. Returns whether there is something to read, or the terminal has ended.
///
/// # Errors
/// The terminal cannot be watched.
pub(super) async fn is_typed() -> io::Result<bool> {
    let waited = tokio::task::spawn_blocking(|| {
        let terminal = terminal()?;
        match poll(&mut [PollFd::new(&terminal, PollFlags::IN)], Some(&WAIT)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    });
    waited.await.map_err(io::Error::other)?
}

/// Ends this process once its terminal is closed. The signal for that ends it too, but not where it is ignored, as after
/// `nohup`. `crossterm` would read the end of a closed terminal for ever, on the thread that would have to notice it.
pub(super) fn end_with_terminal() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let watching = terminal().and_then(|terminal| {
            thread::Builder::new()
                .name("terminal".to_owned())
                .spawn(move || exit_after(&terminal))
        });
        if let Err(error) = watching {
            tracing::debug!(%error, "the end of the terminal cannot be watched");
        }
    });
}

/// Waits until nobody holds the other end of the terminal any more, and ends the process.
#[expect(
    clippy::exit,
    reason = "there is no terminal to restore, and the thread that would return may never do so"
)]
fn exit_after(terminal: &OwnedFd) {
    loop {
        // The system reports a hang-up without any flag.
        let mut watched = [PollFd::new(terminal, PollFlags::empty())];
        match poll(&mut watched, None) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) if watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => {
                std::process::exit(Exit::Stopped(HANG_UP).code().into());
            }
            // Some systems do not tell it of terminals.
            Ok(_) | Err(_) => return,
        }
    }
}

/// The terminal that `crossterm` reads: standard input, or the controlling terminal if that is something else.
fn terminal() -> io::Result<OwnedFd> {
    let input = io::stdin();
    if input.is_terminal() {
        return input.as_fd().try_clone_to_owned();
    }
    Ok(File::open("/dev/tty")?.into())
}

//! Reads what the user types at the terminal.
//!
//! `crossterm` has a stream for this. Dropping that stream leaves a wake-up behind if no key was awaited, and the next reader,
//! such as the line editor of `chat`, takes the wake-up for a terminal that does not answer.

use std::io;
use std::time::Duration;

use crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long one wait for a key lasts. A resize is noticed after it at the latest, and so is that nobody waits any more.
const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// The next event of the terminal, which is standard input. No event is lost if the future is dropped.
///
/// # Errors
/// The terminal cannot be read, or is gone.
pub(super) async fn next_event() -> io::Result<Event> {
    loop {
        // `crossterm` would read the end of a terminal that is gone for ever.
        if is_gone()? {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the terminal was closed",
            ));
        }
        // It may have read several events at once.
        if event::poll(Duration::ZERO)? {
            return event::read();
        }
        let waited = tokio::task::spawn_blocking(|| {
            let terminal = io::stdin();
            poll(&mut [PollFd::new(&terminal, PollFlags::IN)], Some(&WAIT))
        });
        match waited.await {
            Ok(Ok(_) | Err(rustix::io::Errno::INTR)) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// Whether nobody holds the other end of the terminal any more.
fn is_gone() -> io::Result<bool> {
    let terminal = io::stdin();
    let mut look = [PollFd::new(&terminal, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(&mut look, Some(&now)) {
        Ok(_) => Ok(look[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)),
        // By a signal; the next look tells.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

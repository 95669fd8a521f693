//! Reads what the user types at the terminal.
//!
//! `crossterm` has a stream of events. Dropping that stream leaves a wake-up behind if no key was awaited, and the next reader,
//! such as the line editor of `chat`, takes the wake-up for a terminal that does not answer.

use std::io;
use std::time::Duration;

use crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::signals::terminal;

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

//! Reads what the user types at the terminal.
//!
//! The event stream of `crossterm` is not used. If it is dropped while it waits for a key, it leaves a wake-up behind, which
//! makes the next reader, such as the line editor of `chat`, conclude that the terminal does not answer.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lock;
use super::signals::open_terminal;

/// Keys typed before a question was asked. They are not an answer to it, but the beginning of the next line.
static BUFFERED_EVENTS: Mutex<VecDeque<Event>> = Mutex::new(VecDeque::new());

/// How long one wait for a key lasts. After it at the latest, a resize or the end of the caller's wait is noticed.
const INPUT_POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// Waits for the next event of the terminal. No event is lost if the future is dropped.
///
/// # Errors
/// The terminal cannot be read.
pub(super) async fn next_event() -> io::Result<Event> {
    loop {
        // `crossterm` may have read several events at once.
        if let Some(event) = poll_event()? {
            return Ok(event);
        }
        wait_for_input().await?;
    }
}

/// Waits up to [`INPUT_POLL_INTERVAL`] for input. Returns whether there is something to read or the terminal has hung up.
///
/// # Errors
/// The terminal cannot be watched.
pub(super) async fn wait_for_input() -> io::Result<bool> {
    let waited = tokio::task::spawn_blocking(|| {
        let terminal = open_terminal()?;
        match poll(
            &mut [PollFd::new(&terminal, PollFlags::IN)],
            Some(&INPUT_POLL_INTERVAL),
        ) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    });
    waited.await.map_err(io::Error::other)?
}

/// The next pending event, if there is one. Does not wait.
///
/// # Errors
/// The terminal cannot be read.
pub(super) fn poll_event() -> io::Result<Option<Event>> {
    match event::poll(Duration::ZERO)? {
        true => event::read().map(Some),
        false => Ok(None),
    }
}

/// Buffers what was typed until now for the next line.
///
/// # Errors
/// The terminal cannot be read.
pub(super) fn buffer_typed_events() -> io::Result<()> {
    while let Some(event) = poll_event()? {
        lock(&BUFFERED_EVENTS).push_back(event);
    }
    Ok(())
}

/// Removes and returns the next buffered event.
pub(super) fn next_buffered_event() -> Option<Event> {
    lock(&BUFFERED_EVENTS).pop_front()
}

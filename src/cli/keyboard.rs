//! Reads what the user types at the terminal.
//!
//! `crossterm` has a stream for this. Dropping that stream leaves a wake-up behind if no key was awaited, and the next reader,
//! such as the line editor of `chat`, takes the wake-up for a terminal that does not answer. So the terminal is looked at in
//! short intervals.

use std::io;
use std::time::Duration;

use crossterm::event::{self, Event};

/// How often the terminal is looked at: shorter than a user notices.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The next event of the terminal. No event is lost if the future is dropped.
///
/// # Errors
/// The terminal cannot be read.
pub(super) async fn next_event() -> io::Result<Event> {
    while !event::poll(Duration::ZERO)? {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    event::read()
}

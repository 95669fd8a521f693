//! Reads what the user types at the terminal.
//!
//! The event stream of `crossterm` is not used. If it is dropped while it waits for a key, it leaves a wake-up behind, which
//! makes the next reader, such as the line editor of `chat`, conclude that the terminal does not answer.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lock;
use super::signals::open_terminal;

/// What was typed while no line was read. It becomes the next lines, and never answers a question.
static TYPED_TEXT: Mutex<TypedText> = Mutex::new(TypedText {
    lines: VecDeque::new(),
    unfinished: String::new(),
});

struct TypedText {
    lines: VecDeque<(String, LineEnd)>,
    unfinished: String,
}

/// What ended a typed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnd {
    Enter,
    /// Ctrl-D on an empty line.
    CtrlD,
}

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

/// Waits until something was typed.
///
/// # Errors
/// The terminal cannot be watched.
pub(super) async fn wait_until_typed() -> io::Result<()> {
    while !wait_for_input().await? {}
    Ok(())
}

/// Buffers what was typed until now for the next lines, and returns the lines that are complete.
///
/// # Errors
/// The terminal cannot be read.
pub(super) fn buffer_typed_text() -> io::Result<Vec<String>> {
    let (mut typed, mut whole) = (lock(&TYPED_TEXT), Vec::new());
    while let Some(end) = read_line(&mut typed.unfinished)? {
        let line = std::mem::take(&mut typed.unfinished);
        whole.push(line.clone());
        typed.lines.push_back((line, end));
    }
    Ok(whole)
}

/// Removes and returns the next buffered line and what ended it, or the beginning of a line.
pub(super) fn next_buffered_line() -> (String, Option<LineEnd>) {
    let mut typed = lock(&TYPED_TEXT);
    match typed.lines.pop_front() {
        Some((line, end)) => (line, Some(end)),
        None => (std::mem::take(&mut typed.unfinished), None),
    }
}

/// Adds the pending keys to a line, up to the one that ends it. Later keys are not read.
///
/// # Errors
/// The terminal cannot be read.
pub(super) fn read_line(line: &mut String) -> io::Result<Option<LineEnd>> {
    while let Some(event) = poll_event()? {
        let key = match event {
            Event::Key(key) if key.is_press() => key,
            Event::Paste(pasted) => {
                line.push_str(&pasted);
                continue;
            }
            _ => continue,
        };
        match key.code {
            KeyCode::Enter if key.modifiers == KeyModifiers::ALT => line.push('\n'),
            KeyCode::Enter if line.ends_with('\\') => line.replace_range(line.len() - 1.., "\n"),
            KeyCode::Enter => return Ok(Some(LineEnd::Enter)),
            KeyCode::Char('d') if key.modifiers == KeyModifiers::CONTROL && line.is_empty() => {
                return Ok(Some(LineEnd::CtrlD));
            }
            KeyCode::Char('u') if key.modifiers == KeyModifiers::CONTROL => line.clear(),
            KeyCode::Backspace => drop(line.pop()),
            KeyCode::Tab => line.push('\t'),
            KeyCode::Char(letter) if KeyModifiers::SHIFT.contains(key.modifiers) => line.push(letter),
            _ => {}
        }
    }
    Ok(None)
}

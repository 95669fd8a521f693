//! A person at a terminal, who answers with single keys.
//!
//! It owns the mode of the terminal while a question is open: keys come one by one and are not shown, and Ctrl-C still is a
//! signal. It must not know what is asked.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::time::Duration;

use crossterm::event::{
    self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEventKind, KeyModifiers,
};
use crossterm::execute;
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};

use crate::cli::keyboard;

/// A person who sees standard error.
pub(super) struct Person {
    terminal: File,
    listening: Option<Listening>,
}

/// Keys are read while this exists.
struct Listening {
    /// A second handle of the terminal, to set its mode back.
    terminal: File,
    before: Termios,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Err(error) = execute!(io::stderr(), DisableBracketedPaste) {
            tracing::debug!(%error, "the terminal cannot be written to");
        }
        if let Err(error) = tcsetattr(&self.terminal, OptionalActions::Now, &self.before) {
            tracing::debug!(%error, "the mode of the terminal cannot be set back");
        }
    }
}

impl Person {
    /// The person at the controlling terminal; none if standard error is not a terminal.
    pub(super) fn find() -> Option<Self> {
        if !io::stderr().is_terminal() {
            return None;
        }
        match File::options().read(true).write(true).open("/dev/tty") {
            Ok(terminal) => Some(Self {
                terminal,
                listening: None,
            }),
            Err(error) => {
                tracing::debug!(%error, "no terminal to ask at");
                None
            }
        }
    }

    /// Listens for the answer to a question that is about to be shown. Keys that were typed until now were not meant for it and
    /// are dropped.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        if self.listening.is_none() {
            let before = tcgetattr(&self.terminal)?;
            let mut mode = before.clone();
            mode.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            let terminal = self.terminal.try_clone()?;
            tcsetattr(&self.terminal, OptionalActions::Now, &mode)?;
            self.listening = Some(Listening { terminal, before });
            // What is pasted is no row of keys.
            execute!(io::stderr(), EnableBracketedPaste)?;
        }
        tcflush(&self.terminal, QueueSelector::IFlush)?;
        while event::poll(Duration::ZERO)? {
            event::read()?;
        }
        Ok(())
    }

    /// Leaves the terminal to whoever reads it next.
    pub(super) fn rest(&mut self) {
        self.listening = None;
    }

    /// The next key without modifiers; nothing once the terminal is closed. Never ready while it does not listen. No key is lost
    /// when the future is dropped.
    pub(super) async fn key(&mut self) -> Option<char> {
        if self.listening.is_none() {
            return std::future::pending().await;
        }
        loop {
            match keyboard::next_event().await {
                Ok(Event::Key(key))
                    if key.kind == KeyEventKind::Press
                        && key.modifiers.difference(KeyModifiers::SHIFT).is_empty() =>
                {
                    if let KeyCode::Char(letter) = key.code {
                        return Some(letter);
                    }
                }
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}

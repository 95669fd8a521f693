//! Reads answers from the terminal, as single keys or as words.
//!
//! It owns the mode of the terminal while a question is open: keys are read one by one, and Ctrl-C still sends a signal. It
//! decides whether a letter is a key or part of a word. It must not know what is asked.

use std::fs::File;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyModifiers};
use crossterm::execute;
use rustix::termios::{LocalModes, Termios};
use tokio::time::Instant;
use unicode_width::UnicodeWidthChar as _;

use crate::cli::output::{is_dumb_terminal, one_line};
use crate::cli::signals::{self, TerminalModes};
use crate::cli::{keyboard, log_error};

/// How long to wait after a letter before it counts as a key. The next letter of a word follows sooner.
const KEY_PAUSE: Duration = Duration::from_millis(400);

/// The answer that Ctrl-D returns.
pub(super) const CTRL_D: &str = "\u{4}";

/// Reads the user's answers from the terminal that shows standard error.
pub(super) struct AnswerReader {
    /// The mode in which keys are read; `None` while no keys are read.
    modes: Option<TerminalModes>,
    /// The letters since the last answer.
    word: String,
    /// When the letter counts as a key if no other letter follows.
    key_counts_at: Instant,
}

impl Drop for AnswerReader {
    fn drop(&mut self) {
        self.release();
    }
}

impl AnswerReader {
    /// Opens the controlling terminal, whose hang-up ends this process. Returns `None` if standard error is not a terminal.
    pub(super) fn open() -> Option<Self> {
        if !io::stderr().is_terminal() {
            return None;
        }
        if let Err(error) = File::open("/dev/tty") {
            tracing::debug!(%error, "no terminal to ask at");
            return None;
        }
        signals::start_signal_watcher();
        Some(Self {
            modes: None,
            word: String::new(),
            key_counts_at: Instant::now(),
        })
    }

    /// Starts to read the answer to a question that is about to be shown. Keys that were typed before were not meant for it
    /// and are kept for the next line.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        if self.modes.is_none() {
            let keys = |modes: &mut Termios| modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            self.modes = Some(TerminalModes::change(keys)?);
            // Pasted text must not be read as keys.
            if !is_dumb_terminal() {
                execute!(io::stderr(), EnableBracketedPaste)?;
            }
        }
        keyboard::buffer_typed_text()?;
        self.word.clear();
        Ok(())
    }

    /// Restores the mode of the terminal for its next reader.
    pub(super) fn release(&mut self) {
        if self.modes.take().is_some() && !is_dumb_terminal() {
            let written = execute!(io::stderr(), DisableBracketedPaste);
            log_error("the terminal cannot be written to", written);
        }
    }

    /// Waits for a single key of `keys`, `?`, Ctrl-D, or a word followed by Enter, which is empty if nothing was typed. Returns
    /// `None` if the terminal cannot be read. A single letter that is not in `keys` is discarded. If there are no keys, the
    /// answer is a line: letters are not keys, and text can be pasted. Never resolves before [`listen`](Self::listen) is
    /// called. Nothing typed is lost when the future is dropped.
    pub(super) async fn read_answer(&mut self, keys: String) -> Option<String> {
        if self.modes.is_none() {
            return std::future::pending().await;
        }
        loop {
            let event = tokio::select! {
                biased;
                event = keyboard::next_event() => event.ok()?,
                () = tokio::time::sleep_until(self.key_counts_at), if !keys.is_empty() && is_one_letter(&self.word) => {
                    if keys.contains(&self.word) {
                        return Some(self.take_word());
                    }
                    self.delete_letter();
                    continue;
                }
            };
            if let (Event::Paste(text), true) = (&event, keys.is_empty()) {
                let text = one_line(text);
                self.word.push_str(&text);
                echo(&text);
            }
            let Some(key) = event.as_key_event() else {
                continue;
            };
            match key.code {
                KeyCode::Char('u') if key.modifiers == KeyModifiers::CONTROL => while self.delete_letter() {},
                KeyCode::Char('d') if key.modifiers == KeyModifiers::CONTROL => {
                    self.take_word();
                    return Some(CTRL_D.to_owned());
                }
                _ => {}
            }
            if !key.modifiers.difference(KeyModifiers::SHIFT).is_empty() {
                continue;
            }
            match key.code {
                KeyCode::Char('?') if self.word.is_empty() && !keys.is_empty() => {
                    return Some("?".to_owned());
                }
                KeyCode::Char(letter) => {
                    self.word.push(letter);
                    self.key_counts_at = Instant::now() + KEY_PAUSE;
                    echo(letter.encode_utf8(&mut [0; 4]));
                }
                KeyCode::Backspace => {
                    self.delete_letter();
                    self.key_counts_at = Instant::now() + KEY_PAUSE;
                }
                KeyCode::Enter if self.word.is_empty() => return Some(String::new()),
                KeyCode::Enter => return Some(self.take_word()),
                _ => {}
            }
        }
    }

    /// Deletes the last letter; returns whether there was one.
    fn delete_letter(&mut self) -> bool {
        let Some(letter) = self.word.pop() else {
            return false;
        };
        echo(&"\u{8} \u{8}".repeat(letter.width().unwrap_or(0)));
        true
    }

    fn take_word(&mut self) -> String {
        echo("\r\n");
        std::mem::take(&mut self.word)
    }
}

fn is_one_letter(word: &str) -> bool {
    word.chars().count() == 1
}

/// Echoes to the terminal without buffering. If that fails, the user types without an echo.
fn echo(text: &str) {
    let mut terminal = io::stderr();
    let written = terminal
        .write_all(text.as_bytes())
        .and_then(|()| terminal.flush());
    log_error("the terminal cannot be written to", written);
}

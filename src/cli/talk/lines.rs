//! The lines that are typed into a chat.
//!
//! It owns how a line is edited and continued, and the file of earlier lines. It must not know what a line means.

use std::borrow::Cow;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use reedline::{
    EditMode, Emacs, FileBackedHistory, Prompt, PromptEditMode, PromptHistorySearch, Reedline, Signal,
    ValidationResult, Validator, default_emacs_keybindings,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::commands::Context;
use crate::cli::exit::Exit;
use crate::cli::keyboard;
use crate::cli::output::Output;
use crate::cli::problem::{Outcome, Problem};
use crate::paths::ownership::NO_LINK;

/// Lines that are kept in the history file.
const HISTORY_LINES: usize = 1_000;

/// The history file, in the data folder.
const HISTORY_FILE: &str = "chat-history";

/// Reads lines at the terminal.
pub(super) struct Lines {
    /// None at a terminal at which lines cannot be edited.
    editor: Option<Reedline>,
    mark: Mark,
}

/// What was typed.
pub(super) enum Typed {
    /// One or more lines, and Enter.
    Text(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    End,
}

impl Lines {
    /// Nothing was typed yet. Earlier lines can be had again where their file can be used.
    pub(super) fn new(context: &mut Context<'_>) -> Outcome<Self> {
        let look = context.output.note_look;
        let editor = Reedline::create()
            .with_ansi_colors(look.coloured)
            .use_bracketed_paste(true)
            .with_validator(Box::new(Backslash))
            .with_history_exclusion_prefix(Some(" ".to_owned()))
            .with_edit_mode(Box::new(Emacs::new(default_emacs_keybindings())) as Box<dyn EditMode>);
        let file = context.reach.paths.data.join(HISTORY_FILE);
        let editor = match history(&file) {
            Ok(history) => editor.with_history(Box::new(history)),
            Err(error) => {
                context
                    .output
                    .aside(&format!("typed lines are not kept: {}: {error}", file.display()))?;
                editor
            }
        };
        Ok(Self {
            editor: Some(editor),
            mark: Mark(look.sign("› ", "> ")),
        })
    }

    /// What is typed next.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub(super) async fn next(&mut self, output: &mut Output) -> Outcome<Typed> {
        if let Some(editor) = &mut self.editor {
            match edited(editor, &self.mark) {
                // No other error has this kind.
                Err(error) if error.kind() == io::ErrorKind::Other => {
                    tracing::debug!(%error, "lines cannot be edited");
                    self.editor = None;
                    let what = "this terminal does not report its cursor position: lines cannot be edited or recalled";
                    output.warning("warning:", what)?;
                }
                typed => return typed.map_err(|error| unreadable(&error)),
            }
        }
        plain(&self.mark).await.map_err(|error| unreadable(&error))
    }
}

fn unreadable(error: &io::Error) -> Problem {
    Problem::new(Exit::Failed, format!("could not read the terminal: {error}"))
}

fn edited(editor: &mut Reedline, mark: &Mark) -> io::Result<Typed> {
    loop {
        match editor.read_line(mark)? {
            Signal::Success(text) => {
                if let Err(error) = editor.sync_history() {
                    tracing::debug!(%error, "the history cannot be written");
                }
                return Ok(Typed::Text(text.replace("\\\n", "\n")));
            }
            Signal::CtrlC => return Ok(Typed::Interrupt),
            Signal::CtrlD => return Ok(Typed::End),
            _ => {}
        }
    }
}

/// Lines as the terminal itself gives them.
async fn plain(mark: &Mark) -> io::Result<Typed> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let (mut text, mut shown) = (String::new(), mark.0);
    loop {
        io::stderr().write_all(shown.as_bytes())?;
        loop {
            tokio::select! {
                biased;
                _ = interrupts.recv() => {
                    io::stderr().write_all(b"\n")?;
                    return Ok(Typed::Interrupt);
                }
                is_typed = keyboard::is_typed() => if is_typed? { break },
            }
        }
        // The terminal gives whole lines: this does not wait.
        let count = io::stdin().lock().read_line(&mut text)?;
        if count == 0 && text.is_empty() {
            return Ok(Typed::End);
        }
        let whole = text.strip_suffix('\n').unwrap_or(&text);
        match whole.strip_suffix('\\') {
            Some(continued) if count > 0 => text = format!("{continued}\n"),
            _ => return Ok(Typed::Text(whole.to_owned())),
        }
        shown = NEXT_LINE;
    }
}

/// The typed lines of earlier chats, in a file that only its owner can read.
fn history(file: &Path) -> Result<FileBackedHistory, String> {
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(NO_LINK)
        .open(file);
    let own = opened.and_then(|opened| opened.set_permissions(Permissions::from_mode(0o600)));
    own.map_err(|error| error.to_string())?;
    FileBackedHistory::with_file(HISTORY_LINES, file.to_owned()).map_err(|error| error.to_string())
}

/// A line that ends with a backslash continues on the next one.
struct Backslash;

impl Validator for Backslash {
    fn validate(&self, line: &str) -> ValidationResult {
        match line.ends_with('\\') {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Complete,
        }
    }
}

/// What stands before the line.
struct Mark(&'static str);

/// The same before each further line of a text.
const NEXT_LINE: &str = "  ";

impl Prompt for Mark {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        self.0.into()
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        NEXT_LINE.into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        format!("search: {} ", search.term).into()
    }
}

//! The lines that are typed into a chat.
//!
//! It owns how a line is edited and continued, and the file of earlier lines. It must not know what a line means.

use std::borrow::Cow;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossterm::cursor::{MoveToColumn, MoveUp};
use crossterm::event::{Event, KeyCode, KeyModifiers};
use crossterm::terminal::{Clear, ClearType};
use crossterm::{execute, queue};
use reedline::{
    EditCommand, EditMode, Emacs, FileBackedHistory, Highlighter, Hinter, History, Prompt, PromptEditMode,
    PromptHistorySearch, Reedline, ReedlineEvent, Signal, SimpleMatchHighlighter, StyledText,
    ValidationResult, Validator, default_emacs_keybindings,
};
use tokio::task::spawn_blocking;
use unicode_width::UnicodeWidthStr as _;

use crate::cli::commands::Context;
use crate::cli::exit::Exit;
use crate::cli::keyboard;
use crate::cli::output::{DIM, Look, Output, one_line};
use crate::cli::problem::{CommandResult, Problem};
use crate::cli::signals::{CtrlCListener, NoEchoMode};
use crate::paths::ownership::NO_LINK;

/// Lines that are kept in the history file.
const HISTORY_LINES: usize = 1_000;

/// The history file, in the data folder.
const HISTORY_FILE: &str = "chat-history";

/// Reads lines at the terminal.
pub(super) struct LineReader {
    /// Nothing while it reads.
    editor: Option<Reedline>,
    file: PathBuf,
    look: Look,
    /// Whether the terminal reports where its cursor is, without which lines cannot be edited.
    reports_cursor: bool,
    continued: ContinuedTexts,
    /// The commands that a line may begin with. Tab completes them.
    commands: Commands,
    /// Whether the editor is to stop, for something that has to be shown.
    stop_requested: Arc<AtomicBool>,
    /// What was typed before it stopped.
    unfinished: String,
    /// Whether there is text on the line that is edited.
    is_typed: Arc<AtomicBool>,
    mark: PromptMark,
    /// What is typed while no line is read is the next line; nothing where the terminal gives whole lines.
    no_echo: Option<NoEchoMode>,
}

/// The texts so far at which Enter began a new line, because a backslash ends them.
type ContinuedTexts = Arc<Mutex<Vec<String>>>;

/// Commands with their slashes.
pub(super) type Commands = Arc<Mutex<Vec<String>>>;

/// What the user typed.
pub(super) enum LineInput {
    /// One or more lines, and Enter.
    Text(String),
    /// Ctrl-C.
    CtrlC,
    /// Ctrl-D.
    CtrlD,
    /// Nothing yet: there is something to show first.
    HasNews,
}

impl LineReader {
    /// An editor without text. It has the lines of earlier chats if their file can be used, and completes these commands.
    pub(super) fn new(context: &mut Context<'_>, commands: Commands) -> CommandResult<Self> {
        let look = context.output.note_look;
        let mut lines = Self {
            editor: None,
            file: context.connector.paths.data.join(HISTORY_FILE),
            look,
            reports_cursor: true,
            continued: ContinuedTexts::default(),
            commands,
            stop_requested: Arc::default(),
            unfinished: String::new(),
            is_typed: Arc::default(),
            mark: PromptMark(look.sign("› ", "> ")),
            no_echo: None,
        };
        lines.editor = Some(lines.editor(context.output)?);
        lines.no_echo = Some(NoEchoMode::enter().map_err(|error| unreadable(&error))?);
        Ok(lines)
    }

    fn editor(&self, output: &mut Output) -> CommandResult<Reedline> {
        let mut keys = default_emacs_keybindings();
        keys.add_binding(
            KeyModifiers::NONE,
            KeyCode::Tab,
            ReedlineEvent::HistoryHintComplete,
        );
        let hinter = Completion {
            commands: Arc::clone(&self.commands),
            rest: String::new(),
        };
        let editor = Reedline::create()
            .with_ansi_colors(self.look.coloured)
            .with_highlighter(Box::new(PlainHighlighter(Arc::clone(&self.is_typed))))
            .with_hinter(Box::new(hinter))
            .use_bracketed_paste(true)
            .with_validator(Box::new(BackslashContinuation(Arc::clone(&self.continued))))
            .with_break_signal(Arc::clone(&self.stop_requested))
            .with_history_exclusion_prefix(Some(" ".to_owned()))
            .with_edit_mode(Box::new(Emacs::new(keys)) as Box<dyn EditMode>);
        Ok(match open_history(&self.file) {
            Ok(history) => editor.with_history(Box::new(history)),
            Err(error) => {
                output.note_dim(&format!(
                    "cannot save the history: {}: {error}",
                    self.file.display()
                ))?;
                editor
            }
        })
    }

    /// What is typed next; nothing once there is something to show. What was typed by then is taken off the screen, and is there
    /// again with the next line.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub(super) async fn next_line(
        &mut self,
        output: &mut Output,
        has_news: impl Future<Output = ()>,
    ) -> CommandResult<LineInput> {
        let is_edited = self.reports_cursor;
        let (kept, is_line) = next_line_of_events(|| Ok(keyboard::next_buffered_event()))
            .map_err(|error| unreadable(&error))?;
        self.unfinished.push_str(&kept);
        if is_line {
            let text = std::mem::take(&mut self.unfinished);
            output.note(&format!("{}{}", self.mark.0, one_line(&text)))?;
            return Ok(LineInput::Text(text));
        }
        if let Some(mut editor) = self.editor.take_if(|_| is_edited) {
            let (mark, continued) = (self.mark, Arc::clone(&self.continued));
            let unfinished = std::mem::take(&mut self.unfinished);
            // The connection is served meanwhile.
            let mut editing = spawn_blocking(move || {
                editor.run_edit_commands(&[EditCommand::InsertString(unfinished)]);
                let typed = read_edited_line(&mut editor, mark, &continued);
                (editor, typed)
            });
            let edited = tokio::select! {
                biased;
                edited = &mut editing => edited,
                () = has_news => {
                    self.stop_requested.store(true, Ordering::Relaxed);
                    editing.await
                }
            };
            // A line may have ended just before.
            self.stop_requested.store(false, Ordering::Relaxed);
            let (editor, typed) = edited.map_err(|error| unreadable(&io::Error::other(error)))?;
            if let Ok(LineInput::HasNews) = typed {
                self.unfinished = editor.current_buffer_contents().to_owned();
                let before = &self.unfinished[..editor.current_insertion_point()];
                erase_line(before, self.look.columns.unwrap_or(80)).map_err(|error| unreadable(&error))?;
                // The same one would begin where its line was, over what is shown meanwhile.
                self.editor = Some(self.editor(output)?);
                return Ok(LineInput::HasNews);
            }
            self.editor = Some(editor);
            match typed {
                // It only takes back what was typed.
                Ok(LineInput::CtrlC) if self.is_typed.swap(false, Ordering::Relaxed) => {
                    return Ok(LineInput::Text(String::new()));
                }
                // Such as that the terminal does not report its cursor position.
                Err(error) if error.kind() == io::ErrorKind::Other => {
                    let why = one_line(&error.to_string());
                    output.warning(
                        "warning:",
                        &format!("lines cannot be edited or recalled here: {why}"),
                    )?;
                }
                typed => return typed.map_err(|error| unreadable(&error)),
            }
        }
        // A terminal without a line editor keeps what is typed itself.
        self.no_echo = None;
        let typed = read_plain_line(self.mark, is_edited).await;
        let (typed, has_reported) = typed.map_err(|error| unreadable(&error))?;
        // One that was only slow can be asked again.
        self.reports_cursor = has_reported;
        if has_reported {
            self.no_echo = NoEchoMode::enter().ok();
        }
        Ok(typed)
    }
}

/// Shows a line in the terminal's own colour, since that of the editor's default cannot be read on a light background. Knows whether
/// there is text on it.
struct PlainHighlighter(Arc<AtomicBool>);

impl Highlighter for PlainHighlighter {
    fn highlight(&self, line: &str, cursor: usize) -> StyledText {
        self.0.store(!line.is_empty(), Ordering::Relaxed);
        SimpleMatchHighlighter::default().highlight(line, cursor)
    }
}

/// Shows the rest of the command that is being typed, the first of those that begin so.
struct Completion {
    commands: Commands,
    rest: String,
}

impl Hinter for Completion {
    fn handle(&mut self, line: &str, at: usize, _: &dyn History, is_coloured: bool, _: &str) -> String {
        self.rest.clear();
        if line.starts_with('/') && at == line.len() {
            let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = commands.iter().find_map(|command| command.strip_prefix(line));
            self.rest.push_str(rest.unwrap_or_default());
        }
        // Without colours it would look like what was typed.
        match is_coloured && !self.rest.is_empty() {
            true => format!("{DIM}{}{DIM:#}", self.rest),
            false => String::new(),
        }
    }

    fn complete_hint(&self) -> String {
        self.rest.clone()
    }

    fn next_hint_token(&self) -> String {
        self.rest.clone()
    }
}

fn unreadable(error: &io::Error) -> Problem {
    Problem::new(Exit::Failed, format!("could not read the terminal: {error}"))
}

fn read_edited_line(
    editor: &mut Reedline,
    mark: PromptMark,
    continued: &ContinuedTexts,
) -> io::Result<LineInput> {
    loop {
        let signal = editor.read_line(&mark)?;
        if matches!(signal, Signal::CtrlC | Signal::CtrlD) {
            continued.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        match signal {
            Signal::Success(mut text) => {
                if let Err(error) = editor.sync_history() {
                    tracing::debug!(%error, "the history cannot be written");
                }
                // The last one first: each contains those before it. A backslash that was pasted stays.
                for line in continued
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .drain(..)
                    .rev()
                {
                    if text
                        .strip_prefix(&line)
                        .is_some_and(|rest| rest.starts_with('\n'))
                    {
                        text.remove(line.len() - 1);
                    }
                }
                return Ok(LineInput::Text(text));
            }
            Signal::CtrlC => return Ok(LineInput::CtrlC),
            Signal::CtrlD => return Ok(LineInput::CtrlD),
            Signal::ExternalBreak(_) => return Ok(LineInput::HasNews),
            _ => {}
        }
    }
}

/// Takes the line that is edited off the screen; `before` is its text before the cursor.
fn erase_line(before: &str, columns: usize) -> io::Result<()> {
    let rows = before
        .split('\n')
        .map(|line| (NEXT_LINE.width() + line.width()) / columns.max(1) + 1);
    let above = u16::try_from(rows.sum::<usize>() - 1).unwrap_or(u16::MAX);
    let mut terminal = io::stderr();
    if above > 0 {
        queue!(terminal, MoveUp(above))?;
    }
    execute!(terminal, MoveToColumn(0), Clear(ClearType::FromCursorDown))
}

/// Lines as the terminal itself gives them, and whether it has reported its cursor meanwhile.
/// `is_ahead` says whether the editor has just failed, and may have read what was typed.
async fn read_plain_line(mark: PromptMark, mut is_ahead: bool) -> io::Result<(LineInput, bool)> {
    let interrupts = CtrlCListener::listen();
    let (mut text, mut shown, mut has_reported) = (String::new(), mark.0, false);
    loop {
        io::stderr().write_all(shown.as_bytes())?;
        shown = NEXT_LINE;
        if is_ahead {
            let (more, is_line) = next_line_of_events(keyboard::poll_event)?;
            text.push_str(&more);
            is_ahead = is_line;
            let end = if is_line { "\n" } else { "" };
            io::stderr().write_all(format!("{more}{end}").as_bytes())?;
        }
        let whole = text.strip_suffix('\\').filter(|_| is_ahead);
        match whole {
            Some(continued) => {
                text = format!("{continued}\n");
                continue;
            }
            None if is_ahead => return Ok((LineInput::Text(text), has_reported)),
            None => {}
        }
        loop {
            tokio::select! {
                biased;
                () = interrupts.next_signal() => {
                    io::stderr().write_all(b"\n")?;
                    return Ok((LineInput::CtrlC, has_reported));
                }
                is_typed = keyboard::wait_for_input() => if is_typed? { break },
            }
        }
        // The terminal gives whole lines: this does not wait.
        let mut line = Vec::new();
        let count = io::stdin().lock().read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line);
        let own = strip_cursor_reports(&line);
        has_reported |= own != line;
        text.push_str(&own);
        if count == 0 && text.is_empty() {
            return Ok((LineInput::CtrlD, has_reported));
        }
        let whole = text.strip_suffix('\n').unwrap_or(&text);
        match whole.strip_suffix('\\') {
            Some(continued) if count > 0 => text = format!("{continued}\n"),
            _ => return Ok((LineInput::Text(whole.to_owned()), has_reported)),
        }
    }
}

/// The text of the next line among events, and whether Enter ended it. What was typed after that is left.
fn next_line_of_events(mut next: impl FnMut() -> io::Result<Option<Event>>) -> io::Result<(String, bool)> {
    let mut text = String::new();
    while let Some(event) = next()? {
        let key = match event {
            Event::Key(key) if key.is_press() => key,
            Event::Paste(pasted) => {
                text.push_str(&pasted);
                continue;
            }
            _ => continue,
        };
        match key.code {
            KeyCode::Enter => return Ok((text, true)),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Tab => text.push('\t'),
            KeyCode::Char(letter) if KeyModifiers::SHIFT.contains(key.modifiers) => text.push(letter),
            _ => {}
        }
    }
    Ok((text, false))
}

/// The text without the place of the cursor, which a terminal behind a slow line may report when nobody waits for it any more:
/// `ESC [ ROW ; COLUMN R`.
fn strip_cursor_reports(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ';');
        match end.strip_prefix('R') {
            Some(rest) => kept.push_str(rest),
            None => kept.extend(["\x1b[", part]),
        }
    }
    kept
}

/// The typed lines of earlier chats, in a file that only its owner can read.
fn open_history(file: &Path) -> Result<FileBackedHistory, String> {
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
struct BackslashContinuation(ContinuedTexts);

impl Validator for BackslashContinuation {
    fn validate(&self, line: &str) -> ValidationResult {
        if !line.ends_with('\\') {
            return ValidationResult::Complete;
        }
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line.to_owned());
        ValidationResult::Incomplete
    }
}

/// The mark before a line.
#[derive(Clone, Copy)]
struct PromptMark(&'static str);

/// The same before each further line of a text.
const NEXT_LINE: &str = "  ";

impl Prompt for PromptMark {
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

#[cfg(test)]
mod tests {
    use super::strip_cursor_reports;

    #[test]
    fn a_late_report_of_the_cursor_is_no_text() {
        for (typed, text) in [
            ("\x1b[12;1Rhello", "hello"),
            ("a\x1b[1;2R\x1b[3;4Rb", "ab"),
            ("\x1b[A R", "\x1b[A R"),
            ("plain", "plain"),
        ] {
            assert_eq!(strip_cursor_reports(typed), text);
        }
    }
}

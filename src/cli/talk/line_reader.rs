//! Reads the lines that the user types in a chat.
//!
//! It owns how a line is edited and continued, and the history file. It must not know what a line means.

use std::borrow::Cow;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crossterm::cursor::{MoveToColumn, MoveUp};
use crossterm::event::{KeyCode, KeyModifiers};
use crossterm::terminal::{Clear, ClearType};
use crossterm::{execute, queue};
use reedline::{
    EditCommand, EditMode, Emacs, FileBackedHistory, Highlighter, Hinter, History, HistoryItem, Prompt,
    PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent, ReedlineRawEvent, Signal,
    SimpleMatchHighlighter, StyledText, ValidationResult, Validator, default_emacs_keybindings,
};
use tokio::task::spawn_blocking;
use unicode_width::UnicodeWidthStr as _;

use crate::cli::commands::Context;
use crate::cli::keyboard::{self, LineEnd};
use crate::cli::output::{DIM, Look, Output, columns_of, is_dumb_terminal, one_line};
use crate::cli::problem::{CommandResult, Problem};
use crate::cli::signals::{CtrlCListener, TerminalModes, suspend, turn_echo_off};
use crate::cli::{lock, log_error};
use crate::paths::ownership::NO_LINK;

/// Maximum number of lines in the history file.
const HISTORY_LINES: usize = 1_000;

/// The history file, in the data folder.
const HISTORY_FILE: &str = "chat-history";

/// Reads lines at the terminal.
pub(super) struct LineReader {
    /// The line editor; `None` while it reads a line.
    editor: Option<Reedline>,
    file: PathBuf,
    look: Look,
    /// Whether the terminal reports its cursor position. Without it, lines cannot be edited.
    reports_cursor: bool,
    continued: ContinuedTexts,
    /// The commands that a line may begin with. Tab completes them.
    commands: Commands,
    /// Whether the editor should stop, because something has to be shown.
    stop_requested: Arc<AtomicBool>,
    /// The text that was typed before the editor stopped.
    unfinished: String,
    /// Whether the edited line contains text.
    is_typed: Arc<AtomicBool>,
    mark: PromptMark,
    /// Hides keys that are typed while no line is read; they begin the next line. `None` if the terminal itself edits lines.
    no_echo: Option<TerminalModes>,
}

/// The texts, each ending with a backslash, after which Enter began a new line.
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
    /// No input yet: something has to be shown first.
    Interrupted,
    /// No input yet: after Ctrl-Z this process is to be suspended. [`LineReader::next_line`] does that, and returns
    /// [`LineInput::Interrupted`] when the process continues.
    Suspended,
}

impl LineReader {
    /// Creates a reader that completes these commands. It recalls lines of earlier chats if the history file can be used.
    pub(super) fn new(context: &mut Context<'_>, commands: Commands) -> CommandResult<Self> {
        let look = context.output.note_look;
        let mut lines = Self {
            editor: None,
            file: context.connector.paths.data.join(HISTORY_FILE),
            look,
            reports_cursor: !is_dumb_terminal(),
            continued: ContinuedTexts::default(),
            commands,
            stop_requested: Arc::default(),
            unfinished: String::new(),
            is_typed: Arc::default(),
            mark: PromptMark(look.sign("› ", "> ")),
            no_echo: None,
        };
        lines.editor = Some(lines.editor(context.output)?);
        lines.no_echo = Some(turn_echo_off().map_err(|error| unreadable(&error))?);
        Ok(lines)
    }

    fn editor(&self, output: &mut Output) -> CommandResult<Reedline> {
        let mut keys = default_emacs_keybindings();
        keys.add_binding(
            KeyModifiers::NONE,
            KeyCode::Tab,
            ReedlineEvent::HistoryHintComplete,
        );
        keys.add_binding(
            KeyModifiers::CONTROL,
            KeyCode::Char('z'),
            ReedlineEvent::ExecuteHostCommand(String::new()),
        );
        let rest = Arc::default();
        let hinter = Completion {
            commands: Arc::clone(&self.commands),
            rest: Arc::clone(&rest),
        };
        let keys = Keys {
            emacs: Emacs::new(keys),
            rest,
        };
        let editor = Reedline::create()
            .with_ansi_colors(self.look.coloured)
            .with_highlighter(Box::new(PlainHighlighter(Arc::clone(&self.is_typed))))
            .with_hinter(Box::new(hinter))
            .use_bracketed_paste(true)
            .with_validator(Box::new(BackslashContinuation(Arc::clone(&self.continued))))
            .with_break_signal(Arc::clone(&self.stop_requested))
            .with_history_exclusion_prefix(Some(" ".to_owned()))
            .with_edit_mode(Box::new(keys));
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

    /// Adds a line to the history that the editor has not read.
    fn remember(&mut self, line: &str) {
        let Some(editor) = self
            .editor
            .as_mut()
            .filter(|_| !line.is_empty() && !line.starts_with(' '))
        else {
            return;
        };
        let item = HistoryItem::from_command_line(line);
        let saved = editor.history_mut().save(item).map(drop);
        log_error("the history cannot be written", saved);
        log_error("the history cannot be written", editor.sync_history());
    }

    /// The text that was typed before the last line was interrupted.
    pub(super) fn unfinished(&self) -> &str {
        &self.unfinished
    }

    /// Reads the next line. Returns [`LineInput::Interrupted`] when `interruption` is ready. The text typed so far is then removed from
    /// the screen, and reappears with the next line.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub(super) async fn next_line(
        &mut self,
        output: &mut Output,
        interruption: impl Future<Output = ()>,
    ) -> CommandResult<LineInput> {
        let is_edited = self.reports_cursor;
        let (kept, end) = keyboard::next_buffered_line();
        self.unfinished.push_str(&kept);
        if end == Some(LineEnd::CtrlD) {
            return Ok(LineInput::CtrlD);
        }
        if end.is_some() {
            let text = std::mem::take(&mut self.unfinished);
            output.note_unedited(&format!("{}{}", self.mark.0, one_line(&text)))?;
            self.remember(&text);
            return Ok(LineInput::Text(text));
        }
        if let Some(mut editor) = self.editor.take_if(|_| is_edited) {
            let (mark, continued) = (self.mark, Arc::clone(&self.continued));
            let unfinished = std::mem::take(&mut self.unfinished);
            // Read on another thread, so that the connection is served meanwhile.
            let mut editing = spawn_blocking(move || {
                editor.run_edit_commands(&[EditCommand::InsertString(unfinished)]);
                let typed = read_edited_line(&mut editor, mark, &continued);
                (editor, typed)
            });
            let edited = tokio::select! {
                biased;
                edited = &mut editing => edited,
                () = interruption => {
                    self.stop_requested.store(true, Ordering::Relaxed);
                    editing.await
                }
            };
            // The user may have completed a line just before the request to stop.
            self.stop_requested.store(false, Ordering::Relaxed);
            let (editor, typed) = edited.map_err(|error| unreadable(&io::Error::other(error)))?;
            if let Ok(LineInput::Interrupted | LineInput::Suspended) = typed {
                self.unfinished = editor.current_buffer_contents().to_owned();
                let before = &self.unfinished[..editor.current_insertion_point()];
                let columns = columns_of(io::stderr()).unwrap_or(80);
                erase_line(before, columns).map_err(|error| unreadable(&error))?;
                // Use a new editor: the old one would draw at its old position, over text that is shown meanwhile.
                self.editor = Some(self.editor(output)?);
                if let Ok(LineInput::Suspended) = typed {
                    suspend().map_err(|error| unreadable(&error))?;
                }
                return Ok(LineInput::Interrupted);
            }
            self.editor = Some(editor);
            match typed {
                // If there is text on the line, Ctrl-C only discards it.
                Ok(LineInput::CtrlC) if self.is_typed.swap(false, Ordering::Relaxed) => {
                    return Ok(LineInput::Text(String::new()));
                }
                // For example, the terminal does not report its cursor position.
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
        // Without a line editor, the terminal itself buffers and echoes what is typed.
        self.no_echo = None;
        let typed = read_plain_line(self.mark, is_edited).await;
        let (typed, has_reported) = typed.map_err(|error| unreadable(&error))?;
        // If the terminal was only slow to report its cursor, use the line editor again.
        self.reports_cursor = has_reported;
        if has_reported {
            self.no_echo = turn_echo_off().ok();
        }
        Ok(typed)
    }
}

/// Shows a line in the terminal's own colour, because the editor's default colour is unreadable on a light background. Records
/// whether the line contains text.
struct PlainHighlighter(Arc<AtomicBool>);

impl Highlighter for PlainHighlighter {
    fn highlight(&self, line: &str, cursor: usize) -> StyledText {
        self.0.store(!line.is_empty(), Ordering::Relaxed);
        SimpleMatchHighlighter::default().highlight(line, cursor)
    }
}

/// Shows the rest of the first command that begins with the typed text.
struct Completion {
    commands: Commands,
    rest: Rest,
}

/// The rest of a command, as it is shown after the typed text.
type Rest = Arc<Mutex<String>>;

/// The keys of the line editor. The rest that is shown does not belong to a text that is edited before it is shown again, as when
/// several keys arrive at once.
struct Keys {
    emacs: Emacs,
    rest: Rest,
}

impl EditMode for Keys {
    fn parse_event(&mut self, event: ReedlineRawEvent) -> ReedlineEvent {
        let event = self.emacs.parse_event(event);
        if matches!(event, ReedlineEvent::Edit(_)) {
            lock(&self.rest).clear();
        }
        event
    }

    fn edit_mode(&self) -> PromptEditMode {
        self.emacs.edit_mode()
    }
}

impl Hinter for Completion {
    fn handle(&mut self, line: &str, at: usize, _: &dyn History, is_coloured: bool, _: &str) -> String {
        let mut shown = lock(&self.rest);
        shown.clear();
        if line.starts_with('/') && at == line.len() {
            let commands = lock(&self.commands);
            let rest = commands.iter().find_map(|command| command.strip_prefix(line));
            shown.push_str(rest.unwrap_or_default());
        }
        // Without colours it would look like typed text.
        match is_coloured && !shown.is_empty() {
            true => format!("{DIM}{shown}{DIM:#}"),
            false => String::new(),
        }
    }

    fn complete_hint(&self) -> String {
        lock(&self.rest).clone()
    }

    fn next_hint_token(&self) -> String {
        self.complete_hint()
    }
}

fn unreadable(error: &io::Error) -> Problem {
    Problem::failed(format!("could not read the terminal: {error}"))
}

fn read_edited_line(
    editor: &mut Reedline,
    mark: PromptMark,
    continued: &ContinuedTexts,
) -> io::Result<LineInput> {
    loop {
        let signal = editor.read_line(&mark)?;
        if matches!(signal, Signal::CtrlC | Signal::CtrlD) {
            lock(continued).clear();
        }
        match signal {
            Signal::Success(mut text) => {
                log_error("the history cannot be written", editor.sync_history());
                // In reverse order, because each text contains the earlier ones. A pasted backslash is kept.
                for line in lock(continued).drain(..).rev() {
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
            Signal::ExternalBreak(_) => return Ok(LineInput::Interrupted),
            Signal::HostCommand(_) => return Ok(LineInput::Suspended),
            _ => {}
        }
    }
}

/// Removes the edited line from the screen; `before` is its text before the cursor.
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

/// Reads a line that the terminal itself edits, and returns whether the terminal has reported its cursor meanwhile.
/// `is_ahead`: whether the editor has just failed, and may have read typed text already.
async fn read_plain_line(mark: PromptMark, mut is_ahead: bool) -> io::Result<(LineInput, bool)> {
    let interrupts = CtrlCListener::listen();
    let (mut text, mut shown, mut has_reported) = (String::new(), mark.0, false);
    loop {
        io::stderr().write_all(shown.as_bytes())?;
        shown = NEXT_LINE;
        if std::mem::take(&mut is_ahead) {
            let end = keyboard::read_line(&mut text)?;
            let line_break = if end.is_some() { "\n" } else { "" };
            io::stderr().write_all(format!("{text}{line_break}").as_bytes())?;
            match end {
                Some(LineEnd::Enter) => return Ok((LineInput::Text(text), has_reported)),
                Some(LineEnd::CtrlD) => return Ok((LineInput::CtrlD, has_reported)),
                None => {}
            }
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
        // The terminal returns only whole lines, so this does not block.
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

/// Removes reports of the cursor position (`ESC [ ROW ; COLUMN R`) from the text. A terminal on a slow connection may send one
/// after the editor has stopped waiting for it.
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

/// Opens the history of typed lines, in a file that only its owner can read.
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

/// Continues a line that ends with a backslash on the next line.
struct BackslashContinuation(ContinuedTexts);

impl Validator for BackslashContinuation {
    fn validate(&self, line: &str) -> ValidationResult {
        if !line.ends_with('\\') {
            return ValidationResult::Complete;
        }
        lock(&self.0).push(line.to_owned());
        ValidationResult::Incomplete
    }
}

/// The prompt sign before a line.
#[derive(Clone, Copy)]
struct PromptMark(&'static str);

/// The indent before each further line of a text.
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

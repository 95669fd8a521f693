//! The output of commands, as text for people or as JSON for programs.
//!
//! It owns the two streams, whether they are coloured, how wide a terminal is and which signs it can show. It must not know
//! what is printed. Results go to standard output; notes, progress and errors go to standard error.

use std::io::{self, Write};
use std::os::fd::AsFd;

use anstream::stream::RawStream;
use anstyle::{AnsiColor, Style};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{ConversationId, ErrorKind};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::advice::{self, Advice};
use super::commands::list::table;
use super::humanize;
use super::problem::{CommandResult, Problem};
use super::table::Table;

#[cfg(test)]
mod tests;

/// For secondary text: ids of links, times, thoughts.
pub(super) const DIM: Style = Style::new().dimmed();
/// For the most important text.
pub(super) const STRONG: Style = Style::new().bold();
/// For success.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// For failure.
pub(super) const BAD: Style = AnsiColor::Red.on_default();
/// For text that needs attention.
pub(super) const ATTENTION: Style = AnsiColor::Yellow.on_default();

/// How text is shown: decided once, from the streams and the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// Whether styles are written.
    pub(super) coloured: bool,
    /// Whether signs outside ASCII can be shown.
    pub(super) unicode: bool,
    /// The width of the terminal in columns, or `None` if the output is not a terminal.
    pub(super) columns: Option<usize>,
    /// The height of the terminal in rows, if it is known.
    pub(super) rows: Option<usize>,
}

impl Look {
    fn of(stream: &(impl RawStream + AsFd), unicode: bool) -> Self {
        Self {
            coloured: anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never,
            unicode,
            columns: stream.is_terminal().then(|| columns_of(stream)).flatten(),
            rows: rows_of(stream),
        }
    }

    /// Adds a style to the text, if styles are shown.
    pub(super) fn paint(self, style: Style, text: &str) -> String {
        if self.coloured {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    /// Returns the first sign if it can be shown, otherwise the second.
    pub(super) fn sign(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }

    /// Makes text safe for a terminal: removes control characters that could control it. Text for a file or a pipe is not
    /// changed.
    pub(super) fn sanitize(self, text: &str) -> String {
        if self.columns.is_some() {
            strip_controls(text)
        } else {
            text.to_owned()
        }
    }

    /// On a terminal, breaks the lines of a text between words. Continued lines are indented like the line itself, by `indent`
    /// at least. Commands are not broken, since users paste them.
    pub(super) fn wrap(self, text: &str, indent: usize) -> String {
        let Some(columns) = self.columns else {
            return text.to_owned();
        };
        let own_indent = |line: &str| line.len() - line.trim_start().len();
        let lines = text.split('\n').map(|line| {
            let indent = indent.max(own_indent(line));
            fill_lines(
                unbreakable_parts(line, columns - indent.min(columns)),
                columns,
                indent,
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The streams of a command.
pub(super) struct Output {
    /// How standard output shows text.
    pub(super) look: Look,
    /// How standard error shows text.
    pub(super) note_look: Look,
    /// Whether JSON was asked for.
    pub(super) json: bool,
    /// Whether only results and errors are printed.
    pub(super) quiet: bool,
    /// Whether the user is in a chat: advice names its commands.
    pub(super) in_chat: bool,
    /// The options by which the user named the daemon, as words of a shell.
    pub(super) daemon_options: String,
    stdout: Box<dyn Write + Send>,
    stderr: Box<dyn Write + Send>,
    /// How many line breaks standard output ends with. Two if there is no text above that the next text would continue.
    line_breaks: usize,
}

impl Output {
    /// The streams of this process.
    pub(super) fn of_this_process(json: bool) -> Self {
        let unicode = shows_unicode(["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).ok()));
        let stdout = io::stdout();
        let stderr = io::stderr();
        Self {
            look: Look::of(&stdout, unicode),
            note_look: Look::of(&stderr, unicode),
            json,
            quiet: false,
            in_chat: false,
            daemon_options: String::new(),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            line_breaks: 2,
        }
    }

    /// Reads the size of the terminal again, which the user may have changed.
    pub(super) fn update_size(&mut self) {
        let measure = |columns: &mut Option<usize>, now| *columns = columns.and(now);
        measure(&mut self.look.columns, columns_of(io::stdout()));
        measure(&mut self.note_look.columns, columns_of(io::stderr()));
        self.note_look.rows = rows_of(io::stderr());
    }

    /// Whether notes and progress go to a terminal, where a user sees them.
    pub(super) fn is_interactive(&self) -> bool {
        self.note_look.columns.is_some() && !self.json && !self.quiet
    }

    /// Whether a progress line can be shown.
    pub(super) fn shows_progress(&self) -> bool {
        self.is_interactive() && !is_dumb_terminal()
    }

    /// Writes text unchanged to standard output, without buffering.
    pub(super) fn text(&mut self, text: &str) -> CommandResult {
        if text.is_empty() {
            return Ok(());
        }
        let line_breaks = text.len() - text.trim_end_matches('\n').len();
        self.line_breaks = match line_breaks == text.len() {
            true => self.line_breaks + line_breaks,
            false => line_breaks,
        };
        self.stdout
            .write_all(text.as_bytes())
            .and_then(|()| self.stdout.flush())
            .map_err(|error| Problem::output_error(&error))
    }

    /// Writes one line for people to standard output. With `--json`, writes nothing.
    pub(super) fn line(&mut self, text: &str) -> CommandResult {
        self.verbatim(&self.look.wrap(text, 0))
    }

    /// Like [`line`](Self::line), without breaking lines: for formatted text, and text that the user has to see unchanged.
    pub(super) fn verbatim(&mut self, text: &str) -> CommandResult {
        match self.json {
            true => Ok(()),
            false => self.text(&format!("{text}\n")),
        }
    }

    /// Writes a list for people to standard output. If it is empty, writes `if_empty` to standard error.
    pub(super) fn table(&mut self, table: &Table, if_empty: &str) -> CommandResult {
        match table.lines(self.look).join("\n") {
            empty if empty.is_empty() => self.note(if_empty),
            lines => self.verbatim(&lines),
        }
    }

    /// Writes one JSON value as one line to standard output. Its bytes are not changed, except that line breaks between
    /// members are removed, because each line is one value.
    pub(super) fn raw(&mut self, value: &RawJson) -> CommandResult {
        self.text(&(value.get().replace('\n', " ") + "\n"))
    }

    /// Writes a line of a stream: an object with its type, `event` or `result`, and the members of this object unchanged.
    pub(super) fn stream(&mut self, kind: &str, object: &RawJson) -> CommandResult {
        let members = object
            .get()
            .trim_start()
            .strip_prefix('{')
            .unwrap_or("}")
            .trim_start();
        let comma = if members.starts_with('}') { "" } else { "," };
        let line = format!("{{\"type\":\"{kind}\"{comma}{members}");
        self.text(&(line.replace('\n', " ") + "\n"))
    }

    /// Writes a sentence of this program to standard error. Its commands get the options that name the daemon. With `--json`,
    /// writes nothing: only problems are written there then.
    pub(super) fn note(&mut self, text: &str) -> CommandResult {
        self.note_unedited(&self.with_daemon_options(text))
    }

    /// Like [`note`](Self::note), for text that has words of a user or an agent: its commands are not edited.
    pub(super) fn note_unedited(&mut self, text: &str) -> CommandResult {
        self.note_verbatim(&self.note_look.wrap(text, 0))
    }

    /// Adds the options that name the daemon to the commands in a sentence of this program.
    pub(super) fn with_daemon_options(&self, text: &str) -> String {
        advice::with_daemon_options(text, &self.daemon_options)
    }

    /// Like [`note`](Self::note), without breaking lines: see [`verbatim`](Self::verbatim).
    pub(super) fn note_verbatim(&mut self, text: &str) -> CommandResult {
        if self.json || self.quiet {
            return Ok(());
        }
        // On a terminal both streams share the line. Do not add line breaks to a file: it must contain exactly the result.
        if self.look.columns.is_some() {
            self.end_line()?;
            self.line_breaks = 2;
        }
        self.stderr
            .write_all(format!("{text}\n").as_bytes())
            .and_then(|()| self.stderr.flush())
            .map_err(|error| Problem::output_error(&error))
    }

    /// Writes a secondary line to standard error.
    pub(super) fn note_dim(&mut self, text: &str) -> CommandResult {
        let text = self.with_daemon_options(text);
        self.note_unedited(&self.note_look.paint(DIM, &text))
    }

    /// Writes a line to standard error that begins with a word that needs attention.
    pub(super) fn warning(&mut self, word: &str, text: &str) -> CommandResult {
        let word = self.note_look.paint(ATTENTION, word);
        self.note(&format!("{word} {text}"))
    }

    /// Advice about this conversation.
    pub(super) fn advice(&self, id: ConversationId) -> Advice {
        Advice::new(humanize::short_id(id), self.in_chat)
    }

    /// Ends the line of standard output; otherwise, on a terminal, the next text on standard error would continue it.
    pub(super) fn end_line(&mut self) -> CommandResult {
        self.text(&"\n".repeat(1_usize.saturating_sub(self.line_breaks)))
    }

    /// Ends the paragraph of standard output with an empty line, unless a note on the same terminal has ended it.
    pub(super) fn end_paragraph(&mut self) -> CommandResult {
        self.text(&"\n".repeat(2_usize.saturating_sub(self.line_breaks)))
    }

    /// Writes a problem to standard error, as text or, with `--json`, as one line of JSON. If it cannot be written there, it is
    /// lost.
    pub(super) fn problem(&mut self, problem: &Problem) {
        if problem.message.is_some() && self.end_line().is_err() {
            tracing::debug!("standard output is closed");
        }
        let hint = problem
            .hint
            .as_deref()
            .map(|hint| self.with_daemon_options(&one_line(hint)));
        if self.json {
            let line = problem.json(hint.as_deref()).map(|json| format!("{json}\n"));
            if self
                .stderr
                .write_all(line.unwrap_or_default().as_bytes())
                .is_err()
            {
                tracing::debug!("standard error is closed");
            }
            return;
        }
        let Some(message) = &problem.message else { return };
        // A message of the agent may contain anything: do not edit commands in it.
        let message = match problem.kind() {
            None | Some(ErrorKind::AgentError) => one_line(message),
            Some(_) => self.with_daemon_options(&one_line(message)),
        };
        let mut lines = format!("{} {message}\n", self.note_look.paint(BAD, "error:"));
        let look = Look {
            columns: self.note_look.columns.map(|columns| columns.saturating_sub(2)),
            ..self.note_look
        };
        for line in table(&problem.candidates, look).lines(look) {
            lines.push_str(&format!("  {line}\n"));
        }
        for line in humanize::failed_attempts(&problem.attempts()) {
            lines.push_str(&format!("  {line}\n"));
        }
        if let Some(hint) = hint {
            let hint_word = self.note_look.paint(ATTENTION, "hint:");
            let shell = match self.in_chat && hint.contains("sessionctl ") {
                true => "in a shell: ",
                false => "",
            };
            lines.push_str(&format!("{hint_word} {shell}{hint}\n"));
        }
        let lines = self.note_look.wrap(&lines, 0);
        if self.stderr.write_all(lines.as_bytes()).is_err() {
            tracing::debug!("standard error is closed");
        }
    }
}

/// The text on one line, without control characters.
pub(super) fn one_line(text: &str) -> String {
    let spaced: Vec<&str> = text.split_whitespace().collect();
    strip_controls(&spaced.join(" "))
}

/// Cuts text to a width in columns, and marks the cut with a sign.
pub(super) fn truncate(text: &str, columns: usize, look: Look) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let more = look.sign("…", "~");
    prefix_of_width(text.chars(), columns.saturating_sub(more.width())) + more
}

/// The first characters that fit in this many columns.
fn prefix_of_width(characters: impl Iterator<Item = char>, columns: usize) -> String {
    let mut taken = 0;
    let fit = characters.take_while(|character| {
        taken += character.width().unwrap_or(0);
        taken <= columns
    });
    fit.collect()
}

/// Cuts the middle out of a text that is wider than this many columns, because both ends of a path matter.
pub(super) fn truncate_middle(text: &str, columns: usize, look: Look) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let begin = truncate(text, columns.div_ceil(2), look);
    let end = prefix_of_width(text.chars().rev(), columns.saturating_sub(begin.width()));
    begin.chars().chain(end.chars().rev()).collect()
}

/// Breaks a line between words if it is too long, and indents the continued lines. A word longer than a line is not broken.
pub(super) fn wrap_line(line: &str, columns: usize, indent: usize) -> String {
    fill_lines(line.split_inclusive(' '), columns, indent)
}

/// Breaks a list of clauses into lines that end with a comma. A clause is broken only if it is longer than a line.
pub(super) fn wrap_clauses(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for clause in text.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if line.width() + clause.trim_end().width() <= columns => line.push_str(clause),
            _ => lines.extend(wrap_line(clause, columns, 0).split('\n').map(str::to_owned)),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// The width without styles.
pub(super) fn width_of(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().width()
}

/// How many rows a text takes on a terminal that wraps its lines at this width.
pub(super) fn rows_of_text(text: &str, columns: usize) -> usize {
    let plain = anstream::adapter::strip_str(text).to_string();
    let rows = plain.split('\n').map(|line| {
        let (mut rows, mut at) = (1, 0);
        for character in line.chars() {
            let width = match character {
                '\t' => 8 - at % 8,
                other => other.width().unwrap_or(0),
            };
            if at + width > columns && columns > 0 {
                (rows, at) = (rows + 1, 0);
            }
            at += width;
        }
        rows
    });
    rows.sum()
}

/// Fills lines with these parts, which are not broken. A command that is longer than a line begins on the next one if its first
/// word does not fit.
fn fill_lines<'t>(parts: impl IntoIterator<Item = &'t str>, columns: usize, indent: usize) -> String {
    let (mut shown, mut at) = (String::new(), 0);
    for part in parts {
        let needs = width_of(part.trim_end());
        let first = part.trim_end().split_once(' ').map(|(first, _)| width_of(first));
        let is_cut = first.is_some_and(|first| at + first > columns);
        if at > indent && at + needs > columns && (indent + needs <= columns || is_cut) {
            shown.truncate(shown.trim_end().len());
            shown.push('\n');
            shown.push_str(&" ".repeat(indent));
            at = indent;
        }
        shown.push_str(part);
        at += width_of(part);
    }
    shown
}

/// Splits a sentence into parts between which a line may end: words and whole commands. A command begins with the name of this
/// program, or after a colon if it fits in a line, and ends with its clause.
fn unbreakable_parts(line: &str, columns: usize) -> Vec<&str> {
    let (mut phrases, mut begin, mut end, mut is_command) = (Vec::new(), 0, 0, false);
    for word in line.split_inclusive(' ') {
        let plain = anstream::adapter::strip_str(word).to_string();
        let plain = plain.trim_end();
        is_command |= plain == "sessionctl";
        end += word.len();
        if !is_command || plain.ends_with([';', ',']) {
            phrases.push(&line[begin..end]);
            begin = end;
            // The first word is a label, as in `error: …`.
            is_command = plain.ends_with(':') && phrases.len() > 1;
        }
    }
    phrases.push(&line[begin..]);
    let is_whole = |phrase: &str| width_of(phrase) <= columns || phrase.contains("sessionctl ");
    let parts = phrases.into_iter().flat_map(|phrase| match is_whole(phrase) {
        true => vec![phrase],
        false => phrase.split_inclusive(' ').collect(),
    });
    parts.collect()
}

/// Removes characters that control a terminal or disguise text: control sequences such as colours, other control characters,
/// and characters that change the direction of writing.
fn strip_controls(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Parameters, and the letter that ends them. Anything else is text.
        let end = part.trim_start_matches(|digit: char| digit.is_ascii_digit() || ";:?".contains(digit));
        plain.push_str(
            end.strip_prefix(|letter| ('@'..='~').contains(&letter))
                .unwrap_or(part),
        );
    }
    plain.retain(|character| !is_control(character));
    plain
}

fn is_control(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

/// Shows the characters that [`strip_controls`] removes by their names: a user who approves a change must see them.
pub(super) fn escape_controls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match (character, u8::try_from(character)) {
            (character, _) if !is_control(character) => shown.push(character),
            (_, Ok(control @ ..=0x7f)) => shown.extend(['^', char::from(control ^ 0x40)]),
            (other, _) => shown.push_str(&format!("<{:04X}>", u32::from(other))),
        }
    }
    shown
}

/// Whether the locale can show more than ASCII. The variables are in order of precedence.
fn shows_unicode(variables: [Option<String>; 3]) -> bool {
    variables
        .into_iter()
        .flatten()
        .find(|value| !value.is_empty())
        .is_some_and(|value| {
            let value = value.to_ascii_lowercase();
            value.contains("utf-8") || value.contains("utf8")
        })
}

/// Whether the terminal would show control sequences as text.
pub(super) fn is_dumb_terminal() -> bool {
    std::env::var("TERM").is_ok_and(|term| term == "dumb")
}

/// The width of a terminal in columns, or `None` if the stream is not a terminal.
pub(super) fn columns_of(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    // A terminal that does not know its width reports 0.
    Some(if size.ws_col == 0 {
        80
    } else {
        usize::from(size.ws_col)
    })
}

/// The height of a terminal in rows, or `None` if the stream is not a terminal or does not know.
fn rows_of(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

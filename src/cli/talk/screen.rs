//! Prints a conversation while it is followed.
//!
//! It owns how the agent's updates become text. The answer goes to standard output: unchanged to a pipe or a file, rendered
//! as Markdown to a terminal. The agent's activity goes to standard error: a spinner, one line for each tool call, the plan.
//! It must not know where updates come from.

use std::collections::BTreeMap;

use anstyle::Style;
use bridge_protocol::daemon::Work;
use bridge_protocol::raw::RawJson;
use serde::Deserialize as _;
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use super::markdown::{Markdown, take_lines};
use super::tool_call::ToolCall;
use crate::cli::output::{BAD, DIM, GOOD, Look, Output, STRONG, one_line, truncate};
use crate::cli::problem::CommandResult;
use crate::cli::progress::ProgressLine;

#[cfg(test)]
mod tests;

/// How much of the answer's end is remembered: longer than the message of a failure.
const ANSWER_END_BYTES: usize = 2_048;

/// The width of a line if there is no terminal.
const COLUMNS: usize = 100;

/// The state between two updates.
pub(super) struct Screen<'a> {
    /// The streams of the command.
    pub(super) output: &'a mut Output,
    /// The renderer of the answer, if it is shown as Markdown.
    markdown: Option<Markdown>,
    /// The `messageId` of the last chunk of this turn's answer, null if it had none.
    message: Option<Value>,
    /// The last line of the agent's thoughts, which is not complete yet.
    thought: String,
    tools: BTreeMap<String, ToolCall>,
    plan: String,
    /// How much of the context is used and what it cost, as the agent reports it.
    usage: Option<Value>,
    /// The end of the answer.
    answer_end: String,
    spinner: Option<ProgressLine>,
    /// Notes to print after the current line of the answer is complete.
    deferred_notes: Vec<String>,
}

impl<'a> Screen<'a> {
    /// Creates a screen on which nothing was printed yet.
    pub(super) fn new(output: &'a mut Output) -> Self {
        let look = output.look;
        Self {
            markdown: look.columns.map(|_| Markdown::new(look)),
            message: None,
            thought: String::new(),
            tools: BTreeMap::new(),
            plan: String::new(),
            usage: None,
            answer_end: String::new(),
            spinner: None,
            deferred_notes: Vec::new(),
            output,
        }
    }

    /// Shows that the agent is working, and for how long.
    pub(super) fn start_spinner(&mut self) {
        self.show_progress(None);
        self.show_activity("waiting for the agent");
    }

    /// Shows the progress of the daemon's work before the agent starts.
    pub(super) fn show_progress(&mut self, work: Option<&Work>) {
        if self.output.shows_progress() {
            let look = self.output.note_look;
            self.spinner
                .get_or_insert_with(|| ProgressLine::new(look))
                .show(work);
        }
    }

    /// Removes the spinner.
    pub(super) fn stop_spinner(&mut self) {
        self.spinner = None;
    }

    /// Prints an update of the agent. With `--json` the events themselves are printed.
    pub(super) fn show_update(&mut self, update: &RawJson) -> CommandResult {
        if self.output.json {
            return Ok(());
        }
        let update: Value = update.read().unwrap_or_default();
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => self.answer(&update),
            Some("agent_thought_chunk") => self.thoughts(&update),
            Some("tool_call" | "tool_call_update") => self.tool(&update),
            Some("plan") => self.plan(&update),
            Some("usage_update") if update["used"].is_u64() => {
                self.usage = Some(update);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The text of the user, if this update contains it.
    pub(super) fn prompt_in_update(&self, update: &RawJson) -> Option<String> {
        let update: Value = update.read().ok()?;
        let is_prompt = update["sessionUpdate"] == "user_message_chunk";
        is_prompt.then(|| chunk(&update, Look::default())).flatten()
    }

    /// Whether the answer ends with these words: some agents report a failure in the answer.
    pub(super) fn answer_ends_with(&self, words: &str) -> bool {
        let words = words.trim();
        !words.is_empty() && self.answer_end.trim_end().ends_with(words)
    }

    /// What is known of a tool call.
    pub(super) fn tool_call(&self, id: &str) -> Option<&ToolCall> {
        self.tools.get(id)
    }

    /// Prints text of the user or the agent to standard error.
    pub(super) fn note(&mut self, text: &str) -> CommandResult {
        self.end_stream()?;
        self.write(|output| output.note_unedited(text))
    }

    /// Prints a question: its first line, and its details with their own line breaks.
    pub(super) fn question(&mut self, lines: &[String]) -> CommandResult {
        let Some((subject, details)) = lines.split_first() else {
            return Ok(());
        };
        self.note(subject)?;
        self.note_verbatim(&details.join("\n"))
    }

    /// Like [`note`](Self::note), without breaking lines.
    pub(super) fn note_verbatim(&mut self, text: &str) -> CommandResult {
        match text.is_empty() {
            true => Ok(()),
            false => self.write(|output| output.note_verbatim(text)),
        }
    }

    /// Prints a sentence of this program to standard error, in a style. Its commands get the options that name the daemon.
    pub(super) fn note_styled(&mut self, style: Style, text: &str) -> CommandResult {
        let text = self.output.with_daemon_options(text);
        let text = self.output.note_look.paint(style, &text);
        self.note(&text)
    }

    /// Like [`note_styled`](Self::note_styled), dimmed.
    pub(super) fn note_dim(&mut self, text: &str) -> CommandResult {
        self.note_styled(DIM, text)
    }

    /// Prints a dimmed note. In the middle of a line of the answer it is deferred to the line's end, so that it splits no word.
    pub(super) fn note_later(&mut self, text: &str) -> CommandResult {
        if self.is_mid_line() {
            self.deferred_notes.push(text.to_owned());
            return Ok(());
        }
        self.note_dim(text)
    }

    /// Whether the current line of the answer is not complete.
    fn is_mid_line(&self) -> bool {
        self.markdown
            .as_ref()
            .is_some_and(|markdown| !markdown.partial().is_empty())
    }

    fn flush_deferred_notes(&mut self) -> CommandResult {
        for text in std::mem::take(&mut self.deferred_notes) {
            self.write(|output| output.note_dim(&text))?;
        }
        Ok(())
    }

    /// Ends the turn that was shown: completes open lines, and reports tool calls that did not end.
    pub(super) fn end_turn(&mut self) -> CommandResult {
        self.end_stream()?;
        self.stop_spinner();
        for call in std::mem::take(&mut self.tools).into_values() {
            if !call.has_ended {
                self.show_tool_result(&call, false)?;
            }
        }
        self.plan.clear();
        self.message = None;
        Ok(())
    }

    /// Prints how much of the context is used and what the conversation cost, if the agent reported it and this is a terminal.
    pub(super) fn usage_line(&mut self) -> CommandResult {
        match self.usage.take().filter(|_| self.output.is_interactive()) {
            Some(usage) => self.note_dim(&usage_line(&usage, self.output.note_look)),
            None => Ok(()),
        }
    }

    fn answer(&mut self, update: &Value) -> CommandResult {
        let Some(text) = chunk(update, self.output.look) else {
            return Ok(());
        };
        self.answer_end.push_str(&text);
        let end = self.answer_end.len().saturating_sub(ANSWER_END_BYTES);
        let end = (end..=self.answer_end.len()).find(|end| self.answer_end.is_char_boundary(*end));
        self.answer_end.drain(..end.unwrap_or_default());
        self.end_thoughts()?;
        let message = &update["messageId"];
        if self
            .message
            .replace(message.clone())
            .is_some_and(|last| last != *message)
        {
            self.end_answer()?;
            self.write(Output::end_paragraph)?;
        }
        let Some(markdown) = &mut self.markdown else {
            return self.write(|output| output.text(&text));
        };
        let lines = markdown.push(&text);
        let partial = one_line(markdown.partial());
        self.show_activity(if partial.is_empty() { "writing" } else { &partial });
        self.write(|output| output.text(&lines))?;
        if self.is_mid_line() {
            Ok(())
        } else {
            self.flush_deferred_notes()
        }
    }

    /// Prints thoughts on a terminal. They are not stored.
    fn thoughts(&mut self, update: &Value) -> CommandResult {
        let look = self.output.note_look;
        let Some(text) = chunk(update, look).filter(|_| self.output.is_interactive()) else {
            return Ok(());
        };
        self.end_answer()?;
        let lines = take_lines(&mut self.thought, &text);
        let preview = one_line(&self.thought);
        self.show_activity(if preview.is_empty() { "thinking" } else { &preview });
        self.dimmed(&lines)
    }

    fn dimmed(&mut self, lines: &str) -> CommandResult {
        for line in lines.lines() {
            let line = self.output.note_look.paint(DIM, line);
            self.write(|output| output.note_unedited(&line))?;
        }
        Ok(())
    }

    fn tool(&mut self, update: &Value) -> CommandResult {
        let (Some(id), Ok(call)) = (update["toolCallId"].as_str(), ToolCall::deserialize(update)) else {
            return Ok(());
        };
        self.end_stream()?;
        let known = self.tools.entry(id.to_owned()).or_default();
        known.merge(call);
        if known.has_ended {
            return Ok(());
        }
        let status = update["status"].as_str();
        known.has_ended = matches!(status, Some("completed" | "failed"));
        let call = known.clone();
        if !call.has_ended {
            self.show_activity(&title(&call));
            return Ok(());
        }
        self.show_activity("waiting for the agent");
        self.show_tool_result(&call, status == Some("completed"))
    }

    /// Prints a tool call that has ended, on one line.
    fn show_tool_result(&mut self, call: &ToolCall, worked: bool) -> CommandResult {
        let look = self.output.note_look;
        let mark = match worked {
            true => look.paint(GOOD, look.sign("✓", "+")),
            false => look.paint(BAD, look.sign("✗", "x")),
        };
        let columns = look.columns.unwrap_or(COLUMNS).saturating_sub(2);
        let title = truncate(&title(call), columns, look);
        let room = columns.saturating_sub(title.width() + 2);
        let result = call.result().filter(|_| room > 8);
        let result = result.map_or_else(String::new, |result| {
            format!("  {}", look.paint(DIM, &truncate(&result, room, look)))
        });
        self.note(&format!("{mark} {title}{result}"))
    }

    fn plan(&mut self, update: &Value) -> CommandResult {
        let look = self.output.note_look;
        let entries = update["entries"].as_array().into_iter().flatten();
        let lines: Vec<String> = entries.map(|entry| plan_line(entry, look)).collect();
        let text = lines.join("\n");
        if text.is_empty() || text == self.plan {
            return Ok(());
        }
        self.plan.clone_from(&text);
        self.note(&format!("{}\n{text}", look.paint(STRONG, "plan")))
    }

    /// Prints text whose line is not complete yet.
    pub(super) fn end_stream(&mut self) -> CommandResult {
        self.end_thoughts()?;
        self.end_answer()
    }

    fn end_thoughts(&mut self) -> CommandResult {
        let rest = std::mem::take(&mut self.thought);
        self.dimmed(&rest)
    }

    fn end_answer(&mut self) -> CommandResult {
        let rest = self.markdown.as_mut().map(Markdown::end).unwrap_or_default();
        self.write(|output| output.text(&rest))?;
        // The answer may continue, or another message may follow in the same file; either begins on a new line.
        self.write(Output::end_line)?;
        self.flush_deferred_notes()
    }

    /// Shows beside the spinner what the agent is doing.
    fn show_activity(&self, what: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.show_activity(what);
        }
    }

    /// Writes while the spinner is hidden.
    fn write(&mut self, write: impl FnOnce(&mut Output) -> CommandResult) -> CommandResult {
        let output = &mut *self.output;
        match &self.spinner {
            Some(spinner) => spinner.suspend(|| write(output)),
            None => write(output),
        }
    }
}

/// The text of a chunk, sanitized for the stream that it is written to.
fn chunk(update: &Value, look: Look) -> Option<String> {
    let content = &update["content"];
    let text = match content["text"].as_str() {
        Some(text) => look.sanitize(text),
        None => format!(
            "[{}]",
            one_line(content["uri"].as_str().or(content["type"].as_str())?)
        ),
    };
    Some(text).filter(|text| !text.is_empty())
}

fn title(call: &ToolCall) -> String {
    let title = call.title.as_deref().map(one_line).unwrap_or_default();
    if title.is_empty() {
        "tool".to_owned()
    } else {
        title
    }
}

fn plan_line(entry: &Value, look: Look) -> String {
    let content = one_line(entry["content"].as_str().unwrap_or_default());
    match entry["status"].as_str().unwrap_or_default() {
        "completed" => look.paint(DIM, &format!("  {} {content}", look.sign("✓", "[x]"))),
        "in_progress" => look.paint(STRONG, &format!("  {} {content}", look.sign("▸", "[~]"))),
        _ => format!("  {} {content}", look.sign("○", "[ ]")),
    }
}

fn usage_line(usage: &Value, look: Look) -> String {
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    let (used, size) = (count("used"), count("size"));
    let percent = used * 100 / size.max(1);
    let context = format!(
        "context {percent}% ({} of {} tokens)",
        token_count(used),
        token_count(size)
    );
    let Some(amount) = usage["cost"]["amount"].as_f64() else {
        return context;
    };
    let cost = match usage["cost"]["currency"].as_str().unwrap_or_default() {
        "USD" => format!("${amount:.2}"),
        currency => format!("{amount:.2} {}", one_line(currency)),
    };
    format!("{context} {} {cost}", look.sign("·", "-"))
}

/// Formats a number of tokens for people.
fn token_count(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..999_500 => format!("{}k", (tokens + 500) / 1_000),
        _ => match (tokens + 50_000) / 100_000 {
            tenths if tenths % 10 == 0 => format!("{}M", tenths / 10),
            tenths => format!("{}.{}M", tenths / 10, tenths % 10),
        },
    }
}

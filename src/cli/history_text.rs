//! Renders the messages of a history as text.
//!
//! It owns the layout of messages: prompts, replies, a line for each tool call with its result below it, and notes. Pure:
//! pages of messages in, text out. It must not know where they come from.

use std::collections::{BTreeMap, BTreeSet};

use anstyle::Style;
use bridge_protocol::CheckpointId;
use bridge_protocol::history::{Message, MessageKind, MessagePart, Role};

use super::humanize::{self, Clock};
use super::output::{ATTENTION, DIM, Look, STRONG, one_line, truncate};
use super::prompt_text::{Untagged, attached_file, untagged};
use super::talk::markdown::Markdown;

#[cfg(test)]
mod tests;

/// How many columns of a tool call or its result are shown, if the terminal is wide enough.
const FOLDED_COLUMNS: usize = 100;

/// Renders messages as text, page after page.
#[derive(Default)]
pub(super) struct HistoryRenderer {
    look: Look,
    /// Whether the last line is a compact line, which has no empty line after it.
    is_after_compact_line: bool,
    /// Messages that wait for the next page: a call without its result, and the messages after it.
    waiting: Vec<Message>,
    /// The numbers of the turns, if they are shown.
    turn_headings: Option<TurnHeadings>,
    /// The checkpoint of the turn whose number was shown last.
    last_heading: Option<CheckpointId>,
    text: String,
}

/// The data for headings above the prompts that begin turns.
pub(super) struct TurnHeadings {
    /// The number of each turn, as `--at` accepts it.
    pub(super) steps: BTreeMap<CheckpointId, u64>,
    /// The clock for their times.
    pub(super) clock: Clock,
}

impl HistoryRenderer {
    /// Creates a renderer that has printed nothing yet.
    pub(super) fn new(look: Look) -> Self {
        Self {
            look,
            ..Self::default()
        }
    }

    /// Shows the number and the time of each turn above its prompt from here on.
    pub(super) fn show_turns(&mut self, turns: TurnHeadings) {
        self.turn_headings = Some(turns);
    }

    /// Renders the next page. Each result is printed below its call, even if the results of parallel calls arrive in another
    /// order. If a call of the last turn has no result yet, it and the messages after it wait for the next page.
    pub(super) fn page(&mut self, messages: Vec<Message>) -> String {
        self.waiting.extend(messages);
        let is_result = |part: &&MessagePart| part.kind == "toolResult";
        let results = self.waiting.iter().flat_map(|message| &message.content);
        let results: BTreeSet<&str> = results.filter(is_result).map(id_of).collect();
        let waits = |part: &MessagePart| part.kind == "toolCall" && !results.contains(id_of(part));
        let turn = self.waiting.iter().rposition(is_prompt).unwrap_or_default();
        let mut of_turn = self.waiting[turn..].iter();
        let first = of_turn.position(|message| message.content.iter().any(waits));
        let rest = first.map_or_else(Vec::new, |first| self.waiting.split_off(turn + first));
        let shown = std::mem::replace(&mut self.waiting, rest);
        self.render(&shown)
    }

    /// Renders the waiting messages, after the last page.
    pub(super) fn rest(&mut self) -> String {
        let rest = std::mem::take(&mut self.waiting);
        self.render(&rest)
    }

    fn render(&mut self, messages: &[Message]) -> String {
        let parts = || messages.iter().flat_map(|message| &message.content);
        let called: BTreeSet<&str> = parts()
            .filter(|part| part.kind == "toolCall")
            .map(id_of)
            .collect();
        let mut results: BTreeMap<&str, Vec<&MessagePart>> = BTreeMap::new();
        for part in parts().filter(|part| part.kind == "toolResult" && called.contains(id_of(part))) {
            results.entry(id_of(part)).or_default().push(part);
        }
        for message in messages {
            if is_prompt(message) {
                self.turn_heading(message);
                self.prompt(&message.content);
                continue;
            }
            for part in &message.content {
                match part.kind.as_str() {
                    "text" if part.text.is_some() => self.reply(message, part),
                    "toolCall" => {
                        let input = part.input.as_ref().map_or("", |input| input.get());
                        let call = format!("[{} {input}]", part.name.as_deref().unwrap_or("tool"));
                        self.compact_line(DIM, &call, part);
                        let results = results.remove(id_of(part)).into_iter().flatten();
                        results.for_each(|result| self.result(result));
                    }
                    "toolResult" if called.contains(id_of(part)) => {}
                    "toolResult" => self.result(part),
                    "thought" if part.text.as_deref().is_none_or(str::is_empty) => {}
                    _ => self.compact_line(DIM, &raw_part(part), part),
                }
            }
        }
        std::mem::take(&mut self.text)
    }

    /// The number and the time of the turn that this prompt began, once for each turn.
    fn turn_heading(&mut self, message: &Message) {
        let Some(turns) = &self.turn_headings else { return };
        let checkpoint = message.checkpoint_id.as_ref();
        if checkpoint.is_some() && checkpoint == self.last_heading.as_ref() {
            return;
        }
        let step = checkpoint.and_then(|checkpoint| turns.steps.get(checkpoint));
        let parts = [
            step.map(|step| format!("turn {step}")),
            message.at.map(|at| turns.clock.short(at)),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        self.last_heading = checkpoint.cloned();
        if parts.is_empty() {
            return;
        }
        if std::mem::take(&mut self.is_after_compact_line) {
            self.text.push('\n');
        }
        let line = self.look.paint(DIM, &parts.join(", "));
        self.text.push_str(&format!("{line}\n"));
    }

    /// Renders a prompt with all its parts.
    fn prompt(&mut self, content: &[MessagePart]) {
        let mut said = Vec::new();
        for part in content {
            match (part.kind.as_str(), &part.text) {
                ("text", Some(text)) if let Some(path) = attached_file(text) => {
                    said.push(format!("@{}", one_line(&path)));
                }
                // The daemon wrote this text, not the user.
                ("text", Some(text)) if let Some(own) = humanize::mark_daemon_prompt(text) => {
                    self.compact_line(DIM, &own, part);
                }
                ("text", Some(text)) => {
                    let words = untagged(text).map(Untagged::text);
                    let words = self.look.sanitize(words.as_deref().unwrap_or(text));
                    said.push(format!("{}{}", words.trim_end(), cut_off(part)));
                }
                ("retelling", _) => self.compact_line(DIM, &raw_part(part), part),
                _ => said.push(format!("{}{}", self.fold(&raw_part(part)), cut_off(part))),
            }
        }
        if !said.is_empty() {
            self.paragraph(STRONG, &quote_prompt(&said.join("\n")), "");
        }
    }

    fn reply(&mut self, message: &Message, part: &MessagePart) {
        let words = part.text.as_deref().unwrap_or_default();
        let text = self.look.sanitize(words);
        let (text, cut_off) = (text.trim_end(), cut_off(part));
        match (message.role, message.kind) {
            _ if text.is_empty() && cut_off.is_empty() => {}
            // Some asides are in brackets already.
            (_, Some(MessageKind::Aside)) if text.starts_with('[') && text.ends_with(']') => {
                self.compact_line(DIM, text, part);
            }
            (_, Some(MessageKind::Aside)) if let Some(tagged) = untagged(words) => {
                if !tagged.typed.is_empty() {
                    self.compact_line(DIM, &format!("[{}]", tagged.typed), part);
                }
                if !tagged.output.is_empty() {
                    self.answer(&tagged.output, part);
                }
            }
            // Written for the model by the agent. The JSON form has it.
            (_, Some(MessageKind::Aside)) => {}
            (_, Some(MessageKind::Error)) => self.paragraph(ATTENTION, text, &cut_off),
            (_, Some(MessageKind::Summary)) => {
                let summary = self.fold(&format!("[summary] {words}"));
                self.paragraph(DIM, &summary, &cut_off);
            }
            (Role::User, _) => self.paragraph(STRONG, &quote_prompt(text), &cut_off),
            _ => {
                let text = Markdown::render(text, self.look);
                self.paragraph(Style::new(), &text, &cut_off);
            }
        }
    }

    fn result(&mut self, part: &MessagePart) {
        let mark = if part.is_error == Some(true) {
            "failed: "
        } else {
            ""
        };
        let words = part.text.as_deref().unwrap_or_default();
        self.answer(&format!("{mark}{words}"), part);
    }

    /// Renders the result of the call above.
    fn answer(&mut self, words: &str, part: &MessagePart) {
        let answer = self.fold(&format!("-> {words}"));
        self.line(&format!("  {answer}"), DIM, &cut_off(part));
    }

    /// Renders a line without empty lines between it and other such lines.
    fn compact_line(&mut self, style: Style, text: &str, part: &MessagePart) {
        let text = self.fold(text);
        self.line(&text, style, &cut_off(part));
    }

    fn line(&mut self, text: &str, style: Style, end: &str) {
        self.is_after_compact_line = true;
        self.text
            .push_str(&format!("{}{end}\n", self.look.paint(style, text)));
    }

    /// A text with an empty line before and after it.
    fn paragraph(&mut self, style: Style, text: &str, end: &str) {
        if std::mem::take(&mut self.is_after_compact_line) {
            self.text.push('\n');
        }
        let text = self.look.paint(style, text);
        self.text.push_str(&format!("{text}{end}\n\n"));
    }

    fn fold(&self, text: &str) -> String {
        // With room for an indent.
        let room = self
            .look
            .columns
            .map_or(FOLDED_COLUMNS, |columns| columns.saturating_sub(2));
        truncate(&one_line(text), FOLDED_COLUMNS.min(room), self.look)
    }
}

/// Whether a message is a prompt of the user and not the result of a tool.
pub(super) fn is_prompt(message: &Message) -> bool {
    let is_result = message.content.iter().any(|part| part.kind == "toolResult");
    message.role == Role::User && message.kind.is_none() && !is_result
}

/// A prompt with its mark before each line.
fn quote_prompt(prompt: &str) -> String {
    let lines = prompt.split('\n').map(|line| format!("> {line}"));
    lines
        .map(|line| line.trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

fn id_of(part: &MessagePart) -> &str {
    part.tool_call_id.as_deref().unwrap_or_default()
}

/// A part rendered by its kind, or in its raw form if the kind is not known here.
fn raw_part(part: &MessagePart) -> String {
    let raw = || part.raw.as_ref().map_or("", |raw| raw.get());
    match (part.kind.as_str(), part.text.as_deref()) {
        ("", _) => format!("[unknown] {}", raw()),
        ("text", None) => format!("[unknown text] {}", raw()),
        (kind, words) => format!("[{kind}] {}", words.unwrap_or_default()),
    }
}

fn cut_off(part: &MessagePart) -> String {
    match part.cut_bytes {
        Some(bytes) => format!(" [{}, cut]", humanize::size(bytes)),
        None => String::new(),
    }
}

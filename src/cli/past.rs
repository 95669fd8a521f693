//! What was said, as text.
//!
//! It owns how messages look one below the other: prompts, replies, a line for each call of a tool with its answer below
//! it, notes. Pure: pages of messages in, text out. It must not know where they come from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bridge_protocol::history::{Message, MessageKind, MessagePart, Role};

use super::output::{ATTENTION, DIM, Look, STRONG, cut, one_line};
use super::words;

#[cfg(test)]
mod tests;

/// How many columns of a tool's call or answer are shown.
pub(super) const FOLDED_COLUMNS: usize = 100;

/// The state between two pages.
#[derive(Debug)]
pub(super) struct Teller {
    look: Look,
    /// Whether the last line was one of those that stand close together, so that a prompt needs an empty line before it.
    is_close: bool,
    /// The lines of this turn's calls whose answers have not come yet.
    waiting: BTreeMap<String, String>,
    /// The call whose line is the last one.
    last_call: Option<String>,
}

/// The answers of tools that stand on a page behind their calls.
#[derive(Debug, Default)]
struct Answers<'a> {
    of_calls: BTreeMap<&'a str, VecDeque<&'a MessagePart>>,
    /// The same ones, which are not told where they stand.
    placed: BTreeSet<*const MessagePart>,
}

impl<'a> Answers<'a> {
    fn on(messages: &'a [Message]) -> Self {
        let mut answers = Self::default();
        let mut open: BTreeMap<&str, usize> = BTreeMap::new();
        for part in messages.iter().flat_map(|message| &message.content) {
            let id = part.tool_call_id.as_deref().unwrap_or_default();
            let calls = open.entry(id).or_default();
            if part.kind == "toolCall" {
                *calls += 1;
            } else if part.kind == "toolResult" && *calls > 0 {
                *calls -= 1;
                answers.of_calls.entry(id).or_default().push_back(part);
                answers.placed.insert(std::ptr::from_ref(part));
            }
        }
        answers
    }

    fn take(&mut self, call: &str) -> Option<&'a MessagePart> {
        self.of_calls.get_mut(call)?.pop_front()
    }
}

impl Teller {
    /// Nothing has been told yet.
    pub(super) fn new(look: Look) -> Self {
        Self {
            look,
            is_close: false,
            waiting: BTreeMap::new(),
            last_call: None,
        }
    }

    /// The text of the next page. Calls that are made together are answered in any order: each answer that is on the same
    /// page stands below its call, and one that comes later repeats the call's line.
    pub(super) fn page(&mut self, messages: &[Message]) -> String {
        let mut answers = Answers::on(messages);
        messages
            .iter()
            .map(|message| self.message(message, &mut answers))
            .collect()
    }

    fn message(&mut self, message: &Message, answers: &mut Answers<'_>) -> String {
        let is_answer = message.content.iter().any(|part| part.kind == "toolResult");
        if message.role == Role::User && message.kind.is_none() && !is_answer {
            return self.prompt(&message.content);
        }
        let mut told = String::new();
        for part in &message.content {
            told.push_str(&self.part(message, part, answers));
        }
        told
    }

    /// All that a person said at once, with an empty line behind it.
    fn prompt(&mut self, content: &[MessagePart]) -> String {
        let mut told = String::new();
        let mut said = Vec::new();
        for part in content {
            match part.kind.as_str() {
                _ if is_strange(part) => {
                    said.push(format!("{}{}", self.folded(&strange(part)), cut_off(part)));
                }
                "text" => {
                    let text = self.look.safe(part.text.as_deref().unwrap_or_default());
                    said.push(format!("{}{}", text.trim_end(), cut_off(part)));
                }
                // The daemon's words, not the person's.
                "retelling" => told.push_str(&self.close(DIM, &other(part), &cut_off(part))),
                _ => said.push(format!("{}{}", self.folded(&other(part)), cut_off(part))),
            }
        }
        self.waiting.clear();
        self.last_call = None;
        if said.is_empty() {
            return told;
        }
        told.push_str(&self.apart());
        let prompt = self.look.paint(STRONG, &format!("> {}", said.join("\n")));
        told.push_str(&format!("{prompt}\n\n"));
        told
    }

    fn part(&mut self, message: &Message, part: &MessagePart, answers: &mut Answers<'_>) -> String {
        let words = part.text.as_deref().unwrap_or_default();
        let id = part.tool_call_id.as_deref().unwrap_or_default();
        match part.kind.as_str() {
            _ if is_strange(part) => self.close(DIM, &strange(part), &cut_off(part)),
            "text" => self.text(message, words, &cut_off(part)),
            "toolCall" => {
                let input = part.input.as_ref().map_or("", |input| input.get());
                let call = format!("[{} {input}]", part.name.as_deref().unwrap_or("tool"));
                let line = self.close(DIM, &call, &cut_off(part));
                match answers.take(id) {
                    Some(answer) => line + &self.answer(answer),
                    None => {
                        self.waiting.insert(id.to_owned(), line.clone());
                        self.last_call = Some(id.to_owned());
                        line
                    }
                }
            }
            "toolResult" if answers.placed.contains(&std::ptr::from_ref(part)) => String::new(),
            "toolResult" => {
                let call = self.waiting.remove(id);
                let call = call.filter(|_| self.last_call.as_deref() != Some(id));
                call.unwrap_or_default() + &self.answer(part)
            }
            "thought" if words.is_empty() => String::new(),
            _ => self.close(DIM, &other(part), &cut_off(part)),
        }
    }

    fn text(&mut self, message: &Message, words: &str, cut_off: &str) -> String {
        let text = self.look.safe(words);
        let text = text.trim_end();
        if text.is_empty() && cut_off.is_empty() {
            return String::new();
        }
        let (before, told) = match (message.role, message.kind) {
            (_, Some(MessageKind::Aside)) => {
                // Some stand in brackets already.
                let is_bracketed = text.starts_with('[') && text.ends_with(']');
                let note = match is_bracketed {
                    true => text.to_owned(),
                    false => format!("[note] {text}"),
                };
                return self.close(DIM, &note, cut_off);
            }
            (_, Some(MessageKind::Error)) => (String::new(), self.look.paint(ATTENTION, text)),
            (_, Some(MessageKind::Summary)) => {
                let summary = self.folded(&format!("[summary] {words}"));
                (String::new(), self.look.paint(DIM, &summary))
            }
            (Role::User, _) => (self.apart(), self.look.paint(STRONG, &format!("> {text}"))),
            _ => (String::new(), text.to_owned()),
        };
        (self.is_close, self.last_call) = (false, None);
        format!("{before}{told}{cut_off}\n\n")
    }

    fn answer(&mut self, part: &MessagePart) -> String {
        let mark = match part.is_error {
            Some(true) => "failed: ",
            _ => "",
        };
        let words = part.text.as_deref().unwrap_or_default();
        let answer = self.folded(&format!("-> {mark}{words}"));
        (self.is_close, self.last_call) = (true, None);
        format!(
            "{}{}\n",
            self.look.paint(DIM, &format!("  {answer}")),
            cut_off(part)
        )
    }

    /// One line among others that stand close together.
    fn close(&mut self, style: anstyle::Style, text: &str, cut_off: &str) -> String {
        (self.is_close, self.last_call) = (true, None);
        format!("{}{cut_off}\n", self.look.paint(style, &self.folded(text)))
    }

    /// The empty line before a prompt, where there is none yet.
    fn apart(&mut self) -> String {
        match std::mem::replace(&mut self.is_close, false) {
            true => "\n".to_owned(),
            false => String::new(),
        }
    }

    fn folded(&self, text: &str) -> String {
        cut(&one_line(text), FOLDED_COLUMNS, self.look)
    }
}

/// A part that has no form of its own here.
fn other(part: &MessagePart) -> String {
    let words = part.text.as_deref().unwrap_or_default();
    format!("[{}] {words}", part.kind)
}

/// Whether its form is not known: it has no kind, or not what one of that kind has.
fn is_strange(part: &MessagePart) -> bool {
    part.kind.is_empty() || (part.kind == "text" && part.text.is_none())
}

/// Such a part as it stands.
fn strange(part: &MessagePart) -> String {
    let space = if part.kind.is_empty() { "" } else { " " };
    let raw = part.raw.as_ref().map_or("", |raw| raw.get());
    format!("[{}{space}of a form that is not known here] {raw}", part.kind)
}

fn cut_off(part: &MessagePart) -> String {
    match part.cut_bytes {
        Some(bytes) => format!(" [{}, cut]", words::count(bytes, "byte", "bytes")),
        None => String::new(),
    }
}

//! What a turn looks like as text while it runs.
//!
//! It owns the way from the agent's updates to text: the agent's words as they come, its thoughts dimmed, one line for
//! each tool call and its end, the plan. Pure: updates in, text out. It must not know where updates come from.

use std::collections::BTreeMap;

use bridge_protocol::raw::RawJson;
use serde::Deserialize;

use super::output::{BAD, DIM, GOOD, Look, STRONG, one_line};

#[cfg(test)]
mod tests;

/// The state between two updates.
#[derive(Debug)]
pub(super) struct Renderer {
    look: Look,
    stream: Stream,
    /// Whether the last thing written ended a line.
    at_line_start: bool,
    /// The tool calls that have not ended, by their id.
    tools: BTreeMap<String, Tool>,
    plan: String,
}

/// Which kind of running text was written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Nothing,
    Words,
    Thoughts,
}

#[derive(Debug, Default)]
struct Tool {
    title: String,
    ended: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    session_update: String,
}

#[derive(Deserialize)]
struct Chunk {
    content: Content,
}

#[derive(Deserialize)]
struct Content {
    r#type: String,
    text: Option<String>,
    uri: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCall {
    tool_call_id: String,
    title: Option<String>,
    status: Option<String>,
}

#[derive(Deserialize)]
struct Plan {
    #[serde(default)]
    entries: Vec<PlanEntry>,
}

#[derive(Deserialize)]
struct PlanEntry {
    content: String,
    #[serde(default)]
    status: String,
}

impl Renderer {
    /// Nothing has been written yet.
    pub(super) fn new(look: Look) -> Self {
        Self {
            look,
            stream: Stream::Nothing,
            at_line_start: true,
            tools: BTreeMap::new(),
            plan: String::new(),
        }
    }

    /// The text of one update; nothing for those that say nothing to a reader, and for kinds that are not known here.
    pub(super) fn update(&mut self, update: &RawJson) -> String {
        let Ok(kind) = update.read::<Kind>() else {
            return String::new();
        };
        match kind.session_update.as_str() {
            "agent_message_chunk" => self.chunk(update, Stream::Words),
            "agent_thought_chunk" => self.chunk(update, Stream::Thoughts),
            "tool_call" | "tool_call_update" => self.tool(update),
            "plan" => self.plan(update),
            _ => String::new(),
        }
    }

    /// A line of its own, after whatever text was running.
    pub(super) fn line(&mut self, text: &str) -> String {
        let mut whole = self.end_line();
        whole.push_str(text);
        whole.push('\n');
        whole
    }

    /// What ends the running text, so that something else can be written on a line of its own.
    pub(super) fn end_line(&mut self) -> String {
        self.stream = Stream::Nothing;
        if std::mem::replace(&mut self.at_line_start, true) {
            String::new()
        } else {
            "\n".to_owned()
        }
    }

    /// Whether the last thing written ended a line.
    pub(super) fn is_at_line_start(&self) -> bool {
        self.at_line_start
    }

    /// Forgets the turn that has ended.
    pub(super) fn end_turn(&mut self) -> String {
        self.tools.clear();
        self.plan.clear();
        self.end_line()
    }

    fn chunk(&mut self, update: &RawJson, stream: Stream) -> String {
        let Ok(chunk) = update.read::<Chunk>() else {
            return String::new();
        };
        let text = match (chunk.content.text, chunk.content.uri) {
            (Some(text), _) => self.look.safe(&text),
            (None, Some(uri)) => format!("[{}]", one_line(&uri)),
            (None, None) => format!("[{}]", one_line(&chunk.content.r#type)),
        };
        if text.is_empty() {
            return String::new();
        }
        let mut written = String::new();
        if self.stream != stream {
            written.push_str(&self.end_line());
            self.stream = stream;
        }
        self.at_line_start = text.ends_with('\n');
        match stream {
            Stream::Thoughts => written.push_str(&self.look.paint(DIM, &text)),
            Stream::Words | Stream::Nothing => written.push_str(&text),
        }
        written
    }

    fn tool(&mut self, update: &RawJson) -> String {
        let Ok(call) = update.read::<ToolCall>() else {
            return String::new();
        };
        let known = self.tools.contains_key(&call.tool_call_id);
        let tool = self.tools.entry(call.tool_call_id).or_default();
        if let Some(title) = call.title.filter(|title| !title.trim().is_empty()) {
            tool.title = one_line(&title);
        }
        let ended = match call.status.as_deref() {
            Some("completed") => Some(true),
            Some("failed") => Some(false),
            _ => None,
        };
        let title = if tool.title.is_empty() {
            "tool"
        } else {
            &tool.title
        };
        let line = match ended {
            Some(_) if tool.ended => return String::new(),
            Some(worked) => {
                tool.ended = true;
                if worked {
                    let mark = self.look.paint(GOOD, self.look.sign("✓", "+"));
                    format!("{mark} {title}: done")
                } else {
                    let mark = self.look.paint(BAD, self.look.sign("✗", "x"));
                    format!("{mark} {title}: failed")
                }
            }
            // Progress of a tool that has its line already is not worth another one.
            None if known => return String::new(),
            None => {
                let mark = self.look.paint(STRONG, self.look.sign("→", ">"));
                format!("{mark} {title}")
            }
        };
        self.line(&line)
    }

    fn plan(&mut self, update: &RawJson) -> String {
        let Ok(plan) = update.read::<Plan>() else {
            return String::new();
        };
        let lines: Vec<String> = plan
            .entries
            .iter()
            .map(|entry| {
                let mark = match entry.status.as_str() {
                    "completed" => "x",
                    "in_progress" => self.look.sign("…", "~"),
                    _ => " ",
                };
                format!("  [{mark}] {}", one_line(&entry.content))
            })
            .collect();
        let text = lines.join("\n");
        if text.is_empty() || text == self.plan {
            return String::new();
        }
        self.plan.clone_from(&text);
        let heading = self.look.paint(STRONG, "plan");
        self.line(&format!("{heading}\n{text}"))
    }
}

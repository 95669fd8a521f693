//! Questions of the agent, asked on a terminal.
//!
//! It owns the way to a person: which terminal, which options, what an answer means. It must not know how an answer
//! gets to the daemon.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};

use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::Interrupt;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::output::one_line;

#[cfg(test)]
mod tests;

/// Lines that a person has typed and that nobody has looked at yet. One is an answer; more than that was typed ahead.
const TYPED_AHEAD_LINES: usize = 1;

/// A person at a terminal.
pub(super) struct Person {
    lines: mpsc::Receiver<String>,
}

/// One way to answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Choice {
    /// ACP's id of the option.
    pub(super) option_id: String,
    /// What it is called.
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Deserialize)]
struct ToolTitle {
    title: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    message: Option<String>,
}

impl Person {
    /// The person who sees standard error, where there is one: at the controlling terminal, or at standard input when
    /// that is a terminal and nothing else is read from it.
    pub(super) fn find(stdin_is_free: bool) -> Option<Self> {
        if !io::stderr().is_terminal() {
            return None;
        }
        let source: Box<dyn Read + Send> = match File::open("/dev/tty") {
            Ok(terminal) => Box::new(terminal),
            Err(_) if stdin_is_free && io::stdin().is_terminal() => Box::new(io::stdin()),
            Err(error) => {
                tracing::debug!(%error, "there is no terminal to ask at");
                return None;
            }
        };
        let (sender, lines) = mpsc::channel(TYPED_AHEAD_LINES);
        // Reading a terminal cannot be interrupted: a thread of its own does it, and ends with the process.
        std::thread::spawn(move || {
            for line in BufReader::new(source).lines() {
                let Ok(line) = line else { break };
                if sender.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        Some(Self { lines })
    }

    /// The next line that is typed; nothing once the terminal is closed. Safe to be dropped before it is ready.
    pub(super) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }
}

/// What is asked, on one line.
pub(super) fn subject(interrupt: &Interrupt) -> String {
    let tool = interrupt
        .tool_call
        .as_ref()
        .and_then(|call| call.read::<ToolTitle>().ok())
        .and_then(|call| call.title);
    let message = || {
        interrupt
            .request
            .read::<Message>()
            .ok()
            .and_then(|request| request.message)
    };
    tool.or_else(message)
        .map_or_else(|| "the agent asks".to_owned(), |text| one_line(&text))
}

/// The options, in the agent's order.
pub(super) fn choices(interrupt: &Interrupt) -> Vec<Choice> {
    interrupt
        .options
        .as_ref()
        .and_then(|options| options.read().ok())
        .unwrap_or_default()
}

/// The question and its numbered options as lines.
pub(super) fn lines(interrupt: &Interrupt) -> Vec<String> {
    let mut lines = vec![format!("? {}", subject(interrupt))];
    for (index, choice) in choices(interrupt).iter().enumerate() {
        let name = one_line(&choice.name);
        let id = one_line(&choice.option_id);
        let name = if name.is_empty() { &id } else { &name };
        lines.push(format!("  {}  {name}", index + 1));
    }
    lines
}

/// The option that a typed line means: its number, its id, or its name.
pub(super) fn pick(choices: &[Choice], typed: &str) -> Option<String> {
    let typed = typed.trim();
    if typed.is_empty() {
        // An option without a name would be called the same.
        return None;
    }
    let by_number = typed
        .parse::<usize>()
        .ok()
        .and_then(|number| choices.get(number.checked_sub(1)?));
    by_number
        .or_else(|| {
            choices
                .iter()
                .find(|choice| choice.option_id == typed || choice.name.eq_ignore_ascii_case(typed))
        })
        .map(|choice| choice.option_id.clone())
}

/// ACP's outcome for what `sessionctl answer` is given: an option's id, `cancel`, or a whole outcome.
pub(super) fn outcome(option: &str) -> RawJson {
    if option.trim_start().starts_with('{')
        && let Ok(outcome) = RawJson::from_text(option.to_owned())
    {
        return outcome;
    }
    RawJson::from(match option {
        "cancel" => json!({"outcome": "cancelled"}),
        option => json!({"outcome": "selected", "optionId": option}),
    })
}

//! Questions of the agent, asked on a terminal.
//!
//! It owns the way to a person: which terminal, which options, what an answer means. It must not know how an answer
//! gets to the daemon.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::time::Instant;

use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{Interrupt, InterruptKind};
use rustix::termios::{QueueSelector, tcflush};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::output::one_line;

#[cfg(test)]
mod tests;

/// By which name the others are told that a question was answered here.
pub(super) const ANSWERER: &str = "sessionctl";

/// Lines that a person has typed and that nobody has looked at yet. One is an answer; more than that was typed ahead.
const TYPED_AHEAD_LINES: usize = 1;

/// A person at a terminal.
pub(super) struct Person {
    /// Asks the thread that reads for one more line. What is typed while no question is open is left to whoever reads
    /// the terminal next, and a command in the background is not stopped for reading.
    wanted: mpsc::Sender<()>,
    lines: mpsc::Receiver<Typed>,
    /// The terminal; nothing where it cannot be asked to forget.
    terminal: Option<OwnedFd>,
    /// When the question was asked that is to be answered.
    asked_at: Instant,
}

/// A line, and when it was typed.
pub(super) struct Typed {
    /// The line, without its end.
    pub(super) text: String,
    at: Instant,
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
    /// ACP's kind of the option.
    #[serde(default)]
    pub(super) kind: String,
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
        let (source, terminal): (Box<dyn Read + Send>, _) = match File::open("/dev/tty") {
            Ok(terminal) => {
                let same = terminal.try_clone().ok().map(OwnedFd::from);
                (Box::new(terminal), same)
            }
            Err(_) if stdin_is_free && io::stdin().is_terminal() => (Box::new(io::stdin()), None),
            Err(error) => {
                tracing::debug!(%error, "there is no terminal to ask at");
                return None;
            }
        };
        let (wanted, mut wishes) = mpsc::channel(TYPED_AHEAD_LINES);
        let (sender, lines) = mpsc::channel(TYPED_AHEAD_LINES);
        // Reading a terminal cannot be interrupted: a thread of its own does it, and ends with the process.
        std::thread::spawn(move || {
            let mut typed = BufReader::new(source).lines();
            while wishes.blocking_recv().is_some() {
                let Some(Ok(text)) = typed.next() else { break };
                let at = Instant::now();
                if sender.blocking_send(Typed { text, at }).is_err() {
                    break;
                }
            }
        });
        Some(Self {
            wanted,
            lines,
            terminal,
            asked_at: Instant::now(),
        })
    }

    /// Begins to listen for the answer to a question that is about to be shown. What was typed until now was not meant
    /// for it and is forgotten; a line that is on its way already is told apart by [`knew`](Self::knew).
    pub(super) fn listen(&mut self) {
        if let Some(terminal) = &self.terminal
            && let Err(error) = tcflush(terminal, QueueSelector::IFlush)
        {
            tracing::debug!(%error, "the terminal does not forget");
        }
        while self.lines.try_recv().is_ok() {}
        self.asked_at = Instant::now();
        self.listen_on();
    }

    /// Listens for one more line.
    pub(super) fn listen_on(&self) {
        if self.wanted.try_send(()).is_err() {
            // It listens already, or the terminal is closed, which the next line tells.
            tracing::trace!("no further line can be asked for");
        }
    }

    /// Whether whoever typed the line could have read the question.
    pub(super) fn knew(&self, line: &Typed) -> bool {
        line.at >= self.asked_at
    }

    /// The next line that is typed; nothing once the terminal is closed. Safe to be dropped before it is ready.
    pub(super) async fn line(&mut self) -> Option<Typed> {
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

/// The command that answers a question, with what it may be answered.
pub(super) fn command(conversation: &str, interrupt: &Interrupt) -> String {
    let ids: Vec<String> = choices(interrupt)
        .into_iter()
        .map(|choice| choice.option_id)
        .collect();
    let id = one_line(interrupt.id.as_str());
    if ids.is_empty() {
        return format!("answer with: sessionctl answer {conversation} {id} '{{…}}' (an ACP outcome)");
    }
    format!(
        "answer with: sessionctl answer {conversation} {id} OPTION (one of: {})",
        one_line(&ids.join(", "))
    )
}

/// ACP's outcome that grants nothing: the option that refuses this once, else one that refuses, else none at all.
pub(super) fn refusal(interrupt: &Interrupt) -> RawJson {
    if interrupt.kind == InterruptKind::Elicitation {
        return RawJson::from(json!({"action": "decline"}));
    }
    let choices = choices(interrupt);
    let refusing = choices
        .iter()
        .find(|choice| choice.kind == "reject_once")
        .or_else(|| choices.iter().find(|choice| choice.kind.starts_with("reject")));
    RawJson::from(match refusing {
        Some(choice) => json!({"outcome": "selected", "optionId": choice.option_id}),
        None => json!({"outcome": "cancelled"}),
    })
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

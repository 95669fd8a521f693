//! What must hold of everything that was told in a round.

use serde_json::{Value, json};

use super::round::Round;
use crate::crash::chain::{CHAIN_LIMIT, verify_chain, verify_upstream};
use crate::crash::client::Client;
use crate::crash::ledger::{Ledger, text};
use crate::in_order::fewest_missing;

/// The beginning of what is said where the agent has the prompt already.
const GO_ON: &str = "Your last turn was cut short.";

/// Messages a page.
const PAGE: usize = 100;

impl Round {
    /// Ids lead to their conversations, and chain and lineage are right.
    pub(crate) fn verify_chains(&mut self) {
        // A connection of its own: the events on the other are still to be heard.
        let mut client = Client::connect(&self.home.socket()).unwrap();
        for ledger in &mut self.talks {
            verify_chain(&mut client, ledger);
            verify_upstream(&mut client, ledger);
        }
    }

    /// All of it, when nothing runs any more.
    pub(crate) fn verify(&mut self) {
        self.verify_chains();
        let mut client = Client::connect(&self.home.socket()).unwrap();
        for ledger in &self.talks {
            let history = history(&mut client, &ledger.id);
            self.figures.gaps += usize::from(!history.gaps.is_empty());
            self.figures.kept += verify_history(&mut client, ledger, &history);
            let view = client.call("conversation/get", &json!({"conversationId": ledger.id}));
            let view = &view["conversation"];
            assert!(view["continuation"].is_null(), "still to go on: {view:#}");
            self.figures.full_chains += usize::from(view["chainLength"] == CHAIN_LIMIT);
        }
        for (talk, mark) in &self.never {
            let history = history(&mut client, &self.talks[*talk].id);
            assert!(!history.holds(mark), "{mark} was called off: {history:#?}");
        }
        let counts = self.effects.counted();
        self.figures.effects = counts.values().sum();
        for (_, mark) in &self.never {
            assert!(
                !counts.contains_key(mark),
                "{mark} was called off and has taken effect"
            );
        }
        for (mark, sent) in &self.sent {
            let times = counts.get(mark).copied().unwrap_or_default();
            assert!(times <= 1, "{mark} has taken effect {times} times");
            let must = sent.has_effect && sent.has_ended_well;
            assert!(times == 1 || !must, "{mark} has ended well without effect");
        }
    }
}

/// A history as it is told.
#[derive(Debug, Default)]
pub(crate) struct History {
    prompts: Vec<String>,
    /// What is told of sessions before in words: of one that was branched off such a session nothing else is.
    retold: String,
    gaps: Vec<Value>,
    /// Whether the agent had the last word.
    ends_answered: bool,
}

impl History {
    /// Whether a prompt in it has this text.
    fn holds(&self, text: &str) -> bool {
        let mut prompts = self.prompts.iter();
        self.retold.contains(text) || prompts.any(|prompt| prompt.contains(text))
    }

    /// Whether the agent answered what was asked last, as far as the history has it.
    pub(crate) fn is_answered(&self) -> bool {
        self.ends_answered || !self.gaps.is_empty()
    }

    /// Whether the conversation has gone on in it, with a text of this mark where there was one.
    pub(crate) fn has_gone_on(&self, mark: Option<&str>) -> bool {
        let has_it = mark.map_or(self.ends_answered, |mark| self.holds(mark));
        !self.gaps.is_empty() || self.holds(GO_ON) || has_it
    }
}

pub(crate) fn history(client: &mut Client, id: &str) -> History {
    let mut history = History::default();
    let mut params = json!({"conversationId": id, "limit": PAGE});
    loop {
        let page = client.call("conversation/history", &params);
        for message in page["messages"].as_array().unwrap() {
            history.ends_answered = message["role"] == "assistant" && message["kind"].is_null();
            if message["role"] != "user" || !message["kind"].is_null() {
                continue;
            }
            let parts = message["content"].as_array().unwrap();
            let words = |kind: &str| -> String {
                let parts = parts.iter().filter(|part| part["type"] == kind);
                parts.map(|part| text(part, "text")).collect()
            };
            history.retold.push_str(&words("retelling"));
            let prompt = words("text");
            if !prompt.is_empty() {
                history.prompts.push(prompt);
            }
        }
        let gaps = page["gaps"].as_array().into_iter().flatten();
        history.gaps.extend(gaps.cloned());
        if page["nextCursor"].is_null() {
            return history;
        }
        params["cursor"] = page["nextCursor"].clone();
    }
}

/// Each turn that was acknowledged stands there, in order, unless its loss was told; no prompt stands there
/// twice. How many had to.
fn verify_history(client: &mut Client, ledger: &Ledger, history: &History) -> usize {
    for sent in &ledger.sent {
        let times = history.prompts.iter().filter(|prompt| *prompt == sent).count();
        assert!(
            times <= 1,
            "{}: {sent} stands there {times} times: {history:#?}",
            ledger.id
        );
    }
    let after = |known: &str, from: usize| {
        let found = history.prompts[from..]
            .iter()
            .position(|prompt| prompt == known)?;
        Some(from + found + 1)
    };
    let gone = fewest_missing(&ledger.history, after, |known| history.retold.contains(known));
    // A gap does not say how much is not told.
    if gone > ledger.missing && history.gaps.is_empty() {
        let params = json!({"conversationId": ledger.id, "limit": 1000});
        let lineage = client.call("conversation/lineage", &params);
        panic!(
            "{}: {gone} are not in their place in {history:#?}\n{} were told as missing, expected {:#?}\nlineage \
             {lineage:#}",
            ledger.id, ledger.missing, ledger.history
        );
    }
    ledger.history.len() - gone
}

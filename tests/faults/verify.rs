//! Checks that everything the daemon acknowledged in a round still holds.

use serde_json::{Value, json};

use super::round::Round;
use crate::crash::chain::{CHAIN_LIMIT, verify_chain, verify_upstream};
use crate::crash::client::Client;
use crate::crash::ledger::{Ledger, text};
use crate::in_order::fewest_missing;

/// The beginning of the text that is sent in place of the prompt if the agent already has the prompt.
const GO_ON: &str = "Your last turn was cut short.";

/// Messages per page.
const PAGE: usize = 100;

impl Round {
    /// Checks that ids lead to their conversations, and that chain and lineage are correct.
    pub(crate) fn verify_chains(&mut self) {
        // Uses a separate connection, because the events on the round's own connection are still to be
        // processed.
        let mut client = Client::connect(&self.home.socket()).unwrap();
        for ledger in &mut self.talks {
            verify_chain(&mut client, ledger);
            verify_upstream(&mut client, ledger);
        }
    }

    /// Checks everything, when nothing runs any more.
    pub(crate) fn verify(&mut self) {
        self.verify_chains();
        let mut client = Client::connect(&self.home.socket()).unwrap();
        for ledger in &self.talks {
            let history = history(&mut client, &ledger.id);
            self.figures.gaps += usize::from(!history.gaps.is_empty());
            self.figures.kept += verify_history(&mut client, ledger, &history);
            let view = client.call("conversation/get", &json!({"conversationId": ledger.id}));
            let view = &view["conversation"];
            assert!(
                view["continuation"].is_null(),
                "a continuation is still scheduled: {view:#}"
            );
            self.figures.full_chains += usize::from(view["chainLength"] == CHAIN_LIMIT);
        }
        for (talk, mark) in &self.never {
            let history = history(&mut client, &self.talks[*talk].id);
            assert!(
                !history.holds(mark),
                "{mark} was cancelled but sent: {history:#?}"
            );
        }
        let counts = self.effects.counted();
        self.figures.effects = counts.values().sum();
        for (_, mark) in &self.never {
            assert!(
                !counts.contains_key(mark),
                "{mark} was cancelled but has taken effect"
            );
        }
        for (mark, sent) in &self.sent {
            let times = counts.get(mark).copied().unwrap_or_default();
            assert!(times <= 1, "{mark} has taken effect {times} times");
            let must = sent.has_effect && sent.has_ended_well;
            assert!(
                times == 1 || !must,
                "the turn of {mark} ended well but had no effect"
            );
        }
    }
}

/// The history that the daemon reports.
#[derive(Debug, Default)]
pub(crate) struct History {
    prompts: Vec<String>,
    /// The summary of earlier sessions. The history of a conversation branched off such a session has nothing
    /// else of them.
    retold: String,
    gaps: Vec<Value>,
    /// Whether the last message is the agent's.
    ends_answered: bool,
}

impl History {
    /// Whether a prompt or the summary contains this text.
    fn holds(&self, text: &str) -> bool {
        let mut prompts = self.prompts.iter();
        self.retold.contains(text) || prompts.any(|prompt| prompt.contains(text))
    }

    /// Whether the agent answered the last prompt, as far as the history is complete.
    pub(crate) fn is_answered(&self) -> bool {
        self.ends_answered || !self.gaps.is_empty()
    }

    /// Whether the history contains the continuation, with a text of this mark if it had one.
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

/// Checks that each acknowledged turn is in the history, in order, unless its loss was reported, and that no
/// prompt is in it twice. Returns how many turns are there that had to be.
fn verify_history(client: &mut Client, ledger: &Ledger, history: &History) -> usize {
    for sent in &ledger.sent {
        let times = history.prompts.iter().filter(|prompt| *prompt == sent).count();
        assert!(
            times <= 1,
            "{}: the history has {sent} {times} times: {history:#?}",
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
    // A gap does not say how many turns are missing.
    if gone > ledger.missing && history.gaps.is_empty() {
        let params = json!({"conversationId": ledger.id, "limit": 1000});
        let lineage = client.call("conversation/lineage", &params);
        panic!(
            "{}: {gone} prompts are missing or out of order in {history:#?}\n{} were reported as missing, \
             expected {:#?}\nlineage {lineage:#}",
            ledger.id, ledger.missing, ledger.history
        );
    }
    ledger.history.len() - gone
}

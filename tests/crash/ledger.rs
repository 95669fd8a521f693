//! What the daemon has acknowledged of one conversation, in an answer or an event: all of it has to outlive
//! the daemon.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A call that was answered under a request id, to be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
    pub(crate) result: Value,
}

/// A call with a request id that may have been carried out or not.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
    /// The prompt's text, when it is one.
    pub(crate) text: Option<String>,
}

/// What a conversation had when its head was left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    pub(crate) history: Vec<String>,
    pub(crate) missing: usize,
    pub(crate) may_be_lost: bool,
}

/// What is about to become of a history.
#[derive(Clone, Debug)]
pub(crate) enum Changing {
    /// Only what stands before the turn that is replaced is left.
    Edit { kept: Vec<String> },
    /// What it was before the last change, or, by this head, where it was before the last move.
    Undo { head: String },
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) id: String,
    /// Every upstream id that it was ever seen to have.
    pub(crate) upstream: BTreeSet<String>,
    /// The entries of the lineage by their numbers.
    pub(crate) lineage: BTreeMap<u64, Value>,
    /// Links that were seen written.
    pub(crate) written: BTreeSet<String>,
    /// The most turns that a link was seen with.
    pub(crate) turns: BTreeMap<String, u64>,
    /// The prompts whose turns ended well on the history that it has now, in their order.
    pub(crate) history: Vec<String>,
    /// How many of them were told as missing.
    pub(crate) missing: usize,
    /// All prompts that were ever sent here, so that one that was sent twice is known.
    pub(crate) sent: Vec<String>,
    /// The prompts that were accepted, by their turns.
    pub(crate) accepted: BTreeMap<String, String>,
    /// The turns in which the agent said something: their prompts have arrived.
    pub(crate) arrived: BTreeSet<String>,
    /// How turns ended, by their ids.
    pub(crate) ended: BTreeMap<String, Value>,
    /// Sessions of which it was told how they came back.
    pub(crate) told: BTreeSet<String>,
    /// How often the chain was emptied.
    pub(crate) resets: usize,
    pub(crate) answered: Vec<Answered>,
    pub(crate) unanswered: Vec<Unanswered>,
    /// The titles that it may have; one when the last change was acknowledged.
    pub(crate) titles: Vec<String>,
    pub(crate) revision: u64,
    /// Questions that were raised and that nobody has answered or cancelled.
    pub(crate) open_questions: BTreeSet<String>,
    /// Questions whose answer was acknowledged.
    pub(crate) answered_questions: BTreeSet<String>,
    /// The prompts that are held in line.
    pub(crate) held: BTreeSet<String>,
    /// Whether a session was lost with its transcript since the last new beginning, so that nothing may be
    /// left.
    pub(crate) may_be_lost: bool,
    pub(crate) deleted: bool,
    /// The folders that it may be in; one when the last move was acknowledged.
    pub(crate) folders: BTreeSet<String>,
    /// What it had when these sessions were left.
    pub(crate) left: BTreeMap<String, Past>,
    /// What may have become of the history although nobody was told.
    pub(crate) changing: Option<Changing>,
}

impl Ledger {
    /// The ledger of a conversation as it was answered.
    pub(crate) fn of(conversation: &Value) -> Self {
        let mut ledger = Self {
            id: text(conversation, "id"),
            titles: vec![text(conversation, "title")],
            folders: [text(conversation, "cwd")].into(),
            ..Self::default()
        };
        ledger.saw_conversation(conversation);
        ledger
    }

    pub(crate) fn saw_upstream(&mut self, id: &Value) {
        if let Some(id) = id.as_str().filter(|id| !id.is_empty()) {
            self.upstream.insert(id.to_owned());
        }
    }

    pub(crate) fn saw_conversation(&mut self, conversation: &Value) {
        assert_eq!(conversation["id"], self.id.as_str());
        self.saw_upstream(&conversation["head"]);
        let revision = conversation["revision"].as_u64().unwrap();
        self.revision = self.revision.max(revision);
    }

    pub(crate) fn saw_link(&mut self, link: &Value) {
        let id = text(link, "upstreamId");
        self.saw_upstream(&link["upstreamId"]);
        let turns = self.turns.entry(id.clone()).or_default();
        *turns = (*turns).max(link["turns"].as_u64().unwrap());
        if link["written"] == true {
            self.written.insert(id);
        }
    }

    pub(crate) fn saw_lineage(&mut self, entries: &[Value]) {
        for entry in entries {
            let mut entry = entry.clone();
            // It follows from the chain at the time of asking.
            entry.as_object_mut().unwrap().remove("inChain");
            self.saw_upstream(&entry["upstreamId"]);
            let seq = entry["seq"].as_u64().unwrap();
            if let Some(before) = self.lineage.get(&seq) {
                assert_eq!(*before, entry, "{}: entry {seq} changed", self.id);
            }
            self.lineage.insert(seq, entry);
        }
    }

    /// The session was brought back in this way; what is told as missing is not asked for.
    pub(crate) fn saw_resumed(&mut self, resumed: &Value) {
        self.saw_upstream(&resumed["upstreamId"]);
        self.told.insert(text(resumed, "upstreamId"));
        let missing = resumed["missingTurns"].as_u64().unwrap();
        match (resumed["fidelity"].as_str().unwrap(), missing) {
            ("full", _) => assert_eq!(missing, 0, "{resumed}"),
            ("text", 0) => {}
            // So many, and no more.
            ("partial" | "text", 1..) => self.missing += usize::try_from(missing).unwrap(),
            _ => self.history.clear(),
        }
    }

    /// A turn ended. `text` is its prompt.
    pub(crate) fn saw_turn(&mut self, text: &str, turn: &Value) {
        self.saw_upstream(&turn["upstreamId"]);
        let known = self
            .ended
            .entry(self::text(turn, "turnId"))
            .or_insert_with(|| turn.clone());
        assert_eq!(known, turn, "{}: a turn ended in two ways", self.id);
        if turn["stopReason"] == "failed" && turn["resumed"]["fidelity"] == "text" {
            // What is recalled leaves out a turn that failed at the model, and with it the words that stood
            // before its prompt.
            self.history.clear();
        }
        if turn["stopReason"] == "end_turn" && !self.history.iter().any(|known| known == text) {
            self.history.push(text.to_owned());
        }
    }

    /// What an event of this conversation acknowledges.
    pub(crate) fn hear(&mut self, event: &Value) {
        match event["type"].as_str().unwrap() {
            "snapshot" => self.saw_conversation(&event["conversation"]),
            "resumed" => self.saw_resumed(&event["resumed"]),
            "rolled" => {
                self.saw_upstream(&event["from"]);
                self.saw_upstream(&event["to"]);
            }
            "edited" => {
                self.saw_link(&event["link"]);
                self.history_was_edited();
            }
            "undone" => self.history_was_undone(&event["link"]),
            "forked" if event["conversationId"] == self.id.as_str() => self.saw_link(&event["link"]),
            "promptAccepted" => self.saw_accepted(event),
            "update" => {
                let turn = event["turnId"].as_str();
                self.arrived.extend(turn.map(str::to_owned));
            }
            "turnEnded" => {
                let turn = &event["turn"];
                if let Some(prompt) = self.accepted.get(turn["turnId"].as_str().unwrap()).cloned() {
                    self.saw_turn(&prompt, turn);
                }
            }
            "interruptRaised" => {
                self.open_questions.insert(text(&event["interrupt"], "id"));
            }
            "interruptResolved" => {
                self.open_questions.remove(event["interruptId"].as_str().unwrap());
            }
            "lagged" => panic!("a client that reads was told that it lags"),
            _ => {}
        }
    }

    /// A prompt was taken.
    pub(crate) fn saw_accepted(&mut self, event: &Value) {
        let prompt = match &event["prompt"] {
            Value::String(prompt) => prompt.clone(),
            blocks => blocks
                .as_array()
                .unwrap()
                .iter()
                .map(|block| text(block, "text"))
                .collect(),
        };
        self.accepted.insert(text(event, "turnId"), prompt);
    }

    /// The edit that is on its way is done: what it replaces is no part of the history any more.
    pub(crate) fn history_was_edited(&mut self) {
        if let Some(Changing::Edit { kept }) = &self.changing {
            self.history.clone_from(kept);
            self.changing = None;
            // What was asked in the turns that are left is asked no more.
            self.open_questions.clear();
        }
    }

    /// The undo that is on its way is done: this is the head again.
    pub(crate) fn history_was_undone(&mut self, link: &Value) {
        let Some(Changing::Undo { head }) = self.changing.take() else {
            return;
        };
        self.saw_link(link);
        self.folders = [text(link, "cwd")].into();
        let id = text(link, "upstreamId");
        if id == head {
            return;
        }
        self.open_questions.clear();
        // One that was left before this ledger began is not known, nor whether it can be resumed.
        let past = self.left.get(&id).cloned();
        self.may_be_lost |= past.as_ref().is_none_or(|past| past.may_be_lost);
        let past = past.unwrap_or_default();
        self.history = past.history;
        self.missing = past.missing.max(self.missing);
    }

    /// The chain was emptied.
    pub(crate) fn begin_anew(&mut self) {
        self.changing = None;
        self.resets += 1;
        self.history.clear();
        self.missing = 0;
        self.open_questions.clear();
        self.held.clear();
        self.may_be_lost = false;
    }
}

/// A member that is a text.
pub(crate) fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}

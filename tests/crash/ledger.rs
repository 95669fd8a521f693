//! What the daemon has acknowledged about one conversation, in a response or an event. All of it must survive
//! the daemon.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// An answered call with a request id, to be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
    pub(crate) result: Value,
}

/// A call with a request id and without a response, which may or may not have been carried out.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
    /// The text of the prompt, if the call is one.
    pub(crate) text: Option<String>,
}

/// The history of a conversation at the moment when a session stopped being its head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    pub(crate) history: Vec<String>,
    pub(crate) missing: usize,
    pub(crate) may_be_lost: bool,
}

/// A change of the history that was requested and may be carried out without a response.
#[derive(Clone, Debug)]
pub(crate) enum Changing {
    /// Only the prompts before the replaced turn remain.
    Edit { kept: Vec<String> },
    /// The history returns to its state before the last change. If `head` stays the head, the undone change
    /// was a move.
    Undo { head: String },
}

/// Everything that was acknowledged about one conversation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) id: String,
    /// Every upstream id that was ever seen in the conversation.
    pub(crate) upstream: BTreeSet<String>,
    /// The entries of the lineage, by number.
    pub(crate) lineage: BTreeMap<u64, Value>,
    /// Links that were reported as written.
    pub(crate) written: BTreeSet<String>,
    /// The highest number of turns that was reported for each link.
    pub(crate) turns: BTreeMap<String, u64>,
    /// The prompts of the current history whose turns ended well, in order.
    pub(crate) history: Vec<String>,
    /// How many of them were reported as missing.
    pub(crate) missing: usize,
    /// All prompts that were ever sent to this conversation, to detect those that the agent received twice.
    pub(crate) sent: Vec<String>,
    /// The prompts that were accepted, by turn.
    pub(crate) accepted: BTreeMap<String, String>,
    /// The turns in which the agent sent something, which proves that their prompts have arrived.
    pub(crate) arrived: BTreeSet<String>,
    /// The ends of turns, by turn id.
    pub(crate) ended: BTreeMap<String, Value>,
    /// The sessions for which a resume was reported.
    pub(crate) told: BTreeSet<String>,
    /// How many times the chain was reset.
    pub(crate) resets: usize,
    pub(crate) answered: Vec<Answered>,
    pub(crate) unanswered: Vec<Unanswered>,
    /// The possible titles; only one if the last change was acknowledged.
    pub(crate) titles: Vec<String>,
    pub(crate) revision: u64,
    /// Questions that were raised and neither answered nor cancelled.
    pub(crate) open_questions: BTreeSet<String>,
    /// Questions whose answers were acknowledged.
    pub(crate) answered_questions: BTreeSet<String>,
    /// The prompts that are held in the queue.
    pub(crate) held: BTreeSet<String>,
    /// Whether a session was lost with its transcript since the last reset, so that the history may be empty.
    pub(crate) may_be_lost: bool,
    pub(crate) deleted: bool,
    /// The possible working directories; only one if the last move was acknowledged.
    pub(crate) folders: BTreeSet<String>,
    /// The history at the moment when each of these sessions stopped being the head.
    pub(crate) left: BTreeMap<String, Past>,
    /// A change of the history that may have been made without a response.
    pub(crate) changing: Option<Changing>,
}

impl Ledger {
    /// Creates the ledger of a conversation from a response.
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
            // This member depends on the chain at the time of the request.
            entry.as_object_mut().unwrap().remove("inChain");
            self.saw_upstream(&entry["upstreamId"]);
            let seq = entry["seq"].as_u64().unwrap();
            if let Some(before) = self.lineage.get(&seq) {
                assert_eq!(*before, entry, "{}: entry {seq} changed", self.id);
            }
            self.lineage.insert(seq, entry);
        }
    }

    /// Records how a session was resumed. Turns that are reported as missing are not expected any more.
    pub(crate) fn saw_resumed(&mut self, resumed: &Value) {
        self.saw_upstream(&resumed["upstreamId"]);
        self.told.insert(text(resumed, "upstreamId"));
        let missing = resumed["missingTurns"].as_u64().unwrap();
        match (resumed["fidelity"].as_str().unwrap(), missing) {
            ("full", _) => assert_eq!(missing, 0, "{resumed}"),
            ("text", 0) => {}
            // Exactly this many turns may be missing.
            ("partial" | "text", 1..) => self.missing += usize::try_from(missing).unwrap(),
            _ => self.history.clear(),
        }
    }

    /// Records the end of a turn, whose prompt is `text`.
    pub(crate) fn saw_turn(&mut self, text: &str, turn: &Value) {
        self.saw_upstream(&turn["upstreamId"]);
        let known = self
            .ended
            .entry(self::text(turn, "turnId"))
            .or_insert_with(|| turn.clone());
        assert_eq!(known, turn, "{}: a turn ended in two ways", self.id);
        if turn["stopReason"] == "failed" && turn["resumed"]["fidelity"] == "text" {
            // The next summary leaves out a turn that failed at the model, and with it the summary that was
            // sent before its prompt.
            self.history.clear();
        }
        if turn["stopReason"] == "end_turn" && !self.history.iter().any(|known| known == text) {
            self.history.push(text.to_owned());
        }
    }

    /// Records what an event of this conversation acknowledges.
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
            "lagged" => panic!("the client reads all the time but got `lagged`"),
            _ => {}
        }
    }

    /// Records that a prompt was accepted.
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

    /// Records that the pending edit was made: the replaced turns no longer belong to the history.
    pub(crate) fn history_was_edited(&mut self) {
        if let Some(Changing::Edit { kept }) = &self.changing {
            self.history.clone_from(kept);
            self.changing = None;
            // The questions of the replaced turns are no longer open.
            self.open_questions.clear();
        }
    }

    /// Records that the pending undo was made: this link is the head again.
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
        // If the session was left before this ledger began, neither its history nor whether it can be resumed
        // is known.
        let past = self.left.get(&id).cloned();
        self.may_be_lost |= past.as_ref().is_none_or(|past| past.may_be_lost);
        let past = past.unwrap_or_default();
        self.history = past.history;
        self.missing = past.missing.max(self.missing);
    }

    /// Records that the chain was reset.
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

/// A member that is a text, or an empty text.
pub(crate) fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}

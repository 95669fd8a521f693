//! One of several clients, which does random things to its own conversations until the daemon is killed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::client::{Answer, Client, Gone, Line};
use super::files::Tree;
use super::ledger::{Answered, Ledger, Unanswered};
use super::rounds::Clock;
use crate::random::Random;

/// How many conversations a client uses at a time; older ones are only checked.
const ACTIVE: usize = 3;

/// Errors that any call may get without anything being wrong: busy, agent unavailable, agent error, limited,
/// not resumable, conflict (nothing to branch from), question resolved, transcript damaged (an edit where a
/// session was lost).
const EXPECTED_ERRORS: [i64; 8] = [1003, 1006, 1007, 1009, 1011, 1012, 1013, 1016];

/// A client and everything it knows.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) random: Random,
    pub(crate) active: Vec<Ledger>,
    pub(crate) retired: Vec<Ledger>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) socket: PathBuf,
    /// The working directories of its conversations.
    pub(crate) folders: Vec<String>,
    /// The parameters of a `conversation/new` that is not answered.
    making: Option<Value>,
    /// A folder move that is not answered.
    pub(crate) tree: Option<Tree>,
    prompts: u64,
    keys: u64,
    pub(crate) figures: Figures,
}

/// Counts what the clients did; printed at the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) turns: u64,
    pub(crate) failed_turns: u64,
    pub(crate) rolls: u64,
    pub(crate) recalled: u64,
    /// Prompts that were reported as missing, and were missing.
    pub(crate) missing: u64,
    pub(crate) repeated: u64,
    pub(crate) cut_short: u64,
    pub(crate) held: u64,
    pub(crate) edits: u64,
    pub(crate) undos: u64,
    /// Moves that moved transcripts.
    pub(crate) moves: u64,
    /// Folder moves that moved transcripts.
    pub(crate) trees: u64,
    pub(crate) restored: u64,
    pub(crate) repaired: u64,
}

impl Worker {
    pub(crate) fn new(number: usize, seed: u64, socket: PathBuf, folders: Vec<String>) -> Self {
        Self {
            number,
            random: Random::new(seed ^ (number as u64 + 1).wrapping_mul(0x1234_5678_9abc_def1)),
            active: Vec::new(),
            retired: Vec::new(),
            clock: Arc::new(Clock::default()),
            socket,
            folders,
            making: None,
            tree: None,
            prompts: 0,
            keys: 0,
            figures: Figures::default(),
        }
    }

    /// Works until the daemon closes the connection.
    pub(crate) fn work(&mut self) {
        let Err(Gone) = self.work_on();
        assert!(
            self.clock.is_kill_meant(),
            "client {}: the daemon closed the connection although nothing had ended it",
            self.number
        );
    }

    fn work_on(&mut self) -> Result<std::convert::Infallible, Gone> {
        let mut client = Client::connect(&self.socket)?;
        for index in 0..self.active.len() {
            self.listen(&mut client, index)?;
        }
        loop {
            self.step(&mut client)?;
        }
    }

    fn listen(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let params = json!({"conversationId": self.active[index].id});
        self.ask(client, "conversation/subscribe", &params)?
            .map(drop)
            .unwrap();
        Ok(())
    }

    fn step(&mut self, client: &mut Client) -> Result<(), Gone> {
        if self.active.is_empty() || self.active.len() < ACTIVE && self.random.chance(15) {
            return self.make(client);
        }
        let index = self.random.below(self.active.len());
        match self.random.below(100) {
            0..=42 => self.prompt(client, index),
            43..=45 => self.move_tree(client),
            46..=47 => self.lose_and_restore(client, index),
            48..=49 => self.repair(client, index),
            50..=53 => self.edit(client, index),
            54..=56 => self.undo(client, index),
            57..=61 => self.move_to(client, index),
            62..=66 => self.fork(client, index, true),
            67..=71 => self.fork(client, index, false),
            72..=73 => self.reset(client, index),
            74..=78 => self.update(client, index),
            79..=84 => self.resume(client, index),
            85..=89 => self.close(client, index),
            90..=93 => self.look(client, index),
            94..=95 => self.cancel_idle(client, index),
            96..=98 => self.respond(client, index),
            _ if self.active.len() > 1 => self.delete(client, index),
            _ => self.look(client, index),
        }
    }

    pub(crate) fn key(&mut self) -> Option<String> {
        self.keys += 1;
        self.random
            .chance(60)
            .then(|| format!("key-{}-{}", self.number, self.keys))
    }

    fn make(&mut self, client: &mut Client) -> Result<(), Gone> {
        let title = format!("made by {}", self.number);
        let folder = self.random.pick(&self.folders);
        let mut params = json!({"agent": "loopback", "cwd": folder, "title": title});
        // Without a request id, nobody would know the id of a conversation whose response was lost.
        self.keys += 1;
        params["requestId"] = json!(format!("new-{}-{}", self.number, self.keys));
        params["open"] = json!(self.random.chance(20));
        self.making = Some(params);
        self.make_as_begun(client)
    }

    /// Creates the requested conversation, or learns its id if it was already created.
    pub(crate) fn make_as_begun(&mut self, client: &mut Client) -> Result<(), Gone> {
        let Some(params) = self.making.clone() else {
            return Ok(());
        };
        let answer = self.ask(client, "conversation/new", &params)?;
        self.making = None;
        if let Ok(made) = answer {
            let mut ledger = Ledger::of(&made["conversation"]);
            // With `open`, a repeated call gets the current state of the session instead of the first answer.
            if params["open"] == false {
                ledger.answered.push(Answered {
                    method: "conversation/new",
                    params,
                    result: made,
                });
            }
            self.adopt(client, ledger)?;
        }
        Ok(())
    }

    /// Adds a conversation to those in use. The oldest one is retired.
    fn adopt(&mut self, client: &mut Client, ledger: Ledger) -> Result<(), Gone> {
        self.active.push(ledger);
        let last = self.active.len() - 1;
        let listened = self.listen(client, last);
        if self.active.len() > ACTIVE {
            let oldest = self.active.remove(0);
            self.retired.push(oldest);
        }
        listened
    }

    fn fork(&mut self, client: &mut Client, index: usize, in_place: bool) -> Result<(), Gone> {
        if in_place {
            self.note_past(client, index)?;
        }
        let mut params = json!({"conversationId": self.active[index].id, "inPlace": in_place});
        if let Some(key) = self.key() {
            params["requestId"] = json!(key);
        }
        // A turn that an answered question has started may end meanwhile; it need not be in the branch.
        let history = self.active[index].history.clone();
        self.begin(index, "conversation/fork", &params, None);
        let answer = self.ask(client, "conversation/fork", &params)?;
        self.end(index, &params);
        if let Ok(forked) = answer {
            self.keep_answer(index, "conversation/fork", params, &forked);
            if in_place {
                self.active[index].saw_conversation(&forked["conversation"]);
                self.active[index].saw_link(&forked["link"]);
            } else {
                self.branch_off(client, index, &forked, history)?;
            }
        }
        Ok(())
    }

    pub(crate) fn branch_off(
        &mut self,
        client: &mut Client,
        index: usize,
        forked: &Value,
        history: Vec<String>,
    ) -> Result<(), Gone> {
        let mut ledger = Ledger::of(&forked["conversation"]);
        if forked["link"].is_object() {
            ledger.saw_link(&forked["link"]);
            ledger.history = history;
            ledger.missing = self.active[index].missing;
            ledger.may_be_lost = self.active[index].may_be_lost;
        }
        self.adopt(client, ledger)
    }

    fn reset(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        self.note_past(client, index)?;
        let mut params = json!({"conversationId": self.active[index].id});
        if let Some(key) = self.key() {
            params["requestId"] = json!(key);
        }
        // From now on the held prompts may be dropped without a response.
        self.active[index].held.clear();
        if let Ok(reset) = self.ask(client, "conversation/reset", &params)? {
            self.active[index].begin_anew();
            self.active[index].saw_conversation(&reset["conversation"]);
            self.keep_answer(index, "conversation/reset", params, &reset);
        }
        Ok(())
    }

    fn delete(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let params = json!({"conversationId": self.active[index].id});
        // The conversation may be deleted without a response, so it is not used again in any case.
        let mut ledger = self.active.remove(index);
        let answer = self.ask(client, "conversation/delete", &params);
        ledger.deleted = matches!(answer, Ok(Ok(_)));
        if !matches!(answer, Err(Gone)) {
            self.retired.push(ledger);
        }
        answer.map(drop)
    }

    fn update(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        self.keys += 1;
        let title = format!("title {}-{}", self.number, self.keys);
        let mut params = json!({"conversationId": self.active[index].id, "title": title});
        if let Some(key) = self.key() {
            params["requestId"] = json!(key);
        }
        self.active[index].titles.push(title.clone());
        if let Ok(updated) = self.ask(client, "conversation/update", &params)? {
            let ledger = &mut self.active[index];
            ledger.titles = vec![title];
            ledger.saw_conversation(&updated["conversation"]);
            self.keep_answer(index, "conversation/update", params, &updated);
        }
        Ok(())
    }

    fn resume(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let params = json!({"conversationId": self.active[index].id});
        match self.ask(client, "conversation/resume", &params)? {
            Ok(resumed) => {
                self.active[index].saw_conversation(&resumed["conversation"]);
                self.active[index].saw_upstream(&resumed["resumed"]["upstreamId"]);
                Ok(())
            }
            Err(error) => self.after_refusal(client, index, &error),
        }
    }

    fn close(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let params = json!({"conversationId": self.active[index].id});
        self.ask(client, "conversation/close", &params).map(drop)
    }

    fn cancel_idle(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let params = json!({"conversationId": self.active[index].id});
        let answer = self.ask(client, "conversation/cancel", &params)?;
        // Either is possible, because the daemon may have continued the conversation.
        let answer = answer.unwrap();
        assert!(answer["cancelled"].is_boolean(), "{answer}");
        Ok(())
    }

    /// Reads the chain and the lineage; what was read must persist.
    fn look(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let params = json!({"conversationId": self.active[index].id, "limit": 1000});
        let lineage = self.ask(client, "conversation/lineage", &params)?.unwrap();
        self.active[index].saw_lineage(lineage["entries"].as_array().unwrap());
        let params = json!({"conversationId": self.active[index].id});
        let chain = self.ask(client, "conversation/chain", &params)?.unwrap();
        self.saw_chain(index, &chain);
        Ok(())
    }

    pub(crate) fn saw_chain(&mut self, index: usize, chain: &Value) {
        for link in chain["links"].as_array().unwrap() {
            self.active[index].saw_link(link);
        }
    }

    /// Answers a question that was orphaned by the death of the agent.
    fn respond(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let Some(question) = self.active[index].open_questions.first().cloned() else {
            return self.look(client, index);
        };
        let params = self.response(index, &question);
        // From now on the question may be answered without a response.
        self.active[index].open_questions.remove(&question);
        let answer = self.ask(client, "conversation/respond", &params)?;
        let ledger = &mut self.active[index];
        if answer.is_ok() {
            ledger.answered_questions.insert(question);
        } else {
            ledger.open_questions.insert(question);
        }
        Ok(())
    }

    pub(crate) fn response(&mut self, index: usize, question: &str) -> Value {
        let choice = self.random.pick(&["allow_once", "reject_once"]);
        let outcome = json!({"outcome": "selected", "optionId": choice});
        json!({"conversationId": self.active[index].id, "interruptId": question, "outcome": outcome})
    }

    /// A text that is in no other prompt.
    pub(crate) fn mark(&mut self) -> String {
        self.prompts += 1;
        format!("prompt-{}-{}. ", self.number, self.prompts)
    }

    pub(crate) fn turn_ended(&mut self, index: usize, text: &str, params: &Value, turn: &Value) {
        self.figures.turns += 1;
        self.figures.failed_turns += u64::from(turn["stopReason"] == "failed");
        self.active[index].saw_turn(text, turn);
        self.keep_answer(index, "conversation/prompt", params.clone(), turn);
    }

    /// Resets a conversation if nothing of it is left.
    pub(crate) fn after_refusal(
        &mut self,
        client: &mut Client,
        index: usize,
        error: &Value,
    ) -> Result<(), Gone> {
        if error["code"] != 1011 {
            return Ok(());
        }
        let params = json!({"conversationId": self.active[index].id});
        if !self.active[index].may_be_lost {
            let chain = self.ask(client, "conversation/chain", &params)?;
            let lineage = self.ask(client, "conversation/lineage", &params)?;
            let ledger = &self.active[index];
            panic!(
                "{}: nothing was lost: {error}\nchain {chain:#?}\nlineage {lineage:#?}\nledger {ledger:#?}\nlog {}",
                ledger.id,
                self.log_of(&ledger.id)
            );
        }
        self.active[index].held.clear();
        if self.ask(client, "conversation/reset", &params)?.is_ok() {
            self.active[index].begin_anew();
        }
        Ok(())
    }

    /// The lines about a conversation in the log of this home's daemons, for a failure message.
    fn log_of(&self, conversation: &str) -> String {
        let home = self.socket.parent().and_then(Path::parent).unwrap();
        let text = std::fs::read_to_string(home.join("log/sessiond.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(conversation)).collect();
        lines.join("\n")
    }

    /// Records a call before it is sent. A call with a request id can be repeated if its response is lost.
    pub(crate) fn begin(&mut self, index: usize, method: &'static str, params: &Value, text: Option<&str>) {
        let ledger = &mut self.active[index];
        if let Some(text) = text {
            ledger.sent.push(text.to_owned());
        }
        if params["requestId"].is_string() {
            ledger.unanswered.push(Unanswered {
                method,
                params: params.clone(),
                text: text.map(str::to_owned),
            });
        }
    }

    pub(crate) fn end(&mut self, index: usize, params: &Value) {
        self.active[index]
            .unanswered
            .retain(|call| call.params != *params);
    }

    pub(crate) fn keep_answer(&mut self, index: usize, method: &'static str, params: Value, result: &Value) {
        if params["requestId"].is_string() {
            let result = result.clone();
            self.active[index].answered.push(Answered {
                method,
                params,
                result,
            });
        }
    }

    /// Sends a request and waits for its response; events before the response are recorded.
    pub(crate) fn ask(&mut self, client: &mut Client, method: &str, params: &Value) -> Result<Answer, Gone> {
        let id = client.send(method, params)?;
        loop {
            match client.read()? {
                Line::Event(event) => {
                    self.clock.tick();
                    self.hear(&event);
                }
                Line::Answer(answered, answer) => {
                    self.clock.tick();
                    assert_eq!(answered, id);
                    self.check_error(&answer)?;
                    return Ok(answer);
                }
            }
        }
    }

    pub(crate) fn check_error(&self, answer: &Answer) -> Result<(), Gone> {
        let Err(error) = answer else { return Ok(()) };
        let code = error["code"].as_i64().unwrap();
        if code == 1014 && self.clock.is_kill_meant() {
            return Err(Gone);
        }
        assert!(EXPECTED_ERRORS.contains(&code), "client {}: {error}", self.number);
        Ok(())
    }

    /// Records what an event acknowledges.
    pub(crate) fn hear(&mut self, envelope: &Value) {
        let id = &envelope["conversationId"];
        let event = &envelope["event"];
        let Some(ledger) = self.active.iter_mut().find(|ledger| *id == ledger.id.as_str()) else {
            return;
        };
        ledger.hear(event);
        self.figures.rolls += u64::from(event["type"] == "rolled");
    }
}

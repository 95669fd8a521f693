//! Compares what a daemon knows after its start with what the previous one acknowledged.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::chain::{verify_chain, verify_upstream};
use super::client::{Client, Gone, Line};
use super::ledger::{Ledger, text};
use super::worker::Worker;
use crate::in_order::fewest_missing;

/// How many answered calls are repeated for each conversation.
const REPEATED: usize = 6;

/// How the last daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was killed without warning.
    Killed,
    /// It was asked to stop first, and has cancelled the running turns.
    Stopping,
}

impl Worker {
    /// Panics if something that was acknowledged is missing.
    pub(crate) fn verify(&mut self, ending: Ending) {
        let mut client = Client::connect(&self.socket).expect("the daemon listens");
        for ledger in &mut self.retired {
            verify_retired(&mut client, ledger);
        }
        self.verify_tree(&mut client);
        self.make_as_begun(&mut client).expect("the daemon is running");
        for index in 0..self.active.len() {
            self.verify_active(&mut client, index, ending)
                .expect("the daemon is running");
        }
    }

    /// Panics if the agent lacks a part of a history. Nothing else may run meanwhile, because a repeated
    /// prompt may kill the shared agent.
    pub(crate) fn verify_histories(&mut self) {
        let mut client = Client::connect(&self.socket).expect("the daemon listens");
        for index in 0..self.active.len() {
            let params = json!({"conversationId": self.active[index].id});
            client.call("conversation/subscribe", &params);
            self.verify_history(&mut client, index)
                .expect("the daemon is running");
        }
    }

    fn verify_active(&mut self, client: &mut Client, index: usize, ending: Ending) -> Result<(), Gone> {
        let ledger = &mut self.active[index];
        // The lineage comes first: a reset whose response was lost has also settled the questions.
        verify_chain(client, ledger);
        verify_view(client, ledger, ending);
        verify_upstream(client, ledger);
        let params = json!({"conversationId": ledger.id});
        self.ask(client, "conversation/subscribe", &params)?.unwrap();
        self.repeat_unanswered(client, index)?;
        self.active[index].changing = None;
        self.repeat_answered(client, index)?;
        self.look_at_line(client, index)
    }

    /// Checks that prompts without a waiting client are held, and sometimes cancels them.
    fn look_at_line(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let id = self.active[index].id.clone();
        let mut held = held_of(&client.call("conversation/get", &json!({"conversationId": id})));
        self.figures.held += held.len() as u64;
        if !held.is_empty() && self.random.chance(30) {
            let params = json!({"conversationId": id, "queued": true});
            let answer = self.ask(client, "conversation/cancel", &params)?;
            assert_eq!(answer, Ok(json!({"cancelled": true})));
            held = held_of(&client.call("conversation/get", &json!({"conversationId": id})));
            assert!(held.is_empty(), "{id}: {held:?} are still in the queue");
        }
        self.active[index].held = held;
        Ok(())
    }

    /// Repeats the calls whose responses were lost. Each must take effect once in total, and its result must
    /// be stored.
    fn repeat_unanswered(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        for call in std::mem::take(&mut self.active[index].unanswered) {
            self.figures.cut_short += 1;
            let Some(text) = call.text else {
                let first = self.ask(client, call.method, &call.params)?;
                if let Ok(first) = &first {
                    match call.method {
                        "conversation/edit" => self.edited(index, &call.params, first),
                        "conversation/undo" => self.active[index].history_was_undone(&first["link"]),
                        "conversation/move" => self.moved(index, &call.params, first),
                        "transcript/check" => self.active[index].saw_upstream(&first["repaired"]),
                        _ => {}
                    }
                    let again = self.ask(client, call.method, &call.params)?;
                    assert_eq!(again.as_ref(), Ok(first), "{} {}", call.method, call.params);
                    self.keep_answer(index, call.method, call.params, first);
                }
                continue;
            };
            let ledger = &self.active[index];
            // A prompt counts as accepted if the agent does not refuse it for a moment. If a slow agent had
            // not read the prompt when the daemon ended, the repeated call sends it again, and the history
            // has it once.
            let known = ledger
                .accepted
                .iter()
                .find(|(turn, prompt)| **prompt == text && ledger.arrived.contains(*turn))
                .map(|(turn, _)| turn.clone());
            match self.prompt_to_its_end(client, index, &call.params, &text)? {
                Ok(turn) => {
                    // With `[[lose]]` the agent deletes its transcript at the moment of the kill, so nothing
                    // may be left to show that the prompt had arrived: the daemon stores this a moment after
                    // it reports it.
                    if let Some(known) = known.filter(|_| !text.contains("[[lose]]")) {
                        assert_eq!(turn["turnId"], known.as_str(), "{text} was run again: {turn}");
                    }
                    self.turn_ended(index, &text, &call.params, &turn);
                    let again = self.ask(client, call.method, &call.params)?;
                    assert_eq!(again, Ok(turn), "{text}");
                }
                Err(error) => self.after_refusal(client, index, &error)?,
            }
        }
        Ok(())
    }

    fn repeat_answered(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        for _ in 0..REPEATED.min(self.active[index].answered.len()) {
            let call = self.random.pick(&self.active[index].answered);
            let again = self.ask(client, call.method, &call.params)?;
            assert_eq!(again, Ok(call.result), "{} {}", call.method, call.params);
            self.figures.repeated += 1;
        }
        Ok(())
    }

    /// Sends a prompt and waits for its end. A turn that would not end on its own is cancelled.
    fn prompt_to_its_end(
        &mut self,
        client: &mut Client,
        index: usize,
        params: &Value,
        text: &str,
    ) -> Result<Result<Value, Value>, Gone> {
        let needs_cancel = text.contains("[[hang]]") || text.contains("[[ask");
        let id = client.send("conversation/prompt", params)?;
        let mut cancels = 0;
        let mut result = None;
        while result.is_none() || cancels > 0 {
            match client.read()? {
                Line::Event(event) => {
                    self.hear(&event);
                    if needs_cancel && event["event"]["type"] == "promptAccepted" {
                        let params = json!({"conversationId": self.active[index].id});
                        client.send("conversation/cancel", &params)?;
                        cancels += 1;
                    }
                }
                Line::Answer(answered, answer) if answered == id => result = Some(answer),
                Line::Answer(_, answer) => {
                    cancels -= 1;
                    assert!(answer.is_ok(), "{answer:?}");
                }
            }
        }
        Ok(result.unwrap())
    }

    /// Checks that the agent has every prompt whose turn was reported as ended, in order, and none twice.
    ///
    /// The question goes to a fork, which is deleted afterwards; otherwise the answer would become part of
    /// the history and be recalled the next time.
    fn verify_history(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let id = self.active[index].id.clone();
        let prompt = self.mark();
        let params = json!({"conversationId": id, "prompt": prompt});
        match self.prompt_to_its_end(client, index, &params, &prompt)? {
            Ok(turn) => {
                assert_eq!(turn["stopReason"], "end_turn", "{id}: {turn}");
                self.turn_ended(index, &prompt, &params, &turn);
            }
            Err(error) => return self.after_refusal(client, index, &error),
        }
        let forked = self
            .ask(client, "conversation/fork", &json!({"conversationId": id}))?
            .unwrap();
        let branch = json!({"conversationId": forked["conversation"]["id"]});
        self.ask(client, "conversation/subscribe", &branch)?.unwrap();
        let recall = json!({"conversationId": branch["conversationId"], "prompt": "[[recall]]"});
        let request = client.send("conversation/prompt", &recall)?;
        let mut words = String::new();
        let turn = loop {
            match client.read()? {
                Line::Event(event) => {
                    let update = &event["event"]["update"];
                    if update["sessionUpdate"] == "agent_message_chunk" {
                        words.push_str(update["content"]["text"].as_str().unwrap());
                    }
                }
                Line::Answer(answered, answer) => {
                    assert_eq!(answered, request);
                    break answer.unwrap();
                }
            }
        };
        self.ask(client, "conversation/delete", &branch)?.unwrap();
        let ledger = &mut self.active[index];
        assert_eq!(turn["stopReason"], "end_turn", "{id}: {turn}");
        let recalled: Vec<Value> =
            serde_json::from_str(&words).unwrap_or_else(|error| panic!("{error}: {words}"));
        let users: Vec<String> = recalled.iter().map(|turn| text(turn, "user")).collect();
        let all = users.join("\n");
        let after = |prompt: &str, from: usize| Some(from + all[from..].find(prompt)? + prompt.len());
        let gone = fewest_missing(&ledger.history, after, |_| false);
        assert!(
            gone <= ledger.missing,
            "{}: {gone} prompts are missing, {} were reported as missing\nexpected {:#?}\nthe agent has \
             {users:#?}\nlineage {:#?}",
            ledger.id,
            ledger.missing,
            ledger.history,
            ledger.lineage
        );
        self.figures.missing += gone as u64;
        self.figures.recalled += (ledger.history.len() - gone) as u64;
        for prompt in &ledger.sent {
            let times = users.iter().filter(|user| *user == prompt).count();
            assert!(
                times <= 1,
                "{}: the agent has {prompt} {times} times: {users:#?}",
                ledger.id
            );
        }
        Ok(())
    }
}

/// The queued prompts, all of which must be held.
fn held_of(answer: &Value) -> BTreeSet<String> {
    let queue = answer["conversation"]["queue"].as_array();
    let waiting = queue.into_iter().flatten();
    waiting
        .map(|waiting| {
            assert_eq!(waiting["held"], true, "{answer}");
            text(waiting, "turnId")
        })
        .collect()
}

fn verify_retired(client: &mut Client, ledger: &mut Ledger) {
    if ledger.deleted {
        for name in ledger.upstream.iter().chain([&ledger.id]) {
            let error = client.refused("conversation/get", &json!({"conversationId": name}));
            assert_eq!(error["code"], 1001, "{error}");
            assert!(error["data"]["deletedAt"].is_string(), "{error}");
        }
        return;
    }
    verify_upstream(client, ledger);
    verify_chain(client, ledger);
}

fn verify_view(client: &mut Client, ledger: &mut Ledger, ending: Ending) {
    let answer = client.call("conversation/get", &json!({"conversationId": ledger.id}));
    let held = held_of(&answer);
    let lost: Vec<&String> = ledger.held.difference(&held).collect();
    assert!(
        lost.is_empty(),
        "{}: {lost:?} were held and are missing",
        ledger.id
    );
    let view = &answer["conversation"];
    let title = text(view, "title");
    assert!(
        ledger.titles.contains(&title),
        "{}: the title {title} is none of {:?}",
        ledger.id,
        ledger.titles
    );
    ledger.titles = vec![title];
    let folder = text(view, "cwd");
    assert!(
        ledger.folders.contains(&folder),
        "{}: the folder {folder} is none of {:?}",
        ledger.id,
        ledger.folders
    );
    ledger.folders = [folder].into();
    let revision = view["revision"].as_u64().unwrap();
    assert!(
        revision >= ledger.revision,
        "{}: revision {revision} is older than {}",
        ledger.id,
        ledger.revision
    );
    ledger.saw_conversation(view);
    let none = Vec::new();
    let interrupts = view["interrupts"].as_array().unwrap_or(&none);
    let questions: BTreeSet<String> = interrupts.iter().map(|interrupt| text(interrupt, "id")).collect();
    for interrupt in interrupts {
        assert_eq!(interrupt["orphaned"], true, "{}: {interrupt}", ledger.id);
    }
    if ending == Ending::Killed {
        let lost: Vec<&String> = ledger.open_questions.difference(&questions).collect();
        assert!(
            lost.is_empty(),
            "{}: questions are missing: {lost:?}\nview {view:#}\nledger {ledger:#?}",
            ledger.id
        );
    }
    let back: Vec<&String> = ledger.answered_questions.intersection(&questions).collect();
    assert!(
        back.is_empty(),
        "{}: answered questions are open again: {back:?}",
        ledger.id
    );
    ledger.open_questions = questions;
}

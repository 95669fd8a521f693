//! One turn as a client runs it: the script of its prompt, and the requests made while it runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::client::{Answer, Client, Gone, Line};
use super::ledger::text;
use super::worker::Worker;

/// A request made while the prompt is running.
#[derive(Debug)]
enum Beside {
    Get,
    Chain,
    Cancel,
    /// With the history at the time of the request.
    Fork(Vec<String>),
    Respond(String),
    Queued {
        params: Value,
        text: String,
    },
}

/// What the client does while a turn runs.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    /// Cancels after the prompt is accepted.
    cancel: bool,
    /// Forks the conversation into a second one.
    fork: bool,
    /// Queues another prompt after this one.
    queue: bool,
    /// Answers the question: allows or rejects. `None` leaves it open.
    answer: Option<bool>,
    /// The turn will not end on its own.
    stays: bool,
}

impl Worker {
    /// Chooses the script of the next prompt and what the client does meanwhile.
    fn script(&mut self) -> (String, Plan) {
        let mut plan = Plan::default();
        let what = self.random.below(100);
        let directives = match what {
            0..=29 => "".to_owned(),
            30..=39 => r#"[[say working]][[tool read {"path":"a"}]][[say done]]"#.to_owned(),
            40..=47 => {
                plan.answer = Some(self.random.chance(60));
                if self.random.chance(12) {
                    plan.answer = None;
                    plan.stays = true;
                }
                "[[ask may I]][[say I may]]".to_owned()
            }
            48..=54 => "[[limit 1]]".to_owned(),
            55..=58 => format!("[[fail {}]]", self.random.pick(&["overloaded", "network"])),
            59..=62 => "[[say so far]][[crash]]".to_owned(),
            63..=70 => "[[forget]]".to_owned(),
            71..=75 => "[[lose]]".to_owned(),
            76..=87 => format!("[[stream {} 1]]", 5 + self.random.below(20)),
            88..=96 => {
                plan.cancel = true;
                "[[say so far]][[hang]]".to_owned()
            }
            _ => {
                plan.stays = true;
                "[[say so far]][[hang]]".to_owned()
            }
        };
        plan.fork = what >= 76 && self.random.chance(20);
        // A prompt queued after a turn that does not end waits until the daemon is killed.
        plan.queue = plan.stays || what >= 76 && self.random.chance(20);
        (format!("{}{directives}", self.mark()), plan)
    }

    pub(crate) fn prompt(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let (text, plan) = self.script();
        let params = self.prompt_params(index, &text, false);
        self.begin(index, "conversation/prompt", &params, Some(&text));
        self.active[index].may_be_lost |= text.contains("[[lose]]");
        let id = client.send("conversation/prompt", &params)?;
        let mut beside: BTreeMap<u64, Beside> = BTreeMap::new();
        let mut result = None;
        if plan.stays {
            self.clock.waits_for_the_end();
        }
        let mut forks = Vec::new();
        while result.is_none() || !beside.is_empty() {
            match client.read()? {
                Line::Event(event) => {
                    self.clock.tick();
                    self.hear(&event);
                    let is_ours = event["conversationId"] == self.active[index].id.as_str();
                    if is_ours && result.is_none() {
                        self.meanwhile(client, index, &event["event"], plan, &mut beside)?;
                    }
                }
                Line::Answer(answered, answer) => {
                    self.clock.tick();
                    self.check_error(&answer)?;
                    if answered == id {
                        result = Some(answer);
                    } else if let Some(request) = beside.remove(&answered) {
                        self.answered_beside(index, request, answer, &mut forks);
                    }
                }
            }
        }
        if plan.stays {
            // The turn ended after all, because its agent died.
            self.clock.waits_no_more();
        }
        self.end(index, &params);
        match result.unwrap() {
            Ok(turn) => self.turn_ended(index, &text, &params, &turn),
            Err(error) => self.after_refusal(client, index, &error)?,
        }
        for (forked, history) in forks {
            self.branch_off(client, index, &forked, history)?;
        }
        Ok(())
    }

    fn prompt_params(&mut self, index: usize, text: &str, queue: bool) -> Value {
        let mut params = json!({"conversationId": self.active[index].id, "prompt": text});
        if queue {
            params["onBusy"] = json!("queue");
        }
        if text.contains("[[limit") && self.random.chance(50) {
            params["onLimit"] = json!("wait");
        }
        if let Some(key) = self.key() {
            params["requestId"] = json!(key);
        }
        params
    }

    /// Makes the planned requests while the turn runs.
    fn meanwhile(
        &mut self,
        client: &mut Client,
        index: usize,
        event: &Value,
        plan: Plan,
        beside: &mut BTreeMap<u64, Beside>,
    ) -> Result<(), Gone> {
        let params = json!({"conversationId": self.active[index].id});
        if self.random.chance(20) {
            let id = client.send("conversation/get", &params)?;
            beside.insert(id, Beside::Get);
        }
        if self.random.chance(10) {
            let id = client.send("conversation/chain", &params)?;
            beside.insert(id, Beside::Chain);
        }
        match event["type"].as_str().unwrap() {
            "promptAccepted" => {
                if plan.fork {
                    let id = client.send("conversation/fork", &params)?;
                    beside.insert(id, Beside::Fork(self.active[index].history.clone()));
                }
                if plan.queue {
                    let text = self.mark();
                    let params = self.prompt_params(index, &text, true);
                    self.begin(index, "conversation/prompt", &params, Some(&text));
                    let id = client.send("conversation/prompt", &params)?;
                    beside.insert(id, Beside::Queued { params, text });
                }
                if plan.cancel {
                    let id = client.send("conversation/cancel", &params)?;
                    beside.insert(id, Beside::Cancel);
                }
            }
            "interruptRaised" if plan.answer.is_some() => {
                let question = text(&event["interrupt"], "id");
                let mut params = self.response(index, &question);
                let choice = if plan.answer == Some(true) {
                    "allow_once"
                } else {
                    "reject_once"
                };
                params["outcome"]["optionId"] = json!(choice);
                // From now on the question may be answered without a response.
                self.active[index].open_questions.remove(&question);
                let id = client.send("conversation/respond", &params)?;
                beside.insert(id, Beside::Respond(question));
            }
            _ => {}
        }
        Ok(())
    }

    fn answered_beside(
        &mut self,
        index: usize,
        request: Beside,
        answer: Answer,
        forks: &mut Vec<(Value, Vec<String>)>,
    ) {
        match (request, answer) {
            (Beside::Get, Ok(answer)) => self.active[index].saw_conversation(&answer["conversation"]),
            (Beside::Chain, Ok(answer)) => self.saw_chain(index, &answer),
            (Beside::Fork(history), Ok(answer)) => forks.push((answer, history)),
            (Beside::Respond(question), Ok(_)) => {
                self.active[index].answered_questions.insert(question);
            }
            (Beside::Queued { params, text }, answer) => {
                self.end(index, &params);
                if let Ok(turn) = answer {
                    self.turn_ended(index, &text, &params, &turn);
                }
            }
            (Beside::Get | Beside::Chain | Beside::Fork(_) | Beside::Respond(_) | Beside::Cancel, _) => {}
        }
    }
}

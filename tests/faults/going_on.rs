//! Usage limits and scheduled continuations in a round: schedules them, cancels them, follows their events
//! and waits for them.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::effects::Effects;
use super::promises::Follows;
use super::round::{Asked, Round, Sent};
use super::verify::history;
use crate::crash::client::Client;
use crate::crash::ledger::text;

/// How long limits last, in seconds. Their reset times are reported in whole seconds, rounded up.
const LIMITS: [&str; 3] = ["0.01", "0.01", "0.4"];

/// A continuation due later than this is not waited for. That happens if the reset time had already passed or
/// was not reported. The constant only decides whether to wait or to set another time; no duration is
/// measured with it.
const SOON: SignedDuration = SignedDuration::from_secs(3);

impl Round {
    /// A script that meets a limit, and whether it takes effect when its turn ends well.
    pub(crate) fn limited(&mut self, write: &str) -> (String, bool) {
        let limit = format!("[[limit {}]]", self.random.pick(&LIMITS));
        match self.random.below(10) {
            0..=1 => (limit, false),
            2..=5 => (format!("{limit}{write}"), true),
            // A prompt that is sent again after this limit would take effect twice.
            _ => (format!("{write}{limit}"), true),
        }
    }

    /// Schedules a continuation of the conversation, or cancels a scheduled one.
    pub(crate) fn go_on(&mut self, talk: usize) {
        let is_to_go_on = self.promises[talk].at().is_some();
        if is_to_go_on && self.random.chance(40) {
            return self.call_off(talk);
        }
        let is_at_reset = self.promises[talk].is_limited() && self.random.chance(70);
        let at = if is_at_reset {
            "reset".to_owned()
        } else {
            in_milliseconds(self.random.below(600))
        };
        self.go_on_at(talk, &at);
    }

    fn call_off(&mut self, talk: usize) {
        let is_one = self.promises[talk].at().is_some();
        let params = json!({"cancel": true});
        self.ask(
            Asked::CallOff { is_one },
            Some(talk),
            "conversation/continue",
            params,
        );
    }

    fn go_on_at(&mut self, talk: usize, at: &str) {
        let mut params = json!({"at": at});
        let mut mark = None;
        if self.random.chance(60) {
            let text = self.mark();
            let write = Effects::directive(&text);
            let script = match self.random.below(10) {
                0..=5 => write,
                6 => format!("{write}[[crash]]"),
                7 => format!("{write}[[stream 10 0]]"),
                _ => self.limited(&write).0,
            };
            params["text"] = json!(format!("{text} {script}"));
            self.sent.insert(text.clone(), Sent::default());
            self.talks[talk].sent.push(format!("{text} {script}"));
            mark = Some(text);
        }
        if self.random.chance(30) {
            params["requestId"] = json!(self.key());
        }
        self.ask(
            Asked::Continue { mark },
            Some(talk),
            "conversation/continue",
            params,
        );
    }

    /// Acts on the consequence of an event.
    pub(crate) fn follow(&mut self, talk: usize, follows: Follows) {
        match follows {
            Follows::Nothing => {}
            Follows::Fired => self.figures.fired += 1,
            Follows::CarriedOver => self.figures.carried_over += 1,
            Follows::Never(mark) => self.never.push((talk, mark)),
            Follows::IsAnswered => {
                let mut client = Client::connect(&self.home.socket()).unwrap();
                if history(&mut client, &self.talks[talk].id).is_answered() {
                    self.promises[talk].is_answered();
                }
            }
            // The open cancellation may have removed the continuation before it was sent.
            Follows::HasGoneOut(_) if self.is_being_cancelled(talk) => {}
            Follows::HasGoneOut(mark) => {
                let mut client = Client::connect(&self.home.socket()).unwrap();
                let history = history(&mut client, &self.talks[talk].id);
                assert!(
                    history.has_gone_on(mark.as_deref()),
                    "the continuation of {} with {mark:?} disappeared and is not in the history: {history:#?}",
                    self.talks[talk].id
                );
            }
        }
    }

    /// After the last fault, waits until every scheduled continuation is sent or cancelled.
    pub(crate) fn keep_promises(&mut self) {
        self.settle();
        while let Some(talk) = self.promises.iter().position(|promise| promise.at().is_some()) {
            let at: Timestamp = self.promises[talk].at().unwrap().parse().unwrap();
            if at.duration_since(Timestamp::now()) > SOON {
                if self.random.chance(50) {
                    self.call_off(talk);
                } else {
                    self.go_on_at(talk, &in_milliseconds(0));
                }
            } else {
                self.clear_the_way(talk);
                self.read_on();
            }
            self.settle();
        }
    }

    /// Rejects open questions, because a continuation waits until they are answered.
    fn clear_the_way(&mut self, talk: usize) {
        let mut client = Client::connect(&self.home.socket()).unwrap();
        let params = json!({"conversationId": self.talks[talk].id});
        let view = client.call("conversation/get", &params);
        for question in view["conversation"]["interrupts"].as_array().unwrap() {
            self.respond(talk, text(question, "id"), "reject_once");
        }
    }

    /// Answers a question of the agent.
    pub(crate) fn respond(&mut self, talk: usize, question: String, option: &str) {
        let outcome = json!({"outcome": "selected", "optionId": option});
        let params = json!({"interruptId": question, "outcome": outcome});
        self.ask(
            Asked::Respond(question),
            Some(talk),
            "conversation/respond",
            params,
        );
    }
}

/// The time this many milliseconds from now.
fn in_milliseconds(milliseconds: usize) -> String {
    let milliseconds = SignedDuration::from_millis(i64::try_from(milliseconds).unwrap());
    bridge_protocol::time::text(Timestamp::now() + milliseconds)
}

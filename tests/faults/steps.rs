//! Chooses the next step of a round's client.

use serde_json::json;

use super::effects::Effects;
use super::round::{Asked, HANGS, Round, Sent};

/// How many conversations are used at a time; the older ones are only checked at the end.
const ACTIVE: usize = 3;

impl Round {
    /// Performs one step.
    pub(crate) fn step(&mut self) {
        let percent_said = if self.is_narrow { 45 } else { 70 };
        if self.talks.is_empty() || self.random.chance(self.percent_new) {
            return self.make();
        }
        let talk = if self.is_narrow {
            0
        } else {
            let oldest = self.talks.len().saturating_sub(ACTIVE);
            oldest + self.random.below(self.talks.len() - oldest)
        };
        if self.busy().contains(&talk) || self.promises[talk].runs() {
            return self.beside(talk);
        }
        let is_to_go_on = self.promises[talk].at().is_some() || self.promises[talk].is_limited();
        if is_to_go_on && self.random.chance(50) {
            return self.go_on(talk);
        }
        match self.random.below(100) {
            percent if percent < percent_said => self.say(talk),
            0..=75 => self.fork(talk, true),
            76..=80 => self.fork(talk, false),
            81..=86 => self.ask(Asked::Resume, Some(talk), "conversation/resume", json!({})),
            87..=91 => self.ask(Asked::Close, Some(talk), "conversation/close", json!({})),
            92..=93 => self.ask(Asked::Chain, Some(talk), "conversation/chain", json!({})),
            94 => self.go_on(talk),
            95..=96 => {
                let params = json!({"limit": 1000});
                self.ask(Asked::Lineage, Some(talk), "conversation/lineage", params);
            }
            _ => self.again(talk),
        }
    }

    /// Makes a call that is allowed while the conversation is busy.
    fn beside(&mut self, talk: usize) {
        match self.random.below(10) {
            0..=1 if self.prompted().contains(&talk) => {
                self.ask(Asked::Cancel, Some(talk), "conversation/cancel", json!({}));
            }
            2..=3 => self.fork(talk, false),
            // The call is refused as busy, unless the turn has just ended.
            4 => self.say(talk),
            5 => self.go_on(talk),
            6 => self.again(talk),
            _ => self.ask(Asked::Chain, Some(talk), "conversation/chain", json!({})),
        }
    }

    fn make(&mut self) {
        // Without a request id, nobody would know the id of a conversation whose response was lost.
        let params = json!({
            "agent": "proxied", "cwd": self.home.project(), "open": self.random.chance(30), "requestId": self.key(),
        });
        self.ask(Asked::New, None, "conversation/new", params);
    }

    fn fork(&mut self, talk: usize, in_place: bool) {
        let params = json!({"inPlace": in_place, "requestId": self.key()});
        let history = self.talks[talk].history.clone();
        let asked = Asked::Fork { in_place, history };
        self.ask(asked, Some(talk), "conversation/fork", params);
    }

    /// Repeats a call that was answered, with the same request id.
    fn again(&mut self, talk: usize) {
        if self.talks[talk].answered.is_empty() {
            return;
        }
        let answered = self.random.pick(&self.talks[talk].answered);
        let asked = Asked::Again(answered.result);
        self.ask(asked, Some(talk), answered.method, answered.params);
    }

    /// A text that is in no other prompt of the round.
    pub(crate) fn mark(&mut self) -> String {
        format!("mark-{};", self.sent.len() + 1)
    }

    fn say(&mut self, talk: usize) {
        let mark = self.mark();
        let write = Effects::directive(&mark);
        let chunks = 4 + self.random.below(28);
        let (script, has_effect) = match self.random.below(120) {
            100.. => self.limited(&write),
            0..=9 => (String::new(), false),
            10..=44 => (format!("{write}[[stream {chunks} 0]]"), true),
            45..=64 => (format!("[[stream {chunks} 0]]{write}"), true),
            65..=71 => (
                format!(r#"[[tool read {{"path":"a"}}]]{write}[[say done]]"#),
                true,
            ),
            // If the permission is rejected, the write does not run.
            72..=81 => (format!("[[ask may I]]{write}"), false),
            82..=85 => (format!("{write}[[crash]]"), true),
            86..=88 => ("[[say so far]][[crash]]".to_owned(), false),
            89..=94 => (format!("{write}[[forget]]"), true),
            _ => (format!("{write}{HANGS}"), true),
        };
        self.prompt(talk, &mark, format!("{mark} {script}"), has_effect);
    }

    pub(crate) fn prompt(&mut self, talk: usize, mark: &str, prompt: String, has_effect: bool) {
        let sent = Sent {
            has_effect,
            has_ended_well: false,
        };
        self.sent.insert(mark.to_owned(), sent);
        self.talks[talk].sent.push(prompt.clone());
        self.figures.prompts += 1;
        let mut params = json!({"prompt": prompt});
        if self.random.chance(60) {
            params["onLimit"] = json!("wait");
        }
        if self.random.chance(60) {
            params["requestId"] = json!(self.key());
        }
        let asked = Asked::Prompt {
            text: prompt,
            mark: mark.to_owned(),
        };
        self.ask(asked, Some(talk), "conversation/prompt", params);
    }
}

//! What a conversation was told of going on by itself, and what has to come of it: what was promised goes out
//! or is told why not, at most once, also over a restart; what was called off never does.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::crash::ledger::text;

/// What one conversation goes on with by itself, as it was told.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    /// Whose it is.
    id: String,
    /// The continuation as an event told it last.
    told: Option<Value>,
    /// Whether it is on disk: an answer or the end of a turn has told it.
    is_durable: bool,
    /// The times for which one has gone out in this life of the daemon.
    gone_out: BTreeSet<String>,
    /// The turn of the one that is out.
    turn: Option<String>,
    /// The mark of the text that is to be sent.
    mark: Option<String>,
    /// Whether it went away with nothing that would explain it so far.
    is_unexplained: bool,
    /// Whether the turn that ended last would explain it, as long as nothing else has happened.
    is_taken_over: bool,
    /// What the conversation does.
    state: String,
    /// Of the restart whose snapshot is still to come: whether nobody knows what became of the promise.
    restarted: Option<bool>,
    /// Whether the last turn ended well, in this life of the daemon.
    pub(crate) is_sound: bool,
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    Nothing,
    /// One has gone out.
    Fired,
    /// One was brought over a restart.
    CarriedOver,
    /// The text with this mark never goes out.
    Never(String),
    /// Nothing was left to go on with: the history has to hold the agent's answer.
    IsAnswered,
    /// It went out in the life before, for nothing is left of it: the history has to hold the text with this
    /// mark, or the word to go on.
    HasGoneOut(Option<String>),
}

impl Promise {
    pub(crate) fn of(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            told: None,
            is_durable: false,
            gone_out: BTreeSet::new(),
            turn: None,
            mark: None,
            is_unexplained: false,
            is_taken_over: false,
            state: String::new(),
            restarted: None,
            is_sound: false,
        }
    }

    /// When it goes out.
    pub(crate) fn at(&self) -> Option<&str> {
        self.told.as_ref()?["at"].as_str()
    }

    /// Whether a turn runs, be it that of nobody's call.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.state.as_str(), "prompting" | "awaiting" | "cancelling")
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.state == "limited"
    }

    /// An event of the conversation.
    pub(crate) fn hear(&mut self, event: &Value) -> Follows {
        match event["type"].as_str().unwrap() {
            "snapshot" => {
                self.is_in(&text(&event["conversation"], "state"));
                return self.snapshot(&event["conversation"]["continuation"]);
            }
            "stateChanged" => self.is_in(event["state"].as_str().unwrap()),
            "updated" => return self.updated(&event["conversation"]["continuation"]),
            "continued" => {
                let at = self.at().map(ToOwned::to_owned);
                let at = at.unwrap_or_else(|| {
                    panic!("{} goes on although nothing was to go out: {self:#?}", self.id)
                });
                assert!(
                    self.gone_out.insert(at),
                    "{} goes on twice at one time: {self:#?}",
                    self.id
                );
                self.turn = Some(text(event, "turnId"));
                self.is_durable = false;
                return Follows::Fired;
            }
            "promptAccepted" => {
                let is_sent = |mark: &String| event["prompt"].to_string().contains(mark.as_str());
                drop(self.mark.take_if(|mark| is_sent(mark)));
            }
            "turnEnded" => self.turn_ended(&event["turn"]),
            // Who refuses what a dead agent asked is done with its turn.
            "interruptResolved" => {
                self.is_taken_over = true;
                self.is_unexplained = false;
            }
            _ => {}
        }
        Follows::Nothing
    }

    fn is_in(&mut self, state: &str) {
        state.clone_into(&mut self.state);
        self.is_taken_over &= !self.runs();
        // Why is told with it, in words.
        self.is_unexplained &= state != "failed";
    }

    fn updated(&mut self, continuation: &Value) -> Follows {
        self.told = Some(continuation.clone()).filter(|told| !told.is_null());
        if self.told.is_some() {
            return Follows::Nothing;
        }
        let is_explained = std::mem::take(&mut self.is_taken_over) || self.state == "failed";
        self.is_unexplained = std::mem::take(&mut self.is_durable) && !is_explained;
        if self.is_unexplained && self.state == "idle" && self.mark.is_none() {
            return Follows::IsAnswered;
        }
        self.never()
    }

    /// The history holds the agent's answer to what was cut short.
    pub(crate) fn is_answered(&mut self) {
        self.is_unexplained = false;
    }

    fn never(&mut self) -> Follows {
        self.mark.take().map_or(Follows::Nothing, Follows::Never)
    }

    fn turn_ended(&mut self, turn: &Value) {
        self.is_sound = turn["stopReason"] == "end_turn";
        let is_failed = turn["stopReason"] == "failed";
        assert!(
            !is_failed || !text(&turn["failure"], "message").is_empty(),
            "{}: failed for no reason: {turn}",
            self.id
        );
        // A turn that ended well has taken over.
        let is_its_own = self.turn.as_deref() == turn["turnId"].as_str();
        // It is told as gone once that is on disk, with the end of the turn or behind it.
        self.is_taken_over = is_its_own || !is_failed;
        if self.is_taken_over {
            self.is_unexplained = false;
        }
        if is_its_own {
            self.turn = None;
        }
        if !turn["continuation"].is_null() {
            self.is_durable = self.told.is_some();
        }
    }

    /// A call has it go on by itself, with a text of this mark.
    pub(crate) fn is_promised(&mut self, mark: Option<String>) -> Follows {
        // Without a text, what is to go out moves and keeps its own.
        let follows = mark.as_ref().map_or(Follows::Nothing, |_| self.never());
        // It may have gone out already.
        if self.told.is_some() && self.turn.is_none() {
            self.is_durable = true;
            self.is_taken_over = false;
            self.mark = mark.or_else(|| self.mark.take());
        }
        follows
    }

    /// A call has called it off; `is_sure` when nobody can have had it go on since.
    pub(crate) fn is_called_off(&mut self, is_sure: bool) -> Follows {
        assert!(
            !is_sure || self.told.is_none() || self.runs(),
            "{} was called off and is still to go on: {self:#?}",
            self.id
        );
        self.is_unexplained = false;
        self.never()
    }

    /// The turn that was about to go on was cancelled.
    pub(crate) fn is_dropped(&mut self) {
        self.is_unexplained = false;
    }

    /// Nothing of this conversation runs, and all that was asked for is answered.
    pub(crate) fn assert_explained(&self) {
        assert!(
            !self.is_unexplained,
            "what was promised went away untold: {self:#?}"
        );
    }

    /// The daemon was killed; `is_unsure` when calls were open that may have changed something.
    pub(crate) fn restarts(&mut self, is_unsure: bool) {
        let was_unsure = self.restarted.take().unwrap_or_default();
        self.restarted = Some(is_unsure || was_unsure || self.runs() || self.state.is_empty());
        self.gone_out.clear();
        self.turn = None;
        self.is_unexplained = false;
        self.is_taken_over = false;
        self.is_sound = false;
    }

    fn snapshot(&mut self, continuation: &Value) -> Follows {
        let before = self.told.take();
        self.told = Some(continuation.clone()).filter(|told| !told.is_null());
        let is_durable = self.told.is_some() && !self.runs();
        let was_durable = std::mem::replace(&mut self.is_durable, is_durable);
        let Some(is_unsure) = self.restarted.take() else {
            return Follows::Nothing;
        };
        match &self.told {
            Some(told) => {
                assert!(
                    is_unsure || before.is_some(),
                    "{} is to go on after a restart although nothing was: {self:#?}",
                    self.id
                );
                // Nobody heard whether its text has gone out.
                if told["attempts"] != 0 || is_unsure {
                    self.mark = None;
                }
                Follows::CarriedOver
            }
            None => {
                let mark = self.mark.take();
                if is_unsure || !was_durable {
                    return Follows::Nothing;
                }
                assert!(
                    !self.is_limited(),
                    "{} was lost over a restart: {before:?}",
                    self.id
                );
                // It was cut short, or could not go on: both are told.
                if self.state != "idle" {
                    return Follows::Nothing;
                }
                Follows::HasGoneOut(mark)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn updated(at: Option<&str>) -> Value {
        let continuation = at.map(|at| json!({"at": at, "attempts": 0}));
        json!({"type": "updated", "conversation": {"continuation": continuation}})
    }

    fn snapshot(at: Option<&str>, state: &str) -> Value {
        let continuation = at.map(|at| json!({"at": at, "attempts": 0}));
        json!({"type": "snapshot", "conversation": {"continuation": continuation, "state": state}})
    }

    /// One that is to go on at `t`, with a text.
    fn promised() -> Promise {
        let mut promise = Promise::of("c");
        promise.hear(&snapshot(None, "limited"));
        promise.hear(&updated(Some("t")));
        promise.is_promised(Some("mark".to_owned()));
        promise
    }

    fn fails(what: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(what).is_err()
    }

    #[test]
    fn what_goes_out_twice_or_after_it_was_called_off_is_seen() {
        let continued = json!({"type": "continued", "turnId": "1"});
        let mut promise = promised();
        assert_eq!(promise.hear(&continued), Follows::Fired);
        assert!(fails(|| drop(promise.clone().hear(&continued))), "twice");
        let mut promise = promised();
        assert_eq!(promise.hear(&updated(None)), Follows::Never("mark".to_owned()));
        promise.is_called_off(true);
        assert!(fails(|| drop(promise.clone().hear(&continued))), "called off");
        assert!(fails(|| drop(promised().is_called_off(true))), "not called off");
    }

    #[test]
    fn a_text_is_kept_when_it_moves_and_replaced_by_another() {
        let mut promise = promised();
        assert_eq!(promise.is_promised(None), Follows::Nothing);
        promise.hear(&updated(Some("u")));
        assert_eq!(promise.is_promised(None), Follows::Nothing);
        let other = Some("other".to_owned());
        assert_eq!(promise.is_promised(other), Follows::Never("mark".to_owned()));
    }

    #[test]
    fn what_is_lost_is_seen() {
        let mut promise = promised();
        promise.hear(&updated(None));
        assert!(fails(|| promise.assert_explained()));
        promise.hear(&json!({"type": "turnEnded", "turn": {"turnId": "2", "stopReason": "end_turn"}}));
        promise.assert_explained();

        // Somebody answered what it was to go on with, or refused what it had asked.
        let mut promise = Promise::of("c");
        promise.hear(&snapshot(None, "limited"));
        promise.hear(&updated(Some("t")));
        promise.is_promised(None);
        promise.hear(&json!({"type": "stateChanged", "state": "idle"}));
        assert_eq!(promise.hear(&updated(None)), Follows::IsAnswered);
        assert!(fails(|| promise.assert_explained()));
        promise.hear(&json!({"type": "interruptResolved"}));
        promise.assert_explained();

        let restarted = |at, state| {
            let mut promise = promised();
            promise.restarts(false);
            promise.hear(&snapshot(at, state))
        };
        assert_eq!(restarted(Some("t"), "limited"), Follows::CarriedOver);
        assert!(fails(|| drop(restarted(None, "limited"))));
        assert_eq!(restarted(None, "interrupted"), Follows::Nothing);
        let has_gone_out = Follows::HasGoneOut(Some("mark".to_owned()));
        assert_eq!(restarted(None, "idle"), has_gone_out);
    }

    #[test]
    fn what_comes_back_after_a_restart_is_seen() {
        let mut promise = promised();
        promise.hear(&updated(None));
        promise.is_called_off(true);
        promise.restarts(false);
        assert!(fails(|| drop(
            promise.clone().hear(&snapshot(Some("t"), "limited"))
        )));
    }
}

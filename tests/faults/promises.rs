//! The scheduled continuation of each conversation, as the daemon reports it. Each one must be sent, or its
//! end be explained, at most once, even across restarts. A cancelled one is never sent.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::crash::ledger::text;

/// The scheduled continuation of one conversation, as far as the client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    /// The id of the conversation.
    id: String,
    /// The continuation as the last event reported it.
    told: Option<Value>,
    /// Whether the continuation is on disk, because a response or the end of a turn has confirmed it.
    is_durable: bool,
    /// The due times for which a continuation was sent since the daemon started.
    gone_out: BTreeSet<String>,
    /// The turn of the continuation that was sent and has not ended.
    turn: Option<String>,
    /// The mark in the scheduled text.
    mark: Option<String>,
    /// Whether the continuation disappeared, and nothing has explained it yet.
    is_unexplained: bool,
    /// Whether the last turn would explain it if the continuation disappeared now.
    is_taken_over: bool,
    /// The state of the conversation.
    state: String,
    /// Set between a restart and its snapshot: whether the fate of the continuation is uncertain.
    restarted: Option<bool>,
    /// Whether the last turn since the daemon's start ended well.
    pub(crate) is_sound: bool,
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    Nothing,
    /// A continuation was sent.
    Fired,
    /// A continuation survived a restart.
    CarriedOver,
    /// The text with this mark must never be sent.
    Never(String),
    /// The continuation disappeared because nothing was left to continue: the history must contain the
    /// agent's answer.
    IsAnswered,
    /// The continuation disappeared across a restart, so it must have been sent before: the history must
    /// contain the text with this mark, or the default text of a continuation.
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

    /// The due time.
    pub(crate) fn at(&self) -> Option<&str> {
        self.told.as_ref()?["at"].as_str()
    }

    /// Whether a turn is running, including one that no call of this client started.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.state.as_str(), "prompting" | "awaiting" | "cancelling")
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.state == "limited"
    }

    /// Processes an event of the conversation.
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
                    panic!(
                        "{} was continued although no continuation was scheduled: {self:#?}",
                        self.id
                    )
                });
                assert!(
                    self.gone_out.insert(at),
                    "{} was continued twice for the same due time: {self:#?}",
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
            // If a client rejects a dead agent's question, the interrupted turn is settled and needs no
            // continuation.
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
        // The state `failed` comes with an event that says why.
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

    /// Accepts the disappearance, because the history contains the agent's answer to the interrupted prompt.
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
            "{}: the turn failed without a reason: {turn}",
            self.id
        );
        // The continuation's own turn, or any turn that did not fail, settles it.
        let is_its_own = self.turn.as_deref() == turn["turnId"].as_str();
        // The continuation is reported as removed once that is on disk: with the end of the turn or after it.
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

    /// A response to a call confirms a continuation with a text of this mark.
    pub(crate) fn is_promised(&mut self, mark: Option<String>) -> Follows {
        // Without a text the call only changes the time, and the scheduled text stays.
        let follows = mark.as_ref().map_or(Follows::Nothing, |_| self.never());
        // The continuation may already have been sent.
        if self.told.is_some() && self.turn.is_none() {
            self.is_durable = true;
            self.is_taken_over = false;
            self.mark = mark.or_else(|| self.mark.take());
        }
        follows
    }

    /// A response to a call confirms that the continuation is cancelled. `is_sure` means that no other call
    /// can have scheduled one since.
    pub(crate) fn is_called_off(&mut self, is_sure: bool) -> Follows {
        assert!(
            !is_sure || self.told.is_none() || self.runs(),
            "{} still has a continuation that was cancelled: {self:#?}",
            self.id
        );
        self.is_unexplained = false;
        self.never()
    }

    /// The client cancelled the turn that was about to continue, which explains the disappearance.
    pub(crate) fn is_dropped(&mut self) {
        self.is_unexplained = false;
    }

    /// Panics if a continuation disappeared without an explanation. Called when nothing runs and every call
    /// is answered.
    pub(crate) fn assert_explained(&self) {
        assert!(
            !self.is_unexplained,
            "a continuation disappeared without an explanation: {self:#?}"
        );
    }

    /// The daemon was killed. `is_unsure` means that open calls may have changed the continuation.
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
                    "{} has a continuation after a restart although none was scheduled: {self:#?}",
                    self.id
                );
                // The text may already have been sent.
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
                    "the continuation of {} was lost across a restart: {before:?}",
                    self.id
                );
                // Any other state reports that the turn was interrupted or could not continue.
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

    /// A promise due at `t`, with a text.
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
        assert!(
            fails(|| drop(promise.clone().hear(&continued))),
            "a second continuation was accepted"
        );
        let mut promise = promised();
        assert_eq!(promise.hear(&updated(None)), Follows::Never("mark".to_owned()));
        promise.is_called_off(true);
        assert!(
            fails(|| drop(promise.clone().hear(&continued))),
            "a continuation after its cancellation was accepted"
        );
        assert!(
            fails(|| drop(promised().is_called_off(true))),
            "a cancellation without effect was accepted"
        );
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

        // A client answered what the conversation was to continue with, or rejected the agent's question.
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

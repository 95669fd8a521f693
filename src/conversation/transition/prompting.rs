//! A prompt on its way: written down, sent, refused or accepted.

use bridge_protocol::event::Event;
use serde_json::Value;

use crate::agent::failure::{self, Evidence};
use crate::conversation::effect::{Deadline, Effect, Effects, Milestone, Now};
use crate::conversation::error::ConversationError;
use crate::conversation::state::{Model, Session, TurnPhase};
use crate::store::{PendingTurn, RequestRecord, TurnPhase as Progress};

use super::calls::with_preamble;

/// How often one prompt may be refused by a session that had just been opened for it. The ladder has fewer rungs.
const MAX_REFUSALS: usize = 4;

impl<R> Model<R> {
    /// Writes down that a prompt goes out now, so that a crash is known to have cut it short.
    pub(super) fn record_prompt(&mut self, now: Now, effects: &mut Effects<R>) {
        let Session::Live(live) = &self.session else {
            return;
        };
        let Some(turn) = &mut self.turn else { return };
        turn.phase = TurnPhase::Recording;
        self.record.turn = Some(PendingTurn {
            turn_id: turn.asked.turn_id.clone(),
            prompt: turn.asked.prompt.clone(),
            accepted_at: now,
            upstream_id: Some(live.upstream_id.clone()),
            phase: Progress::Sent,
            anchor: None,
            request_id: turn.asked.request.as_ref().map(|request| request.id.clone()),
        });
        let turn_id = turn.asked.turn_id.clone();
        let request = turn.asked.request.clone();
        let request = request.map(|request| RequestRecord {
            turn_id: Some(turn_id),
            ..self.request_record(&request, now)
        });
        self.settle_orphan();
        self.touch(now);
        self.write(
            Vec::new(),
            Vec::new(),
            request,
            Milestone::PromptRecorded,
            effects,
        );
    }

    /// The prompt is on disk: send it.
    pub(super) fn prompt_recorded(&mut self, result: Result<(), String>, now: Now, effects: &mut Effects<R>) {
        if let Err(error) = result {
            self.record.turn = None;
            self.unsettle_orphan();
            self.fail_waiting(&ConversationError::StoreFailed(error), effects);
            return;
        }
        let Some(turn) = self
            .turn
            .as_mut()
            .filter(|turn| turn.phase == TurnPhase::Recording)
        else {
            return;
        };
        if turn.cancelled {
            self.record.turn = None;
            self.touch(now);
            self.write(Vec::new(), Vec::new(), None, Milestone::Nothing, effects);
            self.drop_turn_unsent(effects);
            return;
        }
        if self.session == Session::Closed {
            // The agent died while the prompt was being written down: nothing was sent, so it may go out again.
            turn.phase = TurnPhase::Waiting;
            self.record.turn = None;
            return;
        }
        turn.phase = TurnPhase::Sent;
        self.orphan_settled(effects);
        let (Some(turn), Session::Live(live)) = (&self.turn, &self.session) else {
            return;
        };
        let content = with_preamble(live.preamble.as_deref(), &turn.asked.prompt);
        effects.push(Effect::SendPrompt(content));
        effects.push(Effect::Arm(Deadline::Accept, self.rules.accept_grace_ms));
    }

    /// The agent works on the prompt: from here on the turn has an end that is told.
    pub(super) fn accept_prompt(&mut self, effects: &mut Effects<R>) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.phase == TurnPhase::Sent) else {
            return;
        };
        turn.phase = TurnPhase::Accepted;
        effects.push(Effect::Disarm(Deadline::Accept));
        effects.emit(Event::PromptAccepted {
            turn_id: turn.asked.turn_id.clone(),
            prompt: turn.asked.prompt.clone(),
        });
        if let Session::Live(live) = &mut self.session {
            live.preamble = None;
        }
        self.record.chain.mark_written();
    }

    /// The agent answered the prompt, with a result or an error.
    pub(super) fn prompt_answered(
        &mut self,
        answer: Result<bridge_protocol::raw::RawJson, bridge_protocol::raw::RawJson>,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let Some(turn) = self
            .turn
            .as_ref()
            .filter(|turn| matches!(turn.phase, TurnPhase::Sent | TurnPhase::Accepted))
        else {
            return;
        };
        let zoned = now.to_zoned((self.rules.zone)());
        match answer {
            Ok(raw) => {
                let result: Value = raw.read().unwrap_or(Value::Null);
                let evidence = Evidence::of_result(&result).with_signs(&turn.signs);
                let failure = failure::failure_of_result(self.kind, &evidence, &zoned);
                self.accept_prompt(effects);
                self.end_turn_with_result(&raw, &result, failure, now, effects);
            }
            Err(raw) => {
                let error: Value = raw.read().unwrap_or(Value::Null);
                let evidence = Evidence::of_error(&error).with_signs(&turn.signs);
                let failure = failure::classify(self.kind, &evidence, &zoned);
                if failure.session_unknown && turn.phase == TurnPhase::Sent && !turn.cancelled {
                    self.prompt_refused(failure.message, now, effects);
                    return;
                }
                self.accept_prompt(effects);
                self.end_turn_with_failure(failure, now, effects);
            }
        }
    }

    /// The agent does not know the session that it had open: the prompt was not taken, so the climb goes on below.
    fn prompt_refused(&mut self, message: String, now: Now, effects: &mut Effects<R>) {
        let Session::Live(live) = &self.session else {
            return;
        };
        let refusal = (live.upstream_id.clone(), live.via, message);
        effects.push(Effect::Disarm(Deadline::Accept));
        self.lose_session(effects);
        self.record.turn = None;
        let Some(turn) = &mut self.turn else { return };
        turn.refused.push(refusal);
        turn.phase = TurnPhase::Waiting;
        if turn.refused.len() > MAX_REFUSALS {
            let attempts = turn
                .refused
                .iter()
                .map(|(id, via, error)| bridge_protocol::link::Attempt {
                    upstream_id: Some(id.clone()),
                    via: *via,
                    error: Some(error.clone()),
                })
                .collect();
            let wanted = turn.asked.min_fidelity;
            self.touch(now);
            self.write(Vec::new(), Vec::new(), None, Milestone::Nothing, effects);
            self.fail_waiting(&ConversationError::NotResumable { wanted, attempts }, effects);
        }
    }
}

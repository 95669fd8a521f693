//! A prompt from its record to the agent: recorded, sent, refused or accepted.

use bridge_protocol::TurnId;
use bridge_protocol::event::Event;
use bridge_protocol::link::Via;
use bridge_protocol::raw::RawJson;
use serde_json::Value;

use crate::agent::failure::{self, Evidence, FailureKind};
use crate::agent::message::{INVALID_REQUEST, PARSE_ERROR};
use crate::conversation::effect::{Deadline, Effect, Ledger, Milestone, PromptArrival};
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::state::{Model, Turn, TurnPhase};
use crate::store::{Anchor, PendingTurn, RequestRecord};

use super::calls::with_preamble;

/// How many sessions may refuse one prompt after they were opened for it. The ladder has fewer rungs.
const MAX_REFUSALS: usize = 4;

impl<R> Model<R> {
    /// Reads the end of the transcript. What follows this position shows later whether the prompt reached the agent.
    pub(super) fn read_anchor(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        turn.phase = TurnPhase::Recording;
        self.effects.push(Effect::Anchor(turn.request.turn_id.clone()));
    }

    /// The end of the head's transcript was read: `None` if it cannot be read, an error if the conversation's folder is missing,
    /// or a folder does not respond. `earlier`: whether the earlier interrupted prompt, if any, is in the transcript. Records
    /// that the prompt is about to be sent, so that a crash is known to have interrupted its turn.
    pub fn anchor_read(
        &mut self,
        turn_id: &TurnId,
        anchor: Result<Option<Anchor>, ConversationError>,
        earlier: Option<PromptArrival>,
    ) {
        self.note_arrival(earlier);
        let is_recorded = |turn: &&mut Turn<R>| turn.is_recorded_as(turn_id);
        let Some(turn) = self.turn.as_mut().filter(is_recorded) else {
            return;
        };
        let Some(live) = &self.session else {
            // The agent died meanwhile. Nothing was written or sent.
            turn.phase = TurnPhase::Waiting;
            return;
        };
        let anchor = match anchor {
            Ok(anchor) => anchor,
            Err(error) => {
                turn.phase = TurnPhase::Waiting;
                return match turn.cancelled {
                    true => self.cancel_unsent_turn(),
                    false => self.fail_unsent_turn(&error),
                };
            }
        };
        if turn.request.is_continuation
            && let Some(continuation) = &mut self.record.continuation
        {
            continuation.attempts += 1;
            continuation.sent = true;
        }
        self.record.turn = Some(PendingTurn {
            upstream_id: Some(live.upstream_id.clone()),
            anchor,
            edit: turn.edit.as_ref().and_then(|edit| edit.branch.clone()),
            ..turn.request.to_pending_turn(self.now)
        });
        let turn_id = turn.request.turn_id.clone();
        let recorded_id = turn_id.clone();
        let request = turn.request.caller.key.clone();
        let request = request.map(|request| RequestRecord {
            turn_id: Some(turn_id),
            ..self.begun_request_record(&request)
        });
        let answered = self.settle_orphan();
        self.remove_from_queue_record();
        self.bump_revision();
        let ledger = Ledger::with_request(request.or(answered));
        self.write(ledger, Milestone::PromptRecorded(recorded_id));
    }

    /// The prompt is on disk: send it.
    pub(super) fn prompt_recorded(&mut self, turn_id: &TurnId, result: Result<(), StoreFailure>) {
        let is_recorded = |turn: &&mut Turn<R>| turn.is_recorded_as(turn_id);
        let Some(turn) = self.turn.as_mut().filter(is_recorded) else {
            return;
        };
        if let Err(error) = result {
            self.revert_prompt();
            self.fail_unsent_turn(&ConversationError::StoreFailed(error));
            return;
        }
        if turn.is_unaccepted_edit() {
            // The record names the branch now.
            self.effects.push(Effect::KeepCopy);
        }
        if turn.cancelled || self.stopping {
            let cancelled = turn.cancelled;
            self.revert_prompt();
            if cancelled {
                self.cancel_unsent_turn();
            } else {
                self.fail_unsent_turn(&ConversationError::ShuttingDown);
            }
            return;
        }
        let recorded = self.writer.on_disk.turn.as_ref();
        if recorded.and_then(|turn| turn.upstream_id.as_ref()) != self.open_session() {
            // The agent died or cleared its session meanwhile. The prompt goes only to the session that the record on disk
            // names. It may be sent later, because nothing was sent.
            self.revert_prompt();
            return;
        }
        let (Some(turn), Some(live)) = (&mut self.turn, &self.session) else {
            return;
        };
        turn.phase = TurnPhase::Sent;
        let open = self.record.interrupts.iter();
        turn.earlier_questions = open.map(|question| question.id.clone()).collect();
        // Only the end of the process that now has the prompt counts.
        turn.is_bystander = false;
        let branch = turn.edit.as_ref().and_then(|edit| edit.branch.as_ref());
        let link = branch.map(|branch| &branch.link).or(self.record.chain.head());
        let is_later = link.is_some_and(|link| link.turns + link.carried_turns > 0);
        match is_later {
            true => {
                self.later_prompts.truncate(1);
                self.later_prompts.insert(0, turn.request.prompt.to_text());
            }
            false => self.later_prompts.clear(),
        }
        let content = with_preamble(live.preamble.as_deref(), &turn.request.prompt);
        self.effects
            .push(Effect::SendPrompt(content, turn.request.params.clone()));
        self.effects
            .push(Effect::Arm(Deadline::Accept, self.rules.accept_grace_ms));
    }

    /// No agent has the prompt: the turn waits for a session again. A turn that was announced stays in the record, because
    /// its end must be reported even if the daemon restarts.
    pub(super) fn revert_prompt(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        turn.phase = TurnPhase::Waiting;
        if turn.request.is_continuation
            && let Some(continuation) = &mut self.record.continuation
        {
            continuation.attempts = continuation.attempts.saturating_sub(1);
            continuation.sent = false;
        }
        if !turn.announced {
            self.record.turn = None;
            self.restore_to_queue_record();
        }
        self.unsettle_orphan();
        self.mark_unsaved();
    }

    /// The agent works on the prompt, or at least did not refuse it. From now on the end of the turn must be reported.
    pub(super) fn accept_prompt(&mut self) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.phase == TurnPhase::Sent) else {
            return;
        };
        turn.phase = TurnPhase::Accepted;
        self.effects.push(Effect::Disarm(Deadline::Accept));
        let mut events = Vec::new();
        if !std::mem::replace(&mut turn.announced, true) {
            if turn.request.is_continuation || turn.request.is_held {
                events.push(Event::Continued {
                    turn_id: turn.request.turn_id.clone(),
                });
            }
            events.push(Event::PromptAccepted {
                turn_id: turn.request.turn_id.clone(),
                prompt: turn.request.prompt.clone(),
            });
        }
        // The edit is reported first, once it is on disk, unless the disk has failed: then nothing waits for it.
        let is_editing = self.is_editing();
        let after_edit = match is_editing && !self.writer.has_failed {
            true => std::mem::take(&mut events),
            false => Vec::new(),
        };
        events.into_iter().for_each(|event| self.emit(event));
        if is_editing {
            self.accept_edit(after_edit);
        }
        self.orphan_settled();
    }

    /// The agent showed that it has the prompt. A transcript is expected, which contains the history that was sent as text.
    /// Silence and death show nothing.
    pub(super) fn prompt_confirmed(&mut self) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.is_sent()) else {
            return;
        };
        turn.is_prompt_confirmed = true;
        let is_in_session = !turn.was_session_cleared;
        if let Some(pending) = self.record.turn.as_mut().filter(|pending| !pending.taken) {
            pending.taken = true;
            if pending.anchor.is_none() {
                self.mark_unsaved();
            }
        }
        self.accept_prompt();
        if let Some(live) = &mut self.session {
            live.preamble = None;
        }
        if is_in_session && self.record.chain.mark_written() {
            self.mark_unsaved();
        }
    }

    /// Confirms the prompt by the agent's answer. If a transcript can be read, an answer alone does not show that the agent has
    /// the prompt: it may say that the agent could not write it.
    fn prompt_confirmed_by_answer(&mut self) {
        let was_taken = |pending: &PendingTurn| pending.taken || pending.anchor.is_none();
        let was_taken = self.record.turn.as_ref().is_some_and(was_taken);
        self.prompt_confirmed();
        if let Some(pending) = &mut self.record.turn {
            pending.taken = was_taken;
        }
    }

    /// The agent answered the prompt, with a result or an error.
    pub fn prompt_answered(&mut self, answer: Result<RawJson, RawJson>) {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.is_sent()) else {
            return;
        };
        let zoned = self.now.to_zoned((self.rules.zone)());
        match answer {
            Ok(raw) => {
                let result: Value = raw.read().unwrap_or(Value::Null);
                let evidence = Evidence::of_result(&result).with_signs(&turn.signs);
                let failure = failure::failure_of_result(self.kind, &evidence, &zoned);
                // The agent may also have cancelled on its own: it may apply an earlier turn's cancel to this turn.
                let is_cancelled = turn.cancelled || result["stopReason"] == "cancelled";
                if is_cancelled && !turn.is_prompt_confirmed && failure.is_none() {
                    // It is unknown whether the prompt is in the transcript, so it is not counted as a turn.
                    self.accept_prompt();
                    self.end_turn_cancelled();
                    return;
                }
                self.prompt_confirmed_by_answer();
                self.end_turn_with_result(&raw, &result, failure);
            }
            Err(raw) => {
                let error: Value = raw.read().unwrap_or(Value::Null);
                let evidence = Evidence::of_error(&error).with_signs(&turn.signs);
                let failure = failure::classify(self.kind, &evidence, &zoned);
                // A prompt that the agent did not take may be sent again, however late the refusal comes.
                if failure.session_unknown && !turn.is_prompt_confirmed && !turn.cancelled {
                    self.prompt_refused(failure.message);
                    return;
                }
                if failure.kind == FailureKind::AuthRequired && self.is_editing() {
                    // The edit had no effect, so there is nothing to undo.
                    let error = ConversationError::AuthRequired {
                        message: failure.message,
                        upstream: Some(raw),
                    };
                    self.revert_edit(&error);
                    return;
                }
                let code = error.get("code").and_then(Value::as_i64);
                // In ACP a cancelled turn ends as `cancelled`, whatever the error. If the daemon's stop cancelled it, a limit is
                // still recorded.
                let is_limit_at_stop =
                    turn.was_cut_by_daemon_stop && failure.kind == FailureKind::RateLimited;
                if turn.cancelled && !is_limit_at_stop {
                    // It is unknown whether the prompt is in the transcript.
                    self.accept_prompt();
                    self.end_turn_cancelled();
                    return;
                }
                // Without a sign-in, the agent may not have written the prompt; if it could not read the request, it has not.
                let is_unread = matches!(code, Some(PARSE_ERROR | INVALID_REQUEST));
                let may_be_unwritten =
                    is_unread || failure.session_unknown || failure.kind == FailureKind::AuthRequired;
                if may_be_unwritten {
                    self.accept_prompt();
                } else {
                    self.prompt_confirmed_by_answer();
                }
                self.end_turn_with_error(failure, Some(raw));
            }
        }
    }

    /// The prompt did not leave the daemon. If the process is ending, its sessions end too, and the prompt is sent to the
    /// next process. Otherwise the turn fails, and leaves no trace in the session.
    pub fn prompt_not_sent(&mut self, error: String, is_ending: bool) {
        let turn = self.turn.as_ref();
        if turn.is_none_or(|turn| turn.phase != TurnPhase::Sent) {
            return;
        }
        if is_ending {
            // The questions of a dead agent are kept.
            self.orphan_questions();
            if let Some(turn) = &mut self.turn {
                turn.deaths.push(error.clone());
            }
            self.leave_session_and_climb(Via::Live, error);
            return;
        }
        if self.is_editing() {
            let error = ConversationError::AgentUnavailable(format!("the prompt could not be sent: {error}"));
            self.revert_edit(&error);
            return;
        }
        self.accept_prompt();
        let answer =
            serde_json::json!({"code": -32603, "message": format!("the prompt could not be sent: {error}")});
        let zoned = self.now.to_zoned((self.rules.zone)());
        let failure = failure::classify(self.kind, &Evidence::of_error(&answer), &zoned);
        self.end_turn_with_failure(failure);
    }

    /// The agent does not know the session that it had open. It did not take the prompt, so the climb continues with the
    /// next way.
    fn prompt_refused(&mut self, message: String) {
        let (Some(live), Some(turn)) = (&self.session, &self.turn) else {
            return;
        };
        // If the session was opened for this prompt, the way shows which rungs have been tried. A session that served
        // earlier prompts may be brought back in the same way.
        let via = if turn.resumed.is_some() {
            live.via
        } else {
            Via::Live
        };
        self.leave_session_and_climb(via, message);
    }

    /// Leaves a session that did not take the prompt. Ways that were tried for this prompt are not tried again.
    fn leave_session_and_climb(&mut self, via: Via, message: String) {
        let Some(live) = &self.session else {
            return;
        };
        let refusal = (live.upstream_id.clone(), via, message);
        self.effects.push(Effect::Disarm(Deadline::Accept));
        self.drop_session();
        self.revert_prompt();
        self.abandon_edit();
        let Some(turn) = &mut self.turn else { return };
        turn.refused.push(refusal);
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
            let wanted = turn.request.min_fidelity;
            self.fail_unsent_turn(&ConversationError::NotResumable { wanted, attempts });
        }
    }
}

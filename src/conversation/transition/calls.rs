//! Calls of clients: admission, idempotency, and the calls that need no outside work.

use bridge_protocol::conversation::{Settings, TranscriptsOnDelete};
use bridge_protocol::id::TurnId;
use bridge_protocol::link::{Attempt, Fidelity, Resumed, Via};
use bridge_protocol::method::Update;
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{StopReason, TurnResult};

use crate::agent::failure::FailureSigns;
use crate::conversation::answer::{Answer, CallKey, Caller};
use crate::conversation::edit::TurnEdit;
use crate::conversation::effect::{Call, Deadline, Effect, IncomingCall, Work};
use crate::conversation::error::ConversationError;
use crate::conversation::prompt_request::{DroppedPrompt, PromptRequest};
use crate::conversation::reported_settings::{
    SettingChange, merge_settings, note_accepted, setting_accepted, setting_changes, takes_while_open,
};
use crate::conversation::state::{Model, OperationKind, OrphanAnswer, Turn, TurnPhase};
use crate::store::RequestRecord;

impl<R> Model<R> {
    /// Admits a call. If its key was used before, it joins the earlier call or gets its answer; otherwise it is carried out.
    pub fn admit(&mut self, incoming: IncomingCall<R>, stored: Option<RequestRecord>) {
        let IncomingCall { call, request, reply } = incoming;
        let Some(caller) = self.join_or_repeat(request, stored, reply) else {
            return;
        };
        if let Some(request) = &caller.key {
            self.track_call(request.clone());
        }
        self.refuse_or_carry_out(call, caller);
    }

    /// Carries out a call, unless it must be refused now.
    pub(super) fn refuse_or_carry_out(&mut self, call: Call, caller: Caller<R>) {
        match self.refusal(&call) {
            Some(refusal) => self.answer(caller, Err(refusal)),
            None => self.carry_out_call(call, caller),
        }
    }

    fn carry_out_call(&mut self, call: Call, caller: Caller<R>) {
        match call {
            Call::Prompt(call, turn) => {
                let request = PromptRequest {
                    min_fidelity: call.min_fidelity,
                    on_limit: call.on_limit,
                    ..PromptRequest::new(turn, call.prompt, self.now, caller)
                };
                self.prompt(request, call.on_busy);
            }
            Call::Continue(call) => self.schedule_continuation(call, caller),
            Call::Cancel(call, params) => self.cancel(&call, params, caller),
            Call::Resume(min_fidelity) => self.resume_session(min_fidelity, caller),
            Call::Update(call, params) => self.update(call, params, caller),
            Call::Fork(fork) => self.fork(fork, caller),
            Call::Edit(call, at, turn) => {
                self.start_turn(PromptRequest {
                    min_fidelity: call.min_fidelity,
                    ..PromptRequest::new(turn, call.prompt, self.now, caller)
                });
                if let Some(turn) = &mut self.turn {
                    turn.edit = Some(TurnEdit { at, branch: None });
                }
            }
            Call::Undo { session, progress } => self.undo(session, caller, progress),
            Call::Move(request) => self.move_to(request, caller),
            Call::Repair(progress) => {
                self.start_when_closed(OperationKind::Repair, caller, Work::Repair(progress));
            }
            Call::Respond(response) => self.respond(response, caller),
            Call::PauseForMove | Call::ResumeAfterMove => {
                self.is_paused = matches!(call, Call::PauseForMove);
                self.answer(caller, Ok(Answer::Done));
            }
            Call::Close => self.close(caller),
            Call::Reset => self.close_then(OperationKind::Reset, caller),
            Call::Delete(transcripts) => {
                let deletes = transcripts == TranscriptsOnDelete::Delete;
                match deletes || self.record.begun_deletion.is_some() {
                    true => self.delete_with_transcripts(caller),
                    false => self.close_then(OperationKind::Delete { transcripts: false }, caller),
                }
            }
        }
    }

    /// Why this call cannot be admitted now.
    fn refusal(&self, call: &Call) -> Option<ConversationError> {
        if let Some(at) = self.record.deleted_at {
            return Some(ConversationError::Deleted {
                id: self.record.id,
                at,
            });
        }
        let may_finish = self.operation.is_none() && matches!(call, Call::Delete(_));
        if self.is_deleting() && !may_finish {
            return Some(ConversationError::Busy(
                "the conversation is being deleted".to_owned(),
            ));
        }
        let ends_something = matches!(call, Call::Cancel(..) | Call::Respond(_) | Call::ResumeAfterMove);
        // The conversation is held for this move.
        let may_move = self.operation.is_none() && matches!(call, Call::Move(_));
        if self.is_moving() && !may_move && !ends_something {
            return Some(ConversationError::Busy(
                "the conversation is being moved to another folder; try again when the move is done"
                    .to_owned(),
            ));
        }
        if self.stopping && !ends_something {
            return Some(ConversationError::ShuttingDown);
        }
        match call {
            Call::Fork(fork) => self.refusal_to_fork(fork),
            Call::Edit(..) => self.refusal_to_edit(),
            Call::Undo { .. } => self.busy_for_history_change("undo"),
            Call::Move(_) | Call::PauseForMove => self.refusal_to_leave_agent("move"),
            Call::Repair(_) => self.refusal_to_leave_agent("be repaired"),
            Call::Reset | Call::Delete(_) => self.busy_with("a turn is running; cancel it first"),
            _ => None,
        }
    }

    /// Returns the caller if the call is new. Otherwise the call is answered, or waits together with the first one.
    fn join_or_repeat(
        &mut self,
        request: Option<CallKey>,
        stored: Option<RequestRecord>,
        reply: R,
    ) -> Option<Caller<R>> {
        let Some(key) = request else {
            return Some(Caller::without_key(reply));
        };
        let unwritten = self.writer.unwritten_request(&key.id).cloned();
        let stored = unwritten.or(stored);
        let mut open = self.open_requests.iter_mut();
        let open = open.find(|open| open.key.id == key.id);
        let listed = self.record.waiting.values();
        let listed = listed.filter_map(|prompt| prompt.request.as_ref());
        let earlier = open.as_deref().map(|open| &open.key.fingerprint);
        let mut earlier = earlier
            .into_iter()
            .chain(
                listed
                    .filter(|listed| listed.id == key.id)
                    .map(|listed| &listed.fingerprint),
            )
            .chain(stored.as_ref().map(|stored| &stored.fingerprint));
        if earlier.any(|fingerprint| !key.has_same_content(fingerprint)) {
            let conflict = Err(key.content_conflict());
            self.effects.push(Effect::Answer(reply, conflict));
            return None;
        }
        if let Some(open) = open {
            open.followers.push(reply);
            self.note_repeated_call(&key);
            return None;
        }
        let reply = self.join_queued_call(&key, reply)?;
        match stored.and_then(|stored| stored.result) {
            Some(result) => {
                self.effects.push(Effect::Answer(reply, Ok(Answer::Json(result))));
                None
            }
            // Without a result, the call was cut short before it changed anything (at boot, every turn that was sent gets an
            // end).
            None => Some(Caller {
                reply: Some(reply),
                key: Some(key),
            }),
        }
    }

    /// Begins a turn, which first waits for the session.
    pub(super) fn start_turn(&mut self, prompt_request: PromptRequest<R>) {
        self.effects.push(Effect::Disarm(Deadline::Idle));
        self.turn = Some(Turn {
            request: prompt_request,
            phase: TurnPhase::Waiting,
            announced: false,
            is_prompt_confirmed: false,
            was_session_cleared: false,
            started_at: self.now,
            cancelled: false,
            cancel_callers: Vec::new(),
            resumed: None,
            signs: FailureSigns::default(),
            refused: Vec::new(),
            orphan_answer: None,
            sent_again: false,
            earlier_questions: Vec::new(),
            withdrawn_questions: Vec::new(),
            deaths: Vec::new(),
            was_cut_by_daemon_stop: false,
            is_bystander: false,
            edit: None,
        });
    }

    pub(super) fn cancelled_before_start(&self, turn_id: TurnId) -> TurnResult {
        // The climb may have opened a session meanwhile whose link is not on disk yet.
        let head = self.writer.on_disk.chain.head();
        let upstream_id = head.map_or_else(|| "".into(), |head| head.upstream_id.clone());
        TurnResult::new(turn_id, StopReason::Cancelled, upstream_id)
    }

    pub(super) fn cancel_running(&mut self, params: Option<RawJson>, caller: Caller<R>) {
        let Some(turn) = &mut self.turn else { return };
        turn.cancel_callers.push(caller);
        let was_cancelled = std::mem::replace(&mut turn.cancelled, true);
        match turn.phase {
            TurnPhase::Waiting => {
                // No agent has the prompt. The climb continues: dropping it would close the session while the next climb
                // opens it. `Deadline::Climb` limits it.
                self.cancel_unsent_turn();
                self.limit_unwanted_climb();
            }
            // The turn ends with the pending milestone.
            TurnPhase::Recording | TurnPhase::Ending => {}
            TurnPhase::Sent | TurnPhase::Accepted => {
                // If the agent is dead, its transcript is being checked, which ends the turn.
                if !was_cancelled && self.session.is_some() {
                    self.cancel_questions(&[]);
                    self.effects.push(Effect::SendCancel(params));
                    self.effects
                        .push(Effect::Arm(Deadline::Cancel, self.rules.cancel_grace_ms));
                }
            }
        }
    }

    /// Ends a turn that was cancelled while no agent had its prompt.
    pub(super) fn cancel_unsent_turn(&mut self) {
        if self.turn.as_ref().is_some_and(|turn| turn.announced) {
            self.end_turn(StopReason::Cancelled, None, None);
            return;
        }
        let Some(turn) = self.take_unsent_turn() else {
            return;
        };
        let before = self.record.clone();
        if turn.request.is_continuation {
            self.end_continuation();
            self.mark_unsaved();
        }
        let mut result = self.cancelled_before_start(turn.request.turn_id.clone());
        result.resumed = turn.resumed;
        let (recorded, cancels) = match turn.request.is_continuation {
            true => (turn.cancel_callers, Vec::new()),
            false => (Vec::new(), turn.cancel_callers),
        };
        let result = Ok(self.turn_answer(turn.edit.as_ref(), result));
        let refusal = ConversationError::Busy("the answer was cancelled before it was sent".to_owned());
        self.drop_unsent_turn(turn.request, result, turn.orphan_answer, refusal, cancels);
        for caller in recorded {
            // After a reported cancellation, a restart must not send the prompt.
            self.answer_change(caller, Answer::Cancelled(true), before.clone());
        }
    }

    /// Takes a turn that was not announced and whose prompt no agent has.
    pub(super) fn take_unsent_turn(&mut self) -> Option<Turn<R>> {
        self.abandon_edit();
        let turn = self.turn.take()?;
        if turn.edit.is_some() {
            self.refuse_prompts_after_edit();
        }
        Some(turn)
    }

    /// Answers the callers of such a turn. The question that it answers stays open, for the reason `refusal`: no agent got the
    /// answer.
    pub(super) fn drop_unsent_turn(
        &mut self,
        request: PromptRequest<R>,
        result: Result<Answer, ConversationError>,
        orphan_answer: Option<OrphanAnswer<R>>,
        refusal: ConversationError,
        cancels: Vec<Caller<R>>,
    ) {
        let refused = orphan_answer.map(|answer| DroppedPrompt {
            caller: answer.caller,
            result: Err(refusal),
        });
        self.drop_unsent(request, result, refused, cancels);
        self.end_continuation_of_empty_queue();
        self.arm_idle();
    }

    fn resume_session(&mut self, min_fidelity: Fidelity, caller: Caller<R>) {
        // An operation may wait long for the agent. The process is changed before the session is next used.
        let is_leaving = self.must_reopen() && self.operation.is_none();
        let is_usable = !is_leaving && !self.is_editing();
        if let Some(resumed) = self.live_resume_report().filter(|_| is_usable) {
            let answer = Answer::Resumed(Box::new(self.view()), Box::new(resumed));
            self.answer(caller, Ok(answer));
            return;
        }
        self.resume_waiters.push((caller, min_fidelity));
    }

    /// The report for a session that is already open.
    pub(super) fn live_resume_report(&self) -> Option<Resumed> {
        let Some(live) = &self.session else {
            return None;
        };
        let upstream_id = live.upstream_id.clone();
        let attempt = Attempt {
            upstream_id: Some(upstream_id.clone()),
            via: Via::Live,
            error: None,
        };
        Some(Resumed {
            upstream_id,
            via: Via::Live,
            fidelity: Fidelity::Full,
            missing_turns: 0,
            attempts: vec![attempt],
        })
    }

    fn update(&mut self, call: Update, params: Option<RawJson>, caller: Caller<R>) {
        let is = self.record.revision;
        if let Some(expected) = call.expected_revision.filter(|expected| *expected != is) {
            let error = ConversationError::RevisionMismatch { expected, is };
            self.answer(caller, Err(error));
            return;
        }
        // The stored value may be the same, and the agent's another one.
        let changes = setting_changes(&call.settings, self.session_info.config_options.as_ref());
        let mut merged = self.record.settings.clone();
        merge_settings(&mut merged, call.settings.clone(), &self.session_info);
        let asks_agent = self.session.is_some() && !changes.is_empty();
        let is_unchanged = !asks_agent && merged == self.record.settings;
        // A later change must not overtake one that waits.
        let sets_title = matches!(
            self.operation_kind(),
            Some(OperationKind::Configure { title: Some(_), .. })
        );
        let must_wait = !is_unchanged || sets_title || !self.waiting_updates.is_empty();
        if must_wait && (self.operation.is_some() || self.closing.is_some()) {
            self.waiting_updates.push_back((call, params, caller));
            return;
        }
        let (title, mut others) = (call.title, call.settings);
        if is_unchanged {
            self.write_update(title, others, caller);
            return;
        }
        if !asks_agent {
            if self.session.is_none() {
                // Clients are shown what the next opening asks for.
                for change in changes {
                    note_accepted(&mut self.session_info, &change, &RawJson::default());
                }
            }
            self.write_update(title, others, caller);
            return;
        }
        (others.model, others.mode) = (None, None);
        if let Some(config) = &mut others.config {
            config.retain(|_, value| value.get() == "null");
        }
        let others = Box::new(others);
        let kind = OperationKind::Configure { title, others };
        self.start(kind, caller, Work::Configure(changes, params));
    }

    /// The agent has accepted a setting, with this answer. It counts from now on, also if the next one is refused.
    pub fn note_setting_accepted(&mut self, change: &SettingChange, answer: &RawJson) {
        self.change_settings(|record, known| setting_accepted(record, known, change, answer));
    }

    /// Changes title and settings in the record, writes it, and then answers with the conversation.
    pub(super) fn write_update(&mut self, title: Option<String>, settings: Settings, caller: Caller<R>) {
        let before = self.record.clone();
        if let Some(title) = title {
            self.record.title = title;
            self.record.reported.title = None;
        }
        merge_settings(&mut self.record.settings, settings, &self.session_info);
        if let Some(live) = &mut self.session {
            live.has_old_settings |= !takes_while_open(&before.settings, &self.record.settings);
        }
        self.bump_revision();
        let answer = Answer::Conversation(Box::new(self.view_when_on_disk()));
        self.answer_change(caller, answer, before);
    }
}

/// The prompt as it is sent: preceded by the history as text, if there is one.
pub(super) fn with_preamble(preamble: Option<&str>, prompt: &PromptContent) -> PromptContent {
    let Some(preamble) = preamble else {
        return prompt.clone();
    };
    let mut blocks = PromptContent::text(preamble).as_blocks().to_vec();
    blocks.extend(prompt.as_blocks().iter().cloned());
    PromptContent::blocks(blocks)
}

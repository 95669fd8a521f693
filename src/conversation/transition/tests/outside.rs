//! The actions of the store and the agent, and the results of outside work.

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::conversation::{BranchedVia, MoveAnswer, SessionInfo};
use bridge_protocol::id::{AgentName, InterruptId, TurnId, UpstreamId};
use bridge_protocol::link::{Attempt, Fidelity, LinkReason, Relation, Resumed, RollCause, Via};
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::InterruptKind;
use serde_json::{Value, json};

use super::world::{PendingWrite, World};
use crate::chain::{NewLink, UndoEffect, next_undo};
use crate::conversation::edit::EditBranch;
use crate::conversation::effect::{Deadline, NewBranch, OpenedSession, PromptArrival, WorkResult};
use crate::conversation::error::ConversationError;
use crate::conversation::state::{Model, TurnPhase};
use crate::conversation::transition::{EndedTurn, end_turn_of_previous_run};

impl World {
    /// The climb opened a first or new session.
    pub(super) fn opens(&mut self, id: &str) {
        self.climbed(opened(
            id,
            Via::Fresh,
            Fidelity::Full,
            Some((Relation::Fresh, None)),
        ));
    }

    /// The climb opened the head.
    pub(super) fn reopens(&mut self) {
        let head = self.model.record.chain.head().unwrap().upstream_id.clone();
        self.climbed(opened(head.as_str(), Via::Resume, Fidelity::Full, None));
    }

    /// The climb had to leave the head for a copy of it.
    pub(super) fn copies(&mut self, id: &str, cause: RollCause) {
        let from = self.model.record.chain.head().unwrap().upstream_id.clone();
        let mut copy = opened(
            id,
            Via::Copied,
            Fidelity::Full,
            Some((Relation::Carries, Some(from))),
        );
        copy.link.as_mut().unwrap().cause = Some(cause);
        self.climbed(copy);
    }

    /// The climb had to start anew, as was asked for.
    pub(super) fn starts_anew(&mut self, id: &str) {
        let mut fresh = opened(id, Via::Fresh, Fidelity::None, Some((Relation::Fresh, None)));
        fresh.link.as_mut().unwrap().cause = Some(RollCause::Lost);
        self.climbed(fresh);
    }

    /// The climb had to leave the head for a retelling of it.
    pub(super) fn retells(&mut self, id: &str, preamble: &str) {
        let from = self.model.record.chain.head().unwrap().upstream_id.clone();
        let mut retold = opened(
            id,
            Via::Text,
            Fidelity::Text,
            Some((Relation::Follows, Some(from))),
        );
        retold.link.as_mut().unwrap().cause = Some(RollCause::Lost);
        retold.preamble = Some(preamble.to_owned());
        self.climbed(retold);
    }

    pub(super) fn climbed(&mut self, opened: OpenedSession) {
        let job = self.job.take().expect("no climb was asked for");
        self.arrives(&opened.upstream_id);
        self.apply(|model| model.work_done(job, Ok(WorkResult::Opened(Box::new(opened)))));
    }

    pub(super) fn climb_fails(&mut self, error: ConversationError) {
        let job = self.job.take().expect("no climb was asked for");
        self.apply(|model| model.work_done(job, Err(error)));
    }

    pub(super) fn branches(&mut self, id: &str) {
        self.branched(Ok(branch(id)));
    }

    pub(super) fn branched(&mut self, result: Result<NewBranch, ConversationError>) {
        let job = self.job.take().expect("no branch was asked for");
        if let Ok(NewBranch {
            opened_session: Some(opened),
            ..
        }) = &result
        {
            self.arrives(&opened.upstream_id);
        }
        self.apply(|model| model.work_done(job, result.map(WorkResult::Branched)));
    }

    /// The branch of an edit is open, or there is none.
    pub(super) fn edit_is_made(&mut self, result: Result<EditBranch, ConversationError>) {
        let job = self.job.take().expect("no edit was asked for");
        if let Ok(edited) = &result {
            self.arrives(&edited.opened.upstream_id);
        }
        self.apply(|model| model.work_done(job, result.map(|edited| WorkResult::Edited(Box::new(edited)))));
    }

    /// The lineage is read for what to take back.
    pub(super) fn looks_back(&mut self) {
        let job = self.job.take().expect("nobody wants to undo");
        let found = next_undo(&self.disk.lineage, self.model.record.chain.links(), |_| false);
        self.apply(|model| model.work_done(job, Ok(WorkResult::UndoTargetFound(found, None, false))));
    }

    /// The same, with this id for the head that is to be taken up again.
    pub(super) fn looks_back_to(&mut self, id: &str) {
        let job = self.job.take().expect("nobody wants to undo");
        let mut found = next_undo(&self.disk.lineage, self.model.record.chain.links(), |_| false);
        match &mut found {
            Some(UndoEffect::Branch(earlier)) => earlier.link.upstream_id = id.into(),
            other => panic!("no branch is undone: {other:?}"),
        }
        self.apply(|model| model.work_done(job, Ok(WorkResult::UndoTargetFound(found, None, false))));
    }

    /// The session that was being closed is.
    pub(super) fn closes(&mut self) {
        let job = self.closing.take().expect("no closing was asked for");
        self.apply(|model| model.work_done(job, Ok(WorkResult::Closed(Default::default()))));
    }

    /// The files are elsewhere, or where they were.
    pub(super) fn moved(&mut self, result: Result<u64, ConversationError>) {
        let job = self.job.take().expect("nothing was to be moved");
        let result = result.map(|moved| MoveAnswer {
            plan: Vec::new(),
            moved,
            left_out: Vec::new(),
            kept: Vec::new(),
        });
        self.apply(|model| model.work_done(job, result.map(WorkResult::Moved)));
    }

    /// A repaired copy was made, or there was nothing to repair.
    pub(super) fn repaired(&mut self, result: Result<Option<&str>, ConversationError>) {
        let job = self.job.take().expect("nothing was to be repaired");
        let head = self
            .model
            .record
            .chain
            .head()
            .map(|head| head.upstream_id.clone());
        let result = result.map(|made| {
            let answer = CheckAnswer {
                repaired: made.map(UpstreamId::from),
                ..CheckAnswer::default()
            };
            let head = made.zip(head).map(|(made, from)| NewBranch {
                upstream_id: made.into(),
                source: from,
                checkpoint: None,
                turns: 2,
                fidelity: Fidelity::Partial,
                via: BranchedVia::Cut,
                opened_session: None,
            });
            WorkResult::Repaired(Box::new(answer), head)
        });
        self.apply(|model| model.work_done(job, result));
    }

    /// What the last job made is undone.
    pub(super) fn taken_back(&mut self) {
        let job = self.job.take().expect("nothing was to be taken back");
        self.apply(|model| {
            model.work_done(
                job,
                Err(ConversationError::StoreFailed("disk full".to_owned().into())),
            );
        });
    }

    pub(super) fn configured(&mut self, result: Result<(), ConversationError>) {
        let job = self.job.take().expect("no settings were to be applied");
        self.apply(|model| model.work_done(job, result.map(|()| WorkResult::Configured)));
    }

    /// The oldest write that is under way ends well.
    pub(super) fn write_ends(&mut self) {
        let write = self.writes.pop_front().expect("nothing is being written");
        self.arrives_on_disk(write);
        self.apply(|model| model.write_done(&Ok(())));
    }

    fn arrives_on_disk(&mut self, write: PendingWrite) {
        for ledger in write.ledgers {
            for request in ledger.requests {
                self.disk
                    .requests
                    .insert(request.request_id.as_str().to_owned(), request);
            }
            if write.record.is_some() {
                self.disk.lineage.extend(ledger.lineage);
                self.disk.upstream.extend(ledger.upstream);
            }
        }
        if let Some(record) = write.record {
            self.disk.record = Some(record);
        }
    }

    /// The conversation's task fails. The write that is under way reaches the disk or does not.
    pub(super) fn task_fails(&mut self, is_written: bool) {
        let under_way = self.writes.pop_front().filter(|_| is_written);
        under_way
            .into_iter()
            .for_each(|write| self.arrives_on_disk(write));
        self.armed.clear();
        (self.job, self.closing, self.arrived) = (None, None, None);
        self.apply(|model| model.restart_from_disk("a fault", is_written));
    }

    /// The oldest write that is under way fails.
    pub(super) fn write_fails(&mut self) {
        self.writes.pop_front().expect("nothing is being written");
        self.apply(|model| model.write_done(&Err("disk full".to_owned().into())));
    }

    /// Everything that is being written arrives, and from here on at once.
    pub(super) fn release_writes(&mut self) {
        self.hold_writes = false;
        while !self.writes.is_empty() {
            self.write_ends();
        }
    }

    // What the agent does.

    /// An update; the log tells the turn that it is counted to.
    pub(super) fn updates(&mut self, update: &Value) {
        let kind = update["sessionUpdate"].as_str().unwrap().to_owned();
        let line =
            json!({"jsonrpc": "2.0", "method": "session/update", "params": {"update": update}}).to_string();
        let now = self.tick();
        let effects = self
            .model
            .note(now, |model| model.apply_update(&kind, &update.to_string(), &line));
        self.carry_out(effects);
        let turn = self
            .model
            .turn_of_updates()
            .map_or("none".to_owned(), ToString::to_string);
        if self.model.must_delay_agent_lines() {
            // The actor hears it again when the edit is on disk.
            self.pump();
        }
        self.log.push(format!("update {kind} of {turn}"));
        self.pump();
    }

    pub(super) fn says_something(&mut self) {
        self.updates(&json!({
            "sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": "so"}
        }));
    }

    pub(super) fn ends(&mut self, stop_reason: &str) {
        let answer = RawJson::from(json!({"stopReason": stop_reason}));
        self.apply(|model| model.prompt_answered(Ok(answer)));
    }

    pub(super) fn refuses(&mut self, error: Value) {
        self.apply(|model| model.prompt_answered(Err(RawJson::from(error))));
    }

    pub(super) fn does_not_know_the_session(&mut self) {
        self.refuses(json!({"code": -32002, "message": "Resource not found", "data": {"sessionId": "s"}}));
    }

    pub(super) fn asks(&mut self, question: &str) {
        let params = RawJson::from(json!({
            "toolCall": {"toolCallId": "c1", "title": "Run make", "rawInput": {"command": "make"}},
            "options": [
                {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                {"optionId": "no", "name": "No", "kind": "reject_once"}
            ]
        }));
        self.apply(|model| model.question_asked(InterruptKind::Permission, params, question.into()));
    }

    pub(super) fn withdraws(&mut self, question: &str) {
        self.apply(|model| model.question_withdrawn(&InterruptId::new(question)));
    }

    /// Whether a prompt was handed over and nothing has come of it yet.
    pub(super) fn is_sending(&self) -> bool {
        let turn = self.model.turn.as_ref();
        turn.is_some_and(|turn| turn.phase == TurnPhase::Sent)
    }

    /// The prompt does not get out of the daemon.
    pub(super) fn does_not_send(&mut self, is_ending: bool) {
        self.apply(|model| model.prompt_not_sent("the agent is being stopped".to_owned(), is_ending));
    }

    pub(super) fn dies(&mut self) {
        self.apply(|model| model.agent_died("exit status 1", "out of memory\n", false));
    }

    /// The daemon ends the agent because of another conversation.
    pub(super) fn is_ended_for_others(&mut self) {
        self.apply(|model| model.agent_died("exit status 1", "out of memory\n", true));
    }

    pub(super) fn rolls_silently(&mut self, id: &str) {
        let now = self.tick();
        let effects = self.model.note(now, |model| model.silent_roll(id));
        self.carry_out(effects);
        self.pump();
    }

    pub(super) fn takes_over(&mut self, opened: OpenedSession) {
        // It has a place of its own until it is taken or let go, at once.
        let earlier = self.arrived.replace(opened.upstream_id.to_string());
        self.apply(|model| model.session_handed_over(opened));
        assert_eq!(self.arrived, None);
        self.arrived = earlier;
    }

    /// The end of the transcript is found, before the prompt of a turn.
    pub(super) fn finds_end(&mut self, turn_id: &TurnId) {
        let now = self.tick();
        let (anchor, earlier) = (Ok(self.anchor.clone()), self.earlier);
        let effects = self
            .model
            .apply(now, |model| model.anchor_read(turn_id, anchor, earlier));
        self.carry_out(effects);
    }

    /// The transcript says whether a prompt reached it.
    pub(super) fn ascertains(&mut self, arrival: PromptArrival) {
        let job = self.job.take().expect("nothing was asked of the transcript");
        self.apply(|model| model.work_done(job, Ok(WorkResult::ArrivalChecked(arrival))));
    }

    /// The time has come to go on; the turn is `c` and a number.
    pub(super) fn falls_due(&mut self) {
        self.wakings += 1;
        let turn_id = TurnId::new(format!("c{}", self.wakings));
        self.apply(|model| model.continuation_due(turn_id));
    }

    pub(super) fn elapses(&mut self, deadline: Deadline) {
        self.armed.retain(|armed| *armed != deadline);
        self.apply(|model| model.elapsed(deadline));
    }

    /// Nobody used it for a while, and its session is closed.
    pub(super) fn rests(&mut self) {
        self.elapses(Deadline::Idle);
        self.closes();
    }

    pub(super) fn stop(&mut self) {
        self.apply(|model| model.stop(5_000));
    }

    /// The daemon is killed, with its agents, and started again: what is on disk is all that there is.
    pub(super) fn is_killed(&mut self) {
        self.is_killed_when(PromptArrival::Unknown);
    }

    /// The same, with what the transcript says of the prompt that is out.
    pub(super) fn is_killed_when(&mut self, arrived: PromptArrival) {
        let mut record = self.disk.record.clone().expect("nothing is on disk");
        let ended = end_turn_of_previous_run(&mut record, arrived);
        self.disk.lineage.extend(ended.lineage);
        if let Some(EndedTurn {
            request_id: Some(request),
            result,
            ..
        }) = ended.ended_turn
        {
            let kept = self
                .disk
                .requests
                .get_mut(request.as_str())
                .expect("it was written");
            kept.result = RawJson::from_value(&result).ok();
        }
        self.disk.record = Some(record.clone());
        self.model = Model::new(record, self.model.kind, self.model.rules.clone());
        self.writes.clear();
        self.armed.clear();
        (self.job, self.closing, self.arrived) = (None, None, None);
        self.forget_log();
    }
}

/// What a climb found.
pub(super) fn opened(
    id: &str,
    via: Via,
    fidelity: Fidelity,
    link: Option<(Relation, Option<UpstreamId>)>,
) -> OpenedSession {
    let link = link.map(|(relation, from)| NewLink {
        upstream_id: id.into(),
        agent: AgentName::new("claude"),
        cwd: "/home/u/project".to_owned(),
        reason: if from.is_some() {
            LinkReason::Rolled
        } else {
            LinkReason::Created
        },
        relation,
        from_upstream_id: from,
        from_checkpoint_id: None,
        cause: None,
        turns: 0,
        carried_turns: 0,
        written: relation == Relation::Carries,
    });
    OpenedSession {
        upstream_id: id.into(),
        link,
        resumed: Resumed {
            upstream_id: id.into(),
            via,
            fidelity,
            missing_turns: 0,
            attempts: vec![Attempt {
                upstream_id: Some(id.into()),
                via,
                error: None,
            }],
        },
        preamble: None,
        loaded: None,
        can_reopen: true,
        session_info: SessionInfo::default(),
    }
}

/// A branch that is open in the agent.
pub(super) fn open_branch(id: &str) -> NewBranch {
    NewBranch {
        opened_session: Some(Box::new(opened(id, Via::Fresh, Fidelity::Full, None))),
        ..branch(id)
    }
}

/// A branch that was made on disk only.
pub(super) fn branch(id: &str) -> NewBranch {
    NewBranch {
        upstream_id: id.into(),
        source: "s1".into(),
        checkpoint: Some("cp1".into()),
        turns: 0,
        fidelity: Fidelity::Full,
        via: BranchedVia::Cut,
        opened_session: None,
    }
}

/// The branch of an edit, open in the agent.
pub(super) fn edited(id: &str, from: &str, dropped: u64) -> EditBranch {
    let link = opened(
        id,
        Via::Resume,
        Fidelity::Full,
        Some((Relation::Carries, Some(from.into()))),
    )
    .link;
    EditBranch {
        opened: opened(id, Via::Resume, Fidelity::Full, None),
        link: NewLink {
            reason: LinkReason::Edited,
            ..link.expect("a link")
        },
        fidelity: Fidelity::Full,
        dropped,
        via: BranchedVia::Cut,
    }
}

pub(super) fn not_resumable() -> ConversationError {
    ConversationError::NotResumable {
        wanted: Fidelity::Text,
        attempts: Vec::new(),
    }
}

pub(super) fn agent_error() -> ConversationError {
    ConversationError::AgentError {
        message: "no".to_owned(),
        upstream: None,
    }
}

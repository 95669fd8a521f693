//! The session: climbing to it, writing it down, announcing it, losing it.

use bridge_protocol::event::Event;
use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::{Fidelity, Relation};

use crate::conversation::answer::Answer;
use crate::conversation::effect::{Effect, Effects, Milestone, Now, Opened};
use crate::conversation::error::ConversationError;
use crate::conversation::state::{JobKind, LiveSession, Model, Reported, Session, TurnPhase};
use crate::store::Resting;

impl<R> Model<R> {
    /// Goes on with what waits for an open session, opening it first when it is not.
    pub(super) fn ensure_session(&mut self, now: Now, effects: &mut Effects<R>) {
        if let Session::Live(_) = self.session {
            self.answer_resume_waiters(None, effects);
            if self
                .turn
                .as_ref()
                .is_some_and(|turn| turn.phase == TurnPhase::Waiting)
            {
                self.record_prompt(now, effects);
            }
            return;
        }
        let from_turn = self.turn.as_ref().filter(|turn| turn.phase == TurnPhase::Waiting);
        let asked = from_turn.map(|turn| turn.asked.min_fidelity);
        // The strictest of all that wait: nobody gets less than was asked for.
        let min_fidelity = self
            .resume_waiters
            .iter()
            .map(|(_, fidelity)| *fidelity)
            .chain(asked)
            .max()
            .unwrap_or(Fidelity::Text);
        let refused = from_turn.map(|turn| turn.refused.clone()).unwrap_or_default();
        let job = self.start_job(JobKind::Opening);
        effects.push(Effect::Open {
            job,
            min_fidelity,
            refused,
        });
    }

    /// The ladder brought a session: write it down before anyone hears of it.
    pub(super) fn opened(&mut self, job: u64, mut opened: Opened, now: Now, effects: &mut Effects<R>) {
        if !matches!(self.finish_job(job), Some(JobKind::Opening)) {
            return;
        }
        let from = self.record.chain.head().map(|link| link.upstream_id.clone());
        let Some(link) = opened.link.take() else {
            // The head itself: nothing to write.
            self.announce(opened, None, effects);
            return;
        };
        let upstream = vec![link.upstream_id.clone()];
        let appended = self.record.chain.append(link, opened.resumed.fidelity, now);
        self.touch(now);
        self.start_job(JobKind::Recording);
        let milestone = Milestone::SessionOpened(Box::new(opened), from);
        self.write(appended.entries, upstream, None, milestone, effects);
    }

    /// The link is on disk: use the session.
    pub(super) fn session_recorded(
        &mut self,
        opened: Opened,
        from: Option<UpstreamId>,
        result: Result<(), String>,
        effects: &mut Effects<R>,
    ) {
        if matches!(self.job.as_ref().map(|job| &job.kind), Some(JobKind::Recording)) {
            self.job = None;
        }
        if let Err(error) = result {
            effects.push(Effect::AbandonJob);
            self.fail_waiting(&ConversationError::StoreFailed(error), effects);
            return;
        }
        self.announce(opened, from, effects);
    }

    /// Takes the session into use and tells everyone.
    pub(super) fn announce(&mut self, opened: Opened, from: Option<UpstreamId>, effects: &mut Effects<R>) {
        effects.push(Effect::Attach);
        self.session = Session::Live(LiveSession {
            upstream_id: opened.upstream_id.clone(),
            via: opened.resumed.via,
            preamble: opened.preamble,
            can_reopen: opened.can_reopen,
        });
        if matches!(self.record.resting, Resting::Failed | Resting::Interrupted) {
            self.record.resting = Resting::Idle;
            self.record.failure = None;
        }
        self.reported = Reported::default();
        if opened.modes.is_some() {
            self.info.modes = opened.modes;
        }
        if opened.config_options.is_some() {
            self.info.config_options = opened.config_options;
        }
        self.note_reported();
        if let (Some(from), Some(cause)) = (from, opened.cause) {
            effects.emit(Event::Rolled {
                from: Some(from),
                to: opened.upstream_id.clone(),
                cause,
                fidelity: opened.resumed.fidelity,
            });
        }
        effects.emit(Event::Resumed {
            resumed: opened.resumed.clone(),
        });
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.phase == TurnPhase::Waiting) {
            turn.resumed = Some(opened.resumed.clone());
        }
        self.answer_resume_waiters(Some(&opened.resumed), effects);
        if self.turn.is_none() {
            self.arm_idle(effects);
        }
    }

    fn answer_resume_waiters(
        &mut self,
        resumed: Option<&bridge_protocol::link::Resumed>,
        effects: &mut Effects<R>,
    ) {
        let Some(resumed) = resumed.cloned().or_else(|| self.live_resumed()) else {
            return;
        };
        let view = self.view();
        for (reply, _) in std::mem::take(&mut self.resume_waiters) {
            let answer = Answer::Resumed(Box::new(view.clone()), Box::new(resumed.clone()));
            effects.push(Effect::Answer(reply, Ok(answer)));
        }
    }

    /// The ladder found nothing: those who wait are told, and the chain is as it was.
    pub(super) fn open_failed(
        &mut self,
        job: u64,
        error: &ConversationError,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        if !matches!(self.finish_job(job), Some(JobKind::Opening)) {
            return;
        }
        let lasting = matches!(
            error,
            ConversationError::NotResumable { .. } | ConversationError::AgentUnavailable(_)
        );
        if lasting && self.record.resting != Resting::Failed {
            self.record.resting = Resting::Failed;
            self.record.failure = Some(error.to_string());
            self.touch(now);
            self.write(Vec::new(), Vec::new(), None, Milestone::Nothing, effects);
        }
        self.fail_waiting(error, effects);
    }

    /// Tells those who wait for the session that there is none.
    pub(super) fn fail_waiting(&mut self, error: &ConversationError, effects: &mut Effects<R>) {
        for (reply, _) in std::mem::take(&mut self.resume_waiters) {
            effects.push(Effect::Answer(reply, Err(error.clone())));
        }
        let Some(turn) = self
            .turn
            .take_if(|turn| matches!(turn.phase, TurnPhase::Waiting | TurnPhase::Recording))
        else {
            return;
        };
        if let Some(reply) = turn.asked.reply {
            self.answer(reply, turn.asked.request.as_ref(), Err(error.clone()), effects);
        }
        if let Some(answer) = turn.answers {
            effects.push(Effect::Answer(answer.reply, Err(error.clone())));
        }
        for reply in turn.cancel_replies {
            effects.push(Effect::Answer(reply, Ok(Answer::Cancelled(true))));
        }
    }

    /// Forgets the open session; nothing that it still says is heard.
    pub(super) fn lose_session(&mut self, effects: &mut Effects<R>) {
        if let Session::Live(_) = self.session {
            self.session = Session::Closed;
            effects.push(Effect::Detach);
        }
    }

    /// The agent went on in another transcript by itself (its own `/clear`).
    pub fn silent_roll(&mut self, announced: &str, now: Now) -> Effects<R> {
        let mut effects = Effects::default();
        let Session::Live(live) = &mut self.session else {
            return effects;
        };
        if announced.is_empty() || live.upstream_id.as_str() == announced {
            return effects;
        }
        let from = std::mem::replace(&mut live.upstream_id, announced.into());
        live.preamble = None;
        let Some(head) = self.record.chain.head() else {
            return effects;
        };
        let link = crate::chain::NewLink {
            upstream_id: announced.into(),
            agent: head.agent.clone(),
            cwd: head.cwd.clone(),
            reason: bridge_protocol::link::LinkReason::Rolled,
            relation: Relation::Fresh,
            from_upstream_id: Some(from.clone()),
            from_checkpoint_id: None,
            cause: Some(bridge_protocol::link::RollCause::Cleared),
            turns: 0,
            written: false,
        };
        let appended = self.record.chain.append(link, Fidelity::None, now);
        self.touch(now);
        let event = Event::Rolled {
            from: Some(from),
            to: announced.into(),
            cause: bridge_protocol::link::RollCause::Cleared,
            fidelity: Fidelity::None,
        };
        let milestone = Milestone::Announce(vec![event]);
        self.write(
            appended.entries,
            vec![announced.into()],
            None,
            milestone,
            &mut effects,
        );
        effects
    }
}

//! Forks at the head or at a checkpoint, in place or as a new conversation.

use bridge_protocol::conversation::{BranchedVia, Conversation, ForkAnswer, Parent};
use bridge_protocol::event::Event;
use bridge_protocol::id::{ConversationId, UpstreamId};
use bridge_protocol::link::{Fidelity, LinkReason, Relation};

use crate::chain::{Chain, NewLink};
use crate::conversation::answer::{Answer, Request};
use crate::conversation::effect::{Branched, Effect, Effects, Ledger, Milestone, Now, Opened, WritePart};
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::reported::hear;
use crate::conversation::state::{Branching, JobKind, Model, Session, view_of_record};
use crate::store::{ConversationRecord, Resting};

impl<R> Model<R> {
    pub(super) fn fork(
        &mut self,
        branching: Branching<R>,
        min_fidelity: Fidelity,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let (busy, closing) = (self.turn.is_some(), self.closing.as_ref());
        let refusal = if branching.in_place && busy {
            Some(
                "a turn is running; wait for its end or cancel it, or fork into a new conversation instead of in place",
            )
        } else if self.job.is_some()
            || closing.is_some_and(|closing| branching.in_place || closing.then.is_job())
        {
            Some("the session is being opened, closed or branched; try again when that is done")
        } else {
            None
        };
        let from = match (refusal, &branching.at) {
            (Some(refusal), _) => Err(ConversationError::Busy(refusal.to_owned())),
            (None, Some(at)) => Ok(Some(UpstreamId::new(at.upstream_id()))),
            (None, None) => self.head_to_branch(),
        };
        let from = match from {
            Ok(Some(from)) => from,
            Ok(None) => {
                self.fork_unprompted(branching, now, effects);
                return;
            }
            Err(error) => {
                self.answer(branching.reply, branching.request.as_ref(), Err(error), effects);
                return;
            }
        };
        let (at, cwd) = (branching.at.clone(), branching.cwd.clone());
        let job = self.start_job(JobKind::Branching(branching));
        effects.push(Effect::Branch {
            job,
            from,
            at,
            cwd,
            busy,
            min_fidelity,
        });
    }

    /// The session of the head; none where the agent has never been sent anything.
    fn head_to_branch(&self) -> Result<Option<UpstreamId>, ConversationError> {
        let Some(head) = self.record.chain.head() else {
            return Ok(None);
        };
        match head.relation {
            // The agent has nothing of it yet, and the session that it follows is the one that could not be resumed.
            Relation::Follows if !head.written => Err(ConversationError::Conflict(
                "the history was given as text to a new session that has no turn yet, so there is nothing to fork; send a \
                 prompt first"
                    .to_owned(),
            )),
            Relation::Fresh if !head.written => Ok(None),
            _ => Ok(Some(head.upstream_id.clone())),
        }
    }

    /// There is nothing to branch from yet: a new conversation with the same settings.
    fn fork_unprompted(&mut self, branching: Branching<R>, now: Now, effects: &mut Effects<R>) {
        let Branching {
            reply,
            request,
            in_place,
            cwd,
            title,
            ..
        } = branching;
        if in_place {
            let error = ConversationError::Conflict(
                "the conversation has never been prompted: there is nothing to branch from".to_owned(),
            );
            self.answer(reply, request.as_ref(), Err(error), effects);
            return;
        }
        let mut record = self.sibling(cwd, title, now);
        record.parent = Some(Parent {
            conversation_id: self.record.id,
            checkpoint_id: None,
        });
        let answer = Answer::Forked(Box::new(ForkAnswer {
            conversation: view_of_record(&record),
            link: None,
            fidelity: Fidelity::Full,
            via: Some(BranchedVia::Fresh),
        }));
        let kept = self.done_request(request.as_ref(), &answer, now);
        effects.push(Effect::WriteNew {
            record: Box::new(record),
            part: WritePart {
                ledger: Ledger::of_request(kept),
                milestone: Milestone::Answer {
                    reply,
                    request,
                    answer: Box::new(answer),
                    events: Vec::new(),
                    before: None,
                },
            },
        });
    }

    /// A new conversation that is set up as this one is.
    fn sibling(&self, cwd: String, title: Option<String>, now: Now) -> ConversationRecord {
        let mut record = ConversationRecord::new(ConversationId::mint(), self.record.agent.clone(), cwd, now);
        record.namespace.clone_from(&self.record.namespace);
        record.title = title.unwrap_or_else(|| self.record.title.clone());
        record.settings = self.record.settings.clone();
        record
    }

    /// A branch was made, or not.
    pub(super) fn branched(
        &mut self,
        job: u64,
        result: Result<Branched, ConversationError>,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let Some(JobKind::Branching(branching)) = self.finish_job(job) else {
            effects.push(Effect::Discard);
            if result.is_ok_and(|branched| branched.path.is_some()) {
                effects.push(Effect::DropCopy);
            }
            return;
        };
        let branched = match result {
            Ok(branched) => branched,
            Err(error) => {
                self.answer(branching.reply, branching.request.as_ref(), Err(error), effects);
                return;
            }
        };
        let link = NewLink {
            upstream_id: branched.upstream_id.clone(),
            agent: self.record.agent.clone(),
            cwd: branching.cwd.clone(),
            reason: LinkReason::Forked,
            relation: Relation::Carries,
            from_upstream_id: Some(branched.from.clone()),
            from_checkpoint_id: branched.checkpoint.clone(),
            cause: None,
            turns: 0,
            carried_turns: branched.turns,
            written: false,
        };
        if branching.in_place {
            self.branch_in_place(branching, branched, link, now, effects);
        } else {
            self.branch_side_by_side(branching, branched, link, now, effects);
        }
    }

    fn branch_in_place(
        &mut self,
        branching: Branching<R>,
        branched: Branched,
        link: NewLink,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        self.lose_session(effects);
        let before = Some(Box::new(self.record.clone()));
        let events = match branching.at {
            Some(_) => self.leave_history("fork", now),
            None => Vec::new(),
        };
        let upstream = vec![link.upstream_id.clone()];
        let appended = self.record.chain.append(link, branched.fidelity, now);
        self.record.cwd.clone_from(&branching.cwd);
        if let Some(title) = &branching.title {
            self.record.title.clone_from(title);
        }
        hear_branch(&mut self.record, &branched);
        self.record.resting = Resting::Idle;
        self.record.limit = None;
        self.touch(now);
        let answer = Box::new(ForkAnswer {
            conversation: Conversation {
                // As it is when this is answered, which is when the branch is on disk.
                live: branched.open.is_some(),
                ..self.view_when_on_disk()
            },
            link: self.record.chain.head().cloned(),
            fidelity: branched.fidelity,
            via: Some(branched.via),
        });
        let kept = self.done_request(branching.request.as_ref(), &Answer::Forked(answer.clone()), now);
        self.start_job(JobKind::Recording);
        let milestone = Milestone::Forked {
            reply: branching.reply,
            request: branching.request,
            branched: Box::new(branched),
            answer,
            before,
        };
        let ledger = Ledger {
            lineage: appended.entries,
            upstream,
            requests: kept.into_iter().collect(),
            events,
        };
        self.write(ledger, milestone, effects);
    }

    /// Drops what belongs to the turns that are left: their interrupted prompt and their questions. A text that is
    /// scheduled for a time is kept. Returns the events to send.
    pub(super) fn leave_history(&mut self, by: &str, now: Now) -> Vec<Event> {
        self.record.cut = None;
        self.end_word(now);
        self.drop_questions(by)
    }

    fn branch_side_by_side(
        &mut self,
        branching: Branching<R>,
        branched: Branched,
        link: NewLink,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let mut record = self.sibling(branching.cwd, branching.title, now);
        record.parent = Some(Parent {
            conversation_id: self.record.id,
            checkpoint_id: branched.checkpoint.clone(),
        });
        let upstream = vec![link.upstream_id.clone()];
        let mut chain = Chain::default();
        let appended = chain.append(link, branched.fidelity, now);
        record.chain = chain;
        hear_branch(&mut record, &branched);
        let answer = Box::new(ForkAnswer {
            conversation: view_of_record(&record),
            link: record.chain.head().cloned(),
            fidelity: branched.fidelity,
            via: Some(branched.via),
        });
        let kept = self.done_request(branching.request.as_ref(), &Answer::Forked(answer.clone()), now);
        // The branch's session waits for the write where any other that is opened would come to lie.
        self.start_job(JobKind::Recording);
        effects.push(Effect::WriteNew {
            record: Box::new(record),
            part: WritePart {
                ledger: Ledger {
                    lineage: appended.entries,
                    upstream,
                    requests: kept.into_iter().collect(),
                    ..Ledger::default()
                },
                milestone: Milestone::Forked {
                    reply: branching.reply,
                    request: branching.request,
                    branched: Box::new(branched),
                    answer,
                    before: None,
                },
            },
        });
    }

    /// The branch is on disk: announce it and take its session into use, here or in the new conversation.
    #[expect(clippy::too_many_arguments, reason = "what the milestone holds")]
    pub(super) fn fork_recorded(
        &mut self,
        reply: R,
        request: Option<&Request>,
        branched: Branched,
        answer: Box<ForkAnswer>,
        result: Result<(), StoreFailure>,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let id = answer.conversation.id;
        let in_place = id == self.record.id;
        if matches!(self.job.as_ref().map(|job| &job.kind), Some(JobKind::Recording)) {
            self.job = None;
        }
        if let Err(error) = result {
            effects.push(Effect::Discard);
            // Where something has changed since, the branch goes out with the next write.
            let is_taken_back = !self.record.chain.contains(&branched.upstream_id);
            if branched.path.is_some() {
                effects.push(match is_taken_back {
                    true => Effect::DropCopy,
                    false => Effect::KeepCopy,
                });
            }
            self.answer(
                reply,
                request,
                Err(ConversationError::StoreFailed(error)),
                effects,
            );
            return;
        }
        if branched.path.is_some() {
            effects.push(Effect::KeepCopy);
        }
        if !in_place {
            effects.push(Effect::Announce(Box::new(answer.conversation.clone())));
        }
        if let Some(link) = &answer.link {
            effects.emit(Event::Forked {
                link: link.clone(),
                conversation_id: id,
            });
        }
        match branched.open {
            Some(opened) if in_place => self.announce(*opened, now, effects),
            Some(opened) => effects.push(Effect::HandOver(id, opened)),
            None => {}
        }
        self.answer(reply, request, Ok(Answer::Forked(answer)), effects);
    }

    /// Takes over the session that a fork opened for this conversation, unless one is open or being opened.
    pub(super) fn handed_over(&mut self, opened: Opened, now: Now, effects: &mut Effects<R>) {
        let is_free = self.session == Session::Closed && self.job.is_none() && self.closing.is_none();
        if is_free && !self.stopping {
            self.announce(opened, now, effects);
        } else {
            effects.push(Effect::Discard);
        }
    }
}

/// Takes over what the agent reports about an open branch, so that it is recorded and reported with the branch.
fn hear_branch(record: &mut ConversationRecord, branched: &Branched) {
    if let Some(opened) = &branched.open {
        hear(
            &mut record.reported,
            opened.modes.as_ref(),
            opened.config_options.as_ref(),
        );
    }
}

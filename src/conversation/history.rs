//! The history of a conversation across all its transcripts: pages of messages and of checkpoints. Blocks; call it from
//! a blocking thread.
//!
//! Determines which transcripts belong to the history, their order (from the references in the chain), and the numbers of
//! the turns. A page also lists what is missing. Memory use is some tens of bytes for each message, plus one page.

mod missing_turns;
mod new_checkpoints;
mod opening;
mod past_turns;
mod positions;
mod tools;
mod updates;
mod wire_messages;

use std::collections::HashMap;

use bridge_protocol::history::{
    Checkpoint, CheckpointAnswer, CheckpointPage, GapKind, HistoryForm, HistoryGap, HistoryPage,
    HistoryUpdate, Message,
};
use bridge_protocol::link::Link;
use bridge_protocol::{AgentName, CheckpointId, Cursor, UpstreamId};

use super::error::{ConversationError, StoreFailure};
use super::page::{PageRoom, newest_first};
use super::services::{Services, chain_text};
use super::transcript_facts;
use crate::archive::Unpacked;
use crate::chain::{HistorySource, LinkOrigin, Origins, SessionCut, ancestors, history_sources};
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::checkpoint::{CheckpointRef, MessageRef};
use crate::transcript::message::TranscriptMessage;
use crate::transcript::open_transcript::{BoxedTranscript, Loss, OpenTranscript};
pub(super) use missing_turns::missing_turns_gap;
use missing_turns::unreported_gap;
use opening::{OpenFailure, may_miss_turns, open_source};
pub(super) use positions::{BranchPoint, MessagePosition};
use updates::{CallIds, UpdateWriter};
use wire_messages::{CheckpointBuilder, MESSAGE_LIMIT_BYTES, message_ref};

/// How many messages before a page are searched for the calls of its first results, and after it for the results of its last
/// calls. An agent that calls several tools at once writes all calls before the first result.
const CALL_SEARCH_MESSAGES: usize = 64;

/// Which part of the history a page contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageStart {
    /// The beginning.
    Beginning,
    /// The end.
    End,
    /// The beginning of the newest N messages.
    Newest(usize),
    /// The position where another page ended.
    Cursor(Cursor),
}

/// All transcripts of a history, open.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The folder that the last session runs in.
    cwd: String,
    /// Whether the agent has the last session open, so that its last turn may be running.
    is_open: bool,
    sessions: Vec<SessionTranscript>,
    gaps: Gaps,
}

/// What is missing from a history.
#[derive(Debug, Default)]
struct Gaps {
    listed: Vec<HistoryGap>,
    /// The first temporary error. Until it is resolved, the content of that transcript is unknown.
    failure: Option<StoreFailure>,
}

/// One transcript of a history.
#[derive(Debug)]
struct SessionTranscript {
    agent: AgentName,
    upstream_id: UpstreamId,
    transcript: BoxedTranscript,
    /// How many turns and messages precede it in the history.
    turns_before: usize,
    messages_before: usize,
    /// The session that it is an exact copy of, and for how many turns.
    copied_from: Option<(UpstreamId, usize)>,
    /// Its unpacked backup, if the session is read from that.
    backup: Option<Unpacked>,
}

/// Which transcripts a history may be read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TranscriptScope {
    /// The agent's files.
    AgentFiles,
    /// The agent's files, skipping sessions without turns. Used for the text that a new session gets when the head cannot be
    /// opened: it comes from the nearest session with turns.
    AgentFilesWithTurns,
    /// The agent's files, and for missing ones the backups. For callers that only read.
    WithBackups,
}

/// The end of the branch that the agent with the open head wrote last, if another program has added another branch since.
fn newer_branch_end(services: &Services, head: &Link) -> Option<CheckpointId> {
    let transcripts = services.transcripts(&head.agent)?;
    let path = transcripts.find(&head.cwd, &head.upstream_id).ok()?;
    let uuid = transcripts
        .dialect
        .newer_branch_end(&services.index_cache, &path)?;
    Some(transcript_facts::make_checkpoint_id(
        &head.agent,
        &head.upstream_id,
        &uuid,
    ))
}

impl History {
    /// The current history of a conversation that its agent has open, for callers that only read: the agent's own branch.
    ///
    /// # Errors
    /// As [`History::current`].
    pub(super) fn current_of_open_session(
        services: &Services,
        record: &ConversationRecord,
    ) -> Result<Self, ConversationError> {
        let Some(head) = record.chain.head() else {
            return Ok(Self::default());
        };
        let newer = newer_branch_end(services, head);
        let has_newer = newer.is_some();
        let scope = TranscriptScope::WithBackups;
        let mut history = Self::ending_with_link(services, record, head, scope, newer)?;
        history.is_open = true;
        if has_newer {
            history.gaps.listed.push(HistoryGap {
                upstream_id: head.upstream_id.clone(),
                kind: GapKind::Behind,
                detail: "another program added turns on another branch, which the open session does not have"
                    .to_owned(),
            });
        }
        Ok(history)
    }

    /// The current history of a conversation.
    ///
    /// # Errors
    /// [`ConversationError::Unsupported`] if this version cannot read the agent's transcripts; if the lineage cannot be read.
    pub(super) fn current(
        services: &Services,
        record: &ConversationRecord,
        scope: TranscriptScope,
    ) -> Result<Self, ConversationError> {
        match record.chain.head() {
            Some(head) => Self::ending_with_link(services, record, head, scope, None),
            None => Ok(Self::default()),
        }
    }

    /// The history that ends with a link of a conversation, or `until` a checkpoint in it, as it was when that link was the head.
    ///
    /// # Errors
    /// As [`History::current`].
    pub(super) fn ending_with_link(
        services: &Services,
        record: &ConversationRecord,
        head: &Link,
        scope: TranscriptScope,
        until: Option<CheckpointId>,
    ) -> Result<Self, ConversationError> {
        let mut history = Self {
            cwd: head.cwd.clone(),
            ..Self::default()
        };
        if services.agent(&head.agent)?.listed_transcripts().is_none() {
            return Err(unreadable(&head.agent));
        }
        let lineage = services.lineage_of(record)?;
        let origins = Origins::collect(&lineage, record.chain.links());
        let ancestors = ancestors(&head.upstream_id, |id| origins.get(id));
        // A session outside this conversation's lineage is found by its reference, as the ladder does.
        let known = |id: &UpstreamId| {
            let referred = || ancestors.iter().find(|ancestor| ancestor.upstream_id == *id);
            origins.get(id).or_else(|| referred().map(LinkOrigin::from))
        };
        let candidates = ancestors
            .iter()
            .map(|ancestor| (ancestor.upstream_id.clone(), ancestor.cut.clone()));
        let own = (head.upstream_id.clone(), SessionCut::at(until));
        for (id, cut) in std::iter::once(own).chain(candidates) {
            let mut sources = history_sources(&id, |id| origins.get(id));
            // The session itself is the last source; it belongs to this history up to `cut`.
            if let Some(own) = sources.last_mut() {
                *own = HistorySource {
                    upstream_id: id.clone(),
                    until: cut,
                };
            }
            let own = sources.pop();
            let opened = own.map(|own| open_source(services, known(&own.upstream_id), &own, scope));
            match opened {
                Some(Ok(session))
                    if scope == TranscriptScope::AgentFilesWithTurns && session.transcript.turns() == 0 => {}
                Some(Ok(session)) => {
                    if head.upstream_id == id {
                        let gap = match may_miss_turns(&session, head) {
                            true => missing_turns_gap(services, head, session.backup.as_ref()),
                            false => unreported_gap(services, head, 0),
                        };
                        history.gaps.listed.extend(gap?);
                    }
                    for source in sources {
                        match open_source(services, known(&source.upstream_id), &source, scope) {
                            Ok(session) => history.push(session),
                            Err(unopened) => history.gaps.note(unopened),
                        }
                    }
                    history.push(session);
                    return Ok(history);
                }
                // Most agents create no transcript before the session's first turn, so that is not a gap.
                Some(Err(unopened))
                    if head.upstream_id != id || head.written || unopened.gap.kind != GapKind::Missing =>
                {
                    history.gaps.note(unopened);
                }
                Some(Err(_)) | None => {}
            }
        }
        Ok(history)
    }

    fn push(&mut self, mut session: SessionTranscript) {
        (session.turns_before, session.messages_before) = (self.turns(), self.messages());
        for loss in session.transcript.losses() {
            let detail = loss.to_string();
            let (kind, source) = match loss {
                Loss::Damaged(_) => (GapKind::Broken, None),
                Loss::Compacted => (GapKind::Compacted, None),
                Loss::Source { upstream_id, .. } => (GapKind::Missing, Some(upstream_id)),
            };
            self.gaps.listed.push(HistoryGap {
                upstream_id: source.map_or_else(|| session.upstream_id.clone(), UpstreamId::from),
                kind,
                detail,
            });
        }
        // Unknown records are not damage: the agent that wrote them loads them.
        let detail = match session.transcript.unknown_records() {
            0 => None,
            1 => Some("1 of its records is of a kind that this version does not know".to_owned()),
            records => Some(format!(
                "{records} of its records are of kinds that this version does not know"
            )),
        };
        self.gaps.listed.extend(detail.map(|detail| HistoryGap {
            upstream_id: session.upstream_id.clone(),
            kind: GapKind::UnknownRecord,
            detail,
        }));
        self.sessions.push(session);
    }

    /// Why a session of this history is missing from it, if that is for one of these reasons.
    pub(super) fn missing_reason(&self, id: &UpstreamId, kinds: &[GapKind]) -> Option<&str> {
        let mut gaps = self.gaps.listed.iter();
        let gap = gaps.find(|gap| gap.upstream_id == *id && kinds.contains(&gap.kind));
        gap.map(|gap| gap.detail.as_str())
    }

    /// Fails if a part of the history cannot be read now, for callers that depend on all of it.
    ///
    /// # Errors
    /// [`ConversationError::StoreFailed`], if the same call may succeed later.
    pub(super) fn refuse_unread(&self) -> Result<(), ConversationError> {
        match &self.gaps.failure {
            Some(failure) => Err(ConversationError::StoreFailed(failure.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn turns(&self) -> usize {
        let last = self.sessions.last();
        last.map_or(0, |last| last.turns_before + last.transcript.turns())
    }

    fn messages(&self) -> usize {
        let last = self.sessions.last();
        last.map_or(0, |last| last.messages_before + last.transcript.messages())
    }

    /// A page of checkpoints, newest first.
    ///
    /// # Errors
    /// [`ConversationError::CheckpointNotFound`] if `before` is not in this history, nor in a session that it branched from.
    pub(super) fn checkpoints(
        mut self,
        before: Option<&CheckpointId>,
        limit: usize,
    ) -> Result<CheckpointPage, ConversationError> {
        let end = match before {
            None => self.turns(),
            Some(id) => {
                let not_found = || ConversationError::CheckpointNotFound { id: id.clone() };
                let place: CheckpointRef = id.as_str().parse().map_err(|_| not_found())?;
                let kept = self.kept_until(&place.upstream_id, &place.record_uuid);
                let (last, is_kept) = kept.ok_or_else(not_found)?;
                let turn = self.turn_of_message(last).ok_or_else(not_found)?;
                turn + usize::from(!is_kept)
            }
        };
        Ok(CheckpointPage {
            checkpoints: newest_first(end, limit, |step| self.checkpoint(step)),
            kept: self.sessions_from_backup(),
            gaps: self.gaps.listed,
        })
    }

    /// The number of the turn that contains a place, from 0.
    pub(super) fn turn_number_of(&self, place: &CheckpointRef) -> Option<usize> {
        self.sessions.iter().find_map(|session| {
            let is_of_agent = session.agent.as_str() == place.agent;
            let find = || session.find(&place.upstream_id, &place.record_uuid);
            let message = is_of_agent.then(find).flatten()?;
            Some(session.turns_before + session.transcript.turn_of(message)?)
        })
    }

    /// A turn by its number from 0, or the last one, and its messages. `step` is the number in the answer.
    ///
    /// # Errors
    /// [`ConversationError::CheckpointNotFound`] if the turn does not exist.
    pub(super) fn turn_answer(
        mut self,
        id: &CheckpointId,
        number: Option<usize>,
        step: Option<usize>,
    ) -> Result<CheckpointAnswer, ConversationError> {
        let not_found = || ConversationError::CheckpointNotFound { id: id.clone() };
        let turn = number.or(self.turns().checked_sub(1)).ok_or_else(not_found)?;
        let mut checkpoint = self.checkpoint(turn).ok_or_else(not_found)?;
        // Report the checkpoint under the id that the caller used, even if the turn has continued since.
        checkpoint.id = id.clone();
        checkpoint.step = step.unwrap_or(turn) as u64 + 1;
        let session = self
            .sessions
            .get(self.session_of_turn(turn))
            .ok_or_else(not_found)?;
        let own = session.transcript.turn(turn - session.turns_before);
        let (start, end) = (
            session.messages_before + own.start,
            session.messages_before + own.end,
        );
        let (mut room, mut messages) = (PageRoom::new(), Vec::new());
        let mut omitted = None;
        for number in start..end {
            let Some(message) = self.message(number) else {
                continue;
            };
            if !room.try_take(&message) {
                omitted = Some((end - number) as u64);
                break;
            }
            messages.push(message);
        }
        Ok(CheckpointAnswer {
            checkpoint,
            messages,
            omitted,
            kept: self.sessions_from_backup(),
        })
    }

    /// A turn and its messages, named by its step from 1, its step from the end (`-1`), or one of its messages.
    ///
    /// # Errors
    /// [`ConversationError::CheckpointNotFound`] if the turn does not exist.
    pub(super) fn named_turn(self, name: &CheckpointId) -> Result<CheckpointAnswer, ConversationError> {
        let turn = match name.as_str().parse::<i64>() {
            Ok(step) => {
                let count = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
                if step > 0 {
                    count.checked_sub(1)
                } else {
                    self.turns().checked_sub(count)
                }
            }
            Err(_) => {
                let place = name.as_str().parse().ok();
                place.and_then(|place| self.turn_of_position(self.position_of(&place)?))
            }
        };
        let named = turn.and_then(|turn| Some((turn, self.checkpoint_id_of_turn(turn)?)));
        let (turn, id) = named.ok_or_else(|| ConversationError::CheckpointNotFound { id: name.clone() })?;
        self.turn_answer(&id, Some(turn), None)
    }

    /// A page of messages, oldest first, as messages or as updates.
    ///
    /// # Errors
    /// [`ConversationError::InvalidParams`] if the cursor is not from this method, or its position no longer exists.
    pub(super) fn page(
        mut self,
        part: &PageStart,
        limit: usize,
        form: HistoryForm,
    ) -> Result<HistoryPage, ConversationError> {
        let total = self.messages();
        let (backwards, from) = match part {
            PageStart::Beginning => (false, 0),
            PageStart::End => (true, total),
            PageStart::Newest(messages) => (false, total.saturating_sub(*messages)),
            PageStart::Cursor(cursor) => self.resolve_cursor(cursor)?,
        };
        let (mut room, mut messages) = (PageRoom::new(), Vec::new());
        let (mut start, mut end) = (from, from);
        while messages.len() < limit {
            let number = match backwards {
                true => start.checked_sub(1),
                false => Some(end).filter(|end| *end < total),
            };
            let Some(number) = number else { break };
            if let Some(message) = self.message(number) {
                if !room.try_take(&message) {
                    break;
                }
                messages.push(message);
            }
            start = start.min(number);
            end = end.max(number + 1);
        }
        if backwards {
            messages.reverse();
        }
        let updates = match form {
            HistoryForm::Messages => None,
            HistoryForm::Updates => {
                let is_continued = matches!(part, PageStart::Cursor(_)) && !backwards;
                let updates = self.updates(&mut start, end, &messages, is_continued);
                messages.clear();
                Some(updates)
            }
        };
        Ok(HistoryPage {
            updates,
            next_cursor: (end < total).then(|| self.cursor("b", end)),
            previous_cursor: (start > 0).then(|| self.cursor("a", start - 1)),
            messages,
            kept: self.sessions_from_backup(),
            gaps: self.gaps.listed,
        })
    }

    /// Passes all messages to `take`, oldest first; returns the number of turns, and what is missing.
    ///
    /// # Errors
    /// The error of `take`, or of reading a message.
    pub(super) fn for_each_message<E>(
        mut self,
        mut take: impl FnMut(Message) -> Result<(), E>,
    ) -> Result<(u64, Vec<HistoryGap>), E> {
        for number in 0..self.messages() {
            if let Some(message) = self.message(number) {
                take(message)?;
            }
        }
        Ok((self.turns() as u64, self.gaps.listed))
    }

    /// Converts the messages from `start` to `end` to updates. A page that does not continue an earlier one begins early enough
    /// to contain the calls of its results; `start` moves there.
    fn updates(
        &mut self,
        start: &mut usize,
        end: usize,
        messages: &[Message],
        is_continued: bool,
    ) -> Vec<HistoryUpdate> {
        let mut ids = CallIds::default();
        messages.iter().for_each(|message| ids.add(message));
        let (mut room, mut earlier) = (PageRoom::with_bytes(MESSAGE_LIMIT_BYTES), Vec::new());
        let (mut first, mut searched) = (*start, Vec::new());
        for number in (start.saturating_sub(CALL_SEARCH_MESSAGES)..*start).rev() {
            if !ids.lack_call() {
                break;
            }
            if let Some(before) = self.message(number) {
                if !room.try_take(&before) {
                    break;
                }
                let has_call = ids.lack_call_of(&before);
                searched.push(before);
                // A call that is not found makes the page no longer.
                if has_call {
                    searched.iter().for_each(|message| ids.add(message));
                    earlier.append(&mut searched);
                    first = number;
                }
            }
        }
        for number in end..self.messages().min(end + CALL_SEARCH_MESSAGES) {
            if !ids.lack_result() {
                break;
            }
            if let Some(after) = self.message(number) {
                ids.add(&after);
            }
        }
        let mut writer = UpdateWriter {
            cwd: &self.cwd,
            ids,
            running: self.last_checkpoint().filter(|_| self.is_open),
            calls: HashMap::new(),
        };
        earlier.reverse();
        let mut updates: Vec<_> = earlier
            .iter()
            .flat_map(|message| writer.updates(message))
            .collect();
        match is_continued {
            true => updates.clear(),
            false => *start = first,
        }
        updates.extend(messages.iter().flat_map(|message| writer.updates(message)));
        updates
    }

    /// Makes a cursor at a message: `b` continues forwards from it, `a` backwards; both include it.
    fn cursor(&self, side: &str, number: usize) -> Cursor {
        let id = self.sessions.get(self.session_of_message(number)).map(|session| {
            let message = number - session.messages_before;
            let record_id = session.transcript.record_id(message);
            message_ref(&session.file_owner(message), record_id).to_string()
        });
        Cursor::new(format!("{side}.{}", id.unwrap_or_default()))
    }

    /// Parses a cursor: whether its page goes backwards, and from which message on; backwards, that one is left out.
    fn resolve_cursor(&mut self, cursor: &Cursor) -> Result<(bool, usize), ConversationError> {
        let parts = cursor.as_str().split_once('.').and_then(|(side, place)| {
            let place: MessageRef = place.parse().ok()?;
            matches!(side, "a" | "b").then_some((side, place))
        });
        let Some((side, place)) = parts else {
            return Err(ConversationError::invalid_cursor());
        };
        let Some((number, is_kept)) = self.kept_until(&place.upstream_id, &place.record_uuid) else {
            return Err(ConversationError::invalid(
                "cursor",
                "the position of the cursor is no longer in the history, for example because of an edit; read the history \
                 again without a cursor, from its end with last",
            ));
        };
        Ok(match side {
            "a" => (true, number + 1),
            // The messages after the branch replace those that the cursor led to.
            _ if !is_kept => (false, number + 1),
            _ if number == 0 => return Err(ConversationError::invalid_cursor()),
            _ => (false, number),
        })
    }

    /// The index of the session that contains a turn.
    fn session_of_turn(&self, turn: usize) -> usize {
        self.sessions
            .partition_point(|session| session.turns_before + session.transcript.turns() <= turn)
    }

    /// The index of the session that contains a message.
    fn session_of_message(&self, message: usize) -> usize {
        self.sessions
            .partition_point(|session| session.messages_before + session.transcript.messages() <= message)
    }

    fn message(&mut self, number: usize) -> Option<Message> {
        let index = self.session_of_message(number);
        let session = self.sessions.get_mut(index)?;
        let number = number - session.messages_before;
        let turn = session.transcript.turn_of(number);
        let checkpoint = turn.map(|turn| session.checkpoint_id(turn));
        let owner = session.file_owner(number);
        let read = session.read_or_gap(|open| open.message(number), &mut self.gaps)?;
        Some(wire_messages::message(&owner, checkpoint, read))
    }

    /// The checkpoint after a turn; `None` if the transcript changed meanwhile or cannot be read.
    fn checkpoint(&mut self, step: usize) -> Option<Checkpoint> {
        let index = self.session_of_turn(step);
        let parent = step
            .checked_sub(1)
            .and_then(|parent| self.checkpoint_id_of_turn(parent));
        let session = self.sessions.get_mut(index)?;
        let turn = step - session.turns_before;
        let mut builder = CheckpointBuilder::default();
        let messages = session.transcript.turn(turn);
        for number in messages.clone() {
            // Only the last message is read in full, for the time when it was written.
            let is_last = number + 1 == messages.end;
            let read = |open: &mut dyn OpenTranscript| match is_last {
                true => open.message(number),
                false => open.outline(number),
            };
            builder.add_message(session.read_or_gap(read, &mut self.gaps)?);
        }
        let copied = session.copied_from.as_ref().filter(|(_, turns)| turn < *turns);
        let copied = copied.map(|(source, _)| (source.clone(), session.transcript.turn_end_id(turn).0));
        let of_record = |(source, uuid): (String, String)| (UpstreamId::from(source), uuid);
        let origin = copied.or_else(|| builder.copied_from.take().map(of_record));
        let origin =
            origin.map(|(source, uuid)| transcript_facts::make_checkpoint_id(&session.agent, &source, &uuid));
        let (id, upstream_id) = (session.checkpoint_id(turn), session.owner_of_turn(turn));
        Some(builder.build(id, step as u64 + 1, upstream_id, parent, origin))
    }

    /// The current checkpoint of the turn with this number.
    pub(super) fn checkpoint_id_of_turn(&self, step: usize) -> Option<CheckpointId> {
        let session = self.sessions.get(self.session_of_turn(step))?;
        Some(session.checkpoint_id(step - session.turns_before))
    }
}

impl Gaps {
    fn note(&mut self, OpenFailure { gap, failure }: OpenFailure) {
        self.listed.push(gap);
        self.failure = self.failure.take().or(failure);
    }
}

impl SessionTranscript {
    /// The position of a record in the file of the session `owner`.
    fn find(&self, owner: &str, record: &str) -> Option<usize> {
        let own = self.upstream_id.as_str();
        let may_contain = self.transcript.may_contain_records_of(own, owner);
        may_contain.then(|| self.transcript.find(owner, record)).flatten()
    }

    fn checkpoint_id(&self, turn: usize) -> CheckpointId {
        let (name, _) = self.transcript.turn_end_id(turn);
        transcript_facts::make_checkpoint_id(&self.agent, &self.owner_of_turn(turn), &name)
    }

    /// The session whose file contains a message.
    fn file_owner(&self, message: usize) -> UpstreamId {
        self.transcript
            .owner(message)
            .map_or_else(|| self.upstream_id.clone(), UpstreamId::from)
    }

    /// The session whose file contains the place after a turn.
    fn owner_of_turn(&self, turn: usize) -> UpstreamId {
        let (_, owner) = self.transcript.turn_end_id(turn);
        owner.map_or_else(|| self.upstream_id.clone(), UpstreamId::from)
    }

    fn read_or_gap(
        &mut self,
        read: impl FnOnce(&mut dyn OpenTranscript) -> Result<Option<TranscriptMessage>, TranscriptError>,
        gaps: &mut Gaps,
    ) -> Option<TranscriptMessage> {
        let (detail, failure) = match read(&mut *self.transcript) {
            Ok(Some(read)) => return Some(read),
            Ok(None) => ("it was changed while it was read".to_owned(), None),
            Err(error) => (chain_text(&error), StoreFailure::from_transient_read(&error)),
        };
        let gap = HistoryGap {
            upstream_id: self.upstream_id.clone(),
            kind: GapKind::Unreadable,
            detail,
        };
        if !gaps.listed.contains(&gap) {
            gaps.note(OpenFailure { gap, failure });
        }
        None
    }
}

fn unreadable(agent: &AgentName) -> ConversationError {
    ConversationError::Unsupported(format!(
        "session-bridge reads no transcripts of the agent \"{agent}\", so its conversations have no history, and no turn to \
         fork at or to edit; sessionctl agents lists the agents with their kinds"
    ))
}

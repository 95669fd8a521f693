//! Calls that need no task of a conversation: get one, list a page or a tree of forks, send snapshots of all that are not idle.

use std::collections::{HashMap, HashSet};

use bridge_protocol::conversation::{Conversation, ConversationState, TreeAnswer, TreeMember};
use bridge_protocol::event::Event;
use bridge_protocol::link::{LineageEntry, Link};
use bridge_protocol::{AgentName, ConversationId, Cursor};
use tokio::sync::oneshot;

use super::super::actor::Message;
use super::super::error::ConversationError;
use super::super::events::{EncodedEvent, SnapshotMark, Subscriber};
use super::super::lost_parts::view_without_lost;
use super::super::page::{PageRoom, view_for_list};
use super::super::services::now;
use super::super::state::view_of_record;
use super::Registry;
use super::filter::{Filter, LiveStatus, Search};
use crate::store::{RecentCursor, SalvagedRecord, StoreError};

/// How many records are read on the routing thread before it yields to other tasks: about a millisecond's work.
const RECORDS_PER_STEP: usize = 50;

/// Limit of conversations in one tree of forks. Far more than a drawn tree can show.
const TREE_LIMIT: usize = 1_000;

/// Size limit of one tree of forks, in bytes: half of what the socket sends.
const TREE_LIMIT_BYTES: usize = 16 * 1024 * 1024;

impl Registry {
    /// Adds a subscriber to all conversations. It first gets the conversations that are not idle, and then all events.
    ///
    /// The snapshots are made one by one, each when the subscriber's queue has room: together they may be larger than the
    /// queue.
    pub async fn subscribe_all(&self, mut subscriber: Box<dyn Subscriber>, after: Option<&Cursor>) {
        let since = self.services.hub.last();
        let held = after.and_then(|cursor| self.services.hub.sequence_of(cursor));
        let mut shown = Vec::new();
        if !held.is_some_and(|from| self.services.hub.holds_after(from)) {
            match self
                .send_busy_snapshots(subscriber.as_mut(), after.is_some())
                .await
            {
                Some(sent) => shown = sent,
                None => return,
            }
        }
        self.services
            .hub
            .subscribe(subscriber, after, &shown, since, &now().to_string());
    }

    /// Sends a snapshot of each conversation that is not idle. After a gap it sends at least one, of the newest conversation,
    /// so that the subscriber knows that it missed events. None if the subscriber has disconnected.
    async fn send_busy_snapshots(
        &self,
        subscriber: &mut dyn Subscriber,
        gap: bool,
    ) -> Option<Vec<SnapshotMark>> {
        let mut shown = Vec::new();
        let mut ids: Vec<ConversationId> = {
            let live = self.lock();
            let busy = live
                .iter()
                .filter(|(_, entry)| entry.published.borrow().state != ConversationState::Idle);
            busy.map(|(id, _)| *id).collect()
        };
        let busy: HashSet<ConversationId> = ids.iter().copied().collect();
        let unfinished = self.services.store.unfinished().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot send a subscriber the conversations that are not idle");
            Vec::new()
        });
        ids.extend(unfinished.into_iter().filter(|id| !busy.contains(id)));
        self.send_snapshots(subscriber, ids, gap, &mut shown).await?;
        if gap && shown.is_empty() {
            let newest = self.find_page(&Filter::default(), None, 1).await;
            let newest = newest.unwrap_or_else(|error| {
                tracing::error!(%error, "cannot tell a subscriber that it missed events");
                Vec::new()
            });
            let newest = newest.into_iter().map(|(_, id)| id).collect();
            self.send_snapshots(subscriber, newest, gap, &mut shown).await?;
        }
        Some(shown)
    }

    /// Sends a snapshot of each of these conversations, and adds those that were sent to `shown`. None if the subscriber has
    /// disconnected.
    async fn send_snapshots(
        &self,
        subscriber: &mut dyn Subscriber,
        ids: Vec<ConversationId>,
        gap: bool,
        shown: &mut Vec<SnapshotMark>,
    ) -> Option<()> {
        for (read, id) in ids.into_iter().enumerate() {
            if read > 0 && read % RECORDS_PER_STEP == 0 {
                tokio::task::yield_now().await;
            }
            // A live snapshot comes first: a turn may have begun meanwhile, which the record does not show.
            let live = self.live_snapshot(id, gap).await;
            if let Some(snapshot) = live.or_else(|| self.recorded_snapshot(id, gap)) {
                shown.push((id, snapshot.sequence));
                subscriber.deliver_when_room(&snapshot).await.then_some(())?;
            }
        }
        Some(())
    }

    /// A snapshot of a conversation that has a task.
    pub(super) async fn live_snapshot(&self, id: ConversationId, gap: bool) -> Option<EncodedEvent> {
        let mailbox = self.lock().get(&id).map(|entry| entry.mailbox.clone())?;
        let (reply, snapshot) = oneshot::channel();
        mailbox.try_send(Message::Snapshot { gap, reply }).ok()?;
        snapshot.await.ok()
    }

    /// A snapshot of a conversation from its record.
    fn recorded_snapshot(&self, id: ConversationId, gap: bool) -> Option<EncodedEvent> {
        let event = Event::Snapshot {
            conversation: view_without_lost(self.salvaged(id).ok()?),
            gap,
            running: None,
            unaccepted: None,
            session: None,
        };
        Some(self.services.hub.snapshot(id, &event, &now().to_string()))
    }

    /// The present state of a conversation.
    ///
    /// # Errors
    /// When there is none, or it was deleted.
    pub fn view(&self, id: ConversationId) -> Result<Conversation, ConversationError> {
        if let Some(entry) = self.lock().get(&id) {
            return Ok((**entry.published.borrow()).clone());
        }
        Ok(view_of_record(&self.record(id)?))
    }

    /// A conversation as far as it can be read. If parts are missing, its state is `failed`, and its `failure` names them.
    ///
    /// # Errors
    /// When there is none, or it was deleted.
    pub(super) fn salvaged_view(&self, id: ConversationId) -> Result<Conversation, ConversationError> {
        if let Some(entry) = self.lock().get(&id) {
            return Ok((**entry.published.borrow()).clone());
        }
        Ok(view_without_lost(self.salvaged(id)?))
    }

    /// One page of conversations, newest first: at most `limit`, and fewer if they are large.
    ///
    /// A conversation that changes between two pages moves to the front, so later pages do not show it. The first page also
    /// contains conversations that moved to the front while it was built.
    ///
    /// # Errors
    /// When the cursor is not one of this method, or the store cannot be read.
    pub async fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<(Vec<Conversation>, Option<Cursor>), ConversationError> {
        let mut after = match cursor {
            Some(cursor) => {
                let cursor = RecentCursor::from_text(cursor.as_str());
                Some(cursor.ok_or_else(ConversationError::invalid_cursor)?)
            }
            None => None,
        };
        let (mut page, mut room) = (Vec::new(), PageRoom::new());
        let mut last = None;
        loop {
            // One more than the page, to know whether there is another.
            let wanted = limit + 1 - page.len();
            let matches = self.find_page(filter, after, wanted).await?;
            let is_end = matches.len() < wanted;
            for (read, (place, id)) in matches.into_iter().enumerate() {
                if read > 0 && read % RECORDS_PER_STEP == 0 {
                    tokio::task::yield_now().await;
                }
                after = Some(place);
                // The conversation may have been changed or deleted since it was found.
                let Some(conversation) = self.view_for_list(id)?.filter(|view| filter.matches(view)) else {
                    continue;
                };
                let conversation = view_for_list(conversation);
                if page.len() == limit || !room.try_take(&conversation) {
                    return Ok((page, last));
                }
                page.push(conversation);
                last = Some(Cursor::new(place.to_text()));
            }
            if is_end {
                return Ok((page, None));
            }
        }
    }

    /// A conversation's chain, oldest link first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn chain(&self, id: ConversationId) -> Result<Vec<Link>, ConversationError> {
        let record = self.services.store.salvaged_conversation(id)?;
        let record = record.map(SalvagedRecord::into_record).transpose()?;
        Ok(record.map_or_else(Vec::new, |record| record.chain.links().to_vec()))
    }

    /// One page of a conversation's lineage, oldest first: at most `limit` entries, and fewer if they are large.
    ///
    /// # Errors
    /// When the cursor is not one of this method, or the store cannot be read.
    pub fn lineage(
        &self,
        id: ConversationId,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<(Vec<LineageEntry>, Option<Cursor>), ConversationError> {
        let after = cursor.map_or(Ok(0), |cursor| cursor.as_str().parse());
        let after = after.map_err(|_| ConversationError::invalid_cursor())?;
        // One more than the page, to know whether there is another.
        let mut entries = self.services.store.lineage(id, after, limit + 1)?;
        let mut room = PageRoom::new();
        let count = entries
            .iter()
            .take(limit)
            .take_while(|entry| room.try_take(*entry));
        let count = count.count();
        let has_more = count < entries.len();
        entries.truncate(count);
        let last = entries.last().filter(|_| has_more);
        let next = last.map(|entry| Cursor::new(entry.seq.to_string()));
        Ok((entries, next))
    }

    /// The tree of forks that contains a conversation: its first ancestor and everything that branched off that.
    ///
    /// # Errors
    /// When the conversation was deleted, or the store cannot be read.
    pub async fn tree(&self, id: ConversationId) -> Result<TreeAnswer, ConversationError> {
        let branches = {
            let _turn = self.search_permits.acquire().await;
            self.services
                .blocking(|services| services.store.branches())
                .await??
        };
        let parents: HashMap<_, _> = branches.iter().map(|branch| (branch.id, branch.parent)).collect();
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        for branch in branches {
            let of_parent = children.entry(branch.parent).or_default();
            of_parent.push((branch.created_order, branch.id));
        }

        let (root, missing_parent) = self.root_of(id, &parents)?;
        let mut room = PageRoom::with_bytes(TREE_LIMIT_BYTES);
        let mut conversations = Vec::new();
        let mut truncated = false;
        let mut layer = vec![(0, root)];
        let mut read = 0;
        while !layer.is_empty() {
            let mut members = Vec::new();
            for (created_order, id) in std::mem::take(&mut layer) {
                members.extend(self.member(id)?.map(|member| (created_order, member)));
                read += 1;
                if read % RECORDS_PER_STEP == 0 {
                    tokio::task::yield_now().await;
                }
            }
            // Sorted by order of creation, since the clock may have been wrong. Earlier versions recorded only the time.
            members.sort_by_key(|(created_order, member): &(u64, TreeMember)| {
                (*created_order, member.conversation.created_at)
            });
            for (_, member) in members {
                if conversations.len() == TREE_LIMIT || !room.try_take(&member) {
                    truncated = true;
                    break;
                }
                // Removed from the map, so that each is visited once, even if imports made a cycle of parents.
                layer.extend(children.remove(&member.conversation.id).unwrap_or_default());
                conversations.push(member);
            }
            if truncated {
                break;
            }
        }
        Ok(TreeAnswer {
            conversations,
            missing_parent,
            truncated,
        })
    }

    /// The first ancestor that exists, and its missing parent, if any.
    fn root_of(
        &self,
        id: ConversationId,
        parents: &HashMap<ConversationId, ConversationId>,
    ) -> Result<(ConversationId, Option<ConversationId>), ConversationError> {
        let mut root = id;
        let mut climbed = HashSet::from([id]);
        while let Some(parent) = parents.get(&root).filter(|parent| climbed.insert(**parent)) {
            if self.view_for_list(*parent)?.is_none() {
                return Ok((root, Some(*parent)));
            }
            root = *parent;
        }
        Ok((root, None))
    }

    /// A conversation with its links and lineage; none if it was deleted meanwhile.
    fn member(&self, id: ConversationId) -> Result<Option<TreeMember>, ConversationError> {
        let Some(conversation) = self.view_for_list(id)? else {
            return Ok(None);
        };
        let store = &self.services.store;
        Ok(Some(TreeMember {
            conversation: view_for_list(conversation),
            links: self.chain(id)?,
            entries: store.lineage_all(id)?,
        }))
    }

    /// A conversation for a list; none when it was deleted meanwhile.
    pub(super) fn view_for_list(
        &self,
        id: ConversationId,
    ) -> Result<Option<Conversation>, ConversationError> {
        match self.salvaged_view(id) {
            Ok(view) => Ok(Some(view)),
            Err(ConversationError::Deleted { .. } | ConversationError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The positions and ids of the first conversations after a cursor that match the filter, at most `limit`.
    ///
    /// The first step runs on this thread, since it is usually enough. The other steps run on a blocking thread, for one
    /// caller at a time.
    pub(super) async fn find_page(
        &self,
        filter: &Filter,
        after: Option<RecentCursor>,
        limit: usize,
    ) -> Result<Vec<(RecentCursor, ConversationId)>, ConversationError> {
        let live = match (filter.state, filter.cut_short) {
            (None, None) => HashMap::new(),
            _ => self.live_statuses(),
        };
        let store = self.services.store.clone();
        let mut search = Search::new(store, filter.clone(), live, after, limit);
        if !search.step()? {
            let _turn = self.search_permits.acquire().await;
            let searched = tokio::task::spawn_blocking(move || {
                while !search.step()? {}
                Ok::<_, StoreError>(search)
            });
            search = searched.await??;
        }
        Ok(search.into_found())
    }

    /// The status of each conversation that has a task.
    fn live_statuses(&self) -> HashMap<ConversationId, LiveStatus> {
        let live = self.lock();
        let statuses = live
            .iter()
            .map(|(id, entry)| (*id, LiveStatus::from(&**entry.published.borrow())));
        statuses.collect()
    }

    /// How many conversations have an open session.
    #[must_use]
    pub fn count_live(&self) -> u64 {
        self.lock()
            .values()
            .filter(|entry| entry.published.borrow().live)
            .count() as u64
    }

    /// The conversations of an agent in which a turn runs.
    #[must_use]
    pub fn running_conversations_of(&self, agent: &AgentName) -> Vec<ConversationId> {
        let runs = |conversation: &Conversation| {
            matches!(
                conversation.state,
                ConversationState::Prompting | ConversationState::Awaiting | ConversationState::Cancelling
            )
        };
        let live = self.lock();
        let of_agent = live.iter().filter(|(_, entry)| {
            let published = entry.published.borrow();
            published.agent == *agent && runs(&published)
        });
        of_agent.map(|(id, _)| *id).collect()
    }

    /// The ids of all conversations of an agent.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn conversations_of_agent(
        &self,
        agent: &AgentName,
    ) -> Result<Vec<ConversationId>, ConversationError> {
        let filter = Filter {
            agent: Some(agent.clone()),
            ..Filter::default()
        };
        let found = self.find_page(&filter, None, usize::MAX).await?;
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }
}

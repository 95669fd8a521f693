//! The filter of `list`, and a search with it in bounded steps.
//!
//! Owns which conversations match, and how conversations that change during the search are treated. Must not know on
//! which thread a step runs.

use std::collections::{BTreeMap, HashMap, HashSet};

use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::{AgentName, ConversationId};

use super::super::lost_parts::view_without_lost;
use super::super::state::resting_state;
use crate::store::{RecentCursor, ScanStep, Store, StoreError};

/// What `list` looks for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The app.
    pub namespace: Option<String>,
    /// The agent.
    pub agent: Option<AgentName>,
    /// The folder.
    pub cwd: Option<String>,
    /// The state.
    pub state: Option<ConversationState>,
    /// Whether a turn of the conversation was cut short.
    pub cut_short: Option<bool>,
    /// Words, each of which title, folder or agent contains, in any case, or the id begins with.
    pub query: Option<String>,
    /// A text that the title contains, in any case.
    pub title: Option<String>,
}

/// The fields of a conversation that a filter compares.
struct FilteredFields<'a> {
    id: ConversationId,
    namespace: &'a str,
    agent: &'a str,
    cwd: &'a str,
    title: &'a str,
    status: LiveStatus,
}

/// The status of a conversation that has a task. It may differ from the record.
#[derive(Clone, Copy)]
pub(super) struct LiveStatus {
    state: ConversationState,
    is_cut_short: bool,
}

impl From<&Conversation> for LiveStatus {
    fn from(conversation: &Conversation) -> Self {
        Self {
            state: conversation.state,
            is_cut_short: conversation.cut_short,
        }
    }
}

impl Filter {
    /// Whether a conversation matches.
    #[must_use]
    pub fn matches(&self, conversation: &Conversation) -> bool {
        self.clone()
            .lowercase()
            .matches_fields(&filtered_fields(conversation))
    }

    /// Converts the wanted texts to lower case, as `matches_fields` needs them.
    fn lowercase(mut self) -> Self {
        for text in [&mut self.query, &mut self.title].into_iter().flatten() {
            *text = text.to_lowercase();
        }
        self
    }

    fn matches_fields(&self, fields: &FilteredFields<'_>) -> bool {
        let contains = |text: &str, part: &str| text.to_lowercase().contains(part);
        let is = |wanted: Option<&str>, text: &str| wanted.is_none_or(|wanted| wanted == text);
        is(self.namespace.as_deref(), fields.namespace)
            && is(self.agent.as_ref().map(AgentName::as_str), fields.agent)
            && is(self.cwd.as_deref(), fields.cwd)
            && self.state.is_none_or(|state| state == fields.status.state)
            && self
                .cut_short
                .is_none_or(|cut_short| cut_short == fields.status.is_cut_short)
            && self.query.as_deref().is_none_or(|query| {
                let id = fields.id.to_string();
                let texts = [fields.title, fields.cwd, fields.agent].map(str::to_lowercase);
                let has = |word: &str| id.starts_with(word) || texts.iter().any(|text| text.contains(word));
                query.split_whitespace().all(has)
            })
            && (self.title.as_deref()).is_none_or(|title| contains(fields.title, title))
    }
}

fn filtered_fields(conversation: &Conversation) -> FilteredFields<'_> {
    FilteredFields {
        id: conversation.id,
        namespace: &conversation.namespace,
        agent: conversation.agent.as_str(),
        cwd: &conversation.cwd,
        title: &conversation.title,
        status: conversation.into(),
    }
}

/// A search under way, from the newest conversation to the oldest.
pub(super) struct Search {
    store: Store,
    filter: Filter,
    live_statuses: HashMap<ConversationId, LiveStatus>,
    limit: usize,
    /// The matches by position, which is the order of the list.
    found: BTreeMap<RecentCursor, ConversationId>,
    /// The next step continues after this.
    last_searched: Option<RecentCursor>,
    /// The newest position searched so far. Only used if the search began at the front of the list.
    front: Option<RecentCursor>,
    begins_at_front: bool,
    has_reached_end: bool,
}

impl Search {
    /// A search for the first `limit` matches after a cursor. `live`: the statuses that may differ from the records.
    pub(super) fn new(
        store: Store,
        filter: Filter,
        live: HashMap<ConversationId, LiveStatus>,
        after: Option<RecentCursor>,
        limit: usize,
    ) -> Self {
        Self {
            store,
            filter: filter.lowercase(),
            live_statuses: live,
            limit,
            found: BTreeMap::new(),
            begins_at_front: after.is_none(),
            last_searched: after,
            front: None,
            has_reached_end: false,
        }
    }

    /// The matches, newest first.
    pub(super) fn into_found(self) -> Vec<(RecentCursor, ConversationId)> {
        self.found.into_iter().take(self.limit).collect()
    }

    /// Takes one step. Returns true once the search is over.
    ///
    /// A conversation that changes during the search moves to the front of the list. A search that began at the front
    /// therefore searches the front again, until one step covers everything new.
    pub(super) fn step(&mut self) -> Result<bool, StoreError> {
        if self.has_reached_end {
            return self.search_front();
        }
        let scan = self.search_store(self.last_searched, self.limit - self.found.len())?;
        self.found.extend(scan.found.iter().copied());
        if self.front.is_none() {
            self.front = scan.first;
        }
        self.last_searched = scan.last.or(self.last_searched);
        let is_over = scan.is_end || self.found.len() >= self.limit;
        self.has_reached_end = is_over;
        // A single step sees one state of the store, so nothing can have moved.
        let was_one_step = scan.first == self.front;
        Ok(is_over && (!self.begins_at_front || was_one_step))
    }

    fn search_front(&mut self) -> Result<bool, StoreError> {
        let Some(known) = self.front else { return Ok(true) };
        let (mut after, mut newest) = (None, None);
        let mut fresh = Vec::new();
        let mut steps = 0;
        loop {
            let scan = self.search_store(after, usize::MAX)?;
            steps += 1;
            newest = newest.or(scan.first);
            let reached = scan.is_end || scan.last.is_some_and(|last| last >= known);
            fresh.extend(scan.found.into_iter().filter(|(place, _)| *place < known));
            after = scan.last;
            if reached {
                break;
            }
        }
        self.front = newest.or(self.front);
        let moved: HashSet<ConversationId> = fresh.iter().map(|(_, id)| *id).collect();
        self.found.retain(|_, id| !moved.contains(id));
        self.found.extend(fresh);
        // In a single step, nothing can have moved meanwhile; otherwise the front is searched again.
        Ok(steps == 1)
    }

    /// One step through the store, with only the matches of the filter.
    fn search_store(&self, after: Option<RecentCursor>, limit: usize) -> Result<ScanStep, StoreError> {
        let mut unknown = HashSet::new();
        let mut scan = self.store.scan_recent(after, limit, |id, summary| {
            let Some(summary) = summary else {
                unknown.insert(id);
                return true;
            };
            let resting = || LiveStatus {
                state: resting_state(summary.resting, summary.has_question || summary.has_waiting),
                is_cut_short: summary.is_cut_short || summary.has_waiting,
            };
            self.filter.matches_fields(&FilteredFields {
                id,
                namespace: summary.namespace,
                agent: summary.agent,
                cwd: summary.cwd,
                title: summary.title,
                status: self.live_statuses.get(&id).copied().unwrap_or_else(resting),
            })
        })?;
        // Conversations without a summary, because they are too long for one, are read whole.
        let mut failed = None;
        scan.found.retain(|(_, id)| {
            !unknown.contains(id)
                || match self.store.salvaged_conversation(*id) {
                    Ok(found) => found.is_some_and(|found| {
                        let view = view_without_lost(found);
                        let mut shown = filtered_fields(&view);
                        shown.status = self.live_statuses.get(id).copied().unwrap_or(shown.status);
                        self.filter.matches_fields(&shown)
                    }),
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
        });
        failed.map_or(Ok(scan), Err)
    }
}

#[cfg(test)]
mod tests;

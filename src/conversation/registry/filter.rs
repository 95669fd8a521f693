//! The filter of a list, and the search with it in bounded steps.
//!
//! Owns which conversations match, and how conversations that change during the search are treated. It must not know on
//! which thread a step runs.

use std::collections::{BTreeMap, HashMap, HashSet};

use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::{AgentName, ConversationId};

use super::super::lost_parts::view_without;
use super::super::state::resting_state;
use crate::store::{Looked, RecentCursor, Store, StoreError};

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
    /// Whether a turn of it was cut short.
    pub cut_short: Option<bool>,
    /// Words, each in title, folder or agent, in any case, or the beginning of the id.
    pub query: Option<String>,
    /// A text that the title contains, in any case.
    pub title: Option<String>,
}

/// The members of a conversation that a filter looks at.
struct Shown<'a> {
    id: ConversationId,
    namespace: &'a str,
    agent: &'a str,
    cwd: &'a str,
    title: &'a str,
    doing: Doing,
}

/// What may change without its record, as long as the conversation has a task.
#[derive(Clone, Copy)]
pub(super) struct Doing {
    state: ConversationState,
    is_cut_short: bool,
}

impl From<&Conversation> for Doing {
    fn from(conversation: &Conversation) -> Self {
        Self {
            state: conversation.state,
            is_cut_short: conversation.cut_short,
        }
    }
}

impl Filter {
    /// Whether it takes this conversation.
    #[must_use]
    pub fn fits(&self, conversation: &Conversation) -> bool {
        self.clone().lowercase().takes(&shown(conversation))
    }

    /// With the texts that are looked for in lower case, as `takes` needs them.
    fn lowercase(mut self) -> Self {
        for text in [&mut self.query, &mut self.title].into_iter().flatten() {
            *text = text.to_lowercase();
        }
        self
    }

    fn takes(&self, shown: &Shown<'_>) -> bool {
        let contains = |text: &str, part: &str| text.to_lowercase().contains(part);
        let is = |wanted: Option<&str>, text: &str| wanted.is_none_or(|wanted| wanted == text);
        is(self.namespace.as_deref(), shown.namespace)
            && is(self.agent.as_ref().map(AgentName::as_str), shown.agent)
            && is(self.cwd.as_deref(), shown.cwd)
            && self.state.is_none_or(|state| state == shown.doing.state)
            && self
                .cut_short
                .is_none_or(|cut_short| cut_short == shown.doing.is_cut_short)
            && self.query.as_deref().is_none_or(|query| {
                let id = shown.id.to_string();
                let texts = [shown.title, shown.cwd, shown.agent].map(str::to_lowercase);
                let has = |word: &str| id.starts_with(word) || texts.iter().any(|text| text.contains(word));
                query.split_whitespace().all(has)
            })
            && (self.title.as_deref()).is_none_or(|title| contains(shown.title, title))
    }
}

fn shown(conversation: &Conversation) -> Shown<'_> {
    Shown {
        id: conversation.id,
        namespace: &conversation.namespace,
        agent: conversation.agent.as_str(),
        cwd: &conversation.cwd,
        title: &conversation.title,
        doing: conversation.into(),
    }
}

/// A search under way, from the newest conversation to the oldest.
pub(super) struct Search {
    store: Store,
    filter: Filter,
    live: HashMap<ConversationId, Doing>,
    limit: usize,
    /// By place, which is the order of the list.
    found: BTreeMap<RecentCursor, ConversationId>,
    /// The next step continues after this.
    after: Option<RecentCursor>,
    /// The front of the list as far as it was seen; none when the search began behind a cursor.
    front: Option<RecentCursor>,
    begins_at_front: bool,
    is_behind: bool,
}

impl Search {
    /// For the first `limit` behind a cursor. `live` has what those do whose record may say another thing.
    pub(super) fn new(
        store: Store,
        filter: Filter,
        live: HashMap<ConversationId, Doing>,
        after: Option<RecentCursor>,
        limit: usize,
    ) -> Self {
        Self {
            store,
            filter: filter.lowercase(),
            live,
            limit,
            found: BTreeMap::new(),
            begins_at_front: after.is_none(),
            after,
            front: None,
            is_behind: false,
        }
    }

    /// What was found, newest first.
    pub(super) fn found(self) -> Vec<(RecentCursor, ConversationId)> {
        self.found.into_iter().take(self.limit).collect()
    }

    /// Takes one step; true once the search is over.
    ///
    /// What changes meanwhile moves to the front, where a search that began there has been already: so it looks there
    /// again, until one step sees everything that is new.
    pub(super) fn step(&mut self) -> Result<bool, StoreError> {
        if self.is_behind {
            return self.look_at_front();
        }
        let looked = self.look(self.after, self.limit - self.found.len())?;
        self.found.extend(looked.found.iter().copied());
        if self.front.is_none() {
            self.front = looked.first;
        }
        self.after = looked.last.or(self.after);
        let is_over = looked.is_end || self.found.len() >= self.limit;
        self.is_behind = is_over;
        // Of one moment if this was the only step.
        let was_one_step = looked.first == self.front;
        Ok(is_over && (!self.begins_at_front || was_one_step))
    }

    fn look_at_front(&mut self) -> Result<bool, StoreError> {
        let Some(known) = self.front else { return Ok(true) };
        let (mut after, mut newest) = (None, None);
        let mut fresh = Vec::new();
        let mut steps = 0;
        loop {
            let looked = self.look(after, usize::MAX)?;
            steps += 1;
            newest = newest.or(looked.first);
            let reached = looked.is_end || looked.last.is_some_and(|last| last >= known);
            fresh.extend(looked.found.into_iter().filter(|(place, _)| *place < known));
            after = looked.last;
            if reached {
                break;
            }
        }
        self.front = newest.or(self.front);
        let moved: HashSet<ConversationId> = fresh.iter().map(|(_, id)| *id).collect();
        self.found.retain(|_, id| !moved.contains(id));
        self.found.extend(fresh);
        // In one step nothing moved meanwhile; else it is looked at again.
        Ok(steps == 1)
    }

    /// One step of the store, with only those found that the filter takes.
    fn look(&self, after: Option<RecentCursor>, limit: usize) -> Result<Looked, StoreError> {
        let mut unknown = HashSet::new();
        let mut looked = self.store.look(after, limit, |id, summary| {
            let Some(summary) = summary else {
                unknown.insert(id);
                return true;
            };
            let resting = || Doing {
                state: resting_state(summary.resting, summary.has_question || summary.has_waiting),
                is_cut_short: summary.is_cut_short || summary.has_waiting,
            };
            self.filter.takes(&Shown {
                id,
                namespace: summary.namespace,
                agent: summary.agent,
                cwd: summary.cwd,
                title: summary.title,
                doing: self.live.get(&id).copied().unwrap_or_else(resting),
            })
        })?;
        // What is too long for a summary is read whole.
        let mut failed = None;
        looked.found.retain(|(_, id)| {
            !unknown.contains(id)
                || match self.store.salvaged(*id) {
                    Ok(found) => found.is_some_and(|found| {
                        let view = view_without(found);
                        let mut shown = shown(&view);
                        shown.doing = self.live.get(id).copied().unwrap_or(shown.doing);
                        self.filter.takes(&shown)
                    }),
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
        });
        failed.map_or(Ok(looked), Err)
    }
}

#[cfg(test)]
mod tests;

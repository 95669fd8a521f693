//! The agents' transcripts as they are listed: which of them, in which order, and whose they are.
//!
//! The walk and the reading are the shelf's; here is decided what a list takes. The folders are looked at anew for each
//! first page, and what was seen then is what the pages behind it are cut from.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bridge_protocol::transcript::{Transcript, TranscriptPage};
use bridge_protocol::{AgentName, ConversationId, Cursor, UpstreamId};
use jiff::Timestamp;

use super::super::climbing::store_error;
use super::super::error::ConversationError;
use super::super::page::{FRAME_BYTES, PageRoom, Weighed};
use super::Registry;
use crate::agent::catalog::AgentEntry;
use crate::store::{Store, StoreError, TranscriptRoot};
use crate::transcript::shelf::{Format, Shelf, ShelfEntry};

/// What is known of each folder of transcripts. Whoever holds it looks at the folders; the others wait.
pub(super) type Shelves = HashMap<PathBuf, Shelf>;

/// What `transcript/list` looks for.
#[derive(Clone, Debug, Default)]
pub struct TranscriptFilter {
    /// The agent; all whose transcripts can be read when none is named.
    pub agent: Option<AgentName>,
    /// The folder that the agent worked in.
    pub cwd: Option<String>,
    /// A text that title, folder, path or id contain, in any case.
    pub query: Option<String>,
}

/// A folder of transcripts that is listed.
struct Listed {
    agent: AgentName,
    folder: PathBuf,
    format: Format,
    root: TranscriptRoot,
}

/// A place in the list: newest first, by path where the time is the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(Reverse<i128>, String);

impl Registry {
    /// One page of transcripts, newest first: `limit` at most, and fewer where they are large.
    ///
    /// # Errors
    /// When there is no such agent, its transcripts cannot be read, or the cursor is not one of this method.
    pub async fn transcripts(
        &self,
        filter: TranscriptFilter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<TranscriptPage, ConversationError> {
        let after = match cursor {
            Some(cursor) => Some(Place::from_cursor(cursor).ok_or_else(|| {
                ConversationError::InvalidParams("the cursor is not one that transcript/list gave".to_owned())
            })?),
            None => None,
        };
        let roots = self.listed_roots(filter.agent.as_ref())?;
        let store = self.services.store.clone();
        let mut shelves = Arc::clone(&self.shelves).lock_owned().await;
        let made = tokio::task::spawn_blocking(move || {
            let mut unreadable = Vec::new();
            for root in &roots {
                let shelf = shelves.entry(root.folder.clone()).or_default();
                if after.is_none() || !shelf.is_scanned() {
                    shelf.scan(&root.folder, root.format);
                }
                unreadable.extend(
                    shelf
                        .unreadable()
                        .iter()
                        .map(|path| path.to_string_lossy().into_owned()),
                );
            }
            let all = roots.iter().flat_map(|root| {
                let shelf = shelves.get(&root.folder);
                let entries = shelf.into_iter().flat_map(Shelf::entries);
                entries.map(move |entry| (root, entry.as_ref()))
            });
            let (page, next_cursor) = page(all, &filter, after.as_ref(), limit, &store)?;
            Ok(TranscriptPage {
                transcripts: page,
                next_cursor,
                unreadable,
            })
        });
        let made: Result<_, StoreError> = made.await.map_err(|_| ConversationError::Lost)?;
        made.map_err(|error| store_error(&error))
    }

    /// The folders to list. Agents that share one are listed once, unless one is named.
    fn listed_roots(&self, agent: Option<&AgentName>) -> Result<Vec<Listed>, ConversationError> {
        let Some(agent) = agent else {
            let mut roots: Vec<Listed> = Vec::new();
            for root in self
                .services
                .catalog
                .entries()
                .iter()
                .filter_map(|entry| listed(entry))
            {
                if roots.iter().all(|other| other.folder != root.folder) {
                    roots.push(root);
                }
            }
            return Ok(roots);
        };
        let entry = self.services.agent(agent)?;
        let root = listed(&entry).ok_or_else(|| {
            ConversationError::Unsupported(format!(
                "the transcripts of {agent} cannot be listed: how agents of kind {} keep them is not known",
                entry.kind
            ))
        })?;
        Ok(vec![root])
    }
}

fn listed(entry: &AgentEntry) -> Option<Listed> {
    let (folder, format) = entry.listed_transcripts()?;
    Some(Listed {
        agent: entry.name.clone(),
        folder: folder.to_owned(),
        format,
        root: entry.transcript_root(),
    })
}

/// The first transcripts behind a place that the filter takes.
fn page<'a>(
    all: impl Iterator<Item = (&'a Listed, &'a ShelfEntry)>,
    filter: &TranscriptFilter,
    after: Option<&Place>,
    limit: usize,
    store: &Store,
) -> Result<(Vec<Transcript>, Option<Cursor>), StoreError> {
    let query = filter.query.as_ref().map(|query| query.to_lowercase());
    let mut found: Vec<(Place, &Listed, &ShelfEntry)> = all
        .filter(|(_, entry)| takes(filter, query.as_deref(), entry))
        .map(|(root, entry)| (Place::of(entry), root, entry))
        .filter(|(place, ..)| after.is_none_or(|after| place > after))
        .collect();
    found.sort_unstable_by(|(left, ..), (right, ..)| left.cmp(right));
    let (mut page, mut room) = (Vec::new(), PageRoom::new());
    let mut last = None;
    for (place, root, entry) in found {
        let transcript = transcript(root, entry, store)?;
        if page.len() == limit || !room.takes(&transcript) {
            return Ok((page, last));
        }
        page.push(transcript);
        last = Some(place.to_cursor());
    }
    Ok((page, None))
}

/// `query` is the filter's in lower case.
fn takes(filter: &TranscriptFilter, query: Option<&str>, entry: &ShelfEntry) -> bool {
    filter.cwd.as_ref().is_none_or(|cwd| *cwd == entry.cwd)
        && query.is_none_or(|query| {
            let contains = |text: &str| text.to_lowercase().contains(query);
            contains(&entry.title)
                || contains(&entry.cwd)
                || contains(&entry.upstream_id)
                || contains(&entry.path.to_string_lossy())
        })
}

fn transcript(root: &Listed, entry: &ShelfEntry, store: &Store) -> Result<Transcript, StoreError> {
    let upstream_id = UpstreamId::new(entry.upstream_id.as_str());
    Ok(Transcript {
        agent: root.agent.clone(),
        conversation_id: owner(store, &upstream_id, &root.root)?,
        upstream_id,
        cwd: entry.cwd.clone(),
        title: entry.title.clone(),
        bytes: entry.bytes,
        turns: None,
        updated_at: entry.updated_at,
        forked_from: entry.forked_from.as_deref().map(UpstreamId::new),
        path: entry.path.to_string_lossy().into_owned(),
    })
}

/// The conversation that holds or held an upstream id, deleted ones left out: the one whose head it is, else the first.
fn owner(
    store: &Store,
    upstream_id: &UpstreamId,
    root: &TranscriptRoot,
) -> Result<Option<ConversationId>, StoreError> {
    let mut first = None;
    for id in store.owners(upstream_id, Some(root))? {
        let Some(record) = store.conversation(id)? else {
            continue;
        };
        if record.deleted_at.is_some() {
            continue;
        }
        if record
            .chain
            .head()
            .is_some_and(|head| head.upstream_id == *upstream_id)
        {
            return Ok(Some(id));
        }
        first = first.or(Some(id));
    }
    Ok(first)
}

impl Place {
    fn of(entry: &ShelfEntry) -> Self {
        let path = entry.path.to_string_lossy().into_owned();
        Self(Reverse(entry.updated_at.as_nanosecond()), path)
    }

    fn to_cursor(&self) -> Cursor {
        Cursor::new(format!("{}:{}", self.0.0, self.1))
    }

    fn from_cursor(cursor: &Cursor) -> Option<Self> {
        let (at, path) = cursor.as_str().split_once(':')?;
        let at = at
            .parse()
            .ok()
            .filter(|at| Timestamp::from_nanosecond(*at).is_ok())?;
        Some(Self(Reverse(at), path.to_owned()))
    }
}

impl Weighed for Transcript {
    fn weight(&self) -> usize {
        FRAME_BYTES + self.cwd.len() + self.title.len() + self.upstream_id.as_str().len() + self.path.len()
    }
}

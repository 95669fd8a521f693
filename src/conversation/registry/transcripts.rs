//! Lists of the agents' transcripts: which ones, in which order, and which conversation they belong to.
//!
//! [`TranscriptList`] finds and reads the files; this module decides what a page contains. The first page scans every
//! file; later pages are cut from that scan.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_protocol::id::MIN_PREFIX_CHARS;
use bridge_protocol::transcript::{Transcript, TranscriptPage};
use bridge_protocol::{AgentName, ConversationId, Cursor, UpstreamId};
use jiff::Timestamp;

use super::super::error::{Candidate, ConversationError};
use super::super::lock::lock;
use super::super::page::PageRoom;
use super::super::read_queues::ReadClass;
use super::super::services::Services;
use super::super::transcript_facts::AgentTranscripts;
use super::Registry;
use super::resolving::CANDIDATES_LIMIT;
use crate::agent::catalog::AgentEntry;
use crate::store::{Store, StoreError, TranscriptRoot};
use crate::transcript::transcript_list::{Format, ListPosition, ListedTranscript, TranscriptList};

/// The last scan of each folder of transcripts. The holder of a list's lock scans its folder; other callers wait.
pub(super) type TranscriptLists = HashMap<PathBuf, Arc<tokio::sync::Mutex<TranscriptList>>>;

/// What `transcript/list` looks for.
#[derive(Clone, Debug, Default)]
pub struct TranscriptFilter {
    /// The agent; if none, all agents whose transcripts can be read.
    pub agent: Option<AgentName>,
    /// The folder that the agent worked in.
    pub cwd: Option<String>,
    /// Words, each of which the title, folder, path or id contains, in any case.
    pub query: Option<String>,
}

/// An agent's folder of transcripts.
pub(super) struct AgentFolder {
    pub(super) entry: Arc<AgentEntry>,
    pub(super) root: PathBuf,
    pub(super) format: Format,
}

impl AgentFolder {
    /// `None` if it is not known where the agent keeps its transcripts.
    pub(super) fn of(entry: &Arc<AgentEntry>) -> Option<Self> {
        let (root, format) = entry.listed_transcripts()?;
        Some(Self {
            entry: Arc::clone(entry),
            root: root.to_owned(),
            format,
        })
    }

    /// The transcripts in it.
    pub(super) fn transcripts<'a>(&'a self, services: &'a Services) -> AgentTranscripts<'a> {
        AgentTranscripts {
            services,
            entry: &self.entry,
            dialect: self.format.dialect(),
            root: &self.root,
        }
    }
}

/// A folder of transcripts and its entries.
pub(super) type FolderTranscripts = (AgentFolder, Vec<Arc<ListedTranscript>>);

impl Registry {
    /// One page of transcripts, newest first: at most `limit`, and fewer if they are large.
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
            Some(cursor) => Some(position_of(cursor).ok_or_else(ConversationError::invalid_cursor)?),
            None => None,
        };
        let roots = self.listed_folders(filter.agent.as_ref())?;
        let services = Arc::clone(&self.services);
        let mut unwatched = lock(&self.unwatched).clone();
        unwatched.retain(|unwatched| {
            let is_listed = |root: &AgentFolder| root.root.to_string_lossy() == *unwatched.path;
            after.is_none() && roots.iter().any(is_listed)
        });
        // A list of one agent's transcripts does not wait for another agent's folder.
        let folder = match roots.as_slice() {
            [only] => Some(only.root.clone()),
            _ => None,
        };
        let place = self.services.read_queues.list_queue(folder);
        let lists: Vec<_> = roots.iter().map(|root| self.transcript_list(root)).collect();
        self.run_read_at(place, "transcript/list", None, move || {
            let (mut unreadable, mut found) = (Vec::new(), Vec::new());
            for (root, list) in roots.iter().zip(lists) {
                let mut list = list.blocking_lock();
                if after.is_none() || !list.is_scanned() {
                    list.scan(&root.root, root.format);
                }
                unreadable.extend(list.unreadable().map(|path| path.to_string_lossy().into_owned()));
                found.push(list.entries_after(after.as_ref()).cloned().collect::<Vec<_>>());
            }
            let all = roots.iter().zip(&found);
            let all = all.map(|(root, entries)| (root, entries.iter().peekable()));
            let page = collect_page(all.collect(), &filter, limit, &services);
            let (page, next_cursor) = page?;
            Ok(TranscriptPage {
                transcripts: page,
                next_cursor,
                unreadable,
                unwatched,
            })
        })
        .await
    }

    /// The list of a folder, as last scanned.
    fn transcript_list(&self, root: &AgentFolder) -> Arc<tokio::sync::Mutex<TranscriptList>> {
        let mut lists = lock(&self.transcript_lists);
        Arc::clone(lists.entry(root.root.clone()).or_default())
    }

    /// Completes the id of a session that a caller names by its first characters. Searches the transcripts, the backups and the
    /// sessions of conversations; sessions that only deleted conversations had count if nothing else matches. If nothing
    /// matches at all, `id` is returned unchanged.
    ///
    /// # Errors
    /// When several match, or might because a folder cannot be read; when the backups cannot be read.
    pub(super) async fn complete_session_id(
        &self,
        method: &'static str,
        id: UpstreamId,
        agent: Option<&AgentName>,
    ) -> Result<UpstreamId, ConversationError> {
        let store = &self.services.store;
        if id.as_str().chars().count() < MIN_PREFIX_CHARS || !store.owners(&id, None)?.is_empty() {
            return Ok(id);
        }
        let mut found = self
            .sessions_with_prefix(method, id.as_str(), agent, true)
            .await?;
        if found.contains_key(id.as_str()) {
            return Ok(id);
        }
        let entry = agent.map(|agent| self.services.agent(agent)).transpose()?;
        let root = entry.map(|entry| entry.transcript_root());
        let mut of_deleted = BTreeMap::new();
        for (session, owner) in store.sessions_with_prefix(id.as_str(), root.as_ref())? {
            let (found, title) = match self.salvaged(owner) {
                Ok(salvaged) => (&mut found, salvaged.record.title),
                Err(ConversationError::Deleted { .. } | ConversationError::NotFound { .. }) => {
                    (&mut of_deleted, String::new())
                }
                Err(error) => return Err(error),
            };
            let known = found.entry(session.to_string()).or_default();
            if known.is_empty() {
                *known = title;
            }
        }
        if found.is_empty() {
            found = of_deleted;
        }
        match found.len() {
            0 => Ok(id),
            1 => Ok(found.into_keys().map(UpstreamId::new).next().unwrap_or(id)),
            count => Err(ConversationError::AmbiguousTranscript {
                name: id.to_string(),
                candidates: candidates(found),
                count,
            }),
        }
    }

    /// Calls `act` with the whole id of a session that a caller names by its first characters. Its errors include the whole id.
    ///
    /// # Errors
    /// Those of the action and of [`Registry::complete_session_id`].
    pub(super) async fn with_whole_id<T, F>(
        &self,
        method: &'static str,
        id: UpstreamId,
        agent: Option<&AgentName>,
        act: impl FnOnce(UpstreamId) -> F,
    ) -> Result<T, ConversationError>
    where
        F: Future<Output = Result<T, ConversationError>>,
    {
        let whole = self.complete_session_id(method, id.clone(), agent).await?;
        let acted = act(whole.clone()).await;
        acted.map_err(|error| match whole == id {
            true => error,
            false => error.with_id("upstreamId", &whole),
        })
    }

    /// The first transcripts whose ids start with `prefix`. If a transcript has exactly this id, only that one, without its
    /// title.
    ///
    /// # Errors
    /// When a folder with transcripts that might match cannot be read.
    pub(super) async fn transcripts_with_prefix(
        &self,
        prefix: &str,
    ) -> Result<Vec<Candidate>, ConversationError> {
        // A word that can only be part of a title does not need a search of the disk.
        let is_of_id = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        let is_word = prefix.chars().all(|character| character.is_ascii_alphabetic())
            && !prefix.chars().all(|character| character.is_ascii_hexdigit());
        if prefix.chars().count() < MIN_PREFIX_CHARS || is_word || !prefix.chars().all(is_of_id) {
            return Ok(Vec::new());
        }
        let found = self.sessions_with_prefix("conversation/resolve", prefix, None, false);
        Ok(candidates(found.await?))
    }

    /// The sessions whose ids start with `prefix`, with the titles of transcripts: those that have one, after those that have a
    /// backup, if wanted. If one has exactly this id, it is among them, and a transcript of this id is the only one.
    async fn sessions_with_prefix(
        &self,
        method: &'static str,
        prefix: &str,
        agent: Option<&AgentName>,
        with_backups: bool,
    ) -> Result<BTreeMap<String, String>, ConversationError> {
        let (roots, services) = (self.roots_of_sessions(agent)?, Arc::clone(&self.services));
        let lists: Vec<_> = roots.iter().map(|root| self.transcript_list(root)).collect();
        let prefix = prefix.to_owned();
        let look = move || {
            let mut found = BTreeMap::new();
            if with_backups {
                found.extend(backups_with_prefix(&services, &roots, &prefix)?);
            }
            let has = |root: &AgentFolder| root.format.dialect().locate(&root.root, &prefix);
            if found.contains_key(&prefix) {
                return Ok(found);
            }
            if roots
                .iter()
                .any(|root| has(root).is_ok_and(|paths| !paths.is_empty()))
            {
                return Ok(BTreeMap::from([(prefix, String::new())]));
            }
            let mut unread = None;
            for (root, list) in roots.iter().zip(lists) {
                let mut list = list.blocking_lock();
                list.scan(&root.root, root.format);
                for path in list.unreadable() {
                    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
                    match root.format.upstream_id(name) {
                        // The file name contains the id.
                        Some(id) if id.starts_with(&prefix) => {
                            found.insert(id.to_owned(), String::new());
                        }
                        Some(_) => {}
                        None => unread = Some(path.to_owned()),
                    }
                }
                let entries = list.entries_after(None);
                for entry in entries.filter(|entry| entry.upstream_id.starts_with(&prefix)) {
                    found.insert(entry.upstream_id.clone(), entry.title.clone());
                }
            }
            match unread {
                Some(path) if !found.is_empty() => Err(ConversationError::invalid(
                    "upstreamId",
                    format!(
                        "{} cannot be read and may contain another session whose id starts with \"{prefix}\"; give the whole id",
                        path.display()
                    ),
                )),
                _ => Ok(found),
            }
        };
        // `Quick`, like a list, so that it does not wait for reads of whole transcripts.
        self.run_read_at(self.queue_of(None, ReadClass::Quick), method, None, look)
            .await
    }

    /// The folders in which a session may be; none if transcripts of the agent cannot be listed.
    pub(super) fn roots_of_sessions(
        &self,
        agent: Option<&AgentName>,
    ) -> Result<Vec<AgentFolder>, ConversationError> {
        match self.listed_folders(agent) {
            Err(ConversationError::Unsupported(_)) => Ok(Vec::new()),
            roots => roots,
        }
    }

    /// All transcripts as they are now. A problem with one folder is logged.
    pub(super) async fn list_all_transcripts(&self) -> Result<Vec<FolderTranscripts>, ConversationError> {
        let roots = self.listed_folders(None)?;
        let lists: Vec<_> = roots.iter().map(|root| self.transcript_list(root)).collect();
        let scanned = tokio::task::spawn_blocking(move || {
            let all = roots.into_iter().zip(lists).map(|(root, list)| {
                let mut list = list.blocking_lock();
                list.scan(&root.root, root.format);
                for path in list.unreadable() {
                    tracing::warn!(path = %path.display(), "a transcript cannot be read; a move leaves it where it is");
                }
                let entries = list.entries_after(None).cloned().collect();
                (root, entries)
            });
            all.collect()
        });
        scanned.await.map_err(|_| ConversationError::Internal)
    }

    /// The folders to list. Agents that share one are listed once, unless one is named.
    pub(super) fn listed_folders(
        &self,
        agent: Option<&AgentName>,
    ) -> Result<Vec<AgentFolder>, ConversationError> {
        let Some(agent) = agent else {
            let mut roots: Vec<AgentFolder> = Vec::new();
            // Also folders that may appear later, for the task that watches them.
            let entries = self.services.catalog.entries_and_expected().iter();
            for root in entries.filter_map(AgentFolder::of) {
                if roots.iter().all(|other| other.root != root.root) {
                    roots.push(root);
                }
            }
            return Ok(roots);
        };
        let entry = self.services.agent(agent)?;
        let root = AgentFolder::of(&entry).ok_or_else(|| {
            ConversationError::Unsupported(format!(
                "the transcripts of {agent} cannot be listed: how agents of kind {} keep them is not known",
                entry.kind
            ))
        })?;
        Ok(vec![root])
    }
}

/// The backed-up sessions of these agents whose ids start with `prefix`, without titles.
fn backups_with_prefix(
    services: &Services,
    roots: &[AgentFolder],
    prefix: &str,
) -> Result<impl Iterator<Item = (String, String)>, ConversationError> {
    let mut sessions = services.backups.archive.sessions()?;
    sessions.retain(|session| {
        let is_of = |root: &AgentFolder| root.root == session.key.root;
        !session.is_released && session.key.upstream_id.starts_with(prefix) && roots.iter().any(is_of)
    });
    let ids = sessions.into_iter().map(|session| session.key.upstream_id);
    Ok(ids.map(|id| (id, String::new())))
}

/// The first of these sessions, for an error that lists them.
fn candidates(titles: BTreeMap<String, String>) -> Vec<Candidate> {
    let candidates = titles.into_iter().map(|(id, title)| Candidate { id, title });
    candidates.take(CANDIDATES_LIMIT).collect()
}

/// The first transcripts that match the filter, in the order of all roots together. Each root's are sorted already.
fn collect_page<'a, I: Iterator<Item = &'a Arc<ListedTranscript>>>(
    mut roots: Vec<(&AgentFolder, Peekable<I>)>,
    filter: &TranscriptFilter,
    limit: usize,
    services: &Services,
) -> Result<(Vec<Transcript>, Option<Cursor>), StoreError> {
    let query = filter.query.as_ref().map(|query| query.to_lowercase());
    let mut folder = filter.cwd.as_deref().map(SameFolder::new);
    let (mut page, mut room) = (Vec::new(), PageRoom::new());
    let mut last = None;
    while let Some((root, entry)) = newest_entry(&mut roots) {
        if !matches_entry(folder.as_mut(), query.as_deref(), entry) {
            continue;
        }
        let transcript = transcript(root, entry, services)?;
        if page.len() == limit || !room.try_take(&transcript) {
            return Ok((page, last));
        }
        page.push(transcript);
        last = Some(cursor_of(&ListPosition::of(entry)));
    }
    Ok((page, None))
}

/// Takes the newest transcript of all roots.
fn newest_entry<'a, 'r, I: Iterator<Item = &'a Arc<ListedTranscript>>>(
    roots: &mut [(&'r AgentFolder, Peekable<I>)],
) -> Option<(&'r AgentFolder, &'a ListedTranscript)> {
    let firsts = roots.iter_mut().enumerate();
    let firsts = firsts.filter_map(|(index, (_, entries))| Some((ListPosition::of(entries.peek()?), index)));
    let (_, index) = firsts.min()?;
    let (root, entries) = roots.get_mut(index)?;
    Some((root, entries.next()?))
}

/// Whether an entry is listed and matches. `query` must be in lower case.
fn matches_entry<'a>(
    folder: Option<&mut SameFolder<'a>>,
    query: Option<&str>,
    entry: &'a ListedTranscript,
) -> bool {
    !entry.is_subagent
        && folder.is_none_or(|folder| folder.matches(&entry.cwd))
        && query.is_none_or(|query| {
            let path = entry.path.to_string_lossy();
            let texts = [&entry.title, &entry.cwd, &entry.upstream_id, &*path].map(str::to_lowercase);
            let has = |word: &str| texts.iter().any(|text| text.contains(word));
            query.split_whitespace().all(has)
        })
}

/// A folder to compare with, by any path that leads to it: agents record the path that they were started with, and a caller
/// may use another one, such as a link.
struct SameFolder<'a> {
    path: &'a str,
    /// Device and inode; none if the folder no longer exists and only its path can be compared.
    identity: Option<(u64, u64)>,
    /// Whether other recorded paths lead to the folder. Each is resolved once per list, since a link may lead elsewhere by
    /// the next list.
    compared: HashMap<&'a str, bool>,
}

impl<'a> SameFolder<'a> {
    fn new(path: &'a str) -> Self {
        Self {
            path,
            identity: device_and_inode(path),
            compared: HashMap::new(),
        }
    }

    fn matches(&mut self, recorded: &'a str) -> bool {
        let Some(place) = self.identity.filter(|_| recorded != self.path) else {
            return recorded == self.path;
        };
        let is_same = || Path::new(recorded).is_absolute() && device_and_inode(recorded) == Some(place);
        *self.compared.entry(recorded).or_insert_with(is_same)
    }
}

/// Device and inode of the file that a path leads to.
fn device_and_inode(path: &str) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn transcript(
    root: &AgentFolder,
    entry: &ListedTranscript,
    services: &Services,
) -> Result<Transcript, StoreError> {
    let upstream_id = UpstreamId::new(entry.upstream_id.as_str());
    Ok(Transcript {
        agent: root.entry.name.clone(),
        conversation_id: owning_conversation(&services.store, &upstream_id, &root.entry.transcript_root())?,
        upstream_id,
        cwd: entry.cwd.clone(),
        title: entry.title.clone(),
        bytes: entry.bytes,
        turns: services.index_cache.known_turns(&entry.path, &entry.identity),
        updated_at: entry.updated_at,
        forked_from: entry.forked_from.as_deref().map(UpstreamId::new),
        path: entry.path.to_string_lossy().into_owned(),
    })
}

/// The conversation that has or had a session, without deleted ones: the one whose head it is, else the first.
fn owning_conversation(
    store: &Store,
    upstream_id: &UpstreamId,
    root: &TranscriptRoot,
) -> Result<Option<ConversationId>, StoreError> {
    let holders = store.holders(upstream_id, Some(root))?;
    let of_head = holders.iter().find(|record| record.chain.is_head(upstream_id));
    let holder = of_head.or(holders.first());
    Ok(holder.map(|record| record.id))
}

/// Encodes a position as a cursor: its time and its path. In the path, `%` and bytes that are not UTF-8 are written as `%XX`.
fn cursor_of(position: &ListPosition) -> Cursor {
    let (at, path) = position.parts();
    let mut text = format!("{}:", at.as_nanosecond());
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        text.extend(chunk.invalid().iter().map(|byte| format!("%{byte:02X}")));
    }
    Cursor::new(text)
}

fn position_of(cursor: &Cursor) -> Option<ListPosition> {
    let (at, path) = cursor.as_str().split_once(':')?;
    let at = Timestamp::from_nanosecond(at.parse().ok()?).ok()?;
    let mut pieces = path.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (code, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(ListPosition::new(at, Path::new(&OsString::from_vec(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place_whatever_the_path() {
        let at = Timestamp::from_nanosecond(1_604_404_800_000_000_001).expect("a time");
        for path in [&b"/home/u/a:b/s.jsonl"[..], b"/100%/\xff\xfe/\xc3\xbc.jsonl", b""] {
            let place = ListPosition::new(at, Path::new(&OsString::from_vec(path.to_vec())));
            assert_eq!(position_of(&cursor_of(&place)), Some(place), "{path:?}");
        }
        for text in ["", "x", "9e99:/x", "1:/%4", "1:/%zz", "1:/%\u{fc}x"] {
            assert_eq!(position_of(&Cursor::new(text.to_owned())), None, "{text}");
        }
    }
}

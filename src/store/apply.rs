//! Applies a journal change to the trees: records, indexes and counters. A commit and a replay give the same result.
//!
//! This module owns the keys of all trees, and which index entries follow from which record. It does not know the
//! journal's file. The result depends only on the change and the trees.

use std::collections::BTreeMap;

use bridge_protocol::{ConversationId, UpstreamId};
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::journal::Position;
use super::keyspace::{Keyspace, TreeId, WriteBatch};
use super::packed;
use super::record::{ConversationRecord, ProcessRecord, RequestId, RestingState, TranscriptRoot};
use super::summary::Summary;
use super::value::StoredValue;

/// The version of the tree layout that this program writes.
///
/// - 2: [`TreeId::Recent`] holds a summary of each conversation.
/// - 3: the summary says whether a turn was cut short.
pub(super) const FORMAT: u32 = 3;

/// The key of [`AppliedState`] in [`TreeId::Meta`].
const APPLIED_STATE_KEY: &[u8] = b"mark";

/// Added to ranks that are change numbers, to distinguish them from ranks that are times and to sort them last. No time has
/// these bits.
const RANK_BY_NUMBER: u64 = 3 << 62;

/// The estimated overhead of an entry in the journal besides its value, in bytes.
const LINE_OVERHEAD_BYTES: u64 = 120;

/// A change in the journal. An unknown member is an error, because a compaction would drop it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct JournalChange {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) conversations: Vec<StoredValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) lineage: Vec<LineageValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) upstream: Vec<UpstreamOwner>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) requests: Vec<StoredValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) requests_removed: Vec<RequestKey>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) processes: Vec<ProcessRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) processes_removed: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) erases: bool,
}

/// A lineage entry and its position.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LineageValue {
    pub(super) id: ConversationId,
    pub(super) seq: u64,
    pub(super) value: StoredValue,
}

/// An upstream id that a conversation owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UpstreamOwner {
    pub(super) upstream_id: UpstreamId,
    pub(super) root: TranscriptRoot,
    pub(super) id: ConversationId,
}

/// The key of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RequestKey {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) conversation_id: Option<ConversationId>,
    pub(super) request_id: RequestId,
}

/// How far the trees have applied the journal. Written with each batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppliedState {
    pub(super) format: u32,
    pub(super) position: Position,
    /// The number of conversations that are not deleted.
    pub(super) conversations: u64,
    /// Estimated length of a fully compacted journal, in bytes.
    pub(super) live_bytes: u64,
    /// Whether the files still contain data that a change erased.
    #[serde(default)]
    pub(super) is_to_erase: bool,
}

/// The members of a conversation record that the indexes need.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversationHeader {
    pub(super) version: u32,
    pub(super) id: ConversationId,
    updated_at: Timestamp,
    #[serde(default)]
    revision: u64,
    /// 0 in records of earlier versions.
    #[serde(default)]
    order: u64,
    #[serde(default)]
    pub(super) created_order: u64,
    #[serde(default)]
    pub(super) deleted_at: Option<Timestamp>,
    #[serde(default)]
    begun_deletion: Option<IgnoredAny>,
    #[serde(default)]
    turn: Option<IgnoredAny>,
    #[serde(default)]
    cut: Option<IgnoredAny>,
    #[serde(default)]
    continuation: Option<IgnoredAny>,
    #[serde(default)]
    interrupts: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    waiting: Option<BTreeMap<String, IgnoredAny>>,
    #[serde(default)]
    resting: RestingState,
    // Absent if they moved to a body.
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    agent: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    title: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestHeader {
    #[serde(default)]
    conversation_id: Option<ConversationId>,
    request_id: RequestId,
    at: Timestamp,
    #[serde(default)]
    result: Option<IgnoredAny>,
    #[serde(default)]
    error: Option<IgnoredAny>,
}

impl JournalChange {
    /// Parses the change of a line and validates it, so that applying it can fail only because of the trees.
    pub(super) fn parse(change: &str) -> Result<Self, StoreError> {
        let entry: Self = serde_json::from_str(change).map_err(StoreError::unreadable("change"))?;
        for value in &entry.conversations {
            value.read_header::<ConversationHeader>("conversation")?;
        }
        for value in &entry.requests {
            value.read_header::<RequestHeader>("request")?;
        }
        Ok(entry)
    }

    /// Removes the parts that would overwrite newer data, if the trees may be ahead of the journal: conversation
    /// records older than theirs, unanswered requests that they already have, and removals.
    pub(super) fn retain_newer(&mut self, draft: &WriteBatch<'_>) -> Result<(), StoreError> {
        let mut conversations = Vec::new();
        for value in std::mem::take(&mut self.conversations) {
            let header: ConversationHeader = value.read_header("conversation")?;
            let known = conversation_header(draft, header.id)?;
            if known.is_none_or(|known| known.age() <= header.age()) {
                conversations.push(value);
            }
        }
        let mut requests = Vec::new();
        for value in std::mem::take(&mut self.requests) {
            let header: RequestHeader = value.read_header("request")?;
            if header.is_answered(&value)
                || draft
                    .get(TreeId::Requests, &request_key(&header.key()))?
                    .is_none()
            {
                requests.push(value);
            }
        }
        *self = Self {
            conversations,
            requests,
            requests_removed: Vec::new(),
            processes_removed: Vec::new(),
            ..std::mem::take(self)
        };
        Ok(())
    }
}

impl RequestHeader {
    fn key(self) -> RequestKey {
        RequestKey {
            conversation_id: self.conversation_id,
            request_id: self.request_id,
        }
    }

    /// Whether the outcome of the request is known.
    fn is_answered(&self, value: &StoredValue) -> bool {
        let has_body = ["result", "error"].iter().any(|member| value.has_body_in(member));
        has_body || self.result.is_some() || self.error.is_some()
    }
}

impl ConversationHeader {
    /// Returns a key that orders records of one conversation by age.
    fn age(&self) -> (u64, Timestamp) {
        (self.revision, self.updated_at)
    }

    /// Returns the number of the record's last change. `next` is the number of the change that writes the record.
    pub(super) fn order_of(&self, record: &ConversationRecord, next: u64) -> u64 {
        match self.age() == (record.revision, record.updated_at) {
            true => self.order,
            false => next,
        }
    }

    /// Returns a key that orders conversations by their last change. Conversations that only an earlier version has
    /// changed come first, by time.
    fn rank(&self) -> u64 {
        match self.order {
            0 => sortable_micros(self.updated_at),
            order => RANK_BY_NUMBER | order,
        }
    }
}

impl AppliedState {
    /// Creates the state of trees that have applied nothing from this journal.
    pub(super) fn at(position: Position) -> Self {
        Self {
            format: FORMAT,
            position,
            conversations: 0,
            live_bytes: 0,
            is_to_erase: false,
        }
    }

    pub(super) fn read(keyspace: &Keyspace) -> Result<Option<Self>, StoreError> {
        keyspace
            .get(TreeId::Meta, APPLIED_STATE_KEY)?
            .map(|bytes| serde_json::from_slice(&bytes).map_err(StoreError::unreadable("mark")))
            .transpose()
    }

    pub(super) fn write(&self, draft: &mut WriteBatch<'_>) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(self).map_err(StoreError::unwritable("mark"))?;
        draft.put(TreeId::Meta, APPLIED_STATE_KEY, bytes);
        Ok(())
    }

    fn grow(&mut self, by: usize) {
        self.live_bytes = self.live_bytes.saturating_add(by as u64 + LINE_OVERHEAD_BYTES);
    }

    fn shrink(&mut self, by: usize) {
        self.live_bytes = self.live_bytes.saturating_sub(by as u64 + LINE_OVERHEAD_BYTES);
    }
}

/// Applies a change to a draft. After an error, discard the draft.
pub(super) fn apply(
    draft: &mut WriteBatch<'_>,
    state: &mut AppliedState,
    entry: &JournalChange,
) -> Result<(), StoreError> {
    for value in &entry.conversations {
        put_conversation(draft, state, value)?;
    }
    for lineage in &entry.lineage {
        let bytes = lineage.value.to_bytes("lineage entry")?;
        let key = lineage_key(lineage.id, lineage.seq);
        if let Some(previous) = packed::insert(draft, TreeId::Lineage, &key, &bytes)? {
            state.shrink(previous.len());
        }
        state.grow(bytes.len());
    }
    for owner in &entry.upstream {
        let key = upstream_key(owner);
        if packed::insert(draft, TreeId::Upstream, &key, &[])?.is_none() {
            state.grow(key.len());
        }
    }
    for value in &entry.requests {
        let header: RequestHeader = value.read_header("request")?;
        let at = header.at;
        let key = header.key();
        remove_request(draft, state, &key)?;
        let bytes = value.to_bytes("request")?;
        packed::insert(draft, TreeId::RequestExpiry, &request_order_key(&key, at), &[])?;
        state.grow(bytes.len());
        draft.put(TreeId::Requests, &request_key(&key), bytes);
    }
    for key in &entry.requests_removed {
        remove_request(draft, state, key)?;
    }
    for process in &entry.processes {
        let bytes = serde_json::to_vec(process).map_err(StoreError::unwritable("process"))?;
        draft.put(TreeId::Processes, process.mark.as_bytes(), bytes);
    }
    for name in &entry.processes_removed {
        draft.remove(TreeId::Processes, name.as_bytes());
    }
    state.is_to_erase |= entry.erases;
    Ok(())
}

/// Reads the header of a conversation's record.
pub(super) fn conversation_header(
    draft: &WriteBatch<'_>,
    id: ConversationId,
) -> Result<Option<ConversationHeader>, StoreError> {
    let stored = draft.get(TreeId::Conversations, id.as_bytes())?;
    stored
        .map(|bytes| StoredValue::stored_header("conversation", &bytes))
        .transpose()
}

/// Returns whether a conversation is not deleted, given its key and value in the trees.
pub(super) fn check_conversation(key: &[u8], bytes: &[u8]) -> Result<bool, StoreError> {
    let header: ConversationHeader = StoredValue::stored_header("conversation", bytes)?;
    if header.id.as_bytes() != key {
        return Err(StoreError::DamagedValue { what: "conversation" });
    }
    Ok(header.deleted_at.is_none())
}

/// Checks that a request in the trees can be read.
pub(super) fn check_request(bytes: &[u8]) -> Result<(), StoreError> {
    StoredValue::stored_header::<RequestHeader>("request", bytes).map(drop)
}

/// Returns the key of a lineage entry. The entries of a conversation are adjacent and in order.
pub(super) fn lineage_key(id: ConversationId, seq: u64) -> Vec<u8> {
    let mut key = id.as_bytes().to_vec();
    key.extend_from_slice(&seq.to_be_bytes());
    key
}

/// Parses the key of a lineage entry.
pub(super) fn read_lineage_key(key: &[u8]) -> Option<(ConversationId, u64)> {
    let (id, seq) = key.split_first_chunk::<16>()?;
    Some((
        ConversationId::from_bytes(*id),
        u64::from_be_bytes(seq.try_into().ok()?),
    ))
}

/// Returns the common prefix of an upstream id's keys, across all roots.
pub(super) fn upstream_prefix(upstream_id: &UpstreamId) -> Vec<u8> {
    let mut key = upstream_id.as_str().as_bytes().to_vec();
    key.push(0);
    key
}

fn upstream_key(owner: &UpstreamOwner) -> Vec<u8> {
    let mut key = upstream_prefix(&owner.upstream_id);
    key.extend_from_slice(owner.root.as_str().as_bytes());
    key.push(0);
    key.extend_from_slice(owner.id.as_bytes());
    key
}

/// Parses the key of an upstream id.
pub(super) fn read_upstream_key(key: &[u8]) -> Option<UpstreamOwner> {
    let (texts, id) = key.split_last_chunk::<16>()?;
    let texts = std::str::from_utf8(texts.strip_suffix(&[0])?).ok()?;
    let (upstream_id, root) = texts.split_once('\0')?;
    Some(UpstreamOwner {
        upstream_id: UpstreamId::new(upstream_id),
        root: TranscriptRoot::new(root),
        id: ConversationId::from_bytes(*id),
    })
}

/// Returns the key of a request record.
pub(super) fn request_key(key: &RequestKey) -> Vec<u8> {
    let mut bytes = request_prefix(key.conversation_id);
    bytes.extend_from_slice(key.request_id.as_str().as_bytes());
    bytes
}

/// Returns the common prefix of a conversation's request keys: zeroes for requests that create a conversation.
pub(super) fn request_prefix(conversation_id: Option<ConversationId>) -> Vec<u8> {
    conversation_id.map_or_else(|| vec![0; 16], |id| id.as_bytes().to_vec())
}

/// Returns the key that orders a conversation's requests by time.
pub(super) fn request_order_key(key: &RequestKey, at: Timestamp) -> Vec<u8> {
    let mut bytes = request_prefix(key.conversation_id);
    bytes.extend_from_slice(&sortable_micros(at).to_be_bytes());
    bytes.extend_from_slice(key.request_id.as_str().as_bytes());
    bytes
}

/// Parses the owner of a request from its order key.
pub(super) fn read_request_owner(key: &[u8]) -> Option<Option<ConversationId>> {
    let (id, _) = key.split_first_chunk::<16>()?;
    Some((*id != [0; 16]).then(|| ConversationId::from_bytes(*id)))
}

/// Parses time and id of a request from its order key.
pub(super) fn read_request_order_key(key: &[u8]) -> Option<(u64, RequestId)> {
    let (at, request_id) = key.get(16..)?.split_first_chunk::<8>()?;
    let request_id = std::str::from_utf8(request_id).ok()?;
    Some((u64::from_be_bytes(*at), RequestId::new(request_id)))
}

/// Maps a time to a number that sorts in the same order. It has the resolution of microseconds.
pub(super) fn sortable_micros(at: Timestamp) -> u64 {
    at.as_microsecond().cast_unsigned() ^ (1 << 63)
}

fn recent_key(header: &ConversationHeader) -> [u8; 24] {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&(!header.rank()).to_be_bytes());
    key[8..].copy_from_slice(header.id.as_bytes());
    key
}

fn put_conversation(
    draft: &mut WriteBatch<'_>,
    state: &mut AppliedState,
    value: &StoredValue,
) -> Result<(), StoreError> {
    let header: ConversationHeader = value.read_header("conversation")?;
    let key = *header.id.as_bytes();
    if let Some(bytes) = draft.get(TreeId::Conversations, &key)? {
        let old: ConversationHeader = StoredValue::stored_header("conversation", &bytes)?;
        state.shrink(bytes.len());
        if old.deleted_at.is_none() {
            state.conversations = state.conversations.saturating_sub(1);
            packed::remove(draft, TreeId::Recent, &recent_key(&old))?;
        }
    }
    let is_alive = header.deleted_at.is_none();
    let has_question =
        header.interrupts.as_ref().is_some_and(|open| !open.is_empty()) || value.has_body_in("interrupts");
    let has_waiting =
        header.waiting.as_ref().is_some_and(|line| !line.is_empty()) || value.has_body_in("waiting");
    if is_alive {
        state.conversations += 1;
        packed::insert(
            draft,
            TreeId::Recent,
            &recent_key(&header),
            &summary_of(value, &header, has_question, has_waiting),
        )?;
    }
    let is_unfinished = header.turn.is_some()
        || header.begun_deletion.is_some()
        || header.continuation.is_some()
        || header.resting != RestingState::Idle
        || has_question
        || has_waiting
        || value.has_body_in("turn")
        || value.has_body_in("continuation");
    if is_alive && is_unfinished {
        draft.put(TreeId::Unfinished, &key, Vec::new());
    } else if draft.get(TreeId::Unfinished, &key)?.is_some() {
        draft.remove(TreeId::Unfinished, &key);
    }
    let bytes = value.to_bytes("conversation")?;
    state.grow(bytes.len());
    draft.put(TreeId::Conversations, &key, bytes);
    Ok(())
}

/// Packs the members that lists filter by. Returns an empty summary if one of them moved to a body or the summary is
/// too long.
fn summary_of(
    value: &StoredValue,
    header: &ConversationHeader,
    has_question: bool,
    has_waiting: bool,
) -> Vec<u8> {
    let texts = [
        ("namespace", &header.namespace),
        ("agent", &header.agent),
        ("cwd", &header.cwd),
        ("title", &header.title),
    ];
    if texts.iter().any(|(member, _)| value.has_body_in(member)) {
        return Vec::new();
    }
    let [namespace, agent, cwd, title] = texts.map(|(_, text)| text.as_deref().unwrap_or_default());
    Summary {
        resting: header.resting,
        has_question,
        is_cut_short: header.cut.is_some() || value.has_body_in("cut"),
        has_waiting,
        namespace,
        agent,
        cwd,
        title,
    }
    .to_bytes()
}

fn remove_request(
    draft: &mut WriteBatch<'_>,
    state: &mut AppliedState,
    key: &RequestKey,
) -> Result<(), StoreError> {
    let tree_key = request_key(key);
    let Some(bytes) = draft.get(TreeId::Requests, &tree_key)? else {
        return Ok(());
    };
    let old: RequestHeader = StoredValue::stored_header("request", &bytes)?;
    packed::remove(draft, TreeId::RequestExpiry, &request_order_key(key, old.at))?;
    draft.remove(TreeId::Requests, &tree_key);
    state.shrink(bytes.len());
    Ok(())
}

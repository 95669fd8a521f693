//! Queries by id, by name and by time. Each answer is a consistent snapshot, except for `branches`, `holders` and `lost_parts`: they
//! read all conversations, a page or a record at a time.
//!
//! This module decides which conversation a name refers to. It does not know how changes are made.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};
use std::sync::PoisonError;

use bridge_protocol::conversation::Parent;
use bridge_protocol::id::MIN_PREFIX_CHARS;
use bridge_protocol::link::LineageEntry;
use bridge_protocol::{ConversationId, ConversationRef, UpstreamId};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::apply::{self, ConversationHeader, RequestKey, UpstreamOwner};
use super::body::Bodies;
use super::error::{LookupError, LostPart, StoreError};
use super::keyspace::{Keyspace, TreeId, each_page};
use super::packed;
use super::record::{
    ConversationRecord, IdText, ProcessRecord, RecentCursor, RequestId, RequestRecord, ResolvedBy,
    ResolvedConversation, SalvagedRecord, TranscriptRoot,
};
use super::shared::Shared;
use super::summary::Summary;
use super::value::StoredValue;
use super::{SCAN_STEP_ENTRIES, ScanStep, Store};
use crate::chain::Chain;

/// How many candidates are reported for an ambiguous name.
const CANDIDATES_LIMIT: usize = 16;

/// The structures of a conversation that remain valid if one of their parts is lost.
const SEPARABLE_MEMBERS: &[&str] = &["settings", "waiting"];

/// How many owners of one upstream id, or of one prefix of upstream ids, are considered.
///
/// An id usually has one owner, or a few if its transcript was adopted again. Parallel forks of a transcript have
/// separate ids.
const OWNERS_LIMIT: usize = 1_024;

/// A conversation that branched off another one.
#[derive(Clone, Copy, Debug)]
pub struct ConversationBranch {
    /// Its id.
    pub id: ConversationId,
    /// The conversation that it branched off.
    pub parent: ConversationId,
    /// [`ConversationRecord::created_order`].
    pub created_order: u64,
}

/// One state of the store, for the duration of a read.
pub(super) struct View<'a> {
    keyspace: &'a Keyspace,
    bodies: Option<&'a Bodies>,
}

impl Shared {
    /// Calls `read` with one state of the store: meanwhile no batch is applied and no body is deleted. `read` must be
    /// short, and must not lock the trees again: a pending replacement of the trees would deadlock the two.
    pub(super) fn read<T, E>(&self, read: impl FnOnce(&View<'_>) -> Result<T, E>) -> Result<T, E> {
        let keyspace = self.keyspace();
        let _snapshot = self.snapshot_lock.read().unwrap_or_else(PoisonError::into_inner);
        read(&View {
            keyspace: &keyspace,
            bodies: self.bodies.as_ref(),
        })
    }
}

impl Store {
    /// Reads one state of the store, and reports a failure of the database.
    fn read<T>(&self, read: impl FnOnce(&View<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.shared
            .read(read)
            .inspect_err(|error| self.report_failure(error))
    }

    /// Returns the record of a conversation, even of a deleted one.
    ///
    /// # Errors
    /// If the record, or a body that it references, cannot be read.
    pub fn conversation(&self, id: ConversationId) -> Result<Option<ConversationRecord>, StoreError> {
        self.read(|view| view.conversation(id))
    }

    /// Returns the record of a conversation without its unreadable parts, and a list of those parts.
    ///
    /// # Errors
    /// If the record cannot be read even without them.
    pub fn salvaged_conversation(&self, id: ConversationId) -> Result<Option<SalvagedRecord>, StoreError> {
        self.read(|view| view.salvage(id))
    }

    /// Returns the conversations with unreadable body files, and the parts that are lost with them. Omits deleted
    /// conversations. Reads all bodies.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn lost_parts(&self) -> Result<Vec<(ConversationId, Vec<LostPart>)>, StoreError> {
        let mut lost = Vec::new();
        self.each_conversation(|key, _| {
            // The record may have changed since, and its former bodies may have been deleted.
            lost.extend(self.read(|view| view.lost_parts(key))?);
            Ok(())
        })?;
        Ok(lost)
    }

    /// Passes the key and the value of each conversation to `each`, deleted ones too. Reads a page at a time.
    fn each_conversation(
        &self,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let page = |from: Bound<&[u8]>| {
            self.read(|view| view.keyspace.page(TreeId::Conversations, from, SCAN_STEP_ENTRIES))
        };
        each_page(page, |pairs| {
            pairs.iter().try_for_each(|(key, value)| each(key, value))
        })
    }

    /// Finds the conversation with this name: its id, a prefix of its id, or an upstream id that it ever had.
    ///
    /// A complete id takes precedence. A name is ambiguous if it is a prefix of one conversation's id and an upstream
    /// id of another, or a prefix of several ids. Deleted conversations are included, so that a deletion never changes
    /// the meaning of a short name.
    ///
    /// # Errors
    /// See [`LookupError`].
    pub fn resolve(&self, reference: &ConversationRef) -> Result<ResolvedConversation, LookupError> {
        let resolved = self.shared.read(|view| view.resolve(reference));
        resolved.inspect_err(|lookup| {
            if let LookupError::Store(error) = lookup {
                self.report_failure(error);
            }
        })
    }

    /// Returns the conversations that have or had an upstream id, under one root or under any.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn owners(
        &self,
        upstream_id: &UpstreamId,
        root: Option<&TranscriptRoot>,
    ) -> Result<Vec<ConversationId>, StoreError> {
        let prefix = apply::upstream_prefix(upstream_id);
        let owners = self.read(|view| view.owners_with_prefix(&prefix))?;
        let ids: BTreeSet<_> = owners
            .into_iter()
            .filter(is_below(root))
            .map(|owner| owner.id)
            .collect();
        Ok(ids.into_iter().collect())
    }

    /// Returns the records of the conversations that have or had an upstream id, under one root or under any, without deleted
    /// ones. A record with lost parts is included.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn holders(
        &self,
        upstream_id: &UpstreamId,
        root: Option<&TranscriptRoot>,
    ) -> Result<Vec<ConversationRecord>, StoreError> {
        let mut holders = Vec::new();
        for owner in self.owners(upstream_id, root)? {
            let found = self.salvaged_conversation(owner)?;
            holders.extend(found.map(|found| found.record));
        }
        holders.retain(|record| record.deleted_at.is_none());
        Ok(holders)
    }

    /// Returns the upstream ids that start with this text, under one root or under any, each with a conversation that has or had
    /// it.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn sessions_with_prefix(
        &self,
        prefix: &str,
        root: Option<&TranscriptRoot>,
    ) -> Result<Vec<(UpstreamId, ConversationId)>, StoreError> {
        let owners = self.read(|view| view.owners_with_prefix(prefix.as_bytes()))?;
        let owners = owners.into_iter().filter(is_below(root));
        Ok(owners.map(|owner| (owner.upstream_id, owner.id)).collect())
    }

    /// Makes one step of a scan of all conversations after a cursor, newest first, without deleted ones. Returns the ids
    /// that `fits` accepts, at most `limit`. A step examines at most [`SCAN_STEP_ENTRIES`] conversations of one snapshot, in
    /// some tens of microseconds.
    ///
    /// `fits` gets `None` if the summary would be too long. It must not call the store.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn scan_recent(
        &self,
        after: Option<RecentCursor>,
        limit: usize,
        mut fits: impl FnMut(ConversationId, Option<Summary<'_>>) -> bool,
    ) -> Result<ScanStep, StoreError> {
        let from = after
            .as_ref()
            .map_or(Bound::Unbounded, |cursor| Bound::Excluded(cursor.0.as_slice()));
        let mut step = ScanStep {
            is_end: true,
            ..ScanStep::default()
        };
        let (mut examined, mut has_valid_keys) = (0, true);
        let visit = |key: &[u8], value: &[u8]| {
            if examined == SCAN_STEP_ENTRIES || step.found.len() >= limit {
                step.is_end = false;
                return ControlFlow::Break(());
            }
            let Ok(cursor) = <[u8; 24]>::try_from(key).map(RecentCursor) else {
                has_valid_keys = false;
                return ControlFlow::Break(());
            };
            examined += 1;
            step.first.get_or_insert(cursor);
            step.last = Some(cursor);
            let id = cursor.id();
            if fits(id, Summary::from_bytes(value)) {
                step.found.push((cursor, id));
            }
            ControlFlow::Continue(())
        };
        self.read(|view| packed::visit_from(view.keyspace, TreeId::Recent, from, visit))?;
        if !has_valid_keys {
            return Err(StoreError::DamagedChunk {
                space: TreeId::Recent.name(),
            });
        }
        Ok(step)
    }

    /// Returns the conversations that branched off others. Without deleted ones.
    ///
    /// Reads all conversations, a few hundred at a time: some tenths of a second for 100,000.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn branches(&self) -> Result<Vec<ConversationBranch>, StoreError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Header {
            #[serde(default)]
            parent: Option<Parent>,
            #[serde(default)]
            created_order: u64,
            #[serde(default)]
            deleted_at: Option<IgnoredAny>,
        }
        let mut branches = Vec::new();
        self.each_conversation(|key, bytes| {
            let header: Header = StoredValue::stored_header("conversation", bytes)?;
            if let (Some(parent), None, Ok(id)) = (header.parent, header.deleted_at, key.try_into()) {
                branches.push(ConversationBranch {
                    id: ConversationId::from_bytes(id),
                    parent: parent.conversation_id,
                    created_order: header.created_order,
                });
            }
            Ok(())
        })?;
        Ok(branches)
    }

    /// Returns at most `limit` lineage entries of a conversation after a `seq` (0: from the start), oldest first.
    ///
    /// # Errors
    /// If an entry cannot be read.
    pub fn lineage(
        &self,
        id: ConversationId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<LineageEntry>, StoreError> {
        self.read(|view| {
            // Use the salvaged record: the lineage is complete even if parts of the record are lost.
            let Some(SalvagedRecord { record, .. }) = view.salvage(id)? else {
                return Ok(Vec::new());
            };
            let mut entries = view.entries_after(id, after_seq, limit)?;
            for entry in &mut entries {
                entry.in_chain = record.chain.contains(&entry.upstream_id);
            }
            Ok(entries)
        })
    }

    /// Returns the complete lineage of a conversation, oldest first.
    ///
    /// # Errors
    /// If an entry cannot be read.
    pub fn lineage_all(&self, id: ConversationId) -> Result<Vec<LineageEntry>, StoreError> {
        self.lineage(id, 0, usize::MAX)
    }

    /// Returns the record of a request. Pass no conversation for a request that creates one.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn request(
        &self,
        conversation_id: Option<ConversationId>,
        request_id: &RequestId,
    ) -> Result<Option<RequestRecord>, StoreError> {
        let key = RequestKey {
            conversation_id,
            request_id: request_id.clone(),
        };
        self.read(|view| view.request(&key))
    }

    /// Returns the records of all requests of a conversation, or of those that create one.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn requests(
        &self,
        conversation_id: Option<ConversationId>,
    ) -> Result<Vec<RequestRecord>, StoreError> {
        let prefix = apply::request_prefix(conversation_id);
        let from = Bound::Included(prefix.as_slice());
        self.read(|view| {
            let listed = packed::page(view.keyspace, TreeId::RequestExpiry, from, &prefix, usize::MAX)?;
            let ids = listed
                .iter()
                .filter_map(|(key, _)| apply::read_request_order_key(key));
            let keys = ids.map(|(_, request_id)| RequestKey {
                conversation_id,
                request_id,
            });
            keys.filter_map(|key| view.request(&key).transpose()).collect()
        })
    }

    /// Returns all recorded processes.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn processes(&self) -> Result<Vec<ProcessRecord>, StoreError> {
        self.read(|view| {
            view.keyspace
                .page(TreeId::Processes, Bound::Unbounded, usize::MAX)
        })?
        .into_iter()
        .map(|(_, bytes)| serde_json::from_slice(&bytes).map_err(StoreError::unreadable("process")))
        .collect()
    }

    /// Returns the conversations that are not idle: those with a pending turn, an open question or a pending
    /// continuation, and limited, interrupted or failed ones.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn unfinished(&self) -> Result<Vec<ConversationId>, StoreError> {
        let pairs = self.read(|view| {
            view.keyspace
                .page(TreeId::Unfinished, Bound::Unbounded, usize::MAX)
        })?;
        Ok(pairs
            .into_iter()
            .filter_map(|(key, _)| key.try_into().ok().map(ConversationId::from_bytes))
            .collect())
    }
}

impl View<'_> {
    pub(super) fn conversation(&self, id: ConversationId) -> Result<Option<ConversationRecord>, StoreError> {
        self.record(TreeId::Conversations, "conversation", id.as_bytes())
    }

    /// Returns the readable part of a record. A lost chain is replaced by an empty one that continues the lineage.
    fn salvage(&self, id: ConversationId) -> Result<Option<SalvagedRecord>, StoreError> {
        let Some(bytes) = self.keyspace.get(TreeId::Conversations, id.as_bytes())? else {
            return Ok(None);
        };
        let value = StoredValue::from_bytes("conversation", &bytes)?;
        let (mut record, lost) =
            value.salvage::<ConversationRecord>("conversation", SEPARABLE_MEMBERS, self.bodies)?;
        if let Some(chain) = lost.iter().find(|part| part.is_within("chain")) {
            let lineage: Vec<LineageEntry> = self.entries_after(id, 0, usize::MAX)?;
            let chain =
                Chain::from_parts(Vec::new(), &lineage).map_err(|_| StoreError::LostBody(chain.clone()))?;
            record.chain = chain;
        }
        Ok(Some(SalvagedRecord { record, lost }))
    }

    /// Returns the lost parts of the conversation with this key. `None` if there are none, or the conversation is
    /// deleted.
    fn lost_parts(&self, key: &[u8]) -> Result<Option<(ConversationId, Vec<LostPart>)>, StoreError> {
        let (Some(bodies), Some(bytes)) = (self.bodies, self.keyspace.get(TreeId::Conversations, key)?)
        else {
            return Ok(None);
        };
        let value = StoredValue::from_bytes("conversation", &bytes)?;
        let lost = value.lost_parts("conversation", bodies)?;
        if lost.is_empty() {
            return Ok(None);
        }
        let header: ConversationHeader = value.read_header("conversation")?;
        Ok(header.deleted_at.is_none().then_some((header.id, lost)))
    }

    fn resolve(&self, reference: &ConversationRef) -> Result<ResolvedConversation, LookupError> {
        let mut candidates = Vec::new();
        match IdText::parse(reference) {
            IdText::Whole(id) => {
                if let Some(header) = self.header(id)? {
                    return require_single(&[header], ResolvedBy::Id);
                }
            }
            IdText::Prefix(lowest, highest) => {
                let page =
                    self.keyspace
                        .page(TreeId::Conversations, Bound::Included(&lowest), CANDIDATES_LIMIT)?;
                let page = page
                    .into_iter()
                    .take_while(|(key, _)| key.as_slice() <= highest.as_slice());
                for (_, bytes) in page {
                    candidates.push(StoredValue::stored_header("conversation", &bytes)?);
                }
            }
            IdText::Other => {}
        }
        let text = reference.as_str();
        let mut owners = self.owner_ids(&apply::upstream_prefix(&UpstreamId::new(text)))?;
        let by = match candidates.is_empty() && !owners.is_empty() {
            true => ResolvedBy::UpstreamId,
            false => ResolvedBy::Prefix,
        };
        // An exact upstream id takes precedence over ids with this prefix.
        if owners.is_empty() && text.chars().count() >= MIN_PREFIX_CHARS {
            owners = self.owner_ids(text.as_bytes())?;
        }
        let mut owner_headers = Vec::new();
        for id in owners {
            if candidates
                .iter()
                .all(|header: &ConversationHeader| header.id != id)
            {
                owner_headers.extend(self.header(id)?);
            }
        }
        // A transcript can be adopted again after its conversation was deleted. Its id then refers to the
        // conversation that exists.
        if !candidates.is_empty() || owner_headers.iter().any(|header| header.deleted_at.is_none()) {
            owner_headers.retain(|header| header.deleted_at.is_none());
        }
        candidates.extend(owner_headers);
        require_single(&candidates, by)
    }

    pub(super) fn recent_page(
        &self,
        after: Option<RecentCursor>,
        limit: usize,
    ) -> Result<Vec<(RecentCursor, SalvagedRecord)>, StoreError> {
        let from = after
            .as_ref()
            .map_or(Bound::Unbounded, |cursor| Bound::Excluded(cursor.0.as_slice()));
        let mut page = Vec::new();
        for (key, _) in packed::page(self.keyspace, TreeId::Recent, from, &[], limit)? {
            let damaged = || StoreError::DamagedChunk {
                space: TreeId::Recent.name(),
            };
            let key: [u8; 24] = key.try_into().map_err(|_| damaged())?;
            let cursor = RecentCursor(key);
            let salvaged = self.salvage(cursor.id())?.ok_or_else(damaged)?;
            page.push((cursor, salvaged));
        }
        Ok(page)
    }

    fn entries_after(
        &self,
        id: ConversationId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<LineageEntry>, StoreError> {
        let after = apply::lineage_key(id, after_seq);
        let found = packed::page(
            self.keyspace,
            TreeId::Lineage,
            Bound::Excluded(&after),
            id.as_bytes(),
            limit,
        )?;
        let entries = found.into_iter().map(|(_, bytes)| {
            let value = StoredValue::from_bytes("lineage entry", &bytes)?;
            value.read("lineage entry", self.bodies)
        });
        entries.collect()
    }

    pub(super) fn request(&self, key: &RequestKey) -> Result<Option<RequestRecord>, StoreError> {
        self.record(TreeId::Requests, "request", &apply::request_key(key))
    }

    fn record<T: DeserializeOwned>(
        &self,
        space: TreeId,
        what: &'static str,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        let stored = self.keyspace.get(space, key)?;
        stored
            .map(|bytes| StoredValue::from_bytes(what, &bytes)?.read(what, self.bodies))
            .transpose()
    }

    fn header(&self, id: ConversationId) -> Result<Option<ConversationHeader>, StoreError> {
        self.keyspace
            .get(TreeId::Conversations, id.as_bytes())?
            .map(|bytes| StoredValue::stored_header("conversation", &bytes))
            .transpose()
    }

    fn owner_ids(&self, prefix: &[u8]) -> Result<BTreeSet<ConversationId>, StoreError> {
        let owners = self.owners_with_prefix(prefix)?;
        Ok(owners.into_iter().map(|owner| owner.id).collect())
    }

    fn owners_with_prefix(&self, prefix: &[u8]) -> Result<Vec<UpstreamOwner>, StoreError> {
        let owners = packed::page(
            self.keyspace,
            TreeId::Upstream,
            Bound::Included(prefix),
            prefix,
            OWNERS_LIMIT,
        )?;
        let owners = owners.iter();
        Ok(owners
            .filter_map(|(key, _)| apply::read_upstream_key(key))
            .collect())
    }
}

/// Selects the owners of ids under one root, or of all if `root` is `None`.
fn is_below(root: Option<&TranscriptRoot>) -> impl Fn(&UpstreamOwner) -> bool {
    move |owner| root.is_none_or(|root| owner.root.is_same_folder(root))
}

fn require_single(
    candidates: &[ConversationHeader],
    by: ResolvedBy,
) -> Result<ResolvedConversation, LookupError> {
    match candidates {
        [] => Err(LookupError::NotFound),
        [only] => match only.deleted_at {
            Some(at) => Err(LookupError::Deleted { id: only.id, at }),
            None => Ok(ResolvedConversation { id: only.id, by }),
        },
        headers => {
            let deleted = headers.iter().map(|header| Some((header.deleted_at?, header.id)));
            if let Some(deleted) = deleted.collect::<Option<Vec<_>>>()
                && let Some((at, id)) = deleted.into_iter().max()
            {
                return Err(LookupError::Deleted { id, at });
            }
            let candidates = headers.iter().take(CANDIDATES_LIMIT).map(|header| header.id);
            Err(LookupError::Ambiguous {
                candidates: candidates.collect(),
                by,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{change, id, record, wait};
    use crate::store::{Change, StoreOptions, VALUE_LIMIT_BYTES};

    /// An erasure deletes a body after a reader has listed the conversations and before it reads that body.
    #[test]
    fn a_conversation_that_is_being_erased_has_not_lost_anything() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(folder.path(), StoreOptions::default()).unwrap();
        let long = ConversationRecord {
            title: "x".repeat(2 * VALUE_LIMIT_BYTES),
            ..record(1, 1)
        };
        wait(store.commit(change(long))).unwrap();
        let key = *id(1).as_bytes();
        let listed = store.read(|view| view.keyspace.get(TreeId::Conversations, &key));
        let erased = Change {
            erases: true,
            ..change(record(1, 2))
        };
        wait(store.commit(erased)).unwrap();
        let listed = StoredValue::from_bytes("conversation", &listed.unwrap().unwrap()).unwrap();
        let bodies = store.shared.bodies.as_ref().unwrap();
        assert_eq!(listed.lost_parts("conversation", bodies).unwrap().len(), 1);
        assert!(store.read(|view| view.lost_parts(&key)).unwrap().is_none());
        assert!(store.lost_parts().unwrap().is_empty());
    }
}

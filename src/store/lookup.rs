//! Queries by id, by name and by time. Each answer is a consistent snapshot.
//!
//! This module owns which names refer to which conversation. It does not know how changes are made.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};
use std::sync::{PoisonError, RwLockReadGuard};

use bridge_protocol::conversation::Parent;
use bridge_protocol::id::MIN_PREFIX_CHARS;
use bridge_protocol::link::LineageEntry;
use bridge_protocol::{ConversationId, ConversationRef, UpstreamId};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::apply::{self, ConversationHeader, RequestKey, UpstreamOwner};
use super::error::{LookupError, LostPart, StoreError};
use super::keyspace::{Keyspace, TreeId};
use super::packed;
use super::record::{
    ConversationRecord, IdText, ProcessRecord, RecentCursor, RequestId, RequestRecord, ResolvedBy,
    ResolvedConversation, SalvagedRecord, TranscriptRoot,
};
use super::shared::Shared;
use super::summary::Summary;
use super::value::StoredValue;
use super::{SCAN_STEP_ENTRIES, ScanStep};
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

impl Shared {
    pub(super) fn conversation(&self, id: ConversationId) -> Result<Option<ConversationRecord>, StoreError> {
        self.record(
            &self.keyspace(),
            TreeId::Conversations,
            "conversation",
            id.as_bytes(),
        )
    }

    pub(super) fn salvaged_conversation(
        &self,
        id: ConversationId,
    ) -> Result<Option<SalvagedRecord>, StoreError> {
        let keyspace = self.keyspace();
        let _snapshot = self.snapshot();
        self.salvage_from(&keyspace, id)
    }

    /// Returns the readable part of a record. A lost chain is replaced by an empty one that continues the lineage.
    fn salvage_from(
        &self,
        keyspace: &Keyspace,
        id: ConversationId,
    ) -> Result<Option<SalvagedRecord>, StoreError> {
        let Some(bytes) = keyspace.get(TreeId::Conversations, id.as_bytes())? else {
            return Ok(None);
        };
        let value = StoredValue::from_bytes("conversation", &bytes)?;
        let (mut record, lost) =
            value.salvage::<ConversationRecord>("conversation", SEPARABLE_MEMBERS, self.bodies.as_ref())?;
        if let Some(chain) = lost.iter().find(|part| part.is_within("chain")) {
            let lineage: Vec<LineageEntry> = self.entries_after(keyspace, id, 0, usize::MAX)?;
            let chain =
                Chain::from_parts(Vec::new(), &lineage).map_err(|_| StoreError::LostBody(chain.clone()))?;
            record.chain = chain;
        }
        Ok(Some(SalvagedRecord { record, lost }))
    }

    pub(super) fn lost_parts(&self) -> Result<Vec<(ConversationId, Vec<LostPart>)>, StoreError> {
        let Some(bodies) = &self.bodies else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        loop {
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            // Release the lock of the trees before reading files.
            let page = self
                .keyspace()
                .page(TreeId::Conversations, from, SCAN_STEP_ENTRIES)?;
            for (_, bytes) in &page {
                let value = StoredValue::from_bytes("conversation", bytes)?;
                let lost = value.lost_parts("conversation", bodies)?;
                if !lost.is_empty() {
                    let header: ConversationHeader = value.read_header("conversation")?;
                    if header.deleted_at.is_none() {
                        found.push((header.id, lost));
                    }
                }
            }
            match page.into_iter().last() {
                Some((key, _)) => last = Some(key),
                None => return Ok(found),
            }
        }
    }

    pub(super) fn resolve(&self, reference: &ConversationRef) -> Result<ResolvedConversation, LookupError> {
        let keyspace = self.keyspace();
        let _snapshot = self.snapshot();
        let mut fitting = Vec::new();
        match IdText::read(reference) {
            IdText::Whole(id) => {
                if let Some(header) = header(&keyspace, id)? {
                    return require_single(&[header], ResolvedBy::Id);
                }
            }
            IdText::Prefix(lowest, highest) => {
                let page =
                    keyspace.page(TreeId::Conversations, Bound::Included(&lowest), CANDIDATES_LIMIT)?;
                let page = page
                    .into_iter()
                    .take_while(|(key, _)| key.as_slice() <= highest.as_slice());
                for (_, bytes) in page {
                    fitting.push(StoredValue::stored_header("conversation", &bytes)?);
                }
            }
            IdText::Other => {}
        }
        let text = reference.as_str();
        let mut owners = owner_ids(&keyspace, &apply::upstream_prefix(&UpstreamId::new(text)))?;
        let by = match fitting.is_empty() && !owners.is_empty() {
            true => ResolvedBy::UpstreamId,
            false => ResolvedBy::Prefix,
        };
        // An exact upstream id takes precedence over ids with this prefix.
        if owners.is_empty() && text.chars().count() >= MIN_PREFIX_CHARS {
            owners = owner_ids(&keyspace, text.as_bytes())?;
        }
        let mut holders = Vec::new();
        for id in owners {
            if fitting.iter().all(|header: &ConversationHeader| header.id != id) {
                holders.extend(header(&keyspace, id)?);
            }
        }
        // A transcript can be adopted again after its conversation was deleted. Its id then refers to the
        // conversation that exists.
        if !fitting.is_empty() || holders.iter().any(|header| header.deleted_at.is_none()) {
            holders.retain(|header| header.deleted_at.is_none());
        }
        fitting.extend(holders);
        require_single(&fitting, by)
    }

    pub(super) fn owners(
        &self,
        upstream_id: &UpstreamId,
        root: Option<&TranscriptRoot>,
    ) -> Result<Vec<ConversationId>, StoreError> {
        let keyspace = self.keyspace();
        let _snapshot = self.snapshot();
        let prefix = match root {
            Some(root) => apply::upstream_root_prefix(upstream_id, root),
            None => apply::upstream_prefix(upstream_id),
        };
        Ok(owner_ids(&keyspace, &prefix)?.into_iter().collect())
    }

    pub(super) fn sessions_with_prefix(
        &self,
        prefix: &str,
        root: Option<&TranscriptRoot>,
    ) -> Result<Vec<(UpstreamId, ConversationId)>, StoreError> {
        let keyspace = self.keyspace();
        let _snapshot = self.snapshot();
        let found = owners_with(&keyspace, prefix.as_bytes())?;
        let found = found
            .into_iter()
            .filter(|owner| root.is_none_or(|root| owner.root == *root));
        Ok(found.map(|owner| (owner.upstream_id, owner.id)).collect())
    }

    pub(super) fn recent_page(
        &self,
        after: Option<RecentCursor>,
        limit: usize,
    ) -> Result<Vec<(RecentCursor, SalvagedRecord)>, StoreError> {
        let keyspace = self.keyspace();
        let _snapshot = self.snapshot();
        let from = after
            .as_ref()
            .map_or(Bound::Unbounded, |cursor| Bound::Excluded(cursor.0.as_slice()));
        let mut page = Vec::new();
        for (key, _) in packed::page(&keyspace, TreeId::Recent, from, &[], limit)? {
            let damaged = || StoreError::DamagedChunk {
                space: TreeId::Recent.name(),
            };
            let key: [u8; 24] = key.try_into().map_err(|_| damaged())?;
            let cursor = RecentCursor(key);
            let salvaged = self.salvage_from(&keyspace, cursor.id())?.ok_or_else(damaged)?;
            page.push((cursor, salvaged));
        }
        Ok(page)
    }

    pub(super) fn scan_recent(
        &self,
        after: Option<RecentCursor>,
        limit: usize,
        mut fits: impl FnMut(ConversationId, Option<Summary<'_>>) -> bool,
    ) -> Result<ScanStep, StoreError> {
        let keyspace = self.keyspace();
        let _snapshot = self.snapshot();
        let from = after
            .as_ref()
            .map_or(Bound::Unbounded, |cursor| Bound::Excluded(cursor.0.as_slice()));
        let mut looked = ScanStep {
            is_end: true,
            ..ScanStep::default()
        };
        let (mut seen, mut is_whole) = (0, true);
        packed::visit_from(&keyspace, TreeId::Recent, from, |key, value| {
            if seen == SCAN_STEP_ENTRIES || looked.found.len() >= limit {
                looked.is_end = false;
                return ControlFlow::Break(());
            }
            let Ok(cursor) = <[u8; 24]>::try_from(key).map(RecentCursor) else {
                is_whole = false;
                return ControlFlow::Break(());
            };
            seen += 1;
            looked.first.get_or_insert(cursor);
            looked.last = Some(cursor);
            let id = cursor.id();
            if fits(id, Summary::from_bytes(value)) {
                looked.found.push((cursor, id));
            }
            ControlFlow::Continue(())
        })?;
        if !is_whole {
            return Err(StoreError::DamagedChunk {
                space: TreeId::Recent.name(),
            });
        }
        Ok(looked)
    }

    pub(super) fn branches(&self) -> Result<Vec<ConversationBranch>, StoreError> {
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
        let keyspace = self.keyspace();
        let mut branches = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        loop {
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let page = keyspace.page(TreeId::Conversations, from, SCAN_STEP_ENTRIES)?;
            for (key, bytes) in &page {
                let header: Header = StoredValue::stored_header("conversation", bytes)?;
                if let (Some(parent), None, Ok(id)) =
                    (header.parent, header.deleted_at, key.as_slice().try_into())
                {
                    branches.push(ConversationBranch {
                        id: ConversationId::from_bytes(id),
                        parent: parent.conversation_id,
                        created_order: header.created_order,
                    });
                }
            }
            match page.into_iter().last() {
                Some((key, _)) => last = Some(key),
                None => return Ok(branches),
            }
        }
    }

    pub(super) fn lineage(
        &self,
        id: ConversationId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<LineageEntry>, StoreError> {
        let keyspace = self.keyspace();
        let _snapshot = self.snapshot();
        // Use the salvaged record: the lineage is complete even if parts of the record are lost.
        let Some(SalvagedRecord { record, .. }) = self.salvage_from(&keyspace, id)? else {
            return Ok(Vec::new());
        };
        let mut entries = self.entries_after(&keyspace, id, after_seq, limit)?;
        for entry in &mut entries {
            entry.in_chain = record.chain.contains(&entry.upstream_id);
        }
        Ok(entries)
    }

    fn entries_after(
        &self,
        keyspace: &Keyspace,
        id: ConversationId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<LineageEntry>, StoreError> {
        let after = apply::lineage_key(id, after_seq);
        let found = packed::page(
            keyspace,
            TreeId::Lineage,
            Bound::Excluded(&after),
            id.as_bytes(),
            limit,
        )?;
        let entries = found.into_iter().map(|(_, bytes)| {
            let value = StoredValue::from_bytes("lineage entry", &bytes)?;
            value.read("lineage entry", self.bodies.as_ref())
        });
        entries.collect()
    }

    pub(super) fn request(
        &self,
        conversation_id: Option<ConversationId>,
        request_id: &RequestId,
    ) -> Result<Option<RequestRecord>, StoreError> {
        let key = apply::request_key(&RequestKey {
            conversation_id,
            request_id: request_id.clone(),
        });
        self.record(&self.keyspace(), TreeId::Requests, "request", &key)
    }

    pub(super) fn requests(
        &self,
        conversation_id: Option<ConversationId>,
    ) -> Result<Vec<RequestRecord>, StoreError> {
        let keyspace = self.keyspace();
        let prefix = apply::request_prefix(conversation_id);
        let from = Bound::Included(prefix.as_slice());
        let listed = packed::page(&keyspace, TreeId::RequestExpiry, from, &prefix, usize::MAX)?;
        let ids = listed
            .iter()
            .filter_map(|(key, _)| apply::read_request_order_key(key));
        let keys = ids.map(|(_, request_id)| RequestKey {
            conversation_id,
            request_id,
        });
        let records =
            keys.map(|key| self.record(&keyspace, TreeId::Requests, "request", &apply::request_key(&key)));
        records.filter_map(Result::transpose).collect()
    }

    pub(super) fn processes(&self) -> Result<Vec<ProcessRecord>, StoreError> {
        self.keyspace()
            .page(TreeId::Processes, Bound::Unbounded, usize::MAX)?
            .into_iter()
            .map(|(_, bytes)| serde_json::from_slice(&bytes).map_err(StoreError::unreadable("process")))
            .collect()
    }

    pub(super) fn unfinished(&self) -> Result<Vec<ConversationId>, StoreError> {
        let pairs = self
            .keyspace()
            .page(TreeId::Unfinished, Bound::Unbounded, usize::MAX)?;
        Ok(pairs
            .into_iter()
            .filter_map(|(key, _)| key.try_into().ok().map(ConversationId::from_bytes))
            .collect())
    }

    fn snapshot(&self) -> RwLockReadGuard<'_, ()> {
        self.snapshot_lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn record<T: DeserializeOwned>(
        &self,
        keyspace: &Keyspace,
        space: TreeId,
        what: &'static str,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        // Bodies are deleted only while no reader has a snapshot.
        let _snapshot = self.snapshot();
        keyspace
            .get(space, key)?
            .map(|bytes| StoredValue::from_bytes(what, &bytes)?.read(what, self.bodies.as_ref()))
            .transpose()
    }
}

fn header(keyspace: &Keyspace, id: ConversationId) -> Result<Option<ConversationHeader>, StoreError> {
    keyspace
        .get(TreeId::Conversations, id.as_bytes())?
        .map(|bytes| StoredValue::stored_header("conversation", &bytes))
        .transpose()
}

fn owner_ids(keyspace: &Keyspace, prefix: &[u8]) -> Result<BTreeSet<ConversationId>, StoreError> {
    let owners = owners_with(keyspace, prefix)?;
    Ok(owners.into_iter().map(|owner| owner.id).collect())
}

fn owners_with(keyspace: &Keyspace, prefix: &[u8]) -> Result<Vec<UpstreamOwner>, StoreError> {
    let owners = packed::page(
        keyspace,
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
        several => {
            let deleted = several.iter().map(|header| Some((header.deleted_at?, header.id)));
            if let Some(deleted) = deleted.collect::<Option<Vec<_>>>()
                && let Some((at, id)) = deleted.into_iter().max()
            {
                return Err(LookupError::Deleted { id, at });
            }
            let candidates = several.iter().take(CANDIDATES_LIMIT).map(|header| header.id);
            Err(LookupError::Ambiguous {
                candidates: candidates.collect(),
                by,
            })
        }
    }
}

//! Conversations that are related by forks.

use std::collections::{HashMap, HashSet};

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{TreeAnswer, TreeMember};

use super::Registry;
use super::queries::RECORDS_PER_STEP;
use crate::conversation::error::ConversationError;
use crate::conversation::page::{PageRoom, view_for_list};

/// Limit of conversations in one answer. Far more than a drawn tree can show.
const MEMBERS_LIMIT: usize = 1_000;

/// Size limit of one answer, in bytes: half of what the socket sends.
const ANSWER_LIMIT_BYTES: usize = 16 * 1024 * 1024;

impl Registry {
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
        let mut room = PageRoom::with_bytes(ANSWER_LIMIT_BYTES);
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
                if conversations.len() == MEMBERS_LIMIT || !room.try_take(&member) {
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
}

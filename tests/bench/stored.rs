//! Fills a store with conversations, using the store's own code.

use std::path::Path;

use bridge_protocol::link::{Fidelity, LinkReason, Relation, RollCause};
use bridge_protocol::{AgentName, ConversationId, UpstreamId};
use jiff::{Timestamp, ToSpan};
use session_bridge::chain::NewLink;
use session_bridge::store::{Change, ConversationRecord, Store, StoreOptions, TranscriptRoot};

use crate::Outcome;

/// The number of changes that wait to be written at the same time.
const AT_ONCE: usize = 4_096;

/// Fills the store in this folder with conversations of one or two links. Each conversation is one second
/// newer than the previous one.
pub(crate) fn fill(folder: &Path, conversations: usize) -> Outcome<()> {
    std::fs::create_dir_all(folder)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let (store, _) = Store::open(folder, StoreOptions::default())?;
        let mut at: Timestamp = "2025-01-01T00:00:00Z".parse()?;
        let mut waiting = Vec::with_capacity(AT_ONCE);
        for number in 0..conversations {
            at = at.checked_add(1.second())?;
            waiting.push(store.commit(change(number, at)));
            if waiting.len() == AT_ONCE || number + 1 == conversations {
                for written in waiting.drain(..) {
                    written.await?;
                }
            }
        }
        store.shutdown().await?;
        Ok(())
    })
}

fn change(number: usize, at: Timestamp) -> Change {
    let id = ConversationId::mint();
    let agent = AgentName::new("loopback");
    let cwd = format!("/home/u/project-{}", number % 1_000);
    let mut record = ConversationRecord::new(id, agent.clone(), cwd.clone(), at);
    record.title = format!("What was asked first in conversation {number}");
    record.revision = 4;
    let mut change = Change::default();
    let mut from: Option<UpstreamId> = None;
    for _ in 0..=number % 2 {
        let upstream_id = UpstreamId::new(ConversationId::mint().to_string());
        let link = NewLink {
            upstream_id: upstream_id.clone(),
            agent: agent.clone(),
            cwd: cwd.clone(),
            reason: if from.is_some() {
                LinkReason::Rolled
            } else {
                LinkReason::Created
            },
            relation: if from.is_some() {
                Relation::Follows
            } else {
                Relation::Fresh
            },
            from_upstream_id: from.clone(),
            from_checkpoint_id: None,
            cause: from.as_ref().map(|_| RollCause::Limit),
            turns: 3,
            carried_turns: 0,
            written: true,
        };
        let appended = record.chain.append(link, Fidelity::Full, at);
        change
            .lineage
            .extend(appended.entries.into_iter().map(|entry| (id, entry)));
        let root = TranscriptRoot::new("/home/u/.agent");
        change.upstream.push((id, root, upstream_id.clone()));
        from = Some(upstream_id);
    }
    change.conversation = Some(record);
    change
}

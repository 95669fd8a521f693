//! Makes the goal of a climb: the head, its ancestors, and whether other conversations own those.

use bridge_protocol::link::Link;

use super::ClimbRequest;
use crate::agent::catalog::AgentEntry;
use crate::agent::pool::Lease;
use crate::chain::{self, Origins};
use crate::conversation::recovery::{Goal, Source};
use crate::conversation::services::{Services, chain_text};

/// Makes the goal of a climb from the conversation's current record.
pub(super) fn climb_goal(
    services: &Services,
    entry: &AgentEntry,
    lease: &Lease,
    request: &ClimbRequest,
    origins: &Origins,
) -> Goal {
    let record = &request.record;
    let capabilities = &lease.initialized().capabilities;
    let head = record.chain.head().cloned();
    let mut turns_after = head.as_ref().map_or(0, |head| head.turns);
    let mut ancestors = Vec::new();
    let of_head = |head: &Link| chain::ancestors(&head.upstream_id, |id| origins.get(id));
    for ancestor in record.chain.head().into_iter().flat_map(of_head) {
        // This agent cannot open a session of another agent.
        if ancestor.agent == record.agent {
            let owners = services
                .store
                .owners(&ancestor.upstream_id, Some(&entry.transcript_root()));
            let shared = match owners {
                Ok(owners) => owners.iter().any(|owner| *owner != record.id),
                Err(error) => {
                    tracing::warn!(upstream_id = %ancestor.upstream_id, error = chain_text(&error), "the owner of a session is unknown; it is not written to");
                    true
                }
            };
            ancestors.push(Source {
                shared,
                upstream_id: ancestor.upstream_id,
                until: ancestor.cut,
                turns_after,
            });
        }
        turns_after += ancestor.turns;
    }
    Goal {
        head,
        ancestors,
        min_fidelity: request.min_fidelity,
        can_resume: capabilities.resume,
        can_load: capabilities.load_session,
        can_read_transcripts: entry.copyable_transcripts().is_some(),
        refused: request.refused.clone(),
        // The resting state would not do: a failed climb sets it to `failed`, while the limit is still the cause.
        limited: record.limit.is_some(),
        was_restored: false,
    }
}

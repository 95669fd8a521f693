//! Steps of a climb for transcripts that can be read and moved back to their place, but neither copied nor cut.

use std::path::Path;

use bridge_protocol::CheckpointId;
use bridge_protocol::link::LineageEntry;

use crate::conversation::history::History;
use crate::conversation::recovery::{Goal, Inspection};
use crate::conversation::services::{Services, chain_text};
use crate::store::ConversationRecord;
use crate::transcript::dialect::Dialect;
use crate::transcript::preamble::{Missing, Preamble, TURN_LIMIT, preamble};

/// What the disk says of a head that its agent does not have. Blocks.
pub(super) fn inspect(
    services: &Services,
    (root, dialect): (&Path, &dyn Dialect),
    record: &ConversationRecord,
    lineage: &[LineageEntry],
    goal: &Goal,
) -> Inspection {
    let Some(head) = &goal.head else {
        return Inspection::default();
    };
    let id = &head.upstream_id;
    let path = dialect.find(services.session(root, &record.cwd, id)).ok();
    if let Some(command) = path.and_then(|path| dialect.archived(root, &path)) {
        // All of it is there, behind a command that is the person's to give.
        return Inspection {
            unread: Some(format!(
                "it is archived; unarchive it to continue: `{command} {id}`"
            )),
            ..Inspection::default()
        };
    }
    let history = match History::of_conversation(services, record, lineage) {
        Ok(history) => history,
        Err(error) => {
            return Inspection {
                unread: Some(chain_text(&error)),
                ..Inspection::default()
            };
        }
    };
    Inspection {
        unread: history.unreadable(id).map(str::to_owned),
        readable_turns: history.turns() as u64,
        turns_after_readable: turns_after(&history, goal),
        is_astray: dialect
            .missed_place(root, id.as_str())
            .is_ok_and(|place| place.is_some()),
        ..Inspection::default()
    }
}

/// The history as text, and the place in the head where it ends, if it ends there. Blocks.
pub(super) fn retell(
    services: &Services,
    record: &ConversationRecord,
    lineage: &[LineageEntry],
    goal: &Goal,
) -> (Option<Preamble>, Option<CheckpointId>) {
    let Ok(mut history) = History::of_conversation(services, record, lineage) else {
        return (None, None);
    };
    let turns = history.past_turns(TURN_LIMIT);
    let missing = Missing {
        before: history.turns().saturating_sub(turns.len()),
        behind: usize::try_from(turns_after(&history, goal)).unwrap_or(usize::MAX),
    };
    let head = goal.head.as_ref().map(|head| &head.upstream_id);
    let place = history.last_place().filter(|_| history.last_session() == head);
    (preamble(&turns, missing), place)
}

/// How many turns were acknowledged on the links behind the session with which the history ends.
fn turns_after(history: &History, goal: &Goal) -> u64 {
    let last = history.last_session();
    let source = goal
        .ancestors
        .iter()
        .find(|source| Some(&source.upstream_id) == last);
    source.map_or(0, |source| source.turns_after)
}

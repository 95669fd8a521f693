//! Times, counts and names in words.
//!
//! It owns how a value of the contract is called in a sentence. Pure: the present moment is passed in.

use bridge_protocol::conversation::{BranchedVia, ConversationState};
use bridge_protocol::link::{Attempt, Fidelity, LineageReason, Relation, Resumed, RollCause, Via};
use bridge_protocol::turn::FailureKind;
use bridge_protocol::{ConversationId, UpstreamId};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::output::one_line;

#[cfg(test)]
mod tests;

/// How many characters of an id are shown: enough to be looked up and hardly ever the same for two.
const SHORT_ID_CHARS: usize = 8;

/// The same of an id that begins with the time, as Codex' do: its first 8 characters are the same for a minute, and only its
/// third group is made by chance.
const SHORT_TIMED_ID_CHARS: usize = 18;

/// The beginning of a conversation's id.
pub(super) fn short_id(id: ConversationId) -> String {
    short(&id.to_string())
}

/// The beginning of any id.
pub(super) fn short(id: &str) -> String {
    let chars = match uuid_version(id) {
        Some(7) => SHORT_TIMED_ID_CHARS,
        _ => SHORT_ID_CHARS,
    };
    beginning(id, chars)
}

fn uuid_version(id: &str) -> Option<usize> {
    Uuid::try_parse(id).ok().map(|id| id.get_version_num())
}

/// So many characters of an id.
fn beginning(id: &str, chars: usize) -> String {
    // An upstream id is the agent's, and may hold anything.
    one_line(id).chars().take(chars).collect()
}

/// The beginnings of ids that are shown together, each enough to name it, also beside those that are not shown: an id of
/// which it is not known where chance is in it is shown in full.
pub(super) fn names<'a>(ids: impl Iterator<Item = &'a str> + Clone) -> impl Iterator<Item = String> {
    let apart = telling_apart(ids.clone());
    ids.map(move |id| match uuid_version(id) {
        Some(4) => beginning(id, apart),
        Some(7) => beginning(id, apart.max(SHORT_TIMED_ID_CHARS)),
        _ => one_line(id),
    })
}

/// How many characters of ids tell those apart that are shown together, as many as are always shown at least.
fn telling_apart<'a>(ids: impl Iterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    let alike = |pair: &[&str]| match pair {
        [one, other] => one
            .chars()
            .zip(other.chars())
            .take_while(|(one, other)| one == other)
            .count(),
        _ => 0,
    };
    let most = ids.windows(2).map(alike).max().unwrap_or(0);
    SHORT_ID_CHARS.max(most + 1)
}

/// How long ago, in the largest unit that fits.
pub(super) fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(at.as_second()).max(0);
    let (count, unit) = match seconds {
        0..60 => (seconds, "s"),
        60..3_600 => (seconds / 60, "min"),
        3_600..86_400 => (seconds / 3_600, "h"),
        _ => (seconds / 86_400, "d"),
    };
    format!("{count} {unit}")
}

/// A moment on the clock of the reader, and how far away it is.
pub(super) fn moment(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let local = at.to_zoned(zone.clone());
    let same_day = local.date() == now.to_zoned(zone.clone()).date();
    let clock = if same_day {
        local.strftime("%H:%M:%S").to_string()
    } else {
        local.strftime("%a %d %b %H:%M").to_string()
    };
    let seconds = at.as_second().saturating_sub(now.as_second());
    if seconds <= 0 {
        format!("{clock} (now)")
    } else {
        format!("{clock} (in {})", span(seconds))
    }
}

/// A number and its noun.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {many}")
    }
}

/// How many turns a session has: those that it brought along apart from those that ran on it.
pub(super) fn turns(carried: u64, since: u64) -> String {
    let turns = count(since, "turn", "turns");
    match carried {
        0 => turns,
        _ => format!("carries {}, {turns} since", count(carried, "turn", "turns")),
    }
}

/// What a conversation is doing, in the wire's own words, so that what is read here can be looked up there.
pub(super) fn state(state: ConversationState) -> &'static str {
    match state {
        ConversationState::Idle => "idle",
        ConversationState::Prompting => "prompting",
        ConversationState::Awaiting => "awaiting",
        ConversationState::Cancelling => "cancelling",
        ConversationState::Limited => "limited",
        ConversationState::Interrupted => "interrupted",
        ConversationState::Moving => "moving",
        ConversationState::Failed => "failed",
        _ => "in a state that this version does not know",
    }
}

/// What went wrong with a turn.
pub(super) fn failure(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::RateLimited => "usage limit",
        FailureKind::Overloaded => "the model's service is overloaded",
        FailureKind::AuthRequired => "the agent wants you to sign in",
        FailureKind::ContextOverflow => "the history no longer fits the model",
        FailureKind::Network => "the model's service could not be reached",
        FailureKind::InvalidRequest => "the model's service refused the request",
        FailureKind::AgentDied => "the agent's process ended",
        FailureKind::DaemonRestarted => "the daemon ended during the turn",
        _ => "the turn failed",
    }
}

/// What was tried to bring a session back and did not work, a line each.
pub(super) fn tried(attempts: &[Attempt]) -> impl Iterator<Item = String> {
    attempts.iter().filter_map(|attempt| {
        let error = attempt.error.as_ref()?;
        let id = attempt.upstream_id.as_ref();
        let id = id.map_or_else(String::new, |id| format!(" {}", short(id.as_str())));
        Some(format!("tried{id} ({}): {}", via(attempt.via), one_line(error)))
    })
}

/// Why an entry is in the lineage.
pub(super) fn reason(reason: LineageReason) -> &'static str {
    match reason {
        LineageReason::Created => "created",
        LineageReason::Forked => "forked",
        LineageReason::Edited => "edited",
        LineageReason::Moved => "moved",
        LineageReason::Rolled => "rolled",
        LineageReason::Adopted => "adopted",
        LineageReason::Restored => "restored",
        LineageReason::Copied => "copied",
        LineageReason::Rebuilt => "rebuilt",
        LineageReason::Undone => "undone",
        LineageReason::Reset => "reset",
        LineageReason::Deleted => "deleted",
        LineageReason::Abandoned => "abandoned",
        LineageReason::Updated => "updated",
        _ => "changed",
    }
}

/// What a link has to do with the one before it; nothing where the turns that it carries say so already.
pub(super) fn relation(relation: Relation, carried: u64) -> Option<&'static str> {
    match relation {
        Relation::Carries if carried > 0 => None,
        Relation::Carries => Some("carries the history"),
        Relation::Follows => Some("follows on it"),
        Relation::Fresh => Some("fresh"),
        _ => Some("related"),
    }
}

/// Why a conversation rolled.
pub(super) fn cause(cause: RollCause) -> &'static str {
    match cause {
        RollCause::Limit => "limit",
        RollCause::Forgotten => "forgotten",
        RollCause::Lost => "lost",
        RollCause::Damaged => "damaged",
        RollCause::Cleared => "cleared",
        RollCause::Foreign => "another program",
        RollCause::AgentDied => "agent died",
        _ => "other",
    }
}

/// How much of the history came along.
pub(super) fn fidelity(fidelity: Fidelity) -> &'static str {
    match fidelity {
        Fidelity::Full => "full",
        Fidelity::Partial => "partial",
        Fidelity::Text => "text",
        Fidelity::None => "none",
        _ => "unknown",
    }
}

/// How a session was brought back.
pub(super) fn via(via: Via) -> &'static str {
    match via {
        Via::Live => "it was still open",
        Via::Resume => "the agent resumed it",
        Via::Load => "the agent loaded it",
        Via::FreshProcess => "a new process of the agent resumed it",
        Via::Located => "found in another folder",
        Via::Archive => "restored from the kept copy",
        Via::Copied => "an exact copy under a new id",
        Via::Rebuilt => "a repaired copy under a new id",
        Via::OlderLink => "an older state of the history",
        Via::Text => "a new session that was told the history in words",
        Via::Fresh => "a new session",
        _ => "in a way that this version does not know",
    }
}

/// How a branch was made.
pub(super) fn branched(via: BranchedVia) -> &'static str {
    match via {
        BranchedVia::Native => "the agent's own fork",
        BranchedVia::Cut => "a copy of the transcript up to there",
        BranchedVia::Text => "a new session that was told the history in words",
        BranchedVia::Fresh => "a new session, there was nothing to take along",
        _ => "in a way that this version does not know",
    }
}

/// The session that a branch is, and how it was made where the daemon tells that.
pub(super) fn branch(upstream_id: &UpstreamId, via: Option<BranchedVia>) -> String {
    let how = via.map_or_else(String::new, |via| format!(" ({})", branched(via)));
    format!("session {}{how}", short(upstream_id.as_str()))
}

/// How a session was brought back, and what is missing.
pub(super) fn resumed(resumed: &Resumed) -> String {
    let how = via(resumed.via);
    let id = short(resumed.upstream_id.as_str());
    let missing = count(resumed.missing_turns, "turn", "turns");
    match resumed.fidelity {
        Fidelity::Full => format!("back in session {id} ({how}), nothing missing"),
        Fidelity::Partial if resumed.missing_turns == 0 => {
            format!("back in session {id} ({how}), not whole: sessionctl check tells what is wrong")
        }
        Fidelity::Partial => format!("back in session {id} ({how}), {missing} missing"),
        Fidelity::Text if resumed.missing_turns == 0 => {
            format!("back in session {id} ({how}): text only, without tool calls")
        }
        Fidelity::Text => {
            format!("back in session {id} ({how}): text only, without tool calls, {missing} missing")
        }
        Fidelity::None => format!("started afresh as {id}, without the history ({missing})"),
        _ => format!("resumed from {id} ({how}), {missing} missing"),
    }
}

/// A length of time, rounded to what matters.
fn span(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", (seconds + 30) / 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

//! Formats times, sizes, counts and names for people.
//!
//! It owns the words for values of the wire contract. Pure: the current time is passed in.

use std::collections::BTreeSet;

pub(super) use bridge_protocol::conversation::fork_title;
use bridge_protocol::conversation::{BranchedVia, Conversation, ConversationState};
use bridge_protocol::link::{
    Attempt, Fidelity, LineageEntry, LineageReason, Relation, Resumed, RollCause, Via,
};
use bridge_protocol::turn::{ANSWER_PROMPT, CONTINUE_PROMPT, FailureKind};
use bridge_protocol::{ConversationId, UpstreamId};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Serialize;
use uuid::Uuid;

use super::advice::Advice;
use super::output::{Look, one_line};

#[cfg(test)]
mod tests;

/// How many characters of an id are shown: enough to look it up, and almost always unique.
const SHORT_ID_CHARS: usize = 8;

/// How many characters are shown of an id that begins with a timestamp, such as Codex's. Its first 8 characters are the same
/// for a minute, and only its third group is random.
const SHORT_TIMED_ID_CHARS: usize = 18;

/// The age from which on a date is shown instead of the age.
const OLD_SECONDS: i64 = 30 * 86_400;

/// How far ahead a time is shown with only the name of its day.
const WEEK_SECONDS: i64 = 6 * 86_400;

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
    id_prefix(id, chars)
}

/// The id of a conversation, and its title if it has one.
pub(super) fn name(conversation: &Conversation) -> String {
    let title = one_line(&conversation.title);
    format!("{} {title}", short_id(conversation.id))
        .trim_end()
        .to_owned()
}

/// Like [`name`], for the middle of a sentence.
pub(super) fn name_in_sentence(conversation: &Conversation) -> String {
    let id = short_id(conversation.id);
    match one_line(&conversation.title) {
        title if title.is_empty() => id,
        title => format!("{id} ({title})"),
    }
}

/// Marks a prompt that the daemon wrote. Returns `None` for a prompt of the user.
pub(super) fn mark_daemon_prompt(prompt: &str) -> Option<String> {
    let marks = [(CONTINUE_PROMPT, "continued"), (ANSWER_PROMPT, "answer")];
    let (_, mark) = marks.iter().find(|(begins, _)| prompt.starts_with(begins))?;
    Some(format!("[{mark}] {prompt}"))
}

fn uuid_version(id: &str) -> Option<usize> {
    Uuid::try_parse(id).ok().map(|id| id.get_version_num())
}

fn id_prefix(id: &str, chars: usize) -> String {
    // An upstream id comes from the agent and may contain anything.
    one_line(id).chars().take(chars).collect()
}

/// Ids that are shown together: shortened on a terminal, otherwise in full. Each shortened id is unique, even among ids that
/// are not shown: an id that is not known to be random is shown in full.
pub(super) fn distinct_short_ids(ids: &[impl AsRef<str>], look: Look) -> Vec<String> {
    let ids = ids.iter().map(AsRef::as_ref);
    let apart = distinct_chars(ids.clone());
    let name = |id: &str| match uuid_version(id) {
        Some(4) if look.columns.is_some() => id_prefix(id, apart),
        Some(7) if look.columns.is_some() => id_prefix(id, apart.max(SHORT_TIMED_ID_CHARS)),
        _ => one_line(id),
    };
    ids.map(name).collect()
}

/// How many characters are needed to distinguish these ids, at least [`SHORT_ID_CHARS`].
fn distinct_chars<'a>(ids: impl Iterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    let alike = |pair: &[&str]| {
        let chars = pair[0].chars().zip(pair[1].chars());
        chars.take_while(|(one, other)| one == other).count()
    };
    let most = ids.windows(2).map(alike).max().unwrap_or(0);
    SHORT_ID_CHARS.max(most + 1)
}

/// The current time and the user's time zone.
pub(super) struct Clock {
    /// The current time.
    pub(super) now: Timestamp,
    /// The time zone.
    pub(super) zone: TimeZone,
}

impl Clock {
    fn local(&self, at: Timestamp) -> Zoned {
        at.to_zoned(self.zone.clone())
    }

    /// How long ago, in the largest unit that fits.
    pub(super) fn age(&self, at: Timestamp) -> String {
        let span = duration(self.now.as_second() - at.as_second());
        let largest = span.split_inclusive(' ').take(2).collect::<String>();
        largest.trim_end().to_owned()
    }

    /// A time in a table: on a terminal the age, or the date if it is old; otherwise the local date and time.
    pub(super) fn age_or_date(&self, at: Timestamp, look: Look) -> String {
        let form = match self.now.as_second() - at.as_second() {
            _ if look.columns.is_none() => "%Y-%m-%d %H:%M:%S",
            ..OLD_SECONDS => return self.age(at),
            _ => "%Y-%m-%d",
        };
        self.local(at).strftime(form).to_string()
    }

    /// A time in the shortest clear form.
    pub(super) fn short(&self, at: Timestamp) -> String {
        let [local, now] = [at, self.now].map(|at| self.local(at));
        let form = match at.as_second() - self.now.as_second() {
            _ if local.date() == now.date() => "%H:%M",
            0..WEEK_SECONDS => "%a %H:%M",
            _ if local.year() == now.year() => "%a %d %b %H:%M",
            _ => "%Y-%m-%d %H:%M",
        };
        local.strftime(form).to_string()
    }

    /// A time with seconds if it is today, otherwise with its day, and with its year if that is not the current one.
    pub(super) fn exact(&self, at: Timestamp) -> String {
        let (local, now) = (self.local(at), self.local(self.now));
        let form = match (local.date() == now.date(), local.year() == now.year()) {
            (true, _) => "%H:%M:%S",
            (_, true) => "%a %d %b %H:%M",
            _ => "%a %d %b %Y %H:%M",
        };
        local.strftime(form).to_string()
    }

    /// A time, and how far away it is.
    pub(super) fn time_and_distance(&self, at: Timestamp) -> String {
        let clock = self.exact(at);
        match at.as_second().saturating_sub(self.now.as_second()) {
            ..=0 => format!("{clock} (now)"),
            seconds => format!("{clock} (in {})", duration(seconds)),
        }
    }

    /// The local date and time.
    pub(super) fn date(&self, at: Timestamp) -> String {
        self.local(at).strftime("%Y-%m-%d %H:%M").to_string()
    }
}

/// A duration in its two largest units.
pub(super) fn duration(seconds: i64) -> String {
    let both = |(count, unit), (rest, smaller)| match rest {
        0 => format!("{count} {unit}"),
        _ => format!("{count} {unit} {rest} {smaller}"),
    };
    match seconds {
        ..60 => format!("{} s", seconds.max(0)),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => both((seconds / 3_600, "h"), (seconds % 3_600 / 60, "min")),
        _ => both((seconds / 86_400, "d"), (seconds % 86_400 / 3_600, "h")),
    }
}

/// A size in the largest unit that fits.
pub(super) fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// A number and its noun.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {many}")
    }
}

/// How many turns a session has: carried turns and turns completed on it are counted separately. A history also contains turns
/// that failed or were cancelled.
pub(super) fn session_turns(carried: u64, since: u64) -> String {
    let ran = completed_turns(carried, since);
    match carried {
        0 => ran,
        _ => format!("{}, {ran}", carried_turns(carried)),
    }
}

/// As [`session_turns`], for a session that the agent has not written yet.
pub(super) fn no_turns(carried: u64) -> String {
    match carried {
        0 => "no turn yet".to_owned(),
        _ => format!("{}, no turn yet", carried_turns(carried)),
    }
}

fn carried_turns(turns: u64) -> String {
    format!("carries {}", count(turns, "turn", "turns"))
}

fn completed_turns(carried: u64, since: u64) -> String {
    let turns = count(since, "turn completed", "turns completed");
    match carried {
        0 => turns,
        _ => format!("{turns} since"),
    }
}

/// A path, on a terminal with `~` for the user's home folder.
pub(super) fn path(path: &str, look: Look) -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let below = path
        .strip_prefix(home.trim_end_matches('/'))
        .filter(|_| !home.is_empty());
    match below.filter(|below| look.columns.is_some() && (below.is_empty() || below.starts_with('/'))) {
        Some(below) => one_line(&format!("~{below}")),
        None => one_line(path),
    }
}

/// The name of a value in the wire contract, split into words, so that users can look it up there.
pub(super) fn wire_name(value: impl Serialize) -> String {
    let name = serde_json::to_value(value).unwrap_or_default();
    let letters = name.as_str().unwrap_or("unknown").chars();
    letters.fold(String::new(), |mut words, letter| {
        if letter.is_uppercase() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
        words
    })
}

/// Why an entry is in the lineage.
pub(super) fn reason(reason: LineageReason) -> String {
    match reason {
        LineageReason::Undone => "restored by undo".to_owned(),
        other => wire_name(other),
    }
}

/// The sessions that an undo left: those that became the head after the session that it restored.
pub(super) fn sessions_left_by_undo(entries: &[LineageEntry]) -> BTreeSet<&UpstreamId> {
    let mut left = BTreeSet::new();
    for (at, entry) in entries.iter().enumerate() {
        let is_it = |before: &LineageEntry| before.upstream_id == entry.upstream_id;
        let before = entries[..at].iter().rposition(is_it);
        if entry.reason == LineageReason::Undone
            && let Some(before) = before
            // The undo of a move restores a folder.
            && entries[before].cwd == entry.cwd
        {
            left.extend(entries[before..at].iter().map(|entry| &entry.upstream_id));
        }
        left.remove(&entry.upstream_id);
    }
    left
}

/// Why a conversation rolled.
pub(super) fn cause(cause: RollCause) -> String {
    match cause {
        RollCause::Foreign => "changes by another program".to_owned(),
        other => wire_name(other),
    }
}

/// How much of the history a branch has.
pub(super) fn history_kept(fidelity: Fidelity) -> &'static str {
    match fidelity {
        Fidelity::Full => "with the whole history",
        Fidelity::Partial => "with part of the history",
        Fidelity::Text => "with the history as text, without tool calls",
        Fidelity::None => "without the history",
        _ => "with an unknown part of the history",
    }
}

/// How a session was created, how it relates to the previous one, and its turns. `after` is where it branched off, and `since`
/// is how many turns were completed on it, if known. On a narrow terminal, the parts with the lowest number are omitted first;
/// those without a number are always shown.
pub(super) fn origin(entry: &LineageEntry, after: &str, since: Option<u64>) -> Vec<(Option<u8>, String)> {
    let mut parts = vec![(None, reason(entry.reason))];
    let cause = entry.cause.map(|cause| format!("cause {}", self::cause(cause)));
    parts.extend(cause.map(|cause| (Some(1), cause)));
    let from = entry.from_upstream_id.as_ref();
    let from = from.map(|from| format!("from {}{after}", short(from.as_str())));
    parts.extend(from.map(|from| (Some(3), from)));
    if matches!(entry.reason, LineageReason::Reset | LineageReason::Deleted) {
        return parts;
    }
    let carried = (entry.carried_turns > 0).then(|| carried_turns(entry.carried_turns));
    let relation = match entry.relation {
        // The number of carried turns already shows the relation.
        Relation::Carries if carried.is_some() => None,
        Relation::Carries => Some("carries the history".to_owned()),
        Relation::Follows => Some("follows it".to_owned()),
        _ => None,
    };
    let fidelity = (entry.fidelity != Fidelity::Full).then(|| history_kept(entry.fidelity).to_owned());
    parts.extend(relation.map(|relation| (Some(0), relation)));
    parts.extend(fidelity.map(|fidelity| (None, fidelity)));
    parts.extend(carried.map(|carried| (Some(0), carried)));
    parts.extend(since.map(|since| (Some(2), completed_turns(entry.carried_turns, since))));
    parts
}

/// Whether the state alone does not show that the last turn was cut short.
pub(super) fn is_idle_after_cut(conversation: &Conversation) -> bool {
    conversation.state == ConversationState::Idle && conversation.cut_short
}

/// Why a turn failed.
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

/// Failed attempts to reopen a session, a line each.
pub(super) fn failed_attempts(attempts: &[Attempt]) -> impl Iterator<Item = String> {
    attempts.iter().filter_map(|attempt| {
        let error = attempt.error.as_ref()?;
        let id = attempt.upstream_id.as_ref();
        let id = id.map_or_else(String::new, |id| format!(" ({})", short(id.as_str())));
        let (name, _) = reopen_method(attempt.via);
        Some(format!("tried {name}{id}: {}", one_line(error)))
    })
}

/// A way to reopen a session: its name, and its result.
fn reopen_method(via: Via) -> (&'static str, &'static str) {
    match via {
        Via::Live => ("the open session", "still open"),
        Via::Resume => ("resume", "resumed by the agent"),
        Via::Load => ("load", "loaded by the agent"),
        Via::FreshProcess => ("resume in a new agent process", "resumed by a new agent process"),
        Via::Located => ("the transcript in another folder", "found in another folder"),
        Via::Archive => ("the backup", "restored from the backup"),
        Via::Copied => ("an exact copy", "an exact copy under a new id"),
        Via::Rebuilt => ("a repaired copy", "a repaired copy under a new id"),
        Via::OlderLink => ("an older state of the history", "an older state of the history"),
        Via::Text => ("the history as text", "a new session with the history as text"),
        Via::Fresh => ("a new session", "a new session"),
        _ => ("an unknown way", "in an unknown way"),
    }
}

/// How a branch was made.
fn branch_method(via: BranchedVia) -> &'static str {
    match via {
        BranchedVia::Native => "the agent's own fork",
        BranchedVia::Cut => "a copy of the transcript up to the fork point",
        BranchedVia::Text => "a new session with the history as text",
        BranchedVia::Fresh => "a new session without history",
        _ => "in an unknown way",
    }
}

/// The session of a branch, and how it was made if the daemon reports that.
pub(super) fn branch_session(upstream_id: &UpstreamId, via: Option<BranchedVia>) -> String {
    let how = via.map_or_else(String::new, |via| format!(" ({})", branch_method(via)));
    format!("session {}{how}", short(upstream_id.as_str()))
}

/// How a session was reopened, which history is missing, and how to go back to it.
pub(super) fn resume_result(resumed: &Resumed, advice: &Advice) -> String {
    let (_, how) = reopen_method(resumed.via);
    let id = short(resumed.upstream_id.as_str());
    let missing = count(resumed.missing_turns, "turn", "turns");
    let back = format!("reopened session {id} ({how})");
    let result = match (resumed.fidelity, resumed.missing_turns) {
        (Fidelity::Full, _) => format!("{back}; nothing is missing"),
        (Fidelity::Partial, 0) => format!("{back}; damaged, see: sessionctl check {id}"),
        (Fidelity::Text, 0) => format!("{back}; text only, without tool calls"),
        (Fidelity::Text, _) => format!("{back}; text only, without tool calls; {missing} missing"),
        (Fidelity::None, _) => format!("started session {id} without the history ({missing} missing)"),
        _ => format!("{back}; {missing} missing"),
    };
    match resumed.refused_head() {
        Some(refused) => format!(
            "{result}; the whole transcript of session {} is kept: once the agent opens it again, go back with: {}",
            short(refused.as_str()),
            advice.undo()
        ),
        None => result,
    }
}

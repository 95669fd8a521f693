//! When something goes out by itself: at a time that somebody named, at a reset, or after a while.

use jiff::{SignedDuration, Timestamp};

use crate::conversation::effect::Now;

/// How often one continuation goes out before it is left to a person.
pub(super) const ATTEMPTS_LIMIT: u32 = 20;

/// How long is waited where nobody knows when the limit ends, by how often it was tried, in minutes; the last for ever.
const BACKOFF_MINUTES: [i64; 4] = [1, 5, 15, 60];

/// When something goes out by itself.
#[derive(Clone, Copy)]
pub(super) struct Due {
    pub(super) at: Timestamp,
    /// When that was reckoned, unless somebody named the time.
    pub(super) since: Option<Timestamp>,
}

impl Due {
    /// At a time that somebody named; at once, where that is over.
    pub(super) fn named(at: Timestamp, now: Now) -> Self {
        let is_over = at <= now;
        Self {
            at: at.max(now),
            since: is_over.then_some(now),
        }
    }
}

/// When the next try is due: at the reset, where one is told that is still to come.
pub(super) fn next_try(resets_at: Option<Timestamp>, attempts: u32, now: Now) -> Due {
    if let Some(at) = resets_at.filter(|at| *at > now) {
        return Due { at, since: None };
    }
    let step = usize::try_from(attempts).unwrap_or(usize::MAX);
    let minutes = BACKOFF_MINUTES[step.min(BACKOFF_MINUTES.len() - 1)];
    let at = now.saturating_add(SignedDuration::from_mins(minutes));
    Due {
        at: at.unwrap_or(now),
        since: Some(now),
    }
}

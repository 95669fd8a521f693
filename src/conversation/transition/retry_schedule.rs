//! When a continuation is sent: at a reset, or after a delay.

use jiff::{SignedDuration, Timestamp};

use crate::conversation::effect::Now;

/// How often one continuation is sent before it is given up.
pub(super) const MAX_ATTEMPTS: u32 = 20;

/// How long to wait if the end of the limit is unknown, by the number of attempts, in minutes; the last value applies to
/// all further attempts.
const BACKOFF_MINUTES: [i64; 4] = [1, 5, 15, 60];

/// When the next attempt is due: at the reset, if a future one is known.
pub(super) fn next_attempt_at(resets_at: Option<Timestamp>, attempts: u32, now: Now) -> Timestamp {
    if let Some(at) = resets_at.filter(|at| *at > now) {
        return at;
    }
    let step = usize::try_from(attempts).unwrap_or(usize::MAX);
    let minutes = BACKOFF_MINUTES[step.min(BACKOFF_MINUTES.len() - 1)];
    now.saturating_add(SignedDuration::from_mins(minutes))
        .unwrap_or(now)
}

//! The backoff of an agent that keeps failing.
//!
//! It has no clock: the time is a parameter.

use std::time::Duration;

use tokio::time::Instant;

/// The waits after the first, second, … consecutive failure; the last one applies to all further ones. The first is
/// zero, because most failures are single.
const DELAYS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];

/// A process that lived this long did not fail to start.
pub(super) const STABLE_LIFETIME: Duration = Duration::from_secs(60);

/// The number of consecutive failures, and the time of the last one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    failures: usize,
    last_failure: Option<Instant>,
}

impl Backoff {
    /// Records a failed start.
    pub(super) fn record_failure(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Some(now);
    }

    /// Records the death of a started process.
    pub(super) fn record_death(&mut self, now: Instant, lived: Duration) {
        if lived >= STABLE_LIFETIME {
            *self = Self::default();
        }
        self.record_failure(now);
    }

    /// Returns how long to wait before the next start; zero if it may be tried now.
    pub(super) fn retry_in(&self, now: Instant) -> Duration {
        let (Some(last), Some(index)) = (self.last_failure, self.failures.checked_sub(1)) else {
            return Duration::ZERO;
        };
        let delay = DELAYS.get(index).or(DELAYS.last()).copied().unwrap_or_default();
        (last + delay).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_with_each_failure_in_a_row() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.retry_in(start), Duration::ZERO);
        for expected_ms in [0, 250, 1_000, 5_000, 30_000, 30_000, 30_000] {
            backoff.record_failure(start);
            assert_eq!(backoff.retry_in(start), Duration::from_millis(expected_ms));
        }
        assert_eq!(
            backoff.retry_in(start + Duration::from_secs(10)),
            Duration::from_secs(20)
        );
        assert_eq!(backoff.retry_in(start + Duration::from_secs(31)), Duration::ZERO);
    }

    #[test]
    fn a_long_life_resets_a_short_one_does_not() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.record_failure(start);
        backoff.record_failure(start);
        backoff.record_death(start, Duration::from_secs(59));
        assert_eq!(backoff.retry_in(start), Duration::from_secs(1));
        backoff.record_death(start, Duration::from_secs(60));
        assert_eq!(backoff.retry_in(start), Duration::ZERO);
    }
}

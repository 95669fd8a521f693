//! Times, and statistics over them.

use rustix::time::{ClockId, clock_gettime};

/// The current time in nanoseconds, of the clock that all processes of a machine share.
pub(crate) fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or_default() * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or_default()
}

/// The value below which this percentage of the values lie; 0 if there are none.
pub(crate) fn percentile(values: &[f64], hundredths: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len().saturating_sub(1)) * hundredths / 100;
    sorted.get(place).copied().unwrap_or_default()
}

/// The median.
pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// Runs `work` and returns its result and its duration in microseconds.
pub(crate) fn timed_us<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let begun = monotonic_ns();
    let made = work();
    (made, (monotonic_ns() - begun) as f64 / 1_000.0)
}

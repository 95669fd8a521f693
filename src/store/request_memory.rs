//! How long the store remembers requests: [`REQUEST_MEMORY_DAYS`] days, and [`REQUEST_MEMORY_COUNT`] of each
//! conversation.
//!
//! This module decides which requests expire, and owns the clock for that. It does not delete them itself.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use bridge_protocol::ConversationId;
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use super::apply::{self, RequestKey};
use super::commit::GROUP_LIMIT;
use super::error::StoreError;
use super::keyspace::{Keyspace, TreeId};
use super::packed;
use super::record::RequestRecord;

/// For how many days a request is remembered.
pub const REQUEST_MEMORY_DAYS: u64 = 7;

/// [`REQUEST_MEMORY_DAYS`] in microseconds.
pub(super) const MEMORY_MICROSECONDS: u64 = REQUEST_MEMORY_DAYS * 24 * 60 * 60 * 1_000_000;

/// How many requests of one conversation are remembered.
pub const REQUEST_MEMORY_COUNT: usize = 1_000;

/// A clock that gives a lower bound of the current time: the time of the last change of earlier runs, or the system's time if
/// that is lower, plus the time since the start. It is not affected by setting the system's clock, so a clock that is ahead
/// lets nothing expire early.
pub(super) struct MinimumClock {
    base_time: Timestamp,
    base_uptime: Duration,
}

/// Returns the time since an arbitrary point. Unlike `Instant`, it also counts the time in which the machine sleeps.
fn continuous_time() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    // It is never negative.
    Duration::try_from(time).unwrap_or_default()
}

impl MinimumClock {
    pub(super) fn starting_at(from: Timestamp) -> Self {
        Self {
            base_time: from,
            base_uptime: continuous_time(),
        }
    }

    /// Returns the lower bound of the current time.
    pub(super) fn now(&self) -> Timestamp {
        self.base_time
            .saturating_add(continuous_time().saturating_sub(self.base_uptime))
            .unwrap_or(self.base_time)
    }

    /// Returns the time before which requests are forgotten.
    pub(super) fn oldest_remembered(&self) -> u64 {
        apply::sortable_micros(self.now()).saturating_sub(MEMORY_MICROSECONDS)
    }
}

/// Returns the requests to delete when these are added: those that are expired at the time of the new ones and older
/// than `oldest_kept`, and the oldest ones beyond the maximum count. They are part of the change, so that a replay
/// deletes the same ones.
pub(super) fn expired_requests(
    keyspace: &Keyspace,
    requests: &[RequestRecord],
    oldest_kept: Option<u64>,
) -> Result<Vec<RequestKey>, StoreError> {
    let conversations: BTreeSet<Option<ConversationId>> =
        requests.iter().map(|request| request.conversation_id).collect();
    let mut forgotten = Vec::new();
    for conversation_id in conversations {
        let new: Vec<&RequestRecord> = requests
            .iter()
            .filter(|request| request.conversation_id == conversation_id)
            .collect();
        let newest = new
            .iter()
            .map(|request| apply::sortable_micros(request.at))
            .max()
            .unwrap_or_default();
        let expired = newest.saturating_sub(MEMORY_MICROSECONDS);
        let oldest_kept = oldest_kept.map_or(expired, |oldest_kept| oldest_kept.min(expired));
        let prefix = apply::request_prefix(conversation_id);
        // One page is enough: a conversation never has more requests than this.
        let limit = REQUEST_MEMORY_COUNT + GROUP_LIMIT;
        let stored = packed::page(
            keyspace,
            TreeId::RequestExpiry,
            Bound::Included(&prefix),
            &prefix,
            limit,
        )?;
        let mut stored: Vec<_> = stored
            .into_iter()
            .filter_map(|(key, _)| apply::read_request_order_key(&key))
            .filter(|(_, request_id)| new.iter().all(|request| request.request_id != *request_id))
            .collect();
        // A request with a later time than the new ones arrived earlier, while the clock was ahead.
        stored.sort_by_key(|(at, _)| *at <= newest);
        let too_many = (stored.len() + new.len()).saturating_sub(REQUEST_MEMORY_COUNT);
        let expired_here = stored
            .into_iter()
            .enumerate()
            .filter(|(index, (at, _))| *index < too_many || *at < oldest_kept);
        forgotten.extend(expired_here.map(|(_, (_, request_id))| RequestKey {
            conversation_id,
            request_id,
        }));
    }
    Ok(forgotten)
}

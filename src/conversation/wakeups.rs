//! The queue of scheduled continuations, by the time at which they are due.
//!
//! Owns their order, and the limit on how many run at a time. Times are compared with the wall clock repeatedly, so that
//! a sleeping machine or a changed clock delays nothing for long. What survives a restart is stored by the conversations.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_protocol::ConversationId;
use jiff::Timestamp;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::lock::lock;
use super::services::now;

/// After how long without a line from its agent a turn frees its slot. A tool that runs for long uses no model, and an
/// agent that hangs must not delay all others.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);

/// How often the clock is checked while a conversation waits.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// The scheduled continuations of all conversations, by the time at which they are due.
#[derive(Debug)]
pub struct WakeupQueue {
    due: Mutex<BTreeSet<(Timestamp, ConversationId)>>,
    changed: Notify,
    slots: Arc<Semaphore>,
}

/// A slot for a running continuation, of which there are few. Dropping it frees it for the next one.
#[derive(Debug)]
pub struct ContinuationSlot {
    _permit: OwnedSemaphorePermit,
    /// When the slot is freed because its agent has been silent for too long.
    expires_at: Instant,
}

impl ContinuationSlot {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        Self {
            _permit: permit,
            expires_at: Instant::now() + SILENCE_LIMIT,
        }
    }

    /// When the slot is freed, unless the agent sends something before.
    #[must_use]
    pub fn expires_at(&self) -> Instant {
        self.expires_at
    }

    /// Records that the agent sent something: the slot is kept for longer.
    pub fn note_activity(&mut self) {
        self.expires_at = Instant::now() + SILENCE_LIMIT;
    }
}

impl WakeupQueue {
    /// An empty queue, with this many slots: a thousand conversations that hit the same limit must not all hit the next one.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self {
            due: Mutex::default(),
            changed: Notify::default(),
            slots: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// Sets the time at which a conversation is woken. `None` removes it.
    pub fn set(&self, id: ConversationId, at: Option<Timestamp>) {
        let mut due = lock(&self.due);
        due.retain(|(_, waiting)| *waiting != id);
        due.extend(at.map(|at| (at, id)));
        drop(due);
        self.changed.notify_one();
    }

    /// Schedules a conversation that could not be woken for a later time, unless another time was set since.
    fn retry_later(&self, id: ConversationId, at: Timestamp) {
        let mut due = lock(&self.due);
        if !due.iter().any(|(_, waiting)| *waiting == id) {
            due.insert((at, id));
        }
    }

    /// Wakes each conversation when it is due and a slot is free. Never returns. `wake` returns whether the conversation could
    /// be woken.
    pub async fn run(&self, wake: impl Fn(ConversationId, ContinuationSlot) -> bool) {
        loop {
            let time = now();
            let next = lock(&self.due).first().copied();
            let Some((at, id)) = next else {
                self.changed.notified().await;
                continue;
            };
            let remaining = Duration::try_from(at.duration_since(time)).unwrap_or_default();
            if !remaining.is_zero() {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep(remaining.min(CLOCK_CHECK_INTERVAL)) => {}
                }
                continue;
            }
            let Ok(permit) = Arc::clone(&self.slots).acquire_owned().await else {
                return;
            };
            // The continuation may have been cancelled while it waited for a slot.
            if !lock(&self.due).remove(&(at, id)) {
                continue;
            }
            if !wake(id, ContinuationSlot::new(permit)) {
                let later = time.saturating_add(CLOCK_CHECK_INTERVAL).unwrap_or(at);
                self.retry_later(id, later);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// A silent agent does not keep others from their turn; one that sends updates keeps its slot.
    #[tokio::test(start_paused = true)]
    async fn a_place_lapses_with_the_silence_and_is_the_next_ones() {
        let wakings = WakeupQueue::new(1);
        let ids = [1, 2].map(|number| ConversationId::from_bytes([number; 16]));
        for id in ids {
            wakings.set(id, Some(Timestamp::UNIX_EPOCH));
        }
        let (woken, mut told) = mpsc::channel(8);
        let run = wakings.run(|id, place| woken.try_send((id, place)).is_ok());
        let follow = async {
            let (first, mut place) = told.recv().await.unwrap();
            assert_eq!(first, ids[0]);
            // It says a word now and then, for much longer than it may be silent.
            for _ in 0..8 {
                tokio::time::advance(SILENCE_LIMIT / 2).await;
                assert!(
                    place.expires_at() > Instant::now(),
                    "it has lapsed in spite of what it says"
                );
                place.note_activity();
            }
            assert_eq!(place.expires_at() - Instant::now(), SILENCE_LIMIT);
            tokio::time::advance(SILENCE_LIMIT).await;
            assert!(told.is_empty(), "two have one place");
            drop(place);
            let next = tokio::time::timeout(CLOCK_CHECK_INTERVAL, told.recv()).await;
            let (next, place) = next.expect("the next one has the place").unwrap();
            assert_eq!(next, ids[1]);
            // It has a silence of its own.
            assert!(place.expires_at() >= Instant::now() + SILENCE_LIMIT / 2);
        };
        tokio::select! {
            () = run => unreachable!("it runs for ever"),
            () = follow => {}
        }
    }
}

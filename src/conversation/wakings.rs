//! The queue of scheduled continuations that wait for their time.
//!
//! Owns their order, and that only a few are sent at a time. Times are of the wall clock and are compared with it again
//! and again, so that a sleeping machine or a changed clock delays nothing for long. The conversations store what
//! survives a restart.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_protocol::ConversationId;
use jiff::Timestamp;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::services::now;

/// After how long without a word of its agent a turn keeps no other one from beginning: a tool that runs for long asks no
/// model for anything, and an agent that hangs must not hold up everybody.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the clock is read while a conversation waits.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Those that wait for their time.
#[derive(Debug)]
pub struct Wakings {
    due: Mutex<BTreeSet<(Timestamp, ConversationId)>>,
    changed: Notify,
    places: Arc<Semaphore>,
}

/// One of the few slots for running continuations; dropping it frees it for the next one.
#[derive(Debug)]
pub struct Place {
    _permit: OwnedSemaphorePermit,
    /// When its agent has been silent for too long to keep it.
    lapses_at: Instant,
}

impl Place {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        Self {
            _permit: permit,
            lapses_at: Instant::now() + PATIENCE,
        }
    }

    /// When it is to be given up, unless the agent is heard before.
    #[must_use]
    pub fn lapses_at(&self) -> Instant {
        self.lapses_at
    }

    /// The agent works.
    pub fn heard(&mut self) {
        self.lapses_at = Instant::now() + PATIENCE;
    }
}

impl Wakings {
    /// An empty queue. This many may run at a time: a thousand that met the same limit must not all meet the next one.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self {
            due: Mutex::default(),
            changed: Notify::default(),
            places: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// Sets the time at which a conversation is woken, or removes it.
    pub fn set(&self, id: ConversationId, at: Option<Timestamp>) {
        let mut due = self.lock();
        due.retain(|(_, waiting)| *waiting != id);
        due.extend(at.map(|at| (at, id)));
        drop(due);
        self.changed.notify_one();
    }

    /// Wakes a conversation later that could not be woken now, unless it has set another time since.
    fn set_again(&self, id: ConversationId, at: Timestamp) {
        let mut due = self.lock();
        if !due.iter().any(|(_, waiting)| *waiting == id) {
            due.insert((at, id));
        }
    }

    /// Wakes each conversation when its time has come and a slot is free. Never returns. `wake` gets the conversation, and
    /// returns whether it could be woken.
    pub async fn run(&self, wake: impl Fn(ConversationId, Place) -> bool) {
        loop {
            let time = now();
            let Some((at, id)) = self.next() else {
                self.changed.notified().await;
                continue;
            };
            let left = Duration::try_from(at.duration_since(time)).unwrap_or_default();
            if !left.is_zero() {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep(left.min(LOOK_EVERY)) => {}
                }
                continue;
            }
            let Ok(permit) = Arc::clone(&self.places).acquire_owned().await else {
                return;
            };
            // It may have been called off while it stood in line.
            if !self.take(at, id) {
                continue;
            }
            if !wake(id, Place::new(permit)) {
                let later = time.saturating_add(LOOK_EVERY).unwrap_or(at);
                self.set_again(id, later);
            }
        }
    }

    fn next(&self) -> Option<(Timestamp, ConversationId)> {
        self.lock().first().copied()
    }

    fn take(&self, at: Timestamp, id: ConversationId) -> bool {
        self.lock().remove(&(at, id))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<(Timestamp, ConversationId)>> {
        // The set is whole after any panic: each change to it is one call.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// A silent agent does not keep others from their turn; one that sends updates keeps its slot.
    #[tokio::test(start_paused = true)]
    async fn a_place_lapses_with_the_silence_and_is_the_next_ones() {
        let wakings = Wakings::new(1);
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
                tokio::time::advance(PATIENCE / 2).await;
                assert!(
                    place.lapses_at() > Instant::now(),
                    "it has lapsed in spite of what it says"
                );
                place.heard();
            }
            assert_eq!(place.lapses_at() - Instant::now(), PATIENCE);
            tokio::time::advance(PATIENCE).await;
            assert!(told.is_empty(), "two have one place");
            drop(place);
            let next = tokio::time::timeout(LOOK_EVERY, told.recv()).await;
            let (next, place) = next.expect("the next one has the place").unwrap();
            assert_eq!(next, ids[1]);
            // It has a silence of its own.
            assert!(place.lapses_at() >= Instant::now() + PATIENCE / 2);
        };
        tokio::select! {
            () = run => unreachable!("it runs for ever"),
            () = follow => {}
        }
    }
}

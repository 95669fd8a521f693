//! The newest events, bounded in number and bytes. Pure.

use std::collections::VecDeque;

use bridge_protocol::ConversationId;

use super::EncodedEvent;

/// The limits of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// Most events.
    pub events: usize,
    /// Most bytes of their JSON.
    pub bytes: usize,
}

impl RingLimits {
    /// The limits for one conversation: there may be a thousand, and each snapshot of a running turn contains the events
    /// of a ring. A client that restarts for an update of itself and reconnects within seconds misses fewer events.
    pub const CONVERSATION: Self = Self {
        events: 4096,
        bytes: 2 * 1024 * 1024,
    };

    /// The limits for the daemon, which has one ring: as many events as may wait for one client, so that a client that
    /// lagged usually finds here what it missed. The ring stays full after a flood, so an idle daemon needs this memory.
    pub const DAEMON: Self = Self {
        events: 65_536,
        bytes: 4 * 1024 * 1024,
    };
}

/// A ring of the newest events, in the order of their numbers.
#[derive(Debug)]
pub struct Ring {
    events: VecDeque<EncodedEvent>,
    bytes: usize,
    limits: RingLimits,
    /// The number of the newest event that is no longer held. All later events are held.
    floor: u64,
}

impl Ring {
    /// An empty ring that holds everything after `floor`.
    #[must_use]
    pub fn new(floor: u64, limits: RingLimits) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            limits,
            floor,
        }
    }

    /// Adds the newest event, and removes the oldest ones if there is no room.
    pub fn push(&mut self, event: EncodedEvent) {
        self.bytes += event.len_bytes();
        self.events.push_back(event);
        while self.events.len() > self.limits.events || self.bytes > self.limits.bytes {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.len_bytes();
            self.floor = oldest.sequence;
        }
    }

    /// Removes the events of a conversation.
    pub fn forget(&mut self, conversation: ConversationId) {
        self.events.retain(|event| event.conversation != conversation);
        self.bytes = self.events.iter().map(EncodedEvent::len_bytes).sum();
    }

    /// Removes all events, because the events up to this number are incomplete.
    pub fn discard_until(&mut self, floor: u64) {
        self.events.clear();
        self.bytes = 0;
        self.floor = floor;
    }

    /// Whether everything after this number is held.
    #[must_use]
    pub fn holds_after(&self, sequence: u64) -> bool {
        sequence >= self.floor
    }

    /// The events after this number that are held.
    pub fn after(&self, sequence: u64) -> impl Iterator<Item = &EncodedEvent> {
        let start = self.events.partition_point(|event| event.sequence <= sequence);
        self.events.range(start..)
    }
}

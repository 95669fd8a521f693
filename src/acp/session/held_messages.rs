//! Messages that are held back. One limit applies to all sessions of an editor together.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::message;
use super::super::peer::Peer;
use super::Session;

/// The event until which messages are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldUntil {
    /// Until the answer that makes the session known to the editor.
    Answer,
    /// After a cancelled prompt: until the next request about the session, or the next turn. Only what the agent sends is held.
    NextTurn,
    /// Until the held messages are sent. Sending has begun.
    Sent,
}

/// The messages of one session that are held back, in order.
pub(super) struct HeldMessages {
    pub(super) until: HoldUntil,
    lines: VecDeque<Arc<str>>,
    peer: Arc<Peer>,
}

impl HeldMessages {
    pub(super) fn new(until: HoldUntil, peer: &Arc<Peer>) -> Self {
        Self {
            until,
            lines: VecDeque::new(),
            peer: Arc::clone(peer),
        }
    }

    /// Adds a message; false if too much is held back for the editor.
    pub(super) fn push(&mut self, line: &str) -> bool {
        let has_room = self.peer.hold(line.len());
        if has_room {
            self.lines.push_back(line.into());
        }
        has_room
    }

    /// Puts a message before the others.
    pub(super) fn push_first(&mut self, line: &str) {
        self.peer.hold_over_limit(line.len());
        self.lines.push_front(line.into());
    }

    pub(super) fn first(&self) -> Option<Arc<str>> {
        self.lines.front().cloned()
    }

    pub(super) fn remove_first(&mut self) {
        if let Some(line) = self.lines.pop_front() {
            self.peer.release_held(1, line.len());
        }
    }

    /// Removes and returns the matching messages.
    pub(super) fn remove(&mut self, matches: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        let lines = std::mem::take(&mut self.lines);
        let (removed, left): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| matches(line));
        self.lines = left.into();
        self.peer
            .release_held(removed.len(), removed.iter().map(|line| line.len()).sum());
        removed
    }

    /// Whether this request is held back and unsent. Once sending has begun, the first message may already be on its way.
    pub(super) fn has_unsent(&self, request: u64) -> bool {
        let on_its_way = usize::from(self.until == HoldUntil::Sent);
        let mut unsent = self.lines.iter().skip(on_its_way);
        unsent.any(|line| message::is_request(line, request))
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| &**line)
    }
}

impl Session {
    /// Waits until the messages that are held for the answer of an open request were sent.
    pub(in crate::acp) async fn wait_until_held_are_sent(&self) {
        loop {
            let sent = self.held_sent.notified();
            let holds = |until: HoldUntil| self.lock().is_held_until(until);
            if !holds(HoldUntil::Answer) && !holds(HoldUntil::Sent) {
                return;
            }
            sent.await;
        }
    }

    /// Sends the held messages. Later messages are sent immediately.
    pub(in crate::acp) async fn release(&self) {
        let _unless_sent = RestoreHoldUnlessSent(self);
        loop {
            let line = {
                let mut state = self.lock();
                let Some(held) = &mut state.held else { return };
                held.until = HoldUntil::Sent;
                let Some(line) = held.first() else {
                    state.held = None;
                    return;
                };
                line
            };
            if self.peer.outbox.push_leaving_room(&[&line]).await.is_err() {
                return;
            }
            if let Some(held) = &mut self.lock().held {
                held.remove_first();
            }
        }
    }
}

impl Drop for HeldMessages {
    fn drop(&mut self) {
        let bytes = self.lines.iter().map(|line| line.len()).sum();
        self.peer.release_held(self.lines.len(), bytes);
    }
}

/// A guard: when it is dropped, unsent messages are held until the next request or turn.
struct RestoreHoldUnlessSent<'a>(&'a Session);

impl Drop for RestoreHoldUnlessSent<'_> {
    fn drop(&mut self) {
        if let Some(held) = &mut self.0.lock().held
            && held.until == HoldUntil::Sent
        {
            held.until = HoldUntil::NextTurn;
        }
        self.0.held_sent.notify_waiters();
    }
}

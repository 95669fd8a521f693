//! Sends events to subscribers: encodes each event once, numbers it, keeps it for a while, and delivers it without
//! waiting.
//!
//! A [`Stream`] belongs to the actor of one conversation. The [`Hub`] belongs to the daemon: it numbers the events of
//! all conversations and serves subscribers to all of them. Numbers are unique in the daemon, so a cursor is valid for
//! both kinds of subscription. Nothing here waits for a subscriber: one that is too slow is sent `lagged` with its
//! last cursor, and is dropped.

mod ring;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{ConversationId, Cursor, TurnId};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use uuid::Uuid;

use super::client_request::{ClientRequest, ClientSuitability};
use super::lock::lock;
use crate::agent::envelope::Line;
use crate::agent::message::RawId;
use crate::agent::subagent;

pub use ring::{Ring, RingLimits};

/// An encoded event, as every subscriber gets it: the JSON of an `EventEnvelope`.
#[derive(Clone, Debug)]
pub struct EncodedEvent {
    /// Its number.
    pub sequence: u64,
    /// The conversation that it is about.
    pub conversation: ConversationId,
    /// The JSON text.
    pub text: Arc<str>,
    /// For an update: the range of the agent's own JSON in the text.
    update: Option<Range<usize>>,
    /// Whether the update belongs to a turn.
    is_of_turn: bool,
    /// For an update: the parameters that it came with, if they contain more than a session and the update.
    params: Option<Arc<str>>,
    /// Whether it is an update with a title that the conversation does not get.
    pub has_unused_title: bool,
    /// Whether it is an update in the session of a subagent. It has parameters and no text then.
    is_of_subagent: bool,
    /// For a snapshot: the updates of the running turn that are still held.
    turn_updates: Vec<EncodedEvent>,
}

impl EncodedEvent {
    /// An event that is not an update.
    fn new(sequence: u64, conversation: ConversationId, text: String) -> Self {
        Self {
            sequence,
            conversation,
            text: text.into(),
            update: None,
            is_of_turn: false,
            params: None,
            has_unused_title: false,
            is_of_subagent: false,
            turn_updates: Vec::new(),
        }
    }

    /// An update that an agent replays. It has no number and no envelope, because it is not an event. `handle`: the agent's own
    /// id of the session.
    pub(super) fn replayed(conversation: ConversationId, handle: &str, line: &Line) -> Option<Self> {
        let update = line.update()?;
        let is_of_subagent = line.session_id().is_some_and(|session| session != handle);
        let params = match is_of_subagent {
            true => line.params(),
            false => subagent::params_beside_update(line),
        };
        Some(Self {
            update: Some(0..update.len()),
            params: params.map(Into::into),
            is_of_subagent,
            ..Self::new(0, conversation, update.to_owned())
        })
    }

    /// Its size in bytes.
    pub(super) fn len_bytes(&self) -> usize {
        self.text.len() + self.params.as_ref().map_or(0, |params| params.len())
    }

    /// The parameters of an update in the session of a subagent. Only clients that know such sessions get it.
    #[must_use]
    pub fn subagent_params(&self) -> Option<&str> {
        self.params().filter(|_| self.is_of_subagent)
    }

    /// The parameters that the agent's update came with, byte for byte, if they contain more than a session and the update.
    #[must_use]
    pub fn params(&self) -> Option<&str> {
        self.params.as_deref()
    }

    /// The updates of the running turn that are still held, if the event is a snapshot.
    #[must_use]
    pub fn turn_updates(&self) -> &[EncodedEvent] {
        &self.turn_updates
    }

    /// The agent's update, byte for byte, if the event is one.
    #[must_use]
    pub fn update(&self) -> Option<&str> {
        self.text.get(self.update.clone()?)
    }

    /// When it happened. `None` for an update in the session of a subagent, and for one that an agent replays.
    #[must_use]
    pub fn at(&self) -> Option<Timestamp> {
        let envelope = serde_json::from_str(&self.text).ok();
        envelope.map(|envelope: EventEnvelope| envelope.at)
    }

    /// The agent's update as separate JSON.
    #[must_use]
    pub fn to_update(&self) -> Option<RawJson> {
        RawJson::from_text(self.update()?.to_owned()).ok()
    }
}

/// Whether an event was delivered to a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It was delivered.
    Delivered,
    /// The queue is full: send `lagged` and drop the subscriber.
    QueueFull,
    /// The subscriber has disconnected.
    Disconnected,
}

/// A conversation, and the number of the last event that its snapshot already covers for a subscriber to all
/// conversations.
pub type SnapshotMark = (ConversationId, u64);

/// A subscriber to events. Implemented by the room that knows the wire.
pub trait Subscriber: Send {
    /// Delivers an event without waiting.
    fn deliver(&mut self, event: &EncodedEvent) -> Delivery;

    /// Delivers one of the first events of a subscription once there is room. Returns false if the subscriber has
    /// disconnected.
    fn deliver_when_room<'a>(&'a mut self, event: &'a EncodedEvent) -> BoxFuture<'a, bool>;

    /// The subscriber missed events. Ends the subscription and sends the cursor after which the subscriber can continue; or
    /// returns the subscriber, which then gets the next events.
    fn lagged(self: Box<Self>, text: String) -> Option<Box<dyn Subscriber>>;

    /// Whether it has disconnected.
    fn is_disconnected(&self) -> bool;

    /// Whether its client is an editor. The agent may run for an editor, and an editor's snapshots also have the updates of the
    /// running turn.
    fn is_editor(&self) -> bool {
        false
    }

    /// How well its client is suited to answer a request of the agent.
    fn suitability(&self, _: &ClientRequest) -> ClientSuitability {
        ClientSuitability::Unsuited
    }

    /// Passes a suitable request on to its client.
    fn forward_request(&mut self, _: ClientRequest) {}

    /// The agent no longer waits for the answer to its request with this id. `None`: the session of all requests has ended.
    fn withdraw_requests(&mut self, _: Option<&RawId>) {}

    /// A notification of the agent that the conversation does not act on.
    fn forward_notification(&mut self, _method: &str, _params: &str) {}
}

/// A subscriber, and the number of the last event that it got.
struct ActiveSubscriber {
    subscriber: Box<dyn Subscriber>,
    last_delivered: u64,
}

impl ActiveSubscriber {
    /// Delivers the events that precede the live ones. Drops the subscriber if they cannot be delivered.
    fn with_backlog<'a>(
        mut self,
        events: impl IntoIterator<Item = &'a EncodedEvent>,
        lagged_text: impl Fn(&EncodedEvent, u64) -> String,
    ) -> Option<Self> {
        for event in events {
            match self.subscriber.deliver(event) {
                Delivery::Delivered => self.last_delivered = self.last_delivered.max(event.sequence),
                Delivery::QueueFull => {
                    self.subscriber.lagged(lagged_text(event, self.last_delivered));
                    return None;
                }
                Delivery::Disconnected => return None,
            }
        }
        Some(self)
    }

    /// Delivers an event, and records its number.
    fn deliver(&mut self, event: &EncodedEvent) -> Delivery {
        let delivery = self.subscriber.deliver(event);
        if delivery == Delivery::Delivered {
            self.last_delivered = event.sequence;
        }
        delivery
    }
}

/// The newest events, and the subscribers who get the next ones: those of one conversation, or of all.
struct Channel {
    ring: Ring,
    subscribers: Vec<ActiveSubscriber>,
}

impl Channel {
    fn new(floor: u64, limits: RingLimits) -> Self {
        Self {
            ring: Ring::new(floor, limits),
            subscribers: Vec::new(),
        }
    }

    /// Delivers an event to every subscriber, and holds it. A subscriber that does not take it is dropped and, if still
    /// connected, gets `lagged`.
    fn publish(&mut self, event: EncodedEvent, lagged_text: impl Fn(u64) -> String) {
        let mut index = 0;
        while let Some(active) = self.subscribers.get_mut(index) {
            match active.deliver(&event) {
                Delivery::Delivered => index += 1,
                Delivery::QueueFull => {
                    let active = self.subscribers.remove(index);
                    active.subscriber.lagged(lagged_text(active.last_delivered));
                }
                Delivery::Disconnected => {
                    self.subscribers.remove(index);
                }
            }
        }
        self.ring.push(event);
    }

    /// Events up to the number `lost` are missing: notifies every subscriber, and holds no earlier ones.
    fn mark_all_lagged(&mut self, lost: u64, lagged_text: impl Fn(u64) -> String) {
        self.ring.discard_until(lost);
        let notify = |active: ActiveSubscriber| {
            let text = lagged_text(active.last_delivered);
            Some(ActiveSubscriber {
                subscriber: active.subscriber.lagged(text)?,
                last_delivered: lost,
            })
        };
        self.subscribers = self.subscribers.drain(..).filter_map(notify).collect();
    }
}

/// The daemon's part of events: their numbers, and the subscribers to all conversations.
pub struct Hub {
    epoch: String,
    last: AtomicU64,
    conversation_limits: RingLimits,
    state: Mutex<HubState>,
}

struct HubState {
    channel: Channel,
    /// The conversation of the newest event.
    newest: Option<ConversationId>,
}

impl Hub {
    /// A hub for a new run of the daemon. `daemon` limits its ring, `conversation` the ring of each conversation.
    #[must_use]
    pub fn new(daemon: RingLimits, conversation: RingLimits) -> Arc<Self> {
        let epoch = Uuid::new_v4().simple().to_string().chars().take(12).collect();
        Arc::new(Self {
            epoch,
            last: AtomicU64::new(0),
            conversation_limits: conversation,
            state: Mutex::new(HubState {
                channel: Channel::new(0, daemon),
                newest: None,
            }),
        })
    }

    /// The cursor of an event with this number.
    #[must_use]
    pub fn cursor(&self, sequence: u64) -> Cursor {
        Cursor::new(format!("{}-{sequence}", self.epoch))
    }

    /// The number of a cursor, if the cursor belongs to this run of the daemon.
    #[must_use]
    pub fn sequence_of(&self, cursor: &Cursor) -> Option<u64> {
        let (epoch, sequence) = cursor.as_str().rsplit_once('-')?;
        if epoch != self.epoch {
            return None;
        }
        sequence
            .parse()
            .ok()
            .filter(|sequence| *sequence <= self.last.load(Ordering::Relaxed))
    }

    /// The number of the last event of any conversation.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Adds a subscriber to all conversations. It first gets the events after `after`, if they are still held, or else the
    /// events since its snapshots were made; then live events. `since`: the number of the last event before the first
    /// snapshot was requested.
    pub fn subscribe(
        &self,
        subscriber: Box<dyn Subscriber>,
        after: Option<&Cursor>,
        shown: &[SnapshotMark],
        since: u64,
        at: &str,
    ) {
        let mut all = self.lock();
        let held = after
            .and_then(|cursor| self.sequence_of(cursor))
            .filter(|from| all.channel.ring.holds_after(*from));
        let last = held.unwrap_or(since);
        if !all.channel.ring.holds_after(last)
            && let Some(newest) = all.newest
        {
            // The snapshots took so long that the ring no longer holds the events that came meanwhile.
            subscriber.lagged(self.lagged_text(newest, last, at));
            return;
        }
        // Events that a snapshot already covers are not sent again.
        let is_shown = |event: &&EncodedEvent| {
            let mut shown = shown.iter();
            shown.any(|(conversation, sequence)| {
                *conversation == event.conversation && *sequence >= event.sequence
            })
        };
        let missed = all
            .channel
            .ring
            .after(last)
            .filter(|event| held.is_some() || !is_shown(event));
        let active = ActiveSubscriber {
            subscriber,
            last_delivered: last,
        };
        let active = active.with_backlog(missed, |event, last| {
            self.lagged_text(event.conversation, last, at)
        });
        let last = self.last();
        let active = active.map(|active| ActiveSubscriber {
            last_delivered: last,
            ..active
        });
        all.channel.subscribers.extend(active);
    }

    /// The events of one conversation after this number. `None` if not all of them are held.
    fn after(&self, sequence: u64, conversation: ConversationId) -> Option<Vec<EncodedEvent>> {
        let all = self.lock();
        let held = all.channel.ring.holds_after(sequence);
        let events = all.channel.ring.after(sequence);
        let own = events.filter(|event| event.conversation == conversation);
        held.then(|| own.cloned().collect())
    }

    /// Whether everything after this number is held.
    #[must_use]
    pub fn holds_after(&self, sequence: u64) -> bool {
        self.lock().channel.ring.holds_after(sequence)
    }

    /// Sends an event of a conversation that has no task to the subscribers to all conversations.
    pub fn announce(&self, conversation: ConversationId, event: &Event, at: &str) {
        let sequence = self.next();
        let text = self.event_text(conversation, sequence, at, event);
        self.publish(EncodedEvent::new(sequence, conversation, text), at);
    }

    /// A snapshot of a conversation: an event for one subscriber only, with the number of the last event that was sent.
    #[must_use]
    pub fn snapshot(&self, conversation: ConversationId, event: &Event, at: &str) -> EncodedEvent {
        let sequence = self.last();
        let text = self.event_text(conversation, sequence, at, event);
        EncodedEvent::new(sequence, conversation, text)
    }

    fn mark_all_lagged(&self, conversation: ConversationId, lost: u64, at: &str) {
        let mut all = self.lock();
        all.newest = Some(conversation);
        let lagged_text = |last| self.lagged_text(conversation, last, at);
        all.channel.mark_all_lagged(lost, lagged_text);
    }

    fn publish(&self, event: EncodedEvent, at: &str) {
        let conversation = event.conversation;
        let mut all = self.lock();
        all.newest = Some(conversation);
        let lagged_text = |last| self.lagged_text(conversation, last, at);
        all.channel.publish(event, lagged_text);
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        lock(&self.state)
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The JSON of the `lagged` event for a subscriber. It has no number of its own.
    fn lagged_text(&self, conversation: ConversationId, last: u64, at: &str) -> String {
        let cursor = self.cursor(last);
        self.event_text(conversation, last, at, &Event::Lagged { cursor })
    }

    /// The JSON of an envelope. `at` is an RFC 3339 time.
    fn event_text(&self, conversation: ConversationId, sequence: u64, at: &str, event: &Event) -> String {
        let json = serde_json::to_string(event).unwrap_or_else(|error| {
            tracing::error!(kind = event.kind(), %error, "an event could not be written as JSON");
            "null".to_owned()
        });
        let mut text = self.envelope_start(conversation, sequence, at, json.len() + 1);
        text.push_str(&json);
        text.push('}');
        text
    }

    /// The JSON of an envelope up to its event, with room for so many more bytes.
    fn envelope_start(&self, conversation: ConversationId, sequence: u64, at: &str, room: usize) -> String {
        let mut text = String::with_capacity(at.len() + 144 + room);
        // Writing to a String does not fail.
        let _written = write!(
            text,
            "{{\"conversationId\":\"{conversation}\",\"cursor\":\"{}-{sequence}\",\"at\":\"{at}\",\"event\":",
            self.epoch
        );
        text
    }
}

/// The events of one conversation.
pub struct Stream {
    hub: Arc<Hub>,
    conversation: ConversationId,
    channel: Channel,
    /// The number before the first update of the running turn.
    turn_start: u64,
}

impl Stream {
    /// The stream of a conversation whose task begins now.
    #[must_use]
    pub fn new(hub: Arc<Hub>, conversation: ConversationId) -> Self {
        let turn_start = hub.last();
        Self {
            channel: Channel::new(turn_start, hub.conversation_limits),
            hub,
            conversation,
            turn_start,
        }
    }

    /// Sends an event to all subscribers. `at` is an RFC 3339 time.
    pub fn emit(&mut self, event: &Event, at: &str) {
        if matches!(event, Event::Deleted {}) {
            // No client that comes back later gets what the conversation said.
            self.hub.lock().channel.ring.forget(self.conversation);
        }
        let sequence = self.hub.next();
        if matches!(event, Event::PromptAccepted { .. }) {
            self.turn_start = sequence;
        }
        let text = self.hub.event_text(self.conversation, sequence, at, event);
        self.publish(EncodedEvent::new(sequence, self.conversation, text), at);
    }

    /// Sends an update of the agent, byte for byte. `params`: the parameters that it came with, if they contain more.
    /// `has_unused_title`: whether it has a title that the conversation does not get.
    pub fn emit_update(
        &mut self,
        turn: Option<&TurnId>,
        update: &str,
        params: Option<&str>,
        has_unused_title: bool,
        at: &str,
    ) {
        let sequence = self.hub.next();
        let room = update.len() + 96;
        let mut text = self.hub.envelope_start(self.conversation, sequence, at, room);
        text.push_str("{\"type\":\"update\",");
        if let Some(turn) = turn {
            // Turn ids are UUIDs made by the daemon, so they need no escaping.
            text.push_str("\"turnId\":\"");
            text.push_str(turn.as_str());
            text.push_str("\",");
        }
        text.push_str("\"update\":");
        let start = text.len();
        text.push_str(update);
        let end = text.len();
        text.push_str("}}");
        self.publish(
            EncodedEvent {
                update: Some(start..end),
                is_of_turn: turn.is_some(),
                params: params.map(Into::into),
                has_unused_title,
                ..EncodedEvent::new(sequence, self.conversation, text)
            },
            at,
        );
    }

    /// Sends an update in the session of a subagent, with the parameters that it came with.
    pub fn emit_update_of_subagent(&mut self, is_of_turn: bool, params: &str, at: &str) {
        let sequence = self.hub.next();
        let event = EncodedEvent {
            is_of_turn,
            params: Some(params.into()),
            is_of_subagent: true,
            ..EncodedEvent::new(sequence, self.conversation, String::new())
        };
        self.publish(event, at);
    }

    /// Passes a request of the agent to the subscriber whose client is suited best. Returns the request if no client is suited.
    pub fn forward_request(&mut self, request: ClientRequest) -> Result<(), ClientRequest> {
        let subscribers = self.channel.subscribers.iter_mut();
        let suited = subscribers.map(|active| (active.subscriber.suitability(&request), active));
        let best = suited
            .filter(|(suits, _)| *suits > ClientSuitability::Unsuited)
            .max_by_key(|(suits, _)| *suits);
        match best {
            Some((_, active)) => active.subscriber.forward_request(request),
            None => return Err(request),
        }
        Ok(())
    }

    /// Withdraws a request of the agent. `None`: all of them.
    pub fn withdraw_requests(&mut self, id: Option<&RawId>) {
        for active in &mut self.channel.subscribers {
            active.subscriber.withdraw_requests(id);
        }
    }

    /// Passes a notification of the agent to the subscribers.
    pub fn forward_notification(&mut self, method: &str, params: &str) {
        for active in &mut self.channel.subscribers {
            active.subscriber.forward_notification(method, params);
        }
    }

    /// The number of this cursor, if all later events are still held, here or in the daemon's ring. The daemon's ring goes
    /// back further unless other conversations have many events.
    #[must_use]
    pub fn holds_after(&self, cursor: &Cursor) -> Option<u64> {
        self.hub
            .sequence_of(cursor)
            .filter(|from| self.channel.ring.holds_after(*from) || self.hub.holds_after(*from))
    }

    fn missed_after(&self, sequence: u64) -> Option<Vec<EncodedEvent>> {
        if self.channel.ring.holds_after(sequence) {
            return Some(self.channel.ring.after(sequence).cloned().collect());
        }
        self.hub.after(sequence, self.conversation)
    }

    /// Adds a subscriber. It first gets exactly the events after `after` or, without `after`, the snapshot; then live events.
    /// If the events after `after` are no longer held, it gets `lagged`.
    pub fn subscribe(
        &mut self,
        subscriber: Box<dyn Subscriber>,
        after: Option<u64>,
        snapshot: Option<&EncodedEvent>,
        at: &str,
    ) {
        let last = after.unwrap_or_else(|| self.hub.last());
        let backlog = match after {
            Some(from) => self.missed_after(from),
            None => Some(snapshot.into_iter().cloned().collect()),
        };
        let Some(backlog) = backlog else {
            subscriber.lagged(self.hub.lagged_text(self.conversation, last, at));
            return;
        };
        let lagged = |_: &EncodedEvent, last| self.hub.lagged_text(self.conversation, last, at);
        let seat = ActiveSubscriber {
            subscriber,
            last_delivered: last,
        }
        .with_backlog(&backlog, lagged);
        self.channel.subscribers.extend(seat);
    }

    /// A snapshot for one subscriber, with the updates of the running turn that are still held.
    #[must_use]
    pub fn snapshot(&self, event: &Event, turn_updates: Vec<EncodedEvent>, at: &str) -> EncodedEvent {
        EncodedEvent {
            turn_updates,
            ..self.hub.snapshot(self.conversation, event, at)
        }
    }

    /// The updates of the running turn that are still held, and whether older ones are missing.
    #[must_use]
    pub fn turn_updates(&self) -> (Vec<EncodedEvent>, bool) {
        let truncated = !self.channel.ring.holds_after(self.turn_start);
        let held = self.channel.ring.after(self.turn_start);
        (
            held.filter(|event| event.is_of_turn).cloned().collect(),
            truncated,
        )
    }

    /// Lines of the agent were lost, because it was faster than the conversation. Notifies every subscriber, and treats all
    /// earlier cursors as no longer held.
    pub fn mark_all_lagged(&mut self, at: &str) {
        // The missing events are represented by a number that no event has.
        let lost = self.hub.next();
        let (hub, conversation) = (&self.hub, self.conversation);
        self.channel
            .mark_all_lagged(lost, |last| hub.lagged_text(conversation, last, at));
        hub.mark_all_lagged(conversation, lost, at);
    }

    /// Whether the conversation has subscribers; removes those that have disconnected.
    pub fn has_subscribers(&mut self) -> bool {
        self.channel
            .subscribers
            .retain(|seat| !seat.subscriber.is_disconnected());
        !self.channel.subscribers.is_empty()
    }

    /// Whether an editor is connected.
    pub fn has_editors(&mut self) -> bool {
        self.has_subscribers()
            && self
                .channel
                .subscribers
                .iter()
                .any(|seat| seat.subscriber.is_editor())
    }

    fn publish(&mut self, event: EncodedEvent, at: &str) {
        let (hub, conversation) = (&self.hub, self.conversation);
        let lagged_text = |last| hub.lagged_text(conversation, last, at);
        self.channel.publish(event.clone(), lagged_text);
        hub.publish(event, at);
    }
}

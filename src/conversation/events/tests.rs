//! Cursors, replay, snapshots and lag, for subscribers of one conversation and of all.

use std::sync::{Arc, Mutex};

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::EventEnvelope;
use bridge_protocol::raw::PromptContent;

use futures_util::future::BoxFuture;

use super::*;

const AT: &str = "2026-11-20T22:00:00Z";

/// What one subscriber was told.
#[derive(Clone, Default)]
struct Mailbox {
    told: Arc<Mutex<Vec<String>>>,
    room: Arc<Mutex<Option<usize>>>,
}

impl Mailbox {
    /// One that takes everything.
    fn new() -> Self {
        Self::default()
    }

    /// One that has room for so many events.
    fn with_room(events: usize) -> Self {
        let mailbox = Self::default();
        *mailbox.room.lock().unwrap() = Some(events);
        mailbox
    }

    fn seat(&self) -> Box<dyn Subscriber> {
        Box::new(self.clone())
    }

    fn envelopes(&self) -> Vec<EventEnvelope> {
        self.told
            .lock()
            .unwrap()
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect()
    }

    /// The kinds of what was told; a state by its name.
    fn kinds(&self) -> Vec<String> {
        let kind = |envelope: &EventEnvelope| match &envelope.event {
            Event::StateChanged { state } => {
                serde_json::to_value(state).unwrap().as_str().unwrap().to_owned()
            }
            other => other.kind().to_owned(),
        };
        self.envelopes().iter().map(kind).collect()
    }

    fn last_cursor(&self) -> Cursor {
        self.envelopes().last().unwrap().cursor.clone()
    }
}

impl Subscriber for Mailbox {
    fn deliver(&mut self, event: &EncodedEvent) -> Delivery {
        if let Some(room) = self.room.lock().unwrap().as_mut() {
            if *room == 0 {
                return Delivery::QueueFull;
            }
            *room -= 1;
        }
        self.told.lock().unwrap().push(event.text.to_string());
        Delivery::Delivered
    }

    fn deliver_when_room<'a>(&'a mut self, event: &'a EncodedEvent) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.deliver(event) == Delivery::Delivered })
    }

    fn lagged(self: Box<Self>, text: String) -> Option<Box<dyn Subscriber>> {
        self.told.lock().unwrap().push(text);
        None
    }

    fn is_disconnected(&self) -> bool {
        false
    }
}

const STATES: [ConversationState; 6] = [
    ConversationState::Idle,
    ConversationState::Prompting,
    ConversationState::Awaiting,
    ConversationState::Cancelling,
    ConversationState::Limited,
    ConversationState::Failed,
];

fn state(number: usize) -> Event {
    Event::StateChanged {
        state: STATES[number],
    }
}

fn id(number: u8) -> ConversationId {
    ConversationId::from_bytes([number; 16])
}

fn hub_of(events: usize) -> Arc<Hub> {
    let limits = RingLimits {
        events,
        bytes: 1 << 20,
    };
    Hub::new(limits, limits)
}

fn stream_of(events: usize) -> Stream {
    Stream::new(hub_of(events), id(1))
}

fn accepted(turn: &str) -> Event {
    Event::PromptAccepted {
        turn_id: turn.into(),
        prompt: PromptContent::text("hello"),
    }
}

fn snapshot(stream: &Stream) -> EncodedEvent {
    stream.snapshot(&Event::Closed {}, Vec::new(), AT)
}

/// Subscribes as a caller with this cursor does: behind it where it is held, else with a snapshot (here: `closed`).
fn subscribe(stream: &mut Stream, mailbox: &Mailbox, after: Option<&Cursor>) {
    let held = after.and_then(|cursor| stream.holds_after(cursor));
    let snapshot = snapshot(stream);
    stream.subscribe(mailbox.seat(), held, Some(&snapshot), AT);
}

#[test]
fn cursors_of_another_life_of_the_future_and_of_nobody_are_not_held() {
    let mut stream = stream_of(8);
    stream.emit(&state(0), AT);
    let other = hub_of(8);
    let ours = stream.hub.cursor(0);
    let epoch = ours.as_str().rsplit_once('-').unwrap().0.to_owned();
    assert_eq!(stream.holds_after(&ours), Some(0));
    for cursor in [
        other.cursor(0),
        Cursor::new(format!("{epoch}-2")),
        Cursor::new(format!("{epoch}--1")),
        Cursor::new(format!("{epoch}-x")),
        Cursor::new(epoch),
        Cursor::new(""),
        Cursor::new("-"),
        Cursor::new("0"),
    ] {
        assert_eq!(stream.holds_after(&cursor), None, "{cursor}");
    }
}

#[test]
fn behind_what_a_conversation_holds_the_daemon_goes_on_holding() {
    let each = RingLimits {
        events: 1,
        bytes: 1 << 20,
    };
    let hub = Hub::new(RingLimits { events: 4, ..each }, each);
    let mut one = Stream::new(Arc::clone(&hub), id(1));
    let mut two = Stream::new(Arc::clone(&hub), id(2));
    let first = Mailbox::new();
    subscribe(&mut one, &first, None);
    one.emit(&state(0), AT);
    let cursor = first.last_cursor();
    one.emit(&state(1), AT);
    two.emit(&state(5), AT);
    one.emit(&state(2), AT);
    let again = Mailbox::new();
    subscribe(&mut one, &again, Some(&cursor));
    assert_eq!(again.kinds(), ["prompting", "awaiting"], "its own events only");
    // Also when it came back to life meanwhile.
    drop(one);
    let mut one = Stream::new(Arc::clone(&hub), id(1));
    let again = Mailbox::new();
    subscribe(&mut one, &again, Some(&cursor));
    assert_eq!(again.kinds(), ["prompting", "awaiting"]);
    // Until others have told too much; its own ring still has what is newer.
    let newer = hub.cursor(hub.last());
    for number in 0..5 {
        two.emit(&state(number), AT);
    }
    assert_eq!(one.holds_after(&cursor), None);
    assert!(one.holds_after(&newer).is_some());
}

#[test]
fn a_ring_is_bounded_in_bytes_too() {
    let limits = RingLimits {
        events: 100,
        bytes: 1_000,
    };
    let mut stream = Stream::new(Hub::new(limits, limits), id(1));
    stream.emit(&accepted("t1"), AT);
    stream.emit_update(Some(&"t1".into()), r#"{"small":1}"#, None, false, AT);
    assert!(!stream.turn_updates().1);
    let large = format!(r#"{{"large":"{}"}}"#, "x".repeat(2_000));
    stream.emit_update(Some(&"t1".into()), &large, None, false, AT);
    assert_eq!(stream.holds_after(&stream.hub.cursor(2)), None);
    let (updates, truncated) = stream.turn_updates();
    assert_eq!((updates.len(), truncated), (0, true));
    stream.emit_update(Some(&"t1".into()), r#"{"small":2}"#, None, false, AT);
    let (updates, truncated) = stream.turn_updates();
    assert_eq!((updates[0].update(), truncated), (Some(r#"{"small":2}"#), true));
}

#[test]
fn when_an_agent_was_too_fast_everyone_is_told() {
    let mut stream = stream_of(8);
    let (one, two) = (Mailbox::new(), Mailbox::new());
    subscribe(&mut stream, &one, None);
    stream.emit(&state(0), AT);
    subscribe(&mut stream, &two, None);
    stream.mark_all_lagged(AT);
    stream.emit(&state(1), AT);
    assert_eq!(one.kinds(), ["closed", "idle", "lagged"]);
    assert_eq!(two.kinds(), ["closed", "lagged"]);
}

/// A subscriber that keeps its subscription after a gap.
struct Stays(Mailbox);

impl Subscriber for Stays {
    fn deliver(&mut self, event: &EncodedEvent) -> Delivery {
        self.0.deliver(event)
    }

    fn deliver_when_room<'a>(&'a mut self, event: &'a EncodedEvent) -> BoxFuture<'a, bool> {
        self.0.deliver_when_room(event)
    }

    fn lagged(self: Box<Self>, _: String) -> Option<Box<dyn Subscriber>> {
        Some(self)
    }

    fn is_disconnected(&self) -> bool {
        false
    }
}

#[test]
fn one_that_stays_gets_everything_after_what_was_missed() {
    let mut stream = stream_of(8);
    let mailbox = Mailbox::new();
    let snapshot = snapshot(&stream);
    stream.subscribe(Box::new(Stays(mailbox.clone())), None, Some(&snapshot), AT);
    stream.mark_all_lagged(AT);
    stream.emit(&state(0), AT);
    assert_eq!(mailbox.kinds(), ["closed", "idle"]);
}

#[test]
fn what_never_came_here_is_not_passed_off_as_held() {
    let mut stream = stream_of(8);
    let mailbox = Mailbox::new();
    subscribe(&mut stream, &mailbox, None);
    stream.emit(&state(0), AT);
    stream.mark_all_lagged(AT);
    let Event::Lagged { cursor } = mailbox.envelopes()[2].event.clone() else {
        panic!("not lagged")
    };
    stream.emit(&state(1), AT);
    assert_eq!(stream.holds_after(&cursor), None, "updates are missing behind it");
}

#[test]
fn the_updates_of_a_turn_are_truncated_when_some_never_came_here() {
    let mut stream = stream_of(8);
    stream.emit(&accepted("t1"), AT);
    stream.emit_update(Some(&"t1".into()), "1", None, false, AT);
    stream.mark_all_lagged(AT);
    stream.emit_update(Some(&"t1".into()), "3", None, false, AT);
    assert!(stream.turn_updates().1);
}

#[test]
fn who_listens_to_all_is_told_too_when_an_agent_was_too_fast() {
    let hub = hub_of(8);
    let mut stream = Stream::new(Arc::clone(&hub), id(1));
    let all = Mailbox::new();
    hub.subscribe(all.seat(), None, &[], hub.last(), AT);
    stream.emit(&state(0), AT);
    stream.mark_all_lagged(AT);
    assert_eq!(all.kinds(), ["idle", "lagged"]);
}

#[test]
fn the_daemon_wide_ring_gives_what_was_missed_of_all_conversations() {
    let hub = hub_of(3);
    let (mut one, mut two) = (
        Stream::new(Arc::clone(&hub), id(1)),
        Stream::new(Arc::clone(&hub), id(2)),
    );
    let first = Mailbox::new();
    hub.subscribe(first.seat(), None, &[], hub.last(), AT);
    one.emit(&state(0), AT);
    let cursor = first.last_cursor();
    two.emit(&state(1), AT);
    one.emit(&state(2), AT);
    let again = Mailbox::new();
    hub.subscribe(again.seat(), Some(&cursor), &[], hub.last(), AT);
    assert_eq!(again.kinds(), ["prompting", "awaiting"]);
    two.emit(&state(3), AT);
    two.emit(&state(4), AT);
    assert_eq!(again.kinds(), ["prompting", "awaiting", "cancelling", "limited"]);
    let late = Mailbox::new();
    hub.subscribe(late.seat(), Some(&cursor), &[], hub.last(), AT);
    assert!(late.kinds().is_empty(), "the second event is not held any more");
    two.emit(&state(5), AT);
    assert_eq!(late.kinds(), ["failed"]);
}

#[test]
fn a_cursor_of_the_daemon_goes_on_in_one_conversation() {
    let hub = hub_of(8);
    let (mut one, mut two) = (
        Stream::new(Arc::clone(&hub), id(1)),
        Stream::new(Arc::clone(&hub), id(2)),
    );
    let all = Mailbox::new();
    hub.subscribe(all.seat(), None, &[], hub.last(), AT);
    one.emit(&state(0), AT);
    two.emit(&state(1), AT);
    let cursor = all.last_cursor();
    one.emit(&state(2), AT);
    let mailbox = Mailbox::new();
    subscribe(&mut one, &mailbox, Some(&cursor));
    assert_eq!(mailbox.kinds(), ["awaiting"]);
}

#[test]
fn one_that_lags_in_all_conversations_goes_on_behind_its_cursor() {
    let hub = hub_of(8);
    let (mut one, mut two) = (
        Stream::new(Arc::clone(&hub), id(1)),
        Stream::new(Arc::clone(&hub), id(2)),
    );
    let slow = Mailbox::with_room(1);
    hub.subscribe(slow.seat(), None, &[], hub.last(), AT);
    assert_eq!(hub.lock().channel.subscribers.len(), 1);
    one.emit(&state(0), AT);
    two.emit(&state(1), AT);
    one.emit(&state(2), AT);
    assert_eq!(slow.kinds(), ["idle", "lagged"]);
    assert_eq!(hub.lock().channel.subscribers.len(), 0);
    let Event::Lagged { cursor } = slow.envelopes()[1].event.clone() else {
        panic!("not lagged")
    };
    let again = Mailbox::new();
    hub.subscribe(again.seat(), Some(&cursor), &[], hub.last(), AT);
    assert_eq!(again.kinds(), ["prompting", "awaiting"]);
}

#[test]
fn what_came_while_the_snapshots_were_told_is_told_once() {
    let hub = hub_of(8);
    let mut one = Stream::new(Arc::clone(&hub), id(1));
    let mut two = Stream::new(Arc::clone(&hub), id(2));
    let since = hub.last();
    one.emit(&state(0), AT);
    let shown = [(id(1), hub.last())];
    one.emit(&state(1), AT);
    two.emit(&state(2), AT);
    let all = Mailbox::new();
    hub.subscribe(all.seat(), None, &shown, since, AT);
    assert_eq!(all.kinds(), ["prompting", "awaiting"]);
}

#[test]
fn one_that_took_its_snapshots_too_slowly_is_told_and_has_no_seat() {
    let hub = hub_of(2);
    let mut stream = Stream::new(Arc::clone(&hub), id(1));
    let since = hub.last();
    for number in 0..3 {
        stream.emit(&state(number), AT);
    }
    let slow = Mailbox::new();
    hub.subscribe(slow.seat(), None, &[], since, AT);
    assert_eq!(slow.kinds(), ["lagged"]);
    assert_eq!(hub.lock().channel.subscribers.len(), 0);
    let Event::Lagged { cursor } = slow.envelopes()[0].event.clone() else {
        panic!("not lagged")
    };
    let from = hub.sequence_of(&cursor).unwrap();
    assert!(!hub.holds_after(from), "going on behind it begins with snapshots");
}

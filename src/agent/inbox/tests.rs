use futures_util::FutureExt;

use super::*;
use crate::agent::envelope::Envelope;
use crate::agent::message::method;

impl InboxReceiver {
    /// How many entries are queued.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.lock().queue.len()
    }
}

fn update(text: &str) -> Line {
    Envelope::scan(&format!(
        r#"{{"method":"session/update","params":{{"t":"{text}"}}}}"#
    ))
    .unwrap()
    .to_line()
}

fn push(sender: &InboxSender, text: &str) -> PushResult {
    sender.push_update(MethodName::known(method::SESSION_UPDATE), update(text))
}

fn died() -> Incoming {
    Incoming::Died(Arc::default())
}

/// A text for each entry: u for an update, d for a death, and the number of an overflow.
fn shape(taken: &[Incoming]) -> String {
    let shapes = taken.iter().map(|incoming| match incoming {
        Incoming::Notification { .. } => "u".to_owned(),
        Incoming::Died(_) => "d".to_owned(),
        Incoming::Overflow { dropped } => dropped.to_string(),
        Incoming::Request { .. } | Incoming::Response { .. } => "?".to_owned(),
    });
    shapes.collect::<Vec<_>>().join(" ")
}

#[test]
fn updates_beyond_the_count_are_counted_in_their_place() {
    let (sender, mut receiver) = inbox(InboxLimits {
        updates: 2,
        update_bytes: 10_000,
    });
    assert_eq!(push(&sender, "1"), PushResult::Queued(1));
    assert_eq!(push(&sender, "2"), PushResult::Queued(2));
    assert_eq!(push(&sender, "3"), PushResult::Dropped);
    assert_eq!(push(&sender, "4"), PushResult::Dropped);
    assert_eq!(sender.push_control(died()), PushResult::Queued(4));
    assert_eq!(push(&sender, "5"), PushResult::Dropped);
    let mut taken = Vec::new();
    assert_eq!(receiver.take_up_to(&mut taken, 1), 1);
    assert_eq!(push(&sender, "6"), PushResult::Queued(5));
    assert_eq!(receiver.take_up_to(&mut taken, 64), 5);
    assert_eq!(shape(&taken), "u u 2 d 1 u");
}

#[test]
fn updates_beyond_the_bytes_are_dropped_until_there_is_room() {
    let bytes = update("1").text().len();
    let (sender, mut receiver) = inbox(InboxLimits {
        updates: 100,
        update_bytes: bytes * 2,
    });
    for text in ["1", "2", "3"] {
        push(&sender, text);
    }
    let mut taken = Vec::new();
    receiver.take_up_to(&mut taken, 64);
    push(&sender, "4");
    receiver.take_up_to(&mut taken, 64);
    assert_eq!(shape(&taken), "u u 1 u");
}

#[tokio::test]
async fn a_round_has_a_limit_and_the_rest_needs_no_new_wake() {
    let (sender, mut receiver) = inbox(InboxLimits::default());
    for _ in 0..100 {
        push(&sender, "x");
    }
    let mut taken = Vec::new();
    assert_eq!(receiver.recv_up_to(&mut taken, 64).await, 64);
    assert_eq!(receiver.recv_up_to(&mut taken, 64).await, 36);
    assert_eq!(receiver.recv_up_to(&mut taken, 64).now_or_never(), None);
}

#[tokio::test]
async fn a_dropped_wait_loses_nothing() {
    let (sender, mut receiver) = inbox(InboxLimits::default());
    let mut taken = Vec::new();
    {
        let mut waiting = Box::pin(receiver.recv_up_to(&mut taken, 64));
        assert!(waiting.as_mut().now_or_never().is_none());
        push(&sender, "x");
    }
    assert_eq!(receiver.recv_up_to(&mut taken, 64).await, 1);
    // A notification for the dropped wait may be left over; it must not count as a line.
    assert_eq!(receiver.recv_up_to(&mut taken, 64).now_or_never(), None);
    push(&sender, "y");
    assert_eq!(receiver.recv_up_to(&mut taken, 64).await, 1);
}

#[tokio::test]
async fn a_wait_is_woken_by_the_first_of_many() {
    let (sender, mut receiver) = inbox(InboxLimits::default());
    let mut taken = Vec::new();
    for _ in 0..2 {
        let waiting = receiver.recv_up_to(&mut taken, 64);
        let pushing = async {
            push(&sender, "x");
            push(&sender, "y");
        };
        let woken = async { futures_util::future::join(waiting, pushing).await };
        let patience = std::time::Duration::from_secs(10);
        let (count, ()) = tokio::time::timeout(patience, woken).await.expect("it is woken");
        assert_eq!(count, 2);
    }
}

#[test]
fn a_dropped_receiver_takes_nothing() {
    let (sender, receiver) = inbox(InboxLimits::default());
    push(&sender, "x");
    drop(receiver);
    assert!(sender.is_closed());
    assert_eq!(push(&sender, "y"), PushResult::Closed);
    assert_eq!(sender.push_control(died()), PushResult::Closed);
}

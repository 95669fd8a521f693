//! The queue over a real pair of sockets.

use std::future::Future;
use std::time::Duration;

use bridge_protocol::ErrorKind;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::*;

const SMALL: OutboxLimits = OutboxLimits {
    messages: 4,
    bytes: 1024,
};

struct Pair {
    outbox: Outbox,
    writer: Option<Writer>,
    client: UnixStream,
}

fn pair(limits: OutboxLimits) -> Pair {
    let (server, client) = UnixStream::pair().unwrap();
    let (outbox, writer) = open(
        Arc::new(Socket::new(server).unwrap()),
        limits,
        QueueMemory::default(),
    );
    Pair {
        outbox,
        writer: Some(writer),
        client,
    }
}

/// Turns a hang into a failure.
const DEADLINE: Duration = Duration::from_secs(60);

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await.unwrap() })
}

async fn written(mut pair: Pair) -> String {
    pair.outbox.finish();
    pair.writer.take().unwrap().run().await.unwrap();
    drop(pair.outbox);
    let mut text = String::new();
    pair.client.read_to_string(&mut text).await.unwrap();
    text
}

#[test]
fn the_order_of_pushing_is_the_order_on_the_wire() {
    run(async {
        let pair = pair(OutboxLimits::default());
        let feed = SubscriptionSink::new(pair.outbox.clone(), "conversation/event", 7);
        pair.outbox.try_push(&["1"]).unwrap();
        feed.try_send("2").unwrap();
        pair.outbox.push(&["3"]).await.unwrap();
        feed.send("4").await.unwrap();
        feed.fail(&BridgeError::new(ErrorKind::Busy, "5\n\"")).await;
        let notification = |result: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"conversation/event","params":{{"subscription":7,{result}}}}}"#
            )
        };
        let (second, fourth, fifth) = (
            notification(r#""result":2"#),
            notification(r#""result":4"#),
            notification(r#""error":"5\n\"""#),
        );
        assert_eq!(
            written(pair).await,
            format!("1\n{second}\n3\n{fourth}\n{fifth}\n")
        );
    });
}

#[test]
fn a_message_never_spans_lines() {
    run(async {
        let pair = pair(OutboxLimits::default());
        pair.outbox.try_push(&["{\n\"a\": \"b\\nc\"\r\n}"]).unwrap();
        assert_eq!(written(pair).await, "{ \"a\": \"b\\nc\"\r }\n");
    });
}

#[test]
fn what_can_wait_leaves_room_for_what_cannot() {
    run(async {
        let mut pair = pair(SMALL);
        let outbox = pair.outbox.clone();
        for _ in 0..SMALL.messages / 2 {
            outbox.push_leaving_room(&["1"]).await.unwrap();
        }
        let mut waits = Box::pin(outbox.push_leaving_room(&["3"]));
        assert!(futures_util::poll!(&mut waits).is_pending());
        for _ in 0..SMALL.messages / 2 {
            pair.outbox.try_push(&["2"]).unwrap();
        }
        assert_eq!(pair.outbox.try_push(&["2"]), Err(PushError::Full));
        let writer = tokio::spawn(pair.writer.take().unwrap().run());
        waits.await.unwrap();
        outbox.finish();
        writer.await.unwrap().unwrap();
        drop((pair.outbox, outbox));
        let mut text = String::new();
        pair.client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "1\n1\n2\n2\n3\n");
    });
}

#[test]
fn a_full_queue_says_so_and_is_usable_again_once_it_was_written() {
    run(async {
        let mut pair = pair(SMALL);
        for _ in 0..4 {
            pair.outbox.try_push(&["1"]).unwrap();
        }
        assert_eq!(pair.outbox.try_push(&["1"]), Err(PushError::Full));
        let outbox = pair.outbox.clone();
        let mut waiting = Box::pin(outbox.push(&["answer"]));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        let writer = tokio::spawn(pair.writer.take().unwrap().run());
        waiting.await.unwrap();
        pair.outbox.finish();
        writer.await.unwrap().unwrap();
        let mut text = String::new();
        pair.client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "1\n1\n1\n1\nanswer\n");
    });
}

#[test]
fn bytes_are_limited_but_for_one_large_message_in_an_empty_queue() {
    run(async {
        let large = "1".repeat(5000);
        let pair = pair(SMALL);
        pair.outbox.try_push(&[&large]).unwrap();
        assert_eq!(pair.outbox.try_push(&["1"]), Err(PushError::Full));
        assert_eq!(pair.outbox.shared.lock().bytes, 5001);
        assert_eq!(written(pair).await.len(), 5001);
    });
}

#[test]
fn a_lost_peer_and_a_closed_queue_refuse_everybody() {
    run(async {
        let mut pair = pair(SMALL);
        let writer = pair.writer.take().unwrap();
        for _ in 0..4 {
            pair.outbox.try_push(&["1"]).unwrap();
        }
        let outbox = pair.outbox.clone();
        let mut waiting = Box::pin(outbox.push(&["2"]));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(pair.client);
        assert!(writer.run().await.is_err());
        assert_eq!(waiting.await, Err(PushError::Closed));
        assert_eq!(pair.outbox.try_push(&["3"]), Err(PushError::Closed));
        assert!(pair.outbox.is_closed());
    });
}

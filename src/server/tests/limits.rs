//! Every limit as clients see it, and the end of the server.

use std::time::Duration;

use crate::server::{OutboxLimits, PushError, SocketLimits};
use serde_json::{Value, json};

use super::support::{start, within};

#[tokio::test]
async fn requests_over_the_limit_in_flight_are_told_busy() {
    let server = start(SocketLimits {
        requests_in_flight: 2,
        ..SocketLimits::default()
    });
    let mut client = server.connect().await;
    for n in 1..=3 {
        client.call(n, "test/admit", json!({ "n": n })).await;
    }
    let busy = client.expect_error(json!(3), 1003, "busy").await;
    assert_eq!(busy["error"]["data"]["retryable"], true);
    server.release();
    client.expect().await;
    client.expect().await;
    client.call(4, "test/admit", json!({"n": 4})).await;
    assert_eq!(client.expect().await["result"], 4);
}

#[tokio::test]
async fn subscriptions_over_the_limit_are_told_busy_until_one_ends() {
    let server = start(SocketLimits {
        subscriptions: 1,
        ..SocketLimits::default()
    });
    let mut client = server.connect().await;
    client.call(1, "test/subscribe", json!({"count": 0})).await;
    let first = client.expect().await["result"].clone();
    client.call(2, "test/subscribe", json!({"count": 0})).await;
    client.expect_error(json!(2), 1003, "busy").await;
    client.call(3, "test/unsubscribe", json!([first])).await;
    assert_eq!(client.expect().await["result"], true);
    server.live_is(0).await;
    client.call(4, "test/subscribe", json!({"count": 0})).await;
    assert!(client.expect().await["result"].is_number());
}

#[tokio::test]
async fn a_client_that_does_not_read_blocks_nobody_but_itself() {
    let limits = OutboxLimits {
        messages: 1000,
        bytes: 1024 * 1024,
    };
    let server = start(SocketLimits {
        outbox: limits,
        ..SocketLimits::default()
    });
    let mut slow = server.connect().await;
    slow.call(1, "test/subscribe", json!({"count": 1_000_000})).await;
    within(
        server
            .shared
            .refused
            .subscribe()
            .wait_for(|why| *why == Some(PushError::Full)),
    )
    .await
    .unwrap();
    // Its answers wait, too.
    for id in 2..5 {
        slow.call(id, "test/large", json!({"bytes": 1_000_000})).await;
    }
    let mut quick = server.connect().await;
    for id in 0..100 {
        quick.call(id, "test/echo", json!({})).await;
        assert_eq!(quick.expect().await["id"], id);
    }
    // Once it reads, it finds everything that was taken, in order, and its answers.
    let mut expected = 0;
    let mut answers = Vec::new();
    assert!(slow.expect().await["result"].is_number());
    while answers.len() < 3 {
        let line = slow.expect().await;
        if line["method"] == "test/notification" {
            assert_eq!(line["params"]["result"], expected);
            expected += 1;
        } else {
            answers.push(line["id"].as_u64().unwrap());
        }
    }
    assert!(expected >= 1000, "{expected}");
    answers.sort_unstable();
    assert_eq!(answers, [2, 3, 4]);
}

#[tokio::test]
async fn an_answer_over_the_limit_becomes_an_error() {
    let server = start(SocketLimits {
        response_bytes: 1000,
        ..SocketLimits::default()
    });
    let mut client = server.connect().await;
    client.call(1, "test/large", json!({"bytes": 1000})).await;
    client.expect_error(json!(1), -32603, "internalError").await;
    let batch: Vec<Value> = (0..2)
        .map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "test/large", "params": {"bytes": 800}}))
        .collect();
    client.send(format!("{}\n", json!(batch))).await;
    let answers = client.expect().await;
    assert_eq!(answers[0]["result"].as_str().unwrap().len(), 800);
    assert_eq!(
        (&answers[1]["id"], &answers[1]["error"]["code"]),
        (&json!(1), &json!(-32603))
    );
}

#[tokio::test]
async fn stopping_waits_no_longer_than_its_grace() {
    let server = start(SocketLimits {
        stop_grace: Duration::from_millis(10),
        ..SocketLimits::default()
    });
    let mut client = server.connect().await;
    client.call(1, "test/admit", json!({"n": 1})).await;
    server.live_is(1).await;
    server.stop.cancel();
    within(server.task).await.unwrap();
    assert_eq!(*server.shared.live.borrow(), 0);
    assert_eq!(client.next().await, None);
}

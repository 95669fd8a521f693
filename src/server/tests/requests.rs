//! Requests: their order and answers, invalid input, and the ways in which a client disconnects.

use crate::server::SocketLimits;
use serde_json::{Value, json};

use super::support::{request, start};

#[tokio::test]
async fn pipelined_requests_are_admitted_in_the_order_in_which_they_arrive() {
    let server = start(SocketLimits::default());
    let mut client = server.connect().await;
    // More than a task may do in one turn, in one write.
    let burst: String = (0..250)
        .map(|n| request(n, "test/admit", json!({ "n": n })))
        .collect();
    client.send(burst).await;
    server.live_is(250).await;
    assert_eq!(server.admitted(), (0..250).collect::<Vec<_>>());
    server.release();
    let mut answered = Vec::new();
    for _ in 0..250 {
        answered.push(client.expect().await["result"].as_u64().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, (0..250).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_half_closed_client_gets_its_answers_and_then_the_end() {
    let server = start(SocketLimits::default());
    let mut client = server.connect().await;
    client.call(1, "test/admit", json!({"n": 1})).await;
    // The last line needs no ending.
    client.send(request(2, "test/echo", json!({})).trim_end()).await;
    client.half_close();
    assert_eq!(client.expect().await["id"], 2);
    server.live_is(1).await;
    server.release();
    assert_eq!(client.expect().await["id"], 1);
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn a_closed_client_frees_its_calls_and_subscriptions_at_once() {
    let server = start(SocketLimits::default());
    let mut client = server.connect().await;
    client.call(1, "test/admit", json!({"n": 1})).await;
    client.call(2, "test/subscribe", json!({"count": 0})).await;
    client.send("[").await;
    client
        .send(request(3, "test/admit", json!({"n": 2})).trim_end().to_owned() + "]\n")
        .await;
    server.live_is(3).await;
    drop(client);
    server.live_is(0).await;
}

#[tokio::test]
async fn a_client_that_leaves_after_a_half_close_is_noticed_too() {
    let server = start(SocketLimits::default());
    let mut client = server.connect().await;
    client.call(1, "test/admit", json!({"n": 1})).await;
    client.call(2, "test/echo", json!({})).await;
    client.half_close();
    assert_eq!(client.expect().await["id"], 2);
    server.live_is(1).await;
    drop(client);
    server.live_is(0).await;
}

#[tokio::test]
async fn a_handler_that_fails_or_panics_is_an_error_and_the_connection_goes_on() {
    let server = start(SocketLimits::default());
    let mut client = server.connect().await;
    for (method, code, kind) in [
        ("test/panic", -32603, "internalError"),
        ("test/panicSync", -32603, "internalError"),
        ("test/fail", 1001, "notFound"),
        ("test/unsubscribe", -32602, "invalidParams"),
    ] {
        // Empty lines are passed over, and a carriage return is no part of a line.
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{method}\",\"method\":\"{method}\"}}\r\n\r\n");
        client.send(line).await;
        client.expect_error(json!(method), code, kind).await;
    }
    client.call(11, "test/echo", json!({"a": 1})).await;
    assert_eq!(
        client.expect().await,
        json!({"jsonrpc": "2.0", "id": 11, "result": {"a": 1}})
    );
}

#[tokio::test]
async fn a_notification_runs_and_is_not_answered() {
    let server = start(SocketLimits::default());
    let mut client = server.connect().await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"method\":\"test/admit\",\"params\":{\"n\":5}}\n")
        .await;
    client.send("{\"jsonrpc\":\"2.0\",\"method\":\"none\"}\n").await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"method\":\"test/subscribe\",\"params\":{\"count\":1}}\n")
        .await;
    server.live_is(1).await;
    server.release();
    client.call(1, "test/echo", json!({})).await;
    assert_eq!(client.expect().await["id"], 1);
    assert_eq!(server.admitted(), [5]);
}

#[tokio::test]
async fn a_batch_is_answered_as_one_array() {
    let server = start(SocketLimits {
        requests_in_flight: 4,
        ..SocketLimits::default()
    });
    let mut client = server.connect().await;
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "test/admit", "params": {"n": 1}},
        {"jsonrpc": "2.0", "method": "test/echo"},
        {"jsonrpc": "2.0", "id": 2, "method": "test/echo", "params": {"a": 1}},
        {"jsonrpc": "2.0", "id": 3, "method": "test/subscribe", "params": {"count": 1}},
        {"jsonrpc": "2.0", "id": 4, "method": "test/echo", "params": {}},
        5,
    ]);
    client.send(format!("{batch}\n")).await;
    server.live_is(1).await;
    server.release();
    let answers = client.expect().await;
    let of = |position: usize, field: &str| answers[position][field].clone();
    assert_eq!(answers.as_array().unwrap().len(), 5, "{answers}");
    assert_eq!((of(0, "id"), of(0, "result")), (json!(1), json!(1)));
    assert_eq!((of(1, "id"), of(1, "result")), (json!(2), json!({"a": 1})));
    assert_eq!(
        (of(2, "id"), of(2, "error")["code"].clone()),
        (json!(3), json!(-32600))
    );
    assert_eq!(
        (of(3, "id"), of(3, "error")["code"].clone()),
        (json!(4), json!(1003)),
        "the fifth in flight"
    );
    assert_eq!(
        (of(4, "id"), of(4, "error")["code"].clone()),
        (Value::Null, json!(-32600))
    );

    let many: Vec<Value> = (0..65)
        .map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "test/echo"}))
        .collect();
    client.send(format!("{}\n", json!(many))).await;
    client.expect_error(Value::Null, -32600, "invalidRequest").await;
    client
        .send("[{\"jsonrpc\":\"2.0\",\"method\":\"test/echo\"}]\n")
        .await;
    client.call(9, "test/echo", json!({})).await;
    assert_eq!(
        client.expect().await["id"],
        9,
        "a batch of notifications is not answered"
    );
}

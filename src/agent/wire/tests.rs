use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use super::*;
use crate::agent::inbox::{InboxLimits, InboxReceiver, Incoming, MAX_OPEN_REQUESTS, inbox};
use crate::agent::message::AgentError;
use crate::agent::subagent;

/// Long enough for a busy machine. Reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(10);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it does not take so long")
}

/// The other end of a connection: what an agent would read and write.
struct Peer {
    from_us: Lines<BufReader<ReadHalf<DuplexStream>>>,
    to_us: WriteHalf<DuplexStream>,
}

impl Peer {
    async fn read(&mut self) -> serde_json::Value {
        let line = soon(self.from_us.next_line())
            .await
            .unwrap()
            .expect("our end is open");
        serde_json::from_str(&line).unwrap()
    }

    async fn write(&mut self, lines: &str) {
        self.to_us.write_all(lines.as_bytes()).await.unwrap();
    }
}

fn connect(options: WireOptions) -> (Connection, Peer) {
    let (ours, theirs) = tokio::io::duplex(1024 * 1024);
    let (output, input) = tokio::io::split(ours);
    let connection = Connection::new(output, input, DeathWatch::none(), options);
    let (from_us, to_us) = tokio::io::split(theirs);
    (
        connection,
        Peer {
            from_us: BufReader::new(from_us).lines(),
            to_us,
        },
    )
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn update(handle: &str, text: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"{handle}\",\"update\":{{\"t\":\"{text}\"}}}}}}\n"
    )
}

fn permission(handle: &str, id: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"session/request_permission\",\"params\":{{\"sessionId\":\"{handle}\"}}}}\n"
    )
}

/// Takes this many entries, as text: the update's text, `answer`, `error`, `ask ID`, `lost N`, `died`.
async fn take(receiver: &mut InboxReceiver, count: usize) -> Vec<String> {
    let mut taken = Vec::new();
    while taken.len() < count {
        soon(receiver.recv_up_to(&mut taken, 64)).await;
    }
    taken.iter().map(word).collect()
}

fn word(incoming: &Incoming) -> String {
    match incoming {
        Incoming::Notification { line, method } => line.update().map_or_else(
            || method.to_string(),
            |update| {
                let update: serde_json::Value = serde_json::from_str(update).unwrap();
                update["t"].as_str().unwrap_or_default().to_owned()
            },
        ),
        Incoming::Request { id, .. } => format!("ask {id}"),
        Incoming::Response {
            outcome: Ok(_),
            attachment,
            ..
        } => attachment
            .as_ref()
            .map_or("answer".to_owned(), |one| format!("opened {}", one.handle)),
        Incoming::Response {
            outcome: Err(error), ..
        } => format!("error: {error}"),
        Incoming::Overflow { dropped } => format!("lost {dropped}"),
        Incoming::Died(_) => "died".to_owned(),
    }
}

async fn nothing_waits(connection: &Connection, peer: &mut Peer, receivers: &mut [&mut InboxReceiver]) {
    settle(connection, peer).await;
    for receiver in receivers {
        assert_eq!(receiver.waiting(), 0);
    }
}

/// A complete round trip. Afterwards, everything that the peer wrote before has been passed on.
async fn settle(connection: &Connection, peer: &mut Peer) {
    let params = raw("{}");
    let (answer, ()) = tokio::join!(connection.call("ping", &params), async {
        let request = peer.read().await;
        assert_eq!(request["method"], "ping");
        peer.write(&format!("{{\"id\":{},\"result\":null}}\n", request["id"]))
            .await;
    });
    assert_eq!(answer.unwrap().get(), "null");
}

#[tokio::test]
async fn a_new_session_is_routed_before_the_next_line_is_read() {
    let (connection, mut peer) = connect(WireOptions::default());
    let (sender, mut receiver) = inbox(InboxLimits::default());
    let request = connection.open("session/new", &raw("{}"), &sender).unwrap();
    // An agent that mentions the session before it answers, and continues at once.
    let answer = format!("{{\"id\":{request},\"result\":{{\"sessionId\":\"n\"}}}}\n");
    let question = permission("n", "1");
    peer.write(&(update("n", "early") + &answer + &update("n", "late") + &question))
        .await;
    assert_eq!(
        take(&mut receiver, 4).await,
        ["early", "opened n", "late", "ask 1"]
    );
}

#[tokio::test]
async fn lines_for_an_unknown_handle_wait_but_not_without_limit() {
    let (connection, mut peer) = connect(WireOptions::default());
    let (sender, mut receiver) = inbox(InboxLimits::default());
    for number in 0..70 {
        peer.write(&update("later", &number.to_string())).await;
    }
    settle(&connection, &mut peer).await;
    connection.attach(&SessionHandle::new("later"), &sender).unwrap();
    let taken = take(&mut receiver, 64).await;
    // The newest 64 of 70.
    assert_eq!(
        (taken[0].as_str(), taken[63].as_str(), taken.len()),
        ("6", "69", 64)
    );
    nothing_waits(&connection, &mut peer, &mut [&mut receiver]).await;
}

/// F38: a late detach affects only its own attachment.
#[tokio::test]
async fn detaching_an_older_attachment_leaves_the_newer_one() {
    let (connection, mut peer) = connect(WireOptions::default());
    let (old_sender, mut old) = inbox(InboxLimits::default());
    let (new_sender, mut new) = inbox(InboxLimits::default());
    let handle = SessionHandle::new("s");
    let older = connection.attach(&handle, &old_sender).unwrap();
    let newer = connection.attach(&handle, &new_sender).unwrap();
    connection.detach(&older);
    peer.write(&update("s", "1")).await;
    assert_eq!(take(&mut new, 1).await, ["1"]);
    connection.detach(&newer);
    // Later messages of a detached session are not kept for the next attachment.
    peer.write(&update("s", "2")).await;
    settle(&connection, &mut peer).await;
    connection.attach(&handle, &new_sender).unwrap();
    nothing_waits(&connection, &mut peer, &mut [&mut old, &mut new]).await;
}

#[tokio::test]
async fn a_session_has_a_limit_of_open_requests_and_detaching_answers_them() {
    let (connection, mut peer) = connect(WireOptions::default());
    let (sender, mut receiver) = inbox(InboxLimits::default());
    let attachment = connection.attach(&SessionHandle::new("s"), &sender).unwrap();
    for id in 0..=MAX_OPEN_REQUESTS {
        peer.write(&permission("s", &id.to_string())).await;
    }
    let refused = peer.read().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&MAX_OPEN_REQUESTS.into(), &(-32603).into())
    );
    take(&mut receiver, MAX_OPEN_REQUESTS).await;
    connection.refuse(&RawId::from_wire("0"), -1, "no").unwrap();
    assert_eq!(peer.read().await["error"]["message"], "no");
    peer.write(&permission("s", "1000")).await;
    assert_eq!(take(&mut receiver, 1).await, ["ask 1000"]);
    connection.detach(&attachment);
    for _ in 0..MAX_OPEN_REQUESTS {
        assert_eq!(peer.read().await["error"]["code"], -32800);
    }
}

#[tokio::test]
async fn sessions_of_subagents_share_the_inbox_of_the_session_that_announced_them() {
    let announcement = |of: &str, subagent: &str| {
        format!(
            "{{\"method\":\"session/update\",\"params\":{{\"sessionId\":\"{of}\",\"update\":{{\"sessionUpdate\":\
             \"subagent_update\",\"sessionId\":\"{subagent}\",\"t\":\"announced\"}}}}}}\n"
        )
    };
    let (connection, mut peer) = connect(WireOptions::default());
    let (sender, mut receiver) = inbox(InboxLimits::default());
    let session = SessionHandle::new("s");
    let attachment = connection.attach(&session, &sender).unwrap();
    peer.write(&(update("sub", "early") + &announcement("s", "sub") + &permission("sub", "1")))
        .await;
    assert_eq!(take(&mut receiver, 3).await, ["announced", "early", "ask 1"]);
    connection.detach(&attachment);
    assert_eq!(peer.read().await["error"]["code"], -32800);
    peer.write(&permission("sub", "2")).await;
    assert_eq!(peer.read().await["error"]["code"], -32601);

    // The oldest one is forgotten for one too many.
    connection.attach(&session, &sender).unwrap();
    let most = subagent::MAX_SESSIONS;
    let all: String = (0..=most)
        .map(|number| announcement("s", &number.to_string()))
        .collect();
    peer.write(&(all + &permission("0", "3") + &permission("1", "4")))
        .await;
    assert_eq!(peer.read().await["id"], 3);
    let taken = take(&mut receiver, most + 2).await;
    assert_eq!(taken.last().map(String::as_str), Some("ask 4"));
}

#[tokio::test]
async fn an_elicitation_during_a_request_reaches_its_inbox() {
    let (connection, mut peer) = connect(WireOptions::default());
    let (sender, mut receiver) = inbox(InboxLimits::default());
    let request = connection.open("session/new", &raw("{}"), &sender).unwrap();
    peer.write(&format!(
        "{{\"id\":3,\"method\":\"elicitation/create\",\"params\":{{\"requestId\":{request},\"message\":\"m\"}}}}\n"
    ))
    .await;
    assert_eq!(take(&mut receiver, 1).await, ["ask 3"]);
    connection
        .respond(&RawId::from_wire("3"), Ok(&raw("{}")))
        .unwrap();
    peer.read().await;
    assert_eq!(peer.read().await["result"], serde_json::json!({}));
}

#[tokio::test]
async fn lines_that_are_too_long_are_skipped_and_counted() {
    let (connection, mut peer) = connect(WireOptions {
        max_line_bytes: 1_000,
        ..WireOptions::default()
    });
    let (sender, mut receiver) = inbox(InboxLimits::default());
    let (other_sender, mut other) = inbox(InboxLimits::default());
    connection.attach(&SessionHandle::new("s"), &sender).unwrap();
    connection
        .attach(&SessionHandle::new("o"), &other_sender)
        .unwrap();
    let long = "x".repeat(300_000);
    peer.write(&update("s", &long)).await;
    assert_eq!(take(&mut receiver, 1).await, ["lost 1"]);
    assert_eq!(other.waiting(), 0);
    // The session of a line that names none is unknown.
    peer.write(&format!("{{\"method\":\"x\",\"params\":\"{long}\"}}\n"))
        .await;
    assert_eq!(take(&mut receiver, 1).await, ["lost 1"]);
    assert_eq!(take(&mut other, 1).await, ["lost 1"]);

    let params = raw("{}");
    let (answer, ()) = tokio::join!(connection.call("x", &params), async {
        let id = peer.read().await["id"].clone();
        peer.write(&format!("{{\"result\":\"{long}\",\"id\":{id}}}\n"))
            .await;
    });
    assert!(
        matches!(answer, Err(CallError::TooLong { limit_bytes: 1_000 })),
        "{answer:?}"
    );
    let request = connection.start("x", &raw("{}"), &sender).unwrap();
    peer.read().await;
    peer.write(&format!("{{\"id\":{request},\"result\":\"{long}\"}}\n"))
        .await;
    assert_eq!(
        take(&mut receiver, 1).await,
        ["error: the agent's answer is longer than 1000 B"]
    );
    peer.write(&permission("s", "4").replace("}}", &format!(",\"x\":\"{long}\"}}}}")))
        .await;
    assert_eq!(peer.read().await["error"]["code"], -32600);
    peer.write(&update("s", "after")).await;
    assert_eq!(take(&mut receiver, 1).await, ["after"]);
}

/// The end of the agent says more than the part of an answer that it could still write.
#[tokio::test]
async fn an_answer_that_the_end_of_the_agent_cut_off_is_no_answer() {
    let (connection, mut peer) = connect(WireOptions::default());
    let call = tokio::spawn(async move { connection.call("x", &raw("{}")).await });
    let id = peer.read().await["id"].clone();
    peer.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stop"#))
        .await;
    drop(peer);
    let answer = soon(call).await.unwrap();
    assert!(matches!(answer, Err(CallError::Died(_))), "{answer:?}");
}

#[tokio::test]
async fn an_agent_that_closes_its_input_is_dead() {
    let (ours, their_end) = tokio::io::duplex(1024);
    let (_held_open, output) = tokio::io::duplex(1024);
    let connection = Connection::new(output, ours, DeathWatch::none(), WireOptions::default());
    drop(their_end);
    let answer = connection.call("x", &raw("{}")).await;
    assert!(matches!(answer, Err(CallError::Died(_))), "{answer:?}");
}

#[tokio::test]
async fn an_agent_that_does_not_read_delays_no_caller() {
    let (ours, _unread) = tokio::io::duplex(64);
    let (_silent, output) = tokio::io::duplex(64);
    let connection = Connection::new(output, ours, DeathWatch::none(), WireOptions::default());
    let (sender, _receiver) = inbox(InboxLimits::default());
    let params = raw("{\"text\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}");
    let mut sent = 0;
    let error = loop {
        match connection.start("session/prompt", &params, &sender) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CallError::Stalled), "{error}");
    assert!(sent >= MAX_QUEUED_LINES, "{sent}");
    connection.close_input();
    assert!(matches!(connection.notify("x", &params), Err(CallError::Closing)));
}

#[tokio::test]
async fn queued_lines_are_written_before_the_input_closes() {
    let (connection, mut peer) = connect(WireOptions::default());
    for _ in 0..200 {
        connection.notify("session/cancel", &raw("{}")).unwrap();
    }
    drop(connection);
    let mut lines = 0;
    while peer.from_us.next_line().await.unwrap().is_some() {
        lines += 1;
    }
    assert_eq!(lines, 200);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_forgotten() {
    let (connection, mut peer) = connect(WireOptions::default());
    let answer = connection
        .call_within("slow", &raw("{}"), Duration::from_secs(3))
        .await;
    assert!(matches!(answer, Err(CallError::TimedOut { .. })), "{answer:?}");
    let id = peer.read().await["id"].clone();
    peer.write(&format!("{{\"id\":{id},\"result\":1}}\n")).await;
    settle(&connection, &mut peer).await;
}

#[tokio::test]
async fn f37_a_dropped_session_owner_does_not_affect_the_others() {
    let (connection, mut peer) = connect(WireOptions::default());
    let (gone_sender, gone) = inbox(InboxLimits::default());
    let (sender, mut receiver) = inbox(InboxLimits::default());
    connection
        .attach(&SessionHandle::new("gone"), &gone_sender)
        .unwrap();
    connection.attach(&SessionHandle::new("s"), &sender).unwrap();
    peer.write(&permission("gone", "1")).await;
    settle(&connection, &mut peer).await;
    drop(gone);
    peer.write(&(update("gone", "x") + &update("s", "y"))).await;
    assert_eq!(peer.read().await["error"]["code"], -32800);
    assert_eq!(take(&mut receiver, 1).await, ["y"]);
    assert_eq!(connection.attached_count(), 1);
}

#[test]
fn errors_of_any_form_are_read() {
    for (raw, code, message) in [
        (r#"{"code":-32603,"message":"m","data":[1]}"#, -32603, "m"),
        (r#"{"message":"m"}"#, 0, "m"),
        (r#""just text""#, -32603, "\"just text\""),
        (r#"{"code":"E1"}"#, -32603, r#"{"code":"E1"}"#),
    ] {
        let error = AgentError::from_raw(raw);
        assert_eq!((error.code, error.message.as_str()), (code, message), "{raw}");
    }
}

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::*;
use crate::agent::inbox::{InboxLimits, inbox};
use crate::agent::process::DeathWatch;
use crate::agent::wire::WireOptions;

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn meta(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => panic!("an object"),
    }
}

#[test]
fn capabilities_are_markers() {
    let decode = |json: &str| Initialized::decode(raw(json)).unwrap();
    let all = decode(
        r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"new":12345678901234567890.123,
            "auth":{"logout":{}},"promptCapabilities":{"image":true,"audio":false},
            "sessionCapabilities":{"list":{},"resume":{"x":1},"fork":{},"close":{},"delete":{},"additionalDirectories":{}}},
            "authMethods":[{"id":"a"}],"agentInfo":{"name":"n","version":"1.2"}}"#,
    );
    let expected = Capabilities {
        load_session: true,
        list: true,
        resume: true,
        fork: true,
        close: true,
        delete: true,
        additional_directories: true,
        logout: true,
        auth_status: false,
        images: true,
    };
    assert_eq!(all.capabilities, expected);
    assert_eq!(all.agent_version.as_deref(), Some("1.2"));
    assert_eq!(all.auth_methods.unwrap().get(), r#"[{"id":"a"}]"#);
    assert!(all.raw.get().contains("12345678901234567890.123"));

    for none in [
        r#"{"protocolVersion":1}"#,
        r#"{"protocolVersion":1,"agentCapabilities":null,"agentInfo":null}"#,
        r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":false,"sessionCapabilities":{"fork":null}}}"#,
        r#"{"protocolVersion":1,"agentCapabilities":[],"agentInfo":"x"}"#,
    ] {
        assert_eq!(decode(none).capabilities, Capabilities::default(), "{none}");
    }
    for bad in ["null", "[]", "{}", r#"{"protocolVersion":"1"}"#] {
        let error = Initialized::decode(raw(bad)).unwrap_err();
        assert!(matches!(error, CallError::BadAnswer { .. }), "{bad}: {error}");
    }
}

#[test]
fn client_parameters_survive() {
    let client =
        raw(r#"{"future":1.50,"cwd":"/old","_meta":{"a":{"b":10000000000000000001},"c":1},"cwd":"/older"}"#);
    let mut params = Params::from_client("m", Some(&client)).unwrap();
    params.set("cwd", "/home/u/project").unwrap();
    params.set_if_absent("future", "not taken").unwrap();
    params.set("sessionId", "s\"1").unwrap();
    params
        .merge_meta(&meta(json!({"a": {"b": 2, "d": 3}, "c": {"e": 4}, "f": 5})))
        .unwrap();
    assert_eq!(
        params.build().unwrap().get(),
        r#"{"future":1.50,"cwd":"/home/u/project","_meta":{"a":{"b":10000000000000000001,"d":3},"c":1,"f":5},"sessionId":"s\"1"}"#
    );
}

#[test]
fn meta_is_created_if_absent() {
    for (client, expected) in [
        ("{}", r#"{"_meta":{"x":1}}"#),
        (r#"{"_meta":null}"#, r#"{"_meta":{"x":1}}"#),
        (r#"{"_meta":{}}"#, r#"{"_meta":{"x":1}}"#),
        (r#"{"_meta":"odd"}"#, r#"{"_meta":"odd"}"#),
    ] {
        let mut params = Params::from_client("m", Some(&raw(client))).unwrap();
        params.merge_meta(&meta(json!({"x": 1}))).unwrap();
        assert_eq!(params.build().unwrap().get(), expected);
    }
    assert!(matches!(
        Params::from_client("m", Some(&raw("[]"))),
        Err(CallError::BadParams { .. })
    ));
}

/// Answers each request with the next of these results.
async fn answer_with(peer: DuplexStream, results: Vec<&'static str>) -> Vec<Value> {
    let (from_us, mut to_us) = tokio::io::split(peer);
    let mut lines = BufReader::new(from_us).lines();
    let mut seen = Vec::new();
    for result in results {
        let request: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        to_us
            .write_all(format!("{{\"id\":{},\"result\":{result}}}\n", request["id"]).as_bytes())
            .await
            .unwrap();
        seen.push(request);
    }
    seen
}

fn connect() -> (Connection, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (output, input) = tokio::io::split(ours);
    (
        Connection::new(output, input, DeathWatch::none(), WireOptions::default()),
        theirs,
    )
}

#[tokio::test]
async fn methods_that_are_not_offered_are_not_sent() {
    let (connection, peer) = connect();
    let request = InitializeRequest {
        client_capabilities: Some(raw(r#"{"fs":{"readTextFile":true}}"#)),
        client_info: None,
        client_params: None,
    };
    let deadline = Duration::from_secs(60);
    let (initialized, seen) = tokio::join!(
        initialize(&connection, &request, deadline),
        answer_with(peer, vec![r#"{"protocolVersion":1}"#])
    );
    let params = &seen[0]["params"];
    assert_eq!(params["protocolVersion"], 1);
    assert_eq!(
        params["clientCapabilities"],
        json!({"fs": {"readTextFile": true}})
    );
    let calls = AgentCalls::new(connection.clone(), Arc::new(initialized.unwrap()));
    let (sender, _receiver) = inbox(InboxLimits::default());
    let (handle, options) = (SessionHandle::new("s"), SessionOptions::default());
    let unsupported = |error: CallError| match error {
        CallError::Unsupported(method) => method.to_string(),
        other => panic!("{other}"),
    };
    assert_eq!(
        unsupported(calls.load(&handle, &options, &sender).unwrap_err()),
        "session/load"
    );
    assert_eq!(
        unsupported(calls.resume(&handle, &options, &sender).unwrap_err()),
        "session/resume"
    );
    assert_eq!(
        unsupported(calls.fork(&handle, &options, &sender).unwrap_err()),
        "session/fork"
    );
    assert_eq!(
        unsupported(calls.close(&handle, deadline).await.unwrap_err()),
        "session/close"
    );
    assert_eq!(
        unsupported(calls.delete(&handle).await.unwrap_err()),
        "session/delete"
    );
    assert_eq!(unsupported(calls.logout(None).await.unwrap_err()), "logout");
    assert_eq!(connection.attached_count(), 0);
}

use super::*;

/// Everything that the tables compare about a scanned line.
#[derive(Debug, PartialEq, Eq, Default)]
struct Seen<'a> {
    id: Option<&'a str>,
    method: Option<&'a str>,
    session: Option<&'a str>,
    update: Option<&'a str>,
    update_kind: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

fn check(line: &str, kind: EnvelopeKind, expected: &Seen<'_>) {
    let envelope = Envelope::scan(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(
        serde_json::from_str::<serde_json::Value>(line).is_ok(),
        "the table's own line is JSON: {line}"
    );
    let (method, session, update_kind) = (envelope.method(), envelope.session_id(), envelope.update_kind());
    let seen = Seen {
        id: envelope.id(),
        method: method.as_deref(),
        session: session.as_deref(),
        update: envelope.update(),
        update_kind: update_kind.as_deref(),
        result: envelope.result(),
        error: envelope.error(),
    };
    assert_eq!(envelope.kind(), kind, "{line}");
    assert_eq!(seen, *expected, "{line}");
}

#[test]
fn the_kinds_of_messages() {
    check(
        r#"{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s"}}"#,
        EnvelopeKind::Request,
        &Seen {
            id: Some("1"),
            method: Some("session/request_permission"),
            session: Some("s"),
            ..Seen::default()
        },
    );
    check(
        r#"{"id":"a-\"1\"","method":"m"}"#,
        EnvelopeKind::Request,
        &Seen {
            id: Some(r#""a-\"1\"""#),
            method: Some("m"),
            ..Seen::default()
        },
    );
    check(
        r#"{"id":null,"method":"m"}"#,
        EnvelopeKind::Request,
        &Seen {
            id: Some("null"),
            method: Some("m"),
            ..Seen::default()
        },
    );
    check(
        r#" { "id" : 7 , "result" : null } "#,
        EnvelopeKind::Response,
        &Seen {
            id: Some("7"),
            result: Some("null"),
            ..Seen::default()
        },
    );
    check(
        r#"{"id":7,"error":null,"result":{"sessionId":"n"}}"#,
        EnvelopeKind::Response,
        &Seen {
            id: Some("7"),
            result: Some(r#"{"sessionId":"n"}"#),
            ..Seen::default()
        },
    );
    check(
        r#"{"error":{"code":-32002,"message":"m"},"id":7}"#,
        EnvelopeKind::Response,
        &Seen {
            id: Some("7"),
            error: Some(r#"{"code":-32002,"message":"m"}"#),
            ..Seen::default()
        },
    );
    check(
        r#"{"id":7}"#,
        EnvelopeKind::Response,
        &Seen {
            id: Some("7"),
            ..Seen::default()
        },
    );
    check(
        r#"{"method":"m","params":[1,2]}"#,
        EnvelopeKind::Notification,
        &Seen {
            method: Some("m"),
            ..Seen::default()
        },
    );
}

#[test]
fn unknown_content_is_unchanged() {
    let update = r#"{"sessionUpdate":"from_the_future","price":12345678901234567890.123,"deep":[[{"x":[]}],{}],"e":1E+400,"neg":-0.0}"#;
    let line = format!(
        r#"{{"method":"session/update","params":{{"new":{{"sessionId":"decoy"}},"sessionId":"s","update":{update},"more":true}},"extra":{{"id":9}}}}"#
    );
    let envelope = Envelope::scan(&line).unwrap();
    assert_eq!(envelope.update(), Some(update));
    assert_eq!(envelope.update_kind().as_deref(), Some("from_the_future"));
    assert_eq!(envelope.session_id().as_deref(), Some("s"));
    assert_eq!(envelope.id(), None);
    assert_eq!(envelope.to_line().text(), line);
}

#[test]
fn keys_and_values_may_be_written_with_escapes() {
    check(
        r#"{"\u006dethod":"session\/update","\u0070arams":{"session\u0049d":"a\u00e9\n","upd\u0061te":{"sessionUpd\u0061te":"pl\u0061n"}},"\u0069d":3}"#,
        EnvelopeKind::Request,
        &Seen {
            id: Some("3"),
            method: Some("session/update"),
            session: Some("a\u{e9}\n"),
            update: Some(r#"{"sessionUpd\u0061te":"pl\u0061n"}"#),
            update_kind: Some("plan"),
            ..Seen::default()
        },
    );
}

#[test]
fn keys_at_other_depths_are_ignored() {
    check(
        r#"{"a":{"id":1,"method":"x"},"b":[{"params":{"sessionId":"x"}}],"c":"\"id\":2,","method":"m","params":{"a":{"sessionId":"x","update":{}},"update":{"a":{"sessionUpdate":"x"}}}}"#,
        EnvelopeKind::Notification,
        &Seen {
            method: Some("m"),
            update: Some(r#"{"a":{"sessionUpdate":"x"}}"#),
            ..Seen::default()
        },
    );
    // Of another type, so ignored.
    check(
        r#"{"method":"m","params":{"sessionId":5,"update":"text"}}"#,
        EnvelopeKind::Notification,
        &Seen {
            method: Some("m"),
            update: Some(r#""text""#),
            ..Seen::default()
        },
    );
}

#[test]
fn the_last_of_two_equal_keys_counts() {
    check(
        r#"{"id":1,"method":"a","params":{"sessionId":"x","update":{"sessionUpdate":"x"}},"id":2,"method":"b","params":{"sessionId":"y","sessionId":"z"}}"#,
        EnvelopeKind::Request,
        &Seen {
            id: Some("2"),
            method: Some("b"),
            session: Some("z"),
            ..Seen::default()
        },
    );
    check(
        r#"{"method":"m","params":{"update":{"sessionUpdate":"x"},"update":{"sessionUpdate":"y","sessionUpdate":3}}}"#,
        EnvelopeKind::Notification,
        &Seen {
            method: Some("m"),
            update: Some(r#"{"sessionUpdate":"y","sessionUpdate":3}"#),
            ..Seen::default()
        },
    );
}

#[test]
fn malformed_lines_are_errors() {
    let syntax = |at| Malformed::Syntax { at };
    for (line, expected) in [
        ("", syntax(0)),
        ("garbage", syntax(0)),
        ("[]", Malformed::NotAnObject),
        ("3", Malformed::NotAnObject),
        (r#""text""#, Malformed::NotAnObject),
        ("{}", Malformed::NotAMessage),
        (r#"{"jsonrpc":"2.0"}"#, Malformed::NotAMessage),
        (r#"{"method":5}"#, Malformed::NotAMessage),
        (r#"{"method":"\ud800"}"#, Malformed::NotAMessage),
        (r#"{"id":{},"method":"m"}"#, Malformed::NotAMessage),
        (r#"{"id":true}"#, Malformed::NotAMessage),
        (r#"{"id":1"#, syntax(7)),
        (r#"{"id":1,}"#, syntax(8)),
        (r#"{"id":1}x"#, syntax(8)),
        (r#"{"id":01}"#, syntax(7)),
        (r#"{"id":1.}"#, syntax(8)),
        (r#"{"id":-}"#, syntax(7)),
        (r#"{"id":1e}"#, syntax(8)),
        (r#"{"id":nul}"#, syntax(6)),
        (r#"{"id":1,"a":[1,]}"#, syntax(15)),
        (r#"{"id":1,"a":[1}}"#, syntax(14)),
        (r#"{"id":1,"a":{"b"}}"#, syntax(16)),
        (r#"{"id":1,"a":"\x"}"#, syntax(14)),
        (r#"{"id":1,"a":"\u12g4"}"#, syntax(15)),
        ("{\"id\":1,\"a\":\"a\tb\"}", syntax(14)),
        ("{\"id\":1,\"a\":\"0123456789\u{1}\"}", syntax(23)),
        (r#"{"id":1,"a":"open"#, syntax(17)),
    ] {
        assert_eq!(Envelope::scan(line).err(), Some(expected), "{line}");
        let is_json = serde_json::from_str::<serde_json::Value>(line).is_ok();
        let is_syntax = matches!(expected, Malformed::Syntax { .. });
        assert!(!(is_json && is_syntax), "serde_json reads it: {line}");
    }
    assert_eq!(
        Envelope::scan_bytes(b"{\"id\":\"\xff\"}").err(),
        Some(Malformed::NotUtf8)
    );
    let deep = format!("{{\"id\":1,\"a\":{}1{}}}", "[".repeat(600), "]".repeat(600));
    assert_eq!(Envelope::scan(&deep).err(), Some(Malformed::TooDeep));
    let just_fits = format!(
        "{{\"id\":1,\"a\":{}1{}}}",
        "[".repeat(MAX_DEPTH),
        "]".repeat(MAX_DEPTH)
    );
    assert!(Envelope::scan(&just_fits).is_ok());
}

proptest::proptest! {
    #[test]
    fn the_scan_accepts_exactly_what_serde_json_does(text in r#"[\{\}\[\],:"\\ untruefalsid0-9.eE+-]{0,24}"#) {
        let line = format!("{{\"id\":1,\"a\":{text}}}");
        let is_json = serde_json::from_str::<&serde_json::value::RawValue>(&line).is_ok();
        let is_scanned = !matches!(Envelope::scan(&line), Err(Malformed::Syntax { .. }));
        proptest::prop_assert_eq!(is_json, is_scanned, "{}", line);
    }

    #[test]
    fn a_generated_message_is_read_back(
        id in proptest::option::of(0_u64..), method in ".{1,12}", session in ".{0,40}", other in ".{0,80}",
    ) {
        let mut message = serde_json::json!({
            "other": {"id": other, "sessionId": other}, "method": method,
            "params": {"sessionId": session, "update": {"sessionUpdate": other, "id": 4}},
        });
        if let Some(id) = id {
            message["id"] = id.into();
        }
        let line = message.to_string();
        let envelope = Envelope::scan(&line).unwrap();
        let id = id.map(|id| id.to_string());
        proptest::prop_assert_eq!(envelope.id(), id.as_deref());
        proptest::prop_assert_eq!(&*envelope.method().unwrap(), method.as_str());
        proptest::prop_assert_eq!(&*envelope.session_id().unwrap(), session.as_str());
        proptest::prop_assert_eq!(&*envelope.update_kind().unwrap(), other.as_str());
        let expected = OversizedLineIds { id, method: Some(method), session_id: Some(session.clone()) };
        if session.len() < 40 {
            for piece_bytes in [1, 7, 4_096] {
                proptest::prop_assert_eq!(&stream(&line, piece_bytes), &expected);
            }
        }
    }
}

fn stream(line: &str, piece_bytes: usize) -> OversizedLineIds {
    let mut scanner = IdScanner::default();
    for piece in line.as_bytes().chunks(piece_bytes) {
        scanner.feed(piece);
    }
    scanner.finish()
}

#[test]
fn the_owner_of_a_line_that_is_too_long_is_found() {
    let long = "x\\\"id\\\":1".repeat(1_000);
    let text = |value: &str| Some(value.to_owned());
    for (line, expected) in [
        (
            format!(r#"{{"jsonrpc":"2.0","id":12,"result":{{"id":1,"text":"{long}"}}}}"#),
            OversizedLineIds {
                id: text("12"),
                ..OversizedLineIds::default()
            },
        ),
        (
            format!(r#"{{"result":{{"id":1,"text":["{long}"]}}, "\u0069d" : "a\"b" }}"#),
            OversizedLineIds {
                id: text(r#""a\"b""#),
                ..OversizedLineIds::default()
            },
        ),
        (
            format!(
                r#"{{"params":{{"a":{{"sessionId":"no"}},"update":"{long}","sessionId":"s"}},"method":"m"}}"#
            ),
            OversizedLineIds {
                id: None,
                method: text("m"),
                session_id: text("s"),
            },
        ),
        (
            format!(r#"{{"id":"{long}","method":["m"],"x":{{"sessionId":"no"}}}}"#),
            OversizedLineIds::default(),
        ),
        (format!(r#"[{{"id":1}},"{long}"]"#), OversizedLineIds::default()),
        (
            format!(r#"{{"id":1,"id":2,"{long}":3}}"#),
            OversizedLineIds {
                id: text("2"),
                ..OversizedLineIds::default()
            },
        ),
        ("}}]]{{[\"\\".to_owned(), OversizedLineIds::default()),
    ] {
        for piece_bytes in [1, 3, 64, 100_000] {
            assert_eq!(stream(&line, piece_bytes), expected, "{piece_bytes}: {line}");
        }
    }
}

/// A request of the agent that is damaged, with words of its parameters that look like an outcome, answers nothing.
#[test]
fn a_line_answers_a_request_if_it_has_an_outcome_where_it_breaks_off() {
    for (line, id) in [
        (r#"{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}"#, Some("7")),
        (r#"{"id":"a","error":{"code":-1,"message":nul}}"#, Some(r#""a""#)),
        (r#"{"id":7,"params":{"error":NaN},"method":"m"}"#, None),
        (r#"{"id":7,"method":"m","result":NaN}"#, None),
        (r#"{"result":NaN,"id":7}"#, None),
        (r#"{"id":7,"result":{}}"#, None),
    ] {
        assert_eq!(super::answered_request(line), id, "{line}");
    }
}

mod captures;

use jiff::civil::date;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::agent::kinds::{CLAUDE, CODEX, GEMINI, GENERIC, LOOPBACK};
use FailureKind::{
    AgentDied, AuthRequired, ContextOverflow, InvalidRequest, Network, Overloaded, RateLimited, Unknown,
};

/// 2026-11-20 22:00 UTC, the evening of the captures.
fn now() -> Zoned {
    date(2026, 11, 20)
        .at(22, 0, 0, 0)
        .to_zoned(TimeZone::UTC)
        .unwrap()
}

/// Fails if a message of ours has words that are not in the snapshot.
#[track_caller]
fn check_words(failure: &Failure, of: &str) {
    crate::words::check(of, &word(failure.kind), &failure.message);
}

fn of_error(agent: &AgentKind, error: &Value) -> Failure {
    classify(agent, &Evidence::of_error(error), &now())
}

#[test]
fn an_agents_error_kind_decides_and_the_text_refines_vague_ones() {
    let table = [
        ("rate_limit", "whatever", RateLimited, true),
        ("overloaded", "hit your limit", Overloaded, true),
        ("billing_error", "Credit balance is too low", RateLimited, false),
        ("authentication_failed", "", AuthRequired, false),
        ("account_on_hold", "", AuthRequired, false),
        (
            "invalid_request",
            "input is too long for requested model",
            ContextOverflow,
            false,
        ),
        ("model_not_found", "no such model", InvalidRequest, false),
        ("transport_lost", "", AgentDied, true),
        ("worker_shutdown", "", AgentDied, true),
        ("server_error", "API Error: 529 Overloaded", Overloaded, true),
        ("server_error", "API Error: 503 try later", Overloaded, true),
        ("server_error", "API Error: Connection error.", Network, true),
        (
            "server_error",
            "the rate limit service answered 500",
            Unknown,
            true,
        ),
        ("unknown", "odd", Unknown, true),
        ("brand_new_kind", "prompt is too long", ContextOverflow, false),
        ("brand_new_kind", "odd", Unknown, false),
    ];
    for (kind, text, expected, retryable) in table {
        let failure = of_error(
            &CLAUDE,
            &json!({"code": -32603, "message": text, "data": {"errorKind": kind}}),
        );
        assert_eq!(
            (failure.kind, failure.retryable),
            (expected, retryable),
            "{kind}: {text}"
        );
    }
}

#[test]
fn codex_error_names_decide_with_or_without_a_status() {
    let table = [
        (json!("usageLimitExceeded"), "", RateLimited),
        (json!("contextWindowExceeded"), "", ContextOverflow),
        (json!("serverOverloaded"), "usage limit reached", Overloaded),
        (json!("unauthorized"), "", AuthRequired),
        (json!("badRequest"), "", InvalidRequest),
        (json!("internalServerError"), "", Unknown),
        (
            json!({"httpConnectionFailed": {"httpStatusCode": null}}),
            "",
            Network,
        ),
        (
            json!({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}),
            "",
            RateLimited,
        ),
        (
            json!({"responseTooManyFailedAttempts": {"httpStatusCode": 503}}),
            "",
            Overloaded,
        ),
        (
            json!({"responseStreamConnectionFailed": {"httpStatusCode": 401}}),
            "",
            AuthRequired,
        ),
        (json!("other"), "quota exceeded", RateLimited),
        (json!(null), "odd", Unknown),
    ];
    for (info, text, expected) in table {
        let error = json!({"code": -32603, "message": "Internal error", "data": {"message": text, "codexErrorInfo": info}});
        assert_eq!(of_error(&CODEX, &error).kind, expected, "{info}");
    }
}

#[test]
fn statuses_as_data_or_as_the_code_are_read() {
    let table = [
        (json!({"code": 429, "message": "Slow down"}), RateLimited),
        (json!({"code": 503, "message": "Later"}), Overloaded),
        (
            json!({"code": -32603, "message": "x", "data": {"status": 529}}),
            Overloaded,
        ),
        (
            json!({"code": -32603, "message": "x", "data": {"httpStatusCode": 401}}),
            AuthRequired,
        ),
        (
            json!({"code": -32603, "message": "x", "data": {"statusCode": 413}}),
            ContextOverflow,
        ),
        (
            json!({"code": -32603, "message": "x", "data": {"status": 404}}),
            InvalidRequest,
        ),
        (
            json!({"code": -32603, "message": "x", "data": {"status": 500}}),
            Unknown,
        ),
        (
            json!({"code": -32603, "message": "x", "data": {"status": 4290}}),
            Unknown,
        ),
        (json!({"code": -32602, "message": "x"}), InvalidRequest),
    ];
    for (error, expected) in table {
        assert_eq!(of_error(&GEMINI, &error).kind, expected, "{error}");
    }
}

#[test]
fn words_decide_without_data() {
    let table = [
        ("Overloaded", Some(Overloaded)),
        (
            "API Error: 529 Overloaded. You've hit your limit",
            Some(Overloaded),
        ),
        (
            "Overloaded: your credit balance is too low to skip the queue",
            Some(Overloaded),
        ),
        (
            "prompt is too long: 250000 tokens > 200000 maximum",
            Some(ContextOverflow),
        ),
        ("Request rejected (429)", Some(RateLimited)),
        ("You've hit your limit · resets 10:59pm (UTC)", Some(RateLimited)),
        ("Your credit balance is too low", Some(RateLimited)),
        ("connect ECONNREFUSED 127.0.0.1:8000", Some(Network)),
        ("Invalid API key · Fix external API key", Some(AuthRequired)),
        ("last status: 504", Some(Overloaded)),
        ("version 4.29 (429 lines)", None),
        ("it was 1429 in (Constance)", None),
        ("", None),
    ];
    for (text, expected) in table {
        let found = tables::by_text(&text.to_lowercase()).map(|verdict| verdict.kind);
        assert_eq!(found, expected, "{text}");
    }
}

/// F24: overload is never a limit or a matter of credit, whatever else the turn showed.
#[test]
fn f24_overload_is_never_a_limit() {
    let mut signs = FailureSigns::default();
    signs.observe(
        "_claude/sdkMessage",
        &json!({"message": {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1}}}),
    );
    let error = json!({"code": -32603, "message": "Internal error: API Error: 529 Overloaded", "data": {"errorKind": "server_error"}});
    let failure = classify(&CLAUDE, &Evidence::of_error(&error).with_signs(&signs), &now());
    assert_eq!((failure.kind, failure.resets_at), (Overloaded, None));
    assert_eq!(failure.message, "API Error: 529 Overloaded");
}

/// F21: events about limits do not turn a successful turn into a failure.
#[test]
fn f21_a_limit_event_alone_is_not_a_failure() {
    for status in ["allowed", "allowed_warning", "rejected"] {
        let mut signs = FailureSigns::default();
        let limit = json!({"status": status, "resetsAt": 1});
        let update = json!({"sessionUpdate": "usage_update", "_meta": {"_claude/rateLimit": limit}});
        signs.observe("session/update", &json!({"update": update}));
        assert_eq!(signs.resets_at.is_some(), status == "rejected");
        let result = json!({"stopReason": "end_turn"});
        assert_eq!(
            failure_of_result(&CLAUDE, &Evidence::of_result(&result).with_signs(&signs), &now()),
            None
        );
    }
}

#[test]
fn a_failure_record_makes_a_failure_of_an_ordinary_end() {
    let record = |category: &str, severity: &str, title: &str, actions: Value| {
        let failure = json!({"category": category, "severity": severity, "title": title, "actions": actions});
        json!({"stopReason": "end_turn", "_meta": {"jetbrains": {"air": {"version": 1, "sessionFailure": failure}}}})
    };
    let table = [
        (
            &CLAUDE,
            record("limit", "error", "You've hit your limit", json!([])),
            Some((RateLimited, true)),
        ),
        (
            &CLAUDE,
            record("limit", "error", "Out of budget", json!(["new_session"])),
            Some((RateLimited, false)),
        ),
        (
            &CLAUDE,
            record("limit", "error", "Prompt is too long", json!([])),
            Some((ContextOverflow, false)),
        ),
        (
            &CLAUDE,
            record("service", "error", "Overloaded", json!(["retry"])),
            Some((Overloaded, true)),
        ),
        (
            &CLAUDE,
            record("service", "error", "odd", json!(["retry"])),
            Some((Unknown, true)),
        ),
        (
            &CLAUDE,
            record("access", "error", "Sign in", json!(["login"])),
            Some((AuthRequired, false)),
        ),
        (
            &CLAUDE,
            record("request", "error", "Bad", json!([])),
            Some((InvalidRequest, false)),
        ),
        (
            &CLAUDE,
            record("connection", "error", "Lost", json!([])),
            Some((AgentDied, true)),
        ),
        (
            &CODEX,
            record("connection", "error", "Lost", json!([])),
            Some((Network, true)),
        ),
        (
            &CODEX,
            record("limit", "warning", "Reconnecting... 1/2", json!([])),
            None,
        ),
        (
            &CLAUDE,
            record("new_category", "error", "odd", json!([])),
            Some((Unknown, false)),
        ),
        (&CLAUDE, json!({"stopReason": "cancelled"}), None),
        (&CLAUDE, json!({"stopReason": "refusal"}), None),
    ];
    for (agent, result, expected) in table {
        let found = failure_of_result(agent, &Evidence::of_result(&result), &now());
        assert_eq!(
            found.map(|failure| (failure.kind, failure.retryable)),
            expected,
            "{result}"
        );
    }
}

#[test]
fn a_thread_that_recovered_within_the_turn_is_not_broken() {
    let status = |kind: &str| {
        let meta = json!({"codex": {"threadStatus": {"type": kind}}});
        json!({"update": {"sessionUpdate": "session_info_update", "_meta": meta}})
    };
    let mut signs = FailureSigns::default();
    signs.observe("session/update", &status("systemError"));
    assert!(signs.is_thread_broken);
    signs.observe("session/update", &status("active"));
    assert!(!signs.is_thread_broken);
}

/// F26: an error that Codex retried and recovered from does not classify the end of the turn.
#[test]
fn f26_a_retry_that_went_well_does_not_classify_the_end() {
    let limit = "exceeded retry limit, last status: 429 Too Many Requests";
    let broken = |ending: &str| {
        let error = json!({"codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": 429}}, "additionalDetails": limit, "willRetry": true});
        let mut signs = FailureSigns::default();
        for update in [
            json!({"sessionUpdate": "session_info_update", "_meta": {"codex": {"error": error}}}),
            json!({"sessionUpdate": "session_info_update", "_meta": {"codex": {"threadStatus": {"type": "systemError"}}}}),
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": ending}}),
        ] {
            signs.observe("session/update", &json!({"update": update}));
        }
        signs
    };
    let result = json!({"stopReason": "end_turn"});
    for (ending, expected) in [
        (format!("{limit}\n\n"), RateLimited),
        (
            "Codex ran out of room in the model's context window.".into(),
            ContextOverflow,
        ),
        ("something else".into(), Unknown),
    ] {
        let evidence = Evidence::of_result(&result);
        let signs = broken(&ending);
        let found = failure_of_result(&CODEX, &evidence.with_signs(&signs), &now());
        assert_eq!(found.map(|failure| failure.kind), Some(expected), "{ending}");
    }
    let signed_out = json!({"code": -32000, "message": "Authentication required"});
    let evidence = Evidence::of_error(&signed_out);
    let signs = broken("");
    assert_eq!(
        classify(&CODEX, &evidence.with_signs(&signs), &now()).kind,
        AuthRequired
    );
}

#[test]
fn the_server_below_codex_adapter_ended_and_may_restart() {
    let gone = |data: Value| json!({"code": 1001, "message": "The Codex app-server is gone.", "data": data});
    let table = [
        (gone(json!({"restartable": true})), AgentDied, true),
        (
            gone(json!({"restartable": false, "retryAfterMs": 60000})),
            AgentDied,
            true,
        ),
        (gone(json!({"restartable": false})), AgentDied, false),
        (gone(json!({"exitCode": 1})), Unknown, false),
    ];
    for (error, kind, retryable) in table {
        let failure = of_error(&CODEX, &error);
        assert_eq!((failure.kind, failure.retryable), (kind, retryable), "{error}");
    }
}

#[test]
fn a_session_is_unknown_only_if_the_agent_reports_it() {
    let table = [
        (
            &CLAUDE,
            json!({"code": -32002, "message": "Resource not found"}),
            true,
        ),
        (
            &GENERIC,
            json!({"code": -32002, "message": "Resource not found"}),
            true,
        ),
        (
            &CLAUDE,
            json!({"code": -32603, "message": "Error: --resume requires a valid session ID"}),
            true,
        ),
        (
            &CODEX,
            json!({"code": -32603, "message": "x", "data": {"details": "no rollout found for thread id 1"}}),
            true,
        ),
        (
            &CODEX,
            json!({"code": -32603, "message": "x", "data": {"details": "thread not found: 1"}}),
            true,
        ),
        (
            &GENERIC,
            json!({"code": -32603, "message": "no rollout found for thread id 1"}),
            false,
        ),
        (
            &CODEX,
            json!({"code": -32603, "message": "the archive session is_archived"}),
            false,
        ),
        (
            &CLAUDE,
            json!({"code": -32603, "message": "Internal error"}),
            false,
        ),
    ];
    for (agent, error, expected) in table {
        assert_eq!(of_error(agent, &error).session_unknown, expected, "{error}");
    }
}

#[test]
fn there_is_always_a_message() {
    let table = [
        (json!({"code": -32603, "message": "Internal error: why"}), "why"),
        (
            json!({"code": -32603, "message": "Internal error", "data": {"details": "why"}}),
            "why",
        ),
        (
            json!({"code": -32603, "message": "Internal error", "data": "why"}),
            "why",
        ),
        (
            json!({"code": -32603, "message": "Internal error"}),
            "Internal error",
        ),
    ];
    for (error, expected) in table {
        assert_eq!(of_error(&GENERIC, &error).message, expected, "{error}");
    }
    for error in [json!({"code": -32603}), json!({})] {
        check_words(&of_error(&GENERIC, &error), &error.to_string());
    }
}

#[test]
fn a_dead_agents_last_words_are_its_message() {
    let failure = agent_died("exit status 1", "starting\nError: no such file\n\n");
    assert_eq!(failure.kind, AgentDied);
    check_words(&failure, "an agent's last words");
    check_words(&agent_died("signal 9", ""), "an agent without last words");
}

#[test]
fn messages_have_no_terminal_control_sequences() {
    let printed = "\u{1b}[2m22:00\u{1b}[0m \u{1b}[31mERROR\u{1b}[0m no room\n\u{1b}[0m\n";
    let error = json!({"code": 1001, "message": printed, "data": {"restartable": true}});
    let failure = of_error(&CODEX, &error);
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (AgentDied, "22:00 ERROR no room")
    );
    let died = agent_died("exit status: 1", printed);
    check_words(&died, "an agent's last words in colour");
    let nothing = json!({"code": 1001, "message": "\u{1b}[0m"});
    check_words(&of_error(&CODEX, &nothing), &nothing.to_string());
}

#[test]
fn another_writer_is_recognised_by_data_or_by_words() {
    let words = "thread 1 already has an active writer";
    let table = [
        (json!({"reason": "thread_active_writer"}), true),
        (json!({"details": words}), true),
        (json!({"reason": "other", "details": words}), false),
        (json!(null), false),
    ];
    for (data, expected) in table {
        let error = json!({"code": -32600, "message": "Invalid request", "data": data});
        assert_eq!(is_session_in_use(&Evidence::of_error(&error)), expected, "{data}");
        let failure = of_error(&CODEX, &error);
        assert_eq!(
            (failure.kind, failure.retryable),
            (InvalidRequest, expected),
            "{data}"
        );
    }
}

proptest! {
    /// Agents' messages may be in any language.
    #[test]
    fn any_text_can_be_classified(text in "(status: |\\(|[45][0-9]{2}|\\)|API Error: |resets |try again in |[\u{130}\u{1e9e}\u{e9}]|[0-9 :]|limit|\\PC){0,12}", times in 1usize..2_000) {
        let long = text.repeat(times);
        for agent in [&CLAUDE, &CODEX, &GENERIC] {
            let mut signs = FailureSigns::default();
            signs.observe("session/update", &json!({"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": long}}}));
            signs.observe("session/update", &json!({"update": {"sessionUpdate": "session_info_update",
                "_meta": {"codex": {"error": {"additionalDetails": long, "codexErrorInfo": text}}}}}));
            for error in [
                json!({"code": -32603, "message": text, "data": {"errorKind": text, "details": text, "codexErrorInfo": text}}),
                json!({"code": -32603, "message": text, "data": text}),
            ] {
                let failure = classify(agent, &Evidence::of_error(&error).with_signs(&signs), &now());
                prop_assert!(!failure.message.is_empty());
            }
            let result = json!({"stopReason": text, "usage": null,
                "_meta": {"jetbrains": {"air": {"sessionFailure": {"category": text, "title": text}}}}});
            let _failure = failure_of_result(agent, &Evidence::of_result(&result).with_signs(&signs), &now());
        }
    }
}

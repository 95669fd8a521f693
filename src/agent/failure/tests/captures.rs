//! What the real agents said when something went wrong, and what it must be taken for.

use std::fs;
use std::path::PathBuf;

use super::*;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/failures")
}

/// What a session does with the lines of one call: signs from the notifications, then the answer.
fn judge(agent: AgentKind, capture: &str) -> Option<Failure> {
    let mut signs = TurnSigns::default();
    let mut failure = None;
    for line in capture.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let message = &line["msg"];
        if line["dir"] != "<" {
            continue;
        }
        if let Some(method) = message["method"].as_str() {
            if TurnSigns::concerns(agent, message.to_string().as_bytes()) {
                signs.observe(method, &message["params"]);
            }
            continue;
        }
        failure = match message.get("error") {
            Some(error) => Some(classify(
                agent,
                &Evidence::of_error(error).with_signs(&signs),
                &now(),
            )),
            None => failure_of_result(
                agent,
                &Evidence::of_result(&message["result"]).with_signs(&signs),
                &now(),
            ),
        };
    }
    failure
}

/// What a capture must be taken for: kind, whether trying later may help, reset time, unknown session.
type Expected = Option<(FailureKind, bool, Option<&'static str>, bool)>;

const CAPTURES: &[(&str, Expected)] = &[
    (
        "claude-400-compacted",
        Some((ContextOverflow, false, None, false)),
    ),
    ("claude-400-context", Some((ContextOverflow, false, None, false))),
    ("claude-401", Some((AuthRequired, false, None, false))),
    ("claude-403", Some((AuthRequired, false, None, false))),
    ("claude-413", Some((ContextOverflow, false, None, false))),
    ("claude-429-apikey", Some((RateLimited, true, None, false))),
    ("claude-500", Some((Unknown, true, None, false))),
    ("claude-529", Some((Overloaded, true, None, false))),
    ("claude-child-killed", Some((AgentDied, true, None, false))),
    ("claude-connrefused", Some((Network, true, None, false))),
    ("claude-cwd-gone", Some((InvalidRequest, false, None, false))),
    (
        "claude-fork-point-missing",
        Some((InvalidRequest, false, None, false)),
    ),
    (
        "claude-limit-subscription",
        Some((RateLimited, true, Some("2026-11-20T22:59:24Z"), false)),
    ),
    (
        "claude-limit-subscription-air",
        Some((RateLimited, true, Some("2026-11-20T22:59:25Z"), false)),
    ),
    (
        "claude-limit-then-allowed",
        Some((RateLimited, true, Some("2026-11-21T00:52:04Z"), false)),
    ),
    ("claude-nokey", Some((AuthRequired, false, None, false))),
    ("claude-not-a-uuid", Some((InvalidRequest, false, None, true))),
    ("claude-ordinary-turn-beside-limit", None),
    ("claude-recovered-from-drop", None),
    ("claude-recovered-from-overload", None),
    (
        "claude-session-after-child-death",
        Some((InvalidRequest, false, None, true)),
    ),
    (
        "claude-set-model-gone",
        Some((InvalidRequest, false, None, false)),
    ),
    (
        "claude-unknown-session",
        Some((InvalidRequest, false, None, true)),
    ),
    ("codex-400", Some((InvalidRequest, false, None, false))),
    ("codex-401", Some((AuthRequired, false, None, false))),
    ("codex-429", Some((RateLimited, true, None, false))),
    ("codex-429-air", Some((RateLimited, true, None, false))),
    ("codex-500", Some((Overloaded, true, None, false))),
    ("codex-503", Some((Overloaded, true, None, false))),
    ("codex-503-air", Some((Overloaded, true, None, false))),
    ("codex-active-writer", Some((InvalidRequest, true, None, false))),
    (
        "codex-archived-session",
        Some((InvalidRequest, false, None, true)),
    ),
    ("codex-context", Some((ContextOverflow, false, None, false))),
    (
        "codex-failed-ratelimit",
        Some((RateLimited, true, Some("2026-11-20T22:00:01Z"), false)),
    ),
    ("codex-no-credit", Some((RateLimited, false, None, false))),
    ("codex-ordinary-turn", None),
    (
        "codex-refused-after-a-retry",
        Some((InvalidRequest, false, None, false)),
    ),
    ("codex-server-killed", Some((AgentDied, true, None, false))),
    (
        "codex-session-lost-with-server",
        Some((InvalidRequest, false, None, true)),
    ),
    ("codex-stream-drop", Some((Network, true, None, false))),
    ("codex-unknown-session", Some((InvalidRequest, false, None, true))),
    (
        "codex-usage-limit",
        Some((RateLimited, true, Some("2026-11-20T23:13:00Z"), false)),
    ),
    (
        "codex-usage-limit-air",
        Some((RateLimited, true, Some("2026-11-20T23:13:00Z"), false)),
    ),
];

#[test]
fn every_capture_is_taken_for_what_it_is() {
    for (name, expected) in CAPTURES {
        let capture = fs::read_to_string(folder().join(format!("{name}.jsonl"))).unwrap();
        let agents: &[AgentKind] = if name.starts_with("claude") {
            &[Claude, Loopback]
        } else {
            &[Codex]
        };
        for agent in agents {
            let found = judge(*agent, &capture);
            if let Some(failure) = &found {
                assert!(
                    !failure.message.is_empty() && !failure.message.starts_with("Internal error"),
                    "{name}"
                );
            }
            let found = found.map(|failure| {
                let resets_at = failure.resets_at.map(|at| at.to_string());
                (
                    failure.kind,
                    failure.retryable,
                    resets_at,
                    failure.session_unknown,
                )
            });
            let expected =
                expected.map(|(kind, later, at, unknown)| (kind, later, at.map(str::to_owned), unknown));
            assert_eq!(found, expected, "{name} as {agent}");
        }
    }
}

#[test]
fn no_capture_is_left_out_of_the_table() {
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .into_string()
                .unwrap()
                .replace(".jsonl", "")
        })
        .collect();
    names.sort();
    assert_eq!(names, CAPTURES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

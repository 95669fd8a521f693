//! Captured errors of real agents about sessions, which no client sees, and their expected classification.
//! `tests/daemon/failure_captures.rs` tests failures of turns.

use std::fs;
use std::path::PathBuf;

use super::*;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/failures")
}

/// Processes the lines of one call as a session does: signs from the notifications, then the answer.
fn judge(agent: &AgentKind, capture: &str) -> Option<Failure> {
    let mut signs = FailureSigns::default();
    let mut failure = None;
    for line in capture.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let message = &line["msg"];
        if line["dir"] != "<" {
            continue;
        }
        if let Some(method) = message["method"].as_str() {
            if (agent.may_show_failure)(message.to_string().as_bytes()) {
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

/// The expected classification: kind, retryable, reset time, unknown session.
type Expected = Option<(FailureKind, bool, Option<&'static str>, bool)>;

const CAPTURES: &[(&str, Expected)] = &[
    ("claude-cwd-gone", Some((InvalidRequest, false, None, false))),
    (
        "claude-fork-point-missing",
        Some((InvalidRequest, false, None, false)),
    ),
    ("claude-not-a-uuid", Some((InvalidRequest, false, None, true))),
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
    ("codex-active-writer", Some((InvalidRequest, true, None, false))),
    (
        "codex-archived-session",
        Some((InvalidRequest, false, None, true)),
    ),
    (
        "codex-session-lost-with-server",
        Some((InvalidRequest, false, None, true)),
    ),
    ("codex-unknown-session", Some((InvalidRequest, false, None, true))),
];

#[test]
fn every_capture_is_classified_as_expected() {
    for (name, expected) in CAPTURES {
        let capture = fs::read_to_string(folder().join(format!("{name}.jsonl"))).unwrap();
        let agents: &[&AgentKind] = if name.starts_with("claude") {
            &[&CLAUDE, &LOOPBACK]
        } else {
            &[&CODEX]
        };
        for agent in agents {
            let found = judge(agent, &capture);
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

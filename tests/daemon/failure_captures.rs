//! Captured failures of real agents, replayed by a scripted agent: each one reaches the client with the right kind.

use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::turn::FailureKind::{
    self, AgentDied, AuthRequired, ContextOverflow, InvalidRequest, Network, Overloaded, RateLimited, Unknown,
};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::home::Home;
use crate::scripted::configured_with;

/// The session id in the captures.
const SESSION: &str = "\"00000000-0000-4000-8000-000000000001\"";

/// The first second of 2100, which replaces the reset times in the captures, because those have passed.
const LATER: i64 = 4_102_444_800;

/// The reset times in the captures, in seconds since 1970.
const CAPTURED: [&str; 3] = ["1795215564", "1795215565", "1795222324"];

/// When the limit of a capture ends.
#[derive(Clone, Copy, Debug)]
enum Reset {
    /// The agent does not say.
    Unsaid,
    /// At [`LATER`].
    Told,
    /// At the next occurrence of this hour and minute in the daemon's time zone, UTC.
    At(i8, i8),
    /// This long after the message.
    In(SignedDuration),
}
use Reset::{At, In, Told, Unsaid};

/// Captured prompts: each with the kind of failure, whether a retry may succeed, and when the limit ends.
const CAPTURES: &[(&str, Option<(FailureKind, bool, Reset)>)] = &[
    ("claude-400-compacted", Some((ContextOverflow, false, Unsaid))),
    ("claude-400-context", Some((ContextOverflow, false, Unsaid))),
    ("claude-401", Some((AuthRequired, false, Unsaid))),
    ("claude-403", Some((AuthRequired, false, Unsaid))),
    ("claude-413", Some((ContextOverflow, false, Unsaid))),
    ("claude-429-apikey", Some((RateLimited, true, Unsaid))),
    ("claude-500", Some((Unknown, true, Unsaid))),
    ("claude-529", Some((Overloaded, true, Unsaid))),
    ("claude-child-killed", Some((AgentDied, true, Unsaid))),
    ("claude-connrefused", Some((Network, true, Unsaid))),
    ("claude-limit-subscription", Some((RateLimited, true, Told))),
    ("claude-limit-subscription-air", Some((RateLimited, true, Told))),
    ("claude-limit-then-allowed", Some((RateLimited, true, Told))),
    ("claude-nokey", Some((AuthRequired, false, Unsaid))),
    ("claude-ordinary-turn-beside-limit", None),
    ("claude-recovered-from-drop", None),
    ("claude-recovered-from-overload", None),
    ("codex-400", Some((InvalidRequest, false, Unsaid))),
    ("codex-401", Some((AuthRequired, false, Unsaid))),
    ("codex-429", Some((RateLimited, true, Unsaid))),
    ("codex-429-air", Some((RateLimited, true, Unsaid))),
    ("codex-500", Some((Overloaded, true, Unsaid))),
    ("codex-503", Some((Overloaded, true, Unsaid))),
    ("codex-503-air", Some((Overloaded, true, Unsaid))),
    ("codex-context", Some((ContextOverflow, false, Unsaid))),
    (
        "codex-failed-ratelimit",
        Some((RateLimited, true, In(SignedDuration::from_secs(1)))),
    ),
    ("codex-no-credit", Some((RateLimited, false, Unsaid))),
    ("codex-ordinary-turn", None),
    (
        "codex-refused-after-a-retry",
        Some((InvalidRequest, false, Unsaid)),
    ),
    ("codex-server-killed", Some((AgentDied, true, Unsaid))),
    ("codex-stream-drop", Some((Network, true, Unsaid))),
    ("codex-usage-limit", Some((RateLimited, true, At(23, 13)))),
    ("codex-usage-limit-air", Some((RateLimited, true, At(23, 13)))),
];

/// Captures that do not show a client a failed turn. They are tested next to the modules that handle them.
const ELSEWHERE: [&str; 10] = [
    "claude-cwd-gone",
    "claude-fork-point-missing",
    "claude-not-a-uuid",
    "claude-session-after-child-death",
    "claude-set-model-gone",
    "claude-unknown-session",
    "codex-active-writer",
    "codex-archived-session",
    "codex-session-lost-with-server",
    "codex-unknown-session",
];

/// Returns the folder of the captures.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/failures")
}

/// Returns a script that sends what the agent of a capture sent, including its response to the prompt.
fn script(capture: &str) -> String {
    let lines = capture.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let mut message = line["msg"].clone();
        if line["dir"] != "<" {
            return None;
        }
        if message.get("id").is_some() {
            message["id"] = json!("answered");
        }
        let text = message
            .to_string()
            .replace("\"answered\"", "$P")
            .replace(SESSION, "$S");
        let later = CAPTURED
            .iter()
            .fold(text, |text, at| text.replace(at, &LATER.to_string()));
        Some(later)
    });
    // The last line waits for a response that never comes, so that the scripted agent does not respond to the prompt
    // again.
    lines
        .chain(["await \"nothing\"".to_owned()])
        .collect::<Vec<_>>()
        .join("\n")
}

#[tokio::test]
async fn each_captured_failure_reaches_the_client_as_what_it_is() {
    let agents =
        ["claude", "codex"].map(|kind| configured_with(kind, None, &format!("kind = \"{kind}\"")) + "\n");
    let home = Home::with_config(&agents.concat());
    let (_daemon, app) = home.opened().await;
    let mut wrong = Vec::new();
    for (name, expected) in CAPTURES {
        let (agent, _) = name.split_once('-').unwrap();
        let capture = fs::read_to_string(folder().join(format!("{name}.jsonl"))).unwrap();
        let made = app.make_with(&home.project(), json!({ "agent": agent })).await;
        let (id, before) = (made.id, made.created_at);
        let turn = app.send(id, &script(&capture)).await;
        let after = app.get(id).await.updated_at;
        let is_expected = match (&turn.failure, expected) {
            (None, None) => true,
            (Some(failure), Some((kind, retryable, reset))) => {
                let is_reset = match (failure.resets_at, reset) {
                    (None, Unsaid) => true,
                    (Some(at), Told) => at.as_second() == LATER,
                    (Some(at), In(time)) => (before + *time..=after + *time).contains(&at),
                    (Some(at), At(hour, minute)) => {
                        let day = SignedDuration::from_hours(24);
                        let just_lifted = SignedDuration::from_mins(5);
                        let told = at.to_zoned(jiff::tz::TimeZone::UTC).time();
                        (before - just_lifted..=after + day).contains(&at)
                            && told == jiff::civil::time(*hour, *minute, 0, 0)
                    }
                    _ => false,
                };
                !failure.message.is_empty()
                    && (failure.kind, failure.retryable) == (*kind, *retryable)
                    && is_reset
            }
            _ => false,
        };
        if !is_expected {
            wrong.push(format!("{name}: {expected:?}, not {:?}", turn.failure));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_capture_is_left_out() {
    let files = fs::read_dir(folder()).unwrap();
    let mut found: Vec<String> = files
        .map(|file| {
            file.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    found.sort();
    let mut judged: Vec<&str> = CAPTURES.iter().map(|(name, _)| *name).chain(ELSEWHERE).collect();
    judged.sort_unstable();
    assert_eq!(found, judged);
}

//! Claude Code, through `claude-agent-acp`.

use memchr::memmem;
use serde_json::{Map, Value, json};

use super::{AgentKind, ForkPointSupport, GENERIC, ModelSetting, Package, Retention, TranscriptRoot};
use crate::agent::failure::FailureKind;
use crate::transcript::claude;

/// Claude Code. More facts, measured on 0.101.0, that need no field:
///
/// - Its fork of a compacted session is exact. Like the bridge's own cut, it renames the ids of the kept messages in
///   `compactMetadata`. The model gets what the source would send next, even after a fork of the fork or a resume. In
///   auto mode, a process that opens a compacted session repeats its note on that mode after the prompt; so does a
///   resume.
/// - A new session starts in auto mode if the user's settings name no mode. Up to 0.100.0 it asked before each tool.
///   A resume and a fork keep the mode of the last prompt.
/// - A prompt that a usage limit refused stays in the model's history.
/// - It may continue in another transcript under the same session id (`/clear`).
/// - In the middle of a stream, it takes up to 2 s to end after the end of its input, until its own child has ended.
/// - About 54 minutes after the last request, the adapter sends itself `/compact` in an open session of 200,000
///   tokens or more.
pub static CLAUDE: AgentKind = AgentKind {
    name: "claude",
    package: Some(Package {
        name: "@agentclientprotocol/claude-agent-acp",
        measured_version: "0.101.0",
        reports_own_name: true,
    }),
    programs: &["claude-agent-acp", "claude-code-acp"],
    // If this is set for root, the agent requests a mode that it then refuses, so no session starts.
    env_remove: &["IS_SANDBOX"],
    transcript_format: Some(claude::FORMAT),
    transcript_root: TranscriptRoot::Home {
        variable: Some("CLAUDE_CONFIG_DIR"),
        folder: ".claude",
    },
    // Found in the code of version 2.1.316, as was the minimum of 1 day.
    retention: Retention::DeletedAfter {
        days: 30,
        managed: if cfg!(target_os = "macos") {
            "/Library/Application Support/ClaudeCode"
        } else {
            "/etc/claude-code"
        },
    },
    session_meta,
    fork_point: ForkPointSupport::Message,
    model_setting: ModelSetting::ConfigOption,
    close_answers_early: true,
    unknown_session: &[&["requires a valid session id"]],
    may_show_failure: |line| {
        memmem::find(line, b"_claude/rateLimit").is_some()
            || memmem::find(line, b"rate_limit_event").is_some()
    },
    // The connection between the adapter and its own child process, not the network.
    connection_failure: FailureKind::AgentDied,
    // With a token in its environment, it reports `none` although it is signed in.
    sign_in: "run claude in a terminal and sign in there with /login; with CLAUDE_CODE_OAUTH_TOKEN in the daemon's environment it \
              works all the same",
    warning: Some("do not continue one session in two programs at once: what one of them writes is lost"),
    ..GENERIC
};

/// The method of raw event notifications.
pub const RAW_EVENT_METHOD: &str = "_claude/sdkMessage";

/// Requests raw events, and adds the system prompt to the agent's own. Measured on 0.100.0: `init` has 2.9 KB once per
/// prompt (none per chunk or tool call), the limit event 0.3 KB once per turn, and neither changes what the model gets.
/// Only `init` announces the transcript that a prompt goes to. Only the limit event has the reset time on the first turn
/// of a session.
fn session_meta(system_prompt: Option<&str>) -> Map<String, Value> {
    let events = json!([{"type": "system", "subtype": "init"}, {"type": "rate_limit_event"}]);
    let mut meta = Map::new();
    meta.insert("claudeCode".to_owned(), json!({ "emitRawSDKMessages": events }));
    if let Some(text) = system_prompt {
        meta.insert("systemPrompt".to_owned(), json!({ "append": text }));
    }
    meta
}

/// Returns the upstream id of the transcript that the agent now writes, from the parameters of a raw event
/// notification ([`RAW_EVENT_METHOD`]). It differs from the session id after a silent roll. `None` for all other
/// events. (`conversation_reset` has a `new_conversation_id` too, but that does not name a transcript.)
#[must_use]
pub fn announced_transcript(params: &Value) -> Option<&str> {
    let message = params.get("message")?;
    let is = |key: &str, value: &str| message.get(key).and_then(Value::as_str) == Some(value);
    (is("type", "system") && is("subtype", "init"))
        .then(|| message.get("session_id").and_then(Value::as_str))
        .flatten()
        .filter(|id| !id.is_empty())
}

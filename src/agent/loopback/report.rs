//! What the agent tells beside the replies: usage, limits, titles, commands, and Claude's own messages.

use serde_json::{Value, json};
use uuid::Uuid;

use super::keeper::now_text;
use super::session::{Session, Settings};
use super::wire::Output;

/// The size of the context that the agent says it has, in tokens.
const CONTEXT_TOKENS: u64 = 200_000;

/// How many bytes of a transcript count as one token: a usual rule of thumb, and nothing depends on it.
const BYTES_PER_TOKEN: u64 = 4;

/// The most characters of a title.
const TITLE_CHARS: usize = 80;

/// The tokens that a transcript of this size uses.
pub(super) fn tokens(transcript_bytes: u64) -> u64 {
    transcript_bytes / BYTES_PER_TOKEN
}

pub(super) fn usage(output: &Output, session_id: &str, used: u64, meta: &Value) {
    let update =
        json!({ "sessionUpdate": "usage_update", "used": used, "size": CONTEXT_TOKENS, "_meta": meta });
    output.update(session_id, &update);
}

/// Tells the commands; clients show them as soon as a session is open.
pub(super) fn commands(output: &Output, session_id: &str) {
    let commands: Vec<Value> = [
        ("[[recall]]", "Say the turns of the history"),
        ("[[settings]]", "Say the session's settings"),
    ]
    .into_iter()
    .map(|(name, description)| json!({ "name": name, "description": description, "input": null }))
    .collect();
    output.update(
        session_id,
        &json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands }),
    );
}

/// Tells the session's title, which is how its first prompt begins.
pub(super) fn title(output: &Output, session_id: &str, first_prompt: &str) {
    output.update(
        session_id,
        &json!({
            "sessionUpdate": "session_info_update",
            "title": title_of(first_prompt),
            "updatedAt": now_text(),
        }),
    );
}

/// The title of a session whose first prompt this is: its first line, as far as it fits.
pub(super) fn title_of(first_prompt: &str) -> String {
    first_prompt
        .trim()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(TITLE_CHARS)
        .collect()
}

/// Tells which file the session writes, to a client that asked for Claude's own messages.
pub(super) fn raw_init(output: &Output, session: &Session, settings: &Settings, file_id: &str) {
    if settings.wants_raw("system", Some("init")) {
        raw(
            output,
            session,
            &json!({
                "type": "system", "subtype": "init", "session_id": file_id, "uuid": Uuid::new_v4(),
                "cwd": settings.cwd.to_string_lossy(), "model": settings.model,
            }),
        );
    }
}

/// Tells the uuid under which a prompt stands in the transcript.
pub(super) fn raw_prompt(
    output: &Output,
    session: &Session,
    settings: &Settings,
    file_id: &str,
    uuid: &str,
    content: &[Value],
) {
    if settings.wants_raw("user", None) {
        raw(
            output,
            session,
            &json!({
                "type": "user", "session_id": file_id, "uuid": uuid, "parent_tool_use_id": null,
                "message": { "role": "user", "content": content },
            }),
        );
    }
}

/// Tells a usage limit and when it ends, both in the standard way and in Claude's own.
pub(super) fn limit(
    output: &Output,
    session: &Session,
    settings: &Settings,
    file_id: &str,
    used: u64,
    resets_at: i64,
) {
    if settings.wants_raw("rate_limit_event", None) {
        raw(
            output,
            session,
            &json!({
                "type": "rate_limit_event", "session_id": file_id, "uuid": Uuid::new_v4(),
                "rate_limit_info": {
                    "status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour",
                    "isUsingOverage": false,
                },
            }),
        );
    }
    let meta = json!({ "_claude/rateLimit": { "status": "rejected", "resetsAt": resets_at } });
    usage(output, &session.id, used, &meta);
}

fn raw(output: &Output, session: &Session, message: &Value) {
    output.notify(
        "_claude/sdkMessage",
        &json!({ "sessionId": session.id, "message": message }),
    );
}

//! Sessions of subagents, which an agent announces in an update of the session that started them. Pure.
//!
//! Their ids are the agent's, and the agent uses them like those of other sessions: in updates, in requests, and in what clients send.
//! None of them is opened or closed by a client; they belong to the session of the announcement.

use serde_json::Value;

/// How an agent announces such a session in the protocol's unstable part, to clients that advertise `subagents`.
pub const UPDATE: &str = "subagent_update";

/// The same in a draft that clients of JetBrains advertise as `nativeSubagentSessions`.
pub const SPAWNED: &str = "subagent_spawned";

/// How many of them are known for one session. The oldest is forgotten for a new one.
pub const MAX_SESSIONS: usize = 1_024;

/// The session that an update announces or reports, if it is of such a kind.
#[must_use]
pub fn announced_session(kind: &str, update: &str) -> Option<String> {
    let member = match kind {
        UPDATE => "sessionId",
        SPAWNED => "subagentSessionId",
        _ => return None,
    };
    let update: Value = serde_json::from_str(update).ok()?;
    update[member].as_str().map(str::to_owned)
}

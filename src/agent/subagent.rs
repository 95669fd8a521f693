//! Recognizes the sessions of subagents. An agent announces one in an update of the session that started it. Pure.
//!
//! The agent chooses their ids and uses them like other session ids: in updates, in requests, and in messages from clients.
//! Clients never open or close these sessions. Each one belongs to the session that announced it.

use serde_json::Value;

use super::envelope::Line;

/// The update that announces a subagent's session, in the unstable part of the protocol. Sent to clients that
/// advertise `subagents`.
pub const UPDATE: &str = "subagent_update";

/// The same update in a draft, which JetBrains clients advertise as `nativeSubagentSessions`.
pub const SPAWNED: &str = "subagent_spawned";

/// How many subagent sessions are remembered per session. Beyond that, the oldest is forgotten.
pub const MAX_SESSIONS: usize = 1_024;

/// Returns the subagent's session that an update announces or reports on. `None` for other updates.
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

/// Returns the parameters of an update that clients get with it: those that contain more than a session and the update, or
/// announce a subagent's session, which only they name.
#[must_use]
pub fn params_beside_update(line: &Line) -> Option<&str> {
    let announced = || announced_session(&line.update_kind()?, line.update()?);
    line.extra_params().or_else(|| announced().and(line.params()))
}

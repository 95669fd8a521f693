//! The agent built into this program. It behaves like Claude Code where the bridge depends on it, so its tests exercise
//! every rung.

use super::{AgentKind, CLAUDE, GENERIC, TranscriptRoot};
use crate::paths::names;

/// The built-in agent.
pub static LOOPBACK: AgentKind = AgentKind {
    name: "loopback",
    transcript_format: CLAUDE.transcript_format,
    transcript_root: TranscriptRoot::Data {
        folder: names::LOOPBACK,
    },
    session_meta: CLAUDE.session_meta,
    fork_point: CLAUDE.fork_point,
    model_setting: CLAUDE.model_setting,
    unknown_session: CLAUDE.unknown_session,
    may_show_failure: CLAUDE.may_show_failure,
    connection_failure: CLAUDE.connection_failure,
    ..GENERIC
};

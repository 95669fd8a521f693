//! Codex, through `codex-acp`.

use memchr::memmem;

use super::{AgentKind, ForkPointSupport, GENERIC, Package, Retention, TranscriptRoot};
use crate::transcript::codex;

/// Codex. It takes 7 s to end after the end of its input, and 0.3 s after a signal.
pub static CODEX: AgentKind = AgentKind {
    name: "codex",
    package: Some(Package {
        name: "@agentclientprotocol/codex-acp",
        measured_version: "2.6.0",
        reports_own_name: true,
    }),
    programs: &["codex-acp"],
    transcript_format: Some(codex::FORMAT),
    transcript_root: TranscriptRoot::Home {
        variable: Some("CODEX_HOME"),
        folder: ".codex",
    },
    retention: Retention::NotDeleted("it is not known to delete transcripts; it compresses unused ones"),
    fork_point: ForkPointSupport::Turn,
    shares_process: true,
    unknown_session: &[
        &["no rollout found"],
        // Also reported for a session that it has just opened, if the file was moved.
        &["thread not found"],
        // The session was opened but not yet written when the app-server ended.
        &["was lost when the codex app-server restarted"],
        &["session ", " is archived"],
    ],
    may_show_failure: |line| {
        let has = |marker: &[u8]| memmem::find(line, marker).is_some();
        has(b"session_info_update") || (has(b"agent_message_chunk") && !has(b"\"messageId\""))
    },
    sign_in: "run codex login in a terminal",
    warning: Some("it refuses a session that another program has open; close it there, or fork"),
    ..GENERIC
};

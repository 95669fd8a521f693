//! Gemini CLI, which speaks ACP itself.

use super::{AgentKind, GENERIC, Package, TranscriptRoot};

/// Gemini CLI. Measured on 0.61.0: of a replay of 120 updates, one came before the answer to the load, the others within 4 ms
/// after it.
pub static GEMINI: AgentKind = AgentKind {
    name: "gemini",
    package: Some(Package {
        name: "@google/gemini-cli",
        measured_version: "0.61.0",
        reports_own_name: false,
    }),
    programs: &["gemini"],
    arguments: &["--acp"],
    transcript_root: TranscriptRoot::Home {
        variable: None,
        folder: ".gemini",
    },
    replays_after_answer: true,
    sign_in: "run gemini in a terminal and sign in there",
    ..GENERIC
};

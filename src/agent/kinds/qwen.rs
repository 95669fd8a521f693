//! Qwen Code, which speaks ACP itself.

use super::{AgentKind, GENERIC, Package, TranscriptRoot};
use crate::transcript::qwen;

/// Qwen Code. More facts, measured on 0.24.4, that need no field: a session that it does not have is answered with ACP's -32002, and
/// it ends 0.2 s after the end of its input.
pub static QWEN: AgentKind = AgentKind {
    name: "qwen",
    package: Some(Package {
        name: "@qwen-code/qwen-code",
        measured_version: "0.24.4",
        reports_own_name: false,
    }),
    programs: &["qwen"],
    arguments: &["--acp"],
    transcript_format: Some(qwen::FORMAT),
    transcript_root: TranscriptRoot::Home {
        variable: Some("QWEN_HOME"),
        folder: ".qwen",
    },
    sign_in: "run qwen in a terminal and sign in there",
    ..GENERIC
};

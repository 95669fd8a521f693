//! opencode, which speaks ACP itself. Its sessions are rows of a database.

use super::{AgentKind, GENERIC, Package};

/// opencode.
pub static OPENCODE: AgentKind = AgentKind {
    name: "opencode",
    package: Some(Package {
        name: "opencode-ai",
        measured_version: "1.18.33",
        reports_own_name: false,
    }),
    programs: &["opencode"],
    arguments: &["acp"],
    sign_in: "run opencode auth login in a terminal",
    ..GENERIC
};

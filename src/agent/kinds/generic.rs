//! Any other ACP agent. Only the protocol's guarantees are relied on.

use serde_json::Map;

use super::{AgentKind, ForkPointSupport, ModelSetting, Retention, TranscriptRoot};
use crate::agent::failure::FailureKind;

/// Any other ACP agent. The other kinds begin with these facts.
pub static GENERIC: AgentKind = AgentKind {
    name: "generic",
    package: None,
    programs: &[],
    arguments: &[],
    env_remove: &[],
    transcript_format: None,
    transcript_root: TranscriptRoot::Nowhere,
    retention: Retention::Unknown,
    session_meta: |_| Map::new(),
    fork_point: ForkPointSupport::None,
    model_setting: ModelSetting::ConfigOptionOrSetModel,
    close_answers_early: false,
    replays_after_answer: false,
    shares_process: false,
    unknown_session: &[&["session not found"]],
    may_show_failure: |_| false,
    connection_failure: FailureKind::Network,
    sign_in: "sign in with the agent's own program",
    warning: None,
};

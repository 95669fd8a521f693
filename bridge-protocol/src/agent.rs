//! The agents that a daemon knows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::AgentName;
use crate::raw::RawJson;

/// An agent as it is configured and found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentInfo {
    /// Its name in the configuration.
    pub name: AgentName,
    /// What it is: `claude`, `codex`, `gemini`, `opencode`, `loopback` or `generic`.
    pub kind: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether the program exists.
    pub found: bool,
    /// Whether a process of it runs.
    pub running: bool,
    /// Whether it is used when none is named.
    #[serde(default)]
    pub default: bool,
    /// ACP's agent capabilities, known once it has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<RawJson>,
    /// ACP's `agentInfo` (name, title, version), known once it has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_info: Option<RawJson>,
    /// Who is signed in, as the agent itself says it (`kind`, `label`, `detail`; `kind` is `none` for nobody), where it does:
    /// Claude's and Codex' adapters do, some time after their start. A token in the environment may be left out of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_status: Option<RawJson>,
    /// ACP's ways to sign in, known once it has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_methods: Option<RawJson>,
}

/// The answer of `agent/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentList {
    /// In the order of the configuration; `loopback` is always among them.
    pub agents: Vec<AgentInfo>,
}

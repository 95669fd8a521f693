//! Agents that the daemon can run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::AgentName;
use crate::raw::RawJson;

/// An agent: its configuration, and what is known of its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentInfo {
    /// The agent's name in the configuration.
    pub name: AgentName,
    /// The kind of agent: `claude`, `codex`, `gemini`, `opencode`, `loopback` or `generic`.
    pub kind: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether the program exists.
    pub found: bool,
    /// Whether a process of this agent is running.
    pub running: bool,
    /// Whether this is the default agent, used when a call names none.
    #[serde(default)]
    pub default: bool,
    /// ACP's agent capabilities; absent while the agent is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<RawJson>,
    /// ACP's `agentInfo` (name, title, version); absent while the agent is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_info: Option<RawJson>,
    /// Who is signed in, as the agent reports it: `kind`, `label` and `detail`; `kind` is `none` when nobody is signed
    /// in. Only the adapters of Claude and Codex report it, some time after they start; absent otherwise. It may omit a
    /// token from the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_status: Option<RawJson>,
    /// ACP's sign-in methods; absent while the agent is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_methods: Option<RawJson>,
}

/// The answer of `agent/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentList {
    /// The agents, in the order of the configuration; always includes `loopback`.
    pub agents: Vec<AgentInfo>,
    /// How to install the known agents whose programs are not found: the kind, and a shell command. Absent if all are found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub install: BTreeMap<String, String>,
}

//! Agents that the daemon can run.

use std::collections::BTreeMap;

use crate::declare::objects;
use crate::id::AgentName;
use crate::raw::RawJson;

objects! {
    /// An agent: its configuration, and what is known of its program.
    AgentInfo {
        /// The agent's name in the configuration.
        name: AgentName,
        /// The kind of agent: `claude`, `codex`, `gemini`, `opencode`, `qwen`, `loopback` or `generic`.
        kind: String,
        /// The program and its arguments.
        command: Vec<String>,
        /// Whether the program exists.
        found: bool,
        /// Whether a process of this agent is running.
        running: bool,
        /// Whether this is the default agent, used when a call names none.
        #[serde(default)]
        default: bool,
        /// Whether a conversation can be forked after an earlier turn. Its end can be forked if ACP's capabilities say so.
        #[serde(default)]
        fork_at: bool,
        /// ACP's agent capabilities; absent while the agent is not running.
        capabilities: Option<RawJson> = default,
        /// ACP's `agentInfo` (name, title, version); absent while the agent is not running.
        agent_info: Option<RawJson> = default,
        /// Who is signed in, as the agent reports it: `kind`, `label` and `detail`; `kind` is `none` when nobody is
        /// signed in. Only the adapters of Claude and Codex report it, some time after they start; absent otherwise. It
        /// may omit a token from the environment.
        auth_status: Option<RawJson> = default,
        /// ACP's sign-in methods; absent while the agent is not running.
        auth_methods: Option<RawJson> = default,
    }

    /// The answer of `agent/list`.
    AgentList {
        /// The agents, in the order of the configuration; always includes `loopback`.
        agents: Vec<AgentInfo>,
        /// How to install the known agents whose programs are not found: the kind, and a shell command. Absent if all
        /// are found.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        install: BTreeMap<String, String>,
    }
}

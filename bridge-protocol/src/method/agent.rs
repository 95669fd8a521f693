//! `agent/…`: the agents.

use super::methods;
use crate::agent::AgentList;
use crate::conversation::Empty;
use crate::id::AgentName;

methods! {
    trait HandleAgents;

    /// Lists the configured agents and the built-in `loopback`.
    "agent/list" => ListAgents() -> AgentList, [] {}

    /// Signs in to an agent by one of its own methods.
    "agent/authenticate" => Authenticate(once) -> Empty,
    [NotFound, AgentUnavailable, AgentError, AuthRequired, Limited, Unsupported] {
        /// The agent to sign in to.
        agent: AgentName,
        /// One of the agent's `authMethods`, as `agent/list` reports them.
        method_id: String,
    }

    /// Signs out of an agent.
    "agent/logout" => Logout(once) -> Empty,
    [NotFound, Busy, AgentUnavailable, AgentError, AuthRequired, Limited, Unsupported] {
        /// The agent to sign out of.
        agent: AgentName,
        /// Whether to clear the chains of its conversations too. Default: false.
        reset: bool = default,
    }
}

//! `agent/…`: about the agents.

#[cfg(any(feature = "client", feature = "server"))]
use jsonrpsee::proc_macros::rpc;

#[cfg(any(feature = "client", feature = "server"))]
#[cfg(feature = "server")]
use super::RpcResult;
use crate::agent::AgentList;
use crate::conversation::Empty;
use crate::id::AgentName;
#[cfg(feature = "schema")]
use crate::openrpc::Methods;

methods! {
    describe:
    /// Methods about the agents.
    #[cfg_attr(
        all(feature = "client", feature = "server"),
        rpc(client, server, namespace = "agent", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "client", not(feature = "server")),
        rpc(client, namespace = "agent", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "server", not(feature = "client")),
        rpc(server, namespace = "agent", namespace_separator = "/")
    )]
    pub trait AgentRpc {
        /// The agents that are configured, and `loopback`.
        #[method(name = "list", param_kind = map)]
        async fn list_agents(&self) -> RpcResult<AgentList>;

        /// Signs in to an agent by one of its own methods.
        ///
        /// - `agent`: The agent to sign in to.
        /// - `methodId`: One of the `authMethods` that `agent/list` tells of it.
        ///
        /// # Errors
        /// `notFound`, `agentUnavailable`, `agentError`, `authRequired`, `limited`, `unsupported`.
        #[method(name = "authenticate", param_kind = map)]
        async fn authenticate(
            &self,
            agent: AgentName,
            #[argument(rename = "methodId")] method_id: String,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<Empty>;

        /// Signs out of an agent.
        ///
        /// - `agent`: The agent to sign out of.
        /// - `reset`: Whether the chains of its conversations are cleared too. Default: false.
        ///
        /// # Errors
        /// `notFound`, `busy`, `agentUnavailable`, `agentError`, `authRequired`, `limited`, `unsupported`.
        #[method(name = "logout", param_kind = map)]
        async fn logout(
            &self,
            agent: AgentName,
            reset: Option<bool>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<Empty>;
    }
}

//! `agent/…`.

use bridge_protocol::AgentName;
use bridge_protocol::agent::{AgentInfo, AgentList};
use bridge_protocol::conversation::Empty;
use bridge_protocol::raw::RawJson;
use bridge_protocol::rpc::{AgentRpcServer, RpcResult};
use jsonrpsee::core::async_trait;
use serde::Deserialize;

use super::Handlers;
use super::errors::wire;
use crate::agent::pool::Lease;
use crate::conversation::climbing::acquire;
use crate::conversation::effect::Call;
use crate::conversation::error::ConversationError;
use crate::conversation::upstream::{OpenError, conversation_error};

#[async_trait]
impl AgentRpcServer for Handlers {
    async fn list_agents(&self) -> RpcResult<AgentList> {
        let services = self.daemon.registry.services();
        let running = services.pool.running();
        let agents = services.catalog.entries().iter().map(|entry| {
            let process = running
                .iter()
                .find(|agent| agent.key().agent() == entry.name.as_str());
            let told = process.map(|agent| agent.initialized());
            AgentInfo {
                name: entry.name.clone(),
                kind: entry.kind.to_string(),
                command: entry.command_line(),
                found: entry.is_found(),
                running: process.is_some(),
                default: entry.name == *services.catalog.default_agent(),
                capabilities: told.and_then(|told| capabilities(&told.raw)),
                auth_methods: told.and_then(|told| told.auth_methods.clone()).map(RawJson::new),
            }
        });
        Ok(AgentList {
            agents: agents.collect(),
        })
    }

    async fn authenticate(&self, agent: AgentName, method_id: String) -> RpcResult<Empty> {
        let (lease, entry) = self.lease(&agent).await?;
        let result = lease
            .calls()
            .authenticate(&method_id, &serde_json::Map::new())
            .await;
        result.map_err(|error| wire(&conversation_error(&entry, &OpenError::Call(error))))?;
        Ok(Empty {})
    }

    async fn logout(&self, agent: AgentName, reset: Option<bool>) -> RpcResult<Empty> {
        let (lease, entry) = self.lease(&agent).await?;
        let result = lease.calls().logout().await;
        result.map_err(|error| wire(&conversation_error(&entry, &OpenError::Call(error))))?;
        if reset == Some(true) {
            self.reset_all(&agent).await.map_err(|error| wire(&error))?;
        }
        Ok(Empty {})
    }
}

impl Handlers {
    async fn lease(
        &self,
        agent: &AgentName,
    ) -> RpcResult<(Lease, std::sync::Arc<crate::agent::catalog::AgentEntry>)> {
        let services = self.daemon.registry.services();
        let entry = services.agent(agent).map_err(|error| wire(&error))?;
        let lease = acquire(services, &entry).await.map_err(|error| wire(&error))?;
        Ok((lease, entry))
    }

    /// Clears the chains of an agent's conversations, one after another; the first that cannot be stops it.
    async fn reset_all(&self, agent: &AgentName) -> Result<(), ConversationError> {
        for id in self.daemon.registry.of_agent(agent).await? {
            let answer = self.daemon.registry.call(id, Call::Reset, None)?;
            answer.await.unwrap_or(Err(ConversationError::Lost))?;
        }
        Ok(())
    }
}

/// ACP's `agentCapabilities`, as the agent wrote them.
fn capabilities(raw: &serde_json::value::RawValue) -> Option<RawJson> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Members {
        agent_capabilities: Option<RawJson>,
    }
    serde_json::from_str::<Members>(raw.get())
        .ok()?
        .agent_capabilities
}

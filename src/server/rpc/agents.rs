//! `agent/…`.

use std::sync::Arc;

use bridge_protocol::agent::{AgentInfo, AgentList};
use bridge_protocol::conversation::Empty;
use bridge_protocol::raw::RawJson;
use bridge_protocol::rpc::{AgentRpcServer, RpcResult};
use bridge_protocol::{AgentName, ConversationId};
use jsonrpsee::core::async_trait;
use serde::Deserialize;
use serde_json::Map;

use super::errors::wire;
use super::{Handlers, request};
use crate::agent::catalog::AgentEntry;
use crate::agent::pool::Lease;
use crate::conversation::answer::{Answer, Request};
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
                agent_info: told.and_then(|told| told.agent_info.clone()).map(RawJson::new),
                auth_status: process
                    .and_then(|agent| agent.connection().auth_status())
                    .map(|status| RawJson::new((*status).to_owned())),
                auth_methods: told.and_then(|told| told.auth_methods.clone()).map(RawJson::new),
            }
        });
        Ok(AgentList {
            agents: agents.collect(),
        })
    }

    async fn authenticate(
        &self,
        agent: AgentName,
        method_id: String,
        request_id: Option<String>,
    ) -> RpcResult<Empty> {
        let request = request("authenticate", request_id, &(&agent, &method_id))?;
        let handlers = self.clone();
        let work = || async move { handlers.sign_in(&agent, &method_id).await };
        self.once(request, work).await
    }

    async fn logout(
        &self,
        agent: AgentName,
        reset: Option<bool>,
        request_id: Option<String>,
    ) -> RpcResult<Empty> {
        let reset = reset == Some(true);
        let request = request("logout", request_id, &(&agent, reset))?;
        let handlers = self.clone();
        let work = || async move { handlers.sign_out(&agent, reset).await };
        self.once(request, work).await
    }
}

impl Handlers {
    async fn once<F>(&self, request: Option<Request>, work: impl FnOnce() -> F) -> RpcResult<Empty>
    where
        F: Future<Output = Result<Answer, ConversationError>> + Send + 'static,
    {
        let done = self.daemon.registry.once(None, request, work).await;
        done.map(|_| Empty {}).map_err(|error| wire(&error))
    }

    async fn lease(&self, agent: &AgentName) -> Result<(Lease, Arc<AgentEntry>), ConversationError> {
        let services = self.daemon.registry.services();
        let entry = services.agent(agent)?;
        let lease = acquire(services, &entry).await?;
        Ok((lease, entry))
    }

    async fn sign_in(&self, agent: &AgentName, method_id: &str) -> Result<Answer, ConversationError> {
        let (lease, entry) = self.lease(agent).await?;
        let result = lease.calls().authenticate(method_id, &Map::new()).await;
        result.map_err(|error| conversation_error(&entry, &OpenError::Call(error)))?;
        Ok(Answer::Done)
    }

    async fn sign_out(&self, agent: &AgentName, reset: bool) -> Result<Answer, ConversationError> {
        let (lease, entry) = self.lease(agent).await?;
        if reset {
            self.check_rested(agent)?;
        }
        let result = lease.calls().logout().await;
        result.map_err(|error| conversation_error(&entry, &OpenError::Call(error)))?;
        if reset {
            self.reset_all(agent).await?;
        }
        Ok(Answer::Done)
    }

    /// Refuses, before anything is done, while a turn runs in one of the agent's conversations.
    fn check_rested(&self, agent: &AgentName) -> Result<(), ConversationError> {
        let busy = self.daemon.registry.running_of_agent(agent);
        if busy.is_empty() {
            return Ok(());
        }
        Err(ConversationError::BusyConversations {
            what: format!(
                "nothing was done: a turn runs in {}; cancel it or wait for its end",
                listed(&busy)
            ),
            conversations: busy,
        })
    }

    /// Clears the chains of an agent's conversations. One that cannot be cleared, because a turn has begun in it
    /// meanwhile, holds none of the others up and is named.
    async fn reset_all(&self, agent: &AgentName) -> Result<(), ConversationError> {
        let registry = &self.daemon.registry;
        let mut left = Vec::new();
        let mut last = None;
        for id in registry.of_agent(agent).await? {
            let cleared = match registry.call(id, Call::Reset, None) {
                Ok(answer) => answer.await.unwrap_or(Err(ConversationError::Lost)),
                Err(error) => Err(error),
            };
            match cleared {
                // One that was deleted meanwhile has nothing left to clear.
                Ok(_) | Err(ConversationError::Deleted { .. }) => {}
                Err(error) => {
                    left.push(id);
                    last = Some(error);
                }
            }
        }
        let Some(error) = last else { return Ok(()) };
        Err(ConversationError::BusyConversations {
            what: format!(
                "signed out, and all conversations but {} were reset; reset {} by hand: {error}",
                listed(&left),
                if left.len() == 1 { "it" } else { "these" },
            ),
            conversations: left,
        })
    }
}

fn listed(ids: &[ConversationId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
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

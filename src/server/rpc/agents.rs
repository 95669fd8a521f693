//! `agent/…`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_protocol::agent::{AgentInfo, AgentList};
use bridge_protocol::conversation::Empty;
use bridge_protocol::method::{Authenticate, ListAgents, Logout};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{AgentName, BridgeError, ConversationId};
use serde::Deserialize;
use serde_json::Map;

use super::{Act, Handlers, read};
use crate::agent::catalog::AgentEntry;
use crate::agent::pool::Lease;
use crate::agent::profile::AgentKind;
use crate::conversation::answer::{Answer, Request};
use crate::conversation::climbing::acquire;
use crate::conversation::effect::Call;
use crate::conversation::error::ConversationError;
use crate::conversation::registry::Registry;
use crate::conversation::upstream::{OpenError, conversation_error};

/// How to install the known agents of which no program is found.
fn not_installed(entries: &[Arc<AgentEntry>]) -> BTreeMap<String, String> {
    let is_found = |kind: AgentKind| entries.iter().any(|entry| entry.kind == kind && entry.is_found());
    let missing = AgentKind::ALL.into_iter().filter(|kind| !is_found(*kind));
    missing
        .filter_map(|kind| Some((kind.to_string(), kind.install_command()?)))
        .collect()
}

impl Act<ListAgents> for Handlers {
    async fn act(&self, _: ListAgents, _: Option<Request>) -> Result<AgentList, BridgeError> {
        let services = self.registry().services();
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
            install: not_installed(services.catalog.entries()),
        })
    }
}

impl Act<Authenticate> for Handlers {
    async fn act(&self, params: Authenticate, request: Option<Request>) -> Result<Empty, BridgeError> {
        let registry = Arc::clone(self.registry());
        let sign_in = || async move { sign_in(&registry, &params).await };
        read(&self.registry().once(None, request, sign_in).await?)
    }
}

impl Act<Logout> for Handlers {
    async fn act(&self, params: Logout, request: Option<Request>) -> Result<Empty, BridgeError> {
        let registry = Arc::clone(self.registry());
        let sign_out = || async move { sign_out(&registry, &params).await };
        read(&self.registry().once(None, request, sign_out).await?)
    }
}

async fn lease(
    registry: &Registry,
    agent: &AgentName,
) -> Result<(Lease, Arc<AgentEntry>), ConversationError> {
    let services = registry.services();
    let entry = services.agent(agent)?;
    let lease = acquire(services, &entry).await?;
    Ok((lease, entry))
}

async fn sign_in(registry: &Registry, params: &Authenticate) -> Result<Answer, ConversationError> {
    let (lease, entry) = lease(registry, &params.agent).await?;
    let result = lease.calls().authenticate(&params.method_id, &Map::new()).await;
    result.map_err(|error| conversation_error(&entry, &OpenError::Call(error)))?;
    Ok(Answer::Done)
}

async fn sign_out(registry: &Arc<Registry>, params: &Logout) -> Result<Answer, ConversationError> {
    let (lease, entry) = lease(registry, &params.agent).await?;
    if params.reset {
        check_no_turn_runs(registry, &params.agent)?;
    }
    let result = lease.calls().logout().await;
    result.map_err(|error| conversation_error(&entry, &OpenError::Call(error)))?;
    if params.reset {
        reset_all(registry, &params.agent).await?;
    }
    Ok(Answer::Done)
}

/// Refuses, before anything is done, while a turn runs in one of the agent's conversations.
fn check_no_turn_runs(registry: &Registry, agent: &AgentName) -> Result<(), ConversationError> {
    let busy = registry.running_of_agent(agent);
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

/// Clears the chains of an agent's conversations. One that cannot be cleared, because a turn has begun in it meanwhile, is
/// named and does not stop the others.
async fn reset_all(registry: &Arc<Registry>, agent: &AgentName) -> Result<(), ConversationError> {
    let mut left = Vec::new();
    let mut last = None;
    for id in registry.of_agent(agent).await? {
        let cleared = match registry.call(id, Call::Reset, None) {
            Ok(answer) => answer.await.unwrap_or(Err(ConversationError::Lost)),
            Err(error) => Err(error),
        };
        match cleared {
            // Deleted meanwhile: there is nothing left to clear.
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

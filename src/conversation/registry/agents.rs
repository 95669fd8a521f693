//! Calls about agents: listing them, signing in and signing out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_protocol::AgentName;
use bridge_protocol::agent::{AgentInfo, AgentList};
use bridge_protocol::raw::RawJson;
use serde::Deserialize;

use super::Registry;
use crate::agent::catalog::{AgentEntry, Catalog};
use crate::agent::client::ClientProfile;
use crate::agent::kinds;
use crate::agent::pool::Lease;
use crate::agent::session::Initialized;
use crate::conversation::answer::Answer;
use crate::conversation::climbing::acquire_process;
use crate::conversation::effect::Call;
use crate::conversation::error::{ConversationError, join_list};
use crate::conversation::upstream::{OpenError, conversation_error};

/// Install hints for the known agents whose program is not found.
fn install_hints(catalog: &Catalog) -> BTreeMap<String, String> {
    let is_found = |kind| {
        let mut entries = catalog.entries();
        entries.any(|entry| entry.kind == kind && entry.is_program_found())
    };
    let missing = kinds::ALL.iter().copied().filter(|kind| !is_found(*kind));
    missing
        .filter_map(|kind| Some((kind.to_string(), kind.install_command()?)))
        .collect()
}

impl Registry {
    /// The configured agents, and the state of their programs.
    #[must_use]
    pub fn agents(&self) -> AgentList {
        let services = &self.services;
        let running = services.pool.running();
        let default = services.catalog.default_agent();
        let agents = services.catalog.entries().map(|entry| {
            let process = running
                .iter()
                .find(|agent| agent.key().agent() == entry.name.as_str());
            let told = process.map(|agent| agent.initialized());
            AgentInfo {
                name: entry.name.clone(),
                kind: entry.kind.to_string(),
                command: entry.command_line(),
                found: entry.is_program_found(),
                running: process.is_some(),
                default: entry.name == default,
                fork_at: entry.forks_at_turns(),
                capabilities: told.and_then(|told| capabilities(&told.raw)),
                agent_info: told.and_then(|told| told.agent_info.clone()).map(RawJson::new),
                auth_status: process
                    .and_then(|agent| agent.connection().auth_status())
                    .map(|status| RawJson::new((*status).to_owned())),
                auth_methods: told.and_then(|told| told.auth_methods.clone()).map(RawJson::new),
            }
        });
        AgentList {
            agents: agents.collect(),
            install: install_hints(&services.catalog),
        }
    }

    /// The answer of an agent to `initialize` for a client. Starts the agent, unless a process of it was started before.
    ///
    /// # Errors
    /// When the agent cannot be run.
    pub async fn initialize_agent(
        &self,
        agent: &AgentName,
        client: &ClientProfile,
    ) -> Result<Arc<Initialized>, ConversationError> {
        let entry = self.services.agent_for(agent, Some(client))?;
        let (pool, key) = (&self.services.pool, entry.pool_key());
        match pool.initialized(&key, &entry.launch) {
            Some(known) => Ok(known),
            None => Ok(Arc::new(
                acquire_process(&self.services, &entry)
                    .await?
                    .initialized()
                    .clone(),
            )),
        }
    }

    /// Signs in to an agent with one of the agent's own methods. `params`: further parameters of the client.
    ///
    /// # Errors
    /// When the agent cannot be run, or refuses.
    pub async fn sign_in(
        &self,
        agent: &AgentName,
        client: Option<&ClientProfile>,
        method_id: &str,
        params: Option<RawJson>,
    ) -> Result<Answer, ConversationError> {
        let (lease, entry) = lease(self, agent, client).await?;
        let params = params.as_ref().map(RawJson::as_raw);
        let result = lease.calls().authenticate(method_id, params).await;
        result.map_err(|error| conversation_error(&entry, &OpenError::Call(error)))?;
        Ok(Answer::Done)
    }

    /// Signs out of an agent; with `reset` its conversations forget their sessions.
    ///
    /// # Errors
    /// When the agent cannot be run, or refuses, or a turn runs in one of those conversations.
    pub async fn sign_out(
        self: &Arc<Self>,
        agent: &AgentName,
        client: Option<&ClientProfile>,
        reset: bool,
        params: Option<&RawJson>,
    ) -> Result<Answer, ConversationError> {
        let (lease, entry) = lease(self, agent, client).await?;
        if reset {
            check_no_turn_runs(self, agent)?;
        }
        let result = lease.calls().logout(params.map(RawJson::as_raw)).await;
        result.map_err(|error| conversation_error(&entry, &OpenError::Call(error)))?;
        if reset {
            reset_all(self, agent).await?;
        }
        Ok(Answer::Done)
    }
}

async fn lease(
    registry: &Registry,
    agent: &AgentName,
    client: Option<&ClientProfile>,
) -> Result<(Lease, Arc<AgentEntry>), ConversationError> {
    let services = &registry.services;
    let entry = services.agent_for(agent, client)?;
    let lease = acquire_process(services, &entry).await?;
    Ok((lease, entry))
}

/// Fails while a turn runs in one of the agent's conversations. Called before anything is changed.
fn check_no_turn_runs(registry: &Registry, agent: &AgentName) -> Result<(), ConversationError> {
    let busy = registry.running_conversations_of(agent);
    if busy.is_empty() {
        return Ok(());
    }
    Err(ConversationError::BusyConversations {
        what: format!(
            "nothing was done: a turn runs in {}; cancel it or wait for its end",
            join_list(&busy)
        ),
        conversations: busy,
    })
}

/// Clears the chains of an agent's conversations. A chain that cannot be cleared, because a turn has begun meanwhile, does not
/// stop the others; the error names its conversation.
async fn reset_all(registry: &Arc<Registry>, agent: &AgentName) -> Result<(), ConversationError> {
    let mut failed = Vec::new();
    let mut last = None;
    for id in registry.conversations_of_agent(agent).await? {
        match registry.ask(id, Call::Reset).await {
            // A conversation that was deleted meanwhile has no chain to clear.
            Ok(_) | Err(ConversationError::Deleted { .. }) => {}
            Err(error) => {
                failed.push(id);
                last = Some(error);
            }
        }
    }
    let Some(error) = last else { return Ok(()) };
    Err(ConversationError::BusyConversations {
        what: format!(
            "signed out, but the conversations {} could not be reset; reset {} with sessionctl: {error}",
            join_list(&failed),
            if failed.len() == 1 { "it" } else { "these" },
        ),
        conversations: failed,
    })
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

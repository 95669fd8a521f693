//! `agent/…`.

use std::collections::HashSet;
use std::sync::Arc;

use bridge_protocol::method::{Authenticate, ListAgents, Logout};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{AgentName, BridgeError};

use super::{Bridge, handlers};
use crate::agent::client::ClientProfile;
use crate::agent::kinds;
use crate::agent::process::AgentCommand;
use crate::agent::session::Initialized;

handlers! {
    ListAgents(self, _, _) {
        Ok(self.registry.agents())
    }

    Authenticate(self, params, request) {
        let registry = Arc::clone(&self.registry);
        let sign_in = || async move { registry.sign_in(&params.agent, None, &params.method_id, None).await };
        self.registry.run_idempotent(None, request, sign_in).await?.read()
    }

    Logout(self, params, request) {
        let registry = Arc::clone(&self.registry);
        let sign_out = || async move { registry.sign_out(&params.agent, None, params.reset, None).await };
        self.registry.run_idempotent(None, request, sign_out).await?.read()
    }
}

/// Calls to agents on behalf of a client.
impl Bridge {
    /// The agent that is used if none is named.
    #[must_use]
    pub fn default_agent(&self) -> AgentName {
        self.registry.services().catalog.default_agent()
    }

    /// The agents whose kind is known. They report their commands when they open a session.
    pub fn agents_of_known_kinds(&self) -> HashSet<AgentName> {
        let entries = self.registry.services().catalog.entries();
        let known = entries.filter(|entry| *entry.kind != kinds::GENERIC);
        known.map(|entry| entry.name.clone()).collect()
    }

    /// Returns an agent's answer to `initialize`. Starts the agent, unless the answer is known.
    ///
    /// # Errors
    /// The agent cannot be run.
    pub async fn initialize_agent(
        &self,
        agent: &AgentName,
        client: &ClientProfile,
    ) -> Result<Arc<Initialized>, BridgeError> {
        Ok(self.registry.initialize_agent(agent, client).await?)
    }

    /// Signs in to an agent with one of its methods. `params`: further parameters for the agent.
    ///
    /// # Errors
    /// The agent cannot be run, or refuses.
    pub async fn sign_in(
        &self,
        agent: &AgentName,
        client: &ClientProfile,
        method_id: &str,
        params: Option<RawJson>,
    ) -> Result<(), BridgeError> {
        let signed_in = self.registry.sign_in(agent, Some(client), method_id, params);
        signed_in.await?;
        Ok(())
    }

    /// Signs out of an agent.
    ///
    /// # Errors
    /// The agent cannot be run, or refuses.
    pub async fn sign_out(
        &self,
        agent: &AgentName,
        client: &ClientProfile,
        params: Option<RawJson>,
    ) -> Result<(), BridgeError> {
        self.registry
            .sign_out(agent, Some(client), false, params.as_ref())
            .await?;
        Ok(())
    }

    /// Returns the command that starts an agent.
    ///
    /// # Errors
    /// There is no such agent.
    pub fn agent_command(
        &self,
        agent: &AgentName,
        client: &ClientProfile,
    ) -> Result<AgentCommand, BridgeError> {
        let entry = self.registry.services().agent_for(agent, Some(client))?;
        Ok(entry.launch.command.clone())
    }
}

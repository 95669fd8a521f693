//! What tells the processes of a pool apart: who can share one.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::Launch;

/// Which conversations can share a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolKey {
    agent: String,
    environment: u64,
    client_capabilities: u64,
    /// For whom alone it is.
    apart: Option<u64>,
}

impl PoolKey {
    /// The key of an agent by its configured name, with how it is started and what its client can do.
    #[must_use]
    pub fn new(agent: &str, launch: &Launch) -> Self {
        let capabilities = launch
            .initialize
            .client_capabilities
            .as_deref()
            .map(serde_json::value::RawValue::get);
        Self {
            agent: agent.to_owned(),
            environment: hash_of(&(
                &launch.command.program,
                &launch.command.args,
                &launch.command.env,
                &launch.command.env_remove,
                &launch.command.working_dir,
            )),
            client_capabilities: hash_of(&capabilities),
            apart: None,
        }
    }

    /// The same for one that is to share its process with nobody.
    #[must_use]
    pub fn apart(self, whom: &impl Hash) -> Self {
        Self {
            apart: Some(hash_of(whom)),
            ..self
        }
    }

    /// The agent's configured name.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.agent
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

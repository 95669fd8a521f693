//! Pool keys: which conversations can share a process.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use bridge_protocol::raw::RawJson;
use serde_json::value::RawValue;

use super::{InitializeRequest, Launch};
use crate::agent::members::{Members, to_object};

/// The key of a pooled process. Conversations with equal keys can share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolKey {
    agent: String,
    environment: u64,
    client: u64,
}

impl PoolKey {
    /// Creates a key from the agent's configured name, how it is started, and what `initialize` reports about the
    /// client.
    #[must_use]
    pub fn new(agent: &str, launch: &Launch) -> Self {
        let InitializeRequest {
            client_capabilities,
            client_info,
            client_params,
        } = &launch.initialize;
        let client = [client_capabilities, client_info].map(|raw| raw.as_deref().map(RawValue::get));
        let others = client_params.as_deref().and_then(without_meta);
        Self {
            agent: agent.to_owned(),
            environment: hash_of(&(
                &launch.command.program,
                &launch.command.args,
                &launch.command.env,
                &launch.command.env_remove,
            )),
            client: hash_of(&(client, others.as_ref().map(RawJson::get))),
        }
    }

    /// Returns the agent's configured name.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.agent
    }
}

/// Removes `_meta`, which may differ between connections of the same client. It may contain a trace id, for example.
fn without_meta(params: &RawValue) -> Option<RawJson> {
    let mut members: Members = serde_json::from_str(params.get()).ok()?;
    members.shift_remove("_meta");
    to_object(&members)
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

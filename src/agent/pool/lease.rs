//! The right to use an agent: counted, so that one is not ended as idle while somebody has it.

use std::ops::Deref;
use std::sync::Arc;

use super::Agent;

/// The right to use an agent; while one is held the agent is not idle. Dropping it is the release.
#[derive(Debug)]
pub struct Lease {
    pub(super) agent: Arc<Agent>,
}

impl Lease {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        agent.leases.add();
        Self { agent }
    }

    /// The agent, for whoever only wants to know when it has ended: it keeps nobody from ending it.
    #[must_use]
    pub fn agent(&self) -> Arc<Agent> {
        Arc::clone(&self.agent)
    }

    /// Has the agent end with the last of such leases, unless somebody acquires it to work with it.
    pub fn note_look(&self) {
        self.agent.leases.note_look(true);
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.agent))
    }
}

impl Deref for Lease {
    type Target = Agent;

    fn deref(&self) -> &Agent {
        &self.agent
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.agent.leases.remove();
    }
}

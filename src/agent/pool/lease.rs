//! Leases: counted rights to use an agent. A leased agent is not stopped as idle.

use std::ops::Deref;
use std::sync::Arc;

use super::Agent;

/// The right to use an agent, which is not idle as long as a lease exists. Dropping the lease releases the agent.
#[derive(Debug)]
pub struct Lease {
    pub(super) agent: Arc<Agent>,
}

impl Lease {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        agent.leases.add();
        Self { agent }
    }

    /// Returns the agent itself, to observe its end. This does not keep it running.
    #[must_use]
    pub fn agent(&self) -> Arc<Agent> {
        Arc::clone(&self.agent)
    }

    /// Lets the agent end with its last lease for inspection, unless a caller acquires it for work.
    pub fn end_after_inspection(&self) {
        self.agent.leases.mark_inspected(true);
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

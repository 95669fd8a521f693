//! Leases: counted rights to use an agent, and whether it gets new ones. A leased agent is not stopped as idle.

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
        agent.usage.send_modify(|usage| usage.leases += 1);
        Self { agent }
    }

    /// Returns the agent itself, to observe its end. This does not keep it running.
    #[must_use]
    pub fn agent(&self) -> Arc<Agent> {
        Arc::clone(&self.agent)
    }

    /// Lets the agent end with its last lease for inspection, unless a caller acquires it for work.
    pub fn end_after_inspection(&self) {
        self.agent.mark_inspected(true);
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
        self.agent.usage.send_modify(|usage| usage.leases -= 1);
    }
}

/// The use of an agent, and whether it may get new leases.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) leases: usize,
    pub(super) is_retired: bool,
    is_signed_out: bool,
    /// Whether it is leased only for inspection.
    pub(super) is_inspected_only: bool,
}

impl Agent {
    pub(super) fn lease_count(&self) -> usize {
        self.usage.borrow().leases
    }

    /// Marks it as inspected only: it ends with its last lease, unless a caller acquires it.
    pub(super) fn mark_inspected(&self, is_inspected_only: bool) {
        self.usage.send_if_modified(|usage| {
            let was = std::mem::replace(&mut usage.is_inspected_only, is_inspected_only);
            was != is_inspected_only
        });
    }

    /// Denies new leases; the agent ends with its last one.
    pub fn retire(&self) {
        self.usage.send_modify(|usage| usage.is_retired = true);
    }

    /// Retires an agent that reported that nobody is signed in. It may read the credentials only at its start, so its
    /// users should switch to a new process.
    pub fn mark_signed_out(&self) {
        self.usage.send_modify(|usage| {
            usage.is_retired = true;
            usage.is_signed_out = true;
        });
    }

    /// Whether it reported that nobody is signed in.
    #[must_use]
    pub fn is_signed_out(&self) -> bool {
        self.usage.borrow().is_signed_out
    }

    /// Waits until it reports that nobody is signed in. Cancel safe.
    pub fn signed_out(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut usage = self.usage.subscribe();
        async move {
            if usage.wait_for(|usage| usage.is_signed_out).await.is_err() {
                // It ended without reporting that.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether it gets no new leases.
    #[must_use]
    pub(super) fn is_retired(&self) -> bool {
        self.usage.borrow().is_retired
    }
}

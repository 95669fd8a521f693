//! `agent/…`.

use std::sync::Arc;

use bridge_protocol::method::{Authenticate, ListAgents, Logout};

use super::{Act, Daemon, Outcome, read};
use crate::conversation::answer::Request;

impl Act<ListAgents> for Daemon {
    async fn act(&self, _: ListAgents, _: Option<Request>) -> Outcome<ListAgents> {
        Ok(self.registry.agents())
    }
}

impl Act<Authenticate> for Daemon {
    async fn act(&self, params: Authenticate, request: Option<Request>) -> Outcome<Authenticate> {
        let registry = Arc::clone(&self.registry);
        let sign_in = || async move { registry.sign_in(&params.agent, &params.method_id).await };
        read(&self.registry.once(None, request, sign_in).await?)
    }
}

impl Act<Logout> for Daemon {
    async fn act(&self, params: Logout, request: Option<Request>) -> Outcome<Logout> {
        let registry = Arc::clone(&self.registry);
        let sign_out = || async move { registry.sign_out(&params.agent, params.reset).await };
        read(&self.registry.once(None, request, sign_out).await?)
    }
}

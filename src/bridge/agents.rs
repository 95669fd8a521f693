//! `agent/…`.

use std::sync::Arc;

use bridge_protocol::method::{Authenticate, ListAgents, Logout};

use super::handlers;

handlers! {
    ListAgents(self, _, _) {
        Ok(self.registry.agents())
    }

    Authenticate(self, params, request) {
        let registry = Arc::clone(&self.registry);
        let sign_in = || async move { registry.sign_in(&params.agent, &params.method_id).await };
        self.registry.once(None, request, sign_in).await?.read()
    }

    Logout(self, params, request) {
        let registry = Arc::clone(&self.registry);
        let sign_out = || async move { registry.sign_out(&params.agent, params.reset).await };
        self.registry.once(None, request, sign_out).await?.read()
    }
}

//! A daemon with the real Claude adapter.

use crate::support::claude::{Account, Claude, ClaudeLab};
use crate::support::entry::AgentEntry;

pub(crate) type Bridge = crate::bridge_of::Bridge<Claude>;

impl Bridge {
    /// Returns `None` and prints the reason if the adapter cannot be installed.
    pub(crate) fn start(account: Account) -> Option<Bridge> {
        Self::start_changed(account, |_| {})
    }

    /// The same as [`Bridge::start`]; `change` may modify the agent's entry in the configuration.
    pub(crate) fn start_changed(account: Account, change: impl FnOnce(&mut AgentEntry)) -> Option<Bridge> {
        Some(Bridge::of(ClaudeLab::new(account)?, change))
    }
}

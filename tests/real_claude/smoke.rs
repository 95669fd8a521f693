//! The tests that run at every check: the facts that the daemon relies on, and each promise once. Modules
//! named `smoke` in other folders belong to them; all other tests of real adapters run on demand.

mod compacted;
mod contract;
mod modes;
mod promises;

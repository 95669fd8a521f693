//! What is run at every check: the facts that the daemon relies on, and each promise once. Modules named
//! `smoke` elsewhere belong to it; every other test of the real adapter is run on demand.

mod compacted;
mod contract;
mod modes;
mod promises;

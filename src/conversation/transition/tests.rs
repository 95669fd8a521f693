//! Scenarios and properties of the state machine. `world` carries out its effects symbolically and logs the results in
//! order; the other modules list what happens and the expected log.

mod arrived;
mod branches;
mod callers;
mod calls;
mod cancelling;
mod continuing;
mod durability;
mod edits;
mod failures;
mod let_out;
mod line;
mod moving;
mod opening;
mod outside;
mod prompts;
mod properties;
mod questions;
mod random;
mod recovering;
mod repairing;
mod resting;
mod steps;
mod together;
mod words;
mod world;

//! Scenarios and properties of the state machine. `world` carries its effects out symbolically and writes down, in
//! order, what became of them; the others read as what happens and what is to be seen.

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

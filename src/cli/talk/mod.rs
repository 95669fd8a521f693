//! Talking to an agent: `chat`, `send`, `attach`, `answer`, `cancel`, `continue`, `resume`, `edit`.
//!
//! It owns how a turn is followed (`turn`), what a person sees of it (`screen`, `markdown`), how the agent's questions are asked
//! (`question`, `keys`) and how a line is typed (`lines`). It must not decide anything that the daemon decides.

pub(super) mod answer;
pub(super) mod attach;
pub(super) mod chat;
pub(super) mod continuing;
pub(super) mod edit;
mod editor;
mod files;
mod keys;
mod lines;
pub(super) mod markdown;
pub(super) mod question;
mod screen;
pub(super) mod send;
pub(super) mod turn;

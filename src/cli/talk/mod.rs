//! Commands that talk to an agent: `chat`, `send`, `attach`, `answer`, `cancel`, `continue`, `resume`, `edit`.
//!
//! It owns how a turn is followed (`turn`), how it is displayed (`screen`, `markdown`), how the agent's questions are asked
//! (`question`, `form`, `tool_call`, `answer_reader`) and how a line is typed (`line_reader`) while other clients change
//! the conversation (`other_clients`). It must not decide anything that the daemon decides.

pub(super) mod answer;
mod answer_reader;
pub(super) mod chat;
pub(super) mod continuation;
pub(super) mod edit;
mod editor;
mod files;
mod form;
mod line_reader;
pub(super) mod markdown;
mod other_clients;
pub(super) mod question;
mod screen;
pub(super) mod send;
mod tool_call;
pub(super) mod turn;

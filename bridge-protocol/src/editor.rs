//! What `sessionctl acp` tells the daemon about an editor, before and beside the editor's own messages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::AgentName;

/// The notification, with [`Chosen`] as its parameters, that chooses the agent of the connection.
pub const AGENT: &str = "_sessiond/agent";

/// The request, with [`Chosen`] as its parameters, for the command of an agent. The result is an [`AgentCommand`].
pub const COMMAND: &str = "_sessiond/command";

/// The argument that separates the arguments of a sign-in from those of the agent. Editors append both to `sessionctl acp`.
pub const SIGN_IN: &str = "--sessiond-sign-in";

/// An agent and how to start it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Chosen {
    /// The agent; the default one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Arguments for its command, after the configured ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

/// How the program of an agent is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCommand {
    /// Its path, or a name that is looked up on `PATH`.
    pub program: String,
    /// All its arguments.
    pub arguments: Vec<String>,
    /// Variables to add to the environment.
    pub environment: BTreeMap<String, String>,
    /// Variables to remove from the environment.
    pub removed_variables: Vec<String>,
}

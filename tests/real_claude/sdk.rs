//! The vendor's own library for transcripts (`@anthropic-ai/claude-agent-sdk`), in the version that the
//! adapter is built with. Node runs it on a lab's folder, and it prints what it reads there.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::claude::ClaudeLab;
use crate::support::model_server::{What, conversation_of};

/// Everything that the library reads.
#[derive(Debug)]
pub(crate) struct Told(Value);

impl Told {
    /// Reads everything below the lab's folder.
    pub(crate) fn of(lab: &ClaudeLab) -> Told {
        Told(run(lab, &["all"]))
    }

    /// The sessions in the library's list.
    pub(crate) fn sessions(&self) -> &[Value] {
        self.0["sessions"].as_array().expect("a list of sessions")
    }

    /// The entry of a session in the library's list.
    pub(crate) fn session(&self, id: &str) -> &Value {
        let found = self.sessions().iter().find(|session| session["sessionId"] == id);
        found.unwrap_or_else(|| panic!("the library lists no session {id}: {:?}", self.sessions()))
    }

    /// The uuids of the messages of a session, in the library's order.
    pub(crate) fn message_uuids(&self, id: &str) -> Vec<String> {
        let uuid = |message: &Value| message["uuid"].as_str().expect("a uuid").to_owned();
        self.messages(id).iter().map(uuid).collect()
    }

    fn messages(&self, id: &str) -> &[Value] {
        self.0["messages"][id].as_array().expect("messages")
    }

    /// The trimmed texts of a session, each with its role.
    pub(crate) fn texts(&self, id: &str) -> Vec<(String, String)> {
        let said = conversation_of(
            &json!({"messages": self.messages(id).iter().map(|told| &told["message"]).collect::<Vec<_>>()}),
        )
        .into_iter();
        let texts = said.filter_map(|said| match said.what {
            What::Text(text) => Some((said.role, text)),
            _ => None,
        });
        texts.collect()
    }

    /// The ids of the subagents of a session.
    pub(crate) fn subagents(&self, id: &str) -> Vec<String> {
        let subagents = self.0["subagents"][id].as_array().expect("subagents");
        let name = |agent: &Value| agent.as_str().expect("an id").to_owned();
        subagents.iter().map(name).collect()
    }
}

/// Gives a session a title, as a user does in the agent's own window.
pub(crate) fn rename(lab: &ClaudeLab, id: &str, title: &str) {
    run(lab, &["rename", id, title]);
}

/// Forks a session with the library, up to and including a record. Returns the id of the fork.
pub(crate) fn fork(lab: &ClaudeLab, id: &str, record_uuid: &str) -> String {
    let told = run(lab, &["fork", id, record_uuid]);
    told["sessionId"].as_str().expect("an id").to_owned()
}

fn run(lab: &ClaudeLab, arguments: &[&str]) -> Value {
    let (node, adapter) = lab.command();
    let output = Command::new(node)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_claude/sdk.mjs"))
        .arg(library(&adapter[0]))
        .args(arguments)
        .env_clear()
        .envs(lab.environment())
        .current_dir(lab.project())
        .output()
        .expect("node");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the library failed: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON of the library")
}

/// The path of the library, which is installed next to the adapter's script,
/// `node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js`.
fn library(adapter: &Path) -> PathBuf {
    let modules = adapter.ancestors().nth(4).expect("the folder of packages");
    modules.join("@anthropic-ai/claude-agent-sdk/sdk.mjs")
}

//! The vendor's own library for transcripts, run over the same files as the daemon.

use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::npm::{self, Skip};

/// Lists all sessions; prints the duration and the memory.
const LIST: &str = "const { listSessions } = await import(process.argv[1]); \
    const begun = performance.now(); const sessions = await listSessions({}); \
    console.log(`${sessions.length} sessions in ${Math.round(performance.now() - begun)} ms, \
    ${Math.round(process.resourceUsage().maxRSS / 1000)} MB`);";

/// Reads the messages of one session; prints the duration and the memory.
const MESSAGES: &str = "const { getSessionMessages } = await import(process.argv[1]); \
    const begun = performance.now(); const messages = await getSessionMessages(process.argv[2]); \
    console.log(`${messages.length} messages in ${Math.round(performance.now() - begun)} ms, \
    ${Math.round(process.resourceUsage().maxRSS / 1000)} MB`);";

/// Cuts one session after a message; prints the duration and the memory.
const FORK: &str = "const { forkSession } = await import(process.argv[1]); \
    const begun = performance.now(); await forkSession(process.argv[2], { upToMessageId: process.argv[3] }); \
    console.log(`${Math.round(performance.now() - begun)} ms, ${Math.round(process.resourceUsage().maxRSS / 1000)} MB`);";

/// Describes the cost of `listSessions()` for the transcripts below a root, or says why it was not measured.
/// Fails unless it finds `count` sessions.
pub(crate) fn list_sessions(root: &Path, count: u64) -> Outcome<String> {
    match run("listSessions()", LIST, root, &[]) {
        Ok(said) if said.contains(&format!(": {count} sessions in ")) => Ok(said),
        Ok(said) => Err(format!("{said}, of {count}").into()),
        Err(why) => Ok(why),
    }
}

/// Describes the cost of `getSessionMessages()` for a session, or says why it was not measured.
pub(crate) fn get_session_messages(root: &Path, session: &str) -> String {
    run("getSessionMessages()", MESSAGES, root, &[session]).unwrap_or_else(|why| why)
}

/// Describes the cost of `forkSession()` up to a message, or says why it was not measured.
pub(crate) fn fork_session(root: &Path, session: &str, message: &str) -> String {
    run("forkSession()", FORK, root, &[session, message]).unwrap_or_else(|why| why)
}

/// Runs a script with the library. Returns its output, or why there is none.
fn run(name: &str, script: &str, root: &Path, arguments: &[&str]) -> Result<String, String> {
    let adapter = match npm::claude_adapter() {
        Ok(adapter) => adapter,
        Err(Skip(reason)) => return Err(format!("the vendor's library is left out: {reason}")),
    };
    let modules = adapter
        .script
        .ancestors()
        .find(|folder| folder.ends_with("node_modules"));
    let Some(library) = modules.map(|modules| modules.join("@anthropic-ai/claude-agent-sdk/sdk.mjs")) else {
        return Err(
            "the vendor's library is left out: it is not installed where it is looked for".to_owned(),
        );
    };
    let said = Command::new(&adapter.node)
        .args(["--input-type=module", "-e", script])
        .arg(&library)
        .args(arguments)
        .env("CLAUDE_CONFIG_DIR", root)
        .output();
    match said {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            Ok(format!("the vendor's {name}: {}", said.trim()))
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().rev().find(|line| !line.trim().is_empty());
            Err(format!(
                "the vendor's library failed: {}",
                last.unwrap_or_default()
            ))
        }
        Err(error) => Err(format!("the vendor's library is left out: {error}")),
    }
}

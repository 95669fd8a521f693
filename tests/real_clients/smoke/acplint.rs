//! A published checker of agents, connected to the daemon.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::real_clients::ClientLab;
use crate::real_clients::sdks::pip_installed;

const ACPLINT: &str = "acplint==0.1.0";

/// The categories that check prompts. acplint sends `content` instead of `prompt`, and then waits in vain for
/// updates.
pub(in crate::real_clients) const WAITING: &[&str] = &[
    "streaming",
    "tool_calls",
    "permissions",
    "file_operations",
    "terminals",
    "plans",
];

/// The other categories.
pub(in crate::real_clients) const SWIFT: &[&str] = &[
    "initialization",
    "authentication",
    "session_lifecycle",
    "session_modes",
    "config_options",
    "cancel",
    "stress",
    "schema_validation",
];

/// Checks that fail because acplint deviates from the published schema, with its messages. In the schema
/// `protocolVersion` is a number, an option has `name` and no `label`, a prompt has `prompt` and no
/// `content`, and the update is called `agent_message_chunk`.
const DIFFERENT: [(&str, &str); 7] = [
    (
        "initialize_v1",
        "Initialize response schema invalid: protocolVersion: Input should be '1' (got 1)",
    ),
    (
        "protocol_version_returned",
        "Expected protocolVersion='1', got '1'",
    ),
    (
        "schema_initialize",
        "Response schema invalid for initialize: protocolVersion: Input should be '1' (got 1)",
    ),
    (
        "new_session",
        "newSession response schema invalid: configOptions → 0 → label: Field required",
    ),
    (
        "schema_session_new",
        "Response schema invalid for session/new: configOptions → 0 → label: Field required",
    ),
    (
        "agent_message_chunk_received",
        "No agentMessageChunk updates received",
    ),
    ("prompt_stop_reason", "No stopReason in prompt response"),
];

/// Runs these categories of checks.
pub(in crate::real_clients) fn check(categories: &[&str]) -> Option<()> {
    let lab = ClientLab::new()?;
    let packages = pip_installed(ACPLINT)?;
    let command = lab.command();
    let (program, arguments) = command.split_first().expect("a program");
    let output = lab
        .program("python3")
        .env("PYTHONPATH", packages)
        .args(["-m", "acplint.cli", "--output", "json", "--cwd", &lab.project()])
        .args([
            "--agent",
            program,
            "--agent-args",
            &arguments.join(" "),
            "--categories",
        ])
        .args(categories)
        .output()
        .expect("python");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let results = report["results"].as_array().expect("results");
    let of = |result: &Value, member: &str| result[member].as_str().unwrap_or_default().to_owned();
    let seen: Vec<String> = results.iter().map(|result| of(result, "category")).collect();
    for category in categories {
        assert!(
            seen.iter().any(|seen| seen == category),
            "{category}: {results:?}"
        );
    }
    let failed = results.iter().filter(|result| of(result, "status") != "PASS");
    let mut failed: BTreeMap<String, String> = failed
        .map(|result| (of(result, "name"), of(result, "message")))
        .collect();
    for (name, message) in DIFFERENT {
        // The check would append further complaints after a semicolon.
        failed.remove_entry(name).inspect(|(_, said)| {
            assert!(
                said.starts_with(message) && !said.contains("; "),
                "{name}: {said}"
            );
        });
    }
    assert_eq!(failed, BTreeMap::new());
    Some(())
}

#[test]
#[ignore = "installs the real adapter"]
fn acplint_has_no_complaint_about_the_daemon() {
    or_skip!(check(SWIFT));
}

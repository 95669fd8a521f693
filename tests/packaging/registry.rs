//! The entry for the registry of agents, from which editors install them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{SOURCE, built};

/// The platforms of the registry on which the programs run.
const PLATFORMS: [&str; 2] = ["linux-aarch64", "linux-x86_64"];

#[test]
fn the_entry_names_this_version_and_a_command_that_exists() {
    let folder = Path::new(SOURCE).join("packaging/acp-registry");
    let entry: Value = serde_json::from_str(&fs::read_to_string(folder.join("agent.json")).unwrap()).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(entry["version"], version);
    assert_eq!(entry["id"], env!("CARGO_PKG_NAME"));
    assert_eq!(entry["license"], env!("CARGO_PKG_LICENSE"));
    for member in ["name", "description"] {
        assert!(
            entry[member].as_str().is_some_and(|text| !text.is_empty()),
            "{member}"
        );
    }
    let targets = entry["distribution"]["binary"].as_object().unwrap();
    assert!(targets.keys().eq(PLATFORMS), "{targets:?}");
    for (platform, target) in targets {
        let members: Vec<&String> = target.as_object().unwrap().keys().collect();
        assert_eq!(members.len(), 3, "{members:?}");
        let name = format!("/v{version}/session-bridge-{version}-{platform}.tar.gz");
        let archive = target["archive"].as_str().unwrap();
        assert!(
            archive.starts_with("https://") && archive.ends_with(&name),
            "{archive}"
        );
        let program = built().join(target["cmd"].as_str().unwrap());
        let mut command = Command::new(program);
        command.args(
            target["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|word| word.as_str().unwrap()),
        );
        assert!(
            command.arg("--help").output().unwrap().status.success(),
            "{command:?}"
        );
    }
    let icon = fs::read_to_string(folder.join("icon.svg")).unwrap();
    assert!(
        icon.contains(r#"width="16" height="16""#) && icon.contains("currentColor"),
        "{icon}"
    );
}

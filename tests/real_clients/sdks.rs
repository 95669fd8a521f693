//! Editors on the official SDKs: programs that pass the messages of an [`Editor`] through an SDK.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::editor::Editor;
use super::{ClientLab, text};

/// The folder of the programs that are not Rust modules.
pub(super) const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real_clients");

/// The folder in which the SDKs are installed.
const INSTALLED: &str = env!("CARGO_TARGET_TMPDIR");

/// An official SDK.
pub(super) struct Sdk {
    /// Returns the command of the program, without the agent's command, or `None` if it cannot be installed.
    program: fn(&ClientLab) -> Option<Command>,
    /// Whether the SDK has `session/delete`.
    pub(super) deletes: bool,
}

pub(super) const TYPESCRIPT: Sdk = Sdk {
    program: typescript,
    deletes: true,
};

pub(super) const PYTHON: Sdk = Sdk {
    program: python,
    deletes: false,
};

pub(super) const RUST: Sdk = Sdk {
    program: rust,
    deletes: true,
};

impl Sdk {
    /// Starts an editor on this SDK connected to `sessionctl acp`. Also returns the result of `initialize`.
    pub(super) fn editor(&self, lab: &ClientLab, capabilities: &Value) -> Option<(Editor, Value)> {
        let mut command = (self.program)(lab)?;
        let params = json!({"clientCapabilities": capabilities});
        Some(Editor::initialized(command.args(lab.command()), params))
    }
}

fn typescript(lab: &ClientLab) -> Option<Command> {
    let mut command = lab.program(&lab.clients.node);
    command
        .arg(Path::new(SCRIPTS).join("sdk.mjs"))
        .arg(&lab.clients.sdk);
    Some(command)
}

fn python(lab: &ClientLab) -> Option<Command> {
    let packages = pip_installed("agent-client-protocol==0.12.1")?;
    let mut command = lab.program("python3");
    command
        .arg(Path::new(SCRIPTS).join("sdk.py"))
        .env("PYTHONPATH", packages);
    Some(command)
}

fn rust(lab: &ClientLab) -> Option<Command> {
    let built = Path::new(INSTALLED).join("rust-sdk");
    let manifest = Path::new(SCRIPTS).join("rust_sdk/Cargo.toml");
    // Cargo's own lock prevents parallel builds.
    let build = Command::new("cargo")
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(manifest)
        .env("CARGO_TARGET_DIR", &built)
        .output()
        .expect("cargo runs");
    assert!(build.status.success(), "{}", complaint(&build));
    Some(lab.program(built.join("debug/rust-sdk-client")))
}

/// The folder of this Python package and its dependencies, which are installed if necessary. Returns `None`
/// and prints the reason if they cannot be installed.
pub(super) fn pip_installed(package: &str) -> Option<PathBuf> {
    let pip = |arguments: &[&str]| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        pip.args(arguments).stdin(Stdio::null()).output()
    };
    let folder = Path::new(INSTALLED).join(package);
    let lock = fs::File::create(format!("{}.lock", folder.display())).expect("a lock file");
    flock(&lock, FlockOperation::LockExclusive).expect("the lock");
    if folder.is_dir() {
        return Some(folder);
    }
    if !pip(&["--version"]).is_ok_and(|output| output.status.success()) {
        print_skip("there is no pip");
        return None;
    }
    let staging = tempfile::tempdir_in(INSTALLED).expect("a staging folder");
    let [packages, any] = ["packages", "any"].map(|name| staging.path().join(name));
    let installed = pip(&["install", "--target", &text(&packages), package]).expect("pip");
    if !installed.status.success() {
        let other = pip(&["download", "--no-deps", "--dest", &text(&any), "pip"]).expect("pip");
        let complaint = complaint(&installed);
        assert!(
            !other.status.success(),
            "pip install {package}, though the index answers: {complaint}"
        );
        print_skip("pip cannot reach its index");
        return None;
    }
    fs::rename(packages, &folder).expect("the installation moved into place");
    Some(folder)
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn print_skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

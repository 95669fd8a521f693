//! The real adapters, installed by npm once and kept between runs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What is installed for one adapter.
struct Installation {
    /// The adapter, and the Node that it needs; npm's own may be older.
    packages: &'static [&'static str],
    /// The folder, named after what is in it: other versions do not disturb it.
    folder: &'static str,
    /// The adapter's program, from the folder of packages.
    script: &'static str,
}

const CLAUDE: Installation = Installation {
    packages: &["node@22", "@agentclientprotocol/claude-agent-acp@0.101.0"],
    folder: "claude-agent-acp-0.101.0-node-22",
    script: "@agentclientprotocol/claude-agent-acp/dist/index.js",
};

// Codex itself is named too: the adapter takes any version of a range.
const CODEX: Installation = Installation {
    packages: &[
        "node@22",
        "@agentclientprotocol/codex-acp@2.6.0",
        "@openai/codex@0.166.0",
    ],
    folder: "codex-acp-2.6.0-codex-0.166.0-node-22",
    script: "@agentclientprotocol/codex-acp/dist/index.js",
};

// Its own dependencies are bundled.
const QWEN: Installation = Installation {
    packages: &["node@22", "@qwen-code/qwen-code@0.24.4"],
    folder: "qwen-code-0.24.4-node-22",
    script: "@qwen-code/qwen-code/cli-entry.js",
};

// Clients of the Agent Client Protocol, and a checker for the schema that its SDK has.
const CLIENTS: Installation = Installation {
    packages: &[
        "node@22",
        "@agentclientprotocol/sdk@2.4.0",
        "acpx@0.19.1",
        "ajv@8.20.0",
    ],
    folder: "acp-clients-sdk-2.4.0-acpx-0.19.1-ajv-8.20.0-node-22",
    script: "acpx/dist/cli.js",
};

/// Overrides the folder that installations are kept in, which is otherwise Cargo's for tests.
const CACHE_VARIABLE: &str = "SESSION_BRIDGE_NPM_CACHE";

/// An installed adapter.
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    /// The Node that it runs on.
    pub(crate) node: PathBuf,
    /// Its program, for this Node.
    pub(crate) script: PathBuf,
}

impl Adapter {
    /// The whole environment of a process of it: none of the user's, so none of the user's settings, keys or account.
    pub(crate) fn environment(&self, home: &Path, own: &[(&str, &str)]) -> Vec<(String, String)> {
        let node = self.node.parent().expect("the folder of node").display();
        let path = format!("{node}:/usr/local/bin:/usr/bin:/bin");
        let home = home.to_str().expect("a path in UTF-8");
        let common = [("PATH", path.as_str()), ("HOME", home), ("LANG", "C.UTF-8")];
        let all = common.iter().chain(own);
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }
}

/// Installed clients of the Agent Client Protocol.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    /// The Node that they run on.
    pub(crate) node: PathBuf,
    /// acpx, for this Node.
    pub(crate) acpx: PathBuf,
    /// The official SDK with the protocol's unstable methods.
    pub(crate) sdk: PathBuf,
    /// The folder of the protocol's schemas.
    pub(crate) schemas: PathBuf,
    /// The checker.
    pub(crate) ajv: PathBuf,
}

/// Why there is no adapter: npm cannot be reached. Nothing else is a reason to skip.
#[derive(Debug)]
pub(crate) struct Skip(pub(crate) String);

/// The version of this package that the tests install.
pub(crate) fn version_of(package: &str) -> Option<&'static str> {
    let all = CLAUDE.packages.iter().chain(CODEX.packages);
    let mut versions = all.filter_map(|wanted| wanted.strip_prefix(package)?.strip_prefix('@'));
    versions.next()
}

/// Claude's adapter, installed when it is not yet. Safe to call from tests that run side by side.
pub(crate) fn claude_adapter() -> Result<Adapter, Skip> {
    adapter(&CLAUDE)
}

/// Codex', likewise.
pub(crate) fn codex_adapter() -> Result<Adapter, Skip> {
    adapter(&CODEX)
}

/// Qwen Code, which needs no adapter, likewise.
pub(crate) fn qwen_code() -> Result<Adapter, Skip> {
    adapter(&QWEN)
}

/// The clients, likewise.
pub(crate) fn acp_clients() -> Result<Clients, Skip> {
    let Adapter { node, script } = adapter(&CLIENTS)?;
    let packages = script.ancestors().nth(3).expect("the folder of packages");
    Ok(Clients {
        node,
        sdk: packages.join("@agentclientprotocol/sdk/dist/v1/unstable/acp.js"),
        schemas: packages.join("@agentclientprotocol/sdk/schema/v1"),
        ajv: packages.join("ajv/dist/2020.js"),
        acpx: script,
    })
}

fn adapter(wanted: &Installation) -> Result<Adapter, Skip> {
    let cache = std::env::var_os(CACHE_VARIABLE).map_or_else(
        || Path::new(env!("CARGO_TARGET_TMPDIR")).join("npm"),
        PathBuf::from,
    );
    fs::create_dir_all(&cache).unwrap_or_else(|error| panic!("{}: {error}", cache.display()));
    let folder = cache.join(wanted.folder);

    let lock = File::create(cache.join(format!("{}.lock", wanted.folder))).expect("a lock file in the cache");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("the cache's lock");
    if !folder.is_dir() {
        install(&cache, &folder, wanted.packages)?;
    }
    drop(lock);

    let adapter = Adapter {
        node: folder.join("node_modules/node/bin/node"),
        script: folder.join("node_modules").join(wanted.script),
    };
    for path in [&adapter.node, &adapter.script] {
        assert!(
            path.is_file(),
            "{} is missing: remove {} to install anew",
            path.display(),
            folder.display()
        );
    }
    Ok(adapter)
}

/// Installs beside the final place and renames: what stands at the final place is whole.
fn install(cache: &Path, folder: &Path, packages: &[&str]) -> Result<(), Skip> {
    let staging = tempfile::Builder::new()
        .prefix("installing-")
        .tempdir_in(cache)
        .expect("a staging folder");
    fs::write(staging.path().join("package.json"), r#"{"private":true}"#).expect("a package file");
    let mut command = npm();
    command
        .current_dir(staging.path())
        .args(["install", "--no-audit", "--no-fund"])
        .args(packages);
    let output = match run(command) {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Skip("npm is not installed".into()));
        }
        Err(error) => panic!("npm: {error}"),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut ping = npm();
        ping.args(["ping", "--fetch-retries=0"]);
        let reachable = run(ping).is_ok_and(|output| output.status.success());
        assert!(
            !reachable,
            "npm install failed though the registry answers:\n{said}"
        );
        let reason = said
            .lines()
            .find(|line| line.starts_with("npm error"))
            .unwrap_or("no reason given");
        return Err(Skip(format!("npm cannot be reached: {reason}")));
    }
    fs::rename(staging.keep(), folder).expect("the installation moved into its place");
    Ok(())
}

fn npm() -> Command {
    Command::new("npm")
}

fn run(mut command: Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).output()
}

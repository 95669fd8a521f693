//! The real adapters, which npm installs once; later runs reuse the installation.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The packages to install for one adapter.
struct Installation {
    /// The adapter and the Node that it needs, because npm's own Node may be older.
    packages: &'static [&'static str],
    /// The installation folder. It is named after the versions in it, so that other versions can exist too.
    folder: &'static str,
    /// The adapter's program, relative to the folder of packages.
    script: &'static str,
}

const CLAUDE: Installation = Installation {
    packages: &["node@22", "@agentclientprotocol/claude-agent-acp@0.101.0"],
    folder: "claude-agent-acp-0.101.0-node-22",
    script: "@agentclientprotocol/claude-agent-acp/dist/index.js",
};

// Codex itself is listed too, because the adapter accepts a range of versions.
const CODEX: Installation = Installation {
    packages: &[
        "node@22",
        "@agentclientprotocol/codex-acp@2.6.0",
        "@openai/codex@0.166.0",
    ],
    folder: "codex-acp-2.6.0-codex-0.166.0-node-22",
    script: "@agentclientprotocol/codex-acp/dist/index.js",
};

// Qwen Code bundles its dependencies.
const QWEN: Installation = Installation {
    packages: &["node@22", "@qwen-code/qwen-code@0.24.4"],
    folder: "qwen-code-0.24.4-node-22",
    script: "@qwen-code/qwen-code/cli-entry.js",
};

// Clients of the Agent Client Protocol, and a validator for the schema in its SDK.
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

/// The environment variable that overrides the folder of installations. The default is Cargo's temporary
/// folder for tests.
const CACHE_VARIABLE: &str = "SESSION_BRIDGE_NPM_CACHE";

/// An installed adapter.
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    /// The Node that runs the adapter.
    pub(crate) node: PathBuf,
    /// The adapter's script.
    pub(crate) script: PathBuf,
}

impl Adapter {
    /// The complete environment of an adapter process. It contains nothing of the user's environment, so the
    /// user's settings, keys and account are not used.
    pub(crate) fn environment(&self, home: &Path, own: Vec<(&str, String)>) -> Vec<(String, String)> {
        let node = self.node.parent().expect("the folder of node").display();
        let path = format!("{node}:/usr/local/bin:/usr/bin:/bin");
        let home = home.to_str().expect("a path in UTF-8").to_owned();
        let common = [("PATH", path), ("HOME", home), ("LANG", "C.UTF-8".to_owned())];
        let all = common.into_iter().chain(own);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Installed clients of the Agent Client Protocol.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    /// The Node that runs the clients.
    pub(crate) node: PathBuf,
    /// The script of acpx.
    pub(crate) acpx: PathBuf,
    /// The official SDK, with the unstable methods of the protocol.
    pub(crate) sdk: PathBuf,
    /// The folder with the schemas of the protocol.
    pub(crate) schemas: PathBuf,
    /// The script of the schema validator.
    pub(crate) ajv: PathBuf,
}

/// Why an adapter is missing: npm cannot be reached. Tests are skipped for no other reason.
#[derive(Debug)]
pub(crate) struct Skip(pub(crate) String);

/// The version of this package that the tests install.
pub(crate) fn version_of(package: &str) -> Option<&'static str> {
    let all = CLAUDE.packages.iter().chain(CODEX.packages);
    let mut versions = all.filter_map(|wanted| wanted.strip_prefix(package)?.strip_prefix('@'));
    versions.next()
}

/// Returns Claude's adapter and installs it first if necessary. Tests that run in parallel may call this.
pub(crate) fn claude_adapter() -> Result<Adapter, Skip> {
    adapter(&CLAUDE)
}

/// Returns the Codex adapter in the same way.
pub(crate) fn codex_adapter() -> Result<Adapter, Skip> {
    adapter(&CODEX)
}

/// Returns Qwen Code, which needs no adapter, in the same way.
pub(crate) fn qwen_code() -> Result<Adapter, Skip> {
    adapter(&QWEN)
}

/// Returns the clients in the same way.
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

/// Installs into a temporary folder and renames it, so that a folder with the final name is always complete.
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

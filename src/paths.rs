//! The locations of folders, files and sockets, for both programs.
//!
//! This module owns the names in the folders, and the precedence of options, environment and platform. It does not
//! know what is in the files, and does not access the disk: everything follows from its parameters, except that
//! [`Environment::of_this_process`] reads variables and asks the platform for the home folder. `ownership` checks
//! whether paths can be trusted, and `lock_holder` whether a process is a daemon.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub mod lock_holder;
pub mod names;
pub mod ownership;

#[cfg(test)]
mod tests;

/// The name of the program's folder in the platform's folders.
const FOLDER: &str = "sessiond";

/// The environment variable for one folder that holds everything.
pub const HOME_VARIABLE: &str = "SESSIOND_HOME";

/// The environment variable for the bridge socket.
pub const SOCKET_VARIABLE: &str = "SESSIOND_SOCKET";

/// The help text of both programs about variables and files.
pub const HELP: &str = "  SESSIOND_HOME
    Folder for configuration, data, log and socket, as --home
  SESSIOND_SOCKET
    Socket of the daemon, as --socket. An option overrides its variable, and --home overrides both variables
  XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_RUNTIME_DIR
    Base folders for configuration (default: ~/.config), data (default: ~/.local/share) and the socket

Files:
  ~/.config/sessiond/config.toml
    Configuration, read when the daemon starts. Optional
  ~/.local/share/sessiond
    Data: journal.jsonl and bodies (all conversations), store (an index, rebuilt from them), kept (backups of transcripts), exports (bundles)
  ~/.local/share/sessiond/sessiond.lock
    Process id and socket of the running daemon, as JSON
  ~/.local/share/sessiond/log/sessiond.log
    Log of a daemon that sessionctl started
  $XDG_RUNTIME_DIR/sessiond/sessiond.sock
    Socket. If XDG_RUNTIME_DIR is not set: run/sessiond.sock in the data folder

  With --home, the paths in that folder are config/config.toml, data, log/sessiond.log and run/sessiond.sock. On macOS, configuration and data are in ~/Library/Application Support/sessiond.";

/// The locations of all files. All paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The folder that holds everything, if given.
    pub home: Option<PathBuf>,
    /// The configuration file. It may be missing.
    pub config_file: PathBuf,
    /// The folder of the journal, the store, the backups and the lock file.
    pub data: PathBuf,
    /// The private folder of the sockets, unless they are given.
    pub runtime: PathBuf,
    /// The socket for apps and `sessionctl`.
    pub bridge_socket: PathBuf,
    /// The socket for ACP editors.
    pub acp_socket: PathBuf,
    /// The folder of the daemon's log.
    pub log: PathBuf,
}

/// The environment: variables and the platform's folders. An unset or empty variable is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `SESSIOND_HOME`.
    pub home: Option<PathBuf>,
    /// `SESSIOND_SOCKET`.
    pub socket: Option<PathBuf>,
    /// The user's configuration folder (`$XDG_CONFIG_HOME`, or the platform's).
    pub config_folder: Option<PathBuf>,
    /// The user's data folder (`$XDG_DATA_HOME`, or the platform's).
    pub data_folder: Option<PathBuf>,
    /// The user's runtime folder (`$XDG_RUNTIME_DIR`).
    pub runtime_folder: Option<PathBuf>,
}

/// Why the locations are unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathsError {
    /// A given path is relative.
    #[error("{source_name} is a relative path: {}; give an absolute one", path.display())]
    Relative {
        /// The option or variable with the path.
        source_name: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// The platform has no home folder, and no folder was given.
    #[error("no home folder found; set HOME, or give a folder with --home or {HOME_VARIABLE}")]
    NoHome,
}

impl Environment {
    /// Reads the environment of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let platform = directories::BaseDirs::new();
        let folder = |pick: fn(&directories::BaseDirs) -> Option<&Path>| {
            platform.as_ref().and_then(pick).map(Path::to_path_buf)
        };
        Self {
            home: non_empty(std::env::var_os(HOME_VARIABLE)),
            socket: non_empty(std::env::var_os(SOCKET_VARIABLE)),
            config_folder: folder(|base| Some(base.config_dir())),
            data_folder: folder(|base| Some(base.data_dir())),
            runtime_folder: folder(directories::BaseDirs::runtime_dir),
        }
    }
}

impl Paths {
    /// Determines all locations from the options `--home`, `--config` and `--socket` and from the environment.
    ///
    /// An option overrides its variable. `--home` also overrides the variable of the socket, so that everything is in
    /// that folder.
    ///
    /// # Errors
    /// If a given path is relative, or if there is no home folder and none was given.
    pub fn resolve(
        home: Option<&Path>,
        config: Option<&Path>,
        socket: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, PathsError> {
        check_absolute("--home", home)?;
        check_absolute("--config", config)?;
        check_absolute("--socket", socket)?;
        let variable_socket = match home {
            Some(_) => None,
            None => environment.socket.as_deref(),
        };
        let variable_home = match home {
            Some(_) => None,
            None => environment.home.as_deref(),
        };
        check_absolute(HOME_VARIABLE, variable_home)?;
        check_absolute(SOCKET_VARIABLE, variable_socket.filter(|_| socket.is_none()))?;

        let mut paths = match home.or(variable_home) {
            Some(home) => Self::in_home(home),
            None => Self::of_platform(environment)?,
        };
        if let Some(config) = config {
            paths.config_file = config.to_path_buf();
        }
        if let Some(socket) = socket.or(variable_socket) {
            paths.acp_socket = derived_acp_socket(socket);
            paths.bridge_socket = socket.to_path_buf();
        }
        Ok(paths)
    }

    /// The lock file, which contains the daemon's process id and socket.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.data.join(names::LOCK)
    }

    /// The log file of a daemon in the background.
    #[must_use]
    pub fn log_file(&self) -> PathBuf {
        self.log.join("sessiond.log")
    }

    fn in_home(home: &Path) -> Self {
        let runtime = home.join("run");
        Self {
            home: Some(home.to_path_buf()),
            config_file: home.join("config").join("config.toml"),
            data: home.join("data"),
            bridge_socket: runtime.join("sessiond.sock"),
            acp_socket: runtime.join("acp.sock"),
            runtime,
            log: home.join("log"),
        }
    }

    fn of_platform(environment: &Environment) -> Result<Self, PathsError> {
        let config_folder = environment.config_folder.as_deref().ok_or(PathsError::NoHome)?;
        let data_folder = environment.data_folder.as_deref().ok_or(PathsError::NoHome)?;
        let data = data_folder.join(FOLDER);
        let runtime = match &environment.runtime_folder {
            Some(folder) => folder.join(FOLDER),
            None => data.join("run"),
        };
        Ok(Self {
            home: None,
            config_file: config_folder.join(FOLDER).join("config.toml"),
            bridge_socket: runtime.join("sessiond.sock"),
            acp_socket: runtime.join("acp.sock"),
            runtime,
            log: data.join("log"),
            data,
        })
    }
}

/// Derives the ACP socket's path from the bridge socket's, so that no two daemons share one.
fn derived_acp_socket(socket: &Path) -> PathBuf {
    if socket.ends_with("sessiond.sock") {
        return socket.with_file_name("acp.sock");
    }
    let mut path = socket.as_os_str().to_owned();
    path.push(".acp");
    path.into()
}

fn non_empty(variable: Option<OsString>) -> Option<PathBuf> {
    variable.filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn check_absolute(source_name: &'static str, path: Option<&Path>) -> Result<(), PathsError> {
    match path {
        Some(path) if path.is_relative() => Err(PathsError::Relative {
            source_name,
            path: path.to_path_buf(),
        }),
        _ => Ok(()),
    }
}

/// Quotes a word for a shell, if necessary.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+,:@%=".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        shell_quoted(word)
    }
}

/// Quotes a text for a shell.
#[must_use]
pub fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

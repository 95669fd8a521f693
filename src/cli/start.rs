//! Starts a daemon in the background, and waits until it is ready.
//!
//! It owns the protocol for starting the daemon: this program's own file is run with the arguments `daemon`, `--detach` and
//! `--ready-on-stdin`, and its standard input is the write end of a pipe. The daemon writes `ready` there when its sockets
//! listen. If the pipe closes without that, the daemon has died. It must not know how a daemon works.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use rustix::fs::{FlockOperation, flock};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Command;

use super::advice::with_daemon_options;
use super::problem::{CommandResult, Problem, READ_ONLY};
use crate::paths::ownership::{self, CreateFolderError, NO_LINK, Role, open_own};
use crate::paths::{Paths, shell_word};

/// The hidden first argument that makes the program the daemon.
const DAEMON_ARGUMENT: &str = "daemon";

/// How long a start may take. A daemon usually answers within milliseconds, but it first ends processes left behind by a
/// killed daemon, and may have to rebuild its store.
pub(super) const START_LIMIT: Duration = Duration::from_secs(120);

/// What the daemon writes when its sockets listen.
const READY: &[u8] = b"ready";

/// How much is read of the pipe at most: more than the word and a line break.
const READY_LIMIT_BYTES: u64 = 64;

/// How much is read of the log at most, for the messages of a daemon before it died.
const LOG_TAIL_LIMIT_BYTES: u64 = 16 * 1024;

/// The hint for a folder that cannot be used.
const OTHER_FOLDER_HINT: &str = "use another folder: sessionctl --home \"$HOME/.sessiond\" ls";

/// The options that name a daemon and are passed to it when it is started.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct DaemonOptions {
    /// Socket of the daemon [env: SESSIOND_SOCKET]
    #[arg(long, global = true, value_name = "PATH", value_hint = ValueHint::FilePath, value_parser = whole_path())]
    pub(super) socket: Option<PathBuf>,
    /// Folder for configuration, data, log and socket [env: SESSIOND_HOME]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = whole_path())]
    pub(super) home: Option<PathBuf>,
    /// Configuration file to use if this command starts the daemon
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = whole_path())]
    pub(super) config: Option<PathBuf>,
}

/// Makes a path of the command line absolute.
fn whole_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute)
}

impl DaemonOptions {
    /// The options that were given, as arguments of a command.
    fn options(&self) -> impl Iterator<Item = &OsStr> {
        let options = [
            ("--home", &self.home),
            ("--config", &self.config),
            ("--socket", &self.socket),
        ];
        let given = options
            .into_iter()
            .filter_map(|(name, value)| Some([OsStr::new(name), value.as_ref()?.as_os_str()]));
        given.flatten()
    }

    fn arguments(&self) -> Vec<OsString> {
        let hidden = [DAEMON_ARGUMENT, "--detach", "--ready-on-stdin"].map(OsStr::new);
        let arguments = hidden.into_iter().chain(self.options());
        arguments.map(OsStr::to_owned).collect()
    }

    /// The command with which a user starts the same daemon.
    pub(super) fn command(&self) -> String {
        with_daemon_options("sessionctl start", &self.shell_options())
    }

    /// The options that were given, as words of a shell.
    pub(super) fn shell_options(&self) -> String {
        let words = self.options().map(|word| shell_word(&word.to_string_lossy()));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Takes the lock for starting a daemon on a data folder. Only one command holds it at a time. Closing the file releases it.
///
/// # Errors
/// The data folder cannot be created, or another command has been starting a daemon for too long.
pub(super) async fn acquire_start_lock(paths: &Paths) -> CommandResult<File> {
    ensure_private_folder(Role::Data, &paths.data)?;
    let path = paths.data.join("start.lock");
    let file = open_own_file(OpenOptions::new().write(true), &path)?;
    wait_for_lock(file, FlockOperation::LockExclusive, &path).await
}

/// Opens a file of this user, and creates it if it is missing.
fn open_own_file(options: &mut OpenOptions, path: &Path) -> CommandResult<File> {
    let options = options.create(true).mode(0o600).custom_flags(NO_LINK);
    let opened = options.open(path);
    opened.map_err(|error| {
        let problem = Problem::file_error("open", path, &error);
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => problem.hint(format!("{READ_ONLY}; {OTHER_FOLDER_HINT}")),
            _ => problem,
        }
    })
}

/// Whether a process holds the daemon's lock.
pub(in crate::cli) fn is_lock_held(paths: &Paths) -> bool {
    let Ok(file) = open_own(&paths.lock_file()) else {
        return false;
    };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// Waits until no process holds the daemon's lock, which means that the daemon has ended completely.
///
/// # Errors
/// A process still holds the lock after [`START_LIMIT`].
pub(super) async fn wait_for_daemon_end(paths: &Paths) -> CommandResult {
    let path = paths.lock_file();
    match open_own(&path) {
        Ok(file) => wait_for_lock(file, FlockOperation::LockShared, &path)
            .await
            .map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Problem::file_error("open", &path, &error)),
    }
}

async fn wait_for_lock(file: File, operation: FlockOperation, path: &Path) -> CommandResult<File> {
    let waiting = tokio::task::spawn_blocking(move || {
        loop {
            match flock(&file, operation) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map(|()| file),
            }
        }
    });
    match tokio::time::timeout(START_LIMIT, waiting).await {
        Ok(Ok(Ok(file))) => Ok(file),
        Ok(Ok(Err(error))) => Err(Problem::file_error("lock", path, &error.into())),
        Ok(Err(error)) => Err(Problem::failed(error.to_string())),
        Err(_) => Err(Problem::no_daemon(format!(
            "another process still holds {} after {} s",
            path.display(),
            START_LIMIT.as_secs()
        ))
        .hint("end the command that starts or stops a daemon there, then try again")),
    }
}

/// Starts a daemon and waits until its sockets listen.
///
/// # Errors
/// It cannot be started, dies during its start, or is not ready within [`START_LIMIT`]. The message contains what the daemon
/// logged.
pub(super) async fn start_daemon(launch: &DaemonOptions, paths: &Paths) -> CommandResult {
    ensure_private_folder(Role::Log, &paths.log)?;
    let log_path = paths.log_file();
    let log = open_own_file(OpenOptions::new().append(true), &log_path)?;
    let said_before = log.metadata().map_or(0, |metadata| metadata.len());

    let ready = spawn_daemon(launch, log).await?;
    let mut received = Vec::new();
    let mut ready = ready.take(READY_LIMIT_BYTES);
    let result = tokio::time::timeout(START_LIMIT, ready.read_to_end(&mut received)).await;
    let problem = match result {
        Ok(Ok(_)) if received.starts_with(READY) => return Ok(()),
        Ok(_) => startup_error(&log_path, said_before)
            .unwrap_or_else(|| Problem::no_daemon("the daemon died at its start")),
        Err(_) => {
            let seconds = START_LIMIT.as_secs();
            Problem::no_daemon(format!("the daemon is not ready after {seconds} s"))
        }
    };
    Err(match (&problem.hint, &launch.config) {
        (Some(_), _) => problem,
        (None, Some(config)) if !config.exists() => {
            let folder = config.ancestors().find(|path| path.is_dir());
            let folder = folder.unwrap_or(Path::new("/")).to_string_lossy();
            problem.hint(format!(
                "name another file, or omit --config; see which files exist: ls -l {}",
                shell_word(&folder)
            ))
        }
        (None, _) => problem.hint(format!("its log is {}", log_path.display())),
    })
}

/// The path of this program's file. After an update, it is the path of the file that replaced it.
pub(super) fn this_program() -> CommandResult<PathBuf> {
    match std::env::current_exe() {
        Ok(program) => Ok(replacement_of(program)),
        Err(error) => Err(Problem::no_daemon(format!(
            "cannot find the executable of this program: {error}"
        ))),
    }
}

/// Removes the suffix that Linux adds to the path of a program whose file was replaced.
fn replacement_of(program: PathBuf) -> PathBuf {
    let replaced = program.as_os_str().as_bytes().strip_suffix(b" (deleted)");
    match replaced {
        Some(path) if !program.exists() => OsStr::from_bytes(path).into(),
        _ => program,
    }
}

/// Starts a process that starts the daemon and ends. The daemon is therefore not a descendant of this process: an editor may
/// end this process and all its descendants.
async fn spawn_daemon(launch: &DaemonOptions, log: File) -> CommandResult<pipe::Receiver> {
    let program = this_program()?;
    let pipe_failed =
        |error: io::Error| Problem::no_daemon(format!("cannot make a pipe to the daemon: {error}"));
    let (reader, writer) = io::pipe().map_err(pipe_failed)?;
    let receiver = pipe::Receiver::from_owned_fd(reader.into()).map_err(pipe_failed)?;

    let errors = log.try_clone().map_err(pipe_failed)?;
    let mut starter = Command::new(&program)
        .args(launch.arguments())
        // The daemon outlives this command, and must not keep the current folder in use.
        .current_dir("/")
        .process_group(0)
        // A daemon that an agent started must not be taken for one of the agent's processes.
        .env_remove("SESSIOND_MARK")
        .stdin(Stdio::from(OwnedFd::from(writer)))
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|error| Problem::file_error("start", &program, &error))?;
    let ended = starter.wait().await;
    ended.map_err(|error| Problem::file_error("start", &program, &error))?;
    Ok(receiver)
}

/// The error that a daemon logged before it died.
fn startup_error(log_path: &Path, from: u64) -> Option<Problem> {
    let mut text = Vec::new();
    let read = open_own(log_path).and_then(|mut log| {
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(
            from.max(length.saturating_sub(LOG_TAIL_LIMIT_BYTES)),
        ))?;
        log.take(LOG_TAIL_LIMIT_BYTES).read_to_end(&mut text)
    });
    match read {
        Ok(_) => parse_startup_error(&String::from_utf8_lossy(&text)),
        Err(error) => {
            tracing::debug!(path = %log_path.display(), %error, "the log cannot be read");
            None
        }
    }
}

/// The last error line and the last hint line of a log; if it has none, its last line.
fn parse_startup_error(text: &str) -> Option<Problem> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    let marked = |mark: &str| lines.iter().rev().find_map(|line| line.strip_prefix(mark));
    let message = marked("error: ").or(lines.last().copied())?;
    let problem = Problem::no_daemon(format!("the daemon did not start: {message}"));
    Some(match marked("hint: ") {
        Some(hint) => problem.hint(hint),
        None => problem,
    })
}

/// Creates a folder that only its owner can access. An existing folder must belong to this user, and keeps its mode.
fn ensure_private_folder(role: Role, folder: &Path) -> CommandResult {
    ownership::create_and_check(role, folder).map_err(|error| match error {
        CreateFolderError::Untrusted(untrusted) => untrusted.into(),
        CreateFolderError::Make { source, .. } => {
            Problem::file_error("make the folder", folder, &source).hint(OTHER_FOLDER_HINT)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{DaemonOptions, parse_startup_error, replacement_of, startup_error};

    #[test]
    fn after_an_update_the_new_program_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("sessionctl");
        let replaced = folder.path().join("sessionctl (deleted)");
        assert_eq!(replacement_of(program.clone()), program);
        assert_eq!(replacement_of(replaced.clone()), program);
        std::fs::write(&replaced, "").unwrap();
        assert_eq!(replacement_of(replaced.clone()), replaced, "it has that name");
    }

    #[test]
    fn the_daemon_is_given_what_was_named() {
        let launch = DaemonOptions {
            home: Some("/h".into()),
            config: None,
            socket: Some("/s".into()),
        };
        assert_eq!(
            launch.arguments(),
            [
                "daemon",
                "--detach",
                "--ready-on-stdin",
                "--home",
                "/h",
                "--socket",
                "/s"
            ]
        );
    }

    #[test]
    fn the_words_that_say_what_was_wrong_are_found() {
        let table = [
            ("", None),
            ("\n", None),
            ("just died\n\n", Some(("just died", None))),
            (
                "INFO starting\nerror: no room\nhint: make room\nINFO ended\n",
                Some(("no room", Some("make room"))),
            ),
        ];
        for (text, expected) in table {
            let picked = parse_startup_error(text);
            let message = picked.as_ref().and_then(|picked| picked.message.as_deref());
            let message = message.and_then(|message| message.strip_prefix("the daemon did not start: "));
            let hint = picked.as_ref().and_then(|picked| picked.hint.as_deref());
            assert_eq!(message.map(|message| (message, hint)), expected, "{text}");
        }
    }

    #[test]
    fn words_of_an_earlier_daemon_are_not_this_ones() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("sessiond.log");
        std::fs::write(&log, "error: old\n").unwrap();
        assert!(startup_error(&log, 11).is_none());
        std::fs::write(&log, "error: old\nerror: new\n").unwrap();
        let message = startup_error(&log, 11).unwrap().message.unwrap();
        assert!(message.ends_with(": new"), "{message}");
    }
}

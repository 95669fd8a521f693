//! Connects to the daemon through its socket, and starts a daemon if none answers.
//!
//! It owns the order in which sockets are tried, and how long a connected daemon may be silent before its status is requested.
//! It must not know what the answers mean.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bridge_protocol::client::{
    ByName, Client, ClientError, ConnectError, FIRST_ANSWER_LIMIT, Subscription, connect_answering,
};
use bridge_protocol::method::{Method, Status, Subscribe};
use bridge_protocol::raw::RawJson;
use jsonrpsee::core::client::{ClientT as _, SubscriptionClientT as _};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use super::problem::{CommandResult, DOCTOR_HINT, Problem};
use super::start::{self, DaemonOptions, START_LIMIT};
use crate::paths::ownership::open_own;
use crate::paths::{Paths, lock_holder, ownership, shell_word};

/// A connected daemon.
pub(super) struct Daemon {
    client: Client,
    /// The connector that found it.
    connector: DaemonConnector,
    socket: PathBuf,
    /// Whether it has been silent long enough to notify the user.
    is_silent: watch::Sender<bool>,
    /// What its lock file says, if it names this socket.
    pub(super) lock: LockFile,
}

/// Finds the daemon, and starts one if that is allowed.
#[derive(Clone, Debug)]
pub(super) struct DaemonConnector {
    /// The daemon's files and folders.
    pub(super) paths: Paths,
    /// Whether the user named the socket. If so, no other one is tried.
    pub(super) is_socket_explicit: bool,
    /// Whether a daemon may be started.
    pub(super) may_start: bool,
    /// The options with which a daemon is started.
    pub(super) daemon_options: DaemonOptions,
}

/// How long to wait for a daemon that holds the lock but does not listen. A daemon whose socket was removed creates a new one
/// within a second.
pub(super) const LISTEN_LIMIT: Duration = Duration::from_secs(3);

/// The pause between two attempts.
pub(super) const LISTEN_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// How long a command waits before it checks whether the daemon still answers. An agent is often silent for longer.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// How long that check may take before the user is notified.
const CHECK_NOTICE_DELAY: Duration = Duration::from_secs(1);

/// How long to wait for a daemon to confirm that it still runs, before the next command is sent anyway.
const PRESENCE_CHECK_LIMIT: Duration = Duration::from_secs(1);

/// How long a daemon may take to answer that check. Longer than [`FIRST_ANSWER_LIMIT`], because a busy machine is no reason to
/// stop following a running turn.
const STATUS_ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// See [`sleep_while_running`].
const RUNNING_TIME_STEP: Duration = Duration::from_secs(1);

/// The longest path of a Unix socket: what `sockaddr_un` holds on Linux, without the final zero.
const SOCKET_PATH_LIMIT_BYTES: usize = 107;

/// How much of the lock file is read at most. A daemon writes a few hundred bytes.
const LOCK_FILE_LIMIT_BYTES: u64 = 64 * 1024;

/// The values of the lock file that are used here.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LockFile {
    /// The process that wrote it.
    pub(super) pid: Option<u32>,
    /// Its socket.
    pub(super) socket: PathBuf,
    /// Its socket for editors.
    pub(super) acp_socket: Option<PathBuf>,
    /// The configuration file that it was started with.
    pub(super) config: Option<PathBuf>,
}

impl DaemonConnector {
    /// Connects to the daemon, and starts one if none answers.
    ///
    /// # Errors
    /// A socket cannot be used, no daemon answers and none may be started, or the daemon does not start.
    pub(super) async fn connect(&self) -> CommandResult<Daemon> {
        if let Some(daemon) = self.find().await? {
            return Ok(daemon);
        }
        if !self.may_start {
            return Err(Problem::no_daemon(format!(
                "no daemon answers at {}",
                self.paths.bridge_socket.display()
            ))
            .hint(format!("start it: {}", self.daemon_options.command())));
        }
        // If several commands find no daemon at once, one of them starts it and the others find it here.
        let turn = start::acquire_start_lock(&self.paths).await?;
        if let Some(daemon) = self.find().await? {
            return Ok(daemon);
        }
        tracing::debug!("no daemon answers; starting one on {}", self.paths.data.display());
        let started = start::start_daemon(&self.daemon_options, &self.paths).await;
        drop(turn);
        if let Some(daemon) = self.find().await? {
            return Ok(daemon);
        }
        started?;
        Err(Problem::no_daemon(format!(
            "the daemon started, but does not answer at {}",
            self.paths.bridge_socket.display()
        ))
        .hint(format!("its log is {}", self.paths.log_file().display())))
    }

    /// Connects to a running daemon, and never starts one. Waits up to [`LISTEN_LIMIT`] for a daemon that holds the lock but
    /// does not listen: it may be starting or stopping, or about to replace its removed socket.
    ///
    /// # Errors
    /// Another user owns or can change files that a daemon trusts, or listens on the socket; or the socket cannot be used.
    pub(super) async fn find(&self) -> CommandResult<Option<Daemon>> {
        let began = Instant::now();
        loop {
            let found = self.find_once().await?;
            if found.is_some() || began.elapsed() >= LISTEN_LIMIT || self.read_held_lock().is_none() {
                return Ok(found);
            }
            tokio::time::sleep(LISTEN_RETRY_PAUSE).await;
        }
    }

    async fn find_once(&self) -> CommandResult<Option<Daemon>> {
        ownership::check(&self.paths)?;
        // The lock file of a daemon that has ended names a socket that another process may use now.
        let locked = self.read_held_lock().map(|lock| lock.socket);
        for socket in socket_candidates(&self.paths.bridge_socket, self.is_socket_explicit, locked) {
            match self.connect_to(&socket).await {
                Ok(client) => {
                    // The daemon may have started meanwhile: read its lock file again.
                    let lock = self.last_lock().filter(|lock| lock.socket == socket);
                    tracing::debug!("connected to {}", socket.display());
                    return Ok(Some(Daemon {
                        client,
                        connector: self.clone(),
                        socket,
                        is_silent: watch::Sender::default(),
                        lock: lock.unwrap_or_default(),
                    }));
                }
                // The socket of a process that is being killed accepts connections until the process ends.
                Err(ConnectError::NotRunning { .. } | ConnectError::Closed { .. }) => {}
                // No socket can exist below a file. Starting a daemon there reports the problem.
                Err(ConnectError::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => {}
                Err(error) => {
                    let is_foreign = matches!(error, ConnectError::OtherProtocol { .. });
                    let problem = connect_problem(error, self.lock_holder_pid(&socket));
                    return Err(match self.running_elsewhere().filter(|_| is_foreign) {
                        Some(running) => problem.hint(use_running_hint(&running)),
                        None => problem,
                    });
                }
            }
        }
        match self.running_elsewhere() {
            None => Ok(None),
            Some(running) => {
                let named = self.paths.bridge_socket.display();
                let what = format!(
                    "no daemon answers at {named}: the daemon of this data folder has another socket"
                );
                Err(Problem::no_daemon(what).hint(use_running_hint(&running)))
            }
        }
    }

    /// The socket of the daemon that has the data folder, if the user named another socket. No other daemon can be started then.
    fn running_elsewhere(&self) -> Option<PathBuf> {
        let lock = self.read_held_lock().filter(|_| self.is_socket_explicit)?;
        (lock.socket != self.paths.bridge_socket).then_some(lock.socket)
    }

    /// Connects to a daemon that answers. A service manager may listen on behalf of a daemon that is still starting. That
    /// daemon already holds the lock, and listens itself once it serves.
    async fn connect_to(&self, socket: &Path) -> Result<Client, ConnectError> {
        let (mut limit, mut waited) = (FIRST_ANSWER_LIMIT, Duration::ZERO);
        loop {
            let (path, listener) = match connect_answering(socket, limit).await {
                Err(ConnectError::NoAnswer { path, pid, .. }) => (path, pid),
                other => return other,
            };
            waited += limit;
            // A daemon may have taken the lock meanwhile.
            let lock = self.read_held_lock().filter(|lock| lock.socket == socket);
            if let Some(next) = next_answer_limit(lock.as_ref().map(|lock| lock.pid), listener, waited) {
                limit = next;
                continue;
            }
            return Err(ConnectError::NoAnswer {
                path,
                pid: self.lock_holder_pid(socket).or(listener),
                limit: waited,
            });
        }
    }

    /// What the daemon wrote that last held the lock of the data folder, whether or not it still runs.
    pub(super) fn last_lock(&self) -> Option<LockFile> {
        read_lock(&self.paths.lock_file())
    }

    /// Reads the lock file. Returns `None` unless a daemon holds the lock.
    fn read_held_lock(&self) -> Option<LockFile> {
        self.last_lock().filter(|_| start::is_lock_held(&self.paths))
    }

    /// The process that now holds the lock of the data folder and listens on this socket. The lock file alone is not enough: it
    /// may have been written before the lock was taken, or in another PID namespace.
    pub(super) fn lock_holder_pid(&self, socket: &Path) -> Option<u32> {
        let pid = self.read_held_lock().filter(|lock| lock.socket == socket)?.pid?;
        let is_shown = !cfg!(target_os = "linux") || {
            let data = self.paths.data.canonicalize().ok()?;
            lock_holder::data_folder_of(pid) == Some(data)
        };
        is_shown.then_some(pid)
    }
}

/// How much longer to wait for an answer on a socket, if at all. `holder` is the process that holds the lock, if any;
/// `listener` is the process that listens.
fn next_answer_limit(
    holder: Option<Option<u32>>,
    listener: Option<u32>,
    waited: Duration,
) -> Option<Duration> {
    let is_starting = holder.is_some_and(|pid| pid.is_none() || pid != listener);
    (is_starting && waited < START_LIMIT).then_some(START_LIMIT)
}

impl Daemon {
    /// Whether it is known to use another configuration file than this one.
    pub(super) fn has_other_config(&self, config: &Path) -> bool {
        self.lock.config.as_deref().is_some_and(|own| own != config)
    }

    /// Calls a method.
    ///
    /// # Errors
    /// The daemon returns an error, the connection is lost, or the daemon does not answer any more.
    pub(super) async fn call<M: Method>(&self, params: M) -> CommandResult<M::Answer> {
        self.call_raw(params).await.map(|(answer, _)| answer)
    }

    /// Calls a method, and also returns the bytes of the answer, which `--json` prints unchanged.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub(super) async fn call_raw<M: Method>(&self, params: M) -> CommandResult<(M::Answer, RawJson)> {
        let (call, began) = (self.client.request(M::NAME, ByName(params)), Instant::now());
        let answered = self.while_responsive(call).await;
        let outcome = match &answered {
            Ok(Ok(_)) => "answered",
            Ok(Err(_)) => "failed",
            Err(_) => "not answered",
        };
        tracing::debug!("{} {outcome} after {} ms", M::NAME, began.elapsed().as_millis());
        let raw: RawJson = answered??;
        let answer = raw.read().map_err(ClientError::ParseError)?;
        Ok((answer, raw))
    }

    /// Subscribes to events. They are returned as bytes, because `--json` prints them unchanged.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub(super) async fn subscribe(&self, to: Subscribe) -> CommandResult<Subscription<RawJson>> {
        let events = self
            .client
            .subscribe(Subscribe::NAME, ByName(to), "conversation/unsubscribe");
        tracing::debug!("{} requested", Subscribe::NAME);
        Ok(self.while_responsive(events).await??)
    }

    /// Waits for `awaited`, which may take hours, as long as the daemon still answers. Cancel-safe if `awaited` is.
    ///
    /// # Errors
    /// The daemon does not answer any more.
    pub(super) async fn while_responsive<T>(&self, awaited: impl Future<Output = T>) -> CommandResult<T> {
        tokio::select! {
            biased;
            sent = awaited => Ok(sent),
            problem = self.wait_until_unresponsive() => Err(problem),
        }
    }

    /// Requests the daemon's status regularly, and returns when it does not answer.
    async fn wait_until_unresponsive(&self) -> Problem {
        loop {
            self.is_silent.send_replace(false);
            tokio::time::sleep(SILENCE_LIMIT).await;
            let too_long = async {
                sleep_while_running(CHECK_NOTICE_DELAY).await;
                self.is_silent.send_replace(true);
                sleep_while_running(STATUS_ANSWER_LIMIT).await;
            };
            tokio::select! {
                biased;
                answer = self.request_status() => match answer {
                    // An error is an answer too: the daemon still runs.
                    Ok(_) | Err(ClientError::Call(_)) => {}
                    Err(error) => return error.into(),
                },
                () = too_long => {
                    let holder = self.connector.lock_holder_pid(&self.socket);
                    let path = self.socket.clone();
                    let error = ConnectError::NoAnswer { path, pid: holder, limit: STATUS_ANSWER_LIMIT };
                    return connect_problem(error, holder);
                }
            }
        }
    }

    /// Waits until a running call notices that the daemon is silent.
    pub(super) async fn silent(&self) {
        let mut is_silent = self.is_silent.subscribe();
        // The sender lives as long as this.
        let _ = is_silent.wait_for(|silent| *silent).await;
    }

    async fn request_status(&self) -> Result<RawJson, ClientError> {
        let status = ByName(Status::default());
        self.client.request(Status::NAME, status).await
    }

    /// Whether the daemon still runs. Sends a request, since the end of the connection may not have been read yet.
    pub(super) async fn is_connected(&self) -> bool {
        tokio::select! {
            biased;
            _answer = self.request_status() => {}
            // The daemon is slow; the next command reports that.
            () = sleep_while_running(PRESENCE_CHECK_LIMIT) => {}
        }
        self.client.is_connected()
    }

    /// Waits until the connection ends or the daemon does not answer any more.
    pub(super) async fn closed(&self) {
        // In both cases the next call on this connection reports the problem.
        let _ = self.while_responsive(self.client.on_disconnect()).await;
    }
}

/// Sleeps for this long, counting only time in which this process runs. Time in which the process was stopped, or its thread
/// waited for an editor or a pager, is not counted: an answer may have arrived but could not be read.
async fn sleep_while_running(limit: Duration) {
    let mut left = limit;
    while !left.is_zero() {
        let began = tokio::time::Instant::now();
        tokio::time::sleep(RUNNING_TIME_STEP).await;
        left = match began.elapsed() < 2 * RUNNING_TIME_STEP {
            true => left.saturating_sub(RUNNING_TIME_STEP),
            false => limit,
        };
    }
}

/// The problem of a socket on which a process may listen. `holder` is the daemon that should answer there. Only that process is
/// named in a command that ends it, because the listener may be the user's service manager.
fn connect_problem(error: ConnectError, holder: Option<u32>) -> Problem {
    let problem = Problem::no_daemon(error.to_string());
    match error {
        ConnectError::ForeignListener { path, owner, .. } => problem
            .hint("nothing was sent; use a folder of your own: sessionctl --home \"$HOME/.sessiond\" ls")
            .with_details(json!({ "path": path, "owner": owner })),
        ConnectError::NoAnswer { path, pid, .. } => {
            let problem = problem.with_details(json!({ "path": path, "pid": pid }));
            match holder {
                Some(pid) => problem.hint(format!(
                    "{DOCTOR_HINT}; if it is stopped, continue it: kill -CONT {pid}; if it hangs, end it: \
                     kill -KILL {pid}"
                )),
                None => problem.hint(DOCTOR_HINT),
            }
        }
        ConnectError::OtherProtocol { path, pid } => problem
            .hint(format!(
                "use another socket: sessionctl --socket {} ls; {DOCTOR_HINT}",
                shell_word(&alternative_socket(&path).to_string_lossy())
            ))
            .with_details(json!({ "path": path, "pid": pid })),
        ConnectError::PermissionDenied { .. } => {
            problem.hint("each user has a daemon of their own: sessionctl --home \"$HOME/.sessiond\" ls")
        }
        ConnectError::Io { path, source, .. } => unusable_socket(&path, &source),
        _ => problem,
    }
}

fn use_running_hint(socket: &Path) -> String {
    let socket = shell_word(&socket.to_string_lossy());
    format!("use the running daemon: sessionctl --socket {socket} ls")
}

/// Another socket path in the same folder, for a socket that another program uses.
fn alternative_socket(socket: &Path) -> PathBuf {
    let mut name = socket.file_stem().unwrap_or_default().to_owned();
    name.push("-2");
    if let Some(end) = socket.extension() {
        name.push(".");
        name.push(end);
    }
    socket.with_file_name(name)
}

/// The problem of a socket that cannot be connected to, whether or not a daemon listens.
fn unusable_socket(socket: &Path, error: &io::Error) -> Problem {
    let path = socket.display();
    let length = socket.as_os_str().len();
    if error.kind() == io::ErrorKind::InvalidInput && length > SOCKET_PATH_LIMIT_BYTES {
        return Problem::no_daemon(format!(
            "the socket path has {length} bytes, more than the limit of {SOCKET_PATH_LIMIT_BYTES}: {path}"
        ))
        .hint("name a shorter path: sessionctl ls --socket \"$HOME/sessiond.sock\"");
    }
    Problem::no_daemon(format!("cannot connect to the socket {path}: {error}"))
        .hint("run sessiond in a terminal to see whether a daemon can listen there")
}

/// The sockets to try, in order: only the one that the user named, otherwise the running daemon's, then the default.
fn socket_candidates(default: &Path, named: bool, locked: Option<PathBuf>) -> Vec<PathBuf> {
    let mut sockets = Vec::new();
    if !named {
        sockets.extend(locked);
    }
    if !sockets.iter().any(|socket| socket == default) {
        sockets.push(default.to_path_buf());
    }
    sockets
}

/// Reads the lock file. A file that cannot be read or belongs to another user is ignored: the default socket is tried then.
fn read_lock(lock_file: &Path) -> Option<LockFile> {
    let mut text = Vec::new();
    let read = open_own(lock_file).and_then(|file| file.take(LOCK_FILE_LIMIT_BYTES).read_to_end(&mut text));
    match read {
        Ok(_) => {}
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::debug!(path = %lock_file.display(), %error, "the lock file cannot be read");
            }
            return None;
        }
    }
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::{
        LockFile, RUNNING_TIME_STEP, START_LIMIT, next_answer_limit, read_lock, sleep_while_running,
        socket_candidates,
    };

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_this_process_was_stopped_does_not_count() {
        let mut limit = pin!(sleep_while_running(2 * RUNNING_TIME_STEP));
        let mut is_over = || limit.as_mut().now_or_never().is_some();
        for (step, expected) in [
            (Duration::ZERO, false),
            (RUNNING_TIME_STEP, false),
            (1000 * RUNNING_TIME_STEP, false),
            (RUNNING_TIME_STEP, false),
            (RUNNING_TIME_STEP, true),
        ] {
            advance(step).await;
            assert_eq!(is_over(), expected, "{step:?}");
        }
    }

    #[test]
    fn a_named_socket_is_the_only_one() {
        let table = [
            (true, None, vec!["/default"]),
            (true, Some("/locked"), vec!["/default"]),
            (false, None, vec!["/default"]),
            (false, Some("/locked"), vec!["/locked", "/default"]),
            (false, Some("/default"), vec!["/default"]),
        ];
        for (named, locked, expected) in table {
            let sockets = socket_candidates(Path::new("/default"), named, locked.map(PathBuf::from));
            assert_eq!(
                sockets,
                expected.into_iter().map(PathBuf::from).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn only_a_daemon_that_listens_itself_is_not_waited_for() {
        let table = [
            (Some(Some(7)), Some(7), 5, None),
            (Some(Some(7)), Some(1), 5, Some(START_LIMIT)),
            (Some(Some(7)), None, 5, Some(START_LIMIT)),
            (Some(None), None, 5, Some(START_LIMIT)),
            (Some(Some(7)), Some(1), 125, None),
            (None, Some(1), 5, None),
            (None, None, 5, None),
        ];
        for (holder, listener, waited, expected) in table {
            let next = next_answer_limit(holder, listener, Duration::from_secs(waited));
            assert_eq!(next, expected, "{holder:?} {listener:?} {waited}");
        }
    }

    #[test]
    fn the_lock_file_says_something_where_it_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessiond.lock");
        assert_eq!(read_lock(&file), None);
        for (text, expected) in [
            ("", None),
            ("{\"pid\":1}", None),
            (
                "{\"pid\":1,\"socket\":\"/s\",\"later\":1}",
                Some((Some(1), "/s", None)),
            ),
            (
                "{\"socket\":\"/s\",\"config\":\"/c\"}",
                Some((None, "/s", Some("/c"))),
            ),
        ] {
            let expected = expected.map(|(pid, socket, config): (_, &str, Option<&str>)| LockFile {
                pid,
                socket: socket.into(),
                acp_socket: None,
                config: config.map(Into::into),
            });
            fs::write(&file, text).unwrap();
            assert_eq!(read_lock(&file), expected, "{text}");
        }
    }
}

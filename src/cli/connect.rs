//! The connection to the daemon: found by its socket, started when none answers.
//!
//! It owns the order in which sockets are tried, and the bytes of the last answers, so that `--json` can print them
//! as they came. It must not know what the answers mean.

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bridge_protocol::client::{Client, ConnectError, connect};
use bridge_protocol::raw::RawJson;
use jiff::Timestamp;
use jsonrpsee::core::client::{BatchResponse, ClientT, Error, Subscription, SubscriptionClientT};
use jsonrpsee::core::params::BatchRequestBuilder;
use jsonrpsee::core::traits::ToRpcParams;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::exit::Exit;
use super::problem::{Outcome, Problem, is_lost};
use super::start::{self, Launch};
use crate::paths::ownership::open_own;
use crate::paths::{Paths, ownership};

/// A connected daemon. The methods are those of the contract's client traits.
pub(super) struct Daemon {
    client: Client,
    /// The configuration file that it was started with, where the lock file names one.
    config: Option<PathBuf>,
    /// The newest answer of each method that was called.
    answers: Mutex<BTreeMap<String, RawJson>>,
}

/// How a daemon is found.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// Where things are.
    pub(super) paths: Paths,
    /// Whether the socket was named, so that no other is tried.
    pub(super) socket_named: bool,
    /// Whether one may be started.
    pub(super) may_start: bool,
    /// How one is started.
    pub(super) launch: Launch,
}

/// For how long a daemon that has the lock is waited for where it does not listen: it looks for its socket at least every
/// second once that is gone.
const LISTENS_LIMIT: Duration = Duration::from_secs(3);

/// How long one of these waits is.
const LISTENS_PAUSE: Duration = Duration::from_millis(10);

/// The longest path of a Unix socket: what `sockaddr_un` holds on Linux, less the byte that ends it.
const SOCKET_PATH_LIMIT_BYTES: usize = 107;

/// The most that is read of the lock file; what a daemon writes has a few hundred bytes.
const LOCK_FILE_LIMIT_BYTES: u64 = 64 * 1024;

/// What is read of the lock file here.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct LockFile {
    pid: Option<u32>,
    socket: PathBuf,
    #[serde(rename = "startedAt")]
    started_at: Option<Timestamp>,
    config: Option<PathBuf>,
}

impl Reach {
    /// Connects, and starts a daemon when none answers.
    ///
    /// # Errors
    /// When a socket cannot be used, when no daemon answers and none may be started, or when it does not start.
    pub(super) async fn connect(&self) -> Outcome<Daemon> {
        if let Some(daemon) = self.find().await? {
            return Ok(daemon);
        }
        if !self.may_start {
            return Err(Problem::new(
                Exit::NoDaemon,
                format!("no daemon answers at {}", self.paths.bridge_socket.display()),
            )
            .hint("start one with sessiond, or leave --no-start out"));
        }
        // Several commands that find no daemon at once start one together: whoever comes second finds the first's.
        let turn = start::StartTurn::take(&self.paths).await?;
        if let Some(daemon) = self.find().await? {
            return Ok(daemon);
        }
        let started = start::start(&self.launch, &self.paths).await;
        drop(turn);
        if let Some(daemon) = self.find().await? {
            return Ok(daemon);
        }
        started?;
        Err(Problem::new(
            Exit::NoDaemon,
            format!(
                "the daemon started, but does not answer at {}",
                self.paths.bridge_socket.display()
            ),
        )
        .hint(format!("its log is {}", self.paths.log_file().display())))
    }

    /// Connects to a running daemon and starts none. One that has the lock is given a while to listen: it may just be
    /// starting or stopping, and one whose socket was removed listens anew.
    ///
    /// # Errors
    /// When another user owns or can change what a daemon would believe, or a socket is there that cannot be used.
    pub(super) async fn find(&self) -> Outcome<Option<Daemon>> {
        let began = Instant::now();
        loop {
            let found = self.try_to_find().await?;
            if found.is_some() || began.elapsed() >= LISTENS_LIMIT || !self.is_expected() {
                return Ok(found);
            }
            tokio::time::sleep(LISTENS_PAUSE).await;
        }
    }

    /// Whether a daemon runs that ought to listen where it is looked for.
    fn is_expected(&self) -> bool {
        let is_looked_for = |socket: &Path| !self.socket_named || socket == self.paths.bridge_socket;
        start::is_held(&self.paths) && self.locked_socket().is_some_and(|socket| is_looked_for(&socket))
    }

    async fn try_to_find(&self) -> Outcome<Option<Daemon>> {
        ownership::check(&self.paths)?;
        let lock = read_lock(&self.paths.lock_file());
        let locked = lock.as_ref().map(|lock| lock.socket.clone());
        for socket in candidates(&self.paths.bridge_socket, self.socket_named, locked) {
            match connect(&socket).await {
                Ok(client) => {
                    let config = lock
                        .as_ref()
                        .filter(|lock| lock.socket == socket)
                        .and_then(|lock| lock.config.clone());
                    let daemon = Daemon::new(client, config);
                    if daemon.answers().await {
                        return Ok(Some(daemon));
                    }
                }
                Err(ConnectError::NotFound { .. } | ConnectError::Refused { .. }) => {}
                Err(error @ ConnectError::PermissionDenied { .. }) => {
                    return Err(Problem::new(Exit::NoDaemon, error.to_string())
                        .hint("each user has a daemon of their own; is this socket somebody else's?"));
                }
                // Nothing can listen below a file; what is wrong is told when a daemon is started there.
                Err(ConnectError::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => {}
                Err(ConnectError::Io { path, source }) => return Err(unusable(&path, &source)),
            }
        }
        Ok(None)
    }
}

impl Reach {
    /// The process that was the last to have the data folder, whether or not it still runs, and when it began.
    pub(super) fn last_daemon(&self) -> Option<(u32, Option<Timestamp>)> {
        let lock = read_lock(&self.paths.lock_file())?;
        Some((lock.pid?, lock.started_at))
    }

    /// Where that one listens.
    pub(super) fn locked_socket(&self) -> Option<PathBuf> {
        Some(read_lock(&self.paths.lock_file())?.socket)
    }
}

impl Daemon {
    fn new(client: Client, config: Option<PathBuf>) -> Self {
        Self {
            client,
            config,
            answers: Mutex::default(),
        }
    }

    /// Whether anybody answers. The socket of a process that is being killed takes connections to its last moment, and nothing of a
    /// command is to be sent to one that never reads it.
    async fn answers(&self) -> bool {
        match self.client.call(method::Status::default()).await {
            Err(error) => !is_lost(&error),
            Ok(_) => true,
        }
    }

    /// Whether it was started with another configuration file than this one, as far as it is known.
    pub(super) fn has_other_config(&self, config: &Path) -> bool {
        self.config.as_deref().is_some_and(|own| own != config)
    }

    /// The bytes of the last answer of this method.
    pub(super) fn answer(&self, method: &str) -> Option<RawJson> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(method).cloned()
    }

    /// Waits until the connection has ended.
    pub(super) async fn closed(&self) {
        self.client.on_disconnect().await;
    }
}

impl ClientT for Daemon {
    async fn notification<Params: ToRpcParams + Send>(
        &self,
        method: &str,
        params: Params,
    ) -> Result<(), Error> {
        self.client.notification(method, params).await
    }

    async fn request<R: DeserializeOwned, Params: ToRpcParams + Send>(
        &self,
        method: &str,
        params: Params,
    ) -> Result<R, Error> {
        let raw: Box<RawValue> = self.client.request(method, params).await?;
        let value = serde_json::from_str(raw.get());
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert(method.to_owned(), RawJson::new(raw));
        Ok(value?)
    }

    async fn batch_request<'a, R: DeserializeOwned + std::fmt::Debug + 'a>(
        &self,
        batch: BatchRequestBuilder<'a>,
    ) -> Result<BatchResponse<'a, R>, Error> {
        self.client.batch_request(batch).await
    }
}

impl SubscriptionClientT for Daemon {
    async fn subscribe<'a, Notif: DeserializeOwned, Params: ToRpcParams + Send>(
        &self,
        subscribe_method: &'a str,
        params: Params,
        unsubscribe_method: &'a str,
    ) -> Result<Subscription<Notif>, Error> {
        self.client
            .subscribe(subscribe_method, params, unsubscribe_method)
            .await
    }

    async fn subscribe_to_method<Notif: DeserializeOwned>(
        &self,
        method: &str,
    ) -> Result<Subscription<Notif>, Error> {
        self.client.subscribe_to_method(method).await
    }
}

/// A socket that cannot be connected to, whether or not a daemon listens.
fn unusable(socket: &Path, error: &io::Error) -> Problem {
    let path = socket.display();
    let length = socket.as_os_str().len();
    if error.kind() == io::ErrorKind::InvalidInput && length > SOCKET_PATH_LIMIT_BYTES {
        return Problem::new(
            Exit::NoDaemon,
            format!(
                "the path of the socket is too long: {length} bytes, where {SOCKET_PATH_LIMIT_BYTES} are possible: {path}"
            ),
        )
        .hint("name a shorter one with --socket PATH, or a folder nearer to the root with --home DIR");
    }
    Problem::new(
        Exit::NoDaemon,
        format!("cannot connect to the socket {path}: {error}"),
    )
    .hint("sessiond in a terminal shows whether a daemon can listen there")
}

/// The sockets to try, in order: the one that was named and no other, else the running daemon's own, then the default.
fn candidates(default: &Path, named: bool, locked: Option<PathBuf>) -> Vec<PathBuf> {
    let mut sockets = Vec::new();
    if !named {
        sockets.extend(locked);
    }
    if !sockets.iter().any(|socket| socket == default) {
        sockets.push(default.to_path_buf());
    }
    sockets
}

/// What the lock file says. One that cannot be read, or that is another user's, says nothing: the default socket is tried then.
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

    use super::{LockFile, candidates, read_lock};

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
            let sockets = candidates(Path::new("/default"), named, locked.map(PathBuf::from));
            assert_eq!(
                sockets,
                expected.into_iter().map(PathBuf::from).collect::<Vec<_>>()
            );
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
                started_at: None,
                socket: socket.into(),
                config: config.map(Into::into),
            });
            fs::write(&file, text).unwrap();
            assert_eq!(read_lock(&file), expected, "{text}");
        }
    }
}

//! The server, its methods, and a client that only reads and writes lines.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::server::calls::StartSubscription;
use crate::server::{Handler, Methods, PrivateSocket, PushError, SocketFile, SocketLimits, answer, serve};
use bridge_protocol::{BridgeError, ErrorKind};
use futures_util::FutureExt;
use futures_util::future::ready;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// What the test's methods share with the test.
pub(crate) struct Shared {
    /// Where `test/admit` hands its number on, as a handler does with its work.
    mailbox: mpsc::Sender<u64>,
    /// What arrived there.
    admitted: Mutex<mpsc::Receiver<u64>>,
    /// Handlers that wait, and subscriptions that are held.
    pub(crate) live: watch::Sender<usize>,
    /// Handlers wait until this is true.
    released: watch::Sender<bool>,
    /// Subscribers that were refused an event, and why.
    pub(crate) refused: watch::Sender<Option<PushError>>,
}

struct Live(Arc<Shared>);

impl Live {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.live.send_modify(|live| *live += 1);
        Self(shared.clone())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.send_modify(|live| *live -= 1);
    }
}

#[derive(Deserialize)]
struct Admit {
    n: u64,
}

#[derive(Deserialize)]
struct Large {
    bytes: usize,
}

#[derive(Deserialize)]
struct Flood {
    count: u64,
}

fn methods(shared: &Arc<Shared>) -> Methods {
    let mut methods = Methods::new();
    add(&mut methods, shared, "test/echo", |params: Value, _| async move {
        Ok(params)
    });
    add(
        &mut methods,
        shared,
        "test/admit",
        |Admit { n }, shared| async move {
            shared.mailbox.send(n).await.unwrap();
            let _live = Live::new(&shared);
            let mut released = shared.released.subscribe();
            released.wait_for(|released| *released).await.unwrap();
            Ok(json!(n))
        },
    );
    add(
        &mut methods,
        shared,
        "test/large",
        |Large { bytes }, _| async move { Ok(json!("x".repeat(bytes))) },
    );
    add(&mut methods, shared, "test/panic", |_: Value, _| async move {
        panic!("as it should")
    });
    methods.insert(
        "test/panicSync",
        Handler::Call(Box::new(|_| panic!("as it should"))),
    );
    add(&mut methods, shared, "test/fail", |_: Value, _| async move {
        Err(BridgeError::new(ErrorKind::NotFound, "no"))
    });
    methods.insert("test/subscribe", subscription(Arc::clone(shared)));
    methods.insert("test/unsubscribe", Handler::Unsubscribe);
    methods
}

fn add<P, F>(
    methods: &mut Methods,
    shared: &Arc<Shared>,
    name: &'static str,
    act: impl Fn(P, Arc<Shared>) -> F + Send + Sync + 'static,
) where
    P: DeserializeOwned,
    F: Future<Output = Result<Value, BridgeError>> + Send + 'static,
{
    let shared = Arc::clone(shared);
    let call = move |params: &str| match read(params) {
        Ok(params) => {
            let acting = act(params, Arc::clone(&shared));
            async move { answer::result(&acting.await?) }.boxed()
        }
        Err(error) => ready(Err(error)).boxed(),
    };
    methods.insert(name, Handler::Call(Box::new(call)));
}

fn read<P: DeserializeOwned>(params: &str) -> Result<P, BridgeError> {
    serde_json::from_str(params)
        .map_err(|error| BridgeError::new(ErrorKind::InvalidParams, error.to_string()))
}

fn subscription(shared: Arc<Shared>) -> Handler {
    let begin = move |Flood { count }, shared: Arc<Shared>| -> StartSubscription {
        Box::new(move |feed| {
            let sending = async move {
                let _live = Live::new(&shared);
                for n in 0..count {
                    if let Err(error) = feed.try_send(&n.to_string()) {
                        shared.refused.send_replace(Some(error));
                        break;
                    }
                    tokio::task::consume_budget().await;
                }
                std::future::pending().await
            };
            sending.boxed()
        })
    };
    Handler::Subscribe {
        event: "test/notification",
        read: Box::new(move |params| Ok(begin(read(params)?, Arc::clone(&shared)))),
    }
}

pub(crate) struct Server {
    pub(crate) shared: Arc<Shared>,
    pub(crate) path: PathBuf,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<()>,
    _file: SocketFile,
    _folder: tempfile::TempDir,
}

pub(crate) fn start(limits: SocketLimits) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run/s.sock");
    let (mailbox, admitted) = mpsc::channel(1000);
    let shared = Arc::new(Shared {
        mailbox,
        admitted: Mutex::new(admitted),
        live: watch::Sender::new(0),
        released: watch::Sender::new(false),
        refused: watch::Sender::new(None),
    });
    let PrivateSocket { listener, file } = PrivateSocket::bind(&path).unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve(listener, Arc::new(methods(&shared)), limits, stop.clone()));
    Server {
        shared,
        path,
        stop,
        task,
        _file: file,
        _folder: folder,
    }
}

impl Server {
    pub(crate) async fn connect(&self) -> RawClient {
        let (read_half, write_half) = UnixStream::connect(&self.path).await.unwrap().into_split();
        RawClient {
            lines: BufReader::new(read_half),
            write_half: Some(write_half),
        }
    }

    pub(crate) async fn live_is(&self, expected: usize) {
        within(self.shared.live.subscribe().wait_for(|live| *live == expected))
            .await
            .unwrap();
    }

    /// The numbers in the order in which they were admitted.
    pub(crate) fn admitted(&self) -> Vec<u64> {
        let mut mailbox = self.shared.admitted.lock().unwrap();
        std::iter::from_fn(|| mailbox.try_recv().ok()).collect()
    }

    pub(crate) fn release(&self) {
        self.shared.released.send_replace(true);
    }
}

/// A client that knows nothing but lines.
pub(crate) struct RawClient {
    lines: BufReader<OwnedReadHalf>,
    write_half: Option<OwnedWriteHalf>,
}

impl RawClient {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.write_half.as_mut().unwrap().write_all(bytes.as_ref()))
            .await
            .unwrap();
    }

    pub(crate) async fn call(&mut self, id: u64, method: &str, params: Value) {
        self.send(request(id, method, params)).await;
    }

    /// The next line as JSON; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        within(self.lines.read_line(&mut line)).await.unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    pub(crate) async fn expect(&mut self) -> Value {
        self.next().await.unwrap()
    }

    /// The next line has to be this error.
    pub(crate) async fn expect_error(&mut self, id: Value, code: i64, kind: &str) -> Value {
        let answer = self.expect().await;
        assert_eq!(answer["id"], id, "{answer}");
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert_eq!(answer["error"]["data"]["kind"], kind, "{answer}");
        assert!(answer["error"]["data"]["retryable"].is_boolean(), "{answer}");
        answer
    }

    /// Finishes sending; answers still come.
    pub(crate) fn half_close(&mut self) {
        self.write_half = None;
    }
}

pub(crate) fn request(id: u64, method: &str, params: Value) -> String {
    format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    )
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap()
}

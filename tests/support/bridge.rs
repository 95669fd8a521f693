//! A daemon whose agent is a real adapter, and a client of it as a desktop app would be: calls and events
//! over the socket. The interface is blocking because the tests are; the client itself runs on its own
//! thread. Only the test programs for real adapters use this module, because only they have a daemon.

use bridge_protocol::client::Call as _;
use bridge_protocol::method::{
    Cancel, Chain, Check, Close, Delete, Edit, Fork, GetConversation, Keep, Method, Move, NewConversation,
    Prompt, Respond, Shutdown, Subscribe, Undo, Update,
};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::client::{self, Client};
use bridge_protocol::conversation::{
    Conversation, EditAnswer, ForkAnswer, MoveAnswer, RemainingTranscript, Settings, TranscriptsOnDelete,
    UndoAnswer,
};
use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::link::{Fidelity, Link};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{Interrupt, StopReason, TurnResult};
use bridge_protocol::{AgentName, BridgeError, ConversationId};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::support::entry::AgentEntry;
use crate::support::lab::{Agent, Lab};
use crate::support::signs::Watched;
use crate::support::{self, signs};

/// How long a call, an event or a start may take. The slowest ones wait for a process to start on a busy
/// machine.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// How long the daemon may take to stop: it waits until its agents have exited.
const STOP_LIMIT: Duration = Duration::from_secs(40);

/// A daemon, a client of it, and their folders. Dropping it ends all of them.
pub(crate) struct Bridge<A> {
    // Fields are dropped in this order: first the client, then the daemon with its agents, then what they
    // use.
    app: Option<App>,
    driver: Driver,
    daemon: Option<Daemon>,
    home: TempDir,
    pub(crate) lab: Lab<A>,
    entry: AgentEntry,
}

/// The client side of one connection.
struct App {
    client: Arc<Client>,
    heard: Arc<Heard>,
}

/// The thread that runs connections and calls. It outlives all of them, so that none waits forever.
struct Driver {
    runtime: Arc<Runtime>,
    over: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// The events of all conversations, in order of arrival.
#[derive(Default)]
struct Heard {
    events: Mutex<Vec<EventEnvelope>>,
    changed: Condvar,
}

struct Daemon {
    child: Child,
    /// The file that receives the stderr of every daemon started for this test.
    log: PathBuf,
}

/// A call that was sent and is not answered yet.
pub(crate) struct Pending<T>(tokio::task::JoinHandle<Result<T, BridgeError>>, Arc<Runtime>);

impl<A: Agent> Bridge<A> {
    /// Starts a daemon whose agent is this adapter; `change` may modify the agent's entry in the
    /// configuration.
    pub(crate) fn of(lab: Lab<A>, change: impl FnOnce(&mut AgentEntry)) -> Bridge<A> {
        let (program, arguments) = lab.command();
        let mut entry = AgentEntry {
            name: A::NAME,
            command: program,
            args: arguments,
            env: lab.environment(),
            transcripts: lab.transcript_root(),
            keeps: true,
        };
        change(&mut entry);
        // The path of a socket is limited in length, so the socket is not below the test's own folder, whose
        // path may be long.
        let home = tempfile::Builder::new().prefix("sb").tempdir().expect("a home");
        let mut bridge = Bridge {
            app: None,
            driver: Driver::start(),
            daemon: None,
            home,
            lab,
            entry,
        };
        bridge.reconfigure(|_| {});
        bridge.start_daemon();
        bridge
    }

    /// Changes the configuration, which the daemon reads when it starts.
    pub(crate) fn reconfigure(&mut self, change: impl FnOnce(&mut AgentEntry)) {
        change(&mut self.entry);
        let folder = self.home.path().join("config");
        fs::create_dir_all(&folder).expect("a folder in the home");
        fs::write(folder.join("config.toml"), self.entry.to_toml()).expect("the configuration");
    }

    /// The folder that contains the daemon's own folders.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Starts the daemon and connects to it.
    pub(crate) fn start_daemon(&mut self) {
        let log = self.home.path().join("daemon.log");
        let log_file = fs::File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a log file");
        let (mut ready, starter) = std::io::pipe().expect("a pipe");
        let child = Command::new(env!("CARGO_BIN_EXE_sessiond"))
            .arg("--ready-on-stdin")
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("SESSIOND_HOME", self.home.path())
            .stdin(starter)
            .stdout(Stdio::null())
            .stderr(log_file)
            .spawn()
            .expect("the daemon");
        // The pipe ends when the daemon has reported that it listens, or when it has exited.
        let mut said = String::new();
        ready
            .read_to_string(&mut said)
            .expect("the daemon's report that it is ready");
        let daemon = Daemon { child, log };
        assert_eq!(said, "ready\n", "the daemon did not start: {}", daemon.said());
        self.daemon = Some(daemon);
        self.connect();
    }

    /// Connects again, as a second client or the same one after a restart would.
    pub(crate) fn connect(&mut self) {
        let socket = self.home.path().join("run/sessiond.sock");
        self.app = Some(App::connect(&self.driver.runtime, &socket));
    }

    /// Sends SIGKILL to the daemon only.
    pub(crate) fn kill_daemon(&mut self) {
        let mut daemon = self.daemon.take().expect("a daemon");
        daemon.child.kill().expect("the daemon killed");
        daemon.child.wait().expect("the daemon's end");
        self.app = None;
    }

    /// Asks the daemon to stop and waits until it exits.
    pub(crate) fn stop_daemon(&mut self) -> ExitStatus {
        self.answer(Shutdown::default());
        let status = self.daemon.as_mut().expect("a daemon").end();
        self.app = None;
        self.daemon = None;
        status
    }

    /// Creates a conversation in the project's folder.
    pub(crate) fn conversation(&self, settings: Settings) -> ConversationId {
        self.answer(NewConversation {
            agent: Some(AgentName::new(A::NAME)),
            cwd: path_text(&self.lab.project()),
            settings,
            ..Default::default()
        })
        .conversation
        .id
    }

    /// Creates a conversation and runs these turns.
    pub(crate) fn begun(&self, prompts: &[&str]) -> ConversationId {
        let id = self.conversation(Settings::default());
        for prompt in prompts {
            self.prompted(id, prompt);
        }
        id
    }

    /// Creates a conversation with one turn. Returns its id and its session id.
    pub(crate) fn conversed(&self) -> (ConversationId, String) {
        let id = self.begun(&["first"]);
        (id, self.head(id))
    }

    /// Sends a prompt without waiting for the turn to end.
    pub(crate) fn begin_prompt(
        &self,
        id: ConversationId,
        text: &str,
        request_id: Option<&str>,
    ) -> Pending<TurnResult> {
        self.begin_prompt_of(id, text, None, request_id)
    }

    /// Sends a prompt and waits until the turn ends.
    pub(crate) fn prompt(&self, id: ConversationId, text: &str) -> Result<TurnResult, BridgeError> {
        self.begin_prompt(id, text, None).wait()
    }

    /// Sends a prompt that accepts a resume with at least this fidelity, and waits until the turn ends.
    pub(crate) fn prompt_at_least(
        &self,
        id: ConversationId,
        text: &str,
        min_fidelity: Fidelity,
    ) -> Result<TurnResult, BridgeError> {
        self.begin_prompt_of(id, text, Some(min_fidelity), None).wait()
    }

    fn begin_prompt_of(
        &self,
        id: ConversationId,
        text: &str,
        min_fidelity: Option<Fidelity>,
        request_id: Option<&str>,
    ) -> Pending<TurnResult> {
        self.begin(Prompt {
            conversation_id: id.into(),
            prompt: PromptContent::text(text),
            min_fidelity: min_fidelity.unwrap_or_default(),
            request_id: request_id.map(str::to_owned),
            ..Default::default()
        })
    }

    /// Runs a turn that must end normally.
    pub(crate) fn prompted(&self, id: ConversationId, text: &str) -> TurnResult {
        let turn = self.prompt(id, text).expect("conversation/prompt");
        assert_eq!(turn.stop_reason, StopReason::EndTurn, "{turn:?}");
        turn
    }

    /// Reads the current state of the conversation.
    pub(crate) fn get(&self, id: ConversationId) -> Conversation {
        self.answer(GetConversation {
            conversation_id: id.into(),
        })
        .conversation
    }

    /// Reads the chain of a conversation.
    pub(crate) fn chain(&self, id: ConversationId) -> Vec<Link> {
        self.answer(Chain {
            conversation_id: id.into(),
        })
        .links
    }

    /// The upstream id of the head.
    pub(crate) fn head(&self, id: ConversationId) -> String {
        self.get(id).head.expect("a head").as_str().to_owned()
    }

    /// Forks at the head.
    pub(crate) fn fork(&self, id: ConversationId, in_place: bool) -> ForkAnswer {
        self.fork_at(id, in_place, None).expect("conversation/fork")
    }

    /// Forks after a checkpoint, or at the head if `at` is `None`.
    pub(crate) fn fork_at(
        &self,
        id: ConversationId,
        in_place: bool,
        at: Option<String>,
    ) -> Result<ForkAnswer, BridgeError> {
        self.call(Fork {
            conversation_id: id.into(),
            in_place,
            at,
            ..Default::default()
        })
    }

    /// Replaces the prompt of the turn at this checkpoint.
    pub(crate) fn edit(&self, id: ConversationId, at: &str, text: &str) -> Result<EditAnswer, BridgeError> {
        self.edit_with(id, at, PromptContent::text(text))
    }

    /// The same with a prompt that may contain more than a text.
    pub(crate) fn edit_with(
        &self,
        id: ConversationId,
        at: &str,
        prompt: PromptContent,
    ) -> Result<EditAnswer, BridgeError> {
        self.call(Edit {
            conversation_id: id.into(),
            at: at.to_owned(),
            prompt,
            ..Default::default()
        })
    }

    /// Undoes the last change made in place.
    pub(crate) fn undo(&self, id: ConversationId) -> UndoAnswer {
        self.answer(Undo {
            conversation_id: id.into(),
            ..Default::default()
        })
    }

    /// Moves the conversation to another folder.
    pub(crate) fn move_to(&self, id: ConversationId, folder: &Path) -> Result<MoveAnswer, BridgeError> {
        self.call(Move {
            conversation_id: id.into(),
            cwd: path_text(folder),
            ..Default::default()
        })
    }

    /// Closes the session.
    pub(crate) fn close(&self, id: ConversationId) {
        self.answer(Close {
            conversation_id: id.into(),
            ..Default::default()
        });
    }

    /// Copies a conversation's transcripts.
    pub(crate) fn keep(&self, id: ConversationId) {
        self.call(Keep {
            conversation_id: Some(id.into()),
            ..Default::default()
        })
        .expect("transcript/keep");
    }

    /// Waits until the daemon has copies of this many sessions. No event of the protocol reports a finished
    /// copy, but finishing one changes the data folder. So this asks again after each change there, and
    /// sleeps in between.
    pub(crate) fn wait_kept(&self, sessions: u64) {
        Watched::below(&self.home.path().join("data")).wait_for("kept copies", || {
            let total = self.answer(Keep::default()).total.expect("the sum");
            (total.sessions >= sessions).then_some(())
        });
    }

    /// Deletes a conversation and its transcripts. Returns the transcripts that still exist.
    pub(crate) fn delete_with_transcripts(&self, id: ConversationId) -> Vec<RemainingTranscript> {
        self.answer(Delete {
            conversation_id: id.into(),
            transcripts: TranscriptsOnDelete::Delete,
            ..Default::default()
        })
        .remaining
    }

    /// Cancels the running turn. Returns whether there was one.
    pub(crate) fn cancel(&self, id: ConversationId) -> bool {
        self.answer(Cancel {
            conversation_id: id.into(),
            ..Default::default()
        })
        .cancelled
    }

    /// Changes the settings.
    pub(crate) fn set(&self, id: ConversationId, settings: Settings) {
        self.answer(Update {
            conversation_id: id.into(),
            settings,
            ..Default::default()
        });
    }

    /// Answers a permission question with the option of this kind.
    pub(crate) fn respond(&self, id: ConversationId, interrupt: &Interrupt, kind: &str) {
        let options: Vec<Value> = interrupt
            .options
            .as_ref()
            .and_then(|options| options.read().ok())
            .expect("a permission has options");
        let option = options
            .iter()
            .find(|option| option["kind"] == kind)
            .unwrap_or_else(|| panic!("no option {kind} among {options:?}"));
        let outcome = RawJson::from(json!({"outcome": "selected", "optionId": option["optionId"]}));
        self.answer(Respond {
            conversation_id: id.into(),
            interrupt_id: interrupt.id.clone(),
            outcome,
            ..Default::default()
        });
    }

    /// Waits for the first question of the conversation since the client connected.
    pub(crate) fn question(&self, id: ConversationId) -> Interrupt {
        self.wait_event("a question", |event| match &event.event {
            Event::InterruptRaised { interrupt } if event.conversation_id == id => Some(interrupt.clone()),
            _ => None,
        })
    }

    /// Waits for a question of the conversation and answers "allow once".
    pub(crate) fn allow_next(&self, id: ConversationId) {
        let interrupt = self.question(id);
        self.respond(id, &interrupt, "allow_once");
    }

    /// The events of a conversation since the client connected.
    pub(crate) fn events(&self, id: ConversationId) -> Vec<Event> {
        let events = self.app().heard.lock();
        events
            .iter()
            .filter(|event| event.conversation_id == id)
            .map(|event| event.event.clone())
            .collect()
    }

    /// Waits until `wanted` accepts an event, whether already received or new.
    pub(crate) fn wait_event<T>(&self, what: &str, wanted: impl Fn(&EventEnvelope) -> Option<T>) -> T {
        let heard = &self.app().heard;
        let deadline = Instant::now() + WAIT_LIMIT;
        let mut events = heard.lock();
        loop {
            if let Some(found) = events.iter().find_map(&wanted) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} within {WAIT_LIMIT:?}: {events:#?}");
            events = heard
                .changed
                .wait_timeout(events, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until the transcript of the head contains a text. It looks again at each event of the
    /// conversation, because the events arrive while the agent writes.
    pub(crate) fn wait_written(&self, id: ConversationId, text: &str) {
        let head = self.head(id);
        self.wait_event("the text in the transcript", |event| {
            let transcript = (event.conversation_id == id).then(|| self.lab.transcript(&head))??;
            let written = fs::read_to_string(transcript).expect("the transcript");
            written.contains(text).then_some(())
        });
    }

    fn app(&self) -> &App {
        self.app.as_ref().expect("connected")
    }

    /// Calls a method without waiting for the response.
    pub(crate) fn begin<M: Method>(&self, method: M) -> Pending<M::Answer> {
        let (client, runtime) = (Arc::clone(&self.app().client), Arc::clone(&self.driver.runtime));
        let call = runtime.spawn(async move { client.call(method).await.map_err(bridge_error) });
        Pending(call, runtime)
    }

    /// Repairs the transcript of a conversation.
    pub(crate) fn repair(&self, id: ConversationId) -> CheckAnswer {
        self.answer(Check {
            conversation_id: Some(id.into()),
            repair: true,
            ..Default::default()
        })
    }

    /// Calls a method and waits for the response.
    pub(crate) fn call<M: Method>(&self, method: M) -> Result<M::Answer, BridgeError> {
        self.begin(method).wait()
    }

    /// Calls a method that must succeed.
    #[track_caller]
    pub(crate) fn answer<M: Method>(&self, method: M) -> M::Answer {
        let answer = self.call(method);
        answer.unwrap_or_else(|error| panic!("{}: {error:?}", M::NAME))
    }
}

/// A path, as it is sent.
pub(crate) fn path_text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

impl<T> Pending<T> {
    /// Waits for the response.
    pub(crate) fn wait(self) -> Result<T, BridgeError> {
        let Pending(call, runtime) = self;
        let answer = runtime
            .handle()
            .block_on(async { tokio::time::timeout(WAIT_LIMIT, call).await });
        answer
            .unwrap_or_else(|_| panic!("no answer within {WAIT_LIMIT:?}"))
            .expect("a call that did not panic")
    }
}

impl Driver {
    fn start() -> Driver {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let runtime = Arc::new(runtime);
        let over = Arc::new(Notify::new());
        let thread = std::thread::spawn({
            let (runtime, over) = (Arc::clone(&runtime), Arc::clone(&over));
            move || runtime.block_on(over.notified())
        });
        Driver {
            runtime,
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.over.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl App {
    fn connect(runtime: &Runtime, socket: &Path) -> App {
        let connected = runtime.handle().block_on(client::connect(socket));
        let client = Arc::new(connected.expect("a daemon that listens"));
        let heard = Arc::<Heard>::default();
        let subscribed = runtime
            .handle()
            .block_on(client.events(Subscribe::default()))
            .expect("conversation/subscribe");
        runtime.spawn(heard.clone().listen(subscribed));
        App { client, heard }
    }
}

impl Heard {
    async fn listen(self: Arc<Self>, mut subscription: jsonrpsee::core::client::Subscription<EventEnvelope>) {
        while let Some(Ok(event)) = subscription.next().await {
            self.lock().push(event);
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<EventEnvelope>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Daemon {
    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the daemon exits.
    fn end(&mut self) -> ExitStatus {
        assert!(self.has_ended_in_time(), "the daemon does not stop");
        self.child.wait().expect("the daemon's end")
    }

    fn has_ended_in_time(&self) -> bool {
        let process = signs::descriptor_of(self.child.id());
        process.is_none_or(|process| signs::ends_within(process, STOP_LIMIT))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The daemon's log explains a failure best.
            support::explain("the daemon", &self.said());
        }
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        if !self.has_ended_in_time() {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}

fn bridge_error(error: jsonrpsee::core::ClientError) -> BridgeError {
    match error {
        jsonrpsee::core::ClientError::Call(error) => error.into(),
        error => BridgeError::new(bridge_protocol::ErrorKind::InternalError, error.to_string()),
    }
}

/// A picture of one pixel, in base64.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A prompt with [`PNG`] and a text.
pub(crate) fn with_picture(text: &str) -> PromptContent {
    with_png(PNG, text)
}

/// A prompt with this picture, given in base64, and a text.
pub(crate) fn with_png(png: &str, text: &str) -> PromptContent {
    let blocks = [
        json!({"type": "image", "mimeType": "image/png", "data": png}),
        json!({"type": "text", "text": text}),
    ];
    PromptContent::blocks(blocks.map(RawJson::from).into())
}

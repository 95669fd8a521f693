//! Conversations whose tasks panic, with a registry of its own and no daemon.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::id::TurnId;
use bridge_protocol::link::{Fidelity, LinkReason, Relation};
use bridge_protocol::method::{Prompt, Update};
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::StopReason;
use futures_util::future::BoxFuture;
use tempfile::TempDir;

use super::watching::tests::{Ear, registry, registry_with};
use super::*;
use crate::agent::catalog::AgentEntry;
use crate::agent::kinds;
use crate::agent::policy::InterruptPolicy;
use crate::agent::pool::Launch;
use crate::agent::process::AgentCommand;
use crate::chain::NewLink;
use crate::conversation::actor::REST_BEFORE_END;
use crate::conversation::climbing::acquire_process;
use crate::conversation::closed_sessions::ClosedSessions;
use crate::conversation::destination::Destination;
use crate::conversation::effect::MoveRequest;
use crate::conversation::events::{Delivery, EncodedEvent};
use crate::conversation::running_work::Progress;
use crate::conversation::upstream::{OpenMode, UpstreamSession, open_session};
use crate::transcript::locate::own_folder;
use crate::transcript::moving::SharedRemainingForks;

/// Answers everything at once, but for a prompt to hang, of which it only reports something. It closes no session.
const AGENT: &str = r#"while read -r line; do
    id=${line#*\"id\":}; id=${id%%[,\}]*}
    case $line in
        *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}' ;;
        *'"session/new"'*)
            number=$((number + 1))
            result='{"sessionId":"s'$number'"}' ;;
        *'"session/prompt"'*hang*)
            update='{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hm."}}'
            echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":'"$update"'}}'
            continue ;;
        *'"session/prompt"'*) result='{"stopReason":"end_turn"}' ;;
        *) result='{}' ;;
    esac
    echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done"#;

/// A conversation and someone who listens to it.
struct Stage {
    registry: Arc<Registry>,
    id: ConversationId,
    events: mpsc::Receiver<String>,
    _folder: TempDir,
}

/// A subscriber on which the task of its conversation fails.
struct Fault;

impl Subscriber for Fault {
    fn deliver(&mut self, _: &EncodedEvent) -> Delivery {
        panic!("a fault")
    }

    fn deliver_when_room<'a>(&'a mut self, _: &'a EncodedEvent) -> BoxFuture<'a, bool> {
        panic!("a fault")
    }

    fn lagged(self: Box<Self>, _: String) -> Option<Box<dyn Subscriber>> {
        None
    }

    fn is_disconnected(&self) -> bool {
        false
    }
}

impl Stage {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path(), &folder.path().join("claude"));
        Self::with(folder, registry).await
    }

    /// One whose agent can be started.
    async fn with_agent() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let command = AgentCommand {
            program: "sh".into(),
            args: vec!["-c".into(), AGENT.into()],
            ..AgentCommand::default()
        };
        let entry = AgentEntry {
            name: "sh".into(),
            kind: &kinds::GENERIC,
            launch: Launch {
                command,
                ..Launch::default()
            },
            transcripts: None,
            transcript_format: None,
            interrupts: InterruptPolicy::Ask,
            session_params: None,
            is_expected: false,
        };
        let registry = registry_with(folder.path(), entry);
        Self::with(folder, registry).await
    }

    async fn with(folder: TempDir, registry: Arc<Registry>) -> Self {
        let new = NewConversation {
            cwd: folder.path().to_str().unwrap().to_owned(),
            title: "before".to_owned(),
            ..NewConversation::default()
        };
        let Ok(Answer::Conversation(made)) = registry.create(new, None).await else {
            panic!("it is made");
        };
        let (ear, events) = mpsc::channel(64);
        registry.subscribe(made.id, Box::new(Ear(ear)), None).unwrap();
        Self {
            registry,
            id: made.id,
            events,
            _folder: folder,
        }
    }

    fn fail(&self) {
        self.registry.subscribe(self.id, Box::new(Fault), None).unwrap();
    }

    fn set(
        &self,
        title: Option<&str>,
        model: Option<&str>,
    ) -> oneshot::Receiver<Result<Answer, ConversationError>> {
        let call = Update {
            title: title.map(str::to_owned),
            settings: Settings {
                model: model.map(str::to_owned),
                ..Settings::default()
            },
            ..Update::default()
        };
        let call = Call::Update(call, None);
        self.registry.call(self.id, call, None).unwrap()
    }

    fn prompt(&self, text: &str) -> oneshot::Receiver<Result<Answer, ConversationError>> {
        let call = Prompt {
            prompt: PromptContent::text(text),
            min_fidelity: Fidelity::None,
            ..Prompt::default()
        };
        let call = Call::Prompt(call, TurnId::mint().into());
        self.registry.call(self.id, call, None).unwrap()
    }

    /// A session that nothing but the test knows of.
    async fn open_session(&self) -> UpstreamSession {
        let services = &self.registry.services;
        let entry = services.agent(&"sh".into()).unwrap();
        let lease = acquire_process(services, &entry).await.unwrap();
        let opening = OpenMode::New { last_mode: None };
        let record =
            ConversationRecord::new(self.id, "sh".into(), "/".to_owned(), jiff::Timestamp::UNIX_EPOCH);
        let closed = ClosedSessions::default();
        let opened = open_session(services, &entry, lease, &opening, "/", &record, &closed).await;
        opened.unwrap().0
    }

    async fn stop_agents(&self) {
        let pool = &self.registry.services.pool;
        pool.shutdown().await;
    }

    fn move_to(
        &self,
        folder: &str,
        progress: Arc<Progress>,
    ) -> oneshot::Receiver<Result<Answer, ConversationError>> {
        let request = MoveRequest {
            destination: Destination::Folder(folder.to_owned()),
            undoes: false,
            neighbours: SharedRemainingForks::default(),
            progress,
        };
        self.registry.call(self.id, Call::Move(request), None).unwrap()
    }

    /// The first event that this takes something from.
    async fn find<T>(&mut self, take: impl Fn(&Event) -> Option<T>) -> T {
        loop {
            let text = self.events.recv().await.expect("it stays subscribed");
            let envelope: EventEnvelope = serde_json::from_str(&text).unwrap();
            if let Some(found) = take(&envelope.event) {
                return found;
            }
        }
    }
}

fn is_failed(event: &Event) -> Option<()> {
    let state = ConversationState::Failed;
    (*event == Event::StateChanged { state }).then_some(())
}

#[tokio::test]
async fn a_conversation_whose_task_fails_tells_its_subscribers_and_goes_on_with_them() {
    let mut stage = Stage::new().await;
    for round in ["first", "second"] {
        stage.fail();
        stage.find(is_failed).await;
        let Ok(Ok(Answer::Conversation(told))) = stage.set(Some(round), None).await else {
            panic!("it can be called");
        };
        assert_eq!(
            (told.title.as_str(), told.state),
            (round, ConversationState::Failed)
        );
        let title = |event: &Event| match event {
            Event::Updated { conversation } => Some(conversation.title.clone()),
            _ => None,
        };
        let mut shown = stage.find(title).await;
        while shown != round {
            shown = stage.find(title).await;
        }
    }
    // Who comes now is told where it stands.
    let (ear, mut later) = mpsc::channel(64);
    stage
        .registry
        .subscribe(stage.id, Box::new(Ear(ear)), None)
        .unwrap();
    let snapshot: EventEnvelope = serde_json::from_str(&later.recv().await.unwrap()).unwrap();
    let Event::Snapshot { conversation, .. } = snapshot.event else {
        panic!("{snapshot:?}");
    };
    assert_eq!(conversation.state, ConversationState::Failed);
    assert!(conversation.failure.unwrap().contains("a fault"));
}

/// The change is on its way to the disk when the task fails, and a later one comes before anybody knows of that.
#[tokio::test]
async fn what_is_written_when_the_task_fails_is_not_written_over() {
    let stage = Stage::new().await;
    let title = stage.set(Some("a title"), None);
    stage.fail();
    let model = stage.set(None, Some("a model"));
    assert!(title.await.unwrap().is_ok(), "it is on disk");
    let Ok(Ok(Answer::Conversation(told))) = model.await else {
        panic!("it can be called");
    };
    assert_eq!(
        (told.title.as_str(), told.settings.model.as_deref()),
        ("a title", Some("a model"))
    );
    let record = stage.registry.services.store.conversation(stage.id).unwrap();
    assert_eq!(record.unwrap().title, "a title");
}

/// The turn has an end for its caller and for subscribers, and the next one is like any other.
#[tokio::test]
async fn a_turn_during_which_the_task_fails_ends_as_failed() {
    let mut stage = Stage::with_agent().await;
    let turn = stage.prompt("hang");
    stage
        .find(|event| matches!(event, Event::Update { .. }).then_some(()))
        .await;
    stage.fail();
    let ended = |event: &Event| match event {
        Event::TurnEnded { turn } => Some(turn.clone()),
        _ => None,
    };
    let reported = stage.find(ended).await;
    assert_eq!(reported.stop_reason, StopReason::Failed);
    stage.find(is_failed).await;
    let Ok(Ok(Answer::Turn(answered))) = turn.await else {
        panic!("the caller is answered");
    };
    assert_eq!(*answered, reported);
    let Ok(Ok(Answer::Turn(next))) = stage.prompt("further").await else {
        panic!("the next prompt works");
    };
    assert_eq!(next.stop_reason, StopReason::EndTurn);
    assert_eq!(stage.find(ended).await, *next);
    stage.registry.stop(Duration::ZERO).await;
    stage.stop_agents().await;
}

#[tokio::test]
async fn a_move_during_which_the_task_fails_is_ended_before_anything_else_begins() {
    let mut stage = Stage::new().await;
    let root = stage._folder.path().join("claude");
    let store = &stage.registry.services.store;
    let mut record = store.conversation(stage.id).unwrap().unwrap();
    let cwd = record.cwd.clone();
    let link = NewLink {
        upstream_id: "s1".into(),
        agent: "claude".into(),
        cwd: cwd.clone(),
        reason: LinkReason::Created,
        relation: Relation::Fresh,
        from_upstream_id: None,
        from_checkpoint_id: None,
        cause: None,
        turns: 1,
        carried_turns: 0,
        written: true,
    };
    record.id = ConversationId::mint();
    stage.id = record.id;
    let appended = record.chain.append(link, Fidelity::Full, now());
    let change = Change {
        lineage: appended
            .entries
            .into_iter()
            .map(|entry| (record.id, entry))
            .collect(),
        conversation: Some(record),
        ..Change::default()
    };
    store.commit(change).await.unwrap();
    let (ear, events) = mpsc::channel(64);
    stage
        .registry
        .subscribe(stage.id, Box::new(Ear(ear)), None)
        .unwrap();
    stage.events = events;
    let folder = own_folder(&root, std::path::Path::new(&cwd));
    std::fs::create_dir_all(&folder).unwrap();
    let transcript = folder.join("s1.jsonl");
    let line = format!(
        r#"{{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"s1","cwd":"{cwd}","timestamp":"2020-11-03T12:00:00.000Z","message":{{"role":"user","content":"one"}}}}"#
    );
    std::fs::write(&transcript, line + "\n").unwrap();
    let elsewhere = stage._folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let elsewhere = elsewhere.to_str().unwrap().to_owned();

    let works = Arc::clone(&stage.registry.services.running_work);
    let begun = works.track("conversation/move", Some(stage.id), CancellationToken::new());
    let moving = stage.move_to(&elsewhere, begun.progress());
    stage.fail();
    stage.find(is_failed).await;
    assert!(begun.progress().add_done_bytes(0).is_err(), "it goes on");
    assert!(
        moving.await.is_err(),
        "its caller is told that the answer was lost"
    );
    assert!(transcript.exists());
    let record = stage.registry.services.store.conversation(stage.id).unwrap();
    assert_eq!(record.unwrap().cwd, cwd);

    let begun = works.track("conversation/move", Some(stage.id), CancellationToken::new());
    let moved = stage.move_to(&elsewhere, begun.progress()).await.unwrap();
    assert!(moved.is_ok(), "{moved:?}");
    assert!(!transcript.exists());
}

/// The session of an abandoned job may still be written to, like any other that its agent does not close.
#[tokio::test]
async fn what_an_abandoned_job_opens_is_waited_for() {
    let stage = Stage::with_agent().await;
    let session = stage.open_session().await;
    let closed = ClosedSessions::default();
    let (open, opened) = oneshot::channel();
    closed.close_abandoned(async move { opened.await.ok() });
    assert!(!closed.are_known_to_have_ended(), "it may open one");
    assert!(open.send(session).is_ok());
    let refused = closed.clone().wait_until_ended().await;
    assert!(matches!(refused, Err(ConversationError::Busy(_))), "{refused:?}");
    stage.stop_agents().await;
    assert!(closed.are_known_to_have_ended());
    assert_eq!(closed.wait_until_ended().await, Ok(()));
}

#[tokio::test]
async fn what_is_remembered_of_closed_sessions_is_bounded_and_leaves_with_their_agent() {
    let stage = Stage::with_agent().await;
    let closed = ClosedSessions::default();
    for _ in 0..2 * ClosedSessions::MAX_REMEMBERED {
        let session = stage.open_session().await;
        closed.close(session).wait_until_closed().await;
        assert!(closed.len() <= ClosedSessions::MAX_REMEMBERED);
    }
    let refused = closed.clone().wait_until_ended().await;
    assert!(matches!(refused, Err(ConversationError::Busy(_))), "{refused:?}");
    let last = stage.open_session().await;
    stage.stop_agents().await;
    closed.close(last).wait_until_closed().await;
    assert_eq!(closed.len(), 1);
    assert_eq!(closed.wait_until_ended().await, Ok(()));
}

/// The agent closes no session and runs on for other conversations.
#[tokio::test]
async fn a_conversation_rests_while_a_closed_session_may_be_written_to_and_its_next_task_waits_for_that() {
    let stage = Stage::with_agent().await;
    assert!(matches!(stage.prompt("one").await, Ok(Ok(Answer::Turn(_)))));
    let closing = stage.registry.call(stage.id, Call::Close, None).unwrap();
    assert!(matches!(closing.await, Ok(Ok(_))));
    let Stage {
        registry,
        id,
        events,
        _folder: folder,
    } = stage;
    // Nobody subscribes any more.
    drop(events);
    tokio::time::pause();
    registry.tasks.close();
    let rested = tokio::time::timeout(3 * REST_BEFORE_END, registry.tasks.wait()).await;
    tokio::time::resume();
    assert!(rested.is_ok(), "its task ends");
    assert!(registry.lock().is_empty());
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let stage = Stage {
        registry,
        id,
        events: mpsc::channel(1).1,
        _folder: folder,
    };
    let begun = stage.registry.track_work("conversation/move", Some(id));
    let refused = stage.move_to(elsewhere.to_str().unwrap(), begun.progress());
    let refused = refused.await.unwrap();
    assert!(matches!(refused, Err(ConversationError::Busy(_))), "{refused:?}");
    stage.stop_agents().await;
    let moved = stage.move_to(elsewhere.to_str().unwrap(), begun.progress());
    let moved = moved.await.unwrap();
    assert!(!matches!(moved, Err(ConversationError::Busy(_))), "{moved:?}");
}

/// The agent counts its sessions from one again, and another conversation has had the first.
#[tokio::test]
async fn a_session_that_a_climb_closes_may_still_be_written_to() {
    let stage = Stage::with_agent().await;
    let services = &stage.registry.services;
    let entry = services.agent(&"sh".into()).unwrap();
    let other = ConversationRecord::new(ConversationId::mint(), "sh".into(), "/".into(), now());
    let change = Change {
        upstream: vec![(other.id, entry.transcript_root(), "s1".into())],
        conversation: Some(other),
        ..Change::default()
    };
    services.store.commit(change).await.unwrap();
    let refused = stage.prompt("one").await.unwrap();
    assert!(
        matches!(refused, Err(ConversationError::AgentError { .. })),
        "{refused:?}"
    );
    let closed = stage
        .registry
        .closed_sessions
        .of(stage.id)
        .wait_until_ended()
        .await;
    assert!(matches!(closed, Err(ConversationError::Busy(_))), "{closed:?}");
    stage.stop_agents().await;
    assert_eq!(
        stage
            .registry
            .closed_sessions
            .of(stage.id)
            .wait_until_ended()
            .await,
        Ok(())
    );
}

/// Another process would write to the same transcript at the same time.
#[tokio::test]
async fn what_is_opened_again_waits_for_the_end_of_an_agent_that_is_dying() {
    let stage = Stage::with_agent().await;
    let session = stage.open_session().await;
    let agent = session.lease.agent();
    let closed = ClosedSessions::default();
    closed.close(session).wait_until_closed().await;
    assert_eq!(closed.wait_for_writers().await, Ok(()), "no turn runs in it");
    assert!(!agent.has_stopped());
    agent.terminate("a test ends it");
    assert_eq!(closed.wait_for_writers().await, Ok(()));
    assert!(agent.has_stopped());
}

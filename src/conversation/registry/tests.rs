//! Conversations whose tasks panic, with a registry of its own and no daemon.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::{Event, EventEnvelope};
use futures_util::future::BoxFuture;
use tempfile::TempDir;

use super::watching::tests::{Ear, registry};
use super::*;
use crate::conversation::events::{Encoded, Taken};

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
    fn take(&mut self, _: &Encoded) -> Taken {
        panic!("a fault")
    }

    fn take_when_room<'a>(&'a mut self, _: &'a Encoded) -> BoxFuture<'a, bool> {
        panic!("a fault")
    }

    fn lagged(self: Box<Self>, _: String) {}

    fn is_gone(&self) -> bool {
        false
    }
}

impl Stage {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path(), &folder.path().join("claude"));
        let new = NewConversation {
            agent: None,
            cwd: folder.path().to_str().unwrap().to_owned(),
            title: Some("before".to_owned()),
            namespace: None,
            settings: Settings::default(),
            request: None,
        };
        let Ok(Answer::Conversation(made)) = registry.create(new).await else {
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
        let settings = model.map(|model| Settings {
            model: Some(model.to_owned()),
            ..Settings::default()
        });
        let call = Call::Update {
            title: title.map(str::to_owned),
            settings,
            expected_revision: None,
        };
        self.registry.call(self.id, call, None).unwrap()
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

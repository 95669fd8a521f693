//! Tests of the watcher with folders that are slow, cannot be watched, or contain files on which it panics. They use their
//! own registry, a stopped clock, and no daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::ready;
use std::io::Write;

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};
use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::link::{Fidelity, LinkReason, Relation};
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;
use crate::agent::catalog::{AgentEntry, Catalog};
use crate::agent::inbox::InboxLimits;
use crate::agent::kinds;
use crate::agent::policy::InterruptPolicy;
use crate::agent::pool::{Launch, Pool, PoolSettings};
use crate::agent::process::{AgentCommand, Instance};
use crate::agent::session::InitializeRequest;
use crate::agent::wire::WireOptions;
use crate::chain::NewLink;
use crate::conversation::backup::{BackupRules, Backups};
use crate::conversation::events::{Delivery, EncodedEvent, Hub, RingLimits, Subscriber};
use crate::conversation::old_bytes::OldBytes;
use crate::conversation::read_queues::ReadQueues;
use crate::conversation::registry::TranscriptFilter;
use crate::conversation::services::Services;
use crate::conversation::state::Rules;
use crate::conversation::transcript_growth::RecheckQueue;
use crate::conversation::uncommitted_copies::CopyPlans;
use crate::conversation::wakeups::WakeupQueue;
use crate::files::durable::tests::Disk;
use crate::store::{Change, ConversationRecord, Store};
use crate::transcript::index_cache::IndexCache;
use crate::transcript::watch::TranscriptWatcher;

const ID: &str = "s1";

/// A conversation of which one turn is on disk, of three that it had, and someone who listens to everything.
struct Stage {
    registry: Arc<Registry>,
    id: ConversationId,
    root: PathBuf,
    path: PathBuf,
    events: mpsc::Receiver<String>,
    _folder: TempDir,
}

/// Someone who listens.
pub(in crate::conversation::registry) struct Ear(pub(in crate::conversation::registry) mpsc::Sender<String>);

impl Subscriber for Ear {
    fn deliver(&mut self, event: &EncodedEvent) -> Delivery {
        match self.0.try_send(event.text.to_string()) {
            Ok(()) => Delivery::Delivered,
            Err(_) => Delivery::Disconnected,
        }
    }

    fn deliver_when_room<'a>(&'a mut self, event: &'a EncodedEvent) -> BoxFuture<'a, bool> {
        Box::pin(ready(self.deliver(event) == Delivery::Delivered))
    }

    fn lagged(self: Box<Self>, _: String) -> Option<Box<dyn Subscriber>> {
        None
    }

    fn is_disconnected(&self) -> bool {
        self.0.is_closed()
    }
}

impl Stage {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("claude");
        let path = root.join(format!("projects/-p/{ID}.jsonl"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let registry = registry(folder.path(), &root);
        let mut record = ConversationRecord::new(ConversationId::mint(), "claude".into(), "/p".into(), now());
        let (id, link) = (record.id, link());
        let appended = record.chain.append(link, Fidelity::Full, now());
        let change = Change {
            lineage: appended.entries.into_iter().map(|entry| (id, entry)).collect(),
            upstream: vec![(id, TranscriptRoot::new(root.to_string_lossy()), ID.into())],
            conversation: Some(record),
            ..Change::default()
        };
        registry.services.store.commit(change).await.unwrap();
        let (ear, events) = mpsc::channel(16);
        registry
            .services
            .hub
            .subscribe(Box::new(Ear(ear)), None, &[], 0, &now().to_string());
        let stage = Self {
            registry,
            id,
            root,
            path,
            events,
            _folder: folder,
        };
        stage.write_turn(1);
        stage
    }

    fn write_turn(&self, number: u32) {
        let parent = match number {
            1 => "null".to_owned(),
            _ => format!("\"a{}\"", number - 1),
        };
        let text = format!(
            r#"{{"type":"user","uuid":"u{number}","parentUuid":{parent},"timestamp":"2020-11-03T12:00:00.000Z","origin":{{"kind":"human"}},"message":{{"role":"user","content":"turn {number}"}}}}
{{"type":"assistant","uuid":"a{number}","parentUuid":"u{number}","timestamp":"2020-11-03T12:00:01.000Z","message":{{"role":"assistant","content":[{{"type":"text","text":"Done."}}],"stop_reason":"end_turn"}}}}
"#
        );
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(&self.path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn end_turn(&self) {
        self.registry.services.rechecks.request(&ID.into(), Some(self.id));
    }

    /// The prompt of the checkpoint that is told next.
    async fn saved(&mut self) -> String {
        loop {
            let told = timeout(UNREPORTED_TURN_LIMIT, self.events.recv()).await;
            let text = told.expect("it is told by now").unwrap();
            let envelope: EventEnvelope = serde_json::from_str(&text).unwrap();
            if let Event::CheckpointSaved { checkpoint } = envelope.event {
                return checkpoint.prompt;
            }
        }
    }

    /// What is there when the watching of its folder begins.
    fn prepared(&self) -> WatchState {
        self.prepared_with(TranscriptWatcher::new(self.registry.services.rechecks.waker()))
    }

    fn prepared_with(&self, mut watch: TranscriptWatcher) -> WatchState {
        watch.add_root(&self.root, Format::Claude);
        let mut ears = WatchState::new(watch);
        ears.files.note_at_start(
            &self.path,
            &ID.into(),
            &FileVersion::of(&self.path.metadata().unwrap()),
        );
        ears
    }
}

pub(in crate::conversation) fn registry(data: &Path, root: &Path) -> Arc<Registry> {
    let launch = Launch {
        command: AgentCommand {
            program: "none".into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            env_remove: Vec::new(),
        },
        initialize: InitializeRequest::default(),
        wire: WireOptions::default(),
    };
    let entry = AgentEntry {
        name: "claude".into(),
        kind: &kinds::CLAUDE,
        launch,
        transcripts: Some(root.to_owned()),
        transcript_format: None,
        interrupts: InterruptPolicy::Ask,
        session_params: None,
        is_expected: false,
    };
    registry_with(data, entry)
}

/// A registry with this agent and an instance of its own: a registry that ends, ends all agents of its instance.
pub(in crate::conversation::registry) fn registry_with(data: &Path, entry: AgentEntry) -> Arc<Registry> {
    let name = entry.name.clone();
    let store = Store::ephemeral().unwrap();
    let pool = Pool::new(
        Instance::new(&uuid::Uuid::new_v4().to_string()),
        PoolSettings::default(),
        store.clone(),
    );
    let copy_plans = CopyPlans::in_data_folder(data, store.clone());
    Registry::new(Arc::new(Services {
        store,
        pool,
        catalog: Catalog::new(vec![entry], Some(name)),
        diagnose_configuration: Box::new(|| {
            Diagnostic::new(DiagnosticKind::Configuration, Severity::Ok, "unchanged")
        }),
        hub: Hub::new(RingLimits::DAEMON, RingLimits::CONVERSATION),
        rules: Rules {
            prompt_queue: 1,
            cancel_grace_ms: 1,
            accept_grace_ms: 1,
            idle_ms: 0,
            interrupts: InterruptPolicy::Ask,
            zone: || jiff::tz::TimeZone::UTC,
        },
        data_folder: data.to_owned(),
        inbox_limits: InboxLimits::default(),
        session_deadline: Duration::from_secs(180),
        index_cache: IndexCache::default(),
        rechecks: RecheckQueue::default(),
        old_bytes: OldBytes::default(),
        copy_plans,
        wakeups: WakeupQueue::new(1),
        backups: Backups::new(data.join("kept"), BackupRules::default()),
        running_work: Arc::default(),
        read_queues: ReadQueues::default(),
    }))
}

fn link() -> NewLink {
    NewLink {
        upstream_id: ID.into(),
        agent: "claude".into(),
        cwd: "/p".into(),
        reason: LinkReason::Created,
        relation: Relation::Fresh,
        from_upstream_id: None,
        from_checkpoint_id: None,
        cause: None,
        turns: 3,
        carried_turns: 0,
        written: true,
    }
}

/// If the system cannot watch, or not so many folders, our own turns are still reported, also when their last record comes late.
#[tokio::test(start_paused = true)]
async fn turns_that_were_had_here_are_told_where_nothing_can_be_watched() {
    let ways: [fn(&Path) -> TranscriptWatcher; 2] = [
        |_| TranscriptWatcher::failing(),
        |root| TranscriptWatcher::limited(root, Format::Claude),
    ];
    for watch in ways {
        let mut stage = Stage::new().await;
        let ears = stage.prepared_with(watch(&stage.root));
        stage.registry.watch_when_prepared(ready(Ok(ears))).await;
        let page = stage
            .registry
            .transcripts(TranscriptFilter::default(), None, 10)
            .await
            .unwrap();
        assert_eq!((page.transcripts.len(), page.unwatched.len()), (1, 1));
        stage.write_turn(2);
        stage.end_turn();
        assert_eq!(stage.saved().await, "turn 2");
        stage.end_turn();
        // The round behind it finds nothing new.
        assert!(timeout(RECHECK_DELAYS[0] / 2, stage.saved()).await.is_err());
        stage.write_turn(3);
        assert_eq!(stage.saved().await, "turn 3");
    }
}

/// Whatever the reason is: a change that was not heard, or that was looked at when it could not be read.
#[tokio::test(start_paused = true)]
async fn a_turn_of_ours_that_nothing_told_of_is_found_by_a_later_look() {
    let mut stage = Stage::new().await;
    let mut ears = stage.prepared();
    // It watches no folder, and has no problem with that.
    ears.watch = TranscriptWatcher::new(|| {});
    assert!(ears.watch.is_complete());
    stage.registry.watch_when_prepared(ready(Ok(ears))).await;
    stage.write_turn(2);
    stage.end_turn();
    assert_eq!(stage.saved().await, "turn 2");
}

/// A loss of power takes no turn that was told as saved, nor what its tools gave.
#[tokio::test]
async fn a_turn_is_on_disk_before_it_is_told_as_saved() {
    let mut stage = Stage::new().await;
    stage
        .registry
        .watch_when_prepared(ready(Ok(stage.prepared())))
        .await;
    let disk = Disk::of(&stage.root);
    for turn in 2..4 {
        let results = stage.path.with_extension("").join("tool-results");
        fs::create_dir_all(&results).unwrap();
        fs::write(results.join(format!("r{turn}.txt")), "a long result").unwrap();
        stage.write_turn(turn);
        assert!(!disk.lost().is_empty());
        stage.end_turn();
        assert_eq!(stage.saved().await, format!("turn {turn}"));
        assert_eq!(disk.lost(), BTreeSet::new());
    }
}

/// A transcript that could be read, but not opened for its sync.
#[tokio::test]
async fn a_turn_that_cannot_be_synced_is_not_told_as_saved_yet() {
    let mut stage = Stage::new().await;
    let mut ears = stage.prepared();
    stage.write_turn(2);
    let changed = || ChangedTranscript {
        root: stage.root.clone(),
        format: Format::Claude,
        path: stage.path.clone(),
    };
    ears.check_transcript_with(&stage.registry, changed(), |_| None);
    assert_eq!(ears.pending[&stage.path].failed_reads, 1);
    ears.check_transcript(&stage.registry, changed());
    assert!(!ears.has_failed_reads());
    assert_eq!(stage.saved().await, "turn 2");
}

#[test]
fn what_cannot_be_read_is_looked_at_again_so_often_and_then_when_it_changes() {
    let path = PathBuf::from("/r/projects/-p/s1.jsonl");
    let mut ears = WatchState::new(TranscriptWatcher::new(|| {}));
    assert!(ears.schedule_recheck(0).is_none());
    let read = |ears: &mut WatchState, was_read: bool| {
        let changed = ChangedTranscript {
            root: PathBuf::from("/r"),
            format: Format::Claude,
            path: path.clone(),
        };
        ears.keep_pending(changed, true, !was_read);
    };
    let due = |ears: &mut WatchState, is_late| ears.due(RequestedRechecks::default(), is_late).len();
    read(&mut ears, true);
    assert_eq!(due(&mut ears, true), 0, "it could be read");
    for look in 0..=RECHECK_DELAYS.len() {
        read(&mut ears, false);
        assert_eq!(ears.schedule_recheck(look).is_some(), look < RECHECK_DELAYS.len());
        assert_eq!((due(&mut ears, false), due(&mut ears, true)), (0, 1));
    }
    read(&mut ears, false);
    assert!(!ears.has_failed_reads());
    read(&mut ears, true);
    assert_eq!(due(&mut ears, true), 0);
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_only_so_long_for_slow_folders_and_they_are_watched_later() {
    let mut stage = Stage::new().await;
    let (finish, prepared) = oneshot::channel();
    let start = Instant::now();
    stage
        .registry
        .watch_when_prepared(async { Ok(prepared.await.unwrap()) })
        .await;
    assert_eq!(start.elapsed(), START_WAIT_LIMIT);
    // Lists do without.
    let page = stage
        .registry
        .transcripts(TranscriptFilter::default(), None, 10)
        .await;
    assert_eq!(page.unwrap().transcripts.len(), 1);
    assert!(finish.send(stage.prepared()).is_ok());
    // The system tells in its own time.
    tokio::time::resume();
    // Old by now; what comes behind is told.
    stage.write_turn(2);
    assert_eq!(stage.saved().await, "turn 2");
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_start_waits_for_nothing_else_and_a_stop_not_for_what_hangs() {
    let stage = Stage::new().await;
    let start = Instant::now();
    stage
        .registry
        .watch_when_prepared(ready(Ok(stage.prepared())))
        .await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    stage.registry.stop(Duration::ZERO).await;

    let stage = Stage::new().await;
    stage.registry.watch_when_prepared(pending()).await;
    stage.registry.stop(Duration::ZERO).await;
}

#[test]
fn a_fault_with_one_transcript_costs_that_one_and_no_other() {
    let changed = |name: &str| ChangedTranscript {
        root: PathBuf::from("/r"),
        format: Format::Claude,
        path: PathBuf::from(name),
    };
    let mut ears = WatchState::new(TranscriptWatcher::new(|| {}));
    let mut looked = Vec::new();
    for _ in 0..2 {
        let all = ["a", "b", "c"].map(changed).into();
        ears.check_each(all, |_, changed| {
            looked.push(changed.path.clone());
            assert_ne!(changed.path, Path::new("b"), "a fault");
        });
    }
    assert_eq!(looked, ["a", "b", "c", "a", "c"].map(PathBuf::from));
}

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use bridge_protocol::CheckpointId;
use tokio::sync::{Notify, mpsc};

use super::*;

/// What was reported: to which conversation, how many prompts, and the prompts of the saved turns.
type Report = (ConversationId, Option<u64>, Vec<String>);

struct Stage {
    saving: Arc<Saving>,
    stop: CancellationToken,
    report: mpsc::UnboundedSender<Report>,
    reports: mpsc::UnboundedReceiver<Report>,
    file: Arc<File>,
}

impl Stage {
    fn new(
        sync: impl Fn(&Unsynced) -> Result<(), TranscriptError> + Send + std::marker::Sync + 'static,
    ) -> Self {
        let (report, reports) = mpsc::unbounded_channel();
        Self {
            saving: Arc::new(Saving::with(sync)),
            stop: CancellationToken::new(),
            report,
            reports,
            file: Arc::new(tempfile::tempfile().unwrap()),
        }
    }

    fn unsynced(&self, path: &str) -> Unsynced {
        Unsynced {
            file: Arc::clone(&self.file),
            path: path.into(),
            root: "/".into(),
            format: Format::Claude,
        }
    }

    async fn put(&self, id: ConversationId, growth: Growth, unsynced: Option<Unsynced>) {
        let report = self.report.clone();
        let tell = move |id, growth: Growth| {
            let saved = growth.saved.into_iter().map(|saved| saved.prompt).collect();
            report.send((id, growth.prompts, saved)).unwrap();
            async {}
        };
        self.saving.put(id, growth, unsynced, &self.stop, tell).await;
    }

    async fn next(&mut self) -> Report {
        self.reports.recv().await.unwrap()
    }
}

fn growth(prompts: u64, saved: &[&str]) -> Growth {
    let saved = saved.iter().map(|prompt| Checkpoint {
        id: CheckpointId::new(*prompt),
        step: 1,
        upstream_id: "s1".into(),
        parent_id: None,
        at: None,
        prompt: (*prompt).to_owned(),
        reply: String::new(),
        tools: Vec::new(),
        bytes: 1,
        origin: None,
    });
    Growth {
        upstream_id: "s1".into(),
        saved: saved.collect(),
        prompts: Some(prompts),
        replaced: false,
        rewritten: false,
    }
}

fn fails(it: &Unsynced) -> TranscriptError {
    TranscriptError::io("sync", &it.path)(io::Error::other("no room"))
}

#[tokio::test]
async fn the_changes_of_a_conversation_keep_their_order_and_delay_no_other() {
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let is_released = Mutex::new(is_released);
    let mut stage = Stage::new(move |it| {
        if it.path == Path::new("slow") {
            // Until the sender is dropped.
            assert!(is_released.lock().unwrap().recv().is_err());
        }
        Ok(())
    });
    let [slow, other] = [ConversationId::mint(), ConversationId::mint()];
    stage
        .put(slow, growth(1, &["one"]), Some(stage.unsynced("slow")))
        .await;
    stage.put(slow, growth(2, &[]), None).await;
    stage
        .put(other, growth(3, &[]), Some(stage.unsynced("fast")))
        .await;
    assert_eq!(stage.next().await, (other, Some(3), vec![]));
    drop(release);
    assert_eq!(stage.next().await, (slow, Some(1), vec!["one".to_owned()]));
    assert_eq!(stage.next().await, (slow, Some(2), vec![]));
}

/// Turns whose sync failed are reported as saved by the next change whose sync succeeds, also of one that saves nothing.
#[tokio::test]
async fn a_failed_sync_is_tried_again_with_the_next_change() {
    let failures = Arc::new(AtomicUsize::new(2));
    let left = Arc::clone(&failures);
    let mut stage = Stage::new(move |it| {
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Err(fails(it)),
            Err(_) => Ok(()),
        }
    });
    let [id, other] = [ConversationId::mint(), ConversationId::mint()];
    for (prompts, prompt) in [(1, "one"), (2, "two")] {
        stage
            .put(id, growth(prompts, &[prompt]), Some(stage.unsynced("t")))
            .await;
        // The rest of the change is reported.
        assert_eq!(stage.next().await, (id, Some(prompts), vec![]));
    }
    stage.put(other, growth(1, &[]), None).await;
    assert_eq!(stage.next().await, (other, Some(1), vec![]));
    stage.put(id, growth(2, &[]), None).await;
    let both = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!(stage.next().await, (id, Some(2), both));
    stage
        .put(id, growth(3, &["three"]), Some(stage.unsynced("t")))
        .await;
    assert_eq!(stage.next().await, (id, Some(3), vec!["three".to_owned()]));
}

#[tokio::test]
async fn a_panic_of_a_sync_or_of_a_report_stops_no_later_one() {
    let mut stage = Stage::new(|it| {
        assert_ne!(it.path, Path::new("fault"), "a fault");
        Ok(())
    });
    let id = ConversationId::mint();
    let fault = || async { panic!("a fault") };
    for round in 0..2 * WAITING as u64 {
        let tell = move |_, _| fault();
        stage
            .saving
            .put(id, growth(round, &[]), None, &stage.stop, tell)
            .await;
        stage
            .put(id, growth(round, &["kept"]), Some(stage.unsynced("fault")))
            .await;
        // Whoever works on the conversation reports to the first that came, which may be the faulty one.
    }
    let other = ConversationId::mint();
    stage
        .put(other, growth(7, &["saved"]), Some(stage.unsynced("fine")))
        .await;
    loop {
        let report = stage.next().await;
        if report.0 == other {
            assert_eq!(report, (other, Some(7), vec!["saved".to_owned()]));
            break;
        }
        assert_eq!((report.0, report.2), (id, vec![]));
    }
    // All places come back.
    let syncs = u32::try_from(SYNCS_AT_ONCE).unwrap();
    assert!(stage.saving.syncs.acquire_many(syncs).await.is_ok());
    let waiting = u32::try_from(WAITING).unwrap();
    assert!(stage.saving.waiting.acquire_many(waiting).await.is_ok());
}

/// As when the runtime drops it, or when it panics itself.
#[tokio::test]
async fn a_task_that_is_dropped_leaves_its_conversation_to_the_next_change() {
    let mut stage = Stage::new(|_| Ok(()));
    let id = ConversationId::mint();
    stage.saving.lock().queues.insert(id, VecDeque::new());
    drop(Task {
        saving: Arc::clone(&stage.saving),
        id,
        is_over: false,
    });
    assert!(!stage.saving.lock().queues.contains_key(&id));
    stage.put(id, growth(1, &[]), None).await;
    assert_eq!(stage.next().await, (id, Some(1), vec![]));
}

#[tokio::test]
async fn what_waits_is_bounded_and_nothing_waits_longer_than_the_daemon_runs() {
    let (started, mut has_started) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let stage = Stage::new(|_| Ok(()));
    let id = ConversationId::mint();
    let hangs = {
        let release = Arc::clone(&release);
        move |_, _| {
            started.send(()).unwrap();
            let release = Arc::clone(&release);
            async move { release.notified().await }
        }
    };
    stage
        .saving
        .put(id, growth(0, &[]), None, &stage.stop, hangs)
        .await;
    has_started.recv().await.unwrap();
    for prompts in 1..=WAITING as u64 {
        stage.put(id, growth(prompts, &[]), None).await;
    }
    assert_eq!(stage.saving.waiting.available_permits(), 0);
    let waiting = stage.put(id, growth(1, &[]), None);
    let stopping = async { stage.stop.cancel() };
    // Polled first, so that it waits by then.
    tokio::join!(waiting, stopping);
    release.notify_one();
}

#[test]
fn what_is_remembered_of_failures_is_bounded() {
    let saving = Saving::default();
    let file = Arc::new(tempfile::tempfile().unwrap());
    let checkpoints = growth(1, &["one"]).saved;
    for number in 0..2 * UNSAVED {
        saving.remember(Unsaved {
            conversation: ConversationId::mint(),
            upstream_id: number.to_string().into(),
            unsynced: Unsynced {
                file: Arc::clone(&file),
                path: "t".into(),
                root: "/".into(),
                format: Format::Claude,
            },
            checkpoints: vec![checkpoints[0].clone(); 2 * UNSAVED_CHECKPOINTS],
        });
    }
    let state = saving.lock();
    assert_eq!(state.unsaved.len(), UNSAVED);
    let longest = state
        .unsaved
        .iter()
        .map(|unsaved| unsaved.checkpoints.len())
        .max();
    assert_eq!(longest, Some(UNSAVED_CHECKPOINTS));
}

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bridge_protocol::CheckpointId;
use tokio::sync::mpsc;

use super::*;
use crate::transcript::TranscriptError;
use crate::transcript::transcript_list::Format;
use std::path::Path;

/// What was reported: to which conversation, how many prompts, and the prompts of the saved turns.
type Report = (ConversationId, Option<u64>, Vec<String>);

struct Stage {
    saving: Arc<SyncQueue>,
    report: mpsc::UnboundedSender<Report>,
    reports: mpsc::UnboundedReceiver<Report>,
    file: Arc<File>,
}

impl Stage {
    fn new(
        sync: impl Fn(&UnsyncedTranscript) -> Result<(), SyncError> + Send + std::marker::Sync + 'static,
    ) -> Self {
        let (report, reports) = mpsc::unbounded_channel();
        Self {
            saving: Arc::new(SyncQueue::with_sync_fn(sync)),
            report,
            reports,
            file: Arc::new(tempfile::tempfile().unwrap()),
        }
    }

    fn unsynced(&self, path: &str) -> UnsyncedTranscript {
        UnsyncedTranscript {
            file: Arc::clone(&self.file),
            device: 1,
            transcript: transcript(path),
        }
    }

    fn put(&self, id: ConversationId, growth: TranscriptGrowth, unsynced: Option<UnsyncedTranscript>) {
        let report = self.report.clone();
        let tell = move |id, growth: TranscriptGrowth| {
            let saved = growth
                .new_checkpoints
                .into_iter()
                .map(|saved| saved.prompt)
                .collect();
            report.send((id, growth.prompts, saved)).unwrap();
            async {}
        };
        self.saving.put(id, growth, unsynced, tell);
    }

    async fn next(&mut self) -> Report {
        self.reports.recv().await.unwrap()
    }
}

fn growth(prompts: u64, saved: &[&str]) -> TranscriptGrowth {
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
    TranscriptGrowth {
        upstream_id: "s1".into(),
        new_checkpoints: saved.collect(),
        prompts: Some(prompts),
        replaced: false,
        rewritten: false,
    }
}

fn transcript(path: &str) -> ChangedTranscript {
    ChangedTranscript {
        path: path.into(),
        root: "/".into(),
        format: Format::Claude,
    }
}

fn fails(it: &UnsyncedTranscript) -> TranscriptError {
    TranscriptError::io("sync", &it.transcript.path)(io::Error::other("a fault of the disk"))
}

/// A sync that takes until `release` is dropped, for one path.
fn hangs(path: &'static str) -> (Stage, std::sync::mpsc::Sender<()>, mpsc::UnboundedReceiver<()>) {
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let (started, has_started) = mpsc::unbounded_channel();
    let is_released = Arc::new(Mutex::new(is_released));
    let stage = Stage::new(move |it| {
        if it.transcript.path == Path::new(path) {
            started.send(()).unwrap();
            // Until the sender is dropped.
            assert!(is_released.lock().unwrap().recv().is_err());
        }
        Ok(())
    });
    (stage, release, has_started)
}

#[tokio::test]
async fn changes_that_wait_become_one_and_delay_no_other_conversation() {
    let (mut stage, release, mut has_started) = hangs("slow");
    let [slow, other] = [ConversationId::mint(), ConversationId::mint()];
    stage.put(slow, growth(1, &["one"]), Some(stage.unsynced("slow")));
    has_started.recv().await.unwrap();
    let mut of_older = growth(7, &["older"]);
    of_older.upstream_id = "s0".into();
    of_older.replaced = true;
    stage.put(slow, growth(2, &["two"]), Some(stage.unsynced("slow")));
    stage.put(slow, of_older, Some(stage.unsynced("fast")));
    stage.put(slow, growth(3, &["three"]), None);
    stage.put(other, growth(4, &[]), Some(stage.unsynced("fast")));
    assert_eq!(stage.next().await, (other, Some(4), vec![]));
    drop(release);
    let expected = [(1, vec!["one"]), (3, vec!["two", "three"]), (7, vec!["older"])];
    for (prompts, saved) in expected {
        let saved = saved.into_iter().map(str::to_owned).collect();
        assert_eq!(stage.next().await, (slow, Some(prompts), saved));
    }
}

#[tokio::test]
async fn a_file_system_that_hangs_delays_only_conversations_with_transcripts_on_it() {
    let (mut stage, release, mut has_started) = hangs("hung");
    let hung: Vec<_> = (0..=SYNCS_AT_ONCE).map(|_| ConversationId::mint()).collect();
    for id in &hung {
        stage.put(*id, growth(1, &["one"]), Some(stage.unsynced("hung")));
    }
    for _ in 0..SYNCS_AT_ONCE {
        has_started.recv().await.unwrap();
    }
    let other = ConversationId::mint();
    let elsewhere = UnsyncedTranscript {
        device: 2,
        ..stage.unsynced("fine")
    };
    stage.put(other, growth(2, &["two"]), Some(elsewhere));
    assert_eq!(stage.next().await, (other, Some(2), vec!["two".to_owned()]));
    drop(release);
    for _ in &hung {
        let (id, prompts, saved) = stage.next().await;
        assert!(hung.contains(&id));
        assert_eq!((prompts, saved), (Some(1), vec!["one".to_owned()]));
    }
}

/// Turns that could not be read for their sync are reported as saved by the next change whose sync succeeds, also of one that
/// saves nothing.
#[tokio::test]
async fn a_sync_that_did_not_begin_is_tried_again_with_the_next_change() {
    let failures = Arc::new(AtomicUsize::new(2));
    let left = Arc::clone(&failures);
    let mut stage = Stage::new(move |it| {
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Err(SyncError::ReadFailed(fails(it))),
            Err(_) => Ok(()),
        }
    });
    let [id, other] = [ConversationId::mint(), ConversationId::mint()];
    for (prompts, prompt) in [(1, "one"), (2, "two")] {
        stage.put(id, growth(prompts, &[prompt]), Some(stage.unsynced("t")));
        // The rest of the change is reported.
        assert_eq!(stage.next().await, (id, Some(prompts), vec![]));
    }
    stage.put(other, growth(1, &[]), None);
    assert_eq!(stage.next().await, (other, Some(1), vec![]));
    stage.put(id, growth(2, &[]), None);
    let both = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!(stage.next().await, (id, Some(2), both));
    stage.put(id, growth(3, &["three"]), Some(stage.unsynced("t")));
    assert_eq!(stage.next().await, (id, Some(3), vec!["three".to_owned()]));
}

#[tokio::test]
async fn a_panic_of_a_sync_or_of_a_report_stops_no_later_one() {
    let mut stage = Stage::new(|it| {
        assert_ne!(it.transcript.path, Path::new("fault"), "a fault");
        Ok(())
    });
    let id = ConversationId::mint();
    let fault = || async { panic!("a fault") };
    for round in 0..2 * MAX_PENDING_REPORTS as u64 {
        let tell = move |_, _| fault();
        stage.saving.put(id, growth(round, &[]), None, tell);
        stage.put(id, growth(round, &["kept"]), Some(stage.unsynced("fault")));
        // The conversation's task reports to the first subscriber, which may be the faulty one.
    }
    let other = ConversationId::mint();
    stage.put(other, growth(7, &["saved"]), Some(stage.unsynced("fine")));
    loop {
        let report = stage.next().await;
        if report.0 == other {
            assert_eq!(report, (other, Some(7), vec!["saved".to_owned()]));
            break;
        }
        assert_eq!((report.0, report.2), (id, vec![]));
    }
    // All permits come back.
    let syncs = u32::try_from(SYNCS_AT_ONCE).unwrap();
    assert!(stage.saving.sync_permits(1).acquire_many(syncs).await.is_ok());
}

/// As when the runtime drops it, or when it panics itself.
#[tokio::test]
async fn a_task_that_is_dropped_leaves_its_conversation_to_the_next_change() {
    let mut stage = Stage::new(|_| Ok(()));
    let id = ConversationId::mint();
    lock(&stage.saving.state).queues.insert(id, VecDeque::new());
    drop(ReportTask {
        queue: Arc::clone(&stage.saving),
        id,
        is_over: false,
    });
    assert!(!lock(&stage.saving.state).queues.contains_key(&id));
    stage.put(id, growth(1, &[]), None);
    assert_eq!(stage.next().await, (id, Some(1), vec![]));
}

#[tokio::test]
async fn what_waits_is_bounded() {
    let (mut stage, release, mut has_started) = hangs("hung");
    let id = ConversationId::mint();
    stage.put(id, growth(0, &[]), Some(stage.unsynced("hung")));
    has_started.recv().await.unwrap();
    let many = vec!["one"; 2 * MAX_UNSAVED_CHECKPOINTS];
    for session in 0..2 * MAX_PENDING_REPORTS {
        for prompts in 1..=2 {
            let mut growth = growth(prompts, &many);
            growth.upstream_id = session.to_string().into();
            stage.put(id, growth, None);
        }
    }
    {
        let state = lock(&stage.saving.state);
        let waiting = &state.queues[&id];
        assert_eq!(waiting.len(), MAX_PENDING_REPORTS);
        assert_eq!(
            waiting[0].growth.upstream_id,
            MAX_PENDING_REPORTS.to_string().as_str().into()
        );
        assert!(
            waiting
                .iter()
                .all(|it| it.growth.new_checkpoints.len() == MAX_UNSAVED_CHECKPOINTS)
        );
    }
    drop(release);
    assert_eq!(stage.next().await.1, Some(0));
    for _ in 0..MAX_PENDING_REPORTS {
        assert_eq!(stage.next().await.1, Some(2));
    }
}

#[test]
fn what_is_remembered_of_failures_is_bounded() {
    let saving = SyncQueue::default();
    let file = Arc::new(tempfile::tempfile().unwrap());
    let many = vec!["one"; 2 * MAX_UNSAVED_CHECKPOINTS];
    for _ in 0..2 * MAX_FAILED_SYNCS {
        let unsynced = UnsyncedTranscript {
            file: Arc::clone(&file),
            device: 1,
            transcript: transcript("t"),
        };
        saving.remember_failed_sync(ConversationId::mint(), growth(1, &many), unsynced);
    }
    let state = lock(&saving.state);
    assert_eq!(state.failed_syncs.len(), MAX_FAILED_SYNCS);
    let longest = state
        .failed_syncs
        .iter()
        .map(|(_, failed)| failed.growth.new_checkpoints.len())
        .max();
    assert_eq!(longest, Some(MAX_UNSAVED_CHECKPOINTS));
}

/// The system may have dropped what it could not write, and report success the next time.
#[tokio::test]
async fn turns_that_could_not_be_written_are_never_reported_as_saved() {
    let is_first = AtomicBool::new(true);
    let mut stage = Stage::new(move |it| match is_first.swap(false, Ordering::Relaxed) {
        true => Err(SyncError::WriteFailed(fails(it))),
        false => Ok(()),
    });
    let id = ConversationId::mint();
    for (prompts, saved, expected) in [(1, vec!["one"], vec![]), (2, vec!["two"], vec!["two".to_owned()])] {
        stage.put(id, growth(prompts, &saved), Some(stage.unsynced("t")));
        assert_eq!(stage.next().await, (id, Some(prompts), expected));
    }
}

/// Sending to mailboxes.
mod mailboxes {
    use super::*;

    fn growth(prompts: u64) -> TranscriptGrowth {
        TranscriptGrowth {
            prompts: Some(prompts),
            ..TranscriptGrowth::of(&"s1".into())
        }
    }

    fn prompts(message: Option<Message>) -> Option<u64> {
        match message {
            Some(Message::TranscriptGrown(growth)) => growth.prompts,
            _ => None,
        }
    }

    #[tokio::test]
    async fn what_has_no_room_in_a_mailbox_waits_for_it() {
        let (sender, mut mailbox) = mpsc::channel(1);
        let stop = CancellationToken::new();
        assert!(send_growth(&sender, growth(1), &stop).await.is_none());
        let second = send_growth(&sender, growth(2), &stop);
        let reading = async {
            let first = mailbox.recv().await;
            (prompts(first), prompts(mailbox.recv().await))
        };
        let (left, read) = tokio::join!(second, reading);
        assert!(left.is_none());
        assert_eq!(read, (Some(1), Some(2)));
    }

    #[tokio::test]
    async fn nothing_waits_for_a_mailbox_that_nobody_reads() {
        let (sender, mailbox) = mpsc::channel(1);
        let stop = CancellationToken::new();
        assert!(send_growth(&sender, growth(1), &stop).await.is_none());
        let waiting = send_growth(&sender, growth(2), &stop);
        let stopping = async { stop.cancel() };
        // Polled first, so that it waits by then.
        assert!(tokio::join!(waiting, stopping).0.is_none());
        drop(mailbox);
        let left = send_growth(&sender, growth(3), &CancellationToken::new()).await;
        assert_eq!(left.and_then(|growth| growth.prompts), Some(3));
    }
}

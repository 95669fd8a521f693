//! The running calls that take long because of the files that they read or write, and their progress.
//!
//! Owns the list of running calls for `daemon/work`, and the signal that ends such a call early, because its caller
//! disconnected or the daemon stops. It does not know what a call does.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_protocol::ConversationId;
use bridge_protocol::daemon::Work;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::ConversationError;
use super::lock::lock;
use crate::transcript::meter::{Meter, with_meter};

/// The list of slow calls that run now.
#[derive(Default)]
pub struct RunningWork {
    list: Mutex<Vec<Arc<Progress>>>,
}

/// The progress of one call, counted by the thread that works for it.
#[derive(Debug)]
pub struct Progress {
    method: &'static str,
    conversation: Option<ConversationId>,
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    must_end_early: AtomicBool,
    stop: CancellationToken,
    began_at: Instant,
    /// When bytes were processed last, in milliseconds after the beginning.
    progressed_ms: AtomicU64,
}

/// An entry of a call in the list. Dropping it removes the call, and ends the work early if it still runs.
pub struct WorkGuard {
    running_work: Arc<RunningWork>,
    progress: Arc<Progress>,
}

/// The error of work whose call ended first: its caller no longer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before it was finished")]
pub struct EndedEarly;

/// Whether a read or write failed because its call ended early.
#[must_use]
pub fn is_ended_early(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(<dyn Error + Send + Sync>::is::<EndedEarly>)
}

impl RunningWork {
    /// Adds a call to the list.
    #[must_use]
    pub fn track(
        self: &Arc<Self>,
        method: &'static str,
        conversation: Option<ConversationId>,
        stop: CancellationToken,
    ) -> WorkGuard {
        let progress = Arc::new(Progress {
            method,
            conversation,
            stop,
            ..Progress::default()
        });
        lock(&self.list).push(Arc::clone(&progress));
        WorkGuard {
            running_work: Arc::clone(self),
            progress,
        }
    }

    /// The running calls, the oldest first.
    #[must_use]
    pub fn report(&self) -> Vec<Work> {
        lock(&self.list)
            .iter()
            .map(|progress| progress.report())
            .collect()
    }
}

impl WorkGuard {
    /// Runs work that reads transcripts on a blocking thread, and counts what it reads.
    ///
    /// # Errors
    /// Those of the work, [`ConversationError::Internal`] if it panicked, and [`ConversationError::ShuttingDown`] if it was ended
    /// early: the work itself would report what it no longer read as unreadable.
    pub async fn run_blocking<T: Send + 'static>(
        self,
        work: impl FnOnce() -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let meter: Arc<dyn Meter> = self.progress();
        let result = tokio::task::spawn_blocking(move || with_meter(meter, work)).await;
        let ended = self.progress.add_done_bytes(0);
        ended.map_err(|EndedEarly| ConversationError::ShuttingDown)?;
        result?
    }

    /// The counter for the thread that does the work.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.progress.end_early();
        lock(&self.running_work.list).retain(|one| !Arc::ptr_eq(one, &self.progress));
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            method: "",
            conversation: None,
            done_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            must_end_early: AtomicBool::new(false),
            stop: CancellationToken::new(),
            began_at: Instant::now(),
            progressed_ms: AtomicU64::new(0),
        }
    }
}

impl Progress {
    /// Adds to the number of bytes to process.
    pub fn expect_bytes(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds to the number of processed bytes.
    ///
    /// # Errors
    /// If the work has to end early.
    pub fn add_done_bytes(&self, bytes: u64) -> Result<(), EndedEarly> {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.note_progress();
        if self.must_end_early.load(Ordering::Relaxed) || self.stop.is_cancelled() {
            return Err(EndedEarly);
        }
        Ok(())
    }

    /// Notes that the work has made progress now.
    pub fn note_progress(&self) {
        let now = u64::try_from(self.began_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.progressed_ms.store(now, Ordering::Relaxed);
    }

    /// How long the work has made no progress.
    #[must_use]
    pub fn idle_time(&self) -> Duration {
        let progressed = Duration::from_millis(self.progressed_ms.load(Ordering::Relaxed));
        self.began_at.elapsed().saturating_sub(progressed)
    }

    /// Makes the work end early.
    pub fn end_early(&self) {
        self.must_end_early.store(true, Ordering::Relaxed);
    }

    /// Like [`Progress::add_done_bytes`], with the error as an I/O error.
    ///
    /// # Errors
    /// If the work has to end early.
    pub fn add_done_bytes_io(&self, bytes: u64) -> io::Result<()> {
        self.add_done_bytes(bytes).map_err(io::Error::other)
    }

    fn report(&self) -> Work {
        Work {
            method: self.method.to_owned(),
            conversation_id: self.conversation,
            done_bytes: self.done_bytes.load(Ordering::Relaxed),
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Meter for Progress {
    fn expect_bytes(&self, bytes: u64) {
        Progress::expect_bytes(self, bytes);
    }

    fn count_bytes(&self, bytes: u64) -> io::Result<()> {
        self.add_done_bytes_io(bytes)
    }
}

/// The meter of background reads, which end when the daemon stops.
pub struct StopMeter(pub CancellationToken);

impl Meter for StopMeter {
    fn expect_bytes(&self, _: u64) {}

    fn count_bytes(&self, _: u64) -> io::Result<()> {
        match self.0.is_cancelled() {
            true => Err(io::Error::other(EndedEarly)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::claude::reading;
    use crate::transcript::index_cache::IndexCache;

    /// A stop does not wait for reading, even of a long file.
    #[test]
    fn reading_ends_with_its_caller_and_with_the_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        std::fs::write(&path, "{\"type\":\"mode\"}\n").unwrap();
        let ended = |meter: Arc<dyn Meter>| with_meter(meter, || reading::check(&path)).is_err();
        let (works, stop) = (Arc::new(RunningWork::default()), CancellationToken::new());
        let begun = works.track("transcript/check", None, stop.clone());
        let progress = begun.progress();
        assert!(!ended(progress.clone()));
        drop(begun);
        assert!(ended(progress));
        let begun = works.track("transcript/check", None, stop.clone());
        let rounds = Arc::new(StopMeter(stop.clone()));
        assert!(!ended(rounds.clone()));
        stop.cancel();
        assert!(ended(begun.progress()) && ended(rounds));
    }

    /// A result that is incomplete because the call was ended early must not be used.
    #[tokio::test]
    async fn what_was_read_until_the_daemon_stopped_is_thrown_away() {
        let stop = CancellationToken::new();
        let begun = Arc::new(RunningWork::default()).track("conversation/adopt", None, stop.clone());
        let cut_off = move || {
            stop.cancel();
            Ok("a past without its beginning")
        };
        let read = begun.run_blocking(cut_off).await;
        assert!(matches!(read, Err(ConversationError::ShuttingDown)), "{read:?}");
    }

    /// Each way of reading a transcript counts, whatever asks for it.
    #[tokio::test]
    async fn what_is_read_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        std::fs::write(&path, "{\"type\":\"mode\"}\n".repeat(10_000)).unwrap();
        let bytes = std::fs::metadata(&path).unwrap().len();
        let ways: [fn(&std::path::Path); 3] = [
            |path| drop(reading::check(path).unwrap()),
            |path| drop(IndexCache::default().origin(path).unwrap()),
            |path| drop(IndexCache::default().index(path).unwrap()),
        ];
        for way in ways {
            let works = Arc::new(RunningWork::default());
            let begun = works.track("transcript/check", None, CancellationToken::new());
            let (path, seen) = (path.clone(), Arc::clone(&works));
            let read = move || {
                way(&path);
                Ok(seen.report())
            };
            let told = begun.run_blocking(read).await.unwrap();
            assert_eq!((told[0].done_bytes, told[0].total_bytes), (bytes, bytes));
            assert_eq!(works.report(), []);
        }
    }
}

//! Limits how many callers read from a folder at once. A folder that does not respond blocks nobody else.
//!
//! Owns the turns of reads, and when a read counts as stalled. Quick looks at a folder, pages of a history and reads of whole
//! files have separate queues, so that short reads do not wait for long ones. It does not know what is read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{ConversationError, StoreFailure};
use super::lock::lock;
use super::running_work::Progress;
use crate::transcript::meter::{Meter, with_meter};

/// How many reads of one class run at once in one folder, or in the transcripts of one project. Each read uses a core, and
/// memory for its index of the transcript.
const READS_PER_FOLDER: usize = 2;

/// How many reads of one class run at once in the transcripts of all projects of an agent: more than for one project, so that
/// a project that does not respond leaves turns to the others.
const READS_OF_ALL_PROJECTS: usize = 2 * READS_PER_FOLDER;

/// How many exports to files and imports run at once. Each uses a core and the full speed of the disk while it runs.
const EXPORTS_AND_IMPORTS_AT_ONCE: usize = 1;

/// How many reads of one queue may be stalled while others take their turns. Each is a thread that waits for the system.
const MAX_STALLED: usize = 8;

/// How many reads of one agent and class, in all projects together, may be stalled while others run. Each project can
/// have two.
const STALLED_PROJECTS_LIMIT: usize = 32;

/// A read without progress gives up its permit after its class's stall limit divided by this. If it was only slow, one
/// more read runs for a while.
const RELEASE_DIVISOR: u32 = 15;

/// How many levels of parent folders limit the looks below them. Each level allows twice as many looks as the one below
/// it, so that one unresponsive folder cannot use up all permits of its parent.
const LEVELS_ABOVE: usize = 3;

/// How many looks run at once, in all folders together. A look at an unresponsive folder occupies a thread, and the
/// runtime has 512 threads for blocking work.
const LOOKS_AT_ONCE: usize = MAX_STALLED << (LEVELS_ABOVE + 1);

/// After how many time limits without progress a caller gets an error, even if other reads of the same folder progress.
const STALL_PERIODS: u32 = 4;

/// A class of reads, by how long they usually take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadClass {
    /// A look at a folder, or at the end of a transcript before a prompt. It does not wait for reads of whole files.
    Look,
    /// A page of a history, which reads the transcript once and indexes its records; or a search for a session by its id.
    Quick,
    /// Everything else. Such work may copy, compress and sync for a while without reading anything.
    Long,
}

impl ReadClass {
    /// How long a read may read nothing before it counts as stalled. A sleeping disk takes up to 10 s to start.
    const fn stall_limit(self) -> Duration {
        match self {
            Self::Look | Self::Quick => Duration::from_secs(15),
            Self::Long => Duration::from_secs(120),
        }
    }
}

/// The queues of reads, by folder: those of transcripts, and those in which conversations run.
#[derive(Default)]
pub struct ReadQueues {
    queues: Mutex<HashMap<QueueKey, Arc<ReadQueue>>>,
}

/// The key of a queue: a folder (`None`: all folders of transcripts), the project whose transcripts are read there or the
/// kind of work, and the class. The name of a kind of work cannot be that of a project, which is an absolute path.
type QueueKey = (Option<PathBuf>, Option<String>, ReadClass);

/// The queue of reads of a folder, of all folders of transcripts, or of the transcripts of a project in a folder.
pub struct ReadQueue {
    folder: Option<PathBuf>,
    class: ReadClass,
    at_once: usize,
    permits: Arc<Semaphore>,
    running: Mutex<Vec<RunningRead>>,
    /// How many of its reads may be stalled while others take their turns.
    stalled_limit: usize,
    /// The parent queue, in which each read also needs a permit: that of the folder parent, or of the transcripts of all
    /// projects.
    parent: Option<Arc<ReadQueue>>,
}

struct RunningRead {
    progress: Arc<Progress>,
    /// `None` after the permit was released because the read made no progress.
    permit: Option<OwnedSemaphorePermit>,
}

/// The turn of one read. Dropping it ends the turn.
pub struct ReadPermit {
    queue: Arc<ReadQueue>,
    progress: Arc<Progress>,
    _above: Option<Box<ReadPermit>>,
}

impl ReadQueues {
    /// The queue of a folder. `None`: of reads in all folders of transcripts.
    pub fn folder_queue(&self, folder: Option<PathBuf>, class: ReadClass) -> Arc<ReadQueue> {
        self.queue((folder, None, class), READS_PER_FOLDER, MAX_STALLED, None)
    }

    /// The queue of the transcripts of a project in a folder. Stalled reads keep their turns, so that one project cannot use up
    /// the limit of the folder.
    pub fn project_queue(&self, folder: PathBuf, cwd: String, class: ReadClass) -> Arc<ReadQueue> {
        let all = (Some(folder.clone()), Some(String::new()), class);
        let all = self.queue(all, READS_OF_ALL_PROJECTS, STALLED_PROJECTS_LIMIT, None);
        self.queue((Some(folder), Some(cwd), class), READS_PER_FOLDER, 0, Some(all))
    }

    /// The queue of looks at a folder. Each look also needs a permit of the queues of the folders parent. So the folders
    /// of one unresponsive mount block only a few threads.
    pub fn look_queue(&self, folder: PathBuf) -> Arc<ReadQueue> {
        let parent = Some(self.looks_below(folder.parent(), 1));
        let key = (Some(folder), None, ReadClass::Look);
        self.queue(key, READS_PER_FOLDER, MAX_STALLED, parent)
    }

    /// The queue of looks at the transcripts of a project in a folder. A project counts as a folder two levels below.
    pub fn project_look_queue(&self, folder: PathBuf, cwd: String) -> Arc<ReadQueue> {
        let parent = Some(self.looks_below(Some(&folder), 2));
        let key = (Some(folder), Some(cwd), ReadClass::Look);
        self.queue(key, READS_PER_FOLDER, 0, parent)
    }

    /// The queue that limits all looks `level` levels below a folder. Stalled looks keep their permits.
    fn looks_below(&self, folder: Option<&Path>, level: usize) -> Arc<ReadQueue> {
        let (folder, name, at_once, parent) = match folder {
            Some(folder) if level <= LEVELS_ABOVE => (
                folder,
                format!("{level} below"),
                MAX_STALLED << level,
                Some(self.looks_below(folder.parent(), level + 1)),
            ),
            _ => (Path::new("/"), "all below".to_owned(), LOOKS_AT_ONCE, None),
        };
        let key = (Some(folder.into()), Some(name), ReadClass::Look);
        self.queue(key, at_once, 0, parent)
    }

    /// The queue of exports to a file, and of imports.
    pub fn export_import_queue(&self) -> Arc<ReadQueue> {
        let key = (None, Some("carried".to_owned()), ReadClass::Long);
        self.queue(key, EXPORTS_AND_IMPORTS_AT_ONCE, MAX_STALLED, None)
    }

    /// The queue of lists of the transcripts in a folder. `None`: in all folders. On a slow disk, a list may look at files for
    /// a while without reading anything.
    pub fn list_queue(&self, folder: Option<PathBuf>) -> Arc<ReadQueue> {
        let key = (folder, Some("listed".to_owned()), ReadClass::Long);
        self.queue(key, READS_PER_FOLDER, MAX_STALLED, None)
    }

    /// The queue with this key.
    fn queue(
        &self,
        key: QueueKey,
        at_once: usize,
        stalled_limit: usize,
        parent: Option<Arc<ReadQueue>>,
    ) -> Arc<ReadQueue> {
        let mut queues = lock(&self.queues);
        queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        let queue = queues.entry(key).or_insert_with_key(|(folder, _, class)| {
            Arc::new(ReadQueue {
                folder: folder.clone(),
                class: *class,
                at_once,
                permits: Arc::new(Semaphore::new(at_once)),
                running: Mutex::default(),
                stalled_limit,
                parent,
            })
        });
        Arc::clone(queue)
    }
}

impl ReadQueue {
    /// Waits for a permit. Reads that make no progress give up theirs.
    ///
    /// # Errors
    /// If too many reads are stalled.
    pub async fn acquire(self: &Arc<Self>, progress: Arc<Progress>) -> Result<ReadPermit, ConversationError> {
        let mut until = Instant::now() + self.class.stall_limit();
        self.acquire_within(progress, &mut until).await
    }

    /// `until`: when a read that has made no progress meanwhile counts as stalled, in this queue and its parents.
    async fn acquire_within(
        self: &Arc<Self>,
        progress: Arc<Progress>,
        until: &mut Instant,
    ) -> Result<ReadPermit, ConversationError> {
        let permit = self.acquire_permit(until).await?;
        let parent = match &self.parent {
            Some(queue) => {
                let turn = Box::pin(queue.acquire_within(Arc::clone(&progress), until));
                Some(Box::new(turn.await?))
            }
            None => None,
        };
        // The read has waited until now.
        progress.note_progress();
        lock(&self.running).push(RunningRead {
            progress: Arc::clone(&progress),
            permit: Some(permit),
        });
        Ok(ReadPermit {
            queue: Arc::clone(self),
            progress,
            _above: parent,
        })
    }

    async fn acquire_permit(&self, until: &mut Instant) -> Result<OwnedSemaphorePermit, ConversationError> {
        // A single wait, so that later callers do not overtake this one.
        let mut acquired = pin!(Arc::clone(&self.permits).acquire_owned());
        let stall_limit = self.class.stall_limit();
        let release_interval = stall_limit / RELEASE_DIVISOR;
        let mut release_at = Instant::now() + release_interval;
        loop {
            match timeout_at(release_at.min(*until), &mut acquired).await {
                Ok(Ok(permit)) => return Ok(permit),
                // The semaphore is never closed.
                Ok(Err(_)) => return Err(ConversationError::Internal),
                Err(_) => {}
            }
            let now = Instant::now();
            let mut has_released = false;
            if release_at <= now {
                has_released = self.release_idle(release_interval);
                release_at = now + release_interval;
            }
            if *until <= now {
                if !has_released && self.is_held_up() {
                    return Err(self.stalled_error());
                }
                *until = now + stall_limit;
            }
        }
    }

    /// Waits for a turn, and runs `look` on a thread that may block.
    ///
    /// # Errors
    /// Those of `look`, or a temporary failure if the folder does not respond.
    pub async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce() -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let progress = Arc::new(Progress::default());
        let turn = self.acquire(Arc::clone(&progress)).await?;
        let meter: Arc<dyn Meter> = Arc::clone(&progress) as _;
        let looking = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            with_meter(meter, look)
        });
        self.unless_stalled(&progress, async { looking.await? }).await
    }

    /// Waits for the result of a read that has a turn.
    ///
    /// # Errors
    /// Those of the read, or a temporary failure if it is stalled. Its thread then still waits for the system.
    pub async fn unless_stalled<T>(
        &self,
        progress: &Progress,
        reading: impl Future<Output = Result<T, ConversationError>>,
    ) -> Result<T, ConversationError> {
        let mut reading = pin!(reading);
        let stall_limit = self.class.stall_limit();
        loop {
            let running = lock(&self.running).len();
            if let Ok(result) = timeout(stall_limit, &mut reading).await {
                return result;
            }
            let idle = progress.idle_time();
            // A read may wait for another read of the same file.
            if idle >= stall_limit * STALL_PERIODS || idle >= stall_limit && self.is_stalled(running) {
                return Err(self.stalled_error());
            }
        }
    }

    /// Whether none of the running reads has made progress for the stall limit, or has ended since there were `count`.
    fn is_stalled(&self, count: usize) -> bool {
        let running = lock(&self.running);
        running.len() == count && running.iter().all(|one| self.has_stalled(one))
    }

    fn has_stalled(&self, read: &RunningRead) -> bool {
        read.progress.idle_time() >= self.class.stall_limit()
    }

    /// Releases the permits of reads that have made no progress for this long. Returns whether there were any.
    fn release_idle(&self, idle: Duration) -> bool {
        let mut running = lock(&self.running);
        let released = running.iter().filter(|one| one.permit.is_none()).count();
        let unprogressed = running
            .iter_mut()
            .filter(|one| one.permit.is_some() && one.progress.idle_time() >= idle);
        let releasable = unprogressed.take(self.stalled_limit.saturating_sub(released));
        releasable.map(|one| one.permit = None).count() > 0
    }

    /// Whether all reads with a permit are stalled. If fewer reads run than permitted, the others wait in the parent queue,
    /// which is then checked too.
    fn is_held_up(&self) -> bool {
        let running = lock(&self.running);
        let mut live = running.iter().filter(|one| one.permit.is_some());
        let wait_above = live.clone().count() < self.at_once;
        live.all(|one| self.has_stalled(one))
            && (!wait_above || self.parent.as_ref().is_some_and(|parent| parent.is_held_up()))
    }

    fn stalled_error(&self) -> ConversationError {
        let seconds = self.class.stall_limit().as_secs();
        let where_from = match &self.folder {
            Some(folder) => folder.display().to_string(),
            None => "the folders of transcripts".to_owned(),
        };
        ConversationError::StoreFailed(StoreFailure {
            text: format!(
                "nothing could be read from {where_from} for {seconds} s; check that its disk or network folder responds, then \
                 try again"
            ),
            is_transient: true,
            unreadable: None,
        })
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        lock(&self.queue.running).retain(|one| !Arc::ptr_eq(&one.progress, &self.progress));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use super::*;

    #[tokio::test]
    async fn what_is_short_does_not_wait_for_what_is_long() {
        let readings = ReadQueues::default();
        let mut turns = Vec::new();
        for (class, is_had) in [
            (ReadClass::Long, true),
            (ReadClass::Long, true),
            (ReadClass::Long, false),
            (ReadClass::Quick, true),
            (ReadClass::Quick, true),
            (ReadClass::Quick, false),
            (ReadClass::Look, true),
        ] {
            let place = readings.folder_queue(Some("/transcripts".into()), class);
            let turn = place.acquire(Arc::default()).now_or_never();
            assert_eq!(turn.is_some(), is_had, "{class:?}");
            turns.extend(turn.map(Result::unwrap));
        }
    }

    #[tokio::test]
    async fn folders_that_do_not_respond_leave_turns_to_those_beside_them() {
        let readings = ReadQueues::default();
        let mut turns = Vec::new();
        let mut had = |folder: String| {
            let place = readings.look_queue(folder.into());
            // The runtime has a task that never waits yield at times.
            let turn = unconstrained(place.acquire(Arc::default())).now_or_never();
            let is_had = turn.is_some();
            turns.extend(turn.map(Result::unwrap));
            is_had
        };
        for (below, most) in [
            ("", 16),
            ("/a", 16),
            ("/b", 16),
            ("/a/b", 16),
            ("/a/c", 16),
            ("/a/b/c", 16),
        ] {
            let count = (0..600)
                .filter(|number| had(format!("/mnt/dead{below}/{number}")))
                .count();
            assert_eq!(count, most, "{below}");
        }
        for folder in ["/mnt/live", "/mnt/live/1", "/live", "/live/1"] {
            assert!(had(folder.to_owned()), "{folder}");
        }
    }

    #[tokio::test]
    async fn a_project_leaves_turns_to_the_others() {
        let readings = ReadQueues::default();
        let mut turns = Vec::new();
        for (cwd, is_had) in [
            ("/a", true),
            ("/a", true),
            ("/a", false),
            ("/b", true),
            ("/c", true),
            ("/d", false),
        ] {
            let place = readings.project_queue("/transcripts".into(), cwd.to_owned(), ReadClass::Quick);
            let turn = place.acquire(Arc::default()).now_or_never();
            assert_eq!(turn.is_some(), is_had, "{cwd}");
            turns.extend(turn.map(Result::unwrap));
        }
    }
}

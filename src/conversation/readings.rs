//! Who may read now: few at once from each folder, and none is kept waiting by a folder that does not respond.
//!
//! Owns the turns of readers and when one counts as stalled. Looks at a folder, pages of a history and checks of whole files have
//! turns of their own, so that what is short does not wait for what is long. It does not know what is read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{ConversationError, StoreFailure};
use super::work::Progress;
use crate::transcript::meter::{Meter, metered};

/// How many callers have one folder read at once at each pace, or the transcripts of one project: each takes a core while it runs,
/// and memory for what it notes of a transcript.
const READINGS_AT_ONCE: usize = 2;

/// How many callers have the transcripts of all projects of an agent read at once at each pace: a project that does not respond leaves
/// turns to the others.
const OF_PROJECTS_AT_ONCE: usize = 2 * READINGS_AT_ONCE;

/// How many exports into files and imports run at once: each takes a core and what the disk gives for as long as it runs.
const CARRIED_AT_ONCE: usize = 1;

/// How many readings of one folder and pace may be stalled while others take their turns: each is a thread that waits for the
/// system.
const STALLED_LIMIT: usize = 8;

/// How many readings of all projects of one agent and pace may be stalled while others take their turns: two of each project.
const STALLED_PROJECTS_LIMIT: usize = 32;

/// After which part of the limit of its pace a reading that has read nothing lets another one have its turn, where it may. If it was
/// only slow, one more runs for a while.
const LENT_AFTER: u32 = 15;

/// How many levels of folders above a folder limit the looks at what is below them. Each level allows twice as many as the one below
/// it, which is more than one entry can have: entries that do not respond leave turns to the others.
const LEVELS_ABOVE: usize = 3;

/// How many looks may be had at once, at all folders. A look at a folder that does not respond keeps a thread, and the runtime has 512
/// of them for all that blocks.
const LOOKS_AT_ONCE: usize = STALLED_LIMIT << (LEVELS_ABOVE + 1);

/// After how many times the limit of its pace a caller gets an error, even if others read from the same folder meanwhile.
const PATIENCE: u32 = 4;

/// How long a reading takes when all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pace {
    /// A look at a folder, or at the end of a transcript before a prompt. It does not wait for those who read whole files.
    Look,
    /// A page of a history, which reads the transcript once and notes where its records are; and a look for a session by its id.
    Quick,
    /// All else: it may copy, compress and sync for a while without reading anything.
    Long,
}

impl Pace {
    /// How long a reading may read nothing before it counts as stalled. A sleeping disk takes up to 10 s to start.
    const fn limit(self) -> Duration {
        match self {
            Self::Look | Self::Quick => Duration::from_secs(15),
            Self::Long => Duration::from_secs(120),
        }
    }
}

/// The folders that are read now: those of transcripts, and those that conversations run in.
#[derive(Default)]
pub struct Readings {
    places: Mutex<HashMap<Key, Arc<Place>>>,
}

/// A folder (with `None`, all that hold transcripts), the project whose transcripts are read there or the kind of work, and the
/// pace.
type Key = (Option<PathBuf>, Option<String>, Pace);

/// A folder, all that hold transcripts, or the transcripts of a project in a folder.
pub struct Place {
    folder: Option<PathBuf>,
    pace: Pace,
    at_once: usize,
    turns: Arc<Semaphore>,
    running: Mutex<Vec<Running>>,
    /// How many of its readings may be stalled while others take their turns.
    stalled_limit: usize,
    /// The place of more than this one, where a reading needs a turn too: the folder above, or the transcripts of all projects.
    above: Option<Arc<Place>>,
}

struct Running {
    progress: Arc<Progress>,
    /// `None` once another has its turn, because this one read nothing.
    permit: Option<OwnedSemaphorePermit>,
}

/// How far each of some readings was.
type Seen = Vec<(Arc<Progress>, u64)>;

/// The wait for a turn, in a place and those above it.
struct Wait {
    /// When those that have turns count as stalled.
    until: Instant,
    /// How far they were when the wait began.
    seen: Seen,
}

impl Wait {
    fn at(place: &Place) -> Self {
        Self {
            until: Instant::now() + place.pace.limit(),
            seen: place.done_here_and_above(),
        }
    }
}

/// The turn of one reading, which ends when this is dropped.
pub struct Turn {
    place: Arc<Place>,
    progress: Arc<Progress>,
    _above: Option<Box<Turn>>,
}

impl Readings {
    /// A folder; with `None`, those who look into all that hold transcripts.
    pub fn place(&self, folder: Option<PathBuf>, pace: Pace) -> Arc<Place> {
        let place = Place::new(folder.clone(), pace, READINGS_AT_ONCE);
        self.place_at((folder, None, pace), place)
    }

    /// The transcripts of a project in a folder. Those that are stalled keep their turns, so that one project cannot use up what
    /// the folder allows.
    pub fn project(&self, folder: PathBuf, cwd: String, pace: Pace) -> Arc<Place> {
        let folder = Some(folder);
        let all = (folder.clone(), Some(String::new()), pace);
        let of_all = Place {
            stalled_limit: STALLED_PROJECTS_LIMIT,
            ..Place::new(folder.clone(), pace, OF_PROJECTS_AT_ONCE)
        };
        let all = self.place_at(all, of_all);
        let place = Place {
            stalled_limit: 0,
            above: Some(all),
            ..Place::new(folder.clone(), pace, READINGS_AT_ONCE)
        };
        self.place_at((folder, Some(cwd), pace), place)
    }

    /// Looks at a folder. They need turns among the looks at what is below the folders above it too, and at all: however many
    /// folders of one mount do not respond, they use few of the threads.
    pub fn look(&self, folder: PathBuf) -> Arc<Place> {
        let place = Place {
            above: Some(self.looks_below(folder.parent(), 1)),
            ..Place::new(Some(folder.clone()), Pace::Look, READINGS_AT_ONCE)
        };
        self.place_at((Some(folder), None, Pace::Look), place)
    }

    /// Looks at the transcripts of a project in a folder. Each project counts as a folder two levels below.
    pub fn look_at_project(&self, folder: PathBuf, cwd: String) -> Arc<Place> {
        let place = Place {
            stalled_limit: 0,
            above: Some(self.looks_below(Some(&folder), 2)),
            ..Place::new(Some(folder.clone()), Pace::Look, READINGS_AT_ONCE)
        };
        self.place_at((Some(folder), Some(cwd), Pace::Look), place)
    }

    /// Looks at what is so many levels below a folder. Those that are stalled keep their turns.
    fn looks_below(&self, folder: Option<&Path>, level: usize) -> Arc<Place> {
        let (folder, name, at_once, above) = match folder {
            Some(folder) if level <= LEVELS_ABOVE => (
                folder,
                format!("{level} below"),
                STALLED_LIMIT << level,
                Some(self.looks_below(folder.parent(), level + 1)),
            ),
            _ => (Path::new("/"), "all below".to_owned(), LOOKS_AT_ONCE, None),
        };
        let place = Place {
            stalled_limit: 0,
            above,
            ..Place::new(Some(folder.into()), Pace::Look, at_once)
        };
        self.place_at((Some(folder.into()), Some(name), Pace::Look), place)
    }

    /// Exports to a file, and imports.
    pub fn carried(&self) -> Arc<Place> {
        self.named(None, "carried", CARRIED_AT_ONCE)
    }

    /// Lists of the transcripts in a folder; with `None`, in all. On a slow disk a list may look at files for a while and read
    /// nothing.
    pub fn listed(&self, folder: Option<PathBuf>) -> Arc<Place> {
        self.named(folder, "listed", READINGS_AT_ONCE)
    }

    fn named(&self, folder: Option<PathBuf>, name: &str, at_once: usize) -> Arc<Place> {
        let place = Place::new(folder.clone(), Pace::Long, at_once);
        // A project is an absolute path.
        self.place_at((folder, Some(name.to_owned()), Pace::Long), place)
    }

    fn place_at(&self, key: Key, new: Place) -> Arc<Place> {
        let mut places = lock(&self.places);
        places.retain(|_, place| Arc::strong_count(place) > 1);
        Arc::clone(places.entry(key).or_insert_with(|| Arc::new(new)))
    }
}

impl Place {
    fn new(folder: Option<PathBuf>, pace: Pace, at_once: usize) -> Self {
        Self {
            folder,
            pace,
            at_once,
            turns: Arc::new(Semaphore::new(at_once)),
            running: Mutex::default(),
            stalled_limit: STALLED_LIMIT,
            above: None,
        }
    }

    /// Waits for a turn. One that reads nothing lends its own.
    ///
    /// # Errors
    /// When too many readings are stalled.
    pub async fn turn(self: &Arc<Self>, progress: Arc<Progress>) -> Result<Turn, ConversationError> {
        self.turn_within(progress, &mut Wait::at(self)).await
    }

    async fn turn_within(
        self: &Arc<Self>,
        progress: Arc<Progress>,
        wait: &mut Wait,
    ) -> Result<Turn, ConversationError> {
        let permit = self.permit(wait).await?;
        let above = match &self.above {
            Some(place) => {
                let turn = Box::pin(place.turn_within(Arc::clone(&progress), wait));
                Some(Box::new(turn.await?))
            }
            None => None,
        };
        lock(&self.running).push(Running {
            progress: Arc::clone(&progress),
            permit: Some(permit),
        });
        Ok(Turn {
            place: Arc::clone(self),
            progress,
            _above: above,
        })
    }

    async fn permit(&self, wait: &mut Wait) -> Result<OwnedSemaphorePermit, ConversationError> {
        // One wait, so that nobody who comes later is before this one.
        let mut acquired = pin!(Arc::clone(&self.turns).acquire_owned());
        let mut lends = self.lends_from(Instant::now());
        loop {
            let lent_at = lends.as_ref().map_or(wait.until, |(at, _)| *at);
            match timeout_at(lent_at.min(wait.until), &mut acquired).await {
                Ok(Ok(permit)) => return Ok(permit),
                // The semaphore is never closed.
                Ok(Err(_)) => return Err(ConversationError::Lost),
                Err(_) => {}
            }
            let now = Instant::now();
            let mut is_lent = false;
            if let Some((_, seen)) = lends.take_if(|(at, _)| *at <= now) {
                is_lent = self.lend(&seen);
                lends = self.lends_from(now);
            }
            if wait.until <= now {
                if !is_lent && self.is_held_up(&wait.seen) {
                    return Err(self.stalled());
                }
                *wait = Wait::at(self);
            }
        }
    }

    /// When readings that have read nothing by then lend their turns, and how far they are now. None if none may.
    fn lends_from(&self, now: Instant) -> Option<(Instant, Seen)> {
        (self.stalled_limit > 0).then(|| (now + self.pace.limit() / LENT_AFTER, self.done()))
    }

    /// Waits for a turn and looks at this place, on a thread that may block.
    ///
    /// # Errors
    /// Those of the look; a failure that may pass if what is looked at does not respond.
    pub async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce() -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let progress = Arc::new(Progress::default());
        let turn = self.turn(Arc::clone(&progress)).await?;
        let meter: Arc<dyn Meter> = Arc::clone(&progress) as _;
        let looking = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            metered(meter, look)
        });
        self.unless_stalled(&progress, async { looking.await? }).await
    }

    /// The result of a reading that has a turn.
    ///
    /// # Errors
    /// Those of the reading; a failure that may pass if it is stalled. Its thread waits for the system then.
    pub async fn unless_stalled<T>(
        &self,
        progress: &Progress,
        reading: impl Future<Output = Result<T, ConversationError>>,
    ) -> Result<T, ConversationError> {
        let mut reading = pin!(reading);
        let (mut done, mut all, mut stalled) = (progress.done_bytes(), self.done(), 0);
        loop {
            if let Ok(result) = timeout(self.pace.limit(), &mut reading).await {
                return result;
            }
            let (done_now, all_now) = (progress.done_bytes(), self.done());
            // A reading may wait for another one of the same file.
            stalled = if done_now == done { stalled + 1 } else { 0 };
            if stalled >= PATIENCE || stalled > 0 && is_stalled(&all, &all_now) {
                return Err(self.stalled());
            }
            (done, all) = (done_now, all_now);
        }
    }

    /// How far each running reading is.
    fn done(&self) -> Seen {
        let running = lock(&self.running);
        let done = running
            .iter()
            .map(|one| (Arc::clone(&one.progress), one.progress.done_bytes()));
        done.collect()
    }

    fn done_here_and_above(&self) -> Seen {
        let mut done = self.done();
        done.extend(self.above.iter().flat_map(|above| above.done_here_and_above()));
        done
    }

    /// Lends the turns of readings that have read nothing since. Whether there were any.
    fn lend(&self, seen: &[(Arc<Progress>, u64)]) -> bool {
        let mut running = lock(&self.running);
        let lent = running.iter().filter(|one| one.permit.is_none()).count();
        let idle = running
            .iter_mut()
            .filter(|one| one.permit.is_some() && one.is_idle(seen));
        let lending = idle.take(self.stalled_limit.saturating_sub(lent));
        lending.map(|one| one.permit = None).count() > 0
    }

    /// Whether all that have turns have read nothing since. Those that wait for their turn above have not begun.
    fn is_held_up(&self, seen: &[(Arc<Progress>, u64)]) -> bool {
        let running = lock(&self.running);
        let mut live = running.iter().filter(|one| one.permit.is_some());
        let wait_above = live.clone().count() < self.at_once;
        live.all(|one| one.is_idle(seen))
            && (!wait_above || self.above.as_ref().is_some_and(|above| above.is_held_up(seen)))
    }

    fn stalled(&self) -> ConversationError {
        let seconds = self.pace.limit().as_secs();
        let where_from = match &self.folder {
            Some(folder) => folder.display().to_string(),
            None => "the folders of transcripts".to_owned(),
        };
        ConversationError::StoreFailed(StoreFailure {
            text: format!(
                "nothing could be read from {where_from} for {seconds} s; check that its disk or network folder responds, then \
                 try again"
            ),
            is_passing: true,
        })
    }
}

impl Running {
    /// Whether it runs since then and has read nothing.
    fn is_idle(&self, seen: &[(Arc<Progress>, u64)]) -> bool {
        let done = self.progress.done_bytes();
        let is_same = |other: &(Arc<Progress>, u64)| Arc::ptr_eq(&other.0, &self.progress) && other.1 == done;
        seen.iter().any(is_same)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.place.running).retain(|one| !Arc::ptr_eq(&one.progress, &self.progress));
    }
}

/// Whether the same readings run, and none has read anything.
fn is_stalled(before: &[(Arc<Progress>, u64)], now: &[(Arc<Progress>, u64)]) -> bool {
    let same = |(one, other): (&(Arc<Progress>, u64), &(Arc<Progress>, u64))| {
        Arc::ptr_eq(&one.0, &other.0) && one.1 == other.1
    };
    before.len() == now.len() && before.iter().zip(now).all(same)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one call: it is whole after any panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use super::*;

    #[tokio::test]
    async fn what_is_short_does_not_wait_for_what_is_long() {
        let readings = Readings::default();
        let mut turns = Vec::new();
        for (pace, is_had) in [
            (Pace::Long, true),
            (Pace::Long, true),
            (Pace::Long, false),
            (Pace::Quick, true),
            (Pace::Quick, true),
            (Pace::Quick, false),
            (Pace::Look, true),
        ] {
            let place = readings.place(Some("/transcripts".into()), pace);
            let turn = place.turn(Arc::default()).now_or_never();
            assert_eq!(turn.is_some(), is_had, "{pace:?}");
            turns.extend(turn.map(Result::unwrap));
        }
    }

    #[tokio::test]
    async fn folders_that_do_not_respond_leave_turns_to_those_beside_them() {
        let readings = Readings::default();
        let mut turns = Vec::new();
        let mut had = |folder: String| {
            let place = readings.look(folder.into());
            // The runtime has a task that never waits yield at times.
            let turn = unconstrained(place.turn(Arc::default())).now_or_never();
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
        let readings = Readings::default();
        let mut turns = Vec::new();
        for (cwd, is_had) in [
            ("/a", true),
            ("/a", true),
            ("/a", false),
            ("/b", true),
            ("/c", true),
            ("/d", false),
        ] {
            let place = readings.project("/transcripts".into(), cwd.to_owned(), Pace::Quick);
            let turn = place.turn(Arc::default()).now_or_never();
            assert_eq!(turn.is_some(), is_had, "{cwd}");
            turns.extend(turn.map(Result::unwrap));
        }
    }
}

//! Watching the agents' transcripts: whose a changed one is, and when it is looked at.
//!
//! One task hears of changes, whoever made them; the reading is done on a blocking thread, one round at a time. A
//! transcript counts for the conversations whose head it is, and for one that had a turn on it for as long as that turn
//! is not told: the head may have changed before its last record was on disk. What else is written to an older session is
//! in nobody's history. What is told is judged when no turn of ours runs on it, since transcripts lag what was heard;
//! until then it waits for the turn's end.

mod files;
mod judging;
mod telling;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::link::Link;
use bridge_protocol::{ConversationId, UpstreamId};
use jiff::Timestamp;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use super::super::services::now;
use super::Registry;
use crate::store::{StoreError, TranscriptRoot};
use crate::transcript::shelf::{Format, sizes};
use files::{Files, Met};
use judging::{Changed, Owner, judge};

/// How many changed transcripts wait for the end of a turn, or for a conversation that they are of. Those that belong
/// to nobody leave first, which they mostly do for good, and of them the oldest.
const WAITING: usize = 1_024;

/// How many turns may have ended whose last record is not on disk: more than agents that run at once.
const OWED: usize = 1_024;

/// What is known of the files, and which of them wait.
struct Ears {
    /// When this life began.
    began: Timestamp,
    files: Files,
    /// By path, with the number of the round in which they came.
    waiting: BTreeMap<PathBuf, Waiting>,
    /// The sessions on which turns have ended here, and of which conversations, until they are told.
    owed: BTreeSet<(UpstreamId, ConversationId)>,
    round: u64,
}

struct Waiting {
    root: PathBuf,
    format: Format,
    since: u64,
    /// Whether it counts for a conversation.
    is_owned: bool,
}

impl Registry {
    /// Watches the transcripts of all agents from now on.
    pub async fn watch_transcripts(self: &Arc<Self>) {
        let Ok(roots) = self.listed_roots(None) else {
            return;
        };
        let watch = Arc::clone(&self.watch);
        let prepared = tokio::task::spawn_blocking(move || {
            let mut ears = Ears::new();
            let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
            for root in &roots {
                watch.add_root(&root.folder, root.format);
            }
            // Behind the watching, so that each change is either in the size or told.
            for root in &roots {
                for (path, metadata) in sizes(&root.folder, root.format) {
                    if let Some(id) = upstream_id(&path, root.format) {
                        ears.files.begin(&path, &id, &metadata);
                    }
                }
            }
            (watch.waker(), ears)
        });
        let Ok((waker, ears)) = prepared.await else { return };
        match waker.and_then(hear_with) {
            Ok(waker) => {
                let task = listen(Arc::downgrade(self), waker, ears, self.stop.clone());
                self.tasks.spawn(task);
            }
            Err(error) => tracing::warn!(%error, "changes of transcripts cannot be watched"),
        }
    }

    /// Whether a turn runs on a conversation.
    fn is_running(&self, id: ConversationId) -> bool {
        let live = self.lock();
        let state = live.get(&id).map(|entry| entry.published.borrow().state);
        matches!(
            state,
            Some(ConversationState::Prompting | ConversationState::Awaiting | ConversationState::Cancelling)
        )
    }

    /// The conversations for which a session counts: those whose head it is, and those that are `owed` a turn on it.
    fn owners_of(
        &self,
        root: &Path,
        id: &UpstreamId,
        owed: &BTreeSet<(UpstreamId, ConversationId)>,
    ) -> Vec<Owner> {
        let root = TranscriptRoot::new(root.to_string_lossy());
        let store = &self.services.store;
        let owners = in_store(store.owners(id, Some(&root))).unwrap_or_default();
        let owner = |owner| {
            let record = in_store(store.conversation(owner))??;
            let link = record
                .chain
                .links()
                .iter()
                .rposition(|link| link.upstream_id == *id)?;
            Some(Owner { record, link })
        };
        let counts = |owner: &Owner| {
            let is_owed = || owed.contains(&(id.clone(), owner.record.id));
            owner.record.deleted_at.is_none() && (owner.is_head() || is_owed())
        };
        owners.into_iter().filter_map(owner).filter(counts).collect()
    }
}

/// Deprecated for types that may close their descriptor early, or change it; this one does neither.
#[allow(deprecated, reason = "its successor is unsafe to call")]
fn hear_with(waker: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(waker, Interest::READABLE)
}

/// Until the daemon stops.
async fn listen(registry: Weak<Registry>, waker: AsyncFd<OwnedFd>, mut ears: Ears, stop: CancellationToken) {
    let Some(services) = registry.upgrade().map(|registry| Arc::clone(&registry.services)) else {
        return;
    };
    loop {
        let ready = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            ready = waker.readable() => ready.ok(),
            () = services.turn_ends.wait() => None,
        };
        let Some(registry) = registry.upgrade() else {
            return;
        };
        let round = tokio::task::spawn_blocking(move || {
            ears.round(&registry);
            ears
        });
        let Ok(again) = round.await else {
            tracing::error!("watching transcripts failed; nothing more is told of what is saved in them");
            return;
        };
        ears = again;
        // What came while the round ran keeps it ready.
        if let Some(mut ready) = ready {
            ready.clear_ready();
        }
    }
}

impl Ears {
    fn new() -> Self {
        Self {
            began: now(),
            files: Files::default(),
            waiting: BTreeMap::new(),
            owed: BTreeSet::new(),
            round: 0,
        }
    }

    /// Looks at all that has changed, and at what has waited for a turn that has ended now.
    fn round(&mut self, registry: &Registry) {
        self.round += 1;
        let heard = {
            let mut watch = registry.watch.lock().unwrap_or_else(PoisonError::into_inner);
            watch.heard()
        };
        let mut changed = Vec::new();
        for heard in heard {
            let mut add = |path: PathBuf| {
                changed.push(Changed {
                    root: heard.root.clone(),
                    format: heard.format,
                    path,
                });
            };
            if heard.changes.everything {
                for (path, metadata) in sizes(&heard.root, heard.format) {
                    if self.files.differs(&path, &metadata) {
                        add(path);
                    }
                }
            }
            for folder in &heard.changes.folders {
                for path in crate::transcript::shelf::files(folder, heard.format) {
                    add(path);
                }
            }
            heard.changes.files.into_iter().for_each(&mut add);
        }
        // Files that are there come first: one that was moved keeps what is known of it.
        changed.sort_by_key(|changed| !changed.path.exists());
        let again = self.due(registry);
        for changed in changed.into_iter().chain(again) {
            self.look(registry, changed);
        }
        while self.waiting.len() > WAITING {
            let rank = |waiting: &Waiting| (waiting.is_owned, waiting.since);
            let oldest = self.waiting.iter().min_by_key(|(_, waiting)| rank(waiting));
            let Some(oldest) = oldest.map(|(path, _)| path.clone()) else {
                return;
            };
            self.waiting.remove(&oldest);
        }
    }

    /// What has waited for a turn that has ended now, or for another head.
    fn due(&mut self, registry: &Registry) -> Vec<Changed> {
        let (asked, all) = registry.services.turn_ends.take();
        let mut again = Vec::new();
        self.waiting.retain(|path, waiting| {
            let id = upstream_id(path, waiting.format);
            let is_due = all || id.is_some_and(|id| asked.contains_key(&id));
            if is_due {
                again.push(Changed {
                    root: waiting.root.clone(),
                    format: waiting.format,
                    path: path.clone(),
                });
            }
            !is_due
        });
        let owed = asked
            .into_iter()
            .flat_map(|(id, owners)| owners.into_iter().map(move |owner| (id.clone(), owner)));
        self.owed.extend(owed);
        while self.owed.len() > OWED {
            self.owed.pop_first();
        }
        again
    }

    /// Looks at one transcript, and tells its conversations.
    fn look(&mut self, registry: &Registry, changed: Changed) {
        let Some(id) = upstream_id(&changed.path, changed.format) else {
            return;
        };
        let owners = registry.owners_of(&changed.root, &id, &self.owed);
        let is_owned = !owners.is_empty();
        let Ok(metadata) = std::fs::metadata(&changed.path) else {
            match is_owned {
                true => self.files.note_gone(&changed.path),
                false => self.files.forget(&changed.path),
            }
            self.waiting.remove(&changed.path);
            registry.services.library.forget(&changed.path);
            return;
        };
        let (mut seen, met) = self.files.take(&changed.path, &id, &metadata);
        if is_owned {
            // Behind the question for owners: an import notes its size before it is somebody's.
            let imported = registry.services.turn_ends.take_imported(&id);
            let restored = (met == Met::New && owners.iter().all(|owner| self.is_of_before(owner)))
                .then_some(seen.bytes);
            seen.judged = imported.or(restored).unwrap_or_default().max(seen.judged);
            // A turn has ended in less than was there before it was removed: it was begun anew, not put back.
            if seen.judged > seen.bytes && owners.iter().any(|owner| self.is_owed(owner)) {
                seen.judged = 0;
            }
        }
        let before = seen.clone();
        // The next turn's end tells whether it was begun anew.
        let mut is_waiting = !is_owned || seen.judged > seen.bytes;
        for owner in owners {
            let tell = |growth| registry.tell_growth(owner.record.id, growth);
            let Some(judgement) = judge(registry, &owner, &changed, &before, met, tell) else {
                // It may be readable when it is looked at again.
                is_waiting = true;
                continue;
            };
            is_waiting |= !judgement.is_final;
            seen.judged = seen.judged.max(judgement.upto);
            seen.prompts = judgement.prompts;
            seen.told = judgement.told;
            if judgement.has_all {
                self.owed.remove(&(id.clone(), owner.record.id));
            }
        }
        self.files.put(&changed.path, seen);
        if is_waiting {
            let since = self.round;
            self.waiting.insert(
                changed.path,
                Waiting {
                    root: changed.root,
                    format: changed.format,
                    since,
                    is_owned,
                },
            );
        }
    }

    /// Whether all turns of a session were had in an earlier life. A file of it that comes now was put back.
    fn is_of_before(&self, owner: &Owner) -> bool {
        let is_of_before = |link: &Link| link.at < self.began && link.written;
        owner.link().is_some_and(is_of_before) && !self.is_owed(owner)
    }

    /// Whether a turn has ended in this life that is not told yet.
    fn is_owed(&self, owner: &Owner) -> bool {
        let of_it = |link: &Link| (link.upstream_id.clone(), owner.record.id);
        owner.link().is_some_and(|link| self.owed.contains(&of_it(link)))
    }
}

fn upstream_id(path: &Path, format: Format) -> Option<UpstreamId> {
    let name = path.file_name()?.to_str()?;
    format.upstream_id(name).map(UpstreamId::new)
}

/// What the store answers; what it cannot is told in the log, since nobody has asked.
fn in_store<T>(read: Result<T, StoreError>) -> Option<T> {
    let told =
        read.inspect_err(|error| tracing::warn!(%error, "whose a changed transcript is cannot be read"));
    told.ok()
}

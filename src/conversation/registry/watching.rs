//! Watching the agents' transcripts: which conversation one is of, and what its growth says.
//!
//! One task hears of changes, whoever made them; the reading is done on a blocking thread, one round at a time. A
//! transcript counts for the conversations whose head it is: what is written to an older session is not in anybody's
//! history. What is told is judged when no turn of ours runs on it, since transcripts lag what was heard; until then it
//! waits for the turn's end. How far each file was judged lives in memory and begins with the sizes at the start, so
//! that nothing old is told again by the next life.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::{ConversationId, UpstreamId};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::actor::Message;
use super::super::growth::Growth;
use super::super::history::History;
use super::super::services::now;
use super::Registry;
use crate::store::{ConversationRecord, StoreError, TranscriptRoot};
use crate::transcript::TranscriptError;
use crate::transcript::library::Library;
use crate::transcript::record::TurnEnd;
use crate::transcript::rollouts;
use crate::transcript::shelf::{Format, sizes};

/// How many changed transcripts wait for the end of a turn, or for a conversation that they are of. Those that belong
/// to nobody leave first, which they mostly do for good, and of them the oldest.
const WAITING: usize = 1_024;

/// What is known of the files, and which of them wait.
struct Ears {
    hasher: RandomState,
    seen: HashMap<u64, Seen>,
    /// By path, with the number of the round in which they came.
    waiting: BTreeMap<PathBuf, Waiting>,
    round: u64,
}

struct Waiting {
    root: PathBuf,
    format: Format,
    since: u64,
    /// Whether it is the head of a conversation.
    is_owned: bool,
}

/// How a file was when it was looked at last.
#[derive(Clone, Debug)]
struct Seen {
    /// A hash of the session's id: a copy elsewhere, or a file of the same number, is told apart by it.
    session: u64,
    device: u64,
    inode: u64,
    bytes: u64,
    /// Turns whose last record begins before this byte are told, or old.
    judged: u64,
    /// The record of the prompt whose turn was told last.
    told: Option<String>,
    /// How many prompts it held when its turns were looked at last.
    prompts: Option<u64>,
    /// So many turns at its beginning are old, as those of an import are.
    old_turns: u64,
}

/// A transcript that changed.
struct Changed {
    root: PathBuf,
    format: Format,
    path: PathBuf,
}

impl Registry {
    /// Watches the transcripts of all agents from now on.
    pub async fn watch_transcripts(self: &Arc<Self>) {
        let Ok(roots) = self.listed_roots(None) else {
            return;
        };
        let watch = Arc::clone(&self.watch);
        let prepared = tokio::task::spawn_blocking(move || {
            let mut ears = Ears::default();
            let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
            for root in &roots {
                watch.add_root(&root.folder, root.format);
            }
            // Behind the watching, so that each change is either in the size or told.
            for root in &roots {
                for (path, metadata) in sizes(&root.folder, root.format) {
                    ears.begin(&path, root.format, &metadata);
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

    /// The conversations whose head a session is.
    fn owners_of_head(&self, root: &Path, id: &UpstreamId) -> Vec<ConversationRecord> {
        let root = TranscriptRoot::new(root.to_string_lossy());
        let store = &self.services.store;
        let owners = in_store(store.owners(id, Some(&root))).unwrap_or_default();
        let records = owners
            .into_iter()
            .filter_map(|owner| in_store(store.conversation(owner))?);
        let is_head = |record: &ConversationRecord| {
            let head = record.chain.head();
            record.deleted_at.is_none() && head.is_some_and(|head| head.upstream_id == *id)
        };
        records.filter(is_head).collect()
    }

    /// Tells a conversation what has become of its transcript; where it has no task, those who listen to all. Waits for
    /// room in its mailbox: on a thread that may.
    fn tell_growth(&self, id: ConversationId, growth: Growth) {
        let mailbox = self.lock().get(&id).map(|entry| entry.mailbox.clone());
        let left = match mailbox {
            None => Some(growth),
            Some(mailbox) => Handle::current().block_on(put(&mailbox, growth, &self.stop)),
        };
        for checkpoint in left.map(|growth| growth.saved).unwrap_or_default() {
            let event = Event::CheckpointSaved { checkpoint };
            self.services.hub.announce(id, &event, &now().to_string());
        }
    }
}

/// Puts it into a mailbox, once there is room or until the daemon stops; gives it back when nobody reads that any more.
async fn put(mailbox: &mpsc::Sender<Message>, growth: Growth, stop: &CancellationToken) -> Option<Growth> {
    let sent = tokio::select! {
        biased;
        sent = mailbox.send(Message::Grown(Box::new(growth))) => sent,
        () = stop.cancelled() => return None,
    };
    match sent.err()?.0 {
        Message::Grown(growth) => Some(*growth),
        _ => None,
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

impl Default for Ears {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            seen: HashMap::new(),
            waiting: BTreeMap::new(),
            round: 0,
        }
    }
}

impl Ears {
    /// Notes a file that is there at the start: all that stands in it is old.
    fn begin(&mut self, path: &Path, format: Format, metadata: &std::fs::Metadata) {
        let Some(id) = upstream_id(path, format) else {
            return;
        };
        let seen = Seen {
            judged: metadata.len(),
            ..Seen::new(self.hasher.hash_one(&id), metadata)
        };
        self.seen.insert(self.hasher.hash_one(path), seen);
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
                    let seen = self.seen.get(&self.hasher.hash_one(&path));
                    if seen.is_none_or(|seen| seen.differs(&metadata)) {
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
        let (ended, all_ended) = registry.services.turn_ends.take();
        let mut again = Vec::new();
        self.waiting.retain(|path, waiting| {
            let id = upstream_id(path, waiting.format);
            let is_due = all_ended || id.is_some_and(|id| ended.contains(&id));
            if is_due {
                again.push(Changed {
                    root: waiting.root.clone(),
                    format: waiting.format,
                    path: path.clone(),
                });
            }
            !is_due
        });
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

    /// Looks at one transcript, and tells its conversations.
    fn look(&mut self, registry: &Registry, changed: Changed) {
        let Some(id) = upstream_id(&changed.path, changed.format) else {
            return;
        };
        let key = self.hasher.hash_one(&changed.path);
        let Ok(metadata) = std::fs::metadata(&changed.path) else {
            self.seen.remove(&key);
            self.waiting.remove(&changed.path);
            registry.services.library.forget(&changed.path);
            return;
        };
        let (mut seen, replaced) = self.take_seen(key, self.hasher.hash_one(&id), &metadata);
        let owners = registry.owners_of_head(&changed.root, &id);
        if !owners.is_empty() {
            // Behind the question for owners: an import notes its turns before it is somebody's.
            let imported = registry.services.turn_ends.take_imported(&id);
            seen.old_turns = imported.unwrap_or(seen.old_turns);
        }
        let is_owned = !owners.is_empty();
        let mut is_waiting = !is_owned;
        let (mut judged, mut prompts, mut told) = (seen.judged, seen.prompts, seen.told.clone());
        for record in owners {
            let tell = |growth| registry.tell_growth(record.id, growth);
            let judged_now = judge(registry, &record, &changed, &seen, replaced, tell);
            let Some(judgement) = judged_now else {
                // It may be readable when it is looked at again.
                is_waiting = true;
                continue;
            };
            is_waiting |= !judgement.is_final;
            judged = judged.max(judgement.upto);
            prompts = judgement.prompts;
            told = judgement.told;
        }
        seen.prompts = prompts;
        seen.told = told;
        seen.judged = judged;
        self.seen.insert(key, seen);
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

    /// What is known of a file, brought up to date, and whether it is not what it was with something behind it.
    fn take_seen(&mut self, key: u64, session: u64, metadata: &std::fs::Metadata) -> (Seen, bool) {
        let new = Seen::new(session, metadata);
        let is_same = |seen: &Seen| (seen.device, seen.inode) == (new.device, new.inode);
        let known = match self.seen.remove(&key) {
            Some(seen) => Some(seen),
            None => {
                let of_it = || self.seen.iter().filter(|(_, seen)| seen.session == session);
                let moved = of_it().find(|(_, seen)| is_same(seen)).map(|(key, _)| *key);
                match moved {
                    // Its old name tells of nothing now.
                    Some(key) => self.seen.remove(&key),
                    // A copy, which may still be on its way: what was judged in the other is judged.
                    None => of_it()
                        .map(|(_, seen)| seen)
                        .max_by_key(|seen| seen.judged)
                        .map(|seen| Seen {
                            device: new.device,
                            inode: new.inode,
                            bytes: new.bytes,
                            ..seen.clone()
                        }),
                }
            }
        };
        match known {
            Some(seen) if is_same(&seen) && seen.bytes <= new.bytes => {
                let bytes = new.bytes;
                (Seen { bytes, ..seen }, false)
            }
            // What stands in it now was not told when it was written, and is not told now.
            Some(_) => {
                let judged = new.bytes;
                (Seen { judged, ..new }, true)
            }
            None => (new, false),
        }
    }
}

impl Seen {
    fn new(session: u64, metadata: &std::fs::Metadata) -> Self {
        Self {
            session,
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            judged: 0,
            told: None,
            prompts: None,
            old_turns: 0,
        }
    }

    fn differs(&self, metadata: &std::fs::Metadata) -> bool {
        (self.device, self.inode, self.bytes) != (metadata.dev(), metadata.ino(), metadata.len())
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

/// The same of a transcript, which is looked at again when it changes.
fn in_file<T, E: std::fmt::Display>(path: &Path, read: Result<T, E>) -> Option<T> {
    let told = read.inspect_err(
        |error| tracing::debug!(path = %path.display(), %error, "a changed transcript cannot be read"),
    );
    told.ok()
}

/// How a transcript stands.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    /// Whether its last turn is over.
    turn_end: TurnEnd,
    /// How many prompts it holds, where they can be counted without reading it as a whole.
    prompts: Option<u64>,
    bytes: u64,
}

fn standing(library: &Library, path: &Path, format: Format) -> Result<Standing, TranscriptError> {
    match format {
        Format::Claude => library.standing(path).map(|standing| Standing {
            turn_end: standing.turn_end,
            prompts: Some(standing.prompts),
            bytes: standing.bytes,
        }),
        Format::Codex => rollouts::turn_ended(path).map(|(is_over, bytes)| Standing {
            turn_end: if is_over { TurnEnd::Over } else { TurnEnd::Open },
            prompts: None,
            bytes,
        }),
    }
}

/// What is known of a transcript once it was looked at for a conversation.
struct Judgement {
    /// Turns whose last record begins before this byte are told.
    upto: u64,
    told: Option<String>,
    prompts: Option<u64>,
    /// Whether nothing is left to be judged when a turn ends.
    is_final: bool,
}

/// Tells a conversation what its transcript says. None when that cannot be read.
fn judge(
    registry: &Registry,
    record: &ConversationRecord,
    changed: &Changed,
    seen: &Seen,
    replaced: bool,
    tell: impl Fn(Growth),
) -> Option<Judgement> {
    let (path, format) = (&changed.path, changed.format);
    let services = &registry.services;
    let head = record.chain.head()?;
    let was_running = registry.is_running(record.id);
    let stands = in_file(path, standing(&services.library, path, format))?;
    // A turn that has begun meanwhile may stand in what was read already.
    let is_running = was_running || registry.is_running(record.id);
    let may_be_over = stands.turn_end != TurnEnd::Open && !is_running;
    let mut growth = Growth {
        upstream_id: head.upstream_id.clone(),
        saved: Vec::new(),
        prompts: stands.prompts,
        replaced: replaced && !is_running,
    };
    let mut judgement = Judgement {
        upto: seen.judged,
        told: seen.told.clone(),
        prompts: stands.prompts,
        is_final: !is_running,
    };
    // Turns before the last are over since another prompt stands behind them.
    if may_be_over || seen.prompts != stands.prompts {
        let lineage = in_store(services.store.lineage_all(record.id))?;
        let mut history = in_file(path, History::of_conversation(services, record, &lineage))?;
        // What was written since the first look is told by another event.
        let is_settled = in_file(path, standing(&services.library, path, format))? == stands;
        // Where the file does not say it, our own turn's end does: no turn stands in it that was not acknowledged here. One
        // that another program had is told with the next record that settles it.
        let acknowledged = head.turns.saturating_add(head.carried_turns);
        let is_over = stands.turn_end == TurnEnd::Over || history.last_turns(path) <= acknowledged;
        let with_last = may_be_over && is_settled && is_over;
        loop {
            let Ok(saved) = history.saved_since(
                path,
                judgement.upto,
                head.carried_turns.max(seen.old_turns),
                judgement.told.as_deref(),
                with_last,
            ) else {
                // The rest is told when it is looked at again.
                judgement.is_final = false;
                break;
            };
            judgement.upto = judgement.upto.max(saved.behind.map_or(0, |offset| offset + 1));
            // Only Claude's records have names of their own; Codex' turns end where they say so.
            if format == Format::Claude {
                judgement.told = saved.last_prompt.or(judgement.told);
            }
            growth.saved = saved.checkpoints;
            if !saved.has_more {
                break;
            }
            tell(growth.clone());
            growth.replaced = false;
        }
    }
    tell(growth);
    Some(judgement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(prompts: u64) -> Growth {
        Growth {
            upstream_id: UpstreamId::new("s1"),
            saved: Vec::new(),
            prompts: Some(prompts),
            replaced: false,
        }
    }

    fn prompts(message: Option<Message>) -> Option<u64> {
        match message {
            Some(Message::Grown(growth)) => growth.prompts,
            _ => None,
        }
    }

    #[tokio::test]
    async fn what_has_no_room_in_a_mailbox_waits_for_it() {
        let (sender, mut mailbox) = mpsc::channel(1);
        let stop = CancellationToken::new();
        assert!(put(&sender, growth(1), &stop).await.is_none());
        let second = put(&sender, growth(2), &stop);
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
        assert!(put(&sender, growth(1), &stop).await.is_none());
        let waiting = put(&sender, growth(2), &stop);
        let stopping = async { stop.cancel() };
        // Polled first, so that it waits by then.
        assert!(tokio::join!(waiting, stopping).0.is_none());
        drop(mailbox);
        let left = put(&sender, growth(3), &CancellationToken::new()).await;
        assert_eq!(left.and_then(|growth| growth.prompts), Some(3));
    }
}

//! All transcripts below the folders of agents, with what is told of each in a list.
//!
//! Owns what is remembered of each file, its stat and a summary that is made anew when the stat differs, and their order.
//! Nothing is kept on disk. Blocks. A folder that cannot be read, a file that vanishes, a link that leads in circles cost
//! what is behind them and nothing else; it must not know agents or conversations.

mod ends;
mod find;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;

use super::codex::rollout_name;
use super::library::Identity;
use super::meter::Tally;
use super::watch::Changes;
use ends::{Buffers, entry, on_threads};
use find::{Finding, Found, Look, Stat, look};

/// How many folders that cannot be read are named: enough to see what is wrong.
const UNREADABLE_LIMIT: usize = 20;

/// How Claude calls what a subagent said, in versions that kept it beside the sessions. None of these is a session.
const SUBAGENT_PREFIX: &str = "agent-";

/// The form of the transcripts below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `projects/<folder>/<id>.jsonl`.
    Claude,
    /// `sessions/**/rollout-<time>-<id>.jsonl`, and the same below `archived_sessions`.
    Codex,
}

impl Format {
    /// The folders below a root in which everything is.
    #[must_use]
    pub fn tops(self, root: &Path) -> Vec<PathBuf> {
        let names: &[&str] = match self {
            Self::Claude => &["projects"],
            Self::Codex => &["sessions", "archived_sessions"],
        };
        names.iter().map(|name| root.join(name)).collect()
    }

    /// Whether a file of this name is a transcript.
    #[must_use]
    pub fn is_transcript(self, name: &str) -> bool {
        self.upstream_id(name).is_some()
    }

    /// The session that a file of this name is of.
    #[must_use]
    pub fn upstream_id(self, name: &str) -> Option<&str> {
        match self {
            Self::Claude => name
                .strip_suffix(".jsonl")
                .filter(|id| !id.is_empty() && !name.starts_with(SUBAGENT_PREFIX)),
            Self::Codex => rollout_name(name).map(|name| name.upstream_id),
        }
    }
}

/// One transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShelfEntry {
    /// The session that it is of.
    pub upstream_id: String,
    /// Where it is.
    pub path: Arc<Path>,
    /// Its size, in bytes.
    pub bytes: u64,
    /// When it last changed: the time of its last record, unless the file is older than that.
    pub updated_at: Timestamp,
    /// Its title; empty when nothing in it could be one.
    pub title: String,
    /// The folder that the agent worked in; empty when it does not say.
    pub cwd: String,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// The file as it was when it was read.
    pub identity: Identity,
}

/// A place in the order of all transcripts: newest first, by path where the time is the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(Reverse<Timestamp>, Arc<Path>);

impl Place {
    /// The place of a transcript that changed at this time and is there.
    #[must_use]
    pub fn new(updated_at: Timestamp, path: &Path) -> Self {
        Self(Reverse(updated_at), Arc::from(path))
    }

    /// The place of this one.
    #[must_use]
    pub fn of(entry: &ShelfEntry) -> Self {
        Self(Reverse(entry.updated_at), Arc::clone(&entry.path))
    }

    /// When it changed, and where it is.
    #[must_use]
    pub fn parts(&self) -> (Timestamp, &Path) {
        (self.0.0, &self.1)
    }
}

/// All transcripts below a root with what their stat says, those that cannot be looked at left out.
pub fn sizes(root: &Path, format: Format) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let found = Finding::in_root(root, format).found;
    found.into_iter().filter_map(|found| {
        let metadata = std::fs::metadata(&found.path).ok()?;
        Some((found.path, metadata))
    })
}

/// What is called like a transcript below a root, in the order of the folders in which transcripts are, whatever stands
/// there; and the folders that could not be read.
pub(super) fn names(root: &Path, format: Format) -> (Vec<PathBuf>, Vec<(PathBuf, io::Error)>) {
    Finding::names(root, format)
}

/// The title that a list tells of a file, if any. Its two ends are read.
#[must_use]
pub fn listed_title(path: &Path, format: Format) -> Option<String> {
    // What is listed under a link is named by what it leads to.
    let found = match look(path) {
        Look::Link => look(&path.canonicalize().ok()?),
        found => found,
    };
    let Look::File(found) = found else { return None };
    let entry = entry(&found, format, &mut Buffers::default()).ok()??;
    Some(entry.title.clone()).filter(|title| !title.is_empty())
}

/// The transcripts in a folder of them, and below it where they are kept so.
pub fn files(folder: &Path, format: Format) -> impl Iterator<Item = PathBuf> {
    let found = Finding::in_folder(folder, format).found;
    found.into_iter().map(|found| found.path)
}

/// What is known of one root.
#[derive(Debug, Default)]
pub struct Shelf {
    held: Folders,
    order: BTreeMap<Place, Arc<ShelfEntry>>,
    unreadable: BTreeSet<PathBuf>,
    has_aliases: bool,
    scanned: bool,
}

/// What is known of a file.
#[derive(Debug)]
struct Held {
    stat: Stat,
    entry: Arc<ShelfEntry>,
}

/// Files by folder and name, so that one folder is looked at without touching the others.
#[derive(Debug, Default)]
struct Folders(HashMap<PathBuf, HashMap<OsString, Held>>);

impl Folders {
    fn put(&mut self, path: &Path, held: Held) {
        let Some((folder, name)) = parts(path) else { return };
        if let Some(files) = self.0.get_mut(folder) {
            files.insert(name.to_owned(), held);
        } else {
            self.0
                .insert(folder.to_owned(), HashMap::from([(name.to_owned(), held)]));
        }
    }

    fn take(&mut self, path: &Path) -> Option<Held> {
        let (folder, name) = parts(path)?;
        self.0.get_mut(folder)?.remove(name)
    }

    /// All in a folder and below it.
    fn take_below(&mut self, folder: &Path) -> Self {
        Self(self.0.extract_if(|other, _| other.starts_with(folder)).collect())
    }

    fn into_entries(self) -> impl Iterator<Item = Held> {
        self.0.into_values().flat_map(HashMap::into_values)
    }
}

fn parts(path: &Path) -> Option<(&Path, &OsStr)> {
    path.parent().zip(path.file_name())
}

impl Shelf {
    /// Whether it was ever scanned, to the end.
    #[must_use]
    pub fn is_scanned(&self) -> bool {
        self.scanned
    }

    /// All transcripts behind a place, in their order.
    pub fn behind(&self, place: Option<&Place>) -> impl Iterator<Item = &Arc<ShelfEntry>> {
        let start = place.map_or(Bound::Unbounded, Bound::Excluded);
        self.order
            .range((start, Bound::Unbounded))
            .map(|(_, entry)| entry)
    }

    /// Files and folders that could not be read when they were looked at last, 20 at most.
    pub fn unreadable(&self) -> impl Iterator<Item = &Path> {
        self.unreadable
            .iter()
            .map(PathBuf::as_path)
            .take(UNREADABLE_LIMIT)
    }

    /// Looks at every file below `root` and reads the ends of those that are new or have changed. It was not scanned when
    /// that was ended early; what had been read is kept.
    pub fn scan(&mut self, root: &Path, format: Format) {
        self.work(|shelf| shelf.scan_all(root, format));
    }

    /// Looks at what has changed since it was looked at last. Ended early, everything has to be looked at again.
    pub fn refresh(&mut self, root: &Path, format: Format, changes: &Changes) {
        self.work(|shelf| shelf.refresh_some(root, format, changes));
    }

    /// Does work that may panic on what is taken out meanwhile: what is left then is nothing, and not half of it.
    fn work(&mut self, work: impl FnOnce(&mut Self)) {
        let mut shelf = std::mem::take(self);
        work(&mut shelf);
        *self = shelf;
    }

    fn scan_all(&mut self, root: &Path, format: Format) {
        self.scanned = true;
        let finding = Finding::in_root(root, format);
        self.has_aliases = finding.has_aliases;
        self.unreadable.clear();
        let old = std::mem::take(&mut self.held);
        self.take_in(finding, old, format);
    }

    fn refresh_some(&mut self, root: &Path, format: Format, changes: &Changes) {
        if !self.scanned || self.has_aliases || changes.everything {
            self.scan_all(root, format);
            return;
        }
        for folder in &changes.folders {
            let finding = Finding::in_folder(folder, format);
            if finding.has_aliases {
                self.scan_all(root, format);
                return;
            }
            self.unreadable.retain(|path| !path.starts_with(folder));
            let old = self.held.take_below(folder);
            self.take_in(finding, old, format);
        }
        let is_in_folder = |path: &Path| path.ancestors().any(|above| changes.folders.contains(above));
        let mut finding = Finding::default();
        let files = changes.files.iter().filter(|path| !is_in_folder(path));
        let files: Vec<&PathBuf> = files.collect();
        for path in &files {
            match look(path) {
                Look::File(found) if self.is_single(&found) => finding.found.push(found),
                Look::File(_) | Look::Link => {
                    self.scan_all(root, format);
                    return;
                }
                Look::Nothing => {}
            }
        }
        let mut old = Folders::default();
        for path in files {
            self.unreadable.remove(path);
            if let Some(held) = self.held.take(path) {
                old.put(path, held);
            }
        }
        self.take_in(finding, old, format);
    }

    /// Whether a file is not known from another folder already.
    fn is_single(&self, found: &Found) -> bool {
        let Some((folder, name)) = parts(&found.path) else {
            return true;
        };
        let is_same = |held: &Held| held.stat.identity.file() == found.stat.identity.file();
        let mut others = self.held.0.iter().filter(|(other, _)| *other != folder);
        !found.stat.has_names || others.all(|(_, files)| !files.get(name).is_some_and(is_same))
    }

    /// Takes in what was found in the place of what was there: what has not changed is not read again.
    fn take_in(&mut self, finding: Finding, mut old: Folders, format: Format) {
        let mut changed: Vec<Found> = Vec::new();
        for found in finding.found {
            match old.take(&found.path) {
                Some(held) if held.stat == found.stat => self.held.put(&found.path, held),
                Some(held) => {
                    self.order.remove(&Place::of(&held.entry));
                    changed.push(found);
                }
                None => changed.push(found),
            }
        }
        for held in old.into_entries() {
            self.order.remove(&Place::of(&held.entry));
        }
        let unreadable = finding.unreadable.into_iter();
        self.unreadable.extend(unreadable.map(|(path, _)| path));
        let tally = Tally::new(changed.iter().map(ends::bytes).sum());
        let is_over = AtomicBool::new(false);
        let read = on_threads(&changed, |found, buffers| {
            if is_over.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let entry = entry(found, format, buffers);
            is_over.fetch_or(tally.read(ends::bytes(found)).is_err(), Ordering::Relaxed);
            entry
        });
        self.scanned &= !is_over.into_inner();
        for (found, read) in changed.into_iter().zip(read) {
            match read {
                Ok(Some(entry)) => {
                    let entry = Arc::new(entry);
                    self.order.insert(Place::of(&entry), Arc::clone(&entry));
                    let stat = found.stat;
                    self.held.put(&found.path, Held { stat, entry });
                }
                // It has no id, or has vanished since, or nobody waits for it any more.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => {
                    self.unreadable.insert(found.path);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! All transcripts below the folders of agents, with what is told of each in a list.
//!
//! Owns the walk through the folders and what is remembered of each file: its stat, and a summary that is made anew when
//! the stat differs. Nothing is kept on disk. Blocks. A folder that cannot be read, a file that vanishes, a link that
//! leads in circles cost what is behind them and nothing else; it must not know agents or conversations.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;

use super::codex::{self, rollout_name};
use super::summary::{self, END_BYTES, Ends, FAR_HEAD_BYTES, TranscriptSummary};

/// How many threads read: what is in the page cache keeps one core busy, and the daemon's other work needs the rest.
const THREADS: usize = 2;

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

/// One transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShelfEntry {
    /// The session that it is of.
    pub upstream_id: String,
    /// Where it is.
    pub path: PathBuf,
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
}

/// What tells that a file has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A file that was found.
struct Found {
    path: PathBuf,
    stat: Stat,
}

/// What is known of one root.
#[derive(Debug, Default)]
pub struct Shelf {
    held: HashMap<PathBuf, (Stat, Arc<ShelfEntry>)>,
    unreadable: Vec<PathBuf>,
    scanned: bool,
}

impl Shelf {
    /// Whether it was ever scanned.
    #[must_use]
    pub fn is_scanned(&self) -> bool {
        self.scanned
    }

    /// All transcripts as the last scan found them, in no order.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<ShelfEntry>> {
        self.held.values().map(|(_, entry)| entry)
    }

    /// Files and folders that the last scan could not read, 20 at most.
    #[must_use]
    pub fn unreadable(&self) -> &[PathBuf] {
        &self.unreadable
    }

    /// Looks at every file below `root` and reads the ends of those that are new or have changed.
    pub fn scan(&mut self, root: &Path, format: Format) {
        let mut unreadable = Vec::new();
        let found = match format {
            Format::Claude => find_claude(root, &mut unreadable),
            Format::Codex => find_codex(root, &mut unreadable),
        };
        let mut old = std::mem::take(&mut self.held);
        let mut changed = Vec::new();
        for found in found {
            match old.remove_entry(&found.path) {
                Some((path, held)) if held.0 == found.stat => {
                    self.held.insert(path, held);
                }
                _ => changed.push(found),
            }
        }
        let read = on_threads(&changed, |found, buffers| entry(found, format, buffers));
        for (found, read) in changed.into_iter().zip(read) {
            match read {
                Ok(Some(entry)) => {
                    self.held.insert(found.path, (found.stat, Arc::new(entry)));
                }
                // It has no id, or has vanished since.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => unreadable.push(found.path),
            }
        }
        unreadable.sort();
        unreadable.dedup();
        unreadable.truncate(UNREADABLE_LIMIT);
        self.unreadable = unreadable;
        self.scanned = true;
    }
}

/// What one thread reads into, from file to file.
#[derive(Default)]
struct Buffers {
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// Does the work for each item on [`THREADS`] threads; the answers stand in the order of the items. One whose thread
/// failed is answered by an error.
fn on_threads<T: Sync, A: Send>(
    items: &[T],
    work: impl Fn(&T, &mut Buffers) -> io::Result<Option<A>> + Sync,
) -> Vec<io::Result<Option<A>>> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut buffers = Buffers::default();
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(item, &mut buffers)));
        }
    };
    let failed = || Err(io::Error::other("the thread that read it failed"));
    let mut answers: Vec<io::Result<Option<A>>> = items.iter().map(|_| failed()).collect();
    let threads = THREADS.min(items.len());
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, run).ok())
            .collect();
        let mut done = run();
        for other in others {
            // Where a thread failed its files count as unreadable, and the next scan reads them again.
            done.extend(other.join().unwrap_or_default());
        }
        for (index, answer) in done {
            answers[index] = answer;
        }
    });
    answers
}

/// The transcripts in the folders below `projects`.
fn find_claude(root: &Path, unreadable: &mut Vec<PathBuf>) -> Vec<Found> {
    let is_session = |name: &str| name.ends_with(".jsonl") && !name.starts_with(SUBAGENT_PREFIX);
    let folders = folders_in(&root.join("projects"), unreadable);
    find_in(&folders, is_session, unreadable)
}

/// The rollouts below `sessions` and `archived_sessions`, however deep.
fn find_codex(root: &Path, unreadable: &mut Vec<PathBuf>) -> Vec<Found> {
    let mut folders = Vec::new();
    let mut left: Vec<PathBuf> = ["sessions", "archived_sessions"]
        .iter()
        .map(|name| root.join(name))
        .filter(|folder| folder.exists())
        .collect();
    let mut seen = HashSet::new();
    while let Some(folder) = left.pop() {
        // By a link a folder may stand within itself.
        let Ok(metadata) = fs::metadata(&folder) else {
            continue;
        };
        if !seen.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        left.extend(folders_in(&folder, unreadable));
        folders.push(folder);
    }
    find_in(&folders, |name| rollout_name(name).is_some(), unreadable)
}

/// The folders in a folder, links to folders among them, sorted; none when there is no such folder.
fn folders_in(folder: &Path, unreadable: &mut Vec<PathBuf>) -> Vec<PathBuf> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                unreadable.push(folder.to_owned());
            }
            return Vec::new();
        }
    };
    let mut folders = Vec::new();
    for entry in entries {
        let Ok(entry) = entry else {
            unreadable.push(folder.to_owned());
            break;
        };
        let is_folder = match entry.file_type() {
            Ok(kind) if kind.is_symlink() => {
                fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir())
            }
            Ok(kind) => kind.is_dir(),
            Err(_) => false,
        };
        if is_folder {
            folders.push(entry.path());
        }
    }
    folders.sort();
    folders
}

/// The files in these folders whose names are wanted, each once: a folder may be reached by several links.
fn find_in(
    folders: &[PathBuf],
    is_wanted: impl Fn(&str) -> bool + Sync,
    unreadable: &mut Vec<PathBuf>,
) -> Vec<Found> {
    let looked = on_threads(folders, |folder, _| files_in(folder, &is_wanted).map(Some));
    let mut all = Vec::new();
    for (folder, looked) in folders.iter().zip(looked) {
        match looked {
            Ok(files) => all.extend(files.into_iter().flatten()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => unreadable.push(folder.clone()),
        }
    }
    let mut seen = HashSet::with_capacity(all.len());
    all.retain(|found| {
        let name = found.path.file_name().map(ToOwned::to_owned);
        seen.insert((found.stat.device, found.stat.inode, name))
    });
    all
}

fn files_in(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<Found>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(&is_wanted) {
            continue;
        }
        let path = entry.path();
        let metadata = match entry.metadata() {
            Ok(metadata) if metadata.is_symlink() => fs::metadata(&path),
            metadata => metadata,
        };
        // What cannot be looked at has vanished, or is a link that leads nowhere.
        if let Ok(metadata) = metadata
            && metadata.is_file()
        {
            let stat = Stat::of(&metadata);
            files.push(Found { path, stat });
        }
    }
    Ok(files)
}

/// What a list tells of a file; none when it has no id.
fn entry(found: &Found, format: Format, buffers: &mut Buffers) -> io::Result<Option<ShelfEntry>> {
    let Some(name) = found.path.file_name().and_then(|name| name.to_str()) else {
        return Ok(None);
    };
    let (id, summary) = match format {
        Format::Claude => {
            let id = name.strip_suffix(".jsonl").unwrap_or(name).to_owned();
            (id, read(found, summary::claude, buffers)?)
        }
        Format::Codex => {
            let Some(name) = rollout_name(name) else {
                return Ok(None);
            };
            let mut summary = TranscriptSummary::default();
            // A compressed one is told by its name and its stat.
            if !name.compressed {
                summary = read(found, codex::summary, buffers)?;
            }
            let id = summary.upstream_id.take();
            (id.unwrap_or_else(|| name.upstream_id.to_owned()), summary)
        }
    };
    if id.is_empty() {
        return Ok(None);
    }
    let modified = found.stat.modified_at();
    let told = summary.last_at.and_then(|at| at.parse::<Timestamp>().ok());
    Ok(Some(ShelfEntry {
        upstream_id: id,
        path: found.path.clone(),
        bytes: found.stat.bytes,
        // No record is younger than its file, whatever it says of itself.
        updated_at: told.map_or(modified, |told| told.min(modified)),
        title: summary.title.unwrap_or_default(),
        cwd: summary.cwd.unwrap_or_default(),
        forked_from: summary.forked_from,
    }))
}

/// Reads the ends of a file and summarises them; further in when the first prompt does not stand in the beginning.
fn read(
    found: &Found,
    summarise: impl Fn(Ends<'_>) -> TranscriptSummary,
    buffers: &mut Buffers,
) -> io::Result<TranscriptSummary> {
    // Without waiting: a pipe in a file's place would never open.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(&found.path)?;
    let bytes = found.stat.bytes;
    let both = 2 * END_BYTES as u64;
    let head_bytes = if bytes <= both { both } else { END_BYTES as u64 };
    read_at(&file, 0, head_bytes, &mut buffers.head)?;
    buffers.tail.clear();
    if bytes > both {
        read_at(
            &file,
            bytes - END_BYTES as u64,
            END_BYTES as u64,
            &mut buffers.tail,
        )?;
    }
    let summary = summarise(Ends {
        head: &buffers.head,
        tail: &buffers.tail,
    });
    if summary.title.is_some() || bytes <= both {
        return Ok(summary);
    }
    read_at(&file, 0, FAR_HEAD_BYTES as u64, &mut buffers.head)?;
    Ok(summarise(Ends {
        head: &buffers.head,
        tail: &buffers.tail,
    }))
}

/// Reads `limit` bytes from a place on, fewer where the file ends before.
fn read_at(file: &File, offset: u64, limit: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.resize(usize::try_from(limit).unwrap_or(0), 0);
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(())
}

impl Stat {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn modified_at(self) -> Timestamp {
        let (seconds, nanoseconds) = self.modified;
        let at = Timestamp::new(seconds, i32::try_from(nanoseconds).unwrap_or(0));
        at.unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests;

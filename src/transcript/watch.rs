//! Watching the folders of transcripts, by the crate `notify`: inotify, FSEvents, kqueue.
//!
//! Owns which folders are watched, and the paths that something has happened to until they are asked for. A thread of
//! `notify` hears of them, late and merged; what became of a path is seen by looking at it when it is asked for. What is
//! kept is bounded: past a limit, and when the system lost events, everything may have changed and is watched anew. Where
//! folders cannot be watched it says so, and a reader looks for itself. Blocks; knows neither what stands in the files nor
//! conversations.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::ModifyKind;
use notify::{Config, ErrorKind, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::transcript_list::Format;

/// How many paths wait until they are asked for. More than are touched in the milliseconds until then; past it all files
/// are looked at, which takes some milliseconds for thousands of them.
const PENDING_PATH_LIMIT: usize = 4_096;

/// How often the nearest folder is looked for that is there, when another one comes meanwhile. One that is there and
/// cannot be watched would be looked for without end.
const NEAREST_FOLDER_ATTEMPTS: usize = 4;

/// What has changed below a root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Anything may have changed; what else is here is a part of it.
    pub is_everything: bool,
    /// Folders that came, went, or have to be looked at as a whole.
    pub folders: BTreeSet<PathBuf>,
    /// Files that came, went or changed.
    pub files: BTreeSet<PathBuf>,
}

/// The changes below one root.
#[derive(Debug, PartialEq, Eq)]
pub struct RootChanges {
    /// The root.
    pub root: PathBuf,
    /// The form of its transcripts.
    pub format: Format,
    /// What has changed.
    pub changes: Changes,
}

/// The folders of all roots.
#[derive(Debug)]
pub struct TranscriptWatcher {
    watcher: io::Result<RecommendedWatcher>,
    pending: Arc<Mutex<PendingEvents>>,
    roots: Vec<WatchedRoot>,
    /// The watched folders, by path without links: so the system calls them.
    folders: HashMap<PathBuf, WatchedFolder>,
}

#[derive(Debug)]
struct WatchedRoot {
    path: PathBuf,
    format: Format,
    /// Why not all of it is watched.
    problem: Option<String>,
}

#[derive(Debug)]
struct WatchedFolder {
    number: FileNumber,
    /// The paths by which roots lead to it: several, where there are links.
    root_paths: BTreeSet<PathBuf>,
}

/// Which file it is: device and inode.
type FileNumber = (u64, u64);

/// What the system told and nobody has asked for yet.
#[derive(Debug, Default)]
struct PendingEvents {
    /// Paths, and whether something may have gone from there.
    paths: BTreeMap<PathBuf, bool>,
    /// Whether anything may have happened to any path.
    is_lost: bool,
}

/// What a path is for a root.
#[derive(Debug, PartialEq, Eq)]
enum PathRole {
    /// On the way to its folders: it may be another root now.
    AboveFolders,
    /// A folder of transcripts.
    Folder,
    /// A transcript.
    File,
    /// Nothing that holds or is a transcript.
    Irrelevant,
}

impl Changes {
    /// Whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.is_everything && self.folders.is_empty() && self.files.is_empty()
    }
}

impl PendingEvents {
    /// Takes what the system tells; false when nobody has to know.
    fn add_event(&mut self, event: notify::Result<notify::Event>) -> bool {
        match event {
            Ok(event) if event.need_rescan() => self.mark_lost(),
            Ok(event) if is_irrelevant(&event) => return false,
            Ok(event) => {
                let may_be_gone = !matches!(
                    event.kind,
                    EventKind::Create(_) | EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_))
                );
                for path in event.paths {
                    *self.paths.entry(path).or_default() |= may_be_gone;
                }
                if self.paths.len() > PENDING_PATH_LIMIT {
                    self.mark_lost();
                }
            }
            Err(error) => {
                tracing::debug!(%error, "changes of transcripts may have been missed");
                self.mark_lost();
            }
        }
        true
    }

    fn mark_lost(&mut self) {
        self.paths.clear();
        self.is_lost = true;
    }
}

/// The daemon's own looks, and what is written to other files: somebody's home may stand on the way to a root.
fn is_irrelevant(event: &notify::Event) -> bool {
    let is_transcript = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| Format::ALL.iter().any(|format| format.is_transcript(name)))
    };
    match event.kind {
        EventKind::Access(_) => true,
        EventKind::Modify(ModifyKind::Data(_)) => !event.paths.iter().any(is_transcript),
        _ => false,
    }
}

impl TranscriptWatcher {
    /// A watch of nothing, which calls `wake` from a thread of its own when there is something to ask for.
    #[must_use]
    pub fn new(wake: impl Fn() + Send + 'static) -> Self {
        let pending = Arc::new(Mutex::new(PendingEvents::default()));
        let told = Arc::clone(&pending);
        let hear = move |event| {
            if lock(&told).add_event(event) {
                wake();
            }
        };
        let watcher = RecommendedWatcher::new(hear, Config::default()).map_err(io_error);
        if let Err(error) = &watcher {
            tracing::warn!(%error, "cannot watch transcripts for changes; only turns of this daemon are reported as saved");
        }
        Self {
            watcher,
            pending,
            roots: Vec::new(),
            folders: HashMap::new(),
        }
    }

    /// Watches the transcripts below a root, whether it is there yet or not. Nothing is said of what was there before.
    pub fn add_root(&mut self, path: &Path, format: Format) {
        if self.roots.iter().any(|root| root.path == path) {
            return;
        }
        self.roots.push(WatchedRoot {
            path: path.to_owned(),
            format,
            problem: None,
        });
        self.rewatch_root(self.roots.len() - 1);
    }

    /// What has changed below all roots since this was asked last.
    pub fn take_changes(&mut self) -> Vec<RootChanges> {
        let pending = std::mem::take(&mut *lock(&self.pending));
        let mut all: Vec<Changes> = self.roots.iter().map(|_| Changes::default()).collect();
        if pending.is_lost {
            // What took the place of a folder meanwhile may look like it.
            self.unwatch(Path::new("/"));
            all.iter_mut().for_each(|changes| changes.is_everything = true);
        }
        for (path, may_be_gone) in pending.paths {
            self.handle_path(&path, may_be_gone, &mut all);
        }
        for (index, changes) in all.iter().enumerate() {
            if changes.is_everything {
                self.rewatch_root(index);
            }
        }
        let heard = self.roots.iter().zip(all).map(|(root, changes)| RootChanges {
            root: root.path.clone(),
            format: root.format,
            changes,
        });
        heard.filter(|heard| !heard.changes.is_empty()).collect()
    }

    /// Whether every change is heard of.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.problems().next().is_none()
    }

    /// The roots of which not everything is watched, and why.
    pub fn problems(&self) -> impl Iterator<Item = (&Path, String)> {
        let failure = self.watcher.as_ref().err();
        self.roots.iter().filter_map(move |root| {
            let problem = failure.map(io::Error::to_string).or_else(|| root.problem.clone());
            Some((root.path.as_path(), problem?))
        })
    }

    /// Notes what has become of a path, by the system's name for it.
    fn handle_path(&mut self, path: &Path, may_be_gone: bool, all: &mut [Changes]) {
        let metadata = fs::symlink_metadata(path).ok();
        let known = self.folders.get(path).map(|folder| folder.root_paths.clone());
        for place in known.iter().flatten() {
            self.add_change(place, true, all);
            if may_be_gone || metadata.is_none() {
                // One that was moved goes on being watched where it is now, and another one may be in its place.
                self.unwatch(place);
            }
        }
        if known.is_some() && metadata.is_none() {
            return;
        }
        let above = path.parent().and_then(|above| self.folders.get(above));
        let Some((above, name)) = above.zip(path.file_name()) else {
            return;
        };
        let is_folder = metadata.is_some_and(|metadata| metadata.is_dir());
        for place in above.root_paths.clone() {
            self.add_change(&place.join(name), is_folder, all);
        }
    }

    /// Notes a change at a path, by a root's name for it.
    fn add_change(&mut self, path: &Path, is_folder: bool, all: &mut [Changes]) {
        for (index, changes) in all.iter_mut().enumerate() {
            let root = &self.roots[index];
            match root.role_of(path, is_folder) {
                PathRole::AboveFolders => changes.is_everything = true,
                PathRole::Folder => {
                    changes.folders.insert(path.to_owned());
                    // Before anybody looks into it: what comes from now on is told, what was there is found by looking.
                    let watched = self.watch_tree(path, root.format);
                    // Watched anew it says why not.
                    changes.is_everything |= watched.is_err();
                }
                PathRole::File => {
                    changes.files.insert(path.to_owned());
                }
                PathRole::Irrelevant => {}
            }
        }
    }

    /// Watches a folder no longer, nor what was below it, by a root's name for it.
    fn unwatch(&mut self, path: &Path) {
        let gone = self.folders.extract_if(|_, folder| {
            folder.root_paths.retain(|place| !place.starts_with(path));
            folder.root_paths.is_empty()
        });
        for (folder, _) in gone {
            if let Ok(watcher) = &mut self.watcher {
                // One that is gone has ended by itself.
                let _ended = watcher.unwatch(&folder);
            }
        }
    }

    /// Watches everything of a root anew, from the nearest folder on the way to it that is there.
    fn rewatch_root(&mut self, index: usize) {
        let (path, format) = (self.roots[index].path.clone(), self.roots[index].format);
        let mut failure = self.watch_nearest(&path).err();
        for top in format.tops(&path) {
            let watched = self
                .watch_nearest(&top)
                .and_then(|()| self.watch_tree(&top, format));
            failure = failure.or(watched.err());
        }
        let problem = match failure {
            Some(error) => Some(error.to_string()),
            None if is_remote(&path) => {
                Some("it is on a file system that other machines write to".to_owned())
            }
            None => None,
        };
        let before = std::mem::replace(&mut self.roots[index].problem, problem.clone());
        if let (None, Some(problem)) = (before, problem) {
            tracing::warn!(
                root = %path.display(), problem,
                "cannot watch these transcripts for changes; only turns of this daemon are reported as saved"
            );
        }
    }

    /// Watches a folder, or the nearest one above it that is there.
    fn watch_nearest(&mut self, wanted: &Path) -> io::Result<()> {
        'again: for _ in 0..NEAREST_FOLDER_ATTEMPTS {
            let mut below = None;
            for folder in wanted.ancestors() {
                if self.watch(folder)? {
                    // It may have come before the folder above it was watched.
                    if below.is_some_and(Path::is_dir) {
                        continue 'again;
                    }
                    return Ok(());
                }
                below = Some(folder);
            }
        }
        Ok(())
    }

    /// Watches the folders of transcripts from here on down.
    fn watch_tree(&mut self, folder: &Path, format: Format) -> io::Result<()> {
        let mut seen = HashSet::new();
        let mut left = vec![folder.to_owned()];
        while let Some(folder) = left.pop() {
            // By a link a folder may stand within itself.
            let is_new =
                self.watch(&folder)? && file_number(&folder).is_some_and(|number| seen.insert(number));
            if !is_new || !self.has_folders(&folder, format) {
                continue;
            }
            // One that cannot be read is told of by the lists.
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries.flatten() {
                let kind = entry.file_type();
                if kind.is_ok_and(|kind| kind.is_dir() || kind.is_symlink()) {
                    left.push(entry.path());
                }
            }
        }
        Ok(())
    }

    /// Whether there may be folders of transcripts in a folder.
    fn has_folders(&self, folder: &Path, format: Format) -> bool {
        let Some(levels) = format.dialect().layout().folders else {
            return true;
        };
        let is_above = |top: PathBuf| {
            let inside = folder.strip_prefix(top);
            inside.is_ok_and(|inside| inside.components().count() < levels.len())
        };
        let mut roots = self.roots.iter().filter(|root| root.format == format);
        roots.any(|root| format.tops(&root.path).into_iter().any(is_above))
    }

    /// Watches one folder; false when there is none here, or none that may be read.
    fn watch(&mut self, folder: &Path) -> io::Result<bool> {
        let (Ok(watcher), Ok(path)) = (&mut self.watcher, fs::canonicalize(folder)) else {
            return Ok(false);
        };
        let Some(number) = file_number(&path).filter(|_| path.is_dir()) else {
            return Ok(false);
        };
        if let Some(known) = self.folders.get_mut(&path) {
            if known.number == number {
                known.root_paths.insert(folder.to_owned());
                return Ok(true);
            }
            // One that is gone has ended by itself.
            let _ended = watcher.unwatch(&path);
        }
        if let Err(error) = watcher
            .watch(&path, RecursiveMode::NonRecursive)
            .map_err(io_error)
        {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(false),
                io::ErrorKind::StorageFull => Err(io::Error::other(
                    "the system's limit of watched folders is reached (fs.inotify.max_user_watches)",
                )),
                _ => Err(error),
            };
        }
        let known = self.folders.entry(path);
        let known = known.or_insert_with(|| WatchedFolder {
            number,
            root_paths: BTreeSet::new(),
        });
        known.number = number;
        known.root_paths.insert(folder.to_owned());
        Ok(true)
    }
}

impl WatchedRoot {
    fn role_of(&self, path: &Path, is_folder: bool) -> PathRole {
        for top in self.format.tops(&self.path) {
            if top.starts_with(path) {
                return PathRole::AboveFolders;
            }
            let Ok(inside) = path.strip_prefix(&top) else {
                continue;
            };
            let depth = inside.components().count();
            let name = inside.file_name().and_then(|name| name.to_str());
            let layout = self.format.dialect().layout();
            let is_its_folder = layout.has_folder(depth, name);
            let has_its_name = || name.is_some_and(|name| self.format.is_transcript(name));
            return if is_folder {
                match is_its_folder {
                    true => PathRole::Folder,
                    false => PathRole::Irrelevant,
                }
            } else if layout.has_files(depth - 1) && has_its_name() {
                PathRole::File
            } else if is_its_folder && (layout.folders.is_some() || path.is_symlink()) {
                // A link may lead to a folder, and one that is gone may have.
                PathRole::AboveFolders
            } else {
                PathRole::Irrelevant
            };
        }
        PathRole::Irrelevant
    }
}

fn file_number(path: &Path) -> Option<FileNumber> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// What was heard is whole after any panic.
fn lock(pending: &Mutex<PendingEvents>) -> MutexGuard<'_, PendingEvents> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

fn io_error(error: notify::Error) -> io::Error {
    match error.kind {
        ErrorKind::Io(error) => error,
        ErrorKind::PathNotFound => io::ErrorKind::NotFound.into(),
        ErrorKind::MaxFilesWatch => io::ErrorKind::StorageFull.into(),
        _ => io::Error::other(error),
    }
}

/// Whether other machines may write to a file system, of which the system here tells nothing.
#[cfg(target_os = "linux")]
fn is_remote(path: &Path) -> bool {
    /// Numbers of NFS, SMB, CIFS, SMB 2, FUSE, 9P, Ceph, AFS, VirtualBox' folders, Lustre.
    const REMOTE: [u32; 10] = [
        0x6969,
        0x517B,
        0xFF53_4D42,
        0xFE53_4D42,
        0x6573_5546,
        0x0102_1997,
        0x00C3_6400,
        0x5346_414F,
        0x786F_4256,
        0x0BD0_0BD0,
    ];
    let system = rustix::fs::statfs(path);
    system.is_ok_and(|system| {
        REMOTE
            .iter()
            .any(|remote| i128::from(system.f_type) == i128::from(*remote))
    })
}

/// The same where it is not known.
#[cfg(not(target_os = "linux"))]
fn is_remote(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests;

//! Watches the folders of transcripts with the crate `notify`: inotify, FSEvents, kqueue.
//!
//! A thread of `notify` receives the events, late and merged, and collects the changed paths. The caller takes them
//! later, and a stat then shows what happened to each. The number of pending paths is bounded: above a limit, or if the
//! system lost events, everything may have changed and is watched anew. If folders cannot be watched, the watcher
//! reports that, and the caller must poll. Blocks. This module does not know the content of the files or conversations.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::ModifyKind;
use notify::{Config, ErrorKind, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::transcript_list::Format;

/// How many changed paths are stored until they are taken: more than change in the milliseconds until then. Above it all
/// files are checked, which takes some milliseconds for thousands of them.
const PENDING_PATH_LIMIT: usize = 4_096;

/// How often the search for the nearest existing folder is repeated if another one appears meanwhile. Without a
/// limit a folder that exists and cannot be watched would be searched for forever.
const NEAREST_FOLDER_ATTEMPTS: usize = 4;

/// The changes below a root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Anything may have changed; the other fields are a part of it.
    pub is_everything: bool,
    /// Folders that appeared, disappeared, or have to be read completely.
    pub folders: BTreeSet<PathBuf>,
    /// Files that appeared, disappeared or changed.
    pub files: BTreeSet<PathBuf>,
}

/// The changes below one root.
#[derive(Debug, PartialEq, Eq)]
pub struct RootChanges {
    /// The root.
    pub root: PathBuf,
    /// The format of its transcripts.
    pub format: Format,
    /// The changes.
    pub changes: Changes,
}

/// Watches the folders of all roots.
#[derive(Debug)]
pub struct TranscriptWatcher {
    watcher: io::Result<RecommendedWatcher>,
    pending: Arc<Mutex<PendingEvents>>,
    roots: Vec<WatchedRoot>,
    /// The watched folders, by their path without links, which is the path that the system reports.
    folders: HashMap<PathBuf, WatchedFolder>,
}

#[derive(Debug)]
struct WatchedRoot {
    path: PathBuf,
    format: Format,
    /// Why a part of the root is not watched.
    problem: Option<String>,
}

#[derive(Debug)]
struct WatchedFolder {
    number: FileNumber,
    /// The paths by which roots reach the folder: several if there are links.
    root_paths: BTreeSet<PathBuf>,
}

/// Identifies a file: device and inode.
type FileNumber = (u64, u64);

/// The system's events that were not taken yet.
#[derive(Debug, Default)]
struct PendingEvents {
    /// The changed paths, and whether each may have been deleted or moved away.
    paths: BTreeMap<PathBuf, bool>,
    /// Whether events were lost, so that anything may have changed.
    has_lost_events: bool,
}

/// The role of a path for a root.
#[derive(Debug, PartialEq, Eq)]
enum PathRole {
    /// Above its folders: the path may lead to another root now.
    AboveFolders,
    /// A folder of transcripts.
    Folder,
    /// A transcript.
    File,
    /// Neither contains nor is a transcript.
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
    /// Adds an event of the system. `false` if it does not matter.
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
        self.has_lost_events = true;
    }
}

/// Whether the event is caused by the daemon's own reads, or by writes to other files: a folder above a root may be a user's
/// home.
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
    /// Creates a watcher without roots. It calls `wake` from a thread of its own when there are changes to take.
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

    /// Watches the transcripts below a root, which may not exist yet. Existing transcripts are not reported.
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

    /// Takes the changes below all roots since the last call.
    pub fn take_changes(&mut self) -> Vec<RootChanges> {
        let pending = std::mem::take(&mut *lock(&self.pending));
        let mut changes_by_root: Vec<Changes> = self.roots.iter().map(|_| Changes::default()).collect();
        if pending.has_lost_events {
            // A folder may have been replaced by another one at the same path.
            self.unwatch(Path::new("/"));
            changes_by_root
                .iter_mut()
                .for_each(|changes| changes.is_everything = true);
        }
        for (path, may_be_gone) in pending.paths {
            self.handle_path(&path, may_be_gone, &mut changes_by_root);
        }
        for (index, changes) in changes_by_root.iter().enumerate() {
            if changes.is_everything {
                self.rewatch_root(index);
            }
        }
        let root_changes = self
            .roots
            .iter()
            .zip(changes_by_root)
            .map(|(root, changes)| RootChanges {
                root: root.path.clone(),
                format: root.format,
                changes,
            });
        root_changes
            .filter(|root_changes| !root_changes.changes.is_empty())
            .collect()
    }

    /// Whether every change is noticed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.problems().next().is_none()
    }

    /// The roots that are not watched completely, and why.
    pub fn problems(&self) -> impl Iterator<Item = (&Path, String)> {
        let failure = self.watcher.as_ref().err();
        self.roots.iter().filter_map(move |root| {
            let problem = failure.map(io::Error::to_string).or_else(|| root.problem.clone());
            Some((root.path.as_path(), problem?))
        })
    }

    /// Records what happened to a path, which is the system's name for it.
    fn handle_path(&mut self, path: &Path, may_be_gone: bool, changes_by_root: &mut [Changes]) {
        let metadata = fs::symlink_metadata(path).ok();
        let root_paths = self.folders.get(path).map(|folder| folder.root_paths.clone());
        for root_path in root_paths.iter().flatten() {
            self.add_change(root_path, true, changes_by_root);
            if may_be_gone || metadata.is_none() {
                // A folder that was moved is still watched at its new path, and another one may be in its place.
                self.unwatch(root_path);
            }
        }
        if root_paths.is_some() && metadata.is_none() {
            return;
        }
        let parent = path.parent().and_then(|parent| self.folders.get(parent));
        let Some((parent, name)) = parent.zip(path.file_name()) else {
            return;
        };
        let is_folder = metadata.is_some_and(|metadata| metadata.is_dir());
        for root_path in parent.root_paths.clone() {
            self.add_change(&root_path.join(name), is_folder, changes_by_root);
        }
    }

    /// Records a change at a path, which is the root's name for it.
    fn add_change(&mut self, path: &Path, is_folder: bool, all: &mut [Changes]) {
        for (index, changes) in all.iter_mut().enumerate() {
            let root = &self.roots[index];
            match root.role_of(path, is_folder) {
                PathRole::AboveFolders => changes.is_everything = true,
                PathRole::Folder => {
                    changes.folders.insert(path.to_owned());
                    // Watch before anyone reads the folder: later changes are then reported, and earlier ones are found by
                    // reading it.
                    let watched = self.watch_tree(path, root.format);
                    // Watching the root anew reports why this failed.
                    changes.is_everything |= watched.is_err();
                }
                PathRole::File => {
                    changes.files.insert(path.to_owned());
                }
                PathRole::Irrelevant => {}
            }
        }
    }

    /// Stops watching a folder and everything below it. `path` is the root's name for it.
    fn unwatch(&mut self, path: &Path) {
        let gone = self.folders.extract_if(|_, folder| {
            folder.root_paths.retain(|place| !place.starts_with(path));
            folder.root_paths.is_empty()
        });
        for (folder, _) in gone {
            if let Ok(watcher) = &mut self.watcher {
                // The watch of a deleted folder has ended already.
                let _ended = watcher.unwatch(&folder);
            }
        }
    }

    /// Watches everything of a root anew, starting at its nearest folder that exists.
    fn rewatch_root(&mut self, index: usize) {
        let (path, format) = (self.roots[index].path.clone(), self.roots[index].format);
        let mut failure = self.watch_nearest(&path).err();
        for top in format.top_folders(&path) {
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

    /// Watches a folder, or the nearest existing folder above it.
    fn watch_nearest(&mut self, wanted: &Path) -> io::Result<()> {
        'again: for _ in 0..NEAREST_FOLDER_ATTEMPTS {
            let mut missing_child = None;
            for folder in wanted.ancestors() {
                if self.watch(folder)? {
                    // The folder may have been created before its parent was watched.
                    if missing_child.is_some_and(Path::is_dir) {
                        continue 'again;
                    }
                    return Ok(());
                }
                missing_child = Some(folder);
            }
        }
        Ok(())
    }

    /// Watches the folders of transcripts at and below this folder.
    fn watch_tree(&mut self, folder: &Path, format: Format) -> io::Result<()> {
        let mut seen = HashSet::new();
        let mut pending = vec![folder.to_owned()];
        while let Some(folder) = pending.pop() {
            // A link can make a folder contain itself.
            let is_new =
                self.watch(&folder)? && file_number(&folder).is_some_and(|number| seen.insert(number));
            if !is_new || !self.has_folders(&folder, format) {
                continue;
            }
            // A folder that cannot be read is reported by the lists.
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries.flatten() {
                let kind = entry.file_type();
                if kind.is_ok_and(|kind| kind.is_dir() || kind.is_symlink()) {
                    pending.push(entry.path());
                }
            }
        }
        Ok(())
    }

    /// Whether a folder may contain folders of transcripts.
    fn has_folders(&self, folder: &Path, format: Format) -> bool {
        let Some(levels) = format.dialect().layout().folders else {
            return true;
        };
        let is_above = |top: PathBuf| {
            let inside = folder.strip_prefix(top);
            inside.is_ok_and(|inside| inside.components().count() < levels.len())
        };
        let mut roots = self.roots.iter().filter(|root| root.format == format);
        roots.any(|root| format.top_folders(&root.path).into_iter().any(is_above))
    }

    /// Watches one folder. `false` if it is missing or must not be read.
    fn watch(&mut self, folder: &Path) -> io::Result<bool> {
        let (Ok(watcher), Ok(path)) = (&mut self.watcher, fs::canonicalize(folder)) else {
            return Ok(false);
        };
        let Some(number) = file_number(&path).filter(|_| path.is_dir()) else {
            return Ok(false);
        };
        if let Some(watched_folder) = self.folders.get_mut(&path) {
            if watched_folder.number == number {
                watched_folder.root_paths.insert(folder.to_owned());
                return Ok(true);
            }
            // The watch of a deleted folder has ended already.
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
        let watched_folder = self.folders.entry(path);
        let watched_folder = watched_folder.or_insert_with(|| WatchedFolder {
            number,
            root_paths: BTreeSet::new(),
        });
        watched_folder.number = number;
        watched_folder.root_paths.insert(folder.to_owned());
        Ok(true)
    }
}

impl WatchedRoot {
    fn role_of(&self, path: &Path, is_folder: bool) -> PathRole {
        for top in self.format.top_folders(&self.path) {
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
                // A link may lead to a folder, and a deleted entry may have been one.
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

/// The events stay consistent after a panic.
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

/// Whether a file system may be changed by other machines, which this system does not report.
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

/// Unknown on this system.
#[cfg(not(target_os = "linux"))]
fn is_remote(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests;

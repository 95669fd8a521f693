//! Watching the folders of transcripts, so that what changes in them is known without looking at everything again.
//!
//! Owns which folders are watched and what has changed in them since each of its two readers asked last: lists, which
//! bring what they know up to date, and whoever tells of single transcripts. Everything that happened before a question is
//! in the answer. What is kept is bounded: past a limit the answer is that everything may have changed. Where folders
//! cannot be watched it says so, and a reader looks for itself. Blocks; knows neither what stands in the files nor
//! conversations.

mod kernel;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kernel::{FolderNumber, Kernel, Reach, Told, What};

use super::shelf::Format;

/// How many changed paths are kept for a reader. More than an agent touches between two lists; past it all files are
/// looked at, which takes some milliseconds for thousands of them.
const CHANGES: usize = 4_096;

/// How often the nearest folder is looked for that is there, when another one comes meanwhile. One that is there and
/// cannot be watched would be looked for without end.
const APPROACHES: usize = 4;

/// What has changed below a root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Anything may have changed; what else is here is a part of it.
    pub everything: bool,
    /// Folders that came, went, or have to be looked at as a whole.
    pub folders: BTreeSet<PathBuf>,
    /// Files that came, went or changed.
    pub files: BTreeSet<PathBuf>,
}

/// What has changed below one of the roots.
#[derive(Debug, PartialEq, Eq)]
pub struct Heard {
    /// The root.
    pub root: PathBuf,
    /// The form of its transcripts.
    pub format: Format,
    /// What has changed.
    pub changes: Changes,
}

/// The folders of all roots.
#[derive(Debug)]
pub struct Watch {
    kernel: io::Result<Box<dyn Kernel>>,
    roots: Vec<Root>,
    /// By links one folder may stand in several places.
    folders: HashMap<FolderNumber, BTreeSet<PathBuf>>,
}

/// A root and what is known of its folders.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    format: Format,
    /// Which folders stood at the top when they were watched last.
    tops: Vec<Option<FileNumber>>,
    /// Whether the way to its folders may have changed.
    is_loose: bool,
    /// Why not all of it is watched.
    problem: Option<String>,
    for_lists: Changes,
    for_ears: Changes,
}

/// What a file is known by.
type FileNumber = (u64, u64);

impl Changes {
    fn everything() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    /// Whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.everything && self.folders.is_empty() && self.files.is_empty()
    }

    fn add(&mut self, place: &Place) {
        if self.everything {
            return;
        }
        let is_new = match place {
            Place::Way => {
                *self = Self::everything();
                return;
            }
            Place::Folder(path) => self.folders.insert(path.clone()),
            Place::File(path) => self.files.insert(path.clone()),
            Place::Nothing => false,
        };
        if is_new && self.folders.len() + self.files.len() > CHANGES {
            *self = Self::everything();
        }
    }
}

/// What a path is for a root.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// On the way to its folders: it may be another root now.
    Way,
    /// A folder of transcripts.
    Folder(PathBuf),
    /// A transcript.
    File(PathBuf),
    /// Nothing that holds or is a transcript.
    Nothing,
}

impl Default for Watch {
    fn default() -> Self {
        Self::with(kernel::open())
    }
}

impl Watch {
    /// A watch by what every system has, which is what the default one is where there is no inotify.
    #[must_use]
    pub fn portable() -> Self {
        Self::with(kernel::portable())
    }

    fn with(kernel: io::Result<Box<dyn Kernel>>) -> Self {
        Self {
            kernel,
            roots: Vec::new(),
            folders: HashMap::new(),
        }
    }

    /// Something that is readable when something has happened.
    ///
    /// # Errors
    /// Why nothing can be watched.
    pub fn waker(&self) -> io::Result<OwnedFd> {
        match &self.kernel {
            Ok(kernel) => kernel.waker(),
            Err(error) => Err(error.kind().into()),
        }
    }

    /// Watches the transcripts below a root, whether it is there yet or not. Nothing is said of what was there before.
    pub fn add_root(&mut self, path: &Path, format: Format) {
        if self.roots.iter().any(|root| root.path == path) {
            return;
        }
        self.roots.push(Root {
            path: path.to_owned(),
            format,
            tops: Vec::new(),
            is_loose: true,
            problem: None,
            for_lists: Changes::everything(),
            for_ears: Changes::default(),
        });
        self.tie(self.roots.len() - 1);
    }

    /// What has changed below a root since this was asked last; none where that is not known and everything has to be
    /// looked at, as where the system may tell of it later.
    pub fn for_list(&mut self, path: &Path) -> Option<Changes> {
        self.hear();
        let index = self.roots.iter().position(|root| root.path == path)?;
        let root = &self.roots[index];
        // What is above the folders that are watched may have been moved or linked to another place.
        if root.tops != tops(&root.path, root.format) {
            self.roots[index].set_everything();
            self.tie(index);
            self.hear();
        }
        let root = &mut self.roots[index];
        let changes = std::mem::take(&mut root.for_lists);
        let is_told = self.kernel.as_ref().is_ok_and(|kernel| kernel.tells_at_once());
        let is_known = is_told && root.problem.is_none();
        is_known.then_some(changes)
    }

    /// What has changed below all roots since this was asked last.
    pub fn heard(&mut self) -> Vec<Heard> {
        self.hear();
        let changed = self.roots.iter_mut().filter(|root| !root.for_ears.is_empty());
        changed
            .map(|root| Heard {
                root: root.path.clone(),
                format: root.format,
                changes: std::mem::take(&mut root.for_ears),
            })
            .collect()
    }

    /// Whether something was heard that [`Watch::heard`] has still to tell. Who asked for a list may have taken it in before
    /// the waker told of it, which then stays silent.
    #[must_use]
    pub fn has_heard(&self) -> bool {
        self.roots.iter().any(|root| !root.for_ears.is_empty())
    }

    /// Whether every change is heard of.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.kernel.is_ok() && self.roots.iter().all(|root| root.problem.is_none())
    }

    /// Why not everything below a root is watched.
    #[must_use]
    pub fn problem(&self, path: &Path) -> Option<String> {
        if let Err(error) = &self.kernel {
            return Some(error.to_string());
        }
        let root = self.roots.iter().find(|root| root.path == path)?;
        root.problem.clone()
    }

    /// Takes in what the system has to tell.
    fn hear(&mut self) {
        let mut all = Vec::new();
        let read = match &mut self.kernel {
            Ok(kernel) => kernel.read(&mut |told| all.push(told)),
            Err(_) => return,
        };
        for told in all {
            self.told(told);
        }
        if let Err(error) = read {
            tracing::warn!(%error, "changes of transcripts cannot be watched any more; lists look at all files from now on");
            self.kernel = Err(error);
        }
        for index in 0..self.roots.len() {
            if self.roots[index].is_loose {
                self.tie(index);
            }
        }
    }

    fn told(&mut self, told: Told) {
        match told {
            Told::Lost => {
                for root in &mut self.roots {
                    root.set_everything();
                    root.is_loose = true;
                }
            }
            Told::Ended(folder) => {
                self.folders.remove(&folder);
            }
            Told::Happened {
                folder,
                name,
                is_folder,
                what,
            } => {
                let places = self.folders.get(&folder).cloned().unwrap_or_default();
                let is_folder = is_folder || name.is_none();
                for folder in places {
                    let path = name
                        .as_ref()
                        .map_or_else(|| folder.clone(), |name| folder.join(name));
                    self.happened(&path, is_folder, what);
                }
            }
        }
    }

    fn happened(&mut self, path: &Path, is_folder: bool, what: What) {
        let (mut folder, mut is_way) = (None, false);
        for root in &mut self.roots {
            let place = root.place(path, is_folder);
            match &place {
                Place::Way => {
                    is_way = true;
                    root.is_loose = true;
                }
                Place::Folder(_) => folder = Some(root.format),
                Place::File(_) | Place::Nothing => {}
            }
            root.for_lists.add(&place);
            root.for_ears.add(&place);
        }
        if what == What::Went && (is_way || folder.is_some()) {
            // One that was moved goes on being watched where it is now.
            self.forget(path);
        } else if let Some(format) = folder
            // Before anybody looks into it: what comes from now on is told, what was there is found by looking.
            && self.watch_tree(path, format).is_err()
        {
            // Says why not.
            for root in self.roots.iter_mut().filter(|root| path.starts_with(&root.path)) {
                root.is_loose = true;
            }
        }
    }

    /// Watches a folder no longer, nor what was below it.
    fn forget(&mut self, path: &Path) {
        let Ok(kernel) = &mut self.kernel else { return };
        self.folders.retain(|number, places| {
            places.retain(|folder| !folder.starts_with(path));
            let is_gone = places.is_empty();
            if is_gone {
                kernel.remove(*number);
            }
            !is_gone
        });
    }

    /// Watches everything of a root anew, from the nearest folder on the way to it that is there.
    fn tie(&mut self, index: usize) {
        let root = &mut self.roots[index];
        root.is_loose = false;
        let (path, format) = (root.path.clone(), root.format);
        let had_problem = root.problem.take().is_some();
        let mut problem = self.approach(&path).err();
        for top in format.tops(&path) {
            problem = problem.or(self.approach(&top).err());
            if let Err(error) = self.watch_tree(&top, format) {
                problem = problem.or(Some(error));
            }
        }
        let remote = kernel::is_remote(&path);
        let root = &mut self.roots[index];
        // Read behind the watching: what replaces them from now on is told, or seen by comparing.
        root.tops = tops(&path, format);
        root.problem = match problem {
            Some(error) => Some(error.to_string()),
            None if remote => Some("it is on a file system that other machines write to".to_owned()),
            None => None,
        };
        if let Some(problem) = &root.problem
            && !had_problem
        {
            tracing::warn!(
                root = %path.display(), problem,
                "changes of these transcripts cannot be watched; lists look at all of them each time"
            );
        }
    }

    /// Watches a folder, or the nearest one above it that is there.
    fn approach(&mut self, wanted: &Path) -> io::Result<()> {
        'again: for _ in 0..APPROACHES {
            let mut below = None;
            for folder in wanted.ancestors() {
                if self.watch(folder, Reach::Folder)? {
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
            if !self.watch(&folder, Reach::Tree)? {
                continue;
            }
            // By a link a folder may stand within itself.
            let number = file_number(&folder);
            if !number.is_some_and(|number| seen.insert(number)) || !self.has_folders(&folder, format) {
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
        match format {
            Format::Claude => self
                .roots
                .iter()
                .any(|root| root.format == format && format.tops(&root.path).iter().any(|top| top == folder)),
            Format::Codex => true,
        }
    }

    /// Watches one folder; false when there is none here, or none that may be read.
    fn watch(&mut self, folder: &Path, reach: Reach) -> io::Result<bool> {
        let Ok(kernel) = &mut self.kernel else {
            return Ok(false);
        };
        match kernel.add(folder, reach) {
            Ok(number) => {
                self.folders.entry(number).or_default().insert(folder.to_owned());
                Ok(true)
            }
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::InvalidInput => Ok(false),
                io::ErrorKind::StorageFull => Err(io::Error::other(
                    "the system's limit of watched folders is reached (fs.inotify.max_user_watches)",
                )),
                _ => Err(error),
            },
        }
    }
}

impl Root {
    fn set_everything(&mut self) {
        self.for_lists = Changes::everything();
        self.for_ears = Changes::everything();
    }

    fn place(&self, path: &Path, is_folder: bool) -> Place {
        for top in self.format.tops(&self.path) {
            if top.starts_with(path) {
                return Place::Way;
            }
            let Ok(inside) = path.strip_prefix(&top) else {
                continue;
            };
            let depth = inside.components().count();
            let name = inside.file_name().and_then(|name| name.to_str());
            return match self.format {
                Format::Claude if depth == 1 && is_folder => Place::Folder(path.to_owned()),
                // A link may lead to a folder, and one that is gone may have.
                Format::Claude if depth == 1 => Place::Way,
                Format::Claude if depth != 2 || is_folder => Place::Nothing,
                Format::Codex if is_folder => Place::Folder(path.to_owned()),
                _ if name.is_some_and(|name| self.format.is_transcript(name)) => Place::File(path.to_owned()),
                Format::Codex if path.is_symlink() => Place::Way,
                _ => Place::Nothing,
            };
        }
        Place::Nothing
    }
}

/// Which folders stand at the top of a root now.
fn tops(root: &Path, format: Format) -> Vec<Option<FileNumber>> {
    format.tops(root).iter().map(|top| file_number(top)).collect()
}

fn file_number(path: &Path) -> Option<FileNumber> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests;

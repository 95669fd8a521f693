//! Any system, by the crate `notify`: FSEvents, kqueue, inotify.
//!
//! A thread of its own hears which paths something happened to; here they wait, each once, until they are read. What
//! became of a path is seen by looking at it then, since events come late, merged and, on some systems, with all that
//! ever happened to the path. Paths are told as they are without links. Past a limit, and when the system lost events,
//! everything counts as changed and is watched anew.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::ModifyKind;
use notify::{Config, ErrorKind, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::{FolderNumber, Kernel, Reach, Told, What};

/// Whether one watch of this system reaches all that is below a folder, at the cost of one.
pub(in super::super) const HAS_TREES: bool = cfg!(target_os = "macos");

/// How many paths wait until they are read. More than are touched in the milliseconds until then; past it everything is
/// looked at.
const PATHS: usize = 4_096;

/// The folders that are watched, and what was heard of them.
#[derive(Debug)]
pub(in super::super) struct Portable {
    // Its thread ends before what it writes to.
    watcher: RecommendedWatcher,
    heap: Arc<Mutex<Heap>>,
    has_trees: bool,
    /// By path without links.
    folders: HashMap<PathBuf, Folder>,
    paths: HashMap<FolderNumber, PathBuf>,
    last_number: FolderNumber,
}

#[derive(Debug, Clone, Copy)]
struct Folder {
    number: FolderNumber,
    device: u64,
    inode: u64,
    /// How far its own watch reaches; none where that of a folder above does.
    watched: Option<Reach>,
}

/// What was heard and not read yet.
#[derive(Debug)]
struct Heap {
    /// Paths, and whether something may have gone from there.
    paths: BTreeMap<PathBuf, bool>,
    is_lost: bool,
    /// Whether the waker is readable.
    is_awake: bool,
    sender: UnixStream,
    waker: UnixStream,
}

impl Heap {
    fn open() -> io::Result<Self> {
        let (sender, waker) = UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        Ok(Self {
            paths: BTreeMap::new(),
            is_lost: false,
            is_awake: false,
            sender,
            waker,
        })
    }

    fn hear(&mut self, event: notify::Result<notify::Event>) {
        match event {
            // The daemon's own looks.
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => return,
            Ok(event) if !event.need_rescan() => {
                let may_be_gone = !matches!(
                    event.kind,
                    EventKind::Create(_) | EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_))
                );
                for path in event.paths {
                    *self.paths.entry(path).or_default() |= may_be_gone;
                }
            }
            Ok(_) => self.is_lost = true,
            Err(error) => {
                tracing::debug!(%error, "changes of transcripts may have been missed");
                self.is_lost = true;
            }
        }
        if self.paths.len() > PATHS {
            self.paths.clear();
            self.is_lost = true;
        }
        if !self.is_awake {
            // The one byte that is in it has room.
            self.is_awake = (&self.sender).write(&[0]).is_ok();
        }
    }

    fn take(&mut self) -> (BTreeMap<PathBuf, bool>, bool) {
        let mut bytes = [0; 8];
        if self.is_awake && (&self.waker).read(&mut bytes).is_ok() {
            self.is_awake = false;
        }
        (std::mem::take(&mut self.paths), std::mem::take(&mut self.is_lost))
    }
}

impl Portable {
    /// `has_trees`: whether whole trees are watched by one watch, see [`HAS_TREES`].
    pub(in super::super) fn open(has_trees: bool) -> io::Result<Self> {
        let heap = Arc::new(Mutex::new(Heap::open()?));
        let heard = Arc::clone(&heap);
        let hear = move |event| lock(&heard).hear(event);
        let config = Config::default().with_follow_symlinks(false);
        let watcher = RecommendedWatcher::new(hear, config).map_err(io_error)?;
        Ok(Self {
            watcher,
            heap,
            has_trees,
            folders: HashMap::new(),
            paths: HashMap::new(),
            last_number: 0,
        })
    }

    fn is_below_a_tree(&self, path: &Path) -> bool {
        let mut above = path.ancestors().skip(1);
        above.any(|above| {
            let folder = self.folders.get(above);
            folder.is_some_and(|folder| folder.watched == Some(Reach::Tree))
        })
    }

    /// Stops the system's watching of a folder.
    fn release(&mut self, path: &Path, folder: Folder) {
        if folder.watched.is_some() {
            // One that is gone may have ended by itself.
            let _ended = self.watcher.unwatch(path);
        }
    }

    /// The nearest folder above a path that is watched, and the name in it on the way to the path.
    fn place(&self, path: &Path) -> Option<(FolderNumber, OsString, PathBuf)> {
        let mut below = path;
        loop {
            let above = below.parent()?;
            if let Some(folder) = self.folders.get(above) {
                return Some((folder.number, below.file_name()?.to_owned(), below.to_owned()));
            }
            below = above;
        }
    }
}

impl Kernel for Portable {
    fn waker(&self) -> io::Result<OwnedFd> {
        Ok(lock(&self.heap).waker.try_clone()?.into())
    }

    fn tells_at_once(&self) -> bool {
        false
    }

    fn add(&mut self, folder: &Path, reach: Reach) -> io::Result<FolderNumber> {
        let path = fs::canonicalize(folder)?;
        let metadata = fs::metadata(&path)?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let reach = if self.has_trees { reach } else { Reach::Folder };
        let (device, inode) = (metadata.dev(), metadata.ino());
        let known = self.folders.get(&path).copied();
        let is_below = self.is_below_a_tree(&path);
        if let Some(known) = known {
            let is_same = (known.device, known.inode) == (device, inode);
            let reaches = match known.watched {
                Some(watched) => watched == Reach::Tree || reach == Reach::Folder,
                None => is_below,
            };
            if is_same && reaches {
                return Ok(known.number);
            }
            self.release(&path, known);
            self.folders.remove(&path);
        }
        let watched = (!is_below).then_some(reach);
        if let Some(reach) = watched {
            let mode = match reach {
                Reach::Folder => RecursiveMode::NonRecursive,
                Reach::Tree => RecursiveMode::Recursive,
            };
            self.watcher.watch(&path, mode).map_err(io_error)?;
        }
        let number = known.map_or(self.last_number + 1, |known| known.number);
        self.last_number = self.last_number.max(number);
        let folder = Folder {
            number,
            device,
            inode,
            watched,
        };
        self.folders.insert(path.clone(), folder);
        self.paths.insert(number, path);
        Ok(number)
    }

    fn remove(&mut self, folder: FolderNumber) {
        let Some(path) = self.paths.remove(&folder) else {
            return;
        };
        if let Some(folder) = self.folders.remove(&path) {
            self.release(&path, folder);
        }
    }

    fn read(&mut self, hear: &mut dyn FnMut(Told)) -> io::Result<()> {
        let (paths, is_lost) = lock(&self.heap).take();
        if is_lost {
            hear(Told::Lost);
            // What took the place of a folder meanwhile may look like it.
            for (path, folder) in std::mem::take(&mut self.folders) {
                self.release(&path, folder);
                hear(Told::Ended(folder.number));
            }
            self.paths.clear();
            return Ok(());
        }
        for (path, may_be_gone) in paths {
            let metadata = fs::symlink_metadata(&path).ok();
            let known = self.folders.get(&path).map(|folder| folder.number);
            if let Some(folder) = known.filter(|_| may_be_gone || metadata.is_none()) {
                hear(happened(folder, None, true, What::Went));
            }
            match (self.place(&path), metadata) {
                (Some((folder, name, below)), _) if below != path => {
                    // Something in a folder that is not watched, or not yet.
                    let is_folder = fs::symlink_metadata(&below).is_ok_and(|metadata| metadata.is_dir());
                    if is_folder {
                        hear(happened(folder, Some(name), true, What::Came));
                    }
                }
                (Some((folder, name, _)), Some(metadata)) => {
                    hear(happened(folder, Some(name), metadata.is_dir(), What::Came));
                }
                (Some((folder, name, _)), None) if known.is_none() => {
                    hear(happened(folder, Some(name), false, What::Went));
                }
                (None, Some(_)) => {
                    if let Some(folder) = known.filter(|_| !may_be_gone) {
                        hear(happened(folder, None, true, What::Changed));
                    }
                }
                (_, None) => {}
            }
        }
        Ok(())
    }
}

fn happened(folder: FolderNumber, name: Option<OsString>, is_folder: bool, what: What) -> Told {
    Told::Happened {
        folder,
        name,
        is_folder,
        what,
    }
}

/// What was heard is whole after any panic.
fn lock(heap: &Mutex<Heap>) -> MutexGuard<'_, Heap> {
    heap.lock().unwrap_or_else(PoisonError::into_inner)
}

fn io_error(error: notify::Error) -> io::Error {
    match error.kind {
        ErrorKind::Io(error) => error,
        ErrorKind::PathNotFound => io::ErrorKind::NotFound.into(),
        ErrorKind::MaxFilesWatch => io::ErrorKind::StorageFull.into(),
        _ => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use notify::Event;
    use notify::event::{AccessKind, CreateKind, Flag};

    use super::*;

    fn told(portable: &mut Portable) -> Vec<Told> {
        let mut all = Vec::new();
        portable.read(&mut |told| all.push(told)).expect("it is read");
        all
    }

    fn is_awake(portable: &Portable) -> bool {
        let waker = portable.waker().expect("a waker");
        let mut waiting = [rustix::event::PollFd::new(&waker, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut waiting, Some(&rustix::event::Timespec::default())).expect("a look") == 1
    }

    fn created(path: &Path) -> notify::Result<Event> {
        Ok(Event::new(EventKind::Create(CreateKind::File)).add_path(path.to_owned()))
    }

    #[test]
    fn paths_wait_once_each_behind_one_waking_until_they_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("a folder");
        let mut portable = Portable::open(false).expect("a watch");
        assert!(!is_awake(&portable));
        let access = Event::new(EventKind::Access(AccessKind::Read)).add_path(path.join("file"));
        lock(&portable.heap).hear(Ok(access));
        assert!(!is_awake(&portable), "a look of ours");
        let number = portable.add(&path, Reach::Folder).expect("it is watched");
        for _ in 0..3 {
            // It is not there: gone since.
            lock(&portable.heap).hear(created(&path.join("file")));
        }
        assert!(is_awake(&portable));
        let name = Some(OsString::from("file"));
        assert_eq!(told(&mut portable), [happened(number, name, false, What::Went)]);
        assert!(!is_awake(&portable));
        assert_eq!(told(&mut portable), []);
    }

    #[test]
    fn too_much_and_what_the_system_lost_means_that_all_is_watched_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("a folder");
        let mut portable = Portable::open(false).expect("a watch");
        let too_many: fn(&mut Heap) = |heap| {
            for number in 0..=PATHS {
                heap.hear(created(Path::new(&format!("/{number}"))));
            }
        };
        let rescan: fn(&mut Heap) = |heap| heap.hear(Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan)));
        let error: fn(&mut Heap) = |heap| heap.hear(Err(notify::Error::generic("it failed")));
        for lose in [too_many, rescan, error] {
            let number = portable.add(&path, Reach::Folder).expect("it is watched");
            lose(&mut lock(&portable.heap));
            assert!(lock(&portable.heap).paths.len() <= PATHS);
            assert!(is_awake(&portable));
            assert_eq!(told(&mut portable), [Told::Lost, Told::Ended(number)]);
            assert_eq!(told(&mut portable), []);
            assert_ne!(portable.add(&path, Reach::Folder).ok(), Some(number));
        }
    }

    #[test]
    fn what_took_the_place_of_a_folder_is_watched_under_the_same_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, aside) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir(&path).expect("a folder");
        let mut portable = Portable::open(false).expect("a watch");
        let number = portable.add(&path, Reach::Folder).expect("it is watched");
        assert_eq!(portable.add(&path, Reach::Tree).ok(), Some(number));
        fs::rename(&path, &aside).expect("a new name");
        fs::create_dir(&path).expect("a folder");
        assert_eq!(portable.add(&path, Reach::Folder).ok(), Some(number));
        let kind = |path: &Path, portable: &mut Portable| {
            portable.add(path, Reach::Folder).map_err(|error| error.kind())
        };
        fs::write(path.join("file"), "x").expect("a file");
        assert_eq!(
            kind(&path.join("file"), &mut portable),
            Err(io::ErrorKind::NotADirectory)
        );
        assert_eq!(
            kind(&path.join("none"), &mut portable),
            Err(io::ErrorKind::NotFound)
        );
    }
}

//! Simulates the files that a power failure would leave. Used by the tests of all code that writes files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::*;

/// A folder as synced to disk: the content of each file at its last sync, and the names in each folder at its last
/// sync. What exists at the beginning counts as synced.
pub(crate) struct Disk(Arc<Mutex<State>>);

struct State {
    root: PathBuf,
    files: HashMap<u64, Vec<u8>>,
    folders: HashMap<u64, BTreeMap<OsString, u64>>,
    names: Vec<Name>,
}

/// A rename.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) from: PathBuf,
    /// Whether everything below the name was synced.
    pub(crate) is_whole: bool,
    /// What else would have been lost at that moment.
    pub(crate) lost: BTreeSet<PathBuf>,
}

/// The active disks. Tests run in parallel, each with its own folder.
static DISKS: Mutex<Vec<Arc<Mutex<State>>>> = Mutex::new(Vec::new());

impl Disk {
    pub(crate) fn of(root: &Path) -> Self {
        let mut state = State {
            root: root.to_owned(),
            files: HashMap::new(),
            folders: HashMap::new(),
            names: Vec::new(),
        };
        state.sync_all_below(root);
        let state = Arc::new(Mutex::new(state));
        lock(&DISKS).push(Arc::clone(&state));
        Self(state)
    }

    /// Returns the paths below the folder that would be lost: files with unsynced content, and unsynced names.
    pub(crate) fn lost(&self) -> BTreeSet<PathBuf> {
        lock(&self.0).lost()
    }

    /// Returns the renames in order.
    pub(crate) fn names(&self) -> Vec<Name> {
        lock(&self.0).names.clone()
    }

    /// Checks that everything is synced, and was synced before its rename. Returns the number of renames.
    pub(crate) fn check_lasts(&self, what: &str) -> usize {
        let names = self.names();
        for name in &names {
            assert!(name.is_whole, "{what}: named before it was synced: {name:?}");
        }
        assert_eq!(self.lost(), BTreeSet::new(), "{what}: would be lost");
        names.len()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        lock(&DISKS).retain(|state| !Arc::ptr_eq(state, &self.0));
    }
}

impl State {
    fn sync_file(&mut self, path: &Path) {
        let inode = fs::metadata(path).expect("a file").ino();
        self.files.insert(inode, fs::read(path).expect("a file"));
    }

    fn sync_folder(&mut self, path: &Path) {
        let inode = fs::metadata(path).expect("a folder").ino();
        self.folders.insert(inode, entries(path));
    }

    fn sync_all_below(&mut self, folder: &Path) {
        self.sync_folder(folder);
        for name in entries(folder).into_keys() {
            let path = folder.join(name);
            match kind(&path) {
                Kind::Folder => self.sync_all_below(&path),
                Kind::File => self.sync_file(&path),
                Kind::Other => {}
            }
        }
    }

    fn lost(&self) -> BTreeSet<PathBuf> {
        let mut lost = BTreeSet::new();
        self.lost_below(&self.root, &mut lost);
        let below = |path: &PathBuf| path.strip_prefix(&self.root).expect("a path below").to_owned();
        lost.iter().map(below).collect()
    }

    fn lost_below(&self, folder: &Path, lost: &mut BTreeSet<PathBuf>) {
        let inode = fs::metadata(folder).expect("a folder").ino();
        let on_disk = self.folders.get(&inode);
        for (name, inode) in entries(folder) {
            let path = folder.join(&name);
            if on_disk.and_then(|names| names.get(&name)) != Some(&inode) || !self.has_content(&path) {
                lost.insert(path.clone());
            }
            if kind(&path) == Kind::Folder {
                self.lost_below(&path, lost);
            }
        }
    }

    /// Whether the current content of a file is synced. True for anything but a file.
    fn has_content(&self, path: &Path) -> bool {
        if kind(path) != Kind::File {
            return true;
        }
        let inode = fs::metadata(path).expect("a file").ino();
        self.files.get(&inode) == Some(&fs::read(path).expect("a file"))
    }

    /// Whether a file, or everything in a folder, is synced, regardless of its own name.
    fn is_whole(&self, path: &Path) -> bool {
        let mut lost = BTreeSet::new();
        if kind(path) == Kind::Folder {
            self.lost_below(path, &mut lost);
        }
        lost.is_empty() && self.has_content(path)
    }
}

#[derive(PartialEq)]
enum Kind {
    File,
    Folder,
    Other,
}

fn kind(path: &Path) -> Kind {
    let kind = path.symlink_metadata().expect("something").file_type();
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => Kind::File,
        (_, true) => Kind::Folder,
        _ => Kind::Other,
    }
}

fn entries(folder: &Path) -> BTreeMap<OsString, u64> {
    let entries = fs::read_dir(folder).expect("a folder");
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let inode = entry.path().symlink_metadata().expect("an entry").ino();
        (entry.file_name(), inode)
    };
    entries.map(entry).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A failed test must not fail the others.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `visit` for each active disk that contains the path.
fn for_each_disk(path: &Path, visit: impl Fn(&mut State)) {
    let disks = lock(&DISKS).clone();
    for disk in disks {
        let mut state = lock(&disk);
        if path.starts_with(&state.root) {
            visit(&mut state);
        }
    }
}

pub(super) fn synced(step: SyncStep<'_>) {
    match step {
        SyncStep::File(path) => for_each_disk(path, |state| state.sync_file(path)),
        SyncStep::Folder(path) => for_each_disk(path, |state| state.sync_folder(path)),
    }
}

pub(super) fn named(from: &Path, to: &Path) {
    // A rename of a missing file fails.
    if from.symlink_metadata().is_ok() {
        for_each_disk(to, |state| {
            let name = Name {
                from: from.to_owned(),
                is_whole: state.is_whole(from),
                lost: state.lost(),
            };
            state.names.push(name);
        });
    }
}

/// Syncs call the system: something that cannot be synced gives an error.
#[test]
fn the_system_is_asked_to_sync() {
    let device = Path::new("/dev/null");
    let file = File::open(device).expect("a device");
    let invalid = |synced: io::Result<()>| synced.expect_err("a device syncs nothing").kind();
    assert_eq!(invalid(sync_file(&file, device)), io::ErrorKind::InvalidInput);
    assert_eq!(invalid(sync_folder(device)), io::ErrorKind::InvalidInput);
}

#[test]
fn a_new_file_survives_after_it_and_its_folder_are_synced() {
    let held = tempfile::tempdir().expect("a folder");
    let disk = Disk::of(held.path());
    let at = |name: &str| held.path().join(name);
    let folder = at("a/b");
    make_folders(&folder).expect("folders");
    disk.check_lasts("folders that were made");

    let (temporary, path) = (folder.join(".new"), folder.join("file"));
    let mut file = NewFile::create(&temporary).expect("a file");
    file.write_all(b"words").expect("written");
    file.sync().expect("synced");
    rename_if_free(&temporary, &path).expect("named");
    assert_eq!(disk.lost(), BTreeSet::from(["a/b/file".into()]));
    sync_folder(&folder).expect("synced");
    assert_eq!(disk.check_lasts("a file"), 1);
}

/// A kill may come after a folder is created and before its name is synced.
#[test]
fn a_folder_created_by_an_earlier_call_survives_too() {
    for made in ["a", "a/b", "a/b/c"] {
        let held = tempfile::tempdir().expect("a folder");
        let folder = held.path().join("a/b/c");
        if let Some(above) = Path::new(made).parent() {
            make_folders(&held.path().join(above)).expect("folders");
        }
        let disk = Disk::of(held.path());
        fs::create_dir(held.path().join(made)).expect("a folder");
        make_folders(&folder).expect("folders");
        disk.check_lasts(made);
    }
}

#[test]
fn replacing_a_leftover_file_does_not_follow_a_link() {
    let held = tempfile::tempdir().expect("a folder");
    let (foreign, path) = (held.path().join("foreign"), held.path().join("file"));
    fs::write(&foreign, "mine").expect("written");
    std::os::unix::fs::symlink(&foreign, path.with_extension("new")).expect("a link");
    write(&path, b"words").expect("written");
    assert_eq!(fs::read(&path).expect("a file"), b"words");
    assert_eq!(fs::read(&foreign).expect("a file"), b"mine");
}

/// Steps that are missing or in another order are detected.
#[test]
fn possible_losses_are_detected() {
    let held = tempfile::tempdir().expect("a folder");
    fs::write(held.path().join("there"), "before").expect("written");
    let disk = Disk::of(held.path());
    let at = |name: &str| held.path().join(name);
    let lost = |names: &[&str]| assert_eq!(disk.lost(), names.iter().map(PathBuf::from).collect());
    lost(&[]);

    fs::write(at("there"), "after").expect("written");
    lost(&["there"]);
    sync_file(&File::open(at("there")).expect("a file"), &at("there")).expect("synced");
    lost(&[]);

    // Renamed before it is synced.
    let mut file = NewFile::create(&at(".new")).expect("a file");
    file.write_all(b"words").expect("written");
    file.flush().expect("written");
    rename(&at(".new"), &at("early")).expect("named");
    assert!(!disk.names()[0].is_whole);
    sync_file(file.file(), &at("early")).expect("synced");
    lost(&["early"]);
    sync_folder(held.path()).expect("synced");
    lost(&[]);

    // A folder with an unsynced file, and one with an unsynced name.
    for (folder, is_whole) in [("half", false), ("unnamed", false), ("whole", true)] {
        fs::create_dir(at(folder)).expect("a folder");
        let file = at(folder).join("file");
        fs::write(&file, "words").expect("written");
        if folder != "half" {
            sync_file(&File::open(&file).expect("a file"), &file).expect("synced");
        }
        if folder != "unnamed" {
            sync_folder(&at(folder)).expect("synced");
        }
        rename(&at(folder), &at(&format!("{folder} named"))).expect("named");
        let names = disk.names();
        assert_eq!(names.last().map(|name| name.is_whole), Some(is_whole), "{folder}");
    }
    lost(&[
        "half named",
        "half named/file",
        "unnamed named",
        "unnamed named/file",
        "whole named",
    ]);
}

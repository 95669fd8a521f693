//! What a loss of power would leave of what was written: for the tests of all who write.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::*;

/// A folder as the disk has it by what was synced: files with what they held at their last sync, and the names that a folder
/// had at its own. What is there at the beginning is on disk.
pub(crate) struct Disk(Arc<Mutex<State>>);

struct State {
    root: PathBuf,
    files: HashMap<u64, Vec<u8>>,
    folders: HashMap<u64, BTreeMap<OsString, u64>>,
    names: Vec<Name>,
}

/// A name that was given.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
    /// Whether all that it names was on disk.
    pub(crate) is_whole: bool,
    /// What else would have been lost at that moment.
    pub(crate) lost: BTreeSet<PathBuf>,
}

/// Those that are looked at now. Tests run side by side, each with a folder of its own.
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

    /// What is there and would be lost, by its path below the folder: files of which something is not on disk, and what has
    /// its name not on disk.
    pub(crate) fn lost(&self) -> BTreeSet<PathBuf> {
        lock(&self.0).lost()
    }

    /// The names that were given, in their order.
    pub(crate) fn names(&self) -> Vec<Name> {
        lock(&self.0).names.clone()
    }

    /// All that was written is on disk, and was so before it had its name. Gives how many names were given.
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

    /// Whether a file is on disk as it is; what is none is.
    fn has_content(&self, path: &Path) -> bool {
        if kind(path) != Kind::File {
            return true;
        }
        let inode = fs::metadata(path).expect("a file").ino();
        self.files.get(&inode) == Some(&fs::read(path).expect("a file"))
    }

    /// Whether a file, or all in a folder, is on disk, whatever its own name is.
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
    // A test that failed is not to fail the others.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands the folder that a path is in to `tell`, where it is looked at.
fn tell(path: &Path, tell: impl Fn(&mut State)) {
    let disks = lock(&DISKS).clone();
    for disk in disks {
        let mut state = lock(&disk);
        if path.starts_with(&state.root) {
            tell(&mut state);
        }
    }
}

pub(super) fn synced(step: Step<'_>) {
    match step {
        Step::File(path) => tell(path, |state| state.sync_file(path)),
        Step::Folder(path) => tell(path, |state| state.sync_folder(path)),
    }
}

pub(super) fn named(from: &Path, to: &Path) {
    // What is not there will not get a name.
    if from.symlink_metadata().is_ok() {
        tell(to, |state| {
            let name = Name {
                from: from.to_owned(),
                to: to.to_owned(),
                is_whole: state.is_whole(from),
                lost: state.lost(),
            };
            state.names.push(name);
        });
    }
}

/// What cannot be synced says so: the system is asked.
#[test]
fn the_system_is_asked_to_sync() {
    let device = Path::new("/dev/null");
    let file = File::open(device).expect("a device");
    let invalid = |synced: io::Result<()>| synced.expect_err("a device syncs nothing").kind();
    assert_eq!(invalid(sync_file(&file, device)), io::ErrorKind::InvalidInput);
    assert_eq!(invalid(sync_folder(device)), io::ErrorKind::InvalidInput);
}

#[test]
fn a_new_file_is_whole_when_it_is_synced_and_lasts_when_its_folder_is() {
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

/// A kill may come after a folder is made and before its name is synced.
#[test]
fn a_folder_that_an_earlier_call_made_lasts_too() {
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
fn a_file_that_takes_the_place_of_what_a_kill_left_follows_no_link() {
    let held = tempfile::tempdir().expect("a folder");
    let (foreign, path) = (held.path().join("foreign"), held.path().join("file"));
    fs::write(&foreign, "mine").expect("written");
    std::os::unix::fs::symlink(&foreign, path.with_extension("new")).expect("a link");
    write(&path, b"words").expect("written");
    assert_eq!(fs::read(&path).expect("a file"), b"words");
    assert_eq!(fs::read(&foreign).expect("a file"), b"mine");
}

/// What is done in another order, or not at all, is seen.
#[test]
fn what_would_be_lost_is_told() {
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

    // Named before it is synced.
    let mut file = NewFile::create(&at(".new")).expect("a file");
    file.write_all(b"words").expect("written");
    file.flush().expect("written");
    rename(&at(".new"), &at("early")).expect("named");
    assert!(!disk.names()[0].is_whole);
    sync_file(file.file(), &at("early")).expect("synced");
    lost(&["early"]);
    sync_folder(held.path()).expect("synced");
    lost(&[]);

    // A folder of which a file is not synced, and one of which a name is not.
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

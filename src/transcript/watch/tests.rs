//! What the ears are told, by each kernel: some tell late, so that all is waited for by the waker.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

#[cfg(target_os = "linux")]
mod lists;

/// A system that watches all but what is below a folder, as behind its limit.
#[derive(Debug)]
struct Limited(Box<dyn Kernel>, PathBuf);

impl Kernel for Limited {
    fn waker(&self) -> io::Result<OwnedFd> {
        self.0.waker()
    }

    fn tells_at_once(&self) -> bool {
        self.0.tells_at_once()
    }

    fn add(&mut self, folder: &Path, reach: Reach) -> io::Result<kernel::FolderNumber> {
        match folder.starts_with(&self.1) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.0.add(folder, reach),
        }
    }

    fn remove(&mut self, folder: kernel::FolderNumber) {
        self.0.remove(folder);
    }

    fn read(&mut self, hear: &mut dyn FnMut(Told)) -> io::Result<()> {
        self.0.read(hear)
    }
}

impl Watch {
    /// One of a system that lets nobody watch.
    pub(crate) fn failing() -> Self {
        Self::with(Err(io::Error::other("too many of them")))
    }

    /// One that has no room for what is below this folder.
    pub(crate) fn limited(folder: PathBuf) -> Self {
        let kernel = kernel::open().expect("a kernel");
        Self::with(Ok(Box::new(Limited(kernel, folder))))
    }
}

const CODEX_ID: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

fn append(path: &Path, text: &str) {
    use std::io::Write;
    let file = fs::OpenOptions::new().append(true).open(path);
    file.expect("a file").write_all(text.as_bytes()).expect("room");
}

type Open = fn() -> io::Result<Box<dyn Kernel>>;

const FOLDERS: Open = || Ok(Box::new(kernel::portable::Portable::open(false)?));

/// With inotify below it new folders are told of before they are watched, which no other system does; so this one is
/// for tests without new folders.
const TREES: Open = || Ok(Box::new(kernel::portable::Portable::open(true)?));

/// Tests each kernel that this system has, with something that opens a watch of a root.
fn each_kernel(kernels: &[Open], test: impl Fn(&Path, &dyn Fn(&Path, Format) -> Watch)) {
    for (number, open) in kernels.iter().enumerate() {
        println!("kernel {number}");
        let folder = tempfile::tempdir().expect("a folder");
        // On some systems the folder of temporary files is a link.
        let folder = folder.path().canonicalize().expect("a folder");
        test(&folder, &|root, format| {
            let mut watch = Watch::with(open());
            watch.add_root(root, format);
            assert_eq!((watch.problem(root), watch.heard()), (None, Vec::new()));
            watch
        });
    }
}

/// What is heard until it is enough.
fn heard_until(watch: &mut Watch, is_enough: impl Fn(&Changes) -> bool) -> Changes {
    /// Far more than any system needs; a test that waits for so long has failed.
    const LONGEST: Duration = Duration::from_secs(60);
    let waker = watch.waker().expect("it is watched");
    let mut all = Changes::default();
    loop {
        for heard in watch.heard() {
            all.everything |= heard.changes.everything;
            all.folders.extend(heard.changes.folders);
            all.files.extend(heard.changes.files);
        }
        if is_enough(&all) {
            return all;
        }
        let longest = Timespec::try_from(LONGEST).expect("a time");
        let mut waiting = [PollFd::new(&waker, PollFlags::IN)];
        let ready = poll(&mut waiting, Some(&longest)).expect("a descriptor that can be waited on");
        assert_ne!(ready, 0, "nothing came behind {all:?}");
    }
}

fn hear_file(watch: &mut Watch, path: &Path) {
    let told = heard_until(watch, |all| all.files.contains(path));
    assert!(!told.everything, "{told:?}");
}

/// The same of a file that grows, where what is told late of folders that went may be that everything has changed.
fn hear_growth(watch: &mut Watch, path: &Path) {
    loop {
        append(path, "more\n");
        let told = heard_until(watch, |all| all.everything || all.files.contains(path));
        if !told.everything {
            return;
        }
    }
}

#[test]
fn files_that_come_change_and_go_are_heard_of() {
    each_kernel(&[kernel::open, FOLDERS, TREES], |root, open| {
        let projects = root.join("projects");
        let (old, new) = (projects.join("-a/s1.jsonl"), projects.join("-a/s2.jsonl"));
        write(&old, "x\n");
        let mut watch = open(root, Format::Claude);
        append(&old, "y\n");
        hear_file(&mut watch, &old);
        write(&new, "x\n");
        hear_file(&mut watch, &new);
        let renamed = projects.join("-a/s3.jsonl");
        fs::rename(&new, &renamed).expect("a new name");
        let told = heard_until(&mut watch, |all| {
            all.files.contains(&new) && all.files.contains(&renamed)
        });
        assert!(!told.everything && told.folders.is_empty(), "{told:?}");
        fs::remove_file(&old).expect("it is gone");
        hear_file(&mut watch, &old);
        // What is no transcript is not told, nor what is read; the last one shows that all before it was heard.
        fs::read(&renamed).expect("a file");
        write(&projects.join("-a/notes.txt"), "x");
        write(&projects.join("-a/s3/subagents/agent-2.jsonl"), "x");
        append(&renamed, "y\n");
        let told = heard_until(&mut watch, |all| !all.is_empty());
        let expected = BTreeSet::from([renamed]);
        assert_eq!((told.files, told.folders), (expected, BTreeSet::new()));
    });
}

#[test]
fn files_in_folders_that_come_and_move_are_heard_of() {
    each_kernel(&[kernel::open, FOLDERS], |root, open| {
        let projects = root.join("projects");
        fs::create_dir(&projects).expect("a folder");
        let mut watch = open(root, Format::Claude);
        let (before, after) = (projects.join("-a"), projects.join("-b"));
        write(&before.join("s1.jsonl"), "x\n");
        heard_until(&mut watch, |all| all.everything || all.folders.contains(&before));
        hear_growth(&mut watch, &before.join("s1.jsonl"));
        fs::rename(&before, &after).expect("a new name");
        heard_until(&mut watch, |all| {
            all.everything || all.folders.contains(&before) && all.folders.contains(&after)
        });
        hear_growth(&mut watch, &after.join("s1.jsonl"));
        // Another one in its place, made at once.
        fs::remove_dir_all(&after).expect("it is gone");
        write(&after.join("s2.jsonl"), "x\n");
        heard_until(&mut watch, |all| all.everything || all.folders.contains(&after));
        hear_growth(&mut watch, &after.join("s2.jsonl"));
    });
}

#[test]
fn rollouts_are_heard_of_however_deep() {
    each_kernel(&[kernel::open, FOLDERS], |root, open| {
        let day = root.join("sessions/2026/11/03");
        let name = format!("rollout-2026-11-03T12-00-00-{CODEX_ID}.jsonl");
        let old = day.join(&name);
        write(&old, "x\n");
        let mut watch = open(root, Format::Codex);
        hear_growth(&mut watch, &old);
        let new = root.join("sessions/2027/01/01").join(&name);
        write(&new, "x\n");
        heard_until(&mut watch, |all| {
            all.folders.contains(&root.join("sessions/2027"))
        });
        hear_growth(&mut watch, &new);
    });
}

#[test]
fn a_root_that_comes_or_is_replaced_is_heard_of() {
    each_kernel(&[kernel::open, FOLDERS], |folder, open| {
        let root = folder.join("a/b/root");
        let mut watch = open(&root, Format::Claude);
        let path = root.join("projects/-a/s1.jsonl");
        write(&path, "x\n");
        heard_until(&mut watch, |all| all.everything);
        for from in [root.join("projects"), root.clone(), folder.join("a")] {
            hear_growth(&mut watch, &path);
            let aside = folder.join("aside");
            fs::rename(&from, &aside).expect("a new place");
            heard_until(&mut watch, |all| all.everything);
            write(&path, "x\n");
            heard_until(&mut watch, |all| all.everything);
            fs::remove_dir_all(&aside).expect("it is gone");
        }
        hear_growth(&mut watch, &path);
    });
}

#[test]
fn a_folder_that_is_reached_by_a_link_is_heard_of() {
    each_kernel(&[kernel::open, FOLDERS, TREES], |folder, open| {
        let (root, elsewhere) = (folder.join("root"), folder.join("elsewhere"));
        write(&elsewhere.join("s1.jsonl"), "x\n");
        fs::create_dir_all(root.join("projects")).expect("a folder");
        std::os::unix::fs::symlink(&elsewhere, root.join("projects/-a")).expect("a link");
        std::os::unix::fs::symlink(&root, folder.join("link")).expect("a link");
        let root = folder.join("link");
        let mut watch = open(&root, Format::Claude);
        let path = root.join("projects/-a/s1.jsonl");
        append(&path, "y\n");
        hear_file(&mut watch, &path);
    });
}

#[test]
fn where_the_system_may_tell_late_lists_look_at_everything() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("projects/-a/s1.jsonl"), "x\n");
    let mut watch = Watch::portable();
    watch.add_root(folder.path(), Format::Claude);
    assert_eq!(watch.for_list(folder.path()), None);
    assert_eq!(watch.for_list(folder.path()), None);
    assert_eq!(watch.problem(folder.path()), None);
}

#[cfg(target_os = "linux")]
#[test]
fn one_folder_that_two_roots_lead_to_is_told_of_for_both() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a folder");
    let (own, link) = (folder.join("own"), folder.join("link"));
    let name = Path::new("projects/-a/s1.jsonl");
    write(&own.join(name), "one\n");
    std::os::unix::fs::symlink(&own, &link).expect("a link");
    let mut watch = Watch::default();
    watch.add_root(&own, Format::Claude);
    watch.add_root(&link, Format::Claude);
    for root in [&own, &link] {
        watch.for_list(root).expect("watched");
    }
    watch.heard();
    append(&own.join(name), "two\n");
    for root in [&own, &link] {
        let changes = watch.for_list(root).expect("watched");
        assert!(changes.files.contains(&root.join(name)), "{changes:?}");
    }
    let heard: Vec<PathBuf> = watch.heard().into_iter().map(|heard| heard.root).collect();
    assert_eq!(heard, [own.clone(), link.clone()]);
    // One way less.
    fs::remove_file(&link).expect("a link");
    append(&own.join(name), "three\n");
    let changes = watch.for_list(&own).expect("watched");
    assert!(
        changes.everything || changes.files.contains(&own.join(name)),
        "{changes:?}"
    );
}

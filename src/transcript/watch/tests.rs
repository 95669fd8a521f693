//! The system reports changes late, so these tests wait for each of them.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use notify::Event;
use notify::event::{AccessKind, CreateKind, DataChange, Flag};

use super::*;

impl TranscriptWatcher {
    /// One of a system that lets nobody watch.
    pub(crate) fn failing() -> Self {
        Self {
            watcher: Err(io::Error::other("too many of them")),
            ..Self::new(|| {})
        }
    }

    /// One that has no room for what is below this root.
    pub(crate) fn limited(root: &Path, format: Format) -> Self {
        let mut watch = Self::new(|| {});
        watch.roots.push(WatchedRoot {
            path: root.to_owned(),
            format,
            problem: Some("a limit".to_owned()),
        });
        watch
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

fn append(path: &Path, text: &str) {
    use std::io::Write;
    let file = fs::OpenOptions::new().append(true).open(path);
    file.expect("a file").write_all(text.as_bytes()).expect("room");
}

/// A watch of a root, in a folder that no link leads to: on some systems that of temporary files is a link.
struct Watched {
    watch: TranscriptWatcher,
    woken: Receiver<()>,
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("a folder");
    (folder, path)
}

impl Watched {
    fn new(root: &Path, format: Format) -> Self {
        let (wake, woken) = sync_channel(1);
        let mut watch = TranscriptWatcher::new(move || {
            // One that waits already is enough.
            let _woken = wake.try_send(());
        });
        watch.add_root(root, format);
        assert!(watch.is_complete());
        assert_eq!(watch.take_changes(), []);
        Self { watch, woken }
    }

    /// What is heard until it is enough.
    fn until(&mut self, is_enough: impl Fn(&Changes) -> bool) -> Changes {
        /// Far more than any system needs; a test that waits for so long has failed.
        const LONGEST: Duration = Duration::from_secs(60);
        let mut all = Changes::default();
        loop {
            for heard in self.watch.take_changes() {
                all.is_everything |= heard.changes.is_everything;
                all.folders.extend(heard.changes.folders);
                all.files.extend(heard.changes.files);
            }
            if is_enough(&all) {
                return all;
            }
            let woken = self.woken.recv_timeout(LONGEST);
            assert_eq!(woken, Ok(()), "nothing came behind {all:?}");
        }
    }

    fn hear_file(&mut self, path: &Path) {
        let told = self.until(|all| all.files.contains(path));
        assert!(!told.is_everything, "{told:?}");
    }

    /// The same of a file that grows, where what is told late of folders that went may be that everything has changed.
    fn hear_growth(&mut self, path: &Path) {
        loop {
            append(path, "more\n");
            let folder = path.parent().expect("a folder");
            // A folder of which something late is told is watched anew, and what was told of its files before is lost.
            let told = self
                .until(|all| all.is_everything || all.folders.contains(folder) || all.files.contains(path));
            if !told.is_everything && told.files.contains(path) {
                return;
            }
        }
    }
}

#[test]
fn a_root_that_comes_or_is_replaced_is_heard_of() {
    let (_held, folder) = folder();
    let root = folder.join("a/b/root");
    let mut watched = Watched::new(&root, Format::Claude);
    let path = root.join("projects/-a/s1.jsonl");
    write(&path, "x\n");
    watched.until(|all| all.is_everything);
    for from in [root.join("projects"), root.clone(), folder.join("a")] {
        watched.hear_growth(&path);
        let aside = folder.join("aside");
        fs::rename(&from, &aside).expect("a new place");
        watched.until(|all| all.is_everything);
        write(&path, "x\n");
        watched.until(|all| all.is_everything);
        fs::remove_dir_all(&aside).expect("it is gone");
    }
    watched.hear_growth(&path);
}

#[test]
fn a_folder_that_is_reached_by_a_link_is_heard_of() {
    let (_held, folder) = folder();
    let (root, elsewhere) = (folder.join("root"), folder.join("elsewhere"));
    write(&elsewhere.join("s1.jsonl"), "x\n");
    fs::create_dir_all(root.join("projects")).expect("a folder");
    std::os::unix::fs::symlink(&elsewhere, root.join("projects/-a")).expect("a link");
    std::os::unix::fs::symlink(&root, folder.join("link")).expect("a link");
    let root = folder.join("link");
    let mut watched = Watched::new(&root, Format::Claude);
    let path = root.join("projects/-a/s1.jsonl");
    append(&path, "y\n");
    watched.hear_file(&path);
}

#[test]
fn one_folder_that_two_roots_lead_to_is_told_of_for_both() {
    let (_held, folder) = folder();
    let (own, link) = (folder.join("own"), folder.join("link"));
    let name = Path::new("projects/-a/s1.jsonl");
    write(&own.join(name), "one\n");
    std::os::unix::fs::symlink(&own, &link).expect("a link");
    let mut watched = Watched::new(&own, Format::Claude);
    watched.watch.add_root(&link, Format::Claude);
    append(&own.join(name), "two\n");
    let told = watched.until(|all| !all.files.is_empty());
    assert_eq!(told.files, BTreeSet::from([own.join(name), link.join(name)]));
    // One way less.
    fs::remove_file(&link).expect("a link");
    watched.hear_growth(&own.join(name));
}

#[test]
fn links_and_files_in_the_place_of_folders_do_no_harm() {
    let (_held, folder) = folder();
    let root = folder.join("root");
    let path = root.join("projects/-a/s1.jsonl");
    write(&root.join("projects"), "a file");
    let mut watched = Watched::new(&root, Format::Claude);
    fs::remove_file(root.join("projects")).expect("it is gone");
    write(&path, "x\n");
    watched.until(|all| all.is_everything);
    for (to, name) in [
        ("projects", "projects/-self"),
        ("projects/-b", "projects/-b"),
        ("", "again"),
    ] {
        std::os::unix::fs::symlink(root.join(to), root.join(name)).expect("a link");
    }
    watched.hear_growth(&path);
    assert!(watched.watch.is_complete());
}

#[cfg(target_os = "linux")]
#[test]
fn what_the_systems_queue_did_not_hold_means_that_everything_may_have_changed() {
    let (_held, root) = folder();
    let path = root.join("projects/-a/s1.jsonl");
    write(&path, "x\n");
    let [one, other] = ["one", "other"].map(|name| root.join("projects/-a").join(name));
    fs::write(&one, "").expect("a file");
    let mut watched = Watched::new(&root, Format::Claude);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("the limit");
    let limit: usize = limit.trim().parse().expect("a number");
    {
        // Nobody empties the queue meanwhile.
        let pending = Arc::clone(&watched.watch.pending);
        let _held = lock(&pending);
        // Each move is two events; some are read before the one who reads them has to wait.
        for _ in 0..limit / 2 {
            fs::rename(&one, &other).expect("a move");
            fs::rename(&other, &one).expect("a move");
        }
        append(&path, "lost\n");
    }
    watched.until(|all| all.is_everything);
    watched.hear_growth(&path);
}

#[test]
fn what_is_of_no_interest_wakes_nobody_and_too_much_means_everything() {
    let created = |path: &str| Ok(Event::new(EventKind::Create(CreateKind::File)).add_path(path.into()));
    let written = |path: &str| {
        let kind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        Ok(Event::new(kind).add_path(path.into()))
    };
    let mut pending = PendingEvents::default();
    let access = Event::new(EventKind::Access(AccessKind::Read)).add_path("/h/s1.jsonl".into());
    assert!(!pending.add_event(Ok(access)), "a look of ours");
    assert!(!pending.add_event(written("/h/.history")));
    assert!(pending.add_event(written("/h/s1.jsonl")));
    assert!(pending.add_event(created("/h/projects")));
    assert_eq!((pending.paths.len(), pending.has_lost_events), (2, false));
    let too_many: fn(&mut PendingEvents) = |pending| {
        for number in 0..=PENDING_PATH_LIMIT {
            let event = Event::new(EventKind::Create(CreateKind::File)).add_path(format!("/{number}").into());
            pending.add_event(Ok(event));
        }
    };
    let rescan: fn(&mut PendingEvents) = |pending| {
        assert!(pending.add_event(Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan))));
    };
    let error: fn(&mut PendingEvents) =
        |pending| assert!(pending.add_event(Err(notify::Error::generic("it failed"))));
    for lose in [too_many, rescan, error] {
        let mut pending = PendingEvents::default();
        lose(&mut pending);
        assert!(pending.has_lost_events && pending.paths.len() <= PENDING_PATH_LIMIT);
    }
}

/// What took the place of a folder may have its number.
#[test]
fn after_lost_events_all_is_watched_anew() {
    let (_held, root) = folder();
    let path = root.join("projects/-a/s1.jsonl");
    write(&path, "x\n");
    let mut watched = Watched::new(&root, Format::Claude);
    if let Ok(watcher) = &mut watched.watch.watcher {
        watcher
            .unwatch(&root.join("projects/-a"))
            .expect("it was watched");
    }
    lock(&watched.watch.pending).mark_lost();
    let told = watched.until(|all| all.is_everything);
    assert_eq!((told.folders, told.files), (BTreeSet::new(), BTreeSet::new()));
    watched.hear_growth(&path);
}

#[test]
fn what_cannot_be_watched_is_said() {
    let (_held, root) = folder();
    write(&root.join("projects/-a/s1.jsonl"), "x\n");
    let problems = |mut watch: TranscriptWatcher| {
        watch.add_root(&root, Format::Claude);
        assert_eq!(watch.take_changes(), []);
        let problems = watch.problems().map(|(path, problem)| (path.to_owned(), problem));
        (problems.collect::<Vec<_>>(), watch.is_complete())
    };
    let said = |problem: &str| (vec![(root.clone(), problem.to_owned())], false);
    assert_eq!(problems(TranscriptWatcher::failing()), said("too many of them"));
    assert_eq!(
        problems(TranscriptWatcher::limited(&root, Format::Claude)),
        said("a limit")
    );
    assert_eq!(problems(TranscriptWatcher::new(|| {})), (Vec::new(), true));
}

//! What lists are told: by inotify alone.

use super::*;

/// A watch of a root that was asked once, so that it tells of changes only.
fn watch(root: &Path, format: Format) -> Watch {
    let mut watch = Watch::default();
    watch.add_root(root, format);
    assert!(watch.for_list(root).expect("it is watched").everything);
    assert_eq!(watch.for_list(root), Some(Changes::default()));
    watch
}

fn changes(folders: &[PathBuf], files: &[PathBuf]) -> Option<Changes> {
    Some(Changes {
        everything: false,
        folders: folders.iter().cloned().collect(),
        files: files.iter().cloned().collect(),
    })
}

#[test]
fn files_and_folders_that_come_change_and_go_are_told_once_to_each_reader() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let projects = root.join("projects");
    let (old, new) = (projects.join("-a/s1.jsonl"), projects.join("-a/s2.jsonl"));
    write(&old, "x\n");
    let mut watch = watch(root, Format::Claude);

    append(&old, "y\n");
    append(&old, "z\n");
    write(&new, "x\n");
    assert_eq!(watch.for_list(root), changes(&[], &[old.clone(), new.clone()]));
    assert_eq!(watch.for_list(root), changes(&[], &[]));
    let heard = watch.heard();
    assert_eq!(heard.len(), 1);
    assert_eq!(
        Some(heard[0].changes.clone()),
        changes(&[], &[old.clone(), new.clone()])
    );
    assert_eq!(watch.heard(), []);

    let renamed = projects.join("-a/s3.jsonl");
    fs::rename(&new, &renamed).expect("a new name");
    fs::remove_file(&old).expect("it is gone");
    assert_eq!(watch.for_list(root), changes(&[], &[old, new, renamed]));

    // What is no transcript is not told, and reading changes nothing.
    write(&projects.join("-a/notes.txt"), "x");
    write(&projects.join("-a/agent-1.jsonl"), "x");
    write(&projects.join("-a/s3/subagents/agent-2.jsonl"), "x");
    fs::read(projects.join("-a/s3.jsonl")).expect("a file");
    assert_eq!(watch.for_list(root), changes(&[], &[]));
}

#[test]
fn a_new_folder_is_looked_at_as_a_whole_and_watched_from_then_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let projects = root.join("projects");
    fs::create_dir(&projects).expect("a folder");
    let mut watch = watch(root, Format::Claude);
    // Its first file may come before it is watched.
    write(&projects.join("-a/s1.jsonl"), "x\n");
    let told = watch.for_list(root).expect("it is watched");
    assert!(told.folders.contains(&projects.join("-a")), "{told:?}");
    append(&projects.join("-a/s1.jsonl"), "x\n");
    assert_eq!(
        watch.for_list(root),
        changes(&[], &[projects.join("-a/s1.jsonl")])
    );

    fs::rename(projects.join("-a"), projects.join("-b")).expect("a new name");
    assert_eq!(
        watch.for_list(root),
        changes(&[projects.join("-a"), projects.join("-b")], &[])
    );
    append(&projects.join("-b/s1.jsonl"), "x\n");
    assert_eq!(
        watch.for_list(root),
        changes(&[], &[projects.join("-b/s1.jsonl")])
    );

    let elsewhere = root.join("elsewhere");
    fs::rename(projects.join("-b"), &elsewhere).expect("a new place");
    assert_eq!(watch.for_list(root), changes(&[projects.join("-b")], &[]));
    append(&elsewhere.join("s1.jsonl"), "x\n");
    assert_eq!(watch.for_list(root), changes(&[], &[]));
}

#[test]
fn rollouts_are_watched_however_deep() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let day = root.join("sessions/2026/11/03");
    let old = day.join(format!("rollout-2026-11-03T12-00-00-{CODEX_ID}.jsonl"));
    write(&old, "x\n");
    let mut watch = watch(root, Format::Codex);
    append(&old, "x\n");
    assert_eq!(watch.for_list(root), changes(&[], std::slice::from_ref(&old)));
    let new = root.join(format!(
        "sessions/2027/01/01/rollout-2027-01-01T00-00-00-{CODEX_ID}.jsonl"
    ));
    write(&new, "x\n");
    let told = watch.for_list(root).expect("it is watched");
    assert!(told.folders.contains(&root.join("sessions/2027")), "{told:?}");
    append(&new, "x\n");
    assert_eq!(watch.for_list(root), changes(&[], std::slice::from_ref(&new)));
    // Archiving.
    let archived = root
        .join("archived_sessions")
        .join(old.file_name().expect("a name"));
    fs::create_dir(root.join("archived_sessions")).expect("a folder");
    assert!(watch.for_list(root).expect("it is watched").everything);
    fs::rename(&old, &archived).expect("a new place");
    assert_eq!(watch.for_list(root), changes(&[], &[old, archived]));
}

#[test]
fn a_root_that_is_not_there_yet_is_watched_once_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("a/b/root");
    let mut watch = watch(&root, Format::Claude);
    write(&folder.path().join("unrelated/file"), "x");
    assert_eq!(watch.for_list(&root), changes(&[], &[]));
    fs::create_dir_all(folder.path().join("a/b")).expect("a folder");
    assert!(watch.for_list(&root).expect("it is watched").everything);
    write(&root.join("projects/-a/s1.jsonl"), "x\n");
    assert!(watch.for_list(&root).expect("it is watched").everything);
    append(&root.join("projects/-a/s1.jsonl"), "x\n");
    assert_eq!(
        watch.for_list(&root),
        changes(&[], &[root.join("projects/-a/s1.jsonl")])
    );
}

/// Somebody's home may stand on the way to a root.
#[test]
fn what_is_written_to_files_on_the_way_to_a_root_wakes_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let (root, beside) = (folder.path().join("root"), folder.path().join("beside"));
    write(&beside, "x\n");
    let is_awake = |watch: &Watch| {
        let waker = watch.waker().expect("it is watched");
        let mut waiting = [PollFd::new(&waker, PollFlags::IN)];
        poll(&mut waiting, Some(&Timespec::default())).expect("a look") == 1
    };
    let mut watch = watch(&root, Format::Claude);
    append(&beside, "y\n");
    assert!(!is_awake(&watch));
    let path = root.join("projects/-a/s1.jsonl");
    write(&path, "x\n");
    assert!(is_awake(&watch));
    assert!(watch.for_list(&root).expect("it is watched").everything);
    // On the way to another one, and watched as a whole for this one all the same.
    watch.add_root(&root.join("projects/-a/inside"), Format::Codex);
    watch.for_list(&root);
    append(&path, "y\n");
    assert!(is_awake(&watch));
    assert_eq!(watch.for_list(&root), changes(&[], &[path]));
}

#[test]
fn a_root_that_is_replaced_is_looked_at_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let above = folder.path().join("above");
    let root = above.join("root");
    write(&root.join("projects/-a/s1.jsonl"), "x\n");
    let mut watch = watch(&root, Format::Claude);
    for from in [root.join("projects"), root.clone(), above] {
        let aside = folder.path().join("aside");
        fs::rename(&from, &aside).expect("a new place");
        assert!(
            watch.for_list(&root).expect("it is watched").everything,
            "{from:?}"
        );
        assert_eq!(watch.for_list(&root), changes(&[], &[]));
        write(&root.join("projects/-a/s1.jsonl"), "x\n");
        assert!(
            watch.for_list(&root).expect("it is watched").everything,
            "{from:?}"
        );
        append(&root.join("projects/-a/s1.jsonl"), "y\n");
        assert_eq!(
            watch.for_list(&root),
            changes(&[], &[root.join("projects/-a/s1.jsonl")])
        );
        fs::remove_dir_all(&aside).expect("it is gone");
        assert_eq!(watch.for_list(&root), changes(&[], &[]));
    }
}

#[test]
fn lost_events_and_too_many_of_them_mean_that_everything_may_have_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let projects = root.join("projects");
    write(&projects.join("-a/s1.jsonl"), "x\n");
    let mut watch = watch(root, Format::Claude);
    watch.told(Told::Lost);
    assert_eq!(watch.heard()[0].changes, Changes::everything());
    assert_eq!(watch.for_list(root), Some(Changes::everything()));
    // A folder that came unseen is watched from then on.
    watch.forget(&projects.join("-a"));
    watch.told(Told::Lost);
    assert_eq!(watch.for_list(root), Some(Changes::everything()));
    append(&projects.join("-a/s1.jsonl"), "y\n");
    assert_eq!(
        watch.for_list(root),
        changes(&[], &[projects.join("-a/s1.jsonl")])
    );

    for number in 0..=CHANGES {
        let path = projects.join(format!("-a/t{number}.jsonl"));
        watch.happened(&path, false, What::Changed);
    }
    assert_eq!(watch.for_list(root), Some(Changes::everything()));
    assert_eq!(watch.for_list(root), changes(&[], &[]));
}

#[test]
fn what_cannot_be_watched_is_said_and_everything_is_to_be_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    write(&root.join("projects/-a/s1.jsonl"), "x\n");
    let mut watch = Watch {
        kernel: Err(io::Error::other("too many of them")),
        ..Watch::default()
    };
    watch.add_root(root, Format::Claude);
    assert_eq!(watch.for_list(root), None);
    assert_eq!(watch.heard(), []);
    assert_eq!(watch.problem(root).as_deref(), Some("too many of them"));
    assert!(watch.waker().is_err());

    let mut watch = self::watch(root, Format::Claude);
    watch.roots[0].problem = Some("a limit".to_owned());
    assert_eq!(watch.for_list(root), None);
    assert_eq!(watch.problem(root).as_deref(), Some("a limit"));
    assert_eq!(watch.problem(&root.join("other")), None);
}

#[test]
fn links_and_files_in_the_place_of_folders_do_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    write(&root.join("projects"), "a file");
    let mut watch = watch(&root, Format::Claude);
    fs::remove_file(root.join("projects")).expect("it is gone");
    write(&root.join("projects/-a/s1.jsonl"), "x\n");
    assert!(watch.for_list(&root).expect("it is watched").everything);
    std::os::unix::fs::symlink(root.join("projects"), root.join("projects/-self")).expect("a link");
    assert!(watch.for_list(&root).expect("it is watched").everything);
    std::os::unix::fs::symlink(&root, root.join("again")).expect("a link");
    append(&root.join("projects/-a/s1.jsonl"), "x\n");
    let told = watch.for_list(&root).expect("it is watched");
    assert!(!told.is_empty(), "{told:?}");
}

#[test]
fn what_is_known_already_or_is_nothing_does_not_make_changes_too_many() {
    let mut changes = Changes::default();
    let place = |number: usize| Place::File(PathBuf::from(format!("/root/{number}.jsonl")));
    (0..CHANGES).for_each(|number| changes.add(&place(number)));
    changes.add(&Place::Nothing);
    changes.add(&place(0));
    assert!(!changes.everything);
    changes.add(&place(CHANGES));
    assert_eq!(changes, Changes::everything());
}

//! Links, files and folders in the data folder that the daemon did not make, under names that it uses: it follows no
//! link, changes nothing, and says what to do.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use bridge_protocol::error::ErrorKind;
use serde_json::json;

use super::set_aside::{kept, left_by_a_move, reported};
use crate::carrying::{bundled, files_below};
use crate::home::Home;
use crate::keeping::{keep, once_kept};
use crate::support::refused;

/// The files that the daemon makes below the data folder.
const FILES: [&str; 7] = [
    "sessiond.lock",
    "instance",
    "journal.jsonl",
    "journal.new",
    "last-used.json",
    "store.trust",
    "store.report",
];

/// The folders that the daemon makes there, besides one for each root of transcripts below `kept`.
const FOLDERS: [&str; 12] = [
    "exports",
    "store",
    "store.next",
    "bodies",
    "loopback",
    "kept",
    "kept/unreported",
    "kept/unpacked",
    "copies",
    "imports",
    "trees",
    "moves",
];

/// The file in `kept` that records when all transcripts were backed up.
const PASSED: &str = "kept/passed";

/// Each entry by its path below the data folder, and whether it is a folder.
fn names() -> impl Iterator<Item = (&'static str, bool)> {
    let files = FILES.into_iter().chain([PASSED]).map(|name| (name, false));
    files.chain(FOLDERS.map(|name| (name, true)))
}

/// `FILES` and `FOLDERS` are complete.
#[tokio::test]
async fn the_daemon_makes_nothing_under_another_name() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first"]).await;
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    drop((daemon, app));
    for folder in ["", "kept"] {
        for entry in fs::read_dir(home.data().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(home.data()).unwrap().to_str().unwrap();
            // The folder of a root has the digest of its path as its name.
            let digest = name.strip_prefix("kept/").unwrap_or_default();
            let is_root = digest.len() == 16 && digest.bytes().all(|digit| digit.is_ascii_hexdigit());
            assert!(is_root || names().any(|(known, _)| known == name), "{name}");
        }
    }
}

/// Asserts that the daemon refuses to start, and that the command in its message makes the next start succeed.
#[track_caller]
fn check_refused(home: &Home, name: &str) {
    let (status, said) = home.run(&[]);
    assert_eq!(status.code(), Some(1), "{name}: {said}");
    let command = run_command_in(&said, "start again: ");
    assert!(!fs::exists(home.data().join(name)).unwrap(), "{name}: {command}");
    drop(home.start());
}

/// Runs the command at the end of a message.
#[track_caller]
fn run_command_in<'a>(said: &'a str, after: &str) -> &'a str {
    let (_, command) = said.trim_end().rsplit_once(after).expect(said);
    let status = Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(status.success(), "{command}");
    command
}

#[test]
fn no_link_in_the_data_folder_is_followed() {
    for (name, is_folder) in names() {
        let (home, foreign) = (Home::new(), tempfile::tempdir().unwrap());
        let target = match is_folder {
            true => foreign.path().to_owned(),
            false => foreign.path().join("journal"),
        };
        fs::create_dir_all(foreign.path().join("mine/empty")).unwrap();
        for file in ["mine/plan", "journal", "plan.json"] {
            fs::write(foreign.path().join(file), "mine").unwrap();
        }
        let before = files_below(foreign.path());
        fs::create_dir_all(home.data().join(name).parent().unwrap()).unwrap();
        symlink(target, home.data().join(name)).unwrap();
        check_refused(&home, name);
        assert_eq!(files_below(foreign.path()), before, "{name}");
        assert!(
            before.iter().all(|file| fs::read(file).unwrap() == b"mine"),
            "{name}"
        );
        assert!(foreign.path().join("mine/empty").exists(), "{name}");
    }
}

#[test]
fn a_file_in_place_of_a_folder_and_the_other_way_round_stay() {
    for (name, is_folder) in names() {
        let home = Home::new();
        let path = home.data().join(name);
        let mine: &Path = match is_folder {
            true => &path,
            false => &path.join("mine"),
        };
        fs::create_dir_all(mine.parent().unwrap()).unwrap();
        fs::write(mine, "mine").unwrap();
        check_refused(&home, name);
        let aside = format!("{}.moved-away", path.display());
        let kept = Path::new(&aside).join(mine.strip_prefix(&path).unwrap());
        let kept = if is_folder { Path::new(&aside) } else { &kept };
        assert_eq!(fs::read(kept).unwrap(), b"mine", "{name}");
    }
}

#[test]
fn what_is_moved_away_twice_has_two_names() {
    let home = Home::new();
    let path = home.data().join("store.next");
    fs::create_dir_all(home.data()).unwrap();
    for text in ["first", "second"] {
        if path.exists() {
            fs::remove_dir_all(&path).unwrap();
        }
        fs::write(&path, text).unwrap();
        check_refused(&home, "store.next");
    }
    let read = |name| fs::read_to_string(home.data().join(name)).unwrap();
    assert_eq!(
        [read("store.next.moved-away"), read("store.next.moved-away-2")],
        ["first", "second"]
    );
}

/// Files are written under these names before they are renamed.
#[tokio::test]
async fn a_folder_in_place_of_a_temporary_file_stays_and_hinders_nothing() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first"]).await;
    drop((daemon, app));
    let mine = ["instance.new", "store.new"].map(|name| home.data().join(name).join("mine"));
    for path in &mine {
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(path, "mine").unwrap();
    }
    fs::remove_file(home.data().join("instance")).unwrap();
    fs::remove_dir_all(home.data().join("store")).unwrap();
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.remembered(id).await, ["first"]);
    app.begun(&home.project(), &["second"]).await;
    for path in &mine {
        assert_eq!(fs::read(path).unwrap(), b"mine", "{}", path.display());
    }
}

/// The database opens its files itself: it would follow the link, and wait at the pipe for ever.
#[tokio::test]
async fn no_link_or_pipe_among_the_files_of_the_database_is_opened() {
    for name in ["store/conf", "store/db"] {
        for is_link in [true, false] {
            let home = Home::new();
            let (daemon, app, id) = home.begun(&["first"]).await;
            drop((daemon, app));
            let (path, foreign) = (home.data().join(name), home.path().join("foreign"));
            fs::remove_file(&path).unwrap();
            fs::write(&foreign, "mine").unwrap();
            match is_link {
                true => symlink(&foreign, &path).unwrap(),
                false => make_pipe(&path),
            }
            let (status, said) = home.run(&[]);
            assert_eq!(status.code(), Some(1), "{name}: {said}");
            run_command_in(&said, "start again: ");
            assert_eq!(fs::read(&foreign).unwrap(), b"mine", "{name}");
            let (_daemon, app) = home.opened().await;
            assert_eq!(app.remembered(id).await, ["first"], "{name}");
        }
    }
}

/// A pipe in place of a plan must not be opened: that would block for ever.
#[tokio::test]
async fn a_start_does_not_wait_at_a_pipe() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first"]).await;
    drop((daemon, app));
    for folder in ["copies", "imports", "trees", "moves"] {
        fs::create_dir_all(home.data().join(folder)).unwrap();
        make_pipe(&home.data().join(folder).join("x"));
    }
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.remembered(id).await, ["first"]);
}

/// A symbolic link in place of a plan, or of the log of a plan: its target stays as it is, whatever it contains, and
/// the link, or the plan with the link, is set aside.
#[tokio::test]
async fn no_link_to_a_plan_is_followed() {
    // The name of the plan's log, if the plan is a folder.
    for (folder, log) in [
        ("copies", None),
        ("trees", None),
        ("imports", Some("plan")),
        ("moves", Some("journal")),
    ] {
        for content in ["", "mine", "{\"v\":1,"] {
            let (home, case) = (Home::new(), (folder, content));
            let foreign = home.path().join("foreign");
            fs::create_dir_all(foreign.join("kept")).unwrap();
            for file in ["plan", "journal", "other", ".x.tmp", ".journal.tmp", "kept/0"] {
                // A folder without a log counts as left by a kill.
                if content.is_empty() && ["plan", "journal"].contains(&file) {
                    continue;
                }
                fs::write(foreign.join(file), content).unwrap();
            }
            fs::create_dir(home.path().join("empty")).unwrap();
            let before = contents(&foreign);
            let plans = home.data().join(folder);
            fs::create_dir_all(&plans).unwrap();
            let id = "0f1a1f5e-0000-4000-8000-000000000000";
            let mut links = vec![plans.join(id)];
            match log {
                None => symlink(foreign.join("other"), &links[0]).unwrap(),
                Some(log) => {
                    symlink(&foreign, &links[0]).unwrap();
                    // The folder of this plan is real, and its log is a link.
                    let other = plans.join("11111111-0000-4000-8000-000000000000");
                    fs::create_dir(&other).unwrap();
                    symlink(foreign.join(log), other.join(log)).unwrap();
                    links.push(other);
                    let empty = plans.join("22222222-0000-4000-8000-000000000000");
                    symlink(home.path().join("empty"), &empty).unwrap();
                    links.push(empty);
                }
            }
            let (_daemon, app) = home.opened().await;
            assert_eq!(contents(&foreign), before, "{case:?}");
            assert!(
                foreign.join("kept").exists() && home.path().join("empty").exists(),
                "{case:?}"
            );
            let aside = |link: &PathBuf| PathBuf::from(format!("{}.set-aside-1", link.display()));
            let aside: Vec<PathBuf> = links.iter().map(aside).collect();
            assert_eq!(reported(&app, &home.data()).await, aside, "{case:?}");
        }
    }
}

/// A link that replaces a folder of plans while the daemon runs. The next start refuses it, see above.
#[tokio::test]
async fn no_link_to_a_folder_of_plans_is_followed() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let at = app.checkpoints(id).await[0].id.clone();
    app.close(id).await;
    let bundle = bundled(&app, id).await;
    let foreign = home.path().join("foreign");
    fs::create_dir_all(foreign.join("mine/kept")).unwrap();
    for file in ["plan", "mine/plan", "mine/journal", "mine/kept/0", ".x.tmp"] {
        fs::write(foreign.join(file), "mine").unwrap();
    }
    let entries = || fs::read_dir(&foreign).unwrap().count();
    let before = (contents(&foreign), entries());
    let other = home.folder_named("other");
    for (folder, method, params) in [
        (
            "imports",
            "conversation/import",
            json!({"path": bundle, "newIds": true, "cwd": home.project()}),
        ),
        (
            "copies",
            "conversation/fork",
            json!({"conversationId": id, "at": at}),
        ),
        (
            "moves",
            "conversation/move",
            json!({"conversationId": id, "cwd": other}),
        ),
        (
            "trees",
            "transcript/move",
            json!({"from": other, "to": home.folder_named("tree")}),
        ),
    ] {
        let link = home.data().join(folder);
        symlink(&foreign, &link).unwrap();
        let error = app.call(method, params.clone()).await.expect_err(folder);
        assert_eq!(error.kind, ErrorKind::StoreFailed, "{error:?}");
        assert!(error.message.contains(link.to_str().unwrap()), "{error:?}");
        assert_eq!((contents(&foreign), entries()), before, "{folder}");
        fs::remove_file(link).unwrap();
        app.call(method, params).await.unwrap();
    }
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}

/// A link in the folder of a valid plan, in place of the folder of originals or beside it. The files in its target are
/// neither taken for originals nor deleted.
#[tokio::test]
async fn no_link_in_the_folder_of_a_plan_is_followed() {
    for (is_recorded, is_kept) in [(true, true), (true, false), (false, true), (false, false)] {
        let (home, case) = (Home::new(), (is_recorded, is_kept));
        let (id, folder) = left_by_a_move(&home, is_recorded).await;
        let foreign = home.path().join("foreign");
        match is_kept {
            true => fs::rename(folder.join("kept"), &foreign).unwrap(),
            false => fs::create_dir(&foreign).unwrap(),
        }
        for file in ["1", ".x.tmp"] {
            fs::write(foreign.join(file), "mine").unwrap();
        }
        let before = contents(&foreign);
        symlink(&foreign, folder.join(if is_kept { "kept" } else { "mine" })).unwrap();
        let (_daemon, app) = home.opened().await;
        assert_eq!(contents(&foreign), before, "{case:?}");
        assert_eq!(app.remembered(id).await, ["one"], "{case:?}");
        let aside = PathBuf::from(format!("{}.set-aside-1", folder.display()));
        let reported = reported(&app, &home.data()).await;
        assert_eq!(reported.contains(&aside), is_kept, "{case:?}: {reported:?}");
    }
}

/// A link with the name of a backup whose deletion was interrupted by a kill.
#[tokio::test]
async fn no_link_to_a_backup_that_is_being_deleted_is_followed() {
    let home = Home::keeping_nothing();
    let (daemon, app) = home.opened().await;
    let (id, session) = kept(&home, &app).await;
    // The target contains the files that the daemon deletes from such a backup.
    let foreign = home.path().join("foreign");
    copy_tree(&session, &foreign);
    let before = contents(&foreign);
    assert!(!before.is_empty());
    drop((daemon, app));
    let link = home.data().join("kept/gone-59203a7f-542f-4ed7-b742-5d054e2d2039");
    symlink(&foreign, &link).unwrap();
    let (_daemon, app) = home.opened().await;
    keep(&app, json!({})).await.unwrap();
    app.erase(id).await;
    assert!(!session.exists());
    assert_eq!(contents(&foreign), before);
    assert!(link.is_symlink());
}

/// A kill may have left anything in the folder of the database that is being built. A start deletes it, and nothing
/// through links.
#[tokio::test]
async fn rubbish_in_the_folder_of_the_next_database_keeps_no_start_from_succeeding() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first"]).await;
    drop((daemon, app));
    let (next, foreign) = (home.data().join("store.next"), home.path().join("foreign"));
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("db"), "mine").unwrap();
    for folder in ["new/blobs", "old", "old/old"] {
        fs::create_dir_all(next.join(folder)).unwrap();
    }
    for file in ["db", "new/conf", "new/db", "new/blobs/1", "old/old/snap.0"] {
        fs::write(next.join(file), "rubbish").unwrap();
    }
    symlink(&foreign, next.join("linked")).unwrap();
    symlink(foreign.join("db"), next.join("old/db")).unwrap();
    make_pipe(&next.join("new/pipe"));
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.remembered(id).await, ["first"]);
    assert!(!next.exists());
    assert_eq!(fs::read(foreign.join("db")).unwrap(), b"mine");
}

/// sled deletes files with certain names from its folder.
#[tokio::test]
async fn no_link_among_the_folders_of_the_database_is_followed() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first"]).await;
    drop((daemon, app));
    let (blobs, foreign) = (home.data().join("store/blobs"), home.path().join("foreign"));
    fs::remove_dir(&blobs).unwrap();
    fs::create_dir(&foreign).unwrap();
    for name in ["1", "99999999999"] {
        fs::write(foreign.join(name), "mine").unwrap();
    }
    let before = contents(&foreign);
    symlink(&foreign, &blobs).unwrap();
    let (status, said) = home.run(&[]);
    assert_eq!(status.code(), Some(1), "{said}");
    run_command_in(&said, "start again: ");
    assert_eq!(contents(&foreign), before);
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.remembered(id).await, ["first"]);
    assert_eq!(contents(&foreign), before);
}

/// A link in place of a socket is neither removed nor connected to.
#[test]
fn no_link_in_place_of_a_socket_is_followed() {
    for name in ["sessiond.sock", "acp.sock"] {
        let home = Home::new();
        let (socket, foreign) = (home.path().join("run").join(name), home.path().join("foreign"));
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        fs::set_permissions(socket.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&foreign, "mine").unwrap();
        symlink(&foreign, &socket).unwrap();
        if name == "sessiond.sock" {
            let (status, said) = home.run(&[]);
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(said.contains(socket.to_str().unwrap()), "{said}");
        } else {
            // The daemon starts without this socket, because apps and commands do not need it.
            drop(home.start());
            assert!(
                home.logged().contains(socket.to_str().unwrap()),
                "{}",
                home.logged()
            );
        }
        assert_eq!(fs::read(&foreign).unwrap(), b"mine", "{name}");
        assert!(socket.is_symlink(), "{name}");
    }
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = files_below(folder).into_iter();
    files
        .map(|file| (file.clone(), fs::read(file).unwrap()))
        .collect()
}

/// Moves a folder of backups elsewhere, and puts a link to it or a file in its place.
fn misplace(path: &Path, elsewhere: &Path, is_link: bool) {
    fs::rename(path, elsewhere).unwrap();
    match is_link {
        true => symlink(elsewhere, path).unwrap(),
        false => fs::write(path, "mine").unwrap(),
    }
}

/// Nothing is written, deleted or set aside through a link below the backups, or read through it for a restore.
#[tokio::test]
async fn no_link_below_the_backups_is_followed() {
    for (is_root, is_link) in [(false, true), (false, false), (true, true), (true, false)] {
        let (home, case) = (Home::keeping_nothing(), (is_root, is_link));
        let (_daemon, app, id) = home.begun(&["first"]).await;
        let other = app.begun(&home.project(), &["first"]).await;
        let named = |id| json!({"conversationId": id});
        app.close(id).await;
        keep(&app, named(other)).await.unwrap();
        let kept = keep(&app, named(id)).await.unwrap();
        let session = Path::new(&kept.kept[0].path).parent().unwrap();
        let path = if is_root {
            session.parent().unwrap()
        } else {
            session
        };
        let elsewhere = home.path().join("elsewhere");
        misplace(path, &elsewhere, is_link);
        let before = contents(&elsewhere);
        let there = fs::symlink_metadata(path).unwrap().file_type();

        for one in [id, other] {
            app.send(one, "second").await;
            app.close(one).await;
        }
        let error = refused(keep(&app, named(id)).await, ErrorKind::TranscriptDamaged);
        assert_eq!(keep(&app, named(other)).await.is_err(), is_root, "{case:?}");
        let total = keep(&app, json!({})).await.unwrap().total.unwrap();
        assert_eq!(total.sessions, u64::from(!is_root), "{case:?}");
        assert_eq!(reported(&app, &home.data()).await, [path], "{case:?}");
        assert_eq!(app.remembered(id).await, ["first", "second"], "{case:?}");
        app.close(id).await;
        assert_eq!(contents(&elsewhere), before, "{case:?}");
        assert_eq!(fs::symlink_metadata(path).unwrap().file_type(), there, "{case:?}");

        run_command_in(&error.message, "move it away: ");
        keep(&app, named(id)).await.unwrap();
        assert_eq!(reported(&app, &home.data()).await, [] as [PathBuf; 0], "{case:?}");
        assert_eq!(contents(&elsewhere), before, "{case:?}");
    }
}

/// A deletion deletes the transcripts, and the response says which backups may still exist.
#[tokio::test]
async fn no_backup_is_deleted_through_a_link() {
    for is_root in [false, true] {
        let home = Home::keeping_nothing();
        let (_daemon, app) = home.opened().await;
        let (id, session) = kept(&home, &app).await;
        let path = if is_root {
            session.parent().unwrap()
        } else {
            &session
        };
        let elsewhere = home.path().join("elsewhere");
        misplace(path, &elsewhere, true);
        let before = contents(&elsewhere);
        let answer = app.erase(id).await;
        assert!(answer.to_string().contains("mv -n"), "{is_root}: {answer}");
        assert_eq!(contents(&elsewhere), before, "{is_root}");
    }
}

/// Each turn is backed up, so each could log the link again.
#[tokio::test]
async fn a_link_below_the_backups_is_logged_once() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first"]).await;
    app.close(id).await;
    once_kept(&app, |total| total.bytes > 0).await;
    let kept = keep(&app, json!({"conversationId": id})).await.unwrap();
    drop((daemon, app));
    let session = Path::new(&kept.kept[0].path).parent().unwrap();
    misplace(session, &home.path().join("elsewhere"), true);
    let (_daemon, app) = home.opened().await;
    for prompt in ["second", "third"] {
        app.send(id, prompt).await;
        app.close(id).await;
    }
    // Sessions are backed up one after the other.
    let other = app.begun(&home.project(), &["first"]).await;
    app.close(other).await;
    once_kept(&app, |total| total.bytes > 0).await;
    let (logged, session) = (home.logged(), session.to_str().unwrap());
    let lines: Vec<&str> = logged.lines().filter(|line| line.contains(session)).collect();
    assert_eq!(lines.len(), 1, "{lines:#?}");
}

fn copy_tree(from: &Path, to: &Path) {
    // With hard links, as backups are to transcripts.
    let status = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(status.unwrap().success());
}

/// Replaces each file of a used data folder, one by one, with a link to the same content elsewhere. Either the daemon
/// refuses to start and says what to do, or it runs and changes nothing through the link.
#[tokio::test]
async fn nothing_is_written_or_deleted_through_a_link_in_place_of_a_file() {
    let home = Home::new();
    let (data, pristine, foreign) = (
        home.data(),
        home.path().join("pristine"),
        home.path().join("foreign"),
    );
    let long = "word ".repeat(2_000);
    let (daemon, app) = home.opened().await;
    let mut ids = Vec::new();
    for prompt in [&long, &long.to_uppercase()] {
        let id = app.begun(&home.project(), &["first", prompt]).await;
        app.close(id).await;
        keep(&app, json!({"conversationId": id})).await.unwrap();
        ids.push(id);
    }
    drop((daemon, app));
    copy_tree(&data, &pristine);
    let mut files = files_below(&data);
    files.retain(|file| !file.starts_with(data.join("loopback")));
    for folder in ["bodies", "kept", "store"] {
        let folder = data.join(folder);
        assert!(
            files.iter().any(|file| file.starts_with(&folder)),
            "{}",
            folder.display()
        );
    }
    for path in files {
        let name = path.strip_prefix(&data).unwrap();
        fs::remove_dir_all(&data).unwrap();
        copy_tree(&pristine, &data);
        fs::rename(&path, &foreign).unwrap();
        let before = fs::read(&foreign).unwrap();
        symlink(&foreign, &path).unwrap();
        if name.starts_with("bodies") || name.starts_with("kept") && name != Path::new(PASSED) {
            let (_daemon, app) = home.opened().await;
            for id in &ids {
                let prompt = json!({"conversationId": id, "prompt": long, "requestId": "again"});
                let named = json!({"conversationId": id});
                for (method, params) in [
                    ("conversation/prompt", prompt),
                    ("conversation/history", named.clone()),
                    ("conversation/close", named.clone()),
                    ("transcript/keep", named),
                ] {
                    // Whether the calls fail does not matter here.
                    drop(app.call(method, params).await);
                }
            }
            let delete = json!({"conversationId": ids[1], "transcripts": "delete"});
            drop(app.call("conversation/delete", delete).await);
        } else {
            let (status, said) = home.run(&[]);
            assert_eq!(status.code(), Some(1), "{}: {said}", name.display());
            assert!(said.contains("start again: "), "{}: {said}", name.display());
        }
        assert!(fs::read(&foreign).unwrap() == before, "{}", name.display());
        fs::remove_file(&foreign).unwrap();
    }
}

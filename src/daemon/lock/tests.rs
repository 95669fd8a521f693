//! Tests with real lock files. Locks belong to an open file, so one process can play both sides.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use crate::paths::names::LOCK;

/// Whether the lock is held, and what the file says, as a client finds it.
fn found(path: &Path) -> (bool, Option<LockInfo>) {
    let file = File::open(path).unwrap();
    let is_free = try_lock(&file, FlockOperation::NonBlockingLockShared, path).unwrap();
    (!is_free, read_info(&file).unwrap())
}

fn info(socket: &str) -> LockInfo {
    LockInfo {
        pid: std::process::id(),
        socket: socket.into(),
        acp_socket: Some("/run/user/1000/sessiond/acp.sock".into()),
        home: None,
        config: None,
        started_at: "2026-11-20T10:00:00Z".parse().unwrap(),
    }
}

#[test]
fn a_lock_file_names_its_holder_even_after_its_release() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(LOCK);
    let lock = DaemonLock::acquire(&path, &info("/a.sock")).unwrap();
    assert_eq!(found(&path), (true, Some(info("/a.sock"))));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    drop(lock);
    assert_eq!(found(&path), (false, Some(info("/a.sock"))));
}

/// A process that the dead daemon was starting holds the lock a moment longer.
#[test]
fn the_lock_of_a_dead_daemon_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(LOCK);
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let dead = LockInfo {
        pid: child.id(),
        ..info("/a.sock")
    };
    let mut left_behind = Some(DaemonLock::acquire(&path, &dead).unwrap());
    let next = || DaemonLock {
        file: OpenOptions::new().read(true).write(true).open(&path).unwrap(),
        path: path.clone(),
        folder: None,
    };
    let take = |lock: DaemonLock, pause: &mut dyn FnMut(Duration)| lock.lock_exclusively(&lock.file, pause);
    let mut pauses = 0;
    take(next(), &mut |_| {
        pauses += 1;
        if pauses == 3 {
            left_behind = None;
        }
    })
    .unwrap();
    assert_eq!(pauses, 3);
    // But not forever.
    let _stays = DaemonLock::acquire(&path, &dead).unwrap();
    let mut waited = Duration::ZERO;
    let error = take(next(), &mut |pause| waited += pause).unwrap_err();
    assert!(matches!(error, LockError::AlreadyRunning { .. }), "{error:?}");
    assert_eq!(waited, DYING_HOLDER_LIMIT);
}

#[test]
fn publishing_keeps_the_file_and_leaves_nothing_of_a_longer_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(LOCK);
    let mut lock = DaemonLock::acquire(&path, &info(&format!("/{}.sock", "long".repeat(50)))).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    lock.publish(&info("/short.sock")).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        format!(
            "{{\"pid\":{},\"socket\":\"/short.sock\",\"acpSocket\":\"/run/user/1000/sessiond/acp.sock\",\"startedAt\":\"2026-11-20T10:00:00.000Z\"}}\n",
            std::process::id()
        )
    );
}

#[test]
fn the_file_of_a_killed_daemon_does_not_prevent_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(LOCK);
    for left in ["", "{\"pid\":", "not json at all\n\n"] {
        fs::write(&path, left).unwrap();
        assert_eq!(found(&path), (false, None), "{left:?}");
    }
    let _lock = DaemonLock::acquire(&path, &info("/a.sock")).unwrap();
    assert_eq!(found(&path).1, Some(info("/a.sock")));
}

#[test]
fn a_daemon_without_info_still_holds_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(LOCK);
    let file = File::create(&path).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(found(&path), (true, None));
    let error = DaemonLock::acquire(&path, &info("/a.sock")).unwrap_err();
    assert!(
        matches!(error, LockError::AlreadyRunning { info: None, .. }),
        "{error:?}"
    );
}

#[test]
fn readers_never_prevent_a_daemon_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(LOCK);
    fs::write(&path, "").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    found(&path);
                }
            });
        }
        for _ in 0..200 {
            let outcome = DaemonLock::acquire(&path, &info("/a.sock"));
            if outcome.is_err() {
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            drop(outcome.unwrap());
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = DaemonLock::acquire(&folder.path().join("none/sessiond.lock"), &info("/a.sock")).unwrap_err();
    assert!(matches!(error, LockError::Io { step: "open", .. }), "{error:?}");
    assert!(error.to_string().contains("none/sessiond.lock"), "{error}");
}

/// The process is dead although its pid is still taken.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_process_is_dead_before_it_is_reaped() {
    use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};

    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    assert!(!is_dead(child.id()));
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    assert!(is_dead(child.id()), "it has ended");
    child.wait().unwrap();
    assert!(is_dead(child.id()), "its number is free");
}

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;

impl DeathWatch {
    /// Creates a watch for a peer that is not a process: it never ends, only its output does.
    pub(crate) fn none() -> Self {
        let (_, exit) = watch::channel(None);
        Self {
            exit,
            stderr: StderrTail::empty(),
        }
    }
}

/// Long enough for a busy machine. Reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(30);

const PATIENT: StopDeadlines = StopDeadlines {
    eof: PATIENCE,
    term: PATIENCE,
    kill: PATIENCE,
};

fn shell(script: &str) -> AgentCommand {
    AgentCommand {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        ..AgentCommand::default()
    }
}

fn mark() -> SpawnMark {
    SpawnMark::random(&Instance::new(&uuid::Uuid::new_v4().to_string()))
}

fn store() -> Store {
    Store::ephemeral().unwrap()
}

/// Starts a script and waits until it prints that it is ready.
async fn start(script: &str) -> (ChildProcess, ChildStdin) {
    let started = spawn(&shell(script), "test", &mark(), &store()).await;
    let (process, stdin, stdout) = started.unwrap();
    let mut lines = BufReader::new(stdout).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("up"));
    (process, stdin)
}

fn never() -> CancellationToken {
    CancellationToken::new()
}

#[tokio::test]
async fn the_environment_carries_the_mark_and_what_was_asked_for() {
    let mut command = shell("echo \"$SESSIOND_MARK $ADDED [$PATH_GONE]\"");
    command.env = [
        ("ADDED".to_owned(), "yes".to_owned()),
        ("PATH_GONE".to_owned(), "no".to_owned()),
    ]
    .into();
    command.env_remove = vec!["PATH_GONE".to_owned()];
    let mark = mark();
    let started = spawn(&command, "test", &mark, &store()).await;
    let (mut process, stdin, stdout) = started.unwrap();
    let line = BufReader::new(stdout).lines().next_line().await.unwrap().unwrap();
    assert_eq!(line, format!("{mark} yes []"));
    drop(stdin);
    process.stop(PATIENT, &never()).await;
}

#[tokio::test]
async fn a_spawn_that_cannot_be_recorded_is_ended() {
    let store = store();
    store.shutdown().await.unwrap();
    let mark = mark();
    let error = spawn(&shell("sleep 1000"), "test", &mark, &store)
        .await
        .unwrap_err();
    assert!(matches!(error, SpawnError::NotRecorded(_)), "{error:?}");
    let target = SweepTarget::marked(vec![mark]);
    // All were killed at once, and each ends in its own time: the shell may have started its child already.
    for pid in sweep::find(&target) {
        let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        // It may have ended already.
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
            let ended = tokio::task::spawn_blocking(move || {
                let limit = Timespec::try_from(PATIENCE).unwrap();
                let mut process = [PollFd::new(&process, PollFlags::IN)];
                retry_on_intr(|| poll(&mut process, Some(&limit))).unwrap()
            });
            assert_eq!(ended.await.unwrap(), 1, "{pid:?} still runs");
        }
    }
    assert_eq!(sweep::find(&target), [] as [u32; 0]);
}

#[tokio::test]
async fn dropping_a_running_process_kills_it() {
    let (process, _stdin) = start("trap '' TERM; echo up; while :; do sleep 1000; done").await;
    let mut watch = process.watch();
    drop(process);
    let status = tokio::time::timeout(PATIENCE, watch.ended()).await.unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
}

#[test]
fn marks_are_read_back() {
    let mark = mark();
    assert_eq!(SpawnMark::parse(&mark.to_string()), Some(mark));
    assert_eq!(Instance::new("a:b=c/\0d-1").as_str(), "abcd-1");
    for bad in ["", "a", "a:", "a:b:c", "a/b:c", "a:b c"] {
        assert_eq!(SpawnMark::parse(bad), None, "{bad}");
    }
}

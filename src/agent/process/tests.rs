use std::sync::Mutex;

use futures_util::FutureExt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;

/// Long enough for a busy machine. Reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Gives up each step almost at once, except for the last.
const IMPATIENT: StopDeadlines = StopDeadlines {
    eof: Duration::from_millis(50),
    term: Duration::from_millis(200),
    kill: PATIENCE,
};

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

async fn start(script: &str) -> ChildProcess {
    spawn(&shell(script), "test", &mark(), &NoRecorder).await.unwrap()
}

/// Waits until the script prints that it is ready.
async fn wait_until_up(process: &mut ChildProcess) -> ChildStdin {
    let (stdin, stdout) = process.take_pipes().unwrap();
    let mut lines = BufReader::new(stdout).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("up"));
    stdin
}

fn never() -> CancellationToken {
    CancellationToken::new()
}

fn left(process: &ChildProcess) -> Vec<u32> {
    sweep::find(&SweepTarget::process(process.record().clone()))
}

#[tokio::test]
async fn reasons_why_a_program_cannot_start_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let plain_file = folder.path().join("plain");
    std::fs::write(&plain_file, "not a program").unwrap();
    let try_one = async |program: &std::path::Path, working_dir: Option<PathBuf>| {
        let command = AgentCommand {
            program: program.into(),
            working_dir,
            ..AgentCommand::default()
        };
        spawn(&command, "test", &mark(), &NoRecorder).await.unwrap_err()
    };
    let missing = try_one(std::path::Path::new("no-such-agent-program"), None).await;
    assert!(matches!(missing, SpawnError::Missing { .. }), "{missing:?}");
    let not_executable = try_one(&plain_file, None).await;
    assert!(
        matches!(not_executable, SpawnError::NotExecutable { .. }),
        "{not_executable:?}"
    );
    let no_folder = try_one(std::path::Path::new("sh"), Some(folder.path().join("gone"))).await;
    assert!(
        matches!(no_folder, SpawnError::WorkingDir { .. }),
        "{no_folder:?}"
    );
}

#[tokio::test]
async fn the_environment_carries_the_mark_and_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = shell("echo \"$SESSIOND_MARK $ADDED [$PATH_GONE] $(pwd -P)\"");
    command.env = [
        ("ADDED".to_owned(), "yes".to_owned()),
        ("PATH_GONE".to_owned(), "no".to_owned()),
    ]
    .into();
    command.env_remove = vec!["PATH_GONE".to_owned()];
    command.working_dir = Some(folder.path().into());
    let mark = mark();
    let mut process = spawn(&command, "test", &mark, &NoRecorder).await.unwrap();
    let (_stdin, stdout) = process.take_pipes().unwrap();
    let line = BufReader::new(stdout).lines().next_line().await.unwrap().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    assert_eq!(line, format!("{mark} yes [] {}", folder.display()));
    process.stop(PATIENT, &never()).await;
}

#[derive(Default)]
struct Books {
    records: Mutex<Vec<SpawnRecord>>,
    refuses: bool,
}

impl SpawnRecorder for Books {
    fn record(&self, record: SpawnRecord) -> BoxFuture<'_, Result<(), RecordError>> {
        self.records.lock().unwrap().push(record);
        let outcome = if self.refuses {
            Err(RecordError("disk full".into()))
        } else {
            Ok(())
        };
        std::future::ready(outcome).boxed()
    }

    fn ended(&self, _: SpawnMark) -> BoxFuture<'_, Result<(), RecordError>> {
        std::future::ready(Ok(())).boxed()
    }
}

#[tokio::test]
async fn a_spawn_is_recorded_before_it_is_returned() {
    let books = Books::default();
    let mark = mark();
    let mut process = spawn(&shell("exec cat"), "agent-name", &mark, &books)
        .await
        .unwrap();
    let records = books.records.lock().unwrap().clone();
    assert_eq!(records, [process.record().clone()]);
    assert_eq!(
        (&records[0].mark, records[0].agent.as_str()),
        (&mark, "agent-name")
    );
    #[cfg(target_os = "linux")]
    assert!(records[0].start_time.is_some() && records[0].boot_id.is_some());
    process.stop(PATIENT, &never()).await;
}

#[tokio::test]
async fn a_spawn_that_cannot_be_recorded_is_ended() {
    let books = Books {
        refuses: true,
        ..Books::default()
    };
    let error = spawn(&shell("sleep 1000"), "test", &mark(), &books)
        .await
        .unwrap_err();
    assert!(matches!(error, SpawnError::NotRecorded(_)), "{error:?}");
    let target = SweepTarget::process(books.records.lock().unwrap()[0].clone());
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
async fn a_death_has_its_status_and_the_end_of_its_standard_error() {
    let script = "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; printf 'end \\377\\n' >&2; exit 7";
    let mut process = start(script).await;
    let mut watch = process.watch();
    assert_eq!(watch.ended().await.code(), Some(7));
    let death = watch.death_within(PATIENCE).await;
    assert!(
        death.stderr_tail.ends_with("line 2999\nend \u{fffd}\n"),
        "{}",
        death.stderr_tail
    );
    assert!(
        death.stderr_tail.len() > STDERR_TAIL_BYTES - 16 && death.stderr_tail.len() <= STDERR_TAIL_BYTES + 2
    );
    crate::words::check("an agent that ends and prints", "death", &death.to_string());
    assert_eq!(
        process.stop(PATIENT, &never()).await.stopped_by,
        StoppedBy::Itself
    );
}

#[tokio::test]
async fn the_end_of_input_stops_a_process_that_reads() {
    let mut process = start("echo up; cat >/dev/null").await;
    drop(wait_until_up(&mut process).await);
    let report = process.stop(PATIENT, &never()).await;
    assert_eq!(
        (report.stopped_by, report.status.unwrap().code()),
        (StoppedBy::EndOfInput, Some(0))
    );
    assert_eq!(report.sweep, SweepReport::default());
}

#[tokio::test]
async fn a_process_that_ignores_the_end_of_input_is_terminated_with_its_group() {
    let mut process = start("sleep 1000 & echo up; wait").await;
    drop(wait_until_up(&mut process).await);
    let report = process
        .stop(
            StopDeadlines {
                term: PATIENCE,
                ..IMPATIENT
            },
            &never(),
        )
        .await;
    assert_eq!(report.stopped_by, StoppedBy::Terminate);
    assert!(left(&process).is_empty());
}

#[tokio::test]
async fn f32_a_process_that_ignores_sigterm_is_killed() {
    let mut process = start("trap '' TERM; echo up; while :; do sleep 1000; done").await;
    drop(wait_until_up(&mut process).await);
    let report = process.stop(IMPATIENT, &never()).await;
    assert_eq!(report.stopped_by, StoppedBy::Kill);
    assert!(left(&process).is_empty());
}

/// Nothing but its parent shows whose it is, and that ends first.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn f32_a_child_without_its_environment_in_a_session_of_its_own_is_swept() {
    let script = "env -i setsid sh -c 'echo up; exec sleep 1000' & exec cat >/dev/null";
    let mut process = start(script).await;
    let stdin = wait_until_up(&mut process).await;
    let family = sweep::descendants(process.pid());
    process.note_family().await;
    drop(stdin);
    let report = process.stop(PATIENT, &never()).await;
    assert_eq!(report.stopped_by, StoppedBy::EndOfInput);
    let ended: Vec<u32> = report.sweep.ended.iter().map(|ended| ended.pid).collect();
    assert!(
        !family.is_empty() && family.iter().all(|pid| ended.contains(pid)),
        "{family:?} {report:?}"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_descendant_without_its_environment_is_swept() {
    // Its parent, which has the mark, still runs during the sweep.
    let script = "setsid sh -c 'env -i setsid sh -c \"sleep 1000 & echo up; wait\"; :' & exec cat >/dev/null";
    let mut process = start(script).await;
    let stdin = wait_until_up(&mut process).await;
    let mut family = sweep::descendants(process.pid());
    family.sort_unstable();
    assert_eq!(family.len(), 3, "{family:?}");
    drop(stdin);
    let report = process.stop(PATIENT, &never()).await;
    assert_eq!(report.sweep.survivors, []);
    // Two of the three have no mark.
    let mut pids: Vec<u32> = report.sweep.ended.iter().map(|ended| ended.pid).collect();
    pids.sort_unstable();
    assert_eq!(pids, family);
}

#[tokio::test]
async fn dropping_a_running_process_kills_it() {
    let mut process = start("trap '' TERM; echo up; while :; do sleep 1000; done").await;
    let _stdin = wait_until_up(&mut process).await;
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

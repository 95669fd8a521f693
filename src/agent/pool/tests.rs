use futures_util::FutureExt;

use super::*;
use crate::store::Sequence;

/// Long enough for a busy machine. Reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers everything that has an id, and appends each line to the file in its environment.
const AGENT: &str = r#"while read -r line; do
    [ -z "$NOTES" ] || echo "$line" >>"$NOTES"
    id=${line#*\"id\":}; id=${id%%,*}
    echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":1}}"
done"#;

fn launch(script: &str) -> Launch {
    let command = AgentCommand {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        ..AgentCommand::default()
    };
    Launch {
        command,
        ..Launch::default()
    }
}

fn pool_with(settings: PoolSettings, store: Store) -> Pool {
    Pool::new(Instance::new(&uuid::Uuid::new_v4().to_string()), settings, store)
}

fn pool() -> Pool {
    pool_with(PoolSettings::default(), Store::ephemeral().unwrap())
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it does not take so long")
}

#[tokio::test(start_paused = true)]
async fn f20_failures_back_off_but_a_user_may_try() {
    let mut missing = launch("");
    missing.command.program = "no-such-agent-program".into();
    let pool = pool();
    let key = PoolKey::new("a", &missing);
    // How long a try waits, in milliseconds. The paused clock advances when all tasks wait.
    let try_once = async |urgency| {
        let begun = Instant::now();
        match pool.acquire(&key, &missing, urgency, None).await.unwrap_err() {
            AcquireError::Spawn { source, .. } => {
                assert!(matches!(*source, SpawnError::Missing { .. }), "{source:?}");
            }
            other => panic!("{other:?}"),
        }
        begun.elapsed().as_millis()
    };
    assert_eq!(try_once(Urgency::Background).await, 0);
    assert_eq!(try_once(Urgency::Background).await, 0);
    assert_eq!(try_once(Urgency::Background).await, 250);
    assert_eq!(try_once(Urgency::Now).await, 0);
    assert_eq!(try_once(Urgency::Background).await, 5_000);
    // A shutdown of the daemon does not wait for the backoff.
    let begun = Instant::now();
    let (waiting, ()) = tokio::join!(
        pool.acquire(&key, &missing, Urgency::Background, None),
        pool.shutdown()
    );
    assert!(matches!(waiting, Err(AcquireError::ShuttingDown)), "{waiting:?}");
    assert_eq!(begun.elapsed().as_millis(), 0);
}

/// An agent with a child that ignores SIGTERM, and a pool with short deadlines.
#[cfg(target_os = "linux")]
fn with_children_that_stay() -> (Launch, Pool) {
    let agent = launch(&format!(
        "(trap '' TERM; exec sleep 1000) </dev/null >/dev/null & {AGENT}"
    ));
    let settings = PoolSettings {
        stop: StopDeadlines {
            term: Duration::from_millis(500),
            ..StopDeadlines::default()
        },
        ..PoolSettings::default()
    };
    let pool = pool_with(settings, Store::ephemeral().unwrap());
    (agent, pool)
}

/// Kills a process and waits until its connection has noticed.
async fn kill(agent: &Lease) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    soon(agent.connection().died()).await;
}

/// What a dead agent left behind may still write to the transcript that its successor reads.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn descendants_of_a_dead_agent_end_before_its_successor_is_handed_out() {
    let (agent, pool) = with_children_that_stay();
    let key = PoolKey::new("a", &agent);
    let first = soon(pool.acquire(&key, &agent, Urgency::Now, None))
        .await
        .unwrap();
    assert_eq!(crate::agent::sweep::descendants(first.pid()).len(), 1);
    kill(&first).await;
    let second = soon(pool.acquire(&key, &agent, Urgency::Now, None))
        .await
        .unwrap();
    assert!(second.generation() > first.generation());
    assert!(first.stopped().now_or_never().is_some(), "its child still runs");
    soon(pool.shutdown()).await;
}

#[tokio::test]
async fn a_shutdown_ends_running_and_starting_agents() {
    let (agent, stubborn, silent) = (
        launch(AGENT),
        launch(&format!("trap '' TERM; {AGENT}; while :; do sleep 1000; done")),
        launch("exec sleep 1000"),
    );
    let store = Store::ephemeral().unwrap();
    let settings = PoolSettings {
        stop: StopDeadlines {
            eof: Duration::from_millis(20),
            term: Duration::from_millis(20),
            kill: PATIENCE,
        },
        ..PoolSettings::default()
    };
    let pool = pool_with(settings, store.clone());
    let _one = soon(pool.acquire(&PoolKey::new("a", &agent), &agent, Urgency::Now, None))
        .await
        .unwrap();
    let two = soon(pool.acquire(&PoolKey::new("b", &stubborn), &stubborn, Urgency::Now, None))
        .await
        .unwrap();
    let silent_key = PoolKey::new("c", &silent);
    let (starting, ()) = soon(futures_util::future::join(
        pool.acquire(&silent_key, &silent, Urgency::Now, None),
        pool.shutdown(),
    ))
    .await;
    assert!(
        matches!(starting, Err(AcquireError::ShuttingDown)),
        "{starting:?}"
    );
    assert!(two.connection().death().is_some());
    // Three spawns and three ends were recorded.
    assert_eq!(store.status().sequence, Sequence(6));
    assert_eq!(store.processes().unwrap(), []);
    let late = pool.acquire(&silent_key, &silent, Urgency::Now, None).await;
    assert!(matches!(late, Err(AcquireError::ShuttingDown)), "{late:?}");
}

#[tokio::test]
async fn an_agent_that_refuses_to_initialize_is_ended() {
    let refusing = launch(
        "read -r line; id=${line#*\\\"id\\\":}; id=${id%%,*}; echo \"{\\\"id\\\":$id,\\\"error\\\":{\\\"code\\\":-32000,\\\"message\\\":\\\"log in\\\"}}\"; cat >/dev/null",
    );
    let store = Store::ephemeral().unwrap();
    let pool = pool_with(PoolSettings::default(), store.clone());
    let error = soon(pool.acquire(&PoolKey::new("a", &refusing), &refusing, Urgency::Now, None))
        .await
        .unwrap_err();
    let AcquireError::Initialize { source, .. } = error else {
        panic!("{error:?}")
    };
    assert!(
        matches!(&*source, CallError::Agent(error) if error.code == -32000),
        "{source:?}"
    );
    assert_eq!(store.status().sequence, Sequence(2));
    assert_eq!(store.processes().unwrap(), []);
}

/// F38: the late end of the first does not affect the second.
#[tokio::test]
async fn f31_a_dead_agent_is_replaced() {
    let agent = launch(AGENT);
    let pool = pool();
    let key = PoolKey::new("a", &agent);
    let first = soon(pool.acquire(&key, &agent, Urgency::Now, None))
        .await
        .unwrap();
    kill(&first).await;
    // Even before the keeper has noticed.
    let second = soon(pool.acquire(&key, &agent, Urgency::Now, None))
        .await
        .unwrap();
    assert!(second.generation() > first.generation());
    // The late clean-up of the first must not remove the second.
    soon(first.stopped()).await;
    assert_eq!(
        pool.running()
            .iter()
            .map(|agent| agent.generation())
            .collect::<Vec<_>>(),
        [second.generation()]
    );
    soon(pool.shutdown()).await;
}

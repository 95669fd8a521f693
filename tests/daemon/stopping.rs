//! Stopping and being killed: running turns are cancelled, waiting calls are answered, and no process is left.

use std::fs;
use std::process::{Command, Stdio};

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use rustix::process::Signal;
use serde_json::json;

use crate::gate::Gate;
use crate::home::{Home, kill_now};
use crate::support::refused;

#[tokio::test]
async fn a_shutdown_cancels_what_runs_and_answers_it() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&[]).await;
    let mut holder = daemon.raw().await;
    let (request, _) = holder.hang(id).await;
    let mut raw = daemon.raw().await;
    let queued = json!({"conversationId": id, "prompt": "never", "onBusy": "queue"});
    let waiting = raw.send("conversation/prompt", queued).await;
    let answer = raw.ask("daemon/shutdown", json!({})).await;
    assert_eq!(answer["result"], json!({}));
    assert_eq!(holder.answer(request).await["result"]["stopReason"], "cancelled");
    let refusal = match raw.passed.pop_front() {
        Some(line) => line,
        None => raw.answer(waiting).await,
    };
    assert_eq!(
        refusal["error"]["data"],
        json!({"kind": "shuttingDown", "retryable": true})
    );
    assert!(daemon.ended().await.success());
    assert!(!home.socket().exists());

    let (_daemon, app) = home.opened().await;
    assert_eq!(
        app.get(id).await.state,
        ConversationState::Interrupted,
        "the stop cancelled the turn, and no client did"
    );
    assert_eq!(app.remembered(id).await.len(), 1);
}

#[tokio::test]
async fn a_signal_stops_the_daemon_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        for is_busy in [false, true] {
            let home = Home::new();
            let (daemon, _app, id) = home.begun(&["first"]).await;
            let mut holder = daemon.raw().await;
            let request = if is_busy {
                Some(holder.hang(id).await.0)
            } else {
                None
            };
            daemon.signal(signal);
            if let Some(request) = request {
                assert_eq!(holder.answer(request).await["result"]["stopReason"], "cancelled");
            }
            assert!(daemon.ended().await.success());
            assert!(!home.socket().exists());
        }
    }
}

#[tokio::test]
async fn a_stop_ends_an_agent_that_does_not_answer_while_a_session_is_closed() {
    let (home, gate) = Gate::home_with("[limits]\ncancel_grace_ms = 200\n");
    let (daemon, _app, id) = home.begun(&["one"]).await;
    gate.hold("session/close");
    let mut raw = daemon.raw().await;
    raw.send("conversation/close", json!({"conversationId": id}))
        .await;
    gate.wait_until_held();
    daemon.signal(Signal::TERM);
    assert!(daemon.ended().await.success());
}

/// A call that is refused because the daemon stops has changed no file, so it can be repeated under its key.
#[tokio::test]
async fn what_is_refused_while_it_stops_was_not_done() {
    let home = Home::with_config("[limits]\ncancel_grace_ms = 3600000\n");
    let (daemon, app, gone) = home.begun(&["first"]).await;
    let session = app.get(gone).await.head.unwrap();
    app.ask("transcript/keep", gone).await;
    app.ask("conversation/delete", gone).await;
    let id = app.make(&home.project()).await;
    let mut holder = daemon.raw().await;
    holder.run(id, "[[deaf]][[say deaf]][[hang]]").await;
    daemon.signal(Signal::TERM);
    while holder.event("stateChanged").await["state"] != "cancelling" {}
    refused(app.try_send(id, "x").await, ErrorKind::ShuttingDown);
    let made = app.call("conversation/new", json!({"cwd": home.project()})).await;
    refused(made, ErrorKind::ShuttingDown);
    let forget = json!({"upstreamId": session, "requestId": "f1"});
    let refusal = app.call("transcript/forget", forget.clone()).await;
    refused(refusal, ErrorKind::ShuttingDown);
    daemon.signal(Signal::TERM);
    assert!(daemon.ended().await.success());

    let (_daemon, app) = home.opened().await;
    let forgotten = app.call("transcript/forget", forget).await.unwrap();
    assert!(forgotten["bytes"].as_u64().unwrap() > 0);
}

/// The limit also applies to a turn that is being cancelled already.
#[tokio::test]
async fn a_shutdown_waits_no_longer_than_it_was_told() {
    for is_being_cancelled in [false, true] {
        let home = Home::with_config("[limits]\ncancel_grace_ms = 3600000\n");
        let (daemon, app, id) = home.begun(&[]).await;
        let mut holder = daemon.raw().await;
        let (request, _) = holder.run(id, "[[deaf]][[say deaf]][[hang]]").await;
        if is_being_cancelled {
            holder
                .send("conversation/cancel", json!({"conversationId": id}))
                .await;
            while holder.event("stateChanged").await["state"] != "cancelling" {}
        }
        app.call("daemon/shutdown", json!({"graceMs": 100}))
            .await
            .unwrap();
        assert_eq!(holder.answer(request).await["result"]["stopReason"], "cancelled");
        assert!(daemon.ended().await.success());
    }
}

/// F32: neither the environment nor the parent of these helpers shows that they belong to the agent. One is a child of
/// the agent until the agent ends; the other one's parent has ended before.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_helper_without_environment_in_a_session_of_its_own_ends_with_the_daemon() {
    for dies in [false, true] {
        let home = Home::new();
        let program = env!("CARGO_BIN_EXE_sessiond");
        home.configure(&format!(
            "default_agent = \"tools\"\n[agents.tools]\nkind = \"loopback\"\ncommand = \"/bin/sh\"\n\
             args = [\"-c\", 'helper() {{ env -i /usr/bin/setsid /bin/sh -c \"trap : TERM HUP; while :; do /bin/sleep 1000; done\" \"$1\" & }}; \
             helper \"$1/child\"; (helper \"$1/orphan\"); exec \"$0\" loopback-agent --data \"$1\"', '{program}', '{}']\n",
            home.data().display()
        ));
        let (daemon, app, id) = home.begun(&["first"]).await;
        let helpers = || {
            let all = home.processes().into_iter();
            let helpers = all.filter(|(_, line)| line.contains("trap"));
            helpers.map(|(pid, _)| pid).collect::<Vec<_>>()
        };
        // There are two helpers that wait. Their `sleep` processes do not name the home, and are not counted.
        assert_eq!(helpers().len(), 2, "{:?}", home.processes());
        if dies {
            kill_now(home.only_agent());
            app.once(id, |conversation| !conversation.live).await;
        }
        app.call("daemon/shutdown", json!({})).await.unwrap();
        assert!(daemon.ended().await.success());
        assert_eq!(helpers(), [] as [u32; 0], "{:?}", home.processes());
    }
}

/// A shell that was replaced by the daemon may have left children, which belong to no agent.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_was_there_before_the_daemon_survives_its_stop() {
    let home = Home::new();
    let mut command = Command::new("/bin/sh");
    let script = "/usr/bin/env -i /bin/sleep 1000 > /dev/null 2>&1 < /dev/null & echo $! > \"$HOME/before\"; exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_sessiond")]);
    let of_daemon = home.command();
    command.env_clear().envs(
        of_daemon
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command.current_dir(home.path()).stdout(Stdio::null());
    let daemon = home.start_command(command, &[]);
    let app = daemon.app().await;
    app.begun(&home.project(), &["first"]).await;
    let before: u32 = fs::read_to_string(home.path().join("before"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    app.call("daemon/shutdown", json!({})).await.unwrap();
    assert!(daemon.ended().await.success());
    let is_alive = fs::exists(format!("/proc/{before}")).unwrap();
    kill_now(before);
    assert!(is_alive);
}

/// F32, D11: the processes that a killed daemon left, with all their descendants, have ended before the next daemon is
/// ready.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_a_killed_daemon_left_behind_is_ended_by_the_next() {
    let home = Home::new();
    // A tool of the agent that runs in a session of its own and ignores SIGTERM and SIGHUP.
    let program = env!("CARGO_BIN_EXE_sessiond");
    home.configure(&format!(
        "default_agent = \"tools\"\n[agents.tools]\nkind = \"loopback\"\ncommand = \"/bin/sh\"\n\
         args = [\"-c\", 'setsid sh -c \"trap : TERM HUP; while :; do sleep 1000; done\" & exec \"$0\" loopback-agent --data \"$1\"', \
         '{program}', '{}']\n",
        home.data().display()
    ));
    let (daemon, _app, id) = home.begun(&["first"]).await;
    let left = |home: &Home| {
        home.processes()
            .iter()
            .filter(|(_, line)| line.contains("sleep"))
            .count()
    };
    assert!(left(&home) > 0);
    daemon.kill();
    assert!(left(&home) > 0, "no daemon has ended the tool yet");
    let daemon = home.start();
    assert_eq!(left(&home), 0, "{:?}", home.processes());
    let app = daemon.app().await;
    assert_eq!(app.remembered(id).await, ["first"]);
    app.call("daemon/shutdown", json!({})).await.unwrap();
    // This call checks that no process is left, the new tool included.
    assert!(daemon.ended().await.success());
}

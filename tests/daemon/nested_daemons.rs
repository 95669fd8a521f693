//! A daemon that is started by a tool of an agent. It has the agent's mark, descends from the agent and is in the
//! tool's session, but it is not part of the agent. It and its own agents outlive the agent, however the agent ends.

use bridge_protocol::method::{Shutdown, Status};
use std::fs;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::home::{Home, wait_for_end};
use crate::support::{App, within};

/// `$0` is the daemon's program, `$1` the home of the daemon that the tool starts, `$2` the data folder of
/// the agent.
const AGENT: &str = r#"
setsid sh -c 'env -i PATH="$PATH" HOME="$1" SESSIOND_HOME="$1" SESSIOND_MARK="$SESSIOND_MARK" "$0" --ready-on-stdin 0>"$1/ready" &
    exec cat "$1/idle"' "$0" "$1" < /dev/null > /dev/null 2>&1 &
exec "$0" loopback-agent --data "$2"
"#;

/// A home whose agent has a tool that starts a daemon in the other home.
fn nesting(inner: &Home) -> Home {
    let outer = Home::new();
    for name in ["ready", "idle"] {
        let pipe = inner.path().join(name);
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }
    let arguments = [
        "-c".to_owned(),
        AGENT.to_owned(),
        env!("CARGO_BIN_EXE_sessiond").to_owned(),
        inner.path().to_str().unwrap().to_owned(),
        outer.data().join("loopback").to_str().unwrap().to_owned(),
    ];
    outer.configure(&format!(
        "default_agent = \"nesting\"\n[agents.nesting]\nkind = \"loopback\"\ncommand = \"/bin/sh\"\nargs = {arguments:?}\n"
    ));
    outer
}

#[tokio::test]
async fn a_daemon_that_an_agent_started_outlives_the_agent() {
    for is_killed in [false, true] {
        let inner = Home::new();
        let outer = nesting(&inner);
        let daemon = outer.start();
        let ready = inner.path().join("ready");
        let ready = tokio::task::spawn_blocking(move || fs::read_to_string(ready).unwrap());
        daemon.app().await.begun(&outer.project(), &["hello"]).await;
        assert_eq!(within(ready).await.unwrap(), "ready\n", "{}", outer.logged());
        let app = App::connect(&inner.socket()).await;
        let id = app.begun(&inner.project(), &["one"]).await;
        let (pid, agent) = (app.answer(Status::default()).await.pid, inner.only_agent());
        if is_killed {
            // The next daemon sweeps what the killed one left behind.
            daemon.kill();
            drop(outer.start());
        } else {
            drop(daemon);
        }
        assert_eq!(app.answer(Status::default()).await.pid, pid);
        assert_eq!(app.send(id, "two").await.resumed, None);
        assert_eq!(inner.only_agent(), agent);
        app.answer(Shutdown::default()).await;
        wait_for_end(pid);
    }
}

//! Agents that have died while their children still run: the files of their sessions are left alone until the last
//! child has ended, since any child may still write.

use bridge_protocol::ConversationId;

use crate::home::{Home, kill_now};
use crate::moving::move_to;
use crate::support::App;

/// A child that ignores SIGTERM, so that it outlives its agent until the daemon kills it.
const CHILD: &str = "tail -f /dev/null";

/// Returns a home whose agent starts such a child. The agent exits at once if the shell condition fails.
fn home(condition: &str) -> Home {
    let home = Home::new();
    let program = env!("CARGO_BIN_EXE_sessiond");
    let data = home.data();
    let script = format!(
        "{condition} || exit 1; (trap '' TERM; exec {CHILD}) </dev/null >/dev/null 2>&1 & exec {program} loopback-agent --data {}",
        data.display()
    );
    home.configure(&format!(
        "default_agent = \"parent\"\n[agents.parent]\nkind = \"loopback\"\ncommand = \"sh\"\nargs = ['-c', \"{script}\"]\n"
    ));
    home
}

fn children(home: &Home) -> Vec<u32> {
    let all = home.processes().into_iter();
    let children = all.filter(|(_, line)| line.trim_end() == CHILD);
    children.map(|(pid, _)| pid).collect()
}

/// Makes a conversation with one turn and kills its agent.
async fn orphaned(home: &Home, app: &App) -> ConversationId {
    let id = app.begun(&home.project(), &["one"]).await;
    assert_eq!(children(home).len(), 1, "{:?}", home.processes());
    kill_now(home.only_agent());
    id
}

#[tokio::test]
async fn a_move_waits_until_the_children_of_a_dead_agent_have_ended() {
    let home = home("true");
    let (_daemon, app) = home.opened().await;
    let id = orphaned(&home, &app).await;
    let elsewhere = home.folder_named("elsewhere");
    let moved = move_to(&app, id, &elsewhere).await.unwrap();
    assert_eq!(children(&home), [0; 0]);
    assert_eq!(moved.moved, 1);
    assert_eq!(app.remembered(id).await, ["one"]);
}

/// The agent can start only once, so the daemon has to delete the files itself.
#[tokio::test]
async fn transcripts_are_deleted_when_the_children_of_a_dead_agent_have_ended() {
    let home = home("mkdir started");
    let (_daemon, app) = home.opened().await;
    let id = orphaned(&home, &app).await;
    let transcript = home.transcript_of(&app, id).await;
    app.erase(id).await;
    assert_eq!(children(&home), [0; 0]);
    assert!(!transcript.exists());
}

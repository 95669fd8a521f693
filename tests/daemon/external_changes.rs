//! Changes by others while the daemon runs: a sign-in expires, an agent's program is replaced, transcripts are moved
//! away, the disk fills up. Nothing is lost, the problem is reported, and work continues when it is fixed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};

use super::error_words;
use crate::continuing::{AT_ONCE, GO_ON, continued, go_on, prompts};
use crate::home::{Daemon, Home, kill_now, wait_for_end};
use crate::resumed::check_resumed;
use crate::support::{App, Raw, refused};

/// Returns a home whose loopback agent requires a sign-in, and the file with the valid token.
fn with_accounts() -> (Home, PathBuf) {
    let home = Home::new();
    let token = home.path().join("token");
    fs::write(&token, "first").unwrap();
    home.configure(&format!(
        "default_agent = \"loopback\"\n[agents.loopback]\nenv = {{ SESSIOND_LOOPBACK_TOKEN = \"{}\" }}\n",
        token.display()
    ));
    (home, token)
}

fn failed_of(turn: &TurnResult) -> Option<FailureKind> {
    turn.failure.as_ref().map(|failure| failure.kind)
}

/// A prompt whose turn waits for the user's answer.
const ASKS: &str = "[[ask May I?]][[say I did]]";

/// A running turn, and the question that it waits for.
struct Asking {
    request: u64,
    interrupt: Value,
}

async fn asks(raw: &mut Raw, id: ConversationId) -> Asking {
    let (request, _) = raw.run(id, ASKS).await;
    let raised = raw.event("interruptRaised").await;
    Asking {
        request,
        interrupt: raised["interrupt"]["id"].clone(),
    }
}

/// Answers the question so that the turn continues, and returns the turn's result.
async fn allow(app: &App, raw: &mut Raw, id: ConversationId, asking: Asking) -> Value {
    let outcome = json!({"outcome": "selected", "optionId": "allow_once"});
    let answer = json!({"conversationId": id, "interruptId": asking.interrupt, "outcome": outcome});
    app.call("conversation/respond", answer).await.unwrap();
    raw.answer(asking.request).await["result"].take()
}

/// Returns the conversations that are listed as interrupted.
async fn cut_short(app: &App) -> Vec<ConversationId> {
    let page = app.call("conversation/list", json!({"cutShort": true})).await;
    let page = page.unwrap();
    let listed = page["conversations"].as_array().unwrap().iter();
    listed
        .map(|conversation| serde_json::from_value(conversation["id"].clone()).unwrap())
        .collect()
}

/// F1: the process read its token when it started, so only a new process can use the renewed sign-in. The session, the
/// chain and the interrupted prompt are kept, and other conversations in the old process do not fail because of it.
#[tokio::test]
async fn f1_an_authentication_that_expired_and_was_renewed_goes_on_in_the_same_session() {
    let (home, token) = with_accounts();
    let (_daemon, app) = home.opened().await;
    let (id, other) = (app.make(&home.project()).await, app.make(&home.project()).await);
    app.send(id, "before").await;
    app.send(other, "before").await;
    let head = app.get(id).await.head;
    let old_agent = home.only_agent();

    fs::remove_file(&token).unwrap();
    let turn = app.send(id, "while nobody is signed in").await;
    assert_eq!(failed_of(&turn), Some(FailureKind::AuthRequired), "{turn:?}");
    let shown = app.get(id).await;
    assert_eq!(
        (shown.state, shown.cut_short, &shown.head),
        (ConversationState::Idle, true, &head)
    );
    assert_eq!(cut_short(&app).await, [id]);
    // A new process without a sign-in refuses the prompt before it records it.
    refused(app.try_send(id, "in vain").await, ErrorKind::AuthRequired);

    fs::write(&token, "second").unwrap();
    let mut events = app.events(id).await;
    go_on(&app, id, json!({"at": AT_ONCE})).await;
    let turn = continued(&mut events).await;
    assert_eq!(turn.stop_reason, StopReason::EndTurn, "{turn:?}");
    let resumed = turn.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    let sent = prompts(&app, &home, id).await;
    assert_eq!(sent[..2], ["before", "while nobody is signed in"]);
    assert!(sent[2].starts_with(GO_ON) && sent.len() == 3, "{sent:?}");
    let shown = app.get(id).await;
    assert_eq!((shown.cut_short, &shown.head), (false, &head));
    assert_eq!(cut_short(&app).await, []);

    // This conversation's session was open in the old process.
    let turn = app.send(other, "after").await;
    assert_eq!(turn.stop_reason, StopReason::EndTurn, "{turn:?}");
    let resumed = turn.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    assert_eq!(app.remembered(other).await, ["before", "after"]);
    assert_eq!(app.chain(id).await.len() + app.chain(other).await.len(), 2);
    wait_for_end(old_agent);
}

/// A running turn is left alone if another conversation finds that the sign-in expired.
#[tokio::test]
async fn a_turn_that_runs_is_not_touched_by_an_authentication_that_expired() {
    let (home, token) = with_accounts();
    let (daemon, app) = home.opened().await;
    let (id, other) = (app.make(&home.project()).await, app.make(&home.project()).await);
    let mut raw = daemon.raw().await;
    let running = asks(&mut raw, other).await;
    app.send(id, "before").await;
    fs::remove_file(&token).unwrap();
    let turn = app.send(id, "signed out").await;
    assert_eq!(failed_of(&turn), Some(FailureKind::AuthRequired));
    fs::write(&token, "second").unwrap();
    assert_eq!(app.send(id, "after").await.stop_reason, StopReason::EndTurn);

    assert_eq!(
        allow(&app, &mut raw, other, running).await["stopReason"],
        "end_turn"
    );
    assert_eq!(app.send(other, "and then").await.stop_reason, StopReason::EndTurn);
    assert_eq!(app.recall(other).await.len(), 2);
}

/// A process keeps its sessions open until it ends, so idle conversations must leave it without waiting for their next
/// prompt.
// Against F1.
#[tokio::test]
async fn a_process_in_which_nobody_is_signed_in_is_left_by_all_who_rest_in_it() {
    let (home, token) = with_accounts();
    let (daemon, app) = home.opened().await;
    let (id, resting) = (app.make(&home.project()).await, app.make(&home.project()).await);
    let (running, asking) = (app.make(&home.project()).await, app.make(&home.project()).await);
    for id in [id, resting] {
        app.send(id, "before").await;
    }
    let mut raw = daemon.raw().await;
    let asked = asks(&mut raw, asking).await;
    let (hanging, _) = raw.hang(running).await;
    let old_agent = home.only_agent();
    let (mut left, mut of_running) = (app.events(resting).await, app.events(running).await);
    fs::remove_file(&token).unwrap();
    let turn = app.send(id, "signed out").await;
    assert_eq!(failed_of(&turn), Some(FailureKind::AuthRequired));
    left.until("closed").await;
    assert!(!app.get(resting).await.live);

    // Conversations with a running turn leave the process when that turn has ended.
    assert!(app.get(running).await.live && app.get(asking).await.live);
    app.ask("conversation/cancel", running).await;
    assert_eq!(raw.answer(hanging).await["result"]["stopReason"], "cancelled");
    of_running.until("closed").await;
    assert!(app.get(asking).await.live);
    assert_eq!(
        allow(&app, &mut raw, asking, asked).await["stopReason"],
        "end_turn"
    );
    wait_for_end(old_agent);
    fs::write(&token, "second").unwrap();
    assert_eq!(app.remembered(resting).await, ["before"]);
}

/// This agent checks the sign-in for each prompt, so it needs no new process. The retry resumes the session in the
/// usual way.
#[tokio::test]
async fn a_sign_in_that_was_missing_for_one_prompt_costs_nothing() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["before"]).await;
    let turn = app.send(id, "[[fail auth]]").await;
    assert_eq!(failed_of(&turn), Some(FailureKind::AuthRequired));
    assert_eq!(cut_short(&app).await, [id]);
    let turn = app.send(id, "after").await;
    assert_eq!(turn.stop_reason, StopReason::EndTurn);
    let resumed = turn.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    assert_eq!(app.remembered(id).await, ["before", "after"]);
    assert_eq!(app.chain(id).await.len(), 1);
    assert_eq!(cut_short(&app).await, [], "the later turn clears it");
}

/// A cancelled turn is finished and not listed as interrupted. A turn that was interrupted before the cancelled one
/// still is.
#[tokio::test]
async fn what_was_cut_short_is_told_until_a_turn_makes_up_for_it() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let (cut, cancelled) = (app.make(&home.project()).await, app.make(&home.project()).await);
    assert_eq!(
        failed_of(&app.send(cut, "[[fail network]]").await),
        Some(FailureKind::Network)
    );
    for id in [cut, cancelled] {
        let mut raw = daemon.raw().await;
        let (running, _) = raw.hang(id).await;
        app.ask("conversation/cancel", id).await;
        assert_eq!(raw.answer(running).await["result"]["stopReason"], "cancelled");
    }
    assert_eq!(app.get(cut).await.state, ConversationState::Idle);
    assert_eq!(cut_short(&app).await, [cut]);
    // The state is stored, and the list finds it without loading the conversation.
    drop((app, daemon));
    let (_daemon, app) = home.opened().await;
    assert_eq!(cut_short(&app).await, [cut]);
    let others = app.call("conversation/list", json!({"cutShort": false})).await;
    assert_eq!(
        others.unwrap()["conversations"][0]["id"],
        json!(cancelled),
        "the others"
    );
    let mut events = app.events(cut).await;
    go_on(&app, cut, json!({"at": AT_ONCE})).await;
    continued(&mut events).await;
    assert_eq!(cut_short(&app).await, []);
}

/// An agent's program in its own file, which records each of its starts.
struct Program {
    path: PathBuf,
    starts: PathBuf,
}

impl Program {
    fn in_home(home: &Home) -> Self {
        let program = Self {
            path: home.path().join("my-agent"),
            starts: home.path().join("starts"),
        };
        home.configure(&format!(
            "default_agent = \"mine\"\n[agents.mine]\nkind = \"loopback\"\ncommand = \"{}\"\ntranscripts = \"{}\"\n",
            program.path.display(),
            home.data().join("loopback").display()
        ));
        program
    }

    /// Installs a version as package managers do: writes a new file and renames it over the old one.
    fn install(&self, home: &Home, version: &str, filter: &str) {
        let new = self.path.with_extension("new");
        let text = format!(
            "#!/bin/sh\necho {version} >> '{}'\n'{}' loopback-agent --data '{}' {filter}\n",
            self.starts.display(),
            env!("CARGO_BIN_EXE_sessiond"),
            home.data().display()
        );
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o700)).unwrap();
        fs::rename(&new, &self.path).unwrap();
    }

    fn starts(&self) -> Vec<String> {
        let told = fs::read_to_string(&self.starts).unwrap();
        told.lines().map(str::to_owned).collect()
    }
}

/// Kills the agent's processes, as happens if an upgrade removes files that they use.
async fn end_agents(home: &Home, app: &App, id: ConversationId) {
    for pid in home.agents() {
        kill_now(pid);
    }
    if app.get(id).await.live {
        app.once(id, |conversation| !conversation.live).await;
    }
}

/// The running process continues unchanged. The next process is the new version, with that version's capabilities.
#[tokio::test]
async fn an_agent_that_is_upgraded_while_it_runs_goes_on_and_is_the_new_one_next_time() {
    let home = Home::new();
    let program = Program::in_home(&home);
    program.install(&home, "1", "");
    let (_daemon, app, id) = home.begun(&["one"]).await;
    // The new version reports another version number, and supports `session/load` but not `session/resume`.
    let filter =
        r#"| sed -u -e 's/"version":"[^"]*"/"version":"2.0.0"/' -e 's/"resume":{},//' -e 's/,"resume":{}//'"#;
    program.install(&home, "2", filter);
    let turn = app.send(id, "two").await;
    assert_eq!((turn.stop_reason, turn.resumed), (StopReason::EndTurn, None));
    assert_eq!(program.starts(), ["1"]);

    end_agents(&home, &app, id).await;
    let turn = app.send(id, "three").await;
    assert_eq!(turn.stop_reason, StopReason::EndTurn);
    let resumed = turn.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Load, Fidelity::Full));
    assert_eq!(program.starts(), ["1", "2"]);
    assert_eq!(app.remembered(id).await, ["one", "two", "three"]);
    assert_eq!(app.chain(id).await.len(), 1);
}

/// A running process continues without its program file. Afterwards the conversation keeps its whole history until the
/// program is installed again.
#[tokio::test]
async fn an_agent_that_is_uninstalled_while_it_runs_and_installed_again_goes_on() {
    let home = Home::new();
    let program = Program::in_home(&home);
    program.install(&home, "1", "");
    let (_daemon, app, id) = home.begun(&["one"]).await;
    fs::remove_file(&program.path).unwrap();
    assert_eq!(app.send(id, "two").await.stop_reason, StopReason::EndTurn);
    let chain = app.chain(id).await;

    end_agents(&home, &app, id).await;
    let told = app.try_send(id, "three").await;
    let told = refused(told, ErrorKind::AgentUnavailable);
    let shown = app.get(id).await;
    assert_eq!(shown.state, ConversationState::Failed);
    assert_eq!(shown.failure, Some(told.message));
    assert_eq!(said(&app, id).await.0, ["one", "two"]);
    assert_eq!(app.chain(id).await, chain);

    program.install(&home, "2", "");
    let turn = app.send(id, "three").await;
    assert_eq!(turn.stop_reason, StopReason::EndTurn);
    assert_eq!(turn.resumed.unwrap().fidelity, Fidelity::Full);
    assert_eq!(app.get(id).await.state, ConversationState::Idle);
    assert_eq!(app.remembered(id).await, ["one", "two", "three"]);
    assert_eq!(app.chain(id).await.len(), 1);
}

/// Returns the user's texts in the history, and its gaps as `kind upstreamId`.
async fn said(app: &App, id: ConversationId) -> (Vec<String>, Vec<String>) {
    let page = app
        .call("conversation/history", json!({"conversationId": id}))
        .await;
    let page = page.unwrap();
    let users = page["messages"].as_array().unwrap().iter();
    // In the agent's format, tool results are messages of the user too.
    let users = users.filter(|message| message["role"] == "user" && message["content"][0]["type"] == "text");
    let text = |message: &Value| message["content"][0]["text"].as_str().unwrap().to_owned();
    let gaps = page["gaps"].as_array().cloned().unwrap_or_default();
    let gap = |gap: &Value| {
        format!(
            "{} {}",
            gap["kind"].as_str().unwrap(),
            gap["upstreamId"].as_str().unwrap()
        )
    };
    (users.map(text).collect(), gaps.iter().map(gap).collect())
}

/// Returns what the test moves away: the transcript, its project's folder, or all projects.
fn places(home: &Home, transcript: &Path) -> [(&'static str, PathBuf); 3] {
    [
        ("the file", transcript.to_owned()),
        ("its folder", transcript.parent().unwrap().to_owned()),
        ("all folders", home.data().join("loopback/projects")),
    ]
}

/// The session is open while its transcript is moved away. The daemon reports that and does not begin anew. When the
/// transcript is moved back, everything is available again.
#[tokio::test]
async fn d4_transcripts_that_are_moved_away_under_a_live_session_are_missed_in_words_and_taken_up_again() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let head = app.get(id).await.head.unwrap();
    let transcript = home.transcript_of(&app, id).await;
    let mut turns = vec!["one".to_owned(), "two".to_owned()];
    for (what, place) in places(&home, &transcript) {
        let chain = app.chain(id).await;
        let aside = home.path().join("aside");
        fs::rename(&place, &aside).unwrap();
        let (heard, gaps) = said(&app, id).await;
        assert_eq!(
            (heard.len(), gaps),
            (0, vec![format!("missing {head}")]),
            "{what}"
        );
        let checkpoints = app.call("conversation/checkpoints", json!({"conversationId": id}));
        let told = checkpoints.await.unwrap();
        assert_eq!(told["checkpoints"], json!([]), "{what}");
        let gap = &told["gaps"][0];
        assert_eq!(gap["kind"], "missing", "{what}: {gap}");
        error_words::check(
            "conversation/checkpoints",
            "missing",
            gap["detail"].as_str().unwrap(),
        );
        // The agent has nothing to resume, so the prompt is refused and the chain stays.
        let told = app.try_send(id, "in vain").await;
        refused(told, ErrorKind::NotResumable);
        assert_eq!(app.chain(id).await, chain, "{what}");
        let shown = app.get(id).await;
        assert_eq!(
            (shown.state, shown.head.as_ref()),
            (ConversationState::Failed, Some(&head)),
            "{what}"
        );

        fs::rename(&aside, &place).unwrap();
        assert_eq!(said(&app, id).await, (turns.clone(), vec![]), "{what}");
        let turn = app.send(id, what).await;
        assert_eq!(turn.stop_reason, StopReason::EndTurn, "{what}");
        assert_eq!(turn.resumed.unwrap().fidelity, Fidelity::Full, "{what}");
        turns.push(what.to_owned());
        assert_eq!(app.remembered(id).await, turns, "{what}");
        turns.push("[[recall]]".to_owned());
        assert_eq!(app.chain(id).await.len(), 1, "{what}");
    }
}

/// A running turn is not disturbed, and what it writes is in the file at its new place.
#[tokio::test]
async fn a_turn_that_runs_while_its_transcript_is_moved_away_ends_well() {
    let home = Home::keeping_nothing();
    let (daemon, app, id) = home.begun(&["one"]).await;
    let head = app.get(id).await.head.unwrap();
    let folder = home.transcript_of(&app, id).await;
    let folder = folder.parent().unwrap().to_owned();
    let aside = home.path().join("aside");
    let mut raw = daemon.raw().await;
    let running = asks(&mut raw, id).await;
    fs::rename(&folder, &aside).unwrap();
    assert_eq!(allow(&app, &mut raw, id, running).await["stopReason"], "end_turn");
    assert_eq!(said(&app, id).await, (vec![], vec![format!("missing {head}")]));

    fs::rename(&aside, &folder).unwrap();
    let turns = vec!["one".to_owned(), ASKS.to_owned()];
    assert_eq!(said(&app, id).await, (turns.clone(), vec![]));
    assert_eq!(app.remembered(id).await, turns);
    assert_eq!(app.chain(id).await.len(), 1);
}

/// The transcript is lost for good. The daemon reports that again after a restart. Only a call that accepts fidelity
/// `none` begins anew, and its answer reports the loss.
#[tokio::test]
async fn d4_a_transcript_that_was_deleted_under_a_live_session_is_a_loss_that_is_told() {
    let home = Home::keeping_nothing();
    let (daemon, app, id) = home.begun(&["one"]).await;
    let head = app.get(id).await.head.unwrap();
    fs::remove_file(home.transcript_of(&app, id).await).unwrap();
    let error = refused(app.try_send(id, "in vain").await, ErrorKind::NotResumable);
    let shown = app.get(id).await;
    assert_eq!(shown.state, ConversationState::Failed);
    assert_eq!(shown.failure, Some(error.message));
    drop((app, daemon));

    let (_daemon, app) = home.opened().await;
    refused(app.try_send(id, "in vain").await, ErrorKind::NotResumable);
    assert_eq!(app.get(id).await.head.as_ref(), Some(&head));
    let anew = json!({"conversationId": id, "prompt": "anew", "minFidelity": "none"});
    let turn: TurnResult =
        serde_json::from_value(app.call("conversation/prompt", anew).await.unwrap()).unwrap();
    let resumed = turn.resumed.unwrap();
    check_resumed(&resumed, Via::Fresh, Fidelity::None, 1);
    assert_eq!(app.remembered(id).await, ["anew"]);
    assert_eq!(app.chain(id).await.len(), 2, "the old link must stay");
}

/// Limits the size of files that the daemon can write. Its running agents keep their own limits.
pub(crate) fn limit_files(daemon: &Daemon<'_>, length: Option<u64>) {
    limit_files_of(daemon.pid(), length);
}

/// Limits the size of files that a process can write.
pub(crate) fn limit_files_of(pid: u32, length: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    let limit = Rlimit {
        current: length,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

/// The disk is full when an accepted turn ends. The client still gets the turn's result, and later prompts are refused
/// with a helpful error. When there is room again, the state is as reported.
#[tokio::test]
async fn a_turn_that_runs_while_the_disk_fills_up_ends_and_nothing_is_lost() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["one"]).await;
    let mut raw = daemon.raw().await;
    let running = asks(&mut raw, id).await;
    let journal = fs::metadata(home.data().join("journal.jsonl")).unwrap().len();
    limit_files(&daemon, Some(journal));
    assert_eq!(allow(&app, &mut raw, id, running).await["stopReason"], "end_turn");
    let error = app.try_send(id, "no room").await.unwrap_err();
    assert_eq!(
        (error.kind, error.retryable),
        (ErrorKind::StoreFailed, true),
        "{error:?}"
    );
    error_words::check("a turn while the disk is full", "storeFailed", &error.message);
    let turns = vec!["one".to_owned(), ASKS.to_owned()];
    assert_eq!(said(&app, id).await, (turns.clone(), vec![]));

    limit_files(&daemon, None);
    assert_eq!(app.remembered(id).await, turns);
    // The end of the turn is on disk now, and survives a restart.
    let before = app.get(id).await;
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let after = app.get(id).await;
    assert_eq!(
        (after.state, &after.head, &after.interrupts, after.cut_short),
        (ConversationState::Idle, &before.head, &vec![], false)
    );
    assert_eq!(app.remembered(id).await.len(), 3);
    assert_eq!(app.chain(id).await.len(), 1);
}

/// The client got the turn's result, but its end could not be written. The transcript has the turn, so the next start
/// reports the same end.
#[tokio::test]
async fn a_turn_whose_end_found_no_room_has_the_same_end_after_a_kill() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["one"]).await;
    let mut raw = daemon.raw().await;
    raw.subscribe(id).await;
    let prompt = json!({"conversationId": id, "prompt": ASKS, "requestId": "key"});
    let request = raw.send("conversation/prompt", prompt.clone()).await;
    let raised = raw.event("interruptRaised").await;
    let interrupt = raised["interrupt"]["id"].clone();
    let running = Asking { request, interrupt };
    let journal = fs::metadata(home.data().join("journal.jsonl")).unwrap().len();
    limit_files(&daemon, Some(journal));
    let told = allow(&app, &mut raw, id, running).await;
    assert_eq!(told["stopReason"], "end_turn");
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let after = app.get(id).await;
    assert_eq!((after.state, after.cut_short), (ConversationState::Idle, false));
    let again = app.call("conversation/prompt", prompt).await.unwrap();
    assert_eq!(again["stopReason"], "end_turn", "{again}");
    assert_eq!(again["turnId"], told["turnId"]);
    assert_eq!(again.get("failure"), None, "{again}");
    assert_eq!(app.chain(id).await[0].turns, 2);
    assert_eq!(app.remembered(id).await, ["one", ASKS]);
    assert_eq!(app.get(id).await.interrupts, []);
}

/// The disk is full when the daemon starts. It fails with a helpful error and changes nothing; when there is room, it
/// starts.
#[tokio::test]
async fn a_start_that_cannot_write_says_so_and_changes_nothing() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&["one"]).await;
    daemon.kill();
    let kept = |name: &str| fs::read(home.data().join(name)).unwrap();
    let journal = kept("journal.jsonl");

    let inner = home.command();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -f 0 && exec \"$0\""])
        .arg(inner.get_program());
    let environment = inner.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command.env_clear().envs(environment).stdin(Stdio::null());
    let output = command.output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    let error = error_words::check_start("on a full disk", output.status.code(), &words);
    assert!(error.contains(home.data().to_str().unwrap()), "{words}");
    assert_eq!(kept("journal.jsonl"), journal);

    let (_daemon, app) = home.opened().await;
    assert_eq!(app.remembered(id).await, ["one"]);
    assert_eq!(app.chain(id).await.len(), 1);
}

/// A process limit is no damage of the transcript: the check fails with a retryable error, the list reports a gap, and
/// both succeed once files can be opened.
#[tokio::test]
async fn what_cannot_be_opened_for_want_of_descriptors_is_not_called_damaged() {
    let home = Home::keeping_nothing();
    let (daemon, app, id) = home.begun(&["one"]).await;
    drop((app, daemon));
    let (daemon, app) = home.opened().await;
    // The answer shows that the daemon has accepted the connection, for which it needs a descriptor.
    app.get(id).await;
    let limit_open = |most: Option<u64>| {
        let limit = Rlimit {
            current: most,
            maximum: getrlimit(Resource::Nofile).maximum,
        };
        let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap());
        prlimit(pid, Resource::Nofile, limit).unwrap()
    };
    let before = limit_open(Some(3));
    let named = json!({"conversationId": id});
    let error = app.call("transcript/check", named.clone()).await.unwrap_err();
    assert_eq!(
        (error.kind, error.retryable),
        (ErrorKind::StoreFailed, true),
        "{error:?}"
    );
    let folder = home.data().join("loopback/projects");
    assert!(error.message.contains(folder.to_str().unwrap()), "{error:?}");
    let told = app.call("conversation/checkpoints", named.clone()).await.unwrap();
    assert_eq!(told["gaps"][0]["kind"], "unreadable", "{told}");
    limit_open(before.current);
    app.call("transcript/check", named).await.unwrap();
    assert_eq!(app.checkpoints(id).await.len(), 1);
    assert_eq!(app.remembered(id).await, ["one"]);
}

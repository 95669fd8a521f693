//! Folders on a mount that does not respond, for example because its server is down: calls that need the folder are
//! refused in time and are retryable, and no other call waits for it.
//!
//! The mount is a file system in user space whose server, the test, never answers. It is mounted in the daemon's own
//! namespace. The tests are skipped if the system does not allow that.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bridge_protocol::link::Fidelity;
use bridge_protocol::turn::StopReason;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::edits::places;
use crate::home::{Daemon, Home};
use crate::keeping::once_kept;
use crate::scripted::configured_with;
use crate::support::Refusal;

/// A mount in a daemon's namespace. Every access below it waits as long as its server runs, and fails after that.
pub(crate) struct Mount {
    server: Child,
}

/// Starts a daemon in whose namespace folders can be mounted. Returns `None`, and prints the reason, if the system does
/// not allow this user to do that.
#[allow(clippy::print_stderr, reason = "the harness shows why a test was skipped")]
pub(crate) fn start(home: &Home) -> Option<Daemon<'_>> {
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        eprintln!("skipped: there is no device for file systems in user space: {error}");
        return None;
    }
    let allowed = Command::new("unshare")
        .args(["-Urm", "mount", "-t", "tmpfs", "none", "/mnt"])
        .stderr(Stdio::null())
        .status();
    match allowed {
        Ok(status) if status.success() => {}
        Ok(_) => {
            eprintln!("skipped: this user may not mount a disk in memory");
            return None;
        }
        Err(error) => {
            eprintln!("skipped: unshare cannot be run: {error}");
            return None;
        }
    }
    let inner = home.command();
    let mut command = Command::new("unshare");
    command.env_clear().arg("-Urm").arg(inner.get_program());
    for (name, value) in inner.get_envs() {
        command.env(name, value.unwrap());
    }
    command.current_dir(inner.get_current_dir().unwrap());
    command.stdout(Stdio::null());
    Some(home.start_command(command, &[]))
}

/// A shell command that runs in the namespace of a daemon.
fn inside(daemon: &Daemon<'_>, script: &str, folder: &Path) -> Command {
    let mut command = entered(daemon);
    command.args(["sh", "-euc", script, "sh"]).arg(folder);
    command
}

/// The command that starts a program in the namespace of a daemon.
fn entered(daemon: &Daemon<'_>) -> Command {
    let target = format!("--target={}", daemon.pid());
    let mut command = Command::new("nsenter");
    command.args([&target, "--user", "--mount", "--preserve-credentials"]);
    command
}

/// Unmounts what covers a folder.
fn unmount(daemon: &Daemon<'_>, folder: &Path) {
    let status = inside(daemon, "umount -l \"$1\"", folder).status();
    assert!(status.unwrap().success());
}

impl Mount {
    /// Covers a folder of the daemon with the mount.
    pub(crate) fn over(daemon: &Daemon<'_>, folder: &Path) -> Self {
        // The process that mounts the file system must open the device.
        let script = "exec 3<>/dev/fuse
            mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 none \"$1\"
            echo mounted
            exec cat";
        let mut command = inside(daemon, script, folder);
        let mut server = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = String::new();
        BufReader::new(server.stdout.take().unwrap())
            .read_line(&mut told)
            .unwrap();
        assert_eq!(told, "mounted\n");
        Self { server }
    }

    /// Makes all waiting calls of the file system fail, and all later ones too.
    fn fail(mut self) {
        drop(self.server.stdin.take());
        assert!(self.server.wait().unwrap().success());
    }
}

/// Configures, beside the built-in agent, a scripted one that keeps its transcripts in this folder.
fn configure_remote(home: &Home, capabilities: Option<&str>, folder: &str) {
    let settings = format!("kind = \"generic\"\ntranscripts = \"{folder}\"\ntranscript_format = \"claude\"");
    let agent = configured_with("remote", capabilities, &settings);
    home.configure(&format!("default_agent = \"loopback\"\n{agent}"));
}

/// Readers and checks wait for a folder that does not respond. Conversations of other agents are not affected, and
/// callers that wait get an error that names the folder.
#[tokio::test]
async fn a_folder_that_does_not_answer_keeps_no_other_conversation_waiting() {
    let home = Home::new();
    let folder = home.folder_named("transcripts");
    let capabilities = r#"{"loadSession":true,"sessionCapabilities":{"list":{},"resume":{}}}"#;
    configure_remote(&home, Some(capabilities), &folder);
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let local = app.begun(&home.project(), &["one"]).await;
    let remote = app.make_of(&home.project(), "remote").await;
    assert_eq!(app.send(remote, "one").await.stop_reason, StopReason::EndTurn);
    let closed = app.make_of(&home.project(), "remote").await;
    assert_eq!(app.send(closed, "one").await.stop_reason, StopReason::EndTurn);
    app.close(closed).await;
    let mount = Mount::over(&daemon, Path::new(&folder));

    let mut waiting = Vec::new();
    for method in [
        "conversation/history",
        "conversation/checkpoints",
        "conversation/history",
        "transcript/check",
        "transcript/check",
        "transcript/check",
    ] {
        let mut raw = daemon.raw().await;
        let id = raw.send(method, json!({"conversationId": remote})).await;
        waiting.push((method, raw, id));
    }
    let mut raw = daemon.raw().await;
    let prompt = json!({"conversationId": closed, "prompt": "two"});
    let id = raw.send("conversation/prompt", prompt).await;
    waiting.push(("conversation/prompt", raw, id));
    assert_eq!(app.messages(local).await.len(), 2);
    assert_eq!(app.checkpoints(local).await.len(), 1);
    let checked = app.ask("transcript/check", local).await;
    assert_eq!(checked["findings"], json!([]));
    assert_eq!(app.remembered(local).await, ["one"]);

    let refusal = Refusal(1015, "storeFailed", true);
    for (method, raw, id) in &mut waiting {
        if *method == "transcript/check" {
            continue;
        }
        let answer = raw.answer(*id).await;
        assert!(answer.to_string().contains(&folder), "{answer}");
        refusal.check(&answer, method);
    }
    // From now on, waiting calls and new ones fail at once.
    mount.fail();
    for (method, raw, id) in &mut waiting {
        if *method == "transcript/check" {
            let answer = raw.answer(*id).await;
            assert_eq!(answer["error"]["data"]["retryable"], true, "{answer}");
        }
    }
    unmount(&daemon, Path::new(&folder));
    app.ask("conversation/history", remote).await;
}

/// The transcripts of one project of an agent do not respond. However many calls wait for them, calls for other
/// projects are answered first.
#[tokio::test]
async fn transcripts_of_a_project_that_do_not_answer_keep_no_other_project_waiting() {
    let home = Home::new();
    let far = home.folder_named("far");
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let near = app.begun(&home.project(), &["one"]).await;
    let there = app.begun(&far, &["one"]).await;
    let transcript = home.transcript_of(&app, there).await;
    app.close(there).await;
    let mount = Mount::over(&daemon, transcript.parent().unwrap());
    let mut raw = daemon.raw().await;
    let methods = [
        "conversation/history",
        "conversation/checkpoints",
        "transcript/check",
    ];
    let mut refused = Vec::new();
    for method in methods.repeat(6) {
        let id = raw.send(method, json!({"conversationId": there})).await;
        refused.push((method, id));
    }
    // A check looks for other copies in all folders, and so does the built-in agent.
    let mut answered = Vec::new();
    for method in ["conversation/history", "conversation/checkpoints"] {
        answered.push(raw.send(method, json!({"conversationId": near})).await);
    }
    while !answered.is_empty() {
        let answer = raw.next().await;
        let place = answered.iter().position(|id| answer["id"] == *id);
        answered.remove(place.unwrap_or_else(|| panic!("answered first: {answer}")));
        assert!(answer.get("error").is_none(), "{answer}");
    }

    let root = home.data().join("loopback");
    let mut mount = Some(mount);
    while !refused.is_empty() {
        if refused.iter().all(|(method, _)| *method == "transcript/check")
            && let Some(mount) = mount.take()
        {
            mount.fail();
        }
        let answer = raw.next().await;
        let place = refused.iter().position(|(_, id)| answer["id"] == *id);
        let (method, _) = refused.remove(place.unwrap());
        Refusal(1015, "storeFailed", true).check(&answer, method);
        assert!(answer.to_string().contains(root.to_str().unwrap()), "{answer}");
    }
    unmount(&daemon, transcript.parent().unwrap());
    for id in [near, there] {
        assert_eq!(app.remembered(id).await, ["one"]);
    }
}

/// The transcripts of many projects do not respond, and each is requested again and again. Calls for other projects are
/// answered first.
#[tokio::test]
async fn transcripts_of_many_projects_that_do_not_answer_keep_no_other_project_waiting() {
    let home = Home::new();
    // The built-in agent looks for a transcript in all folders, so another one answers the prompt. That one writes
    // none.
    configure_remote(&home, None, home.data().join("loopback").to_str().unwrap());
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let near = app.begun(&home.project(), &["one"]).await;
    let prompted = app.make_of(&home.project(), "remote").await;
    assert_eq!(app.send(prompted, "one").await.stop_reason, StopReason::EndTurn);
    let mut heads = Vec::new();
    for id in [near, prompted] {
        heads.push(app.get(id).await.head.unwrap().to_string());
    }
    let written = home.transcript_of(&app, near).await;
    let text = fs::read_to_string(&written)
        .unwrap()
        .replace(&heads[0], &heads[1]);
    fs::write(written.with_file_name(format!("{}.jsonl", heads[1])), text).unwrap();
    let mut stalled = Vec::new();
    for number in 0..8 {
        let id = app
            .begun(&home.folder_named(&format!("far{number}")), &["one"])
            .await;
        let transcript = home.transcript_of(&app, id).await;
        stalled.push((id, transcript.parent().unwrap().to_owned()));
    }
    let mut mounts = Vec::new();
    for (_, folder) in &stalled {
        mounts.push(Mount::over(&daemon, folder));
    }
    let mut raw = daemon.raw().await;
    let reading = ["conversation/history", "conversation/checkpoints"];
    let mut refused = HashMap::new();
    for (there, _) in &stalled {
        for method in reading.repeat(3) {
            let id = raw.send(method, json!({"conversationId": there})).await;
            refused.insert(id, method);
        }
        let prompt = json!({"conversationId": there, "prompt": "two"});
        let id = raw.send("conversation/prompt", prompt).await;
        refused.insert(id, "conversation/prompt");
    }
    let mut answered = HashSet::new();
    for method in reading {
        answered.insert(raw.send(method, json!({"conversationId": near})).await);
    }
    let prompt = json!({"conversationId": prompted, "prompt": "two"});
    answered.insert(raw.send("conversation/prompt", prompt).await);
    let made = json!({"cwd": home.project()});
    answered.insert(raw.send("conversation/new", made).await);
    while !answered.is_empty() {
        let answer = raw.next().await;
        assert!(
            answered.remove(&answer["id"].as_u64().unwrap()),
            "answered first: {answer}, of {answered:?}"
        );
        assert!(answer.get("error").is_none(), "{answer}");
    }
    while !refused.is_empty() {
        let answer = raw.next().await;
        let method = refused.remove(&answer["id"].as_u64().unwrap()).unwrap();
        Refusal(1015, "storeFailed", true).check(&answer, method);
    }
    for (mount, (_, folder)) in mounts.into_iter().zip(&stalled) {
        mount.fail();
        unmount(&daemon, folder);
    }
    for id in [near, stalled[0].0] {
        assert_eq!(app.remembered(id).await, ["one"]);
    }
}

/// Calls that change a conversation or copy its transcripts are refused in time if the transcripts do not respond.
#[tokio::test]
async fn changes_are_refused_if_the_transcripts_do_not_answer() {
    let home = Home::new();
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let far = home.folder_named("far");
    let mut waiting = Vec::new();
    for method in [
        "conversation/edit",
        "conversation/fork",
        "conversation/resume",
        "transcript/check",
        "transcript/keep",
        "transcript/restore",
    ] {
        let id = app.begun(&far, &["one", "two"]).await;
        let at = places(&app, id).await[1][0].clone();
        app.close(id).await;
        let params = match method {
            "conversation/edit" => json!({"conversationId": id, "at": at, "prompt": "2"}),
            _ => json!({"conversationId": id}),
        };
        waiting.push((method, params, id));
    }
    // A restore needs a backup.
    let conversations = u64::try_from(waiting.len()).unwrap();
    once_kept(&app, |total| total.sessions == conversations).await;
    let transcript = home.transcript_of(&app, waiting[0].2).await;
    let folder = transcript.parent().unwrap();
    let mount = Mount::over(&daemon, folder);
    let mut sent = Vec::new();
    for (method, params, _) in &waiting {
        let mut raw = daemon.raw().await;
        let id = raw.send(method, params.clone()).await;
        sent.push((method, raw, id));
    }
    let root = home.data().join("loopback");
    for (method, raw, id) in &mut sent {
        let answer = raw.answer(*id).await;
        Refusal(1015, "storeFailed", true).check(&answer, method);
        assert!(
            answer.to_string().contains(root.to_str().unwrap()),
            "{method}: {answer}"
        );
    }
    mount.fail();
    unmount(&daemon, folder);
    for (method, params, id) in waiting {
        app.call(method, params).await.unwrap();
        assert_eq!(app.remembered(id).await[0], "one", "{method}");
    }
}

/// A start does not wait for the transcripts of an agent that do not respond.
#[tokio::test]
async fn a_start_waits_for_no_transcripts_that_do_not_answer() {
    let home = Home::new();
    let folder = home.folder_named("transcripts");
    configure_remote(&home, None, &folder);
    let remote = {
        let (_daemon, app) = home.opened().await;
        let id = app.make_of(&home.project(), "remote").await;
        assert_eq!(app.send(id, "one").await.stop_reason, StopReason::EndTurn);
        id
    };
    // The mount exists in the namespace before the daemon starts there.
    let other = Home::new();
    let Some(outer) = start(&other) else { return };
    let mount = Mount::over(&outer, Path::new(&folder));
    let inner = home.command();
    let mut command = entered(&outer);
    command.env_clear().arg(inner.get_program());
    command.envs(inner.get_envs().map(|(name, value)| (name, value.unwrap())));
    command.stdout(Stdio::null());
    let daemon = home.start_command(command, &[]);
    let app = daemon.app().await;
    let near = app.begun(&home.project(), &["one"]).await;
    assert_eq!(app.remembered(near).await, ["one"]);
    let mut raw = daemon.raw().await;
    let history = raw
        .ask("conversation/history", json!({"conversationId": remote}))
        .await;
    Refusal(1015, "storeFailed", true).check(&history, "conversation/history");
    mount.fail();
    unmount(&outer, Path::new(&folder));
    app.ask("conversation/history", remote).await;
}

/// A prompt to an open session is refused in time, and not sent, if the folder of its transcripts does not respond:
/// after a crash nobody could find out whether it arrived.
#[tokio::test]
async fn a_prompt_to_an_open_session_is_refused_if_its_transcripts_do_not_answer() {
    let home = Home::new();
    let folder = home.folder_named("transcripts");
    configure_remote(&home, None, &folder);
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let [id, other] = [
        app.make_of(&home.project(), "remote").await,
        app.make_of(&home.project(), "remote").await,
    ];
    for id in [id, other] {
        assert_eq!(app.send(id, "one").await.stop_reason, StopReason::EndTurn);
    }
    let mount = Mount::over(&daemon, Path::new(&folder));
    let refusal = Refusal(1015, "storeFailed", true);
    let two = json!({"conversationId": id, "prompt": "two"});
    let mut raw = daemon.raw().await;
    let prompt = raw.send("conversation/prompt", two).await;
    // This prompt waits for the folder like the one before it, but a cancel ends it at once.
    let mut cancelled = daemon.raw().await;
    let three = json!({"conversationId": other, "prompt": "three"});
    let three = cancelled.send("conversation/prompt", three).await;
    let cancel = json!({"conversationId": other});
    cancelled.send("conversation/cancel", cancel).await;
    let answer = raw.answer(prompt).await;
    assert!(answer.to_string().contains(&folder), "{answer}");
    refusal.check(&answer, "conversation/prompt");
    let answer = cancelled.answer(three).await;
    assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
    mount.fail();
    unmount(&daemon, Path::new(&folder));
    assert_eq!(app.send(id, "two").await.stop_reason, StopReason::EndTurn);
}

/// A mark that cannot be read at the moment is not treated as damaged: it means neither that turns are missing nor that
/// none are.
#[tokio::test]
async fn a_mark_that_cannot_be_read_now_is_not_taken_for_damaged() {
    let home = Home::new();
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &["one", "two"]).await;
    app.close(id).await;
    let marks = home.data().join("kept/unreported");
    std::fs::create_dir_all(&marks).unwrap();
    Mount::over(&daemon, &marks).fail();
    let mut raw = daemon.raw().await;
    let this = json!({"conversationId": id});
    let refusal = Refusal(1015, "storeFailed", true);
    raw.refused("conversation/resume", this.clone(), refusal).await;
    raw.refused("conversation/history", this.clone(), refusal).await;
    unmount(&daemon, &marks);
    let resumed = app.ask("conversation/resume", id).await;
    let fidelity = serde_json::from_value::<Fidelity>(resumed["resumed"]["fidelity"].clone());
    assert_eq!(fidelity.unwrap(), Fidelity::Full, "{resumed}");
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}

/// A name that matches nothing is searched among the transcripts. The search does not wait for backups that are being
/// made.
#[tokio::test]
async fn a_name_that_matches_nothing_waits_for_no_backup() {
    let home = Home::new();
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &["one"]).await;
    app.close(id).await;
    app.ask("transcript/keep", id).await;
    let kept = home.data().join("kept");
    let mount = Mount::over(&daemon, &kept);
    let mut raw = daemon.raw().await;
    let backups = 3;
    for _ in 0..backups {
        raw.send("transcript/keep", json!({"conversationId": id})).await;
    }
    let refusal = Refusal(1001, "notFound", false);
    let name = json!({"name": "no-such-title"});
    raw.refused("conversation/resolve", name, refusal).await;
    mount.fail();
    // The backups end in any order.
    for _ in 0..backups {
        raw.next().await;
    }
    unmount(&daemon, &kept);
}

/// A call with a request id waits for a folder like any other call, and a stop does not wait for it.
#[tokio::test]
async fn a_stop_waits_for_no_call_that_waits_for_a_folder() {
    for method in ["transcript/keep", "transcript/restore", "conversation/export"] {
        let home = Home::new();
        let Some(daemon) = start(&home) else { return };
        let app = daemon.app().await;
        let id = app.begun(&home.project(), &["one"]).await;
        app.close(id).await;
        app.ask("transcript/keep", id).await;
        let (kept, exports) = (home.data().join("kept"), home.folder_named("exports"));
        let _mounts = [
            Mount::over(&daemon, &kept),
            Mount::over(&daemon, Path::new(&exports)),
        ];
        let mut params = json!({"conversationId": id, "requestId": "r1"});
        if method == "conversation/export" {
            params["path"] = json!(format!("{exports}/exported.json"));
        }
        let mut raw = daemon.raw().await;
        raw.send(method, params).await;
        // Sent after it on the same connection: once this is answered, the call has been admitted.
        raw.ask("daemon/status", json!({})).await;
        daemon.signal(Signal::TERM);
        assert!(daemon.ended().await.success(), "{method}");
    }
}

/// A project folder that does not respond: calls that need it are refused in time, each call keeps its place in the
/// order, and no other call waits.
#[tokio::test]
async fn a_project_that_does_not_answer_keeps_no_other_conversation_waiting() {
    let home = Home::new();
    let far = home.folder_named("far");
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let near = app.begun(&home.project(), &["one"]).await;
    let branched = app.begun(&home.project(), &["one"]).await;
    let moved = app.begun(&home.project(), &["one"]).await;
    let there = app.begun(&far, &["one"]).await;
    app.close(there).await;
    let mount = Mount::over(&daemon, Path::new(&far));

    let mut waiting = Vec::new();
    let calls = [
        (
            "conversation/prompt",
            json!({"conversationId": there, "prompt": "two"}),
        ),
        ("conversation/new", json!({"cwd": format!("{far}/new")})),
        (
            "conversation/adopt",
            json!({"upstreamId": "none", "cwd": format!("{far}/adopted")}),
        ),
        ("conversation/list", json!({"cwd": format!("{far}/x/../listed")})),
        (
            "conversation/fork",
            json!({"conversationId": branched, "cwd": format!("{far}/fork")}),
        ),
        (
            "conversation/move",
            json!({"conversationId": moved, "cwd": format!("{far}/moved")}),
        ),
        (
            "transcript/move",
            json!({"from": home.project(), "to": format!("{far}/tree")}),
        ),
    ];
    for (method, params) in calls {
        let mut raw = daemon.raw().await;
        let id = raw.send(method, params).await;
        waiting.push((method, raw, id));
    }
    // This call waits after another one of the same conversation.
    let mut behind = daemon.raw().await;
    let title = json!({"conversationId": branched, "title": "later"});
    let titled = behind.send("conversation/update", title).await;
    assert_eq!(app.send(near, "two").await.stop_reason, StopReason::EndTurn);
    assert_eq!(app.remembered(near).await, ["one", "two"]);

    let refusal = Refusal(1015, "storeFailed", true);
    for (method, raw, id) in &mut waiting {
        let answer = raw.answer(*id).await;
        assert!(answer.to_string().contains(&far), "{method}: {answer}");
        refusal.check(&answer, method);
    }
    let titled = behind.answer(titled).await;
    assert_eq!(titled["result"]["conversation"]["title"], "later", "{titled}");
    mount.fail();
    unmount(&daemon, Path::new(&far));
    assert_eq!(app.send(there, "two").await.stop_reason, StopReason::EndTurn);
    assert_eq!(app.remembered(there).await, ["one", "two"]);
}

/// More folders of one mount do not respond than the daemon has threads. Calls that need them are refused in time, and
/// all others are answered meanwhile.
#[tokio::test]
async fn however_many_folders_do_not_answer_the_others_do() {
    let home = Home::new();
    let far = home.folder_named("far");
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let near = app.begun(&home.project(), &["one"]).await;
    let mount = Mount::over(&daemon, Path::new(&far));

    let each = 100;
    let mut waiting = Vec::new();
    for part in 0..6 {
        let mut raw = daemon.raw().await;
        for number in 0..each {
            let folder = format!("{far}/{part}/{number}");
            raw.send("conversation/new", json!({"cwd": folder})).await;
        }
        // Sent after them on the same connection: once this is answered, they have been admitted.
        raw.ask("daemon/status", json!({})).await;
        assert_eq!(raw.passed, [] as [Value; 0]);
        waiting.push(raw);
    }
    assert_eq!(app.send(near, "two").await.stop_reason, StopReason::EndTurn);
    assert_eq!(app.messages(near).await.len(), 4);
    app.make(&home.project()).await;
    app.make(&home.folder_named("beside")).await;

    let refusal = Refusal(1015, "storeFailed", true);
    for raw in &mut waiting {
        // The responses arrive in any order.
        for _ in 0..each {
            let answer = raw.next().await;
            assert!(answer.to_string().contains(&far), "{answer}");
            refusal.check(&answer, "conversation/new");
        }
    }
    mount.fail();
    unmount(&daemon, Path::new(&far));
    assert_eq!(app.remembered(near).await, ["one", "two"]);
}

/// A tree move may take long. Meanwhile conversations can be made. An adoption is refused, because its transcript may
/// be moved.
#[tokio::test]
async fn a_move_of_a_folder_keeps_no_new_conversation_waiting() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let transcripts = home.folder_named("transcripts");
    configure_remote(&home, None, &transcripts);
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &["one"]).await;
    let session = app.chain(id).await.pop().unwrap().upstream_id;
    app.ask("conversation/delete", id).await;
    let mount = Mount::over(&daemon, Path::new(&transcripts));
    let mut moving = daemon.raw().await;
    let moved = moving
        .send("transcript/move", json!({"from": old, "to": new}))
        .await;
    for number in 0..20 {
        let params = json!({"cwd": home.project(), "requestId": format!("r{number}")});
        app.call("conversation/new", params).await.unwrap();
    }
    let mut raw = daemon.raw().await;
    let adopt = json!({"upstreamId": session, "agent": "loopback"});
    raw.refused("conversation/adopt", adopt.clone(), Refusal(1003, "busy", true))
        .await;
    mount.fail();
    moving.answer(moved).await;
    unmount(&daemon, Path::new(&transcripts));
    app.call("conversation/adopt", adopt).await.unwrap();
}

/// The transcripts of one agent do not respond. Those of another agent are listed meanwhile, and a diagnosis reports
/// the problem.
#[tokio::test]
async fn transcripts_of_an_agent_that_do_not_answer_keep_no_other_list_waiting() {
    let home = Home::new();
    let far = home.folder_named("far");
    let configured = format!(
        "default_agent = \"loopback\"\n[agents.remote]\nkind = \"claude\"\ncommand = \"true\"\ntranscripts = \"{far}\"\n"
    );
    fs::write(home.config_file(), configured).unwrap();
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &["one"]).await;
    let head = app.get(id).await.head.unwrap();
    let mount = Mount::over(&daemon, Path::new(&far));

    let mut stalled = daemon.raw().await;
    let all = stalled.send("transcript/list", json!({})).await;
    let mut diagnosing = daemon.raw().await;
    let diagnosis = diagnosing.send("daemon/diagnose", json!({"agents": false})).await;
    // A name that matches nothing might be the id of a transcript on the mount.
    let mut resolving = daemon.raw().await;
    let unknown = json!({"name": "0f1a1f5e-0000-4000-8000-000000000000"});
    let unknown = resolving.send("conversation/resolve", unknown).await;
    let found = diagnosing.answer(diagnosis).await["result"]["diagnostics"].clone();
    let found = found.as_array().unwrap();
    let is_told = |one: &Value| {
        one["kind"] == "transcripts"
            && one["severity"] == "error"
            && one["message"].as_str().unwrap().contains("15 s")
    };
    assert!(found.iter().any(is_told), "{found:?}");
    // The search of all transcripts waits for the mount by now.
    let listed = app
        .call("transcript/list", json!({"agent": "loopback"}))
        .await
        .unwrap();
    assert_eq!(listed["transcripts"][0]["upstreamId"], head.as_str());
    let answer = resolving.answer(unknown).await;
    Refusal(1015, "storeFailed", true).check(&answer, "conversation/resolve");
    mount.fail();
    unmount(&daemon, Path::new(&far));
    let listed = stalled.answer(all).await;
    assert_eq!(
        listed["result"]["transcripts"][0]["upstreamId"],
        head.as_str(),
        "{listed}"
    );
}

//! `daemon/diagnose`: what it reports, and that it changes nothing.

use std::fs;
use std::process::{Child, Command, Stdio};

use bridge_protocol::diagnosis::{Diagnosis, Diagnostic, DiagnosticKind, Severity};
use serde_json::{Value, json};

use super::error_words;
use crate::home::{Home, wait_for_end};
use crate::support::App;

async fn diagnose(app: &App, params: Value) -> Vec<Diagnostic> {
    let answer = app.call("daemon/diagnose", params).await.unwrap();
    serde_json::from_value::<Diagnosis>(answer).unwrap().diagnostics
}

/// Returns the diagnostic of this kind about this subject, and checks its messages.
#[track_caller]
fn found<'a>(all: &'a [Diagnostic], kind: DiagnosticKind, subject: &str) -> &'a Diagnostic {
    let fits = |one: &&Diagnostic| one.kind == kind && one.subject.as_deref() == Some(subject);
    let found = all.iter().find(fits);
    let found = found.unwrap_or_else(|| panic!("{kind:?} of {subject}: {all:#?}"));
    // The messages about disk space and a vendor's retention depend on the machine.
    if ![DiagnosticKind::Room, DiagnosticKind::Retention].contains(&kind) {
        check_words(found);
    }
    found
}

/// Checks the diagnostic's message and its next step.
#[track_caller]
fn check_words(diagnostic: &Diagnostic) {
    let kind = serde_json::to_value(diagnostic.kind).unwrap();
    let check = |call, words| error_words::check(call, kind.as_str().unwrap(), words);
    check("daemon/diagnose", &diagnostic.message);
    if let Some(next_step) = &diagnostic.next_step {
        check("daemon/diagnose, next step", next_step);
    }
}

/// Waits until the started agents have ended, and asserts that the agent is no longer listed as running.
async fn agents_end(home: &Home, app: &App) {
    home.agents().into_iter().for_each(wait_for_end);
    assert_eq!(agent(app, "loopback").await["running"], false);
}

/// Returns the warnings and errors, without those about disk space, which depends on the machine.
fn bad(all: &[Diagnostic]) -> Vec<(DiagnosticKind, Severity)> {
    let is_bad = |one: &&Diagnostic| one.severity >= Severity::Warning && one.kind != DiagnosticKind::Room;
    all.iter()
        .filter(is_bad)
        .map(|one| (one.kind, one.severity))
        .collect()
}

async fn agent(app: &App, name: &str) -> Value {
    let list = app.call("agent/list", json!({})).await.unwrap();
    let agents = list["agents"].as_array().unwrap().clone();
    agents.into_iter().find(|agent| agent["name"] == name).unwrap()
}

/// A process that is killed when the test ends.
struct Stray(Child);

impl Drop for Stray {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _ended = self.0.wait();
    }
}

#[tokio::test]
async fn a_daemon_that_lacks_nothing_but_a_coding_agent_says_so_and_starts_nothing_for_long() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let all = diagnose(&app, json!({})).await;
    assert_eq!(
        bad(&all),
        [(DiagnosticKind::Agent, Severity::Warning)],
        "{all:#?}"
    );
    let data = home.data().to_string_lossy().into_owned();
    assert_eq!(found(&all, DiagnosticKind::Store, &data).data["conversations"], 0);
    assert!(found(&all, DiagnosticKind::Room, &data).data["freeBytes"].as_u64() > Some(0));
    let loopback = found(&all, DiagnosticKind::Agent, "loopback");
    assert_eq!(loopback.data["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        loopback.data["offers"]
            .as_array()
            .unwrap()
            .contains(&json!("fork"))
    );
    // A process that was started for the diagnosis ends at once, without waiting to become idle.
    agents_end(&home, &app).await;

    // With `agents: false`, no agent is started.
    let all = diagnose(&app, json!({"agents": false})).await;
    assert_eq!(
        found(&all, DiagnosticKind::Agent, "loopback").severity,
        Severity::Note
    );
    assert_eq!(agent(&app, "loopback").await["running"], false);
}

/// A diagnosis does not stop an agent in use, and queries a running agent even with `agents: false`.
#[tokio::test]
async fn an_agent_that_is_in_use_goes_on() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["mine"]).await;
    let processes = |all: &[Diagnostic]| found(all, DiagnosticKind::Agent, "loopback").severity;
    for params in [json!({}), json!({"agents": false})] {
        assert_eq!(processes(&diagnose(&app, params).await), Severity::Ok);
    }
    let chain = app.chain(id).await.len();
    assert_eq!(app.remembered(id).await, ["mine"]);
    assert_eq!(
        (
            app.chain(id).await.len(),
            agent(&app, "loopback").await["running"].clone()
        ),
        (chain, json!(true))
    );
}

/// An agent that was started for work keeps running after a diagnosis. One that was started for a diagnosis ends with
/// the last diagnosis, unless a conversation has used it meanwhile.
#[tokio::test]
async fn a_look_ends_no_agent_that_somebody_has_worked_with() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["mine"]).await;
    app.close(id).await;
    for params in [json!({}), json!({"agents": false})] {
        let all = diagnose(&app, params).await;
        assert_eq!(
            found(&all, DiagnosticKind::Agent, "loopback").severity,
            Severity::Ok
        );
        assert_eq!(agent(&app, "loopback").await["running"], true);
    }
    let (one, other) = tokio::join!(diagnose(&app, json!({})), diagnose(&app, json!({})));
    assert_eq!(one.len(), other.len());
    assert_eq!(agent(&app, "loopback").await["running"], true);
}

/// Two simultaneous diagnoses share the process that they start, which ends with the later one.
#[tokio::test]
async fn two_looks_at_once_leave_nothing_running() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (one, other) = tokio::join!(diagnose(&app, json!({})), diagnose(&app, json!({})));
    for all in [one, other] {
        assert_eq!(
            found(&all, DiagnosticKind::Agent, "loopback").severity,
            Severity::Ok
        );
    }
    agents_end(&home, &app).await;
}

#[tokio::test]
async fn a_configuration_that_was_broken_is_told_before_the_daemon_is_stopped_for_it() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let file = home.config_file().to_string_lossy().into_owned();
    let severity = |all: &[Diagnostic]| found(all, DiagnosticKind::Configuration, &file).severity;
    assert_eq!(
        severity(&diagnose(&app, json!({"agents": false})).await),
        Severity::Ok
    );
    let text = fs::read_to_string(home.config_file()).unwrap();
    home.configure(&format!("{text}\n# later"));
    assert_eq!(
        severity(&diagnose(&app, json!({"agents": false})).await),
        Severity::Warning
    );
    home.configure("no_such_option = 1");
    assert_eq!(
        severity(&diagnose(&app, json!({"agents": false})).await),
        Severity::Error
    );
}

#[tokio::test]
async fn an_agent_that_does_not_start_or_is_not_there_is_told_with_what_to_do() {
    let home = Home::bare();
    home.configure(
        "default_agent = \"missing\"\n\
         [agents.missing]\ncommand = \"an-agent-of-mine\"\n\
         [agents.broken]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"echo no licence >&2; exit 3\"]\n",
    );
    let (_daemon, app) = home.opened().await;
    let path = home.path().join("bin");
    let all = diagnose(&app, json!({"path": path})).await;
    let missing = found(&all, DiagnosticKind::Agent, "missing");
    assert_eq!(missing.severity, Severity::Error, "the default agent");
    let broken = found(&all, DiagnosticKind::Agent, "broken");
    assert_eq!(broken.severity, Severity::Error);

    // A program that only the caller's PATH contains cannot be started by the daemon. One of these is configured; the
    // other is an agent that the daemon knows but that is not configured.
    fs::create_dir(&path).unwrap();
    for program in ["an-agent-of-mine", "codex-acp"] {
        std::os::unix::fs::symlink("/bin/true", path.join(program)).unwrap();
    }
    let all = diagnose(&app, json!({"path": path, "agents": false})).await;
    for name in ["missing", "codex"] {
        found(&all, DiagnosticKind::Agent, name);
    }
}

/// Each of these programs exists but cannot be run. The diagnostic has a next step that fixes it, and does not say that
/// the program is missing.
#[tokio::test]
async fn a_program_that_is_there_and_cannot_be_run_is_told_as_such() {
    let home = Home::bare();
    let programs = home.path().join("my programs");
    fs::create_dir_all(programs.join("folder")).unwrap();
    fs::write(programs.join("file"), "#!/bin/sh\n").unwrap();
    let of = |name: &str, command: &str| {
        let env = format!("env = {{ PATH = \"{}\" }}", programs.display());
        format!("[agents.{name}]\nkind = \"generic\"\ncommand = \"{command}\"\n{env}\n")
    };
    let whole = programs.join("file");
    home.configure(
        &[
            "default_agent = \"loopback\"\n",
            &of("by-name", "file"),
            &of("by-path", whole.to_str().unwrap()),
            &of("a-folder", "folder"),
        ]
        .concat(),
    );
    let (_daemon, app) = home.opened().await;
    let all = diagnose(&app, json!({"agents": false})).await;
    for name in ["by-name", "by-path", "a-folder"] {
        found(&all, DiagnosticKind::Agent, name);
    }
}

/// The diagnosis checks the folder that contains the transcripts, not only the agent's top folder.
#[tokio::test]
async fn transcripts_that_cannot_be_had_are_told_with_what_is_in_the_way() {
    let home = Home::bare();
    let agents = [("claude", "projects"), ("codex", "sessions")];
    let mut text = "default_agent = \"loopback\"\n".to_owned();
    for (name, top) in agents {
        let root = home.path().join(name);
        fs::create_dir_all(root.join(top)).unwrap();
        text += &format!(
            "[agents.{name}]\ncommand = \"/nonexistent\"\ntranscripts = \"{}\"\n",
            root.display()
        );
    }
    home.configure(&text);
    let (_daemon, app) = home.opened().await;
    for (name, top) in agents {
        let top = home.path().join(name).join(top);
        let link = top.join("below");
        fs::write(top.join("a file is none of them"), "").unwrap();
        let all = diagnose(&app, json!({"agents": false})).await;
        assert_eq!(
            found(&all, DiagnosticKind::Transcripts, name).severity,
            Severity::Ok
        );
        std::os::unix::fs::symlink("/nonexistent/disk", &link).unwrap();
        let told = async |severity| {
            let all = diagnose(&app, json!({"agents": false})).await;
            let told = found(&all, DiagnosticKind::Transcripts, name).clone();
            assert_eq!(told.severity, severity, "{told:?}");
            told.message
        };
        let below = told(Severity::Warning).await;
        assert!(below.contains(link.to_str().unwrap()), "{below}");
        fs::remove_dir_all(&top).unwrap();
        fs::write(&top, "").unwrap();
        let file = told(Severity::Error).await;
        assert!(file.contains(top.to_str().unwrap()), "{file}");
    }
}

/// The folder of transcripts exists, but the agent stores them elsewhere: nothing can be restored, forked or backed up.
#[tokio::test]
async fn turns_that_left_no_transcript_in_the_agents_folder_are_reported() {
    let home = Home::bare();
    let folder = home.folder_named("elsewhere");
    home.configure(&format!(
        "[agents.claude]\nkind = \"claude\"\ncommand = \"{}\"\nargs = [\"loopback-agent\", \"--data\", \"{}\"]\ntranscripts = \"{folder}\"\n",
        env!("CARGO_BIN_EXE_sessiond"),
        home.data().display()
    ));
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "claude").await;
    for expected in [Severity::Ok, Severity::Warning] {
        let all = diagnose(&app, json!({"agents": false})).await;
        assert_eq!(
            found(&all, DiagnosticKind::Transcripts, "claude").severity,
            expected
        );
        app.send(id, "one").await;
    }
}

/// The adapters of Claude and Codex send this status once, unasked, some time after their start.
#[tokio::test]
async fn who_is_signed_in_is_told_as_the_agent_says_it() {
    let home = Home::bare();
    let token = home.path().join("token");
    home.configure(&format!(
        "default_agent = \"loopback\"\n[agents.loopback]\nenv = {{ SESSIOND_LOOPBACK_TOKEN = \"{}\" }}\n",
        token.display()
    ));
    let (_daemon, app) = home.opened().await;
    let nobody = diagnose(&app, json!({})).await;
    let nobody = found(&nobody, DiagnosticKind::SignIn, "loopback");
    assert_eq!(nobody.severity, Severity::Warning);
    assert_eq!(nobody.data["authStatus"]["kind"], "none");
    agents_end(&home, &app).await;

    fs::write(&token, "a token").unwrap();
    let somebody = diagnose(&app, json!({})).await;
    assert_eq!(
        found(&somebody, DiagnosticKind::SignIn, "loopback").severity,
        Severity::Ok
    );

    // `agent/list` has the status while the agent runs.
    let _begun = app.begun(&home.project(), &["mine"]).await;
    let listed = agent(&app, "loopback").await;
    assert_eq!(listed["authStatus"]["label"], "Token");
    assert_eq!(listed["agentInfo"]["name"], "loopback");
}

#[tokio::test]
async fn what_the_vendor_deletes_is_held_against_what_is_kept() {
    let home = Home::bare();
    let claude = home.path().join("claude");
    fs::create_dir_all(claude.join("projects")).unwrap();
    fs::write(claude.join("settings.json"), r#"{"cleanupPeriodDays": 90}"#).unwrap();
    home.configure(&format!(
        "[agents.claude]\ncommand = \"/nonexistent\"\ntranscripts = \"{}\"\n[keep]\ndays = 60\n",
        claude.display()
    ));
    let (_daemon, app) = home.opened().await;
    let all = diagnose(&app, json!({"agents": false})).await;
    assert_eq!(
        found(&all, DiagnosticKind::Transcripts, "claude").severity,
        Severity::Ok
    );
    let retention = found(&all, DiagnosticKind::Retention, "claude");
    if retention.data["vendorSettings"] != json!(claude.join("settings.json")) {
        // An organization's settings take precedence over those of this test.
        eprintln!("skipped: this machine is managed: {}", retention.message);
        return;
    }
    check_words(retention);
    assert_eq!(retention.severity, Severity::Warning);
    assert_eq!(
        (&retention.data["vendorDays"], &retention.data["keepDays"]),
        (&json!(90), &json!(60))
    );
    fs::write(claude.join("settings.json"), "{}").unwrap();
    let all = diagnose(&app, json!({"agents": false})).await;
    let retention = found(&all, DiagnosticKind::Retention, "claude");
    check_words(retention);
    assert_eq!(retention.severity, Severity::Ok);
}

/// Left-over processes are recognized by the marker in their environment, whatever their parent is.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn processes_that_were_left_behind_are_named() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    // An agent in use is not left over.
    let _begun = app.begun(&home.project(), &["mine"]).await;
    let left_over = |all: &[Diagnostic]| {
        let one = all
            .iter()
            .find(|one| one.kind == DiagnosticKind::LeftOver)
            .unwrap();
        check_words(one);
        (one.severity, one.data.get("pids").cloned())
    };
    assert_eq!(left_over(&diagnose(&app, json!({})).await), (Severity::Ok, None));
    let instance = fs::read_to_string(home.data().join("instance")).unwrap();
    let mut stray = Command::new("cat");
    stray.env("SESSIOND_MARK", format!("{}:0123456789abcdef", instance.trim()));
    let stray = Stray(stray.stdin(Stdio::piped()).spawn().unwrap());
    let told = left_over(&diagnose(&app, json!({})).await);
    assert_eq!(told, (Severity::Warning, Some(json!([stray.0.id()]))));
}

#[tokio::test]
async fn parts_of_the_store_that_were_set_aside_are_named() {
    let home = Home::new();
    fs::create_dir_all(home.data()).unwrap();
    let aside = home.data().join("journal.damaged-2");
    fs::write(&aside, "what was damaged").unwrap();
    let (_daemon, app) = home.opened().await;
    let all = diagnose(&app, json!({"agents": false})).await;
    assert_eq!(
        found(&all, DiagnosticKind::SetAside, &aside.to_string_lossy()).severity,
        Severity::Warning
    );
}

/// Damage to the journal is reported once and repaired from the database. If the database is lost afterwards, it is
/// rebuilt from the journal.
#[tokio::test]
async fn a_damaged_journal_is_told_and_mended() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let ids = [app.make(&home.project()).await, app.make(&home.project()).await];
    let journal = home.data().join("journal.jsonl");
    let mut bytes = fs::read(&journal).unwrap();
    let line = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    bytes[line + 60] ^= 1;
    fs::write(&journal, bytes).unwrap();

    let alone = json!({"agents": false});
    let all = diagnose(&app, alone.clone()).await;
    let kept = home.data().join("journal.damaged-1");
    let told = found(&all, DiagnosticKind::Store, &kept.to_string_lossy());
    assert_eq!(told.severity, Severity::Warning);
    let all = diagnose(&app, alone).await;
    let damaged = |one: &&Diagnostic| one.kind == DiagnosticKind::Store && one.severity > Severity::Ok;
    assert_eq!(all.iter().filter(damaged).count(), 0, "{all:#?}");
    found(&all, DiagnosticKind::SetAside, &kept.to_string_lossy());

    daemon.kill();
    fs::remove_dir_all(home.data().join("store")).unwrap();
    let (_daemon, app) = home.opened().await;
    for id in ids {
        app.get(id).await;
    }
}

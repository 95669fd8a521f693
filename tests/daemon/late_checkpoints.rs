//! Turns that reach the disk late are announced; old turns that come back to the disk are not announced again.

use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::event::Event;
use bridge_protocol::{ConversationId, UpstreamId};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::carrying::{bundle, import};
use crate::home::Home;
use crate::scripted;
use crate::support::{App, Events};
use crate::watching::{append, append_turn, leaf, saved, transcript, turn};

/// A script with a short reply. The scripted agent writes no transcript: the test writes it when needed.
const QUIET: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":$S,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hm."}}}}"#;

/// A home with a scripted agent of kind `claude`, whose transcripts the test writes.
fn scripted_home() -> Home {
    let home = Home::new();
    let capabilities = r#"{"loadSession":true,"sessionCapabilities":{"close":{}}}"#;
    let agent = scripted::configured_kind(&home, "claude", capabilities);
    home.folder_named("claude/projects/-p");
    home.configure(&format!("default_agent = \"claude\"\n{agent}"));
    home
}

fn path_of(home: &Home, id: &UpstreamId) -> PathBuf {
    home.path().join(format!("claude/projects/-p/{id}.jsonl"))
}

/// Starts a conversation with one turn. Returns it with its events and its session, whose transcript does not exist
/// yet.
async fn begun(app: &App, home: &Home) -> (ConversationId, Events, UpstreamId) {
    let id = app.make(&home.project()).await;
    let events = app.events(id).await;
    app.send(id, QUIET).await;
    (id, events, app.get(id).await.head.unwrap())
}

/// Both records of a turn that is the first in its transcript.
fn first_turn(prompt: &str) -> String {
    let (asked, answered) = turn(&Value::Null, prompt, "Done.");
    asked + &answered
}

/// Waits until the daemon has seen all earlier changes on disk: it announces a turn that came after them.
async fn after_a_round(app: &App, home: &Home) {
    let id = app.make(&home.project()).await;
    let mut events = app.events(id).await;
    app.send(id, "elsewhere").await;
    saved(&mut events).await;
}

/// A line of a script after which the agent continues in another transcript, as after its own `/clear`.
fn clear_to(id: &UpstreamId) -> String {
    let announced = json!({"type": "system", "subtype": "init", "session_id": id});
    let params = format!(r#"{{"sessionId":$S,"message":{announced}}}"#);
    format!(r#"{{"jsonrpc":"2.0","method":"_claude/sdkMessage","params":{params}}}"#)
}

/// Does the same as `after_a_round`, in a home whose agent writes no transcripts.
async fn after_a_scripted_round(app: &App, home: &Home) {
    let other = Uuid::new_v4().to_string();
    let path = path_of(home, &UpstreamId::new(other.as_str()));
    fs::write(&path, first_turn("other")).unwrap();
    let params = json!({"upstreamId": other, "cwd": home.project()});
    let id = app.made_by("conversation/adopt", params).await;
    let mut events = app.events(id).await;
    append_turn(&path, "round");
    assert_eq!(saved(&mut events).await.prompt, "round");
}

/// Waits for the next saved turn, and checks its number, its prompt and its session.
async fn check_saved(events: &mut Events, step: u64, prompt: &str, session: &UpstreamId) {
    let told = saved(events).await;
    assert_eq!(
        (told.step, told.prompt.as_str(), &told.upstream_id),
        (step, prompt, session)
    );
}

#[tokio::test]
async fn a_turn_that_comes_to_the_disk_behind_the_agents_own_clear_is_saved_where_it_was_had() {
    let home = scripted_home();
    let (_daemon, app) = home.opened().await;
    let (id, mut events, before) = begun(&app, &home).await;
    let cleared = UpstreamId::new("cleared");
    app.send(id, &clear_to(&cleared)).await;
    assert_eq!(app.get(id).await.head.as_ref(), Some(&cleared));
    // This agent writes its command nowhere. F6: a turn that was never written is not missing.
    let history = app.ask("conversation/history", id).await;
    assert_eq!(history.get("gaps"), None, "{history}");
    let link = &app.chain(id).await[1];
    assert_eq!((link.turns, link.written), (0, false));

    fs::write(path_of(&home, &before), first_turn("late")).unwrap();
    check_saved(&mut events, 1, "late", &before).await;
    // The late turn was announced, so the next turn in that transcript is another program's and is not announced.
    append_turn(&path_of(&home, &before), "beside");
    fs::write(path_of(&home, &cleared), first_turn("anew")).unwrap();
    check_saved(&mut events, 1, "anew", &cleared).await;
    // Prompts are counted anew in the new session. No prompt belongs to this turn, so another program wrote it.
    append_turn(&path_of(&home, &cleared), "there");
    let told = Event::ForeignWriter { upstream_id: cleared };
    assert_eq!(events.until("foreignWriter").await, told);
}

#[tokio::test]
async fn a_turn_that_comes_to_the_disk_while_the_clear_runs_is_saved_behind_it() {
    let home = scripted_home();
    let (_daemon, app) = home.opened().await;
    let (id, mut events, before) = begun(&app, &home).await;
    let ask = r#"{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":$S,"toolCall":{"toolCallId":"t"},"options":[{"optionId":"a","name":"A","kind":"allow_once"}]}}"#;
    let script = format!("{ask}\nawait 7\n{}", clear_to(&UpstreamId::new("cleared")));
    let answering = async {
        let take = |event: &Event| match event {
            Event::InterruptRaised { interrupt } => Some(interrupt.id.clone()),
            _ => None,
        };
        let question = events.find(take).await;
        fs::write(path_of(&home, &before), first_turn("late")).unwrap();
        after_a_scripted_round(&app, &home).await;
        let outcome = json!({"outcome": "selected", "optionId": "a"});
        let params = json!({"conversationId": id, "interruptId": question, "outcome": outcome});
        app.call("conversation/respond", params).await.unwrap();
        saved(&mut events).await
    };
    let (_, told) = tokio::join!(app.send(id, &script), answering);
    assert_eq!(
        (told.step, told.prompt.as_str(), &told.upstream_id),
        (1, "late", &before)
    );
}

#[tokio::test]
async fn a_turn_that_comes_to_the_disk_behind_a_fork_in_place_is_saved_where_it_was_had() {
    let home = scripted_home();
    let (_daemon, app) = home.opened().await;
    let (id, mut events, source) = begun(&app, &home).await;
    let path = path_of(&home, &source);
    fs::write(&path, first_turn("one")).unwrap();
    assert_eq!(saved(&mut events).await.step, 1);
    app.send(id, QUIET).await;
    // This change makes the daemon read the transcript while the second turn is not in it yet.
    append(&path, "{\"type\":\"custom-title\",\"customTitle\":\"Another\"}\n");
    after_a_scripted_round(&app, &home).await;
    app.fork(id, true).await.unwrap();
    assert_ne!(app.get(id).await.head.unwrap(), source);

    append_turn(&path, "two");
    check_saved(&mut events, 2, "two", &source).await;
}

/// The agent's own commands extend the turn before them, and that turn is not announced again.
#[tokio::test]
async fn a_turn_that_becomes_longer_is_not_told_again() {
    let home = scripted_home();
    let (_daemon, app) = home.opened().await;
    let (_, mut events, session) = begun(&app, &home).await;
    let path = path_of(&home, &session);
    fs::write(&path, first_turn("one")).unwrap();
    assert_eq!(saved(&mut events).await.prompt, "one");
    let aside = json!({
        "type": "user", "uuid": Uuid::new_v4().to_string(), "parentUuid": leaf(&path),
        "timestamp": "2020-11-03T12:00:02.000Z",
        "message": {"role": "user", "content": "<command-name>/status</command-name>"},
    });
    append(&path, &format!("{aside}\n"));
    append_turn(&path, "two");
    assert_eq!(saved(&mut events).await.prompt, "two");
}

/// The agent itself may replace its transcript during a turn, so no `foreignWriter` is emitted.
#[tokio::test]
async fn a_transcript_that_is_replaced_while_a_turn_runs_is_no_foreign_writing() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut raw = daemon.raw().await;
    let id = app.begun(&home.project(), &["one"]).await;
    let path = transcript(&app, &home, id).await;
    let mut events = app.events(id).await;
    let (prompt, _) = raw.hang(id).await;
    let other = path.with_extension("new");
    fs::copy(&path, &other).unwrap();
    fs::rename(&other, &path).unwrap();
    after_a_round(&app, &home).await;
    app.ask("conversation/cancel", id).await;
    raw.answer(prompt).await;
    // A `foreignWriter` of the end of the turn would come before the next `checkpointSaved`.
    app.send(id, "further").await;
    loop {
        let event = events.next().await.event;
        assert_ne!(event.kind(), "foreignWriter");
        if matches!(&event, Event::CheckpointSaved { checkpoint } if checkpoint.prompt == "further") {
            break;
        }
    }
}

/// Turns of a transcript that is put back are not announced again: not if the same file is moved back, not if a copy is
/// put back, and not if a copy replaces the file.
#[tokio::test]
async fn what_a_transcript_held_that_is_put_back_is_old() {
    type Way = fn(&Path, &Path);
    let ways: [(bool, Way); 3] = [
        (true, |aside, path| fs::rename(aside, path).unwrap()),
        (true, |aside, path| {
            // Rename the copy into place: in a file that is empty for a moment, all turns would count as new.
            let copy = path.with_extension("copy");
            fs::copy(aside, &copy).unwrap();
            fs::rename(copy, path).unwrap();
        }),
        (false, |aside, path| fs::rename(aside, path).unwrap()),
    ];
    for (is_removed, put_back) in ways {
        let home = Home::new();
        let (_daemon, app, id) = home.begun(&[]).await;
        let mut events = app.events(id).await;
        for text in ["one", "two"] {
            app.send(id, text).await;
            assert_eq!(saved(&mut events).await.prompt, text);
        }
        app.close(id).await;
        let path = transcript(&app, &home, id).await;
        let aside = home.path().join("aside");
        fs::copy(&path, &aside).unwrap();
        if is_removed {
            fs::rename(&path, &aside).unwrap();
            after_a_round(&app, &home).await;
        }
        put_back(&aside, &path);
        after_a_round(&app, &home).await;
        append_turn(&path, "new");
        assert_eq!(saved(&mut events).await.prompt, "new");
    }
}

#[tokio::test]
async fn what_a_transcript_held_that_is_put_back_in_another_life_is_old() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    for text in ["one", "two"] {
        app.send(id, text).await;
    }
    let path = transcript(&app, &home, id).await;
    drop(daemon);
    let aside = home.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    let (_daemon, app) = home.opened().await;
    let mut events = app.events(id).await;
    fs::rename(&aside, &path).unwrap();
    after_a_round(&app, &home).await;
    append_turn(&path, "new");
    let told = saved(&mut events).await;
    assert_eq!((told.step, told.prompt.as_str()), (3, "new"));
}

/// If the transcript of an open session is deleted and a new one is begun, all turns in the new one are announced.
#[tokio::test]
async fn a_transcript_that_is_begun_anew_under_its_session_tells_its_turns() {
    let home = scripted_home();
    let (_daemon, app) = home.opened().await;
    let (id, mut events, session) = begun(&app, &home).await;
    let path = path_of(&home, &session);
    fs::write(&path, first_turn(&"long ".repeat(100))).unwrap();
    assert_eq!(saved(&mut events).await.step, 1);
    fs::remove_file(&path).unwrap();
    after_a_scripted_round(&app, &home).await;
    fs::write(&path, first_turn("anew")).unwrap();
    app.send(id, QUIET).await;
    assert_eq!(saved(&mut events).await.prompt, "anew");
}

#[tokio::test]
async fn what_another_program_had_before_an_export_is_old_after_the_import() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    app.send(id, "here").await;
    assert_eq!(saved(&mut events).await.prompt, "here");
    app.close(id).await;
    append_turn(&transcript(&app, &home, id).await, "there");
    assert_eq!(saved(&mut events).await.prompt, "there");
    let bundled = bundle(&app, id).await;
    let params = json!({"path": bundled["path"], "cwd": home.project(), "newIds": true});
    let imported = import(&app, params).await.unwrap();
    let mut events = app.events(imported.id).await;
    append_turn(&transcript(&app, &home, imported.id).await, "behind");
    let told = saved(&mut events).await;
    assert_eq!((told.step, told.prompt.as_str()), (3, "behind"));
}

/// If the user goes back to an earlier turn within the agent, the new branch has fewer turns than the adopted
/// transcript. Its turns are announced nevertheless.
#[tokio::test]
async fn turns_behind_a_place_to_which_somebody_went_back_are_saved() {
    let home = scripted_home();
    let (_daemon, app) = home.opened().await;
    let path = path_of(&home, &UpstreamId::new("adopted"));
    fs::write(&path, first_turn("one")).unwrap();
    for prompt in ["two", "three", "four", "five"] {
        append_turn(&path, prompt);
    }
    let text = fs::read_to_string(&path).unwrap();
    let second: Value = serde_json::from_str(text.lines().nth(3).unwrap()).unwrap();
    let params = json!({"upstreamId": "adopted", "cwd": home.project()});
    let id = app.made_by("conversation/adopt", params).await;
    let mut events = app.events(id).await;
    let (asked, answered) = turn(&second["uuid"], "back", "Done.");
    append(&path, &(asked + &answered));
    let told = saved(&mut events).await;
    assert_eq!((told.step, told.prompt.as_str()), (3, "back"));
    append_turn(&path, "on");
    let told = saved(&mut events).await;
    assert_eq!((told.step, told.prompt.as_str()), (4, "on"));
}

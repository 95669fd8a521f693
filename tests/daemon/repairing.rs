//! Repairs: a repaired copy is written under a new id, a conversation continues with the repaired copy of its head, and
//! no transcript is changed.

use std::fs;
use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::check::{CheckAnswer, FindingKind};
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::event::Event;
use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::{Fidelity, LineageReason, LinkReason, Relation, RollCause, Via};
use serde_json::{Value, json};

use crate::codex;
use crate::damaged::tear;
use crate::home::Home;
use crate::support::{App, refused};

async fn repair(app: &App, params: Value) -> Result<CheckAnswer, BridgeError> {
    let mut params = params;
    params["repair"] = json!(true);
    let answer = app.call("transcript/check", params).await?;
    Ok(serde_json::from_value(answer).unwrap())
}

fn kinds(answer: &CheckAnswer) -> Vec<FindingKind> {
    answer.findings.iter().map(|finding| finding.kind).collect()
}

async fn found(app: &App, upstream_id: &UpstreamId) -> Vec<Value> {
    let params = json!({"upstreamId": upstream_id});
    let answer = app.call("transcript/check", params).await.unwrap();
    answer["findings"].as_array().unwrap().clone()
}

/// The session of a conversation's head, and its transcript.
async fn head(home: &Home, app: &App, id: ConversationId) -> (UpstreamId, std::path::PathBuf) {
    let head = app.get(id).await.head.unwrap();
    let path = home.transcript(head.as_str()).unwrap();
    (head, path)
}

/// The names of all transcripts of the built-in agent, hidden ones too.
fn transcripts(home: &Home) -> Vec<String> {
    let files = crate::carrying::files_below(&home.data().join("loopback/projects"));
    let mut names: Vec<String> = files
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Removes the lines with this text from a file.
fn take_out(path: &Path, text: &str) {
    let whole = fs::read_to_string(path).unwrap();
    let kept: Vec<&str> = whole.lines().filter(|line| !line.contains(text)).collect();
    assert!(kept.len() < whole.lines().count());
    fs::write(path, kept.join("\n") + "\n").unwrap();
}

/// A repeated call gets the same response, also if it names the transcript by the first characters of its id, and
/// although the transcript was deleted since.
#[tokio::test]
async fn a_repair_is_repeated_by_the_beginning_of_an_id_that_has_no_transcript_any_more() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let (old, path) = head(&home, &app, id).await;
    tear(&home, old.as_str(), "echo: one");
    let repair = json!({"upstreamId": &old.as_str()[..8], "repair": true, "requestId": "r1"});
    let first = app.call("transcript/check", repair.clone()).await.unwrap();
    assert!(first["repaired"].is_string(), "{first}");
    fs::remove_file(path).unwrap();
    assert_eq!(app.call("transcript/check", repair).await.unwrap(), first);
}

/// The session is open in the agent, one of its records is torn and a result is missing. The repair closes the session,
/// and the conversation continues with everything that is left, also after a kill.
#[tokio::test]
async fn a_conversation_goes_on_with_the_repaired_copy_of_its_head() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let prompts = ["one", "[[tool Read {}]]", "three", "four"];
    let id = app.begun(&home.project(), &prompts).await;
    let (old, path) = head(&home, &app, id).await;
    tear(&home, old.as_str(), "echo: one");
    take_out(&path, "\"tool_result\"");
    let before = fs::read(&path).unwrap();
    let mut events = app.events(id).await;
    let answer = repair(&app, json!({"conversationId": id})).await.unwrap();
    assert_eq!(
        kinds(&answer),
        [
            FindingKind::GarbageLine,
            FindingKind::BrokenParent,
            FindingKind::ToolUseWithoutResult,
            FindingKind::BrokenParent
        ]
    );
    let repairs = answer.repairs.unwrap();
    assert_eq!((repairs.left_out, repairs.joined, repairs.filled_in), (1, 2, 0));
    // The call without a result is left in the copy: the agent leaves it out itself.
    let left: Vec<FindingKind> = answer.left.iter().map(|finding| finding.kind).collect();
    assert_eq!(left, [FindingKind::ToolUseWithoutResult]);
    let new = answer.repaired.unwrap();
    let mut told = Vec::new();
    loop {
        let event = events.next().await.event;
        told.push(event.kind().to_owned());
        if let Event::Rolled {
            from,
            to,
            cause,
            fidelity,
        } = event
        {
            assert_eq!((from, &to), (Some(old.clone()), &new));
            assert_eq!((cause, fidelity), (RollCause::Damaged, Fidelity::Partial));
            assert_eq!(answer.fidelity, Some(fidelity));
            break;
        }
    }
    assert!(told.contains(&"closed".to_owned()), "{told:?}");
    let conversation = app.get(id).await;
    assert_eq!(
        (conversation.head.as_ref(), conversation.live),
        (Some(&new), false)
    );
    assert_eq!(conversation.state, ConversationState::Idle);
    let chain = app.chain(id).await;
    let link = chain.last().unwrap();
    assert_eq!(chain.len(), 2);
    assert_eq!((&link.upstream_id, link.reason), (&new, LinkReason::Rebuilt));
    assert_eq!(
        (link.relation, link.from_upstream_id.as_ref()),
        (Relation::Carries, Some(&old))
    );
    assert!(link.from_checkpoint_id.is_some());
    assert_eq!((link.carried_turns, link.turns), (4, 0));
    let entry = app.lineage(id).await.pop().unwrap();
    assert_eq!(
        (entry.reason, entry.fidelity),
        (LineageReason::Rebuilt, Fidelity::Partial)
    );
    let found = found(&app, &new).await;
    assert_eq!(found.len(), 1, "{found:?}");

    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let resumed = app.send(id, "on").await.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    assert_eq!(resumed.upstream_id, new);
    assert_eq!(
        app.remembered(id).await,
        ["one", "[[tool Read {}]]", "three", "four", "on"]
    );
    assert_eq!(fs::read(&path).unwrap(), before, "the source is unchanged");
    // There is nothing to undo, because the repaired history is the same.
    let undo = app.call("conversation/undo", json!({"conversationId": id})).await;
    refused(undo, ErrorKind::Conflict);
    // A repair by the id of the head also changes the head of the conversation.
    tear(&home, new.as_str(), "echo: three");
    app.close(id).await;
    let again = repair(&app, json!({"upstreamId": new})).await.unwrap();
    assert_eq!(app.get(id).await.head, again.repaired);
    // An older session of the conversation is not repaired.
    let refusal = repair(&app, json!({"upstreamId": old})).await;
    refused(refusal, ErrorKind::Conflict);
}

/// If an undo leads back to the damaged session, the repair is refused before the undo and works after it.
#[tokio::test]
async fn what_an_undo_leads_back_to_is_repaired_behind_it() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let (old, _) = head(&home, &app, id).await;
    app.fork(id, true).await.unwrap();
    app.send(id, "three").await;
    app.close(id).await;
    tear(&home, old.as_str(), "echo: one");
    let refusal = repair(&app, json!({"upstreamId": old})).await;
    refused(refusal, ErrorKind::Conflict);
    app.ask("conversation/undo", id).await;
    let answer = repair(&app, json!({"upstreamId": old})).await.unwrap();
    assert_eq!(app.get(id).await.head, answer.repaired);
}

#[tokio::test]
async fn where_nothing_is_wrong_no_copy_is_made() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let none = repair(&app, json!({"conversationId": id})).await;
    refused(none, ErrorKind::NotFound);
    app.send(id, "[[tool Read {}]]").await;
    let (old, path) = head(&home, &app, id).await;
    let names = transcripts(&home);
    for params in [json!({"conversationId": id}), json!({"upstreamId": old})] {
        let answer = repair(&app, params).await.unwrap();
        assert_eq!(answer, CheckAnswer::default());
    }
    assert_eq!(
        (app.get(id).await.head, app.chain(id).await.len()),
        (Some(old.clone()), 1)
    );
    assert_eq!(transcripts(&home), names);
    // A record of an unknown kind is not damage.
    app.close(id).await;
    let text = fs::read_to_string(&path).unwrap();
    let strange = json!({"type": "hologram", "uuid": "h1", "parentUuid": null, "sessionId": old});
    fs::write(&path, format!("{text}{strange}\n")).unwrap();
    let answer = repair(&app, json!({"conversationId": id})).await.unwrap();
    assert_eq!(answer, CheckAnswer::default());
    fs::write(&path, "@@@\n").unwrap();
    let none = repair(&app, json!({"conversationId": id})).await;
    refused(none, ErrorKind::TranscriptDamaged);
    assert_eq!(transcripts(&home), names);
    assert_eq!(app.get(id).await.head, Some(old));
}

#[tokio::test]
async fn what_goes_on_has_to_end_first() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    let (old, _) = head(&home, &app, id).await;
    tear(&home, old.as_str(), "echo: one");
    let names = transcripts(&home);
    let mut events = app.events(id).await;
    let running = app.try_send(id, "[[ask May I?]]");
    let asked = async {
        events.until("interruptRaised").await;
        for params in [json!({"conversationId": id}), json!({"upstreamId": old})] {
            refused(repair(&app, params).await, ErrorKind::Busy);
        }
        app.ask("conversation/cancel", id).await;
    };
    let (turn, ()) = tokio::join!(running, asked);
    turn.unwrap();
    assert_eq!(transcripts(&home), names);
    assert_eq!(app.get(id).await.head, Some(old));
}

/// A repeated call gets the result of the first, also after a restart, whether it names the conversation or the
/// transcript.
#[tokio::test]
async fn a_repeated_call_repairs_once() {
    let home = Home::new();
    let (id, old, first) = {
        let (_daemon, app, id) = home.begun(&["one", "two"]).await;
        let (old, _) = head(&home, &app, id).await;
        tear(&home, old.as_str(), "echo: one");
        let params = json!({"upstreamId": old, "requestId": "r1"});
        let (first, second) = tokio::join!(repair(&app, params.clone()), repair(&app, params));
        let first = first.unwrap();
        assert_eq!(second.unwrap(), first);
        (id, old, first)
    };
    assert!(first.repaired.is_some());
    let (_daemon, app) = home.opened().await;
    let params = json!({"upstreamId": old, "requestId": "r1"});
    assert_eq!(repair(&app, params).await.unwrap(), first);
    assert_eq!(app.chain(id).await.len(), 2);
    let other = json!({"upstreamId": old, "requestId": "r1", "agent": "loopback"});
    refused(repair(&app, other).await, ErrorKind::Conflict);
    assert_eq!(transcripts(&home).len(), 2);
}

/// The result of a repair is known after the conversation was deleted, whether the call named the conversation or the
/// transcript.
#[tokio::test]
async fn a_repair_is_repeated_after_a_deletion() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let (old, _) = head(&home, &app, id).await;
    app.close(id).await;
    tear(&home, old.as_str(), "echo: one");
    let by_conversation = json!({"conversationId": id, "requestId": "r1"});
    let first = repair(&app, by_conversation.clone()).await.unwrap();
    let new = first.repaired.clone().unwrap();
    let by_transcript = json!({"upstreamId": new, "requestId": "r2"});
    let second = repair(&app, by_transcript.clone()).await.unwrap();
    app.ask("conversation/delete", id).await;
    let before = transcripts(&home);
    assert_eq!(repair(&app, by_conversation).await.unwrap(), first);
    assert_eq!(repair(&app, by_transcript).await.unwrap(), second);
    assert_eq!(transcripts(&home), before);
    let other = json!({"upstreamId": old, "requestId": "r1"});
    refused(repair(&app, other).await, ErrorKind::Conflict);
}

/// The repaired copy of a session that belongs to no conversation is written beside it, and can be adopted.
#[tokio::test]
async fn a_session_that_is_nobodys_gets_a_copy_beside_it() {
    let home = Home::new();
    let (daemon, folder) = (home.start(), home.data().join("loopback/projects/-elsewhere"));
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &["one", "two", "three"]).await;
    let (held, path) = head(&home, &app, id).await;
    app.close(id).await;
    let old = UpstreamId::new("0f1a1f5e-0000-4000-8000-000000000000");
    fs::create_dir_all(&folder).unwrap();
    let source = folder.join(format!("{old}.jsonl"));
    let text = fs::read_to_string(&path)
        .unwrap()
        .replace(held.as_str(), old.as_str());
    fs::write(&source, text + "{\"type\":\"us").unwrap();
    tear(&home, old.as_str(), "echo: two");
    let before = fs::read(&source).unwrap();
    let params = json!({"upstreamId": old, "requestId": "r1"});
    let answer = repair(&app, params.clone()).await.unwrap();
    let new = answer.repaired.clone().unwrap();
    assert_eq!(repair(&app, params).await.unwrap(), answer);
    assert!(folder.join(format!("{new}.jsonl")).is_file());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    assert_eq!(fs::read(&source).unwrap(), before);
    let listed = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 1);
    let params = json!({"upstreamId": new, "cwd": home.project()});
    let adopted = app.made_by("conversation/adopt", params).await;
    assert_eq!(app.remembered(adopted).await, ["one", "two", "three"]);
}

/// The repaired copy of a Codex rollout leaves out lines that are not records.
#[tokio::test]
async fn a_rollout_is_repaired_under_a_new_id() {
    let home = codex::home();
    let path = codex::rollout(&home, codex::ROOT_ID);
    let mut lines: Vec<&str> = codex::ROOT.lines().collect();
    lines.insert(3, "@@@");
    codex::write(&path, lines.join("\n") + "\n{\"timestamp\":\"20");
    let fork = codex::rollout(&home, codex::HEAD_FORK_ID);
    codex::write(&fork, codex::HEAD_FORK);
    let before = fs::read(&path).unwrap();
    let (_daemon, app) = home.opened().await;
    let params = json!({"upstreamId": codex::ROOT_ID, "cwd": home.project()});
    let id = app.made_by("conversation/adopt", params).await;
    let named = json!({"conversationId": id});
    let history = app.call("conversation/history", named.clone()).await.unwrap();
    let answer = repair(&app, named.clone()).await.unwrap();
    assert_eq!(kinds(&answer), [FindingKind::GarbageLine, FindingKind::TornLine]);
    assert_eq!(answer.repairs.unwrap().left_out, 2);
    assert_eq!(answer.fidelity, Some(Fidelity::Partial));
    let new = answer.repaired.unwrap();
    assert_eq!(new.as_str().as_bytes()[14], b'7', "a UUIDv7");
    let copy = fs::read_to_string(codex::rollout(&home, new.as_str())).unwrap();
    assert_eq!(
        copy.replace(new.as_str(), codex::ROOT_ID).trim_end(),
        codex::ROOT.trim_end()
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    let link = app.chain(id).await.pop().unwrap();
    assert_eq!((&link.upstream_id, link.reason), (&new, LinkReason::Rebuilt));
    assert!(link.carried_turns > 0 && link.from_checkpoint_id.is_some());
    let told = app.call("conversation/history", named).await.unwrap();
    let texts = |page: &Value| -> Vec<Value> {
        let messages = page["messages"].as_array().unwrap().iter();
        messages.map(|message| message["content"].clone()).collect()
    };
    assert_eq!(texts(&told), texts(&history));

    // A repaired fork still continues the rollout of its source, and cannot be repaired if that is missing.
    codex::write(&path, codex::ROOT);
    let torn = codex::HEAD_FORK.to_owned() + "@@@\n";
    codex::write(&fork, &torn);
    let fork_id = json!({"upstreamId": codex::HEAD_FORK_ID});
    let answer = repair(&app, fork_id.clone()).await.unwrap();
    let copied = codex::rollout(&home, answer.repaired.unwrap().as_str());
    assert!(fs::read_to_string(copied).unwrap().contains(codex::ROOT_ID));
    fs::remove_file(&path).unwrap();
    let refusal = repair(&app, fork_id).await;
    refused(refusal, ErrorKind::TranscriptDamaged);
    // A rollout that does not name its session cannot be repaired.
    codex::write(
        &path,
        "@@@\n".to_owned() + codex::ROOT.split_once('\n').unwrap().1,
    );
    let names = fs::read_dir(path.parent().unwrap()).unwrap().count();
    let refusal = repair(&app, json!({"upstreamId": codex::ROOT_ID})).await;
    refused(refusal, ErrorKind::Conflict);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), names);
}

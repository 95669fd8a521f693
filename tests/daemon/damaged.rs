//! Damaged transcripts that the agent resumes although messages are missing in them.

use std::fs;
use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::{Fidelity, LinkReason, Via};
use serde_json::{Value, json};

use super::error_words;
use super::external_changes::limit_files;
use crate::carrying::files_below;
use crate::home::Home;
use crate::resumed::check_resumed;
use crate::support::{App, id_in, refused, tried};
use crate::watching::{append, turn};

/// Damages a transcript: the record of the first message with `text` is no longer valid JSON.
pub(crate) fn tear(home: &Home, upstream_id: &str, text: &str) {
    rewrite(home, upstream_id, |lines| {
        let torn = lines.iter().position(|line| line.contains(text)).unwrap();
        lines[torn].replace_range(1..20, "@");
    });
}

fn rewrite(home: &Home, upstream_id: &str, change: impl FnOnce(&mut Vec<String>)) {
    let path = home.transcript(upstream_id).unwrap();
    let mut lines: Vec<String> = fs::read_to_string(&path)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    change(&mut lines);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&path, text).unwrap();
}

/// Returns the uuid of the first reply in a transcript.
pub(crate) fn first_reply(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    let mut records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let reply = records.find(|record| record["type"] == "assistant");
    reply.unwrap()["uuid"].clone()
}

/// Makes a conversation of three turns, `one` to `three`, and closes its session. Returns its id and its upstream id.
async fn three_turns(home: &Home, app: &App) -> (ConversationId, String) {
    let id = app.make(&home.project()).await;
    for text in ["one", "two", "three"] {
        app.send(id, text).await;
    }
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    (id, head.as_str().to_owned())
}

#[tokio::test]
async fn a_whole_transcript_is_full() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, _) = three_turns(&home, &app).await;
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    check_resumed(&resumed, Via::Resume, Fidelity::Full, 0);
}

/// A record in the middle is unreadable. The agent silently continues without it; the daemon reports partial fidelity.
// Against D6.
#[tokio::test]
async fn a_torn_record_in_the_middle_is_partial() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, head) = three_turns(&home, &app).await;
    tear(&home, &head, "echo: one");
    let strict = json!({"conversationId": id, "prompt": "go on", "minFidelity": "full"});
    let error = refused(
        app.call("conversation/prompt", strict).await,
        ErrorKind::NotResumable,
    );
    let attempts = error.detail("attempts");
    let why = attempts.as_array().unwrap().last().unwrap()["error"].as_str();
    error_words::check_counted(
        "the last way to resume a damaged transcript",
        "attempt",
        why.unwrap(),
        &[3, 3],
    );
    let turn = app.send(id, "go on").await;
    let resumed = turn.resumed.unwrap();
    check_resumed(&resumed, Via::Resume, Fidelity::Partial, 1);
    assert_eq!(turn.upstream_id.as_str(), head);
    let told: Vec<(String, String)> = app
        .recall(id)
        .await
        .into_iter()
        .map(|turn| (turn.user, turn.assistant))
        .collect();
    let expected = [
        ("one", ""),
        ("two", "echo: two"),
        ("three", "echo: three"),
        ("go on", "echo: go on"),
    ];
    assert_eq!(
        told,
        expected.map(|(user, assistant)| (user.to_owned(), assistant.to_owned()))
    );
}

/// The user went back inside the agent and continued from there. The abandoned messages are still in the file, so
/// nothing is lost for a resume or a branch.
#[tokio::test]
async fn what_was_gone_back_behind_within_the_agent_is_no_loss() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut raw = daemon.raw().await;
    let (id, head) = three_turns(&home, &app).await;
    let path = home.transcript(&head).unwrap();
    let (prompt, answer) = turn(&first_reply(&path), "instead", "Elsewhere.");
    append(&path, &(prompt + &answer));
    let fork = |in_place: bool| json!({"conversationId": id, "inPlace": in_place, "minFidelity": "full"});
    let branch = app.call("conversation/fork", fork(false)).await.unwrap();
    assert_eq!(branch["fidelity"], "full");
    let params = json!({"conversationId": id, "prompt": "go on", "minFidelity": "full"});
    let resumed = &app.call("conversation/prompt", params).await.unwrap()["resumed"];
    assert_eq!(
        (&resumed["via"], &resumed["fidelity"], &resumed["missingTurns"]),
        (&json!("resume"), &json!("full"), &json!(0))
    );
    assert_eq!(app.remembered(id).await, ["one", "instead", "go on"]);
    // While a turn runs, a fork is made by copying.
    raw.hang(id).await;
    let branch = app.call("conversation/fork", fork(false)).await.unwrap();
    assert_eq!(branch["fidelity"], "full");
    let branch = id_in(&branch);
    let resumed = app.send(branch, "on the branch").await.resumed.unwrap();
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
    assert_eq!(
        app.remembered(branch).await,
        ["one", "instead", "go on", "[[recall]]", "on the branch"]
    );
}

/// Checkpoints of a copied history are reported as copies, even after the user went back to a point before the end of
/// the copied part.
#[tokio::test]
async fn what_was_copied_stays_a_copy_when_its_end_is_gone_back_behind() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut raw = daemon.raw().await;
    let (id, _) = three_turns(&home, &app).await;
    raw.hang(id).await;
    let branch = app.fork(id, false).await.unwrap().conversation;
    let path = home.transcript(branch.head.unwrap().as_str()).unwrap();
    let (prompt, answer) = turn(&first_reply(&path), "instead", "Elsewhere.");
    append(&path, &(prompt + &answer));
    let asked = json!({"conversationId": branch.id});
    let page = app.call("conversation/checkpoints", asked).await.unwrap();
    let told = page["checkpoints"].as_array().unwrap().iter();
    let told: Vec<_> = told
        .map(|told| (told["prompt"].as_str().unwrap(), told["origin"].is_string()))
        .collect();
    assert_eq!(told, [("instead", false), ("one", true)]);
}

/// The ladder falls back to the session that this one was branched off, which has more of the history.
#[tokio::test]
async fn a_torn_record_leads_to_the_ancestor_that_keeps_more() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    app.send(id, "two").await;
    app.fork(id, true).await.unwrap();
    let head = app.send(id, "three").await.upstream_id;
    app.close(id).await;
    tear(&home, head.as_str(), r#""one""#);
    tear(&home, head.as_str(), r#""two""#);
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    assert_eq!(tried(&resumed), [(Via::Resume, false), (Via::OlderLink, true)]);
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Partial, 1));
    assert_eq!(app.remembered(id).await, ["one", "two", "go on"]);
}

/// The agent would resume from the message that it noted last and ignore everything after the damage.
// Against D6.
#[tokio::test]
async fn rebuilt_what_stands_behind_the_damage_is_kept_in_a_copy() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let (id, head) = three_turns(&home, &app).await;
    let path = home.transcript(&head).unwrap();
    let noted = json!({"type": "last-prompt", "lastPrompt": "one", "leafUuid": first_reply(&path)});
    append(&path, &format!("{noted}\n"));
    tear(&home, &head, "echo: two");
    let before = fs::read(&path).unwrap();
    let strict = json!({"conversationId": id, "prompt": "go on", "minFidelity": "full"});
    let error = app.call("conversation/prompt", strict).await;
    refused(error, ErrorKind::NotResumable);
    let turn = app.send(id, "go on").await;
    let resumed = turn.resumed.unwrap();
    assert_eq!(tried(&resumed), [(Via::Resume, false), (Via::Rebuilt, true)]);
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Partial, 1));
    assert_eq!(app.remembered(id).await, ["one", "two", "three", "go on"]);
    assert_eq!(
        fs::read(&path).unwrap(),
        before,
        "the agent's own file must not change"
    );

    // The lineage records the failed attempt and why its result was not enough.
    let link = app.chain(id).await.pop().unwrap();
    assert_eq!((link.reason, link.carried_turns), (LinkReason::Rebuilt, 3));
    let entry = app.lineage(id).await.pop().unwrap();
    let tried: Vec<_> = entry
        .attempts
        .iter()
        .map(|tried| (tried.via, tried.upstream_id.clone()))
        .collect();
    assert_eq!(tried, [(Via::Resume, Some(head.as_str().into()))]);
    let why = entry.attempts[0].error.as_deref().unwrap();
    error_words::check_counted("the way that was not enough", "attempt", why, &[1, 3]);

    // From now on the session is complete, also after a restart.
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let resumed = app.send(id, "and on").await.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    assert_eq!(
        app.remembered(id).await,
        ["one", "two", "three", "go on", "[[recall]]", "and on"]
    );
    let history = app.ask("conversation/history", id).await;
    assert_eq!(history["gaps"], Value::Null, "{history}");
}

/// The disk was full when the repaired copy was to be recorded as the head. The chain in memory already has it, so the
/// copy must not be deleted.
#[tokio::test]
async fn a_repaired_copy_that_could_not_be_written_down_is_there_later() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let (id, head) = three_turns(&home, &app).await;
    let path = home.transcript(&head).unwrap();
    let noted = json!({"type": "last-prompt", "lastPrompt": "one", "leafUuid": first_reply(&path)});
    append(&path, &format!("{noted}\n"));
    tear(&home, &head, "echo: two");
    // The copy's intent and the copy fit on the disk, but another journal line does not.
    let journal = home.data().join("journal.jsonl");
    limit_files(&daemon, Some(fs::metadata(journal).unwrap().len()));
    let resume = json!({"conversationId": id});
    let resumed = app.call("conversation/resume", resume).await;
    assert_eq!(resumed.unwrap_err().kind, ErrorKind::StoreFailed);
    limit_files(&daemon, None);
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    assert_ne!(resumed.fidelity, Fidelity::Text, "{resumed:?}");
    assert_eq!(app.remembered(id).await, ["one", "two", "three", "go on"]);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let resumed = app.send(id, "and on").await.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    assert!(files_below(&home.data().join("copies")).is_empty());
}

/// The last turn was cut off or never reached the disk: the transcript has fewer turns and no other damage.
// Against D6.
#[tokio::test]
async fn a_lost_tail_is_partial() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, head) = three_turns(&home, &app).await;
    rewrite(&home, &head, |lines| {
        let prompt = lines.iter().position(|line| line.contains("three")).unwrap();
        lines.truncate(prompt);
    });
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    check_resumed(&resumed, Via::Resume, Fidelity::Partial, 1);
    assert_eq!(app.remembered(id).await, ["one", "two", "go on"]);
}

/// The agent continues from a record without a message and without an earlier turn. The user cannot have gone back to
/// such a record.
#[tokio::test]
async fn a_branch_without_any_turn_is_partial() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, head) = three_turns(&home, &app).await;
    rewrite(&home, &head, |lines| {
        lines.push(json!({"type": "user", "uuid": "empty"}).to_string());
    });
    let strict = json!({"conversationId": id, "prompt": "go on", "minFidelity": "full"});
    let told = app.call("conversation/prompt", strict).await.unwrap_err();
    assert_eq!(told.kind, ErrorKind::NotResumable);
    let history = app.ask("conversation/history", id).await;
    assert_eq!(history["gaps"][0]["kind"], "behind", "{history}");
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    check_resumed(&resumed, Via::Resume, Fidelity::Partial, 3);
}

/// Abandoned turns are still in the file and are no gap. Turns that are not in the file are a gap, unless they are not
/// written yet.
#[tokio::test]
async fn a_history_tells_turns_that_are_gone_and_none_that_were_left() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, head) = three_turns(&home, &app).await;
    let history = || async {
        let page = json!({"conversationId": id});
        app.call("conversation/history", page).await.unwrap()
    };
    assert_eq!(history().await.get("gaps"), None);
    // Rewrites the file as if the agent had gone back to the first turn and asked again from there.
    rewrite(&home, &head, |lines| {
        let read = |line: &String| serde_json::from_str::<Value>(line).unwrap();
        let second = lines.iter().position(|line| line.contains("\"two\"")).unwrap();
        let mut again = read(&lines[second]);
        again["uuid"] = json!("again");
        again["message"]["content"] = json!("again");
        let mut reply = read(&lines[second + 1]);
        assert_eq!(reply["type"], "assistant");
        reply["uuid"] = json!("reply");
        reply["parentUuid"] = json!("again");
        lines.extend([again.to_string(), reply.to_string()]);
    });
    let told = history().await;
    assert_eq!(told.get("gaps"), None);
    assert!(told.to_string().contains("again") && !told.to_string().contains("\"two\""));
    rewrite(&home, &head, |lines| {
        let third = lines.iter().position(|line| line.contains("three")).unwrap();
        lines.truncate(third);
    });
    let told = history().await;
    let gap = &told["gaps"][0];
    assert_eq!(
        (&gap["upstreamId"], &gap["kind"]),
        (&json!(head), &json!("behind"))
    );
    let detail = gap["detail"].as_str().unwrap();
    error_words::check_counted("conversation/history", "behind", detail, &[1, 3]);
    // The gap is reported once, in an export too.
    let whole = app.ask("conversation/export", id).await;
    assert_eq!(whole["gaps"], told["gaps"]);
}

/// Turns that a branch or a copy carried over count like turns that were sent in it.
#[tokio::test]
async fn turns_that_were_carried_over_are_missed_too() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let cut = |head: &str| {
        rewrite(&home, head, |lines| {
            let prompt = lines.iter().position(|line| line.contains("three")).unwrap();
            lines.truncate(prompt);
        });
    };
    let in_place = three_turns(&home, &app).await.0;
    app.fork(in_place, true).await.unwrap();
    app.send(in_place, "four").await;
    let beside = three_turns(&home, &app).await.0;
    let beside = app.fork(beside, false).await.unwrap().conversation.id;
    app.send(beside, "four").await;
    let unprompted = three_turns(&home, &app).await.0;
    let unprompted = app.fork(unprompted, false).await.unwrap().conversation.id;
    let copied = three_turns(&home, &app).await.0;
    app.send(copied, "[[say four]][[forget]]").await;
    app.send(copied, "five").await;
    for (id, missing) in [(in_place, 2), (beside, 2), (unprompted, 1), (copied, 3)] {
        app.close(id).await;
        cut(app.get(id).await.head.unwrap().as_str());
        let strict = json!({"conversationId": id, "minFidelity": "full"});
        refused(
            app.call("conversation/fork", strict).await,
            ErrorKind::NotResumable,
        );
        let resumed = app.send(id, "go on").await.resumed.unwrap();
        check_resumed(&resumed, Via::Resume, Fidelity::Partial, missing);
        assert_eq!(app.remembered(id).await, ["one", "two", "go on"]);
    }
}

/// The last reply is cut off within its record, or did not reach the disk at all.
#[tokio::test]
async fn a_reply_that_is_cut_off_is_a_turn_lost() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    for torn in [true, false] {
        let (id, head) = three_turns(&home, &app).await;
        let path = home.transcript(&head).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let reply = text
            .lines()
            .position(|line| line.contains("echo: three"))
            .unwrap();
        let before: usize = text.lines().take(reply).map(|line| line.len() + 1).sum();
        let kept = if torn { before + 40 } else { before };
        fs::write(&path, &text.as_bytes()[..kept]).unwrap();
        let resumed = app.send(id, "go on").await.resumed.unwrap();
        assert_eq!(
            (resumed.fidelity, resumed.missing_turns),
            (Fidelity::Partial, 1),
            "torn: {torn}"
        );
    }
}

/// A turn during which the agent died was never finished, so no acknowledged turn is missing.
#[tokio::test]
async fn a_turn_that_was_never_finished_is_no_loss() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    let turn = app.send(id, "[[say half an answer]] [[crash]]").await;
    let path = home.transcript(turn.upstream_id.as_str()).unwrap();
    let text = fs::read(&path).unwrap();
    // Cuts off the end, as if the agent had died while writing its last record.
    fs::write(&path, &text[..text.len() - 40]).unwrap();
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
}

/// Without a kept copy, the agent has nothing to resume from an empty file or from garbage. The conversation must not
/// silently start anew.
#[tokio::test]
async fn an_empty_transcript_is_not_resumed() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    for garbage in ["", "@@@\n{\n"] {
        let (id, head) = three_turns(&home, &app).await;
        fs::write(home.transcript(&head).unwrap(), garbage).unwrap();
        let error = refused(app.try_send(id, "go on").await, ErrorKind::NotResumable);
        assert!(error.detail("attempts").to_string().contains(&head), "{error:?}");
        assert_eq!(app.get(id).await.head.unwrap().as_str(), head);
    }
}

/// A branch of a damaged session has as much as the session still has.
#[tokio::test]
async fn a_branch_of_a_damaged_session_is_partial() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, head) = three_turns(&home, &app).await;
    tear(&home, &head, "echo: one");
    let fork = app.fork(id, false).await.unwrap();
    assert_eq!(fork.fidelity, Fidelity::Partial);
    assert_eq!(
        app.remembered(fork.conversation.id).await,
        ["one", "two", "three"]
    );
}

/// A fork with less fidelity than required is not made, neither by the agent nor by copying.
#[tokio::test]
async fn a_fork_that_would_keep_less_than_was_asked_for_makes_nothing() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, head) = three_turns(&home, &app).await;
    tear(&home, &head, "two");
    let folder = home.transcript(&head).unwrap().parent().unwrap().to_owned();
    let files = || fs::read_dir(&folder).unwrap().count();
    let before = files();
    let fork = |in_place: bool, least: &str| json!({"conversationId": id, "inPlace": in_place, "minFidelity": least});
    for in_place in [false, true] {
        let error = refused(
            app.call("conversation/fork", fork(in_place, "full")).await,
            ErrorKind::NotResumable,
        );
        let attempts: Vec<Value> = error.details["attempts"].read().unwrap();
        assert_eq!(attempts[0]["upstreamId"], json!(head));
        assert!(attempts[0]["error"].is_string(), "{attempts:?}");
    }
    let made = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(made["conversations"].as_array().unwrap().len(), 1);
    assert_eq!(files(), before, "a partial branch is left");
    assert_eq!(app.get(id).await.head.unwrap().as_str(), head);
    assert_eq!(app.get(id).await.state, ConversationState::Idle);
    let made = app
        .call("conversation/fork", fork(false, "partial"))
        .await
        .unwrap();
    assert_eq!(made["fidelity"], "partial");
}

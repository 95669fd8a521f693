//! Transcripts that are watched while they grow: checkpoints are announced once they are on disk, whichever program
//! wrote them, and other writers are reported.

use bridge_protocol::method::Checkpoints;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use bridge_protocol::event::Event;
use bridge_protocol::history::Checkpoint;
use bridge_protocol::link::Fidelity;
use serde_json::{Value, json};
use uuid::Uuid;

use super::cut_off_transcripts::users;
use crate::carrying::{bundle, import};
use crate::home::Home;
use crate::support::{App, Events};

/// The uuid of the last record of a transcript.
pub(crate) fn leaf(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    let records = text
        .lines()
        .rev()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut chained = records.filter(|record| record["uuid"].is_string());
    chained
        .next()
        .map_or(Value::Null, |record| record["uuid"].clone())
}

/// The records of a turn as another program writes them: a prompt after `parent`, and a reply.
pub(crate) fn turn(parent: &Value, prompt: &str, reply: &str) -> (String, String) {
    let (asked, answered) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
    let prompt = json!({
        "type": "user", "uuid": asked, "parentUuid": parent, "timestamp": "2020-11-03T12:00:00.000Z",
        "origin": {"kind": "human"}, "message": {"role": "user", "content": prompt},
    });
    let reply = json!({
        "type": "assistant", "uuid": answered, "parentUuid": asked, "timestamp": "2020-11-03T12:00:01.000Z",
        "message": {"role": "assistant", "content": [{"type": "text", "text": reply}], "stop_reason": "end_turn"},
    });
    (format!("{prompt}\n"), format!("{reply}\n"))
}

pub(crate) fn append(path: &Path, text: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Appends a turn as another program does.
pub(crate) fn append_turn(path: &Path, prompt: &str) {
    let (prompt, reply) = turn(&leaf(path), prompt, "Elsewhere.");
    append(path, &prompt);
    append(path, &reply);
}

/// Appends a late reply of the agent to the last prompt.
pub(crate) fn append_reply(path: &Path, text: &str) {
    let (prompt, reply) = turn(&leaf(path), "", text);
    let mut reply: Value = serde_json::from_str(&reply).unwrap();
    let prompt: Value = serde_json::from_str(&prompt).unwrap();
    reply["parentUuid"] = prompt["parentUuid"].clone();
    append(path, &format!("{reply}\n"));
}

pub(crate) async fn saved(events: &mut Events) -> Checkpoint {
    let take = |event: &Event| match event {
        Event::CheckpointSaved { checkpoint } => Some(checkpoint.clone()),
        _ => None,
    };
    events.find(take).await
}

/// Returns all events up to the checkpoint of this step.
pub(crate) async fn until_saved(events: &mut Events, step: u64) -> Vec<Event> {
    until_checkpoint(events, |checkpoint| checkpoint.step == step).await
}

async fn until_saved_prompt(events: &mut Events, prompt: &str) -> Vec<Event> {
    until_checkpoint(events, |checkpoint| checkpoint.prompt == prompt).await
}

async fn until_checkpoint(events: &mut Events, is_wanted: impl Fn(&Checkpoint) -> bool) -> Vec<Event> {
    let mut all = Vec::new();
    loop {
        let event = events.next().await.event;
        let is_it = matches!(&event, Event::CheckpointSaved { checkpoint } if is_wanted(checkpoint));
        all.push(event);
        if is_it {
            return all;
        }
    }
}

pub(crate) fn kinds<'a>(events: &'a [Event], wanted: &[&str]) -> Vec<&'a str> {
    let kinds = events.iter().map(Event::kind);
    kinds.filter(|kind| wanted.contains(kind)).collect()
}

pub(crate) async fn newest(app: &App, id: ConversationId) -> Checkpoint {
    let page = app.answer(Checkpoints {
        conversation_id: id.into(),
        limit: Some(1),
        ..Default::default()
    });
    page.await.checkpoints.swap_remove(0)
}

pub(crate) async fn transcript(app: &App, home: &Home, id: ConversationId) -> PathBuf {
    home.transcript(app.get(id).await.head.unwrap().as_str()).unwrap()
}

/// Makes a conversation with one saved turn, `here`, and returns it with its events.
async fn with_saved_turn(app: &App, home: &Home) -> (ConversationId, Events) {
    let id = app.make(&home.project()).await;
    let mut events = app.events(id).await;
    app.send(id, "here").await;
    until_saved(&mut events, 1).await;
    (id, events)
}

#[tokio::test]
async fn each_turn_that_was_had_here_is_saved_once_behind_its_end() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    let mut all = Vec::new();
    for step in 1..=3 {
        app.send(id, &format!("[[tool Bash {{}}]]turn {step}")).await;
        all.extend(until_saved(&mut events, step).await);
        let last = all.last().unwrap().clone();
        let checkpoint = newest(&app, id).await;
        assert_eq!(last, Event::CheckpointSaved { checkpoint });
    }
    assert_eq!(
        kinds(&all, &["turnEnded", "checkpointSaved", "foreignWriter"]),
        ["turnEnded", "checkpointSaved"].repeat(3)
    );
}

/// Queued prompts: each turn is saved, in order, even if the next one is already running.
#[tokio::test]
async fn turns_that_follow_each_other_at_once_are_all_saved_in_order() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    let send = |text: &'static str| {
        app.call(
            "conversation/prompt",
            json!({"conversationId": id, "prompt": text, "onBusy": "queue"}),
        )
    };
    let (one, two, three, all) = tokio::join!(
        send("one"),
        send("two"),
        send("three"),
        until_saved(&mut events, 3)
    );
    for turn in [one, two, three] {
        assert_eq!(turn.unwrap()["stopReason"], "end_turn");
    }
    let steps: Vec<_> = all
        .iter()
        .filter_map(|event| match event {
            Event::CheckpointSaved { checkpoint } => Some((checkpoint.step, checkpoint.prompt.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(steps, [(1, "one"), (2, "two"), (3, "three")]);
    assert_eq!(kinds(&all, &["foreignWriter"]), [] as [&str; 0]);
}

#[tokio::test]
async fn what_another_program_adds_to_a_closed_conversation_is_saved_and_is_no_foreign_writing() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["here"]).await;
    app.close(id).await;
    let path = transcript(&app, &home, id).await;
    let mut events = app.events(id).await;

    let (prompt, reply) = turn(&leaf(&path), "there", "Elsewhere.");
    append(&path, &prompt);
    let (half, rest) = reply.split_at(reply.len() / 2);
    append(&path, half);
    append(&path, rest);
    let all = until_saved(&mut events, 2).await;
    let checkpoint = newest(&app, id).await;
    assert_eq!(
        (checkpoint.prompt.as_str(), checkpoint.reply.as_str()),
        ("there", "Elsewhere.")
    );
    assert_eq!(all.last(), Some(&Event::CheckpointSaved { checkpoint }));

    // A record that is not part of a turn and a whole turn add one checkpoint.
    append(
        &path,
        "{\"type\":\"custom-title\",\"customTitle\":\"Another title\"}\n",
    );
    append_turn(&path, "again");
    let all = until_saved(&mut events, 3).await;
    assert_eq!(
        kinds(&all, &["checkpointSaved", "foreignWriter"]),
        ["checkpointSaved"]
    );
    assert_eq!(app.remembered(id).await, ["here", "there", "again"]);
}

/// Some versions of the agent write a text before they know why the model stopped, so more of the turn may follow, or
/// nothing.
#[tokio::test]
async fn a_text_without_a_reason_for_its_end_is_no_turn_before_something_stands_behind_it() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, _) = with_saved_turn(&app, &home).await;
    app.close(id).await;
    let path = transcript(&app, &home, id).await;
    let mut events = app.events(id).await;
    let (prompt, reply) = turn(&leaf(&path), "there", "Calling.");
    append(&path, &(prompt + &reply.replace("\"end_turn\"", "null")));
    // Another conversation's turn is announced by a later check than the one at this transcript.
    let other = app.make(&home.project()).await;
    let mut others = app.events(other).await;
    app.send(other, "elsewhere").await;
    saved(&mut others).await;
    let (called, answered) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
    let call = json!({
        "type": "assistant", "uuid": called, "parentUuid": leaf(&path), "timestamp": "2020-11-03T12:00:02.000Z",
        "message": {"role": "assistant", "stop_reason": "tool_use",
            "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]},
    });
    let end = json!({
        "type": "assistant", "uuid": answered, "parentUuid": called, "timestamp": "2020-11-03T12:00:03.000Z",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"},
    });
    append(&path, &format!("{call}\n{end}\n"));
    let told = saved(&mut events).await;
    assert_eq!((told.step, told.reply.as_str()), (2, "Calling.\n\nDone."));

    let (prompt, reply) = turn(&leaf(&path), "again", "Nothing more.");
    append(&path, &(prompt + &reply.replace("\"end_turn\"", "null")));
    let (prompt, reply) = turn(&leaf(&path), "last", "Elsewhere.");
    append(&path, &prompt);
    assert_eq!(saved(&mut events).await.prompt, "again");
    append(&path, &reply);
    assert_eq!(saved(&mut events).await.prompt, "last");
}

/// More turns than are announced at once, for a conversation with a task and for one without.
#[tokio::test]
async fn however_many_turns_come_at_once_each_is_told_once_and_in_order() {
    const TURNS: u64 = 600;
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut everything = app.events_of(None, None).await;
    app.send(id, "here").await;
    assert_eq!(saved(&mut everything).await.step, 1);
    let path = transcript(&app, &home, id).await;
    let burst = |first: u64| {
        let mut parent = leaf(&path);
        let mut text = String::new();
        for step in first..first + TURNS {
            let (prompt, reply) = turn(&parent, &format!("turn {step}"), "Elsewhere.");
            parent = serde_json::from_str::<Value>(&reply).unwrap()["uuid"].clone();
            text += &(prompt + &reply);
        }
        append(&path, &text);
    };
    for first in [2, 2 + TURNS] {
        burst(first);
        for step in first..first + TURNS {
            assert_eq!(saved(&mut everything).await.step, step);
        }
        // In the second round the conversation has no task.
        app.close(id).await;
    }
}

/// The turns are added to a conversation without a task, under another daemon than the one that ran its earlier turns.
#[tokio::test]
async fn a_new_life_tells_what_is_new_and_nothing_old() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["here"]).await;
    let path = transcript(&app, &home, id).await;
    drop(daemon);
    append_turn(&path, "while nobody watched");
    let (_daemon, app) = home.opened().await;
    let mut events = app.events_of(None, None).await;
    append(
        &path,
        "{\"type\":\"custom-title\",\"customTitle\":\"Another title\"}\n",
    );
    append_turn(&path, "there");
    let told = saved(&mut events).await;
    assert_eq!((told.step, told.prompt.as_str()), (3, "there"));
    assert_eq!(told, newest(&app, id).await);
}

#[tokio::test]
async fn a_transcript_in_a_folder_that_was_made_just_now_is_watched_too() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let mut events = app.events_of(None, None).await;
    let folder = home.data().join("loopback/projects/-made-just-now");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("s1.jsonl");
    let (prompt, reply) = turn(&Value::Null, "old", "Before.");
    fs::write(&path, prompt + &reply).unwrap();
    let adopted = app
        .call(
            "conversation/adopt",
            json!({"upstreamId": "s1", "cwd": home.project()}),
        )
        .await
        .unwrap();
    append_turn(&path, "new");
    let told = saved(&mut events).await;
    assert_eq!(
        (told.step, told.prompt.as_str()),
        (2, "new"),
        "turns from before the adoption are not announced"
    );
    assert_eq!(adopted["conversation"]["head"], "s1");

    // After its folder was moved it is still the same transcript.
    let moved = home.data().join("loopback/projects/-moved");
    fs::rename(&folder, &moved).unwrap();
    append_turn(&moved.join("s1.jsonl"), "newer");
    let told = saved(&mut events).await;
    assert_eq!((told.step, told.prompt.as_str()), (3, "newer"));
}

#[tokio::test]
async fn the_old_turns_of_a_copy_and_of_an_import_are_not_told_again() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    for step in 1..=3 {
        app.send(id, &format!("turn {step}")).await;
        until_saved(&mut events, step).await;
    }
    app.close(id).await;
    let bundled = bundle(&app, id).await;
    let path = transcript(&app, &home, id).await;
    let folder = home.data().join("loopback/projects/-copied");
    fs::create_dir(&folder).unwrap();
    let copied = folder.join(path.file_name().unwrap());
    fs::copy(&path, &copied).unwrap();
    fs::remove_file(&path).unwrap();
    append_turn(&copied, "there");
    assert_eq!(saved(&mut events).await.prompt, "there");

    let params = json!({"path": bundled["path"], "cwd": home.project(), "newIds": true});
    let imported = import(&app, params).await.unwrap();
    let mut events = app.events(imported.id).await;
    let path = home.transcript(imported.head.unwrap().as_str()).unwrap();
    for prompt in ["behind", "again"] {
        append_turn(&path, prompt);
        assert_eq!(saved(&mut events).await.prompt, prompt);
    }
}

/// D5: a program that writes to the transcript without the daemon is noticed.
#[tokio::test]
async fn another_writer_on_a_live_session_is_told_once_each_time() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, mut events) = with_saved_turn(&app, &home).await;
    let before = app.get(id).await;
    let path = transcript(&app, &home, id).await;
    let told = Event::ForeignWriter {
        upstream_id: before.head.clone().unwrap(),
    };

    append_turn(&path, "there");
    assert_eq!(events.until("foreignWriter").await, told);
    let all = until_saved(&mut events, 2).await;
    assert_eq!(kinds(&all, &["foreignWriter"]), [] as [&str; 0], "told once");
    assert_eq!(app.get(id).await, before, "nothing else changes");

    // A separate branch, which is not part of the conversation's history.
    let (prompt, _) = turn(&Value::Null, "beside", "");
    append(&path, &prompt);
    assert_eq!(events.until("foreignWriter").await, told);
    append_turn(&path, "and on");
    assert_eq!(events.until("foreignWriter").await, told);

    // Another file replaces the transcript.
    let text = fs::read_to_string(&path).unwrap();
    let other = path.with_extension("new");
    fs::write(&other, &text).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(events.until("foreignWriter").await, told);
    // The transcript shrinks.
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(last as u64)
        .unwrap();
    assert_eq!(events.until("foreignWriter").await, told);
}

/// The agent does not know these turns in its open session. It reads them when the next prompt opens the session again.
#[tokio::test]
async fn the_next_prompt_continues_after_turns_that_another_program_added_to_the_open_session() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, mut events) = with_saved_turn(&app, &home).await;
    append_turn(&transcript(&app, &home, id).await, "there");
    events.until("foreignWriter").await;
    let resumed = app
        .send(id, "again")
        .await
        .resumed
        .expect("the session is opened again");
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
    assert_eq!(app.remembered(id).await, ["here", "there", "again"]);
}

#[tokio::test]
async fn a_client_that_comes_later_hears_of_another_writer_with_its_prompt() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, mut events) = with_saved_turn(&app, &home).await;
    let path = transcript(&app, &home, id).await;
    append_turn(&path, "there");
    let told = events.until("foreignWriter").await;
    let mut later = app.events(id).await;
    app.send(id, "again").await;
    assert_eq!(later.until("foreignWriter").await, told);
}

/// Everything that the daemon and the agent do to a conversation themselves, with a subscription to all events.
// Against D5.
#[tokio::test]
async fn ordinary_life_is_no_foreign_writing() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut raw = daemon.raw().await;
    let mut everything = app.events_of(None, None).await;
    let mut all = Vec::new();
    let id = app.begun(&home.project(), &["one"]).await;
    // Wait for each checkpoint: a turn whose transcript is removed before it was read is not announced.
    all.extend(until_saved_prompt(&mut everything, "one").await);
    let (prompt, _) = raw.hang(id).await;
    app.ask("conversation/cancel", id).await;
    raw.answer(prompt).await;
    for text in [
        "[[tool Bash {}]]two",
        "[[fail overloaded]]three",
        "[[crash]]four",
        "[[clear]]five",
        "six",
        "seven",
    ] {
        app.send(id, text).await;
        if !text.starts_with('[') {
            all.extend(until_saved_prompt(&mut everything, text).await);
        }
    }
    app.close(id).await;
    let branch = app.fork(id, false).await.unwrap().conversation.id;
    app.send(branch, "there").await;
    all.extend(until_saved_prompt(&mut everything, "there").await);
    app.send(id, "[[forget]]eight").await;
    app.send(id, "nine").await;
    all.extend(until_saved_prompt(&mut everything, "nine").await);
    app.fork(id, true).await.unwrap();
    app.send(id, "ten").await;
    all.extend(until_saved_prompt(&mut everything, "ten").await);
    app.close(id).await;
    app.send(id, "eleven").await;
    all.extend(until_saved_prompt(&mut everything, "eleven").await);
    app.send(id, "[[lose]]twelve").await;
    app.send(id, "thirteen").await;
    app.send(id, "last").await;
    all.extend(until_saved_prompt(&mut everything, "last").await);
    assert_eq!(kinds(&all, &["foreignWriter"]), [] as [&str; 0]);
    let mut ids = std::collections::HashSet::new();
    let mut prompts: Vec<&str> = all
        .iter()
        .filter_map(|event| match event {
            Event::CheckpointSaved { checkpoint } => {
                assert!(
                    ids.insert(checkpoint.id.clone()),
                    "announced twice: {checkpoint:?}"
                );
                Some(checkpoint.prompt.as_str())
            }
            _ => None,
        })
        .collect();
    // Some turns lose their transcript before it is read, but none is announced out of order.
    let mut sent = [
        "one",
        "[[say hanging]][[hang]]",
        "[[tool Bash {}]]two",
        "[[fail overloaded]]three",
        "[[crash]]four",
        "[[clear]]five",
        "six",
        "seven",
        "there",
        "[[forget]]eight",
        "nine",
        "ten",
        "eleven",
        "[[lose]]twelve",
        "thirteen",
        "last",
    ]
    .iter();
    for prompt in &prompts {
        assert!(
            sent.any(|sent| sent == prompt),
            "{prompt:?} is out of order in {prompts:?}"
        );
    }
    prompts.retain(|prompt| !prompt.starts_with('[') && *prompt != "thirteen");
    assert_eq!(
        prompts,
        ["one", "six", "seven", "there", "nine", "ten", "eleven", "last"]
    );
}

/// D10: a list contains every change that was made before the request, without waiting or a second request.
#[tokio::test]
async fn a_list_has_what_was_written_before_it_was_asked_for() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let projects = home.data().join("loopback/projects");
    let record = |title: &str| turn(&Value::Null, title, "").0;
    type Step<'a> = (&'a dyn Fn(), &'a [&'a str]);
    let path = |name: &str| projects.join(name);
    let steps: [Step<'_>; 9] = [
        (&|| {}, &[]),
        (
            &|| {
                fs::create_dir_all(path("-a")).unwrap();
                fs::write(path("-a/s1.jsonl"), record("one")).unwrap();
            },
            &["one"],
        ),
        (
            &|| fs::write(path("-a/s1.jsonl"), record("changed")).unwrap(),
            &["changed"],
        ),
        (
            &|| fs::write(path("-a/s2.jsonl"), record("two")).unwrap(),
            &["changed", "two"],
        ),
        (
            &|| fs::rename(path("-a/s2.jsonl"), path("-a/s3.jsonl")).unwrap(),
            &["changed", "two"],
        ),
        (
            &|| {
                fs::create_dir(path("-b")).unwrap();
                fs::write(path("-b/s4.jsonl"), record("four")).unwrap();
            },
            &["changed", "four", "two"],
        ),
        (
            &|| fs::remove_file(path("-a/s1.jsonl")).unwrap(),
            &["four", "two"],
        ),
        (&|| fs::rename(path("-b"), path("-c")).unwrap(), &["four", "two"]),
        (&|| fs::remove_dir_all(&projects).unwrap(), &[]),
    ];
    for (number, (step, expected)) in steps.into_iter().enumerate() {
        step();
        let page = app.call("transcript/list", json!({})).await.unwrap();
        assert_eq!(page.get("unwatched"), None, "{page}");
        let mut titles: Vec<&str> = page["transcripts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|transcript| transcript["title"].as_str().unwrap())
            .collect();
        titles.sort_unstable();
        assert_eq!(titles, expected, "step {number}");
    }
}

/// Lists contain the number of turns of a transcript that was counted for another call, as long as the file is
/// unchanged. Nothing is counted for a list.
#[tokio::test]
async fn lists_tell_the_turns_of_what_was_read_and_never_old_ones() {
    let home = Home::keeping_nothing();
    let (daemon, app, id) = home.begun(&["one"]).await;
    app.send(id, "two").await;
    app.close(id).await;
    let path = transcript(&app, &home, id).await;
    drop(daemon);
    let (_daemon, app) = home.opened().await;
    let mut events = app.events(id).await;
    assert_eq!(listed_turns(&app).await, Value::Null, "no call has read it yet");
    newest(&app, id).await;
    assert_eq!(listed_turns(&app).await, json!(2));
    assert_eq!(listed_turns(&app).await, json!(2));
    let (prompt, reply) = turn(&leaf(&path), "there", "Elsewhere.");
    append(&path, &(prompt + &reply));
    // The watch may or may not have counted the transcript again by now.
    let turns = listed_turns(&app).await;
    assert!([Value::Null, json!(3)].contains(&turns), "{turns}");
    assert_eq!(saved(&mut events).await.step, 3);
    assert_eq!(listed_turns(&app).await, json!(3));
}

async fn listed_turns(app: &App) -> Value {
    let page = app.call("transcript/list", json!({})).await.unwrap();
    page["transcripts"][0]["turns"].clone()
}

/// A resume follows the branch that the other program noted last. Until then the history of an open session is the
/// branch of its agent.
#[tokio::test]
async fn the_history_of_an_open_session_is_that_of_its_agent() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["here"]).await;
    let path = transcript(&app, &home, id).await;
    let own = leaf(&path);
    append_turn(&path, "there");
    let noted = json!({"type": "last-prompt", "lastPrompt": "there", "leafUuid": leaf(&path)});
    let (prompt, reply) = turn(&own, "again", "Here.");
    append(&path, &format!("{noted}\n{prompt}{reply}"));
    let history = app.ask("conversation/history", id).await;
    assert_eq!(users(&history), ["here", "again"], "{history}");
    assert_eq!(history["gaps"][0]["kind"], "behind", "{history}");
    app.close(id).await;
    let history = app.ask("conversation/history", id).await;
    assert_eq!(users(&history), ["here", "there"], "{history}");
}

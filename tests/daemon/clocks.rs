//! Wrong clocks: a change that was made while the clock was ahead does not count as newer than later changes, and data
//! that is kept for some days is not deleted because the clock is ahead now.

use std::fs::{self, File};
use std::time::Duration;

use bridge_protocol::ConversationId;
use serde_json::{Value, json};

use crate::home::Home;
use crate::keeping::{keep, once_kept};
use crate::moved_trees::move_tree;
use crate::signs::Watched;
use crate::support::App;

/// The number of years by which a clock is wrong. With four, a leap day is still a valid date.
const YEARS: u64 = 4;

/// Rewrites the journal as if a daemon with a wrong clock had written it, and makes the next daemon read all of it.
fn rewrite(home: &Home, change: impl Fn(&str) -> String) {
    let journal = home.data().join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let rewritten = text.lines().map(|line| {
        let Some((head, old)) = line.split_once("\"change\":") else {
            return format!("{line}\n");
        };
        let change = change(old.strip_suffix('}').unwrap());
        let sequence = serde_json::from_str::<Value>(line).unwrap()["seq"]
            .as_u64()
            .unwrap();
        let mut sum = crc32fast::Hasher::new();
        sum.update(&sequence.to_be_bytes());
        sum.update(change.as_bytes());
        let (before, _) = head.split_once("\"sum\":").unwrap();
        format!(
            "{before}\"sum\":\"{:08x}\",\"change\":{change}}}\n",
            sum.finalize()
        )
    });
    let rewritten: String = rewritten.collect();
    fs::write(&journal, rewritten).unwrap();
    fs::remove_dir_all(home.data().join("store")).unwrap();
}

/// Rewrites the changes as if they were made `YEARS` years earlier.
fn years_ago(home: &Home) {
    const CREATED: &str = "\"createdAt\":\"";
    let journal = fs::read_to_string(home.data().join("journal.jsonl")).unwrap();
    let (_, created) = journal.split_once(CREATED).unwrap();
    let year: u64 = created[..4].parse().unwrap();
    let earlier = year - YEARS;
    rewrite(home, |change| {
        change.replace(&format!("\"{year}-"), &format!("\"{earlier}-"))
    });
}

/// Rewrites the changes of a conversation as if they were made while the clock was far ahead.
fn in_a_later_millennium(home: &Home, member: &str, id: ConversationId) {
    let (member, own) = (format!("\"{member}\":\""), format!("\"id\":\"{id}\""));
    rewrite(home, |change| {
        match change.find(&member).filter(|_| change.contains(&own)) {
            Some(at) => {
                let at = at + member.len();
                format!("{}2999{}", &change[..at], &change[at + 4..])
            }
            None => change.to_owned(),
        }
    });
}

async fn listed(app: &App) -> Vec<ConversationId> {
    let mut all = Vec::new();
    let mut params = json!({"limit": 1});
    loop {
        let page = app.call("conversation/list", params.clone()).await.unwrap();
        for conversation in page["conversations"].as_array().unwrap() {
            all.push(serde_json::from_value(conversation["id"].clone()).unwrap());
        }
        match page.get("nextCursor") {
            Some(cursor) => params["cursor"] = cursor.clone(),
            None => return all,
        }
    }
}

#[tokio::test]
async fn lists_and_the_newest_of_a_folder_are_in_the_order_of_changes() {
    let home = Home::new();
    let (daemon, app, ahead) = home.begun(&[]).await;
    let newest = app.make(&home.project()).await;
    drop((app, daemon));
    in_a_later_millennium(&home, "updatedAt", ahead);

    let (daemon, app) = home.opened().await;
    assert!(app.get(ahead).await.updated_at > app.get(newest).await.updated_at);
    assert_eq!(listed(&app).await, [newest, ahead]);
    let here = json!({"name": ".", "cwd": home.project()});
    let found = app.call("conversation/resolve", here.clone()).await.unwrap();
    assert_eq!(found["conversation"]["id"], json!(newest));
    let titled = json!({"conversationId": ahead, "title": "changed last"});
    app.call("conversation/update", titled).await.unwrap();
    assert_eq!(listed(&app).await, [ahead, newest]);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(listed(&app).await, [ahead, newest]);
    app.ask("conversation/delete", newest).await;
    let found = app.call("conversation/resolve", here).await.unwrap();
    assert_eq!(found["conversation"]["id"], json!(ahead), "there is no other");
}

/// If the first call were forgotten, its repetition would be carried out again.
#[tokio::test]
async fn a_call_is_remembered_although_the_clock_is_ahead() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let prompt = |request: &str| json!({"conversationId": id, "prompt": request, "requestId": request});
    let first = app.call("conversation/prompt", prompt("first")).await.unwrap();
    drop((app, daemon));
    years_ago(&home);
    let (_daemon, app) = home.opened().await;
    app.call("conversation/prompt", prompt("second")).await.unwrap();
    assert_eq!(
        app.call("conversation/prompt", prompt("first")).await.unwrap(),
        first
    );
    assert_eq!(app.remembered(id).await, ["first", "second"]);
}

/// The file `passed` records when all transcripts were last backed up.
#[tokio::test]
async fn backups_are_made_again_after_the_clock_was_ahead() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    app.begun(&home.project(), &["first"]).await;
    once_kept(&app, |total| (total.sessions, total.bytes) == (1, 0)).await;
    daemon.kill();
    fs::write(home.data().join("kept/passed"), "32472144000000").unwrap();
    let (_daemon, app) = home.opened().await;
    once_kept(&app, |total| total.sessions == 1 && total.bytes > 0).await;
}

#[tokio::test]
async fn backups_stay_although_the_clock_is_ahead() {
    let home = Home::with_config("[keep]\ndays = 2\n");
    let (daemon, app, id) = home.begun(&["first"]).await;
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    let file = File::options()
        .append(true)
        .open(home.transcript(head.as_str()).unwrap())
        .unwrap();
    let years = Duration::from_secs(YEARS * 365 * 24 * 60 * 60);
    let written = file.metadata().unwrap().modified().unwrap();
    file.set_modified(written - years).unwrap();
    keep(&app, json!({"conversationId": id})).await.unwrap();
    drop((app, daemon));
    years_ago(&home);
    let passed = home.data().join("kept/passed");
    if passed.exists() {
        fs::remove_file(&passed).unwrap();
    }
    let (_daemon, app) = home.opened().await;
    Watched::below(&home.data().join("kept"))
        .wait_for("pass over all backups", || passed.exists().then_some(()));
    let total = keep(&app, json!({})).await.unwrap().total.unwrap();
    assert_eq!(total.sessions, 1);
}

#[tokio::test]
async fn siblings_are_in_the_order_in_which_they_were_made() {
    let home = Home::new();
    let (daemon, app, parent) = home.begun(&["first"]).await;
    let ahead = app.fork(parent, false).await.unwrap().conversation.id;
    let later = app.fork(parent, false).await.unwrap().conversation.id;
    drop((app, daemon));
    in_a_later_millennium(&home, "createdAt", ahead);
    let (_daemon, app) = home.opened().await;
    assert!(app.get(ahead).await.created_at > app.get(later).await.created_at);
    let tree = app.ask("conversation/tree", parent).await;
    let members = tree["conversations"].as_array().unwrap().iter();
    let members: Vec<Value> = members
        .map(|member| member["conversation"]["id"].clone())
        .collect();
    assert_eq!(members, [json!(parent), json!(ahead), json!(later)]);
}

#[tokio::test]
async fn moves_of_folders_are_in_the_order_in_which_they_were_made() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let mut moves = Vec::new();
    for name in ["one", "two"] {
        let (from, to) = (
            home.folder_named(name),
            home.folder_named(&format!("{name}-moved")),
        );
        app.begun(&from, &["first"]).await;
        fs::remove_dir(&to).unwrap();
        fs::rename(&from, &to).unwrap();
        moves.push(move_tree(&app, &from, &to).await.unwrap().undo_id.unwrap());
    }
    let file = File::options()
        .append(true)
        .open(home.data().join("trees").join(&moves[0]))
        .unwrap();
    let noted = file.metadata().unwrap().modified().unwrap();
    file.set_modified(noted + Duration::from_secs(24 * 60 * 60))
        .unwrap();
    let listed = app.call("transcript/moves", json!({})).await.unwrap();
    let listed = listed["moves"].as_array().unwrap().iter();
    let listed: Vec<&str> = listed.map(|one| one["undoId"].as_str().unwrap()).collect();
    moves.reverse();
    assert_eq!(listed, moves);
}

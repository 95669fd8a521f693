//! `transcript/list`: all transcripts of the agents, whichever program they were used by.

use std::fs;
use std::path::Path;

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::{App, refused};

const ROLLOUT: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";

async fn list(app: &App, params: Value) -> Vec<Value> {
    let page = app.call("transcript/list", params).await.unwrap();
    page["transcripts"].as_array().unwrap().clone()
}

fn titles(transcripts: &[Value]) -> Vec<&str> {
    transcripts
        .iter()
        .map(|transcript| transcript["title"].as_str().unwrap())
        .collect()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Writes a transcript of Claude as another program's session leaves it, from this minute of a day long ago.
fn elsewhere(root: &Path, id: &str, minute: u32, title: &str) {
    let prompt = json!({
        "type": "user", "uuid": "u1", "parentUuid": null, "sessionId": id, "cwd": "/home/u/project",
        "timestamp": format!("2020-11-03T12:{minute:02}:00.000Z"), "origin": {"kind": "human"},
        "message": {"role": "user", "content": title},
    });
    write(
        &root.join(format!("projects/-home-u-project/{id}.jsonl")),
        &format!("{prompt}\n"),
    );
}

/// A home with agents whose transcripts are in folders below it.
fn home() -> Home {
    let home = Home::new();
    let root = home.path().display();
    home.configure(&format!(
        "default_agent = \"loopback\"\n\
         [agents.claude]\ncommand = \"/nonexistent/claude\"\ntranscripts = \"{root}/claude\"\n\
         [agents.again]\nkind = \"claude\"\ncommand = \"/nonexistent/claude\"\ntranscripts = \"{root}/claude\"\n\
         [agents.codex]\ncommand = \"/nonexistent/codex\"\ntranscripts = \"{root}/codex\"\n\
         [agents.other]\nkind = \"generic\"\ncommand = \"/nonexistent/other\"\n"
    ));
    home
}

#[tokio::test]
async fn own_and_others_transcripts_are_listed_newest_first() {
    let home = home();
    let claude = home.path().join("claude");
    elsewhere(&claude, "s1", 1, "Mend the build");
    let meta = json!({
        "timestamp": "2020-11-03T12:02:00.000Z", "type": "session_meta",
        "payload": {"id": ROLLOUT, "cwd": "/home/u/other", "forked_from_id": "s0"},
    });
    let prompt = json!({
        "timestamp": "2020-11-03T12:03:00.000Z", "type": "event_msg",
        "payload": {"type": "user_message", "message": "Say hello\nto all"},
    });
    let rollout = home.path().join(format!(
        "codex/sessions/2020/11/03/rollout-2020-11-03T12-02-00-{ROLLOUT}.jsonl"
    ));
    write(&rollout, &format!("{meta}\n{prompt}\n"));
    let (_daemon, app, id) = home.begun(&["My own\nprompt"]).await;

    let all = list(&app, json!({})).await;
    assert_eq!(titles(&all), ["My own", "Say hello", "Mend the build"]);
    let head = app.get(id).await.head.unwrap();
    let own = home.transcript(head.as_str()).unwrap();
    assert_eq!(
        (&all[0]["agent"], &all[0]["upstreamId"], &all[0]["conversationId"]),
        (&json!("loopback"), &json!(head), &json!(id))
    );
    assert_eq!(
        (&all[0]["cwd"], &all[0]["path"], &all[0]["bytes"]),
        (
            &json!(home.project()),
            &json!(own),
            &json!(fs::metadata(&own).unwrap().len())
        )
    );
    assert_eq!(
        all[1],
        json!({
            "agent": "codex", "upstreamId": ROLLOUT, "cwd": "/home/u/other", "title": "Say hello",
            "bytes": fs::metadata(&rollout).unwrap().len(), "updatedAt": "2020-11-03T12:03:00.000Z",
            "forkedFrom": "s0", "path": rollout,
        })
    );
    assert_eq!(
        (&all[2]["agent"], &all[2]["upstreamId"]),
        (&json!("claude"), &json!("s1"))
    );

    for (filter, expected) in [
        (json!({"agent": "claude"}), &["Mend the build"][..]),
        (json!({"agent": "again"}), &["Mend the build"]),
        (json!({"cwd": "/home/u/other/"}), &["Say hello"]),
        (json!({"query": "BUILD"}), &["Mend the build"]),
        (json!({"query": "rollout-2020"}), &["Say hello"]),
        (json!({"query": "nowhere"}), &[]),
    ] {
        assert_eq!(titles(&list(&app, filter.clone()).await), expected, "{filter}");
    }

    // The next list shows changes, and no longer contains deleted transcripts.
    elsewhere(&claude, "s1", 4, "Mend it again");
    fs::remove_file(&rollout).unwrap();
    app.ask("conversation/delete", id).await;
    let all = list(&app, json!({})).await;
    assert_eq!(titles(&all), ["My own", "Mend it again"]);
    assert_eq!(
        all[0].get("conversationId"),
        None,
        "a deleted conversation owns no transcript"
    );
}

// Against D10.
#[tokio::test]
async fn pages_hold_each_transcript_once() {
    let home = home();
    let claude = home.path().join("claude");
    for number in 0..7 {
        // Some have the same time: the path decides their order.
        elsewhere(&claude, &format!("s{number}"), number / 2, &format!("t{number}"));
    }
    let (_daemon, app) = home.opened().await;
    let mut seen = Vec::new();
    let mut params = json!({"limit": 3});
    loop {
        let page = app.call("transcript/list", params.clone()).await.unwrap();
        let transcripts = page["transcripts"].as_array().unwrap();
        assert!(transcripts.len() <= 3);
        seen.extend(titles(transcripts).iter().map(ToString::to_string));
        match page.get("nextCursor") {
            Some(cursor) => params["cursor"] = cursor.clone(),
            None => break,
        }
    }
    assert_eq!(seen, ["t6", "t4", "t5", "t2", "t3", "t0", "t1"]);
}

#[tokio::test]
async fn what_cannot_be_listed_is_said() {
    let home = home();
    let app_home = home.path().join("claude");
    write(&app_home.join("projects"), "a file in the place of a folder");
    elsewhere(&home.path().join("data/loopback"), "s1", 1, "Still there");
    write(
        &home.path().join("data/loopback/projects/-x/s2.jsonl"),
        "garbage\n\0\0{",
    );
    let (_daemon, app) = home.opened().await;
    let page = app.call("transcript/list", json!({})).await.unwrap();
    assert_eq!(page["unreadable"], json!([app_home.join("projects")]));
    assert_eq!(
        titles(page["transcripts"].as_array().unwrap()),
        ["", "Still there"]
    );

    for (params, kind) in [
        (json!({"agent": "zork"}), ErrorKind::NotFound),
        (json!({"agent": "other"}), ErrorKind::Unsupported),
        (json!({"cwd": "relative"}), ErrorKind::InvalidParams),
        (json!({"limit": 0}), ErrorKind::InvalidParams),
        (json!({"cursor": "x"}), ErrorKind::InvalidParams),
        (json!({"cursor": "9e99:/x"}), ErrorKind::InvalidParams),
    ] {
        refused(app.call("transcript/list", params).await, kind);
    }
}

/// An agent that was started in a folder through a link records the link's path. A list for either path finds the
/// transcript.
#[tokio::test]
async fn a_folder_is_found_by_whatever_path_leads_to_it() {
    let home = home();
    let claude = home.path().join("claude");
    let [real, link, other] = ["real", "link", "other"].map(|name| home.path().join(name));
    for folder in [&real, &other] {
        fs::create_dir(folder).unwrap();
    }
    std::os::unix::fs::symlink(&real, &link).unwrap();
    for (minute, cwd) in [real.as_path(), &link, &other, Path::new("real"), Path::new("")]
        .into_iter()
        .enumerate()
    {
        let prompt = json!({
            "type": "user", "uuid": "u1", "parentUuid": null, "cwd": cwd,
            "timestamp": format!("2020-11-03T12:{minute:02}:00.000Z"), "origin": {"kind": "human"},
            "message": {"role": "user", "content": format!("in {}", cwd.display())},
        });
        let path = claude.join(format!("projects/-p/s{minute}.jsonl"));
        write(&path, &format!("{prompt}\n"));
    }
    let (_daemon, app) = home.opened().await;
    let in_folder = async |cwd: &Path| {
        let found = list(&app, json!({"agent": "claude", "cwd": cwd})).await;
        let ids = found.iter().map(|transcript| transcript["upstreamId"].clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(in_folder(&real).await, ["s1", "s0"]);
    assert_eq!(in_folder(&link).await, ["s1", "s0"]);
    // A link that points elsewhere now is another folder. If a folder is missing, its recorded path counts.
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    assert_eq!(in_folder(&real).await, ["s0"]);
    fs::remove_dir(&real).unwrap();
    assert_eq!(in_folder(&real).await, ["s0"]);
    assert_eq!(in_folder(&other).await, ["s2", "s1"]);
}

/// A list does not rely on what an earlier daemon knew.
#[tokio::test]
async fn what_changed_while_no_daemon_ran_is_listed() {
    let home = home();
    let claude = home.path().join("claude");
    for (id, minute) in [("changed", 1), ("gone", 2), ("moved", 3), ("same", 4)] {
        elsewhere(&claude, id, minute, &format!("old {id}"));
    }
    let folder = claude.join("projects/-home-u-project");
    let of = |id: &str| folder.join(format!("{id}.jsonl"));
    let changes: [&dyn Fn(); 2] = [
        &|| {
            elsewhere(&claude, "changed", 1, "new changed");
            fs::remove_file(of("gone")).unwrap();
            elsewhere(&claude, "came", 5, "new came");
            let there = claude.join("projects/-home-u-there");
            fs::create_dir(&there).unwrap();
            fs::rename(of("moved"), there.join("moved.jsonl")).unwrap();
        },
        &|| fs::remove_dir_all(&folder).unwrap(),
    ];
    let lists: [&[&str]; 3] = [
        &["old same", "old moved", "old gone", "old changed"],
        &["new came", "old same", "old moved", "new changed"],
        &["old moved"],
    ];
    for (life, expected) in lists.into_iter().enumerate() {
        let (daemon, app) = home.opened().await;
        assert_eq!(
            titles(&list(&app, json!({"agent": "claude"})).await),
            expected,
            "life {life}"
        );
        drop(app);
        // The daemon is stopped once and killed once.
        match life {
            1 => daemon.kill(),
            _ => drop(daemon),
        }
        if let Some(change) = changes.get(life) {
            change();
        }
    }
}

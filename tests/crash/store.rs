//! The files of the store as a crash, a damaged disk or a user leaves them. The daemon must start with what
//! is readable, report what it has set aside, and know everything that it acknowledged.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::client::Client;
use super::home::{Daemon, Home};
use crate::carrying::copy_folder;
use crate::signs::Watched;

/// Everything about a conversation that can be read without changing it.
#[derive(Debug, PartialEq)]
struct Known {
    view: Value,
    chain: Value,
    lineage: Value,
}

fn known(client: &mut Client, name: &str) -> Known {
    let params = json!({"conversationId": name});
    let mut view = client.call("conversation/get", &params);
    // These members describe only an open session and are not stored.
    let conversation = view["conversation"].as_object_mut().unwrap();
    for transient in ["live", "settings"] {
        conversation.remove(transient);
    }
    Known {
        view,
        chain: client.call("conversation/chain", &params),
        lineage: client.call("conversation/lineage", &params),
    }
}

/// The contents of the store before its files were changed.
struct Before {
    conversations: Vec<(String, Known)>,
    /// Upstream ids and their conversations.
    upstream: Vec<(String, String)>,
}

/// Uses a daemon for a while and kills it, so that its files are in the state after a crash.
fn lived_in() -> (Home, Before) {
    let home = Home::new("");
    let mut daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    let mut ids = Vec::new();
    for number in 0..6 {
        let params = json!({"agent": "loopback", "cwd": home.project(), "title": format!("number {number}")});
        let id = client.new_conversation(&params);
        client.prompt(&id, "hello");
        if number % 2 == 0 {
            client.prompt(&id, "[[forget]]");
            client.prompt(&id, "are you there");
            client.call(
                "conversation/fork",
                &json!({"conversationId": id, "inPlace": true}),
            );
        }
        ids.push(id);
    }
    let conversations: Vec<(String, Known)> = ids
        .into_iter()
        .map(|id| {
            let known = known(&mut client, &id);
            (id, known)
        })
        .collect();
    let mut upstream = Vec::new();
    for (id, known) in &conversations {
        for entry in known.lineage["entries"].as_array().unwrap() {
            upstream.push((entry["upstreamId"].as_str().unwrap().to_owned(), id.clone()));
        }
    }
    assert!(upstream.len() > conversations.len());
    daemon.kill();
    (
        home,
        Before {
            conversations,
            upstream,
        },
    )
}

/// Starts a daemon and checks that it knows everything. Returns its report about the store.
fn start_and_compare(home: &Home, before: &Before) -> (Daemon, Value) {
    let daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    for (id, was) in &before.conversations {
        assert_eq!(known(&mut client, id), *was);
    }
    for (upstream, id) in &before.upstream {
        let found = client.call("conversation/get", &json!({"conversationId": upstream}));
        assert_eq!(found["conversation"]["id"], id.as_str());
    }
    let status = client.call("daemon/status", &json!({}));
    assert_eq!(status["conversations"], before.conversations.len());
    (daemon, status["store"].clone())
}

/// Checks that the daemon works and stops cleanly, and that the next start finds nothing to repair.
fn goes_on(home: &Home, daemon: Daemon, before: &Before) {
    let mut client = Client::connect(&home.socket()).unwrap();
    let (id, _) = &before.conversations[0];
    let turn = client.prompt(id, "go on");
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    assert_eq!(turn["resumed"]["fidelity"], "full", "{turn}");
    let was = known(&mut client, id);
    drop(client);
    daemon.stop();
    let daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    assert_eq!(known(&mut client, id), was);
    let status = client.call("daemon/status", &json!({}));
    assert!(status["store"]["setAside"].is_null(), "{status}");
    drop(client);
    daemon.stop();
    home.assert_at_rest();
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

fn overwrite_with_garbage(file: &Path) {
    let length = usize::try_from(fs::metadata(file).unwrap().len()).unwrap();
    let garbage: Vec<u8> = (0..length.max(64)).map(|place| (place * 31 + 7) as u8).collect();
    fs::write(file, garbage).unwrap();
}

#[test]
fn a_database_of_garbage_is_set_aside_and_rebuilt() {
    let (home, before) = lived_in();
    let files = files_below(&home.data().join("store"));
    assert!(!files.is_empty());
    for file in files {
        overwrite_with_garbage(&file);
    }
    let (daemon, store) = start_and_compare(&home, &before);
    let aside = store["setAside"]
        .as_str()
        .unwrap_or_else(|| panic!("not reported: {store}"));
    assert!(Path::new(aside).is_dir(), "{aside} does not exist");
    assert!(Path::new(aside).starts_with(home.data()), "{aside}");
    goes_on(&home, daemon, &before);
}

#[test]
fn each_file_of_the_database_may_be_garbage() {
    let (home, before) = lived_in();
    let store = home.data().join("store");
    // A rebuild renames some files, so the files are listed again each time.
    for number in 0..files_below(&store).len() {
        let mut files = files_below(&store);
        files.sort();
        let Some(file) = files.get(number) else { break };
        overwrite_with_garbage(file);
        let (mut daemon, _) = start_and_compare(&home, &before);
        daemon.kill();
    }
    let (daemon, _) = start_and_compare(&home, &before);
    goes_on(&home, daemon, &before);
}

#[test]
fn a_database_that_is_gone_is_made_from_the_journal() {
    let (home, before) = lived_in();
    fs::remove_dir_all(home.data().join("store")).unwrap();
    let (daemon, _) = start_and_compare(&home, &before);
    goes_on(&home, daemon, &before);
}

#[test]
fn a_journal_that_is_gone_is_made_from_the_database() {
    let (home, before) = lived_in();
    // Only a stop guarantees that the database contains everything.
    home.start().stop();
    fs::remove_file(home.data().join("journal.jsonl")).unwrap();
    let (daemon, _) = start_and_compare(&home, &before);
    goes_on(&home, daemon, &before);
}

#[test]
fn a_torn_end_of_the_journal_was_never_acknowledged() {
    let (home, before) = lived_in();
    let journal = home.data().join("journal.jsonl");
    let text = fs::read(&journal).unwrap();
    let last = text[..text.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap()
        + 1;
    for length in [1, 40, text.len() - last - 1] {
        let mut file = OpenOptions::new().append(true).open(&journal).unwrap();
        file.write_all(&text[last..last + length]).unwrap();
        let (mut daemon, store) = start_and_compare(&home, &before);
        assert!(store["setAside"].is_null(), "{store}");
        daemon.kill();
    }
    let mut file = OpenOptions::new().append(true).open(&journal).unwrap();
    file.write_all(b"\0\0\0\0\0\0\0\0").unwrap();
    let (daemon, _) = start_and_compare(&home, &before);
    goes_on(&home, daemon, &before);
}

#[test]
fn a_torn_end_and_a_database_of_garbage_together_lose_nothing() {
    let (home, before) = lived_in();
    let mut file = OpenOptions::new()
        .append(true)
        .open(home.data().join("journal.jsonl"))
        .unwrap();
    file.write_all(b"{\"torn").unwrap();
    for file in files_below(&home.data().join("store")) {
        overwrite_with_garbage(&file);
    }
    let (daemon, store) = start_and_compare(&home, &before);
    assert!(store["setAside"].is_string(), "{store}");
    goes_on(&home, daemon, &before);
}

/// A start that is killed while it replaces the journal by a shorter one must not leave a database that
/// counts as damaged, because such a database would keep the text of conversations deleted later. A leftover
/// database whose contents are all in the journal is deleted with the next deletion.
#[test]
fn a_start_that_is_killed_while_it_shortens_the_journal_leaves_no_damaged_database() {
    const CHANGES_OF_A_START: usize = 40;
    let home = Home::new("");
    let mut daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    let settings = json!({"systemPrompt": "x".repeat(6_500)});
    let id =
        client.new_conversation(&json!({"agent": "loopback", "cwd": home.project(), "settings": settings}));
    let titled = |title: usize| json!({"conversationId": id, "title": title.to_string()});
    for title in 0..200 {
        client.call("conversation/update", &titled(title));
    }
    daemon.kill();
    let journal = home.data().join("journal.jsonl");
    let length = || fs::metadata(&journal).unwrap().len();
    let (saved, before) = (tempfile::tempdir().unwrap(), length());
    let saved = saved.path().join("data");
    copy_folder(&home.data(), &saved);
    for changes in 0..CHANGES_OF_A_START {
        fs::remove_dir_all(home.data()).unwrap();
        copy_folder(&saved, &home.data());
        let watched = Watched::below(home.path());
        home.spawn().kill_after(&watched, changes);
        let mut daemon = home.start();
        let mut client = Client::connect(&home.socket()).unwrap();
        let view = client.call("conversation/get", &json!({"conversationId": id}));
        assert_eq!(view["conversation"]["title"], "199", "{changes}");
        let names = fs::read_dir(home.data())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let damaged: Vec<_> = names
            .filter(|name| name.to_string_lossy().starts_with("store.damaged"))
            .collect();
        assert!(damaged.is_empty(), "{changes}: {damaged:?}");
        assert!(length() < before / 2, "{changes}");
        daemon.kill();
    }
}

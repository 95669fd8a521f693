//! Checks the places of transcripts after a start: each transcript must exist once, complete, in the folder
//! of its conversation, without leftovers of unfinished work.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::client::Client;
use super::files::GARBAGE;
use super::home::Home;
use super::ledger::text;
use super::worker::Worker;
use crate::signs::Watched;

/// Panics if a move, a fork or an edit has left a transcript twice, in a wrong folder, or incomplete.
pub(crate) fn verify_places(home: &Home, workers: &[Worker], told: &str) {
    verify_moves(&home.data(), told);
    let mut client = Client::connect(&home.socket()).unwrap();
    if is_at_rest(&mut client) {
        verify_copies(home, &mut client, told);
    }
    let transcripts = transcripts(&home.data().join("loopback/projects"), told);
    for ledger in workers
        .iter()
        .flat_map(|worker| worker.active.iter().chain(&worker.retired))
    {
        let params = json!({"conversationId": ledger.id});
        let Ok(view) = client.ask("conversation/get", &params).unwrap() else {
            // The conversation was deleted, perhaps without an answer.
            continue;
        };
        let view = &view["conversation"];
        let chain = client.call("conversation/chain", &params);
        let links = chain["links"].as_array().unwrap();
        for (number, link) in links.iter().enumerate() {
            let (id, folder) = (text(link, "upstreamId"), text(link, "cwd"));
            let is_head = number + 1 == links.len();
            assert!(!is_head || folder == view["cwd"], "{told}: {link}\n{view}");
            let Some(path) = transcripts.get(&id) else {
                continue;
            };
            assert_eq!(
                path.parent().unwrap().file_name().unwrap().to_str().unwrap(),
                name_of(&folder),
                "{told}: {} is not where {link} says",
                path.display()
            );
            if let Err(why) = is_whole(path, &folder) {
                let words = home.words_about(&ledger.id);
                panic!("{told}: {}: {why}\n{links:#?}\n{words}", path.display());
            }
        }
    }
}

/// Whether no conversation is running or scheduled to continue; a continuation may copy its session.
fn is_at_rest(client: &mut Client) -> bool {
    let page = client.call("conversation/list", &json!({"limit": 500}));
    let mut all = page["conversations"].as_array().unwrap().iter();
    all.all(|one| one["state"] == "idle" && one["continuation"].is_null())
}

/// Checks that no intent of a copy without an owner is left.
fn verify_copies(home: &Home, client: &mut Client, told: &str) {
    for note in fs::read_dir(home.data().join("copies"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = note.file_name().into_string().unwrap();
        // The folder may also contain the list of a fork's files and an intent that is being written.
        let id = name.trim_end_matches(".new").trim_end_matches(".files");
        let answer = client
            .ask("conversation/get", &json!({"conversationId": id}))
            .unwrap();
        let is_somebodys = answer.map_or_else(|error| error["data"]["deletedAt"].is_string(), |_| true);
        assert!(is_somebodys, "{told}: no conversation owns the copy {id}");
    }
}

/// The name that Claude, and agents with the same layout, give to the transcript folder of a working
/// directory.
fn name_of(folder: &str) -> String {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric();
    folder
        .chars()
        .map(|sign| if is_plain(sign) { sign } else { '-' })
        .collect()
}

/// All transcripts, by session id.
fn transcripts(projects: &Path, told: &str) -> BTreeMap<String, PathBuf> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    let folders = fs::read_dir(projects).into_iter().flatten().flatten();
    for path in folders.flat_map(|folder| fs::read_dir(folder.path()).unwrap().flatten()) {
        let path = path.path();
        let name = path.file_name().unwrap().to_str().unwrap();
        // An agent that is killed during its own fork leaves a file, which it cleans up itself. An
        // interrupted restore leaves a file that the next restore of the same session replaces.
        let is_left = [".fork.tmp", ".restored.tmp"]
            .iter()
            .any(|end| name.ends_with(end));
        assert!(
            is_left || !name.starts_with('.'),
            "{told}: {} was left behind",
            path.display()
        );
        let Some(id) = name.strip_suffix(".jsonl") else {
            continue;
        };
        if let Some(other) = found.insert(id.to_owned(), path.clone()) {
            panic!("{told}: {} and {}", path.display(), other.display());
        }
    }
    found
}

/// Checks that every record can be read, and that each record that is not a copy names this folder.
fn is_whole(path: &Path, folder: &str) -> Result<(), String> {
    let text = fs::read_to_string(path).unwrap();
    for line in text.lines().filter(|line| *line != GARBAGE) {
        let record: Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
        let cwd = record["cwd"].as_str().filter(|_| record["forkedFrom"].is_null());
        if cwd.is_some_and(|cwd| cwd != folder) {
            return Err(format!("not {folder:?}: {record}"));
        }
    }
    Ok(())
}

/// Waits until no move is unfinished and no finished move has left anything. The originals are deleted after
/// the answer.
fn verify_moves(data: &Path, told: &str) {
    let moves = data.join("moves");
    let is_empty = || fs::read_dir(&moves).map_or(true, |mut left| left.next().is_none());
    let what = format!("end of all moves ({told})");
    Watched::below(data).wait_for(&what, || is_empty().then_some(()));
}

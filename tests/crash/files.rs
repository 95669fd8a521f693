//! Client actions on the files of conversations: moves a folder with all its conversations; keeps, deletes
//! and restores a transcript; damages and repairs one.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::client::{Client, Gone};
use super::ledger::text;
use super::worker::Worker;

/// An incomplete line that no agent wrote.
pub(crate) const GARBAGE: &str = "{\"torn\":";

/// A folder move that was requested.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    params: Value,
    /// The ids of the conversations in the folder.
    inside: Vec<String>,
}

impl Worker {
    /// Moves all conversations of one folder to another folder.
    pub(crate) fn move_tree(&mut self, client: &mut Client) -> Result<(), Gone> {
        // The first folder contains the others.
        let from = self.random.pick(&self.folders[1..]);
        let others: Vec<String> = self.folders[1..]
            .iter()
            .filter(|folder| **folder != from)
            .cloned()
            .collect();
        let to = self.random.pick(&others);
        let mut params = json!({"from": from, "to": to});
        if let Some(key) = self.key() {
            params["requestId"] = json!(key);
        }
        let is_inside = [from].into();
        let mut inside = Vec::new();
        for ledger in &mut self.active {
            if ledger.folders == is_inside {
                ledger.folders.insert(to.clone());
                inside.push(ledger.id.clone());
            }
        }
        let asked = Tree { params, inside };
        self.tree = Some(asked.clone());
        let answer = self.ask(client, "transcript/move", &asked.params)?;
        self.tree = None;
        self.tree_was_answered(&asked, answer.as_ref());
        Ok(())
    }

    fn tree_was_answered(&mut self, asked: &Tree, answer: Result<&Value, &Value>) {
        if let Err(error) = answer {
            // A turn is running in the folder, or another folder is being moved.
            assert_eq!(error["code"], 1003, "{error}");
        }
        let folder = text(&asked.params, if answer.is_ok() { "to" } else { "from" });
        for ledger in &mut self.active {
            if asked.inside.contains(&ledger.id) {
                ledger.folders = [folder.clone()].into();
            }
        }
        self.figures.trees += u64::from(answer.is_ok_and(|moved| moved["moved"] != 0));
    }

    /// Checks that an interrupted folder move has moved all its conversations or none.
    pub(crate) fn verify_tree(&mut self, client: &mut Client) {
        let Some(asked) = self.tree.take() else { return };
        let mut folders: Vec<String> = asked
            .inside
            .iter()
            .map(|id| {
                text(
                    &client.call("conversation/get", &json!({"conversationId": id}))["conversation"],
                    "cwd",
                )
            })
            .collect();
        folders.sort();
        folders.dedup();
        assert!(folders.len() <= 1, "{asked:?} is only partly moved: {folders:?}");
        self.figures.cut_short += 1;
        if asked.params["requestId"].is_null() {
            return;
        }
        let first = client
            .ask("transcript/move", &asked.params)
            .expect("the daemon is running");
        self.tree_was_answered(&asked, first.as_ref());
        if first.is_ok() {
            let again = client
                .ask("transcript/move", &asked.params)
                .expect("the daemon is running");
            assert_eq!(again, first);
        }
    }

    /// Keeps a transcript, deletes it as the agent does after its retention period, and restores it.
    pub(crate) fn lose_and_restore(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let Some(path) = self.closed(client, index)? else {
            return Ok(());
        };
        let params = json!({"conversationId": self.active[index].id});
        if self.ask(client, "transcript/keep", &params)?.is_err() {
            return Ok(());
        }
        fs::remove_file(&path).unwrap();
        // Even if the restore is refused, the next call that uses the conversation must find the whole
        // history.
        if let Ok(restored) = self.ask(client, "transcript/restore", &params)? {
            assert!(path.exists(), "{restored} is not {}", path.display());
            self.figures.restored += 1;
        }
        Ok(())
    }

    /// Damages a transcript and repairs it.
    pub(crate) fn repair(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let head = self.note_past(client, index)?;
        let Some(path) = self.closed(client, index)? else {
            return Ok(());
        };
        let mut file = File::options().append(true).open(&path).unwrap();
        writeln!(file, "{GARBAGE}").unwrap();
        let mut params = json!({"conversationId": self.active[index].id, "repair": true});
        if let Some(key) = self.key() {
            params["requestId"] = json!(key);
        }
        self.begin(index, "transcript/check", &params, None);
        let answer = self.ask(client, "transcript/check", &params)?;
        self.end(index, &params);
        if let Ok(checked) = answer {
            assert_ne!(checked["repaired"], head.as_str(), "{checked}");
            self.active[index].saw_upstream(&checked["repaired"]);
            self.keep_answer(index, "transcript/check", params, &checked);
            self.figures.repaired += 1;
        }
        Ok(())
    }

    /// Closes the session and returns the path of the head's transcript, which no agent has open then.
    /// Returns `None` if there is no transcript or something is running.
    fn closed(&mut self, client: &mut Client, index: usize) -> Result<Option<PathBuf>, Gone> {
        let params = json!({"conversationId": self.active[index].id});
        if self.ask(client, "conversation/close", &params)?.is_err() {
            return Ok(None);
        }
        let view = self.ask(client, "conversation/get", &params)?.unwrap();
        let view = &view["conversation"];
        if view["state"] != "idle" {
            return Ok(None);
        }
        let name = format!("{}.jsonl", text(view, "head"));
        let home = self.socket.parent().and_then(std::path::Path::parent).unwrap();
        let folders = fs::read_dir(home.join("data/loopback/projects"))
            .into_iter()
            .flatten();
        Ok(folders
            .map(|folder| folder.unwrap().path().join(&name))
            .find(|path| path.exists()))
    }
}

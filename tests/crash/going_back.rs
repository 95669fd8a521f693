//! Client actions that change a history: edits, undos and moves.

use serde_json::{Value, json};

use super::client::{Client, Gone};
use super::ledger::{Changing, Past, text};
use super::worker::Worker;

/// The folders that conversations move between, relative to the first. Agents keep the transcripts of the
/// last two in the same folder, because both paths give the same folder name.
pub(crate) const FOLDERS: [&str; 4] = ["", "/other", "/else-where", "/else.where"];

/// How many of the last turns may be edited.
const BACK: usize = 4;

/// The page size of a history; larger than any history in this test.
const MESSAGES: u64 = 1_000;

impl Worker {
    /// Records the current history, before another session may become the head. Returns the head.
    pub(crate) fn note_past(&mut self, client: &mut Client, index: usize) -> Result<String, Gone> {
        let params = json!({"conversationId": self.active[index].id});
        let view = self.ask(client, "conversation/get", &params)?.unwrap();
        // Later entries of the lineage then belong to the next change.
        let params = json!({"conversationId": self.active[index].id, "limit": 1000});
        let lineage = self.ask(client, "conversation/lineage", &params)?.unwrap();
        let ledger = &mut self.active[index];
        ledger.saw_lineage(lineage["entries"].as_array().unwrap());
        ledger.saw_conversation(&view["conversation"]);
        let head = text(&view["conversation"], "head");
        let past = Past {
            history: ledger.history.clone(),
            missing: ledger.missing,
            may_be_lost: ledger.may_be_lost,
        };
        ledger.left.insert(head.clone(), past);
        Ok(head)
    }

    /// Replaces an earlier prompt.
    pub(crate) fn edit(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let head = self.note_past(client, index)?;
        let Some((at, kept)) = self.place_to_edit(client, index)? else {
            return Ok(());
        };
        let directives = self
            .random
            .pick(&["", "", "", "", "[[say so far]][[crash]]", "[[limit 1]]"]);
        let prompt = format!("{}{directives}", self.mark());
        let id = self.active[index].id.clone();
        let mut params = json!({"conversationId": id, "at": at, "prompt": prompt, "minFidelity": "full"});
        if let Some(key) = self.key() {
            params["requestId"] = json!(key);
        }
        self.active[index].sent.push(prompt);
        self.active[index].changing = Some(Changing::Edit { kept });
        self.begin(index, "conversation/edit", &params, None);
        let answer = self.ask(client, "conversation/edit", &params)?;
        self.end(index, &params);
        match answer {
            Ok(edited) => {
                self.keep_answer(index, "conversation/edit", params.clone(), &edited);
                self.edited(index, &params, &edited);
            }
            Err(error) => self.assert_may_be_lost(index, &error),
        }
        self.active[index].changing = None;
        if !head.is_empty() {
            self.figures.edits += 1;
        }
        Ok(())
    }

    /// Panics if an error reports a loss although nothing can have been lost.
    fn assert_may_be_lost(&self, index: usize, error: &Value) {
        let ledger = &self.active[index];
        let is_lost = [1011, 1016].contains(&error["code"].as_i64().unwrap());
        assert!(
            !is_lost || ledger.may_be_lost,
            "{}: nothing was lost, but the daemon reports {error}",
            ledger.id
        );
    }

    /// Records what the answer to an edit acknowledges.
    pub(crate) fn edited(&mut self, index: usize, params: &Value, edited: &Value) {
        let ledger = &mut self.active[index];
        if edited["link"].is_null() {
            return;
        }
        ledger.saw_link(&edited["link"]);
        ledger.history_was_edited();
        ledger.saw_turn(params["prompt"].as_str().unwrap(), &edited["turn"]);
    }

    /// Chooses a turn to edit. Returns the id of its prompt and the known prompts before it, or `None` if
    /// there is no turn.
    fn place_to_edit(
        &mut self,
        client: &mut Client,
        index: usize,
    ) -> Result<Option<(String, Vec<String>)>, Gone> {
        let params = json!({"conversationId": self.active[index].id, "limit": MESSAGES});
        let Ok(told) = self.ask(client, "conversation/history", &params)? else {
            return Ok(None);
        };
        let messages = told["messages"].as_array().unwrap();
        // Tool results have the role of the user too.
        let is_prompt = |message: &&Value| {
            let part = message["content"].as_array().unwrap().last();
            let is_text = part.is_some_and(|part| part["type"] == "text");
            message["role"] == "user" && message["kind"].is_null() && is_text
        };
        let prompts: Vec<&Value> = messages.iter().filter(is_prompt).collect();
        if prompts.is_empty() {
            return Ok(None);
        }
        let number = prompts.len() - 1 - self.random.below(prompts.len().min(BACK));
        // A summary of earlier sessions comes before the prompt in the same message.
        let words = |message: &&Value| {
            let parts = message["content"].as_array().unwrap();
            parts.last().map(|part| text(part, "text")).unwrap_or_default()
        };
        let before: Vec<String> = prompts[..number].iter().map(words).collect();
        // Matched in order, because the text of an automatic continuation is always the same.
        let mut place = 0;
        let history = self.active[index].history.iter();
        let kept = history.filter(|known| {
            let found = before[place..].iter().position(|words| words == *known);
            place += found.map_or(0, |found| found + 1);
            found.is_some()
        });
        let kept = kept.cloned().collect();
        Ok(Some((text(prompts[number], "id"), kept)))
    }

    /// Undoes the last change.
    pub(crate) fn undo(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let head = self.note_past(client, index)?;
        let mut params = json!({"conversationId": self.active[index].id});
        if let Some(key) = self.key() {
            params["requestId"] = json!(key);
        }
        let folder = self.active[index].folders.clone();
        let ledger = &mut self.active[index];
        ledger.changing = Some(Changing::Undo { head });
        // Until the answer, the target folder of the undo is unknown.
        ledger.folders.extend(self.folders.iter().cloned());
        self.begin(index, "conversation/undo", &params, None);
        let answer = self.ask(client, "conversation/undo", &params)?;
        self.end(index, &params);
        let ledger = &mut self.active[index];
        match answer {
            Ok(undone) => {
                ledger.history_was_undone(&undone["link"]);
                self.keep_answer(index, "conversation/undo", params, &undone);
                self.figures.undos += 1;
            }
            Err(error) => {
                ledger.folders = folder;
                // A history from before a reset may have been lost since.
                if self.active[index].resets == 0 {
                    self.assert_may_be_lost(index, &error);
                }
            }
        }
        self.active[index].changing = None;
        Ok(())
    }

    /// Moves the conversation to another folder.
    pub(crate) fn move_to(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let folder = self.random.pick(&self.folders);
        let mut params = json!({"conversationId": self.active[index].id, "cwd": folder});
        if let Some(key) = self.key() {
            params["requestId"] = json!(key);
        }
        let before = self.active[index].folders.clone();
        self.active[index].folders.insert(folder.clone());
        self.begin(index, "conversation/move", &params, None);
        let answer = self.ask(client, "conversation/move", &params)?;
        self.end(index, &params);
        match answer {
            Ok(moved) => {
                self.moved(index, &params, &moved);
                self.keep_answer(index, "conversation/move", params, &moved);
            }
            Err(error) => {
                // The conversation is busy, or cannot be resumed in the other folder.
                assert!([1003, 1012].contains(&error["code"].as_i64().unwrap()), "{error}");
                self.active[index].folders = before;
            }
        }
        Ok(())
    }

    /// Records what the answer to a move acknowledges.
    pub(crate) fn moved(&mut self, index: usize, params: &Value, moved: &Value) {
        self.active[index].folders = [text(params, "cwd")].into();
        self.figures.moves += u64::from(moved["moved"].as_u64().unwrap() > 0);
    }
}

//! Going back and going elsewhere, as a client does it: edits, undos and moves, and what each of them makes
//! of a history.

use serde_json::{Value, json};

use super::client::{Client, Gone};
use super::ledger::{Changing, Past, text};
use super::worker::Worker;

/// The folders that conversations move between, below the first. Agents keep the transcripts of the last two
/// in one folder, since both have one name there.
pub(crate) const FOLDERS: [&str; 4] = ["", "/other", "/else-where", "/else.where"];

/// How many of the last turns one is taken from to be replaced.
const BACK: usize = 4;

/// More is not asked for at once; it is more than a history here has.
const MESSAGES: u64 = 1_000;

impl Worker {
    /// Notes what the history is, before another session may become the head.
    pub(crate) fn note_past(&mut self, client: &mut Client, index: usize) -> Result<String, Gone> {
        let params = json!({"conversationId": self.active[index].id});
        let view = self.ask(client, "conversation/get", &params)?.unwrap();
        // What comes behind this in the lineage is of what is done next.
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

    /// Fails when something is told to be lost that cannot be.
    fn assert_may_be_lost(&self, index: usize, error: &Value) {
        let ledger = &self.active[index];
        let is_lost = [1011, 1016].contains(&error["code"].as_i64().unwrap());
        assert!(
            !is_lost || ledger.may_be_lost,
            "{}: nothing was lost, yet {error}",
            ledger.id
        );
    }

    /// What the answer of an edit acknowledges.
    pub(crate) fn edited(&mut self, index: usize, params: &Value, edited: &Value) {
        let ledger = &mut self.active[index];
        if edited["link"].is_null() {
            return;
        }
        ledger.saw_link(&edited["link"]);
        ledger.history_was_edited();
        ledger.saw_turn(params["prompt"].as_str().unwrap(), &edited["turn"]);
    }

    /// A turn to replace, by the id of its prompt, with the prompts that stand before it; none when there is
    /// no turn.
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
        // Tools answer as the user.
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
        // What was told in words stands before the prompt.
        let words = |message: &&Value| {
            let parts = message["content"].as_array().unwrap();
            parts.last().map(|part| text(part, "text")).unwrap_or_default()
        };
        let before: Vec<String> = prompts[..number].iter().map(words).collect();
        // In their order: what is said when a turn goes on is always the same.
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

    /// Takes back what was done last.
    pub(crate) fn undo(&mut self, client: &mut Client, index: usize) -> Result<(), Gone> {
        let head = self.note_past(client, index)?;
        let mut params = json!({"conversationId": self.active[index].id});
        if let Some(key) = self.key() {
            params["requestId"] = json!(key);
        }
        let folder = self.active[index].folders.clone();
        let ledger = &mut self.active[index];
        ledger.changing = Some(Changing::Undo { head });
        // Where it goes back to is not known before.
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
                // What was there before a reset may have been lost by then.
                if self.active[index].resets == 0 {
                    self.assert_may_be_lost(index, &error);
                }
            }
        }
        self.active[index].changing = None;
        Ok(())
    }

    /// Has a conversation go on in another folder.
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
                // Busy, or nothing that could be resumed there.
                assert!([1003, 1012].contains(&error["code"].as_i64().unwrap()), "{error}");
                self.active[index].folders = before;
            }
        }
        Ok(())
    }

    /// What the answer of a move acknowledges.
    pub(crate) fn moved(&mut self, index: usize, params: &Value, moved: &Value) {
        self.active[index].folders = [text(params, "cwd")].into();
        self.figures.moves += u64::from(moved["moved"].as_u64().unwrap() > 0);
    }
}

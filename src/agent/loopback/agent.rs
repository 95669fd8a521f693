//! The agent: its folder, its live sessions and their threads.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::TOKEN_VARIABLE;
use super::persistent_state::PersistentState;
use super::session::{LoopbackSession, Prompt, StopKind, cancelled_answer, lock};
use super::sign_in::SignIn;
use super::turn;
use super::wire::{Output, RpcError};
use crate::files::none_if_absent;
use crate::transcript::TranscriptError;
use crate::transcript::locate::locate;

/// State shared by all threads.
#[derive(Debug)]
pub(super) struct LoopbackAgent {
    pub(super) output: Output,
    /// The folder whose subfolder `projects` holds the transcripts.
    pub(super) root: PathBuf,
    pub(super) persistent_state: PersistentState,
    pub(super) sign_in: SignIn,
    sessions: Mutex<HashMap<String, Arc<LoopbackSession>>>,
    /// Each worker holds a clone of the sender, so that the receiver shows when the last one has ended.
    workers: Mutex<(Sender<()>, Receiver<()>)>,
    /// How many turns have ended.
    turns: Mutex<u64>,
    turn_ended: Condvar,
}

impl LoopbackAgent {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            output: Output::default(),
            root: root.to_owned(),
            persistent_state: PersistentState::new(root.join("state")),
            sign_in: SignIn::at_start(std::env::var_os(TOKEN_VARIABLE).map(PathBuf::from)),
            sessions: Mutex::default(),
            workers: Mutex::new(channel()),
            turns: Mutex::default(),
            turn_ended: Condvar::new(),
        }
    }

    /// Returns the live session with this id.
    pub(super) fn session(&self, id: &str) -> Option<Arc<LoopbackSession>> {
        lock(&self.sessions).get(id).cloned()
    }

    pub(super) fn insert(&self, session: LoopbackSession) -> Arc<LoopbackSession> {
        let session = Arc::new(session);
        lock(&self.sessions).insert(session.id.clone(), Arc::clone(&session));
        session
    }

    /// Closes a live session and stops its turn. Ignores an unknown id.
    pub(super) fn close(&self, id: &str) {
        let session = lock(&self.sessions).remove(id);
        if let Some(session) = session {
            self.stop(&session, StopKind::Close);
        }
    }

    /// Stops the running turn and cancels the prompts queued behind it.
    pub(super) fn stop(&self, session: &LoopbackSession, stop: StopKind) {
        for prompt in session.stop(stop) {
            self.output.respond(&prompt.request_id, Ok(cancelled_answer()));
        }
    }

    /// Returns the transcripts of a session in `cwd`. Empty for a session that is refused or was never written.
    pub(super) fn transcripts(&self, id: &str, cwd: &Path) -> Result<Vec<PathBuf>, RpcError> {
        if self.persistent_state.is_refused(id) {
            return Ok(Vec::new());
        }
        match locate(&self.root, id, Some(cwd)) {
            Ok(paths) => {
                let is_refused = |path: &PathBuf| {
                    self.persistent_state
                        .is_first_record_refused(|| super::listing::first_record(path))
                };
                // All transcripts with this id have the same beginning.
                let is_refused = paths.iter().any(is_refused);
                Ok(if is_refused { Vec::new() } else { paths })
            }
            // An invalid file name was never a session's id.
            Err(TranscriptError::InvalidId { .. }) => Ok(Vec::new()),
            Err(error) => Err(RpcError::internal(error)),
        }
    }

    /// Deletes all transcripts of a session.
    pub(super) fn remove_transcripts(&self, id: &str) -> Result<(), TranscriptError> {
        for path in locate(&self.root, id, None)? {
            none_if_absent(fs::remove_file(&path)).map_err(TranscriptError::io("remove", &path))?;
        }
        Ok(())
    }

    /// Accepts a prompt. It is answered after its turn has ended.
    pub(super) fn prompt(self: &Arc<Self>, session: &Arc<LoopbackSession>, prompt: Prompt) {
        let request_id = prompt.request_id.clone();
        match session.admit(prompt) {
            Ok(false) => {}
            Ok(true) => {
                let alive = lock(&self.workers).0.clone();
                let (agent, of_worker) = (Arc::clone(self), Arc::clone(session));
                let work = move || {
                    agent.run_prompts(&of_worker);
                    drop(alive);
                };
                if let Err(error) = std::thread::Builder::new().spawn(work) {
                    self.close(&session.id);
                    self.output.respond(&request_id, Err(RpcError::internal(error)));
                }
            }
            Err(answer) => self.output.respond(&request_id, answer),
        }
    }

    /// Runs a session's prompts until none is left.
    fn run_prompts(&self, session: &LoopbackSession) {
        while let Some(prompt) = session.next_prompt() {
            let outcome = turn::run(self, session, &prompt);
            *lock(&self.turns) += 1;
            self.turn_ended.notify_all();
            self.output.respond(&prompt.request_id, outcome);
        }
    }

    /// Waits until a turn ends in any session.
    pub(super) fn wait_for_a_turn_to_end(&self) {
        let turns = lock(&self.turns);
        let seen = *turns;
        let waited = self.turn_ended.wait_while(turns, |turns| *turns == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Passes a client's answer to the session that asked.
    pub(super) fn deliver_answer(&self, request: u64, answer: &Value) {
        let sessions: Vec<_> = lock(&self.sessions).values().cloned().collect();
        for session in sessions {
            if session.answer(request, answer) {
                return;
            }
        }
        // Ignore a late answer that no session expects.
    }

    /// Stops all turns and waits until they have recorded it, at most for `grace`.
    pub(super) fn end(&self, grace: Duration) {
        let sessions: Vec<_> = lock(&self.sessions).drain().map(|(_, session)| session).collect();
        for session in sessions {
            self.stop(&session, StopKind::Close);
        }
        let (own, workers) = std::mem::replace(&mut *lock(&self.workers), channel());
        drop(own);
        // Nothing is sent: this ends when the last worker has ended, or after the grace.
        let _ended = workers.recv_timeout(grace);
    }
}

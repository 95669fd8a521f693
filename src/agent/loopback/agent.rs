//! The agent as a whole: its folder, its live sessions, and the threads that work for them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::TOKEN_VARIABLE;
use super::marks::Marks;
use super::session::{Admission, Prompt, Session, Stop, lock};
use super::sign_in::SignIn;
use super::turn;
use super::wire::{Output, RpcError};
use crate::transcript::TranscriptError;
use crate::transcript::locate::locate;

/// What all threads share.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) output: Output,
    /// Where transcripts are, in the folder `projects` below it.
    pub(super) root: PathBuf,
    pub(super) marks: Marks,
    pub(super) sign_in: SignIn,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    workers: Mutex<usize>,
    /// How many turns have ended.
    turns: Mutex<u64>,
    turn_ended: Condvar,
    worker_ended: Condvar,
}

impl Agent {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            output: Output::default(),
            root: root.to_owned(),
            marks: Marks::new(root.join("state")),
            sign_in: SignIn::at_start(std::env::var_os(TOKEN_VARIABLE).map(PathBuf::from)),
            sessions: Mutex::default(),
            workers: Mutex::default(),
            turns: Mutex::default(),
            turn_ended: Condvar::new(),
            worker_ended: Condvar::new(),
        }
    }

    /// The live session with this id.
    pub(super) fn session(&self, id: &str) -> Option<Arc<Session>> {
        lock(&self.sessions).get(id).cloned()
    }

    pub(super) fn insert(&self, session: Session) -> Arc<Session> {
        let session = Arc::new(session);
        lock(&self.sessions).insert(session.id.clone(), Arc::clone(&session));
        session
    }

    /// Ends a live session with its turn; that there is none is fine.
    pub(super) fn close(&self, id: &str) {
        let session = lock(&self.sessions).remove(id);
        if let Some(session) = session {
            self.stop(&session, Stop::Close);
        }
    }

    /// Ends the running turn; the prompts behind it end too.
    pub(super) fn stop(&self, session: &Session, stop: Stop) {
        for prompt in session.stop(stop) {
            self.cancelled(&prompt);
        }
    }

    /// Answers a prompt that was cancelled before it began.
    fn cancelled(&self, prompt: &Prompt) {
        self.output
            .respond(&prompt.request_id, Ok(json!({ "stopReason": "cancelled" })));
    }

    /// The transcripts of a session that runs in `cwd`; none for a session that is refused or was never written.
    pub(super) fn transcripts(&self, id: &str, cwd: &Path) -> Result<Vec<PathBuf>, RpcError> {
        if self.marks.is_refused(id) {
            return Ok(Vec::new());
        }
        match locate(&self.root, id, Some(cwd)) {
            Ok(found) => {
                let is_refused = |path: &PathBuf| {
                    self.marks
                        .is_beginning_refused(|| super::listing::first_record(path))
                };
                // All that bear the id begin alike.
                let is_refused = found.iter().any(is_refused);
                Ok(if is_refused { Vec::new() } else { found })
            }
            // What cannot be a file's name was never a session's id.
            Err(TranscriptError::InvalidId { .. }) => Ok(Vec::new()),
            Err(error) => Err(RpcError::internal(error)),
        }
    }

    /// Deletes all transcripts of a session.
    pub(super) fn remove_transcripts(&self, id: &str) -> Result<(), TranscriptError> {
        for path in locate(&self.root, id, None)? {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(TranscriptError::io("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes a prompt; its answer comes when its turn has ended.
    pub(super) fn prompt(self: &Arc<Self>, session: &Arc<Session>, prompt: Prompt) {
        let request_id = prompt.request_id.clone();
        match session.admit(prompt) {
            Admission::Queued => {}
            Admission::Cancelled(prompt) => self.cancelled(&prompt),
            Admission::Refused(prompt, error) => self.output.respond(&prompt.request_id, Err(error)),
            Admission::NeedsWorker => {
                let worker = Worker::register(self, session);
                if let Err(error) = std::thread::Builder::new().spawn(move || worker.run()) {
                    self.close(&session.id);
                    self.output.respond(&request_id, Err(RpcError::internal(error)));
                }
            }
        }
    }

    /// Waits until a turn ends, in whichever session.
    pub(super) fn wait_for_a_turn_to_end(&self) {
        let turns = lock(&self.turns);
        let seen = *turns;
        let waited = self.turn_ended.wait_while(turns, |turns| *turns == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Hands a client's answer to the session that asked.
    pub(super) fn answered(&self, request: u64, answer: &Value) {
        let sessions: Vec<_> = lock(&self.sessions).values().cloned().collect();
        for session in sessions {
            if session.answer(request, answer) {
                return;
            }
        }
        // An answer to nobody is late, and no harm.
    }

    /// Ends all turns and waits until they have noted it, at most until `grace` has passed.
    pub(super) fn end(&self, grace: Duration) {
        let sessions: Vec<_> = lock(&self.sessions).drain().map(|(_, session)| session).collect();
        for session in sessions {
            self.stop(&session, Stop::Close);
        }
        let deadline = Instant::now() + grace;
        let mut workers = lock(&self.workers);
        while *workers > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return;
            };
            workers = self
                .worker_ended
                .wait_timeout(workers, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// A thread that runs a session's prompts until none is left. Counted from its registration until it is
/// dropped, however it ends.
struct Worker {
    agent: Arc<Agent>,
    session: Arc<Session>,
}

impl Worker {
    fn register(agent: &Arc<Agent>, session: &Arc<Session>) -> Self {
        *lock(&agent.workers) += 1;
        Self {
            agent: Arc::clone(agent),
            session: Arc::clone(session),
        }
    }

    fn run(self) {
        while let Some(prompt) = self.session.next_prompt() {
            let outcome = turn::run(&self.agent, &self.session, &prompt);
            *lock(&self.agent.turns) += 1;
            self.agent.turn_ended.notify_all();
            self.agent.output.respond(&prompt.request_id, outcome);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        *lock(&self.agent.workers) -= 1;
        self.agent.worker_ended.notify_all();
    }
}

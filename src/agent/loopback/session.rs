//! A live session: its settings, its queue of prompts, and what can interrupt a turn.
//!
//! Two threads share a session's state: the loop adds prompts, cancels and answers, and the session's worker takes
//! them. This module knows only the id of the current transcript. Nothing here is on disk: mode, model and system
//! prompt are lost with the process, as in the agent that this one imitates.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use super::wire::RpcError;

/// How many prompts may be queued behind the running one.
const PROMPT_LIMIT: usize = 64;

/// The modes of a session; the first one is the default.
const MODES: [(&str, &str); 2] = [("default", "Default"), ("plan", "Plan")];

/// The models of a session; the first one is the default.
const MODELS: [(&str, &str); 2] = [("loop-1", "Loop 1"), ("loop-2", "Loop 2")];

/// The id of the config option for the model.
const MODEL_OPTION: &str = "model";

/// A queued or running prompt.
#[derive(Debug)]
pub(super) struct Prompt {
    /// The id of the request to answer.
    pub(super) request_id: Value,
    /// The content blocks as received.
    pub(super) content: Vec<Value>,
}

/// The settings from the client.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    pub(super) cwd: PathBuf,
    pub(super) mode: &'static str,
    pub(super) model: &'static str,
    pub(super) system_prompt: Option<String>,
    pub(super) mcp_servers: usize,
    /// Which of Claude's own messages the client requested besides the standard ones.
    pub(super) raw_messages: Vec<RawFilter>,
}

/// One entry of `emitRawSDKMessages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawFilter {
    pub(super) kind: String,
    pub(super) subtype: Option<String>,
}

/// What the session has written and reported.
#[derive(Debug, Clone)]
pub(super) struct SessionState {
    /// The id of the transcript for prompts. Differs from the session's id after a clear.
    pub(super) file_id: String,
    /// Whether that file was ever seen or written, so that a missing file was lost.
    pub(super) is_written: bool,
    /// Whether the title was reported.
    pub(super) has_title_reported: bool,
}

/// Why a turn must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopKind {
    /// The client cancelled it. A session that ignores cancels continues.
    Cancel,
    /// The session is closed or the process ends. No session ignores this.
    Close,
}

#[derive(Debug, Default)]
struct TurnControl {
    waiting: VecDeque<Prompt>,
    has_worker: bool,
    stop: Option<StopKind>,
    ignores_cancels: bool,
    skips_next: bool,
    closed: bool,
    awaited_request: Option<u64>,
    answer: Option<Value>,
}

/// A live session.
#[derive(Debug)]
pub(super) struct LoopbackSession {
    /// The id for clients.
    pub(super) id: String,
    settings: Mutex<Settings>,
    state: Mutex<SessionState>,
    control: Mutex<TurnControl>,
    changed: Condvar,
}

impl LoopbackSession {
    pub(super) fn new(id: &str, settings: Settings, written: bool) -> Self {
        Self {
            id: id.to_owned(),
            settings: Mutex::new(settings),
            state: Mutex::new(SessionState {
                file_id: id.to_owned(),
                is_written: written,
                has_title_reported: false,
            }),
            control: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn settings(&self) -> MutexGuard<'_, Settings> {
        lock(&self.settings)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SessionState> {
        lock(&self.state)
    }

    /// Queues a prompt for the session's worker. Returns whether there is none, so that the caller must start one. The error is
    /// the answer to a prompt that was not queued.
    pub(super) fn admit(&self, prompt: Prompt) -> Result<bool, Result<Value, RpcError>> {
        let mut control = lock(&self.control);
        if control.closed {
            return Err(Err(RpcError::session_not_found(&self.id)));
        }
        if control.waiting.len() >= PROMPT_LIMIT {
            return Err(Err(RpcError::internal("too many prompts are waiting")));
        }
        if std::mem::take(&mut control.skips_next) {
            return Err(Ok(cancelled_answer()));
        }
        control.waiting.push_back(prompt);
        Ok(!std::mem::replace(&mut control.has_worker, true))
    }

    /// Returns the next prompt for the worker. `None` if there is none: the worker then counts as finished.
    pub(super) fn next_prompt(&self) -> Option<Prompt> {
        let mut control = lock(&self.control);
        let next = control.waiting.pop_front();
        control.has_worker = next.is_some();
        control.stop = control.closed.then_some(StopKind::Close);
        next
    }

    /// Stops the running turn and returns the queued prompts, which end with it.
    pub(super) fn stop(&self, stop: StopKind) -> Vec<Prompt> {
        let mut control = lock(&self.control);
        if stop == StopKind::Cancel && control.ignores_cancels {
            return Vec::new();
        }
        control.closed |= stop == StopKind::Close;
        control.stop = Some(stop);
        self.changed.notify_all();
        control.waiting.drain(..).collect()
    }

    /// Ignores cancels from now on.
    pub(super) fn ignore_cancels(&self) {
        lock(&self.control).ignores_cancels = true;
    }

    /// Cancels the next prompt before it starts.
    pub(super) fn skip_next(&self) {
        lock(&self.control).skips_next = true;
    }

    pub(super) fn is_stopped(&self) -> bool {
        lock(&self.control).stop.is_some()
    }

    /// Waits until the turn is stopped.
    pub(super) fn wait_for_stop(&self) {
        let control = lock(&self.control);
        drop(self.changed.wait_while(control, |control| control.stop.is_none()));
    }

    /// Waits until `due`. Returns true if the turn is stopped before that.
    pub(super) fn stopped_before(&self, due: Instant) -> bool {
        let (control, left) = (lock(&self.control), due.saturating_duration_since(Instant::now()));
        let is_running = |control: &mut TurnControl| control.stop.is_none();
        let waited = self.changed.wait_timeout_while(control, left, is_running);
        let (control, _) = waited.unwrap_or_else(PoisonError::into_inner);
        control.stop.is_some()
    }

    /// Records that the answer to this request is for this session.
    pub(super) fn expect_answer(&self, request: u64) {
        let mut control = lock(&self.control);
        control.awaited_request = Some(request);
        control.answer = None;
    }

    /// Waits for the answer. `None` if the turn is stopped before it arrives.
    pub(super) fn wait_for_answer(&self) -> Option<Value> {
        let is_waiting = |control: &mut TurnControl| control.answer.is_none() && control.stop.is_none();
        let waited = self.changed.wait_while(lock(&self.control), is_waiting);
        let mut control = waited.unwrap_or_else(PoisonError::into_inner);
        control.awaited_request = None;
        control.answer.take()
    }

    /// Accepts an answer if it is for this session's request.
    pub(super) fn answer(&self, request: u64, answer: &Value) -> bool {
        let mut control = lock(&self.control);
        if control.awaited_request != Some(request) {
            return false;
        }
        control.awaited_request = None;
        control.answer = Some(answer.clone());
        self.changed.notify_all();
        true
    }
}

impl Settings {
    /// Returns the settings in the parameters of `session/new`, `load`, `resume` or `fork`.
    pub(super) fn from_params(cwd: PathBuf, params: &Value) -> Self {
        let mut settings = Self {
            cwd,
            mode: MODES[0].0,
            model: MODELS[0].0,
            system_prompt: None,
            mcp_servers: 0,
            raw_messages: Vec::new(),
        };
        settings.apply(params);
        settings
    }

    /// Applies the parameters of such a call. Mode and model have their own calls.
    pub(super) fn apply(&mut self, params: &Value) {
        let prompt = &params["_meta"]["systemPrompt"];
        let filters = &params["_meta"]["claudeCode"]["emitRawSDKMessages"];
        self.system_prompt = prompt["append"].as_str().or(prompt.as_str()).map(str::to_owned);
        self.mcp_servers = params["mcpServers"].as_array().map_or(0, Vec::len);
        self.raw_messages = filters
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|filter| {
                let kind = filter["type"].as_str()?.to_owned();
                Some(RawFilter {
                    kind,
                    subtype: filter["subtype"].as_str().map(str::to_owned),
                })
            })
            .collect();
    }

    pub(super) fn wants_raw(&self, kind: &str, subtype: Option<&str>) -> bool {
        self.raw_messages.iter().any(|filter| {
            filter.kind == kind && (filter.subtype.is_none() || filter.subtype.as_deref() == subtype)
        })
    }

    pub(super) fn set_mode(&mut self, mode: &str) -> Result<(), RpcError> {
        let known = MODES.iter().find(|(id, _)| *id == mode);
        self.mode = known
            .ok_or_else(|| RpcError::invalid_params(format!("Unknown mode: {mode}")))?
            .0;
        Ok(())
    }

    pub(super) fn set_option(&mut self, option: &str, value: &str) -> Result<(), RpcError> {
        if option != MODEL_OPTION {
            return Err(RpcError::invalid_params(format!(
                "Unknown config option: {option}"
            )));
        }
        let known = MODELS.iter().find(|(id, _)| *id == value);
        self.model = known
            .ok_or_else(|| RpcError::invalid_params(format!("Unknown model: {value}")))?
            .0;
        Ok(())
    }

    pub(super) fn modes(&self) -> Value {
        let modes: Vec<Value> = MODES
            .iter()
            .map(|(id, name)| json!({ "id": id, "name": name }))
            .collect();
        json!({ "currentModeId": self.mode, "availableModes": modes })
    }

    pub(super) fn config_options(&self) -> Value {
        let models: Vec<Value> = MODELS
            .iter()
            .map(|(value, name)| json!({ "value": value, "name": name }))
            .collect();
        json!([{
            "id": MODEL_OPTION,
            "name": "Model",
            "description": "The model to use",
            "category": "model",
            "type": "select",
            "currentValue": self.model,
            "options": models,
        }])
    }

    /// Returns the reply to the directive `settings`.
    pub(super) fn report(&self) -> Value {
        json!({
            "mode": self.mode,
            "model": self.model,
            "systemPrompt": self.system_prompt,
            "cwd": self.cwd.to_string_lossy(),
            "mcpServers": self.mcp_servers,
        })
    }
}

/// Returns the answer to a prompt that was cancelled before it started.
pub(super) fn cancelled_answer() -> Value {
    json!({ "stopReason": "cancelled" })
}

/// Ignores poisoning: every change is one assignment, so a panic leaves a consistent state.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

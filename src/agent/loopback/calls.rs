//! The methods of ACP version 1 that clients can call.
//!
//! This module checks the parameters and builds the answers. It passes prompts to the session, and answers all other
//! calls at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::agent::LoopbackAgent;
use super::session::{LoopbackSession, Prompt, Settings, StopKind};
use super::wire::RpcError;
use super::{TOKEN_VARIABLE, fork, listing, replay, report};
use crate::transcript::claude::reading;
use crate::transcript::locate::own_folder;

/// The only login method. It asks for nothing.
const AUTH_METHOD: &str = "loopback-login";

/// The session that a call has opened.
type OpenOutcome = Result<Arc<LoopbackSession>, RpcError>;

/// Answers a request: at once or, for a prompt, after its turn has ended.
pub(super) fn request(agent: &Arc<LoopbackAgent>, method: &str, id: &Value, params: &Value) {
    let open: Option<fn(&LoopbackAgent, &Value) -> OpenOutcome> = match method {
        "session/new" => Some(new_session),
        "session/load" => Some(|agent, params| open_session(agent, params, true)),
        "session/resume" => Some(|agent, params| open_session(agent, params, false)),
        "session/fork" => Some(fork_session),
        _ => None,
    };
    if let Some(open) = open {
        let opened = match agent.sign_in.has_token() {
            true => open(agent, params),
            false => Err(RpcError::sign_in_needed()),
        };
        return answer_opening(agent, id, opened);
    }
    let outcome = match method {
        "initialize" => return answer_initialize(agent, id),
        "authenticate" => authenticate(params),
        "logout" => Ok(json!({})),
        "session/list" => listing::list(agent, params),
        "session/close" => session_id(params).map(|id| {
            agent.close(id);
            json!({})
        }),
        "session/delete" => delete_session(agent, params),
        "session/set_mode" => set_mode(agent, params),
        "session/set_config_option" => set_config_option(agent, params),
        "session/prompt" => match prompt(agent, id, params) {
            Ok(()) => return,
            Err(error) => Err(error),
        },
        _ => Err(RpcError::method_not_found(method)),
    };
    agent.output.respond(id, outcome);
}

/// Handles a notification. Ignores unknown ones.
pub(super) fn notification(agent: &Arc<LoopbackAgent>, method: &str, params: &Value) {
    if method == "session/cancel"
        && let Some(session) = params["sessionId"].as_str().and_then(|id| agent.session(id))
    {
        agent.stop(&session, StopKind::Cancel);
    }
}

/// Answers `initialize`. If there are accounts, then reports who is signed in: once and unrequested, as real agents
/// do.
fn answer_initialize(agent: &LoopbackAgent, id: &Value) {
    let has_accounts = agent.sign_in.has_accounts();
    agent.output.respond(id, Ok(initialize(has_accounts)));
    if has_accounts {
        let status = match agent.sign_in.has_token() {
            true => json!({ "kind": "api_key", "label": "Token", "detail": TOKEN_VARIABLE }),
            false => json!({ "kind": "none", "label": "Not logged in" }),
        };
        agent
            .output
            .notify("_auth/status_update", &json!({ "authStatus": status }));
    }
}

fn initialize(has_accounts: bool) -> Value {
    let meta = match has_accounts {
        true => json!({ "authStatus": {} }),
        false => json!({}),
    };
    json!({
        "protocolVersion": 1,
        "agentInfo": { "name": "loopback", "title": "Loopback", "version": env!("CARGO_PKG_VERSION") },
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": { "image": true, "audio": false, "embeddedContext": true },
            "mcpCapabilities": { "http": true, "sse": true },
            "sessionCapabilities": { "list": {}, "resume": {}, "fork": {}, "close": {}, "delete": {} },
            "auth": { "logout": {} },
            "_meta": meta,
        },
        "authMethods": [{
            "id": AUTH_METHOD,
            "name": "Log in",
            "description": "The loopback agent has no accounts; this always succeeds",
        }],
    })
}

fn authenticate(params: &Value) -> Result<Value, RpcError> {
    match params["methodId"].as_str() {
        Some(AUTH_METHOD) => Ok(json!({})),
        _ => Err(RpcError::invalid_params("Unknown auth method")),
    }
}

/// Answers a call that opens a session. The available commands follow the answer, because the client does not know
/// the id before it.
fn answer_opening(agent: &LoopbackAgent, id: &Value, outcome: OpenOutcome) {
    match outcome {
        Err(error) => agent.output.respond(id, Err(error)),
        Ok(session) => {
            let answer = {
                let settings = session.settings();
                json!({
                    "sessionId": session.id,
                    "modes": settings.modes(),
                    "configOptions": settings.config_options(),
                })
            };
            agent.output.respond(id, Ok(answer));
            report::commands(&agent.output, &session.id);
        }
    }
}

/// Creates a session. Nothing is written before the first prompt.
fn new_session(agent: &LoopbackAgent, params: &Value) -> OpenOutcome {
    let settings = Settings::from_params(working_directory(params)?, params);
    Ok(agent.insert(LoopbackSession::new(&Uuid::new_v4().to_string(), settings, false)))
}

/// Opens an existing session, and replays its history if the client asks for that.
fn open_session(agent: &LoopbackAgent, params: &Value, replays: bool) -> OpenOutcome {
    let id = session_id(params)?;
    let cwd = working_directory(params)?;
    let transcript = history(agent, id, &cwd)?;
    let live = agent.session(id);
    if transcript.is_none() && (live.is_none() || agent.persistent_state.is_refused(id)) {
        return Err(RpcError::session_not_found(id));
    }
    if let Some(path) = transcript.as_ref().filter(|_| replays) {
        replay::replay(&agent.output, id, path).map_err(RpcError::internal)?;
    }
    let written = transcript.is_some();
    Ok(match live {
        None => agent.insert(LoopbackSession::new(
            id,
            Settings::from_params(cwd, params),
            written,
        )),
        Some(session) => {
            {
                let mut settings = session.settings();
                settings.cwd = cwd;
                settings.apply(params);
            }
            // The id refers to the history before a clear, even if the session has written another file since.
            let mut state = session.state();
            if state.file_id != id {
                id.clone_into(&mut state.file_id);
                state.is_written = written;
            }
            drop(state);
            session
        }
    })
}

/// Returns the session's transcript. As in Claude, a transcript without records counts as missing. So do several
/// transcripts if none is in the session's folder.
fn history(agent: &LoopbackAgent, id: &str, cwd: &Path) -> Result<Option<PathBuf>, RpcError> {
    let mut paths = agent.transcripts(id, cwd)?;
    paths.retain(|path| reading::index(path).is_ok_and(|index| index.live_uuid().is_some()));
    let own = own_folder(&agent.root, cwd);
    let is_taken = |first: &PathBuf| paths.len() == 1 || first.parent() == Some(own.as_path());
    Ok(paths.first().filter(|first| is_taken(first)).cloned())
}

fn fork_session(agent: &LoopbackAgent, params: &Value) -> OpenOutcome {
    let id = session_id(params)?;
    let cwd = working_directory(params)?;
    let source = history(agent, id, &cwd)?.ok_or_else(|| RpcError::session_not_found(id))?;
    let point = params["_meta"]["jetbrains"]["air"]["fork"]["messageId"].as_str();
    let branch = Uuid::new_v4().to_string();
    fork::fork(&source, id, &branch, point)?;
    Ok(agent.insert(LoopbackSession::new(
        &branch,
        Settings::from_params(cwd, params),
        true,
    )))
}

fn delete_session(agent: &LoopbackAgent, params: &Value) -> Result<Value, RpcError> {
    let id = session_id(params)?;
    agent.close(id);
    match agent.remove_transcripts(id) {
        // An invalid file name has no file: already deleted, like an unknown id.
        Ok(()) | Err(crate::transcript::TranscriptError::InvalidId { .. }) => Ok(json!({})),
        Err(error) => Err(RpcError::internal(error)),
    }
}

fn set_mode(agent: &LoopbackAgent, params: &Value) -> Result<Value, RpcError> {
    let session = live_session(agent, params)?;
    let mode = text_param(params, "modeId")?;
    session.settings().set_mode(mode)?;
    agent.output.update(
        &session.id,
        &json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }),
    );
    Ok(json!({}))
}

fn set_config_option(agent: &LoopbackAgent, params: &Value) -> Result<Value, RpcError> {
    let session = live_session(agent, params)?;
    let options = {
        let mut settings = session.settings();
        settings.set_option(text_param(params, "configId")?, text_param(params, "value")?)?;
        settings.config_options()
    };
    agent.output.update(
        &session.id,
        &json!({ "sessionUpdate": "config_option_update", "configOptions": options }),
    );
    Ok(json!({ "configOptions": options }))
}

fn prompt(agent: &Arc<LoopbackAgent>, request_id: &Value, params: &Value) -> Result<(), RpcError> {
    let session = live_session(agent, params)?;
    let content = params["prompt"].as_array().cloned();
    let content =
        content.ok_or_else(|| RpcError::invalid_params("prompt must be an array of content blocks"))?;
    agent.prompt(
        &session,
        Prompt {
            request_id: request_id.clone(),
            content,
        },
    );
    Ok(())
}

fn live_session(agent: &LoopbackAgent, params: &Value) -> Result<Arc<LoopbackSession>, RpcError> {
    let id = session_id(params)?;
    agent.session(id).ok_or_else(|| RpcError::session_not_found(id))
}

fn session_id(params: &Value) -> Result<&str, RpcError> {
    text_param(params, "sessionId")
}

fn text_param<'a>(params: &'a Value, name: &str) -> Result<&'a str, RpcError> {
    params[name]
        .as_str()
        .ok_or_else(|| RpcError::invalid_params(format!("{name} must be a string")))
}

fn working_directory(params: &Value) -> Result<PathBuf, RpcError> {
    let cwd = Path::new(text_param(params, "cwd")?);
    if !cwd.is_absolute() {
        return Err(RpcError::invalid_params(format!(
            "cwd must be an absolute path: {}",
            cwd.display()
        )));
    }
    if !cwd.is_dir() {
        return Err(RpcError::invalid_params(format!(
            "cwd is not a folder: {}",
            cwd.display()
        )));
    }
    Ok(cwd.to_owned())
}

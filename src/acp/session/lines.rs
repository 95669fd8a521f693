//! The messages of a session as the editor receives them: with the ids that it knows, and without unsupported content.
//!
//! Sends nothing.

use std::borrow::Cow;

use bridge_protocol::raw::RawJson;
use serde_json::{Value, json};

use super::super::{commands, message};
use super::{COMMANDS, OPTIONS, Session, State};
use crate::agent::subagent;
use crate::bridge::EncodedEvent;

impl Session {
    /// The parameters of an agent's request, as the editor receives them.
    pub(in crate::acp) fn params_for_editor(&self, params: &str) -> String {
        self.for_editor(&self.lock(), params)
    }

    pub(super) fn update_line(&self, update: &str) -> String {
        format!("{}{update}}}}}", self.update_prefix)
    }

    /// An update, with the agent's other parameters.
    pub(super) fn update_line_with(&self, params: &str, update: &str) -> String {
        let update = RawJson::from_text(update.to_owned()).unwrap_or_default();
        let params = message::with_member(params, "update", update);
        message::notification("session/update", &message::with_session(&params, &self.id))
    }

    /// The update as the editor receives it, with the options that it supports. `None` if the editor does not know this kind of
    /// update. `params`: the parameters that contained the update.
    pub(super) fn shown<'a>(
        &self,
        state: &mut State,
        kind: &str,
        update: &'a str,
        params: Option<&str>,
    ) -> Option<Cow<'a, str>> {
        let client = self.peer.capabilities();
        if !client.accepts_update(kind) {
            return None;
        }
        note_subagent(state, kind, update, params);
        match kind {
            OPTIONS => {
                let reported = message::member(update, "configOptions");
                let shown = reported
                    .clone()
                    .map(|reported| client.supported_options(reported));
                let is_changed = shown != reported;
                let changed = shown
                    .filter(|_| is_changed)
                    .map(|shown| message::with_member(update, "configOptions", shown));
                Some(changed.map_or(update.into(), Cow::from))
            }
            "session_message" => {
                let members = ["senderSessionId", "recipientSessionId"].into_iter();
                let own = members
                    .filter(|name| message::text_of(update, name).as_ref() == Some(&state.agent_session_id));
                Some(own.fold(update.into(), |update, name| {
                    message::with_member(&update, name, Value::from(&*self.id).into()).into()
                }))
            }
            _ => Some(update.into()),
        }
    }

    /// The message for a replayed update of the running turn.
    pub(super) fn line_of(&self, state: &mut State, event: &EncodedEvent) -> Option<String> {
        if let Some(params) = event.subagent_params() {
            return self.subagent_update_line(state, params);
        }
        let update = without_unused_title(event, event.update()?)?;
        let kind = message::kind_of(&update);
        let shown = self.shown(state, &kind, &update, event.params());
        let shown = shown.filter(|_| kind != COMMANDS)?;
        Some(match event.params() {
            Some(params) => self.update_line_with(params, &shown),
            None => self.update_line(&shown),
        })
    }

    /// An update in a subagent's session. `None` unless the editor knows that session and this kind of update.
    pub(super) fn subagent_update_line(&self, state: &mut State, params: &str) -> Option<String> {
        let session = message::text_of(params, "sessionId")?;
        let update = message::member(params, "update").filter(|_| state.subagents.contains(&session))?;
        let params = match self.shown(state, &message::kind_of(update.get()), update.get(), None)? {
            Cow::Borrowed(_) => params.to_owned(),
            Cow::Owned(shown) => message::with_member(params, "update", RawJson::from_text(shown).ok()?),
        };
        Some(message::notification("session/update", &params))
    }

    /// The agent's parameters with the session id that the editor knows. A subagent's session keeps the agent's id.
    pub(super) fn for_editor(&self, state: &State, params: &str) -> String {
        let session = message::text_of(params, "sessionId");
        match session.is_some_and(|session| state.subagents.contains(&session)) {
            true => params.to_owned(),
            false => message::with_session(params, &self.id),
        }
    }

    /// The update that lists the agent's commands, followed by sessiond's.
    pub(super) fn announcement(&self, state: &State) -> String {
        let commands = match self.peer.wants_commands() {
            true => commands::announced_commands(state.commands.as_ref(), state.turn_abilities),
            false => state.commands.clone().unwrap_or_else(|| RawJson::from(json!([]))),
        };
        format!(
            r#"{{"sessionUpdate":"{COMMANDS}","availableCommands":{}}}"#,
            commands.get()
        )
    }

    /// An update with information about the conversation: a notice if the editor supports them, otherwise a message.
    pub(in crate::acp) fn note(&self, text: &str) -> String {
        match self.peer.capabilities().accepts_update("notice") {
            true => message::notice(text),
            false => message::text_chunk(text),
        }
    }

    /// Whether this is the session of a subagent that the editor knows.
    pub(in crate::acp) fn has_subagent(&self, session: &str) -> bool {
        self.lock().subagents.contains(session)
    }
}

/// The update of an event without a title that the conversation does not get. `None` if it reports nothing else.
pub(super) fn without_unused_title<'a>(event: &EncodedEvent, update: &'a str) -> Option<Cow<'a, str>> {
    if !event.has_unused_title {
        return Some(update.into());
    }
    message::other_params(update, &["sessionUpdate", "title"])?;
    let without = message::other_params(update, &["title"])?;
    Some(without.get().to_owned().into())
}

/// Records the session of a subagent that this update announces. `params`: the parameters of the parent session.
fn note_subagent(state: &mut State, kind: &str, update: &str, params: Option<&str>) {
    let Some(session) = subagent::announced_session(kind, update) else {
        return;
    };
    state.subagents.insert(session);
    if state.subagents.len() > subagent::MAX_SESSIONS {
        state.subagents.shift_remove_index(0);
    }
    if let Some(of_agent) = params.and_then(|params| message::text_of(params, "sessionId")) {
        state.agent_session_id = of_agent;
    }
}

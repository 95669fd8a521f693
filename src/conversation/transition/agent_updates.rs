//! Updates of the agent: which turn they belong to, and what the conversation stores of them.

use bridge_protocol::conversation::SessionInfo;
use bridge_protocol::raw::RawJson;
use serde::Deserialize;
use serde_json::Value;

use crate::agent::subagent;
use crate::conversation::effect::{Effect, Now};
use crate::conversation::naming::shortened_title;
use crate::conversation::reported_settings::{
    align_options, model_of_options, record_mode, record_options, record_session_info, shown_settings,
};
use crate::conversation::state::Model;
use crate::store::{ConversationRecord, TurnPhase as Progress};

impl<R> Model<R> {
    /// Handles one `session/update` before it is sent to subscribers. Nearly all updates change nothing and cost nothing: only
    /// the few kinds that the conversation stores are read.
    ///
    /// `kind` is ACP's `sessionUpdate`, `update` the update's own JSON, `line` the whole line.
    pub fn apply_update(&mut self, kind: &str, update: &str, line: &str, now: Now) -> Vec<Effect<R>> {
        self.now = now;
        if let Some(turn) = &mut self.turn
            && (turn.was_session_cleared || !turn.is_prompt_confirmed)
            && is_turn_activity(kind)
        {
            turn.was_session_cleared = false;
            self.prompt_confirmed();
        }
        if let Some(turn) = &mut self.turn
            && !turn.withdrawn_questions.is_empty()
            && is_turn_progress(kind, update)
        {
            turn.withdrawn_questions.clear();
        }
        match kind {
            "tool_call" | "tool_call_update" | subagent::UPDATE | subagent::SPAWNED => self.tool_started(),
            "plan" => self.session_info.plan = raw_json(update),
            "available_commands_update" => {
                self.session_info.commands = json_member(update, "availableCommands");
            }
            "usage_update" => self.session_info.usage = raw_json(update),
            "current_mode_update" => self.mode_changed(update),
            "config_option_update" => self.options_changed(update),
            "session_info_update" => self.title_changed(update),
            _ => {}
        }
        self.scan_for_failure_signs(line, "session/update");
        self.end_step()
    }

    /// Handles an update in the session of a subagent. For the turn, it only matters whether a tool runs.
    pub fn apply_subagent_update(&mut self, kind: &str, now: Now) -> Vec<Effect<R>> {
        match kind {
            "tool_call" | "tool_call_update" => self.note_client_request(now),
            _ => Vec::new(),
        }
    }

    /// Handles a request for the client's files or terminals: the agent works on the prompt, as if it ran a tool of its own.
    pub fn note_client_request(&mut self, now: Now) -> Vec<Effect<R>> {
        self.now = now;
        if let Some(turn) = &mut self.turn {
            turn.was_session_cleared = false;
            turn.withdrawn_questions.clear();
        }
        self.prompt_confirmed();
        self.tool_started();
        self.end_step()
    }

    /// Handles a notification that the daemon itself asked for; it is not sent to clients.
    pub fn note_notification(&mut self, method: &str, line: &str) {
        self.scan_for_failure_signs(line, method);
    }

    /// Records that a tool runs or is about to run. Such a prompt is never sent again, not even after a restart of the daemon.
    fn tool_started(&mut self) {
        if self.turn.is_some()
            && let Some(pending) = &mut self.record.turn
            && pending.phase < Progress::ToolStarted
        {
            pending.phase = Progress::ToolStarted;
            self.mark_unsaved();
        }
    }

    /// Looks for signs of a failure in a line.
    fn scan_for_failure_signs(&mut self, line: &str, method: &str) {
        let Some(turn) = &mut self.turn else { return };
        if !(self.kind.may_show_failure)(line.as_bytes()) {
            return;
        }
        if let Ok(value) = serde_json::from_str::<Value>(line)
            && let Some(params) = value.get("params")
        {
            turn.signs.observe(method, params);
        }
    }

    /// Stores what the agent reported about a session when it opened it.
    pub(super) fn apply_session_info(&mut self, info: SessionInfo) {
        self.change_shown_settings(|record| record_session_info(&mut record.reported, &info));
        self.session_info.modes = info.modes.or(self.session_info.modes.take());
        self.session_info.config_options = info.config_options.or(self.session_info.config_options.take());
        self.session_info.other = info.other;
    }

    /// Changes the reported settings of the session. The record is written only if the settings that clients see change.
    fn change_shown_settings(&mut self, change: impl FnOnce(&mut ConversationRecord)) {
        let before = shown_settings(&self.record);
        change(&mut self.record);
        if shown_settings(&self.record) != before {
            self.mark_unsaved();
        }
    }

    /// The mode was changed in the session. The new mode is applied again after the next resume.
    fn mode_changed(&mut self, update: &str) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Update {
            current_mode_id: String,
        }
        let Ok(Update { current_mode_id }) = serde_json::from_str(update) else {
            return;
        };
        if let Some(modes) = &self.session_info.modes
            && let Ok(mut value) = modes.read::<Value>()
            && let Some(members) = value.as_object_mut()
        {
            members.insert("currentModeId".to_owned(), Value::String(current_mode_id.clone()));
            self.session_info.modes = Some(RawJson::from(value));
        }
        let options = self.session_info.config_options.clone();
        self.change_shown_settings(|record| {
            if record.reported.mode.as_ref() != Some(&current_mode_id) {
                record.settings.mode = Some(current_mode_id.clone());
                align_options(&mut record.settings, options.as_ref());
            }
            record_mode(&mut record.reported, Some(&current_mode_id));
        });
    }

    /// Options were changed in the session. The model is applied again after the next resume.
    fn options_changed(&mut self, update: &str) {
        let Some(options) = json_member(update, "configOptions") else {
            return;
        };
        // The first report is not a change.
        let known = self
            .session_info
            .config_options
            .as_ref()
            .and_then(model_of_options);
        let model = model_of_options(&options);
        self.change_shown_settings(|record| {
            if known.is_some() && model.is_some() && model != known {
                record.settings.model = model;
                align_options(&mut record.settings, Some(&options));
            }
            record_options(&mut record.reported, &options);
        });
        self.session_info.config_options = Some(options);
    }

    /// The agent named the session. A conversation without a title gets that name.
    fn title_changed(&mut self, update: &str) {
        #[derive(Deserialize)]
        struct Update {
            #[serde(default)]
            title: Option<String>,
        }
        if let Ok(Update { title: Some(title) }) = serde_json::from_str(update)
            && self.record.title.is_empty()
            && !title.is_empty()
        {
            self.record.title = shortened_title(&title);
            self.mark_unsaved();
        }
    }
}

/// Whether an update of this kind shows that the agent works on the prompt. Other kinds come at any time.
fn is_turn_activity(kind: &str) -> bool {
    !matches!(
        kind,
        "available_commands_update"
            | "current_mode_update"
            | "config_option_update"
            | "session_info_update"
            | "usage_update"
            | "notice"
    )
}

/// Whether an update shows that the agent has continued, and not only that a call ended together with the turn.
fn is_turn_progress(kind: &str, update: &str) -> bool {
    #[derive(Deserialize)]
    struct Update<'a> {
        #[serde(default, borrow)]
        status: Option<std::borrow::Cow<'a, str>>,
    }
    match kind {
        "tool_call_update" => serde_json::from_str::<Update<'_>>(update)
            .is_ok_and(|update| matches!(update.status.as_deref(), Some("in_progress" | "completed"))),
        _ => is_turn_activity(kind),
    }
}

fn raw_json(text: &str) -> Option<RawJson> {
    RawJson::from_text(text.to_owned()).ok()
}

fn json_member(text: &str, name: &str) -> Option<RawJson> {
    let value: std::collections::HashMap<String, &serde_json::value::RawValue> =
        serde_json::from_str(text).ok()?;
    value.get(name).map(|raw| RawJson::new((*raw).to_owned()))
}

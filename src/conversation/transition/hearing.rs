//! Updates of the agent: which turn they belong to, and what the conversation stores of them.

use bridge_protocol::conversation::SessionInfo;
use bridge_protocol::raw::RawJson;
use serde::Deserialize;
use serde_json::Value;

use crate::agent::subagent;
use crate::conversation::effect::{Effect, Now};
use crate::conversation::naming::shortened_title;
use crate::conversation::reported::{agree, hear, hear_mode, hear_options, model_of_options, shown_settings};
use crate::conversation::state::Model;
use crate::store::{ConversationRecord, TurnPhase as Progress};

impl<R> Model<R> {
    /// Hears one `session/update` before it is passed on. Nearly all of them change nothing and cost nothing: only the
    /// few kinds that the conversation keeps are read.
    ///
    /// `kind` is ACP's `sessionUpdate`, `update` the update's own JSON, `line` the whole line.
    pub fn hear_update(&mut self, kind: &str, update: &str, line: &str, now: Now) -> Vec<Effect<R>> {
        self.now = now;
        if let Some(turn) = &mut self.turn
            && (turn.cleared || !turn.taken)
            && speaks_of_turn(kind)
        {
            turn.cleared = false;
            self.prompt_taken();
        }
        if let Some(turn) = &mut self.turn
            && !turn.withdrawn.is_empty()
            && shows_work(kind, update)
        {
            turn.withdrawn.clear();
        }
        match kind {
            "tool_call" | "tool_call_update" | subagent::UPDATE | subagent::SPAWNED => self.tool_started(),
            "plan" => self.info.plan = raw(update),
            "available_commands_update" => self.info.commands = member(update, "availableCommands"),
            "usage_update" => self.info.usage = raw(update),
            "current_mode_update" => self.mode_changed(update),
            "config_option_update" => self.options_changed(update),
            "session_info_update" => self.title_told(update),
            _ => {}
        }
        self.observe(line, "session/update");
        self.finish()
    }

    /// Hears an update in the session of a subagent. Of what it says, only that a tool runs counts for the turn.
    pub fn hear_subagent(&mut self, kind: &str, now: Now) -> Vec<Effect<R>> {
        match kind {
            "tool_call" | "tool_call_update" => self.hear_client_request(now),
            _ => Vec::new(),
        }
    }

    /// Hears a request for the files or terminals of the client: the agent works on the prompt, as with a tool of its own.
    pub fn hear_client_request(&mut self, now: Now) -> Vec<Effect<R>> {
        self.now = now;
        if let Some(turn) = &mut self.turn {
            turn.cleared = false;
            turn.withdrawn.clear();
        }
        self.prompt_taken();
        self.tool_started();
        self.finish()
    }

    /// Handles a notification that the daemon itself asked for; it is not sent to clients.
    pub fn hear_event(&mut self, method: &str, line: &str) {
        self.observe(line, method);
    }

    /// A tool runs, or is about to: a prompt that came this far is never sent again, also by the next life of the daemon.
    fn tool_started(&mut self) {
        if self.turn.is_some()
            && let Some(pending) = &mut self.record.turn
            && pending.phase < Progress::ToolStarted
        {
            pending.phase = Progress::ToolStarted;
            self.note_change();
        }
    }

    /// Whether a line is worth a look for signs of a failure.
    fn observe(&mut self, line: &str, method: &str) {
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

    /// Takes over what the agent said of a session when it opened it.
    pub(super) fn hear_session(&mut self, said: SessionInfo) {
        self.note_if_shown(|record| hear(&mut record.reported, &said));
        self.info.modes = said.modes.or(self.info.modes.take());
        self.info.config_options = said.config_options.or(self.info.config_options.take());
        self.info.other = said.other;
    }

    /// Changes what is known of the session. Only what changes what is shown is worth a write.
    fn note_if_shown(&mut self, change: impl FnOnce(&mut ConversationRecord)) {
        let before = shown_settings(&self.record);
        change(&mut self.record);
        if shown_settings(&self.record) != before {
            self.note_change();
        }
    }

    /// The mode was changed in the session: it is applied again after the next resume.
    fn mode_changed(&mut self, update: &str) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Update {
            current_mode_id: String,
        }
        let Ok(Update { current_mode_id }) = serde_json::from_str(update) else {
            return;
        };
        if let Some(modes) = &self.info.modes
            && let Ok(mut value) = modes.read::<Value>()
            && let Some(members) = value.as_object_mut()
        {
            members.insert("currentModeId".to_owned(), Value::String(current_mode_id.clone()));
            self.info.modes = Some(RawJson::from(value));
        }
        let options = self.info.config_options.clone();
        self.note_if_shown(|record| {
            if record.reported.mode.as_ref() != Some(&current_mode_id) {
                record.settings.mode = Some(current_mode_id.clone());
                agree(&mut record.settings, options.as_ref());
            }
            hear_mode(&mut record.reported, Some(&current_mode_id));
        });
    }

    /// Options were changed in the session: the model is applied again after the next resume.
    fn options_changed(&mut self, update: &str) {
        let Some(options) = member(update, "configOptions") else {
            return;
        };
        // The first report is no change.
        let known = self.info.config_options.as_ref().and_then(model_of_options);
        let model = model_of_options(&options);
        self.note_if_shown(|record| {
            if known.is_some() && model.is_some() && model != known {
                record.settings.model = model;
                agree(&mut record.settings, Some(&options));
            }
            hear_options(&mut record.reported, &options);
        });
        self.info.config_options = Some(options);
    }

    /// The agent named the session. A conversation without a title takes that name.
    fn title_told(&mut self, update: &str) {
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
            self.note_change();
        }
    }
}

/// Whether an update of this kind shows that the agent works on the prompt; the others come at any time.
fn speaks_of_turn(kind: &str) -> bool {
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
fn shows_work(kind: &str, update: &str) -> bool {
    #[derive(Deserialize)]
    struct Update<'a> {
        #[serde(default, borrow)]
        status: Option<std::borrow::Cow<'a, str>>,
    }
    match kind {
        "tool_call_update" => serde_json::from_str::<Update<'_>>(update)
            .is_ok_and(|update| matches!(update.status.as_deref(), Some("in_progress" | "completed"))),
        _ => speaks_of_turn(kind),
    }
}

fn raw(text: &str) -> Option<RawJson> {
    RawJson::from_text(text.to_owned()).ok()
}

fn member(text: &str, name: &str) -> Option<RawJson> {
    let value: std::collections::HashMap<String, &serde_json::value::RawValue> =
        serde_json::from_str(text).ok()?;
    value.get(name).map(|raw| RawJson::new((*raw).to_owned()))
}

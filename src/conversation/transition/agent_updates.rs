//! Updates of the agent: which turn they belong to, and what the conversation stores of them.

use bridge_protocol::conversation::SessionInfo;
use bridge_protocol::raw::RawJson;
use serde::Deserialize;
use serde_json::Value;

use crate::agent::members::Members;
use crate::agent::subagent;
use crate::conversation::naming::shortened_title;
use crate::conversation::reported_settings::{
    mode_of_update, mode_reported, options_of_update, options_reported, record_opened, shown_settings,
};
use crate::conversation::state::Model;
use crate::store::{ConversationRecord, TurnPhase as Progress};

impl<R> Model<R> {
    /// Handles one `session/update` before it is sent to subscribers. Nearly all updates change nothing and cost nothing: only
    /// the few kinds that the conversation stores are read.
    ///
    /// `kind` is ACP's `sessionUpdate`, `update` the update's own JSON, `line` the whole line.
    pub fn apply_update(&mut self, kind: &str, update: &str, line: &str) {
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
    }

    /// Handles an update in the session of a subagent. For the turn, it only matters whether a tool runs.
    pub fn apply_subagent_update(&mut self, kind: &str) {
        if matches!(kind, "tool_call" | "tool_call_update") {
            self.note_client_request();
        }
    }

    /// Handles a request for the client's files or terminals: the agent works on the prompt, as if it ran a tool of its own.
    pub fn note_client_request(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.was_session_cleared = false;
            turn.withdrawn_questions.clear();
        }
        self.prompt_confirmed();
        self.tool_started();
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

    /// Looks for signs of a failure in a line of the agent.
    pub fn scan_for_failure_signs(&mut self, line: &str, method: &str) {
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
        self.change_settings(|record, known| {
            record_opened(record, &info);
            known.modes = info.modes.or(known.modes.take());
            known.config_options = info.config_options.or(known.config_options.take());
            known.other = info.other;
        });
    }

    /// Changes the stored and reported settings of the session. The record is written only if that changes it.
    pub(super) fn change_settings(&mut self, change: impl FnOnce(&mut ConversationRecord, &mut SessionInfo)) {
        let settings = |record: &ConversationRecord| (record.settings.clone(), shown_settings(record));
        let before = settings(&self.record);
        change(&mut self.record, &mut self.session_info);
        if settings(&self.record) != before {
            self.mark_unsaved();
        }
    }

    /// The mode was changed in the session.
    fn mode_changed(&mut self, update: &str) {
        if let Some(mode) = mode_of_update(update) {
            self.change_settings(|record, known| mode_reported(record, known, &mode));
        }
    }

    /// Options were changed in the session.
    fn options_changed(&mut self, update: &str) {
        if let Some(options) = options_of_update(update) {
            self.change_settings(|record, known| options_reported(record, known, options));
        }
    }

    /// The agent named the session. The conversation gets that name, unless a client named it or the agent only repeats a
    /// prompt, as Claude's adapter does when it could not generate a title.
    fn title_changed(&mut self, update: &str) {
        let Some(title) = title_of_update(update) else {
            return;
        };
        let keeps_title = self.has_chosen_title() || self.repeats_prompt(&title);
        if !keeps_title && self.record.title != title {
            self.record.title.clone_from(&title);
            self.record.reported.title = Some(title);
            self.mark_unsaved();
        }
    }

    /// Whether a title is only the text of a later prompt, possibly cut short, and the conversation has a title.
    fn repeats_prompt(&self, title: &str) -> bool {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let repeats = |prompt: &String| match title.strip_suffix('…') {
            Some(beginning) => words(prompt).starts_with(&words(beginning)),
            None => words(prompt) == words(title),
        };
        !self.record.title.is_empty() && self.later_prompts.iter().any(repeats)
    }

    /// Whether the title in an update that was applied differs from the conversation's.
    pub fn is_named_otherwise(&self, update: &str) -> bool {
        title_of_update(update).is_some_and(|title| title != self.record.title)
    }

    /// Whether a client chose the title.
    pub(super) fn has_chosen_title(&self) -> bool {
        let title = &self.record.title;
        !title.is_empty() && self.record.reported.title.as_ref() != Some(title)
    }
}

/// The title in a `session_info_update`, as it is stored.
fn title_of_update(update: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Update {
        #[serde(default)]
        title: Option<String>,
    }
    let update: Update = serde_json::from_str(update).ok()?;
    update
        .title
        .map(|title| shortened_title(&title))
        .filter(|title| !title.is_empty())
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
    let mut members: Members = serde_json::from_str(text).ok()?;
    members.shift_remove(name)
}

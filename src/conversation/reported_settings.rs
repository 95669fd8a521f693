//! The configuration that the agent reports for a session: stored with the conversation, and shown where the client set
//! nothing. Pure.
//!
//! It is separate from what a client set, which is applied whenever a session is opened. Of what the agent reports, the
//! mode is applied to a new session that replaces an earlier one, and a value that the agent changed replaces the stored one.
//! This module owns what is stored; it must not know when.

use std::collections::BTreeMap;
use std::fmt;

use bridge_protocol::conversation::{SessionInfo, Settings};
use bridge_protocol::raw::RawJson;
use serde::Deserialize;
use serde_json::Value;

use crate::agent::members::{Members, to_object, with_member};
use crate::store::{ConversationRecord, ReportedSettings};

/// How many options are stored. Agents have a handful, and each is in every list of conversations.
const OPTIONS_LIMIT: usize = 16;

/// The longest id or value that is stored, in bytes. They are choices from a menu. A longer value is text, which clients
/// find in the snapshot's `configOptions`.
const VALUE_LIMIT_BYTES: usize = 256;

/// The settings to show: those that a client set, and what the agent reports about the others.
#[must_use]
pub fn shown_settings(record: &ConversationRecord) -> Settings {
    let (mut shown, reported) = (record.settings.clone(), &record.reported);
    shown.mode = shown.mode.or_else(|| reported.mode.clone());
    shown.model = shown.model.or_else(|| reported.model.clone());
    if !reported.config.is_empty() {
        let config = shown.config.get_or_insert_default();
        for (id, value) in &reported.config {
            config.entry(id.clone()).or_insert_with(|| value.clone());
        }
    }
    shown
}

/// One setting of an open session, as the agent is asked for it.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingChange {
    /// The model.
    Model(String),
    /// The option with this id.
    Option(String, RawJson),
    /// The mode.
    Mode(String),
}

impl SettingChange {
    /// The setting's name: `model`, `mode` or the id of an option.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Model(_) => "model",
            Self::Option(id, _) => id,
            Self::Mode(_) => "mode",
        }
    }

    /// Its value as text, an option's as JSON.
    #[must_use]
    pub fn value(&self) -> &str {
        match self {
            Self::Model(value) | Self::Mode(value) => value,
            Self::Option(_, value) => value.get(),
        }
    }
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name(), self.value())
    }
}

/// The requests that apply settings to a session, in their order: the model first, because it decides which options there are
/// and resets them.
#[must_use]
pub fn setting_changes(settings: &Settings, options: Option<&RawJson>) -> Vec<SettingChange> {
    let model_option = option_of(options, "model");
    let config = settings.config.iter().flatten();
    let (first, later): (Vec<_>, Vec<_>) = config
        .filter(|(_, value)| value.get() != "null")
        .map(|(id, value)| SettingChange::Option(id.clone(), value.clone()))
        .partition(|option| option.name() == model_option);
    // A stored option of this category has the same value.
    let model = settings.model.clone().filter(|_| first.is_empty());
    let model = model.map(SettingChange::Model);
    let mode = settings.mode.clone().map(SettingChange::Mode);
    model.into_iter().chain(first).chain(later).chain(mode).collect()
}

/// Whether the agent reports that a setting has this value already.
#[must_use]
pub fn is_current(session: &SessionInfo, change: &SettingChange) -> bool {
    let options = session.config_options.as_ref();
    let value = |id: &str| values_by_id(options).remove(id);
    match change {
        SettingChange::Mode(mode) => current_mode(session).as_ref() == Some(mode),
        SettingChange::Model(model) => {
            value(&option_of(options, "model")) == Some(Value::from(model.as_str()))
        }
        SettingChange::Option(id, wanted) => {
            let value = value(id);
            value.is_some() && value == wanted.read().ok()
        }
    }
}

/// Whether the agent offered an option earlier and no longer lists it. Every request for it would fail.
#[must_use]
pub fn is_no_longer_offered(
    reported: &ReportedSettings,
    session: &SessionInfo,
    change: &SettingChange,
) -> bool {
    let SettingChange::Option(id, _) = change else {
        return false;
    };
    let options = session.config_options.as_ref();
    options.is_some() && reported.config.contains_key(id) && !values_by_id(options).contains_key(id)
}

/// Stores what the agent reports when it opens a session to which the settings were applied.
pub fn record_opened(record: &mut ConversationRecord, opened: &SessionInfo) {
    if let Some(mode) = current_mode(opened) {
        record_mode(&mut record.reported, Some(&mode));
    }
    let mut known = SessionInfo {
        modes: opened.modes.clone(),
        ..SessionInfo::default()
    };
    if let Some(options) = &opened.config_options {
        options_reported(record, &mut known, options.clone());
    }
}

/// The agent has accepted a setting with this answer: it counts from now on. `known`: what is known of the session.
pub fn setting_accepted(
    record: &mut ConversationRecord,
    known: &mut SessionInfo,
    change: &SettingChange,
    answer: &RawJson,
) {
    match change {
        SettingChange::Mode(mode) => store_mode(&mut record.settings, mode, known),
        SettingChange::Model(model) => store_model(&mut record.settings, model, known),
        SettingChange::Option(id, value) => store_option(&mut record.settings, id, value, known),
    }
    let before = known.clone();
    note_accepted(known, change, answer);
    if let SettingChange::Mode(mode) = change {
        record_mode(&mut record.reported, Some(mode));
    }
    if let Some(options) = known.config_options.take() {
        known.config_options = before.config_options;
        options_reported(record, known, options);
    }
}

/// Notes in what is known of a session that the agent has accepted a setting with this answer.
pub fn note_accepted(known: &mut SessionInfo, change: &SettingChange, answer: &RawJson) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        config_options: Option<Vec<RawJson>>,
    }
    match change {
        SettingChange::Mode(mode) => {
            set_current_mode(known, mode);
            return;
        }
        SettingChange::Model(model) => set_current_model(known, model),
        SettingChange::Option(..) => {}
    }
    let answered = answer
        .read::<Answer>()
        .ok()
        .and_then(|answer| answer.config_options);
    if let Some(options) = answered.and_then(|options| RawJson::from_value(&options).ok()) {
        note_options(known, options);
        return;
    }
    // Not every agent answers with its options.
    let options = known.config_options.as_ref();
    let changed = match change {
        SettingChange::Option(id, value) => options_with(options, id, value),
        SettingChange::Model(value) | SettingChange::Mode(value) => {
            let value = RawJson::from(Value::from(value.as_str()));
            options_with(options, &option_of(options, "model"), &value)
        }
    };
    if let Some(changed) = changed {
        note_options(known, changed);
    }
}

/// The agent reported another mode. It is applied again after the next resume.
pub fn mode_reported(record: &mut ConversationRecord, known: &mut SessionInfo, mode: &str) {
    if record.reported.mode.as_deref() != Some(mode) {
        store_mode(&mut record.settings, mode, known);
    }
    set_current_mode(known, mode);
    record_mode(&mut record.reported, Some(mode));
}

/// The agent reported its options. A value that it changed replaces a stored one, and is applied again after the next resume.
/// An option that it no longer offers is forgotten, because every later request for it would fail.
pub fn options_reported(record: &mut ConversationRecord, known: &mut SessionInfo, options: RawJson) {
    let was = values_by_id(known.config_options.as_ref());
    note_options(known, options);
    let options = known.config_options.as_ref();
    let now = values_by_id(options);
    if let Some(config) = &mut record.settings.config {
        let was_offered = |id: &String| was.contains_key(id) || record.reported.config.contains_key(id);
        config.retain(|id, _| now.contains_key(id) || !was_offered(id));
    }
    let (model_option, mode_option) = (option_of(options, "model"), option_of(options, "mode"));
    for (id, value) in now {
        let is_changed = was.get(&id).is_some_and(|was| *was != value);
        let settings = &mut record.settings;
        let stored = settings.config.as_mut().and_then(|config| config.get_mut(&id));
        if let Some(stored) = stored.filter(|stored| stored.read::<Value>().ok().as_ref() != Some(&value)) {
            *stored = RawJson::from(value.clone());
        }
        if id == model_option {
            if let Some(model) = value.as_str().filter(|_| is_changed || settings.model.is_some()) {
                settings.model = Some(model.to_owned());
            }
        } else if id == mode_option && value.as_str().is_some_and(|mode| offers_mode(known, mode)) {
            let mode = value.as_str().unwrap_or_default();
            if is_changed || settings.mode.is_some() {
                settings.mode = Some(mode.to_owned());
            }
            record_mode(&mut record.reported, Some(mode));
        }
    }
    record.settings.config = record.settings.config.take().filter(|config| !config.is_empty());
    if let Some(options) = &known.config_options {
        record_options(&mut record.reported, options);
    }
}

/// Notes what an update of the agent reports about the mode or the options of a session.
pub fn note_update(known: &mut SessionInfo, kind: &str, update: &str) {
    match kind {
        "current_mode_update" => {
            if let Some(mode) = mode_of_update(update) {
                set_current_mode(known, &mode);
            }
        }
        "config_option_update" => {
            if let Some(options) = options_of_update(update) {
                note_options(known, options);
            }
        }
        _ => {}
    }
}

/// Whether an update reports another mode or other options than those that are known by now.
#[must_use]
pub fn contradicts(known: &SessionInfo, kind: &str, update: &str) -> bool {
    match kind {
        "current_mode_update" => mode_of_update(update) != current_mode(known) && known.modes.is_some(),
        "config_option_update" => {
            let is = known.config_options.as_ref();
            is.is_some() && values_by_id(options_of_update(update).as_ref()) != values_by_id(is)
        }
        _ => false,
    }
}

/// The mode in a `current_mode_update`.
#[must_use]
pub fn mode_of_update(update: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Update {
        current_mode_id: String,
    }
    let update: Update = serde_json::from_str(update).ok()?;
    Some(update.current_mode_id)
}

/// The options in a `config_option_update`.
#[must_use]
pub fn options_of_update(update: &str) -> Option<RawJson> {
    let mut members: Members = serde_json::from_str(update).ok()?;
    members.shift_remove("configOptions")
}

/// Stores the options of a session, and the model and the mode that they name.
fn note_options(known: &mut SessionInfo, options: RawJson) {
    let was = values_by_id(known.config_options.as_ref());
    let now = values_by_id(Some(&options));
    let (model, mode) = (
        option_of(Some(&options), "model"),
        option_of(Some(&options), "mode"),
    );
    known.config_options = Some(options);
    let changed = |id: &str| {
        now.get(id)
            .filter(|now| was.get(id) != Some(*now))
            .and_then(Value::as_str)
    };
    if let Some(mode) = changed(&mode).filter(|mode| offers_mode(known, mode)) {
        known.modes = with_current_mode(known.modes.as_ref(), mode);
    }
    if let Some(model) = changed(&model) {
        set_current_model(known, model);
    }
}

/// Changes the current mode of a session, and the option with the same meaning if it has such a value.
fn set_current_mode(known: &mut SessionInfo, mode: &str) {
    known.modes = with_current_mode(known.modes.as_ref(), mode).or(known.modes.take());
    let options = known.config_options.as_ref();
    if offers_value(options, "mode", mode) {
        let value = RawJson::from(Value::from(mode));
        let changed = options_with(options, &option_of(options, "mode"), &value);
        known.config_options = changed.or(known.config_options.take());
    }
}

fn with_current_mode(modes: Option<&RawJson>, mode: &str) -> Option<RawJson> {
    with_member(modes?.get(), "currentModeId", RawJson::from(Value::from(mode)))
}

/// Changes the current model in the list of models that some agents report beside the options.
fn set_current_model(known: &mut SessionInfo, model: &str) {
    let changed = known.other.as_ref().and_then(|other| {
        let mut members: Members = other.read().ok()?;
        let models = members.get_mut("models")?;
        let list: Value = models.read().ok()?;
        let mut offered = list.get("availableModels")?.as_array()?.iter();
        if !offered.any(|offered| offered["modelId"] == model) {
            return None;
        }
        *models = with_member(models.get(), "currentModelId", RawJson::from(Value::from(model)))?;
        to_object(&members)
    });
    known.other = changed.or(known.other.take());
}

/// The options with another value of this one.
fn options_with(options: Option<&RawJson>, id: &str, value: &RawJson) -> Option<RawJson> {
    let mut options: Vec<Members> = options?.read().ok()?;
    let is_it = |option: &&mut Members| {
        let own = option.get("id").and_then(|id| id.read::<String>().ok());
        own.as_deref() == Some(id)
    };
    let option = options.iter_mut().find(is_it)?;
    option.insert("currentValue".to_owned(), value.clone());
    RawJson::from_value(&options).ok()
}

fn current_mode(session: &SessionInfo) -> Option<String> {
    let modes: Value = session.modes.as_ref()?.read().ok()?;
    Some(modes.get("currentModeId")?.as_str()?.to_owned())
}

/// Whether the agent lists a mode.
#[must_use]
pub fn offers_mode(session: &SessionInfo, mode: &str) -> bool {
    let modes: Option<Value> = session.modes.as_ref().and_then(|modes| modes.read().ok());
    let offered = modes
        .as_ref()
        .and_then(|modes| modes["availableModes"].as_array());
    offered.is_some_and(|offered| offered.iter().any(|offered| offered["id"] == mode))
}

/// Whether the option of this category has such a value. Values may be in groups.
fn offers_value(options: Option<&RawJson>, category: &str, value: &str) -> bool {
    fn has(listed: &Value, value: &str) -> bool {
        let mut listed = listed.as_array().into_iter().flatten();
        listed.any(|one| one["value"] == value || has(&one["options"], value))
    }
    let options: Vec<Value> = options
        .and_then(|options| options.read().ok())
        .unwrap_or_default();
    let option = options.iter().find(|option| has_category(option, category));
    option.is_some_and(|option| has(&option["options"], value))
}

/// The current values of the options, by id.
fn values_by_id(options: Option<&RawJson>) -> BTreeMap<String, Value> {
    let options: Vec<Value> = options
        .and_then(|options| options.read().ok())
        .unwrap_or_default();
    let values = options.into_iter().filter_map(|mut option| {
        let id = option.get("id")?.as_str()?.to_owned();
        let value = option.get_mut("currentValue")?.take();
        (!value.is_null()).then_some((id, value))
    });
    values.collect()
}

/// Stores the values of ACP's `configOptions`.
fn record_options(reported: &mut ReportedSettings, options: &RawJson) {
    reported.model = model_of_options(options).filter(|model| is_short(model));
    reported.config = values_of_options(options, reported.mode.is_some());
}

/// Stores the current mode.
fn record_mode(reported: &mut ReportedSettings, mode: Option<&str>) {
    reported.mode = mode.filter(|mode| is_short(mode)).map(str::to_owned);
}

/// The current value of the option of category `model`.
fn model_of_options(options: &RawJson) -> Option<String> {
    let options: Vec<Value> = options.read().ok()?;
    let option = options.iter().find(|option| has_category(option, "model"))?;
    let model = option.get("currentValue").and_then(Value::as_str);
    model.map(str::to_owned)
}

/// The current value of each option that is not shown elsewhere.
fn values_of_options(options: &RawJson, has_mode: bool) -> BTreeMap<String, RawJson> {
    let options: Vec<Value> = options.read().unwrap_or_default();
    let is_shown_elsewhere =
        |option: &Value| has_category(option, "model") || (has_mode && has_category(option, "mode"));
    let values = options.iter().filter(|option| !is_shown_elsewhere(option));
    let values = values.filter_map(|option| {
        let id = option
            .get("id")
            .and_then(Value::as_str)
            .filter(|id| is_short(id))?;
        let value = option.get("currentValue").filter(|value| !value.is_null())?;
        let value = RawJson::from(value.clone());
        is_short(value.get()).then(|| (id.to_owned(), value))
    });
    values.take(OPTIONS_LIMIT).collect()
}

/// Merges new settings into the current ones. Model and mode can also be set as options; the newest value wins.
/// `known`: what is known of the session.
pub fn merge_settings(settings: &mut Settings, given: Settings, known: &SessionInfo) {
    let Settings {
        model,
        mode,
        config,
        system_prompt,
        mcp_servers,
        additional_directories,
    } = given;
    for (id, value) in config.iter().flatten() {
        store_option(settings, id, value, known);
    }
    if let Some(model) = model {
        store_model(settings, &model, known);
    }
    if let Some(mode) = mode {
        store_mode(settings, &mode, known);
    }
    settings.config = settings.config.take().filter(|config| !config.is_empty());
    settings.system_prompt = system_prompt.or_else(|| settings.system_prompt.take());
    settings.mcp_servers = mcp_servers.or_else(|| settings.mcp_servers.take());
    settings.additional_directories =
        additional_directories.or_else(|| settings.additional_directories.take());
}

/// Whether an open session takes the new settings in place of the old ones. Others reach an agent when it opens a session.
pub fn takes_while_open(old: &Settings, new: &Settings) -> bool {
    old.system_prompt == new.system_prompt
        && old.mcp_servers == new.mcp_servers
        && old.additional_directories == new.additional_directories
}

/// Stores an option, and its value as the model or the mode if it has that meaning and such a setting is stored. `null`
/// removes the option, for example one that the agent no longer knows, which would fail every resume.
fn store_option(settings: &mut Settings, id: &str, value: &RawJson, known: &SessionInfo) {
    let config = settings.config.get_or_insert_default();
    if value.get() == "null" {
        config.remove(id);
        return;
    }
    config.insert(id.to_owned(), value.clone());
    let (options, text) = (known.config_options.as_ref(), value.read::<String>().ok());
    if settings.model.is_some() && option_of(options, "model") == id {
        settings.model.clone_from(&text);
    }
    if settings.mode.is_some() && option_of(options, "mode") == id {
        // The option may have other values than the modes have ids. The newest choice counts.
        settings.mode = text.filter(|mode| offers_mode(known, mode));
    }
}

/// Stores the model, also in the option with the same meaning, so that a resume does not set an old value.
fn store_model(settings: &mut Settings, model: &str, known: &SessionInfo) {
    settings.model = Some(model.to_owned());
    let id = option_of(known.config_options.as_ref(), "model");
    if let Some(option) = settings.config.as_mut().and_then(|config| config.get_mut(&id)) {
        *option = RawJson::from(Value::from(model));
    }
}

/// Stores the mode. An option with the same meaning gets the value too, or is no longer stored if it has no such value.
fn store_mode(settings: &mut Settings, mode: &str, known: &SessionInfo) {
    settings.mode = Some(mode.to_owned());
    let options = known.config_options.as_ref();
    let id = option_of(options, "mode");
    if let Some(config) = settings.config.as_mut().filter(|config| config.contains_key(&id)) {
        match offers_value(options, "mode", mode) {
            true => drop(config.insert(id, RawJson::from(Value::from(mode)))),
            false => drop(config.remove(&id)),
        }
    }
}

/// The id of the option of this category; the category itself if the options are unknown.
fn option_of(options: Option<&RawJson>, category: &str) -> String {
    let options: Vec<Value> = options
        .and_then(|options| options.read().ok())
        .unwrap_or_default();
    let option = options.iter().find(|option| has_category(option, category));
    let id = option.and_then(|option| option.get("id")).and_then(Value::as_str);
    id.unwrap_or(category).to_owned()
}

/// Whether an option has this category. Older agents indicate the category only by the option's id.
#[must_use]
pub fn has_category(option: &Value, category: &str) -> bool {
    let is = |key: &str| option.get(key).and_then(Value::as_str) == Some(category);
    is("category") || is("id")
}

fn is_short(text: &str) -> bool {
    text.len() <= VALUE_LIMIT_BYTES
}

#[cfg(test)]
mod tests {
    use bridge_protocol::id::{AgentName, ConversationId};
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_reported_is_shown() {
        let long = "x".repeat(VALUE_LIMIT_BYTES + 1);
        let model = json!({"id": "model", "currentValue": "large"});
        let mode = json!({"id": "m", "category": "mode", "currentValue": "ask"});
        let modes = json!({"currentModeId": "ask"});
        let table = [
            // Asked for, reported as modes and as options, shown. What the agent reports counts.
            (json!({}), json!(null), json!(null), json!({})),
            (
                json!({}),
                modes.clone(),
                json!([model, mode]),
                json!({"model": "large", "mode": "ask"}),
            ),
            (
                json!({"model": "small"}),
                json!(null),
                json!([model]),
                json!({"model": "large"}),
            ),
            // Shown as an option where there are no modes.
            (
                json!({}),
                json!(null),
                json!([mode]),
                json!({"config": {"m": "ask"}}),
            ),
            (
                json!({"config": {"a": true}}),
                json!(null),
                json!([{"id": "a", "currentValue": false}, {"id": "b", "currentValue": 7}]),
                json!({"config": {"a": false, "b": 7}}),
            ),
            // Nothing without end, and nothing that is none.
            (
                json!({}),
                json!({"currentModeId": long}),
                json!([{"id": "a", "currentValue": long}, {"id": long, "currentValue": 1}, {"id": "c"}, 5]),
                json!({}),
            ),
            (json!({}), json!("odd"), json!({"odd": 1}), json!({})),
        ];
        for (asked, modes, options, expected) in table {
            let mut record = record();
            record.settings = serde_json::from_value(asked.clone()).unwrap();
            let told = |value: Value| (!value.is_null()).then(|| RawJson::from(value));
            let session = SessionInfo {
                modes: told(modes),
                config_options: told(options.clone()),
                ..SessionInfo::default()
            };
            record_opened(&mut record, &session);
            let shown = serde_json::to_value(shown_settings(&record)).unwrap();
            assert_eq!(shown, expected, "{asked} {options}");
        }
    }

    #[test]
    fn what_an_agent_does_not_speak_of_stays_and_many_options_are_cut_short() {
        let mut reported = ReportedSettings::default();
        let options: Vec<Value> = (0..40)
            .map(|number| json!({"id": format!("o{number:02}"), "currentValue": number}))
            .collect();
        record_options(&mut reported, &json!(options).into());
        assert_eq!(reported.config.len(), OPTIONS_LIMIT);
        record_mode(&mut reported, Some("ask"));
        assert_eq!(reported.config.len(), OPTIONS_LIMIT);
        record_options(&mut reported, &json!([]).into());
        assert_eq!(
            (reported.mode.as_deref(), reported.config.len()),
            (Some("ask"), 0)
        );
    }

    fn record() -> ConversationRecord {
        let id = ConversationId::from_bytes([7; 16]);
        let cwd = "/home/u/project".to_owned();
        ConversationRecord::new(id, AgentName::new("claude"), cwd, Timestamp::UNIX_EPOCH)
    }
}

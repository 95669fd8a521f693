//! The configuration that the agent reports for a session: stored with the conversation, and shown where the client set
//! nothing. Pure.
//!
//! It is separate from what a client set, which is applied whenever a session is opened. Of what the agent reports, only
//! the mode is applied, to a new session that replaces an earlier one. This module owns what is stored; it must not know
//! when.

use std::collections::BTreeMap;

use bridge_protocol::conversation::{SessionInfo, Settings};
use bridge_protocol::raw::RawJson;
use serde::Deserialize;
use serde_json::Value;

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

/// Stores what the agent reports. Settings that it does not mention stay as they were.
pub fn record_session_info(reported: &mut ReportedSettings, session: &SessionInfo) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Modes {
        current_mode_id: Option<String>,
    }
    if let Some(modes) = &session.modes {
        let mode = modes.read::<Modes>().ok().and_then(|modes| modes.current_mode_id);
        record_mode(reported, mode.as_deref());
    }
    if let Some(options) = &session.config_options {
        record_options(reported, options);
    }
}

/// Stores the values of ACP's `configOptions`.
pub fn record_options(reported: &mut ReportedSettings, options: &RawJson) {
    reported.model = model_of_options(options).filter(|model| is_short(model));
    reported.config = values_of_options(options, reported.mode.is_some());
}

/// Stores the current mode.
pub fn record_mode(reported: &mut ReportedSettings, mode: Option<&str>) {
    reported.mode = mode.filter(|mode| is_short(mode)).map(str::to_owned);
}

/// The current value of the option of category `model`.
#[must_use]
pub fn model_of_options(options: &RawJson) -> Option<String> {
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
/// `options`: those of the agent, as far as they are known.
pub fn merge_settings(settings: &mut Settings, given: Settings, options: Option<&RawJson>) {
    let Settings {
        model,
        mode,
        config,
        system_prompt,
        mcp_servers,
        additional_directories,
    } = given;
    let as_option = |category: &str| {
        let value = config.as_ref()?.get(&option_of(options, category))?;
        value.read::<String>().ok()
    };
    let model = model.or_else(|| as_option("model").filter(|_| settings.model.is_some()));
    let mode = mode.or_else(|| as_option("mode").filter(|_| settings.mode.is_some()));
    settings.model = model.or_else(|| settings.model.take());
    settings.mode = mode.or_else(|| settings.mode.take());
    if let Some(config) = config {
        settings.config.get_or_insert_default().extend(config);
    }
    // `null` removes an option, for example one that the agent no longer knows, which would fail every resume.
    settings.config = settings.config.take().and_then(|mut config| {
        config.retain(|_, value| value.get() != "null");
        (!config.is_empty()).then_some(config)
    });
    settings.system_prompt = system_prompt.or_else(|| settings.system_prompt.take());
    settings.mcp_servers = mcp_servers.or_else(|| settings.mcp_servers.take());
    settings.additional_directories =
        additional_directories.or_else(|| settings.additional_directories.take());
    align_options(settings, options);
}

/// Copies the model and the mode into the options with the same meaning, so that a resume does not set an old value.
pub fn align_options(settings: &mut Settings, options: Option<&RawJson>) {
    let Settings {
        model, mode, config, ..
    } = settings;
    for (category, value) in [("model", model), ("mode", mode)] {
        if let (Some(value), Some(config)) = (value, config.as_mut())
            && let Some(option) = config.get_mut(&option_of(options, category))
        {
            *option = RawJson::from(Value::from(value.as_str()));
        }
    }
}

/// The id of the option of this category; the category itself if the options are unknown.
#[must_use]
pub fn option_of(options: Option<&RawJson>, category: &str) -> String {
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
    fn what_is_reported_fills_in_what_nobody_asked_for() {
        let long = "x".repeat(VALUE_LIMIT_BYTES + 1);
        let model = json!({"id": "model", "currentValue": "large"});
        let mode = json!({"id": "m", "category": "mode", "currentValue": "ask"});
        let modes = json!({"currentModeId": "ask"});
        let table = [
            // Asked for, reported as modes and as options, shown.
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
                json!({"model": "small"}),
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
                json!({"config": {"a": true, "b": 7}}),
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
            record_session_info(&mut record.reported, &session);
            let shown = serde_json::to_value(shown_settings(&record)).unwrap();
            assert_eq!(shown, expected, "{asked} {options}");
            assert_eq!(serde_json::to_value(&record.settings).unwrap(), asked);
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

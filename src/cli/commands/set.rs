//! `set`: the title and the settings of a conversation.

use bridge_protocol::conversation::{Conversation, SessionInfo, Settings};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{ErrorKind, method};
use clap::Args;
use serde_json::Value;

use super::Context;
use crate::cli::advice::Advice;
use crate::cli::complete;
use crate::cli::connect::Daemon;
use crate::cli::humanize;
use crate::cli::output::one_line;
use crate::cli::problem::{CommandResult, Problem};
use crate::cli::select::{ConversationArgs, HERE};
use crate::paths::shell_word;

/// Change the title, model, mode or options of a conversation
///
/// KEY is title, model, mode, or the id of an agent's option. The agent checks each value. If it refuses one, the error lists the
/// values that it accepts. KEY=null removes an option, so that it is not set again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl set . title='Fix the build'
  sessionctl set 90e2e180 model=opus mode=plan")]
pub(in crate::cli) struct Set {
    #[command(flatten)]
    target: ConversationArgs,
    /// What to change
    #[arg(value_name = "KEY=VALUE", add = complete::keys(KEYS))]
    changes: Vec<String>,
}

/// Set the title of a conversation
#[derive(Debug, Args)]
pub(in crate::cli) struct Rename {
    /// Conversation: id, part of its title, or . (the last one of this folder)
    #[arg(value_name = "CONV", add = complete::conversation())]
    conversation: String,
    /// New title
    #[arg(value_name = "TITLE")]
    title: String,
}

/// The keys that are not options of the agent.
const KEYS: [&str; 3] = ["title", "model", "mode"];

/// Changes the settings given as `KEY=VALUE`.
pub(in crate::cli) async fn set(context: &mut Context<'_>, options: Set) -> CommandResult {
    let (mut conversation, mut words) = (options.target.conversation, options.changes);
    // If no conversation is named, the first word is a change.
    if let Some(change) = conversation.take_if(|word| word.contains('=')) {
        words.insert(0, change);
    }
    let changes = pairs(conversation.as_deref().unwrap_or(HERE), &words)?;
    change(context, conversation.as_deref(), changes).await
}

/// Changes the title.
pub(in crate::cli) async fn rename(context: &mut Context<'_>, options: Rename) -> CommandResult {
    let title = ("title".to_owned(), options.title);
    change(context, Some(&options.conversation), vec![title]).await
}

/// Parses words of the form `KEY=VALUE`.
fn pairs(conversation: &str, words: &[String]) -> CommandResult<Vec<(String, String)>> {
    let refused = |message: String| {
        let conversation = shell_word(conversation);
        let example = format!("write it as KEY=VALUE: sessionctl set {conversation} title='New title'");
        Problem::usage(message).hint(example)
    };
    if words.is_empty() {
        return Err(refused("no setting was given".to_owned()));
    }
    let pair = |word: &String| match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(refused(format!("invalid setting: {}", one_line(word)))),
    };
    words.iter().map(pair).collect()
}

/// Changes the title and the settings.
async fn change(
    context: &mut Context<'_>,
    conversation: Option<&str>,
    changes: Vec<(String, String)>,
) -> CommandResult {
    let mut title = None;
    let mut settings = Settings::default();
    for (key, value) in changes.clone() {
        match key.as_str() {
            "title" => title = Some(value),
            "model" => settings.model = Some(value),
            "mode" => settings.mode = Some(value),
            _ => {
                // The value of an option may be a boolean or a number; other words are text.
                let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
                let config = settings.config.get_or_insert_default();
                config.insert(key, RawJson::from(value));
            }
        }
    }
    let (daemon, conversation) = context.connect_and_select(conversation).await?;
    let has_settings = settings != Settings::default();
    let unchecked = match has_settings && !conversation.live {
        true => open(&daemon, &conversation).await.err(),
        false => None,
    };
    let update = method::Update {
        title,
        settings,
        ..method::Update::of(conversation.id)
    };
    let changed = match context.call_and_print(&daemon, update).await {
        Err(problem) if has_settings && problem.kind() == Some(ErrorKind::AgentError) => {
            return Err(with_setting_hint(
                problem,
                &context.output.advice(conversation.id),
            ));
        }
        changed => changed?.conversation,
    };
    let arrow = context.output.note_look.sign("→", "->");
    let done = changes.iter().map(|(key, _)| {
        let [old, new] = [&conversation, &changed].map(|one| value_of(one, key));
        format!("{} {old} {arrow} {new}", one_line(key))
    });
    let done = done.collect::<Vec<String>>().join(", ");
    let name = humanize::name_in_sentence(&changed);
    context.output.note_unedited(&format!("Changed {name}: {done}"))?;
    if let Some(problem) = unchecked {
        context.output.note(&format!(
            "not checked, because the agent's session could not be opened: {}",
            problem.text()
        ))?;
    }
    Ok(())
}

/// Adds the valid values to a problem with a setting that the agent refused.
fn with_setting_hint(problem: Problem, advice: &Advice) -> Problem {
    match valid_values(&problem) {
        Some((valid, Some((key, first)))) => {
            let set = advice.set(&key, &shell_word(&first));
            problem.hint(format!("{valid}; set one: {set}"))
        }
        Some((valid, None)) => problem.hint(valid),
        None => problem,
    }
}

/// The value of a key in a conversation.
fn value_of(conversation: &Conversation, key: &str) -> String {
    let settings = &conversation.settings;
    let value = match key {
        "title" => Some(conversation.title.clone()),
        "model" => settings.model.clone(),
        "mode" => settings.mode.clone(),
        _ => {
            let value = settings.config.as_ref().and_then(|config| config.get(key));
            value.map(|value| value.get().trim_matches('"').to_owned())
        }
    };
    match one_line(&value.unwrap_or_default()) {
        empty if empty.is_empty() => "(unset)".to_owned(),
        value => value,
    }
}

/// Opens the agent's session, so that the agent refuses settings that it does not know.
async fn open(daemon: &Daemon, conversation: &Conversation) -> CommandResult {
    let resume = method::Resume::of(conversation.id);
    daemon.call(resume).await?;
    Ok(())
}

/// The values that the agent accepts for the setting that it refused, in words, with the setting and the first of them. If it has
/// no such setting, the words name those that it has.
pub(super) fn valid_values(problem: &Problem) -> Option<(String, Option<(String, String)>)> {
    let (refused, session) = (problem.detail("setting")?, problem.offered_session()?);
    let values = setting_values(&refused, &session).into_iter();
    let values: Vec<String> = values.map(|one| one_line(&one.value)).collect();
    let key = one_line(&refused);
    if let Some(first) = values.first() {
        let valid = format!("valid values of {key}: {}", values.join(", "));
        return Some((valid, Some((key, first.clone()))));
    }
    let configured = session.config_options.as_ref()?.read().ok();
    let configured: Value = configured.unwrap_or_default();
    let ids = configured.as_array().into_iter().flatten();
    let ids = ids.filter_map(|option| option["id"].as_str()).chain(["mode"]);
    let ids: Vec<String> = ids.map(one_line).collect();
    // A boolean or a number has no list of values.
    (!ids.contains(&key)).then(|| (format!("the agent's settings are: {}", ids.join(", ")), None))
}

/// A value that the agent offers for a setting.
pub(in crate::cli) struct SettingValue {
    /// The value.
    pub(in crate::cli) value: String,
    /// The agent's name for it.
    pub(in crate::cli) name: String,
    /// The agent's description of it.
    pub(in crate::cli) description: String,
    /// Whether it is set.
    pub(in crate::cli) is_current: bool,
}

/// The values that the agent offers for a setting: those of the option with this category or id. If there is no such option,
/// returns the session's modes for `mode`, otherwise nothing.
pub(in crate::cli) fn setting_values(key: &str, session: &SessionInfo) -> Vec<SettingValue> {
    let read = |part: &Option<RawJson>| -> Value {
        let part = part.as_ref().and_then(|part| part.read().ok());
        part.unwrap_or_default()
    };
    let (configured, modes) = (read(&session.config_options), read(&session.modes));
    let is_it = |option: &&Value| option["category"] == key || option["id"] == key;
    let option = configured
        .as_array()
        .and_then(|options| options.iter().find(is_it));
    let (current, all) = match option {
        Some(option) => (&option["currentValue"], &option["options"]),
        None if key == "mode" => (&modes["currentModeId"], &modes["availableModes"]),
        None => (&Value::Null, &Value::Null),
    };
    let text = |one: &Value, names: &[&str]| {
        let found = names.iter().find_map(|name| one[*name].as_str());
        found.unwrap_or_default().to_owned()
    };
    let all = all.as_array().into_iter().flatten().map(|one| {
        let value = text(one, &["value", "id", "modelId"]);
        SettingValue {
            is_current: current.as_str() == Some(&value),
            name: text(one, &["name"]),
            description: text(one, &["description", "name"]),
            value,
        }
    });
    all.collect()
}

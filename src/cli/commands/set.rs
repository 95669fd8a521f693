//! `set`: the title and the settings of a conversation.

use std::collections::BTreeSet;

use bridge_protocol::conversation::{Conversation, SessionInfo, Settings};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{ErrorKind, method};
use clap::Args;
use serde_json::Value;

use super::Context;
use crate::cli::advice::Advice;
use crate::cli::complete;
use crate::cli::connect::Daemon;
use crate::cli::event_stream::snapshot;
use crate::cli::humanize;
use crate::cli::output::{Look, one_line, truncate};
use crate::cli::problem::{CommandResult, Problem};
use crate::cli::select::{self, ConversationArgs, HERE};
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
    /// As `new` takes it: the error says how it is written here.
    #[arg(long, hide = true)]
    title: Option<String>,
    #[arg(long, hide = true)]
    model: Option<String>,
    #[arg(long, hide = true)]
    mode: Option<String>,
}

/// Set the title of a conversation
#[derive(Debug, Args)]
pub(in crate::cli) struct Rename {
    #[command(flatten)]
    target: ConversationArgs,
    /// New title
    #[arg(value_name = "TITLE")]
    title: Option<String>,
}

/// How many columns are shown of a value: enough to recognize it.
const SHOWN_COLUMNS: usize = 60;

/// The keys that are not options of the agent.
const KEYS: [&str; 3] = ["title", "model", "mode"];

/// Changes the settings given as `KEY=VALUE`.
pub(in crate::cli) async fn set(context: &mut Context<'_>, options: Set) -> CommandResult {
    let (mut conversation, mut words) = (options.target.conversation, options.changes);
    let given = KEYS.into_iter().zip([options.title, options.model, options.mode]);
    for (key, value) in given {
        // Insert key and value as two words: `pairs` refuses them, and its hint shows the correct form.
        words.splice(0..0, value.into_iter().flat_map(|value| [key.to_owned(), value]));
    }
    // If no conversation is named, the first word is a change.
    if let Some(change) = conversation.take_if(|word| word.contains('=')) {
        words.insert(0, change);
    }
    let changes = pairs(conversation.as_deref().unwrap_or(HERE), &words)?;
    change(context, conversation.as_deref(), changes).await
}

/// Changes the title.
pub(in crate::cli) async fn rename(context: &mut Context<'_>, options: Rename) -> CommandResult {
    let (conversation, title) = match (options.target.conversation, options.title) {
        (named, Some(title)) => (named, title),
        (Some(word), None) => {
            let daemon = context.connect().await?;
            // A single word is the title, unless it names a conversation.
            if let Ok(found) = select::look_up(&daemon, &word).await {
                return Err(no_title_problem(&humanize::short_id(found.id)));
            }
            (None, word)
        }
        (None, None) => return Err(no_title_problem(HERE)),
    };
    let title_of = |title: &str| vec![("title".to_owned(), title.to_owned())];
    match title.split_once('=').filter(|(key, _)| KEYS.contains(key)) {
        None => change(context, conversation.as_deref(), title_of(&title)).await,
        Some((key, value)) => {
            let set = format!(
                "sessionctl set {}",
                shell_word(conversation.as_deref().unwrap_or(HERE))
            );
            let (pair, literal) = (shell_word(value), shell_word(&format!("title={title}")));
            let what = format!("rename takes only the title: {}", one_line(&title));
            Err(Problem::usage(what).hint(format!(
                "change the {key}: {set} {key}={pair}; use all of it as the title: {set} {literal}"
            )))
        }
    }
}

fn no_title_problem(conversation: &str) -> Problem {
    Problem::usage("no title was given").hint(format!(
        "give the conversation and its title: sessionctl rename {conversation} 'New title'"
    ))
}

/// Parses words of the form `KEY=VALUE`.
fn pairs(conversation: &str, words: &[String]) -> CommandResult<Vec<(String, String)>> {
    let hint = |key: &str, value: &str| {
        let (conversation, value) = (shell_word(conversation), shell_word(value));
        format!("write it as KEY=VALUE: sessionctl set {conversation} {key}={value}")
    };
    if words.is_empty() {
        let problem = Problem::usage("no setting was given");
        return Err(problem.hint(hint("title", "New title")));
    }
    let pair = |(at, word): (usize, &String)| match word.split_once('=') {
        // JSON's null removes an option of the agent; a title cannot be removed.
        Some(("title", "null")) => {
            Err(Problem::usage("invalid title: null").hint(hint("title", "New title")))
        }
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => {
            let problem = Problem::usage(format!("invalid setting: {}", one_line(word)));
            let is_key = KEYS.contains(&word.as_str());
            Err(problem.hint(match words.get(at + 1) {
                Some(value) if is_key => hint(word, value),
                None if word == "title" => hint(word, "New title"),
                None if is_key => hint(word, "default"),
                _ => hint("title", word.trim_start_matches('=')),
            }))
        }
    };
    words.iter().enumerate().map(pair).collect()
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
    // JSON's null removes an option of the agent; a model or a mode cannot be removed.
    if let Some((key, _)) = changes
        .iter()
        .find(|(key, value)| value == "null" && ["model", "mode"].contains(&key.as_str()))
    {
        let problem = Problem::usage(format!("invalid {key}: null"));
        let (session, _) = snapshot(&daemon, conversation.id).await?;
        let values = setting_values(key, &session).into_iter();
        let values: Vec<String> = values.map(|one| one_line(&one.value)).collect();
        return Err(match values.first() {
            Some(first) => {
                let set = context
                    .output
                    .advice(conversation.id)
                    .set(key, &shell_word(first));
                problem.hint(format!("valid {key}s: {}; set one: {set}", values.join(", ")))
            }
            // The session could not be opened, or offers none.
            None => unchecked.unwrap_or(problem),
        });
    }
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
                &changes,
            ));
        }
        changed => changed?.conversation,
    };
    let arrow = context.output.note_look.sign("→", "->");
    let done = changes.iter().map(|(key, _)| {
        let [old, new] = [&conversation, &changed].map(|one| value_of(one, key));
        let [shown_old, shown] = [&old, &new].map(|value| truncate(value, SHOWN_COLUMNS, Look::default()));
        match old == new {
            true => format!("{} stays {shown}", one_line(key)),
            false => format!("{} {shown_old} {arrow} {shown}", one_line(key)),
        }
    });
    let done = done.collect::<Vec<String>>().join(", ");
    let name = match changes.iter().any(|(key, _)| key == "title") {
        true => humanize::short_id(changed.id),
        false => humanize::name_in_sentence(&changed),
    };
    context.output.note_unedited(&format!("Changed {name}: {done}"))?;
    // An earlier setting may have prevented the session from opening, so try it with the new ones.
    if unchecked.is_some()
        && let Err(problem) = open(&daemon, &conversation).await
    {
        if problem.kind() == Some(ErrorKind::AgentError) {
            return Err(problem);
        }
        context.output.note(&format!(
            "not checked, because the agent's session could not be opened: {}",
            problem.text()
        ))?;
    }
    Ok(())
}

/// Adds the valid settings to a problem with a setting that the agent refused.
fn with_setting_hint(problem: Problem, advice: &Advice, changes: &[(String, String)]) -> Problem {
    let refused = problem.detail("setting").unwrap_or_default();
    let change = changes.iter().find(|(key, _)| *key == refused);
    let value = change.map_or("", |(_, value)| value);
    let Some(SettingSuggestion { valid, key, first }) = suggest_setting(&problem, value) else {
        return problem;
    };
    if key != refused && is_similar_key(&refused, "title") {
        let set = advice.set("title", &shell_word(value));
        return problem.hint(format!("to change the title: {set}"));
    }
    let set = advice.set(&key, &first);
    let problem = match value.is_empty() && key == refused {
        true => Problem::usage(format!("no value was given for {key}")),
        false => problem,
    };
    problem.hint(format!("{valid}; set one: {set}"))
}

/// Whether a key differs from a known one in one letter, or in two swapped letters.
fn is_similar_key(key: &str, known: &str) -> bool {
    strsim::osa_distance(&key.to_lowercase(), known) <= 1
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

/// A suggestion after the agent refused a setting.
pub(super) struct SettingSuggestion {
    /// The valid values, in words.
    pub(super) valid: String,
    /// The suggested key: the refused setting, or a similar one if the agent has no setting of that name.
    pub(super) key: String,
    /// The suggested value, quoted for a shell: the refused value if the key is another one that has it, otherwise the first
    /// value.
    pub(super) first: String,
}

/// Suggests what to set after a session refused this value of a setting. If the agent has no such setting, suggests one with a
/// similar name, preferably one that has the value.
pub(super) fn suggest_setting(problem: &Problem, refused_value: &str) -> Option<SettingSuggestion> {
    let (refused, session) = (problem.detail("setting")?, problem.offered_session()?);
    let configured = session
        .config_options
        .as_ref()
        .and_then(|options| options.read().ok());
    let configured: Value = configured.unwrap_or_default();
    let ids = configured.as_array().into_iter().flatten();
    let ids: BTreeSet<&str> = ids
        .filter_map(|option| option["id"].as_str())
        .chain(["mode"])
        .collect();
    let offer = |key: &str| {
        let values = setting_values(key, &session).into_iter();
        let values: Vec<String> = values.map(|one| one_line(&one.value)).collect();
        let key = one_line(key);
        let what = match key.as_str() {
            "mode" | "model" => format!("{key}s"),
            _ => format!("values of {key}"),
        };
        Some(SettingSuggestion {
            first: shell_word(values.first()?),
            valid: format!("valid {what}: {}", values.join(", ")),
            key,
        })
    };
    if let Some(offer) = offer(&refused) {
        return Some(offer);
    }
    // A boolean or a number has no list of values.
    if refused != "mode" && ids.contains(refused.as_str()) {
        return None;
    }
    let others: Vec<SettingSuggestion> = ids.into_iter().filter_map(offer).collect();
    let all: Vec<&str> = others.iter().map(|offer| offer.valid.as_str()).collect();
    let valid = format!(
        "the agent has no setting {}; {}",
        one_line(&refused),
        all.join("; ")
    );
    let has_value = |offer: &SettingSuggestion| {
        let mut values = setting_values(&offer.key, &session).into_iter();
        values.any(|one| one.value == refused_value)
    };
    // Reversed, because `max_by_key` returns the last of several equal elements, and the first is wanted.
    let best = others.into_iter().rev();
    let best = best.max_by_key(|offer| {
        let is_as_long = offer.key.len() == refused.len();
        (is_similar_key(&refused, &offer.key), has_value(offer), is_as_long)
    })?;
    let first = match has_value(&best) {
        true => shell_word(refused_value),
        false => best.first,
    };
    Some(SettingSuggestion { valid, first, ..best })
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

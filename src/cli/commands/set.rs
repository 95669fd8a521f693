//! `set`: the title and the settings of a conversation.

use std::collections::BTreeSet;

use bridge_protocol::conversation::{Conversation, SessionInfo, Settings};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{ConversationId, ErrorKind, method};
use clap::Args;
use serde_json::Value;

use super::Context;
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::follow::session;
use crate::cli::output::one_line;
use crate::cli::problem::Outcome;
use crate::cli::words;

/// Change the title, model, mode or options of a conversation
///
/// KEY is title, model, mode, or an option by the agent's id for it. The agent's session is opened, so that a value that the agent
/// does not know is refused at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl set . title='Fix the build'
  sessionctl set 90e2e180 model=opus mode=plan")]
pub(in crate::cli) struct Set {
    /// Conversation: id or its first 6 characters, part of the title, or . (this folder's)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// What to change
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = pair)]
    changes: Vec<(String, String)>,
}

/// Set the title of a conversation
#[derive(Debug, Args)]
pub(in crate::cli) struct Rename {
    /// Conversation: id or its first 6 characters, part of the title, or . (this folder's)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// New title
    #[arg(value_name = "TITLE")]
    title: String,
}

impl From<Rename> for Set {
    fn from(Rename { conversation, title }: Rename) -> Self {
        Self {
            conversation,
            changes: vec![("title".to_owned(), title)],
        }
    }
}

fn pair(word: &str) -> Result<(String, String), String> {
    match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("give it as KEY=VALUE, for example title='{word}'")),
    }
}

/// Changes the title and the settings.
pub(in crate::cli) async fn set(context: &mut Context<'_>, options: Set) -> Outcome<Exit> {
    let mut title = None;
    let mut settings = Settings::default();
    for (key, value) in options.changes {
        match key.as_str() {
            "title" => title = Some(value),
            "model" => settings.model = Some(value),
            "mode" => settings.mode = Some(value),
            _ => {
                // An option may be a switch or a number; other words are text.
                let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
                let config = settings.config.get_or_insert_default();
                config.insert(key, RawJson::from(value));
            }
        }
    }
    let (daemon, conversation) = context.on(Some(&options.conversation)).await?;
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
    let changed = match context.ask(&daemon, update).await {
        Err(problem) if has_settings && problem.kind() == Some(ErrorKind::AgentError) => {
            return Err(match offers(&daemon, conversation.id).await {
                Some(offers) => problem.hint(offers),
                None => problem,
            });
        }
        changed => changed?.conversation,
    };
    let (id, title) = (words::short_id(changed.id), one_line(&changed.title));
    context.output.note(&match title.as_str() {
        "" => format!("Changed {id}; it has no title."),
        title => format!("Changed {id} ({title})."),
    })?;
    // What was set before may be what kept the session from opening.
    if unchecked.is_some()
        && let Err(problem) = open(&daemon, &conversation).await
    {
        if problem.kind() == Some(ErrorKind::AgentError) {
            return Err(problem);
        }
        let why = one_line(problem.message.as_deref().unwrap_or_default());
        context.output.note(&format!(
            "not checked, because the agent's session could not be opened: {why}"
        ))?;
    }
    Ok(Exit::Done)
}

/// Opens the agent's session, which then refuses what it does not know.
async fn open(daemon: &Daemon, conversation: &Conversation) -> Outcome {
    let resume = method::Resume::of(conversation.id);
    daemon.call(resume).await?;
    Ok(())
}

/// The values that an open session offers, as a hint.
pub(super) async fn offers(daemon: &Daemon, id: ConversationId) -> Option<String> {
    let session = session(daemon, id).await.ok()?;
    let configured = session
        .config_options
        .as_ref()
        .and_then(|options| options.read().ok());
    let configured: Value = configured.unwrap_or_default();
    let ids = configured.as_array().into_iter().flatten();
    let keys = ids.filter_map(|option| option["id"].as_str()).chain(["mode"]);
    let keys: BTreeSet<&str> = keys.collect();
    let offers = keys.into_iter().filter_map(|key| {
        let values = offered(key, &session).into_iter();
        let values: Vec<String> = values.map(|one| one_line(&one.value)).collect();
        (!values.is_empty()).then(|| format!("{} is one of {}", one_line(key), values.join(", ")))
    });
    Some(offers.collect::<Vec<_>>().join("; ")).filter(|offers| !offers.is_empty())
}

/// A value that the agent offers for a setting.
pub(in crate::cli) struct Offered {
    /// The value.
    pub(in crate::cli) value: String,
    /// The agent's name for it.
    pub(in crate::cli) name: String,
    /// What the agent says of it.
    pub(in crate::cli) about: String,
    /// Whether it is set.
    pub(in crate::cli) is_current: bool,
}

/// What the agent offers for a setting: the values of the option with this category or id; of `mode` else its modes.
pub(in crate::cli) fn offered(key: &str, session: &SessionInfo) -> Vec<Offered> {
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
        Offered {
            is_current: current.as_str() == Some(&value),
            name: text(one, &["name"]),
            about: text(one, &["description", "name"]),
            value,
        }
    });
    all.collect()
}

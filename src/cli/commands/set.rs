//! `set`: the title and the settings of a conversation.

use bridge_protocol::conversation::{Conversation, Settings};
use bridge_protocol::event::Event;
use bridge_protocol::raw::RawJson;
use bridge_protocol::{ErrorKind, method};
use clap::Args;
use serde_json::Value;

use super::Context;
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::follow::Follower;
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
            return Err(match offered(&daemon, &conversation).await {
                Some(offered) => problem.hint(offered),
                None => problem,
            });
        }
        changed => changed?.conversation,
    };
    let (id, title) = (words::short_id(changed.id), one_line(&changed.title));
    context.output.note(&format!("Changed {id} ({title})."))?;
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

/// The models, modes and options that an open session offers.
async fn offered(daemon: &Daemon, conversation: &Conversation) -> Option<String> {
    let mut follower = Follower::start(daemon, conversation.id.into()).await.ok()?;
    let Event::Snapshot { session, .. } = follower.next().await.ok()?.envelope.event else {
        return None;
    };
    let session = session?;
    let read = |raw: Option<RawJson>| raw.and_then(|raw| raw.read::<Value>().ok()).unwrap_or_default();
    let (modes, options) = (read(session.modes), read(session.config_options));
    let names = |list: &Value, member: &str| {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(|one| one[member].as_str())
            .map(one_line)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut offers = vec![("mode", names(&modes["availableModes"], "id"))];
    for option in options.as_array().into_iter().flatten() {
        offers.push((option["id"].as_str()?, names(&option["options"], "value")));
    }
    let offers = offers.into_iter().filter(|(_, values)| !values.is_empty());
    let offers: Vec<String> = offers
        .map(|(key, values)| format!("{} is one of {values}", one_line(key)))
        .collect();
    (!offers.is_empty()).then(|| offers.join("; "))
}

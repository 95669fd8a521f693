//! A name that leads nowhere: what to do where it is no conversation's, but a transcript's, or where no agent is called so.
//!
//! It owns the hints for which the daemon has to be asked. It must not know what the command wanted with the name.

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use std::collections::BTreeSet;

use bridge_protocol::{ErrorKind, UpstreamId};

use super::Context;
use super::archive::Archive;
use super::transcripts::LEAST_CHARS;
use crate::cli::args::Command;
use crate::cli::exit::Exit;
use crate::cli::output::one_line;
use crate::cli::problem::Problem;
use crate::cli::progress::watched;

/// Transcripts that are asked for; one page of those that hold the name is enough to find one that begins with it.
const PAGE: u32 = 500;

/// What a command named.
#[derive(Debug, Default)]
pub(super) struct Named {
    conversation: Option<String>,
    agent: Option<String>,
    /// Whether the command can be given a folder to work in.
    takes_folder: bool,
}

impl Named {
    /// What this command names.
    pub(super) fn by(command: &Command) -> Self {
        let conversation = match command {
            Command::Set(set) => Some(&set.conversation),
            Command::Rename(rename) => Some(&rename.conversation),
            Command::Fork(fork) => fork.conversation.as_ref(),
            Command::Edit(edit) => Some(&edit.conversation),
            Command::Checkpoints(past) | Command::History(past) => Some(&past.conversation),
            Command::Send(send) => Some(&send.conversation),
            Command::Cancel(cancel) => Some(&cancel.conversation),
            Command::Answer(answer) => Some(&answer.conversation),
            Command::Rm(remove) => remove.target.conversation.as_ref(),
            Command::Export(export) => export.conversation.as_ref(),
            Command::Show(target)
            | Command::Chain(target)
            | Command::Lineage(target)
            | Command::Attach(target)
            | Command::Resume(target)
            | Command::Close(target)
            | Command::Reset(target)
            | Command::Undo(target)
            | Command::Tree(target) => target.conversation.as_ref(),
            _ => None,
        };
        let agent = match command {
            Command::Transcripts(options) => options.agent.as_ref(),
            Command::Adopt(adopt) => adopt.agent.as_ref(),
            Command::Check(check) => check.agent.as_ref(),
            Command::Archive(Archive::Add(subject) | Archive::Restore(subject))
            | Command::Keep(subject)
            | Command::Restore(subject) => subject.agent.as_ref(),
            Command::Archive(Archive::Rm(orphan)) => orphan.agent.as_ref(),
            _ => None,
        };
        Self {
            conversation: conversation.filter(|word| *word != ".").cloned(),
            agent: agent.cloned(),
            takes_folder: matches!(command, Command::New(_) | Command::Adopt(_) | Command::Import(_)),
        }
    }

    /// The problem with a hint that leads on, where there is one. What cannot be asked changes nothing.
    pub(super) async fn hinted(self, context: &mut Context<'_>, problem: Problem) -> Problem {
        // Else it is the conversation's own folder.
        if problem.kind() == Some(ErrorKind::InvalidCwd) && self.takes_folder {
            return problem.hint("name a folder that exists with --cwd DIR");
        }
        if problem.exit != Exit::NotFound {
            return problem;
        }
        let hint = match self {
            Self {
                agent: Some(agent), ..
            } => other_agent(context, &agent).await,
            Self {
                conversation: Some(word),
                ..
            } => not_adopted(context, &word).await,
            _ => None,
        };
        match hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

async fn other_agent(context: &mut Context<'_>, agent: &str) -> Option<String> {
    let daemon = context.reach.find().await.ok()??;
    let agents = daemon.call(method::ListAgents::default()).await.ok()?.agents;
    let is_there = agents.iter().any(|known| known.name.as_str() == agent);
    (!is_there).then(|| "sessionctl agents shows which agents there are".to_owned())
}

/// Of a transcript that is listed and that no conversation holds, how it becomes one.
async fn not_adopted(context: &mut Context<'_>, word: &str) -> Option<String> {
    if word.chars().count() < LEAST_CHARS {
        return None;
    }
    let daemon = context.reach.find().await.ok()??;
    let call = daemon.call(method::ListTranscripts {
        query: Some(word.to_owned()),
        limit: Some(PAGE),
        ..Default::default()
    });
    let listed = watched(context.output, &daemon, "transcript/list", call).await;
    let listed = listed.ok()?.transcripts.into_iter();
    let free: BTreeSet<UpstreamId> = listed
        .filter(|transcript| transcript.conversation_id.is_none())
        .map(|transcript| transcript.upstream_id)
        .filter(|id| id.as_str().starts_with(word))
        .collect();
    let first = one_line(free.first()?.as_str());
    Some(match free.len() {
        1 => format!(
            "it is a transcript that no conversation holds yet: sessionctl adopt {first} makes one of it"
        ),
        _ => format!(
            "transcripts that no conversation holds yet begin so: sessionctl transcripts {word} shows them, sessionctl \
             adopt makes a conversation of one"
        ),
    })
}

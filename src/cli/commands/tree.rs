//! `tree`: the conversations that are related by forks, as a picture.

use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::link::LineageEntry;
use bridge_protocol::{ConversationId, method};
use serde_json::json;

use super::past::CHECKPOINT_PAGE;
use super::{Context, pages};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, DIM, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::watched;
use crate::cli::select::{self, Target};
use crate::cli::tree::{Member, draw};
use crate::cli::words;

/// The most conversations of a picture.
const LARGEST: usize = 1_000;

/// Draws a conversation with its ancestors, sessions and forks.
pub(super) async fn tree(context: &mut Context<'_>, target: Target) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let asked_for = select::conversation(context, &daemon, target.name()).await?.id;
    let (mut members, missing) = related(&daemon, asked_for).await?;
    if context.output.json {
        let answer = json!({ "conversations": members, "missingParent": missing });
        return context.output.line(&answer.to_string()).map(|()| Exit::Done);
    }
    read_steps(context, &daemon, &mut members).await?;
    let look = context.output.look;
    if let Some(parent) = missing {
        let line = format!("{} (deleted)", words::short_id(parent));
        context.output.line(&look.paint(DIM, &line))?;
    }
    for line in draw(&members, Some(asked_for), look) {
        context.output.line(&line)?;
    }
    Ok(Exit::Done)
}

/// The first ancestor and all that branched off it, each after its parent and the forks of one oldest first; and the id of its
/// parent if that is missing.
///
/// # Errors
/// What the daemon answers.
pub(in crate::cli) async fn related(
    daemon: &Daemon,
    id: ConversationId,
) -> Outcome<(Vec<Member>, Option<ConversationId>)> {
    let get = async |id: ConversationId| {
        let answer = daemon
            .call(method::GetConversation {
                conversation_id: id.into(),
            })
            .await;
        answer.map(|answer| answer.conversation).map_err(Problem::from)
    };
    let (mut root, mut missing) = (get(id).await?, None);
    while let Some(parent) = root.parent.as_ref().map(|parent| parent.conversation_id) {
        match get(parent).await {
            Ok(parent) => root = parent,
            Err(problem) if problem.exit == Exit::NotFound => {
                missing = Some(parent);
                break;
            }
            Err(problem) => return Err(problem),
        }
    }
    let (all, _) = pages(usize::MAX, async |cursor, limit| {
        let page = daemon
            .call(method::ListConversations {
                cursor,
                limit,
                ..Default::default()
            })
            .await?;
        Ok((page.conversations, page.next_cursor))
    })
    .await?;
    let mut waiting = vec![root];
    let mut members = Vec::new();
    while let Some(conversation) = waiting.pop().filter(|_| members.len() < LARGEST) {
        let is_fork = |fork: &&Conversation| {
            fork.parent
                .as_ref()
                .is_some_and(|parent| parent.conversation_id == conversation.id)
        };
        let mut forks: Vec<Conversation> = all.iter().filter(is_fork).cloned().collect();
        forks.sort_by_key(|fork| std::cmp::Reverse(fork.created_at));
        waiting.extend(forks);
        members.push(member(daemon, conversation).await?);
    }
    Ok((members, missing))
}

async fn member(daemon: &Daemon, conversation: Conversation) -> Outcome<Member> {
    let conversation_id = conversation.id.into();
    let links = daemon.call(method::Chain { conversation_id }).await?.links;
    let entries = entries(daemon, conversation.id, || Ok(())).await?;
    Ok(Member {
        conversation,
        links,
        entries,
        steps: Vec::new(),
    })
}

/// The whole lineage of a conversation. `each` is called after each page.
pub(super) async fn entries(
    daemon: &Daemon,
    id: ConversationId,
    mut each: impl FnMut() -> Outcome,
) -> Outcome<Vec<LineageEntry>> {
    let page = async |cursor, limit| {
        let conversation_id = id.into();
        let page = daemon
            .call(method::Lineage {
                conversation_id,
                cursor,
                limit,
            })
            .await?;
        each()?;
        Ok((page.entries, page.next_cursor))
    };
    pages(usize::MAX, page).await.map(|(entries, _)| entries)
}

/// Reads the newest steps of each conversation. One whose history cannot be read is drawn without, with a note.
async fn read_steps(context: &mut Context<'_>, daemon: &Daemon, members: &mut [Member]) -> Outcome {
    for member in members {
        let id = member.conversation.id;
        let call = daemon.call(method::Checkpoints {
            conversation_id: id.into(),
            before: None,
            limit: Some(CHECKPOINT_PAGE),
        });
        let read = watched(context.output, daemon, "conversation/checkpoints", call).await;
        match read.map_err(Problem::from) {
            Ok(page) => member.steps = page.checkpoints.into_iter().rev().collect(),
            Err(problem) if problem.exit == Exit::NoDaemon => return Err(problem),
            Err(problem) => {
                let mark = format!("without the steps of {}:", words::short_id(id));
                let mark = context.output.note_look.paint(ATTENTION, &mark);
                let why = one_line(problem.message.as_deref().unwrap_or_default());
                context.output.note(&format!("{mark} {why}"))?;
            }
        }
    }
    Ok(())
}

//! `tree`: gathers a conversation with everything that branched off it, and draws it.

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use std::collections::BTreeMap;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::history::Checkpoint;
use bridge_protocol::link::{LineageEntry, Link};
use serde::Serialize;

use super::past::CHECKPOINT_PAGE;
use super::{Context, conversation_ref};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, DIM, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::watched;
use crate::cli::tree::{Family, draw};
use crate::cli::words;

/// Conversations that are asked for at once; the daemon's own limit of a page.
const PAGE: u32 = 500;

/// The most conversations in one picture: far more than anyone can read.
const LARGEST_FAMILY: usize = 1_000;

/// What `--json` prints for each conversation of the tree.
#[derive(Serialize)]
struct Member<'a> {
    conversation: &'a Conversation,
    links: &'a [Link],
    entries: &'a [LineageEntry],
    /// The steps of its current history, oldest first; absent where they cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoints: Option<&'a [Checkpoint]>,
    #[serde(rename = "askedFor")]
    asked_for: bool,
}

/// Draws the conversation's links and forks.
pub(in crate::cli) async fn tree(context: &mut Context<'_>, word: &str) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, word).await?;
    let asked_for = daemon
        .call(method::GetConversation {
            conversation_id: conversation,
        })
        .await?
        .conversation;
    let trunk = trunk(&daemon, asked_for.clone()).await?;
    let mut family = gather(&daemon, trunk.conversation).await?;
    if family.conversation.id != asked_for.id {
        mark(&mut family, asked_for.id);
    }
    remember(context, &daemon, &mut family).await?;
    if context.output.json {
        return print_members(context, &family, asked_for.id).map(|()| Exit::Done);
    }
    let look = context.output.look;
    if let Some(parent) = trunk.gone {
        let line = format!("conversation {} (deleted)", words::short_id(parent));
        context.output.line(&look.paint(DIM, &line))?;
    }
    for line in draw(&family, look) {
        context.output.line(&line)?;
    }
    Ok(Exit::Done)
}

/// Where a family begins.
struct Trunk {
    /// The first conversation that is still there.
    conversation: Conversation,
    /// The deleted one that it branched off.
    gone: Option<ConversationId>,
}

/// Climbs from a fork to the conversation that everything came from.
async fn trunk(daemon: &Daemon, mut conversation: Conversation) -> Outcome<Trunk> {
    for _ in 0..LARGEST_FAMILY {
        let Some(parent) = conversation.parent.as_ref() else {
            break;
        };
        let parent = parent.conversation_id;
        match daemon
            .call(method::GetConversation {
                conversation_id: parent.into(),
            })
            .await
            .map_err(Problem::from)
        {
            Ok(answer) => conversation = answer.conversation,
            Err(problem) if problem.exit == Exit::NotFound => {
                return Ok(Trunk {
                    conversation,
                    gone: Some(parent),
                });
            }
            Err(problem) => return Err(problem),
        }
    }
    Ok(Trunk {
        conversation,
        gone: None,
    })
}

/// Marks the conversation that was asked for.
fn mark(family: &mut Family, id: ConversationId) {
    family.asked_for = family.conversation.id == id;
    for fork in &mut family.forks {
        mark(fork, id);
    }
}

/// The conversation with everything that branched off it.
///
/// # Errors
/// What the daemon answers.
pub(in crate::cli) async fn gather(daemon: &Daemon, root: Conversation) -> Outcome<Family> {
    let mut by_parent = forks_by_parent(daemon).await?;
    // Each conversation is visited once: it is taken out of the map when its parent is.
    let mut visited = vec![root];
    let mut families = Vec::new();
    while let Some(conversation) = visited.pop() {
        if families.len() == LARGEST_FAMILY {
            break;
        }
        visited.extend(by_parent.remove(&conversation.id).unwrap_or_default());
        families.push(member(daemon, conversation).await?);
    }
    // Later ones are further down, so that putting each into its parent from the end keeps whole branches together.
    while families.len() > 1 {
        let Some(child) = families.pop() else { break };
        let parent = child
            .conversation
            .parent
            .as_ref()
            .map(|parent| parent.conversation_id);
        let place = families
            .iter_mut()
            .find(|family| Some(family.conversation.id) == parent);
        if let Some(parent) = place {
            parent.forks.push(child);
            parent.forks.sort_by_key(|fork| fork.conversation.created_at);
        }
    }
    families
        .pop()
        .ok_or_else(|| Problem::new(Exit::NotFound, "the conversation has gone"))
}

async fn forks_by_parent(daemon: &Daemon) -> Outcome<BTreeMap<ConversationId, Vec<Conversation>>> {
    let mut by_parent: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut cursor = None;
    loop {
        let page = daemon
            .call(method::ListConversations {
                cursor: cursor.take(),
                limit: Some(PAGE),
                ..Default::default()
            })
            .await?;
        let empty = page.conversations.is_empty();
        for conversation in page.conversations {
            if let Some(parent) = &conversation.parent {
                by_parent
                    .entry(parent.conversation_id)
                    .or_default()
                    .push(conversation);
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() || empty {
            return Ok(by_parent);
        }
    }
}

async fn member(daemon: &Daemon, conversation: Conversation) -> Outcome<Family> {
    let links = daemon
        .call(method::Chain {
            conversation_id: conversation.id.into(),
        })
        .await?
        .links;
    let mut entries = Vec::new();
    let mut cursor = None;
    loop {
        let page = daemon
            .call(method::Lineage {
                conversation_id: conversation.id.into(),
                cursor: cursor.take(),
                limit: Some(super::look::LINEAGE_PAGE),
            })
            .await?;
        let empty = page.entries.is_empty();
        entries.extend(page.entries);
        cursor = page.next_cursor;
        if cursor.is_none() || empty {
            break;
        }
    }
    Ok(Family {
        conversation,
        links,
        entries,
        checkpoints: None,
        forks: Vec::new(),
        asked_for: false,
    })
}

/// Puts the steps of each conversation to it. One whose history cannot be read is drawn without, and that is said.
async fn remember(context: &mut Context<'_>, daemon: &Daemon, family: &mut Family) -> Outcome {
    let mut left = vec![family];
    while let Some(family) = left.pop() {
        let id = family.conversation.id;
        match steps(context, daemon, id).await {
            Ok(steps) => family.checkpoints = Some(steps),
            Err(problem) if problem.exit == Exit::NoDaemon => return Err(problem),
            Err(problem) => {
                let look = context.output.note_look;
                let mark = look.paint(
                    ATTENTION,
                    &format!("without the steps of {}:", words::short_id(id)),
                );
                context.output.note(&format!(
                    "{mark} {}",
                    one_line(problem.message.as_deref().unwrap_or_default())
                ))?;
            }
        }
        left.extend(family.forks.iter_mut());
    }
    Ok(())
}

/// All steps of a conversation's current history, oldest first.
async fn steps(context: &Context<'_>, daemon: &Daemon, id: ConversationId) -> Outcome<Vec<Checkpoint>> {
    let mut steps = Vec::new();
    let mut before = None;
    loop {
        let call = daemon.call(method::Checkpoints {
            conversation_id: id.into(),
            before: before.take(),
            limit: Some(CHECKPOINT_PAGE),
        });
        let page = watched(context.output, daemon, "conversation/checkpoints", call).await?;
        let oldest = page.checkpoints.last().filter(|oldest| oldest.step > 1);
        before = oldest.map(|oldest| oldest.id.clone());
        steps.extend(page.checkpoints);
        if before.is_none() {
            steps.reverse();
            return Ok(steps);
        }
    }
}

fn print_members(context: &mut Context<'_>, family: &Family, asked_for: ConversationId) -> Outcome {
    let member = Member {
        conversation: &family.conversation,
        links: &family.links,
        entries: &family.entries,
        checkpoints: family.checkpoints.as_deref(),
        asked_for: family.conversation.id == asked_for,
    };
    let json =
        serde_json::to_string(&member).map_err(|error| Problem::new(Exit::Failed, error.to_string()))?;
    context.output.line(&json)?;
    for fork in &family.forks {
        print_members(context, fork, asked_for)?;
    }
    Ok(())
}

//! `ls`: conversations as aligned columns.

use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::method;
use clap::Args;
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr;

use super::{Context, this_folder};
use crate::cli::exit::Exit;
use crate::cli::output::{DIM, Look, STRONG, cut, one_line, pad};
use crate::cli::problem::Outcome;
use crate::cli::words;

/// List conversations, newest first
///
/// Columns: id prefix, time of the last change, state, agent and title.
#[derive(Debug, Args)]
pub(in crate::cli) struct List {
    /// List only conversations of this folder
    #[arg(long)]
    pub(in crate::cli) here: bool,
    /// List only conversations of this agent
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) agent: Option<String>,
    /// List only conversations with this text in title or folder
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) query: Option<String>,
    /// Maximum number of entries
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) limit: u32,
    /// Print full ids and folders
    #[arg(long, short)]
    pub(in crate::cli) long: bool,
}

/// The most that is asked for at once; the daemon's own limit of a page.
const PAGE: u32 = 500;

/// The least that a title needs to be told from others.
const TITLE_COLUMNS: usize = 8;

/// Lists conversations, newest first.
pub(in crate::cli) async fn list(context: &mut Context<'_>, options: List) -> Outcome<Exit> {
    let cwd = if options.here { Some(this_folder()?) } else { None };
    let daemon = context.connect().await?;
    let mut conversations = Vec::new();
    let mut cursor = None;
    let mut left = options.limit;
    loop {
        let page = daemon
            .call(method::ListConversations {
                agent: options.agent.clone().map(Into::into),
                cwd: cwd.clone(),
                query: options.query.clone(),
                cursor: cursor.take(),
                limit: Some(left.clamp(1, PAGE)),
                ..Default::default()
            })
            .await?;
        if context.output.json {
            context.answer(&daemon, "conversation/list")?;
        }
        let got = u32::try_from(page.conversations.len()).unwrap_or(u32::MAX);
        left = left.saturating_sub(got);
        conversations.extend(page.conversations);
        cursor = page.next_cursor;
        if left == 0 || cursor.is_none() || got == 0 {
            break;
        }
    }
    if context.output.json {
        return Ok(Exit::Done);
    }
    let lines = table(
        &conversations,
        Timestamp::now(),
        options.long,
        context.output.look,
    );
    for line in lines {
        context.output.line(&line)?;
    }
    if conversations.is_empty() {
        context
            .output
            .note("no conversations; sessionctl new makes one")?;
    } else if cursor.is_some() {
        context.output.note("there are more; -n COUNT shows them")?;
    }
    Ok(Exit::Done)
}

/// One line a conversation, columns aligned, cut to the terminal's width where there is one.
fn table(conversations: &[Conversation], now: Timestamp, long: bool, look: Look) -> Vec<String> {
    let rows: Vec<[String; 5]> = conversations
        .iter()
        .map(|conversation| {
            let id = if long {
                conversation.id.to_string()
            } else {
                words::short_id(conversation.id)
            };
            let title = one_line(&conversation.title);
            let title = if long {
                format!("{}  {title}", one_line(&conversation.cwd))
            } else if title.is_empty() {
                // Without a title the folder says most about it.
                one_line(&conversation.cwd)
            } else {
                title
            };
            [
                id,
                words::age(conversation.updated_at, now),
                state_with_line(conversation),
                one_line(conversation.agent.as_str()),
                title,
            ]
        })
        .collect();
    let mut widths = [0; 4];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    // On a narrow terminal the agent's name goes first: most people have one agent.
    let taken = |widths: &[usize]| -> usize { widths.iter().map(|width| width + 2).sum() };
    let narrow = look
        .columns
        .is_some_and(|columns| columns < taken(&widths) + TITLE_COLUMNS);
    let taken = taken(if narrow { &widths[..3] } else { &widths });
    rows.iter()
        .map(|row| {
            let [id, age, state, agent, title] = row;
            let title = match look.columns {
                Some(columns) => cut(title, columns.saturating_sub(taken), look),
                None => title.clone(),
            };
            let agent = if narrow {
                String::new()
            } else {
                format!("{}  ", look.paint(DIM, &pad(agent, widths[3])))
            };
            let line = format!(
                "{}  {}  {}  {agent}{title}",
                look.paint(STRONG, &pad(id, widths[0])),
                look.paint(DIM, &pad(age, widths[1])),
                pad(state, widths[2]),
            );
            line.trim_end().to_owned()
        })
        .collect()
}

/// The state, and how many prompts wait in line.
fn state_with_line(conversation: &Conversation) -> String {
    let state = words::state(conversation.state);
    match conversation.queue.len() {
        0 => state.to_owned(),
        waiting => format!("{state} +{waiting}"),
    }
}

#[cfg(test)]
mod tests {
    use bridge_protocol::conversation::{Conversation, ConversationState, QueuedPrompt, Settings};

    use super::{Look, table};

    fn conversation(title: &str, updated_at: &str, state: ConversationState) -> Conversation {
        Conversation {
            id: "5d0c2a4e-7f61-4b0a-9c36-1e2f3a4b5c6d".parse().unwrap(),
            namespace: String::new(),
            agent: "loopback".into(),
            cwd: "/home/u/project".to_owned(),
            title: title.to_owned(),
            state,
            live: false,
            head: None,
            chain_length: 0,
            parent: None,
            settings: Settings::default(),
            limit: None,
            interrupts: Vec::new(),
            queue: Vec::new(),
            failure: None,
            cut_short: false,
            continuation: None,
            created_at: updated_at.parse().unwrap(),
            updated_at: updated_at.parse().unwrap(),
            revision: 1,
        }
    }

    fn conversations() -> Vec<Conversation> {
        vec![
            conversation("日本語の題名", "2026-11-03T11:59:30Z", ConversationState::Idle),
            conversation("", "2026-11-03T10:00:00Z", ConversationState::Interrupted),
        ]
    }

    #[test]
    fn columns_are_aligned() {
        let now = "2026-11-03T12:00:00Z".parse().unwrap();
        assert_eq!(
            table(&conversations(), now, false, Look::default()),
            [
                "5d0c2a4e  30 s  idle         loopback  日本語の題名",
                "5d0c2a4e  2 h   interrupted  loopback  /home/u/project",
            ]
        );
    }

    #[test]
    fn what_waits_in_line_is_counted() {
        let mut conversations = conversations();
        conversations[0].state = ConversationState::Prompting;
        conversations[0].queue = ["a", "b"].map(waiting).to_vec();
        let now = "2026-11-03T12:00:00Z".parse().unwrap();
        assert_eq!(
            table(&conversations, now, false, Look::default()),
            [
                "5d0c2a4e  30 s  prompting +2  loopback  日本語の題名",
                "5d0c2a4e  2 h   interrupted   loopback  /home/u/project",
            ]
        );
    }

    fn waiting(turn: &str) -> QueuedPrompt {
        QueuedPrompt {
            turn_id: turn.into(),
            queued_at: "2026-11-03T11:59:40Z".parse().unwrap(),
            held: false,
        }
    }

    #[test]
    fn a_narrow_terminal_shows_titles_rather_than_agents() {
        let now = "2026-11-03T12:00:00Z".parse().unwrap();
        let look = Look {
            columns: Some(40),
            ..Look::default()
        };
        assert_eq!(
            table(&conversations(), now, false, look),
            [
                "5d0c2a4e  30 s  idle         日本語の題~",
                "5d0c2a4e  2 h   interrupted  /home/u/pr~",
            ]
        );
    }

    #[test]
    fn titles_are_cut_to_the_terminal() {
        let now = "2026-11-03T12:00:00Z".parse().unwrap();
        let look = Look {
            columns: Some(48),
            ..Look::default()
        };
        assert_eq!(
            table(&conversations(), now, false, look),
            [
                "5d0c2a4e  30 s  idle         loopback  日本語の~",
                "5d0c2a4e  2 h   interrupted  loopback  /home/u/~",
            ]
        );
    }
}

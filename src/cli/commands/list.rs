//! Lists: `ls` has the conversations, those of this folder first, `transcripts` the agents' files on this machine.

use std::collections::{BTreeSet, HashMap, HashSet};

use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::method;
use bridge_protocol::transcript::Transcript;
use clap::Args;
use serde_json::{Value, json};

use super::{Context, Filter, check_folder, collect_pages, this_folder, wire_words};
use crate::cli::connect::Daemon;
use crate::cli::event_stream::snapshot;
use crate::cli::humanize::{self, Clock};
use crate::cli::output::{ATTENTION, BAD, DIM, GOOD, Look, STRONG, one_line, truncate};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::table::{Cell, Table, dim, left, plain, right};
use crate::cli::talk::turn::is_running;

/// The states that `--state` accepts, by their names in the wire contract.
const STATES: [(&str, &str); 8] = [
    ("idle", "No turn is running"),
    ("prompting", "A turn is running"),
    ("awaiting", "A turn waits for your answer to a question"),
    ("cancelling", "A cancelled turn has not ended yet"),
    ("limited", "The last prompt hit a usage limit"),
    ("interrupted", "A turn was cut short, or a queued prompt is held"),
    ("moving", "The conversation is being moved to another folder"),
    (
        "failed",
        "The conversation could not continue; the next prompt tries again",
    ),
];

/// How many columns are shown of a fork's title if other conversations have the same title.
const FORK_TITLE_COLUMNS: usize = 40;

/// `ls`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each word must be in the title, the folder or the agent, in any case, or begin the id; the word . means this folder. What was said \
is not searched; the picker also finds the last prompt.

Examples:
  sessionctl ls
  sessionctl ls build claude
  sessionctl ls --state limited")]
pub(in crate::cli) struct List {
    #[command(flatten)]
    filter: Filter,
    /// List only conversations in this state
    #[arg(long, value_name = "STATE", value_parser = wire_words::<ConversationState>(&STATES))]
    state: Option<ConversationState>,
}

/// Lists conversations, newest first, those of this folder before the others.
pub(in crate::cli) async fn list(context: &mut Context<'_>, options: List) -> CommandResult {
    let mut options = options;
    options.filter.expand_dot()?;
    let (most, query) = (options.filter.max_entries(), options.filter.query());
    let state = options.state.map(|state| json!(state));
    let state = state.as_ref().and_then(Value::as_str);
    let state = state.map_or_else(String::new, |state| format!("--state {state} "));
    let all = format!("sessionctl ls {state}{}", options.filter.for_all());
    let wanted = method::ListConversations {
        query,
        agent: options.filter.agent.map(Into::into),
        cwd: options.filter.cwd,
        state: options.state,
        ..Default::default()
    };
    let daemon = context.connect().await?;
    if context.output.json {
        let page = async |cursor, limit| {
            let page = method::ListConversations {
                cursor,
                limit,
                ..wanted.clone()
            };
            let page = context.call_and_print(&daemon, page).await?;
            Ok((page.conversations, page.next_cursor))
        };
        return collect_pages(most, page).await.map(drop);
    }
    let (mut listed, has_more) = list_here_first(&daemon, &wanted, most).await?;
    fill_titles_from_prompts(&daemon, &mut listed).await;
    if listed.is_empty() {
        check_filters(&daemon, &wanted).await?;
    }
    let if_empty = match wanted == method::ListConversations::default() {
        true => "no conversations yet; create one: sessionctl new",
        false => "no conversation matches; list all: sessionctl ls --all",
    };
    let output = &mut *context.output;
    output.table(&table(&listed, output.look), if_empty)?;
    if has_more {
        let shown = listed.len();
        output.note(&format!("{shown} shown; list all: {all}"))?;
    }
    Ok(())
}

/// Checks the filters of an empty list: fails if the agent or the folder does not exist.
async fn check_filters(daemon: &Daemon, wanted: &method::ListConversations) -> CommandResult {
    if let Some(agent) = &wanted.agent {
        let agents = daemon.call(method::ListAgents::default()).await?.agents;
        if !agents.iter().any(|known| known.name == *agent) {
            let known: Vec<&str> = agents.iter().map(|known| known.name.as_str()).collect();
            let (named, known) = (one_line(agent.as_str()), one_line(&known.join(", ")));
            let message = format!("there is no agent \"{named}\"; the agents are: {known}");
            return Err(Problem::new(Exit::NotFound, message).hint("sessionctl agents lists them"));
        }
    }
    check_folder(wanted.cwd.as_deref(), "sessionctl ls")
}

/// Requests conversations, those of this folder before the others, and returns whether there are more.
pub(in crate::cli) async fn list_here_first(
    daemon: &Daemon,
    wanted: &method::ListConversations,
    most: usize,
) -> CommandResult<(Vec<Conversation>, bool)> {
    let of = async |folder: Option<String>, most| {
        collect_pages(most, async |cursor, limit| {
            let call = method::ListConversations {
                cursor,
                limit,
                cwd: folder.clone(),
                ..wanted.clone()
            };
            let page = daemon.call(call).await?;
            Ok((page.conversations, page.next_cursor))
        })
        .await
    };
    // If the current folder was deleted, no conversation runs in it.
    let (Ok(here), None) = (this_folder(), &wanted.cwd) else {
        return of(wanted.cwd.clone(), most).await;
    };
    let (mut listed, has_more) = of(Some(here), most).await?;
    if has_more {
        return Ok((listed, true));
    }
    let (all, has_more) = of(None, most.saturating_add(listed.len())).await?;
    let here: HashSet<_> = listed.iter().map(|one| one.id).collect();
    listed.extend(all.into_iter().filter(|one| !here.contains(&one.id)));
    let is_cut = listed.len() > most;
    listed.truncate(most);
    Ok((listed, has_more || is_cut))
}

/// Uses the prompt of a running first turn as the title. The conversation gets its title when that turn ends.
async fn fill_titles_from_prompts(daemon: &Daemon, listed: &mut [Conversation]) {
    let untitled = listed.iter_mut().filter(|one| one.title.trim().is_empty());
    for one in untitled.filter(|one| is_running(one.state)) {
        // If the prompt cannot be read, the title stays empty.
        if let Ok((_, Some(running))) = snapshot(daemon, one.id).await
            && let Some(prompt) = running.prompt.texts().next()
        {
            one.title = one_line(&prompt);
        }
    }
}

/// Conversations as a table.
pub(in crate::cli) fn table(conversations: &[Conversation], look: Look) -> Table {
    let clock = Clock::here();
    let ids: Vec<String> = conversations.iter().map(|one| one.id.to_string()).collect();
    let mut table = Table::new([
        left("ID"),
        right("UPDATED").optional(),
        left("STATE"),
        left("AGENT").optional(),
        left("FOLDER").optional(),
        left("TITLE"),
    ]);
    let mut titled: HashMap<&str, u32> = HashMap::new();
    for one in conversations {
        *titled.entry(one.title.trim()).or_default() += 1;
    }
    for (one, id) in conversations.iter().zip(humanize::distinct_short_ids(&ids, look)) {
        let title = match one.title.trim() {
            "" => dim(title_placeholder(one, look)),
            // Several forks of one conversation have the same title.
            title if titled[title] > 1 && one.parent.is_some() && look.columns.is_some() => {
                let title = truncate(&one_line(title), FORK_TITLE_COLUMNS, look);
                plain(format!("{title}, forked {}", clock.exact(one.created_at)))
            }
            title => plain(title),
        };
        table.row([
            (id, STRONG),
            dim(clock.age_or_date(one.updated_at, look)),
            state_cell(one, &clock),
            dim(one.agent.as_str()),
            dim(humanize::path(&one.cwd, look)),
            title,
        ]);
    }
    table
}

/// The text that replaces a missing title on a terminal: the folder, or a description of the conversation. It is empty if the
/// output is not a terminal.
fn title_placeholder(one: &Conversation, look: Look) -> String {
    let folder = humanize::path(&one.cwd, look);
    match &one.parent {
        _ if look.columns.is_none() => String::new(),
        Some(parent) => format!(
            "{folder} (fork of {})",
            humanize::short_id(parent.conversation_id)
        ),
        None if is_empty(one) => "(no prompt yet)".to_owned(),
        None => folder,
    }
}

/// Whether the conversation has no session yet.
fn is_empty(one: &Conversation) -> bool {
    one.head.is_none() && one.chain_length == 0
}

/// The cell with the state and what the conversation waits for.
fn state_cell(one: &Conversation, clock: &Clock) -> Cell {
    let resets_at = one.limit.as_ref().and_then(|limit| limit.resets_at);
    let resets_at = resets_at.filter(|at| *at > clock.now);
    let continues = one
        .continuation
        .as_ref()
        .map(|next| format!("continues {}", clock.short(next.at)));
    let asked = one.interrupts.len() as u64;
    let is_cut = humanize::is_idle_after_cut(one);
    let notes = [
        is_cut.then(|| "cut short".to_owned()),
        continues.or_else(|| resets_at.map(|at| format!("until {}", clock.short(at)))),
        (asked > 0).then(|| humanize::count(asked, "question", "questions")),
        (!one.queue.is_empty()).then(|| format!("{} queued", one.queue.len())),
    ];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    let style = match one.state {
        _ if asked > 0 || is_cut => ATTENTION,
        ConversationState::Idle => DIM,
        ConversationState::Failed => BAD,
        ConversationState::Prompting | ConversationState::Moving => GOOD,
        _ => ATTENTION,
    };
    let state = humanize::wire_name(one.state);
    match notes.is_empty() {
        true => (state, style),
        false => (format!("{state} ({})", notes.join(", ")), style),
    }
}

/// Lists transcripts, newest first.
pub(in crate::cli) async fn transcripts(context: &mut Context<'_>, filter: Filter) -> CommandResult {
    let (most, query, all) = (filter.max_entries(), filter.query(), filter.for_all());
    let wanted = method::ListTranscripts {
        query,
        agent: filter.agent.map(Into::into),
        cwd: filter.cwd,
        ..Default::default()
    };
    let daemon = context.connect().await?;
    // Each page repeats the unreadable files; only the first page reports unwatched folders.
    let (mut unreadable, mut unwatched) = (BTreeSet::new(), Vec::new());
    let (listed, has_more) = collect_pages(most, async |cursor, limit| {
        let call = method::ListTranscripts {
            cursor,
            limit,
            ..wanted.clone()
        };
        let page = context.call_and_print(&daemon, call).await?;
        unreadable.extend(page.unreadable);
        unwatched.extend(page.unwatched);
        Ok((page.transcripts, page.next_cursor))
    })
    .await?;
    if listed.is_empty() && !context.output.json {
        check_folder(wanted.cwd.as_deref(), "sessionctl transcripts")?;
    }
    let if_empty = match wanted == method::ListTranscripts::default() {
        true => "no transcripts; sessionctl doctor shows which folders are searched",
        false => "no transcript matches; list all: sessionctl transcripts --all",
    };
    let mut notes = Vec::new();
    for path in unreadable {
        let path = one_line(&path);
        notes.push(format!(
            "{path} could not be read; its transcripts are not listed"
        ));
    }
    for root in unwatched {
        let (path, problem) = (one_line(&root.path), one_line(&root.problem));
        notes.push(format!("changes in {path} cannot be watched: {problem}"));
    }
    let output = &mut *context.output;
    output.table(&transcripts_table(&listed, output.look), if_empty)?;
    notes.iter().try_for_each(|note| output.note(note))?;
    if has_more {
        let shown = listed.len();
        output.note(&format!("{shown} shown; list all: sessionctl transcripts {all}"))?;
    }
    Ok(())
}

/// Transcripts as a table.
fn transcripts_table(transcripts: &[Transcript], look: Look) -> Table {
    let clock = Clock::here();
    let ids: Vec<&str> = transcripts.iter().map(|one| one.upstream_id.as_str()).collect();
    let owners = transcripts
        .iter()
        .map(|one| one.conversation_id.map(|id| id.to_string()).unwrap_or_default());
    let owners: Vec<String> = owners.collect();
    let mut files: HashMap<_, u32> = HashMap::new();
    for one in transcripts {
        *files.entry((&one.agent, &one.upstream_id)).or_default() += 1;
    }
    let mut table = Table::new([
        left("SESSION"),
        right("UPDATED"),
        right("SIZE"),
        left("AGENT").optional(),
        left("CONVERSATION"),
        left("FOLDER").optional(),
        left("TITLE"),
    ]);
    let names = humanize::distinct_short_ids(&ids, look)
        .into_iter()
        .zip(humanize::distinct_short_ids(&owners, look));
    for (one, (id, owner)) in transcripts.iter().zip(names) {
        // Only the path distinguishes the files of one session.
        let path = match files[&(&one.agent, &one.upstream_id)] {
            1 => String::new(),
            _ => format!(" ({})", humanize::path(&one.path, look)),
        };
        table.row([
            (id, STRONG),
            dim(clock.age_or_date(one.updated_at, look)),
            plain(humanize::size(one.bytes)),
            dim(one.agent.as_str()),
            dim(if owner.is_empty() { "-".to_owned() } else { owner }),
            dim(humanize::path(&one.cwd, look)),
            plain(transcript_text(one, look) + &path),
        ]);
    }
    table
}

/// The most descriptive text of a transcript: its title, otherwise, on a terminal, its folder or its file.
fn transcript_text(transcript: &Transcript, look: Look) -> String {
    if look.columns.is_none() {
        return one_line(&transcript.title);
    }
    let texts = [&transcript.title, &transcript.cwd, &transcript.path].map(|text| one_line(text));
    let mut texts = texts.into_iter().filter(|text| !text.is_empty());
    texts.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    #[test]
    fn a_limit_is_shown_until_it_resets() {
        let one: Conversation = serde_json::from_value(serde_json::json!({
            "id": "5d0c2a4e-7f61-4b0a-9c36-1e2f3a4b5c6d", "namespace": "", "agent": "claude", "cwd": "/", "title": "",
            "state": "limited", "live": false, "chainLength": 1, "settings": {}, "interrupts": [], "revision": 1,
            "limit": {"kind": "rateLimited", "resetsAt": "2026-11-03T12:00:00Z"},
            "createdAt": "2026-11-03T09:00:00Z", "updatedAt": "2026-11-03T10:00:00Z"}))
        .unwrap();
        for (now, state) in [("11:00", "limited (until 12:00)"), ("12:00", "limited")] {
            let now = format!("2026-11-03T{now}:00Z").parse().unwrap();
            let clock = Clock {
                now,
                zone: TimeZone::UTC,
            };
            assert_eq!(state_cell(&one, &clock).0, state);
        }
    }
}

//! Commands that show details: `show`, `chain`, `lineage`, `tree`, `agents`, `status`.

use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::link::LineageEntry;
use bridge_protocol::{ConversationId, method};

use super::{Context, PAGE_ENTRIES, collect_pages, has_real_agent, turns};
use crate::cli::connect::Daemon;
use crate::cli::event_stream::snapshot;
use crate::cli::humanize::{self, Clock};
use crate::cli::output::{ATTENTION, BAD, DIM, GOOD, STRONG, one_line, truncate};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::prompt_text::readable_prompt;
use crate::cli::select::ConversationArgs;
use crate::cli::table::{Table, dim, left, plain, right, wrapped};
use crate::cli::talk::question;
use crate::cli::talk::turn::is_running;
use crate::cli::tree::{TreeConversation, draw};

/// How many columns are shown of a scheduled or queued text: enough to recognize it.
const SHOWN_TEXT_COLUMNS: usize = 60;

/// Prints names and values, one pair per line. Empty values are omitted.
fn print_facts<const N: usize>(context: &mut Context<'_>, facts: [(&str, String); N]) -> CommandResult {
    for (name, value) in facts.into_iter().filter(|(_, value)| !value.is_empty()) {
        let name = context.output.look.paint(DIM, &format!("{name:<10}"));
        let fact = format!("{name} {}", one_line(&value));
        context.output.line(&context.output.look.wrap(&fact, 11))?;
    }
    Ok(())
}

/// Shows one conversation.
pub(in crate::cli) async fn show(context: &mut Context<'_>, target: ConversationArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(target.name()).await?;
    context
        .call_and_print(&daemon, method::GetConversation::of(conversation.id))
        .await?;
    let parent = parent(&daemon, &conversation).await;
    show_facts(context, &conversation, parent)?;
    let look = context.output.look;
    let continuing = match conversation.state {
        // An imported copy has the limit, but nothing to continue.
        _ if !conversation.cut_short || !conversation.interrupts.is_empty() => None,
        state if is_running(state) => None,
        ConversationState::Limited if conversation.continuation.is_some() => None,
        ConversationState::Limited => Some("--at-reset"),
        _ => Some(""),
    };
    if let Some(options) = continuing.filter(|_| !context.output.json) {
        let command = context.output.advice(conversation.id).continue_turn(options);
        context.output.note_dim(&format!("Continue with: {command}"))?;
    }
    if conversation.interrupts.is_empty() || context.output.json {
        return Ok(());
    }
    // Omitted if it cannot be read.
    let (_, running) = snapshot(&daemon, conversation.id).await.unwrap_or_default();
    let updates = running.map(|running| running.updates).unwrap_or_default();
    for interrupt in &conversation.interrupts {
        let lines = question::lines(interrupt, &conversation.cwd, &updates);
        context.output.verbatim(&lines.join("\n"))?;
        let how = question::command(&context.output.advice(conversation.id), interrupt);
        let how = context.output.with_daemon_options(&how);
        let line = look.paint(ATTENTION, &format!("  {how}"));
        context.output.line(&line)?;
    }
    Ok(())
}

/// The conversation that this one was forked from: its id and title, and the turn after which it was forked. Parts that cannot
/// be read are omitted.
async fn parent(daemon: &Daemon, conversation: &Conversation) -> String {
    let Some(parent) = &conversation.parent else {
        return String::new();
    };
    let title = match daemon
        .call(method::GetConversation::of(parent.conversation_id))
        .await
    {
        Ok(answer) => Some(answer.conversation.title),
        Err(problem) => problem.detail("deletedAt").map(|_| "(deleted)".to_owned()),
    };
    let title = title
        .map(|title| one_line(&title))
        .filter(|title| !title.is_empty());
    let mut named = parent.conversation_id.to_string();
    named.extend(title.map(|title| format!(" {title}")));
    if let Some(checkpoint_id) = parent.checkpoint_id.clone() {
        let get = method::GetCheckpoint {
            checkpoint_id,
            ..Default::default()
        };
        let step = daemon.call(get).await.ok().map(|answer| answer.checkpoint.step);
        named.extend(step.map(|step| format!(", after turn {step}")));
    }
    named
}

fn show_facts(context: &mut Context<'_>, conversation: &Conversation, parent: String) -> CommandResult {
    let clock = Clock::here();
    let head = match &conversation.head {
        Some(head) => {
            let links = humanize::count(conversation.chain_length as u64, "session", "sessions");
            format!("{head} (last of {links})")
        }
        None => "none yet; the next prompt starts one".to_owned(),
    };
    let limit = conversation.limit.as_ref().map(|limit| {
        let resets = limit
            .resets_at
            .map(|at| format!(", resets at {}", clock.time_and_distance(at)));
        format!("{}{}", humanize::failure(limit.kind), resets.unwrap_or_default())
    });
    let continues = conversation.continuation.as_ref().map(|next| {
        let text = next.text.as_deref().map(|text| {
            let text = truncate(&one_line(text), SHOWN_TEXT_COLUMNS, context.output.look);
            format!(", with: {text}")
        });
        let tries = Some(next.attempts).filter(|tries| *tries > 0);
        let tries = tries.map(|tries| format!(", attempts so far: {tries}"));
        let at = clock.time_and_distance(next.at);
        [at, tries.unwrap_or_default(), text.unwrap_or_default()].concat()
    });
    let queue = conversation.queue.iter().map(|waiting| {
        let held = if waiting.held { ", held" } else { "" };
        let turn = humanize::short(waiting.turn_id.as_str());
        let text = one_line(&readable_prompt(&waiting.prompt));
        let text = truncate(&text, SHOWN_TEXT_COLUMNS, context.output.look);
        // A picture has no text.
        let text = if text.is_empty() {
            text
        } else {
            format!(": {text}")
        };
        format!("turn {turn} for {}{held}{text}", clock.age(waiting.queued_at))
    });
    let open = if conversation.live { ", session open" } else { "" };
    let cut_short = match humanize::is_idle_after_cut(conversation) {
        true => ", last turn cut short",
        false => "",
    };
    let facts = [
        ("id", conversation.id.to_string()),
        ("title", conversation.title.clone()),
        (
            "state",
            format!("{}{cut_short}{open}", humanize::wire_name(conversation.state)),
        ),
        ("agent", conversation.agent.to_string()),
        ("folder", conversation.cwd.clone()),
        ("namespace", conversation.namespace.clone()),
        ("model", conversation.settings.model.clone().unwrap_or_default()),
        ("mode", conversation.settings.mode.clone().unwrap_or_default()),
        ("session", head),
        ("parent", parent),
        ("failure", conversation.failure.clone().unwrap_or_default()),
        ("limit", limit.unwrap_or_default()),
        ("continues", continues.unwrap_or_default()),
        ("queued", queue.collect::<Vec<String>>().join("; ")),
        ("changed", format!("{} ago", clock.age(conversation.updated_at))),
        ("created", format!("{} ago", clock.age(conversation.created_at))),
    ];
    print_facts(context, facts)
}

/// Printed if a conversation has no session.
const NO_SESSIONS: &str = "no sessions yet; the next prompt starts one";

/// Lists the upstream sessions of the chain, oldest first.
pub(in crate::cli) async fn chain(context: &mut Context<'_>, target: ConversationArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(target.name()).await?;
    let links = context
        .call_and_print(&daemon, method::Chain::of(conversation.id))
        .await?
        .links;
    let clock = Clock::here();
    let look = context.output.look;
    let ids: Vec<&str> = links.iter().map(|link| link.upstream_id.as_str()).collect();
    if context.output.json {
        return Ok(());
    }
    let log = lineage_entries(context, &daemon, conversation.id).await?;
    let undone = humanize::sessions_left_by_undo(&log);
    let mut table = Table::new([left("SESSION"), right("MADE"), left("NOW"), wrapped("ORIGIN")]);
    for (index, (link, id)) in links
        .iter()
        .zip(humanize::distinct_short_ids(&ids, look))
        .enumerate()
    {
        let cause = link
            .cause
            .map(|cause| format!(", cause {}", humanize::cause(cause)));
        let from = link.from_upstream_id.as_ref();
        let from = from.map(|from| format!(", from {}", humanize::short(from.as_str())));
        let turns = match link.written {
            true => humanize::session_turns(link.carried_turns, link.turns),
            false => humanize::no_turns(link.carried_turns),
        };
        let now = match undone.contains(&link.upstream_id) {
            _ if index + 1 == links.len() => ("head".to_owned(), GOOD),
            true => dim("undone"),
            false => plain(""),
        };
        let origin = [
            humanize::reason(link.reason.into()),
            cause.unwrap_or_default(),
            from.unwrap_or_default(),
            format!(", {turns}"),
        ];
        table.row([
            (id, STRONG),
            dim(clock.age_or_date(link.at, look)),
            now,
            plain(origin.concat()),
        ]);
    }
    context.output.table(&table, NO_SESSIONS)
}

/// Reads the log of all changes to the chain, oldest first, and prints it with `--json`.
pub(in crate::cli) async fn lineage_entries(
    context: &mut Context<'_>,
    daemon: &Daemon,
    id: ConversationId,
) -> CommandResult<Vec<LineageEntry>> {
    let entries = collect_pages(usize::MAX, async |cursor, limit| {
        let page = method::Lineage {
            cursor,
            limit,
            ..method::Lineage::of(id)
        };
        let page = context.call_and_print(daemon, page).await?;
        Ok((page.entries, page.next_cursor))
    });
    entries.await.map(|(entries, _)| entries)
}

/// Lists all changes to the chain, oldest first.
pub(in crate::cli) async fn lineage(context: &mut Context<'_>, target: ConversationArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(target.name()).await?;
    let entries = lineage_entries(context, &daemon, conversation.id).await?;
    let clock = Clock::here();
    let look = context.output.look;
    let ids = entries.iter().map(|entry| match entry.upstream_id.as_str() {
        "" => "-",
        id => id,
    });
    let ids: Vec<&str> = ids.collect();
    let undone = humanize::sessions_left_by_undo(&entries);
    let mut table = Table::new([
        right("SEQ"),
        right("WHEN"),
        left("SESSION"),
        left("NOW"),
        wrapped("CHANGE"),
    ]);
    for (entry, session) in entries.iter().zip(humanize::distinct_short_ids(&ids, look)) {
        let now = match conversation.head.as_ref() {
            Some(head) if *head == entry.upstream_id => ("head".to_owned(), GOOD),
            _ if undone.contains(&entry.upstream_id) => dim("undone"),
            _ => plain(""),
        };
        // The log has the number of turns at the time of the entry. A new session had none, so 0 is not shown.
        let turns = Some(entry.turns).filter(|turns| *turns > 0);
        let origin = humanize::origin(entry, "", turns)
            .into_iter()
            .map(|(_, part)| part);
        let origin: Vec<String> = origin.collect();
        table.row([
            dim(entry.seq.to_string()),
            dim(clock.age_or_date(entry.at, look)),
            (session, STRONG),
            now,
            plain(origin.join(", ")),
        ]);
        for line in humanize::failed_attempts(&entry.attempts) {
            table.row([plain(""), plain(""), plain(""), plain(""), dim(line)]);
        }
    }
    context.output.table(&table, NO_SESSIONS)
}

/// Draws a conversation with its ancestors, sessions and forks.
pub(in crate::cli) async fn tree(context: &mut Context<'_>, target: ConversationArgs) -> CommandResult {
    let (daemon, asked_for) = context.connect_and_select(target.name()).await?;
    let answer = context
        .call_and_print(&daemon, method::TreeOf::of(asked_for.id))
        .await?;
    if context.output.json {
        return Ok(());
    }
    let unread = |of| TreeConversation {
        member: of,
        steps: Vec::new(),
    };
    let mut members: Vec<TreeConversation> = answer.conversations.into_iter().map(unread).collect();
    read_steps(context, &daemon, &mut members).await?;
    let look = context.output.look;
    if let Some(parent) = answer.missing_parent {
        let line = format!("{} (deleted)", humanize::short_id(parent));
        context.output.line(&look.paint(DIM, &line))?;
    }
    let picture = draw(&members, Some(asked_for.id), look);
    context.output.verbatim(&picture.join("\n"))?;
    if answer.truncated {
        context
            .output
            .note("some forks are not shown, because there are too many")?;
    }
    Ok(())
}

/// Reads the newest steps of each conversation. A conversation whose history cannot be read is drawn without steps, with a
/// warning.
async fn read_steps(
    context: &mut Context<'_>,
    daemon: &Daemon,
    members: &mut [TreeConversation],
) -> CommandResult {
    for member in members {
        let id = member.member.conversation.id;
        match turns(daemon, &id.into(), PAGE_ENTRIES).await {
            Ok(newest_first) => member.steps = newest_first.into_iter().rev().collect(),
            Err(problem) if problem.exit == Exit::NoDaemon => return Err(problem),
            Err(problem) => {
                let word = format!("the turns of {} are not shown:", humanize::short_id(id));
                context.output.warning(&word, &problem.text())?;
            }
        }
    }
    Ok(())
}

/// Lists the agents.
pub(in crate::cli) async fn agents(context: &mut Context<'_>) -> CommandResult {
    let daemon = context.connect().await?;
    let agents = context
        .call_and_print(&daemon, method::ListAgents::default())
        .await?
        .agents;
    let mut table = Table::new([
        left("NAME"),
        left("KIND"),
        left("STATUS"),
        left(""),
        left("COMMAND"),
    ]);
    for agent in &agents {
        let (status, style) = match (agent.found, agent.running) {
            (_, true) => ("running", GOOD),
            (true, false) => ("found", DIM),
            (false, false) => ("program not found", BAD),
        };
        table.row([
            (agent.name.to_string(), STRONG),
            plain(agent.kind.as_str()),
            (status.to_owned(), style),
            dim(if agent.default { "default" } else { "" }),
            dim(agent.command.join(" ")),
        ]);
    }
    context.output.table(&table, "")?;
    if !has_real_agent(&agents) {
        context
            .output
            .note("no coding agent was found; sessionctl doctor shows how to install one")?;
    }
    Ok(())
}

/// Shows the state of the daemon. Does not start one, because whether a daemon runs is part of the result.
pub(in crate::cli) async fn status(context: &mut Context<'_>) -> CommandResult {
    let Some(daemon) = context.connector.find().await? else {
        let problem = Problem::no_daemon("the daemon is not running");
        return Err(problem.hint("start it: sessionctl start"));
    };
    let status = context.call_and_print(&daemon, method::Status::default()).await?;
    let uptime = humanize::duration(i64::try_from(status.uptime_seconds).unwrap_or(i64::MAX));
    let store = match status.store.ephemeral {
        true => "in memory only".to_owned(),
        false => format!(
            "{}, journal of {}",
            humanize::count(status.store.sequence, "change", "changes"),
            humanize::size(status.store.journal_bytes)
        ),
    };
    let conversations = humanize::count(status.conversations, "conversation", "conversations");
    let agents = humanize::count(status.agents, "agent process", "agent processes");
    let set_aside = status.store.set_aside;
    let set_aside = set_aside.map(|path| format!("a store that could not be opened: {path}"));
    let failure = status.store.failure;
    let failure = failure.map(|failure| format!("changes are not stored: {failure}"));
    let version = format!("{} (protocol {})", status.version, status.protocol_version);
    let facts = [
        ("version", version),
        ("process", status.pid.to_string()),
        ("running", format!("for {uptime}")),
        ("folder", status.home),
        (
            "holds",
            format!("{conversations}, {} open, {agents}", status.live),
        ),
        ("store", store),
        ("set aside", set_aside.unwrap_or_default()),
        ("failure", failure.unwrap_or_default()),
    ];
    print_facts(context, facts)
}

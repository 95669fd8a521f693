//! Looking at what there is: `show`, `chain`, `lineage`, `agents`, `status`.

use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::link::{LineageEntry, LineageReason, Link};
use bridge_protocol::method;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Context, conversation_ref};
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, DIM, GOOD, STRONG, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::question;
use crate::cli::words;

/// Entries of the lineage that are asked for at once; the daemon's own limit of a page.
pub(super) const LINEAGE_PAGE: u32 = 1_000;

/// Shows one conversation.
pub(in crate::cli) async fn show(context: &mut Context<'_>, word: &str) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, word).await?;
    let answer = daemon
        .call(method::GetConversation {
            conversation_id: conversation,
        })
        .await?;
    if context.output.json {
        context.answer(&daemon, "conversation/get")?;
        return Ok(Exit::Done);
    }
    let look = context.output.look;
    for (name, value) in facts(&answer.conversation, Timestamp::now(), &TimeZone::system()) {
        let name = look.paint(DIM, &format!("{name:<9}"));
        context.output.line(&format!("{name} {value}"))?;
    }
    for interrupt in &answer.conversation.interrupts {
        for line in question::lines(interrupt) {
            context.output.line(&line)?;
        }
        let how = question::command(&words::short_id(answer.conversation.id), interrupt);
        context.output.line(&look.paint(ATTENTION, &format!("  {how}")))?;
    }
    Ok(Exit::Done)
}

fn facts(conversation: &Conversation, now: Timestamp, zone: &TimeZone) -> Vec<(&'static str, String)> {
    let mut facts = vec![("id", conversation.id.to_string())];
    if !conversation.title.is_empty() {
        facts.push(("title", one_line(&conversation.title)));
    }
    let open = if conversation.live {
        ", its session is open"
    } else {
        ""
    };
    facts.push(("state", format!("{}{open}", words::state(conversation.state))));
    facts.push(("agent", one_line(conversation.agent.as_str())));
    facts.push(("folder", one_line(&conversation.cwd)));
    if !conversation.namespace.is_empty() {
        facts.push(("namespace", one_line(&conversation.namespace)));
    }
    if let Some(model) = &conversation.settings.model {
        facts.push(("model", one_line(model)));
    }
    if let Some(mode) = &conversation.settings.mode {
        facts.push(("mode", one_line(mode)));
    }
    let links = words::count(
        u64::try_from(conversation.chain_length).unwrap_or(u64::MAX),
        "link",
        "links",
    );
    let head = match &conversation.head {
        Some(head) => format!("{} ({links})", one_line(head.as_str())),
        None => "none yet; the session starts with the next prompt".to_owned(),
    };
    facts.push(("head", head));
    if let Some(parent) = &conversation.parent {
        facts.push(("parent", parent.conversation_id.to_string()));
    }
    if let Some(failure) = &conversation.failure {
        facts.push(("failure", one_line(failure)));
    }
    if let Some(limit) = &conversation.limit {
        let until = limit.resets_at.map_or_else(String::new, |at| {
            format!(", lifted at {}", words::moment(at, now, zone))
        });
        facts.push(("limit", format!("{}{until}", words::failure(limit.kind))));
    }
    if let Some(continuation) = &conversation.continuation {
        let tried = match continuation.attempts {
            0 => String::new(),
            tries => format!(", after {}", words::count(tries.into(), "try", "tries")),
        };
        let when = words::moment(continuation.at, now, zone);
        facts.push(("goes on", format!("by itself at {when}{tried}")));
    }
    for waiting in &conversation.queue {
        let turn = words::short(waiting.turn_id.as_str());
        let age = words::age(waiting.queued_at, now);
        let line = if waiting.held { "held" } else { "in line" };
        facts.push((line, format!("turn {turn}, for {age}")));
    }
    facts.push((
        "changed",
        format!("{} ago", words::age(conversation.updated_at, now)),
    ));
    facts.push((
        "made",
        format!("{} ago", words::age(conversation.created_at, now)),
    ));
    facts
}

/// Shows the upstream sessions that can be resumed.
pub(in crate::cli) async fn chain(context: &mut Context<'_>, word: &str) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, word).await?;
    let answer = daemon
        .call(method::Chain {
            conversation_id: conversation,
        })
        .await?;
    if context.output.json {
        context.answer(&daemon, "conversation/chain")?;
        return Ok(Exit::Done);
    }
    let count = answer.links.len();
    for (index, link) in answer.links.iter().enumerate() {
        let mut line = link_line(link);
        if index + 1 == count {
            let mark = context.output.look.paint(GOOD, "<- head");
            line = format!("{line}  {mark}");
        }
        context.output.line(&line)?;
    }
    if count == 0 {
        context
            .output
            .note("the chain is empty; the session starts with the next prompt")?;
    }
    Ok(Exit::Done)
}

fn link_line(link: &Link) -> String {
    let cause = link
        .cause
        .map_or_else(String::new, |cause| format!(" ({})", words::cause(cause)));
    let from = link.from_upstream_id.as_ref().map_or_else(String::new, |from| {
        format!(" from {}", words::short(&one_line(from.as_str())))
    });
    let written = if link.written { "" } else { ", never written" };
    let relation = words::relation(link.relation, link.carried_turns)
        .map_or_else(String::new, |relation| format!(", {relation}"));
    format!(
        "{}  {}{cause}{from}{relation}, {}{written}",
        one_line(link.upstream_id.as_str()),
        words::reason(link.reason.into()),
        words::turns(link.carried_turns, link.turns),
    )
}

/// Shows everything that ever happened to the chain.
pub(in crate::cli) async fn lineage(context: &mut Context<'_>, word: &str) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, word).await?;
    let mut cursor = None;
    loop {
        let page = daemon
            .call(method::Lineage {
                conversation_id: conversation.clone(),
                cursor: cursor.take(),
                limit: Some(LINEAGE_PAGE),
            })
            .await?;
        if context.output.json {
            context.answer(&daemon, "conversation/lineage")?;
        } else {
            for entry in &page.entries {
                let line = entry_line(entry);
                context.output.line(&line)?;
                for line in words::tried(&entry.attempts) {
                    let line = context.output.look.paint(DIM, &format!("     {line}"));
                    context.output.line(&line)?;
                }
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() || page.entries.is_empty() {
            return Ok(Exit::Done);
        }
    }
}

fn entry_line(entry: &LineageEntry) -> String {
    let mut parts = vec![words::reason(entry.reason).to_owned()];
    if let Some(cause) = entry.cause {
        parts.push(format!("cause {}", words::cause(cause)));
    }
    if let Some(from) = &entry.from_upstream_id {
        parts.push(format!("from {}", words::short(&one_line(from.as_str()))));
    }
    if !matches!(entry.reason, LineageReason::Reset | LineageReason::Deleted) {
        parts.extend(words::relation(entry.relation, entry.carried_turns).map(str::to_owned));
        parts.push(format!("fidelity {}", words::fidelity(entry.fidelity)));
        parts.push(words::turns(entry.carried_turns, entry.turns));
    }
    format!(
        "{:>3}  {}  {}  {}",
        entry.seq,
        entry.at.strftime("%Y-%m-%d %H:%M:%SZ"),
        if entry.upstream_id.is_empty() {
            "-".to_owned()
        } else {
            one_line(entry.upstream_id.as_str())
        },
        parts.join(", ")
    )
}

/// Shows the agents.
pub(in crate::cli) async fn agents(context: &mut Context<'_>) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let answer = daemon.call(method::ListAgents::default()).await?;
    if context.output.json {
        context.answer(&daemon, "agent/list")?;
        return Ok(Exit::Done);
    }
    let look = context.output.look;
    for agent in &answer.agents {
        let mut facts = vec![agent.kind.clone()];
        facts.push(match (agent.found, agent.running) {
            (_, true) => "running".to_owned(),
            (true, false) => "found".to_owned(),
            (false, false) => "program not found".to_owned(),
        });
        if agent.default {
            facts.push("default".to_owned());
        }
        let line = format!(
            "{}  {}  {}",
            look.paint(STRONG, &format!("{:<12}", one_line(agent.name.as_str()))),
            one_line(&facts.join(", ")),
            look.paint(DIM, &one_line(&agent.command.join(" "))),
        );
        context.output.line(line.trim_end())?;
    }
    Ok(Exit::Done)
}

/// Shows how the daemon is. Starts none: whether one runs is part of the answer.
pub(in crate::cli) async fn status(context: &mut Context<'_>) -> Outcome<Exit> {
    let Some(daemon) = context.reach.find().await? else {
        return Err(Problem::new(Exit::NoDaemon, "no daemon runs")
            .hint("the next command that needs one starts it; sessiond runs one in the foreground"));
    };
    let status = daemon.call(method::Status::default()).await?;
    if context.output.json {
        context.answer(&daemon, "daemon/status")?;
        return Ok(Exit::Done);
    }
    let started = Timestamp::now()
        .checked_sub(jiff::SignedDuration::from_secs(
            i64::try_from(status.uptime_seconds).unwrap_or(i64::MAX),
        ))
        .unwrap_or(Timestamp::UNIX_EPOCH);
    let mut facts = vec![
        (
            "version",
            format!("{} (protocol {})", status.version, status.protocol_version),
        ),
        ("process", status.pid.to_string()),
        (
            "running",
            format!("for {}", words::age(started, Timestamp::now())),
        ),
        ("folder", one_line(&status.home)),
        (
            "holds",
            format!(
                "{}, {} open, {}",
                words::count(status.conversations, "conversation", "conversations"),
                status.live,
                words::count(status.agents, "agent process", "agent processes")
            ),
        ),
        (
            "store",
            if status.store.ephemeral {
                "in memory only".to_owned()
            } else {
                format!(
                    "{} recorded, {} KiB of journal",
                    words::count(status.store.sequence, "change", "changes"),
                    status.store.journal_bytes.div_ceil(1024)
                )
            },
        ),
    ];
    if let Some(set_aside) = &status.store.set_aside {
        facts.push((
            "set aside",
            format!("a store that did not open: {}", one_line(set_aside)),
        ));
    }
    if let Some(failure) = &status.store.failure {
        facts.push((
            "failure",
            format!("changes are not stored: {}", one_line(failure)),
        ));
    }
    let look = context.output.look;
    for (name, value) in facts {
        let name = look.paint(DIM, &format!("{name:<9}"));
        context.output.line(&format!("{name} {value}"))?;
    }
    Ok(Exit::Done)
}

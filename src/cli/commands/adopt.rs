//! Commands for a transcript by its own id: `adopt`, `check`.

use bridge_protocol::check::{CheckAnswer, Finding, Repairs};
use bridge_protocol::{ErrorKind, UpstreamId, method};
use clap::{Args, ValueHint};

use super::create::check_installed;
use super::history::note_backups;
use super::{Context, real_folder, unusable_folder};
use crate::cli::complete;
use crate::cli::connect::Daemon;
use crate::cli::humanize;
use crate::cli::output::{ATTENTION, DIM, GOOD, one_line};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::select;
use crate::paths::shell_word;

/// Create a conversation from an existing transcript
///
/// Prints the id of the conversation. If a conversation already uses the transcript, its id is printed. The next prompt
/// resumes the session with its history.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl adopt 6d7e3074-ff17-4e38-b74e-98c3c4cf9faf
  sessionctl send \"$(sessionctl adopt ID --agent claude)\" 'Continue'")]
pub(in crate::cli) struct Adopt {
    /// Agent session id, name of the transcript, or the first 6 or more characters of either
    #[arg(value_name = "ID", add = complete::transcript())]
    id: String,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME", add = complete::agent())]
    agent: Option<String>,
    /// Folder that the agent works in (default: the transcript's folder)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = real_folder)]
    cwd: Option<String>,
    /// Title of the conversation
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

/// Check a transcript for damage
///
/// Prints the damage and whether the session can still be resumed. The transcript itself is never changed.
///
/// --repair writes a copy without the lines that are not valid records. In the copy, a record with a missing parent is
/// attached to the record before it, and a last tool call without a result gets the result that the agent would fill
/// in. A conversation that uses the session continues with the copy. If no conversation uses it, adopt the copy with
/// sessionctl adopt. If the backup has records that a copy would lack, no copy is made; restore the backup instead.
///
/// Exits with 0 if the transcript is sound or was repaired, and with 1 if it is damaged.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl check .
  sessionctl check . --repair")]
pub(in crate::cli) struct Check {
    /// Conversation (checks its newest session), or a session id or prefix (omit to pick one)
    #[arg(value_name = "CONV|ID", add = complete::conversation())]
    target: Option<String>,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME", add = complete::agent())]
    agent: Option<String>,
    /// Write a repaired copy under a new id, if the damage can be repaired
    #[arg(long)]
    repair: bool,
}

/// Creates a conversation from a transcript and prints its id.
pub(in crate::cli) async fn adopt(context: &mut Context<'_>, options: Adopt) -> CommandResult {
    let cwd = options.cwd;
    let agent = options.agent.map(Into::into);
    let daemon = context.connect().await?;
    let id = UpstreamId::new(options.id);
    let call = method::Adopt {
        upstream_id: id.clone(),
        agent: agent.clone(),
        cwd: cwd.clone(),
        title: options.title.clone(),
        ..Default::default()
    };
    let answer = match context.call_and_print(&daemon, call).await {
        Ok(answer) => answer,
        Err(problem) if problem.kind() == Some(ErrorKind::TranscriptDamaged) => {
            let upstream_id = Some(id.clone());
            let check = method::Check {
                upstream_id,
                agent,
                ..Default::default()
            };
            // If the file cannot be read, a check reports nothing more.
            return Err(match daemon.call(check).await {
                Ok(answer) if !answer.findings.is_empty() => {
                    problem.hint(format!("show the damage line by line: sessionctl check {id}"))
                }
                _ => with_restore_hint(problem, id.as_str()),
            });
        }
        // The folder that the transcript names is missing, or it names none: without a title, no other parameter can be
        // invalid.
        Err(problem)
            if cwd.is_none()
                && (problem.kind() == Some(ErrorKind::InvalidCwd)
                    || problem.exit == Exit::Usage && options.title.is_none()) =>
        {
            return Err(problem.hint(format!("name a folder: sessionctl adopt {id} --cwd .")));
        }
        Err(problem) => {
            return Err(unusable_folder(
                with_list_hint(problem, id.as_str()),
                cwd.as_deref(),
            ));
        }
    };
    select::set_current_as_started(&daemon, &answer.conversation).await;
    context.output.line(&answer.conversation.id.to_string())?;
    for missing in &answer.missing {
        let (id, why) = (&missing.upstream_id, one_line(&missing.detail));
        context
            .output
            .note(&format!("its history begins after session {id}: {why}"))?;
    }
    let is_other = |head: &&UpstreamId| !head.as_str().starts_with(id.as_str());
    if let Some(head) = answer.conversation.head.as_ref().filter(is_other) {
        context.output.note(&format!(
            "{id} is an earlier session of this conversation, which continues with {head}"
        ))?;
    }
    for finding in &answer.findings {
        let (place, why) = (finding_location(finding), one_line(&finding.detail));
        context
            .output
            .note(&format!("the transcript has a problem ({place}): {why}"))?;
    }
    if answer.archived {
        let session = answer.conversation.head.as_ref().unwrap_or(&id);
        context.output.note(&format!(
            "Codex archived this session and resumes it only after: codex unarchive {session}"
        ))?;
    }
    let agent = answer.conversation.agent.as_str();
    if let Err(Problem {
        message: Some(what),
        hint: Some(hint),
        ..
    }) = check_installed(&daemon, Some(agent)).await
    {
        context.output.warning("warning:", &what)?;
        context.output.warning("hint:", &hint)?;
    }
    Ok(())
}

/// Prints the damage of a transcript, and creates a repaired copy with `--repair`.
pub(in crate::cli) async fn check(context: &mut Context<'_>, options: Check) -> CommandResult {
    let daemon = context.connect().await?;
    let is_repaired = options.repair;
    let answer = check_target(context, &daemon, options).await?;
    let left = match answer.repaired {
        Some(_) => &answer.left,
        None => &answer.findings,
    };
    let is_damaged = !left.is_empty();
    note_backups(context, &answer.kept)?;
    // Those that remain are listed as such, with the lines that they have in the copy.
    let mut findings = answer.findings.clone();
    for left in &answer.left {
        let is_it = |finding: &Finding| (finding.kind, &finding.detail) == (left.kind, &left.detail);
        findings.iter().position(is_it).map(|at| findings.remove(at));
    }
    print_findings(context, &findings)?;
    let look = context.output.look;
    if answer.more > 0 {
        let more = humanize::count(answer.more, "more finding", "more findings");
        context.output.line(&look.paint(DIM, &format!("and {more}")))?;
    }
    if let Some(restore) = &answer.restore {
        let restore = context.output.with_daemon_options(restore);
        let line = format!("the backup has the lost part; restore it: {restore}");
        context.output.line(&line)?;
    }
    if let Some(repaired) = &answer.repaired {
        print_repaired(context, &daemon, repaired, &answer).await?;
    } else if !is_damaged {
        let line = look.paint(GOOD, "no damage found");
        context.output.line(&line)?;
    } else if is_repaired {
        context
            .output
            .note("no copy was made: this damage cannot be repaired")?;
    }
    match is_damaged {
        true => Err(Problem::silent(Exit::Failed)),
        false => Ok(()),
    }
}

/// Prints which copy was created, how it differs, and which conversation continues with it.
async fn print_repaired(
    context: &mut Context<'_>,
    daemon: &Daemon,
    repaired: &UpstreamId,
    answer: &CheckAnswer,
) -> CommandResult {
    let mut done = answer.repairs.map(repairs_in_words).unwrap_or_default();
    if let Some(fidelity) = answer.fidelity {
        done = format!("{done}, {}", humanize::history_kept(fidelity));
    }
    let mark = context.output.look.paint(GOOD, "repaired as");
    context.output.line(&format!("{mark} {repaired}{done}"))?;
    if !answer.left.is_empty() {
        context.output.note("not repaired:")?;
        print_findings(context, &answer.left)?;
    }
    let get = method::GetConversation::of(repaired.as_str());
    context.output.note(&match daemon.call(get).await {
        Ok(held) => format!("conversation {} continues with it", held.conversation.id),
        Err(_) => format!("create a conversation from it: sessionctl adopt {repaired}"),
    })
}

fn repairs_in_words(repairs: Repairs) -> String {
    let counts = [
        (repairs.left_out, "line left out", "lines left out"),
        (repairs.joined, "record joined", "records joined"),
        (repairs.filled_in, "result filled in", "results filled in"),
    ];
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, one, many)| humanize::count(count, one, many))
        .collect();
    match counts.is_empty() {
        true => String::new(),
        false => format!(": {}", counts.join(", ")),
    }
}

fn finding_location(finding: &Finding) -> String {
    match finding.line {
        0 => "file".to_owned(),
        line => format!("line {line}"),
    }
}

fn print_findings(context: &mut Context<'_>, findings: &[Finding]) -> CommandResult {
    let look = context.output.look;
    for finding in findings {
        let place = look.paint(DIM, &finding_location(finding));
        let kind = look.paint(ATTENTION, &humanize::wire_name(finding.kind));
        let line = format!("{place}  {kind}: {}", one_line(&finding.detail));
        context.output.line(&line)?;
    }
    Ok(())
}

/// Checks the head of a conversation if one is named directly, otherwise the transcript with this id, which may be an old
/// session of a conversation.
async fn check_target(
    context: &mut Context<'_>,
    daemon: &Daemon,
    options: Check,
) -> CommandResult<CheckAnswer> {
    let (target, agent) = (options.target.clone(), options.agent.map(Into::into));
    let (mut conversation, mut session) =
        select::conversation_or_session(context, daemon, options.target, agent.is_some()).await?;
    if let Some(target) = target
        && conversation
            .take_if(|found| !select::is_conversation_id(found, &target))
            .is_some()
    {
        session = Some(UpstreamId::new(target));
    }
    let call = method::Check {
        upstream_id: session.clone(),
        conversation_id: conversation.as_ref().map(|found| found.id.into()),
        agent,
        repair: options.repair,
        ..Default::default()
    };
    if options.repair {
        let check = method::Check {
            repair: false,
            ..call.clone()
        };
        // An error is ignored here: the repair reports it.
        let restore = daemon.call(check).await.ok().and_then(|answer| answer.restore);
        if let Some(restore) = restore {
            let what = "not repaired: the backup has what a repaired copy would lose";
            return Err(Problem::new(Exit::Busy, what).hint(format!("restore the backup: {restore}")));
        }
    }
    let checked = context.call_and_print(daemon, call).await;
    // A session without turns has no transcript yet.
    let is_written = match (&checked, &conversation) {
        (Err(_), Some(found)) => {
            let links = daemon.call(method::Chain::of(found.id)).await?.links;
            links.last().is_some_and(|link| link.written)
        }
        _ => true,
    };
    checked.map_err(|problem| match (problem, conversation) {
        // The conversation was found, so its transcript is missing.
        (problem, Some(found)) if problem.exit == Exit::NotFound => {
            let advice = context.output.advice(found.id);
            match is_written {
                false => problem.without_turns(&advice),
                true => problem.hint(format!(
                    "restore what can be restored: sessionctl resume {}",
                    advice.conversation
                )),
            }
        }
        (problem, _) => match (problem.kind(), session) {
            (Some(ErrorKind::TranscriptDamaged), Some(session)) => {
                with_restore_hint(problem, session.as_str())
            }
            (_, Some(session)) => with_list_hint(problem, session.as_str()),
            (_, None) => problem,
        },
    })
}

/// Adds to a problem with an unreadable transcript the command that may restore it.
fn with_restore_hint(problem: Problem, id: &str) -> Problem {
    let id = &problem.detail("upstreamId").unwrap_or_else(|| id.to_owned());
    problem.hint(format!(
        "if it was backed up, move the file to another folder, then run: sessionctl archive restore {}",
        shell_word(id)
    ))
}

/// Adds the command that lists transcripts to a problem with an id that matches no transcript or several.
fn with_list_hint(problem: Problem, id: &str) -> Problem {
    if problem.detail("agent").is_some() {
        return problem;
    }
    let several = format!("list them: sessionctl transcripts {}", shell_word(id));
    problem
        .hint_if(ErrorKind::NotFound, "sessionctl transcripts lists them")
        .hint_if(ErrorKind::Ambiguous, several)
}

//! Transcripts by their own ids: `adopt`, `check`.

use std::path::PathBuf;

use bridge_protocol::check::{CheckAnswer, Finding, Repairs};
use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use bridge_protocol::{BridgeError, ConversationRef, ErrorKind, UpstreamId};
use clap::{Args, ValueHint};
use jsonrpsee::core::client::Error as ClientError;

use super::past::tell_kept;
use super::transcripts::that_begins;
use super::{Context, conversation_ref, real_folder};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, DIM, GOOD, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::watched;
use crate::cli::words;

/// Create a conversation from an existing transcript
///
/// Prints the id of the conversation. If a conversation already uses the transcript, its id is printed. The next prompt
/// resumes the session with its history.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl adopt 6d7e3074-ff17-4e38-b74e-98c3c4cf9faf
  sessionctl send \"$(sessionctl adopt ID --agent claude)\" 'Go on'")]
pub(in crate::cli) struct Adopt {
    /// Session id of the agent, the transcript's name, or a prefix of 6 or more characters
    #[arg(value_name = "ID")]
    pub(in crate::cli) id: String,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) agent: Option<String>,
    /// Folder that the agent works in (default: the transcript's folder)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(in crate::cli) cwd: Option<PathBuf>,
    /// Title of the conversation
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) title: Option<String>,
}

/// Check a transcript for damage
///
/// Prints the damage and whether the session can still be resumed. The transcript itself is never changed.
///
/// --repair writes a copy without the lines that are not valid records. In the copy, a record with a missing parent is
/// attached to the record before it, and a tool call without a result gets the result that the agent would fill in. A
/// conversation that uses the session continues with the copy. If no conversation uses it, adopt the copy with
/// sessionctl adopt.
///
/// Exits with 0 if the transcript is sound or was repaired, and with 1 if it is damaged.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl check .
  sessionctl check . --repair")]
pub(in crate::cli) struct Check {
    /// Conversation (checks its newest session), or a session id or prefix
    #[arg(value_name = "CONV|ID")]
    pub(in crate::cli) target: String,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) agent: Option<String>,
    /// Write a repaired copy under a new id, if the damage can be repaired
    #[arg(long)]
    pub(in crate::cli) repair: bool,
}

/// Where somebody looks who named a transcript that is not there.
const SHOWN: &str = "sessionctl transcripts shows which there are";

/// Makes a conversation of a transcript and prints its id.
pub(in crate::cli) async fn adopt(context: &mut Context<'_>, options: Adopt) -> Outcome<Exit> {
    let folder = options.cwd.as_deref().map(real_folder).transpose()?;
    let daemon = context.connect().await?;
    let Adopt { id, agent, title, .. } = options;
    let adopting = async |id: UpstreamId| {
        let agent = agent.as_deref().map(Into::into);
        let call = daemon.call(method::Adopt {
            upstream_id: id,
            agent,
            cwd: folder.clone(),
            title: title.clone(),
            ..Default::default()
        });
        watched(context.output, &daemon, "conversation/adopt", call).await
    };
    let refused = async |error, id: &UpstreamId| see_check(&daemon, error, id, agent.as_deref()).await;
    let adopted = by_id_or_beginning(&daemon, &id, agent.as_deref(), adopting, refused).await;
    let (id, answer) = adopted.map_err(|problem| match problem.exit {
        // Nothing else of what was asked for can be wrong then.
        Exit::Usage if folder.is_none() && title.is_none() => {
            problem.hint("--cwd DIR names a folder to work in")
        }
        _ => problem,
    })?;
    if context.output.json {
        context.answer(&daemon, "conversation/adopt")?;
    } else {
        context.output.line(&answer.conversation.id.to_string())?;
    }
    for missing in &answer.missing {
        context.output.note(&format!(
            "its past ends with {}, which is not in its chain: {}",
            missing.upstream_id,
            one_line(&missing.detail)
        ))?;
    }
    if let Some(head) = answer.conversation.head.as_ref().filter(|head| **head != id) {
        context.output.note(&format!(
            "{id} is in the past of this conversation, which goes on with {head}"
        ))?;
    }
    for finding in &answer.findings {
        let place = match finding.line {
            0 => String::new(),
            line => format!(" in line {line}"),
        };
        context.output.note(&format!(
            "it is adopted and can be read, but{place}: {}",
            one_line(&finding.detail)
        ))?;
    }
    if answer.archived {
        let session = answer.conversation.head.as_ref().unwrap_or(&id);
        context.output.note(&format!(
            "Codex has this session archived and refuses to resume it until it is taken out of there: codex unarchive {session}"
        ))?;
    }
    Ok(Exit::Done)
}

/// Tells what is wrong with a transcript, and has a repaired copy made of it.
pub(in crate::cli) async fn check(context: &mut Context<'_>, options: Check) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let repairs = options.repair;
    let call = checked(&daemon, options);
    let answer = watched(context.output, &daemon, "transcript/check", call).await?;
    let left = match answer.repaired {
        Some(_) => &answer.left,
        None => &answer.findings,
    };
    let is_damaged = left.iter().any(|finding| finding.kind.is_damage());
    let exit = if is_damaged { Exit::Failed } else { Exit::Done };
    if context.output.json {
        context.answer(&daemon, "transcript/check")?;
        return Ok(exit);
    }
    tell_kept(context, &answer.kept)?;
    tell_findings(context, &answer.findings)?;
    let look = context.output.look;
    if answer.more > 0 {
        let more = words::count(answer.more, "finding more", "findings more");
        context.output.line(&look.paint(DIM, &format!("and {more}")))?;
    }
    if let Some(repaired) = &answer.repaired {
        return tell_repaired(context, &daemon, repaired, &answer)
            .await
            .map(|()| exit);
    }
    if exit == Exit::Done {
        context
            .output
            .line(&look.paint(GOOD, "nothing is wrong with it"))?;
    } else if repairs {
        context
            .output
            .note("no copy was made: it would have nothing of this repaired")?;
    }
    Ok(exit)
}

/// Which copy was made, what is other in it, and who goes on with it.
async fn tell_repaired(
    context: &mut Context<'_>,
    daemon: &Daemon,
    repaired: &UpstreamId,
    answer: &CheckAnswer,
) -> Outcome<()> {
    let mut done = answer.repairs.map(repairs_in_words).unwrap_or_default();
    if let Some(fidelity) = answer.fidelity {
        done = format!("{done}; fidelity {}", words::fidelity(fidelity));
    }
    let look = context.output.look;
    let line = format!("{} {repaired}{done}", look.paint(GOOD, "repaired as"));
    context.output.line(&line)?;
    if !answer.left.is_empty() {
        context.output.note("what is left in it:")?;
        tell_findings(context, &answer.left)?;
    }
    let next = match daemon
        .call(method::GetConversation {
            conversation_id: repaired.as_str().into(),
        })
        .await
    {
        Ok(held) => format!("conversation {} goes on with it", held.conversation.id),
        Err(_) => format!("sessionctl adopt {repaired} makes a conversation of it"),
    };
    context.output.note(&next)?;
    Ok(())
}

fn repairs_in_words(repairs: Repairs) -> String {
    let counts = [
        (repairs.left_out, "line left out", "lines left out"),
        (repairs.joined, "record joined", "records joined"),
        (repairs.filled_in, "result filled in", "results filled in"),
        (repairs.cut_outputs, "output cut", "outputs cut"),
    ];
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, one, many)| words::count(count, one, many))
        .collect();
    match counts.is_empty() {
        true => String::new(),
        false => format!(": {}", counts.join(", ")),
    }
}

fn tell_findings(context: &mut Context<'_>, findings: &[Finding]) -> Outcome<()> {
    let look = context.output.look;
    for finding in findings {
        let place = match finding.line {
            0 => "file".to_owned(),
            line => format!("line {line}"),
        };
        let color = if finding.kind.is_damage() { ATTENTION } else { DIM };
        let kind = look.paint(color, &finding.kind.to_string());
        let line = format!(
            "{}  {kind}: {}",
            look.paint(DIM, &place),
            one_line(&finding.detail)
        );
        context.output.line(&line)?;
    }
    Ok(())
}

/// A conversation that is named by its own id stands for its head; any other word, and each beside which an agent is named,
/// is looked for as a transcript first, since a conversation may have had it long ago.
async fn checked(daemon: &Daemon, options: Check) -> Outcome<CheckAnswer> {
    let Check {
        target,
        agent,
        repair,
    } = options;
    let named = || agent.as_deref().map(Into::into);
    let by_conversation = async |name: ConversationRef| {
        let checked = daemon
            .call(method::Check {
                conversation_id: Some(name),
                agent: named(),
                repair,
                ..Default::default()
            })
            .await;
        checked.map_err(|error| match Problem::from(error) {
            // The conversation is there, or it would not have been found by its name.
            problem if problem.exit == Exit::NotFound => problem.hint(format!(
                "the next prompt, or sessionctl resume {target}, brings back what can be had; sessionctl chain {target} shows \
                 its sessions"
            )),
            problem => problem,
        })
    };
    if target == "." {
        return by_conversation(conversation_ref(daemon, &target).await?).await;
    }
    let unknown = match daemon
        .call(method::GetConversation {
            conversation_id: target.as_str().into(),
        })
        .await
    {
        Ok(answer) if agent.is_none() && answer.conversation.id.to_string().starts_with(&target) => {
            return by_conversation(target.as_str().into()).await;
        }
        Ok(_) => None,
        Err(error) => Some(error),
    };
    let by_id = async |id: UpstreamId| {
        let call = daemon.call(method::Check {
            upstream_id: Some(id),
            agent: named(),
            repair,
            ..Default::default()
        });
        call.await
    };
    // A beginning that fits several conversations is no transcript's id.
    if let Some(several) = unknown.filter(|error| is(error, ErrorKind::Ambiguous)) {
        return match by_id(UpstreamId::new(target.as_str())).await {
            Err(error) if is(&error, ErrorKind::NotFound) => Err(several.into()),
            checked => Ok(checked?),
        };
    }
    let told = async |error, _: &UpstreamId| Problem::from(error);
    let (_, answer) = by_id_or_beginning(daemon, &target, agent.as_deref(), by_id, told).await?;
    Ok(answer)
}

/// Does a call for the transcript of this id, else for the only one whose id begins so, and gives that one's id too.
async fn by_id_or_beginning<T>(
    daemon: &Daemon,
    id: &str,
    agent: Option<&str>,
    mut call: impl AsyncFnMut(UpstreamId) -> Result<T, ClientError>,
    told: impl AsyncFnOnce(ClientError, &UpstreamId) -> Problem,
) -> Outcome<(UpstreamId, T)> {
    let whole = UpstreamId::new(id);
    let error = match call(whole.clone()).await {
        Ok(answer) => return Ok((whole, answer)),
        Err(error) => error,
    };
    if !is(&error, ErrorKind::NotFound) {
        return Err(told(error, &whole).await);
    }
    let Some(whole) = that_begins(daemon, id, agent).await? else {
        return Err(Problem::from(error).hint(SHOWN));
    };
    match call(whole.clone()).await {
        Ok(answer) => Ok((whole, answer)),
        Err(error) => Err(told(error, &whole).await),
    }
}

/// Where more is said of a transcript that cannot be adopted since it is damaged. Of what cannot be read at all a check says the
/// same once more, to which nobody is sent.
async fn see_check(daemon: &Daemon, error: ClientError, id: &UpstreamId, agent: Option<&str>) -> Problem {
    let is_damaged = is(&error, ErrorKind::TranscriptDamaged);
    let problem = Problem::from(error);
    if !is_damaged {
        return problem;
    }
    let checked = daemon
        .call(method::Check {
            upstream_id: Some(id.clone()),
            agent: agent.map(Into::into),
            ..Default::default()
        })
        .await;
    match checked {
        Ok(answer) if !answer.findings.is_empty() => problem.hint(format!(
            "sessionctl check {id} tells what is wrong with it, by line"
        )),
        _ => problem,
    }
}

fn is(error: &ClientError, kind: ErrorKind) -> bool {
    matches!(error, ClientError::Call(error) if BridgeError::from(error.clone()).kind == kind)
}

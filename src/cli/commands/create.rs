//! Commands that create conversations: `new`, `fork`.

use bridge_protocol::ErrorKind;
use bridge_protocol::conversation::{Conversation, ForkAnswer, Settings, TranscriptsOnDelete};
use bridge_protocol::link::Fidelity;
use bridge_protocol::method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueHint};

use super::history::{cut_short_hint, lost_hint};
use super::set::suggest_setting;
use super::{Context, real_folder, this_folder, unusable_folder, wire_words};
use crate::cli::complete;
use crate::cli::connect::Daemon;
use crate::cli::humanize::{self, Clock};
use crate::cli::output::one_line;
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::select::{self, ConversationArgs};
use crate::cli::talk::edit::{resolve_checkpoint, with_branch_hint};
use crate::paths::shell_word;

/// Create a conversation and print its id
///
/// Model and mode can be changed later with sessionctl set. In sessionctl chat, /model and /mode list their values.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl new --title 'Fix the build'
  sessionctl new --agent claude --cwd ~/project")]
pub(in crate::cli) struct New {
    /// Agent, by its name in the configuration (default: its default_agent)
    #[arg(long, value_name = "NAME", add = complete::agent())]
    pub(in crate::cli) agent: Option<String>,
    /// Folder that the agent works in (default: current folder)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = real_folder)]
    pub(in crate::cli) cwd: Option<String>,
    /// Title of the conversation
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) title: Option<String>,
    /// Model, by the agent's name for it (default: the agent's)
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) model: Option<String>,
    /// Session mode, by the agent's id for it (default: the agent's)
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) mode: Option<String>,
    /// Open the agent session now instead of at the first prompt
    #[arg(long)]
    pub(in crate::cli) open: bool,
}

/// Fork a conversation and print the id of the branch
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl fork . --at 3
  sessionctl fork . --cwd ../another-checkout
  sessionctl send \"$(sessionctl fork . --title 'Another way')\" 'Try it without the cache'")]
pub(in crate::cli) struct Fork {
    #[command(flatten)]
    pub(in crate::cli) target: ConversationArgs,
    /// Continue the same conversation on the branch (default: create a new conversation)
    #[arg(long)]
    pub(in crate::cli) in_place: bool,
    /// Turn to fork after: number (-1 is the last), checkpoint id or message id (default: -1)
    #[arg(long, value_name = "CHECKPOINT", allow_hyphen_values = true, value_parser = NonEmptyStringValueParser::new(), add = complete::checkpoint())]
    pub(in crate::cli) at: Option<String>,
    /// Existing folder that the branch works in (default: the conversation's folder)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = real_folder)]
    pub(in crate::cli) cwd: Option<String>,
    /// Title of the new conversation (default: the conversation's title with "(fork)")
    #[arg(long, value_name = "TEXT", conflicts_with = "in_place")]
    pub(in crate::cli) title: Option<String>,
    /// Fail if the branch would keep less of the history than this (default: text)
    #[arg(long, value_name = "LEVEL", value_parser = wire_words::<Fidelity>(&FIDELITIES))]
    pub(in crate::cli) min_fidelity: Option<Fidelity>,
}

/// Least acceptable fidelity of a branch's history.
pub(in crate::cli) const FIDELITIES: [(&str, &str); 4] = [
    ("full", "The complete history"),
    ("partial", "An older or incomplete history"),
    ("text", "The messages as text"),
    ("none", "No history required"),
];

/// Creates a conversation and prints its id.
pub(in crate::cli) async fn new(context: &mut Context<'_>, options: New) -> CommandResult {
    let folder = match options.cwd {
        Some(folder) => folder,
        None => this_folder()?,
    };
    let daemon = context.connect().await?;
    check_installed(&daemon, options.agent.as_deref()).await?;
    let has_settings = options.model.is_some() || options.mode.is_some();
    let new = method::NewConversation {
        agent: options.agent.clone().map(Into::into),
        cwd: folder.clone(),
        title: options.title.unwrap_or_default(),
        // Only an open session can refuse a model or a mode that the agent does not know.
        open: options.open || has_settings,
        settings: Settings {
            model: options.model,
            mode: options.mode,
            ..Settings::default()
        },
        ..Default::default()
    };
    let answer = match context.call_and_print(&daemon, new.clone()).await {
        Ok(answer) => answer,
        Err(problem) => {
            let problem = unusable_folder(problem, Some(&folder));
            return Err(creation_problem(&daemon, problem, &new).await);
        }
    };
    select::set_current_as_started(&daemon, &answer.conversation).await;
    context.output.line(&answer.conversation.id.to_string())?;
    if options.agent.is_none() {
        context.warn_of_echo(&daemon, &answer.conversation).await?;
    }
    Ok(())
}

/// Creates a conversation in this folder and makes it the one that `.` names.
pub(in crate::cli) async fn new_here(daemon: &Daemon, agent: Option<String>) -> CommandResult<Conversation> {
    check_installed(daemon, agent.as_deref()).await?;
    let call = method::NewConversation {
        agent: agent.map(Into::into),
        cwd: this_folder()?,
        ..Default::default()
    };
    let conversation = daemon.call(call).await?.conversation;
    select::set_current_as_started(daemon, &conversation).await;
    Ok(conversation)
}

/// Checks that an agent is known and that its program exists. Checks the default agent if none is named. The error contains
/// how to install it.
pub(super) async fn check_installed(daemon: &Daemon, name: Option<&str>) -> CommandResult {
    let known = daemon.call(method::ListAgents::default()).await?;
    let default = known.agents.iter().find(|agent| agent.default);
    let Some(name) = name.or(default.map(|agent| agent.name.as_str())) else {
        return Ok(());
    };
    let found = known.agents.iter().find(|agent| agent.name.as_str() == name);
    if found.is_some_and(|agent| agent.found) {
        return Ok(());
    }
    let kind = found.map_or(name, |agent| agent.kind.as_str());
    let install = known.install.get(kind);
    let name = one_line(name);
    Err(match (found, install) {
        // The daemon refuses this name, and lists the names that it knows.
        (None, None) => return Ok(()),
        (_, Some(line)) => Problem::new(Exit::Agent, format!("agent {name} is not installed"))
            .hint(format!("{line} && sessionctl stop")),
        (Some(agent), None) => {
            let program = one_line(agent.command.first().map_or("", String::as_str));
            Problem::new(
                Exit::Agent,
                format!("the program of agent {name} was not found: {program}"),
            )
            .hint("sessionctl doctor shows where the daemon looked for it")
        }
    })
}

/// Builds the problem of a failed creation. If the agent refused the settings, the empty conversation is deleted.
async fn creation_problem(daemon: &Daemon, problem: Problem, new: &method::NewConversation) -> Problem {
    let Some(id) = problem.detail("conversationId") else {
        return problem;
    };
    let has_settings = new.settings != Settings::default();
    if has_settings && problem.kind() == Some(ErrorKind::AgentError) {
        let delete = method::Delete {
            transcripts: TranscriptsOnDelete::Delete,
            ..method::Delete::of(id.as_str())
        };
        if daemon.call(delete).await.is_ok() {
            let refused = problem.detail("setting");
            let again = creation_command(new, refused.as_deref());
            let Some(refused) = refused else {
                return problem.hint(format!("create it without --model and --mode: {again}"));
            };
            return match suggest_setting(&problem, "").filter(|offer| offer.key == refused) {
                Some(offer) => problem.hint(format!(
                    "{}; create it with one: {again} --{refused} {}",
                    offer.valid, offer.first
                )),
                None => problem.hint(format!("create it without --{refused}: {again}")),
            };
        }
    }
    problem.hint(format!(
        "the conversation exists: sessionctl send {id} opens it, sessionctl rm {id} deletes it"
    ))
}

/// The command that creates the conversation without the refused setting, or without any setting if it is not known which
/// was refused.
fn creation_command(new: &method::NewConversation, refused: Option<&str>) -> String {
    let elsewhere = this_folder().ok().filter(|here| *here != new.cwd);
    let accepted = |key: &str, value: &Option<String>| {
        let value = value.clone();
        value.filter(|_| refused.is_some_and(|refused| refused != key))
    };
    let options = [
        ("agent", new.agent.as_ref().map(ToString::to_string)),
        ("cwd", elsewhere.map(|_| new.cwd.clone())),
        ("title", Some(new.title.clone()).filter(|title| !title.is_empty())),
        ("model", accepted("model", &new.settings.model)),
        ("mode", accepted("mode", &new.settings.mode)),
    ];
    let given = options
        .into_iter()
        .filter_map(|(option, value)| Some((option, value?)));
    given.fold("sessionctl new".to_owned(), |call, (option, value)| {
        format!("{call} --{option} {}", shell_word(&value))
    })
}

/// Creates a branch and prints the id of its conversation.
pub(in crate::cli) async fn fork(context: &mut Context<'_>, options: Fork) -> CommandResult {
    let (daemon, source) = context.connect_and_select(options.target.name()).await?;
    let id = humanize::short_id(source.id);
    if options.at.is_none() {
        context.note_earlier_session(options.target.name(), &source)?;
    }
    let call = method::Fork {
        in_place: options.in_place,
        cwd: options.cwd.clone(),
        title: options.title,
        min_fidelity: options.min_fidelity.unwrap_or_default(),
        ..Default::default()
    };
    let answer = create_branch(context, &daemon, &source, options.at.as_deref(), call).await;
    let advice = context.output.advice(source.id);
    let lost = cut_short_hint(&source, &advice).unwrap_or_else(|| lost_hint(&advice));
    let answer = answer.map_err(|problem| problem.hint_if(ErrorKind::AgentError, lost));
    let answer = answer.map_err(|problem| match options.cwd.as_deref() {
        named @ Some(_) => unusable_folder(problem, named),
        None => {
            let hint = format!("branch into this folder: sessionctl fork {id} --cwd .");
            let problem = problem.hint_if(ErrorKind::InvalidCwd, hint);
            let Some(lower) = next_lower_fidelity(options.min_fidelity.unwrap_or_default()) else {
                return problem;
            };
            let at = options.at.as_deref().map(|at| format!(" --at {}", shell_word(at)));
            let in_place = if options.in_place { " --in-place" } else { "" };
            let less = format!(
                "the conversation is unchanged; accept less of the history: sessionctl fork {id}{}{in_place} --min-fidelity \
                 {lower}",
                at.unwrap_or_default(),
            );
            problem.hint_if(ErrorKind::NotResumable, less)
        }
    })?;
    select::set_current_as_started(&daemon, &answer.conversation).await;
    context.output.line(&answer.conversation.id.to_string())?;
    let branch = answer.link.map(|link| {
        let branch = humanize::branch_session(&link.upstream_id, answer.via);
        // A last turn without an answer, or those of an earlier session, are not counted in the link.
        let number = options.at.as_ref().and_then(|at| at.parse().ok());
        let turns = number.filter(|turns| *turns > 0).unwrap_or(link.carried_turns);
        let kept = match (options.at.is_some(), answer.fidelity, turns) {
            (true, Fidelity::Full, 0) => "with the history up to there".to_owned(),
            (true, Fidelity::Full, 1) => "with turn 1".to_owned(),
            (true, Fidelity::Full, turns) => format!("with turns 1 to {turns}"),
            (_, fidelity, _) => humanize::history_kept(fidelity).to_owned(),
        };
        format!("{branch}, {kept}")
    });
    let note = match branch {
        Some(branch) if options.in_place => {
            let undo = context.output.advice(source.id).undo();
            format!("Continues as {branch}. Undo with: {undo}")
        }
        Some(branch) => format!("Forked as {branch}"),
        None => "The conversation has no turn yet: the branch starts with its first prompt".to_owned(),
    };
    context.output.note_dim(&note)?;
    if let Some(continuation) = answer.conversation.continuation.filter(|_| options.in_place) {
        let at = Clock::here().time_and_distance(continuation.at);
        let cancel = context.output.advice(source.id).continue_turn("--cancel");
        let scheduled = format!("The scheduled text is still sent at {at}. Cancel with: {cancel}");
        context.output.note_dim(&scheduled)?;
    }
    // Make `.` name the branch.
    if !options.in_place && this_folder().ok() == Some(answer.conversation.cwd) {
        let source = format!("In this folder, . now means the branch; the source is {id}");
        context.output.note_dim(&source)?;
    }
    Ok(())
}

/// The next lower level of fidelity, or `None` below the lowest.
fn next_lower_fidelity(level: Fidelity) -> Option<&'static str> {
    match level {
        Fidelity::Full => Some("partial"),
        Fidelity::Partial => Some("text"),
        Fidelity::Text => Some("none"),
        _ => None,
    }
}

/// Creates a branch after the turn that `--at` names. A new conversation gets a title that differs from its source's.
pub(in crate::cli) async fn create_branch(
    context: &mut Context<'_>,
    daemon: &Daemon,
    source: &Conversation,
    at: Option<&str>,
    call: method::Fork,
) -> CommandResult<ForkAnswer> {
    let place = match at {
        Some(at) => Some(resolve_checkpoint(context.output, daemon, source.id, at).await?),
        None => None,
    };
    let title = match call.in_place {
        true => None,
        false => call.title.or_else(|| humanize::fork_title(&source.title)),
    };
    let call = method::Fork {
        conversation_id: source.id.into(),
        at: place,
        title,
        ..call
    };
    let answer = context.call_and_print(daemon, call).await;
    answer.map_err(|problem| with_branch_hint(context.output, problem, source, at))
}

//! `chat`: an interactive conversation on a terminal.
//!
//! It owns what a typed line means: a prompt, or a command that begins with a slash. `line_reader` reads lines, `turn`
//! follows turns, and `other_clients` waits for what others do meanwhile.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::method;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::{ConversationId, Cursor, ErrorKind};
use clap::Args;
use serde_json::Value;
use tokio::time::timeout;

use super::continuation::with_continue_hint;
use super::edit::{edit_old_prompt, report_edit, resolve_checkpoint};
use super::editor::EditedText;
use super::files;
use super::line_reader::{Commands, LineInput, LineReader};
use super::markdown::Markdown;
use super::other_clients::{OtherClientChange, after_lost_events, next_change};
use super::send::{prompt_word, report_turn, with_text_hint};
use super::turn::{ConversationFollower, FollowTarget, continue_now, is_running, request_id, turns_missing};
use crate::cli::commands::create::{create_branch, new_here};
use crate::cli::commands::set::{SettingValue, setting_values};
use crate::cli::commands::{Context, turns};
use crate::cli::complete;
use crate::cli::connect::Daemon;
use crate::cli::event_stream::{EventStream, snapshot};
use crate::cli::output::{DIM, Look, Output, STRONG, one_line, truncate};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::prompt_text::{attached_file, readable_prompt};
use crate::cli::select::{self, ConversationArgs};
use crate::cli::signals::{self, CtrlCListener};
use crate::cli::{args, humanize, lock};

/// How long to wait for an agent to report its commands after its session is open. An agent without commands reports nothing.
const COMMANDS_LIMIT: Duration = Duration::from_secs(3);

/// Turns that `/rewind` lists.
const LISTED_TURNS: usize = 20;

/// The commands and what they do.
const HELP: &str = "  /help                  Show this list
  /history               Show the messages
  /edit [TURN] [TEXT]    Replace a prompt and what followed (default: the last)
  /rewind [TURN]         Drop later turns (without TURN: list the turns)
  /undo                  Undo the last edit, rewind, move or reset
  /fork [TURN]           Continue on a branch; this conversation is unchanged
  /continue [OPTIONS]    Continue the last turn (--at-reset, --at TIME)
  /answer [ANSWER]       Answer the agent's open question
  /model [NAME]          Change the model (without NAME: list the models)
  /mode [NAME]           Change the mode (without NAME: list the modes)
  /exit                  Leave; so do /quit and Ctrl-D
  Tab                    Complete a command
  @PATH                  Attach a file
  Alt-Enter              Begin a new line";

/// `chat`.
#[derive(Debug, Args)]
#[command(after_help = "\
Alt-Enter, or a backslash at the end of a line, begins a new line. @PATH attaches a file. /help lists the commands; the agent's \
own commands work too. Ctrl-C cancels the running turn; a second Ctrl-C leaves at once. /exit or Ctrl-D leaves.

Examples:
  sessionctl chat .
  sessionctl chat --new --agent claude")]
pub(in crate::cli) struct Chat {
    #[command(flatten)]
    target: ConversationArgs,
    /// Start a new conversation in this folder
    #[arg(long, conflicts_with = "conversation")]
    new: bool,
    /// Agent of the new conversation (default: default_agent in the configuration)
    #[arg(long, value_name = "NAME", requires = "new", conflicts_with = "conversation", add = complete::agent())]
    agent: Option<String>,
}

/// The loop of a chat, and the conversation that it is about.
struct ChatLoop {
    daemon: Rc<Daemon>,
    conversation: Conversation,
    /// The text written in the editor for an edit that was not accepted yet.
    unsent_edit: Option<EditedText>,
    /// The commands that a line may begin with.
    commands: Commands,
    /// The last event that was shown, or `None` if later events need not be shown.
    last_cursor: Option<Cursor>,
}

/// Ends the chat.
fn leave() -> CommandResult {
    Err(Problem::silent(Exit::Success))
}

/// Chats in the conversation that was named, picked or created.
pub(in crate::cli) async fn chat(context: &mut Context<'_>, options: Chat) -> CommandResult {
    if context.output.json || !io::stdin().is_terminal() || context.output.note_look.columns.is_none() {
        let to = if options.new { "--new" } else { select::HERE };
        return Err(Problem::usage("chat needs a terminal")
            .hint(format!("send one prompt with: sessionctl send {to} 'Hello'")));
    }
    let daemon = context.connect().await?;
    let chosen = match options.target.name() {
        _ if options.new => None,
        None => select::pick(context, &daemon, true).await?,
        Some(word) => {
            let chosen = select::select_silently(context, &daemon, Some(word)).await;
            Some(chosen.map_err(|problem| {
                with_text_hint(problem, word, "", |prompt| {
                    let prompt = prompt_word(prompt);
                    format!(
                        "to send it as a prompt: sessionctl send --new {prompt}; sessionctl ls lists the conversations"
                    )
                })
            })?)
        }
    };
    chat_in(context, daemon, chosen, options.agent).await
}

/// Chats until the user leaves. If no conversation was chosen, creates one in this folder, and deletes it at the end if it was
/// not used.
pub(in crate::cli) async fn chat_in(
    context: &mut Context<'_>,
    daemon: Daemon,
    chosen: Option<Conversation>,
    agent: Option<String>,
) -> CommandResult {
    let (conversation, created) = match chosen {
        Some(chosen) => (chosen, None),
        None => {
            let created = new_here(&daemon, agent).await?;
            let id = created.id;
            (created, Some(id))
        }
    };
    let mut room = ChatLoop {
        daemon: Rc::new(daemon),
        conversation,
        unsent_edit: None,
        commands: Arc::new(Mutex::new(typed_commands(own_commands()))),
        last_cursor: None,
    };
    signals::start_signal_watcher();
    let left = room.run_lines(context).await;
    if let Some(id) = created {
        // A daemon that does not answer must not delay the exit.
        let _late = timeout(UNUSED_DELETION_LIMIT, delete_unused(&room.daemon, id)).await;
    }
    left
}

/// How long the daemon may take to delete a conversation that was not used.
const UNUSED_DELETION_LIMIT: Duration = Duration::from_secs(2);

/// Deletes a conversation that has no title, no turns, and nothing scheduled. If that fails, it stays.
async fn delete_unused(daemon: &Daemon, id: ConversationId) {
    let (Ok(now), Ok(chain)) = (
        daemon.call(method::GetConversation::of(id)).await,
        daemon.call(method::Chain::of(id)).await,
    ) else {
        return;
    };
    let now = now.conversation;
    let is_unused = now.state == ConversationState::Idle
        && !now.cut_short
        && now.continuation.is_none()
        && now.title.is_empty()
        && !chain.links.iter().any(|link| link.written);
    if is_unused {
        drop(daemon.call(method::Delete::of(id)).await);
    }
}

impl ChatLoop {
    /// Executes each line that the user types.
    async fn run_lines(&mut self, context: &mut Context<'_>) -> CommandResult {
        let mut lines = LineReader::new(context, Arc::clone(&self.commands))?;
        context.warn_of_echo(&self.daemon, &self.conversation).await?;
        let entered = until_ctrl_c(self.enter(context)).await;
        report_outcome(context.output, entered)?;
        context
            .output
            .note_dim("/help lists the commands, /exit or Ctrl-D leaves")?;
        let mut is_leaving = false;
        // A Ctrl-C meant for the turn may arrive just after the turn's end; it must not end the chat.
        let _between_turns = CtrlCListener::listen();
        loop {
            let look = context.output.note_look;
            let missing = turns_missing(&context.output.advice(self.conversation.id).history());
            let mut change = None;
            let changes = async {
                let (known, shown) = (&mut self.conversation, &mut self.last_cursor);
                change = Some(
                    match next_change(&self.daemon, known, shown, &missing, look).await {
                        Ok(change) => change,
                        Err(problem) => after_lost_events(&context.connector, problem).await,
                    },
                );
            };
            let typed = lines.next_line(context.output, changes).await?;
            context.output.update_size();
            // It came while the line was finished, and is not read again.
            if let (LineInput::Text(_) | LineInput::CtrlC, Some(OtherClientChange::Changed(what, None))) =
                (&typed, &change)
            {
                context.output.note_dim(what)?;
            }
            let text = match typed {
                LineInput::Text(text) => text,
                LineInput::Interrupted | LineInput::Suspended => {
                    match change {
                        Some(OtherClientChange::Changed(what, turn)) => {
                            context.output.note_dim(&what)?;
                            if let Some(start) = turn {
                                let done = until_ctrl_c(self.follow(context, start)).await;
                                report_outcome(context.output, done)?;
                            }
                        }
                        Some(OtherClientChange::Deleted) => {
                            context.output.note("Another client deleted the conversation")?;
                            if !lines.unfinished().is_empty() {
                                let typed = format!("what you typed: {}", lines.unfinished());
                                context.output.note_verbatim(&typed)?;
                            }
                            return Ok(());
                        }
                        Some(OtherClientChange::Reconnected(daemon)) => self.daemon = daemon,
                        None => {}
                    }
                    continue;
                }
                LineInput::CtrlC if !is_leaving => {
                    is_leaving = true;
                    context.output.note_dim("Ctrl-C again, or Ctrl-D, leaves")?;
                    continue;
                }
                LineInput::CtrlC | LineInput::CtrlD => return Ok(()),
            };
            is_leaving = false;
            if text.trim().is_empty() {
                continue;
            }
            let done = until_ctrl_c(self.run_line(context, &text)).await;
            if let Some(written) = self.unsent_edit.take() {
                let path = written.persist()?;
                let note = format!("what you wrote is in {}", path.display());
                context.output.note(&note)?;
            }
            report_outcome(context.output, done)?;
        }
    }

    /// Executes a line with the daemon that runs now.
    async fn run_line(&mut self, context: &mut Context<'_>, text: &str) -> CommandResult {
        let command = parse_command(text);
        let is_local = matches!(command, Some(("help" | "exit" | "quit", _)));
        if !is_local && !self.daemon.is_connected().await {
            self.daemon = Rc::new(context.connect().await?);
            self.last_cursor = None;
        }
        match command {
            None => self.send_prompt(context, text).await,
            Some((name, rest)) => self.run_command(context, name, rest, text).await,
        }
    }

    /// Prints which conversation this is, and follows the running turn or asks the open questions.
    async fn enter(&mut self, context: &mut Context<'_>) -> CommandResult {
        let look = context.output.note_look;
        let columns = look.columns.unwrap_or(80);
        let conversation = &self.conversation;
        context.output.in_chat = true;
        self.learn_commands().await;
        let (id, title) = (humanize::short_id(conversation.id), one_line(&conversation.title));
        let place = format!("{} in {}", conversation.agent, one_line(&conversation.cwd));
        context
            .output
            .note_unedited(&look.paint(STRONG, format!("{id} {title}").trim_end()))?;
        let shortened = |text: &str| look.paint(DIM, &truncate(text, columns, look));
        context.output.note_unedited(&shortened(&place))?;
        // A running turn is shown when it is followed. A history that cannot be read does not prevent the chat.
        let last = match is_running(conversation.state) {
            true => Vec::new(),
            false => turns(&self.daemon, &conversation.id.into(), 1)
                .await
                .unwrap_or_default(),
        };
        if let Some(last) = last.first() {
            let mark = look.sign("›", ">");
            let prompt = one_line(&readable_prompt(&last.prompt));
            let prompt = humanize::mark_daemon_prompt(&prompt).unwrap_or_else(|| format!("{mark} {prompt}"));
            context.output.note_unedited(&shortened(&prompt))?;
            let plain = Look {
                coloured: false,
                ..look
            };
            let reply = one_line(&Markdown::render(&last.reply, plain));
            context.output.note_unedited(&shortened(&reply))?;
        }
        if !is_running(conversation.state) && conversation.interrupts.is_empty() {
            if conversation.cut_short {
                context
                    .output
                    .note_dim("the last turn was cut short; /continue continues it")?;
            }
            return Ok(());
        }
        let followed = self.follow(context, FollowTarget::Running).await;
        report_outcome(context.output, Some(followed))
    }

    /// Makes Tab complete the commands, including those that the agent has reported so far. If they cannot be read, the known ones
    /// stay.
    async fn learn_commands(&self) {
        let Ok((session, _)) = snapshot(&self.daemon, self.conversation.id).await else {
            return;
        };
        let reported = session.commands.and_then(|commands| commands.read().ok());
        let reported: Value = reported.unwrap_or_default();
        let known = typed_commands(own_commands().chain(names_of(&reported)));
        *lock(&self.commands) = known;
    }

    /// Follows a turn.
    async fn follow(&mut self, context: &mut Context<'_>, start: FollowTarget) -> CommandResult {
        let continues = matches!(start, FollowTarget::Continue(_));
        let mut follower =
            ConversationFollower::new(context, Rc::clone(&self.daemon), &self.conversation, None);
        let ended = follower.follow(start).await;
        (self.daemon, self.last_cursor) = (follower.daemon(), follower.last_cursor.clone());
        self.conversation.settings = follower.settings.clone();
        if follower.has_user_left {
            drop(follower);
            if let Err(Problem { message, hint, .. }) = ended {
                let said: Vec<String> = message.into_iter().chain(hint).collect();
                context.output.note_dim(&said.join(": "))?;
            }
            return leave();
        }
        let ended = ended.map_err(|problem| match continues {
            true => with_continue_hint(follower.screen.output, problem, &self.conversation, None, None),
            false => problem,
        })?;
        if report_edit(&mut follower)? {
            self.unsent_edit = None;
        }
        let reported = report_turn(&mut follower, ended.as_ref());
        // Until the follower is dropped it gets Ctrl-C, which was meant for the turn.
        self.learn_commands().await;
        reported
    }

    /// Sends a prompt with the files that it names.
    async fn send_prompt(&mut self, context: &mut Context<'_>, text: &str) -> CommandResult {
        let content = self.prompt_content(context, text).await?;
        let prompt = FollowTarget::prompt(self.conversation.id, content);
        self.follow(context, FollowTarget::Prompt(prompt)).await
    }

    /// Builds a prompt of a text and the files that it names, and lists these files.
    async fn prompt_content(&self, context: &mut Context<'_>, text: &str) -> CommandResult<PromptContent> {
        let named = files::find_mentions(text);
        let content = files::prompt_with_files(&self.daemon, &self.conversation, text, &named.files).await?;
        for line in named.lines() {
            context.output.note_dim(&line)?;
        }
        Ok(content)
    }

    /// Executes a command of the chat.
    async fn run_command(
        &mut self,
        context: &mut Context<'_>,
        name: &str,
        rest: &str,
        line: &str,
    ) -> CommandResult {
        let id = self.conversation.id;
        let given = Some(rest).filter(|rest| !rest.is_empty());
        match (name, given) {
            ("help" | "exit" | "quit" | "history" | "undo", Some(rest)) => {
                let problem = Problem::usage(format!("unexpected argument: {}", one_line(rest)));
                return Err(problem.hint(format!("type /{name} alone")));
            }
            ("help", _) => context.output.note(HELP)?,
            ("exit" | "quit", _) => return leave(),
            ("history", _) => run_as_shell_command(context, &[name, &id.to_string()]).await?,
            ("undo", _) => {
                self.last_cursor = None;
                run_as_shell_command(context, &[name, &id.to_string()]).await?;
            }
            ("answer" | "continue", Some(options)) => {
                let (id, options) = (id.to_string(), split_words(options)?);
                let options = options.iter().map(String::as_str);
                let call: Vec<_> = [name, &id].into_iter().chain(options).collect();
                // The command shows the turn that it starts.
                self.last_cursor = None;
                run_as_shell_command(context, &call).await?;
            }
            ("answer" | "continue", _) => {
                let get = method::GetConversation::of(id);
                self.conversation = self.daemon.call(get).await?.conversation;
                // A turn with an open question cannot continue until the question is answered; the answer continues it.
                match (name, self.conversation.interrupts.is_empty()) {
                    (_, false) => return self.follow(context, FollowTarget::Running).await,
                    ("answer", true) => context.output.note_dim("no question is open")?,
                    _ => {
                        return self
                            .follow(context, FollowTarget::Continue(continue_now(id)))
                            .await;
                    }
                }
            }
            ("edit", _) => return self.edit(context, rest).await,
            ("rewind", None) => self.list_turns(context).await?,
            ("rewind", Some(turn)) => {
                self.last_cursor = None;
                self.fork_after(context, Some(turn), true).await?;
                let place = match turn.parse::<u64>() {
                    Ok(turn) => format!("turn {turn}"),
                    Err(_) => "that turn".to_owned(),
                };
                context
                    .output
                    .note(&format!("Rewound to {place}. Undo with: /undo"))?;
            }
            ("fork", turn) => {
                let source = humanize::short_id(id);
                self.conversation = self.fork_after(context, turn, false).await?;
                select::set_current(&self.daemon, self.conversation.id).await;
                self.last_cursor = None;
                self.enter(context).await?;
                context.output.note_dim(&format!(
                    "a branch of {source}; to go back, leave and run: sessionctl chat {source}"
                ))?;
            }
            ("model" | "mode", None) => {
                let (session, _) = snapshot(&self.daemon, id).await?;
                list_values(context.output, name, &setting_values(name, &session))?;
            }
            ("model" | "mode", Some(value)) => self.set(context, name, value).await?,
            _ => return self.run_agent_command(context, name, line).await,
        }
        Ok(())
    }

    /// Sends a command of the agent. An unknown command is refused, unless the agent's commands are not known and the
    /// command is not similar to a known one.
    async fn run_agent_command(
        &mut self,
        context: &mut Context<'_>,
        name: &str,
        line: &str,
    ) -> CommandResult {
        let reported = self.agent_commands().await?;
        let of_agent: Vec<&str> = names_of(&reported).collect();
        let hint =
            match start_over_hint(name, self.conversation.id).or_else(|| similar_commands(name, &of_agent)) {
                _ if of_agent.contains(&name) => return self.send_prompt(context, line).await,
                None if !reported.is_array() => return self.send_prompt(context, line).await,
                Some(hint) => hint,
                None => "/help lists the commands; begin the line with a space to send it as text".to_owned(),
            };
        Err(Problem::usage(format!("unknown command: /{name}")).hint(hint))
    }

    /// Opens the session and returns the commands that the agent reports for it; null if the agent reports none.
    async fn agent_commands(&self) -> CommandResult<Value> {
        let id = self.conversation.id;
        if let Some(commands) = snapshot(&self.daemon, id).await?.0.commands {
            return Ok(commands.read().unwrap_or_default());
        }
        // Each event may have changed what the session offers.
        let mut events = EventStream::start(&self.daemon, id.into(), None).await?;
        self.daemon.call(method::Resume::of(id)).await?;
        let reported = async {
            loop {
                events.next().await?;
                if let Some(commands) = snapshot(&self.daemon, id).await?.0.commands {
                    return Ok(commands.read().unwrap_or_default());
                }
            }
        };
        tokio::time::timeout(COMMANDS_LIMIT, reported)
            .await
            .unwrap_or(Ok(Value::Null))
    }

    /// Replaces a prompt: `TURN TEXT`, both optional. Without a text the old prompt is opened in the editor.
    async fn edit(&mut self, context: &mut Context<'_>, rest: &str) -> CommandResult {
        let (first, others) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (turn, text) = match first.parse::<i64>().is_ok() || first.starts_with("cp.") {
            true => (first, others.trim()),
            false => ("-1", rest),
        };
        let id = self.conversation.id;
        let at = resolve_checkpoint(context.output, &self.daemon, id, turn).await?;
        if !text.is_empty() {
            return self.replace(context, at, text, Vec::new()).await;
        }
        let opening = async {
            let other = format!("/edit {turn} Hello");
            let opened = edit_old_prompt(context, &self.daemon, &id.into(), &at, &other).await;
            opened.map_err(|problem| match problem.exit {
                Exit::Usage => problem.hint("type the new prompt: /edit TURN TEXT"),
                _ => problem,
            })
        };
        let (opened, files) = opening.await?;
        let text = opened.text.clone();
        self.unsent_edit = Some(opened);
        self.replace(context, at, &text, files).await
    }

    /// Replaces a prompt with this text, the files that the text names, and the old prompt's files. A file that the text names
    /// is read again.
    async fn replace(
        &mut self,
        context: &mut Context<'_>,
        at: String,
        text: &str,
        mut files: Vec<String>,
    ) -> CommandResult {
        let named: Vec<_> = files::find_mentions(text)
            .files
            .iter()
            .flat_map(fs::canonicalize)
            .collect();
        files.retain(|file| attached_file(file).is_none_or(|path| !named.contains(&path.into())));
        let edit = method::Edit {
            conversation_id: self.conversation.id.into(),
            at,
            prompt: self
                .prompt_content(context, text)
                .await?
                .followed_by(&files::reattach(files)),
            request_id: Some(request_id()),
            ..Default::default()
        };
        self.follow(context, FollowTarget::Edit(edit)).await
    }

    /// Creates a branch after a turn.
    async fn fork_after(
        &self,
        context: &mut Context<'_>,
        turn: Option<&str>,
        in_place: bool,
    ) -> CommandResult<Conversation> {
        // The conversation may have received its title since the chat began.
        let get = method::GetConversation::of(self.conversation.id);
        let source = self.daemon.call(get).await?.conversation;
        let call = method::Fork {
            in_place,
            request_id: Some(request_id()),
            ..Default::default()
        };
        let answer = create_branch(context, &self.daemon, &source, turn, call).await;
        let answer = answer.map_err(|problem| match problem.kind() {
            Some(ErrorKind::NotResumable) => problem.hint("the conversation is unchanged"),
            _ => problem,
        });
        Ok(answer?.conversation)
    }

    async fn list_turns(&self, context: &mut Context<'_>) -> CommandResult {
        let look = context.output.note_look;
        let columns = look.columns.unwrap_or(80);
        let turns = turns(&self.daemon, &self.conversation.id.into(), LISTED_TURNS).await?;
        for turn in turns.iter().rev() {
            let line = format!("{:>4}  {}", turn.step, one_line(&readable_prompt(&turn.prompt)));
            context.output.note_unedited(&truncate(&line, columns, look))?;
        }
        let hint = match turns.is_empty() {
            true => "no turns yet",
            false => "/rewind TURN drops the turns after it",
        };
        context.output.note_dim(hint)
    }

    async fn set(&mut self, context: &mut Context<'_>, name: &str, value: &str) -> CommandResult {
        let (session, _) = snapshot(&self.daemon, self.conversation.id).await?;
        let all = setting_values(name, &session);
        let is_it = |option: &&SettingValue| option.value == value || option.name.eq_ignore_ascii_case(value);
        let value = all.iter().find(is_it).map_or(value, |option| &option.value);
        let id = self.conversation.id.to_string();
        self.last_cursor = None;
        run_as_shell_command(context, &["set", &id, &format!("{name}={value}")]).await
    }
}

/// Reports the outcome of a line, which is `None` after Ctrl-C. Fails only if the user leaves or the output was closed.
fn report_outcome(output: &mut Output, done: Option<CommandResult>) -> CommandResult {
    match done {
        None => output.note_dim("stopped waiting; the daemon may still finish it"),
        Some(Err(problem)) if problem.exit != Exit::Success => {
            output.problem(&problem);
            Ok(())
        }
        Some(done) => done,
    }
}

fn list_values(output: &mut Output, kind: &str, all: &[SettingValue]) -> CommandResult {
    if all.is_empty() {
        return output.note_dim(&format!(
            "the agent has not reported its {kind}s yet; send the first prompt"
        ));
    }
    let look = output.note_look;
    for option in all {
        let mark = if option.is_current {
            look.sign("●", "*")
        } else {
            " "
        };
        let line = format!(
            "{mark} {:<16} {}",
            one_line(&option.value),
            one_line(&option.description)
        );
        output.note_unedited(&truncate(&line, look.columns.unwrap_or(80), look))?;
    }
    Ok(())
}

/// A line that begins with a slash and a name is a command; a path is not.
fn parse_command(text: &str) -> Option<(&str, &str)> {
    let line = text.strip_prefix('/')?;
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_:".contains(letter);
    (!name.is_empty() && name.chars().all(is_name)).then(|| (name, rest.trim()))
}

/// The hint for a command that starts a new conversation in other programs.
fn start_over_hint(name: &str, id: ConversationId) -> Option<String> {
    let id = humanize::short_id(id);
    match name {
        "clear" | "reset" => Some(format!("start over in this conversation: sessionctl reset {id}")),
        "new" => Some("start a new conversation: sessionctl chat --new".to_owned()),
        _ => None,
    }
}

/// The names of the chat's own commands.
fn own_commands<'a>() -> impl Iterator<Item = &'a str> {
    let lines = HELP
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix('/'));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.chain(["quit"])
}

/// Commands as a user types them.
fn typed_commands<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    names.map(|name| format!("/{}", one_line(name))).collect()
}

/// The names of the commands that an agent reports.
fn names_of(reported: &Value) -> impl Iterator<Item = &str> {
    let reported = reported.as_array().into_iter().flatten();
    reported.filter_map(|command| command["name"].as_str())
}

/// The commands, including the agent's, that differ from a mistyped one in one letter.
fn similar_commands(name: &str, of_agent: &[&str]) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let known = own_commands().chain(of_agent.iter().copied());
    let alike = known.filter(|known| strsim::osa_distance(known, &name) <= 1);
    let alike: Vec<String> = alike.map(|known| format!("/{}", one_line(known))).collect();
    let is_any = !alike.is_empty();
    is_any.then(|| {
        format!(
            "did you mean {}? Begin the line with a space to send it as text",
            alike.join(" or ")
        )
    })
}

/// Splits a line into words; quotes group words as in a shell. An answer given as JSON is not split, since it contains quotes.
fn split_words(line: &str) -> CommandResult<Vec<String>> {
    if line.starts_with('{') {
        return Ok(vec![line.to_owned()]);
    }
    shlex::split(line).ok_or_else(|| {
        let problem = Problem::usage(format!("a quote is not closed: {}", one_line(line)));
        problem.hint("put text that has quotes in double quotes")
    })
}

/// Executes a line until the user presses Ctrl-C, which does not end the chat. A turn that is followed, a pager and an editor
/// listen for Ctrl-C after this, and get it in place of this.
async fn until_ctrl_c(work: impl Future<Output = CommandResult>) -> Option<CommandResult> {
    let interrupts = CtrlCListener::listen();
    tokio::select! {
        biased;
        () = interrupts.next_signal() => None,
        done = work => Some(done),
    }
}

/// Runs another command, as if it had been typed in a shell.
async fn run_as_shell_command(context: &mut Context<'_>, command: &[&str]) -> CommandResult {
    let line: Vec<OsString> = ["sessionctl"].iter().chain(command).map(OsString::from).collect();
    let arguments = args::parse(&line).map_err(|error| args::invalid_call(&error, &line))?;
    match arguments.command {
        Some(command) => Box::pin(command.run(context)).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_name_after_a_slash() {
        for (text, expected) in [
            ("/undo", Some(("undo", ""))),
            ("/edit 3  another text", Some(("edit", "3  another text"))),
            ("/mcp:tool_x a", Some(("mcp:tool_x", "a"))),
            ("/usr/bin/env is what?", None),
            ("/ hm", None),
            (" /undo", None),
            ("undo", None),
        ] {
            assert_eq!(parse_command(text), expected, "{text}");
        }
    }
}

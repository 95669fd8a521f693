//! `chat`: a conversation at a terminal, prompt after prompt.
//!
//! It owns what a typed line means: a prompt, or a command that begins with a slash. Lines are read by `lines`, and turns followed
//! by `turn`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bridge_protocol::conversation::Conversation;
use bridge_protocol::event::Event;
use bridge_protocol::method;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::{ConversationId, Cursor, ErrorKind};
use clap::Args;
use serde_json::Value;

use super::continuing::refused;
use super::edit::{opened, place, replaced};
use super::editor::Written;
use super::files;
use super::lines::{Commands, Lines, Typed};
use super::markdown::Markdown;
use super::send::{finish, meant_as_text, prompt_word};
use super::turn::{Start, Talk, change_elsewhere, continue_now, is_running, request_id};
use crate::cli::commands::make::{branched, new_here};
use crate::cli::commands::set::{Offered, offered};
use crate::cli::commands::{Context, turns};
use crate::cli::complete;
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::follow::{Follower, snapshot};
use crate::cli::output::{Look, Output, STRONG, cut, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::select::{self, Target};
use crate::cli::signals::{self, Interrupts};
use crate::cli::spoken::{attached, spoken};
use crate::cli::{args, words};

/// How long an agent may take to report its commands after its session is open. An agent that has none reports nothing.
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
  /continue [OPTIONS]    Continue the interrupted turn (--at-reset, --at TIME)
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
    target: Target,
    /// Start a new conversation in this folder
    #[arg(long, conflicts_with = "conversation")]
    new: bool,
    /// Agent of the new conversation (default: default_agent in the configuration)
    #[arg(long, value_name = "NAME", requires = "new", conflicts_with = "conversation", add = complete::agent())]
    agent: Option<String>,
}

/// The conversation that is talked in.
struct Room {
    daemon: Rc<Daemon>,
    conversation: Conversation,
    /// What was written in the editor for an edit that is not accepted yet.
    written: Option<Written>,
    /// The commands that a line may begin with.
    commands: Commands,
    /// The last event that was shown; nothing if what happened since is of no interest.
    after: Option<Cursor>,
}

/// Why a line of the chat was not carried out to its end.
enum Stop {
    /// The user leaves the chat.
    Leaving,
    /// The user does not wait for the daemon any longer.
    NotWaiting,
    /// It did not work.
    Problem(Problem),
}

/// What a line of the chat gives.
type Done<T = ()> = Result<T, Stop>;

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Talks in the conversation that was named, picked or made.
pub(in crate::cli) async fn chat(context: &mut Context<'_>, options: Chat) -> Outcome {
    if context.output.json || !io::stdin().is_terminal() || context.output.note_look.columns.is_none() {
        let to = if options.new { "--new" } else { select::HERE };
        return Err(Problem::new(Exit::Usage, "chat needs a terminal")
            .hint(format!("send one prompt with: sessionctl send {to} 'Hello'")));
    }
    let daemon = context.connect().await?;
    let conversation = match options.new {
        true => new_here(&daemon, options.agent).await?,
        false => {
            let given = options.target.name();
            let chosen = select::chosen(context, &daemon, given).await;
            chosen.map_err(|problem| {
                meant_as_text(problem, given.unwrap_or_default(), "", |prompt| {
                    let prompt = prompt_word(prompt);
                    format!(
                        "to send it as a prompt: sessionctl send --new {prompt}; sessionctl ls lists the conversations"
                    )
                })
            })?
        }
    };
    chat_in(context, daemon, conversation).await
}

/// Talks until the user leaves.
pub(in crate::cli) async fn chat_in(
    context: &mut Context<'_>,
    daemon: Daemon,
    conversation: Conversation,
) -> Outcome {
    let mut room = Room {
        daemon: Rc::new(daemon),
        conversation,
        written: None,
        commands: Commands::default(),
        after: None,
    };
    signals::watch();
    match room.talk(context).await {
        Err(Stop::Problem(problem)) => Err(problem),
        Ok(()) | Err(Stop::Leaving | Stop::NotWaiting) => Ok(()),
    }
}

impl Room {
    /// Carries out line after line.
    async fn talk(&mut self, context: &mut Context<'_>) -> Done {
        let mut lines = Lines::new(context, Arc::clone(&self.commands))?;
        context.warn_of_echo(&self.daemon, &self.conversation).await?;
        self.enter(context).await?;
        context
            .output
            .aside("/help lists the commands, /exit or Ctrl-D leaves")?;
        let mut is_leaving = false;
        // A Ctrl-C that comes just after the turn that it was meant for ends no chat.
        let _between_turns = Interrupts::listen();
        loop {
            let (daemon, id, after) = (Rc::clone(&self.daemon), self.conversation.id, self.after.clone());
            let mut begun = None;
            let begins = async { begun = Some(elsewhere(&daemon, id, after).await) };
            let text = match lines.next(context.output, begins).await? {
                Typed::Text(text) => text,
                Typed::Nothing => {
                    match begun {
                        Some(Elsewhere::Turn(what, start)) => {
                            context.output.aside(&what)?;
                            let done = self.follow(context, start).await;
                            report(context.output, done)?;
                        }
                        Some(Elsewhere::Change(what, after)) => {
                            context.output.aside(&what)?;
                            self.after = after;
                        }
                        None => {}
                    }
                    continue;
                }
                Typed::Interrupt if !is_leaving => {
                    is_leaving = true;
                    context.output.aside("Ctrl-C again, or Ctrl-D, leaves")?;
                    continue;
                }
                Typed::Interrupt | Typed::End => return Ok(()),
            };
            is_leaving = false;
            if text.trim().is_empty() {
                continue;
            }
            let done = self.line(context, &text).await;
            report(context.output, done)?;
        }
    }

    /// Carries a line out, at the daemon that runs now.
    async fn line(&mut self, context: &mut Context<'_>, text: &str) -> Done {
        let command = command_in(text);
        let is_local = matches!(command, Some(("help" | "exit" | "quit", _)));
        if !is_local && !until_ctrl_c(async { Ok(self.daemon.is_there().await) }).await? {
            self.daemon = Rc::new(until_ctrl_c(context.connect()).await?);
            self.after = None;
        }
        match command {
            None => self.prompt(context, text).await,
            Some((name, rest)) => self.command(context, name, rest, text).await,
        }
    }

    /// Says where the user is, and what is open here: the running turn, questions.
    async fn enter(&mut self, context: &mut Context<'_>) -> Done {
        let look = context.output.note_look;
        let columns = look.columns.unwrap_or(80);
        let conversation = &self.conversation;
        context.output.in_chat = true;
        until_ctrl_c(self.learn_commands()).await?;
        let (id, title) = (words::short_id(conversation.id), one_line(&conversation.title));
        let place = format!("{} in {}", conversation.agent, one_line(&conversation.cwd));
        context
            .output
            .note(&look.paint(STRONG, format!("{id} {title}").trim_end()))?;
        context.output.aside(&cut(&place, columns, look))?;
        // A turn that runs is shown when it is followed. What cannot be read can be talked about all the same.
        let last = match is_running(conversation.state) {
            true => Vec::new(),
            false => until_ctrl_c(turns(&self.daemon, &conversation.id.into(), 1))
                .await
                .unwrap_or_default(),
        };
        if let Some(last) = last.first() {
            let mark = look.sign("›", ">");
            let prompt = one_line(&spoken(&last.prompt));
            let prompt = words::own_prompt(&prompt).unwrap_or_else(|| format!("{mark} {prompt}"));
            context.output.aside(&cut(&prompt, columns, look))?;
            let plain = Look {
                coloured: false,
                ..look
            };
            let reply = one_line(&Markdown::shown(&last.reply, plain));
            context.output.aside(&cut(&reply, columns, look))?;
        }
        if !is_running(conversation.state) && conversation.interrupts.is_empty() {
            if conversation.cut_short {
                context
                    .output
                    .aside("the last turn was interrupted; /continue continues it")?;
            }
            return Ok(());
        }
        match self.follow(context, Start::Running).await {
            Err(Stop::Problem(problem)) => {
                context.output.problem(&problem);
                Ok(())
            }
            followed => followed,
        }
    }

    /// Has lines complete the commands, also those that the agent has reported by now.
    async fn learn_commands(&self) -> Outcome {
        let reported = snapshot(&self.daemon, self.conversation.id).await.ok();
        let reported = reported.and_then(|(session, _)| session.commands?.read().ok());
        let reported: Value = reported.unwrap_or_default();
        let known = own_commands().chain(names_of(&reported));
        let known = known.map(|name| format!("/{}", one_line(name))).collect();
        *self.commands.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// Follows a turn.
    async fn follow(&mut self, context: &mut Context<'_>, start: Start) -> Done {
        let continues = matches!(start, Start::Continue(_));
        let mut talk = Talk::new(context, Rc::clone(&self.daemon), &self.conversation, None);
        let ended = talk.follow(start).await;
        (self.daemon, self.after) = (talk.daemon(), talk.cursor());
        if talk.has_left {
            drop(talk);
            if let Err(Problem { message, hint, .. }) = ended {
                let said: Vec<String> = message.into_iter().chain(hint).collect();
                context.output.aside(&said.join(": "))?;
            }
            return Err(Stop::Leaving);
        }
        let ended = ended.map_err(|problem| match continues {
            true => refused(talk.screen.output, problem, &self.conversation, None),
            false => problem,
        })?;
        if replaced(&mut talk)? {
            self.written = None;
        }
        finish(&mut talk, ended.as_ref())?;
        // A Ctrl-C that comes now was meant for the turn.
        until_ctrl_c(self.learn_commands()).await.or(Ok(()))
    }

    /// Sends a prompt with the files that it names.
    async fn prompt(&mut self, context: &mut Context<'_>, text: &str) -> Done {
        let content = until_ctrl_c(self.content(context, text)).await?;
        let prompt = Start::prompt(self.conversation.id, content);
        self.follow(context, Start::Prompt(prompt)).await
    }

    /// A text with the files that it names, which are listed.
    async fn content(&self, context: &mut Context<'_>, text: &str) -> Outcome<PromptContent> {
        let named = files::named_in(text);
        let content = files::prompt(&self.daemon, &self.conversation, text, &named.files).await?;
        for line in named.lines() {
            context.output.aside(&line)?;
        }
        Ok(content)
    }

    /// Carries a command out.
    async fn command(&mut self, context: &mut Context<'_>, name: &str, rest: &str, line: &str) -> Done {
        let id = self.conversation.id;
        let given = Some(rest).filter(|rest| !rest.is_empty());
        match (name, given) {
            ("help" | "exit" | "quit" | "history" | "undo", Some(rest)) => {
                return Err(
                    Problem::new(Exit::Usage, format!("unexpected argument: {}", one_line(rest)))
                        .hint(format!("type /{name} alone"))
                        .into(),
                );
            }
            ("help", _) => context.output.note(HELP)?,
            ("exit" | "quit", _) => return Err(Stop::Leaving),
            ("history", _) => until_ctrl_c(run(context, &[name, &id.to_string()])).await?,
            ("undo", _) => {
                self.after = None;
                until_ctrl_c(run(context, &[name, &id.to_string()])).await?;
            }
            ("answer" | "continue", Some(options)) => {
                let (id, options) = (id.to_string(), words_in(options)?);
                let options = options.iter().map(String::as_str);
                let call: Vec<_> = [name, &id].into_iter().chain(options).collect();
                // It shows what it starts.
                self.after = None;
                until_ctrl_c(run(context, &call)).await?;
            }
            ("answer" | "continue", _) => {
                let get = method::GetConversation::of(id);
                self.conversation = until_ctrl_c(self.daemon.call(get)).await?.conversation;
                // Nothing continues before a question is answered, and its answer continues it.
                match (name, self.conversation.interrupts.is_empty()) {
                    (_, false) => return self.follow(context, Start::Running).await,
                    ("answer", true) => context.output.aside("no question is open")?,
                    _ => return self.follow(context, Start::Continue(continue_now(id))).await,
                }
            }
            ("edit", _) => return self.edit(context, rest).await,
            ("rewind", None) => until_ctrl_c(self.list_turns(context)).await?,
            ("rewind", Some(turn)) => {
                self.after = None;
                until_ctrl_c(self.branch(context, Some(turn), true)).await?;
                let place = match turn.parse::<u64>() {
                    Ok(turn) => format!("turn {turn}"),
                    Err(_) => "that turn".to_owned(),
                };
                context
                    .output
                    .note(&format!("Rewound to {place}. Undo with: /undo"))?;
            }
            ("fork", turn) => {
                let source = words::short_id(id);
                let branching = async {
                    let branch = self.branch(context, turn, false).await?;
                    select::use_here(&self.daemon, branch.id).await;
                    Ok(branch)
                };
                self.conversation = until_ctrl_c(branching).await?;
                self.after = None;
                self.enter(context).await?;
                let back = context.output.addressed(&format!("sessionctl chat {source}"));
                context.output.aside(&format!(
                    "a branch of {source}; to go back, leave and run: {back}"
                ))?;
            }
            ("model" | "mode", None) => {
                let (session, _) = until_ctrl_c(snapshot(&self.daemon, id)).await?;
                list(context.output, name, &offered(name, &session))?;
            }
            ("model" | "mode", Some(value)) => until_ctrl_c(self.set(context, name, value)).await?,
            _ => return self.unknown(context, name, line).await,
        }
        Ok(())
    }

    /// A command of the agent. Another one is refused, unless it is not known which the agent has and it is like none that
    /// is known.
    async fn unknown(&mut self, context: &mut Context<'_>, name: &str, line: &str) -> Done {
        let reported = until_ctrl_c(self.agent_commands()).await?;
        let of_agent: Vec<&str> = names_of(&reported).collect();
        let hint = match new_chat(name, self.conversation.id).or_else(|| alike(name, &of_agent)) {
            _ if of_agent.contains(&name) => return self.prompt(context, line).await,
            None if !reported.is_array() => return self.prompt(context, line).await,
            Some(hint) => hint,
            None => "/help lists the commands; begin the line with a space to send it as text".to_owned(),
        };
        Err(Problem::new(Exit::Usage, format!("unknown command: /{name}"))
            .hint(hint)
            .into())
    }

    /// The commands that the agent reports of its open session, which is opened for this; null if it reports none.
    async fn agent_commands(&self) -> Outcome<Value> {
        let id = self.conversation.id;
        if let Some(commands) = snapshot(&self.daemon, id).await?.0.commands {
            return Ok(commands.read().unwrap_or_default());
        }
        let mut follower = Follower::start(&self.daemon, id.into(), None).await?;
        self.daemon.call(method::Resume::of(id)).await?;
        let reported = async {
            loop {
                let commands: Value = match follower.next().await?.envelope.event {
                    Event::Snapshot { session, .. } => {
                        let commands = session.and_then(|session| session.commands);
                        commands
                            .and_then(|commands| commands.read().ok())
                            .unwrap_or_default()
                    }
                    Event::Update { update, .. } => {
                        let update: Value = update.read().unwrap_or_default();
                        update["availableCommands"].clone()
                    }
                    _ => Value::Null,
                };
                if commands.is_array() {
                    return Ok::<_, Problem>(commands);
                }
            }
        };
        tokio::time::timeout(COMMANDS_LIMIT, reported)
            .await
            .unwrap_or(Ok(Value::Null))
    }

    /// Replaces a prompt: `TURN TEXT`, both optional. Without a text the old prompt is opened in the editor.
    async fn edit(&mut self, context: &mut Context<'_>, rest: &str) -> Done {
        let (first, others) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (turn, text) = match first.parse::<i64>().is_ok() || first.starts_with("cp.") {
            true => (first, others.trim()),
            false => ("-1", rest),
        };
        let id = self.conversation.id;
        let at = until_ctrl_c(place(context.output, &self.daemon, id, turn)).await?;
        if !text.is_empty() {
            return self.replace(context, at, text, Vec::new()).await;
        }
        let opening = async {
            let other = format!("/edit {turn} Hello");
            let opened = opened(context, &self.daemon, &id.into(), &at, &other).await;
            opened.map_err(|problem| match problem.exit {
                Exit::Usage => problem.hint("type the new prompt: /edit TURN TEXT"),
                _ => problem,
            })
        };
        let (opened, files) = until_ctrl_c(opening).await?;
        let text = opened.text.clone();
        self.written = Some(opened);
        let replaced = self.replace(context, at, &text, files).await;
        if let Some(written) = self.written.take() {
            let path = written.keep()?;
            context
                .output
                .note(&format!("what you wrote is in {}", path.display()))?;
        }
        replaced
    }

    /// Replaces a prompt by this text, the files that it names, and those that the old prompt had; one that it names is read again.
    async fn replace(
        &mut self,
        context: &mut Context<'_>,
        at: String,
        text: &str,
        mut files: Vec<String>,
    ) -> Done {
        let named: Vec<_> = files::named_in(text)
            .files
            .iter()
            .flat_map(fs::canonicalize)
            .collect();
        files.retain(|file| attached(file).is_none_or(|path| !named.contains(&path.into())));
        let edit = method::Edit {
            conversation_id: self.conversation.id.into(),
            at,
            prompt: until_ctrl_c(self.content(context, text))
                .await?
                .followed_by(&files::again(files)),
            request_id: Some(request_id()),
            ..Default::default()
        };
        self.follow(context, Start::Edit(edit)).await
    }

    /// Branches after a turn.
    async fn branch(
        &self,
        context: &mut Context<'_>,
        turn: Option<&str>,
        in_place: bool,
    ) -> Outcome<Conversation> {
        // It may have got its title since the chat began.
        let get = method::GetConversation::of(self.conversation.id);
        let source = self.daemon.call(get).await?.conversation;
        let call = method::Fork {
            in_place,
            request_id: Some(request_id()),
            ..Default::default()
        };
        let answer = branched(context, &self.daemon, &source, turn, call).await;
        let answer = answer.map_err(|problem| match problem.kind() {
            Some(ErrorKind::NotResumable) => problem.hint("the conversation is unchanged"),
            _ => problem,
        });
        Ok(answer?.conversation)
    }

    async fn list_turns(&self, context: &mut Context<'_>) -> Outcome {
        let look = context.output.note_look;
        let columns = look.columns.unwrap_or(80);
        let turns = turns(&self.daemon, &self.conversation.id.into(), LISTED_TURNS).await?;
        for turn in turns.iter().rev() {
            let line = format!("{:>4}  {}", turn.step, one_line(&spoken(&turn.prompt)));
            context.output.note(&cut(&line, columns, look))?;
        }
        let hint = match turns.is_empty() {
            true => "no turns yet",
            false => "/rewind TURN drops the turns after it",
        };
        context.output.aside(hint)
    }

    async fn set(&mut self, context: &mut Context<'_>, name: &str, value: &str) -> Outcome {
        let (session, _) = snapshot(&self.daemon, self.conversation.id).await?;
        let all = offered(name, &session);
        let is_it = |option: &&Offered| option.value == value || option.name.eq_ignore_ascii_case(value);
        let value = all.iter().find(is_it).map_or(value, |option| &option.value);
        let id = self.conversation.id.to_string();
        run(context, &["set", &id, &format!("{name}={value}")]).await
    }
}

/// Reports the outcome of a line, unless the user leaves the chat.
fn report(output: &mut Output, done: Done) -> Done {
    match done {
        Err(Stop::NotWaiting) => Ok(output.aside("stopped waiting; the daemon may still finish it")?),
        // Else the reader of the output has left.
        Err(Stop::Problem(problem)) if problem.exit != Exit::Done => {
            output.problem(&problem);
            Ok(())
        }
        done => done,
    }
}

/// What another client did, as a sentence.
enum Elsewhere {
    /// A turn began, which can be followed.
    Turn(String, Start),
    /// The history or the folder changed, up to this event.
    Change(String, Option<Cursor>),
}

/// Waits until a turn begins that was not begun here, or another client changes the conversation. Each event is read when it
/// comes: the daemon holds none for a chat that waits for a line.
async fn elsewhere(daemon: &Daemon, id: ConversationId, after: Option<Cursor>) -> Elsewhere {
    let turn = |what: &str, start| Elsewhere::Turn(what.to_owned(), start);
    const CONTINUATION: &str = "A continuation began";
    const PROMPT: &str = "Another client sent a prompt";
    let mut edited = None;
    // What the daemon does not report now is shown with the next line.
    let Ok(mut follower) = Follower::start(daemon, id.into(), after).await else {
        return std::future::pending().await;
    };
    loop {
        let before = follower.cursor();
        let Ok(followed) = follower.next().await else {
            return std::future::pending().await;
        };
        let change = change_elsewhere(&followed.envelope.event, id);
        match (followed.envelope.event, before) {
            (Event::Continued { .. }, Some(before)) => return turn(CONTINUATION, Start::Since(before)),
            (Event::PromptAccepted { .. }, Some(before)) => {
                let what = edited.as_deref().unwrap_or(PROMPT);
                return turn(what, Start::Since(before));
            }
            (Event::Snapshot { running: Some(_), .. }, _) => return turn(PROMPT, Start::Running),
            // Its prompt comes next.
            (Event::Edited { .. }, _) => edited = change,
            _ => {
                if let Some(what) = change {
                    return Elsewhere::Change(what, follower.cursor());
                }
            }
        }
    }
}

fn list(output: &mut Output, kind: &str, all: &[Offered]) -> Outcome {
    if all.is_empty() {
        return output.aside(&format!(
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
            one_line(&option.about)
        );
        output.note(&cut(&line, look.columns.unwrap_or(80), look))?;
    }
    Ok(())
}

/// A line that begins with a slash and a name is a command; a path is not.
fn command_in(text: &str) -> Option<(&str, &str)> {
    let line = text.strip_prefix('/')?;
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_:".contains(letter);
    (!name.is_empty() && name.chars().all(is_name)).then(|| (name, rest.trim()))
}

/// How to start over, if that is what a command does in other programs.
fn new_chat(name: &str, id: ConversationId) -> Option<String> {
    let id = words::short_id(id);
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

/// The names of the commands that an agent reports.
fn names_of(reported: &Value) -> impl Iterator<Item = &str> {
    let reported = reported.as_array().into_iter().flatten();
    reported.filter_map(|command| command["name"].as_str())
}

/// The commands, also the agent's, from which a mistyped one differs in one letter.
fn alike(name: &str, of_agent: &[&str]) -> Option<String> {
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

/// The words of a line; quotes hold several together, as in a shell. An answer as JSON has quotes of its own.
fn words_in(line: &str) -> Outcome<Vec<String>> {
    if line.starts_with('{') {
        return Ok(vec![line.to_owned()]);
    }
    shlex::split(line).ok_or_else(|| {
        let problem = Problem::new(Exit::Usage, format!("a quote has no end: {}", one_line(line)));
        problem.hint("put text that has quotes in double quotes")
    })
}

/// Waits for the daemon until the user presses Ctrl-C, which ends no chat.
async fn until_ctrl_c<T>(work: impl Future<Output = Outcome<T>>) -> Done<T> {
    let interrupts = Interrupts::listen();
    tokio::select! {
        biased;
        () = interrupts.next() => Err(Stop::NotWaiting),
        done = work => Ok(done?),
    }
}

/// Runs another command, as if it had been typed in a shell.
async fn run(context: &mut Context<'_>, command: &[&str]) -> Outcome {
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
            assert_eq!(command_in(text), expected, "{text}");
        }
    }
}

//! Lets the user pick a conversation: a list that is filtered as the user types, above the last turns of the selected one.
//!
//! It owns the keys and the screen, which is always restored at the end. It must not know what the conversation is used for.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use bridge_protocol::conversation::Conversation;
use bridge_protocol::{ConversationId, method};
use crossterm::cursor::MoveTo;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use crossterm::execute;
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use futures_util::future::{FutureExt as _, LocalBoxFuture, OptionFuture};
use unicode_width::UnicodeWidthStr;

use super::advice::with_daemon_options;
use super::commands::lifecycle::way_back;
use super::commands::{Context, list, this_folder, turns};
use super::connect::Daemon;
use super::history_text::HistoryRenderer;
use super::humanize;
use super::keyboard;
use super::log_error;
use super::output::{ATTENTION, DIM, Look, Output, STRONG, is_dumb_terminal, truncate};
use super::problem::{CommandResult, Exit, Problem};
use super::prompt_text::readable_prompt;
use super::select;
use super::signals::{self, IS_FULL_SCREEN};

/// How many conversations are listed. The daemon searches the titles, folders and agents of the others.
const LISTED_LIMIT: usize = 1_000;

/// For how many conversations the last turns are read before anything is typed. When the user types, the last turns of all are
/// read, because the query may match a last prompt, which only the transcripts contain.
const PREFETCHED_CONVERSATIONS: usize = 50;

/// How many lines of a conversation's end are kept: more than a terminal shows.
const PREVIEW_LINES: u16 = 200;

/// Whether a user can be asked: keys are read from standard input, and the list is printed to standard error.
pub(super) fn is_possible(output: &Output) -> bool {
    !output.json && !is_dumb_terminal() && output.note_look.columns.is_some() && io::stdin().is_terminal()
}

/// Lets the user pick a conversation. Returns `None` if the user wants a new one, which is offered if `may_create`.
///
/// # Errors
/// The user leaves without picking one, which is a failure only of a command that needs one; a signal ends the picker; the
/// connection to the daemon is lost; or no conversation exists yet, and none may be created or no agent is installed for one in
/// this folder.
pub(super) async fn pick(
    context: &mut Context<'_>,
    daemon: &Daemon,
    may_create: bool,
) -> CommandResult<Option<Conversation>> {
    let (all, has_more) =
        list::list_here_first(daemon, &method::ListConversations::default(), LISTED_LIMIT).await?;
    let here = this_folder()?;
    let missing_agent = match may_create && all.iter().all(|one| one.cwd != here) {
        true => select::refuse_without_agent(daemon).await.err(),
        false => None,
    };
    let (message, notes) = match missing_agent {
        Some(problem) if all.is_empty() || problem.exit != Exit::Agent => return Err(problem),
        // The picker is gone when the user wants to paste the command.
        Some(problem) => {
            let hint = problem.hint.as_deref().unwrap_or_default();
            (
                problem.text(),
                vec![format!("{}; install it with: {hint}", problem.text())],
            )
        }
        None if all.is_empty() && may_create => return Ok(None),
        None if all.is_empty() => {
            let problem = Problem::new(Exit::NotFound, "there is no conversation yet");
            return Err(problem.hint("start one: sessionctl send --new 'Hello'"));
        }
        None => Default::default(),
    };
    let mut picker = Picker {
        daemon,
        look: context.output.note_look,
        options: &context.output.daemon_options,
        command: match context.command.as_deref() {
            None | Some("chat") => None,
            Some(command) => Some(command.to_owned()),
        },
        may_create,
        matches: all.clone(),
        all,
        has_more,
        searched_query: String::new(),
        last_turns: HashMap::new(),
        query: String::new(),
        selected: 0,
        input: Input::Filter,
        message,
        notes,
    };
    let picked = picker.run().await;
    for note in picker.notes {
        context.output.note_unedited(&note)?;
    }
    picked
}

/// The field that receives the user's keys.
enum Input {
    Filter,
    /// The new title of the selected conversation.
    Title(String),
    /// The confirmation before the selected conversation is deleted.
    Delete,
}

/// Data that the daemon returned while the user typed.
enum PickerData {
    /// The conversations that match a query.
    Matches(String, CommandResult<Vec<Conversation>>),
    /// The end of a conversation.
    LastTurns(ConversationId, LastTurns),
}

/// The end of a conversation.
#[derive(Default)]
struct LastTurns {
    /// The last prompt, which queries search too.
    prompt: String,
    /// The lines to show, or the reason why the history cannot be read.
    lines: Vec<String>,
}

/// What a key does with the selected conversation.
enum Action {
    Fork,
    /// Sets its title.
    Rename(String),
    Delete,
}

struct Picker<'a> {
    daemon: &'a Daemon,
    look: Look,
    /// The options that name the daemon.
    options: &'a str,
    /// The command that needs a conversation; `None` to chat in it.
    command: Option<String>,
    may_create: bool,
    all: Vec<Conversation>,
    /// Whether there are more conversations than those in `all`.
    has_more: bool,
    /// The last query for which the daemon was searched for more conversations.
    searched_query: String,
    /// The conversations that contain each word of the query, in the order of the list.
    matches: Vec<Conversation>,
    /// The ends of the conversations that were read so far.
    last_turns: HashMap<ConversationId, LastTurns>,
    query: String,
    /// An index into `matches`.
    selected: usize,
    input: Input,
    /// The result of the last key.
    message: String,
    /// Notes to print after the screen is restored.
    notes: Vec<String>,
}

/// Reads the next key, first from those that were buffered, then from the terminal. Returns `None` for another event.
async fn next_key(typed: &mut VecDeque<KeyEvent>) -> io::Result<Option<KeyEvent>> {
    if let Some(key) = typed.pop_front() {
        return Ok(Some(key));
    }
    Ok(keyboard::next_event().await?.as_key_event())
}

/// The result of leaving the picker without a conversation, which fails a command that needs one.
fn left_problem(needs_one: bool) -> Problem {
    match needs_one {
        true => Problem::failed("cancelled: no conversation was picked"),
        false => Problem::silent(Exit::Success),
    }
}

/// Waits for a key that leaves the picker, and buffers other keys.
async fn wait_for_leave_key(typed: &mut VecDeque<KeyEvent>, needs_one: bool) -> CommandResult<Problem> {
    loop {
        let event = keyboard::next_event().await.map_err(terminal_problem)?;
        let Event::Key(key) = event else { continue };
        match key.code {
            KeyCode::Esc => return Ok(left_problem(needs_one)),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Ok(Problem::silent(Exit::Signal(2)));
            }
            _ => typed.push_back(key),
        }
    }
}

/// Deletes a conversation and keeps its transcripts; returns a message about it.
async fn delete(daemon: &Daemon, one: &Conversation, options: &str) -> CommandResult<String> {
    let answer = daemon.call(method::Delete::of(one.id)).await?;
    let way_back = with_daemon_options(&way_back(daemon, one, &answer).await, options);
    Ok(format!("Deleted {}{way_back}", humanize::name(one)))
}

impl<'a> Picker<'a> {
    async fn run(&mut self) -> CommandResult<Option<Conversation>> {
        signals::start_signal_watcher();
        let mut screen = AlternateScreen::enter().map_err(terminal_problem)?;
        let mut reading = None;
        let needs_one = self.command.is_some();
        // Keys typed while the daemon executed an earlier action.
        let mut typed = VecDeque::new();
        loop {
            self.draw().map_err(terminal_problem)?;
            if reading.is_none() {
                reading = self.next_to_read();
            }
            tokio::select! {
                biased;
                key = next_key(&mut typed) => {
                    // Not a key, for example a new size of the terminal: draw again.
                    let Some(key) = key.map_err(terminal_problem)? else { continue };
                    if key.code == KeyCode::Char('z') && key.modifiers.contains(KeyModifiers::CONTROL) {
                        drop(screen);
                        signals::suspend().map_err(terminal_problem)?;
                        screen = AlternateScreen::enter().map_err(terminal_problem)?;
                        continue;
                    }
                    let picked = tokio::select! {
                        biased;
                        picked = self.handle_key(key) => picked?,
                        left = wait_for_leave_key(&mut typed, needs_one) => {
                            self.notes.push("stopped waiting; the daemon may still finish it".to_owned());
                            return Err(left?);
                        }
                    };
                    if let ControlFlow::Break(picked) = picked {
                        drop(screen);
                        return Ok(picked);
                    }
                }
                Some(read) = OptionFuture::from(reading.as_mut()) => {
                    reading = None;
                    match read {
                        PickerData::Matches(query, found) => {
                            let known: HashSet<_> = self.all.iter().map(|one| one.id).collect();
                            match found {
                                Ok(found) => self
                                    .all
                                    .extend(found.into_iter().filter(|one| !known.contains(&one.id))),
                                Err(problem) => self.message = problem.text(),
                            }
                            self.searched_query = query;
                        }
                        PickerData::LastTurns(id, last) => drop(self.last_turns.insert(id, last)),
                    }
                    self.filter();
                }
            }
        }
    }

    fn selected(&self) -> Option<&Conversation> {
        self.matches.get(self.selected)
    }

    /// The next request for data that may match the query: more conversations, then last turns that were not read yet, those of
    /// the selected conversation first. If the daemon returns an error, it is shown instead of the data.
    fn next_to_read(&self) -> Option<LocalBoxFuture<'a, PickerData>> {
        let (daemon, look) = (self.daemon, self.look);
        if self.has_more && self.query != self.searched_query {
            let query = self.query.clone();
            let reading = async move {
                let matching = method::ListConversations {
                    query: Some(query.clone()),
                    ..Default::default()
                };
                let found = list::list_here_first(daemon, &matching, LISTED_LIMIT).await;
                PickerData::Matches(query, found.map(|(found, _)| found))
            };
            return Some(reading.boxed_local());
        }
        let ahead = match self.query.as_str() {
            "" => PREFETCHED_CONVERSATIONS,
            _ => self.all.len(),
        };
        let ahead = self.all.iter().take(ahead);
        let mut wanted = self.selected().into_iter().chain(ahead).map(|one| one.id);
        let id = wanted.find(|id| !self.last_turns.contains_key(id))?;
        let reading = async move { PickerData::LastTurns(id, last_turns(daemon, id, look).await) };
        Some(reading.boxed_local())
    }

    /// Filters the conversations again; the selected one stays selected.
    fn filter(&mut self) {
        let selected = self.selected().map(|one| one.id);
        let words = self.query.to_lowercase();
        // Searches the same fields as `ls`, and the last prompt.
        let has_each_word = |one: &&Conversation| {
            let prompt = self.last_turns.get(&one.id).map_or("", |last| &last.prompt);
            let id = one.id.to_string();
            let text = format!("{} {} {} {prompt}", one.title, one.cwd, one.agent).to_lowercase();
            let mut words = words.split_whitespace();
            words.all(|word| text.contains(word) || id.starts_with(word))
        };
        self.matches = self.all.iter().filter(has_each_word).cloned().collect();
        let again = self.matches.iter().position(|one| Some(one.id) == selected);
        self.selected = again.unwrap_or_default();
    }

    /// Handles a key. Stops with the conversation that the key picked, or with `None` for a new one.
    async fn handle_key(&mut self, key: KeyEvent) -> CommandResult<ControlFlow<Option<Conversation>>> {
        self.message.clear();
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (&mut self.input, key.code) {
            (_, KeyCode::Char('c')) if control => return Err(Problem::silent(Exit::Signal(2))),
            (Input::Filter, code) => return self.handle_filter_key(code, control).await,
            (Input::Title(title), KeyCode::Enter) => {
                let title = std::mem::take(title);
                self.input = Input::Filter;
                self.run_action(Action::Rename(title)).await;
            }
            (Input::Title(title), code) if code != KeyCode::Esc => edit(title, code, control),
            (Input::Delete, KeyCode::Char('y' | 'Y')) => {
                self.input = Input::Filter;
                self.run_action(Action::Delete).await;
            }
            _ => self.input = Input::Filter,
        }
        Ok(ControlFlow::Continue(()))
    }

    async fn handle_filter_key(
        &mut self,
        code: KeyCode,
        control: bool,
    ) -> CommandResult<ControlFlow<Option<Conversation>>> {
        match (code, self.selected()) {
            (KeyCode::Esc, _) => return Err(left_problem(self.command.is_some())),
            (KeyCode::Enter, Some(selected)) => return Ok(ControlFlow::Break(Some(selected.clone()))),
            (KeyCode::Char('n'), _) if control && self.may_create => {
                select::refuse_without_agent(self.daemon).await?;
                return Ok(ControlFlow::Break(None));
            }
            (KeyCode::Char('f'), _) if control => self.run_action(Action::Fork).await,
            (KeyCode::Char('r'), Some(one)) if control => self.input = Input::Title(one.title.clone()),
            (KeyCode::Char('x'), Some(_)) if control => self.input = Input::Delete,
            (KeyCode::Up, _) => self.selected = self.selected.saturating_sub(1),
            (KeyCode::Down, _) => self.selected += 1,
            (KeyCode::PageUp, _) => self.selected = self.selected.saturating_sub(shown_rows()),
            (KeyCode::PageDown, _) => self.selected += shown_rows(),
            (KeyCode::Home, _) => self.selected = 0,
            (KeyCode::End, _) => self.selected = self.matches.len(),
            (code, _) => {
                let before = self.query.clone();
                edit(&mut self.query, code, control);
                if self.query != before {
                    self.selected = usize::MAX;
                    self.filter();
                }
            }
        }
        self.selected = self.selected.min(self.matches.len().saturating_sub(1));
        Ok(ControlFlow::Continue(()))
    }

    /// Executes an action on the selected conversation. An error is shown, and the list stays.
    async fn run_action(&mut self, action: Action) {
        let Some(one) = self.selected().cloned() else {
            return;
        };
        let daemon = self.daemon;
        let acted = match action {
            Action::Fork => {
                let fork = method::Fork {
                    title: humanize::fork_title(&one.title),
                    ..method::Fork::of(one.id)
                };
                daemon.call(fork).await.map(|answer| {
                    let id = humanize::short_id(answer.conversation.id);
                    self.all.insert(0, answer.conversation);
                    self.query.clear();
                    self.selected = usize::MAX;
                    format!("Forked as {id}")
                })
            }
            Action::Rename(title) => {
                let update = method::Update {
                    title: Some(title),
                    ..method::Update::of(one.id)
                };
                daemon.call(update).await.map(|answer| {
                    let renamed = self.all.iter_mut().filter(|other| other.id == one.id);
                    renamed.for_each(|other| other.clone_from(&answer.conversation));
                    format!("Renamed to {}", humanize::name(&answer.conversation))
                })
            }
            Action::Delete => delete(daemon, &one, self.options).await.inspect(|deleted| {
                self.notes.push(deleted.clone());
                self.all.retain(|other| other.id != one.id);
            }),
        };
        self.message = acted.unwrap_or_else(|problem| problem.text());
        self.filter();
    }

    fn draw(&self) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        let (columns, rows) = (usize::from(columns), usize::from(rows));
        let look = Look {
            columns: Some(columns.saturating_sub(2)),
            ..self.look
        };
        let prompt = match &self.input {
            Input::Filter => format!("> {}", self.query),
            Input::Title(title) => format!("New title: {title}"),
            Input::Delete => {
                let name = self.selected().map(humanize::name).unwrap_or_default();
                let question = " and keep its transcripts? [y/N]";
                let room = columns.saturating_sub(question.width() + 1);
                truncate(&format!("Delete {name}"), room, look) + question
            }
        };
        // Show the end of a long line, where the user types.
        let hidden = prompt.width().saturating_sub(columns.saturating_sub(1));
        let mut lines = vec![prompt.chars().skip(hidden).collect::<String>()];
        let cursor = lines[0].width();
        let mut listed = list::table(&self.matches, look).lines(look);
        if listed.is_empty() && !self.query.is_empty() {
            let how = match self.has_more {
                true => format!(" (last prompts are searched in the newest {LISTED_LIMIT} only)"),
                false => "; Ctrl-U clears it, Esc leaves".to_owned(),
            };
            let room = columns.saturating_sub(2 + how.width()).max(columns / 2);
            let none = truncate(&format!("no match for {}", self.query), room, look);
            listed.push(truncate(&(none + &how), columns.saturating_sub(2), look));
        }
        let shown = shown_rows();
        let first = self.selected.saturating_sub(shown - 1);
        let mut listed = listed.into_iter();
        lines.extend(listed.next().map(|header| format!("  {header}")));
        for (row, line) in listed.enumerate().skip(first).take(shown) {
            let pointer = if row == self.selected {
                look.sign("❯", ">")
            } else {
                " "
            };
            lines.push(format!("{} {line}", look.paint(STRONG, pointer)));
        }
        lines.push(look.paint(DIM, &look.sign("─", "-").repeat(columns)));
        let room = rows.saturating_sub(lines.len() + 1);
        let turns = self.selected().and_then(|one| self.last_turns.get(&one.id));
        let turns = turns.map(|last| last.lines.as_slice()).unwrap_or_default();
        lines.extend(
            turns[turns.len().saturating_sub(room)..]
                .iter()
                .map(|line| truncate(line, columns, look)),
        );
        lines.resize(rows.saturating_sub(1), String::new());
        let (matched, all) = (self.matches.len(), self.all.len());
        let more = if self.has_more { "+" } else { "" };
        let is_searching =
            all > PREFETCHED_CONVERSATIONS && !self.query.is_empty() && self.next_to_read().is_some();
        let so_far = if is_searching { " so far" } else { "" };
        let new = if self.may_create { " · ^N new" } else { "" };
        let enter = self.command.as_ref();
        let enter = enter.map_or_else(|| "Enter opens".to_owned(), |command| format!("Enter: {command}"));
        let keys = format!("{enter} · ^F fork · ^R rename · ^X delete{new} · Esc leaves");
        lines.push(match self.message.as_str() {
            "" => look.paint(
                DIM,
                &truncate(
                    &format!("{matched} of {all}{more}{so_far} · {keys}"),
                    columns,
                    look,
                ),
            ),
            message => look.paint(ATTENTION, &truncate(message, columns, look)),
        });
        let text = lines.join(&format!("{}\r\n", Clear(ClearType::UntilNewLine)));
        let cursor = MoveTo(u16::try_from(cursor).unwrap_or(u16::MAX), 0);
        let end = Clear(ClearType::FromCursorDown);
        let mut screen = io::stderr().lock();
        write!(screen, "{}{text}{end}{cursor}", MoveTo(0, 0))?;
        screen.flush()
    }
}

/// How many conversations are shown at once.
fn shown_rows() -> usize {
    let (_, rows) = terminal::size().unwrap_or_default();
    (usize::from(rows).saturating_sub(5) / 2).max(1)
}

/// Edits a line according to a key.
fn edit(line: &mut String, code: KeyCode, control: bool) {
    match code {
        KeyCode::Char('u') if control => line.clear(),
        KeyCode::Char(letter) if !control => line.push(letter),
        KeyCode::Backspace => drop(line.pop()),
        _ => {}
    }
}

/// Reads the end of a conversation.
async fn last_turns(daemon: &Daemon, id: ConversationId, look: Look) -> LastTurns {
    // Each message takes at least one line.
    let (_, rows) = terminal::size().unwrap_or((0, PREVIEW_LINES));
    let history = method::History {
        last: Some(rows.clamp(1, PREVIEW_LINES).into()),
        ..method::History::of(id)
    };
    let text = match daemon.call(history).await {
        Ok(page) => {
            let mut renderer = HistoryRenderer::new(Look {
                coloured: false,
                ..look
            });
            renderer.page(page.messages) + &renderer.rest()
        }
        Err(problem) => problem.text(),
    };
    let mut lines: Vec<String> = text.trim_end().lines().map(str::to_owned).collect();
    lines.drain(..lines.len().saturating_sub(PREVIEW_LINES.into()));
    let last = turns(daemon, &id.into(), 1).await.unwrap_or_default();
    let prompt = last.into_iter().next().map(|last| last.prompt);
    LastTurns {
        prompt: readable_prompt(&prompt.unwrap_or_default()),
        lines,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn terminal_problem(error: io::Error) -> Problem {
    Problem::failed(format!("the terminal cannot be used: {error}"))
}

/// A guard for the alternate screen. Dropping it restores the terminal, even after a panic.
struct AlternateScreen;

impl AlternateScreen {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        IS_FULL_SCREEN.store(true, Ordering::Relaxed);
        execute!(io::stderr(), EnterAlternateScreen)?;
        Ok(screen)
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        let left = execute!(io::stderr(), LeaveAlternateScreen).and_then(|()| terminal::disable_raw_mode());
        IS_FULL_SCREEN.store(false, Ordering::Relaxed);
        log_error("the terminal could not be restored", left);
    }
}

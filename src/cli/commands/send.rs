//! `send`: follows one turn from its prompt to its end.

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use clap::{Args, ValueEnum};
use std::io::Read;
use std::pin::pin;
use std::time::Duration;

use bridge_protocol::conversation::{OnBusy, OnLimit};
use bridge_protocol::event::Event;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::TurnResult;
use bridge_protocol::{ConversationRef, TurnId};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use jsonrpsee::core::client::Error as ClientError;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::view::{View, problem_of};
use super::{Context, conversation_ref};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::follow::{Followed, Follower};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::Watch;
use crate::cli::question::Person;

/// Send a prompt and print the answer
///
/// Ctrl-C cancels the turn. A second Ctrl-C ends the command and leaves the turn running.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl send . 'Why does the test fail?'
  git diff | sessionctl send 90e2e180 -
  sessionctl send . -- --a prompt that begins with dashes")]
pub(in crate::cli) struct Send {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// Prompt; - reads it from standard input
    #[arg(value_name = "TEXT", required = true, num_args = 1.., allow_hyphen_values = false)]
    pub(in crate::cli) text: Vec<String>,
    /// Queue the prompt if a turn is running (default: fail as busy)
    #[arg(long)]
    pub(in crate::cli) queue: bool,
    /// If a usage limit stops the turn, schedule it for the limit's reset and exit
    #[arg(long)]
    pub(in crate::cli) wait_limit: bool,
    /// How to handle questions of the agent (default: ask on a terminal, otherwise leave)
    #[arg(long, value_name = "WHAT")]
    pub(in crate::cli) on_question: Option<OnQuestion>,
}

/// How `send` and `edit` handle questions of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum OnQuestion {
    /// Exit with code 8; the question stays open for `sessionctl answer`
    Leave,
    /// Wait until another client answers
    Wait,
    /// Reject the request and let the turn continue
    Deny,
}

/// The longest prompt that is read from standard input: below what the daemon takes in one line by default, with
/// room for escapes.
const PROMPT_LIMIT_BYTES: u64 = 12 * 1024 * 1024;

/// How long the events of a turn whose answer has come may still take. They come before the answer, so that they are
/// already on this side; only a subscription that was cut off has to fetch them again.
const LAST_EVENTS_LIMIT: Duration = Duration::from_secs(10);

/// What is known of the turn that was asked for.
#[derive(Debug, Default)]
struct OwnTurn {
    id: Option<TurnId>,
    ended: bool,
    /// Whether another turn runs, behind which it waits.
    behind_another: bool,
}

/// How a turn is followed.
pub(super) struct Following {
    /// Whether it may wait in line.
    pub(super) queue: bool,
    /// What to do with the agent's questions, instead of asking a person.
    pub(super) on_question: Option<OnQuestion>,
    /// Whether the prompt came from standard input, so that no person is there.
    pub(super) reads_stdin: bool,
    /// The method that runs it.
    pub(super) method: &'static str,
    /// Whether much may have to be read before the turn begins, so that a bar is shown until then.
    pub(super) reads_first: bool,
}

/// Sends a prompt and follows the turn to its end.
pub(in crate::cli) async fn send(context: &mut Context<'_>, options: Send) -> Outcome<Exit> {
    let reads_stdin = options.text == ["-"];
    let prompt = prompt_of(&options.text)?;
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &options.conversation).await?;
    let answer = daemon.call(method::Prompt {
        conversation_id: conversation.clone(),
        prompt: prompt.clone(),
        on_busy: if options.queue {
            OnBusy::Queue
        } else {
            OnBusy::Fail
        },
        on_limit: if options.wait_limit {
            OnLimit::Wait
        } else {
            OnLimit::Fail
        },
        ..Default::default()
    });
    let following = Following {
        queue: options.queue,
        on_question: options.on_question,
        reads_stdin,
        method: "conversation/prompt",
        reads_first: false,
    };
    follow(context, &daemon, conversation, &prompt, following, answer).await
}

/// The prompt that words on a command line are, or standard input.
pub(super) fn prompt_of(words: &[String]) -> Outcome<PromptContent> {
    let text = match words {
        [word] if word == "-" => read_stdin()?,
        words => words.join(" "),
    };
    if text.trim().is_empty() {
        return Err(Problem::new(Exit::Usage, "the prompt is empty")
            .hint("give some text, or - to read it from standard input"));
    }
    Ok(PromptContent::text(&text))
}

/// Follows the turn of a prompt, which `call` sends, to its end.
pub(super) async fn follow(
    context: &mut Context<'_>,
    daemon: &Daemon,
    conversation: ConversationRef,
    prompt: &PromptContent,
    following: Following,
    call: impl Future<Output = Result<TurnResult, ClientError>>,
) -> Outcome<Exit> {
    let Following {
        queue,
        on_question,
        reads_stdin,
        method,
        reads_first,
    } = following;
    let mut interrupts = interrupts()?;
    // Subscribed first, so that nothing of the turn is missed.
    let mut follower = Follower::start(daemon, conversation.clone()).await?;
    let json = context.output.json;
    let nobody = json || on_question.is_some();
    let person = if nobody { None } else { Person::find(!reads_stdin) };
    let mut watch = match reads_first {
        true => Watch::of(context.output, daemon, method),
        false => None,
    };
    let mut view = View::new(
        daemon,
        context.output,
        conversation.clone(),
        person,
        on_question.unwrap_or(OnQuestion::Leave),
    );
    let mut answer = pin!(call);
    let mut own = OwnTurn::default();
    let mut result: Option<Outcome<TurnResult>> = None;
    let mut cancelling = None;
    let turn = loop {
        match result.take() {
            // An error is the answer of a prompt that was never accepted: no event belongs to it.
            Some(Err(problem)) => return Err(problem),
            Some(Ok(turn)) if own.ended => break turn,
            unfinished => result = unfinished,
        }
        tokio::select! {
            biased;
            followed = follower.next(), if !own.ended || result.is_none() => {
                watch.iter_mut().for_each(Watch::hide);
                let followed = followed.map_err(|problem| lost(problem, &conversation))?;
                if json {
                    view.raw(&followed.raw)?;
                }
                own.follow(&followed, prompt, queue, &mut view, json)?;
                if own.id.is_some() || view.asks() {
                    watch = None;
                }
                view.unattended().await?;
            }
            () = shown(&mut watch), if watch.is_some() => {}
            ended = &mut answer, if result.is_none() => {
                watch = None;
                result = Some(ended.map_err(|error| lost(error.into(), &conversation)));
            }
            line = view.typed(), if view.asks() => view.take_line(line).await?,
            _ = interrupts.recv() => {
                watch = None;
                if cancelling.is_some() {
                    return Err(Problem::new(Exit::Failed, "left before the turn has ended")
                        .hint(format!("it goes on in the daemon; sessionctl attach {conversation} follows it")));
                }
                if queue && own.id.is_none() {
                    return Err(Problem::new(Exit::Failed, "left while the prompt waits in line")
                        .hint(format!("sessionctl cancel {conversation} --queued takes it out, and stops the running turn")));
                }
                view.aside("cancelling; Ctrl-C again leaves at once")?;
                cancelling = Some(Box::pin(daemon.call(method::Cancel { conversation_id: conversation.clone(), turn_id: own.id.clone(), ..Default::default() })));
            }
            cancelled = finished(&mut cancelling), if cancelling.is_some() => {
                cancelling = None;
                cancelled.map_err(Problem::from)?;
            }
            () = tokio::time::sleep(LAST_EVENTS_LIMIT), if result.is_some() => own.ended = true,
        }
    };

    if json {
        view.answer(method)?;
        return Ok(Exit::of_turn(&turn));
    }
    view.end_turn()?;
    if let Some(resumed) = &turn.resumed {
        view.resumed(resumed)?;
    }
    match problem_of(&turn, Timestamp::now(), &TimeZone::system()) {
        Some(problem) => Err(problem),
        None => Ok(Exit::Done),
    }
}

/// Waits for a call that may not have been made.
async fn finished<F: Future + Unpin>(call: &mut Option<F>) -> F::Output {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

/// Shows how far a call has come, where that is watched.
async fn shown(watch: &mut Option<Watch<'_>>) {
    match watch {
        Some(watch) => watch.show().await,
        None => std::future::pending().await,
    }
}

impl OwnTurn {
    /// Takes an event in, and shows it where it belongs to the turn.
    fn follow(
        &mut self,
        followed: &Followed,
        prompt: &PromptContent,
        queued: bool,
        view: &mut View<'_>,
        json: bool,
    ) -> Outcome {
        let event = &followed.envelope.event;
        match event {
            Event::PromptAccepted {
                turn_id,
                prompt: accepted,
                // Without a line to wait in, no other prompt can be accepted while this one waits for its answer. With
                // one, somebody else's may have the same words: then that turn ends, and this one's answer has not come.
            } if (self.id.is_none() || self.ended) && (!queued || accepted.to_text() == prompt.to_text()) => {
                self.id = Some(turn_id.clone());
                self.ended = false;
            }
            Event::PromptAccepted { .. } if self.id.is_none() => self.behind_another = true,
            Event::Update { turn_id, update } if turn_id.is_some() && *turn_id == self.id => {
                return if json { Ok(()) } else { view.update(update) };
            }
            Event::TurnEnded { turn } if Some(&turn.turn_id) == self.id.as_ref() => self.ended = true,
            Event::TurnEnded { .. } => self.behind_another = false,
            Event::Snapshot { running, .. } if self.id.is_some() => {
                // Cut off and too late for the missing events: what is not running any more has ended.
                let goes_on = running.as_ref().map(|running| &running.turn_id) == self.id.as_ref();
                self.ended = !goes_on;
            }
            Event::Snapshot {
                running,
                conversation,
                ..
            } => {
                self.behind_another = running.is_some();
                if self.behind_another && queued {
                    view.aside("another turn is running; this prompt waits in line behind it")?;
                }
                return view.others_questions(&conversation.interrupts);
            }
            Event::InterruptRaised { interrupt } if self.id.is_none() => {
                return view.others_questions([interrupt]);
            }
            Event::InterruptResolved { .. } if self.id.is_none() => return Ok(()),
            Event::Resumed { .. } if self.behind_another => return Ok(()),
            Event::Deleted {} => self.ended = true,
            _ => {}
        }
        view.common(event)
    }
}

/// A connection that was lost after the prompt had been sent: sending it again might do its work twice.
fn lost(problem: Problem, conversation: &ConversationRef) -> Problem {
    if problem.exit != Exit::NoDaemon {
        return problem;
    }
    problem.hint(format!(
        "the prompt may have been taken: sessionctl attach {conversation} shows what became of it"
    ))
}

/// Ctrl-C from here on, as a stream of wishes instead of the end of the process.
pub(super) fn interrupts() -> Outcome<Signal> {
    signal(SignalKind::interrupt())
        .map_err(|error| Problem::new(Exit::Failed, format!("Ctrl-C cannot be listened for: {error}")))
}

fn read_stdin() -> Outcome<String> {
    let mut text = String::new();
    let read = std::io::stdin()
        .lock()
        .take(PROMPT_LIMIT_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| {
            Problem::new(
                Exit::Usage,
                format!("standard input cannot be read as text: {error}"),
            )
        })?;
    if u64::try_from(read).unwrap_or(u64::MAX) > PROMPT_LIMIT_BYTES {
        return Err(Problem::new(
            Exit::Usage,
            format!("the prompt is longer than {PROMPT_LIMIT_BYTES} bytes"),
        )
        .hint("put the text into a file and name the file in the prompt"));
    }
    Ok(text.trim_end_matches('\n').to_owned())
}

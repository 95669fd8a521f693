//! `attach`: follows a conversation, whoever talks to it, also over a restart of the daemon.
//!
//! It owns when it goes on after the connection was lost, and what it tells of turns that are somebody else's. It must not
//! start a daemon for that: one that was stopped on purpose stays stopped.

use std::time::Duration;

use bridge_protocol::conversation::Conversation;
use bridge_protocol::event::Event;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::{ConversationRef, Cursor};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::signal::unix::Signal;
use tokio::time::MissedTickBehavior;

use super::send::OnQuestion;
use super::send::interrupts;
use super::view::{View, problem_of};
use super::{Context, conversation_ref};
use crate::cli::connect::{Daemon, Reach};
use crate::cli::exit::Exit;
use crate::cli::follow::{Followed, Follower};
use crate::cli::output::{ATTENTION, Output, STRONG, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::question::Person;
use crate::cli::words;

/// How long a daemon may take to come back: longer than a restart in which it rebuilds a large store.
const RETURN_LIMIT: Duration = Duration::from_secs(60);

/// How often it is looked for. Nothing tells that another process has begun to listen.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What is kept from one connection to the next.
struct Attached {
    conversation: ConversationRef,
    person: Option<Person>,
    /// The last event that was shown.
    after: Option<Cursor>,
    /// How many prompts wait in line, as was told last.
    in_line: usize,
}

/// Follows a conversation until Ctrl-C or its end.
pub(in crate::cli) async fn attach(context: &mut Context<'_>, word: &str) -> Outcome<Exit> {
    let mut daemon = context.connect().await?;
    let mut interrupts = interrupts()?;
    let mut attached = Attached {
        conversation: conversation_ref(&daemon, word).await?,
        person: if context.output.json {
            None
        } else {
            Person::find(true)
        },
        after: None,
        in_line: 0,
    };
    loop {
        let ended = attached.follow(&daemon, context.output, &mut interrupts).await;
        let lost = match ended {
            Err(problem) if problem.exit == Exit::NoDaemon => problem,
            ended => return ended,
        };
        let message = lost.message.unwrap_or_default();
        let limit = RETURN_LIMIT.as_secs();
        context.output.note(&format!(
            "{message}; this waits up to {limit} s for a daemon to answer again"
        ))?;
        daemon = tokio::select! {
            biased;
            _ = interrupts.recv() => return Ok(Exit::Done),
            back = returned(&context.reach) => back?,
        };
        context.output.note("a daemon answers again")?;
    }
}

/// The daemon, once one answers again.
async fn returned(reach: &Reach) -> Outcome<Daemon> {
    let looking = async {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if let Some(daemon) = reach.find().await? {
                return Ok(daemon);
            }
        }
    };
    tokio::time::timeout(RETURN_LIMIT, looking)
        .await
        .unwrap_or_else(|_| {
            Err(Problem::new(
                Exit::NoDaemon,
                format!("no daemon has answered for {} s", RETURN_LIMIT.as_secs()),
            )
            .hint("the next command that needs one starts it; nothing of the conversation is lost"))
        })
}

impl Attached {
    /// Follows the conversation over one connection.
    async fn follow(
        &mut self,
        daemon: &Daemon,
        output: &mut Output,
        interrupts: &mut Signal,
    ) -> Outcome<Exit> {
        let conversation = self.conversation.clone();
        let mut follower = Follower::behind(daemon, conversation.clone(), self.after.take()).await?;
        let json = output.json;
        let mut view = View::new(daemon, output, conversation, self.person.take(), OnQuestion::Wait);
        let ended = loop {
            let followed = tokio::select! {
                biased;
                _ = interrupts.recv() => break Ok(Exit::Done),
                line = view.typed(), if view.asks() => {
                    match view.take_line(line).await {
                        Ok(()) => continue,
                        Err(problem) => break Err(problem),
                    }
                }
                followed = follower.next() => followed,
            };
            let followed = match followed {
                Ok(followed) => followed,
                Err(problem) => break Err(problem),
            };
            if json {
                view.raw(&followed.raw)?;
            } else {
                show(&mut view, &followed, &mut self.in_line)?;
                view.unattended().await?;
            }
            if matches!(followed.envelope.event, Event::Deleted {}) {
                break Ok(Exit::Done);
            }
        };
        view.end_turn()?;
        self.after = follower.cursor();
        self.person = view.into_person();
        ended
    }
}

/// Shows one event.
fn show(view: &mut View<'_>, followed: &Followed, in_line: &mut usize) -> Outcome {
    let event = &followed.envelope.event;
    match event {
        Event::Snapshot {
            conversation,
            running,
            ..
        } => {
            let title = one_line(&conversation.title);
            let about = format!(
                "{} {title} ({})",
                words::short_id(conversation.id),
                words::state(conversation.state)
            );
            view.aside(&about)?;
            if let Some(running) = running {
                view.styled_line(STRONG, &prompt_line(&running.prompt))?;
                for update in &running.updates {
                    view.update(update)?;
                }
            }
            *in_line = 0;
            show_line(view, conversation, in_line)?;
        }
        Event::Updated { conversation } => show_line(view, conversation, in_line)?,
        Event::PromptAccepted { prompt, .. } => view.styled_line(STRONG, &prompt_line(prompt))?,
        Event::Update { update, .. } => view.update(update)?,
        Event::TurnEnded { turn } => {
            view.end_turn()?;
            if let Some(problem) = problem_of(turn, Timestamp::now(), &TimeZone::system()) {
                let told = one_line(&problem.message.unwrap_or_default());
                view.styled_note(ATTENTION, &told)?;
            }
        }
        Event::Closed {} => view.aside("the session was closed; the next prompt brings it back")?,
        Event::Reset {} => view.aside("a new chat was started")?,
        Event::Deleted {} => view.aside("the conversation was deleted")?,
        _ => {}
    }
    view.common(event)
}

/// Tells how many prompts wait in line, when that has changed.
fn show_line(view: &mut View<'_>, conversation: &Conversation, told: &mut usize) -> Outcome {
    let waiting = conversation.queue.len();
    if std::mem::replace(told, waiting) == waiting || waiting == 0 {
        return Ok(());
    }
    let verb = if waiting == 1 { "waits" } else { "wait" };
    let prompts = words::count(waiting as u64, "prompt", "prompts");
    view.aside(&format!("{prompts} {verb} in line"))
}

fn prompt_line(prompt: &PromptContent) -> String {
    format!("> {}", one_line(&prompt.to_text()))
}

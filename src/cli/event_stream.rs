//! The stream of a conversation's events, without a gap.
//!
//! It owns the subscription and the cursor from which it continues after it was cut off for being slow. It must not know
//! what the events mean or how they are shown.

use std::fmt::Display;

use bridge_protocol::conversation::{RunningTurn, SessionInfo};
use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::method::Subscribe;
use bridge_protocol::raw::RawJson;
use bridge_protocol::{ConversationId, ConversationRef, Cursor};
use jsonrpsee::core::client::{Subscription, SubscriptionCloseReason};

use super::connect::Daemon;
use super::exit::Exit;
use super::humanize;
use super::problem::{CommandResult, Problem};

/// How often in a row a subscription may end without having brought an event, before this gives up. More than once
/// means that events come faster than they can be shown even right after a new start.
const RESTARTS_WITHOUT_EVENT: u32 = 3;

/// The stream of a conversation's events.
pub(super) struct EventStream<'a> {
    daemon: &'a Daemon,
    conversation: ConversationRef,
    subscription: Option<Subscription<RawJson>>,
    last_cursor: Option<Cursor>,
    restarts: u32,
}

/// A received event: its bytes and its decoded envelope.
#[derive(Debug)]
pub(super) struct ReceivedEvent {
    /// The bytes of the envelope.
    pub(super) raw: RawJson,
    /// The envelope.
    pub(super) envelope: EventEnvelope,
}

impl<'a> EventStream<'a> {
    /// Subscribes. What happens after an event is delivered; first comes a snapshot if none is given, or the daemon no longer holds
    /// what came after it.
    ///
    /// # Errors
    /// What the daemon answers.
    pub(super) async fn start(
        daemon: &'a Daemon,
        conversation: ConversationRef,
        after: Option<Cursor>,
    ) -> CommandResult<Self> {
        let mut follower = Self {
            daemon,
            conversation,
            subscription: None,
            last_cursor: after,
            restarts: 0,
        };
        follower.subscribe().await?;
        Ok(follower)
    }

    /// The place of the last event that was delivered.
    pub(super) fn cursor(&self) -> Option<Cursor> {
        self.last_cursor.clone()
    }

    /// The next event. Nothing is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    /// When the daemon has gone or does not answer any more, or its events cannot be read.
    pub(super) async fn next(&mut self) -> CommandResult<ReceivedEvent> {
        loop {
            let Some(subscription) = &mut self.subscription else {
                self.subscribe().await?;
                continue;
            };
            match self.daemon.while_responsive(subscription.next()).await? {
                Some(Ok(raw)) => {
                    let envelope: EventEnvelope = raw.read().map_err(unreadable)?;
                    if let Event::Lagged { cursor } = &envelope.event {
                        self.last_cursor = Some(cursor.clone());
                        self.drop_subscription()?;
                        continue;
                    }
                    self.restarts = 0;
                    self.last_cursor = Some(envelope.cursor.clone());
                    return Ok(ReceivedEvent { raw, envelope });
                }
                Some(Err(error)) => return Err(unreadable(error)),
                None => match subscription.close_reason() {
                    Some(SubscriptionCloseReason::Lagged) => self.drop_subscription()?,
                    _ => return Err(Problem::connection_lost()),
                },
            }
        }
    }

    /// Drops the subscription; the next call continues after the last event.
    fn drop_subscription(&mut self) -> CommandResult {
        self.subscription = None;
        self.restarts += 1;
        if self.restarts > RESTARTS_WITHOUT_EVENT {
            let id = humanize::short(&self.conversation.to_string());
            let problem = Problem::new(Exit::Failed, "events come faster than they can be shown");
            return Err(problem.hint(format!(
                "the turn is still running; see its state: sessionctl show {id}"
            )));
        }
        Ok(())
    }

    async fn subscribe(&mut self) -> CommandResult {
        let subscription = self.daemon.subscribe(Subscribe {
            conversation_id: Some(self.conversation.clone()),
            after: self.last_cursor.clone(),
        });
        self.subscription = Some(subscription.await?);
        Ok(())
    }
}

fn unreadable(error: impl Display) -> Problem {
    Problem::new(Exit::Failed, format!("an event could not be read: {error}"))
}

/// What the agent reported of its session, and the turn that runs.
///
/// # Errors
/// What the daemon answers.
pub(super) async fn snapshot(
    daemon: &Daemon,
    id: ConversationId,
) -> CommandResult<(SessionInfo, Option<RunningTurn>)> {
    let mut follower = EventStream::start(daemon, id.into(), None).await?;
    Ok(match follower.next().await?.envelope.event {
        Event::Snapshot { session, running, .. } => {
            (session.map(|session| *session).unwrap_or_default(), running)
        }
        _ => Default::default(),
    })
}

//! The gapless stream of a conversation's events.
//!
//! It owns the subscription and the cursor, from which it resubscribes after the daemon dropped it for being too slow. It must
//! not know what the events mean or how they are shown.

use std::fmt::Display;

use bridge_protocol::conversation::{RunningTurn, SessionInfo};
use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::method::Subscribe;
use bridge_protocol::raw::RawJson;
use bridge_protocol::{ConversationId, ConversationRef, Cursor};
use jsonrpsee::core::client::{Subscription, SubscriptionCloseReason};

use super::connect::Daemon;
use super::humanize;
use super::problem::{CommandResult, Problem};

/// How many subscriptions in a row may end without having delivered an event before the stream fails. More than one means that
/// events arrive faster than they can be shown, even right after a restart.
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
    /// Subscribes to the events after `after`. If `after` is `None`, or the daemon no longer has all events after it, the first
    /// event is a snapshot.
    ///
    /// # Errors
    /// The daemon returns an error.
    pub(super) async fn start(
        daemon: &'a Daemon,
        conversation: ConversationRef,
        after: Option<Cursor>,
    ) -> CommandResult<Self> {
        let mut events = Self {
            daemon,
            conversation,
            subscription: None,
            last_cursor: after,
            restarts: 0,
        };
        events.subscribe().await?;
        Ok(events)
    }

    /// The cursor of the last delivered event.
    pub(super) fn cursor(&self) -> Option<Cursor> {
        self.last_cursor.clone()
    }

    /// Whether events arrive. If not, [`EventStream::next`] subscribes again, and fetches those that were missed.
    pub(super) fn is_subscribed(&self) -> bool {
        self.subscription.is_some()
    }

    /// Waits for the next event. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// The daemon ended or does not answer any more, or its events cannot be read.
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
            let problem = Problem::failed("events come faster than they can be shown");
            return Err(problem.hint(format!(
                "the turn is still running; see its state: sessionctl show {id}"
            )));
        }
        Ok(())
    }

    /// Subscribes to the events after the last one. Those that were missed arrive before the first event of a later subscription.
    ///
    /// # Errors
    /// The daemon returns an error.
    pub(super) async fn subscribe(&mut self) -> CommandResult {
        let subscription = self.daemon.subscribe(Subscribe {
            conversation_id: Some(self.conversation.clone()),
            after: self.last_cursor.clone(),
        });
        self.subscription = Some(subscription.await?);
        Ok(())
    }
}

fn unreadable(error: impl Display) -> Problem {
    Problem::failed(format!("an event could not be read: {error}"))
}

/// The session as reported by the agent, and the running turn.
///
/// # Errors
/// The daemon returns an error.
pub(super) async fn snapshot(
    daemon: &Daemon,
    id: ConversationId,
) -> CommandResult<(SessionInfo, Option<RunningTurn>)> {
    let mut events = EventStream::start(daemon, id.into(), None).await?;
    Ok(match events.next().await?.envelope.event {
        Event::Snapshot { session, running, .. } => {
            (session.map(|session| *session).unwrap_or_default(), running)
        }
        _ => Default::default(),
    })
}

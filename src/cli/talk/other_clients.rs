//! What other clients do while a chat waits for a line.
//!
//! It owns which events the user must see then, and how the chat finds the next daemon. It must not print anything, because
//! the line that is being typed must be removed from the screen first.

use std::rc::Rc;

use bridge_protocol::conversation::Conversation;
use bridge_protocol::event::Event;
use bridge_protocol::{Cursor, ErrorKind};
use tokio::time::sleep;

use super::turn::{
    DAEMON_POLL_INTERVAL, FollowTarget, changed_settings, describe_other_clients_change, wait_for_daemon,
};
use crate::cli::connect::{Daemon, DaemonConnector};
use crate::cli::event_stream::EventStream;
use crate::cli::output::Look;
use crate::cli::problem::{CommandResult, Exit, Problem};

const SENT: &str = "Another client sent a prompt";

/// What happened while the user typed no line.
pub(super) enum OtherClientChange {
    /// Another client changed something, as this sentence describes, or started the turn to follow.
    Changed(String, Option<FollowTarget>),
    /// The conversation was deleted.
    Deleted,
    /// The daemon ended, and this one answers.
    Reconnected(Rc<Daemon>),
}

/// Waits until another client starts a turn or changes the conversation. Each event is read as soon as it arrives, so that the
/// daemon does not have to buffer events for a chat that waits for a line. `shown` becomes the last event that need not be shown
/// again. `missing` says that turns may be missing.
///
/// # Errors
/// The daemon ended or returns an error.
pub(super) async fn next_change(
    daemon: &Daemon,
    known: &mut Conversation,
    shown: &mut Option<Cursor>,
    missing: &str,
    look: Look,
) -> CommandResult<OtherClientChange> {
    let mut edited = None;
    let mut events = EventStream::start(daemon, known.id.into(), shown.clone()).await?;
    loop {
        let event = events.next().await?.envelope.event;
        // `shown` stays as it is, so that the event is read again for what else it says.
        if let Some(what) = changed_settings(&event, &mut known.settings, look) {
            return Ok(OtherClientChange::Changed(what, None));
        }
        let since = shown.clone().map(FollowTarget::Since);
        let change = describe_other_clients_change(&event, known.id);
        let (what, turn) = match event {
            Event::Deleted {} => return Ok(OtherClientChange::Deleted),
            Event::Continued { .. } => (Some("A continuation began".to_owned()), since),
            Event::PromptAccepted { .. } => (Some(edited.take().unwrap_or_else(|| SENT.to_owned())), since),
            Event::Snapshot {
                conversation,
                running,
                gap,
                ..
            } if gap || running.is_some() => {
                let is_open = running.is_some() || !conversation.interrupts.is_empty();
                let what = if gap { missing } else { SENT };
                (Some(what.to_owned()), is_open.then_some(FollowTarget::Running))
            }
            // The event with the new prompt comes next.
            Event::Edited { .. } => {
                edited = change;
                continue;
            }
            _ => (change, None),
        };
        if edited.is_none() && turn.is_none() {
            *shown = events.cursor();
        }
        if let Some(what) = what {
            return Ok(OtherClientChange::Changed(what, turn));
        }
    }
}

/// After the events ended with this problem: waits for a daemon if none answers, and never starts one.
pub(super) async fn after_lost_events(connector: &DaemonConnector, problem: Problem) -> OtherClientChange {
    match problem.kind() {
        Some(ErrorKind::NotFound) => return OtherClientChange::Deleted,
        _ if problem.exit == Exit::NoDaemon => {}
        // The next line reports the problem.
        _ => return std::future::pending().await,
    }
    loop {
        // A daemon that cannot be used may be replaced.
        sleep(DAEMON_POLL_INTERVAL).await;
        if let Ok(daemon) = wait_for_daemon(connector).await {
            return OtherClientChange::Reconnected(Rc::new(daemon));
        }
    }
}

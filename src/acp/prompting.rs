//! Prompts, cancellations, and the messages for failed turns.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bridge_protocol::conversation::OnBusy;
use bridge_protocol::method::{Cancel, Edit, Prompt};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};
use bridge_protocol::{BridgeError, CheckpointId, ConversationId, ErrorKind, TurnId, time};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::MutexGuard;

use super::editor::Connection;
use super::message::{self, Failure, Reply};
use super::session::Session;
use super::session_requests::SessiondExtensions;
use crate::agent::members::Members;
use crate::bridge::{ClientSwitchReason, NewTurn};

/// How long an answer waits for the checkpoint of its turn.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct PromptParams {
    prompt: PromptContent,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

impl Connection {
    /// Sends a prompt that starts this turn. A prompt that arrives during a turn waits for the end of that turn.
    pub(super) async fn prompt(&self, session: &Arc<Session>, turn: TurnId, params: &str) -> Reply {
        let order = tokio::select! {
            biased;
            // A cancellation does not wait until the session is open.
            () = session.wait_until_cancelled(&turn) => return cancelled_reply(),
            order = session.order.lock() => order,
        };
        let PromptParams { prompt, meta } = message::read(params)?;
        let extras = SessiondExtensions::read(&meta)?;
        let id = self.ensure_attached(session).await?;
        session.release().await;
        if session.is_cancelled(&turn) {
            return cancelled_reply();
        }
        self.run_agent_for(session, id, ClientSwitchReason::Using)?;
        let turn = NewTurn {
            id: turn,
            params: message::other_params(params, &["sessionId", "prompt"]),
        };
        if let Some(at) = extras.edit {
            let edit = Edit {
                at,
                prompt,
                ..Edit::of(id)
            };
            return match submit_in_order(self.bridge.edit(turn, edit), order).await {
                Ok(edited) => self.turn_reply(session, &edited.turn).await,
                // The conversation is unchanged.
                Err(error) if error.kind == ErrorKind::NotResumable => Err(error.into()),
                Err(error) => refusal_reply(session, error),
            };
        }
        if let Some((name, rest)) = session.parse_command(&prompt) {
            let command = (name, rest.as_str());
            return self
                .run_command(session, id, command, &prompt, (turn, order))
                .await;
        }
        let call = Prompt {
            prompt,
            on_busy: OnBusy::Queue,
            ..Prompt::of(id)
        };
        match submit_in_order(self.bridge.prompt(turn, call), order).await {
            Ok(turn) => self.turn_reply(session, &turn).await,
            Err(error) => refusal_reply(session, error),
        }
    }

    /// The answer to a prompt whose turn ended. For a client that knows the daemon's extensions, the answer waits for the
    /// checkpoint after the turn and includes it: agents write a turn up to 100 ms after its end.
    pub(super) async fn turn_reply(&self, session: &Session, turn: &TurnResult) -> Reply {
        let is_complete = !matches!(turn.stop_reason, StopReason::Failed | StopReason::Cancelled);
        let saved = match is_complete && self.peer.capabilities().supports_sessiond_extensions() {
            true => tokio::time::timeout(CHECKPOINT_WAIT, session.wait_for_checkpoint(&turn.turn_id))
                .await
                .ok(),
            false => None,
        };
        // The updates of the turn come first, even those that an open request holds back.
        session.wait_until_held_are_sent().await;
        answer(session, turn, saved)
    }

    /// Cancels the prompt of this turn, or all prompts of the editor and the running turn that it was shown. Does not wait for
    /// other requests.
    /// `params`: further parameters for the agent.
    pub(super) async fn cancel(&self, session: &Session, only: Option<&TurnId>, params: Option<RawJson>) {
        let turns = session.cancel(only);
        let Some(id) = session.conversation() else { return };
        if let Err(error) = self.cancel_turns(id, turns, params).await {
            tracing::debug!(%error, conversation = %id, "an editor's turn could not be cancelled");
        }
    }

    /// Cancels these turns. Returns when they have ended.
    pub(super) async fn cancel_turns(
        &self,
        id: ConversationId,
        turns: Vec<TurnId>,
        params: Option<RawJson>,
    ) -> Result<(), BridgeError> {
        let cancels = turns.into_iter().map(|turn| {
            let cancel = Cancel {
                turn_id: Some(turn),
                ..Cancel::of(id)
            };
            self.bridge.cancel(params.clone(), cancel)
        });
        join_all(cancels)
            .await
            .into_iter()
            .try_for_each(|cancelled| cancelled.map(drop))
    }
}

/// Waits for a call to end. The first poll puts the call into the conversation's mailbox; then `order` is released, so that
/// the next request about the session is queued after it.
pub(super) async fn submit_in_order<T>(call: impl Future<Output = T>, order: MutexGuard<'_, ()>) -> T {
    let mut call = pin!(call);
    let first = futures_util::poll!(&mut call);
    drop(order);
    match first {
        Poll::Ready(ended) => ended,
        Poll::Pending => call.await,
    }
}

/// The answer to a prompt that was cancelled before it became a turn.
pub(super) fn cancelled_reply() -> Reply {
    message::result(&json!({ "stopReason": StopReason::Cancelled }))
}

/// The answer to a prompt whose turn ended. `checkpoint` is the one after it.
fn answer(session: &Session, turn: &TurnResult, checkpoint: Option<CheckpointId>) -> Reply {
    let stop_reason = match (&turn.stop_reason, &turn.failure) {
        (StopReason::Failed, Some(failure)) => match failure.kind {
            FailureKind::RateLimited => {
                let continues = turn.continuation.is_some();
                session.send_text(&limit_message(
                    session,
                    &failure.message,
                    failure.resets_at,
                    continues,
                ));
                &StopReason::EndTurn
            }
            _ => return Err(Failure::of_turn(failure)),
        },
        (StopReason::Failed, None) => return Err(Failure::of(ErrorKind::InternalError, "the turn failed")),
        (reason, _) => reason,
    };
    let mut extras = json!({ "turnId": turn.turn_id });
    if let Some(checkpoint) = checkpoint {
        extras["checkpointId"] = json!(checkpoint);
    }
    if let Some(resumed) = &turn.resumed {
        extras["resumed"] = serde_json::to_value(resumed).unwrap_or_default();
    }
    let mut result: Members = turn
        .other
        .as_ref()
        .and_then(|other| other.read().ok())
        .unwrap_or_default();
    let meta = result.get("_meta").and_then(|meta| meta.read().ok());
    let mut meta: Members = meta.unwrap_or_default();
    meta.insert("sessiond".to_owned(), extras.into());
    let own = [
        ("stopReason", RawJson::from_value(stop_reason)),
        ("_meta", RawJson::from_value(&meta)),
    ];
    result.extend(
        own.into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.ok()?))),
    );
    if let Some(usage) = &turn.usage {
        result.insert("usage".to_owned(), usage.clone());
    }
    message::result(&result)
}

/// The answer to a prompt that did not reach the agent.
fn refusal_reply(session: &Session, mut error: BridgeError) -> Reply {
    if let (ErrorKind::NotResumable, Some(id)) = (error.kind, session.conversation()) {
        let way_out = format!(". To continue in an empty session, run in a terminal: sessionctl reset {id}");
        error.message.push_str(&way_out);
    }
    if error.kind != ErrorKind::Limited {
        return Err(error.into());
    }
    let resets_at = error.detail("resetsAt");
    let resets_at = resets_at.as_str().and_then(|text| text.parse().ok());
    session.send_text(&limit_message(session, &error.message, resets_at, false));
    message::result(&json!({ "stopReason": StopReason::EndTurn }))
}

/// The message that replaces an answer when a usage limit is reached. `continues`: whether the turn continues automatically.
fn limit_message(session: &Session, message: &str, resets_at: Option<Timestamp>, continues: bool) -> String {
    let until = match resets_at {
        Some(at) => format!("The limit ends at {}.", time::text(at)),
        None => "The agent did not report when the limit ends.".to_owned(),
    };
    let how = match (continues, session.announced_command("continue")) {
        (true, _) => " The turn continues automatically.".to_owned(),
        (false, Some(command)) => format!(" To continue this turn then, send {command}."),
        (false, None) => String::new(),
    };
    format!("The agent's usage limit is reached: {message}\n\n{until}{how}")
}

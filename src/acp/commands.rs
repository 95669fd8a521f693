//! Commands for editors that have no button for what they do: rewind, edit, fork, undo, continue and history.
//!
//! Owns their names, how they are listed with the agent's own commands, and their answers. A command never reaches the agent.

use std::sync::Arc;

use bridge_protocol::conversation::{ContinueAt, fork_title};
use bridge_protocol::history::Checkpoint;
use bridge_protocol::method::{
    Checkpoints, Continue, Edit, Fork, GetCheckpoint, GetConversation, Handle, Undo,
};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::{BridgeError, CheckpointId, ConversationId, ErrorKind, TurnId, time};
use futures_util::FutureExt as _;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{MutexGuard, oneshot};

use super::editor::Connection;
use super::message::{self, Reply};
use super::peer::PendingRequest;
use super::prompting::{cancelled_reply, submit_in_order};
use super::session::Session;
use crate::bridge::{NewTurn, TurnAbilities};
use crate::server::poll_once;

/// The commands: name, description, and the hint for what follows the name. Without a hint, choosing a command sends it at once.
const COMMANDS: [(&str, &str, Option<&str>); 6] = [
    (
        "rewind",
        "Go back to after a turn; without a number, list the turns",
        Some("turn number"),
    ),
    (
        "edit",
        "Replace the prompt of a turn and continue from there",
        Some("turn number, new text"),
    ),
    (
        "fork",
        "Make a new session of this one, up to a turn",
        Some("[turn]"),
    ),
    ("undo", "Undo the last rewind or edit", None),
    (
        "continue",
        "Continue an interrupted turn, or one that hit a usage limit when the limit ends",
        None,
    ),
    ("history", "List the turns of this session", None),
];

/// The prefix of a command's name if the agent has a command of the same name.
const PREFIX: &str = "sessiond-";

const NO_TURNS: &str = "This session has no turns yet.";

/// How many turns are listed.
const LISTED_TURNS: u32 = 50;

/// The agent's commands, byte for byte, followed by those of ours that can work.
pub(super) fn announced_commands(commands: Option<&RawJson>, turns: TurnAbilities) -> RawJson {
    let mut all: Vec<RawJson> = commands.and_then(|list| list.read().ok()).unwrap_or_default();
    let taken = names(commands);
    let offered = COMMANDS.iter().filter_map(|command| match *command {
        ("history" | "edit", ..) if !turns.lists => None,
        ("rewind", ..) if !turns.forks_after => None,
        ("fork", ..) if !turns.forks_after => Some(("fork", "Make a new session of this one", None)),
        command => Some(command),
    });
    all.extend(offered.map(|(name, description, hint)| {
        let mut command = json!({ "name": unused_name(name, &taken), "description": description });
        if let Some(hint) = hint {
            command["input"] = json!({ "hint": hint });
        }
        RawJson::from(command)
    }));
    RawJson::from_value(&all).unwrap_or_default()
}

/// The sessiond command at the start of a prompt, and the text after its name.
pub(super) fn parse_command(
    prompt: &PromptContent,
    of_agent: Option<&RawJson>,
) -> Option<(&'static str, String)> {
    #[derive(Deserialize)]
    struct Text {
        r#type: String,
        text: String,
    }
    let Text { r#type, text } = prompt.as_blocks().first()?.read().ok()?;
    let line = text.strip_prefix('/').filter(|_| r#type == "text")?;
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let taken = names(of_agent);
    let mut known = COMMANDS.iter();
    let (command, ..) = known.find(|(known, ..)| unused_name(known, &taken) == name)?;
    Some((command, rest.trim().to_owned()))
}

/// The name under which a sessiond command is announced.
pub(super) fn announced_name(name: &str, of_agent: Option<&RawJson>) -> String {
    unused_name(name, &names(of_agent))
}

fn names(commands: Option<&RawJson>) -> Vec<String> {
    let all: Vec<RawJson> = commands.and_then(|list| list.read().ok()).unwrap_or_default();
    let names = all
        .iter()
        .filter_map(|command| message::text_of(command.get(), "name"));
    names.collect()
}

fn unused_name(name: &str, taken: &[String]) -> String {
    match taken.iter().any(|taken| taken == name) {
        true => format!("{PREFIX}{name}"),
        false => name.to_owned(),
    }
}

/// A turn with its number, on one line.
fn turn_line(turn: &Checkpoint) -> String {
    let prompt: Vec<&str> = turn.prompt.split_whitespace().collect();
    format!("{}. {}", turn.step, prompt.join(" "))
}

/// The outcome of a command that continues a turn.
enum ContinueReply {
    /// The command began a turn; this answers it.
    Turn(Reply),
    Text(String),
}

impl Connection {
    /// Carries out a command and answers its prompt. The result or the error is sent as a message.
    pub(super) async fn run_command(
        &self,
        session: &Arc<Session>,
        id: ConversationId,
        (name, rest): (&str, &str),
        prompt: &PromptContent,
        (turn, order): (NewTurn, MutexGuard<'_, ()>),
    ) -> Reply {
        let text = match name {
            "edit" => match self.edit(session, id, (rest, prompt), (turn, order)).await {
                Ok(reply) => return reply,
                Err(error) => Err(error),
            },
            "rewind" if rest.is_empty() && self.peer.capabilities().supports_question("form") => {
                drop(order);
                match self.rewind_by_form(session, id, &turn.id).await {
                    Ok(Some(text)) => Ok(text),
                    Ok(None) => return cancelled_reply(),
                    Err(error) => Err(error),
                }
            }
            "rewind" if rest.is_empty() => self.turns(id).await,
            "rewind" | "fork" => {
                let branched = async {
                    match name {
                        "rewind" => self.rewind(session, id, rest, order).await,
                        _ => self.fork_off(id, rest, order).await,
                    }
                };
                tokio::select! {
                    biased;
                    text = branched => text,
                    // The agent may take long. It still makes the branch.
                    () = session.wait_until_cancelled_or_closed(&turn.id) => return cancelled_reply(),
                }
            }
            "undo" => self.undo(session, id).await,
            "continue" => match self.continue_turn(session, id, &turn.id, order).await {
                Ok(ContinueReply::Turn(reply)) => return reply,
                Ok(ContinueReply::Text(text)) => Ok(text),
                Err(error) => Err(error),
            },
            _ => self.turns(id).await,
        };
        session.send_text(&text.unwrap_or_else(|error| error.message));
        Ok(r#"{"stopReason":"end_turn"}"#.to_owned())
    }

    /// Lets the user choose the turn to go back to. None if the prompt was cancelled.
    async fn rewind_by_form(
        &self,
        session: &Arc<Session>,
        id: ConversationId,
        prompt: &TurnId,
    ) -> Result<Option<String>, BridgeError> {
        let turns = self.checkpoints(id).await?;
        if turns.is_empty() {
            return Ok(Some(NO_TURNS.to_owned()));
        }
        let choice = |turn: &Checkpoint| json!({ "const": turn.step.to_string(), "title": turn_line(turn) });
        let choices: Vec<_> = turns.iter().map(choice).collect();
        let form = json!({
            "sessionId": session.id,
            "mode": "form",
            "message": "Go back to after which turn?",
            "requestedSchema": {
                "type": "object",
                "properties": { "turn": { "type": "string", "title": "Turn", "oneOf": choices } },
                "required": ["turn"],
            },
        });
        let (sender, answer) = oneshot::channel();
        let Some(request) = self.peer.register_request(PendingRequest::Form(sender)) else {
            return Ok(None);
        };
        session.send_generated(&message::request(
            request,
            "elicitation/create",
            &form.to_string(),
        ));
        let answer = tokio::select! {
            answer = answer => answer.ok().flatten(),
            () = session.wait_until_cancelled_or_closed(prompt) => {
                self.peer.take_pending(request);
                session.send_generated(&message::withdrawal(request));
                return Ok(None);
            }
        };
        let answer: Option<Value> = answer.and_then(|answer| serde_json::from_str(&answer).ok());
        let chosen = answer
            .as_ref()
            .and_then(|answer| answer.pointer("/content/turn")?.as_str());
        let Some(turn) = chosen else {
            return Ok(Some("Nothing was changed.".to_owned()));
        };
        let order = session.order.lock().await;
        self.rewind(session, id, turn, order).await.map(Some)
    }

    /// Goes back to after a turn, even if the command is cancelled meanwhile. The user is then notified.
    async fn rewind(
        &self,
        session: &Arc<Session>,
        id: ConversationId,
        turn: &str,
        order: MutexGuard<'_, ()>,
    ) -> Result<String, BridgeError> {
        let fork = Fork {
            in_place: true,
            at: Some(self.turn(id, turn).await?.to_string()),
            ..Fork::of(id)
        };
        let text = format!(
            "Went back to after turn {turn}. What you see below it is no longer part of the conversation; reopen the thread \
             to hide it. /undo takes this back."
        );
        let (bridge, session) = (Arc::clone(&self.bridge), Arc::clone(session));
        let (sender, answer) = oneshot::channel();
        let mut rewind = async move {
            let guard = session.change_history();
            let forked = bridge.handle(fork).await;
            drop(guard);
            let forked = forked.map(|_| text).map_err(|error| match error.kind {
                ErrorKind::Busy => BridgeError::new(
                    ErrorKind::Busy,
                    "A turn is running; wait for its end or cancel it, then go back.",
                ),
                _ => error,
            });
            if let Err(Ok(text)) = sender.send(forked)
                && session.conversation().is_some()
            {
                session.send_note(&format!("The cancellation came too late. {text}\n\n"));
            }
        }
        .boxed();
        if poll_once(&mut rewind).is_pending() {
            tokio::spawn(rewind);
        }
        drop(order);
        let failed = || BridgeError::new(ErrorKind::InternalError, "going back failed");
        answer.await.map_err(|_| failed())?
    }

    async fn edit(
        &self,
        session: &Arc<Session>,
        id: ConversationId,
        (rest, command): (&str, &PromptContent),
        (edited, order): (NewTurn, MutexGuard<'_, ()>),
    ) -> Result<Reply, BridgeError> {
        let usage = || {
            BridgeError::new(
                ErrorKind::InvalidParams,
                "Give the number of a turn and its new text: /edit 3 New text",
            )
        };
        let (turn, text) = rest
            .split_once(|character: char| character.is_whitespace() || character == ',')
            .ok_or_else(usage)?;
        let prompt = Some(text.trim())
            .filter(|text| !text.is_empty())
            .map(PromptContent::text)
            .ok_or_else(usage)?;
        // The attachments, such as files and pictures.
        let attached = command.as_blocks().get(1..).unwrap_or_default();
        let prompt = prompt.followed_by(&PromptContent::blocks(attached.to_vec()));
        let edit = Edit {
            at: self.turn(id, turn).await?.to_string(),
            prompt,
            ..Edit::of(id)
        };
        if session.is_cancelled(&edited.id) {
            return Ok(cancelled_reply());
        }
        let edited = submit_in_order(self.bridge.edit(edited, edit), order).await?;
        Ok(self.turn_reply(session, &edited.turn).await)
    }

    async fn fork_off(
        &self,
        id: ConversationId,
        turn: &str,
        order: MutexGuard<'_, ()>,
    ) -> Result<String, BridgeError> {
        let at = match turn {
            "" => None,
            turn => Some(self.turn(id, turn).await?.to_string()),
        };
        let source = self.run_app_call(GetConversation::of(id)).await?.conversation;
        let fork = Fork {
            at,
            title: fork_title(&source.title),
            ..Fork::of(id)
        };
        let branch = submit_in_order(self.run_app_call(fork), order)
            .await?
            .conversation;
        let title = match branch.title.as_str() {
            "" => String::new(),
            title => format!("\"{title}\", "),
        };
        Ok(format!(
            "Forked as {title}{}. It is in the list of sessions.",
            branch.id
        ))
    }

    async fn undo(&self, session: &Session, id: ConversationId) -> Result<String, BridgeError> {
        let _guard = session.change_history();
        self.run_app_call(Undo::of(id)).await?;
        Ok("Undone. Reopen the thread to see the conversation as it is now.".to_owned())
    }

    /// Continues a turn. If it begins now, the prompt is answered when the turn ends.
    async fn continue_turn(
        &self,
        session: &Session,
        id: ConversationId,
        prompt: &TurnId,
        order: MutexGuard<'_, ()>,
    ) -> Result<ContinueReply, BridgeError> {
        let conversation = self.run_app_call(GetConversation::of(id)).await?.conversation;
        let resets_at = conversation.limit.as_ref().and_then(|limit| limit.resets_at);
        let call = Continue {
            at: Some(resets_at.map_or(ContinueAt::Now, |_| ContinueAt::Reset)),
            ..Continue::of(id)
        };
        let mut ended = session.expect_continuation(prompt);
        let scheduled = submit_in_order(self.run_app_call(call), order)
            .await
            .map_err(|error| match error.kind {
                ErrorKind::Conflict if !conversation.interrupts.is_empty() => {
                    let text = format!(
                        "A question of the agent is open. To answer it, run in a terminal: sessionctl answer {id}"
                    );
                    BridgeError::new(error.kind, text)
                }
                ErrorKind::Conflict if !conversation.cut_short => {
                    BridgeError::new(error.kind, "no turn was interrupted: send the next prompt")
                }
                _ => error,
            });
        let scheduled = scheduled?.continuation;
        if let Some(later) = scheduled.filter(|scheduled| scheduled.at > Timestamp::now()) {
            let at = time::text(later.at);
            return Ok(ContinueReply::Text(format!(
                "The turn continues when the limit ends, at {at}."
            )));
        }
        let turn = tokio::select! {
            biased;
            turn = &mut ended => turn.ok(),
            () = session.wait_until_cancelled_or_closed(prompt) => {
                self.cancel_continuation(session, id, prompt).await?;
                match ended.try_recv() {
                    Ok(turn) => Some(turn),
                    Err(_) => return Ok(ContinueReply::Turn(cancelled_reply())),
                }
            }
        };
        if let Some(turn) = turn {
            return Ok(ContinueReply::Turn(self.turn_reply(session, &turn).await));
        }
        let conversation = self.run_app_call(GetConversation::of(id)).await?.conversation;
        Ok(ContinueReply::Text(
            match (conversation.continuation, conversation.failure) {
                (Some(later), _) => format!("The turn continues at {}.", time::text(later.at)),
                (None, Some(failure)) => format!("The turn was not continued: {failure}"),
                (None, None) => "There is nothing left to continue.".to_owned(),
            },
        ))
    }

    /// Cancels the continuation that a prompt waits for, or its turn if that has begun.
    async fn cancel_continuation(
        &self,
        session: &Session,
        id: ConversationId,
        prompt: &TurnId,
    ) -> Result<(), BridgeError> {
        let cancel = Continue {
            cancel: true,
            ..Continue::of(id)
        };
        match self.run_app_call(cancel).await {
            // Refused because the prompt was already sent. Its turn is then known, unless it has ended.
            Err(error) if error.kind != ErrorKind::Busy => Err(error),
            _ => {
                let turn = session.continuation_turn(prompt);
                self.cancel_turns(id, turn.into_iter().collect(), None).await
            }
        }
    }

    /// Lists the turns, oldest first.
    async fn turns(&self, id: ConversationId) -> Result<String, BridgeError> {
        let turns = self.checkpoints(id).await?;
        if turns.is_empty() {
            return Ok(NO_TURNS.to_owned());
        }
        let lines: Vec<String> = turns.iter().rev().map(turn_line).collect();
        Ok(lines.join("\n"))
    }

    /// The checkpoints of the newest turns, newest first.
    async fn checkpoints(&self, id: ConversationId) -> Result<Vec<Checkpoint>, BridgeError> {
        let page = Checkpoints {
            limit: Some(LISTED_TURNS),
            ..Checkpoints::of(id)
        };
        Ok(self.run_app_call(page).await?.checkpoints)
    }

    /// The checkpoint of a turn.
    async fn turn(&self, id: ConversationId, turn: &str) -> Result<CheckpointId, BridgeError> {
        if turn.parse::<u64>().is_err() {
            let message = format!("\"{turn}\" is not the number of a turn; /rewind lists the turns");
            return Err(BridgeError::new(ErrorKind::InvalidParams, message));
        }
        let get = GetCheckpoint {
            checkpoint_id: turn.into(),
            conversation_id: Some(id.into()),
        };
        let answer = self.run_app_call(get).await.map_err(|error| match error.kind {
            ErrorKind::CheckpointNotFound => BridgeError::new(
                error.kind,
                format!("There is no turn {turn}; /history lists the turns."),
            ),
            _ => error,
        });
        Ok(answer?.checkpoint.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> RawJson {
        RawJson::from_text(text.to_owned()).unwrap()
    }

    #[test]
    fn the_agents_commands_keep_their_bytes_and_their_names() {
        let own = r#"{"name" : "undo","x":1.50}"#;
        let turns = TurnAbilities {
            lists: true,
            forks_after: true,
        };
        let all = announced_commands(Some(&raw(&format!("[{own}]"))), turns);
        assert_eq!(all.read::<Vec<RawJson>>().unwrap()[0].get(), own);
        assert_eq!(
            names(Some(&all)),
            [
                "undo",
                "rewind",
                "edit",
                "fork",
                "sessiond-undo",
                "continue",
                "history"
            ]
        );
        assert_eq!(
            names(Some(&announced_commands(None, turns))).len(),
            COMMANDS.len()
        );
    }

    #[test]
    fn only_an_announced_name_at_the_beginning_of_a_text_is_a_command() {
        let agents = raw(r#"[{"name":"undo"}]"#);
        let table = [
            ("/rewind", Some(("rewind", ""))),
            ("/rewind  3 ", Some(("rewind", "3"))),
            ("/edit 2 new\ntext", Some(("edit", "2 new\ntext"))),
            ("/undo", None),
            ("/sessiond-undo", Some(("undo", ""))),
            ("/rewinding", None),
            (" /rewind", None),
            ("rewind", None),
            ("/", None),
        ];
        for (text, expected) in table {
            let found = parse_command(&PromptContent::text(text), Some(&agents));
            let found = found.as_ref().map(|(name, rest)| (*name, rest.as_str()));
            assert_eq!(found, expected, "{text}");
        }
        let image = PromptContent::blocks(vec![raw(r#"{"type":"image","text":"/undo"}"#)]);
        assert!(parse_command(&image, None).is_none());
    }
}

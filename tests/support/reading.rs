//! Reads transcripts through the daemon: lists, histories, checkpoints and findings.

use bridge_protocol::method::{Adopt, Check, Checkpoints, GetCheckpoint, History, ListTranscripts};
use std::path::Path;

use bridge_protocol::check::{Finding, FindingKind};
use bridge_protocol::conversation::Conversation;
use bridge_protocol::event::Event;
use bridge_protocol::history::{Checkpoint, HistoryPage, Message, MessageKind, MessagePart, Role};
use bridge_protocol::link::{Link, LinkReason, Relation};
use bridge_protocol::transcript::Transcript;
use bridge_protocol::turn::StopReason;
use bridge_protocol::{BridgeError, CheckpointId, ConversationId, UpstreamId};
use serde_json::json;

use crate::bridge_of::{Bridge, path_text};
use crate::support::acp_client::AcpClient;
use crate::support::lab::Agent;
use crate::support::model_server::{Said, What};

impl<A: Agent> Bridge<A> {
    /// All transcripts in the list, newest first.
    pub(crate) fn listed(&self) -> Vec<Transcript> {
        let page = self.answer(ListTranscripts {
            limit: Some(500),
            ..Default::default()
        });
        assert_eq!((page.next_cursor, page.unreadable), (None, Vec::new()));
        page.transcripts
    }

    /// The entry of a session in the list, which must be its only one.
    pub(crate) fn listed_of(&self, upstream_id: &str) -> Transcript {
        let mut found = self.listed();
        found.retain(|transcript| transcript.upstream_id.as_str() == upstream_id);
        assert_eq!(found.len(), 1, "{upstream_id}: {found:#?}");
        found.remove(0)
    }

    /// The whole history, read page by page. Checks that it has no gaps.
    pub(crate) fn history(&self, id: ConversationId) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut cursor = None;
        loop {
            // Small pages, so that the history consists of several.
            let page = self.answer(History {
                conversation_id: id.into(),
                cursor,
                limit: Some(7),
                ..Default::default()
            });
            assert_eq!(page.gaps, []);
            messages.extend(page.messages);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return messages;
            }
        }
    }

    /// Runs turns, one with a tool and one that is cancelled, and restarts the daemon. Checks that each is saved
    /// once, in order and with its whole reply: no turn may be reported before its end. `tool` is a prompt that runs a
    /// tool, with the reply and the name of the tool.
    pub(crate) fn each_turn_is_saved_once(&mut self, tool: (&str, &str, &str)) -> ConversationId {
        const LONG: &str = "long [[slow 300 0.1]]";
        let id = self.begun(&["first", tool.0, "third"]);
        let running = self.begin_prompt(id, LONG, None);
        self.wait_event("the first word", |event| {
            matches!(&event.event, Event::Update { update, .. } if update.get().contains("word "))
                .then_some(())
        });
        assert!(self.cancel(id));
        let cancelled = running.wait().expect("a turn result");
        assert_eq!(cancelled.stop_reason, StopReason::Cancelled);
        self.prompted(id, "after the cancel");
        let saved = self.saved_until(id, "after the cancel");
        assert_eq!(
            prompts(&saved),
            ["first", tool.0, "third", LONG, "after the cancel"]
        );
        let steps: Vec<u64> = saved.iter().map(|checkpoint| checkpoint.step).collect();
        assert_eq!(steps, [1, 2, 3, 4, 5]);
        assert_eq!(
            (saved[1].reply.as_str(), &saved[1].tools[..]),
            (tool.1, &[tool.2.to_owned()][..])
        );
        assert_eq!(
            saved,
            self.checkpoints(id),
            "the events differ from conversation/checkpoints"
        );
        assert_eq!(self.foreign_writers(id), 0);

        // After a restart the daemon reports only new turns.
        self.stop_daemon();
        self.start_daemon();
        self.prompted(id, "in the next life");
        assert_eq!(
            prompts(&self.saved_until(id, "in the next life")),
            ["in the next life"]
        );
        id
    }

    /// The first page of a history that may have gaps.
    pub(crate) fn first_page(&self, id: ConversationId) -> HistoryPage {
        self.answer(History {
            conversation_id: id.into(),
            ..Default::default()
        })
    }

    /// The checkpoints, oldest first.
    pub(crate) fn checkpoints(&self, id: ConversationId) -> Vec<Checkpoint> {
        let page = self.answer(Checkpoints {
            conversation_id: id.into(),
            limit: Some(500),
            ..Default::default()
        });
        let mut checkpoints = page.checkpoints;
        checkpoints.reverse();
        checkpoints
    }

    /// Closes the session and continues with a prompt. Returns the turn and the number of messages that
    /// `checkpointLoaded` reported.
    pub(crate) fn loaded_for(&self, id: ConversationId, text: &str) -> (u64, u64) {
        let loads = || {
            let events = self.events(id).into_iter();
            let loads = events.filter_map(|event| match event {
                Event::CheckpointLoaded { step, messages, .. } => Some((step, messages)),
                _ => None,
            });
            loads.collect::<Vec<_>>()
        };
        self.close(id);
        let before = loads().len();
        self.prompted(id, text);
        // `checkpointLoaded` comes before the end of the turn.
        self.saved_until(id, text);
        let loads = loads();
        assert_eq!(loads.len(), before + 1, "each load is reported once: {loads:?}");
        loads[before]
    }

    /// Waits until the turn of this prompt is reported as saved. Returns all checkpoints reported as saved so
    /// far.
    pub(crate) fn saved_until(&self, id: ConversationId, prompt: &str) -> Vec<Checkpoint> {
        self.wait_event("the turn in the transcript", |event| match &event.event {
            Event::CheckpointSaved { checkpoint }
                if event.conversation_id == id && checkpoint.prompt == prompt =>
            {
                Some(())
            }
            _ => None,
        });
        let events = self.events(id).into_iter();
        let saved = events.filter_map(|event| match event {
            Event::CheckpointSaved { checkpoint } => Some(checkpoint),
            _ => None,
        });
        saved.collect()
    }

    /// How many times `foreignWriter` was emitted.
    pub(crate) fn foreign_writers(&self, id: ConversationId) -> usize {
        let events = self.events(id).into_iter();
        events
            .filter(|event| matches!(event, Event::ForeignWriter { .. }))
            .count()
    }

    /// Adopts three sessions made by [`forks_of_forks`], the last one first. Each becomes a conversation of
    /// its own, whose link refers to the place in the previous session after which it continues. Returns the
    /// conversation of the last session.
    pub(crate) fn adopts_forks_of_forks(&self) -> ConversationId {
        let adapter = self.lab.adapter();
        let sessions = &forks_of_forks(&adapter, &self.lab.project());
        adapter.stop();
        let adopted: Vec<ConversationId> = sessions
            .iter()
            .rev()
            .map(|session| self.adopts(session))
            .collect();
        let mut before: Option<Link> = None;
        for ((id, session), turns) in adopted.iter().rev().zip(sessions).zip([2, 3, 4]) {
            let [link] = <[Link; 1]>::try_from(self.chain(*id)).expect("one link");
            assert_eq!(
                (link.upstream_id.as_str(), link.carried_turns, link.reason),
                (session.as_str(), turns, LinkReason::Adopted)
            );
            match before {
                None => assert_eq!(
                    (link.relation, &link.from_checkpoint_id),
                    (Relation::Fresh, &None)
                ),
                Some(before) => {
                    assert_eq!(link.relation, Relation::Carries);
                    assert_eq!(link.from_upstream_id.as_ref(), Some(&before.upstream_id));
                    let place = self.checkpoint(link.from_checkpoint_id.clone().expect("a place"));
                    assert_eq!(
                        (&place.upstream_id, place.step),
                        (&before.upstream_id, before.carried_turns)
                    );
                }
            }
            before = Some(link);
        }
        assert_eq!(prompts(&self.checkpoints(adopted[0])), FORKED_TURNS);
        adopted[0]
    }

    fn adopts(&self, session: &str) -> ConversationId {
        let answer = self.answer(Adopt {
            upstream_id: UpstreamId::new(session),
            ..Default::default()
        });
        assert_eq!(answer.missing, []);
        answer.conversation.id
    }

    fn checkpoint(&self, place: CheckpointId) -> Checkpoint {
        self.answer(GetCheckpoint {
            checkpoint_id: place,
            ..Default::default()
        })
        .checkpoint
    }

    /// The findings of a check of a transcript.
    pub(crate) fn findings(&self, upstream_id: &str) -> Vec<Finding> {
        self.answer(Check {
            upstream_id: Some(UpstreamId::new(upstream_id)),
            ..Default::default()
        })
        .findings
    }

    /// The kinds of these findings.
    pub(crate) fn found(&self, upstream_id: &str) -> Vec<FindingKind> {
        let findings = self.findings(upstream_id);
        findings.iter().map(|finding| finding.kind).collect()
    }

    /// Adopts a transcript as a conversation.
    pub(crate) fn adopt(&self, upstream_id: &str) -> Result<Conversation, BridgeError> {
        self.adopt_into(upstream_id, None)
    }

    /// The same as [`Self::adopt`], in another folder than the transcript's own if one is given.
    pub(crate) fn adopt_into(
        &self,
        upstream_id: &str,
        folder: Option<&Path>,
    ) -> Result<Conversation, BridgeError> {
        let answer = self.call(Adopt {
            upstream_id: UpstreamId::new(upstream_id),
            cwd: folder.map(path_text),
            ..Default::default()
        });
        answer.map(|answer| answer.conversation)
    }
}

/// The turns of the last of three sessions. The first session has two turns and is then forked; the fork has
/// one more turn and is then forked again.
const FORKED_TURNS: [&str; 4] = ["the first words", "the second", "on the branch", "on its branch"];

/// Creates the three sessions with the adapter alone, as an editor would.
fn forks_of_forks(adapter: &AcpClient, cwd: &Path) -> [String; 3] {
    let made = |method: &str, of: Option<&str>| {
        let mut params = json!({"cwd": cwd, "mcpServers": []});
        if let Some(session) = of {
            params["sessionId"] = session.into();
        }
        let result = adapter.call(method, params).expect(method);
        result["sessionId"].as_str().expect("an id").to_owned()
    };
    let [first, second, on_branch, on_its_branch] = FORKED_TURNS;
    let source = made("session/new", None);
    adapter.prompt(&source, first).expect("a turn");
    adapter.prompt(&source, second).expect("a turn");
    let fork = made("session/fork", Some(&source));
    adapter.prompt(&fork, on_branch).expect("a turn");
    let of_fork = made("session/fork", Some(&fork));
    adapter.prompt(&of_fork, on_its_branch).expect("a turn");
    [source, fork, of_fork]
}

/// A history block by block, in the form in which a model server records a request. Error messages in place
/// of replies are left out, because the model never receives them. Calls made at the same time are sorted
/// before their results: the agent writes a result as soon as it exists, which may be before the next call is
/// written.
pub(crate) fn said(messages: &[Message]) -> Vec<Said> {
    let of_conversation = messages
        .iter()
        .filter(|message| message.kind != Some(MessageKind::Error));
    let mut said: Vec<Said> = of_conversation
        .flat_map(|message| message.content.iter().map(|part| said_by(message.role, part)))
        .collect();
    let is_of_call = |said: &Said| matches!(said.what, What::ToolUse(_) | What::ToolResult(_));
    let runs = said.chunk_by_mut(|one, next| is_of_call(one) && is_of_call(next));
    for run in runs {
        run.sort_by_key(|said| matches!(said.what, What::ToolResult(_)));
    }
    said
}

fn said_by(role: Role, part: &MessagePart) -> Said {
    let text = || part.text.as_deref().unwrap_or_default().trim().to_owned();
    let what = match part.kind.as_str() {
        "text" => What::Text(text()),
        "thought" => What::Thinking(text()),
        "toolCall" => What::ToolUse(part.name.clone().unwrap_or_default()),
        "toolResult" => What::ToolResult(text()),
        other => What::Other(other.to_owned()),
    };
    let role = if role == Role::User { "user" } else { "assistant" };
    Said {
        role: role.into(),
        what,
    }
}

/// The prompts of checkpoints.
pub(crate) fn prompts(checkpoints: &[Checkpoint]) -> Vec<&str> {
    checkpoints
        .iter()
        .map(|checkpoint| checkpoint.prompt.as_str())
        .collect()
}

/// The uuid of a message's record.
pub(crate) fn uuid_of(message: &Message) -> String {
    let parts: Vec<&str> = message.id.as_str().split('.').collect();
    assert_eq!(parts[..2], ["msg", message.upstream_id.as_str()], "{parts:?}");
    parts[2].to_owned()
}

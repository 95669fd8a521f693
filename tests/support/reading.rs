//! What the daemon reads in transcripts, in the terms of a test: lists, histories, checkpoints, findings.

use std::path::Path;

use bridge_protocol::check::{Finding, FindingKind};
use bridge_protocol::conversation::Conversation;
use bridge_protocol::history::{Checkpoint, Message, MessageKind, MessagePart, Role};
use bridge_protocol::rpc::{ConversationRpcClient, TranscriptRpcClient};
use bridge_protocol::transcript::Transcript;
use bridge_protocol::{BridgeError, ConversationId, UpstreamId};
use session_bridge::transcript::checkpoint::MessageRef;

use crate::bridge_of::{Bridge, Lab};
use crate::support::model_server::{Said, What};

impl<L: Lab> Bridge<L> {
    /// All transcripts, newest first.
    pub(crate) fn listed(&self) -> Vec<Transcript> {
        let client = self.client();
        let answer =
            self.call(async move { client.list_transcripts(None, None, None, None, Some(500)).await });
        let page = answer.expect("transcript/list");
        assert_eq!((page.next_cursor, page.unreadable), (None, Vec::new()));
        page.transcripts
    }

    /// What is listed of one session, which has one file.
    pub(crate) fn listed_of(&self, upstream_id: &str) -> Transcript {
        let mut found = self.listed();
        found.retain(|transcript| transcript.upstream_id.as_str() == upstream_id);
        assert_eq!(found.len(), 1, "{upstream_id}: {found:#?}");
        found.remove(0)
    }

    /// The whole history, page by page. Nothing is missing from it.
    pub(crate) fn history(&self, id: ConversationId) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut cursor = None;
        loop {
            let client = self.client();
            // Small pages, so that some are joined.
            let answer = self.call(async move { client.history(id.into(), cursor, Some(7), None).await });
            let page = answer.expect("conversation/history");
            assert_eq!(page.gaps, []);
            messages.extend(page.messages);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return messages;
            }
        }
    }

    /// The checkpoints, oldest first.
    pub(crate) fn checkpoints(&self, id: ConversationId) -> Vec<Checkpoint> {
        let client = self.client();
        let answer = self.call(async move { client.checkpoints(id.into(), None, Some(500)).await });
        let mut checkpoints = answer.expect("conversation/checkpoints").checkpoints;
        checkpoints.reverse();
        checkpoints
    }

    /// What is wrong with a transcript.
    pub(crate) fn findings(&self, upstream_id: &str) -> Vec<Finding> {
        let (client, upstream_id) = (self.client(), UpstreamId::new(upstream_id));
        let answer = self.call(async move { client.check(Some(upstream_id), None, None, None).await });
        answer.expect("transcript/check").findings
    }

    /// The kinds of what is wrong with a transcript.
    pub(crate) fn found(&self, upstream_id: &str) -> Vec<FindingKind> {
        let findings = self.findings(upstream_id);
        findings.iter().map(|finding| finding.kind).collect()
    }

    /// Makes a conversation of a transcript.
    pub(crate) fn adopt(&self, upstream_id: &str) -> Result<Conversation, BridgeError> {
        self.adopt_into(upstream_id, None)
    }

    /// The same, in another folder than the transcript's own where one is given.
    pub(crate) fn adopt_into(
        &self,
        upstream_id: &str,
        folder: Option<&Path>,
    ) -> Result<Conversation, BridgeError> {
        let (client, upstream_id) = (self.client(), UpstreamId::new(upstream_id));
        let cwd = folder.map(|folder| folder.to_str().expect("a path in UTF-8").to_owned());
        let answer = self.call(async move { client.adopt(upstream_id, None, cwd, None, None).await });
        answer.map(|answer| answer.conversation)
    }
}

/// A history block by block, as a model server tells of a request: without errors in place of replies, which no model is
/// told.
pub(crate) fn said(messages: &[Message]) -> Vec<Said> {
    let of_conversation = messages
        .iter()
        .filter(|message| message.kind != Some(MessageKind::Error));
    of_conversation
        .flat_map(|message| message.content.iter().map(|part| said_by(message.role, part)))
        .collect()
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

/// The uuid of a message's record.
pub(crate) fn uuid_of(message: &Message) -> String {
    let place: MessageRef = message.id.parse().expect("the id of a message");
    assert_eq!(place.upstream_id, message.upstream_id.as_str());
    place.record_uuid
}

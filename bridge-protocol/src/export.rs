//! Exports and imports: a conversation as one file.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::conversation::Conversation;
use crate::declare::objects;
use crate::history::{HistoryGap, Message};
use crate::id::{AgentName, UpstreamId};
use crate::link::{LineageEntry, Link};
use crate::raw::RawJson;
use crate::turn::Interrupt;

/// The current version of [`PortableConversation`].
pub const PORTABLE_VERSION: u32 = 1;

/// The format of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExportFormat {
    /// The messages, as plain JSON that any program can read: see [`PortableConversation`].
    #[default]
    Json,
    /// One file that can be imported, to continue the conversation elsewhere: a tar archive compressed with zstd, with
    /// the agents' transcripts and a manifest.
    Bundle,
}

/// The path of the file or, if none was requested, what the file would contain. Only a file has a `path`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ExportAnswer {
    /// The file that was written.
    File(ExportedFile),
    /// The conversation itself.
    Json(Box<PortableConversation>),
}

objects! {
    /// An exported file.
    #[derive(Default)]
    ExportedFile {
        /// The absolute path of the file.
        path: String,
        /// The size in bytes.
        bytes: u64,
        /// The sessions whose transcripts or side files it lacks; absent when there are none.
        missing: Vec<MissingSession> = default,
        /// What the history lacks; absent when nothing is known to be missing.
        gaps: Vec<HistoryGap> = default,
        /// The sessions that were read from their kept copies because the agent's own files are missing; absent when
        /// there are none.
        kept: Vec<UpstreamId> = default,
        /// The values of MCP servers that it lacks; absent when there are none.
        missing_values: Vec<MissingValue> = default,
    }

    /// A session of a conversation's past whose transcript is missing, or could not be included.
    MissingSession {
        /// The session.
        upstream_id: UpstreamId,
        /// The agent of the session.
        agent: AgentName,
        /// The reason, as a sentence.
        detail: String,
    }

    /// A value of an MCP server's configuration that an export omitted because it may be a secret.
    MissingValue {
        /// The name of the server.
        server: String,
        /// The member of its configuration: `env` or `headers`.
        member: String,
        /// The name of the variable or header; empty if it has none.
        name: String,
    }

    /// A session that was imported with lines that could not be adapted: they still have the session ids and folders of
    /// the machine that exported them, and the agent may skip them.
    UnchangedLines {
        /// The session, by its id on this machine.
        upstream_id: UpstreamId,
        /// The agent of the session.
        agent: AgentName,
        /// The number of these lines.
        lines: u64,
    }

    /// A conversation as plain JSON, for other programs. Without `secrets`, each MCP server has only `name`, `type`,
    /// `command` and the names in `env` and `headers`: values, arguments and URLs are omitted because they may contain
    /// keys.
    PortableConversation {
        /// The version of this format: [`PORTABLE_VERSION`] of the program that wrote it.
        version: u32,
        /// When it was exported.
        exported_at: Timestamp as time,
        /// The conversation.
        conversation: Conversation,
        /// Its upstream sessions, oldest first; the last is the head.
        chain: Vec<Link>,
        /// Everything that ever happened to the chain, oldest first.
        lineage: Vec<LineageEntry>,
        /// The messages, oldest first, as `conversation/history` returns them.
        messages: Vec<Message>,
        /// The number of turns in `messages`.
        turns: u64,
        /// The usage that the agent last reported, in ACP's shape; absent if it never did, for example if the
        /// conversation was adopted and has had no turn since.
        usage: Option<RawJson> = default,
        /// The questions that wait for an answer; absent when there are none.
        pending: Vec<Interrupt> = default,
        /// What the history lacks; absent when nothing is known to be missing.
        gaps: Vec<HistoryGap> = default,
        /// The sessions that were read from their kept copies because the agent's own files are missing; absent when
        /// there are none.
        kept: Vec<UpstreamId> = default,
    }

    /// The answer of `conversation/import`.
    ImportAnswer {
        /// The conversation as imported.
        conversation: Conversation,
        /// The sessions whose transcripts or side files the bundle lacks; absent when there are none.
        missing: Vec<MissingSession> = default,
        /// The sessions with lines that were imported unchanged because each is too long to adapt; absent when there are
        /// none.
        unchanged: Vec<UnchangedLines> = default,
        /// The names of the settings in the bundle that were not imported; absent when all were.
        left_out: Vec<String> = default,
        /// The values of MCP servers that the bundle lacks; absent when there are none. `conversation/update` sets them.
        missing_values: Vec<MissingValue> = default,
    }
}

impl<'de> Deserialize<'de> for ExportAnswer {
    /// Only a file has a `path`, so that member decides.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Path {
            #[serde(default)]
            path: Option<String>,
        }
        let json = RawJson::deserialize(deserializer)?;
        let is_file = json.read::<Path>().map_err(D::Error::custom)?.path.is_some();
        if is_file {
            return json.read().map(Self::File).map_err(D::Error::custom);
        }
        let portable = json.read().map_err(D::Error::custom)?;
        Ok(Self::Json(Box::new(portable)))
    }
}

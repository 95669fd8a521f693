//! Exports and imports: a conversation as one file.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::conversation::Conversation;
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

/// The answer of `conversation/export`: the path of the file or, if none was requested, what the file would contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportAnswer {
    /// The file that was written.
    File(ExportedFile),
    /// The conversation itself.
    Json(Box<PortableConversation>),
}

/// An exported file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedFile {
    /// The absolute path of the file.
    pub path: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The sessions whose transcripts or side files it lacks; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingSession>,
    /// What the history lacks; absent when nothing is known to be missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<HistoryGap>,
    /// The sessions that were read from their kept copies because the agent's own files are missing; absent when there
    /// are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
    /// The values of MCP servers that it lacks; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_values: Vec<MissingValue>,
}

/// A session of a conversation's past whose transcript is missing, or could not be included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MissingSession {
    /// The session.
    pub upstream_id: UpstreamId,
    /// The agent of the session.
    pub agent: AgentName,
    /// The reason, as a sentence.
    pub detail: String,
}

/// A value of an MCP server's configuration that an export omitted because it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MissingValue {
    /// The name of the server.
    pub server: String,
    /// The member of its configuration: `env` or `headers`.
    pub member: String,
    /// The name of the variable or header; empty if it has none.
    pub name: String,
}

/// A session that was imported with lines that could not be adapted: they still have the session ids and folders of the
/// machine that exported them, and the agent may skip them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnchangedLines {
    /// The session, by its id on this machine.
    pub upstream_id: UpstreamId,
    /// The agent of the session.
    pub agent: AgentName,
    /// The number of these lines.
    pub lines: u64,
}

/// A conversation as plain JSON, for other programs. Without `secrets`, each MCP server has only `name`, `type`,
/// `command` and the names in `env` and `headers`: values, arguments and URLs are omitted because they may contain keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortableConversation {
    /// The version of this format: [`PORTABLE_VERSION`] of the program that wrote it.
    pub version: u32,
    /// When it was exported.
    #[serde(serialize_with = "crate::time::write")]
    pub exported_at: Timestamp,
    /// The conversation.
    pub conversation: Conversation,
    /// Its upstream sessions, oldest first; the last is the head.
    pub chain: Vec<Link>,
    /// Everything that ever happened to the chain, oldest first.
    pub lineage: Vec<LineageEntry>,
    /// The messages, oldest first, as `conversation/history` returns them.
    pub messages: Vec<Message>,
    /// The number of turns in `messages`.
    pub turns: u64,
    /// The usage that the agent last reported, in ACP's shape; absent if it never did, for example if the conversation
    /// was adopted and has had no turn since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<RawJson>,
    /// The questions that wait for an answer; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Interrupt>,
    /// What the history lacks; absent when nothing is known to be missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<HistoryGap>,
    /// The sessions that were read from their kept copies because the agent's own files are missing; absent when there
    /// are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// The answer of `conversation/import`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportAnswer {
    /// The conversation as imported.
    pub conversation: Conversation,
    /// The sessions whose transcripts or side files the bundle lacks; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingSession>,
    /// The sessions with lines that were imported unchanged because each is too long to adapt; absent when there are
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchanged: Vec<UnchangedLines>,
    /// The names of the settings in the bundle that were not imported; absent when all were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The values of MCP servers that the bundle lacks; absent when there are none. `conversation/update` sets them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_values: Vec<MissingValue>,
}

impl Serialize for ExportAnswer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(file) => file.serialize(serializer),
            Self::Json(portable) => portable.serialize(serializer),
        }
    }
}

impl schemars::JsonSchema for ExportAnswer {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ExportAnswer".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let file = generator.subschema_for::<ExportedFile>();
        let portable = generator.subschema_for::<PortableConversation>();
        schemars::json_schema!({
            "description": "The path of the file or, if none was requested, what the file would contain. \
                            Only a file has a `path`.",
            "anyOf": [file, portable],
        })
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

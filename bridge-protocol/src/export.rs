//! A conversation as one file, and back: what `conversation/export` and `conversation/import` say.

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

/// The version of [`PortableConversation`].
pub const PORTABLE_VERSION: u32 = 1;

/// What an export makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExportFormat {
    /// What was said, as plain JSON that any program can read: see [`PortableConversation`].
    #[default]
    Json,
    /// One file from which the conversation goes on elsewhere: a tar archive compressed with zstd, with the agents' own
    /// transcripts and a manifest.
    Bundle,
}

/// What `conversation/export` answers: where the file is or, where none was asked for, what would be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportAnswer {
    /// The file that was written.
    File(ExportedFile),
    /// The conversation itself.
    Json(Box<PortableConversation>),
}

/// A file that an export made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedFile {
    /// Its absolute path.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// The sessions whose transcripts, or files that belong to those, are not in it; absent when none is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingSession>,
    /// What the history lacks; absent when nothing is known to be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<HistoryGap>,
    /// The sessions that are told from our own kept copies, since their agent's files of them are gone; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
    /// The values of MCP servers that are not in it; absent when none is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_values: Vec<MissingValue>,
}

/// A session of a conversation's past whose transcript is not there, or could not be taken along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MissingSession {
    /// The session.
    pub upstream_id: UpstreamId,
    /// The agent that held it.
    pub agent: AgentName,
    /// Why, in words.
    pub detail: String,
}

/// A value of an MCP server's configuration that an export left out, since it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MissingValue {
    /// The server's name.
    pub server: String,
    /// The member of its configuration: `env` or `headers`.
    pub member: String,
    /// The name of the variable or header; empty where it has none.
    pub name: String,
}

/// A session that was imported with lines that could not be fitted in: they name sessions and folders as those were called
/// where the file comes from, and the agent may leave them out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnchangedLines {
    /// The session, as it is called here.
    pub upstream_id: UpstreamId,
    /// The agent that holds it.
    pub agent: AgentName,
    /// How many lines.
    pub lines: u64,
}

/// A conversation as plain JSON, for other programs. Unless `secrets` was given it has of each MCP server `name`, `type`,
/// `command`, and the names in `env` and `headers`, but no values, arguments or URLs, which may hold keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortableConversation {
    /// The version of this form: [`PORTABLE_VERSION`] of the program that wrote it.
    pub version: u32,
    /// When it was written.
    #[serde(serialize_with = "crate::time::write")]
    pub exported_at: Timestamp,
    /// The conversation.
    pub conversation: Conversation,
    /// Its upstream sessions, oldest first; the last is the head.
    pub chain: Vec<Link>,
    /// Everything that ever happened to the chain, oldest first.
    pub lineage: Vec<LineageEntry>,
    /// What was said, oldest first, as `conversation/history` tells it.
    pub messages: Vec<Message>,
    /// How many turns the messages are.
    pub turns: u64,
    /// What the agent last reported of its usage, in ACP's shape; absent when it never did, as in what was adopted and had no turn
    /// since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<RawJson>,
    /// The questions of the agent that wait for a person; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Interrupt>,
    /// What the history lacks; absent when nothing is known to be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<HistoryGap>,
    /// The sessions that are told from our own kept copies, since their agent's files of them are gone; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// What `conversation/import` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportAnswer {
    /// The conversation as it stands here now.
    pub conversation: Conversation,
    /// The sessions whose transcripts were not in the file, or not with all that belongs to them; absent when none is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingSession>,
    /// The sessions of which lines went in as they were, each too long to be changed; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchanged: Vec<UnchangedLines>,
    /// The settings that were in the file and were not taken over, by their names; absent when all were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The values of MCP servers that were not in the file; absent when none is missing. `conversation/update` sets them.
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
            "description": "Where the file is or, where none was asked for, what would be in it. Only a file has a `path`.",
            "anyOf": [file, portable],
        })
    }
}

impl<'de> Deserialize<'de> for ExportAnswer {
    /// The two are told apart by their members: only a file has a path.
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

//! The format of a bundle: one file that contains a conversation, to continue it elsewhere.
//!
//! A bundle is a tar archive compressed with zstd. Its first entry is `manifest.json`, which describes the conversation
//! and lists every other entry in order, with size and hash. A reader therefore knows each entry before it arrives. This
//! module does not know the store, the agents, or where the files come from or go.

pub(super) mod pack;
pub(super) mod unpack;

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bridge_protocol::conversation::{Conversation, Settings};
use bridge_protocol::export::{MissingSession, MissingValue};
use bridge_protocol::link::{LineageEntry, Link};
use bridge_protocol::{AgentName, UpstreamId};
use indicatif::BinaryBytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::error::{ConversationError, StoreFailure};
use super::running_work::{EndedEarly, Progress, is_ended_early};
use super::services::chain_text;
use crate::transcript::TranscriptError;
use crate::transcript::claude;
use crate::transcript::codex::rollout_name;
use crate::transcript::transcript_list::Format;

/// The value of `format` in the manifest.
pub(super) const BUNDLE_FORMAT: &str = "session-bundle";

/// The bundle version that this program writes, and the newest that it reads.
pub(super) const BUNDLE_VERSION: u32 = 1;

/// The suffix of a bundle's file name.
pub(super) const BUNDLE_SUFFIX: &str = ".session-bundle.tar.zst";

/// The name of the first entry.
const MANIFEST_NAME: &str = "manifest.json";

/// The limit for the manifest, in bytes: about a hundred thousand lineage entries and as many files.
const MANIFEST_LIMIT_BYTES: u64 = 64 * 1024 * 1024;

/// The longest path of a file below a session's folder, in bytes.
const PATH_LIMIT_BYTES: usize = 1024;

/// The side folders of a transcript whose files a bundle includes.
const SIDE_FOLDERS: [&str; 2] = ["subagents/", "tool-results/"];

/// The longest name of one file or folder, in bytes: the limit of file systems.
const FILE_NAME_LIMIT_BYTES: usize = 255;

/// The size of read buffers, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// The manifest of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) format: String,
    pub(super) version: u32,
    pub(super) created_at: Timestamp,
    /// The program that wrote the bundle.
    pub(super) by: String,
    /// The conversation as clients saw it, with no turn running.
    pub(super) conversation: Conversation,
    /// Its settings as given. Those in `conversation` also contain what the agent reported.
    #[serde(default)]
    pub(super) settings: Settings,
    /// Why the conversation failed, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    pub(super) chain: Vec<Link>,
    pub(super) lineage: Vec<LineageEntry>,
    /// The agents named above, with their kinds.
    pub(super) agents: Vec<BundledAgent>,
    /// The conversation's folder without symbolic links, if that path differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) real_cwd: Option<String>,
    /// The sessions whose files are in the bundle.
    pub(super) sessions: Vec<BundledSession>,
    /// The sessions whose files are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<MissingSession>,
    /// The MCP servers' values that were removed from the settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) missing_values: Vec<MissingValue>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BundledAgent {
    pub(super) name: AgentName,
    /// The kind, as in the configuration.
    pub(super) kind: String,
}

/// A session with its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BundledSession {
    pub(super) upstream_id: UpstreamId,
    pub(super) agent: AgentName,
    /// The folder in which the session ran.
    pub(super) cwd: String,
    /// `cwd` without symbolic links, if that path differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) real_cwd: Option<String>,
    /// The form of its transcript.
    #[serde(default = "first_form", skip_serializing_if = "is_first_form")]
    pub(super) form: Format,
    /// Whether the session is included only because another one continues it by reference: the conversation never had it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) continued: bool,
    /// The folder of its transcript, relative to the agent's own. For information only: an import puts the file where
    /// the local agent looks.
    pub(super) folder: String,
    /// The files of the session, the transcript first.
    pub(super) files: Vec<BundledFile>,
}

/// The form of sessions in the first bundles, which name none.
fn first_form() -> Format {
    claude::FORMAT
}

fn is_first_form(form: &Format) -> bool {
    *form == first_form()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BundledFile {
    /// The name of the archive's entry.
    pub(super) path: String,
    /// The name below the session's folder.
    pub(super) name: String,
    /// The name that the session's records use, if the file belonged to another session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) known_as: Option<String>,
    pub(super) bytes: u64,
    /// The hash in hexadecimal.
    pub(super) sha256: String,
}

/// Why a bundle could not be written or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BundleError {
    /// A file on this machine could not be used.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// An exported file changed during the export.
    #[error("{} was changed while it was read; try again", .0.display())]
    Changed(PathBuf),
    /// The content of the bundle does not fit on the disk.
    #[error(
        "the content of the bundle needs {}, and {} are free on the disk of {}; free some space and try again",
        BinaryBytes(*needed),
        BinaryBytes(*free),
        folder.display()
    )]
    NoRoom {
        /// The folder for the unpacked files.
        folder: PathBuf,
        needed: u64,
        free: u64,
    },
    /// The file is not a bundle, or is incomplete.
    #[error("{0}")]
    Invalid(String),
    /// The bundle has a newer version.
    #[error(
        "the bundle has version {0}, and this program reads {BUNDLE_VERSION}; use the one that wrote it or a newer one"
    )]
    NewerVersion(u32),
    /// The call ended first: its caller no longer waits.
    #[error(transparent)]
    Ended(#[from] EndedEarly),
    /// The call is refused for another reason.
    #[error(transparent)]
    Refused(#[from] ConversationError),
}

impl From<BundleError> for ConversationError {
    fn from(trouble: BundleError) -> Self {
        let words = chain_text(&trouble);
        match trouble {
            BundleError::Transcript(TranscriptError::AlreadyExists { path }) => Self::Conflict(format!(
                "{} exists already, and is not overwritten",
                path.display()
            )),
            BundleError::Transcript(error) => Self::StoreFailed((&error).into()),
            BundleError::NoRoom { .. } => Self::StoreFailed(StoreFailure {
                text: words,
                is_transient: false,
                unreadable: None,
            }),
            BundleError::Changed(_) => Self::Busy(words),
            BundleError::Invalid(_) => Self::TranscriptDamaged(words),
            BundleError::NewerVersion(_) => Self::Unsupported(words),
            BundleError::Ended(_) => Self::ShuttingDown,
            BundleError::Refused(error) => error,
        }
    }
}

impl Manifest {
    /// The size of all files, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let files = self.sessions.iter().flat_map(|session| &session.files);
        files.fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Checks the manifest as far as possible without the files. Until then, nothing in it is trusted.
    fn check(&self) -> Result<(), String> {
        let known: BTreeSet<(&AgentName, &UpstreamId)> = self
            .lineage
            .iter()
            .map(|entry| (&entry.agent, &entry.upstream_id))
            .collect();
        let (mut sessions, mut entries) = (BTreeSet::new(), BTreeSet::from([MANIFEST_NAME]));
        for session in &self.sessions {
            let key = (&session.agent, &session.upstream_id);
            let id = session.upstream_id.as_str();
            if !is_session_id(id) {
                return Err(format!("the session id {id:?} is not a UUID in its usual form"));
            }
            let transcript = format!("{id}.jsonl");
            let may_continue = session.form.dialect().abilities().continues_by_reference;
            let is_source = session.continued && may_continue;
            if !(is_source || known.contains(&key)) || !sessions.insert(key) {
                return Err(format!(
                    "the session {id:?} is not in this conversation, or is listed twice"
                ));
            }
            let is_transcript = |name: &str| match may_continue {
                false => name == transcript,
                true => is_rollout_name(name, id),
            };
            if session
                .files
                .first()
                .is_none_or(|file| !is_transcript(&file.name))
            {
                return Err(format!("the session {id:?} does not begin with its transcript"));
            }
            let mut names = BTreeSet::new();
            for (number, file) in session.files.iter().enumerate() {
                let belongs = number == 0 || (!may_continue && is_side_file_name(&file.name, id));
                if !belongs || !names.insert(&file.name) {
                    return Err(format!(
                        "{:?} cannot be the name of a file of the session {id:?}",
                        file.name
                    ));
                }
                if let Some(name) = file.known_as.as_deref().filter(|name| !is_result_name(name)) {
                    return Err(format!("{name:?} cannot be the name of a tool result"));
                }
                if !entries.insert(&file.path) {
                    return Err(format!("the entry {:?} is named twice", file.path));
                }
                if file.sha256.len() != 64 || !file.sha256.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return Err(format!("the hash of {:?} is not a SHA-256", file.path));
                }
            }
        }
        for name in self.agent_names() {
            if !self.agents.iter().any(|agent| agent.name == *name) {
                return Err(format!("it does not describe the agent {name:?}"));
            }
        }
        Ok(())
    }

    /// The agents that the conversation needs in order to continue.
    pub(super) fn agent_names(&self) -> BTreeSet<&AgentName> {
        let sessions = self.sessions.iter().map(|session| &session.agent);
        let links = self.chain.iter().map(|link| &link.agent);
        sessions.chain(links).chain([&self.conversation.agent]).collect()
    }
}

/// Whether a bundle accepts a session with this id. Agents use UUIDs. Any other id could be the name of something else
/// in a project's folder, such as `memory`.
pub(super) fn is_session_id(id: &str) -> bool {
    Uuid::try_parse(id).is_ok_and(|uuid| uuid.hyphenated().to_string() == id)
}

/// Whether `name` is a side file of the session that a bundle accepts, and does not leave the session's folder.
pub(super) fn is_side_file_name(name: &str, id: &str) -> bool {
    let below = name.strip_prefix(id).and_then(|rest| rest.strip_prefix('/'));
    let in_folder = below.and_then(|below| SIDE_FOLDERS.iter().find_map(|folder| below.strip_prefix(folder)));
    let is_plain = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.contains(char::is_control)
            && part.len() <= FILE_NAME_LIMIT_BYTES
    };
    name.len() <= PATH_LIMIT_BYTES && in_folder.is_some_and(|rest| rest.split('/').all(is_plain))
}

/// Whether `name` is a tool result in the folder of a session, and does not leave that folder.
fn is_result_name(name: &str) -> bool {
    match name.split('/').collect::<Vec<_>>()[..] {
        [session, "tool-results", _] => is_session_id(session) && is_side_file_name(name, session),
        _ => false,
    }
}

/// Whether `name` is an uncompressed rollout of the session, and not a path.
fn is_rollout_name(name: &str, id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    name.len() <= FILE_NAME_LIMIT_BYTES
        && name.bytes().all(is_plain)
        && rollout_name(name).is_some_and(|rollout| rollout.upstream_id == id && !rollout.compressed)
}

/// A reader of exactly `left` bytes that hashes them and reports progress.
struct HashingReader<'a, R> {
    reader: R,
    left: u64,
    hash: Sha256,
    progress: &'a Progress,
}

impl<'a, R: Read> HashingReader<'a, R> {
    fn new(reader: R, bytes: u64, progress: &'a Progress) -> Self {
        Self {
            reader,
            left: bytes,
            hash: Sha256::new(),
            progress,
        }
    }

    /// The hash of the bytes read, in hexadecimal. `None` if not all of them were read.
    fn digest(self) -> Option<String> {
        let digits = self.hash.finalize();
        (self.left == 0).then(|| digits.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl<R: Read> Read for HashingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.reader.read(&mut buffer[..most])?;
        if count == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.hash.update(&buffer[..count]);
        self.left -= count as u64;
        self.progress.add_done_bytes_io(count as u64)?;
        Ok(count)
    }
}

/// Converts a failed read or write: [`EndedEarly`] if the work was ended, else the result of `otherwise`.
fn ended_early_or(error: io::Error, otherwise: impl FnOnce(io::Error) -> BundleError) -> BundleError {
    match is_ended_early(&error) {
        true => EndedEarly.into(),
        false => otherwise(error),
    }
}

pub(super) fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BundleError {
    let path = path.to_owned();
    move |source| {
        ended_early_or(source, |source| {
            TranscriptError::Io { action, path, source }.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lent_result_is_called_as_one_of_a_session() {
        const ID: &str = "01a1fc15-ffed-4ff1-b050-3a83130f7a03";
        let table = [
            (format!("{ID}/tool-results/a.txt"), true),
            (format!("{ID}/tool-results/../a.txt"), false),
            (format!("{ID}/tool-results/.."), false),
            (format!("{ID}/tool-results/"), false),
            (format!("{ID}/tool-results/a\n"), false),
            (
                format!("{ID}/tool-results/{}", "x".repeat(PATH_LIMIT_BYTES)),
                false,
            ),
            (format!("{ID}/subagents/a.jsonl"), false),
            (format!("{ID}/memory/MEMORY.md"), false),
            ("../tool-results/a.txt".to_owned(), false),
            ("/tool-results/a.txt".to_owned(), false),
            ("/etc/tool-results/a.txt".to_owned(), false),
            ("memory/tool-results/a.txt".to_owned(), false),
            ("a.txt".to_owned(), false),
        ];
        for (name, expected) in table {
            assert_eq!(is_result_name(&name), expected, "{name}");
        }
    }

    #[test]
    fn only_uuids_in_their_usual_form_are_ids_of_sessions() {
        let table = [
            ("01a1fc15-ffed-4ff1-b050-3a83130f7a03", true),
            ("01A1FC15-FFED-4FF1-B050-3A83130F7A03", false),
            ("01a1fc15ffed4ff1b0503a83130f7a03", false),
            ("{01a1fc15-ffed-4ff1-b050-3a83130f7a03}", false),
            ("urn:uuid:01a1fc15-ffed-4ff1-b050-3a83130f7a03", false),
            ("memory", false),
            ("..", false),
            (".", false),
            ("", false),
        ];
        for (id, expected) in table {
            assert_eq!(is_session_id(id), expected, "{id}");
        }
    }

    #[test]
    fn only_subagents_and_results_of_tools_lie_beside_a_transcript() {
        let table = [
            ("s/subagents/agent-1.jsonl", true),
            ("s/subagents/deep/agent-1.jsonl", true),
            ("s/tool-results/a.txt", true),
            ("s/subagents", false),
            ("s/subagents/", false),
            ("s/subagents-more/a", false),
            ("s/memory/MEMORY.md", false),
            ("s/a.txt", false),
            ("s/subagents/../../memory/MEMORY.md", false),
            ("s/subagents//a", false),
            ("t/subagents/a", false),
        ];
        for (name, expected) in table {
            assert_eq!(is_side_file_name(name, "s"), expected, "{name}");
        }
    }

    #[test]
    fn a_rollouts_name_is_a_plain_one_and_of_its_session() {
        const ID: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";
        let table = [
            (format!("rollout-2026-11-03T12-00-00-{ID}.jsonl"), true),
            (format!("rollout-{ID}.jsonl"), true),
            (format!("rollout-2026-11-03T12-00-00-{ID}.jsonl.zst"), false),
            (format!("rollout-../../../x-{ID}.jsonl"), false),
            (format!("rollout-a/b-{ID}.jsonl"), false),
            (format!("/rollout-x-{ID}.jsonl"), false),
            (format!("rollout-\0-{ID}.jsonl"), false),
            (format!("rollout-{}-{ID}.jsonl", "x".repeat(300)), false),
            (format!("rollout-{}.jsonl", ID.replace("01a1", "01a2")), false),
            (String::new(), false),
        ];
        for (name, is_one) in table {
            assert_eq!(is_rollout_name(&name, ID), is_one, "{name}");
        }
    }
}

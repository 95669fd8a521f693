//! The operations that differ between the formats of the agents' transcripts: one implementation for each format.
//!
//! This module selects the implementation. Code outside it calls a [`Dialect`] and names no format. Blocks. It does not
//! know conversations.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{self, BufRead};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bridge_protocol::check::{Finding, FindingKind, Repairs};

use super::TranscriptError;
use super::blank::is_blank;
use super::check::CheckReport;
use super::checkpoint::CheckpointRef;
use super::claude::Claude;
use super::codex::Codex;
use super::index_cache::IndexCache;
use super::open_transcript::BoxedTranscript;
use super::origin::Origin;
use super::parts::{SessionFile, SessionFiles, only_part};
use super::qwen::Qwen;
use super::summary::{Ends, TranscriptSummary};
use super::transcript_list::Format;
use super::turn_counts::TurnCounts;

/// The transcripts of one agent: their folder, and the cache of what was read from them.
#[derive(Debug, Clone, Copy)]
pub struct AgentHome<'a> {
    /// The cache of their indexes.
    pub index_cache: &'a IndexCache,
    /// The agent's own folder.
    pub root: &'a Path,
}

/// A session of an agent.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    /// The agent's transcripts.
    pub home: AgentHome<'a>,
    /// The folder in which the session runs, if known. It decides which of several copies is used.
    pub cwd: Option<&'a str>,
    /// Its id.
    pub id: &'a str,
}

impl<'a> AgentHome<'a> {
    /// Returns the session of this id, which runs in the folder `cwd`.
    #[must_use]
    pub fn session(self, cwd: Option<&'a str>, id: &'a str) -> Session<'a> {
        Session { home: self, cwd, id }
    }
}

/// The operations that a format supports. Transcripts of every format can be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Whether transcripts can be copied under a new id, whole or up to any record. Other formats are only copied for a repair.
    pub can_copy: bool,
    /// Whether the files of a session can be deleted without its agent.
    pub can_delete: bool,
    /// Whether the agent looks for a session in the folder that the session runs in, so that moving the session moves its
    /// files.
    pub finds_by_folder: bool,
    /// Whether a fork that the agent makes refers to files in the folder of the session from which it was forked.
    pub forks_borrow_files: bool,
    /// Whether a transcript may continue transcripts of other sessions by reference.
    pub continues_by_reference: bool,
    /// Whether the agent resumes a session only in the folder that its transcript names. This version cannot change that
    /// name, so such a session cannot be moved.
    pub has_fixed_folder: bool,
}

/// Where an agent keeps its transcripts, below its own folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The top folders, which contain all transcripts.
    pub tops: &'static [&'static str],
    /// The folders between a top folder and the transcripts. `None` in the slice is a folder of any name. If this is `None`,
    /// transcripts are at any depth.
    pub folders: Option<&'static [Option<&'static str>]>,
}

impl Layout {
    /// Whether a folder that is `depth` levels below a top folder may contain transcripts, or folders with transcripts.
    pub(super) fn has_folder(&self, depth: usize, name: Option<&str>) -> bool {
        let Some(folders) = self.folders else { return true };
        let wanted = depth.checked_sub(1).and_then(|level| folders.get(level));
        wanted.is_some_and(|wanted| wanted.is_none() || *wanted == name)
    }

    /// Whether a folder that is `depth` levels below a top folder may contain transcripts as files.
    pub(super) fn has_files(&self, depth: usize) -> bool {
        self.folders.is_none_or(|folders| folders.len() == depth)
    }

    /// Whether transcripts of this layout may be in this folder, a path relative to the agent's folder.
    fn may_contain_transcripts(&self, folder: &Path) -> bool {
        let names: Option<Vec<&str>> = folder.iter().map(OsStr::to_str).collect();
        let names = names.unwrap_or_default();
        let Some((top, below)) = names.split_first() else {
            return false;
        };
        let mut levels = below.iter().enumerate();
        self.tops.contains(top)
            && self.has_files(below.len())
            && levels.all(|(level, name)| self.has_folder(level + 1, Some(*name)))
    }
}

/// Whether a turn ends with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// The turn continues.
    Open,
    /// Only the next record shows whether the turn has ended. Agents write a text before they know why the model stopped. Older
    /// versions never add the reason if a call follows, and some do not add it at the end of a turn either. A model that was
    /// stopped may be continued.
    Ambiguous,
    /// The turn has ended.
    Ended,
}

/// The state of a transcript, for a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptState {
    /// Whether the last turn has ended.
    pub turn_end: TurnEnd,
    /// Whether the last turn ended with a text of the model.
    pub is_answered: bool,
    /// How many prompts it contains, abandoned branches included. `None` if counting them would require reading the whole file.
    pub prompts: Option<u64>,
    /// How many bytes were read.
    pub bytes: u64,
}

/// A session that is about to be created as a copy of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Its id.
    pub id: String,
    /// Where its transcript goes.
    pub path: PathBuf,
}

impl NewSession {
    /// Returns the folder of its transcript.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }
}

/// A repaired copy of a transcript.
#[derive(Debug)]
pub struct RepairedCopy {
    /// What was changed.
    pub repairs: Repairs,
    /// The last record of the source that the copy contains, if records have ids.
    pub last_uuid: Option<String>,
    /// Its turns.
    pub turns: u64,
    /// Whether no record of the history is missing from the copy.
    pub is_complete: bool,
}

/// The files of one session.
#[derive(Debug)]
pub struct SessionParts {
    /// The session.
    pub upstream_id: String,
    /// Its transcript.
    pub transcript: PathBuf,
    /// Its files, the transcript first.
    pub parts: Vec<SessionFile>,
    /// The files that are not included, with the reasons.
    pub left_out: Vec<String>,
}

/// The file with the beginning of a history, which is missing or unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingSource {
    /// The session whose file is missing.
    pub upstream_id: String,
    /// What is wrong with it.
    pub detail: String,
}

/// The records that a transcript adds to an earlier copy of it. The copy has the beginning, which the transcript lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    /// The positions, in the transcript, of the records that the copy does not have, in order.
    pub added: Vec<Range<u64>>,
    /// Whether these records follow those of the copy without a gap.
    pub is_complete: bool,
}

/// The files of a history with their sessions, and the beginning that is missing, if any.
pub type HistoryFiles = (Vec<(String, PathBuf)>, Option<MissingSource>);

/// The operations on transcripts, implemented for each format.
pub trait Dialect: Debug + Sync {
    /// Returns the operations that this format supports.
    fn abilities(&self) -> Abilities;

    /// Returns where the transcripts are.
    fn layout(&self) -> Layout;

    /// Returns the session to which a file of this name belongs, or `None` if the name is not a transcript's.
    fn upstream_id<'a>(&self, name: &'a str) -> Option<&'a str>;

    /// Returns the summary that a list shows of a transcript.
    fn summary(&self, ends: Ends<'_>) -> TranscriptSummary;

    /// Returns the folder next to a transcript in which the agent writes more files of the session.
    fn own_folder(&self, _transcript: &Path) -> Option<PathBuf> {
        None
    }

    /// Returns all files of a session in all folders. The one that the agent would use is first.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], and [`TranscriptError::Io`] when none was found and a folder cannot be read.
    fn locate(&self, root: &Path, id: &str) -> Result<Vec<PathBuf>, TranscriptError>;

    /// Returns the transcript of a session. If there are several copies, the one to use.
    ///
    /// # Errors
    /// As [`Dialect::locate`], and [`TranscriptError::NotFound`].
    fn find(&self, session: Session<'_>) -> Result<PathBuf, TranscriptError>;

    /// Whether the agent may use another copy of the session than [`Dialect::find`] returns.
    fn is_ambiguous(&self, _session: Session<'_>) -> bool {
        false
    }

    /// Returns the transcript of a session and its [`Origin`]. If the session's folder is unknown, this finds the copy
    /// to use for the folder that the best copy names.
    ///
    /// # Errors
    /// As [`Dialect::find`], and if the transcript cannot be read.
    fn find_with_origin(&self, session: Session<'_>) -> Result<(PathBuf, Origin), TranscriptError>;

    /// Returns the files that contain the history of a session, the oldest first and its own last, and the beginning
    /// that is missing, if any.
    ///
    /// # Errors
    /// As [`Dialect::find`].
    fn files(&self, session: Session<'_>) -> Result<HistoryFiles, TranscriptError> {
        Ok((vec![(session.id.to_owned(), self.find(session)?)], None))
    }

    /// Whether the transcript of a session, or of a session that it continues, is missing or blank.
    fn is_missing(&self, root: &Path, id: &str) -> bool {
        let found = self.locate(root, id);
        found.is_ok_and(|found| found.iter().all(|path| is_blank(path).unwrap_or(false)))
    }

    /// Opens the history of a session, whole or up to a position.
    ///
    /// # Errors
    /// As [`Dialect::find`]; [`TranscriptError::RecordNotFound`] if the history does not contain the position.
    fn open(
        &self,
        session: Session<'_>,
        until: Option<&CheckpointRef>,
    ) -> Result<BoxedTranscript, TranscriptError>;

    /// Opens the history that ends at a position, in whichever copy of its session contains it.
    ///
    /// # Errors
    /// As [`Dialect::open`]. If one copy cannot be read and another does not contain the position, the read error is returned.
    fn open_at(&self, home: AgentHome<'_>, place: &CheckpointRef)
    -> Result<BoxedTranscript, TranscriptError>;

    /// Checks a session's transcript, and the files that it continues, for damage.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] when it cannot be read.
    fn check(&self, session: Session<'_>, path: &Path) -> Result<CheckReport, TranscriptError>;

    /// As [`Dialect::check`], for a session below `root` that replaces the one below the agent's folder, `agents`.
    ///
    /// # Errors
    /// As [`Dialect::locate`] and [`Dialect::check`].
    fn check_copy(&self, root: &Path, agents: &Path, id: &str) -> Result<CheckReport, TranscriptError>;

    /// Returns the known reasons why the agent would refuse to resume a transcript, or would not resume its newest
    /// branch.
    fn resume_obstacles(&self, session: Session<'_>, path: &Path) -> Vec<Finding>;

    /// Returns the last record of a transcript's newest branch, if a resume would continue another branch. This happens
    /// if an agent that has the session open and another program both append to the transcript.
    fn newer_branch_end(&self, _library: &IndexCache, _path: &Path) -> Option<String> {
        None
    }

    /// Returns the [`TranscriptState`] of a transcript.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    fn state(&self, library: &IndexCache, path: &Path) -> Result<TranscriptState, TranscriptError>;

    /// Counts the turns in a session's transcript, whole or up to a record. `None` if no file contains that record, or if the
    /// agent does not record every turn, so that its files never show that a turn was lost.
    ///
    /// # Errors
    /// If the folders, or an existing transcript, cannot be read.
    fn turn_counts(
        &self,
        _session: Session<'_>,
        _until: Option<&str>,
    ) -> Result<Option<TurnCounts>, TranscriptError> {
        Ok(None)
    }

    /// Finds the records that a transcript adds to an earlier copy of it. `None` unless the records that it continues are
    /// missing from it and present in the copy: the file was deleted or truncated while the agent was writing. An agent that
    /// keeps the file open leaves no such file.
    ///
    /// # Errors
    /// The system's error.
    fn continuation(
        &self,
        _kept: &mut dyn BufRead,
        _transcript: &mut dyn BufRead,
    ) -> io::Result<Option<Continuation>> {
        Ok(None)
    }

    /// Whether a line of a transcript records a prompt.
    fn is_prompt(&self, line: &[u8]) -> bool;

    /// Returns a new id for a copy of a session, and the path where an agent that runs in `cwd` looks for it. If `cwd`
    /// is `None`, the path is next to the source.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], and [`TranscriptError::Io`] if this format cannot be copied.
    fn new_session(
        &self,
        root: &Path,
        cwd: Option<&str>,
        source: &Path,
        id: &str,
    ) -> Result<NewSession, TranscriptError>;

    /// Copies a transcript, either unchanged or up to a record. The source is only read.
    ///
    /// # Errors
    /// [`TranscriptError::RecordNotFound`], [`TranscriptError::AlreadyExists`] and [`TranscriptError::Io`], also if this is
    /// not among the [`Abilities`]. After a failure no file is left.
    fn copy(
        &self,
        _library: &IndexCache,
        source: &Path,
        _new: &NewSession,
        _until: Option<&str>,
    ) -> Result<(), TranscriptError> {
        let why = io::Error::new(
            io::ErrorKind::Unsupported,
            "copies of such transcripts are not made",
        );
        Err(TranscriptError::io("copy", source)(why))
    }

    /// Whether a repaired copy no longer has a finding of this kind.
    fn can_fix(&self, kind: FindingKind) -> bool;

    /// Makes a repaired copy. The source is only read.
    ///
    /// # Errors
    /// [`TranscriptError::NothingToResume`] if the source contains no message,
    /// [`TranscriptError::AlreadyExists`], and [`TranscriptError::Io`]. After a failure no file is left.
    fn repair(
        &self,
        session: Session<'_>,
        source: &Path,
        new: &NewSession,
    ) -> Result<RepairedCopy, TranscriptError>;

    /// Returns the files of a session and of the sessions that it continues, the oldest first, and the beginning that
    /// is missing, if any.
    ///
    /// # Errors
    /// As [`Dialect::files`].
    fn parts(
        &self,
        session: Session<'_>,
    ) -> Result<(Vec<SessionParts>, Option<MissingSource>), TranscriptError>;

    /// Returns the files of a session, its transcript first, and names the files that are left out. A transcript that is a
    /// symbolic link is replaced by its target.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    fn own_parts(&self, transcript: &Path) -> Result<SessionFiles, TranscriptError> {
        only_part(transcript)
    }

    /// Returns the path where an agent that runs in `cwd` looks for a file of a session. If `cwd` is `None`, the path
    /// is in `folder`, the earlier folder of the transcript, relative to the root. `name` is relative to the folder of
    /// the transcript.
    fn expected_path(&self, root: &Path, cwd: Option<&Path>, folder: &Path, name: &Path) -> PathBuf;

    /// Returns the session that a transcript continues by reference. `text` is the content of the transcript.
    ///
    /// # Errors
    /// When the text cannot be read.
    fn continued_session(&self, _text: &mut dyn BufRead) -> io::Result<Option<String>> {
        Ok(None)
    }

    /// Returns the session's files that the text of a transcript names by a path below the root. For each file: its
    /// name relative to the folder of the transcript, and that path without the root.
    ///
    /// # Errors
    /// When the text cannot be read.
    fn named_files(&self, _root: &Path, _text: &mut dyn BufRead) -> io::Result<BTreeSet<(String, PathBuf)>> {
        Ok(BTreeSet::new())
    }

    /// Returns the command that unarchives a transcript which a user archived in the agent, without the session's id.
    fn unarchive_command(&self, _root: &Path, _path: &Path) -> Option<&'static str> {
        None
    }

    /// Returns the path where the agent looks for a session's transcript, if the file is elsewhere.
    ///
    /// # Errors
    /// As [`Dialect::locate`].
    fn expected_location(&self, _root: &Path, _id: &str) -> Result<Option<PathBuf>, TranscriptError> {
        Ok(None)
    }

    /// Moves a session's transcript to the place where its agent looks for it.
    ///
    /// # Errors
    /// [`TranscriptError::NotFound`] if the transcript is already there, [`TranscriptError::AlreadyExists`] if another file is.
    fn move_to_expected_path(&self, root: &Path, id: &str) -> Result<PathBuf, TranscriptError> {
        Err(TranscriptError::not_found(root, id))
    }

    /// Returns the agent's own id of a message in the turn that ends at a position. The agent's fork command takes it
    /// as the fork's end.
    ///
    /// # Errors
    /// As [`Dialect::files`].
    fn fork_point(
        &self,
        _root: &Path,
        _id: &str,
        _until: &CheckpointRef,
    ) -> Result<Option<String>, TranscriptError> {
        Ok(None)
    }
}

impl Format {
    /// Returns the dialect of this format.
    #[must_use]
    pub fn dialect(self) -> &'static dyn Dialect {
        match self {
            Self::Claude => &Claude,
            Self::Codex => &Codex,
            Self::Qwen => &Qwen,
        }
    }

    /// Guesses the format of a transcript from its folder, relative to the agent's, and its name.
    #[must_use]
    pub fn of_file(folder: &str, name: &str, upstream_id: &str) -> Self {
        let folder = Path::new(folder);
        // Lists of earlier versions do not record the folder of a file.
        let may_be_in = |dialect: &dyn Dialect| {
            folder.as_os_str().is_empty() || dialect.layout().may_contain_transcripts(folder)
        };
        let is_its = |format: &Self| {
            let dialect = format.dialect();
            dialect.upstream_id(name) == Some(upstream_id) && may_be_in(dialect)
        };
        Self::ALL.into_iter().find(is_its).unwrap_or(Self::Claude)
    }
}

/// Opens the first of these files that contains `place`.
///
/// # Errors
/// As [`Dialect::open_at`].
pub(super) fn open_first(
    found: Vec<PathBuf>,
    root: &Path,
    place: &CheckpointRef,
    open: impl Fn(&Path) -> Result<BoxedTranscript, TranscriptError>,
) -> Result<BoxedTranscript, TranscriptError> {
    let mut failure = TranscriptError::not_found(root, &place.upstream_id);
    for path in found {
        match open(&path) {
            Err(error) if error.is_absence() => {}
            Err(error) => failure = error,
            opened => return opened,
        }
    }
    Err(failure)
}

/// Formats a number of turns for a finding.
pub(crate) fn format_turns(turns: usize) -> String {
    match turns {
        1 => "1 turn".to_owned(),
        turns => format!("{turns} turns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_a_file_is_known_by_where_it_was() {
        let id = "09f5b69e-2b4e-442e-890b-dfb5feff1f81";
        let own = format!("{id}.jsonl");
        let rollout = format!("rollout-2026-11-03T12-00-00-{id}.jsonl");
        let table = [
            ("projects/-home-u-project", own.as_str(), Format::Claude),
            ("projects/chats", &own, Format::Claude),
            // Lists of earlier versions do not record the folder.
            ("", &own, Format::Claude),
            ("projects/-home-u-project/chats", &own, Format::Qwen),
            ("sessions/2026/11/03", &rollout, Format::Codex),
            ("archived_sessions", &rollout, Format::Codex),
            ("", &rollout, Format::Codex),
        ];
        for (folder, name, format) in table {
            assert_eq!(Format::of_file(folder, name, id), format, "{folder}/{name}");
        }
        let named = Format::of_file("projects/-p", "rollout-1.jsonl", "rollout-1");
        assert_eq!(named, Format::Claude);
    }
}

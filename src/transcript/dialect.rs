//! What differs between the agents' transcripts: one implementation for each format.
//!
//! Owns which format answers. Everybody outside this room asks a [`Dialect`] and names no format. Blocks. Knows no
//! conversations.

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
use super::parts::{Part, Parts, only_part};
use super::qwen::Qwen;
use super::summary::{Ends, TranscriptSummary};
use super::transcript_list::Format;
use super::turn_counts::TurnCounts;

/// The transcripts of one agent: where they are, and what was read of them.
#[derive(Debug, Clone, Copy)]
pub struct Home<'a> {
    /// What was read of them before.
    pub index_cache: &'a IndexCache,
    /// The agent's own folder.
    pub root: &'a Path,
}

/// A session of the agent.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    /// The agent's transcripts.
    pub home: Home<'a>,
    /// The folder in which the session runs, if that is known. It decides which of several copies counts.
    pub cwd: Option<&'a str>,
    /// Its id.
    pub id: &'a str,
}

impl<'a> Home<'a> {
    /// The session of this id, which runs in the folder `cwd`.
    #[must_use]
    pub fn session(self, cwd: Option<&'a str>, id: &'a str) -> Session<'a> {
        Session { home: self, cwd, id }
    }
}

/// What can be done with transcripts of a format. Where none of it holds they are read all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// Whether they can be copied under a new id, whole or up to any record. Copies of others are only made to repair them.
    pub can_copy: bool,
    /// Whether the files of a session can be deleted without its agent.
    pub can_delete: bool,
    /// Whether the agent looks for a session in the folder that it runs in, so that a move takes its files along.
    pub finds_by_folder: bool,
    /// Whether a transcript may continue those of other sessions by reference.
    pub continues_by_reference: bool,
    /// Whether the agent resumes a session only in the folder that its transcript names, and this version cannot change that
    /// name, so that a session cannot be moved.
    pub has_fixed_folder: bool,
}

/// Where an agent keeps its transcripts, below its own folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The folders in which everything is.
    pub tops: &'static [&'static str],
    /// The folders on the way from there to transcripts, each with a name or any. `None`: transcripts are at any depth.
    pub folders: Option<&'static [Option<&'static str>]>,
}

impl Layout {
    /// Whether a folder, so many levels below a top, holds transcripts or leads to them by its name.
    pub(super) fn has_folder(&self, depth: usize, name: Option<&str>) -> bool {
        let Some(folders) = self.folders else { return true };
        let wanted = depth.checked_sub(1).and_then(|level| folders.get(level));
        wanted.is_some_and(|wanted| wanted.is_none() || *wanted == name)
    }

    /// Whether a folder, so many levels below a top, holds files that may be transcripts.
    pub(super) fn has_files(&self, depth: usize) -> bool {
        self.folders.is_none_or(|folders| folders.len() == depth)
    }

    /// Whether the transcripts of this layout may be in a folder, which is relative to the agent's.
    fn holds(&self, folder: &Path) -> bool {
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

/// Whether a turn is over with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// More is to come.
    Open,
    /// Only the next record shows it. Agents write a text before they know why the model stopped. Older ones never add the reason
    /// if a call follows, and some do not add it at the end of a turn either. A model that was stopped may be continued.
    Ambiguous,
    /// Nothing is to come.
    Ended,
}

/// How a transcript stands, for one who watches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptState {
    /// Whether the last turn is over.
    pub turn_end: TurnEnd,
    /// Whether it ended with the model's own words.
    pub is_answered: bool,
    /// How many prompts it holds, those of abandoned branches too, if they can be counted without reading all of it.
    pub prompts: Option<u64>,
    /// How many bytes were read.
    pub bytes: u64,
}

/// A session that is about to be made as a copy of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Its id.
    pub id: String,
    /// Where its transcript goes.
    pub path: PathBuf,
}

impl NewSession {
    /// The folder of its transcript.
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
    /// The source's record with which it ends, if records have ids.
    pub last_uuid: Option<String>,
    /// Its turns.
    pub turns: u64,
    /// Whether nothing that counts was lost by the damage.
    pub is_whole: bool,
}

/// The files that are one session, and those that it continues.
#[derive(Debug)]
pub struct SessionParts {
    /// The session.
    pub upstream_id: String,
    /// Its transcript.
    pub transcript: PathBuf,
    /// Its files, the transcript first.
    pub parts: Vec<Part>,
    /// What lies there and is not taken, with the reason.
    pub left_out: Vec<String>,
}

/// A file of which the beginning of a history is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingSource {
    /// The session that is not there.
    pub upstream_id: String,
    /// What is wrong with it.
    pub detail: String,
}

/// What a transcript adds to an earlier copy of it that has what the transcript lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    /// Where in the transcript the records are that the copy does not have, in order.
    pub added: Vec<Range<u64>>,
    /// Whether nothing is missing between these records and those of the copy.
    pub is_whole: bool,
}

/// Sessions and their files, and what is missing before them.
pub type HistoryFiles = (Vec<(String, PathBuf)>, Option<MissingSource>);

/// What is asked of transcripts, whatever their format.
pub trait Dialect: Debug + Sync {
    /// What can be done with them.
    fn abilities(&self) -> Abilities;

    /// Where the transcripts are.
    fn layout(&self) -> Layout;

    /// The session that a file of this name is of; none if it is not a transcript.
    fn upstream_id<'a>(&self, name: &'a str) -> Option<&'a str>;

    /// What a list shows of a transcript.
    fn summary(&self, ends: Ends<'_>) -> TranscriptSummary;

    /// The folder beside a transcript in which the agent writes more files for its session.
    fn own_folder(&self, _transcript: &Path) -> Option<PathBuf> {
        None
    }

    /// All files of a session, wherever they are; the one that the agent would take first.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], and [`TranscriptError::Io`] when none was found and a folder cannot be read.
    fn locate(&self, root: &Path, id: &str) -> Result<Vec<PathBuf>, TranscriptError>;

    /// The transcript of a session: of several copies the one that counts.
    ///
    /// # Errors
    /// As [`Dialect::locate`], and [`TranscriptError::NotFound`].
    fn find(&self, session: Session<'_>) -> Result<PathBuf, TranscriptError>;

    /// Whether the agent may take another copy of a session than the one that counts.
    fn is_ambiguous(&self, _session: Session<'_>) -> bool {
        false
    }

    /// The transcript of a session and what it says of itself. Without a known folder that is the copy that counts in the folder
    /// that the best copy names.
    ///
    /// # Errors
    /// As [`Dialect::find`], and what cannot be read.
    fn find_with_origin(&self, session: Session<'_>) -> Result<(PathBuf, Origin), TranscriptError>;

    /// The files in which the history of a session is, the oldest first and its own last, and what is missing before them.
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

    /// Opens the history of a session, whole or up to a place.
    ///
    /// # Errors
    /// As [`Dialect::find`]; [`TranscriptError::RecordNotFound`] if the place is not in it.
    fn open(
        &self,
        session: Session<'_>,
        until: Option<&CheckpointRef>,
    ) -> Result<BoxedTranscript, TranscriptError>;

    /// Opens the history that ends with a place, in whichever copy of its session has it.
    ///
    /// # Errors
    /// As [`Dialect::open`]: of several copies why one cannot be read, rather than that another does not have the place.
    fn open_at(&self, home: Home<'_>, place: &CheckpointRef) -> Result<BoxedTranscript, TranscriptError>;

    /// What is wrong with a session's transcript, and with the files that it continues.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] when it cannot be read.
    fn check(&self, session: Session<'_>, path: &Path) -> Result<CheckReport, TranscriptError>;

    /// The same of a session below `root` that stands in for the one below the agent's own folder.
    ///
    /// # Errors
    /// As [`Dialect::locate`] and [`Dialect::check`].
    fn check_copy(&self, root: &Path, agents: &Path, id: &str) -> Result<CheckReport, TranscriptError>;

    /// Why the agent would not go on with a transcript as it is, or with its newest branch, as far as that is known.
    fn resume_obstacles(&self, session: Session<'_>, path: &Path) -> Vec<Finding>;

    /// The record with which the newest branch of a transcript ends, if a resume would continue another one: what an agent that
    /// has the session open wrote last, beside what another program did.
    fn newer_branch_end(&self, _library: &IndexCache, _path: &Path) -> Option<String> {
        None
    }

    /// How a transcript stands.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    fn state(&self, library: &IndexCache, path: &Path) -> Result<TranscriptState, TranscriptError>;

    /// How many turns the transcript of a session holds, whole or up to a record. `None` if no file reaches so far, or if the
    /// agent does not record every turn, so that its files never show that one is lost.
    ///
    /// # Errors
    /// When the folders, or the transcript that is there, cannot be read.
    fn turn_counts(
        &self,
        _session: Session<'_>,
        _until: Option<&str>,
    ) -> Result<Option<TurnCounts>, TranscriptError> {
        Ok(None)
    }

    /// What a transcript adds to an earlier copy of it. `None` unless the records that it continues are missing from it and present
    /// in the copy: the file was deleted or truncated while the agent was writing. Agents that keep the file open leave no such file.
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

    /// A new id for a copy of a session, and where the agent looks for it if it runs in `cwd`. If that is unknown: beside
    /// its source.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], and [`TranscriptError::Io`] if no copies are made of such transcripts.
    fn new_session(
        &self,
        root: &Path,
        cwd: Option<&str>,
        source: &Path,
        id: &str,
    ) -> Result<NewSession, TranscriptError>;

    /// Makes a copy of a transcript, whole and as it is or up to a record. The source is only read.
    ///
    /// # Errors
    /// [`TranscriptError::RecordNotFound`], [`TranscriptError::AlreadyExists`] and [`TranscriptError::Io`], also where this
    /// is not among the [`Abilities`]. Nothing is left behind by a failure.
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

    /// Whether a fork that the agent makes names files that lie with the session that it was made of.
    fn forks_borrow_files(&self) -> bool {
        false
    }

    /// Whether a repaired copy does not have what was found.
    fn can_fix(&self, kind: FindingKind) -> bool;

    /// Makes a repaired copy. The source is only read.
    ///
    /// # Errors
    /// [`TranscriptError::NothingToResume`] when no message is in it, [`TranscriptError::AlreadyExists`], and
    /// [`TranscriptError::Io`]. Nothing is left behind by a failure.
    fn repair(
        &self,
        session: Session<'_>,
        source: &Path,
        new: &NewSession,
    ) -> Result<RepairedCopy, TranscriptError>;

    /// The files of a session, and of those that it continues, the oldest first; and what is missing before them.
    ///
    /// # Errors
    /// As [`Dialect::files`].
    fn parts(
        &self,
        session: Session<'_>,
    ) -> Result<(Vec<SessionParts>, Option<MissingSource>), TranscriptError>;

    /// The files of the session with this transcript, the transcript first, and what is left out. The target of a symbolic link
    /// counts as the transcript.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    fn own_parts(&self, transcript: &Path) -> Result<Parts, TranscriptError> {
        only_part(transcript)
    }

    /// Where the agent looks for a file of a session that runs in `cwd`. If that is unknown: in `folder`, which the transcript was
    /// in. `folder` is a path below the root, and `name` one below the folder of the transcript.
    fn expected_path(&self, root: &Path, cwd: Option<&Path>, folder: &Path, name: &Path) -> PathBuf;

    /// The session that the transcript with this text continues by reference.
    ///
    /// # Errors
    /// When the text cannot be read.
    fn continued_session(&self, _text: &mut dyn BufRead) -> io::Result<Option<String>> {
        Ok(None)
    }

    /// The files of its session that the transcript with this text names by a path below the root: each file's name below the
    /// folder of the transcript, and that path without the root.
    ///
    /// # Errors
    /// When the text cannot be read.
    fn named_files(&self, _root: &Path, _text: &mut dyn BufRead) -> io::Result<BTreeSet<(String, PathBuf)>> {
        Ok(BTreeSet::new())
    }

    /// Of a transcript that a person archived in the agent: the command that brings it back, without the session's id.
    fn unarchive_command(&self, _root: &Path, _path: &Path) -> Option<&'static str> {
        None
    }

    /// The place where the agent looks for a session's transcript, if it lies elsewhere.
    ///
    /// # Errors
    /// As [`Dialect::locate`].
    fn expected_place(&self, _root: &Path, _id: &str) -> Result<Option<PathBuf>, TranscriptError> {
        Ok(None)
    }

    /// Moves a session's transcript to the place where its agent looks for it.
    ///
    /// # Errors
    /// [`TranscriptError::NotFound`] when it lies there, [`TranscriptError::AlreadyExists`] when something else does.
    fn move_to_expected_place(&self, root: &Path, id: &str) -> Result<PathBuf, TranscriptError> {
        Err(TranscriptError::NotFound {
            upstream_id: id.to_owned(),
            root: root.to_owned(),
        })
    }

    /// What the agent calls a message of the turn that ends at a place, for its own fork that is told where to end.
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
    /// What reads transcripts of this format.
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
        // Lists of earlier versions do not say where a file was.
        let may_be_in =
            |dialect: &dyn Dialect| folder.as_os_str().is_empty() || dialect.layout().holds(folder);
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
    let mut failure = TranscriptError::NotFound {
        upstream_id: place.upstream_id.clone(),
        root: root.to_owned(),
    };
    for path in found {
        match open(&path) {
            Err(error) if error.is_absence() => {}
            Err(error) => failure = error,
            opened => return opened,
        }
    }
    Err(failure)
}

/// A number of turns, as findings say it.
pub(super) fn format_turns(turns: usize) -> String {
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
            // Lists of earlier versions do not say where it was.
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

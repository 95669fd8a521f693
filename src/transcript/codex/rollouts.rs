//! Finds Codex' rollouts on disk by their ids, and opens them with the files that they continue.
//!
//! Passes the files to `codex`, and adds the path to errors. Blocks. This module does not know conversations or
//! callers.

mod beginning;
mod cache;
mod expected_place;
mod item;
pub mod repair;
mod text;
mod tree;

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::open_with_metadata;
use crate::transcript::TranscriptError;
use crate::transcript::check::CheckReport;
use crate::transcript::codex::history::{AppendHandling, CodexHistory, MessageEntry};
use crate::transcript::codex::{
    self, HistoryBase, HistoryEnd, LastTurn, Meta, check, is_compressed, read_meta,
};
use crate::transcript::dialect::{HistoryFiles, MissingSource};
use crate::transcript::file_read::FileChange;
use crate::transcript::message::{TranscriptMessage, TranscriptMessageKind};
use crate::transcript::open_transcript::{self, Loss, OpenTranscript};
use crate::transcript::origin::{ForkedFrom, Origin};
use crate::transcript::summary::END_BYTES;
use cache::{CachedFile, CachedHistory, HistoryKey};
use text::RolloutText;
use tree::RolloutTree;

pub use beginning::{continued_bytes, same_beginning};
pub use cache::RolloutCache;
pub use expected_place::{expected_path, expected_path_if_moved, move_to_expected_path};
pub use item::item_of_turn;

/// The folder of archived rollouts, below Codex' own folder.
const ARCHIVE_FOLDER: &str = "archived_sessions";

/// The maximum number of files in one history. A fork of a fork has three; more than this is damage.
pub const LINEAGE_LIMIT: usize = 256;

/// How far back the end of a turn is searched for if the last line is longer than the first read.
const TURN_END_SEARCH_BYTES: u64 = 16 * 1024 * 1024;

/// If this many lines contain no end of a turn, no turn has ended.
const LAST_LINES: usize = 8;

/// All rollouts of a session below Codex' folder. Those that can be resumed come before archived ones, then plain before
/// compressed ones, then the last written first. Empty if there is none.
///
/// # Errors
/// [`TranscriptError::InvalidId`], and [`TranscriptError::Io`] if none was found and a folder or a file
/// cannot be read.
pub fn locate(root: &Path, upstream_id: &str) -> Result<Vec<PathBuf>, TranscriptError> {
    RolloutTree::walk(root).locate(upstream_id)
}

/// Whether a rollout is in the folder of archived rollouts.
#[must_use]
pub fn is_archived(root: &Path, path: &Path) -> bool {
    path.starts_with(root.join(ARCHIVE_FOLDER))
}

/// The rollout of a session that Codex would use.
///
/// # Errors
/// As [`locate`], and [`TranscriptError::NotFound`].
pub fn find(root: &Path, upstream_id: &str) -> Result<PathBuf, TranscriptError> {
    RolloutTree::walk(root).find(upstream_id)
}

/// One file of a history.
struct Source {
    upstream_id: String,
    path: PathBuf,
    end: HistoryEnd,
}

/// The files that contain a history, the oldest first, and the beginning that is missing, if any.
struct Lineage {
    sources: Vec<Source>,
    missing: Option<MissingSource>,
}

impl Lineage {
    fn read(root: &Path, upstream_id: &str) -> Result<Self, TranscriptError> {
        let tree = RolloutTree::walk(root);
        let own = Source {
            upstream_id: upstream_id.to_owned(),
            path: tree.find(upstream_id)?,
            end: HistoryEnd::default(),
        };
        let mut lineage = Self {
            sources: vec![own],
            missing: None,
        };
        // If the first line of the session's own file cannot be read, the file cannot.
        let base = meta(&lineage.sources[0].path)?.base;
        for (base, found) in bases(&tree, upstream_id, base) {
            match found {
                Ok(path) => {
                    // Ordinals that a descendant excludes are excluded from all earlier sources too.
                    let inherited = lineage.sources.last().and_then(|source| source.end.ordinal);
                    let ordinal = [base.end.ordinal, inherited].into_iter().flatten().min();
                    lineage.sources.push(Source {
                        upstream_id: base.upstream_id,
                        path,
                        end: HistoryEnd { ordinal, ..base.end },
                    });
                }
                Err(obstacle) => {
                    lineage.missing = Some(MissingSource {
                        upstream_id: base.upstream_id,
                        detail: obstacle.to_string(),
                    });
                }
            }
        }
        lineage.sources.reverse();
        Ok(lineage)
    }
}

/// Why the beginning of a history is missing.
#[derive(Debug, thiserror::Error)]
enum LineageBreak {
    #[error("it continues itself in a loop")]
    Circle,
    #[error("its history begins in more than {LINEAGE_LIMIT} files")]
    TooMany,
    #[error("{}", with_cause(.0))]
    Unreadable(TranscriptError),
}

/// The files that the session `upstream_id` continues, nearest first, up to the first one that cannot be read. `base` is the
/// base in the session's own file.
fn bases(
    tree: &RolloutTree,
    upstream_id: &str,
    mut base: Option<HistoryBase>,
) -> Vec<(HistoryBase, Result<PathBuf, LineageBreak>)> {
    let mut bases: Vec<(HistoryBase, Result<PathBuf, LineageBreak>)> = Vec::new();
    while let Some(current) = base.take() {
        let id = current.upstream_id.as_str();
        let is_known = id == upstream_id || bases.iter().any(|(base, _)| base.upstream_id == id);
        let base_path = if is_known {
            Err(LineageBreak::Circle)
        } else if bases.len() + 1 >= LINEAGE_LIMIT {
            Err(LineageBreak::TooMany)
        } else {
            let base_path = tree.find(id).and_then(|path| Ok((meta(&path)?, path)));
            base_path.map_err(LineageBreak::Unreadable)
        };
        let base_path = base_path.map(|(meta, path)| {
            base = meta.base;
            path
        });
        bases.push((current, base_path));
    }
    bases
}

fn with_cause(error: &TranscriptError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// An open Codex session, with its messages from all files that contain them.
#[derive(Debug)]
pub struct OpenRollout {
    /// The positions of its messages.
    pub history: Arc<CodexHistory>,
    /// The beginning that is missing, if any.
    pub missing: Option<MissingSource>,
    /// The files, one for each part of the history.
    paths: Vec<PathBuf>,
    /// The part that was read last and its number. Readers go from one part to the next, and there may be many.
    open_part: Option<(usize, Box<dyn RolloutText>)>,
}

/// The state of a rollout's last turn, and the rollout's size in bytes. For a compressed rollout the state is unknown,
/// but Codex no longer writes to it.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn last_turn(path: &Path) -> Result<(LastTurn, u64), TranscriptError> {
    let (mut file, metadata) = open_with_metadata(path).map_err(TranscriptError::io("open", path))?;
    let bytes = metadata.len();
    let mut read = || {
        let mut tail = Vec::new();
        let mut length = END_BYTES as u64;
        loop {
            tail.clear();
            file.seek(SeekFrom::Start(bytes.saturating_sub(length)))?;
            Read::by_ref(&mut file)
                .take(length.min(bytes))
                .read_to_end(&mut tail)?;
            let last = codex::parse_last_turn(&tail);
            // Few lines follow the end of a turn. The limit avoids reading a long running turn again and again.
            let has_enough_lines = || memchr::memchr_iter(b'\n', &tail).count() > LAST_LINES;
            let is_whole = is_compressed(path) || length >= bytes.min(TURN_END_SEARCH_BYTES);
            if last.is_some() || is_whole || has_enough_lines() {
                return Ok((last.unwrap_or(LastTurn::Running), bytes));
            }
            // The line that ends a turn contains the model's last message, which may be long.
            length = length.saturating_mul(8).min(TURN_END_SEARCH_BYTES);
        }
    };
    read().map_err(TranscriptError::io("read", path))
}

impl CachedHistory {
    /// Whether the same beginning is still missing. Reads at most the first line of each file.
    fn has_same_missing_source(&self, root: &Path, upstream_id: &str) -> bool {
        let is_same = |now: Lineage| {
            let paths = now.sources.iter().map(|source| &source.path);
            now.missing == self.missing && paths.eq(self.files.iter().map(|file| &file.path))
        };
        self.missing.is_none() || Lineage::read(root, upstream_id).is_ok_and(is_same)
    }
}

impl OpenRollout {
    /// Opens a session, whole or up to a turn of one of its files (the session to which the file belongs, and the turn's
    /// id there). Uses the histories in `books` if they were read before.
    ///
    /// # Errors
    /// As [`find`], [`TranscriptError::Io`], and [`TranscriptError::RecordNotFound`] if there is no such turn.
    pub fn open(
        books: &RolloutCache,
        root: &Path,
        upstream_id: &str,
        until: Option<(&str, &str)>,
    ) -> Result<Self, TranscriptError> {
        let key = HistoryKey {
            root: root.to_owned(),
            upstream_id: upstream_id.to_owned(),
            until: until.map(|(owner, turn)| (owner.to_owned(), turn.to_owned())),
        };
        let refresh = |known: Option<CachedHistory>| {
            if let Some(cached) = known {
                match cached.change() {
                    FileChange::Rewritten => {}
                    // The missing file may have appeared meanwhile, at an unknown path.
                    _ if !cached.has_same_missing_source(root, upstream_id) => {}
                    FileChange::Same => return Ok(cached),
                    FileChange::Grown => {
                        if let Some(cached) = Self::read_appended(cached)? {
                            return Ok(cached);
                        }
                    }
                }
            }
            Self::read(root, upstream_id, until)
        };
        books.update(&key, refresh, Self::from_cache)
    }

    /// Wraps a cached history, without opening its files.
    fn from_cache(volume: &CachedHistory) -> Self {
        Self {
            history: Arc::clone(&volume.history),
            missing: volume.missing.clone(),
            paths: volume.files.iter().map(|file| file.path.clone()).collect(),
            open_part: None,
        }
    }

    /// Reads the lines that were appended to the last file. `None` if the history no longer ends with the same turn, or if
    /// the file was replaced.
    fn read_appended(mut cached: CachedHistory) -> Result<Option<CachedHistory>, TranscriptError> {
        let Some(last) = cached.files.pop() else {
            return Ok(None);
        };
        let (mut text, before) = text::open(&last.path)?;
        let mut history = Arc::unwrap_or_clone(cached.history);
        let end = text
            .seek(SeekFrom::Start(last.read_state.complete_bytes))
            .and_then(|_| history.read_appended(&mut text))
            .map_err(TranscriptError::io("read", &last.path))?;
        if !history.reaches_end() {
            return Ok(None);
        }
        // The file may have been replaced between the check and the read.
        if last.change() != FileChange::Grown {
            return Ok(None);
        }
        cached.files.push(CachedFile::new(&last.path, before, end));
        Ok(Some(CachedHistory {
            history: Arc::new(history),
            ..cached
        }))
    }

    /// Reads all files of the session.
    fn read(
        root: &Path,
        upstream_id: &str,
        until: Option<(&str, &str)>,
    ) -> Result<CachedHistory, TranscriptError> {
        let Lineage { sources, missing } = Lineage::read(root, upstream_id)?;
        let own_path = sources
            .last()
            .map(|source| source.path.clone())
            .unwrap_or_default();
        let not_found = || TranscriptError::RecordNotFound {
            path: own_path.clone(),
            uuid: until.map(|(_, turn)| turn.to_owned()).unwrap_or_default(),
        };
        let part_of = |owner: &str| sources.iter().position(|source| source.upstream_id == owner);
        let until = match until {
            Some((owner, turn)) => {
                let part = part_of(owner).and_then(|part| u16::try_from(part).ok());
                Some((part.ok_or_else(not_found)?, turn))
            }
            None => None,
        };
        let mut history = CodexHistory::up_to(until);
        let mut files = Vec::new();
        for source in &sources {
            let (mut text, before) = text::open(&source.path)?;
            let mut end = history
                .read_part(&mut text, &source.upstream_id, source.end)
                .map_err(TranscriptError::io("read", &source.path))?;
            // Offsets in the compressed file differ from those in its text.
            if is_compressed(&source.path) {
                end.append_handling = AppendHandling::ReadAgain;
            }
            files.push(CachedFile::new(&source.path, before, end));
        }
        if !history.reaches_end() {
            return Err(not_found());
        }
        Ok(CachedHistory {
            history: Arc::new(history),
            files,
            missing,
        })
    }
}

impl OpenTranscript for OpenRollout {
    /// The session's own file.
    fn path(&self) -> &Path {
        self.paths.last().map_or(Path::new(""), PathBuf::as_path)
    }

    fn messages(&self) -> usize {
        self.history.messages()
    }

    fn loaded_messages(&mut self) -> Result<usize, TranscriptError> {
        let entries = &self.history.entries;
        // Errors in place of replies are not sent to the model.
        let sent_from = |first: usize| {
            let entries = entries.iter().skip(first);
            entries
                .filter(|entry| entry.kind != TranscriptMessageKind::Error)
                .count()
        };
        let is_summary = |entry: &MessageEntry| entry.kind == TranscriptMessageKind::Summary;
        let Some(compaction) = entries.iter().rposition(is_summary) else {
            return Ok(sent_from(0));
        };
        let Some(path) = self.paths.get(usize::from(entries[compaction].part)) else {
            return Ok(sent_from(compaction));
        };
        let kept = self.history.kept_messages(text::open(path)?.0, compaction);
        Ok(kept.map_err(TranscriptError::io("read", path))? + sent_from(compaction + 1))
    }

    fn turn_starts(&self) -> &[u32] {
        &self.history.turns
    }

    fn offset(&self, message: usize) -> Option<u64> {
        let entry = self.history.entries.get(message)?;
        (usize::from(entry.part) + 1 == self.history.parts.len()).then_some(entry.offset)
    }

    fn record_id(&self, message: usize) -> String {
        let entry = self.history.entries.get(message);
        entry.map(MessageEntry::record_id).unwrap_or_default()
    }

    fn find(&self, owner: &str, record_id: &str) -> Option<usize> {
        self.history.find(owner, record_id)
    }

    fn message(&mut self, message: usize) -> Result<Option<TranscriptMessage>, TranscriptError> {
        let entry = self.history.entries.get(message);
        let part = entry.map_or(0, |entry| usize::from(entry.part));
        let Some(path) = self.paths.get(part) else {
            return Ok(None);
        };
        let text = match &mut self.open_part {
            Some((open, text)) if *open == part => text,
            other => &mut other.insert((part, text::open(path)?.0)).1,
        };
        let read = self.history.message(text, message);
        read.map_err(TranscriptError::io("read", path))
    }

    fn losses(&self) -> Vec<Loss> {
        let source = self.missing.as_ref().map(|missing| Loss::Source {
            upstream_id: missing.upstream_id.clone(),
            detail: missing.detail.clone(),
        });
        source
            .into_iter()
            .chain(open_transcript::damage_loss(self.history.damaged_records))
            .collect()
    }

    fn max_recorded_turns(&self) -> Option<u64> {
        let entries = self.history.entries.iter();
        // Each compaction may have been a turn of its own.
        let compactions = entries
            .filter(|entry| entry.kind == TranscriptMessageKind::Summary)
            .count();
        Some((self.history.turns.len() + compactions) as u64 + self.history.rolled_back_turns)
    }

    fn turn_end_id(&self, turn: usize) -> (String, Option<&str>) {
        match self.history.turn_name(turn) {
            Some((name, owner)) => (name.to_owned(), Some(owner)),
            None => (String::new(), None),
        }
    }

    fn owner(&self, message: usize) -> Option<&str> {
        let part = self.history.entries.get(message)?.part;
        self.history.parts.get(usize::from(part)).map(String::as_str)
    }

    fn may_contain_records_of(&self, _own: &str, _owner: &str) -> bool {
        true
    }

    fn lacks_beginning(&self) -> bool {
        self.missing.is_some()
    }

    /// Codex' own fork only ends after whole turns.
    fn can_end_within_turns(&self) -> bool {
        false
    }
}

/// The files that contain the history of a session, with their sessions: the oldest first, its own last.
///
/// # Errors
/// As [`find`], and [`TranscriptError::Io`] if the session's own file cannot be opened or read.
pub fn history_files(root: &Path, upstream_id: &str) -> Result<HistoryFiles, TranscriptError> {
    let Lineage { sources, missing } = Lineage::read(root, upstream_id)?;
    let files = sources
        .into_iter()
        .map(|source| (source.upstream_id, source.path));
    Ok((files.collect(), missing))
}

/// The [`Origin`] of a session.
///
/// # Errors
/// As [`OpenRollout::open`].
pub fn origin(root: &Path, upstream_id: &str) -> Result<Origin, TranscriptError> {
    let CachedHistory { history, missing, .. } = OpenRollout::read(root, upstream_id, None)?;
    let turns = history.turns.len();
    let is_carried = |turn: &usize| {
        history
            .turn_name(*turn)
            .is_some_and(|(_, owner)| owner != upstream_id)
    };
    let last_carried = (0..turns).rev().find(is_carried);
    let place = last_carried.and_then(|turn| history.turn_name(turn));
    let source = || history.meta.base.as_ref().map(|base| base.upstream_id.clone());
    let forked_from = match place {
        Some((turn, owner)) => Some(ForkedFrom {
            session_id: owner.to_owned(),
            record_uuid: Some(turn.to_owned()),
        }),
        // The source's file is missing, the fork was made before the first turn, or the version copied the history.
        None => source()
            .or_else(|| history.meta.forked_from.clone())
            .map(|session_id| ForkedFrom {
                session_id,
                record_uuid: None,
            }),
    };
    Ok(Origin {
        cwd: history.cwd.clone().or_else(|| history.meta.cwd.clone()),
        title: history.title.clone(),
        forked_from,
        turns,
        missing_parents: usize::try_from(history.damaged_records).unwrap_or(usize::MAX)
            + usize::from(missing.is_some()),
    })
}

/// The size of one file of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RolloutSize {
    /// Its number of turns, without those of the files that it continues.
    pub turns: usize,
    /// The bytes of its whole lines, decompressed.
    pub bytes: u64,
}

/// The size of the file at `path`, even if Codex would use another file of the session.
///
/// # Errors
/// [`TranscriptError::Io`], also if a compressed file is truncated.
pub fn rollout_size(path: &Path, upstream_id: &str) -> Result<RolloutSize, TranscriptError> {
    let mut history = CodexHistory::default();
    let end = history
        .read_part(text::open(path)?.0, upstream_id, HistoryEnd::default())
        .map_err(TranscriptError::io("read", path))?;
    Ok(RolloutSize {
        turns: history.turns.len(),
        bytes: end.complete_bytes,
    })
}

/// Checks a rollout for damage, and the files that it continues.
///
/// # Errors
/// As [`find`], and [`TranscriptError::Io`] if the session's own file cannot be opened or read.
pub fn check(root: &Path, upstream_id: &str) -> Result<CheckReport, TranscriptError> {
    let tree = RolloutTree::walk(root);
    let path = tree.find(upstream_id)?;
    let base = meta(&path).ok().and_then(|meta| meta.base);
    let standing = check::RolloutContext {
        upstream_id,
        is_archived: is_archived(root, &path),
        is_continuation: base.is_some(),
        broken_sources: broken_sources(&tree, upstream_id, base),
    };
    let (text, _) = text::open(&path)?;
    check::check(text, &standing).map_err(TranscriptError::io("read", &path))
}

/// The continued sessions whose files are missing, too short or unreadable, nearest first, with the reasons.
fn broken_sources(tree: &RolloutTree, upstream_id: &str, base: Option<HistoryBase>) -> Vec<(String, String)> {
    let mut broken = Vec::new();
    for (base, found) in bases(tree, upstream_id, base) {
        let why = match found.and_then(|path| has_line_end_at(&path, base.end.offset)) {
            Ok(true) => continue,
            Ok(false) => "is shorter than it was when this session was forked, or was rewritten".to_owned(),
            Err(LineageBreak::Circle | LineageBreak::TooMany) => {
                "continues this session in turn, or is an endless chain".to_owned()
            }
            Err(LineageBreak::Unreadable(
                TranscriptError::NotFound { .. } | TranscriptError::InvalidId { .. },
            )) => "is missing".to_owned(),
            Err(unreadable) => format!("cannot be read ({unreadable})"),
        };
        broken.push((base.upstream_id, why));
    }
    broken
}

/// Whether a file still has the part that its descendant continues: a line ends at `end`.
fn has_line_end_at(path: &Path, end: Option<u64>) -> Result<bool, LineageBreak> {
    let Some(last) = end.and_then(|end| end.checked_sub(1)) else {
        return Ok(true);
    };
    let (mut text, _) = text::open(path).map_err(LineageBreak::Unreadable)?;
    let mut byte = [0];
    let read = text
        .seek(SeekFrom::Start(last))
        .and_then(|_| text.read(&mut byte));
    let read = read.map_err(|error| LineageBreak::Unreadable(TranscriptError::io("read", path)(error)))?;
    Ok(read == 1 && byte == *b"\n")
}

fn meta(path: &Path) -> Result<Meta, TranscriptError> {
    match read_meta(text::open(path)?.0) {
        Ok(meta) => Ok(meta.unwrap_or_default()),
        // A truncated compressed file is read as far as it could be decoded.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Meta::default()),
        Err(error) => Err(TranscriptError::io("read", path)(error)),
    }
}

#[cfg(test)]
mod tests;

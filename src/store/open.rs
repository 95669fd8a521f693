//! Opening: which of the two sides is behind, damaged or missing, and bringing them together.
//!
//! This module owns the decisions of a start. The journal is believed; the trees are used where they are a state of that
//! journal, brought up to date from it, and otherwise set aside and built anew. Nothing that was acknowledged is dropped
//! and nothing that is damaged is removed: it is kept under another name and reported.

use std::fs;
use std::path::{Path, PathBuf};

use super::apply::{self, Entry, FORMAT, Mark};
use super::body::{Bodies, sync_folder_of};
use super::compact;
use super::error::StoreError;
use super::journal::{self, BadRegion, Header, Journal, Position};
use super::keyspace::{Draft, Keyspace};
use super::trust::Trust;

/// How many lines are replayed as one batch. sled frees no page while a batch is applied, so larger ones cost memory and
/// gain nothing (4,096 took four times the memory and as long).
const REPLAY_BATCH: usize = 256;

/// How many bytes of keys and values are gathered in memory before they go to a database that is built anew.
///
/// The keys of conversations and of upstream ids are random, so each load touches most pages: a few large loads in the
/// order of the keys take a fraction of the time of many small ones.
const LOAD_BYTES: usize = 32 << 20;

/// What the folder of a database that was not used is named, before its number.
pub(super) const BROKEN: &str = "store.broken";

/// How a copy of a journal with damaged lines is called, with a number behind it.
pub(super) const DAMAGED: &str = "journal.damaged";

/// How many of those are kept, the newest. Everything in them is in the journal too: they are of use only to whoever looks
/// for what broke them, and each is as large as the database.
const BROKEN_KEPT: usize = 3;

/// What a start found and did.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// Whether the last user of the store closed it, which is the last thing that one does.
    pub was_closed: bool,
    /// Changes that the database lacked and got from the journal.
    pub replayed: u64,
    /// Why the database was built anew from the whole journal.
    pub rebuilt: Option<RebuildReason>,
    /// Where the database that was not used is kept.
    pub set_aside: Option<PathBuf>,
    /// Older ones that were removed for it.
    pub removed: Vec<PathBuf>,
    /// An unfinished end of the journal that was cut off: it was never acknowledged.
    pub cut_off: Option<BadRegion>,
    /// Parts of the journal that cannot be read, with readable ones behind them.
    pub damaged: Vec<BadRegion>,
    /// Changes that no readable line of the journal has.
    pub missing: u64,
    /// Where a copy of the damaged journal, or of what was cut off, is kept.
    pub journal_kept: Option<PathBuf>,
    /// Whether the journal was gone and was written anew from the database.
    pub journal_was_missing: bool,
    /// The journal's length in bytes before and after it was compacted.
    pub compacted: Option<(u64, u64)>,
    /// How many unused bodies were removed.
    pub bodies_removed: usize,
}

/// Why the database is built anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RebuildReason {
    /// It is not there, though the journal holds changes.
    Missing,
    /// It will not open, or what it says of itself cannot be read.
    WillNotOpen,
    /// The machine went down while it was open, so that any part of it may be old.
    Untrusted,
    /// It was written in another form.
    OtherFormat,
    /// It is not a state of this journal, or is ahead of it.
    NotOfThisJournal,
}

/// The parts of an open store.
pub(super) struct Opened {
    pub(super) keyspace: Keyspace,
    pub(super) bodies: Bodies,
    pub(super) journal: Journal,
    pub(super) trust: Trust,
    pub(super) mark: Mark,
    pub(super) places: Places,
    pub(super) report: OpenReport,
}

/// The files of a store.
pub(super) struct Places {
    pub(super) journal: PathBuf,
    pub(super) database: PathBuf,
    /// A database in the making, which takes the place of one that failed while it was in use.
    pub(super) next_database: PathBuf,
    pub(super) bodies: PathBuf,
    pub(super) trust: PathBuf,
}

impl Places {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self {
            journal: folder.join("journal.jsonl"),
            database: folder.join("store"),
            next_database: folder.join("store.next"),
            bodies: folder.join("bodies"),
            trust: folder.join("store.trust"),
        }
    }
}

/// Opens the store in this folder, which is made when it is not there.
pub(super) fn open(folder: &Path) -> Result<Opened, StoreError> {
    fs::create_dir_all(folder).map_err(StoreError::io("create", folder))?;
    let places = Places::in_folder(folder);
    remove_folder(&places.next_database)?;
    let bodies = Bodies::in_folder(places.bodies.clone());
    let mut trust = Trust::at(places.trust.clone());
    let mut report = OpenReport {
        was_closed: trust.is_closed()?,
        ..OpenReport::default()
    };

    let mut found = find_database(&places, &trust)?;
    if !exists(&places.journal)? {
        match &found {
            Ok((keyspace, mark)) if mark.position.sequence > 0 => {
                let (mark, _) = compact::write(&places.journal, keyspace, mark)?.put_in_place()?;
                compact::adopt(keyspace, &mark)?;
                report.journal_was_missing = true;
                found = found.map(|(keyspace, _)| (keyspace, mark));
            }
            _ => {
                journal::create(&places.journal)?;
            }
        }
    }
    let header = journal::read_header(&places.journal)?;
    if let Ok((_, mark)) = &found
        && !is_state_of(&places.journal, header.as_ref(), mark)?
    {
        found = Err(RebuildReason::NotOfThisJournal);
    }

    let (base, begin) = match &header {
        Some((header, begin)) => (header.base, beginning(header, *begin)),
        // Without its header the file is read from its first byte, and may hold what a compaction wrote.
        None => (u64::MAX, unknown_beginning()),
    };
    let (mut keyspace, mut mark) = match found {
        Ok((keyspace, mark))
            if header
                .as_ref()
                .is_some_and(|(header, _)| header.generation != mark.position.generation) =>
        {
            // A compaction came as far as the rename. Its lines say nothing new, but where they end.
            let mark = Mark {
                position: Position {
                    sequence: mark.position.sequence,
                    ..begin
                },
                ..mark
            };
            (keyspace, mark)
        }
        Ok(usable) => usable,
        Err(reason) => {
            trust.revoke()?;
            report.set_aside = set_aside(&places.database, BROKEN)?;
            report.removed = remove_older(&places.database, BROKEN);
            report.rebuilt = Some(reason);
            (Keyspace::open_to_fill(&places.database)?, Mark::at(begin))
        }
    };

    let torn = replay(&places.journal, &keyspace, &mut mark, base, &mut report)?;
    mark.position.sequence = mark
        .position
        .sequence
        .max(header.as_ref().map_or(0, |(header, _)| header.base));
    if report.rebuilt.is_some() {
        leave_marked(&keyspace, &mark)?;
        keyspace.close();
        keyspace = Keyspace::open(&places.database)?;
    }
    if report.rebuilt == Some(RebuildReason::Missing) && report.replayed == 0 {
        // The very first start.
        report.rebuilt = None;
    }
    let is_damaged = header.is_none() || !report.damaged.is_empty() || report.missing > 0;
    if is_damaged || torn.as_ref().is_some_and(|region| region.holds_a_line) {
        report.journal_kept = Some(keep_aside(&places.journal, DAMAGED)?);
    }
    report.cut_off = torn.map(|torn| torn.region);

    let before_bytes = mark.position.end_offset;
    if is_damaged || compact::is_due(&mark) {
        let (compacted, named) = compact::write(&places.journal, &keyspace, &mark)?.put_in_place()?;
        compact::adopt(&keyspace, &compacted)?;
        report.compacted = Some((before_bytes, compacted.position.end_offset));
        // A damaged journal that is kept, from this start or an earlier one, may name bodies that nothing else does any more.
        if numbered(&places.journal, DAMAGED)?.is_empty() {
            report.bodies_removed = compact::sweep(&bodies, &named);
        }
        mark = compacted;
    }
    let journal = Journal::open(&places.journal, mark.position.clone())?;
    if report.rebuilt.is_some() {
        // What it was filled with is beyond the reach of a crash since it was closed, and what a compaction changed
        // behind that need not be. Without this a crash before the next change would have it built once more.
        trust.mark_open()?;
    }
    Ok(Opened {
        keyspace,
        bodies,
        journal,
        trust,
        mark,
        places,
        report,
    })
}

/// Builds a database from the whole journal, in a folder where there is none, and syncs it.
pub(super) fn build(journal: &Path, database: &Path) -> Result<Filled, StoreError> {
    let keyspace = Keyspace::open_to_fill(database)?;
    let filled = fill(journal, &keyspace)?;
    leave_marked(&keyspace, &filled.mark)?;
    keyspace.sync()?;
    keyspace.close();
    Ok(filled)
}

/// Where trees stand that a journal has filled.
pub(super) struct Filled {
    pub(super) mark: Mark,
    /// Whether the journal has lines that cannot be read any more.
    pub(super) is_damaged: bool,
}

/// Brings trees that hold nothing to where the journal ends.
pub(super) fn fill(journal: &Path, keyspace: &Keyspace) -> Result<Filled, StoreError> {
    let (header, begin) = journal::read_header(journal)?.ok_or_else(|| {
        StoreError::io("read the header of", journal)(std::io::ErrorKind::InvalidData.into())
    })?;
    let mut mark = Mark::at(beginning(&header, begin));
    let mut report = OpenReport {
        rebuilt: Some(RebuildReason::WillNotOpen),
        ..OpenReport::default()
    };
    replay(journal, keyspace, &mut mark, header.base, &mut report)?;
    mark.position.sequence = mark.position.sequence.max(header.base);
    Ok(Filled {
        mark,
        is_damaged: !report.damaged.is_empty() || report.missing > 0,
    })
}

/// The database and its mark, or why it has to be built anew.
fn find_database(
    places: &Places,
    trust: &Trust,
) -> Result<Result<(Keyspace, Mark), RebuildReason>, StoreError> {
    if !exists(&places.database)? {
        return Ok(Err(RebuildReason::Missing));
    }
    if !trust.is_given()? {
        return Ok(Err(RebuildReason::Untrusted));
    }
    let keyspace = match open_guarded(&places.database) {
        Ok(keyspace) => keyspace,
        Err(error) => {
            tracing::error!(%error, "the database does not open");
            return Ok(Err(RebuildReason::WillNotOpen));
        }
    };
    Ok(match Mark::read(&keyspace) {
        Ok(Some(mark)) if mark.format == FORMAT => Ok((keyspace, mark)),
        Ok(Some(_)) => Err(RebuildReason::OtherFormat),
        Ok(None) | Err(_) => Err(RebuildReason::WillNotOpen),
    })
}

/// Opens a database that may be damaged. sled checks much of what it reads by assertions, so a panic is an answer too.
fn open_guarded(path: &Path) -> Result<Keyspace, StoreError> {
    std::panic::catch_unwind(|| Keyspace::open(path)).unwrap_or_else(|_| {
        Err(StoreError::Database {
            path: path.to_owned(),
            source: sled::Error::ReportableBug("a panic while opening".to_owned()),
        })
    })
}

/// Whether the trees are a state of this journal: the line that they stand behind is there, or they hold all that a
/// compaction wrote.
fn is_state_of(path: &Path, header: Option<&(Header, u64)>, mark: &Mark) -> Result<bool, StoreError> {
    if let Some((header, _)) = header
        && header.generation != mark.position.generation
    {
        return Ok(header.base == mark.position.sequence);
    }
    journal::holds(path, &mark.position)
}

fn beginning(header: &Header, begin: u64) -> Position {
    Position {
        generation: header.generation,
        sequence: 0,
        line_offset: begin,
        end_offset: begin,
    }
}

fn unknown_beginning() -> Position {
    Position {
        generation: uuid::Uuid::nil(),
        sequence: 0,
        line_offset: 0,
        end_offset: 0,
    }
}

/// What stands behind the last good line.
struct Torn {
    region: BadRegion,
    /// Whether it is more than one unfinished line, so that a copy is kept.
    holds_a_line: bool,
}

/// Brings the trees up to date from the journal.
fn replay(
    path: &Path,
    keyspace: &Keyspace,
    mark: &mut Mark,
    base: u64,
    report: &mut OpenReport,
) -> Result<Option<Torn>, StoreError> {
    let start = mark.position.clone();
    let is_new = report.rebuilt.is_some();
    let mut draft = Draft::over(keyspace);
    let mut drafted = 0;
    let mut unreadable = Vec::new();
    let scanned = journal::scan(path, &start, base, |position, change| {
        let outcome = serde_json::from_str::<Entry>(change)
            .map_err(StoreError::unreadable("change"))
            .and_then(|entry| apply::apply(&mut draft, mark, &entry));
        match outcome {
            Ok(()) => report.replayed += 1,
            // The line is whole and says what this program cannot carry out: told like a damaged one.
            Err(StoreError::Unreadable { .. }) => unreadable.push(BadRegion {
                offset: position.line_offset,
                bytes: position.end_offset - position.line_offset,
            }),
            Err(error) => return Err(error),
        }
        drafted += 1;
        if is_new && draft.bytes() >= LOAD_BYTES {
            keyspace.load(std::mem::replace(&mut draft, Draft::over(keyspace)).into_writes())?;
        } else if !is_new && drafted >= REPLAY_BATCH {
            drafted = 0;
            mark.position = position.clone();
            let mut full = std::mem::replace(&mut draft, Draft::over(keyspace));
            mark.write(&mut full)?;
            keyspace.apply(full.into_writes())?;
        }
        Ok(())
    })?;
    mark.position = scanned.position;
    if is_new {
        keyspace.load(draft.into_writes())?;
    } else if mark.position != start {
        mark.write(&mut draft)?;
        keyspace.apply(draft.into_writes())?;
    }
    report.damaged = scanned.damaged;
    report.damaged.extend(unreadable);
    report.missing = scanned.missing;
    let Some(region) = scanned.torn else {
        return Ok(None);
    };
    tracing::warn!(
        offset = region.offset,
        bytes = region.bytes,
        "the journal's unfinished end is cut off"
    );
    let holds_a_line = journal::has_line_break(path, &region)?;
    Ok(Some(Torn { region, holds_a_line }))
}

/// Gives a database that was made just now its mark, beyond the reach of a crash of this process: the next start does
/// not believe one without, and would keep it aside as a broken one although nothing was ever written to it.
fn leave_marked(keyspace: &Keyspace, mark: &Mark) -> Result<(), StoreError> {
    let mut draft = Draft::over(keyspace);
    mark.write(&mut draft)?;
    keyspace.apply(draft.into_writes())?;
    keyspace.hand_over()
}

/// Renames the folder, if it is there, to the first free name of this kind.
pub(super) fn set_aside(path: &Path, name: &str) -> Result<Option<PathBuf>, StoreError> {
    if !exists(path)? {
        return Ok(None);
    }
    let aside = free_name(path, name)?;
    fs::rename(path, &aside).map_err(StoreError::io("rename", path))?;
    sync_folder_of(&aside)?;
    Ok(Some(aside))
}

/// Removes a folder with everything in it, if it is there.
pub(super) fn remove_folder(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Keeps the file under a further name.
pub(super) fn keep_aside(path: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let aside = free_name(path, name)?;
    let copied = fs::copy(path, &aside)
        .and_then(|_| fs::File::open(&aside)?.sync_all())
        .map_err(StoreError::io("copy", path))
        .and_then(|()| sync_folder_of(&aside));
    if copied.is_err() {
        // Half of it is of use to nobody, and takes room that there may not be.
        let _left = fs::remove_file(&aside);
    }
    copied.map(|()| aside)
}

/// The name with the number after the highest that is there, so that the numbers tell the order.
fn free_name(beside: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let highest = numbered(beside, name)?.last().map_or(0, |(number, _)| *number);
    Ok(beside.with_file_name(format!("{name}-{}", highest + 1)))
}

/// What is beside this under a name and a number, by its number.
fn numbered(beside: &Path, name: &str) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let folder = beside.parent().unwrap_or(beside);
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut found: Vec<(u64, PathBuf)> = entries
        .map_err(StoreError::io("list", folder))?
        .into_iter()
        .filter_map(|entry| {
            let file_name = entry.file_name();
            let number = file_name.to_str()?.strip_prefix(name)?.strip_prefix('-')?;
            Some((number.parse().ok()?, entry.path()))
        })
        .collect();
    found.sort();
    Ok(found)
}

/// What is kept in this folder of databases and journals that were damaged.
///
/// # Errors
/// [`StoreError::Io`] when the folder cannot be listed.
pub fn set_aside_in(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let beside = folder.join("journal.jsonl");
    let mut found = Vec::new();
    for name in [BROKEN, DAMAGED] {
        found.extend(numbered(&beside, name)?.into_iter().map(|(_, path)| path));
    }
    Ok(found)
}

/// Removes all but the newest of these. What cannot be removed stays, until the next time.
fn remove_older(beside: &Path, name: &str) -> Vec<PathBuf> {
    let found = numbered(beside, name).unwrap_or_else(|error| {
        tracing::warn!(%error, "older databases that were set aside stay");
        Vec::new()
    });
    let older = found.len().saturating_sub(BROKEN_KEPT);
    let mut removed = Vec::new();
    for (_, path) in found.into_iter().take(older) {
        match remove_folder(&path) {
            Ok(()) => removed.push(path),
            Err(error) => tracing::warn!(%error, "an older database that was set aside stays"),
        }
    }
    removed
}

fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(StoreError::io("look for", path))
}

#[cfg(test)]
mod tests;

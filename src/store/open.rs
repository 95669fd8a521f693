//! Opening: which of the two sides is behind, damaged or missing, and bringing them together.
//!
//! This module owns the decisions of a start. The journal is believed; the trees are used where they are a state of that
//! journal, brought up to date from it, and otherwise set aside and built anew. Nothing that was acknowledged is dropped
//! and nothing that is damaged is removed: it is kept under another name and reported.

use std::fs;
use std::ops::ControlFlow;
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

/// How many things of one name can be kept aside.
const ASIDE_LIMIT: u32 = 10_000;

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
    pub(super) report: OpenReport,
}

/// The files of a store.
pub(super) struct Places {
    pub(super) journal: PathBuf,
    pub(super) database: PathBuf,
    pub(super) bodies: PathBuf,
    pub(super) trust: PathBuf,
}

impl Places {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self {
            journal: folder.join("journal.jsonl"),
            database: folder.join("store"),
            bodies: folder.join("bodies"),
            trust: folder.join("store.trust"),
        }
    }
}

/// Opens the store in this folder, which is made when it is not there.
pub(super) fn open(folder: &Path) -> Result<Opened, StoreError> {
    fs::create_dir_all(folder).map_err(StoreError::io("create", folder))?;
    let places = Places::in_folder(folder);
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
    let (keyspace, mut mark) = match found {
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
            report.set_aside = set_aside(&places.database, "store.broken")?;
            report.rebuilt = Some(reason);
            (Keyspace::open(&places.database)?, Mark::at(begin))
        }
    };

    let torn = replay(&places.journal, &keyspace, &mut mark, base, &mut report)?;
    mark.position.sequence = mark
        .position
        .sequence
        .max(header.as_ref().map_or(0, |(header, _)| header.base));
    if report.rebuilt.is_some() {
        leave_marked(&keyspace, &mark)?;
    }
    if report.rebuilt == Some(RebuildReason::Missing) && report.replayed == 0 {
        // The very first start.
        report.rebuilt = None;
    }
    let is_damaged = header.is_none() || !report.damaged.is_empty() || report.missing > 0;
    if is_damaged || torn.as_ref().is_some_and(|region| region.holds_a_line) {
        report.journal_kept = Some(keep_aside(&places.journal, "journal.damaged")?);
    }
    report.cut_off = torn.map(|torn| torn.region);

    let before_bytes = mark.position.end_offset;
    if is_damaged || compact::is_due(&mark) {
        let (compacted, named) = compact::write(&places.journal, &keyspace, &mark)?.put_in_place()?;
        compact::adopt(&keyspace, &compacted)?;
        report.compacted = Some((before_bytes, compacted.position.end_offset));
        // A damaged journal that is kept may name bodies that nothing else does any more.
        if !is_damaged {
            report.bodies_removed = compact::sweep(&bodies, &named);
        }
        mark = compacted;
    }
    let journal = Journal::open(&places.journal, mark.position.clone())?;
    Ok(Opened {
        keyspace,
        bodies,
        journal,
        trust,
        mark,
        report,
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
        if drafted >= REPLAY_BATCH {
            drafted = 0;
            mark.position = position.clone();
            let mut full = std::mem::replace(&mut draft, Draft::over(keyspace));
            mark.write(&mut full)?;
            keyspace.apply(full.into_writes())?;
        }
        Ok(())
    })?;
    mark.position = scanned.position;
    if mark.position != start {
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
fn set_aside(path: &Path, name: &str) -> Result<Option<PathBuf>, StoreError> {
    if !exists(path)? {
        return Ok(None);
    }
    let aside = free_name(path, name)?;
    fs::rename(path, &aside).map_err(StoreError::io("rename", path))?;
    sync_folder_of(&aside)?;
    Ok(Some(aside))
}

/// Keeps the file under a further name.
fn keep_aside(path: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let aside = free_name(path, name)?;
    fs::copy(path, &aside).map_err(StoreError::io("copy", path))?;
    fs::File::open(&aside)
        .and_then(|copy| copy.sync_all())
        .map_err(StoreError::io("sync", &aside))?;
    sync_folder_of(&aside)?;
    Ok(aside)
}

fn free_name(beside: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let found = (1..=ASIDE_LIMIT).try_for_each(|number| {
        let candidate = beside.with_file_name(format!("{name}-{number}"));
        match exists(&candidate) {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(Ok(candidate)),
            Err(error) => ControlFlow::Break(Err(error)),
        }
    });
    match found {
        ControlFlow::Break(outcome) => outcome,
        ControlFlow::Continue(()) => Err(StoreError::TooLarge {
            what: "number of things kept aside",
            bytes: ASIDE_LIMIT as usize,
            limit_bytes: ASIDE_LIMIT as usize,
        }),
    }
}

fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(StoreError::io("look for", path))
}

#[cfg(test)]
mod tests;

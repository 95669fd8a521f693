//! Opening a store: reconciles journal and database if either is behind, damaged or missing.
//!
//! This module owns the decisions of a start:
//!
//! 1. The journal is read before anything is changed. The start fails if the journal has a newer format, or a valid
//!    line with unknown content.
//! 2. **A readable journal is authoritative.** A database that is a state of this journal is updated from it. Any
//!    other database, or a damaged one, is set aside and rebuilt.
//! 3. **If the journal lost changes, the database fills the gap.** The database records its position in the journal.
//!    All lines up to there were synced and acknowledged. If some of them are missing (damaged, cut off, or because
//!    the journal is an older copy or diverged), a new database is filled with all readable records of the old one,
//!    then with the changes that only the journal has. The journal is rewritten from the new database.
//! 4. One line without a line break at the end of the journal, unknown to any database, is left over from a kill and
//!    was never acknowledged: it is cut off. Any other invalid end may have been acknowledged, because an unsynced
//!    database may be older than the journal: it is copied, cut off and reported.
//!
//! A database is built in a separate folder and renamed once it is complete. The database that it replaces is kept
//! under another name, and so is a damaged journal (see the module `aside`). The module `report` owns what is reported.

mod aside;
mod report;

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use super::apply::{self, Entry, FORMAT, Mark};
use super::body::{Bodies, rename_durably};
use super::compact;
use super::error::StoreError;
use super::journal::{self, BadRegion, Header, Journal, Position};
use super::keyspace::{Draft, Keyspace};
use super::salvage;
use super::trust::Trust;
use crate::files::durable;
use crate::paths::names;

pub use aside::set_aside_in;
use aside::{exists, free_name, set_aside};
pub(super) use aside::{keep_aside, kept_damaged, remove_replaced};
pub use report::{OpenReport, RebuildReason};

/// How many lines are replayed as one batch. sled frees no page while it applies a batch: batches of 4,096 took four
/// times the memory and no less time.
const REPLAY_BATCH: usize = 256;

/// How many bytes of keys and values are collected in memory before they are loaded into a new database.
///
/// The keys of conversations and upstream ids are random, so each load touches most pages. A few large loads in key
/// order take a fraction of the time of many small ones.
const LOAD_BYTES: usize = 32 << 20;

/// Name of a set-aside database that holds nothing that the journal did not hold, followed by a number.
const BROKEN: &str = "store.broken";

/// The same for a database that may hold what the journal does not. While one exists, no body is removed.
const DAMAGED_STORE: &str = "store.damaged";

/// Name of a copy of a damaged journal, followed by a number.
pub(super) const DAMAGED: &str = "journal.damaged";

/// Name of a folder of bodies that neither journal nor database references any more, followed by a number.
const UNNAMED_BODIES: &str = "bodies.set-aside";

/// Name of an unreadable saved report, followed by a number.
const UNREADABLE_REPORT: &str = "store.report.set-aside";

/// The parts of an open store.
pub(super) struct Opened {
    pub(super) keyspace: Keyspace,
    pub(super) bodies: Bodies,
    pub(super) journal: Journal,
    pub(super) trust: Trust,
    pub(super) mark: Mark,
    pub(super) paths: StorePaths,
    pub(super) report: OpenReport,
}

/// Paths of a store's files.
pub(super) struct StorePaths {
    pub(super) journal: PathBuf,
    pub(super) database: PathBuf,
    /// A database under construction.
    making: PathBuf,
    pub(super) bodies: PathBuf,
    pub(super) trust: PathBuf,
    /// The saved report of what a start found.
    pub(super) report: PathBuf,
}

impl StorePaths {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self {
            journal: folder.join(names::JOURNAL),
            database: folder.join(names::STORE),
            making: folder.join(names::NEXT_STORE),
            bodies: folder.join(names::BODIES),
            trust: folder.join(names::TRUST),
            report: folder.join(names::REPORT),
        }
    }
}

/// Opens the store in this folder, or creates it. `existed_before` says that the folder held a store before, even if
/// nothing is left of it.
pub(super) fn open(folder: &Path, existed_before: bool) -> Result<Opened, StoreError> {
    durable::make_folders(folder).map_err(StoreError::io("create", folder))?;
    // sled checks much of what it reads with assertions, so a panic counts as an error.
    match catch_unwind(|| open_with(folder, existed_before, None)) {
        Ok(Err(error)) if error.is_of_database() && error.lacks_room().is_none() => {
            tracing::error!(%error, "the database is damaged");
        }
        Ok(outcome) => return outcome,
        Err(_) => tracing::error!("the database is damaged: reading it panicked"),
    }
    open_with(folder, existed_before, Some(RebuildReason::Damaged))
}

/// Opens the store. `forced_rebuild` is a reason to rebuild the database.
fn open_with(
    folder: &Path,
    existed_before: bool,
    forced_rebuild: Option<RebuildReason>,
) -> Result<Opened, StoreError> {
    let paths = StorePaths::in_folder(folder);
    let mut file = JournalFile::inspect(&paths.journal)?;
    let mut trust = Trust::at(paths.trust.clone());
    remove_unfinished(&paths)?;
    let mut report = report::read(&paths.report)?;
    let closed_at = trust.closed_at()?;
    report.was_closed = closed_at.is_some();
    if !file.exists && !exists(&paths.database)? {
        if existed_before || trust.is_there()? || has_remains(folder, &paths)? {
            set_aside(&paths.bodies, UNNAMED_BODIES)?;
        } else {
            journal::create(&paths.journal)?;
            file = JournalFile::inspect(&paths.journal)?;
        }
    }
    report.journal_was_damaged |= file.head.is_none();
    let (keyspace, mut mark, replayed) = match choose(&paths, &file, &trust, forced_rebuild)? {
        Source::Database {
            keyspace,
            mut mark,
            from,
        } => {
            let replayed = replay(
                &paths.journal,
                &keyspace,
                &mut mark,
                &from,
                Some(&mut trust),
                &mut report,
            )?;
            if report.count_missing_end(closed_at, &mark) {
                report::write(&paths.report, &report)?;
            }
            (keyspace, *mark, replayed)
        }
        Source::Rebuild(rebuild) => {
            let (keyspace, mark) = build(&paths, &file, &mut trust, rebuild, &mut report)?;
            (keyspace, mark, Replayed::default())
        }
    };
    let bodies = Bodies::in_folder(paths.bodies.clone());
    let keeps_end = replayed.torn.as_ref().is_some_and(|torn| torn.holds_a_line);
    report.is_uncertain |= keeps_end;
    if let Some(torn) = replayed.torn {
        report.cut_off = Some(torn.region);
    }
    if replayed.is_damaged || compact::is_due(&mark) {
        if report.rebuilt.is_none() {
            // An up-to-date database was not built from all lines of the journal: read them before they are replaced.
            survey(&paths.journal, &file)?;
        }
        // Later writes to the database are not synced.
        trust.mark_open_if_trusted()?;
        let before_bytes = mark.position.end_offset;
        let written = compact::write(&paths.journal, &keyspace, &mark)?;
        // After everything that may fail for lack of disk space.
        if replayed.is_damaged || keeps_end {
            report.journal_kept = Some(keep_aside(&paths.journal, DAMAGED)?);
        }
        if replayed.is_damaged || keeps_end {
            report::write(&paths.report, &report)?;
        }
        let (compacted, named) = written.put_in_place()?;
        compact::adopt(&keyspace, &compacted)?;
        report.compacted = Some((before_bytes, compacted.position.end_offset));
        // Set-aside files may reference bodies that nothing else references.
        if kept_damaged(&paths.journal)?.is_empty() {
            report.bodies_removed = compact::sweep(&bodies, &named);
        }
        mark = compacted;
    } else if keeps_end {
        report.journal_kept = Some(keep_aside(&paths.journal, DAMAGED)?);
        report::write(&paths.report, &report)?;
    }
    let journal = Journal::open(&paths.journal, mark.position.clone())?;
    if report.rebuilt == Some(RebuildReason::Missing) && report.replayed == 0 && !report.is_damaged() {
        // The very first start.
        report.rebuilt = None;
    }
    Ok(Opened {
        keyspace,
        bodies,
        journal,
        trust,
        mark,
        paths,
        report,
    })
}

/// Whether anything is left of a store whose journal and database are missing.
fn has_remains(folder: &Path, paths: &StorePaths) -> Result<bool, StoreError> {
    let has_bodies = match fs::read_dir(&paths.bodies) {
        Ok(mut bodies) => bodies.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(StoreError::io("list", &paths.bodies)(error)),
    };
    Ok(has_bodies || exists(&paths.report)? || !set_aside_in(folder)?.is_empty())
}

/// The journal as found, before any change.
struct JournalFile {
    exists: bool,
    /// The header, and the offset of the next line. `None` if it cannot be read.
    head: Option<(Header, u64)>,
}

impl JournalFile {
    fn inspect(path: &Path) -> Result<Self, StoreError> {
        let exists = exists(path)?;
        let head = if exists { journal::read_header(path)? } else { None };
        Ok(Self { exists, head })
    }

    fn base(&self) -> Option<u64> {
        self.head.as_ref().map(|(header, _)| header.base)
    }

    /// The position of the first line. Without a header, the journal is read from its first byte.
    fn beginning(&self) -> Position {
        let (generation, begin) = self
            .head
            .as_ref()
            .map_or((uuid::Uuid::nil(), 0), |(header, begin)| {
                (header.generation, *begin)
            });
        Position::before_lines(generation, 0, begin)
    }

    /// Whether a database with this mark may have been filled from this journal.
    fn is_of(&self, mark: &Mark) -> bool {
        let is_base = |(header, _): &(Header, u64)| header.base == mark.position.sequence;
        self.is_generation_of(mark) || self.head.as_ref().is_none_or(is_base)
    }

    /// Whether a database with this mark was filled from a journal of this generation.
    fn is_generation_of(&self, mark: &Mark) -> bool {
        let header = self.head.as_ref().map(|(header, _)| header.generation);
        header == Some(mark.position.generation)
    }
}

/// What a start builds on.
enum Source {
    /// The database, and where the journal continues after it.
    Database {
        keyspace: Keyspace,
        mark: Box<Mark>,
        from: ReplayFrom,
    },
    /// A database that must be rebuilt.
    Rebuild(Rebuild),
}

/// How to rebuild a database.
struct Rebuild {
    /// Why the existing database cannot be used.
    reason: RebuildReason,
    /// The existing database, if the journal lost changes. Its records are loaded first.
    database: Option<Keyspace>,
    /// The journal lines to load afterwards.
    from: ReplayFrom,
    /// Whether the journal has lost changes.
    is_lost: bool,
    /// Whether the existing database may hold what the journal does not.
    may_hold_more: bool,
    /// Whether to copy the end of the journal before it is cut off.
    keeps_end: bool,
    /// See [`OpenReport::is_uncertain`].
    is_uncertain: bool,
}

/// Which journal lines to apply.
struct ReplayFrom {
    /// Where to start reading.
    position: Position,
    /// Lines up to this sequence may share one sequence (see [`Header`]).
    base: Option<u64>,
    /// The last change in the database.
    known: u64,
    /// All changes of this journal up to here are in the database.
    covered: u64,
    /// Up to this sequence, only what is newer than the database is applied.
    newer_only_until: u64,
}

impl ReplayFrom {
    /// All lines, for an empty database.
    fn beginning(file: &JournalFile) -> Self {
        Self {
            position: file.beginning(),
            base: file.base(),
            known: 0,
            covered: 0,
            newer_only_until: 0,
        }
    }
}

/// Decides what to build on. Changes nothing, except that sled may write when it opens a database.
fn choose(
    paths: &StorePaths,
    file: &JournalFile,
    trust: &Trust,
    forced_rebuild: Option<RebuildReason>,
) -> Result<Source, StoreError> {
    let is_trusted = trust.is_trusted()?;
    let (mut keyspace, mut mark, unusable) = match open_database(&paths.database)? {
        Ok((keyspace, mark)) => (Some(keyspace), mark, None),
        Err(reason) => (None, None, Some(reason)),
    };
    let is_readable = mark.as_ref().is_none_or(|mark| mark.format <= FORMAT);
    let is_current = mark.as_ref().is_some_and(|mark| mark.format == FORMAT);
    let position = match &mark {
        Some(mark) if is_current && is_trusted && forced_rebuild.is_none() => {
            follows(&paths.journal, file, mark)?
        }
        _ => None,
    };
    if let Some(position) = position
        && let (Some(keyspace), Some(mark)) = (keyspace.take(), mark.take())
    {
        let from = ReplayFrom {
            position,
            known: mark.position.sequence,
            covered: mark.position.sequence,
            ..ReplayFrom::beginning(file)
        };
        let mark = Box::new(mark);
        return Ok(Source::Database { keyspace, mark, from });
    }
    let survey = survey(&paths.journal, file)?;
    let known = mark.as_ref().map_or(0, |mark| mark.position.sequence);
    // Journal and database began as one store, and each has changes that the other lacks.
    let has_branched = match &mark {
        Some(mark) if survey.is_whole && known <= survey.last => {
            file.is_generation_of(mark) && !journal::holds(&paths.journal, &mark.position)?
        }
        _ => false,
    };
    let is_of_journal = !has_branched && mark.as_ref().is_some_and(|mark| file.is_of(mark));
    // Without a mark, the torn end may have been acknowledged.
    let is_doubtful = survey.torn.is_some() && keyspace.is_some() && mark.is_none();
    let is_lost = !survey.is_whole || known > survey.last || is_doubtful || has_branched;
    let reason = match (unusable, forced_rebuild, &mark) {
        (Some(reason), _, _) | (None, Some(reason), _) => reason,
        (None, None, None) => RebuildReason::WillNotOpen,
        _ if !is_current => RebuildReason::OtherFormat,
        _ if !is_trusted => RebuildReason::Untrusted,
        _ if is_lost => RebuildReason::JournalDamaged,
        _ => RebuildReason::NotOfThisJournal,
    };
    if !(is_lost && is_readable)
        && let Some(unused) = keyspace.take()
    {
        unused.close();
    }
    let was_closed = trust.closed_at()?.is_some();
    let holds_a_line = survey.torn.as_ref().is_some_and(|torn| torn.holds_a_line);
    // Only a database of this journal can show that nothing but one unfinished line is missing at its end.
    let keeps_end = holds_a_line || (survey.torn.is_some() && !is_of_journal);
    let lost_its_end = !file.exists || known > survey.last || survey.torn.is_some();
    let is_uncertain = match is_lost {
        true => {
            let is_complete = keyspace.is_some() && mark.is_some() && is_trusted;
            // If both changed the same thing, one of the changes is lost.
            !is_complete || has_branched || (lost_its_end && !was_closed)
        }
        false => holds_a_line || (keeps_end && was_closed),
    };
    let from = match keyspace {
        Some(_) => ReplayFrom {
            known,
            covered: if is_of_journal { known } else { 0 },
            newer_only_until: if is_of_journal { known } else { u64::MAX },
            ..ReplayFrom::beginning(file)
        },
        None => ReplayFrom::beginning(file),
    };
    Ok(Source::Rebuild(Rebuild {
        reason,
        database: keyspace,
        from,
        is_lost,
        may_hold_more: is_lost || (!is_of_journal && (mark.is_some() || survey.torn.is_some())),
        keeps_end,
        is_uncertain,
    }))
}

/// Where the journal continues after the state of the database. `None` if the database is not a state of this
/// journal, or the journal lost the line at the database's position.
fn follows(path: &Path, file: &JournalFile, mark: &Mark) -> Result<Option<Position>, StoreError> {
    let Some((header, _)) = &file.head else {
        return Ok(None);
    };
    if file.is_generation_of(mark) {
        return Ok(journal::holds(path, &mark.position)?.then(|| mark.position.clone()));
    }
    // A compaction was interrupted after the rename. Its lines say nothing new.
    Ok((header.base == mark.position.sequence).then(|| Position {
        sequence: header.base,
        ..file.beginning()
    }))
}

/// The result of reading the whole journal.
struct Survey {
    /// Whether all of it is readable, except for a torn end.
    is_whole: bool,
    torn: Option<Torn>,
    /// Its last sequence.
    last: u64,
}

fn survey(path: &Path, file: &JournalFile) -> Result<Survey, StoreError> {
    if !file.exists {
        return Ok(Survey {
            is_whole: false,
            torn: None,
            last: 0,
        });
    }
    let scanned = journal::scan(path, &file.beginning(), file.base(), |position, change| {
        read_entry(path, position, change).map(drop)
    })?;
    Ok(Survey {
        is_whole: file.head.is_some() && scanned.damaged.is_empty() && scanned.missing.is_empty(),
        torn: scanned
            .torn
            .map(|region| Torn::inspect(path, region))
            .transpose()?,
        last: scanned.position.sequence.max(file.base().unwrap_or(0)),
    })
}

/// Builds a database from the records of the old one (if the journal lost changes) and from the lines of the journal.
/// Puts the database and, if needed, a complete journal in place once they are finished.
fn build(
    paths: &StorePaths,
    file: &JournalFile,
    trust: &mut Trust,
    rebuild: Rebuild,
    report: &mut OpenReport,
) -> Result<(Keyspace, Mark), StoreError> {
    report.rebuilt = Some(rebuild.reason);
    report.is_uncertain |= rebuild.is_uncertain;
    let making = Keyspace::open_to_fill(&paths.making)?;
    let mut mark = Mark::at(Position {
        sequence: rebuild.from.known,
        ..rebuild.from.position.clone()
    });
    if let Some(database) = rebuild.database {
        let unreadable = salvage_into(&database, &making, &mut mark)?;
        report.unreadable_values = report.unreadable_values.max(unreadable);
        database.close();
    }
    let before_bytes = match file.exists {
        true => {
            let replayed = replay(&paths.journal, &making, &mut mark, &rebuild.from, None, report)?;
            match replayed.torn {
                // It was acknowledged, or follows acknowledged lines.
                Some(torn) if rebuild.is_lost => report.damaged.push(torn.region),
                torn => report.cut_off = torn.map(|torn| torn.region),
            }
            Some(mark.position.end_offset)
        }
        false => {
            report.restored = report.restored.max(rebuild.from.known);
            None
        }
    };
    let lacks_end = report.count_missing_end(trust.closed_at()?, &mark);
    write_first_mark(&making, &mark)?;
    let written = match rebuild.is_lost {
        true => Some(compact::write(&paths.journal, &making, &mark)?),
        false => None,
    };
    // After everything that may fail for lack of disk space.
    if file.exists && (rebuild.is_lost || rebuild.keeps_end) {
        report.journal_kept = Some(keep_aside(&paths.journal, DAMAGED)?);
    }
    let aside = free_name(
        &paths.database,
        if rebuild.may_hold_more || lacks_end {
            DAMAGED_STORE
        } else {
            BROKEN
        },
    )?;
    let is_replaced = exists(&paths.database)?;
    if is_replaced {
        report.set_aside = Some(aside.clone());
    }
    report::write(&paths.report, report)?;
    // Until the new database is in place, no database is trusted: after a kill, the next start builds it again.
    trust.revoke()?;
    if let Some(written) = written {
        let (compacted, _) = written.put_in_place()?;
        compact::adopt(&making, &compacted)?;
        making.hand_over()?;
        report.compacted = before_bytes.map(|before| (before, compacted.position.end_offset));
        mark = compacted;
    }
    making.close();
    if is_replaced {
        rename_durably(&paths.database, &aside)?;
    }
    rename_durably(&paths.making, &paths.database)?;
    let keyspace = Keyspace::open(&paths.database)?;
    trust.mark_open()?;
    Ok((keyspace, mark))
}

/// Copies all readable records of a database into another one. Returns how many values cannot be read.
fn salvage_into(from: &Keyspace, to: &Keyspace, mark: &mut Mark) -> Result<u64, StoreError> {
    let mut draft = Draft::over(to);
    let unreadable = salvage::read(from, |entry| {
        apply::apply(&mut draft, mark, &entry)?;
        load_if_full(to, &mut draft)
    })?;
    to.load(draft.into_writes())?;
    Ok(unreadable)
}

fn load_if_full<'a>(keyspace: &'a Keyspace, draft: &mut Draft<'a>) -> Result<(), StoreError> {
    if draft.bytes() < LOAD_BYTES {
        return Ok(());
    }
    keyspace.load(std::mem::replace(draft, Draft::over(keyspace)).into_writes())
}

/// The result of filling trees from a journal.
pub(super) struct Filled {
    pub(super) mark: Mark,
    /// Whether the journal has unreadable lines.
    pub(super) is_damaged: bool,
}

/// Fills empty trees from the journal.
pub(super) fn fill(journal: &Path, keyspace: &Keyspace) -> Result<Filled, StoreError> {
    let file = JournalFile::inspect(journal)?;
    let from = ReplayFrom::beginning(&file);
    let mut mark = Mark::at(from.position.clone());
    let mut report = OpenReport {
        rebuilt: Some(RebuildReason::WillNotOpen),
        ..OpenReport::default()
    };
    let replayed = replay(journal, keyspace, &mut mark, &from, None, &mut report)?;
    Ok(Filled {
        mark,
        is_damaged: file.head.is_none() || replayed.is_damaged,
    })
}

/// Opens a database and reads its mark, or returns why it must be rebuilt.
fn open_database(path: &Path) -> Result<Result<(Keyspace, Option<Mark>), RebuildReason>, StoreError> {
    if !exists(path)? {
        return Ok(Err(RebuildReason::Missing));
    }
    let keyspace = match catch_unwind(|| Keyspace::open(path)) {
        Ok(Ok(keyspace)) => keyspace,
        // The database is fine, but there is no disk space to use it.
        Ok(Err(error)) if error.lacks_room().is_some() => return Err(error),
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot open the database");
            return Ok(Err(RebuildReason::WillNotOpen));
        }
        Err(_) => {
            tracing::error!("cannot open the database: it panicked");
            return Ok(Err(RebuildReason::WillNotOpen));
        }
    };
    let mark = Mark::read(&keyspace).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot read the database's position");
        None
    });
    Ok(Ok((keyspace, mark)))
}

/// The bytes after the last good line.
struct Torn {
    region: BadRegion,
    /// Whether they contain more than one unfinished line, so that a copy is kept.
    holds_a_line: bool,
}

impl Torn {
    fn inspect(path: &Path, region: BadRegion) -> Result<Self, StoreError> {
        let holds_a_line = journal::has_line_break(path, &region)?;
        Ok(Self { region, holds_a_line })
    }
}

/// Parses the change of a line whose checksum is valid.
fn read_entry(path: &Path, position: &Position, change: &str) -> Result<Entry, StoreError> {
    Entry::read(change).map_err(|error| match error {
        StoreError::Unreadable { source, .. } => StoreError::UnknownChange {
            path: path.to_owned(),
            sequence: position.sequence,
            offset: position.line_offset,
            source,
        },
        error => error,
    })
}

/// The result of applying journal lines.
#[derive(Default)]
struct Replayed {
    torn: Option<Torn>,
    /// Whether lines before the last good one are unreadable or missing.
    is_damaged: bool,
}

/// Applies journal lines to the trees.
fn replay(
    path: &Path,
    keyspace: &Keyspace,
    mark: &mut Mark,
    from: &ReplayFrom,
    mut trust: Option<&mut Trust>,
    report: &mut OpenReport,
) -> Result<Replayed, StoreError> {
    let is_new = report.rebuilt.is_some();
    let mut draft = Draft::over(keyspace);
    let mut drafted = 0;
    let scanned = journal::scan(path, &from.position, from.base, |position, change| {
        let mut entry = read_entry(path, position, change)?;
        if position.sequence <= from.newer_only_until {
            entry.keep_newer(&draft)?;
        }
        apply::apply(&mut draft, mark, &entry)?;
        report.replayed += 1;
        drafted += 1;
        if is_new {
            load_if_full(keyspace, &mut draft)?;
        } else if drafted >= REPLAY_BATCH {
            drafted = 0;
            if let Some(trust) = &mut trust {
                trust.mark_open_if_trusted()?;
            }
            mark.position = position.clone();
            let mut full = std::mem::replace(&mut draft, Draft::over(keyspace));
            mark.write(&mut full)?;
            keyspace.apply(full.into_writes())?;
        }
        Ok(())
    })?;
    let read = scanned.position.sequence.max(from.base.unwrap_or(0));
    let has_moved = scanned.position != from.position;
    mark.position = Position {
        sequence: read.max(from.known),
        ..scanned.position
    };
    if is_new {
        keyspace.load(draft.into_writes())?;
    } else if has_moved {
        if let Some(trust) = &mut trust {
            trust.mark_open_if_trusted()?;
        }
        mark.write(&mut draft)?;
        keyspace.apply(draft.into_writes())?;
    }
    let is_damaged = !scanned.damaged.is_empty() || !scanned.missing.is_empty();
    report.damaged.extend(scanned.damaged);
    let missing = journal::count(&scanned.missing);
    let behind = journal::count(&journal::behind(&scanned.missing, from.covered));
    report.missing = report.missing.max(behind);
    report.restored = report
        .restored
        .max(missing - behind + from.known.saturating_sub(read));
    let torn = scanned
        .torn
        .map(|region| Torn::inspect(path, region))
        .transpose()?;
    Ok(Replayed { torn, is_damaged })
}

/// Writes the mark of a new database, and flushes it so that it survives a crash of this process. The next start
/// would set aside a database without a mark as broken, even an empty one.
fn write_first_mark(keyspace: &Keyspace, mark: &Mark) -> Result<(), StoreError> {
    let mut draft = Draft::over(keyspace);
    mark.write(&mut draft)?;
    keyspace.apply(draft.into_writes())?;
    keyspace.hand_over()
}

/// A copy of the database that has not replaced it yet, in the folder of unfinished databases.
pub(super) struct Renewed<'a> {
    paths: &'a StorePaths,
    keyspace: Keyspace,
}

impl<'a> Renewed<'a> {
    /// Copies all trees. sled keeps earlier states of a value in its files; the copy has none.
    pub(super) fn copy(paths: &'a StorePaths, from: &Keyspace) -> Result<Self, StoreError> {
        remove_folder(&paths.making)?;
        durable::make_folders(&paths.making).map_err(StoreError::io("create", &paths.making))?;
        let keyspace = Keyspace::open_to_fill(&paths.making.join("new"))?;
        compact::copy_trees(from, &keyspace)?;
        Ok(Self { paths, keyspace })
    }

    /// Replaces the database, which may still be open. Its folder is then below that of unfinished databases.
    ///
    /// After a kill between the two renames, the next start rebuilds the database from the journal.
    pub(super) fn put_in_place(self, mark: &Mark) -> Result<Keyspace, StoreError> {
        compact::adopt(&self.keyspace, mark)?;
        self.keyspace.sync()?;
        self.keyspace.close();
        let StorePaths { making, database, .. } = self.paths;
        let (new, old) = (making.join("new"), making.join("old"));
        rename_durably(database, &old)?;
        let opened = rename_durably(&new, database).and_then(|()| Keyspace::open(database));
        if opened.is_err() {
            // The old one is still open and has everything.
            if exists(database)? {
                rename_durably(database, &new)?;
            }
            rename_durably(&old, database)?;
        }
        opened
    }
}

/// Removes unfinished databases, and what was replaced.
pub(super) fn remove_unfinished(paths: &StorePaths) -> Result<(), StoreError> {
    remove_folder(&paths.making)
}

/// Removes a folder and its content, if it exists.
fn remove_folder(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;

//! Opening: bringing journal and database together, whichever of the two is behind, damaged or missing.
//!
//! This module owns the decisions of a start, and there is one way back from any damage:
//!
//! 1. The journal is read before anything is changed. One of a newer format ends the start, and so does a line that checks out
//!    and whose content is not known.
//! 2. **The journal is the truth where it reads.** A database that is a state of it is brought up to date from it. Any other
//!    database is set aside and built anew, and so is one that is found damaged on the way.
//! 3. **The database is the truth where the journal does not read.** The database records up to which line of the journal it
//!    stands. All lines up to there were synced and acknowledged. Where some are missing, whether they are damaged or cut off, or
//!    the journal is an older copy of itself, or one that went another way since, the journal has lost changes: a new database is
//!    filled with every record of the old one that can be read, then with what the journal has beyond them, and the journal is
//!    written anew from that.
//! 4. One line without its line break at the end of the journal, which is in no database, is what a kill leaves of lines that were
//!    never acknowledged: it is cut off. Anything else there that does not check out may have been acknowledged, since a database
//!    that was not synced may be older than the journal: it is kept, cut off and reported.
//!
//! A database is built in a folder of its own and gets its name once it is complete. Whatever it replaces is kept under another
//! name, and so is a damaged journal. Nothing that was set aside is ever deleted. The module `report` owns what is reported.

mod report;

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use super::apply::{self, Entry, FORMAT, Mark};
use super::body::{Bodies, rename_durably, sync_folder_of};
use super::compact;
use super::error::StoreError;
use super::journal::{self, BadRegion, Header, Journal, Position};
use super::keyspace::{Draft, Keyspace};
use super::salvage;
use super::trust::Trust;
use crate::files::durable;
use crate::paths::names;

pub use report::{OpenReport, RebuildReason};

/// How many lines are replayed as one batch. sled frees no page while a batch is applied, so larger ones cost memory and
/// gain nothing (4,096 took four times the memory and as long).
const REPLAY_BATCH: usize = 256;

/// How many bytes of keys and values are gathered in memory before they go to a database that is built anew.
///
/// The keys of conversations and of upstream ids are random, so each load touches most pages: a few large loads in the
/// order of the keys take a fraction of the time of many small ones.
const LOAD_BYTES: usize = 32 << 20;

/// What the folder of a database that was not used is named, before its number.
const BROKEN: &str = "store.broken";

/// The same where the database may hold what the journal does not: no body is removed while there is one.
const UNREAD: &str = "store.damaged";

/// How a copy of a journal with damaged lines is called, with a number behind it.
pub(super) const DAMAGED: &str = "journal.damaged";

/// How the folder of bodies is called, with a number behind it, where nothing was left that could name one of them.
const UNNAMED_BODIES: &str = "bodies.set-aside";

/// How a note of a report that cannot be read is called, with a number behind it.
const UNREAD_REPORT: &str = "store.report.set-aside";

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
    /// A database that is not complete.
    making: PathBuf,
    pub(super) bodies: PathBuf,
    pub(super) trust: PathBuf,
    /// The note of what a start found.
    pub(super) report: PathBuf,
}

impl Places {
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

/// Opens the store in this folder, which is made when it is not there. `has_past` says that there was one before, whatever is
/// left of it.
pub(super) fn open(folder: &Path, has_past: bool) -> Result<Opened, StoreError> {
    durable::make_folders(folder).map_err(StoreError::io("create", folder))?;
    // sled checks much of what it reads by assertions, so a panic is an answer too.
    match catch_unwind(|| open_with(folder, has_past, None)) {
        Ok(Err(error)) if error.is_of_database() && error.lacks_room().is_none() => {
            tracing::error!(%error, "the database is damaged");
        }
        Ok(outcome) => return outcome,
        Err(_) => tracing::error!("the database is damaged: reading it ended in a panic"),
    }
    open_with(folder, has_past, Some(RebuildReason::Damaged))
}

/// The same. The database is built anew where there is a reason.
fn open_with(folder: &Path, has_past: bool, against: Option<RebuildReason>) -> Result<Opened, StoreError> {
    let places = Places::in_folder(folder);
    let mut file = JournalFile::look(&places.journal)?;
    let mut trust = Trust::at(places.trust.clone());
    remove_folder(&places.making)?;
    let mut report = report::read(&places.report)?;
    let closed_at = trust.closed_at()?;
    report.was_closed = closed_at.is_some();
    if !file.exists && !exists(&places.database)? {
        if has_past || trust.is_there()? || has_traces(folder, &places)? {
            set_aside(&places.bodies, UNNAMED_BODIES)?;
        } else {
            journal::create(&places.journal)?;
            file = JournalFile::look(&places.journal)?;
        }
    }
    report.journal_was_damaged |= file.head.is_none();
    let (keyspace, mut mark, replayed) = match choose(&places, &file, &trust, against)? {
        Source::Database {
            keyspace,
            mut mark,
            from,
        } => {
            let replayed = replay(
                &places.journal,
                &keyspace,
                &mut mark,
                &from,
                Some(&mut trust),
                &mut report,
            )?;
            if report.misses_end(closed_at, &mark) {
                report::write(&places.report, &report)?;
            }
            (keyspace, *mark, replayed)
        }
        Source::Anew(anew) => {
            let (keyspace, mark) = build(&places, &file, &mut trust, anew, &mut report)?;
            (keyspace, mark, Replayed::default())
        }
    };
    let bodies = Bodies::in_folder(places.bodies.clone());
    let keeps_end = replayed.torn.as_ref().is_some_and(|torn| torn.holds_a_line);
    report.is_uncertain |= keeps_end;
    if let Some(torn) = replayed.torn {
        report.cut_off = Some(torn.region);
    }
    if replayed.is_damaged || compact::is_due(&mark) {
        if report.rebuilt.is_none() {
            // A database that is a state of the journal was not built from all of its lines.
            survey(&places.journal, &file)?;
        }
        // What is written to the database from here on is not synced.
        trust.stay_open()?;
        let before_bytes = mark.position.end_offset;
        let written = compact::write(&places.journal, &keyspace, &mark)?;
        // Behind what can fail for want of room.
        if replayed.is_damaged || keeps_end {
            report.journal_kept = Some(keep_aside(&places.journal, DAMAGED)?);
        }
        if replayed.is_damaged || keeps_end {
            report::write(&places.report, &report)?;
        }
        let (compacted, named) = written.put_in_place()?;
        compact::adopt(&keyspace, &compacted)?;
        report.compacted = Some((before_bytes, compacted.position.end_offset));
        // What is kept aside may name bodies that nothing else does any more.
        if kept_for_good(&places.journal)?.is_empty() {
            report.bodies_removed = compact::sweep(&bodies, &named);
        }
        mark = compacted;
    } else if keeps_end {
        report.journal_kept = Some(keep_aside(&places.journal, DAMAGED)?);
        report::write(&places.report, &report)?;
    }
    let journal = Journal::open(&places.journal, mark.position.clone())?;
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
        places,
        report,
    })
}

/// Whether something is left of a store whose journal and database are missing.
fn has_traces(folder: &Path, places: &Places) -> Result<bool, StoreError> {
    let has_bodies = match fs::read_dir(&places.bodies) {
        Ok(mut bodies) => bodies.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(StoreError::io("list", &places.bodies)(error)),
    };
    Ok(has_bodies || exists(&places.report)? || !set_aside_in(folder)?.is_empty())
}

/// The journal as it is found, before anything is changed.
struct JournalFile {
    exists: bool,
    /// Its header, and where the next line begins; none where that cannot be read.
    head: Option<(Header, u64)>,
}

impl JournalFile {
    fn look(path: &Path) -> Result<Self, StoreError> {
        let exists = exists(path)?;
        let head = if exists { journal::read_header(path)? } else { None };
        Ok(Self { exists, head })
    }

    fn base(&self) -> Option<u64> {
        self.head.as_ref().map(|(header, _)| header.base)
    }

    /// Where its lines begin. Without a header it is read from its first byte.
    fn beginning(&self) -> Position {
        let (generation, begin) = self
            .head
            .as_ref()
            .map_or((uuid::Uuid::nil(), 0), |(header, begin)| {
                (header.generation, *begin)
            });
        Position::before_lines(generation, 0, begin)
    }

    /// Whether a database with this mark was filled from this journal, as far as that can be told.
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
    /// The database, and where the journal has what it lacks.
    Database {
        keyspace: Keyspace,
        mark: Box<Mark>,
        from: From,
    },
    /// A database that is built anew.
    Anew(Anew),
}

/// How a database is built.
struct Anew {
    /// Why the one that is there is not used as it is.
    reason: RebuildReason,
    /// The one that is there, where the journal has lost changes: its records come first.
    database: Option<Keyspace>,
    /// Then come the lines of the journal.
    from: From,
    /// Whether the journal has lost changes.
    is_lost: bool,
    /// Whether the old database may hold what the journal does not.
    may_hold_more: bool,
    /// Whether the end of the journal is kept before it is cut off.
    keeps_end: bool,
    /// See [`OpenReport::is_uncertain`].
    is_uncertain: bool,
}

/// Which lines of a journal are carried out.
struct From {
    /// Where the lines begin that are read, and which sequence counts as known where they do.
    position: Position,
    base: Option<u64>,
    /// The last change that is in the database.
    known: u64,
    /// All changes of this journal up to here are in the database.
    covered: u64,
    /// Lines up to this sequence are carried out only where they say more than the database.
    news_only_until: u64,
}

impl From {
    /// All lines, into a database that holds nothing.
    fn beginning(file: &JournalFile) -> Self {
        Self {
            position: file.beginning(),
            base: file.base(),
            known: 0,
            covered: 0,
            news_only_until: 0,
        }
    }
}

/// Decides what to build on. Nothing is changed but by sled, where it opens a database.
fn choose(
    places: &Places,
    file: &JournalFile,
    trust: &Trust,
    against: Option<RebuildReason>,
) -> Result<Source, StoreError> {
    let is_believed = trust.is_given()?;
    let (mut keyspace, mut mark, unusable) = match open_database(&places.database)? {
        Ok((keyspace, mark)) => (Some(keyspace), mark, None),
        Err(reason) => (None, None, Some(reason)),
    };
    let is_readable = mark.as_ref().is_none_or(|mark| mark.format <= FORMAT);
    let is_current = mark.as_ref().is_some_and(|mark| mark.format == FORMAT);
    let position = match &mark {
        Some(mark) if is_current && is_believed && against.is_none() => follows(&places.journal, file, mark)?,
        _ => None,
    };
    if let Some(position) = position
        && let (Some(keyspace), Some(mark)) = (keyspace.take(), mark.take())
    {
        let from = From {
            position,
            known: mark.position.sequence,
            covered: mark.position.sequence,
            ..From::beginning(file)
        };
        let mark = Box::new(mark);
        return Ok(Source::Database { keyspace, mark, from });
    }
    let survey = survey(&places.journal, file)?;
    let known = mark.as_ref().map_or(0, |mark| mark.position.sequence);
    // Both began as one store, and each has changes that the other has not.
    let has_branched = match &mark {
        Some(mark) if survey.is_whole && known <= survey.last => {
            file.is_generation_of(mark) && !journal::holds(&places.journal, &mark.position)?
        }
        _ => false,
    };
    let is_of_journal = !has_branched && mark.as_ref().is_some_and(|mark| file.is_of(mark));
    // Without a mark nobody knows whether what is torn was acknowledged.
    let is_doubtful = survey.torn.is_some() && keyspace.is_some() && mark.is_none();
    let is_lost = !survey.is_whole || known > survey.last || is_doubtful || has_branched;
    let reason = match (unusable, against, &mark) {
        (Some(reason), _, _) | (None, Some(reason), _) => reason,
        (None, None, None) => RebuildReason::WillNotOpen,
        _ if !is_current => RebuildReason::OtherFormat,
        _ if !is_believed => RebuildReason::Untrusted,
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
    // Only a database of this journal can say that one unfinished line is all that is missing at its end.
    let keeps_end = holds_a_line || (survey.torn.is_some() && !is_of_journal);
    let lost_its_end = !file.exists || known > survey.last || survey.torn.is_some();
    let is_uncertain = match is_lost {
        true => {
            let is_complete = keyspace.is_some() && mark.is_some() && is_believed;
            // Of what both changed, one change is lost.
            !is_complete || has_branched || (lost_its_end && !was_closed)
        }
        false => holds_a_line || (keeps_end && was_closed),
    };
    let from = match keyspace {
        Some(_) => From {
            known,
            covered: if is_of_journal { known } else { 0 },
            news_only_until: if is_of_journal { known } else { u64::MAX },
            ..From::beginning(file)
        },
        None => From::beginning(file),
    };
    Ok(Source::Anew(Anew {
        reason,
        database: keyspace,
        from,
        is_lost,
        may_hold_more: is_lost || (!is_of_journal && (mark.is_some() || survey.torn.is_some())),
        keeps_end,
        is_uncertain,
    }))
}

/// Where the journal continues after the state of the database. `None` if the database is not a state of this journal, or the
/// journal lost the line up to which the database stands.
fn follows(path: &Path, file: &JournalFile, mark: &Mark) -> Result<Option<Position>, StoreError> {
    let Some((header, _)) = &file.head else {
        return Ok(None);
    };
    if file.is_generation_of(mark) {
        return Ok(journal::holds(path, &mark.position)?.then(|| mark.position.clone()));
    }
    // A compaction came as far as the rename. Its lines say nothing new, but where they end.
    Ok((header.base == mark.position.sequence).then(|| Position {
        sequence: header.base,
        ..file.beginning()
    }))
}

/// What a look at the whole journal finds.
struct Survey {
    /// Whether all of it can be read, its torn end aside.
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
        torn: scanned.torn.map(|region| Torn::look(path, region)).transpose()?,
        last: scanned.position.sequence.max(file.base().unwrap_or(0)),
    })
}

/// Builds a database from the records of the old one, where the journal has lost changes, and from the lines of the journal.
/// Both the database and a journal that is whole take their places once they are complete.
fn build(
    places: &Places,
    file: &JournalFile,
    trust: &mut Trust,
    anew: Anew,
    report: &mut OpenReport,
) -> Result<(Keyspace, Mark), StoreError> {
    report.rebuilt = Some(anew.reason);
    report.is_uncertain |= anew.is_uncertain;
    let making = Keyspace::open_to_fill(&places.making)?;
    let mut mark = Mark::at(Position {
        sequence: anew.from.known,
        ..anew.from.position.clone()
    });
    if let Some(database) = anew.database {
        let unreadable = salvaged(&database, &making, &mut mark)?;
        report.unreadable_values = report.unreadable_values.max(unreadable);
        database.close();
    }
    let before_bytes = match file.exists {
        true => {
            let replayed = replay(&places.journal, &making, &mut mark, &anew.from, None, report)?;
            match replayed.torn {
                // It was acknowledged, or stands behind what was.
                Some(torn) if anew.is_lost => report.damaged.push(torn.region),
                torn => report.cut_off = torn.map(|torn| torn.region),
            }
            Some(mark.position.end_offset)
        }
        false => {
            report.restored = report.restored.max(anew.from.known);
            None
        }
    };
    report.misses_end(trust.closed_at()?, &mark);
    leave_marked(&making, &mark)?;
    let written = match anew.is_lost {
        true => Some(compact::write(&places.journal, &making, &mark)?),
        false => None,
    };
    // Behind what can fail for want of room.
    if file.exists && (anew.is_lost || anew.keeps_end) {
        report.journal_kept = Some(keep_aside(&places.journal, DAMAGED)?);
    }
    let aside = free_name(&places.database, if anew.may_hold_more { UNREAD } else { BROKEN })?;
    let is_replaced = exists(&places.database)?;
    if is_replaced {
        report.set_aside = Some(aside.clone());
    }
    report::write(&places.report, report)?;
    // From here on neither database is believed until the new one has its name: a kill has it built once more.
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
        rename_durably(&places.database, &aside)?;
    }
    rename_durably(&places.making, &places.database)?;
    let keyspace = Keyspace::open(&places.database)?;
    trust.mark_open()?;
    Ok((keyspace, mark))
}

/// Fills a database with all records of another one that can be read. Returns how many values cannot be read.
fn salvaged(from: &Keyspace, to: &Keyspace, mark: &mut Mark) -> Result<u64, StoreError> {
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

/// Where trees stand that a journal has filled.
pub(super) struct Filled {
    pub(super) mark: Mark,
    /// Whether the journal has lines that cannot be read any more.
    pub(super) is_damaged: bool,
}

/// Brings trees that hold nothing to where the journal ends.
pub(super) fn fill(journal: &Path, keyspace: &Keyspace) -> Result<Filled, StoreError> {
    let file = JournalFile::look(journal)?;
    let from = From::beginning(&file);
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

/// A database and its mark, if that can be read, or why it has to be built anew.
fn open_database(path: &Path) -> Result<Result<(Keyspace, Option<Mark>), RebuildReason>, StoreError> {
    if !exists(path)? {
        return Ok(Err(RebuildReason::Missing));
    }
    let keyspace = match catch_unwind(|| Keyspace::open(path)) {
        Ok(Ok(keyspace)) => keyspace,
        // It is as good as it was; there is no room to use it.
        Ok(Err(error)) if error.lacks_room().is_some() => return Err(error),
        Ok(Err(error)) => {
            tracing::error!(%error, "the database does not open");
            return Ok(Err(RebuildReason::WillNotOpen));
        }
        Err(_) => {
            tracing::error!("the database does not open: it ended in a panic");
            return Ok(Err(RebuildReason::WillNotOpen));
        }
    };
    let mark = Mark::read(&keyspace).unwrap_or_else(|error| {
        tracing::error!(%error, "the database does not say how far it is");
        None
    });
    Ok(Ok((keyspace, mark)))
}

/// What stands behind the last good line.
struct Torn {
    region: BadRegion,
    /// Whether it is more than one unfinished line, so that a copy is kept.
    holds_a_line: bool,
}

impl Torn {
    fn look(path: &Path, region: BadRegion) -> Result<Self, StoreError> {
        let holds_a_line = journal::has_line_break(path, &region)?;
        Ok(Self { region, holds_a_line })
    }
}

/// Reads the change of a line that checks out.
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

/// What was found where lines were carried out.
#[derive(Default)]
struct Replayed {
    torn: Option<Torn>,
    /// Whether lines before the last good one cannot be read, or are missing.
    is_damaged: bool,
}

/// Brings the trees up to date from the journal.
fn replay(
    path: &Path,
    keyspace: &Keyspace,
    mark: &mut Mark,
    from: &From,
    mut trust: Option<&mut Trust>,
    report: &mut OpenReport,
) -> Result<Replayed, StoreError> {
    let is_new = report.rebuilt.is_some();
    let mut draft = Draft::over(keyspace);
    let mut drafted = 0;
    let scanned = journal::scan(path, &from.position, from.base, |position, change| {
        let mut entry = read_entry(path, position, change)?;
        if position.sequence <= from.news_only_until {
            entry.keep_news(&draft)?;
        }
        apply::apply(&mut draft, mark, &entry)?;
        report.replayed += 1;
        drafted += 1;
        if is_new {
            load_if_full(keyspace, &mut draft)?;
        } else if drafted >= REPLAY_BATCH {
            drafted = 0;
            if let Some(trust) = &mut trust {
                trust.stay_open()?;
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
            trust.stay_open()?;
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
    let torn = scanned.torn.map(|region| Torn::look(path, region)).transpose()?;
    Ok(Replayed { torn, is_damaged })
}

/// Gives a database that was made just now its mark, beyond the reach of a crash of this process: the next start does
/// not believe one without, and would keep it aside as a broken one although nothing was ever written to it.
fn leave_marked(keyspace: &Keyspace, mark: &Mark) -> Result<(), StoreError> {
    let mut draft = Draft::over(keyspace);
    mark.write(&mut draft)?;
    keyspace.apply(draft.into_writes())?;
    keyspace.hand_over()
}

/// Renames a file or folder, if it is there, to the first free name of this kind.
fn set_aside(path: &Path, name: &str) -> Result<Option<PathBuf>, StoreError> {
    if !exists(path)? {
        return Ok(None);
    }
    let aside = free_name(path, name)?;
    rename_durably(path, &aside)?;
    Ok(Some(aside))
}

/// Removes a folder with everything in it, if it is there.
fn remove_folder(path: &Path) -> Result<(), StoreError> {
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
        .and_then(|_| durable::sync_file(&fs::File::open(&aside)?, &aside))
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

/// What is kept beside this and may hold what nothing else does.
fn kept_for_good(beside: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let mut found = numbered(beside, UNREAD)?;
    found.extend(numbered(beside, DAMAGED)?);
    Ok(found)
}

/// What is kept in this folder of the store's files that could not be used.
///
/// # Errors
/// [`StoreError::Io`] when the folder cannot be listed.
pub fn set_aside_in(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let beside = folder.join(names::JOURNAL);
    let mut found = Vec::new();
    for name in [BROKEN, UNREAD, DAMAGED, UNNAMED_BODIES, UNREAD_REPORT] {
        found.extend(numbered(&beside, name)?.into_iter().map(|(_, path)| path));
    }
    Ok(found)
}

fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(StoreError::io("look for", path))
}

#[cfg(test)]
mod tests;

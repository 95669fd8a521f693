//! Opening: bringing journal and database together, whichever of the two is behind, damaged or missing.
//!
//! This module owns the decisions of a start, and there is one way back from any damage:
//!
//! 1. The journal is read before anything is changed. One of a newer format ends the start.
//! 2. **The journal is the truth where it reads.** A database that is a state of it is brought up to date from it. Any other
//!    database is set aside and built anew, and so is one that is found damaged on the way.
//! 3. **The database is the truth where the journal does not read.** The database records up to which line of the journal it
//!    stands. All lines up to there were synced and acknowledged: where they are gone, the journal is written anew from the
//!    database and from the good lines behind that position. What stands behind that position and does not check out is in
//!    neither of the two: an unfinished line was never acknowledged and is cut off, and anything else is reported.
//!
//! A database that was in use when the machine went down may be old in parts: it is used where the journal has lost something, as
//! far as its records are later than those of the journal, and rebuilt from what the two have together.
//!
//! Whatever is damaged is kept under another name, and what could not be read in either file is counted in the report.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use super::apply::{self, Entry, FORMAT, Mark};
use super::body::{Bodies, rename_durably, sync_folder_of};
use super::compact;
use super::error::StoreError;
use super::journal::{self, BadRegion, Header, Journal, Position};
use super::keyspace::{Draft, Keyspace};
use super::trust::Trust;
use crate::files::durable;

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

/// The same where the journal was damaged too, so that it may hold what nothing else does. None of those is ever removed.
const UNREAD: &str = "store.damaged";

/// How a copy of a journal with damaged lines is called, with a number behind it.
pub(super) const DAMAGED: &str = "journal.damaged";

/// How many of [`BROKEN`] are kept, the newest. Everything in them is in the journal too: they are of use only to whoever looks
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
    /// Changes that were lost: no readable line of the journal has them, nor has the database. Others may have been, where
    /// both were damaged.
    pub missing: u64,
    /// Changes that the journal had lost and the database still had.
    pub restored: u64,
    /// Whether they were taken from a database that was in use when the machine went down, so that parts of it may be old.
    pub database_was_doubted: bool,
    /// Where a copy of the damaged journal, or of what was cut off, is kept.
    pub journal_kept: Option<PathBuf>,
    /// Whether the journal was gone.
    pub journal_was_missing: bool,
    /// Whether the beginning of the journal could not be read.
    pub header_was_damaged: bool,
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
    /// It is not a state of this journal.
    NotOfThisJournal,
    /// It opens, and something in it cannot be read.
    Damaged,
}

impl OpenReport {
    /// Whether the journal was missing, or had lost something of what was acknowledged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.journal_was_missing
            || self.header_was_damaged
            || self.missing > 0
            || self.restored > 0
            || !self.damaged.is_empty()
    }

    /// Whether changes that were acknowledged may be lost. Where neither file tells how many, they are in no figure.
    #[must_use]
    pub fn may_have_lost(&self) -> bool {
        self.missing > 0 || self.database_was_doubted || (self.is_damaged() && self.rebuilt.is_some())
    }
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
    durable::make_folders(folder).map_err(StoreError::io("create", folder))?;
    // sled checks much of what it reads by assertions, so a panic is an answer too.
    match catch_unwind(|| open_with(folder, None)) {
        Ok(Err(error)) if error.is_of_database() && error.lacks_room().is_none() => {
            tracing::error!(%error, "the database is damaged");
        }
        Ok(outcome) => return outcome,
        Err(_) => tracing::error!("the database is damaged: reading it ended in a panic"),
    }
    open_with(folder, Some(RebuildReason::Damaged))
}

/// The same, without the database where there is a reason not to use it.
fn open_with(folder: &Path, against: Option<RebuildReason>) -> Result<Opened, StoreError> {
    let places = Places::in_folder(folder);
    let mut file = JournalFile::look(&places.journal)?;
    let mut trust = Trust::at(places.trust.clone());
    if !file.exists && !trust.is_there()? && !exists(&places.database)? {
        journal::create(&places.journal)?;
        file = JournalFile::look(&places.journal)?;
    }
    // Earlier versions made a database there.
    remove_folder(&folder.join("store.next"))?;
    let mut report = OpenReport {
        was_closed: trust.is_closed()?,
        journal_was_missing: !file.exists,
        header_was_damaged: file.exists && file.head.is_none(),
        ..OpenReport::default()
    };
    let source = choose(&places, &file, &trust, against)?;
    // Where the database says how far the journal came, what is torn is known not to have been acknowledged.
    let mut is_end_known = true;
    let (keyspace, mut mark, from) = match source {
        Source::Database { keyspace, mark, from } => {
            report.database_was_doubted = from.is_doubted;
            (keyspace, *mark, from)
        }
        Source::Journal { reason, is_whole } => {
            is_end_known = is_whole;
            trust.revoke()?;
            let name = if is_whole { BROKEN } else { UNREAD };
            report.set_aside = set_aside(&places.database, name)?;
            report.removed = remove_older(&places.database, BROKEN);
            report.rebuilt = Some(reason);
            let from = From::beginning(&file);
            let mark = Mark::at(from.position.clone());
            (Keyspace::open_to_fill(&places.database)?, mark, from)
        }
    };
    let mut torn = None;
    if file.exists {
        torn = replay(
            &places.journal,
            &keyspace,
            &mut mark,
            &from,
            Some(&mut trust),
            &mut report,
        )?;
    }
    let is_rebuilt = report.rebuilt.is_some();
    let keyspace = if is_rebuilt {
        leave_marked(&keyspace, &mark)?;
        keyspace.close();
        Keyspace::open(&places.database)?
    } else {
        keyspace
    };
    let is_damaged = from.is_lost || report.is_damaged();
    let keeps_end = torn
        .as_ref()
        .is_some_and(|torn| torn.holds_a_line || !is_end_known);
    report.cut_off = torn.map(|torn| torn.region);
    let bodies = Bodies::in_folder(places.bodies.clone());
    if is_damaged || compact::is_due(&mark) {
        if !is_rebuilt && trust.is_given()? {
            // What is written to the database from here on is not synced.
            trust.mark_open()?;
        }
        let before_bytes = mark.position.end_offset;
        let written = compact::write(&places.journal, &keyspace, &mark)?;
        // Behind what can fail for want of room.
        if file.exists && (is_damaged || keeps_end) {
            report.journal_kept = Some(keep_aside(&places.journal, DAMAGED)?);
        }
        let (compacted, named) = written.put_in_place()?;
        compact::adopt(&keyspace, &compacted)?;
        report.compacted = file
            .exists
            .then_some((before_bytes, compacted.position.end_offset));
        // What is kept aside may name bodies that nothing else does any more.
        if kept_for_good(&places.journal)?.is_empty() {
            report.bodies_removed = compact::sweep(&bodies, &named);
        }
        mark = compacted;
        if from.is_doubted {
            // What can be checked of such a database went to the journal; its indexes cannot be.
            keyspace.close();
            return Ok(rebuilt_behind(open_with(folder, None)?, report));
        }
    } else if keeps_end {
        report.journal_kept = Some(keep_aside(&places.journal, DAMAGED)?);
    }
    let journal = Journal::open(&places.journal, mark.position.clone())?;
    if report.rebuilt == Some(RebuildReason::Missing) && report.replayed == 0 && !is_damaged {
        // The very first start.
        report.rebuilt = None;
    }
    if is_rebuilt || from.is_lost {
        // The journal is whole and the database a state of it. Without this a crash before the next change would have it
        // built once more.
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

/// Reports what was found before the journal was written anew, and how the database was rebuilt after that.
fn rebuilt_behind(opened: Opened, before: OpenReport) -> Opened {
    let report = OpenReport {
        rebuilt: opened.report.rebuilt,
        set_aside: opened.report.set_aside,
        removed: opened.report.removed,
        ..before
    };
    Opened { report, ..opened }
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
        Position {
            generation,
            sequence: 0,
            line_offset: begin,
            end_offset: begin,
        }
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
    /// The journal alone.
    Journal {
        /// Why not the database.
        reason: RebuildReason,
        /// Whether all of the journal can be read.
        is_whole: bool,
    },
}

/// Which lines of a journal are carried out.
struct From {
    /// Where the lines begin that are read, and which sequence counts as known where they do.
    position: Position,
    base: Option<u64>,
    /// Lines up to this sequence are in the database.
    known: u64,
    /// Whether the database may be old in parts, so that lines which it knows are carried out where they are later.
    is_doubted: bool,
    /// Whether the journal has lost what is in the database.
    is_lost: bool,
}

impl From {
    /// All lines, into a database that holds nothing.
    fn beginning(file: &JournalFile) -> Self {
        Self {
            position: file.beginning(),
            base: file.base(),
            known: 0,
            is_doubted: false,
            is_lost: false,
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
    let is_there = exists(&places.database)?;
    let reason = match against {
        _ if !is_there => RebuildReason::Missing,
        Some(reason) => reason,
        None if !trust.is_given()? => RebuildReason::Untrusted,
        None => match open_database(&places.database)? {
            Ok((keyspace, mark)) => match standing(&places.journal, file, &mark)? {
                Standing::Follows(position) => {
                    let from = From {
                        position,
                        known: mark.position.sequence,
                        ..From::beginning(file)
                    };
                    let mark = Box::new(mark);
                    return Ok(Source::Database { keyspace, mark, from });
                }
                Standing::Lost => return Ok(restore(keyspace, mark, file, false)),
                Standing::Other => {
                    keyspace.close();
                    RebuildReason::NotOfThisJournal
                }
            },
            Err(reason) => reason,
        },
    };
    let survey = survey(&places.journal, file)?;
    let mut is_whole = survey.is_whole && !survey.is_torn;
    // What is torn was acknowledged where the database is further on, and was not where it is not.
    if !is_whole
        && reason == RebuildReason::Untrusted
        && let Ok((keyspace, mark)) = open_database(&places.database)?
    {
        let fits = file.head.as_ref().is_none_or(|(header, _)| {
            header.generation == mark.position.generation || header.base == mark.position.sequence
        });
        if fits && (mark.position.sequence > survey.last || !survey.is_whole) {
            return Ok(restore(keyspace, mark, file, true));
        }
        is_whole = fits;
        keyspace.close();
    }
    Ok(Source::Journal { reason, is_whole })
}

/// Builds on a database that has what the journal has lost.
fn restore(keyspace: Keyspace, mark: Mark, file: &JournalFile, is_doubted: bool) -> Source {
    let from = From {
        known: mark.position.sequence,
        is_doubted,
        is_lost: true,
        ..From::beginning(file)
    };
    let mark = Box::new(mark);
    Source::Database { keyspace, mark, from }
}

/// How a database that is believed stands to the journal.
enum Standing {
    /// It is a state of it; what it lacks comes after this.
    Follows(Position),
    /// The journal has lost the line that it stands behind.
    Lost,
    /// It is of another journal.
    Other,
}

fn standing(path: &Path, file: &JournalFile, mark: &Mark) -> Result<Standing, StoreError> {
    let Some((header, _)) = &file.head else {
        return Ok(Standing::Lost);
    };
    if header.generation == mark.position.generation {
        return Ok(if journal::holds(path, &mark.position)? {
            Standing::Follows(mark.position.clone())
        } else {
            Standing::Lost
        });
    }
    // A compaction came as far as the rename. Its lines say nothing new, but where they end.
    Ok(if header.base == mark.position.sequence {
        Standing::Follows(Position {
            sequence: header.base,
            ..file.beginning()
        })
    } else {
        Standing::Other
    })
}

/// What a look at the whole journal finds.
struct Survey {
    /// Whether all of it can be read, its torn end aside.
    is_whole: bool,
    is_torn: bool,
    /// Its last sequence.
    last: u64,
}

fn survey(path: &Path, file: &JournalFile) -> Result<Survey, StoreError> {
    if !file.exists {
        return Ok(Survey {
            is_whole: false,
            is_torn: false,
            last: 0,
        });
    }
    let mut is_readable = file.head.is_some();
    let scanned = journal::scan(path, &file.beginning(), file.base(), |_, change| {
        is_readable &= Entry::read(change).is_ok();
        Ok(())
    })?;
    Ok(Survey {
        is_whole: is_readable && scanned.damaged.is_empty() && scanned.missing.is_empty(),
        is_torn: scanned.torn.is_some(),
        last: scanned.position.sequence.max(file.base().unwrap_or(0)),
    })
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
    replay(journal, keyspace, &mut mark, &from, None, &mut report)?;
    Ok(Filled {
        mark,
        is_damaged: file.head.is_none() || report.is_damaged(),
    })
}

/// A database and its mark, or why it has to be built anew.
fn open_database(path: &Path) -> Result<Result<(Keyspace, Mark), RebuildReason>, StoreError> {
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
    Ok(match Mark::read(&keyspace) {
        Ok(Some(mark)) if mark.format == FORMAT => Ok((keyspace, mark)),
        Ok(Some(_)) => Err(RebuildReason::OtherFormat),
        Ok(None) | Err(_) => Err(RebuildReason::WillNotOpen),
    })
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
    from: &From,
    mut trust: Option<&mut Trust>,
    report: &mut OpenReport,
) -> Result<Option<Torn>, StoreError> {
    let is_new = report.rebuilt.is_some();
    let mut draft = Draft::over(keyspace);
    let mut drafted = 0;
    let mut unreadable = Vec::new();
    let scanned = journal::scan(path, &from.position, from.base, |position, change| {
        let is_known = position.sequence <= from.known && !is_new;
        if is_known && !from.is_doubted && from.is_lost {
            return Ok(());
        }
        let Ok(mut entry) = Entry::read(change) else {
            // The line is whole and says what this program cannot carry out: reported like a damaged one.
            unreadable.push(BadRegion {
                offset: position.line_offset,
                bytes: position.end_offset - position.line_offset,
            });
            return Ok(());
        };
        if is_known && from.is_doubted {
            entry.keep_news(&draft)?;
        }
        apply::apply(&mut draft, mark, &entry)?;
        report.replayed += 1;
        drafted += 1;
        if is_new && draft.bytes() >= LOAD_BYTES {
            keyspace.load(std::mem::replace(&mut draft, Draft::over(keyspace)).into_writes())?;
        } else if !is_new && drafted >= REPLAY_BATCH {
            drafted = 0;
            if let Some(trust) = &mut trust {
                trust.stay_open()?;
            }
            mark.position = Position {
                sequence: position.sequence.max(from.known),
                ..position.clone()
            };
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
    report.damaged = scanned.damaged;
    report.damaged.extend(unreadable);
    let missing = journal::count(&scanned.missing);
    let behind = journal::count(&journal::behind(&scanned.missing, from.known));
    report.missing = behind;
    if from.is_lost {
        report.restored = missing - behind + from.known.saturating_sub(read);
        // It was acknowledged, or stands behind what was.
        report.damaged.extend(scanned.torn);
        return Ok(None);
    }
    let Some(region) = scanned.torn else {
        return Ok(None);
    };
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
    rename_durably(path, &aside)?;
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

/// What is kept for good beside this, since nothing else may have what is in it.
fn kept_for_good(beside: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let mut found = numbered(beside, UNREAD)?;
    found.extend(numbered(beside, DAMAGED)?);
    Ok(found)
}

/// What is kept in this folder of databases and journals that were damaged.
///
/// # Errors
/// [`StoreError::Io`] when the folder cannot be listed.
pub fn set_aside_in(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let beside = folder.join("journal.jsonl");
    let mut found = Vec::new();
    for name in [BROKEN, UNREAD, DAMAGED] {
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

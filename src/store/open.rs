//! Opening a store: reconciles journal and database if either is behind, damaged or missing.
//!
//! The rules of a start:
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
//! A database is built in a separate folder and renamed once it is complete. The database that it replaces is kept under
//! another name, and so is a damaged journal (module `set_aside`). The module `source` decides which data a start uses; the
//! module `report` owns the report of the losses.

mod report;
mod set_aside;
mod source;

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use super::apply::{self, AppliedState, JournalChange};
use super::body::{Bodies, rename_durably};
use super::compact;
use super::error::StoreError;
use super::journal::{self, Journal, Position, UnreadableEnd};
use super::keyspace::{Keyspace, WriteBatch};
use super::salvage;
use super::trust::TrustFile;
use crate::files::{durable, entries, none_if_absent};
use crate::paths::names;

pub use report::{OpenReport, RebuildReason};
pub(super) use set_aside::{copy_aside, damaged_files, remove_replaced};
use set_aside::{exists, free_name, set_aside};
pub use set_aside::{free_damaged_store, set_aside_in};
use source::{JournalFile, RebuildPlan, ReplayFrom, StartSource, survey_journal};

/// How many lines are replayed as one batch. sled frees no page while it applies a batch: batches of 4,096 took four
/// times the memory and no less time.
const REPLAY_BATCH: usize = 256;

/// How many bytes of keys and values are collected in memory before they are loaded into a new database.
///
/// The keys of conversations and upstream ids are random, so each load touches most pages. A few large loads in key
/// order take a fraction of the time of many small ones.
const LOAD_BYTES: usize = 32 << 20;

/// Name of a set-aside database whose content is all in the journal, followed by a number.
const BROKEN_STORE: &str = "store.broken";

/// Name of a set-aside database that may have content that the journal lacks, followed by a number. While one exists,
/// no body is removed.
const DAMAGED_STORE: &str = "store.damaged";

/// Name of a copy of a damaged journal, followed by a number.
pub(super) const DAMAGED_JOURNAL: &str = "journal.damaged";

/// Name of a folder of bodies that neither journal nor database references any more, followed by a number.
const UNREFERENCED_BODIES: &str = "bodies.set-aside";

/// Name of an unreadable saved report, followed by a number.
const UNREADABLE_REPORT: &str = "store.report.set-aside";

/// The parts of an open store.
pub(super) struct OpenedStore {
    pub(super) keyspace: Keyspace,
    pub(super) bodies: Bodies,
    pub(super) files: StoreFiles,
    pub(super) applied: AppliedState,
    pub(super) report: OpenReport,
}

/// The files of an open store that the committing thread writes.
pub(super) struct StoreFiles {
    pub(super) journal: Journal,
    pub(super) trust: TrustFile,
    pub(super) paths: StorePaths,
}

/// Paths of a store's files.
pub(super) struct StorePaths {
    pub(super) journal: PathBuf,
    pub(super) database: PathBuf,
    /// A database under construction.
    unfinished: PathBuf,
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
            unfinished: folder.join(names::NEXT_STORE),
            bodies: folder.join(names::BODIES),
            trust: folder.join(names::TRUST),
            report: folder.join(names::REPORT),
        }
    }
}

/// Opens the store in this folder, or creates it. `existed_before` says whether the folder is known to have contained
/// a store, even if none of its files are left.
pub(super) fn open(folder: &Path, existed_before: bool) -> Result<OpenedStore, StoreError> {
    durable::make_folders(folder).map_err(StoreError::io("create", folder))?;
    // sled checks much of what it reads with assertions, so a panic counts as an error.
    match catch_unwind(|| open_with(folder, existed_before, None)) {
        Ok(Err(error)) if error.is_database_error() && !error.is_passing() => {
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
) -> Result<OpenedStore, StoreError> {
    let paths = StorePaths::in_folder(folder);
    let mut file = JournalFile::inspect(&paths.journal)?;
    let mut trust = TrustFile::at(paths.trust.clone());
    remove_unfinished(&paths)?;
    let mut report = report::read(&paths.report)?;
    let closed_at = trust.closed_at()?;
    report.was_closed_cleanly = closed_at.is_some();
    if !file.exists && !exists(&paths.database)? {
        if existed_before || exists(&paths.trust)? || has_leftovers(folder, &paths)? {
            set_aside(&paths.bodies, UNREFERENCED_BODIES)?;
        } else {
            journal::create(&paths.journal)?;
            file = JournalFile::inspect(&paths.journal)?;
        }
    }
    report.journal_was_damaged |= file.head.is_none();
    let (keyspace, mut mark, replayed) = match source::choose(&paths, &file, &trust, forced_rebuild)? {
        StartSource::Database {
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
        StartSource::Rebuild(rebuild) => {
            let (keyspace, mark) = rebuild_database(&paths, &file, &mut trust, rebuild, &mut report)?;
            (keyspace, mark, ReplayResult::default())
        }
    };
    let bodies = Bodies::in_folder(paths.bodies.clone());
    let copies_end = replayed
        .unreadable_end
        .as_ref()
        .is_some_and(|end| end.has_whole_line);
    report.is_uncertain |= copies_end;
    if let Some(end) = replayed.unreadable_end {
        report.cut_off = Some(end.region);
    }
    if replayed.is_damaged || compact::is_due(&mark) {
        if report.rebuild_reason.is_none() {
            // The database was not rebuilt, so this start has not read the whole journal. Read all lines before
            // replacing them.
            survey_journal(&paths.journal, &file)?;
        }
        // Mark the database as open first, because later writes to it are not synced.
        trust.mark_open_if_trusted()?;
        // Otherwise a kill after the rename would leave a database that is a state of neither journal.
        keyspace.sync()?;
        let written = compact::write(&paths.journal, &keyspace, &mark)?;
        // Do this after all steps that may fail for lack of disk space.
        if replayed.is_damaged || copies_end {
            report.journal_copy = Some(copy_aside(&paths.journal, DAMAGED_JOURNAL)?);
            report::write(&paths.report, &report)?;
        }
        let (mut journal, compacted, named) = written.put_in_place()?;
        journal.sync_name()?;
        compact::record_position(&keyspace, &compacted)?;
        // Set-aside files may reference bodies that nothing else references.
        if damaged_files(&paths.journal)?.is_empty() {
            compact::remove_unreferenced_bodies(&bodies, &named);
        }
        mark = compacted;
    } else if copies_end {
        report.journal_copy = Some(copy_aside(&paths.journal, DAMAGED_JOURNAL)?);
        report::write(&paths.report, &report)?;
    }
    let journal = Journal::open(&paths.journal, mark.position.clone())?;
    if report.rebuild_reason == Some(RebuildReason::Missing) && report.replayed == 0 && !report.is_damaged() {
        // This is the first start, so nothing was rebuilt.
        report.rebuild_reason = None;
    }
    Ok(OpenedStore {
        keyspace,
        bodies,
        files: StoreFiles {
            journal,
            trust,
            paths,
        },
        applied: mark,
        report,
    })
}

/// Whether other files of a store exist although its journal and database are missing.
fn has_leftovers(folder: &Path, paths: &StorePaths) -> Result<bool, StoreError> {
    let bodies = entries(&paths.bodies).map_err(StoreError::io("list", &paths.bodies))?;
    Ok(!bodies.is_empty() || exists(&paths.report)? || !set_aside_in(folder)?.is_empty())
}

/// Builds a database from the records of the old one (if the journal lost changes) and from the lines of the journal.
/// Puts the database and, if needed, a complete journal in place once they are finished.
fn rebuild_database(
    paths: &StorePaths,
    file: &JournalFile,
    trust: &mut TrustFile,
    rebuild: RebuildPlan,
    report: &mut OpenReport,
) -> Result<(Keyspace, AppliedState), StoreError> {
    report.rebuild_reason = Some(rebuild.reason);
    report.is_uncertain |= rebuild.is_uncertain;
    let new_database = Keyspace::open_to_fill(&paths.unfinished)?;
    let mut state = AppliedState::at(Position {
        sequence: rebuild.from.last_known,
        ..rebuild.from.position.clone()
    });
    if let Some(database) = rebuild.database {
        let unreadable = salvage_into(&database, &new_database, &mut state)?;
        report.unreadable_values = report.unreadable_values.max(unreadable);
        database.close();
    }
    if file.exists {
        let replayed = replay(
            &paths.journal,
            &new_database,
            &mut state,
            &rebuild.from,
            None,
            report,
        )?;
        match replayed.unreadable_end {
            // The torn line was acknowledged, or follows acknowledged lines.
            Some(end) if rebuild.has_lost_changes => report.damaged.push(end.region),
            end => report.cut_off = end.map(|end| end.region),
        }
    } else {
        report.restored = report.restored.max(rebuild.from.last_known);
    }
    let lacks_end = report.count_missing_end(trust.closed_at()?, &state);
    write_first_state(&new_database, &state)?;
    let written = match rebuild.has_lost_changes {
        true => Some(compact::write(&paths.journal, &new_database, &state)?),
        false => None,
    };
    // Do this after all steps that may fail for lack of disk space.
    if file.exists && (rebuild.has_lost_changes || rebuild.copies_end) {
        report.journal_copy = Some(copy_aside(&paths.journal, DAMAGED_JOURNAL)?);
    }
    let aside = free_name(
        &paths.database,
        if rebuild.database_may_have_more || lacks_end {
            DAMAGED_STORE
        } else {
            BROKEN_STORE
        },
    )?;
    let is_replaced = exists(&paths.database)?;
    if is_replaced {
        report.set_aside = Some(aside.clone());
    }
    report::write(&paths.report, report)?;
    // Until the new database is in place, no database is trusted: after a kill, the next start builds it again.
    trust.revoke_trust()?;
    if let Some(written) = written {
        let (mut journal, compacted, _) = written.put_in_place()?;
        journal.sync_name()?;
        compact::record_position(&new_database, &compacted)?;
        new_database.flush_to_system()?;
        state = compacted;
    }
    new_database.close();
    if is_replaced {
        rename_durably(&paths.database, &aside)?;
    }
    rename_durably(&paths.unfinished, &paths.database)?;
    let keyspace = open_written(&paths.database, &state)?;
    trust.mark_open()?;
    Ok((keyspace, state))
}

/// Opens a database that was just written, and checks that it has the last state that was written to it.
fn open_written(path: &Path, state: &AppliedState) -> Result<Keyspace, StoreError> {
    let unreadable = |why: &str| StoreError::io("read", path)(std::io::Error::other(why.to_owned()));
    let opened = catch_unwind(|| Keyspace::open(path));
    let keyspace = opened.map_err(|_| unreadable("opening it panicked"))??;
    match AppliedState::read(&keyspace)? {
        Some(found) if found.position == state.position => Ok(keyspace),
        _ => Err(unreadable("it does not contain what was just written to it")),
    }
}

/// Copies all readable records of a database into another one. Returns how many values cannot be read.
fn salvage_into(from: &Keyspace, to: &Keyspace, state: &mut AppliedState) -> Result<u64, StoreError> {
    let mut draft = WriteBatch::new(to);
    let unreadable = salvage::read(from, |entry| {
        apply::apply(&mut draft, state, &entry)?;
        load_if_full(to, &mut draft)
    })?;
    to.apply_one_by_one(draft.into_writes())?;
    Ok(unreadable)
}

fn load_if_full<'a>(keyspace: &'a Keyspace, draft: &mut WriteBatch<'a>) -> Result<(), StoreError> {
    if draft.bytes() < LOAD_BYTES {
        return Ok(());
    }
    keyspace.apply_one_by_one(std::mem::replace(draft, WriteBatch::new(keyspace)).into_writes())
}

/// The result of filling trees from a journal.
pub(super) struct FillResult {
    pub(super) applied: AppliedState,
    /// Whether the journal has unreadable lines.
    pub(super) is_damaged: bool,
}

/// Fills empty trees from the journal.
pub(super) fn fill_from_journal(journal: &Path, keyspace: &Keyspace) -> Result<FillResult, StoreError> {
    let file = JournalFile::inspect(journal)?;
    let from = ReplayFrom::beginning(&file);
    let mut state = AppliedState::at(from.position.clone());
    let mut report = OpenReport {
        rebuild_reason: Some(RebuildReason::CannotOpen),
        ..OpenReport::default()
    };
    let replayed = replay(journal, keyspace, &mut state, &from, None, &mut report)?;
    Ok(FillResult {
        applied: state,
        is_damaged: file.head.is_none() || replayed.is_damaged,
    })
}

/// Parses the change of a line whose checksum is valid.
fn parse_change(path: &Path, position: &Position, change: &str) -> Result<JournalChange, StoreError> {
    JournalChange::parse(change).map_err(|error| match error {
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
struct ReplayResult {
    unreadable_end: Option<UnreadableEnd>,
    /// Whether lines before the last good one are unreadable or missing.
    is_damaged: bool,
}

/// Applies journal lines to the trees.
fn replay(
    path: &Path,
    keyspace: &Keyspace,
    state: &mut AppliedState,
    from: &ReplayFrom,
    mut trust: Option<&mut TrustFile>,
    report: &mut OpenReport,
) -> Result<ReplayResult, StoreError> {
    let is_new = report.rebuild_reason.is_some();
    let mut draft = WriteBatch::new(keyspace);
    let mut drafted = 0;
    let scanned = journal::scan(path, &from.position, from.base, |position, change| {
        let mut entry = parse_change(path, position, change)?;
        if position.sequence <= from.newer_only_until {
            entry.retain_newer(&draft)?;
        }
        apply::apply(&mut draft, state, &entry)?;
        report.replayed += 1;
        drafted += 1;
        if is_new {
            load_if_full(keyspace, &mut draft)?;
        } else if drafted >= REPLAY_BATCH {
            drafted = 0;
            if let Some(trust) = &mut trust {
                trust.mark_open_if_trusted()?;
            }
            state.position = position.clone();
            let mut full = std::mem::replace(&mut draft, WriteBatch::new(keyspace));
            state.write(&mut full)?;
            keyspace.apply(full.into_writes())?;
        }
        Ok(())
    })?;
    let read = scanned.position.sequence.max(from.base.unwrap_or(0));
    let has_moved = scanned.position != from.position;
    state.position = Position {
        sequence: read.max(from.last_known),
        ..scanned.position
    };
    if is_new {
        keyspace.apply_one_by_one(draft.into_writes())?;
    } else if has_moved {
        if let Some(trust) = &mut trust {
            trust.mark_open_if_trusted()?;
        }
        state.write(&mut draft)?;
        keyspace.apply(draft.into_writes())?;
    }
    let is_damaged = !scanned.damaged.is_empty() || !scanned.missing.is_empty();
    report.damaged.extend(scanned.damaged);
    let missing = journal::sequence_count(&scanned.missing);
    let missing_in_both =
        journal::sequence_count(&journal::ranges_after(&scanned.missing, from.covered_until));
    report.missing = report.missing.max(missing_in_both);
    report.restored = report
        .restored
        .max(missing - missing_in_both + from.last_known.saturating_sub(read));
    Ok(ReplayResult {
        unreadable_end: scanned.unreadable_end,
        is_damaged,
    })
}

/// Writes the mark of a new database, and flushes it so that it survives a crash of this process. The next start
/// would set aside a database without a mark as broken, even an empty one.
fn write_first_state(keyspace: &Keyspace, state: &AppliedState) -> Result<(), StoreError> {
    let mut draft = WriteBatch::new(keyspace);
    state.write(&mut draft)?;
    keyspace.apply(draft.into_writes())?;
    keyspace.flush_to_system()
}

/// A copy of the database, in the folder of unfinished databases, that will replace it.
pub(super) struct DatabaseCopy<'a> {
    paths: &'a StorePaths,
    keyspace: Keyspace,
}

impl<'a> DatabaseCopy<'a> {
    /// Copies all trees. Unlike sled's files, the copy has no earlier states of a value.
    pub(super) fn copy(paths: &'a StorePaths, from: &Keyspace) -> Result<Self, StoreError> {
        remove_folder(&paths.unfinished)?;
        durable::make_folders(&paths.unfinished).map_err(StoreError::io("create", &paths.unfinished))?;
        let keyspace = Keyspace::open_to_fill(&paths.unfinished.join("new"))?;
        compact::copy_trees(from, &keyspace)?;
        Ok(Self { paths, keyspace })
    }

    /// Replaces the database, which may still be open. The old one is moved into the folder of unfinished databases.
    ///
    /// After a kill between the two renames, the next start rebuilds the database from the journal.
    pub(super) fn put_in_place(self, state: &AppliedState) -> Result<Keyspace, StoreError> {
        compact::record_position(&self.keyspace, state)?;
        self.keyspace.sync()?;
        self.keyspace.close();
        let StorePaths {
            unfinished, database, ..
        } = self.paths;
        let (new, old) = (unfinished.join("new"), unfinished.join("old"));
        rename_durably(database, &old)?;
        let opened = rename_durably(&new, database).and_then(|()| open_written(database, state));
        if opened.is_err() {
            // On an error, move the old one back, which is still open and complete.
            if exists(database)? {
                rename_durably(database, &new)?;
            }
            rename_durably(&old, database)?;
        }
        opened
    }
}

/// Removes unfinished and replaced databases.
pub(super) fn remove_unfinished(paths: &StorePaths) -> Result<(), StoreError> {
    remove_folder(&paths.unfinished)
}

/// Removes a folder and its content, if it exists.
fn remove_folder(path: &Path) -> Result<(), StoreError> {
    let removed = none_if_absent(fs::remove_dir_all(path));
    removed.map(drop).map_err(StoreError::io("remove", path))
}

#[cfg(test)]
mod tests;

//! The choice of the data that a start uses: the database as it is, or a rebuild, and from which lines of the journal.
//!
//! This module owns what is concluded from the state of journal, database and trust file. It changes nothing.

use std::panic::catch_unwind;
use std::path::Path;

use super::super::apply::{AppliedState, FORMAT};
use super::super::error::StoreError;
use super::super::journal::{self, JournalHeader, Position, UnreadableEnd};
use super::super::keyspace::Keyspace;
use super::super::trust::TrustFile;
use super::set_aside::exists;
use super::{RebuildReason, StorePaths, parse_change};

/// The journal as found, before any change.
pub(super) struct JournalFile {
    pub(super) exists: bool,
    /// The header, and the offset of the next line. `None` if it cannot be read.
    pub(super) head: Option<(JournalHeader, u64)>,
}

impl JournalFile {
    pub(super) fn inspect(path: &Path) -> Result<Self, StoreError> {
        let exists = exists(path)?;
        let head = if exists { journal::read_header(path)? } else { None };
        Ok(Self { exists, head })
    }

    fn base(&self) -> Option<u64> {
        self.head.as_ref().map(|(header, _)| header.base)
    }

    /// Returns the position of the first line. Without a header, this is the first byte.
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
    fn may_have_filled(&self, state: &AppliedState) -> bool {
        let is_base = |(header, _): &(JournalHeader, u64)| header.base == state.position.sequence;
        self.is_generation_of(state) || self.head.as_ref().is_none_or(is_base)
    }

    /// Whether a database with this mark was filled from a journal of this generation.
    fn is_generation_of(&self, state: &AppliedState) -> bool {
        let header = self.head.as_ref().map(|(header, _)| header.generation);
        header == Some(state.position.generation)
    }
}

/// The data that a start uses.
pub(super) enum StartSource {
    /// The existing database, and the position from which to replay the journal.
    Database {
        keyspace: Keyspace,
        mark: Box<AppliedState>,
        from: ReplayFrom,
    },
    /// A database that must be rebuilt.
    Rebuild(RebuildPlan),
}

/// How to rebuild a database.
pub(super) struct RebuildPlan {
    /// Why the existing database cannot be used.
    pub(super) reason: RebuildReason,
    /// The existing database, if the journal lost changes. Its records are loaded first.
    pub(super) database: Option<Keyspace>,
    /// The journal lines to load afterwards.
    pub(super) from: ReplayFrom,
    /// Whether the journal has lost changes.
    pub(super) has_lost_changes: bool,
    /// Whether the existing database may have content that the journal lacks.
    pub(super) database_may_have_more: bool,
    /// Whether to copy the journal before its unreadable end is cut off.
    pub(super) copies_end: bool,
    /// See [`OpenReport::is_uncertain`].
    pub(super) is_uncertain: bool,
}

/// Which journal lines to apply.
pub(super) struct ReplayFrom {
    /// Where to start reading.
    pub(super) position: Position,
    /// Lines up to this sequence may share one sequence (see [`Header`]).
    pub(super) base: Option<u64>,
    /// The last change in the database.
    pub(super) last_known: u64,
    /// The database has all changes of this journal up to this sequence.
    pub(super) covered_until: u64,
    /// Up to this sequence, only changes that are newer than the database are applied.
    pub(super) newer_only_until: u64,
}

impl ReplayFrom {
    /// Selects all lines, for an empty database.
    pub(super) fn beginning(file: &JournalFile) -> Self {
        Self {
            position: file.beginning(),
            base: file.base(),
            last_known: 0,
            covered_until: 0,
            newer_only_until: 0,
        }
    }
}

/// How a database relates to the journal beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    /// There is no database, or it does not say what it was filled from.
    Unknown,
    /// It may have been filled from this journal.
    OfJournal,
    /// Both come from the same store, but each has changes that the other lacks.
    Branched,
    /// It was filled from another journal.
    Foreign,
}

impl Relation {
    fn of(
        state: Option<&AppliedState>,
        file: &JournalFile,
        survey: &JournalSurvey,
        journal: &Path,
    ) -> Result<Self, StoreError> {
        let Some(state) = state else {
            return Ok(Self::Unknown);
        };
        let is_covered = survey.is_whole && state.position.sequence <= survey.last_sequence;
        if is_covered && file.is_generation_of(state) && !journal::contains_line_at(journal, &state.position)?
        {
            return Ok(Self::Branched);
        }
        Ok(match file.may_have_filled(state) {
            true => Self::OfJournal,
            false => Self::Foreign,
        })
    }
}

/// Decides which data to use. Changes nothing, except that sled may write when it opens a database.
pub(super) fn choose(
    paths: &StorePaths,
    file: &JournalFile,
    trust: &TrustFile,
    forced_rebuild: Option<RebuildReason>,
) -> Result<StartSource, StoreError> {
    let is_trusted = trust.is_trusted()?;
    let (keyspace, state, reason) = match open_database(&paths.database)? {
        Err(reason) => (None, None, Some(reason)),
        Ok((keyspace, Some(state))) if state.format == FORMAT && is_trusted && forced_rebuild.is_none() => {
            if let Some(position) = position_after(&paths.journal, file, &state)? {
                let from = ReplayFrom {
                    position,
                    last_known: state.position.sequence,
                    covered_until: state.position.sequence,
                    ..ReplayFrom::beginning(file)
                };
                let mark = Box::new(state);
                return Ok(StartSource::Database { keyspace, mark, from });
            }
            (Some(keyspace), Some(state), None)
        }
        Ok((keyspace, state)) => (Some(keyspace), state, forced_rebuild),
    };
    let survey = survey_journal(&paths.journal, file)?;
    let relation = Relation::of(state.as_ref(), file, &survey, &paths.journal)?;
    let last_known = state.as_ref().map_or(0, |state| state.position.sequence);
    let has_unreadable_end = survey.unreadable_end.is_some();
    // If the database has no position, the torn end may have been acknowledged.
    let end_may_be_acknowledged = has_unreadable_end && keyspace.is_some() && state.is_none();
    let has_lost_changes = !survey.is_whole
        || last_known > survey.last_sequence
        || relation == Relation::Branched
        || end_may_be_acknowledged;
    let reason = reason.unwrap_or(match &state {
        None => RebuildReason::CannotOpen,
        Some(state) if state.format != FORMAT => RebuildReason::OtherFormat,
        Some(_) if !is_trusted => RebuildReason::Untrusted,
        Some(_) if has_lost_changes => RebuildReason::JournalDamaged,
        Some(_) => RebuildReason::NotOfThisJournal,
    });
    let has_whole_line = survey
        .unreadable_end
        .as_ref()
        .is_some_and(|end| end.has_whole_line);
    // Only a database of this journal can prove that its end lost no more than one unfinished line.
    let copies_end = has_whole_line || (has_unreadable_end && relation != Relation::OfJournal);
    // A database of a newer format is not read, and one that has nothing of its own is not needed.
    let is_readable = state.as_ref().is_none_or(|state| state.format <= FORMAT);
    let database = match keyspace {
        Some(unused) if !(has_lost_changes && is_readable) => {
            unused.close();
            None
        }
        keyspace => keyspace,
    };
    let was_closed = trust.closed_at()?.is_some();
    let is_uncertain = if has_lost_changes {
        let lacks_its_end = !file.exists || last_known > survey.last_sequence || has_unreadable_end;
        // If both have changed the same record, one of the changes is lost.
        database.is_none()
            || state.is_none()
            || !is_trusted
            || relation == Relation::Branched
            || (lacks_its_end && !was_closed)
    } else {
        has_whole_line || (copies_end && was_closed)
    };
    let from = match (&database, relation) {
        (None, _) => ReplayFrom::beginning(file),
        (Some(_), Relation::OfJournal) => ReplayFrom {
            last_known,
            covered_until: last_known,
            newer_only_until: last_known,
            ..ReplayFrom::beginning(file)
        },
        (Some(_), _) => ReplayFrom {
            last_known,
            newer_only_until: u64::MAX,
            ..ReplayFrom::beginning(file)
        },
    };
    let has_content_of_its_own = match relation {
        Relation::OfJournal => false,
        Relation::Unknown => has_unreadable_end,
        Relation::Branched | Relation::Foreign => true,
    };
    Ok(StartSource::Rebuild(RebuildPlan {
        reason,
        database,
        from,
        has_lost_changes,
        database_may_have_more: has_lost_changes || has_content_of_its_own,
        copies_end,
        is_uncertain,
    }))
}

/// Opens a database and reads its mark. The inner error is the reason to rebuild it.
fn open_database(path: &Path) -> Result<Result<(Keyspace, Option<AppliedState>), RebuildReason>, StoreError> {
    if !exists(path)? {
        return Ok(Err(RebuildReason::Missing));
    }
    let keyspace = match catch_unwind(|| Keyspace::open(path)) {
        Ok(Ok(keyspace)) => keyspace,
        // The database is not damaged: it cannot be used now.
        Ok(Err(error)) if error.is_passing() || !error.is_database_error() => return Err(error),
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot open the database");
            return Ok(Err(RebuildReason::CannotOpen));
        }
        Err(_) => {
            tracing::error!("cannot open the database: it panicked");
            return Ok(Err(RebuildReason::CannotOpen));
        }
    };
    let state = AppliedState::read(&keyspace).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot read the database's position");
        None
    });
    Ok(Ok((keyspace, state)))
}

/// Returns the position where the journal continues after the state of the database. `None` if the database is not a
/// state of this journal, or the journal lost the line at the database's position.
fn position_after(
    path: &Path,
    file: &JournalFile,
    state: &AppliedState,
) -> Result<Option<Position>, StoreError> {
    let Some((header, _)) = &file.head else {
        return Ok(None);
    };
    if file.is_generation_of(state) {
        return Ok(journal::contains_line_at(path, &state.position)?.then(|| state.position.clone()));
    }
    // A compaction was interrupted after the rename. The database already has its lines.
    Ok((header.base == state.position.sequence).then(|| Position {
        sequence: header.base,
        ..file.beginning()
    }))
}

/// The result of reading the whole journal.
pub(super) struct JournalSurvey {
    /// Whether all lines are readable, except for a torn end.
    is_whole: bool,
    unreadable_end: Option<UnreadableEnd>,
    /// Its last sequence.
    last_sequence: u64,
}

pub(super) fn survey_journal(path: &Path, file: &JournalFile) -> Result<JournalSurvey, StoreError> {
    if !file.exists {
        return Ok(JournalSurvey {
            is_whole: false,
            unreadable_end: None,
            last_sequence: 0,
        });
    }
    let scanned = journal::scan(path, &file.beginning(), file.base(), |position, change| {
        parse_change(path, position, change).map(drop)
    })?;
    Ok(JournalSurvey {
        is_whole: file.head.is_some() && scanned.damaged.is_empty() && scanned.missing.is_empty(),
        unreadable_end: scanned.unreadable_end,
        last_sequence: scanned.position.sequence.max(file.base().unwrap_or(0)),
    })
}

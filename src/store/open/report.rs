//! The report of what a start found in the store's files. A copy is saved on disk.
//!
//! After the files are repaired, they no longer show what was lost. The saved report does, also for later processes,
//! until the daemon has acted on it. This module owns the report's file format.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::apply::AppliedState;
use super::super::body::write_durably;
use super::super::error::StoreError;
use super::super::journal::BadRegion;
use super::set_aside;
use crate::files::none_if_absent;

/// The version of the file format that this program writes, and the newest that it reads.
const VERSION: u32 = 1;

/// What a start found and did.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// Whether the last user of the store closed it cleanly.
    pub was_closed_cleanly: bool,
    /// How many changes were replayed from the journal, because the database lacked them.
    pub replayed: u64,
    /// Why the database was rebuilt.
    pub rebuild_reason: Option<RebuildReason>,
    /// Where the unused database is kept.
    pub set_aside: Option<PathBuf>,
    /// An unreadable end of the journal that was cut off. A single unfinished line was never acknowledged.
    pub cut_off: Option<BadRegion>,
    /// Whether the journal was missing, its beginning was unreadable, or an earlier start found it damaged.
    pub journal_was_damaged: bool,
    /// Unreadable parts of the journal, followed by readable ones. If journal and database were merged, also the unreadable
    /// end.
    pub damaged: Vec<BadRegion>,
    /// How many changes were lost: neither the journal nor the database has them.
    pub missing: u64,
    /// How many changes the journal had lost and the database still had.
    pub restored: u64,
    /// How many values of the database are unreadable, if the journal lost something.
    pub unreadable_values: u64,
    /// Whether more may be lost than the counts say.
    pub is_uncertain: bool,
    /// Where a copy of the whole journal is kept, if a part of it was damaged or cut off.
    pub journal_copy: Option<PathBuf>,
}

/// The reason to rebuild a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RebuildReason {
    /// It is missing, although the journal holds changes.
    Missing,
    /// It cannot be opened, or its mark cannot be read.
    CannotOpen,
    /// The machine crashed while it was open, so any part of it may be old.
    Untrusted,
    /// It has another format.
    OtherFormat,
    /// It is not a state of this journal, which has at least as many changes.
    NotOfThisJournal,
    /// It has changes that the journal lost: the records of both were merged.
    JournalDamaged,
    /// It opens, but something in it is unreadable.
    Damaged,
}

impl OpenReport {
    /// Whether the journal was missing or had lost acknowledged changes.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.journal_was_damaged || self.restored > 0 || !self.damaged.is_empty() || self.may_have_lost()
    }

    /// Whether acknowledged changes may be lost. The counts omit them if neither file shows how many.
    #[must_use]
    pub fn may_have_lost(&self) -> bool {
        self.missing > 0 || self.unreadable_values > 0 || self.is_uncertain
    }

    /// Counts the changes that the store had when it was closed and that neither file has. Returns whether there are
    /// any.
    pub(super) fn count_missing_end(&mut self, closed_at: Option<u64>, state: &AppliedState) -> bool {
        let missing = closed_at.unwrap_or(0).saturating_sub(state.position.sequence);
        self.missing = self.missing.max(missing);
        missing > 0
    }
}

/// The saved form of a report.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SavedReport {
    version: u32,
    is_damaged: bool,
    missing: u64,
    restored: u64,
    unreadable_values: u64,
    is_uncertain: bool,
    /// The names of files in the same folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    journal_kept: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    set_aside: Option<String>,
}

/// Saves the report, if the daemon must act on it or report it. Call this before replacing the files that show the
/// damage.
pub(super) fn write(path: &Path, report: &OpenReport) -> Result<(), StoreError> {
    if !report.is_damaged() && report.set_aside.is_none() {
        return Ok(());
    }
    let name = |kept: &Option<PathBuf>| Some(kept.as_ref()?.file_name()?.to_string_lossy().into_owned());
    let saved = SavedReport {
        version: VERSION,
        is_damaged: report.is_damaged(),
        missing: report.missing,
        restored: report.restored,
        unreadable_values: report.unreadable_values,
        is_uncertain: report.is_uncertain,
        journal_kept: name(&report.journal_copy),
        set_aside: name(&report.set_aside),
    };
    let text = serde_json::to_vec(&saved).map_err(StoreError::unwritable("report"))?;
    write_durably(path, &text)
}

/// Reads the report of earlier starts, if no daemon has acted on it yet. An unreadable report is set aside.
pub(super) fn read(path: &Path) -> Result<OpenReport, StoreError> {
    let text = none_if_absent(fs::read(path)).map_err(StoreError::io("read", path))?;
    let Some(text) = text else {
        return Ok(OpenReport::default());
    };
    let saved = serde_json::from_slice::<SavedReport>(&text).ok();
    let Some(saved) = saved.filter(|saved| saved.version == VERSION) else {
        let aside = set_aside(path, super::UNREADABLE_REPORT)?;
        tracing::error!(
            ?aside,
            "cannot read the saved report of an earlier start; changes may be lost"
        );
        return Ok(OpenReport {
            journal_was_damaged: true,
            is_uncertain: true,
            ..OpenReport::default()
        });
    };
    Ok(OpenReport {
        journal_was_damaged: saved.is_damaged,
        missing: saved.missing,
        restored: saved.restored,
        unreadable_values: saved.unreadable_values,
        is_uncertain: saved.is_uncertain,
        journal_copy: saved.journal_kept.map(|name| path.with_file_name(name)),
        set_aside: saved.set_aside.map(|name| path.with_file_name(name)),
        ..OpenReport::default()
    })
}

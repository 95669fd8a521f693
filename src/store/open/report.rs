//! What a start found in the store's files, and the note of it that lasts until the daemon has acted on it.
//!
//! Once the files are repaired, nothing in them says what was lost. The note does, so that a process that replaces this one, or
//! a start after a kill, still knows it. This module owns the note's form.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::apply::Mark;
use super::super::body::write_durably;
use super::super::error::StoreError;
use super::super::journal::BadRegion;
use super::set_aside;

/// The version of the note's form that this program writes, and the newest that it reads.
const VERSION: u32 = 1;

/// What a start found and did.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// Whether the last user of the store closed it, which is the last thing that one does.
    pub was_closed: bool,
    /// Changes that the database lacked and got from the journal.
    pub replayed: u64,
    /// Why the database was built anew.
    pub rebuilt: Option<RebuildReason>,
    /// Where the database that was not used is kept.
    pub set_aside: Option<PathBuf>,
    /// An end of the journal that cannot be read and was cut off. One unfinished line was never acknowledged.
    pub cut_off: Option<BadRegion>,
    /// Whether the journal was missing, or its beginning could not be read, or an earlier start found it damaged.
    pub journal_was_damaged: bool,
    /// Parts of the journal that cannot be read, with readable ones behind them.
    pub damaged: Vec<BadRegion>,
    /// Changes that were lost: no readable line of the journal has them, nor has the database.
    pub missing: u64,
    /// Changes that the journal had lost and the database still had.
    pub restored: u64,
    /// Values of the database that cannot be read, where the journal had lost something.
    pub unreadable_values: u64,
    /// Whether more may be lost than the figures say.
    pub is_uncertain: bool,
    /// Where a copy of the damaged journal, or of what was cut off, is kept.
    pub journal_kept: Option<PathBuf>,
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
    /// It is not a state of this journal, which has as many changes or more.
    NotOfThisJournal,
    /// It has changes that the journal has lost: all records of both were put together.
    JournalDamaged,
    /// It opens, and something in it cannot be read.
    Damaged,
}

impl OpenReport {
    /// Whether the journal was missing, or had lost something of what was acknowledged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.journal_was_damaged || self.restored > 0 || !self.damaged.is_empty() || self.may_have_lost()
    }

    /// Whether changes that were acknowledged may be lost. Where neither file tells how many, they are in no figure.
    #[must_use]
    pub fn may_have_lost(&self) -> bool {
        self.missing > 0 || self.unreadable_values > 0 || self.is_uncertain
    }
}

impl OpenReport {
    /// Counts the changes that a store had when it was closed and that neither file has. Whether there are any.
    pub(super) fn misses_end(&mut self, closed_at: Option<u64>, mark: &Mark) -> bool {
        let missing = closed_at.unwrap_or(0).saturating_sub(mark.position.sequence);
        self.missing = self.missing.max(missing);
        missing > 0
    }
}

/// What is in the note.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Noted {
    version: u32,
    is_damaged: bool,
    missing: u64,
    restored: u64,
    unreadable_values: u64,
    is_uncertain: bool,
    /// Names in the same folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    journal_kept: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    set_aside: Option<String>,
}

/// Notes what was found, where there is something that the daemon acts on or reports. To be called before the files that show
/// it are replaced.
pub(super) fn write(path: &Path, report: &OpenReport) -> Result<(), StoreError> {
    if !report.is_damaged() && report.set_aside.is_none() {
        return Ok(());
    }
    let name = |kept: &Option<PathBuf>| Some(kept.as_ref()?.file_name()?.to_string_lossy().into_owned());
    let noted = Noted {
        version: VERSION,
        is_damaged: report.is_damaged(),
        missing: report.missing,
        restored: report.restored,
        unreadable_values: report.unreadable_values,
        is_uncertain: report.is_uncertain,
        journal_kept: name(&report.journal_kept),
        set_aside: name(&report.set_aside),
    };
    let text = serde_json::to_vec(&noted).map_err(StoreError::unwritable("report"))?;
    write_durably(path, &text)
}

/// What earlier starts found, as far as no daemon has acted on it. A note that cannot be read is set aside.
pub(super) fn read(path: &Path) -> Result<OpenReport, StoreError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(OpenReport::default()),
        Err(error) => return Err(StoreError::io("read", path)(error)),
    };
    let is_known = serde_json::from_slice::<Version>(&text).is_ok_and(|found| found.version == VERSION);
    let noted = serde_json::from_slice::<Noted>(&text).ok().filter(|_| is_known);
    let Some(noted) = noted else {
        let aside = set_aside(path, super::UNREAD_REPORT)?;
        tracing::error!(
            ?aside,
            "what an earlier start found in the store cannot be read; changes may be lost"
        );
        return Ok(OpenReport {
            journal_was_damaged: true,
            is_uncertain: true,
            ..OpenReport::default()
        });
    };
    Ok(OpenReport {
        journal_was_damaged: noted.is_damaged,
        missing: noted.missing,
        restored: noted.restored,
        unreadable_values: noted.unreadable_values,
        is_uncertain: noted.is_uncertain,
        journal_kept: noted.journal_kept.map(|name| path.with_file_name(name)),
        set_aside: noted.set_aside.map(|name| path.with_file_name(name)),
        ..OpenReport::default()
    })
}

//! Records whether the database can be trusted or must be rebuilt from the journal.
//!
//! sled is not synced with each change, so after a power failure its file may hold any mixture of old and new pages.
//! If only the process crashed, the file has everything that was written. This module owns the file that distinguishes
//! the two: it names the boot in which the database was last open, or says that the database was closed and synced. A
//! database without that file, or from another boot, is not trusted. On a system without boot ids, only a closed
//! database is trusted.

use std::fs;
use std::path::PathBuf;

use super::body::{remove_durably, write_durably};
use super::error::StoreError;
use crate::files::none_if_absent;

const CLOSED: &str = "closed";

/// The file that says whether the database can be trusted.
pub(super) struct TrustFile {
    path: PathBuf,
    is_marked_open: bool,
}

impl TrustFile {
    pub(super) fn at(path: PathBuf) -> Self {
        Self {
            path,
            is_marked_open: false,
        }
    }

    /// Whether the database has everything that its last user wrote.
    pub(super) fn is_trusted(&self) -> Result<bool, StoreError> {
        if self.closed_at()?.is_some() {
            return Ok(true);
        }
        let content = self.content()?;
        Ok(content.is_some_and(|content| boot_id().is_some_and(|boot| content == boot)))
    }

    /// Returns the last change of a cleanly closed store; 0 if an earlier version closed it, which did not record the
    /// number.
    pub(super) fn closed_at(&self) -> Result<Option<u64>, StoreError> {
        let content = self.content()?.unwrap_or_default();
        let sequence = content.strip_prefix(CLOSED);
        Ok(sequence.and_then(|sequence| match sequence.trim_start() {
            "" => Some(0),
            sequence => sequence.parse().ok(),
        }))
    }

    fn content(&self) -> Result<Option<String>, StoreError> {
        let text = none_if_absent(fs::read(&self.path)).map_err(StoreError::io("read", &self.path))?;
        // Invalid text matches no boot.
        Ok(text.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    /// Records durably that the database is in use, unless already done. Called before the first batch is applied.
    pub(super) fn mark_open(&mut self) -> Result<(), StoreError> {
        if !self.is_marked_open {
            write_durably(&self.path, boot_id().unwrap_or_default().as_bytes())?;
            self.is_marked_open = true;
        }
        Ok(())
    }

    /// As [`mark_open`](Self::mark_open), but does nothing if the database is not trusted. Required before writes,
    /// which are not synced.
    pub(super) fn mark_open_if_trusted(&mut self) -> Result<(), StoreError> {
        if self.is_trusted()? {
            self.mark_open()?;
        }
        Ok(())
    }

    /// Records durably that the database was synced and is no longer in use.
    pub(super) fn mark_closed(&mut self, sequence: u64) -> Result<(), StoreError> {
        self.is_marked_open = false;
        write_durably(&self.path, format!("{CLOSED} {sequence}").as_bytes())
    }

    /// Makes the next start rebuild the database. Works on a full disk too.
    pub(super) fn revoke_trust(&mut self) -> Result<(), StoreError> {
        self.is_marked_open = false;
        remove_durably(&self.path)
    }
}

/// Returns the kernel's id of this boot; `None` on systems other than Linux.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_boot_or_a_clean_stop_is_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.trust");
        let mut trust = TrustFile::at(path.clone());
        assert!(!trust.is_trusted().unwrap(), "no file");
        trust.mark_open().unwrap();
        assert_eq!(trust.is_trusted().unwrap(), boot_id().is_some());
        assert_eq!(trust.closed_at().unwrap(), None, "it is in use");
        trust.mark_closed(31).unwrap();
        assert_eq!(trust.closed_at().unwrap(), Some(31));
        fs::write(&path, "closed").unwrap();
        assert_eq!(trust.closed_at().unwrap(), Some(0), "by an earlier version");
        assert!(trust.is_trusted().unwrap());
        fs::write(&path, "another boot").unwrap();
        assert!(!trust.is_trusted().unwrap());
        fs::write(&path, [0xFF, 0xFE]).unwrap();
        assert!(!trust.is_trusted().unwrap(), "nor is garbage");
        fs::write(&path, "").unwrap();
        assert!(!trust.is_trusted().unwrap(), "an unknown boot is no boot");
        trust.mark_closed(31).unwrap();
        trust.revoke_trust().unwrap();
        trust.revoke_trust().unwrap();
        assert!(!trust.is_trusted().unwrap());
    }
}

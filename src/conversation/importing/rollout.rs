//! Places the rollouts of imported Codex sessions.
//!
//! A rollout can continue another one at a byte offset, so an import never changes the length of any part of a rollout.
//! Without new ids nothing in it changes, not even the folder, because each resume passes the folder to Codex. Blocks.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use bridge_protocol::UpstreamId;

use super::placed_files::{BUFFER_BYTES, PlacedFiles, write_changed};
use crate::conversation::bundle::{BundleError, BundledSession, Manifest};
use crate::conversation::running_work::Progress;
use crate::conversation::services::now;
use crate::files::open_file;
use crate::transcript::TranscriptError;
use crate::transcript::codex::rename::Renaming;
use crate::transcript::codex::rollouts;
use crate::transcript::codex::{HistoryBase, read_meta};

/// The references in a bundle's rollouts to the rollouts that they continue.
///
/// # Errors
/// Errors of reading.
pub(super) fn continued_sessions(
    manifest: &Manifest,
    files: &[PathBuf],
) -> Result<Vec<HistoryBase>, BundleError> {
    let mut files = files.iter();
    let mut bases = Vec::new();
    for session in &manifest.sessions {
        let transcript = files.by_ref().take(session.files.len()).reduce(|first, _| first);
        if let Some(path) = transcript.filter(|_| session.form.dialect().abilities().continues_by_reference) {
            let file = open_file(path).map_err(TranscriptError::io("open", path))?;
            let meta = read_meta(BufReader::with_capacity(BUFFER_BYTES, file));
            let meta = meta.map_err(TranscriptError::io("read", path))?;
            bases.extend(meta.and_then(|meta| meta.base));
        }
    }
    Ok(bases)
}

/// Puts the rollout of a session where Codex looks for it, with its new ids if there are any. Returns how many lines were too
/// long to edit.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] if a different rollout of this session is there; for a session that is only continued, if
/// the continued part differs. Errors of reading and writing.
pub(super) fn place_rollout(
    placed: &mut PlacedFiles,
    session: &BundledSession,
    source: &Path,
    (root, new_id): (&Path, &UpstreamId),
    new_ids: Option<&BTreeMap<UpstreamId, UpstreamId>>,
    bases: &[HistoryBase],
    progress: &Progress,
) -> Result<u64, BundleError> {
    let keeps_ids = new_ids.is_none();
    let name = session.files.first().map_or("", |file| file.name.as_str());
    let name = name.replace(session.upstream_id.as_str(), new_id.as_str());
    let text = |id: &UpstreamId| id.as_str().to_owned();
    let new_ids = new_ids.into_iter().flatten();
    let renaming = Renaming::new(new_ids.map(|(old, new)| (text(old), text(new))));
    // A rollout of this session in any folder must be the same: of two, Codex would take either.
    let existing = rollouts::locate(root, new_id.as_str())?.into_iter().next();
    let target = match existing {
        Some(path) if !session.continued && rollouts::is_archived(root, &path) => {
            return Err(TranscriptError::AlreadyExists { path }.into());
        }
        // The local rollout may have grown since, or have been compressed.
        Some(path) if session.continued => {
            let id = session.upstream_id.as_str();
            let bases = bases.iter().filter(|base| base.upstream_id == id);
            let counted = rollouts::continued_bytes(source, bases)?;
            if !rollouts::same_beginning(source, &path, counted)? {
                return Err(TranscriptError::AlreadyExists { path }.into());
            }
            return Ok(0);
        }
        Some(path) => path,
        None => root.join(rollout_folder(&name)).join(name),
    };
    let mut unchanged = 0;
    placed.place_file(&target, new_id, |writer| {
        unchanged = write_changed(source, &target, writer, progress, &renaming)?;
        Ok(())
    })?;
    Ok(if keeps_ids { 0 } else { unchanged })
}

/// The folder of a rollout below Codex's own: that of the date in its name, or of today.
fn rollout_folder(name: &str) -> PathBuf {
    let day = name.strip_prefix("rollout-").and_then(|rest| rest.get(..10));
    let date = day.and_then(|day| day.parse::<jiff::civil::Date>().ok());
    let date = date.unwrap_or_else(|| now().to_zoned(jiff::tz::TimeZone::UTC).date());
    PathBuf::from(date.strftime("sessions/%Y/%m/%d").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_goes_into_the_folder_of_its_day() {
        let told = rollout_folder("rollout-2026-11-03T12-00-00-01a1fc15-ffed-7ff1-b050-3a83130f7a03.jsonl");
        assert_eq!(told, Path::new("sessions/2026/11/03"));
        for odd in [
            "rollout-01a1fc15-ffed-7ff1-b050-3a83130f7a03.jsonl",
            "rollout-2026-99-99T",
            "",
        ] {
            let parts: Vec<_> = rollout_folder(odd)
                .components()
                .map(|part| part.as_os_str().len())
                .collect();
            assert_eq!(parts, [8, 4, 2, 2], "{odd}");
        }
    }
}

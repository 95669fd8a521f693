//! Makes repaired copies of rollouts under new ids: without the lines that are not records, and with the new session's id.
//!
//! Every other byte stays. The missing result of a call is not filled in: Codex (0.166) fills it in for the model at each
//! resume, so nothing is lost. The copy continues the same files as the rollout. The source is only read.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use bridge_protocol::check::{FindingKind, Repairs};

use super::{expected_path, meta, text};
use crate::transcript::TranscriptError;
use crate::transcript::codex::is_record;
use crate::transcript::codex::rename::Renaming;
use crate::transcript::copy::{COPY, create_in, session_of};
use crate::transcript::lines::LINE_LIMIT_BYTES;
use crate::transcript::rewrite::{LineChange, Rewriter, Verdict};

/// Whether a repaired copy no longer has a finding of this kind.
#[must_use]
pub fn can_fix(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::TornLine | FindingKind::GarbageLine | FindingKind::ForeignSessionId
    )
}

/// Writes the repaired copy of a session's rollout `source` to [`target`].
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] if that exists, and [`TranscriptError::Io`]. After a failure no file is left.
pub fn repair(
    source: &Path,
    upstream_id: &str,
    target: &Path,
    new_id: &str,
) -> Result<Repairs, TranscriptError> {
    let own = meta(source)?.upstream_id;
    let ids = own.into_iter().chain([upstream_id.to_owned()]);
    let renaming = Renaming::new(ids.map(|id| (id, new_id.to_owned())));
    let (text, _) = text::open(source)?;
    let mut repairs = Repairs::default();
    let folder = target.parent().unwrap_or(Path::new("."));
    // Until it is complete, the copy has a temporary name that the caller can derive from the recorded one.
    create_in(folder, session_of(target), COPY, |writer| {
        let copied = write(text, &renaming, writer, &mut repairs);
        copied.map_err(TranscriptError::io("copy", source))
    })?;
    Ok(repairs)
}

/// The path where Codex looks for the repaired copy of a session's rollout `source`, or a path next to it. Not compressed.
#[must_use]
pub fn target(root: &Path, source: &Path, upstream_id: &str, new_id: &str) -> PathBuf {
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let name = name
        .strip_suffix(".zst")
        .unwrap_or(&name)
        .replace(upstream_id, new_id);
    let sibling = source.with_file_name(name);
    // If Codex' folder for that date does not exist, the copy is put next to the source, where Codex finds it too.
    let expected = expected_path(root, &sibling);
    expected
        .filter(|expected| expected.parent().is_some_and(Path::is_dir))
        .unwrap_or(sibling)
}

fn write(
    text: impl BufRead,
    renaming: &Renaming,
    writer: &mut dyn Write,
    repairs: &mut Repairs,
) -> io::Result<()> {
    let lines = Rewriter::new(text, LINE_LIMIT_BYTES);
    let written = lines.rewrite_all(writer, |line, edits| {
        // Longer than the limit: not inspected, copied unchanged.
        let Some(bytes) = line.bytes else {
            return Ok(Verdict::Keep);
        };
        let is_record = is_record(bytes);
        renaming.edit(bytes, edits);
        // Blank lines are not counted.
        repairs.left_out += u64::from(is_record == Some(false));
        Ok(match is_record {
            Some(true) => Verdict::Keep,
            _ => Verdict::Drop,
        })
    });
    match written {
        // A truncated compressed file is copied as far as it could be decoded.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            repairs.left_out += 1;
            Ok(())
        }
        written => written,
    }
}

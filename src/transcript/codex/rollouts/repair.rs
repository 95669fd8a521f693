//! Repaired copies of rollouts, under new ids: without the lines that are no records, and of the new session throughout.
//!
//! Every other byte stays. A result that a call lacks is not filled in: Codex (0.166) tells the model of it at each resume, and
//! nothing is lost by that. Files that the rollout continues are continued by the copy. The source is only read.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bridge_protocol::check::{FindingKind, Repairs};

use super::text::Text;
use super::{meta, place_of};
use crate::transcript::TranscriptError;
use crate::transcript::codex::is_record;
use crate::transcript::codex::rename::Renaming;
use crate::transcript::copy::{COPY, create_in, session_of};
use crate::transcript::lines::LINE_LIMIT_BYTES;
use crate::transcript::rewrite::{Change, Rewriter, Verdict};

/// Whether a repaired copy does not have what was found.
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
/// [`TranscriptError::AlreadyExists`] when that is taken, and [`TranscriptError::Io`]. Nothing is left behind by a failure.
pub fn repair(
    source: &Path,
    upstream_id: &str,
    target: &Path,
    new_id: &str,
) -> Result<Repairs, TranscriptError> {
    let own = meta(source)?.upstream_id;
    let ids = own.into_iter().chain([upstream_id.to_owned()]);
    let renaming = Renaming::new(ids.map(|id| (id, new_id.to_owned())));
    let (text, _) = Text::open(source)?;
    let mut repairs = Repairs::default();
    let folder = target.parent().unwrap_or(Path::new("."));
    // Under a name of which whoever noted the copy knows until it is whole.
    create_in(folder, session_of(target), COPY, |writer| {
        let copied = write(text, &renaming, writer, &mut repairs);
        copied.map_err(TranscriptError::io("copy", source))
    })?;
    Ok(repairs)
}

/// Where Codex looks for the repaired copy of a session's rollout `source`, which is beside that. It is not compressed.
#[must_use]
pub fn target(root: &Path, source: &Path, upstream_id: &str, new_id: &str) -> PathBuf {
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let name = name
        .strip_suffix(".zst")
        .unwrap_or(&name)
        .replace(upstream_id, new_id);
    let beside = source.with_file_name(name);
    // Where that is none of Codex' folders of days the other one is found all the same.
    let place = place_of(root, &beside);
    place
        .filter(|place| place.parent().is_some_and(Path::is_dir))
        .unwrap_or(beside)
}

fn write(text: Text, renaming: &Renaming, writer: &mut dyn Write, repairs: &mut Repairs) -> io::Result<()> {
    let lines = Rewriter::new(text, LINE_LIMIT_BYTES);
    let written = lines.all(writer, |line, edits| {
        // Longer than the limit: not inspected, copied unchanged.
        let Some(bytes) = line.bytes else {
            return Ok(Verdict::Keep);
        };
        let is_record = is_record(bytes);
        renaming.edit(bytes, edits);
        // Nothing may be in it.
        repairs.left_out += u64::from(is_record == Some(false));
        Ok(match is_record {
            Some(true) => Verdict::Keep,
            _ => Verdict::Drop,
        })
    });
    match written {
        // A compressed file that breaks off has all that could be decoded of it.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            repairs.left_out += 1;
            Ok(())
        }
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::durable::tests::Disk;
    use crate::transcript::codex::rollouts;
    use crate::transcript::copy::remove_copy;

    const OLD: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";
    const NEW: &str = "01a1fc16-01ee-76c3-a43d-78487b788798";
    const OTHER: &str = "01a1fc16-aaaa-76c3-a43d-78487b788798";
    const DAY: &str = "sessions/2026/11/03";

    fn meta_line(id: &str) -> String {
        format!(
            r#"{{"timestamp":"t","ordinal":0,"type":"session_meta","payload":{{"id":"{id}","cwd":"/{id}"}}}}"#
        )
    }

    fn said(ordinal: u64, text: &str) -> String {
        format!(
            r#"{{"timestamp":"t","ordinal":{ordinal},"type":"response_item","payload":{{"type":"message","role":"user","content":[{{"type":"input_text","text":"{text}"}}]}}}}"#
        )
    }

    fn repaired(lines: &[&str], end: &str) -> (Repairs, String, String) {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join(DAY);
        fs::create_dir_all(&folder).expect("a folder");
        let source = folder.join(format!("rollout-2026-11-03T10-00-00-{OLD}.jsonl"));
        let text = lines.join("\n") + end;
        fs::write(&source, &text).expect("a rollout");
        let target = target(root.path(), &source, OLD, NEW);
        let disk = Disk::of(root.path());
        let made = repair(&source, OLD, &target, NEW).expect("a copy");
        assert_eq!(disk.check_lasts("a repaired rollout"), 1);
        let expected = folder.join(format!("rollout-2026-11-03T10-00-00-{NEW}.jsonl"));
        assert_eq!(target, expected);
        assert_eq!(
            fs::read_to_string(&source).expect("the source"),
            text,
            "the source is as it was"
        );
        assert!(matches!(
            repair(&source, OLD, &target, NEW),
            Err(TranscriptError::AlreadyExists { .. })
        ));
        // What is there until it is whole goes with what else a killed daemon leaves.
        let unfinished = folder.join(format!(".{}.copy.tmp", session_of(&target)));
        fs::write(&unfinished, "").expect("a file");
        let found = rollouts::check(root.path(), NEW).expect("a check").findings;
        assert!(found.iter().all(|finding| !can_fix(finding.kind)), "{found:?}");
        let copy = fs::read_to_string(&target).expect("the copy");
        remove_copy(&target).expect("removed");
        let left = fs::read_dir(&folder).expect("the folder");
        assert_eq!(left.count(), 1, "the source alone");
        (made, text, copy)
    }

    #[test]
    fn lines_that_are_no_records_are_left_out_and_the_rest_is_of_the_new_session() {
        let (first, second) = (said(1, OLD), said(3, "two"));
        let own = meta_line(OLD);
        let (made, _, copy) = repaired(&[&own, &first, "@@@", "", &second, r#"{"timestamp":"t","ty"#], "");
        assert_eq!(made.left_out, 2);
        let renamed = own.replace(&format!("\"id\":\"{OLD}\""), &format!("\"id\":\"{NEW}\""));
        // What was said and the folder stay as they are.
        assert_eq!(copy, format!("{renamed}\n{first}\n{second}\n"));
    }

    #[test]
    fn a_rollout_that_says_it_is_of_another_session_says_the_new_one() {
        let (made, _, copy) = repaired(&[&meta_line(OTHER), &said(1, "one")], "\n");
        assert_eq!(made, Repairs::default());
        assert!(copy.contains(&format!("\"id\":\"{NEW}\"")), "{copy}");
    }
}

//! Compares a copy with its source: the lines must be the same except for the folder that a record names.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::super::TranscriptError;
use super::super::meter::ProgressReader;
use super::super::relocate::{HELD_LINE_LIMIT_BYTES, rewrite_lines};
use super::super::rewrite::EditableRecord;
use super::MoveStep;
use crate::files::identity::{Hashed, has_content};
use crate::files::open_file;

/// The size of the buffer, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// The longest folder that may replace another one in a record, in bytes: the longest path of Linux, with each byte escaped.
const FOLDER_BYTES: usize = 6 * 4096 + 2;

/// How much of a line is compared at once, in bytes: more than the longest line that a copy edits, plus one read.
/// Longer lines were copied unchanged.
const LINE_BYTES: u64 = HELD_LINE_LIMIT_BYTES as u64 + 1024 * 1024;

/// Checks that `copy` has the lines of `source`. Each must be the same, or a record that differs only in its `cwd`, so the
/// copy has as many records, with the same ids, and each can be read. `step` is called with the number of bytes of each
/// read, and may stop the check.
///
/// # Errors
/// [`TranscriptError::CopyDiffers`] if a line differs; the system's error.
pub(super) fn check_lines(
    source: &Path,
    copy: &Path,
    step: &dyn Fn(u64) -> io::Result<()>,
) -> Result<(), TranscriptError> {
    let open = |path: &Path| open_file(path).map_err(TranscriptError::io("open", path));
    let theirs = BufReader::with_capacity(BUFFER_BYTES, ProgressReader::new(open(source)?, step));
    let ours = BufReader::with_capacity(BUFFER_BYTES, open(copy)?);
    match first_difference(theirs, ours, false).map_err(TranscriptError::io("compare", source))? {
        Some(line) => Err(TranscriptError::CopyDiffers {
            path: source.to_owned(),
            line,
        }),
        None => Ok(()),
    }
}

/// The first line, counted from 1, in which `ours` is neither the same as `theirs` nor a record that differs only in its `cwd`.
/// If `ours` may have grown, further lines may follow, and the last line of `theirs` may lack its newline. Buffers one line of
/// `theirs`, and of `ours` only a folder.
///
/// # Errors
/// The system's error.
fn first_difference(
    mut theirs: impl BufRead,
    mut copy: impl BufRead,
    may_have_grown: bool,
) -> io::Result<Option<u64>> {
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = theirs.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line)?;
        number += 1;
        if read == 0 {
            let is_over = may_have_grown || copy.by_ref().bytes().next().transpose()?.is_none();
            return Ok((!is_over).then_some(number));
        }
        let ended = line.pop_if(|last| *last == b'\n').is_some();
        let is_equal = skip_line_if_equal(&line, &mut copy)?;
        // The rest of a longer line is compared next.
        if is_equal && line.len() as u64 == LINE_BYTES {
            continue;
        }
        let end = match is_equal {
            true => copy.by_ref().bytes().next().transpose()?,
            false => return Ok(Some(number)),
        };
        let ends_alike = match end {
            Some(b'\n') => ended || may_have_grown,
            Some(_) => false,
            None => !ended || may_have_grown,
        };
        if !ends_alike {
            return Ok(Some(number));
        }
    }
}

/// Whether `ours` begins with the lines of `theirs`. Each must be the same, or a record that differs only in its `cwd`.
///
/// # Errors
/// The system's error.
pub(crate) fn begins_with_lines_of(theirs: impl BufRead, ours: impl BufRead) -> io::Result<bool> {
    Ok(first_difference(theirs, ours, true)?.is_none())
}

/// Whether a text continues with this line, or with a record that differs from it only in its `cwd`. If so, skips the line.
fn skip_line_if_equal(line: &[u8], text: &mut impl BufRead) -> io::Result<bool> {
    let equal_bytes = skip_equal(line, text)?;
    if equal_bytes == line.len() {
        return Ok(true);
    }
    let record = std::str::from_utf8(line).ok().and_then(EditableRecord::parse);
    let cwd_range = record.and_then(|record| record.position(&["cwd"]));
    let Some(cwd_range) = cwd_range.filter(|cwd_range| cwd_range.contains(&equal_bytes)) else {
        return Ok(false);
    };
    let mut folder = line[cwd_range.start..equal_bytes].to_vec();
    // One string replaces another and everything else is the same, so the record is valid.
    while serde_json::from_slice::<String>(&folder).is_err() {
        let room = FOLDER_BYTES.saturating_sub(folder.len()) as u64;
        if text.by_ref().take(room).read_until(b'"', &mut folder)? == 0 {
            return Ok(false);
        }
    }
    let after_cwd = &line[cwd_range.end..];
    Ok(skip_equal(after_cwd, text)? == after_cwd.len())
}

/// Skips the part of a text that equals `expected`. Returns its length in bytes.
fn skip_equal(expected: &[u8], text: &mut impl BufRead) -> io::Result<usize> {
    let mut equal_bytes = 0;
    loop {
        let available = match text.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            available => available?,
        };
        let rest = &expected[equal_bytes..];
        let length = rest.len().min(available.len());
        let same = match available[..length] == rest[..length] {
            true => length,
            false => rest
                .iter()
                .zip(available)
                .take_while(|(ours, theirs)| ours == theirs)
                .count(),
        };
        text.consume(same);
        equal_bytes += same;
        if length == 0 || same < length {
            return Ok(equal_bytes);
        }
    }
}

/// Whether the destination already has the content that the step would write.
pub(super) fn is_already_copied(step: &MoveStep) -> Result<bool, TranscriptError> {
    let file = open_file(&step.from).map_err(TranscriptError::io("open", &step.from))?;
    let reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut written = Hashed::new(io::sink());
    rewrite_lines(reader, &mut written, &step.relocation())
        .map_err(TranscriptError::io("read", &step.from))?;
    let (sha256, bytes) = written.digest_and_bytes();
    has_content(&step.to, bytes, &sha256).map_err(TranscriptError::io("read", &step.to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_goes_on_begins_alike_in_another_folder() {
        let text = "{\"uuid\":\"1\",\"cwd\":\"/long\"}\n@@@\n{\"uuid\":\"2\",\"cwd\":\"/long\"}";
        let table = [
            (text.to_owned(), true),
            (format!("{}\n{{}}\n", text.replace("/long", "/b")), true),
            (text.replace("@@@", "@@"), false),
            (text.replace("\"2\"", "\"3\""), false),
            (text.lines().take(2).collect::<Vec<_>>().join("\n"), false),
        ];
        for (ours, is_alike) in table {
            assert_eq!(
                first_difference(text.as_bytes(), ours.as_bytes(), true)
                    .unwrap()
                    .is_none(),
                is_alike,
                "{ours}"
            );
        }
    }

    #[test]
    fn a_copy_may_differ_in_folders_and_in_nothing_else() {
        let source =
            "{\"uuid\":\"1\",\"cwd\":\"/a\",\"n\":1}\n@@@\n{\"uuid\":\"2\"}\n{\"uuid\":\"3\",\"cwd\":\"/a\"}";
        let table = [
            (source.to_owned(), true),
            (source.replace("\"/a\"", "\"/b é\""), true),
            (source.replacen("\"/a\"", "\"/b\\\"\"", 1), true),
            (source.replacen("\"/a\"", "\"/b\",\"x\":\"\"", 1), false),
            (source.replacen("\"/a\"", "7", 1), false),
            (source.replacen("\"/a\"", "\"/a\\\"b, \\\\\"", 1), true),
            (source.replacen("\"/a\"", "\"/a", 1), false),
            (
                source.replacen("\"/a\"", &format!("\"{}\"", "x".repeat(FOLDER_BYTES)), 1),
                false,
            ),
            (source.replace("\"uuid\":\"2\"", "\"uuid\":\"4\""), false),
            (source.replace("@@@", "@@"), false),
            (source.replace("@@@\n", ""), false),
            (source.replace("\"n\":1", "\"n\":2"), false),
            (format!("{source}\n"), false),
            (source[..source.len() - 3].to_owned(), false),
            (String::new(), false),
        ];
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::write(&from, source).unwrap();
        for (copy, is_like) in table {
            std::fs::write(&to, &copy).unwrap();
            let read = std::cell::Cell::new(0);
            let checked = check_lines(&from, &to, &|bytes| {
                read.set(read.get() + bytes);
                Ok(())
            });
            assert_eq!(checked.is_ok(), is_like, "{copy}");
            if is_like {
                assert_eq!(read.get(), source.len() as u64);
            }
        }
    }
}

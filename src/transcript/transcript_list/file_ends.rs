//! Reads the list entry of a file from its two ends.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::folder_walk::FoundFile;
use super::{Format, ListedTranscript};
use crate::files::open_file;
use crate::transcript::codex::decompressed::DecompressedReader;
use crate::transcript::codex::is_compressed;
use crate::transcript::summary::{END_BYTES, Ends, FAR_HEAD_BYTES, TranscriptSummary};
use crate::transcript::threads;

/// How many threads read. Two are enough: cached files keep one core busy, and the daemon's other work needs the rest.
const THREADS: usize = 2;

/// How far a file's time may be behind the time of the last write: file systems store times in steps, from a tick of the
/// kernel to two seconds (FAT).
const FILE_TIME_STEP: SignedDuration = SignedDuration::from_secs(2);

/// The buffers of one thread, reused for each file.
#[derive(Default)]
pub(super) struct Buffers {
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// Does the work for each item on [`THREADS`] threads. The results are in the order of the items. If a thread
/// panicked, the results of its items are errors, and the next scan reads them again.
pub(super) fn on_threads<T: Sync, A: Send>(
    items: &[T],
    work: impl Fn(&T, &mut Buffers) -> io::Result<Option<A>> + Sync,
) -> Vec<io::Result<Option<A>>> {
    let answers = threads::for_each(items, THREADS, Buffers::default, work).into_iter();
    let failed = || Err(io::Error::other("the thread that read it failed"));
    answers.map(|answer| answer.unwrap_or_else(failed)).collect()
}

/// How much of a file is usually read. Excludes a longer read of the beginning.
pub(super) fn bytes_to_read(found: &FoundFile) -> u64 {
    found.identity.bytes.min(2 * END_BYTES as u64)
}

/// The list entry of a file. `None` if its name has no id.
pub(super) fn read_entry(
    found_file: &FoundFile,
    format: Format,
    buffers: &mut Buffers,
) -> io::Result<Option<ListedTranscript>> {
    let Some(name) = found_file.path.file_name().and_then(|name| name.to_str()) else {
        return Ok(None);
    };
    // A file is identified by its name, here and by the agent, whatever it contains.
    let Some(id) = format.upstream_id(name) else {
        return Ok(None);
    };
    let summary = summary(found_file, format, buffers)?;
    let modified = found_file.identity.modified_at();
    let recorded_at = summary.last_at.and_then(|at| at.parse::<Timestamp>().ok());
    Ok(Some(ListedTranscript {
        upstream_id: id.to_owned(),
        path: Arc::from(found_file.path.as_path()),
        bytes: found_file.identity.bytes,
        // A record cannot be newer than its file, so a later time is ignored.
        updated_at: recorded_at
            .filter(|recorded_at| recorded_at.duration_since(modified) <= FILE_TIME_STEP)
            .unwrap_or(modified),
        title: summary.title.unwrap_or_default(),
        cwd: summary.cwd.unwrap_or_default(),
        forked_from: summary.forked_from,
        is_subagent: summary.is_subagent,
        identity: found_file.identity,
    }))
}

/// The summary from the ends of a file. If there is no title, the last prompt becomes the title.
pub(super) fn summary(
    found_file: &FoundFile,
    format: Format,
    buffers: &mut Buffers,
) -> io::Result<TranscriptSummary> {
    let summarise = |ends: Ends<'_>| format.dialect().summary(ends);
    let mut summary = match is_compressed(&found_file.path) {
        true => read_compressed(found_file, summarise, buffers)?,
        false => read(found_file, summarise, buffers)?,
    };
    summary.title = summary.title.or(summary.last_prompt.take());
    Ok(summary)
}

/// As [`read`], for a compressed file. Reaching its end would require decompressing everything before it, so if the file
/// is longer than the part that is read, the time of the last record is unknown. A damaged file is summarized up to the
/// damage.
fn read_compressed(
    found: &FoundFile,
    summarise: impl Fn(Ends<'_>) -> TranscriptSummary,
    buffers: &mut Buffers,
) -> io::Result<TranscriptSummary> {
    let mut text = DecompressedReader::new(open_file(&found.path)?)?;
    buffers.head.clear();
    let mut summary = TranscriptSummary::default();
    for limit in [END_BYTES, FAR_HEAD_BYTES] {
        let wanted = (limit - buffers.head.len()) as u64;
        let read = text.by_ref().take(wanted).read_to_end(&mut buffers.head);
        if let Err(error) = &read
            // Errors of the decoder have no system error number.
            && error.raw_os_error().is_some()
        {
            return read.map(|_| summary);
        }
        summary = summarise(Ends {
            head: &buffers.head,
            tail: b"",
        });
        let has_reached_end = read.is_ok() && buffers.head.len() < limit;
        if !has_reached_end {
            summary.last_at = None;
        }
        if has_reached_end || read.is_err() || summary.title.is_some() {
            break;
        }
    }
    Ok(summary)
}

/// Reads the ends of a file and summarizes them. Reads more of the beginning if it does not contain the first prompt.
fn read(
    found_file: &FoundFile,
    summarise: impl Fn(Ends<'_>) -> TranscriptSummary,
    buffers: &mut Buffers,
) -> io::Result<TranscriptSummary> {
    let file = open_file(&found_file.path)?;
    let bytes = found_file.identity.bytes;
    let both_ends_bytes = 2 * END_BYTES as u64;
    let head_bytes = if bytes <= both_ends_bytes {
        both_ends_bytes
    } else {
        END_BYTES as u64
    };
    read_at(&file, 0, head_bytes, &mut buffers.head)?;
    buffers.tail.clear();
    if bytes > both_ends_bytes {
        read_at(
            &file,
            bytes - END_BYTES as u64,
            END_BYTES as u64,
            &mut buffers.tail,
        )?;
    }
    let summary = summarise(Ends {
        head: &buffers.head,
        tail: &buffers.tail,
    });
    if summary.title.is_some() || bytes <= both_ends_bytes {
        return Ok(summary);
    }
    read_at(&file, 0, FAR_HEAD_BYTES as u64, &mut buffers.head)?;
    Ok(summarise(Ends {
        head: &buffers.head,
        tail: &buffers.tail,
    }))
}

/// Reads `limit` bytes from an offset, or fewer if the file ends earlier.
fn read_at(file: &File, offset: u64, limit: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.resize(usize::try_from(limit).unwrap_or(0), 0);
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(())
}

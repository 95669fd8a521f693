//! Compares the beginnings of rollouts. If other sessions continue a file, only the part that they use matters.

use std::fs;
use std::io;
use std::path::Path;

use super::text;
use crate::files::identity;
use crate::transcript::TranscriptError;
use crate::transcript::codex::HistoryBase;
use crate::transcript::codex::history::{AppendHandling, CodexHistory};

/// Returns how many bytes of an uncompressed rollout the sessions use that continue it: all, if one of them continues
/// it at its end or there are none.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn continued_bytes<'a>(
    path: &Path,
    bases: impl IntoIterator<Item = &'a HistoryBase>,
) -> Result<u64, TranscriptError> {
    let mut max_bytes = None;
    for base in bases {
        let (text, _) = text::open(path)?;
        let end = CodexHistory::default().read_part(text, &base.upstream_id, base.end);
        let end = end.map_err(TranscriptError::io("read", path))?;
        // Otherwise no record follows the cut, so the whole file is used.
        let counted = (end.append_handling == AppendHandling::Ignore).then_some(end.complete_bytes);
        max_bytes = max_bytes.max(Some(counted.unwrap_or(u64::MAX)));
    }
    let file_bytes = fs::metadata(path)
        .map_err(TranscriptError::io("read", path))?
        .len();
    Ok(max_bytes.unwrap_or(file_bytes).min(file_bytes))
}

/// Whether the first `bytes` of two rollouts' texts are the same, compressed or not. False if one of them is shorter or
/// truncated.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn same_beginning(one: &Path, other: &Path, bytes: u64) -> Result<bool, TranscriptError> {
    let (mut left, mut right) = (text::open(one)?.0, text::open(other)?.0);
    match identity::same_bytes(&mut left, &mut right, bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        alike => alike.map_err(TranscriptError::io("compare", one)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::codex::HistoryEnd;

    #[test]
    fn the_same_up_to_a_place_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let text: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let all = text.len() as u64;
        let whole = at("whole", &text);
        let packed = zstd::encode_all(text.as_slice(), 3).unwrap();
        let with = |place: usize| {
            let mut changed = text.clone();
            changed[place] ^= 1;
            changed
        };
        let others = [
            ("same", text.clone(), true, true),
            ("grown", [&text[..], b"more"].concat(), true, true),
            ("short", text[..1000].to_vec(), false, true),
            ("shorter", text[..999].to_vec(), false, false),
            ("changed", with(999), false, false),
            ("changed-behind", with(1000), false, true),
            ("same.zst", packed.clone(), true, true),
            ("torn.zst", packed[..packed.len() - 9].to_vec(), false, true),
            ("torn-early.zst", packed[..6].to_vec(), false, false),
            ("empty", Vec::new(), false, false),
        ];
        for (name, content, to_the_end, beginning) in others {
            let other = at(name, &content);
            assert_eq!(same_beginning(&whole, &other, all).unwrap(), to_the_end, "{name}");
            assert_eq!(same_beginning(&whole, &other, 1000).unwrap(), beginning, "{name}");
        }
    }

    #[test]
    fn what_counts_is_up_to_the_last_of_the_cuts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source");
        let line = |ordinal: u64| format!("{{\"ordinal\":{ordinal},\"type\":\"x\",\"payload\":{{}}}}\n");
        let text: String = (0..4).map(line).collect();
        fs::write(&path, &text).unwrap();
        let (bytes, all) = (line(0).len() as u64, text.len() as u64);
        let base = |ordinal: Option<u64>, offset: Option<u64>| HistoryBase {
            upstream_id: "s".to_owned(),
            end: HistoryEnd { ordinal, offset },
        };
        let table = [
            (vec![], all),
            (vec![base(Some(2), None)], 2 * bytes),
            (vec![base(None, Some(bytes))], bytes),
            (
                vec![base(Some(1), None), base(Some(3), Some(1)), base(Some(2), None)],
                3 * bytes,
            ),
            // A base at the end of the file, or after it.
            (vec![base(Some(4), None), base(Some(1), None)], all),
            (vec![base(None, None)], all),
            (vec![base(None, Some(u64::MAX))], all),
        ];
        for (bases, counted) in table {
            assert_eq!(continued_bytes(&path, &bases).unwrap(), counted, "{bases:?}");
        }
    }
}

//! Finds what a transcript adds to an earlier copy, if it continues records of the copy that it no longer contains.
//!
//! Pure over any buffered reader.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead};
use std::ops::Range;

use crate::transcript::dialect::Continuation;
use crate::transcript::fields::Fields;
use crate::transcript::lines::{Lines, line_text, trimmed};

/// The beginning of a record as the agent writes it.
const RECORD_START: &[u8] = b"{\"parentUuid\"";

/// Finds the records that `transcript` adds to `kept`, an earlier copy. `None` unless the transcript has lost records:
/// it contains only the beginning of the copy, or nothing of it, and then records that continue the lost ones. A
/// transcript that is damaged in the middle has not lost records in this sense, because records of the copy follow the
/// damage.
///
/// # Errors
/// The readers' errors.
pub(super) fn continuation(
    copy: &mut dyn BufRead,
    transcript: &mut dyn BufRead,
) -> io::Result<Option<Continuation>> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut lines = Lines::new(copy, 0);
    while let Some(line) = lines.next_line()? {
        if let Some(uuid) = Fields::parse(&line_text(line.bytes)).and_then(|record| record.text("uuid")) {
            let position = places.len();
            places.entry(uuid).or_insert(position);
        }
    }
    let mut shared_positions = HashSet::new();
    let (mut added_uuids, mut parents) = (HashSet::new(), Vec::new());
    let mut added: Vec<Range<u64>> = Vec::new();
    let mut lines = Lines::new(transcript, 0);
    while let Some(line) = lines.next_line()? {
        let Some(start) = record_start(line.bytes) else {
            continue;
        };
        let text = line_text(&line.bytes[start..]);
        let Some(record) = Fields::parse(&text) else {
            continue;
        };
        if let Some(uuid) = record.text("uuid") {
            if let Some(position) = places.get(&uuid) {
                shared_positions.insert(*position);
                // The copy also has what precedes this record.
                added.clear();
                continue;
            }
            added_uuids.insert(uuid);
            parents.extend(record.text("parentUuid"));
        }
        let end = line.offset + line.bytes.len() as u64 + u64::from(line.ended);
        added.push(line.offset + start as u64..end);
    }
    parents.retain(|parent| !added_uuids.contains(parent));
    let is_beginning = shared_positions
        .iter()
        .all(|position| *position < shared_positions.len());
    let is_lost = |parent: &String| {
        places
            .get(parent)
            .is_some_and(|position| *position >= shared_positions.len())
    };
    if !is_beginning || !parents.iter().any(is_lost) {
        return Ok(None);
    }
    let is_whole = parents.iter().all(|parent| places.contains_key(parent));
    Ok(Some(Continuation {
        added,
        is_complete: is_whole,
    }))
}

/// Returns where the record in a line begins. If the file was truncated within a record, the rest of that record
/// precedes it. `None` if the line has no record.
fn record_start(line: &[u8]) -> Option<usize> {
    let is_record = |start: &usize| Fields::parse(&line_text(&line[*start..])).is_some();
    if trimmed(line).is_empty() {
        return None;
    }
    std::iter::once(0)
        .chain(memchr::memmem::find_iter(line, RECORD_START))
        .find(is_record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uuid: &str, parent: Option<&str>) -> String {
        serde_json::json!({"parentUuid": parent, "uuid": uuid, "type": "user"}).to_string()
    }

    fn text(lines: &[String]) -> String {
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Returns the text that a transcript adds to a copy, and whether the copy has everything that the text continues.
    fn added(kept: &str, transcript: &str) -> Option<(String, bool)> {
        let found = continuation(&mut kept.as_bytes(), &mut transcript.as_bytes()).unwrap();
        found.map(|found| {
            let parts = found.added.into_iter();
            let parts = parts.map(|part| &transcript[part.start as usize..part.end as usize]);
            (parts.collect(), found.is_complete)
        })
    }

    #[test]
    fn only_what_continues_lost_records_is_added() {
        let [a, b, c] = [record("a", None), record("b", Some("a")), record("c", Some("b"))];
        let [d, e] = [record("d", Some("c")), record("e", Some("d"))];
        let note = r#"{"type":"summary"}"#.to_owned();
        let kept = text(&[note.clone(), a.clone(), b.clone(), c.clone()]);
        let stub = text(&[note.clone(), d.clone(), e.clone()]);
        assert_eq!(added(&kept, &stub), Some((stub.clone(), true)));
        // Cut off between two records, and in the middle of one.
        let new = text(&[d.clone(), e.clone()]);
        let cut = text(&[note.clone(), a.clone(), d.clone(), e.clone()]);
        assert_eq!(added(&kept, &cut), Some((new.clone(), true)));
        let torn = text(&[note.clone(), a.clone(), format!("{}{d}", &b[..9]), e.clone()]);
        assert_eq!(added(&kept, &torn), Some((new, true)));
        // The copy lacks a record that the transcript continues.
        let later = record("f", Some("lost"));
        let more = text(&[d.clone(), later]);
        assert_eq!(added(&kept, &more), Some((more.clone(), false)));
        // The transcript is complete, has grown, was truncated without a continuation, or is damaged in the middle.
        for whole in [
            kept.clone(),
            text(&[a.clone(), b.clone(), c.clone(), d.clone()]),
            text(&[a.clone(), b.clone()]),
            text(&[a.clone(), "garbage".to_owned(), c.clone(), d.clone()]),
            text(&[record("x", None), record("y", Some("x"))]),
            String::new(),
        ] {
            assert_eq!(added(&kept, &whole), None, "{whole}");
        }
        assert_eq!(added(&text(&[a, b, c, d.clone()]), &text(&[d, e])), None);
    }
}

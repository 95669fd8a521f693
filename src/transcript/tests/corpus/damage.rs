//! Transcripts of real agents with all damage that a disk, a crash or an editor can do. Whatever the damage, they are
//! read to their end without a crash, the results are consistent, a line that is not a record is reported, and reading
//! a growing file gives the same result as reading it once at the end.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{HOME, corpus, id_of, lines};
use crate::transcript::TranscriptError;
use crate::transcript::claude::reading;
use crate::transcript::codex::rollouts;
use crate::transcript::dialect::AgentHome;
use crate::transcript::index_cache::IndexCache;
use crate::transcript::message::TranscriptMessage;
use crate::transcript::open_transcript::BoxedTranscript;
use crate::transcript::transcript_list::{Format, TranscriptList};
use bridge_protocol::check::FindingKind;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;
use tempfile::TempDir;

/// One way to damage a file; places are shares of its length.
#[derive(Debug, Clone)]
enum Damage {
    /// The file ends here.
    Cut(f64),
    /// Bytes are written over others.
    Overwrite(f64, Vec<u8>),
    /// Bytes are put in.
    Insert(f64, Vec<u8>),
    /// A line is left out.
    Drop(f64),
    /// A line is written a second time, behind another.
    Repeat(f64, f64),
    /// Two lines change places.
    Swap(f64, f64),
    /// A line end is lost.
    Join(f64),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = || 0.0..1.0_f64;
    let bytes = || {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..12),
            Just(vec![0; 300]),
            Just(b"\n".to_vec()),
            Just(b"}\n{".to_vec()),
            Just(b"\"".to_vec()),
            Just(b"\\".to_vec()),
            Just(b"\xEF\xBB\xBF".to_vec()),
            Just(b"{\"type\":\"new-kind-of-record\",\"uuid\":\"x\"}\n".to_vec()),
            Just(vec![b'['; 4_000]),
        ]
    };
    prop_oneof![
        place().prop_map(Damage::Cut),
        (place(), bytes()).prop_map(|(at, bytes)| Damage::Overwrite(at, bytes)),
        (place(), bytes()).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        place().prop_map(Damage::Drop),
        (place(), place()).prop_map(|(line, behind)| Damage::Repeat(line, behind)),
        (place(), place()).prop_map(|(one, other)| Damage::Swap(one, other)),
        place().prop_map(Damage::Join),
    ]
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a place within a short file"
)]
fn at(share: f64, length: usize) -> usize {
    ((share * length as f64) as usize).min(length.saturating_sub(1))
}

fn damaged(mut content: Vec<u8>, damage: &Damage) -> Vec<u8> {
    if content.is_empty() {
        return content;
    }
    let mut all = lines(&content);
    match damage {
        Damage::Cut(share) => content.truncate(at(*share, content.len())),
        Damage::Overwrite(share, bytes) => {
            let start = at(*share, content.len());
            let end = (start + bytes.len()).min(content.len());
            content.splice(start..end, bytes.iter().copied().take(end - start));
        }
        Damage::Insert(share, bytes) => {
            let start = at(*share, content.len());
            content.splice(start..start, bytes.iter().copied());
        }
        Damage::Drop(share) => {
            all.remove(at(*share, all.len()));
            content = all.concat();
        }
        Damage::Repeat(share, behind) => {
            let line = all[at(*share, all.len())].clone();
            all.insert(at(*behind, all.len()) + 1, line);
            content = all.concat();
        }
        Damage::Swap(one, other) => {
            let (one, other) = (at(*one, all.len()), at(*other, all.len()));
            all.swap(one, other);
            content = all.concat();
        }
        Damage::Join(share) => {
            let line = at(*share, all.len());
            all[line].pop();
            content = all.concat();
        }
    }
    content
}

/// The numbers of the lines that are no record for the agent: Claude Code replaces bytes that are not UTF-8, and passes over
/// NUL bytes and byte order marks before a record, as does Qwen Code; Codex takes neither.
fn garbage(content: &[u8], format: Format) -> BTreeSet<u64> {
    let is_garbage = |line: &[u8]| {
        let passed_over: &[char] = match format {
            Format::Claude | Format::Qwen => &[' ', '\t', '\r', '\n', '\0'],
            Format::Codex => &[' ', '\t', '\r', '\n'],
        };
        let text = match format {
            Format::Claude | Format::Qwen => String::from_utf8_lossy(line),
            Format::Codex => match std::str::from_utf8(line) {
                Ok(text) => text.into(),
                Err(_) => return true,
            },
        };
        let mut record = text.trim_matches(passed_over);
        while format != Format::Codex
            && let Some(behind) = record.strip_prefix('\u{feff}')
        {
            record = behind.trim_start_matches(passed_over);
        }
        let is_object = |value: Result<Value, _>| matches!(value, Ok(Value::Object(_)));
        let is_record = match format {
            // It finds several in one line.
            Format::Qwen => serde_json::Deserializer::from_str(record)
                .into_iter()
                .all(is_object),
            Format::Claude | Format::Codex => is_object(serde_json::from_str(record)),
        };
        !record.is_empty() && !is_record
    };
    let numbered = (1..).zip(lines(content));
    numbered
        .filter(|(_, line)| is_garbage(line))
        .map(|(number, _)| number)
        .collect()
}

/// The agent's folder, as each of the formats has it.
struct Root {
    folder: TempDir,
    format: Format,
}

impl Root {
    fn new(format: Format) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("projects/-home-u-project/chats")).unwrap();
        fs::create_dir_all(folder.path().join("sessions/2026/11/01")).unwrap();
        Self { folder, format }
    }

    fn path(&self, id: &str) -> PathBuf {
        let name = match self.format {
            Format::Claude => format!("projects/-home-u-project/{id}.jsonl"),
            Format::Codex => format!("sessions/2026/11/01/rollout-2026-11-01T10-00-00-{id}.jsonl"),
            Format::Qwen => format!("projects/-home-u-project/chats/{id}.jsonl"),
        };
        self.folder.path().join(name)
    }

    fn open(&self, library: &IndexCache, id: &str) -> Result<BoxedTranscript, TranscriptError> {
        match self.format {
            Format::Claude => Ok(Box::new(library.open(&self.path(id), None)?)),
            Format::Codex | Format::Qwen => {
                let root = self.folder.path();
                let session = AgentHome {
                    index_cache: library,
                    root,
                }
                .session(Some(HOME), id);
                self.format.dialect().open(session, None)
            }
        }
    }

    /// The lines that are told to be no record.
    fn told_garbage(&self, id: &str) -> BTreeSet<u64> {
        let report = match self.format {
            Format::Claude => reading::check(&self.path(id)),
            Format::Codex => rollouts::check(self.folder.path(), id),
            Format::Qwen => self
                .format
                .dialect()
                .check_copy(self.folder.path(), Path::new(HOME), id),
        };
        let findings = report.unwrap().findings.into_iter();
        let kinds = [
            FindingKind::GarbageLine,
            FindingKind::TornLine,
            FindingKind::OversizedLine,
        ];
        findings
            .filter(|finding| kinds.contains(&finding.kind))
            .map(|finding| finding.line)
            .collect()
    }

    fn titles(&self) -> Vec<String> {
        let mut shelf = TranscriptList::default();
        shelf.scan(self.folder.path(), self.format);
        shelf
            .entries_after(None)
            .map(|entry| entry.title.clone())
            .collect()
    }
}

type Told = Vec<(String, Option<TranscriptMessage>)>;

/// All of it, held to what it says of itself.
fn read(mut opened: BoxedTranscript) -> Result<Told, TestCaseError> {
    let mut told = Vec::new();
    let mut last: Range<usize> = 0..0;
    for turn in 0..opened.turns() {
        let range = opened.turn(turn);
        prop_assert!(
            last.end <= range.start && range.end <= opened.messages(),
            "turn {turn}"
        );
        for message in range.clone() {
            prop_assert_eq!(opened.turn_of(message), Some(turn));
        }
        last = range;
    }
    for message in 0..opened.messages() {
        told.push((opened.record_id(message), opened.message(message).unwrap()));
    }
    Ok(told)
}

fn holds(format: Format, id: &str, content: &[u8], grown_from: f64) -> Result<(), TestCaseError> {
    let root = Root::new(format);
    let path = root.path(id);
    // As it grew: first a part of it, which is read, then all.
    let library = IndexCache::default();
    let part = content.get(..at(grown_from, content.len())).unwrap_or_default();
    fs::write(&path, part).unwrap();
    let _part = root.open(&library, id);
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, &content[part.len()..]).unwrap();
    let grown = root.open(&library, id).map(read);
    let fresh = root.open(&IndexCache::default(), id).map(read);
    match (grown, fresh) {
        (Ok(grown), Ok(fresh)) => prop_assert_eq!(grown?, fresh?),
        (grown, fresh) => prop_assert!(false, "{:?} {:?}", grown, fresh),
    }
    prop_assert_eq!(root.titles().len(), 1);
    prop_assert_eq!(root.told_garbage(id), garbage(content, format));
    Ok(())
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(std::env::var("DAMAGES").map_or(64, |cases| cases.parse().unwrap()))
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_claude_wrote_and_something_damaged(
        which in any::<Index>(),
        damages in proptest::collection::vec(damage(), 1..4),
        grown_from in 0.0..1.0_f64,
    ) {
        any_damage(Format::Claude, which, &damages, grown_from)?;
    }

    #[test]
    fn what_codex_wrote_and_something_damaged(
        which in any::<Index>(),
        damages in proptest::collection::vec(damage(), 1..4),
        grown_from in 0.0..1.0_f64,
    ) {
        any_damage(Format::Codex, which, &damages, grown_from)?;
    }

    #[test]
    fn what_qwen_wrote_and_something_damaged(
        which in any::<Index>(),
        damages in proptest::collection::vec(damage(), 1..4),
        grown_from in 0.0..1.0_f64,
    ) {
        any_damage(Format::Qwen, which, &damages, grown_from)?;
    }
}

fn any_damage(
    format: Format,
    which: Index,
    damages: &[Damage],
    grown_from: f64,
) -> Result<(), TestCaseError> {
    let corpus = corpus(format);
    let (_, whole) = which.get(&corpus);
    let content = damages.iter().fold(whole.clone(), damaged);
    holds(format, &id_of(whole, format), &content, grown_from)
}

//! Checks a transcript for damage, and determines what the damage does to a resume.
//!
//! The effects of damage on what the model is sent were observed with Qwen Code 0.24.4: it skips lines that are not records,
//! blank lines and byte order marks; it fills in the missing result of a call, and leaves out a result without a call; of two
//! records with one uuid it sends both. It sends nothing before a missing parent. An incomplete last line does no harm until
//! the agent appends its next record to the same line. It refuses a transcript whose records name several sessions or another
//! one, and one that began in another folder. Pure.

use std::collections::HashSet;
use std::io::{self, BufRead};
use std::iter;

use bridge_protocol::check::FindingKind;

use super::index::{Branch, QwenIndex};
use super::message::parts;
use super::record::{RecordHeader, RecordKind, for_each_record};
use crate::transcript::check::{CheckReport, Findings, hash_of, quoted};
use crate::transcript::fields::Fields;
use crate::transcript::lines::{LINE_LIMIT_BYTES, Lines};
use crate::transcript::message::ContentPart;
use crate::transcript::record_id::RecordId;

/// What the caller knows about the file from its location.
#[derive(Debug, Clone, Copy)]
pub(super) struct TranscriptContext<'a> {
    /// The session, from the file's name.
    pub(super) id: &'a str,
    /// The folder in which the session runs, if known, and whether the file is where the agent looks for it then.
    pub(super) cwd: Option<(&'a str, bool)>,
}

#[derive(Default)]
struct Checker {
    findings: Findings,
    /// The line of each entry of the index.
    lines: Vec<u64>,
    /// The calls and results: the line, a hash of the id, and the tool of a call.
    items: Vec<(u64, u64, Option<String>)>,
    /// The folder that the first record names.
    first_cwd: Option<Option<String>>,
    is_foreign: bool,
}

/// Checks a transcript from its first byte; `index` is its index.
///
/// # Errors
/// The reader's error.
pub(super) fn check(
    reader: impl BufRead,
    index: &QwenIndex,
    context: TranscriptContext<'_>,
) -> io::Result<CheckReport> {
    let mut checker = Checker::default();
    let (mut lines, mut number) = (Lines::new(reader, 0), 0);
    while let Some(line) = lines.next_line()? {
        number += 1;
        if line.oversized {
            let mib = LINE_LIMIT_BYTES >> 20;
            let detail = format!("longer than {mib} MiB and not read here; the agent may fail to read it");
            checker.findings.add(number, FindingKind::OversizedLine, detail);
            continue;
        }
        let has_garbage = for_each_record(line.bytes, |_, fields| checker.record(number, fields, context));
        match (has_garbage, line.ended) {
            (false, _) => {}
            (true, true) => checker.findings.add(
                number,
                FindingKind::GarbageLine,
                "not a record: a resume passes over it, and what it said is lost",
            ),
            (true, false) => checker.findings.add(
                number,
                FindingKind::TornLine,
                "breaks off within a record: its writer was stopped, or still writes. The agent appends its next record to this \
                 line, and the resume after that loses all that stands before; end the line with a line break to keep it",
            ),
        }
    }
    Ok(checker.finish(index, context))
}

impl Checker {
    fn record(&mut self, line: u64, fields: &Fields<'_>, place: TranscriptContext<'_>) {
        self.first_cwd.get_or_insert_with(|| fields.text("cwd"));
        let Some(header) = RecordHeader::of(fields) else {
            return;
        };
        self.lines.push(line);
        if header.session != place.id && !self.is_foreign {
            self.is_foreign = true;
            let detail = format!(
                "names session {} as its own, and the file is of another: Qwen Code refuses to resume it",
                quoted(&header.session)
            );
            self.findings
                .add_refusal(line, FindingKind::ForeignSessionId, detail);
        }
        if !header.kind.is_message() || header.kind == RecordKind::Compaction {
            return;
        }
        for part in parts(fields) {
            match part {
                ContentPart::ToolCall { id, name, .. } => {
                    self.items.push((line, hash_of(&id), Some(quoted(&name))));
                }
                ContentPart::ToolResult { call_id, .. } => self.items.push((line, hash_of(&call_id), None)),
                _ => {}
            }
        }
    }

    fn finish(mut self, index: &QwenIndex, place: TranscriptContext<'_>) -> CheckReport {
        let branch = index.branch(None);
        let is_empty = !index.entries.iter().any(|entry| entry.kind.is_message());
        if is_empty || branch.is_none() {
            let detail = "holds no message of a conversation: Qwen Code refuses to resume it".to_owned();
            self.findings.add_refusal(0, FindingKind::NothingToResume, detail);
        } else if let Some((cwd, is_there)) = place.cwd {
            let began = self.first_cwd.clone().flatten();
            if !is_there || began.as_deref() != Some(cwd) {
                let began = began.map_or_else(|| "no folder".to_owned(), |began| quoted(&began));
                let detail = format!(
                    "it began in {began}, and its session is to run in {cwd}: Qwen Code resumes a session only where it began"
                );
                self.findings.add_refusal(0, FindingKind::OtherCopy, detail);
            }
        }
        let branch = branch.unwrap_or_default();
        self.chain(index, &branch);
        self.calls(index, &branch);
        self.findings.into_report()
    }

    /// The line of an entry, or 0 if the file was changed after it was indexed.
    fn line_of(&self, position: u32) -> u64 {
        self.lines.get(position as usize).copied().unwrap_or_default()
    }

    fn chain(&mut self, index: &QwenIndex, branch: &Branch) {
        for position in (0..).take(index.entries.len()) {
            let entry = &index.entries[position as usize];
            if index.is_repeated(position) {
                let detail = "the uuid stood before: a resume sends the model what both records say";
                self.findings
                    .add(self.line_of(position), FindingKind::DuplicateUuid, detail);
                continue;
            }
            let is_end = branch.broken_at == Some(position);
            let is_missing = entry
                .parent
                .as_ref()
                .is_some_and(|parent| !index.contains(parent));
            if !is_end && !is_missing {
                continue;
            }
            let parent = entry.parent.as_ref().map_or_else(String::new, RecordId::text);
            let effect = match is_end {
                true => "a resume begins here, and what stands before is not sent to the model",
                false => "a resume does not come here",
            };
            let what = match is_missing {
                true => format!("the parent {parent} is missing"),
                false => format!("the parents form a loop through {parent}"),
            };
            self.findings.add(
                self.line_of(position),
                FindingKind::BrokenParent,
                format!("{what}: {effect}"),
            );
        }
    }

    /// Reports unmatched calls and results on the branch that a resume continues.
    fn calls(&mut self, index: &QwenIndex, branch: &Branch) {
        let compacted = |position: &&u32| index.entries[**position as usize].kind == RecordKind::Compaction;
        let first = branch
            .positions
            .iter()
            .rposition(|position| compacted(&position))
            .unwrap_or(0);
        let sent = branch.positions[first.min(branch.positions.len())..].iter();
        let sent = sent.flat_map(|position| iter::once(position).chain(index.repeats(*position)));
        let lines: HashSet<u64> = sent.map(|position| self.line_of(*position)).collect();
        let items: Vec<_> = std::mem::take(&mut self.items)
            .into_iter()
            .filter(|(line, ..)| lines.contains(line))
            .collect();
        let ids = |are_calls: bool| -> HashSet<u64> {
            let items = items.iter().filter(|(_, _, tool)| tool.is_some() == are_calls);
            items.map(|(_, id, _)| *id).collect()
        };
        let (calls, results) = (ids(true), ids(false));
        for (line, id, tool) in &items {
            match tool {
                Some(tool) if !results.contains(id) => self.findings.add(
                    *line,
                    FindingKind::ToolUseWithoutResult,
                    format!("the call of {tool} has no result: a resume fills in that it was not recorded"),
                ),
                None if !calls.contains(id) => self.findings.add(
                    *line,
                    FindingKind::ResultWithoutToolUse,
                    "the call of this result is missing: a resume leaves the result out",
                ),
                _ => {}
            }
        }
    }
}

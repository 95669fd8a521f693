//! Checks a rollout for damage, and determines what the damage does to a resume.
//!
//! One pass over the bytes, in some tens of bytes for each tool call however long the lines are; changes nothing. The
//! effects of damage on a resume were observed with Codex 0.166.0: a line that is not a record is skipped, and nothing else
//! is lost, even if it was the beginning or end of a turn; a call without a result gets "aborted" as its result, and a
//! result without a call is left out; a duplicate record is sent twice, and ordinals that decrease change nothing. Codex
//! refuses a file whose first line is not a `session_meta` (in files of the first versions it is not), a source that is
//! missing or shorter than before, and a truncated compressed file. Pure; the caller provides the state of the sources.

mod facts;

use std::collections::HashSet;
use std::io::{self, BufRead};

use bridge_protocol::check::FindingKind;

use super::facts::{LineFacts, LineRole, MEMBERS};
use super::history::CodexHistory;
use super::line::{Meta, RolloutLine};
use crate::transcript::check::{Calls, CheckReport, Findings, UNCHECKED_CALLS_NOTE, quoted};
use crate::transcript::lines::LINE_LIMIT_BYTES;
use crate::transcript::scan::{LinePosition, PrunedLine, PrunedLines, Scanned};
use facts::call_or_result;

/// What the caller knows about the file from its location.
#[derive(Debug)]
pub struct RolloutContext<'a> {
    /// The session, from the file's name.
    pub upstream_id: &'a str,
    /// Whether it is in the archive folder.
    pub is_archived: bool,
    /// Whether it continues the file of another session.
    pub is_continuation: bool,
    /// The sessions that it continues whose files are missing, too short or unreadable, with the reasons.
    pub broken_sources: Vec<(String, String)>,
}

/// Checks a rollout from its first byte.
///
/// # Errors
/// The reader's error. A truncated compressed file is a finding instead.
pub fn check(reader: impl BufRead, standing: &RolloutContext<'_>) -> io::Result<CheckReport> {
    let mut checker = Checker {
        context: standing,
        findings: Findings::default(),
        records: 0,
        history: CodexHistory::default(),
        last_ordinal: None,
        calls: Some(Calls::default()),
    };
    let mut lines = PrunedLines::new(reader, 0, &MEMBERS);
    loop {
        match lines.next_line() {
            Ok(Some(line)) => checker.line(&line),
            Ok(None) => return Ok(checker.finish()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let detail = "the compressed file breaks off here: Codex refuses to resume the session, and what came behind \
                              is lost";
                checker
                    .findings
                    .add_refusal(lines.position().number, FindingKind::TornLine, detail);
                return Ok(checker.finish());
            }
            Err(error) => return Err(error),
        }
    }
}

struct Checker<'a> {
    context: &'a RolloutContext<'a>,
    findings: Findings,
    records: u64,
    /// The history. It lacks the turns that the user took back, which stay in the file.
    history: CodexHistory,
    last_ordinal: Option<u64>,
    /// `None` if some calls or results were not read.
    calls: Option<Calls>,
}

impl Checker<'_> {
    fn line(&mut self, line: &PrunedLine<'_>) {
        let number = line.position.number;
        if line.is_too_long() {
            let detail = format!(
                "longer than {} MiB and not read here; an agent may take long or fail to read it; {UNCHECKED_CALLS_NOTE}",
                LINE_LIMIT_BYTES >> 20
            );
            self.findings.add(number, FindingKind::OversizedLine, detail);
            self.calls = None;
            return;
        }
        match &line.content {
            Scanned::Record(record) => self.record(line.position, &RolloutLine::of(record.fields())),
            Scanned::Blank => {}
            Scanned::Garbage if !line.ended => self.findings.add(
                number,
                FindingKind::TornLine,
                "ends within a record: the program that wrote it was stopped or still writes; a resume skips it",
            ),
            Scanned::Garbage if self.records == 0 => self.findings.add_refusal(
                number,
                FindingKind::GarbageLine,
                "the first line should name the session, but is not a record: Codex refuses to resume the session",
            ),
            Scanned::Garbage => self.findings.add(
                number,
                FindingKind::GarbageLine,
                "not a record: a resume skips it, and its content is lost; a fork after it cannot be resumed if the line \
                 no longer has its old length",
            ),
        }
    }

    fn record(&mut self, position: LinePosition, line: &RolloutLine<'_>) {
        let number = position.number;
        let facts = LineFacts::of(line);
        self.records += 1;
        if self.records == 1 {
            let meta = match &facts.role {
                LineRole::Meta(meta) => Some(&**meta),
                _ => None,
            };
            self.first(number, meta, line.has_envelope);
        }
        if let Some(ordinal) = facts.ordinal {
            self.ordinal(number, ordinal);
        }
        // Ignore the result: this history ends with the file, not at a turn.
        let _goes_on = self.history.apply_line(position.offset, facts);
        if let Some((calls, item)) = self.calls.as_mut().zip(call_or_result(line)) {
            calls.add(position, item);
        }
    }

    fn first(&mut self, number: u64, meta: Option<&Meta>, has_envelope: bool) {
        match meta.and_then(|meta| meta.upstream_id.as_deref()) {
            None => self.findings.add_refusal(
                number,
                FindingKind::NothingToResume,
                "the first record does not name the session: Codex refuses to resume the session",
            ),
            Some(id) if id != self.context.upstream_id => {
                let detail = format!(
                    "it belongs to session {}, but its file name has another id: Codex opens it, and then fails each prompt \
                     with \"thread not found\"",
                    quoted(id)
                );
                self.findings.add_refusal(number, FindingKind::ForeignSessionId, detail);
            }
            Some(_) if !has_envelope => self.findings.add_refusal(
                number,
                FindingKind::NothingToResume,
                "an early version of Codex wrote it, and current versions refuse to resume it; it can still be read",
            ),
            Some(_) => {}
        }
    }

    fn ordinal(&mut self, number: u64, ordinal: u64) {
        if let Some(last) = self.last_ordinal.filter(|last| ordinal <= *last) {
            let detail = if ordinal == last {
                format!(
                    "an earlier record has the same ordinal {ordinal}: a resume sends both records to the model"
                )
            } else {
                format!(
                    "the ordinal {ordinal} follows {last}: a resume uses the order of the lines; a fork uses ordinals and \
                     may cut at another place"
                )
            };
            self.findings.add(number, FindingKind::BrokenOrder, detail);
        }
        self.last_ordinal = self.last_ordinal.max(Some(ordinal));
    }

    fn finish(mut self) -> CheckReport {
        let history = std::mem::take(&mut self.history);
        if self.records == 0 || (history.turns.is_empty() && !self.context.is_continuation) {
            let detail = if self.records == 0 {
                "it contains no record of a session: Codex refuses to resume the session"
            } else {
                "it contains no prompt, or all prompts were taken back, so there is no turn to continue"
            };
            self.findings.add(0, FindingKind::NothingToResume, detail);
        }
        if self.context.is_archived {
            let detail = format!(
                "it is archived: Codex refuses to resume it until you run `codex unarchive {}`",
                self.context.upstream_id
            );
            self.findings.add(0, FindingKind::Archived, detail);
        }
        for (source, why) in &self.context.broken_sources {
            let detail = format!(
                "the session begins in the file of session {}, which {why}: Codex refuses to resume the session, and the \
                 turns of that file are missing from its history",
                quoted(source)
            );
            self.findings.add_refusal(1, FindingKind::MissingSource, detail);
        }
        let (calls, unasked) = self.calls.take().unwrap_or_default().unmatched();
        let history_offsets: HashSet<u64> = history.entries.iter().map(|entry| entry.offset).collect();
        for (position, tool) in calls
            .into_iter()
            .filter(|(position, _)| history_offsets.contains(&position.offset))
        {
            let detail = format!(
                "the tool {tool} was called and has no result: a resume works, and the model gets \"aborted\" as the \
                 result"
            );
            self.findings
                .add(position.number, FindingKind::ToolUseWithoutResult, detail);
        }
        for position in unasked
            .into_iter()
            .filter(|position| history_offsets.contains(&position.offset))
        {
            let detail = "the result of a tool whose call is missing: a resume leaves it out";
            self.findings
                .add(position.number, FindingKind::ResultWithoutToolUse, detail);
        }
        self.findings.into_report()
    }
}

#[cfg(test)]
mod tests;

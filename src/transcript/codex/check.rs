//! What is wrong with a rollout, and what that does to a resume.
//!
//! One pass over the bytes, in some tens of bytes a call of a tool and however long the lines are; changes nothing. What a
//! resume makes of damage was seen with Codex 0.166.0: a line that is no record is passed over and lost alone, also one that
//! tells of a turn's beginning or end; a call without a result gets "aborted" as its result, a result without a call is left
//! out; a record that stands there twice is sent twice, and ordinals that go back change nothing. A file whose first line is
//! no `session_meta` (that of a first version is none), a source that is not there or shorter than it was, and a compressed
//! file that breaks off make it refuse. Pure; how the sources stand is said by the caller.

mod facts;

use std::collections::HashMap;
use std::io::{self, BufRead};

use bridge_protocol::check::FindingKind;

use super::facts::{LineFacts, LineRole, MEMBERS};
use super::line::{Meta, RolloutLine};
use crate::transcript::check::{CALLS_UNTOLD, Findings, Item, Report, quoted};
use crate::transcript::lines::LINE_LIMIT_BYTES;
use crate::transcript::scan::{PrunedLine, PrunedLines, Scanned};
use facts::ItemFacts;

/// What is known of the file from where it lies.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// The session, by the file's name.
    pub upstream_id: &'a str,
    /// Whether it lies among the archived ones.
    pub archived: bool,
}

/// How a file stands that a session continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStanding {
    /// The session that is continued.
    pub upstream_id: String,
    /// How its file stands.
    pub state: SourceState,
}

/// How a source stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceState {
    /// It reaches as far as it counts.
    Whole,
    /// It ends before, or was written anew: no line ends where it should.
    TooShort,
    /// It is not there.
    Missing,
    /// It cannot be read, for this reason.
    Unreadable(String),
    /// It continues the session itself, or there is no end to it.
    Circle,
}

/// Checks a rollout, from its first byte on.
///
/// # Errors
/// What the reader answers, but for a compressed file that breaks off, which is a finding.
pub fn check(reader: impl BufRead, standing: Standing<'_>, sources: &[SourceStanding]) -> io::Result<Report> {
    let mut checker = Checker {
        standing,
        findings: Findings::default(),
        records: 0,
        turns: Turns::default(),
        last_ordinal: None,
        calls: HashMap::new(),
        are_calls_known: true,
        unasked: Vec::new(),
        version: None,
    };
    let mut lines = PrunedLines::new(reader, 0, &MEMBERS);
    loop {
        match lines.next_line() {
            Ok(Some(line)) => checker.line(&line),
            Ok(None) => return Ok(checker.finish(sources)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let detail = "the compressed file breaks off here: Codex refuses to resume the session, and what came behind \
                              is lost";
                checker
                    .findings
                    .refuse(lines.position().number, FindingKind::TornLine, detail);
                return Ok(checker.finish(sources));
            }
            Err(error) => return Err(error),
        }
    }
}

/// The turns that stand, as a book counts them: what a person went back behind is in the file, and no part of the history.
#[derive(Default)]
struct Turns {
    /// The turn that runs, as far as the file says, the line that it began in, and whether somebody has asked by now.
    current: Option<Box<str>>,
    pending: u64,
    asked: bool,
    /// The lines in which they began.
    begun: Vec<u64>,
    /// The first and the last line of each part that was gone back behind; ascending.
    taken_back: Vec<(u64, u64)>,
}

impl Turns {
    fn take(&mut self, line: u64, facts: &LineFacts) {
        if facts.turn_id.is_some() && self.current != facts.turn_id {
            self.current.clone_from(&facts.turn_id);
            self.open(line);
        }
        match facts.role {
            LineRole::Prompt if !self.asked || self.current.is_none() => {
                if self.current.is_none() {
                    self.pending = line;
                }
                self.asked = true;
                self.begun.push(self.pending);
            }
            LineRole::RolledBack(turns) => {
                self.roll_back(turns, line);
                self.current = None;
                self.open(line);
            }
            _ => {}
        }
    }

    fn open(&mut self, line: u64) {
        self.pending = line;
        self.asked = false;
    }

    fn roll_back(&mut self, turns: u64, line: u64) {
        let turns = usize::try_from(turns).unwrap_or(usize::MAX);
        let kept = self.begun.len().saturating_sub(turns);
        let Some(first) = self.begun.get(kept).copied() else {
            return;
        };
        self.begun.truncate(kept);
        // Earlier ones behind that lie within it.
        while self.taken_back.pop_if(|(begun, _)| *begun >= first).is_some() {}
        self.taken_back.push((first, line));
    }

    /// Whether what stands in a line is part of the history.
    fn hold(&self, line: u64) -> bool {
        let begun = self.taken_back.partition_point(|(first, _)| *first <= line);
        let before = begun
            .checked_sub(1)
            .and_then(|before| self.taken_back.get(before));
        before.is_none_or(|(_, last)| *last < line)
    }
}

struct Checker<'a> {
    standing: Standing<'a>,
    findings: Findings,
    records: u64,
    turns: Turns,
    last_ordinal: Option<u64>,
    /// The line and the tool of each call, by a hash of its id; none once the result was seen.
    calls: HashMap<u64, Option<(u64, String)>>,
    /// Whether all calls and results were noted.
    are_calls_known: bool,
    /// The lines of results whose calls were not seen before.
    unasked: Vec<u64>,
    /// The version of Codex that began the session.
    version: Option<String>,
}

impl Checker<'_> {
    fn line(&mut self, line: &PrunedLine<'_>) {
        let number = line.position.number;
        if line.is_too_long() {
            let detail = format!(
                "longer than {} MiB and not read here; an agent may take long or fail to read it; {CALLS_UNTOLD}",
                LINE_LIMIT_BYTES >> 20
            );
            self.findings.add(number, FindingKind::OversizedLine, detail);
            self.are_calls_known = false;
            return;
        }
        match &line.what {
            Scanned::Record(record) => self.record(number, &RolloutLine::of(record.fields())),
            Scanned::Blank => {}
            Scanned::Garbage if !line.ended => self.findings.add(
                number,
                FindingKind::TornLine,
                "ends within a record: the program that wrote it was stopped or still writes; a resume skips it",
            ),
            Scanned::Garbage if self.records == 0 => self.findings.refuse(
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

    fn record(&mut self, number: u64, line: &RolloutLine<'_>) {
        let (facts, said) = (LineFacts::of(line), ItemFacts::of(line));
        self.records += 1;
        if self.records == 1 {
            self.version = said.version;
            let meta = match &facts.role {
                LineRole::Meta(meta) => Some(&**meta),
                _ => None,
            };
            self.first(number, meta, line.has_envelope);
        }
        if let Some(ordinal) = facts.ordinal {
            self.ordinal(number, ordinal);
        }
        if let Some(strange) = said.strange {
            self.findings.add_strange(number, strange, || {
                let version = self.version.as_ref()?;
                Some(format!("in a session that version {version} of the agent began"))
            });
        }
        self.turns.take(number, &facts);
        match said.item {
            Some(Item::Call { id, tool }) => drop(self.calls.insert(id, Some((number, tool)))),
            Some(Item::Result { id }) => match self.calls.get_mut(&id) {
                Some(call) => *call = None,
                None => self.unasked.push(number),
            },
            None => {}
        }
    }

    fn first(&mut self, number: u64, meta: Option<&Meta>, has_envelope: bool) {
        match meta.and_then(|meta| meta.upstream_id.as_deref()) {
            None => self.findings.refuse(
                number,
                FindingKind::NothingToResume,
                "the first record does not name the session: Codex refuses to resume the session",
            ),
            Some(id) if id != self.standing.upstream_id => {
                let detail = format!(
                    "it belongs to session {}, but its file name has another id: Codex opens it, and then fails each prompt \
                     with \"thread not found\"",
                    quoted(id)
                );
                self.findings.refuse(number, FindingKind::ForeignSessionId, detail);
            }
            Some(_) if !has_envelope => self.findings.refuse(
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

    fn finish(mut self, sources: &[SourceStanding]) -> Report {
        if self.records == 0 || (self.turns.begun.is_empty() && sources.is_empty()) {
            let detail = if self.records == 0 {
                "it contains no record of a session: Codex refuses to resume the session"
            } else {
                "it contains no prompt, or all prompts were taken back, so there is no turn to continue"
            };
            self.findings.add(0, FindingKind::NothingToResume, detail);
        }
        if self.standing.archived {
            let detail = format!(
                "it is archived: Codex refuses to resume it until you run `codex unarchive {}`",
                self.standing.upstream_id
            );
            self.findings.add(0, FindingKind::Archived, detail);
        }
        for source in sources {
            let why = match &source.state {
                SourceState::Whole => continue,
                SourceState::TooShort => {
                    "is shorter than it was when this session was forked, or was rewritten".to_owned()
                }
                SourceState::Missing => "is missing".to_owned(),
                SourceState::Unreadable(why) => format!("cannot be read ({why})"),
                SourceState::Circle => "continues this session in turn, or is an endless chain".to_owned(),
            };
            let detail = format!(
                "the session begins in the file of session {}, which {why}: Codex refuses to resume the session, and the \
                 turns of that file are missing from its history",
                quoted(&source.upstream_id)
            );
            self.findings.refuse(1, FindingKind::MissingSource, detail);
        }
        if self.are_calls_known {
            self.judge_calls();
        }
        self.findings.into_report()
    }

    fn judge_calls(&mut self) {
        let mut calls: Vec<_> = std::mem::take(&mut self.calls).into_values().flatten().collect();
        calls.retain(|(line, _)| self.turns.hold(*line));
        calls.sort();
        for (line, tool) in calls {
            let detail = format!(
                "the tool {tool} was called and has no result: a resume works, and the model gets \"aborted\" as the \
                 result"
            );
            self.findings.add(line, FindingKind::ToolUseWithoutResult, detail);
        }
        for line in std::mem::take(&mut self.unasked) {
            if self.turns.hold(line) {
                let detail = "the result of a tool whose call is missing: a resume leaves it out";
                self.findings.add(line, FindingKind::ResultWithoutToolUse, detail);
            }
        }
    }
}

#[cfg(test)]
mod tests;

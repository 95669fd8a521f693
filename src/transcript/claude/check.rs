//! Checks a Claude transcript for damage, and determines what the damage does to a resume.
//!
//! One pass over the bytes, in the memory of an index however long the lines are; changes nothing. The effects of damage
//! on a resume were observed with Claude Code 2.1.316: a record whose parent is missing is joined to the record before
//! it in the file, unless the agent recorded a position (`last-prompt`) that the parents do not lead to; then the resume
//! continues from that position. A record without a parent starts a new history. These are harmless and are not
//! reported: a missing final newline, blank lines, a byte order mark, carriage returns, NUL bytes at the end, bytes that
//! are not UTF-8, a tool's result that occurs twice, of which the model is sent one, and records without a uuid, which
//! are the agent's own notes and differ between versions. Pure; the caller says whether a side file exists.

mod facts;
mod unanswered;

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead};

use bridge_protocol::check::FindingKind;

use super::record::Record;
use super::{ClaudeIndex, RecordFacts, Selection};
use crate::transcript::check::{
    CallOrResult, Calls, CheckReport, FINDINGS_OF_A_KIND_LIMIT, Findings, UNCHECKED_CALLS_NOTE, hash_of,
    quoted,
};
use crate::transcript::lines::LINE_LIMIT_BYTES;
use crate::transcript::scan::{
    ELEMENTS_LIMIT, ELEMENTS_LIMIT_BYTES, LinePosition, PrunedLine, PrunedLines, PrunedRecord, Scanned,
};
use facts::{CHECK, MessageFacts};
pub(super) use unanswered::unanswered_calls;

/// The effect on a resume if the parents of messages do not lead to the position that the agent recorded last.
const LEFT_OUT: &str = "a resume continues from the place that the agent recorded last in the file, which the parents of this \
                        record do not lead to, so it leaves out this record and those after it";

/// A file that a record names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SideFile {
    /// A tool's result that was too long for the transcript, by its path. A relative path starts at the transcript's folder.
    ToolResult(String),
    /// The transcript of a subagent, by the subagent's id.
    Subagent(String),
}

/// Checks the transcript of the session `upstream_id`, from its first byte on. `is_there` says whether a side file exists.
///
/// # Errors
/// The reader's error.
pub(super) fn check(
    reader: impl BufRead,
    upstream_id: &str,
    is_there: impl Fn(&SideFile) -> bool,
) -> io::Result<CheckReport> {
    let mut checker = Checker {
        upstream_id,
        exists: is_there,
        index: ClaudeIndex::default(),
        chain: Vec::new(),
        messages: 0,
        calls: Some(Calls::default()),
        foreign: HashMap::new(),
        findings: Findings::default(),
    };
    let mut lines = PrunedLines::new(reader, 0, &CHECK);
    while let Some(line) = lines.next_line()? {
        checker.line(&line);
    }
    Ok(checker.finish())
}

/// Returns the files of any session that the records of a transcript name, and whether there may be more, because a
/// record has more calls and results than are read.
///
/// # Errors
/// The reader's error.
pub(super) fn named_files(reader: impl BufRead) -> io::Result<(BTreeSet<SideFile>, bool)> {
    let mut lines = PrunedLines::new(reader, 0, &CHECK);
    let (mut named, mut has_more) = (BTreeSet::new(), false);
    while let Some(line) = lines.next_line()? {
        if let Scanned::Record(pruned) = line.content {
            named.extend(MessageFacts::of(&Record::of(&pruned)).files);
            has_more |= pruned.has_more;
        }
    }
    Ok((named, has_more))
}

struct Checker<'a, F> {
    upstream_id: &'a str,
    exists: F,
    index: ClaudeIndex,
    /// The offset and line of each chain record, ascending.
    chain: Vec<(u64, u64)>,
    /// The number of messages, without those of subagents.
    messages: u64,
    /// `None` if some calls or results were not read.
    calls: Option<Calls>,
    /// Other sessions that records name, by a hash of the id: the line of the first such record, their number, and the id.
    foreign: HashMap<u64, (u64, u64, String)>,
    findings: Findings,
}

impl<F: Fn(&SideFile) -> bool> Checker<'_, F> {
    fn line(&mut self, line: &PrunedLine<'_>) {
        let position = line.position;
        if line.is_too_long() {
            let detail = format!(
                "longer than {} MiB and not read here; if it is a record of the conversation, an agent may take long or \
                 fail to read it; {UNCHECKED_CALLS_NOTE}",
                LINE_LIMIT_BYTES >> 20
            );
            self.findings
                .add(position.number, FindingKind::OversizedLine, detail);
            self.calls = None;
            return;
        }
        match &line.content {
            Scanned::Record(record) => self.record(position, record),
            Scanned::Blank => {}
            Scanned::Garbage if line.ended => self.findings.add(
                position.number,
                FindingKind::GarbageLine,
                "not a record: a resume skips it, and its content is lost",
            ),
            Scanned::Garbage => self.findings.add(
                position.number,
                FindingKind::TornLine,
                "ends within a record: the program that wrote it was stopped or still writes; a resume skips it and \
                 continues from the records before it",
            ),
        }
    }

    fn record(&mut self, position: LinePosition, pruned: &PrunedRecord<'_>) {
        let record = Record::of(pruned);
        let facts = RecordFacts::of(&record);
        let Some(chain) = &facts.chain else {
            return self.index.push(position.offset, facts);
        };
        let message = MessageFacts::of(&record);
        if self.index.contains_uuid(chain) {
            let detail = format!(
                "an earlier record has the same uuid {}: the later one replaces it, so a resume may lack the earlier \
                 one",
                quoted(&chain.uuid())
            );
            self.findings
                .add(position.number, FindingKind::DuplicateUuid, detail);
        }
        let is_message = chain.is_message();
        self.index.push(position.offset, facts);
        self.chain.push((position.offset, position.number));
        if let Some(session) = message.session_id.filter(|id| *id != self.upstream_id) {
            // Sessions beyond the limit are only counted.
            let is_told = self.foreign.len() < FINDINGS_OF_A_KIND_LIMIT;
            let name = || if is_told { quoted(&session) } else { String::new() };
            let foreign = self.foreign.entry(hash_of(&session));
            foreign.or_insert_with(|| (position.number, 0, name())).1 += 1;
        }
        if is_message {
            self.messages += 1;
            if pruned.has_more {
                self.report_unchecked_calls(position);
            }
            self.message(position, message.items, message.files);
        }
    }

    /// Reports that a record has more parts than are checked, so it is unknown which calls have no result.
    fn report_unchecked_calls(&mut self, place: LinePosition) {
        let detail = format!(
            "too many parts in one message (more than {ELEMENTS_LIMIT}, or {} MiB of them); the others are not checked here: {UNCHECKED_CALLS_NOTE}",
            ELEMENTS_LIMIT_BYTES >> 20
        );
        self.findings
            .add(place.number, FindingKind::OversizedLine, detail);
        self.calls = None;
    }

    fn message(&mut self, position: LinePosition, items: Vec<CallOrResult>, mut files: Vec<SideFile>) {
        if let Some(calls) = &mut self.calls {
            items.into_iter().for_each(|item| calls.add(position, item));
        }
        files.sort();
        files.dedup();
        for file in files {
            if (self.exists)(&file) {
                continue;
            }
            let detail = match &file {
                SideFile::ToolResult(path) => format!(
                    "the result of a tool was written to {}, which is missing: a resume works, but the model is referred to \
                     a file that it cannot read",
                    quoted(path)
                ),
                SideFile::Subagent(id) => format!(
                    "the transcript of the subagent {} is missing: a resume works with its answer, but the subagent cannot \
                     be continued",
                    quoted(id)
                ),
            };
            self.findings
                .add(position.number, FindingKind::MissingSideFile, detail);
        }
    }

    fn finish(mut self) -> CheckReport {
        let selection = self.index.select(None, true);
        match selection.filter(|_| self.messages > 0) {
            Some(selection) => {
                if selection.prompt_offsets.is_empty() {
                    self.findings.add(
                        0,
                        FindingKind::NothingToResume,
                        "it contains no prompt, so there is no turn to continue",
                    );
                }
                self.report_resume_effects(&selection);
            }
            None => self.findings.add(
                0,
                FindingKind::NothingToResume,
                "it contains no message of a conversation: an agent reports that the session does not exist",
            ),
        }
        let mut foreign: Vec<_> = std::mem::take(&mut self.foreign).into_values().collect();
        foreign.sort();
        for (line, count, session) in foreign {
            let say = match count {
                1 => "1 record here belongs to".to_owned(),
                _ => format!("{count} records from here on belong to"),
            };
            let detail = format!(
                "{say} session {session}: a transcript is found by the name of its file, but an agent may leave out such \
                 records; a copy under a new name must contain the new id"
            );
            self.findings.add(line, FindingKind::ForeignSessionId, detail);
        }
        self.findings.into_report()
    }

    /// Adds the findings that depend on which records a resume follows.
    fn report_resume_effects(&mut self, branch: &Selection) {
        if let Some(newer) = branch.newer_branch {
            let messages = match newer.messages {
                1 => "1 message".to_owned(),
                count => format!("{count} messages"),
            };
            let detail = format!(
                "a newer branch ends here, and a resume leaves out {messages} of it, although they are undamaged: it \
                 continues from the place that the agent recorded last in the file"
            );
            self.add_at(newer.offset, FindingKind::NewerBranch, detail);
        }
        self.report_broken_parents(branch);
        self.report_unmatched_calls(branch);
    }

    fn report_broken_parents(&mut self, branch: &Selection) {
        let first = branch.offsets[0];
        let missing: Vec<(u64, String)> = self.index.missing_parents().collect();
        let begins_broken = missing.iter().any(|(offset, _)| *offset == first);
        // How many of the missing parents that the branch counts are reported.
        let mut reported = usize::from(begins_broken);
        for (offset, parent) in &missing {
            let (effect, is_passed) = effect_of_missing_parent(branch, *offset);
            reported += usize::from(is_passed);
            let detail = format!("its parent {} is missing: {effect}", quoted(parent));
            self.add_at(*offset, FindingKind::BrokenParent, detail);
        }
        if branch.missing_parents > reported {
            let (offset, effect) = match branch.excluded_offset {
                Some(excluded_offset) => (excluded_offset, LEFT_OUT),
                None => (
                    first,
                    "the history begins within it, and everything before it is lost",
                ),
            };
            let detail = format!("the parents form a ring: {effect}");
            self.add_at(offset, FindingKind::BrokenParent, detail);
            return;
        }
        let prompts = self.index.prompts_before(first);
        if !begins_broken && !branch.cut_by_compaction && prompts > 0 {
            let detail = format!(
                "it has no parent, so the history begins here: a resume leaves out everything before it ({prompts} {})",
                if prompts == 1 { "prompt" } else { "prompts" }
            );
            self.add_at(first, FindingKind::CutOff, detail);
        }
    }

    fn report_unmatched_calls(&mut self, branch: &Selection) {
        const OTHER_BRANCH: &str = "it is on a branch that a resume does not follow";
        let (calls, results) = self.calls.take().unwrap_or_default().unmatched();
        for (position, tool) in calls {
            let effect = match branch.contains(position.offset) {
                true => {
                    "a resume works: at the end of the history the agent adds that the call was interrupted, elsewhere it \
                     may leave out the call"
                }
                false => OTHER_BRANCH,
            };
            let detail = format!("the tool {tool} was called and has no result: {effect}");
            self.findings
                .add(position.number, FindingKind::ToolUseWithoutResult, detail);
        }
        for position in results {
            let effect = match branch.contains(position.offset) {
                true => {
                    "a resume leaves it out, and the model gets \"(no content)\" if the message has nothing else"
                }
                false => OTHER_BRANCH,
            };
            let detail = format!("the result of a tool without an earlier call of that tool: {effect}");
            self.findings
                .add(position.number, FindingKind::ResultWithoutToolUse, detail);
        }
    }

    /// Adds a finding about the record that begins at `offset`.
    fn add_at(&mut self, offset: u64, kind: FindingKind, detail: String) {
        let place = self.chain.binary_search_by_key(&offset, |(offset, _)| *offset);
        let line = place.map_or(0, |place| self.chain[place].1);
        self.findings.add(line, kind, detail);
    }
}

/// What a resume does about a record whose parent is missing, and whether the branch counts that parent as missing within it, or
/// within the branch that is left out.
fn effect_of_missing_parent(branch: &Selection, offset: u64) -> (&'static str, bool) {
    let left_out = branch.leaf_offset..branch.excluded_offset.unwrap_or(0);
    if branch.excluded_offset == Some(offset) {
        (LEFT_OUT, true)
    } else if branch.offsets[0] == offset {
        (
            "there is no record before it that a resume could continue from, so the history begins here",
            false,
        )
    } else if branch.contains(offset) {
        (
            "a resume joins it to the previous record in the file, so only the records between them are lost",
            true,
        )
    } else if left_out.contains(&offset) {
        (
            "a resume does not reach it, because it leaves out the newest messages of the file",
            false,
        )
    } else {
        (
            "it is on a branch that a resume does not follow, so nothing is lost",
            false,
        )
    }
}

#[cfg(test)]
mod tests;

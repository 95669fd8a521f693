//! Findings of `transcript/check`: what is wrong with a transcript.

use crate::declare::{objects, words};
use crate::id::UpstreamId;
use crate::link::Fidelity;

words! {
    /// The kind of a finding in a transcript.
    FindingKind {
        /// The transcript contains no record of a conversation.
        NothingToResume,
        /// The last line ends in the middle of a record.
        TornLine,
        /// A line that is not a record.
        GarbageLine,
        /// A line that is too long to read, or that holds too much to be read completely.
        OversizedLine,
        /// A record whose parent is missing.
        BrokenParent,
        /// The history begins after records that it does not include.
        CutOff,
        /// The last message of an undamaged branch that is newer than the branch a resume continues.
        NewerBranch,
        /// A tool call without a result.
        ToolUseWithoutResult,
        /// Two records with the same uuid.
        DuplicateUuid,
        /// Records that name another session as their own.
        ForeignSessionId,
        /// A side file that a record names is missing: a long tool result, or the messages of a subagent.
        MissingSideFile,
        /// The transcript of another session, with which this one begins, is missing or incomplete.
        MissingSource,
        /// A tool result without a tool call.
        ResultWithoutToolUse,
        /// Numbered records that are out of order or duplicated.
        BrokenOrder,
        /// The transcript is in the folder for sessions that the agent no longer uses.
        Archived,
        /// Another copy of the transcript holds more, or a kept copy has turns that the transcript lacks; or the copies are in
        /// several folders, so that the agent does not use the best one.
        OtherCopy,
    }
}

objects! {
    /// One finding in a transcript.
    Finding {
        /// The line, counted from 1; 0 if the finding is about the whole file.
        line: u64,
        /// The kind of finding.
        kind: FindingKind,
        /// What it means for a resume, as a sentence.
        detail: String,
    }

    /// The answer of `transcript/check`.
    #[derive(Default)]
    CheckAnswer {
        /// The findings, in the order of the lines. Empty, or without damage, if the transcript is intact.
        findings: Vec<Finding>,
        /// How many more findings were omitted, if there are very many; absent when 0.
        more: u64 = default,
        /// The session id of the repaired copy. Absent if no repair was requested, or if there was nothing to repair.
        repaired: Option<UpstreamId> = default,
        /// What was changed in the copy; absent without one.
        repairs: Option<Repairs> = default,
        /// How much of the session the copy has: `full` when nothing is missing, else `partial`; absent without a copy. A
        /// later resume of the copy is compared with the copy, not with the original session.
        fidelity: Option<Fidelity> = default,
        /// The findings that remain in the copy, with the copy's own line numbers; absent when there are none.
        left: Vec<Finding> = default,
        /// The sessions that were checked in their kept copies because the agent's own files are missing; absent when
        /// there are none.
        kept: Vec<UpstreamId> = default,
        /// The shell command that restores a kept copy which has turns or other records that the transcript has lost. If the
        /// conversation has turns that this copy lacks, the command forks it first. Absent if there is no such copy, and in the
        /// answer to a repair.
        restore: Option<String> = default,
    }

    /// The changes in a repaired copy, compared with its source. Absent counts are 0.
    #[derive(Copy, Default)]
    Repairs {
        /// Lines that are not records and were left out.
        #[serde(default)]
        left_out: u64,
        /// Records whose parents are missing and that were attached to another record.
        #[serde(default)]
        joined: u64,
        /// Tool results that were filled in, as the agent does it.
        #[serde(default)]
        filled_in: u64,
    }
}

//! The findings of a check of a transcript, for all formats.
//!
//! This module limits how many findings are reported, and defines how they quote a transcript. Each format makes its
//! own findings. Pure.

mod findings;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bridge_protocol::check::Finding;

use super::scan::LinePosition;
pub(super) use findings::Findings;

/// How many findings of one kind are reported: enough to see what happened. A file of nothing but garbage has millions.
pub const FINDINGS_OF_A_KIND_LIMIT: usize = 100;

/// The note that is added if not all calls and results of a transcript are known.
pub(super) const UNCHECKED_CALLS_NOTE: &str =
    "calls without results and results without calls are not reported for this transcript";

/// How many characters of the transcript's text a finding quotes.
const QUOTED_CHARS: usize = 120;

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The findings, in the order of the lines, at most [`FINDINGS_OF_A_KIND_LIMIT`] of each kind.
    pub findings: Vec<Finding>,
    /// How many more findings there are.
    pub omitted: u64,
    /// The known findings for which the agent refuses to resume the session.
    pub refusals: Vec<Finding>,
}

/// A tool call or a tool result, with a hash of the call's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallOrResult {
    Call { id: u64, tool: String },
    Result { id: u64 },
}

/// The tool calls of a transcript and their results.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The position and tool of each call, by a hash of its id. `None` once its result was seen.
    calls: HashMap<u64, Option<(LinePosition, String)>>,
    /// The positions of results whose calls were not seen before them.
    results_without_call: Vec<LinePosition>,
}

impl Calls {
    /// Adds the next call or result.
    pub(super) fn add(&mut self, place: LinePosition, item: CallOrResult) {
        match item {
            CallOrResult::Call { id, tool } => drop(self.calls.insert(id, Some((place, tool)))),
            CallOrResult::Result { id } => match self.calls.get_mut(&id) {
                Some(call) => *call = None,
                None => self.results_without_call.push(place),
            },
        }
    }

    /// The calls without a result, with their tools, and the results without an earlier call, in the order of the lines.
    pub(super) fn unmatched(self) -> (Vec<(LinePosition, String)>, Vec<LinePosition>) {
        let mut calls: Vec<_> = self.calls.into_values().flatten().collect();
        calls.sort_by_key(|(place, _)| place.number);
        (calls, self.results_without_call)
    }
}

pub(super) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(QUOTED_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

pub(super) fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

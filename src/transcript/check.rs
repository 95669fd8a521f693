//! What is wrong with a transcript, whatever its format: the findings of a check.
//!
//! Owns how many findings there are at most and how they quote a transcript. Each format makes its own. Pure.

mod findings;
mod unknown_forms;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bridge_protocol::check::Finding;

use super::scan::LinePosition;
pub(super) use findings::Findings;
pub(super) use unknown_forms::UnknownForm;
use unknown_forms::UnknownForms;

/// How many findings of one kind are told: enough to see what happened, while a file of nothing but garbage has millions.
pub const FINDINGS_OF_A_KIND_LIMIT: usize = 100;

/// What follows where not all of a transcript's calls and results are known.
pub(super) const UNCHECKED_CALLS_NOTE: &str =
    "calls without results and results without calls are not reported for this transcript";

/// How much of a text of the transcript is repeated in a finding.
const QUOTED_CHARS: usize = 120;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// In the order of the lines, [`FINDINGS_OF_A_KIND_LIMIT`] of each kind at most.
    pub findings: Vec<Finding>,
    /// How many more there are.
    pub omitted: u64,
    /// Those for which the agent refuses to resume the session, as far as that is known.
    pub refusals: Vec<Finding>,
}

/// A call of a tool, or the result of one, by a hash of the call's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallOrResult {
    Call { id: u64, tool: String },
    Result { id: u64 },
}

/// The calls of tools in a transcript and their results.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Where each call stands and its tool, by a hash of its id; none once the result was seen.
    calls: HashMap<u64, Option<(LinePosition, String)>>,
    /// Where results stand whose calls were not seen before.
    results_without_call: Vec<LinePosition>,
}

impl Calls {
    /// Takes the next call or result.
    pub(super) fn add(&mut self, place: LinePosition, item: CallOrResult) {
        match item {
            CallOrResult::Call { id, tool } => drop(self.calls.insert(id, Some((place, tool)))),
            CallOrResult::Result { id } => match self.calls.get_mut(&id) {
                Some(call) => *call = None,
                None => self.results_without_call.push(place),
            },
        }
    }

    /// The calls without a result, with their tools, and the results without a call before them, in the order of the lines.
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

//! What a check reads from a line of a rollout: a tool call or its result.

use crate::transcript::check::{CallOrResult, hash_of, quoted};
use crate::transcript::codex::line::{LineKind, RolloutLine};

/// Returns the tool call or the result in a line.
pub(super) fn call_or_result(line: &RolloutLine<'_>) -> Option<CallOrResult> {
    let payload = &line.payload;
    if line.kind != LineKind::Item {
        return None;
    }
    let id = hash_of(&payload.str("call_id")?);
    let kind = payload.str("type")?;
    if kind.ends_with("_output") {
        return Some(CallOrResult::Result { id });
    }
    let tool = || quoted(&payload.str("name").unwrap_or_else(|| kind.clone()));
    kind.ends_with("_call")
        .then(|| CallOrResult::Call { id, tool: tool() })
}

#[cfg(test)]
mod tests;

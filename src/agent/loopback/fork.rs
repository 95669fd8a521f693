//! Forks a session: writes a new transcript with the history up to a point, next to the source.

use std::path::Path;

use super::wire::RpcError;
use crate::transcript::claude::cut::cut;
use crate::transcript::claude::reading;

/// Writes the transcript `branch_id` with the history of `source` up to and including the message `point`: a reply's
/// message id or a record's UUID.
pub(super) fn fork(
    source: &Path,
    source_id: &str,
    branch_id: &str,
    point: Option<&str>,
) -> Result<(), RpcError> {
    let index = reading::index(source).map_err(RpcError::internal)?;
    let live_branch = index
        .select(None, true)
        .ok_or_else(|| RpcError::session_not_found(source_id))?;
    let last = match point {
        None => live_branch.leaf_uuid,
        Some(point) => {
            let last = index.last_of_message(&live_branch, point);
            let last = last.unwrap_or_else(|| point.to_owned());
            let cut = index.select(Some(&last), true);
            if !cut.is_some_and(|cut| live_branch.contains(cut.leaf_offset)) {
                let why = format!("Fork point message {point} was not found");
                return Err(RpcError::invalid_params(why));
            }
            last
        }
    };
    let folder = source.parent().unwrap_or(Path::new("."));
    let branch = cut(source, &index, folder, branch_id, &last);
    branch.map(drop).map_err(RpcError::internal)
}

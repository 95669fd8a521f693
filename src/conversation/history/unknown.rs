//! Records that the history omits because this version does not know their type.

use bridge_protocol::UpstreamId;
use bridge_protocol::history::{GapKind, HistoryGap};

use crate::transcript::opened::OpenTranscript;

/// Tells of records of kinds that are not known. Nothing is damaged, and the agent that wrote them loads them.
pub(super) fn gap(upstream_id: &UpstreamId, open: &dyn OpenTranscript) -> Option<HistoryGap> {
    let detail = match open.unknown() {
        0 => return None,
        1 => "1 of its records is of a kind that this version does not know".to_owned(),
        records => format!("{records} of its records are of kinds that this version does not know"),
    };
    Some(HistoryGap {
        upstream_id: upstream_id.clone(),
        kind: GapKind::UnknownRecord,
        detail,
    })
}

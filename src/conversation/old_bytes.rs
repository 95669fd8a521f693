//! The length that a transcript had when an imported, adopted or copied session joined its conversation: turns before
//! that position are not new.
//!
//! Owns these notes until the first reading of the transcript takes them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;

use bridge_protocol::UpstreamId;

use super::lock::lock;

/// The limit on notes: more than the sessions that can join conversations during one reading. Older notes belong to
/// transcripts that were never read.
const MAX_NOTES: usize = 1_024;

/// The old length of transcripts, in bytes, the oldest note first.
#[derive(Debug, Default)]
pub struct OldBytes {
    notes: Mutex<VecDeque<(UpstreamId, u64)>>,
}

impl OldBytes {
    /// Notes that a session is about to join a conversation, and that the first `bytes` of its transcript are not new.
    pub fn note_length(&self, upstream_id: &UpstreamId, bytes: u64) {
        let mut notes = lock(&self.notes);
        notes.retain(|(id, _)| id != upstream_id);
        if notes.len() >= MAX_NOTES {
            notes.pop_front();
        }
        notes.push_back((upstream_id.clone(), bytes));
    }

    /// Notes the same for a session that was just copied: its whole transcript is not new.
    pub fn note_copy(&self, upstream_id: &UpstreamId, path: &Path) {
        // If the length is unknown, all its turns count as new.
        if let Ok(metadata) = path.metadata() {
            self.note_length(upstream_id, metadata.len());
        }
    }

    /// Takes the note of a session: how many bytes are not new.
    #[must_use]
    pub fn take_length(&self, upstream_id: &UpstreamId) -> Option<u64> {
        let mut notes = lock(&self.notes);
        let index = notes.iter().position(|(id, _)| id == upstream_id)?;
        notes.remove(index).map(|(_, bytes)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_notes_make_room_for_new_ones() {
        let old = OldBytes::default();
        let id = |number: usize| UpstreamId::new(format!("s{:04}", 9_999 - number));
        for number in 0..MAX_NOTES {
            old.note_length(&id(number), number as u64);
        }
        // Noted again, so that it is not the oldest any more.
        old.note_length(&id(0), 7);
        old.note_length(&id(MAX_NOTES), 8);
        assert_eq!(
            (old.take_length(&id(1)), old.take_length(&id(2))),
            (None, Some(2))
        );
        assert_eq!(
            (old.take_length(&id(0)), old.take_length(&id(0))),
            (Some(7), None)
        );
        assert_eq!(old.take_length(&id(MAX_NOTES)), Some(8));
    }
}

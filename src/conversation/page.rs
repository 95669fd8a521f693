//! Limits how many entries of a list go into one answer. Pure.
//!
//! The caller limits the number of entries; this module limits their bytes. Settings of conversations can be large, and
//! a page of such conversations would be longer than any answer.

use std::io;

use bridge_protocol::conversation::{Conversation, Settings};
use bridge_protocol::raw::RawJson;
use serde::Serialize;

use super::naming::{NAMESPACE_LIMIT_BYTES, shortened_title};

/// Bytes after which a page ends early. This fits some thousands of ordinary conversations, and is small enough to
/// assemble and encode quickly.
const PAGE_LIMIT_BYTES: usize = 1024 * 1024;

/// The limit for one conversation in a list, in bytes: more than can result from one input line, and less than an answer holds.
pub(super) const ENTRY_LIMIT_BYTES: usize = 24 * 1024 * 1024;

/// The room left on a page.
#[derive(Debug)]
pub(super) struct PageRoom {
    remaining_bytes: usize,
    is_empty: bool,
}

impl PageRoom {
    /// An empty page.
    pub(super) const fn new() -> Self {
        Self::with_bytes(PAGE_LIMIT_BYTES)
    }

    /// Room for this many bytes.
    pub(super) const fn with_bytes(bytes: usize) -> Self {
        Self {
            remaining_bytes: bytes,
            is_empty: true,
        }
    }

    /// Takes the room that the entry needs; false if the page is full. The first entry always fits, so that paging
    /// advances.
    pub(super) fn try_take(&mut self, entry: &impl Serialize) -> bool {
        let left = self.remaining_bytes.checked_sub(encoded_bytes(entry));
        if left.is_none() && !self.is_empty {
            return false;
        }
        self.remaining_bytes = left.unwrap_or(0);
        self.is_empty = false;
        true
    }
}

/// As many of the entries before `end` as fit on a page, at most `limit`, newest first. Reads forwards, one block at a time,
/// because compressed data would be decoded from its beginning for each step back.
pub(super) fn newest_first<T: Serialize>(
    mut end: usize,
    limit: usize,
    mut read: impl FnMut(usize) -> Option<T>,
) -> Vec<T> {
    let (mut room, mut page) = (PageRoom::new(), Vec::new());
    while page.len() < limit && end > 0 {
        let start = end.saturating_sub(limit - page.len());
        let mut block = Vec::new();
        for number in start..end {
            block.extend(read(number));
        }
        for entry in block.into_iter().rev() {
            if !room.try_take(&entry) {
                return page;
            }
            page.push(entry);
        }
        end = start;
    }
    page
}

/// The length of a value as JSON, in bytes.
pub(super) fn encoded_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        // A value that cannot be written as JSON fits nowhere.
        Err(_) => usize::MAX / 2,
    }
}

/// A conversation as lists show it. If it is too long for any answer, its settings and the details of its questions are omitted
/// so that the other conversations can still be listed.
pub(super) fn view_for_list(mut conversation: Conversation) -> Conversation {
    if encoded_bytes(&conversation) <= ENTRY_LIMIT_BYTES {
        return conversation;
    }
    conversation.settings = Settings::default();
    for interrupt in &mut conversation.interrupts {
        interrupt.tool_call = None;
        interrupt.options = None;
        interrupt.request = RawJson::from(serde_json::json!({}));
    }
    conversation.title = shortened_title(&conversation.title);
    if conversation.namespace.len() > NAMESPACE_LIMIT_BYTES {
        conversation.namespace.clear();
    }
    conversation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_newest_is_read_forwards() {
        let mut asked = Vec::new();
        // Every third one is not there any more.
        let mut newest = |end, limit| {
            asked.clear();
            let page = newest_first(end, limit, |number| {
                asked.push(number);
                (number % 3 != 0).then_some(number)
            });
            (page, asked.clone())
        };
        assert_eq!(newest(3, 9), (vec![2, 1], vec![0, 1, 2]));
        assert_eq!(newest(9, 3), (vec![8, 7, 5], vec![6, 7, 8, 5]));
        assert_eq!(newest(4, 0), (vec![], vec![]));
        assert_eq!(newest(0, 4), (vec![], vec![]));
        let long = newest_first(3, 3, |_| Some("x".repeat(PAGE_LIMIT_BYTES)));
        assert_eq!(long.len(), 1);
    }

    #[test]
    fn a_conversation_that_no_answer_holds_is_listed_without_what_is_long() {
        let conversation = |model: &str, question: &str| -> Conversation {
            let conversation = serde_json::json!({
                "id": "5d0c2a4e-7f61-4b0a-9c36-1e2f3a4b5c6d", "namespace": "", "agent": "a", "cwd": "/", "title": "t",
                "state": "awaiting", "live": true, "chainLength": 0, "settings": {"model": model},
                "interrupts": [{"id": "i", "kind": "permission", "request": {"text": question},
                    "raisedAt": "2026-11-03T09:00:00Z", "orphaned": false}],
                "createdAt": "2026-11-03T09:00:00Z", "updatedAt": "2026-11-03T09:00:00Z", "revision": 1,
            });
            serde_json::from_value(conversation).unwrap()
        };
        let long = "x".repeat(ENTRY_LIMIT_BYTES);
        // Six bytes of JSON each.
        let dense = "\u{1}".repeat(ENTRY_LIMIT_BYTES / 6);
        let fits = conversation("m", &long[..ENTRY_LIMIT_BYTES - 1024]);
        assert_eq!(view_for_list(fits.clone()), fits);
        for large in [
            conversation(&long, "q"),
            conversation("m", &long),
            conversation(&dense, "q"),
        ] {
            let listed = view_for_list(large.clone());
            assert!(encoded_bytes(&listed) < PAGE_LIMIT_BYTES);
            assert_eq!((listed.id, listed.state), (large.id, large.state));
            assert_eq!(listed.interrupts[0].id, large.interrupts[0].id);
        }
    }
}

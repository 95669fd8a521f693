//! How much of a list goes into one answer. Pure.
//!
//! What is listed is bounded in number by the caller and in bytes here: the body of a conversation's settings may be
//! large, and a page of such would be longer than any answer, for everybody who lists.

use bridge_protocol::conversation::{Conversation, Settings};
use bridge_protocol::link::LineageEntry;
use bridge_protocol::raw::RawJson;

/// Bytes after which a page ends early. Some thousands of ordinary conversations, and so few that to put a page
/// together and encode it keeps nobody waiting.
const PAGE_LIMIT_BYTES: usize = 1024 * 1024;

/// About what one entry takes beside the texts that it holds: names of members, ids, times.
pub(super) const FRAME_BYTES: usize = 512;

/// The room that is left on a page.
#[derive(Debug)]
pub(super) struct PageRoom {
    left: usize,
    is_empty: bool,
}

/// What stands on a page.
pub(super) trait Weighed {
    /// About how many bytes of JSON it makes: enough to bound a page without encoding what is on it twice.
    fn weight(&self) -> usize;
}

impl PageRoom {
    /// An empty page.
    pub(super) const fn new() -> Self {
        Self {
            left: PAGE_LIMIT_BYTES,
            is_empty: true,
        }
    }

    /// Takes the room that this needs; false when the page ends before it. The first one always fits: whoever pages
    /// through must get on.
    pub(super) fn takes(&mut self, entry: &impl Weighed) -> bool {
        let left = self.left.checked_sub(entry.weight());
        if left.is_none() && !self.is_empty {
            return false;
        }
        self.left = left.unwrap_or(0);
        self.is_empty = false;
        true
    }
}

impl Weighed for Conversation {
    fn weight(&self) -> usize {
        let questions = self.interrupts.iter().map(|interrupt| {
            let parts = [&interrupt.tool_call, &interrupt.options];
            let parts = parts.into_iter().flatten().map(raw_weight).sum::<usize>();
            FRAME_BYTES + raw_weight(&interrupt.request) + parts
        });
        let texts = self.title.len() + self.namespace.len() + self.cwd.len();
        FRAME_BYTES * (1 + self.queue.len())
            + texts
            + settings_weight(&self.settings)
            + questions.sum::<usize>()
    }
}

impl Weighed for LineageEntry {
    fn weight(&self) -> usize {
        let from = self.from_upstream_id.as_ref().map_or(0, |id| id.as_str().len());
        FRAME_BYTES + self.cwd.len() + self.upstream_id.as_str().len() + from
    }
}

fn settings_weight(settings: &Settings) -> usize {
    let Settings {
        model,
        mode,
        config,
        system_prompt,
        mcp_servers,
        additional_directories,
    } = settings;
    let words = [model, mode, system_prompt]
        .into_iter()
        .flatten()
        .map(String::len);
    let options = config
        .iter()
        .flatten()
        .map(|(id, value)| id.len() + raw_weight(value));
    let servers = mcp_servers.iter().flatten().map(raw_weight);
    let folders = additional_directories.iter().flatten().map(String::len);
    words.chain(options).chain(servers).chain(folders).sum()
}

fn raw_weight(json: &RawJson) -> usize {
    json.get().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Heavy(usize);

    impl Weighed for Heavy {
        fn weight(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn a_page_ends_when_it_is_full_and_holds_one_at_least() {
        let table: &[(&[usize], usize)] = &[
            (&[PAGE_LIMIT_BYTES * 40, 1], 1),
            (&[PAGE_LIMIT_BYTES, 0], 2),
            (&[PAGE_LIMIT_BYTES - 1, 1, 1], 2),
            (&[1, PAGE_LIMIT_BYTES, 1], 1),
            (&[600, 600, 600], 3),
        ];
        for (weights, fits) in table {
            let mut room = PageRoom::new();
            let taken = weights.iter().take_while(|weight| room.takes(&Heavy(**weight)));
            assert_eq!(taken.count(), *fits, "{weights:?}");
        }
    }
}

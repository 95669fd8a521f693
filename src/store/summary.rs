//! Summaries: the members of a conversation that lists filter by, packed next to its position in the list.
//!
//! A scan of a hundred thousand conversations reads these adjacent entries in order, instead of as many records all
//! over the database. This module owns the format of a summary. It does not know the filters.

use super::record::RestingState;

/// The longest summary, in bytes. Longer ones would make chunks of one entry. Few titles and folders come near it;
/// for those, the record itself is read.
const SUMMARY_LIMIT_BYTES: usize = 512;

/// The first byte and four lengths.
const HEAD_BYTES: usize = 1 + 4 * 2;

/// Set in the first byte when a question is open.
const QUESTION: u8 = 1 << 4;

/// Set in the first byte when a turn was cut short.
const CUT_SHORT: u8 = 1 << 5;

/// Set in the first byte when prompts are queued.
const WAITING: u8 = 1 << 6;

/// The members of a conversation that lists can filter by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary<'a> {
    /// The state while no turn runs.
    pub resting: RestingState,
    /// Whether a question is open.
    pub has_question: bool,
    /// Whether a turn was cut short and can be continued.
    pub is_cut_short: bool,
    /// Whether prompts are queued.
    pub has_waiting: bool,
    /// The app that the conversation belongs to; empty if not given.
    pub namespace: &'a str,
    /// The agent of the conversation.
    pub agent: &'a str,
    /// The folder in which the agent runs.
    pub cwd: &'a str,
    /// The conversation's title; empty if it has none.
    pub title: &'a str,
}

impl<'a> Summary<'a> {
    /// Encodes the summary. Empty if it is too long.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let texts = [self.namespace, self.agent, self.cwd, self.title];
        let size = HEAD_BYTES + texts.iter().map(|text| text.len()).sum::<usize>();
        if size > SUMMARY_LIMIT_BYTES {
            return Vec::new();
        }
        let mut bytes = Vec::with_capacity(size);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        bytes.push(
            resting_code(self.resting)
                | flag(self.has_question, QUESTION)
                | flag(self.is_cut_short, CUT_SHORT)
                | flag(self.has_waiting, WAITING),
        );
        for text in texts {
            // Checked against the limit above.
            let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
        for text in texts {
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }

    /// Decodes [`Summary::to_bytes`]. `None` if the summary was too long, or for anything else.
    pub(super) fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let mut texts = [""; 4];
        for (index, text) in texts.iter_mut().enumerate() {
            let length = u16::from_be_bytes([head[1 + index * 2], head[2 + index * 2]]);
            let text_bytes;
            (text_bytes, rest) = rest.split_at_checked(usize::from(length))?;
            *text = std::str::from_utf8(text_bytes).ok()?;
        }
        let [namespace, agent, cwd, title] = texts;
        rest.is_empty().then_some(Self {
            resting: resting_of(head[0] & !(QUESTION | CUT_SHORT | WAITING))?,
            has_question: head[0] & QUESTION != 0,
            is_cut_short: head[0] & CUT_SHORT != 0,
            has_waiting: head[0] & WAITING != 0,
            namespace,
            agent,
            cwd,
            title,
        })
    }
}

fn resting_code(resting: RestingState) -> u8 {
    match resting {
        RestingState::Idle => 0,
        RestingState::Limited => 1,
        RestingState::Interrupted => 2,
        RestingState::Failed => 3,
    }
}

fn resting_of(code: u8) -> Option<RestingState> {
    [
        RestingState::Idle,
        RestingState::Limited,
        RestingState::Interrupted,
        RestingState::Failed,
    ]
    .into_iter()
    .find(|resting| resting_code(*resting) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_summary_is_read() {
        for resting in [
            RestingState::Idle,
            RestingState::Limited,
            RestingState::Interrupted,
            RestingState::Failed,
        ] {
            for flags in 0..8 {
                let summary = Summary {
                    resting,
                    has_question: flags & 1 != 0,
                    is_cut_short: flags & 2 != 0,
                    has_waiting: flags & 4 != 0,
                    namespace: "",
                    agent: "claude",
                    cwd: "/home/u/pröject",
                    title: "a title",
                };
                let bytes = summary.to_bytes();
                assert_eq!(Summary::from_bytes(&bytes), Some(summary));
                for length in 0..bytes.len() {
                    assert_eq!(Summary::from_bytes(&bytes[..length]), None, "{length}");
                }
            }
        }
        assert_eq!(Summary::from_bytes(&[9, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn a_summary_over_the_limit_is_omitted() {
        let title = "x".repeat(SUMMARY_LIMIT_BYTES);
        let summary = Summary {
            resting: RestingState::Idle,
            has_question: false,
            is_cut_short: false,
            has_waiting: false,
            namespace: "",
            agent: "a",
            cwd: "/",
            title: &title,
        };
        assert!(summary.to_bytes().is_empty());
        let title = &title[HEAD_BYTES + 2..];
        assert_eq!(Summary { title, ..summary }.to_bytes().len(), SUMMARY_LIMIT_BYTES);
    }
}

//! Summaries: the few members of a conversation by which lists are filtered, packed beside its place in the list.
//!
//! A look through a hundred thousand conversations reads these neighbours one after another instead of as many records
//! from all over the database. This module owns their form. It must not know what is looked for.

use super::record::Resting;

/// The longest summary, in bytes: longer ones would make chunks of one entry. Few titles and folders come near it; for
/// those that do, the record itself is read.
const SUMMARY_LIMIT_BYTES: usize = 512;

/// The state and four lengths.
const HEAD_BYTES: usize = 1 + 4 * 2;

/// Set in the first byte when a question is open.
const QUESTION: u8 = 1 << 4;

/// Set in the first byte when a turn was cut short.
const CUT_SHORT: u8 = 1 << 5;

/// Set in the first byte when prompts wait in line.
const WAITING: u8 = 1 << 6;

/// What a list can be filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary<'a> {
    /// Its state while no turn runs.
    pub resting: Resting,
    /// Whether a question waits for a person.
    pub has_question: bool,
    /// Whether a turn was cut short that can be gone on with.
    pub is_cut_short: bool,
    /// Whether prompts wait in line.
    pub has_waiting: bool,
    /// The app that it belongs to; empty when none was given.
    pub namespace: &'a str,
    /// The agent that it talks to.
    pub agent: &'a str,
    /// The folder in which it runs.
    pub cwd: &'a str,
    /// What people call it; empty when nobody has named it.
    pub title: &'a str,
}

impl<'a> Summary<'a> {
    /// The packed form; empty when it is too long.
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
            // Within the limit checked above.
            let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
        for text in texts {
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }

    /// Reads what [`Summary::to_bytes`] wrote; none where that was too long, or where it is anything else.
    pub(super) fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let mut texts = [""; 4];
        for (index, text) in texts.iter_mut().enumerate() {
            let length = u16::from_be_bytes([head[1 + index * 2], head[2 + index * 2]]);
            let taken;
            (taken, rest) = rest.split_at_checked(usize::from(length))?;
            *text = std::str::from_utf8(taken).ok()?;
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

fn resting_code(resting: Resting) -> u8 {
    match resting {
        Resting::Idle => 0,
        Resting::Limited => 1,
        Resting::Interrupted => 2,
        Resting::Failed => 3,
    }
}

fn resting_of(code: u8) -> Option<Resting> {
    [
        Resting::Idle,
        Resting::Limited,
        Resting::Interrupted,
        Resting::Failed,
    ]
    .into_iter()
    .find(|resting| resting_code(*resting) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_read() {
        for resting in [
            Resting::Idle,
            Resting::Limited,
            Resting::Interrupted,
            Resting::Failed,
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
    fn what_is_too_long_is_left_to_the_record() {
        let title = "x".repeat(SUMMARY_LIMIT_BYTES);
        let summary = Summary {
            resting: Resting::Idle,
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

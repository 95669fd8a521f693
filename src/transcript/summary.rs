//! The entry of a transcript in a list, read from the two ends of its file, in any format.
//!
//! Owns what a title is and how much of a file is looked at for it. Each format reads the ends in its own `summary`. Pure.

/// How much of each end of a file is read, in bytes. The first prompt stands within it in ordinary transcripts, and so
/// does some record that tells the time.
pub const END_BYTES: usize = 64 * 1024;

/// How much of the beginning is read, in bytes, when the first prompt does not stand within [`END_BYTES`]: a prompt may
/// hold pictures, and an agent may write down its instructions before it.
pub const FAR_HEAD_BYTES: usize = 512 * 1024;

/// The longest title, in characters: more than anybody reads in a list.
pub const TITLE_CHARS: usize = 200;

/// The two ends of a file. What lies between them is not read; a line that is cut in two is passed over.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// The beginning; the whole of a short file.
    pub head: &'a [u8],
    /// The end, which begins anywhere in a line; empty when the head is the whole.
    pub tail: &'a [u8],
}

/// The entry of a transcript in a list. Anything may be missing: it may be empty, damaged, or of an unknown version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TranscriptSummary {
    /// What people call it, else what the agent made of it, else the first line that a person said.
    pub title: Option<String>,
    /// What a person said last, as the agent noted it, cut as a title is; looked for only where there is no title.
    pub last_prompt: Option<String>,
    /// The folder that the agent last worked in.
    pub cwd: Option<String>,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// The time of its last record, RFC 3339, as written.
    pub last_at: Option<String>,
}

impl<'a> Ends<'a> {
    /// The lines of the beginning, first one first.
    pub fn from_start(self) -> impl Iterator<Item = &'a [u8]> {
        self.head.split(|byte| *byte == b'\n')
    }

    /// The lines of both ends, last one first.
    pub fn from_end(self) -> impl Iterator<Item = &'a [u8]> {
        backwards(self.tail).chain(backwards(self.head))
    }
}

/// The lines of `bytes`, last one first. Unlike the standard library's it does not look at every byte by itself.
fn backwards(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let Some(newline) = memchr::memrchr(b'\n', bytes) else {
            rest = None;
            return Some(bytes);
        };
        rest = Some(&bytes[..newline]);
        Some(&bytes[newline + 1..])
    })
    .filter(|line| !line.is_empty())
}

/// The first line of a text that says something, cut to [`TITLE_CHARS`].
#[must_use]
pub fn title_of(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(TITLE_CHARS).collect())
}

//! What an agent prints on its standard output that is no message: counted, and the beginning kept for whoever has to
//! be told why nothing comes of the agent.

use std::fmt;

/// Lines that are kept: the first ones say what the program is.
const KEPT_LINES: usize = 3;

/// What is kept of each, in bytes.
const KEPT_BYTES: usize = 200;

/// Lines that were not messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chatter {
    /// How many there were.
    pub lines: u64,
    /// The first of them, shortened, without control characters.
    pub first: Vec<String>,
}

impl Chatter {
    pub(super) fn add(&mut self, line: &[u8]) {
        self.lines += 1;
        if self.first.len() < KEPT_LINES {
            let start = &line[..line.len().min(KEPT_BYTES)];
            let text = String::from_utf8_lossy(start);
            // It ends on terminals and in logs.
            self.first.push(text.replace(char::is_control, " "));
        }
    }
}

/// Empty, or what was printed in words that go on behind a sentence.
impl fmt::Display for Chatter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines == 0 {
            return Ok(());
        }
        write!(
            formatter,
            " (no messages but {} came on its standard output, which begins: {})",
            if self.lines == 1 {
                "1 other line".to_owned()
            } else {
                format!("{} other lines", self.lines)
            },
            self.first.join(" / ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_kept_and_everything_counted() {
        let mut chatter = Chatter::default();
        assert_eq!(chatter.to_string(), "");
        chatter.add(b"\x1b[1mhello\x07");
        assert_eq!(
            chatter.to_string(),
            " (no messages but 1 other line came on its standard output, which begins:  [1mhello )"
        );
        for _ in 0..1_000 {
            chatter.add(&[0xFF; 10_000]);
        }
        assert_eq!(chatter.lines, 1_001);
        assert_eq!(chatter.first.len(), KEPT_LINES);
        assert!(chatter.to_string().len() < 3 * 3 * KEPT_BYTES);
    }
}

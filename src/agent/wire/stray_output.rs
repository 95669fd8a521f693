//! Lines on an agent's standard output that are not messages: their number and the first few, to explain why an agent
//! does not work.

use std::fmt;

/// How many lines are stored. The first ones show what the program is.
const KEPT_LINES: usize = 3;

/// How many bytes of each line are stored.
const KEPT_BYTES: usize = 200;

/// Stray output: the lines that were not messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StrayOutput {
    /// How many there were.
    pub line_count: u64,
    /// The first of them, shortened and without control characters.
    pub first_lines: Vec<String>,
}

impl StrayOutput {
    pub(super) fn add(&mut self, line: &[u8]) {
        self.line_count += 1;
        if self.first_lines.len() < KEPT_LINES {
            let start = &line[..line.len().min(KEPT_BYTES)];
            let text = String::from_utf8_lossy(start);
            // Terminals and logs show it.
            self.first_lines.push(text.replace(char::is_control, " "));
        }
    }
}

/// Displays nothing, or a suffix for a sentence.
impl fmt::Display for StrayOutput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line_count == 0 {
            return Ok(());
        }
        write!(
            formatter,
            " (it printed {} on its standard output, starting with: {})",
            if self.line_count == 1 {
                "1 line that is not a message".to_owned()
            } else {
                format!("{} lines that are not messages", self.line_count)
            },
            self.first_lines.join(" / ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_are_kept_and_all_are_counted() {
        let mut chatter = StrayOutput::default();
        assert_eq!(chatter.to_string(), "");
        chatter.add(b"\x1b[1mhello\x07");
        crate::words::check("a line of chatter", "agent", &chatter.to_string());
        for _ in 0..1_000 {
            chatter.add(&[0xFF; 10_000]);
        }
        assert_eq!(chatter.line_count, 1_001);
        assert_eq!(chatter.first_lines.len(), KEPT_LINES);
        assert!(chatter.to_string().len() < 3 * 3 * KEPT_BYTES);
    }
}

//! Whether the last turn of a rollout is over, from the end of its file.

use super::item::is_prompt;
use super::line::{LineKind, RolloutLine};
use crate::transcript::record::line_text;
use crate::transcript::summary::Ends;

/// Whether a turn has ended last in the `tail` of a file, which begins anywhere in a line: the agent says so itself. None
/// when it tells of no turn.
#[must_use]
pub fn turn_ended(tail: &[u8]) -> Option<bool> {
    let lines = Ends { head: b"", tail }.from_end();
    let mut ends = lines.filter_map(|line| {
        let text = line_text(line);
        let record = RolloutLine::parse(&text)?;
        match record.kind {
            LineKind::Item if is_prompt(&record.payload) => Some(false),
            LineKind::Event => match record.payload.text("type")?.as_str() {
                "task_complete" | "turn_aborted" => Some(true),
                "task_started" => Some(false),
                _ => None,
            },
            _ => None,
        }
    });
    ends.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_a_turn_counts() {
        let event = |kind: &str| format!(r#"{{"type":"event_msg","payload":{{"type":"{kind}"}}}}"#) + "\n";
        let started = event("task_started");
        let prompt = r#"{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}}"#.to_owned() + "\n";
        let complete = event("task_complete");
        let table = [
            (vec![&started, &prompt], Some(false)),
            (vec![&started, &prompt, &complete], Some(true)),
            (vec![&complete, &prompt], Some(false)),
            (vec![&complete, &started], Some(false)),
            (vec![], None),
        ];
        for (lines, expected) in table {
            let text: String = lines.iter().map(|line| line.as_str()).collect();
            assert_eq!(turn_ended(text.as_bytes()), expected, "{text}");
            let cut = format!("\"cut\"}}}}\n{text}{}", event("token_count"));
            assert_eq!(turn_ended(cut.as_bytes()), expected, "{cut}");
        }
        assert_eq!(turn_ended(event("turn_aborted").as_bytes()), Some(true));
        assert_eq!(turn_ended(&complete.as_bytes()[..complete.len() / 2]), None);
    }
}

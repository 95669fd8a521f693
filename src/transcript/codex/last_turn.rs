//! Determines from the end of a rollout whether its last turn has ended.

use super::item::is_prompt;
use super::line::{LineKind, RolloutLine};
use crate::transcript::lines::line_text;
use crate::transcript::summary::Ends;

/// The state of a rollout's last turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastTurn {
    /// It has not ended.
    Running,
    /// It has ended, but the file does not show that the model finished its reply.
    Ended,
    /// It has ended with the model's last message.
    Answered,
}

/// The state of the last turn, as the agent recorded it in the `tail` of a file, which may begin within a line. `None` if
/// the tail contains no record of a turn.
#[must_use]
pub fn parse_last_turn(tail: &[u8]) -> Option<LastTurn> {
    let lines = Ends { head: b"", tail }.from_end();
    let mut ends = lines.filter_map(|line| {
        let text = line_text(line);
        let record = RolloutLine::parse(&text)?;
        match record.kind {
            LineKind::Item if is_prompt(&record.payload) => Some(LastTurn::Running),
            LineKind::Event => match record.payload.text("type")?.as_str() {
                "task_complete" => Some(match record.payload.text("last_agent_message") {
                    Some(_) => LastTurn::Answered,
                    None => LastTurn::Ended,
                }),
                "turn_aborted" => Some(LastTurn::Ended),
                "task_started" => Some(LastTurn::Running),
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
        let answered =
            r#"{"type":"event_msg","payload":{"type":"task_complete","last_agent_message":"done"}}"#
                .to_owned()
                + "\n";
        let unanswered = answered.replace("\"done\"", "null");
        let table = [
            (vec![&started, &prompt], Some(LastTurn::Running)),
            (vec![&started, &prompt, &complete], Some(LastTurn::Ended)),
            (vec![&started, &prompt, &unanswered], Some(LastTurn::Ended)),
            (vec![&started, &prompt, &answered], Some(LastTurn::Answered)),
            (vec![&answered, &prompt], Some(LastTurn::Running)),
            (vec![&complete, &started], Some(LastTurn::Running)),
            (vec![], None),
        ];
        for (lines, expected) in table {
            let text: String = lines.iter().map(|line| line.as_str()).collect();
            assert_eq!(parse_last_turn(text.as_bytes()), expected, "{text}");
            let cut = format!("\"cut\"}}}}\n{text}{}", event("token_count"));
            assert_eq!(parse_last_turn(cut.as_bytes()), expected, "{cut}");
        }
        assert_eq!(
            parse_last_turn(event("turn_aborted").as_bytes()),
            Some(LastTurn::Ended)
        );
        assert_eq!(parse_last_turn(&complete.as_bytes()[..complete.len() / 2]), None);
    }
}

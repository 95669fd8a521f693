//! The text that replaces a history which could not be resumed.
//!
//! If nothing can be resumed, a new session is given a retelling of the history. It is prose, not a script
//! with speakers' labels, it is closed explicitly, and it says that it is a retelling: models take
//! half-finished replies for finished work and continue scripts as if they were to be played. The new message
//! is never part of the text; the caller sends it afterwards, as a content block of its own. Pure.

/// The maximum number of turns that are retold, the newest ones. Older ones would cost more of the model's
/// context than they are worth.
pub const TURN_LIMIT: usize = 20;

/// The maximum number of characters that are retold of one prompt or one reply.
pub const TEXT_LIMIT_CHARS: usize = 4_000;

/// A turn, as far as it can be retold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastTurn {
    /// The user's prompt.
    pub prompt: String,
    /// The reply, without tool calls.
    pub reply: String,
    /// Whether the reply was completed.
    pub complete: bool,
}

/// How many turns a retelling omits because they could not be read or were too many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MissingTurnCounts {
    /// Before the retold turns.
    pub before: usize,
    /// After the retold turns.
    pub after: usize,
}

/// A retelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preamble {
    /// The content block to send before the new message.
    pub text: String,
    /// How many turns it retells.
    pub retold_turns: usize,
    /// The turns of the conversation that it does not retell.
    pub missing: MissingTurnCounts,
}

const OPENING: &str = "The earlier session of this conversation could not be opened again. ";
const CLOSING: &str = "This is the end of the retelling. What follows is new, and is what is to be answered.";

/// Retells `turns` (oldest first). `missing` is how many more turns of the conversation could not be read. `None` if
/// there is nothing to retell.
#[must_use]
pub fn build_preamble(turns: &[PastTurn], missing: MissingTurnCounts) -> Option<Preamble> {
    let skipped = turns.len().saturating_sub(TURN_LIMIT);
    let retold = &turns[skipped..];
    if retold.is_empty() && missing == MissingTurnCounts::default() {
        return None;
    }
    let missing = MissingTurnCounts {
        before: missing.before + skipped,
        ..missing
    };
    // A reply that was incomplete when the session ended must not look like a finished answer.
    let ended = retold
        .iter()
        .rposition(|turn| turn.complete)
        .map_or(0, |last| last + 1);

    let mut text = OPENING.to_owned();
    if retold.is_empty() {
        text.push_str("Nothing of what was said in it could be read.");
    } else {
        text.push_str(
            "What was said in it is retold here from the record, oldest first, so that the conversation can \
             go on. It is a retelling and not the session itself: what tools did and what they answered is \
             left out, long texts are cut, and the files may have changed since. None of it is to be answered \
             or done again.",
        );
    }
    match missing.before {
        0 => {}
        1 => text.push_str(" One earlier exchange is missing."),
        count => text.push_str(&format!(" {count} earlier exchanges are missing.")),
    }
    match missing.after {
        0 => {}
        1 => text.push_str(" The last exchange, behind these, is missing too: its record is gone."),
        count => text.push_str(&format!(
            " The last {count} exchanges, behind these, are missing too: their record is gone."
        )),
    }
    for (position, turn) in retold.iter().enumerate() {
        let lead = if position == 0 {
            "First the person wrote"
        } else {
            "Then the person wrote"
        };
        push_quoted(&mut text, lead, &turn.prompt);
        if position >= ended {
            text.push_str("\n\nThe session ended before this was answered to the end.");
        } else if turn.reply.is_empty() {
            text.push_str("\n\nThis was not answered in words.");
        } else if turn.complete {
            push_quoted(&mut text, "The answer was", &turn.reply);
        } else {
            push_quoted(&mut text, "The answer was broken off, after", &turn.reply);
        }
    }
    text.push_str("\n\n");
    text.push_str(CLOSING);
    Some(Preamble {
        text,
        retold_turns: retold.len(),
        missing,
    })
}

/// Whether a content block is a retelling written by [`build_preamble`].
#[must_use]
pub fn is_preamble(text: &str) -> bool {
    text.starts_with(OPENING) && text.ends_with(CLOSING)
}

/// A prompt without the retelling at its beginning, if any.
#[must_use]
pub fn without_retelling(prompt: &str) -> &str {
    split_retelling(prompt).1
}

/// Splits a prompt into the retelling at its beginning, empty if there is none, and the rest. Agents may join the blocks.
#[must_use]
pub fn split_retelling(prompt: &str) -> (&str, &str) {
    match prompt.rfind(CLOSING) {
        Some(closing) if prompt.starts_with(OPENING) => {
            let (retelling, own) = prompt.split_at(closing + CLOSING.len());
            (retelling, own.trim_start())
        }
        _ => ("", prompt),
    }
}

fn push_quoted(text: &mut String, lead: &str, quote: &str) {
    text.push_str("\n\n");
    text.push_str(lead);
    text.push_str(": “");
    match quote.char_indices().nth(TEXT_LIMIT_CHARS) {
        None => {
            text.push_str(quote);
            text.push('”');
        }
        Some((end, _)) => {
            text.push_str(&quote[..end]);
            let left_out = quote[end..].chars().count();
            text.push_str(&format!("” (cut here; {left_out} more characters are left out)"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(prompt: &str, reply: &str, complete: bool) -> PastTurn {
        PastTurn {
            prompt: prompt.into(),
            reply: reply.into(),
            complete,
        }
    }

    #[test]
    fn a_retelling_is_taken_off_the_prompt_that_it_came_with() {
        let first = build_preamble(&[turn("one", "two", true)], MissingTurnCounts::default())
            .expect("a text")
            .text;
        let second = turn(&format!("{first}\n\nthree"), "four", true);
        assert_eq!(without_retelling(&second.prompt), "three");
        // A retelling may contain another one.
        let nested = build_preamble(&[second], MissingTurnCounts::default())
            .expect("a text")
            .text;
        assert_eq!(without_retelling(&format!("{nested}\nfive")), "five");
        assert_eq!(without_retelling("six"), "six");
    }

    // Guards against failure F17.
    #[test]
    fn a_retelling_is_prose_with_an_explicit_end() {
        let told = build_preamble(
            &[turn("What is 2+2?", "4", true), turn("And 3+3?", "6", true)],
            MissingTurnCounts::default(),
        )
        .expect("a text");
        assert!(is_preamble(&told.text));
        assert!(told.text.contains("First the person wrote: “What is 2+2?”"));
        assert!(told.text.contains("The answer was: “6”"));
        for label in ["User:", "Assistant:", "Human:", "<", "missing"] {
            assert!(!told.text.contains(label), "{label}");
        }
        assert_eq!(
            (told.retold_turns, told.missing),
            (2, MissingTurnCounts::default())
        );
    }

    /// Guards against F15 and F17: an incomplete reply at the end is not retold.
    #[test]
    fn trailing_unfinished_replies_are_dropped() {
        let turns = [
            turn("one", "first answer", true),
            turn("two", "broken", false),
            turn("three", "last answer", true),
            turn("four", "half of an ans", false),
            turn("five", "", false),
        ];
        let text = build_preamble(&turns, MissingTurnCounts::default())
            .expect("a text")
            .text;
        assert!(!text.contains("half of an ans"));
        assert!(text.contains("The answer was broken off, after: “broken”"));
        assert!(text.contains("“four”\n\nThe session ended before this was answered"));
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_marked() {
        let fits = "ü".repeat(TEXT_LIMIT_CHARS);
        let long = format!("{fits}end");
        let told = build_preamble(&[turn(&fits, &long, true)], MissingTurnCounts::default())
            .expect("a text")
            .text;
        assert!(told.contains(&format!("“{fits}”\n")));
        assert!(told.contains(&format!("“{fits}” (cut here; 3 more characters are left out)")));
        assert!(!told.contains("end”"));
    }
}

//! Removes terminal control sequences from an agent's text. Its standard error is often meant for a terminal.

use std::iter::Peekable;
use std::str::Chars;

const ESCAPE: char = '\u{1b}';

/// Returns the text without escape sequences and without control characters other than line breaks.
pub fn strip_terminal_codes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            ESCAPE => skip_sequence(&mut rest),
            // The one-character form of `ESC [`.
            '\u{9b}' => skip_parameters(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut rest),
            '\n' => out.push('\n'),
            // A terminal would overwrite the line.
            '\r' if rest.peek() != Some(&'\n') => out.push('\n'),
            '\t' => out.push(' '),
            other if other.is_control() => {}
            other => out.push(other),
        }
    }
    out
}

/// Skips the sequence after its escape character.
fn skip_sequence(rest: &mut Peekable<Chars<'_>>) {
    match rest.next_if(|next| !next.is_control()) {
        Some('[') => skip_parameters(rest),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(rest),
        Some(' '..='/') => {
            while rest.next_if(|next| matches!(next, ' '..='/')).is_some() {}
            let _last = rest.next_if(|next| !next.is_control());
        }
        Some(_) | None => {}
    }
}

/// Skips to the end of a control sequence: its parameters and its final letter.
fn skip_parameters(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|next| matches!(next, ' '..='?')).is_some() {}
    let _last = rest.next_if(|next| matches!(next, '@'..='~'));
}

/// Skips a string for the terminal, such as a title or a link. An unterminated one ends with its line.
fn skip_string(rest: &mut Peekable<Chars<'_>>) {
    while let Some(character) = rest.next_if(|next| *next != '\n') {
        match character {
            '\u{7}' | '\u{9c}' => return,
            ESCAPE => {
                let _last = rest.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_sequences_are_removed_and_text_is_kept() {
        let table = [
            ("no more room", "no more room"),
            (
                "\u{1b}[2m2026-11-20T22:00:00Z\u{1b}[0m \u{1b}[31mERROR\u{1b}[0m codex: gone",
                "2026-11-20T22:00:00Z ERROR codex: gone",
            ),
            ("\u{1b}[38;5;196mred\u{1b}[m [1m", "red [1m"),
            ("\u{9b}1mbold\u{9b}m", "bold"),
            ("\u{1b}]0;title\u{7}words", "words"),
            (
                "\u{1b}]8;;https://example.org\u{1b}\\a link\u{1b}]8;;\u{1b}\\",
                "a link",
            ),
            ("\u{1b}]0;without an end\nnext", "\nnext"),
            ("\u{1b}(B\u{1b}7words\u{1b}8\u{1b}", "words"),
            ("cut short \u{1b}[3", "cut short "),
            ("\u{1b}\nnext", "\nnext"),
            ("one\r\ntwo\rthree\tfour\u{8}\u{0}", "one\ntwo\nthree four"),
            ("größer ✓", "größer ✓"),
        ];
        for (out, expected) in table {
            assert_eq!(strip_terminal_codes(out), expected, "{out:?}");
        }
    }

    proptest! {
        #[test]
        fn no_control_character_but_line_breaks_is_left(text in "[\u{1b}\u{9b}\u{9d}\\[\\]a;0-9\n\r\t\u{7}é]{0,40}") {
            let out = strip_terminal_codes(&text);
            prop_assert!(out.chars().all(|character| character == '\n' || !character.is_control()), "{out:?}");
            prop_assert_eq!(strip_terminal_codes(&out), out);
        }
    }
}

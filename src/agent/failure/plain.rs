//! An agent's words without what steers a terminal: its standard error is often meant for one.

use std::iter::Peekable;
use std::str::Chars;

const ESCAPE: char = '\u{1b}';

/// The text without escape sequences, and without control characters but for line breaks.
pub fn plain(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            ESCAPE => skip_sequence(&mut rest),
            // The same in one character.
            '\u{9b}' => skip_parameters(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut rest),
            '\n' => told.push('\n'),
            // What a terminal would write over.
            '\r' if rest.peek() != Some(&'\n') => told.push('\n'),
            '\t' => told.push(' '),
            other if other.is_control() => {}
            other => told.push(other),
        }
    }
    told
}

/// Goes past the sequence whose escape character is behind.
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

/// Goes to the end of a control sequence: its parameters, and the letter that says what it does.
fn skip_parameters(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|next| matches!(next, ' '..='?')).is_some() {}
    let _last = rest.next_if(|next| matches!(next, '@'..='~'));
}

/// Goes to the end of a text for the terminal, as a title or an address. One that has no end ends with its line.
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
    fn what_is_meant_for_a_terminal_is_left_out_and_the_words_stay() {
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
        for (told, expected) in table {
            assert_eq!(plain(told), expected, "{told:?}");
        }
    }

    proptest! {
        #[test]
        fn no_control_character_but_line_breaks_is_left(text in "[\u{1b}\u{9b}\u{9d}\\[\\]a;0-9\n\r\t\u{7}é]{0,40}") {
            let told = plain(&text);
            prop_assert!(told.chars().all(|character| character == '\n' || !character.is_control()), "{told:?}");
            prop_assert_eq!(plain(&told), told);
        }
    }
}

//! Choosing and breaking of text.

use super::{shows_unicode, wrap_line};

#[test]
fn the_first_locale_variable_decides_on_signs() {
    let table = [
        ([None, None, Some("en_US.UTF-8")], true),
        ([Some("C"), None, Some("en_US.UTF-8")], false),
        ([Some(""), Some("de_DE.utf8"), None], true),
        ([None, None, None], false),
    ];
    for (variables, expected) in table {
        let owned = variables.map(|value| value.map(str::to_owned));
        assert_eq!(shows_unicode(owned), expected, "{variables:?}");
    }
}

#[test]
fn long_lines_are_broken_between_words() {
    for (text, expected) in [
        ("one two three", "one two\nthree"),
        ("  one two three", "  one\n  two\n  three"),
        ("\u{1b}[1mone two\u{1b}[0m a", "\u{1b}[1mone two\u{1b}[0m\na"),
        ("longer-than-it", "longer-than-it"),
        ("a longer-than-it b", "a longer-than-it\nb"),
        ("", ""),
    ] {
        let indent = text.len() - text.trim_start().len();
        assert_eq!(wrap_line(text, 8, indent), expected, "{text:?}");
    }
}

//! Markdown as a terminal shows it.

use super::{Look, Markdown};

fn look(coloured: bool) -> Look {
    Look {
        coloured,
        unicode: true,
        columns: Some(30),
    }
}

/// The text in pieces of every length looks as it does at once.
#[track_caller]
fn check(text: &str, expected: &str) {
    for length in [1, 2, 7, text.len()] {
        let mut markdown = Markdown::new(look(false));
        let mut shown = String::new();
        let letters: Vec<char> = text.chars().collect();
        for piece in letters.chunks(length) {
            shown.push_str(&markdown.push(&piece.iter().collect::<String>()));
        }
        shown.push_str(&markdown.end());
        assert_eq!(shown, expected, "in pieces of {length}");
    }
}

#[test]
fn lines_are_wrapped_at_words() {
    check(
        "one two three four five six seven eight\nnine",
        "one two three four five six\nseven eight\nnine\n",
    );
    check("a  wide   gap\n\nb\n", "a wide gap\n\nb\n");
    check(
        "an-unbroken-word-that-is-wider-than-this-terminal x",
        "an-unbroken-word-that-is-wider-than-this-terminal\nx\n",
    );
    // What stands together stays together.
    check(
        "one two three four five (**six**).\n",
        "one two three four five (six).\n",
    );
}

#[test]
fn blocks_look_as_what_they_are() {
    check(
        "# Head\n- one\n  - two `x`\n3. three\n",
        "Head\n• one\n  • two `x`\n3. three\n",
    );
    check("> said\n", "│ said\n");
    check("---\n", &format!("{}\n", "─".repeat(30)));
    check(
        "- an item that does not fit on one line\n",
        "• an item that does not fit on\n  one line\n",
    );
    // A star that styles nothing stays.
    for line in [
        "2 * 3 = 6\n",
        "all *.rs files\n",
        "2 ** 3, *.rs\n",
        "*.rs or *.md\n",
        "`a * b` * `c*`\n",
    ] {
        check(line, line);
    }
    check("**all** *.rs, *.md and *.c\n", "all *.rs, *.md and *.c\n");
    check("* **a** * b\n", "• a * b\n");
}

#[test]
fn code_is_shown_as_it_is() {
    let code = "```rust\nlet *x* = a   +  b; // a line that is wider than the terminal\n\n# no head\n```\n";
    check(code, code);
    check("~~~\n| no | table |\n", "~~~\n| no | table |\n");
}

#[test]
fn a_table_is_aligned() {
    check(
        "| a | long head |\n|--|:-:|\n| more | b |\nafter",
        "a    │ long head\n─────┼──────────\nmore │ b\nafter\n",
    );
}

#[test]
fn styles_are_written() {
    let mut markdown = Markdown::new(look(true));
    let shown = markdown.push("# Head\nsome **bold**, *slanted* and `code`\n");
    assert_eq!(
        shown,
        "\u{1b}[1m\u{1b}[4mHead\u{1b}[0m\nsome \u{1b}[1mbold\u{1b}[0m, \u{1b}[3mslanted\u{1b}[0m and \u{1b}[36mcode\u{1b}[0m\n"
    );
}

//! Markdown as a terminal shows it.

use proptest::prelude::*;

use super::{Look, Markdown};

fn look(coloured: bool) -> Look {
    Look {
        coloured,
        unicode: true,
        columns: Some(30),
        rows: None,
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
    check(
        "> a quote that is long enough to wrap around\n",
        "│ a quote that is long enough\n│ to wrap around\n",
    );
    check(
        "> - an item that does not fit on one line\n",
        "│ • an item that does not fit\n│   on one line\n",
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

/// Each line with what is shown of it.
#[test]
fn marks_are_understood_as_everywhere() {
    let table = [
        ("_it_, __bo__ and ~~old~~", "it, bo and old"),
        ("snake_case_name 2*3*4", "snake_case_name 234"),
        ("\\*plain\\* &amp; &lt;b&gt; <b>", "*plain* & <b> <b>"),
        ("\u{f8ff} stays", "\u{f8ff} stays"),
        ("`_a_ &amp;`", "`_a_ &amp;`"),
        ("~/a and ~/b, a:~/b:~/c", "~/a and ~/b, a:~/b:~/c"),
        ("1) one", "1) one"),
        ("+ one", "• one"),
        ("> > two", "│ │ two"),
        ("> - # three", "│ • three"),
        ("- [ ] open", "• [ ] open"),
        ("Title ##", "Title ##"),
        ("#", "#"),
        (">", "│"),
        ("\t- deep", "    • deep"),
        ("        eight spaces", "        eight spaces"),
        ("&#27;[31m&#x202e;red&#10;x", "red x"),
    ];
    for (line, expected) in table {
        check(line, &format!("{expected}\n"));
    }
}

#[test]
fn links_show_their_addresses() {
    let table = [
        ("[link](http://x.y)", "link (http://x.y)"),
        ("[*a* `b`](c \"d\").", "a `b` (c d)."),
        ("<http://x.y>", "http://x.y"),
        ("<me@x.y>", "me@x.y"),
        ("[http://x.y](http://x.y)", "http://x.y"),
        ("[](http://x.y)", "http://x.y"),
        ("![map](m.png)", "map (m.png)"),
        ("[![i](i.png)](http://x.y)", "i (i.png) (http://x.y)"),
        ("[x](http://y?a&#27;=1)", "x (http://y?a=1)"),
        ("[link][1] [2]", "[link][1] [2]"),
        ("[1]: http://x.y", "[1]: http://x.y"),
        ("> [1]: http://x.y", "> [1]: http://x.y"),
    ];
    for (line, expected) in table {
        check(line, &format!("{expected}\n"));
    }
}

#[test]
fn code_is_shown_as_it_is() {
    let code = "```rust\nlet *x* = a   +  b; // a line that is wider than the terminal\n\n# no head\n```\n";
    check(code, code);
    check("~~~\n| no | table |\n", "~~~\n| no | table |\n");
    let nested = "````md\n```sh\n*x*\n```\n````\n";
    check(nested, nested);
    check("```a``` *b*\n*c*\n", "`a` b\nc\n");
    check("- ```sh\n  *x*\n  ```\n*b*\n", "- ```sh\n  *x*\n  ```\nb\n");
    // The block ends with its quote.
    check("> ```\n> *x*\n> ```\n> *y*\n", "> ```\n> *x*\n> ```\n│ y\n");
    check("> ```\n> *x*\n*y*\n", "> ```\n> *x*\ny\n");
}

#[test]
fn a_table_is_aligned() {
    check(
        "| a | long head |\n|--:|:-:|\n| more | b |\nafter",
        "   a │ long head\n─────┼──────────\nmore │     b\nafter\n",
    );
    check(
        "  | `a` | b |\n  |-|-|\n  | c \\| d | 表 | e | f |\n  | g |",
        "  `a`   │ b\n  ──────┼────┼──────\n  c | d │ 表 │ e | f\n  g     │\n",
    );
    // Without a line below its head it is none.
    check("| no | *table* |\n| x |\n", "| no | table |\n| x |\n");
}

#[test]
fn a_table_that_is_too_wide_is_broken_between_words() {
    check(
        "| name | what it does |\n|-|-|\n| a | shows the lines since the last turn |\n| b | ends |\n",
        "name │ what it does\n─────┼────────────────────────\na    │ shows the lines since\n     │ the last turn\nb    │ ends\n",
    );
    // A word that is too long is not broken; then there are no columns.
    check(
        "| address | more |\n|-|-|\n| http://example.org/a/long/path | and more words |\n",
        "address │ more\nhttp://example.org/a/long/path\n  │ and more words\n",
    );
}

#[test]
fn styles_end_with_their_line() {
    let mut markdown = Markdown::new(look(true));
    assert_eq!(
        markdown.push("> a quote that is long enough to wrap around\n"),
        "\u{1b}[2m│ \u{1b}[0m\u{1b}[2ma quote that is long enough\u{1b}[0m\n\u{1b}[2m│ \u{1b}[0m\u{1b}[2mto wrap around\u{1b}[0m\n"
    );
    let table = "| a | b |\n|-|-|\n| **shows the lines since** | the last turn ends |\n\n";
    let shown = markdown.push(table);
    assert!(
        shown.contains("\u{1b}[1mshows the\u{1b}[0m") && shown.contains("\u{1b}[1mlines since\u{1b}[0m"),
        "{shown:?}"
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

/// What a text is made of: marks, and `x` for letters.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "x",
        "x",
        "x",
        "x",
        " ",
        " ",
        "\n",
        "\n",
        "\n\n",
        "    ",
        "\t",
        "*",
        "**",
        "_",
        "__",
        "~",
        "~~",
        "`",
        "``",
        "```",
        "~~~",
        "[",
        "]",
        "](",
        "](http://",
        ")",
        "]: ",
        "<",
        ">",
        "<http://",
        "</",
        "<!--",
        "-->",
        "!",
        "![",
        " \"",
        "\"",
        "'",
        "(",
        "|",
        "| ",
        " | ",
        "\n|",
        "|\n",
        "\n|-|\n",
        "\n|-|-|\n",
        "\\",
        "\\|",
        "# ",
        "## ",
        "> ",
        ">",
        "- ",
        "+ ",
        "1. ",
        "2) ",
        "---",
        "===",
        ":",
        "&",
        "&amp;",
        "&#27;",
        "&#155;",
        "&#10;",
        "&#0;",
        ";",
        "{",
        "}",
        "^",
        "[^",
        "$",
        "\u{f8ff}",
        "\u{301}",
        ".",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Each letter of a text is shown once and in its place, whatever the marks mean, and nothing steers the terminal. In a narrow
    /// terminal the words of a cell continue below it, so that only their number is compared.
    #[test]
    fn no_letter_is_lost(pieces in prop::collection::vec(piece(), 0..60), coloured: bool, is_narrow: bool) {
        let mut next = '\u{4e00}'..;
        let text: String = pieces.concat().chars().map(|letter| match letter {
            'x' => next.next().unwrap_or('x'),
            other => other,
        }).collect();
        let is_letter = |letter: &char| ('\u{4e00}'..'\u{4f00}').contains(letter) || *letter == '\u{f8ff}';
        let columns = if is_narrow { 30 } else { 10_000 };
        let mut markdown = Markdown::new(Look { columns: Some(columns), ..look(coloured) });
        let shown = markdown.push(&text) + &markdown.end();
        let shown = anstream::adapter::strip_str(&shown).to_string();
        let controls: Vec<char> = shown.chars().filter(|letter| letter.is_control() && !"\n\t".contains(*letter)).collect();
        prop_assert_eq!(controls, vec![], "{:?}", text);
        let mut written: Vec<char> = text.chars().filter(is_letter).collect();
        let mut seen: Vec<char> = shown.chars().filter(is_letter).collect();
        if is_narrow {
            written.sort_unstable();
            seen.sort_unstable();
        }
        prop_assert_eq!(seen, written, "{:?} became {:?}", text, shown);
    }
}

#[test]
fn a_backslash_at_the_end_of_a_line_breaks_it() {
    check("one\\\ntwo\n", "one\\\ntwo\n");
    check("first line\\\nthe next\n", "first line\nthe next\n");
    check("in C:\\dir\\\nand D:\\\n", "in C:\\dir\\\nand D:\\\n");
}

use super::*;

/// Feeds the bytes in pieces and returns the lines; for a skipped line, its id.
fn split(bytes: &[u8], piece_bytes: usize, max_line_bytes: usize) -> Vec<String> {
    let mut splitter = Splitter::new(max_line_bytes, 64);
    let mut lines = Vec::new();
    let mut left = bytes;
    while !splitter.has_ended() {
        let space = splitter.space();
        let count = piece_bytes.min(left.len()).min(space.len());
        space[..count].copy_from_slice(&left[..count]);
        left = &left[count..];
        splitter.advance(count);
        while let Some(piece) = splitter.next_line() {
            lines.push(match piece {
                SplitLine::Line(line) => String::from_utf8(line.to_vec()).unwrap(),
                SplitLine::TooLong(found) => format!("<{}>", found.id.as_deref().unwrap_or("-")),
            });
        }
    }
    lines
}

#[test]
fn lines_are_the_same_however_they_arrive() {
    let table: &[(&str, &[&str])] = &[
        ("", &[]),
        ("\n\r\n  \n", &[]),
        ("a", &["a"]),
        ("a\nb\r\nc", &["a", "b", "c"]),
        ("a\r\n\r\n\nb\n", &["a", "b"]),
        ("a\rb\n", &["a\rb"]),
        ("12345678\n", &["12345678"]),
        ("12345678\r\n", &["12345678"]),
        ("12345678", &["12345678"]),
        ("123456789\nok\n", &["<->", "ok"]),
        ("123456789\r\nok\n", &["<->", "ok"]),
        ("12345678901234567890\r\n12345678\n", &["<->", "12345678"]),
        ("123456789", &["<->"]),
        ("{\"id\":7,\"a\":1}\nok", &["<7>", "ok"]),
        ("{\"a\":1,\"id\":\"x\"}", &["<\"x\">"]),
    ];
    for (input, expected) in table {
        for piece_bytes in 1..=input.len().max(1) {
            let shown = input.escape_debug();
            assert_eq!(
                split(input.as_bytes(), piece_bytes, 8),
                *expected,
                "{shown} by {piece_bytes}"
            );
        }
    }
}

#[test]
fn long_lines_are_split_for_any_read_size() {
    let long = "y".repeat(200_000);
    let with_id = format!("{{\"id\":5,\"x\":\"{long}\"}}");
    let text = format!("a\n\nbb\n{with_id}\n{long}\nc\nrest");
    for limit in [10, 100_000, 200_000, 1_000_000] {
        let lines = ["a", "bb", &with_id, &long, "c", "rest"];
        let expected = lines.map(|line| match (line.len() <= limit, line.starts_with('{')) {
            (true, _) => line.to_owned(),
            (false, true) => "<5>".to_owned(),
            (false, false) => "<->".to_owned(),
        });
        for piece_bytes in [1, 1_000, 65_536, 1_000_000] {
            assert_eq!(
                split(text.as_bytes(), piece_bytes, limit),
                expected,
                "{piece_bytes} {limit}"
            );
        }
    }
}

#[test]
fn the_buffer_never_holds_a_line_over_the_limit_and_shrinks_after_a_long_one() {
    let limit_bytes = 1024 * 1024;
    let mut splitter = Splitter::new(limit_bytes, 8 * 1024);
    let mut feed = |line: &[u8]| {
        let mut left = line;
        let mut most = 0;
        while !left.is_empty() {
            let space = splitter.space();
            let count = left.len().min(space.len());
            space[..count].copy_from_slice(&left[..count]);
            splitter.advance(count);
            left = &left[count..];
            most = most.max(splitter.buffer.capacity());
            if splitter.has_line() {
                assert!(left.is_empty());
                splitter.next_line();
            }
        }
        most
    };
    assert!(feed(&[&vec![b'a'; limit_bytes][..], b"\n"].concat()) <= 4 * limit_bytes);
    assert!(feed(&[&vec![b'b'; 20 * limit_bytes][..], b"\n"].concat()) <= 4 * limit_bytes);
    assert!(feed(b"short\n") <= 64 * 1024);
}

use super::*;

/// Feeds the bytes in pieces and gives the lines; a skipped one as what was learnt of it.
fn split(bytes: &[u8], piece_bytes: usize, max_line_bytes: usize) -> Vec<Result<String, Oversized>> {
    let mut splitter = Splitter::new(max_line_bytes);
    let mut lines = Vec::new();
    let mut left = bytes;
    while !left.is_empty() {
        let space = splitter.space();
        let count = piece_bytes.min(left.len()).min(space.len());
        space[..count].copy_from_slice(&left[..count]);
        left = &left[count..];
        splitter.advance(count);
        while let Some(piece) = splitter.next() {
            lines.push(match piece {
                Piece::Line(line) => Ok(String::from_utf8(line.to_vec()).unwrap()),
                Piece::TooLong(line) => Err(line),
            });
        }
    }
    lines.push(Ok(String::from_utf8(splitter.rest().to_vec()).unwrap()));
    lines
}

#[test]
fn lines_are_split_whatever_the_reads_are() {
    let long = "y".repeat(200_000);
    let text = format!("a\n\nbb\n{{\"id\":5,\"x\":\"{long}\"}}\n{long}\nc\nrest");
    let whole = |limit: usize| -> Vec<Result<String, Oversized>> {
        let (id, none) = (
            Oversized {
                id: Some("5".into()),
                ..Oversized::default()
            },
            Oversized::default(),
        );
        let lines = [
            "a",
            "",
            "bb",
            &format!("{{\"id\":5,\"x\":\"{long}\"}}"),
            &long,
            "c",
            "rest",
        ];
        let fits = |line: &str| line.len() <= limit;
        lines
            .iter()
            .map(|line| match (fits(line), line.starts_with('{')) {
                (true, _) => Ok((*line).to_owned()),
                (false, true) => Err(id.clone()),
                (false, false) => Err(none.clone()),
            })
            .collect()
    };
    for limit in [10, 100_000, 200_000, 1_000_000] {
        for piece_bytes in [1, 1_000, 65_536, 1_000_000] {
            assert_eq!(
                split(text.as_bytes(), piece_bytes, limit),
                whole(limit),
                "{piece_bytes} {limit}"
            );
        }
    }
}

//! Tables for the line reader, each input also cut at every byte.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use super::*;

/// Hands out one piece a read, then the end of input.
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.0.pop_front() {
            let fits = piece.len().min(target.remaining());
            target.put_slice(&piece[..fits]);
            if fits < piece.len() {
                self.0.push_front(piece.split_off(fits));
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn read_all(pieces: Vec<Vec<u8>>, limit_bytes: usize) -> Vec<String> {
    let mut reader = LineReader::new(Pieces(pieces.into()), limit_bytes);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line().await.unwrap() {
            lines.push(match line {
                Line::Full(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Line::TooLong { id, bytes_seen } => {
                    format!("<{bytes_seen} {}>", id.as_ref().map_or("-", |id| id.get()))
                }
            });
        }
        lines
    })
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
        ("123456789\nok\n", &["<9 ->", "ok"]),
        ("123456789\r\nok\n", &["<9 ->", "ok"]),
        ("12345678901234567890\r\n12345678\n", &["<20 ->", "12345678"]),
        ("123456789", &["<9 ->"]),
        ("{\"id\":7,\"a\":1}\nok", &["<14 7>", "ok"]),
        ("{\"a\":1,\"id\":\"x\"}", &["<16 \"x\">"]),
        ("{\"id\":tru,\"a\":1}", &["<16 ->"]),
    ];
    for (input, expected) in table {
        let input = input.as_bytes();
        assert_eq!(
            read_all(vec![input.to_vec()], 8),
            *expected,
            "whole: {:?}",
            input.escape_ascii()
        );
        assert_eq!(
            read_all(input.iter().map(|byte| vec![*byte]).collect(), 8),
            *expected,
            "by byte"
        );
        for cut in 1..input.len() {
            let pieces = vec![input[..cut].to_vec(), input[cut..].to_vec()];
            assert_eq!(
                read_all(pieces, 8),
                *expected,
                "cut at {cut}: {:?}",
                input.escape_ascii()
            );
        }
    }
}

#[test]
fn the_buffer_never_holds_a_line_over_the_limit_and_shrinks_after_a_long_one() {
    let limit_bytes = 1024 * 1024;
    let long = vec![b'a'; limit_bytes];
    let over = vec![b'b'; 20 * limit_bytes];
    let input = [&long[..], b"\n", &over[..], b"\nshort\n"].concat();
    let pieces = input.chunks(100_000).map(<[u8]>::to_vec).collect::<VecDeque<_>>();
    let mut reader = LineReader::new(Pieces(pieces), limit_bytes);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert!(
            matches!(reader.next_line().await.unwrap(), Some(Line::Full(line)) if line.len() == limit_bytes)
        );
        match reader.next_line().await.unwrap() {
            Some(Line::TooLong { bytes_seen, id: None }) => assert_eq!(bytes_seen, 20 * limit_bytes as u64),
            other => panic!("not too long: {other:?}"),
        }
        assert!(
            reader.buffer.capacity() <= 4 * limit_bytes,
            "{}",
            reader.buffer.capacity()
        );
        assert!(matches!(
            reader.next_line().await.unwrap(),
            Some(Line::Full(b"short"))
        ));
        assert!(reader.next_line().await.unwrap().is_none());
        assert!(
            reader.buffer.capacity() <= KEPT_BUFFER_BYTES,
            "{}",
            reader.buffer.capacity()
        );
    });
}

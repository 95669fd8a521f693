//! Chunks by the million: the directive `stream`.
//!
//! A chunk's line is formed once; only its number changes. With no interval many lines go out in one write,
//! which is what makes a million a second possible; with one, each goes out when it is due.

use std::time::{Duration, Instant};

use super::session::Session;
use super::wire::Output;

/// The size of a chunk's text, in bytes.
const CHUNK_BYTES: usize = 200;

/// The digits of a chunk's number, with leading zeros: enough for any count that a test can wait for.
const NUMBER_DIGITS: usize = 10;

/// How much goes out in one write, in bytes: what a pipe holds.
const BATCH_BYTES: usize = 64 * 1024;

/// How much of the streamed text the transcript keeps, in bytes. A stream of a million chunks measures the
/// wire, and must not become a record of 200 megabytes that every later prompt reads.
const RECORDED_BYTES: usize = 1024 * 1024;

/// The text of a stream, which any prefix of its chunks makes up.
pub(super) struct Stream {
    line: Vec<u8>,
    text_start: usize,
}

impl Stream {
    /// A stream of chunks of one message.
    pub(super) fn new(session_id: &str, message_id: &str) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let head = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{},"update":{{"sessionUpdate":"agent_message_chunk","messageId":{},"content":{{"type":"text","text":""#,
            quoted(session_id),
            quoted(message_id),
        );
        let text_start = head.len();
        let mut line = head.into_bytes();
        line.extend_from_slice(&[b'0'; NUMBER_DIGITS]);
        line.push(b' ');
        line.extend((NUMBER_DIGITS + 1..CHUNK_BYTES - 1).map(|place| b'a' + (place % 26) as u8));
        // The text ends with a line break, written as JSON wants it.
        line.extend_from_slice(b"\\n\"}}}}\n");
        Self { line, text_start }
    }

    /// Sends chunks until all are out or the session is stopped, and answers how many went out.
    pub(super) fn run(&mut self, output: &Output, session: &Session, chunks: u64, interval_ms: u64) -> u64 {
        if interval_ms == 0 {
            self.flood(output, session, chunks)
        } else {
            self.drip(output, session, chunks, interval_ms)
        }
    }

    fn flood(&mut self, output: &Output, session: &Session, chunks: u64) -> u64 {
        let mut batch = Vec::with_capacity(BATCH_BYTES + self.line.len());
        for number in 0..chunks {
            self.set_number(number);
            batch.extend_from_slice(&self.line);
            if batch.len() >= BATCH_BYTES {
                output.send_lines(&batch);
                batch.clear();
                if session.is_stopped() || output.is_closed() {
                    return number + 1;
                }
            }
        }
        output.send_lines(&batch);
        chunks
    }

    fn drip(&mut self, output: &Output, session: &Session, chunks: u64, interval_ms: u64) -> u64 {
        let interval = Duration::from_millis(interval_ms);
        let mut due = Instant::now();
        for number in 0..chunks {
            if session.stopped_before(due) || output.is_closed() {
                return number;
            }
            self.set_number(number);
            output.send_lines(&self.line);
            due += interval;
        }
        chunks
    }

    fn set_number(&mut self, number: u64) {
        let mut rest = number;
        for digit in self.line[self.text_start..self.text_start + NUMBER_DIGITS]
            .iter_mut()
            .rev()
        {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }

    /// The text of the first `chunks` chunks, as far as the transcript keeps it.
    pub(super) fn recorded_text(&mut self, chunks: u64) -> String {
        let kept = chunks.min((RECORDED_BYTES / CHUNK_BYTES) as u64);
        let mut text = String::with_capacity(kept as usize * CHUNK_BYTES);
        for number in 0..kept {
            self.set_number(number);
            let chunk = &self.line[self.text_start..self.text_start + CHUNK_BYTES - 1];
            text.push_str(&String::from_utf8_lossy(chunk));
            text.push('\n');
        }
        if kept < chunks {
            text.push_str(&format!("(and {} more chunks)", chunks - kept));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn every_line_is_an_update_whose_text_is_200_bytes_and_numbered() {
        let mut stream = Stream::new("s\"1", "msg_1");
        for number in [0, 7, 1_234_567_890] {
            stream.set_number(number);
            let line: Value = serde_json::from_slice(&stream.line).expect("JSON");
            let text = line["params"]["update"]["content"]["text"]
                .as_str()
                .expect("a text");
            assert_eq!(text.len(), CHUNK_BYTES);
            assert!(text.starts_with(&format!("{number:010} ")), "{text}");
            assert_eq!(line["params"]["sessionId"], "s\"1");
        }
    }

    #[test]
    fn the_transcript_keeps_what_was_streamed_up_to_a_limit() {
        let mut stream = Stream::new("s", "m");
        let text = stream.recorded_text(3);
        assert_eq!(text.len(), 3 * CHUNK_BYTES);
        assert_eq!(
            text.lines().map(|line| &line[..10]).collect::<Vec<_>>(),
            ["0000000000", "0000000001", "0000000002"]
        );
        assert!(stream.recorded_text(1_000_000).len() < 2 * RECORDED_BYTES);
        assert!(stream.recorded_text(1_000_000).ends_with("more chunks)"));
    }
}

//! The directive `stream`: chunks by the million.
//!
//! The line of a chunk is built once; only its number changes. Without an interval, many lines go out in one write,
//! which makes a million per second possible. With one, each line is sent when it is due.

use std::time::{Duration, Instant};

use super::session::LoopbackSession;
use super::wire::Output;

/// The size of a chunk's text, in bytes.
const CHUNK_BYTES: usize = 200;

/// The digits of a chunk's number, with leading zeros. Enough for any count that a test can wait for.
const NUMBER_DIGITS: usize = 10;

/// How many bytes go out in one write: the capacity of a pipe.
const BATCH_BYTES: usize = 64 * 1024;

/// How many bytes of the streamed text go into the transcript. A stream of a million chunks measures the wire; it must
/// not become a record of 200 megabytes that every later prompt reads.
const RECORDED_BYTES: usize = 1024 * 1024;

/// The text of a stream. Any prefix of its chunks is valid.
pub(super) struct Stream {
    line: Vec<u8>,
    text_start: usize,
}

impl Stream {
    /// Creates a stream of chunks of one message.
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
        // The text ends with a line break, escaped for JSON.
        line.extend_from_slice(b"\\n\"}}}}\n");
        Self { line, text_start }
    }

    /// Sends chunks until all are sent or the session is stopped. Returns how many were sent.
    pub(super) fn run(
        &mut self,
        output: &Output,
        session: &LoopbackSession,
        chunks: u64,
        interval_ms: u64,
    ) -> u64 {
        if interval_ms == 0 {
            self.send_in_batches(output, session, chunks)
        } else {
            self.send_at_intervals(output, session, chunks, interval_ms)
        }
    }

    fn send_in_batches(&mut self, output: &Output, session: &LoopbackSession, chunks: u64) -> u64 {
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

    fn send_at_intervals(
        &mut self,
        output: &Output,
        session: &LoopbackSession,
        chunks: u64,
        interval_ms: u64,
    ) -> u64 {
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

    /// Returns the part of the first `chunks` chunks that goes into the transcript.
    pub(super) fn recorded_text(&mut self, chunks: u64) -> String {
        let recorded_chunks = chunks.min((RECORDED_BYTES / CHUNK_BYTES) as u64);
        let mut text = String::with_capacity(recorded_chunks as usize * CHUNK_BYTES);
        for number in 0..recorded_chunks {
            self.set_number(number);
            let chunk = &self.line[self.text_start..self.text_start + CHUNK_BYTES - 1];
            text.push_str(&String::from_utf8_lossy(chunk));
            text.push('\n');
        }
        if recorded_chunks < chunks {
            text.push_str(&format!("(and {} more chunks)", chunks - recorded_chunks));
        }
        text
    }
}

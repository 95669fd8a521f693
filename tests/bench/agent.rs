//! An ACP agent that only streams numbered updates, each with the time at which it was written.
//!
//! Prompts: `stream COUNT` writes as fast as the pipe accepts, many lines per write; `drip COUNT GAP_US`
//! writes each line separately and sleeps in between.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};

use crate::Outcome;
use crate::sample::monotonic_ns;

/// The length of an update's text in bytes.
const TEXT_BYTES: usize = 200;
/// The text before the number, which distinguishes these updates from all other lines.
pub(crate) const MARK: &str = "\"text\":\"#";
/// The number of digits of the number.
pub(crate) const NUMBER_DIGITS: usize = 10;
/// The number of digits of the time in nanoseconds, which follows the number and a space.
pub(crate) const TIME_DIGITS: usize = 20;
/// The size of one write while streaming: what a pipe holds.
const BATCH_BYTES: usize = 64 * 1024;

/// Answers requests from stdin until it ends.
pub(crate) fn run() -> Outcome<()> {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let Some(id) = message.get("id").filter(|_| message.get("method").is_some()) else {
            continue;
        };
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}),
            "session/new" => json!({"sessionId": format!("bench-{}", monotonic_ns())}),
            "session/prompt" => {
                let session = message["params"]["sessionId"].as_str().unwrap_or_default();
                let prompt = message["params"]["prompt"][0]["text"]
                    .as_str()
                    .unwrap_or_default();
                stream(&mut output, session, prompt)?;
                json!({"stopReason": "end_turn"})
            }
            _ => json!({}),
        };
        writeln!(output, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")?;
        output.flush()?;
    }
    Ok(())
}

fn stream(output: &mut impl Write, session: &str, prompt: &str) -> Outcome<()> {
    let words: Vec<&str> = prompt.split(' ').collect();
    let (count, gap) = match words[..] {
        ["stream", count] => (count.parse::<u64>()?, None),
        ["drip", count, gap_us] => (count.parse()?, Some(Duration::from_micros(gap_us.parse()?))),
        _ => return Ok(()),
    };
    let mut chunk = Chunk::new(session);
    let mut batch = Vec::with_capacity(BATCH_BYTES + chunk.line.len());
    for number in 0..count {
        batch.extend_from_slice(chunk.numbered(number));
        if gap.is_some() || batch.len() >= BATCH_BYTES {
            output.write_all(&batch)?;
            output.flush()?;
            batch.clear();
        }
        if let Some(gap) = gap {
            std::thread::sleep(gap);
        }
    }
    output.write_all(&batch)?;
    Ok(())
}

/// An update line in which only the number and the time change.
struct Chunk {
    line: Vec<u8>,
    number_at: usize,
}

impl Chunk {
    fn new(session: &str) -> Self {
        let head = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"{session}\",\"update\":\
             {{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",{MARK}"
        );
        let number_at = head.len();
        let mut line = head.into_bytes();
        // The mark's last byte belongs to the text.
        line.extend(std::iter::repeat_n(b' ', TEXT_BYTES - 1));
        line.extend_from_slice(b"\"}}}}\n");
        Self { line, number_at }
    }

    fn numbered(&mut self, number: u64) -> &[u8] {
        let digits = format!("{number:0NUMBER_DIGITS$} {:0TIME_DIGITS$}", monotonic_ns());
        let place = self.number_at..self.number_at + digits.len();
        if let Some(place) = self.line.get_mut(place) {
            place.copy_from_slice(digits.as_bytes());
        }
        &self.line
    }
}

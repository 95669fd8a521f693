//! A blocking JSON-RPC client over any pair of pipes, one line at a time. Only the other side is measured.

use std::io::{Read, Write};

use memchr::memmem::Finder;
use serde_json::{Value, json};

use crate::Outcome;
use crate::agent::{MARK, NUMBER_DIGITS, TIME_DIGITS};

/// An update that was received.
pub(crate) struct Arrived {
    /// The number given by the agent.
    pub(crate) number: u64,
    /// The time at which the agent wrote the update.
    pub(crate) written_ns: u64,
}

/// A client that sends requests and reads responses and notifications.
pub(crate) struct Client<R, W> {
    input: Lines<R>,
    output: W,
    last_id: u64,
    mark: Finder<'static>,
}

impl<R: Read, W: Write> Client<R, W> {
    /// Creates a client over these pipes.
    pub(crate) fn over(input: R, output: W) -> Self {
        Self {
            input: Lines::over(input),
            output,
            last_id: 0,
            mark: Finder::new(MARK),
        }
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> Outcome<u64> {
        self.last_id += 1;
        let id = self.last_id;
        let line = format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        );
        self.output.write_all(line.as_bytes())?;
        self.output.flush()?;
        Ok(id)
    }

    /// Sends a request and waits for its result; notifications before it are dropped.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Outcome<Value> {
        let id = self.send(method, params)?;
        self.updates_until(id, |_| {})
    }

    /// Waits for an event of this kind without parsing it.
    pub(crate) fn until_event(&mut self, kind: &str) -> Outcome<()> {
        let event = Finder::new(kind.as_bytes());
        while event.find(self.input.next_line()?).is_none() {}
        Ok(())
    }

    /// Waits for the next response, to whichever request, without parsing it.
    pub(crate) fn skip_answer(&mut self) -> Outcome<()> {
        while !is_answer(self.input.next_line()?) {}
        Ok(())
    }

    /// Passes each update before the response to `id` to `each`, and returns the result.
    pub(crate) fn updates_until(&mut self, id: u64, mut each: impl FnMut(Arrived)) -> Outcome<Value> {
        loop {
            let line = self.input.next_line()?;
            if let Some(at) = self.mark.find(line) {
                let digits = line.get(at + MARK.len()..).unwrap_or_default();
                each(Arrived {
                    number: decimal(digits.get(..NUMBER_DIGITS)),
                    written_ns: decimal(digits.get(NUMBER_DIGITS + 1..NUMBER_DIGITS + 1 + TIME_DIGITS)),
                });
            } else if is_answer(line) {
                let mut answer: Value = serde_json::from_slice(line)?;
                if answer["id"] == id {
                    if let Some(error) = answer.get("error") {
                        return Err(error.to_string().into());
                    }
                    return Ok(answer["result"].take());
                }
            }
        }
    }
}

/// Whether a line is a response. The measured programs send no requests, and all notifications begin with
/// this prefix.
fn is_answer(line: &[u8]) -> bool {
    !line.starts_with(b"{\"jsonrpc\":\"2.0\",\"method\":")
}

fn decimal(digits: Option<&[u8]>) -> u64 {
    digits.unwrap_or_default().iter().fold(0, |number, digit| {
        number * 10 + u64::from(digit.wrapping_sub(b'0'))
    })
}

/// Reads lines from a pipe.
struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
}

impl<R: Read> Lines<R> {
    fn over(source: R) -> Self {
        Self {
            source,
            buffer: vec![0; 256 * 1024],
            start: 0,
            filled: 0,
        }
    }

    fn next_line(&mut self) -> Outcome<&[u8]> {
        let mut searched = self.start;
        loop {
            let unsearched = self.buffer.get(searched..self.filled).unwrap_or_default();
            if let Some(length) = memchr::memchr(b'\n', unsearched) {
                let (start, end) = (self.start, searched + length);
                self.start = end + 1;
                return Ok(self.buffer.get(start..end).unwrap_or_default());
            }
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.filled, 0);
                self.filled -= self.start;
                self.start = 0;
            }
            searched = self.filled;
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let read = self
                .source
                .read(self.buffer.get_mut(self.filled..).unwrap_or_default())?;
            if read == 0 {
                return Err("the other side has ended".into());
            }
            self.filled += read;
        }
    }
}

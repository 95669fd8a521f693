//! The main loop: reads standard input line by line, until it or standard output ends.
//!
//! Owns when the process ends. Waits on both at once, so that it also notices a client that only stops reading.
//! Handles everything except prompts, in order of arrival.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::Value;

use super::agent::Agent;
use super::calls;
use super::wire::RpcError;

/// The longest accepted line, in bytes. A longer one is refused and skipped without being held.
const LINE_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// How many bytes are read at once.
const READ_BYTES: usize = 64 * 1024;

/// How long running turns get, at the end of the input, to record that they were interrupted. They need one write to
/// a file; only a turn that is stuck behind a client that does not read takes longer.
const END_GRACE: Duration = Duration::from_millis(500);

/// Serves until standard input ends or standard output is closed.
pub(super) fn serve(root: &Path) -> io::Result<()> {
    let agent = Arc::new(Agent::new(root));
    let outcome = read_all(&agent);
    agent.end(END_GRACE);
    outcome
}

fn read_all(agent: &Arc<Agent>) -> io::Result<()> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let mut lines = LineSplitter::default();
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let mut ends = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::new(&stdout, PollFlags::empty()),
        ];
        match poll(&mut ends, None) {
            Err(Errno::INTR) => continue,
            ready => ready?,
        };
        let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        if ends[1].revents().intersects(gone) || agent.output.is_closed() {
            return Ok(());
        }
        if ends[0].revents().is_empty() {
            continue;
        }
        match rustix::io::read(&stdin, &mut chunk[..]) {
            Ok(0) => return Ok(()),
            Ok(count) => lines.feed(&chunk[..count], |line| match line {
                Some(line) => take_line(agent, line),
                None => agent
                    .output
                    .respond(&Value::Null, Err(RpcError::invalid_request())),
            }),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn take_line(agent: &Arc<Agent>, line: &[u8]) {
    if line.iter().all(u8::is_ascii_whitespace) {
        return;
    }
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        agent.output.respond(&Value::Null, Err(RpcError::parse_error()));
        return;
    };
    match (message["method"].as_str(), message.get("id")) {
        (Some(method), Some(id)) => calls::request(agent, method, id, &message["params"]),
        (Some(method), None) => calls::notification(agent, method, &message["params"]),
        (None, Some(id)) if message.get("result").is_some() || message.get("error").is_some() => {
            if let Some(request) = id.as_u64() {
                agent.answered(request, &message);
            }
        }
        (None, id) => {
            let id = id.cloned().unwrap_or(Value::Null);
            agent.output.respond(&id, Err(RpcError::invalid_request()));
        }
    }
}

/// Splits input into lines.
#[derive(Default)]
struct LineSplitter {
    held: Vec<u8>,
    skipping: bool,
}

impl LineSplitter {
    /// Passes each line that ends in `bytes` to `take`; `None` for a line that was too long.
    fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(Option<&[u8]>)) {
        let mut start = 0;
        for newline in memchr::memchr_iter(b'\n', bytes) {
            self.hold(&bytes[start..newline]);
            start = newline + 1;
            take(if self.skipping { None } else { Some(&self.held) });
            self.held.clear();
            self.skipping = false;
        }
        self.hold(&bytes[start..]);
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.skipping || self.held.len() + bytes.len() > LINE_LIMIT_BYTES {
            self.skipping = true;
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_for_any_read_size() {
        for size in 1..8 {
            let mut lines = LineSplitter::default();
            let mut taken = Vec::new();
            for piece in b"one\n\ntwo\nrest".chunks(size) {
                lines.feed(piece, |line| taken.push(line.map(<[u8]>::to_vec)));
            }
            assert_eq!(
                taken,
                [Some(b"one".to_vec()), Some(Vec::new()), Some(b"two".to_vec())]
            );
        }
    }

    #[test]
    fn a_line_over_the_limit_is_skipped_and_the_next_one_taken() {
        let mut lines = LineSplitter::default();
        let mut taken = Vec::new();
        let block = vec![b'x'; LINE_LIMIT_BYTES / 2 + 1];
        for bytes in [&block[..], &block, &block, b"\nok\n"] {
            lines.feed(bytes, |line| taken.push(line.map(<[u8]>::to_vec)));
        }
        assert_eq!(taken, [None, Some(b"ok".to_vec())]);
    }
}

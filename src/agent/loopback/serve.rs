//! The main loop: reads standard input line by line, until it or standard output ends.
//!
//! This module decides when the process ends. It waits on both at once, so that it also notices a client that only
//! stops reading. It handles everything except prompts, in order of arrival.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::Value;

use super::agent::LoopbackAgent;
use super::calls;
use super::wire::RpcError;
use crate::agent::split::{SplitLine, Splitter};

/// The longest accepted line, in bytes. A longer one is refused and skipped without being buffered.
const LINE_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// How many bytes are read at once.
const READ_BYTES: usize = 64 * 1024;

/// How long running turns get, at the end of the input, to record that they were interrupted. They need one write to
/// a file; only a turn that is stuck behind a client that does not read takes longer.
const END_GRACE: Duration = Duration::from_millis(500);

/// Serves until standard input ends or standard output is closed.
pub(super) fn serve(root: &Path) -> io::Result<()> {
    let agent = Arc::new(LoopbackAgent::new(root));
    let outcome = read_all(&agent);
    agent.end(END_GRACE);
    outcome
}

fn read_all(agent: &Arc<LoopbackAgent>) -> io::Result<()> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let mut lines = Splitter::new(LINE_LIMIT_BYTES, READ_BYTES);
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
        match rustix::io::read(&stdin, lines.space()) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                lines.advance(count);
                while let Some(line) = lines.next_line() {
                    match line {
                        SplitLine::Line(line) => handle_line(agent, line),
                        SplitLine::TooLong(_) => {
                            let refused = Err(RpcError::invalid_request());
                            agent.output.respond(&Value::Null, refused);
                        }
                    }
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn handle_line(agent: &Arc<LoopbackAgent>, line: &[u8]) {
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        agent.output.respond(&Value::Null, Err(RpcError::parse_error()));
        return;
    };
    match (message["method"].as_str(), message.get("id")) {
        (Some(method), Some(id)) => calls::request(agent, method, id, &message["params"]),
        (Some(method), None) => calls::notification(agent, method, &message["params"]),
        (None, Some(id)) if message.get("result").is_some() || message.get("error").is_some() => {
            if let Some(request) = id.as_u64() {
                agent.deliver_answer(request, &message);
            }
        }
        (None, id) => {
            let id = id.cloned().unwrap_or(Value::Null);
            agent.output.respond(&id, Err(RpcError::invalid_request()));
        }
    }
}

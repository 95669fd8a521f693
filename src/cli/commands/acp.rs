//! `sessionctl acp`: an agent for an editor, on standard input and output.
//!
//! It copies bytes between the editor and the daemon's socket for editors. Of their content, it only tracks which requests of
//! the editor have no answer yet: if the daemon ends the connection or is killed, it answers them with an error.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bridge_protocol::editor::{AGENT, AgentCommand, COMMAND, Chosen, SIGN_IN};
use bridge_protocol::{AgentName, ErrorKind};
use clap::Args;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;

use super::Context;
use crate::cli::connect::{LISTEN_LIMIT, LISTEN_RETRY_PAUSE};
use crate::cli::lock;
use crate::cli::problem::{CommandResult, Exit, Problem};

/// How long to wait for the last answers after the editor's input has ended.
const LAST_ANSWERS_LIMIT: Duration = Duration::from_secs(2);

/// How many bytes are copied at once: the size of a pipe's buffer.
const BUFFER_BYTES: usize = 64 * 1024;

/// The longest line that is parsed as a request or an answer: the daemon's default limit. A longer request gets no answer if the
/// daemon ends.
const LINE_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// Serve an editor as its agent, on standard input and output
///
/// Enter it as the command of an agent in the editor's configuration. Each session of the editor is a conversation: it survives
/// limits, crashes and the end of the editor, and other commands show it too.
#[derive(Debug, Args)]
pub(in crate::cli) struct Acp {
    /// Agent of new conversations (default: the default agent)
    #[arg(long, short, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Arguments for the agent, after those in its configuration
    #[arg(last = true, value_name = "AGENT_ARGS")]
    arguments: Vec<String>,
}

/// Splits the arguments after `--` into those of the agent and those of a sign-in, if the editor has appended any.
fn split_at_sign_in(mut arguments: Vec<String>) -> (Vec<String>, Option<Vec<String>>) {
    let Some(at) = arguments.iter().position(|argument| argument == SIGN_IN) else {
        return (arguments, None);
    };
    let sign_in = arguments.split_off(at + 1);
    arguments.pop();
    // The editor appends a second `--` if the agent has arguments.
    arguments.pop_if(|last| last == "--");
    (arguments, Some(sign_in))
}

/// Copies bytes until the editor or the daemon ends.
pub(in crate::cli) async fn acp(context: &mut Context<'_>, options: Acp) -> CommandResult {
    let daemon = context.connect().await?;
    let Some(socket) = daemon.lock.acp_socket.clone() else {
        return Err(Problem::no_daemon("the running daemon has no socket for editors")
            .hint("restart it: sessionctl stop"));
    };
    let failed = |error: io::Error| Problem::file_error("use the socket", &socket, &error);
    let Acp { agent, arguments } = options;
    let (mut arguments, sign_in) = split_at_sign_in(arguments);
    let mut from_daemon = connect_with_retry(&socket).await.map_err(failed)?;
    if let Some(sign_in) = sign_in {
        arguments.extend(sign_in);
        return Err(run_agent(&from_daemon, &Chosen { agent, arguments }, failed));
    }
    let mut to_daemon = from_daemon.try_clone().map_err(failed)?;
    let mut input = unbuffered(io::stdin().as_fd()).map_err(failed)?;
    let mut output = unbuffered(io::stdout().as_fd()).map_err(failed)?;
    drop(daemon);
    let chosen = Chosen { agent, arguments };
    if chosen != Chosen::default() {
        let notification = json!({"jsonrpc": "2.0", "method": AGENT, "params": chosen});
        writeln!(to_daemon, "{notification}").map_err(failed)?;
    }
    // Use threads: a byte that passes through the runtime's own thread for standard input takes several times as long.
    let has_left = Arc::new(AtomicBool::new(false));
    let leaves = Arc::clone(&has_left);
    let open = Arc::<OpenRequests>::default();
    let (asking, answering) = (Arc::clone(&open), Arc::clone(&open));
    let input_ended = spawn_blocking(move || {
        let ended = copy(&mut input, &mut to_daemon, |line| asking.add_request(line));
        // Store this before the daemon can notice it and close its side too.
        leaves.store(ended != CopyEnd::Target, Ordering::SeqCst);
        // Fails if the daemon has ended; the socket is closed then.
        let _closed = to_daemon.shutdown(Shutdown::Write);
    });
    let mut output_ended = spawn_blocking(move || {
        let note = |line: &[u8]| answering.remove_answered(line);
        copy(&mut from_daemon, &mut output, note)
    });
    let ended = tokio::select! {
        biased;
        ended = &mut output_ended => ended.ok(),
        _ = input_ended => {
            let last_answers = tokio::time::timeout(LAST_ANSWERS_LIMIT, output_ended).await;
            last_answers.ok().and_then(Result::ok)
        }
    };
    match ended {
        Some(CopyEnd::Source { is_cut }) if !has_left.load(Ordering::SeqCst) => {
            let mut answers = open.error_answers();
            if is_cut {
                answers.insert(0, '\n');
            }
            // Ignore an error: the editor may have closed its side.
            let _answered =
                unbuffered(io::stdout().as_fd()).and_then(|mut output| output.write_all(answers.as_bytes()));
            Err(Problem::no_daemon("the daemon closed the connection")
                .hint("restart the agent in the editor, and open the session again"))
        }
        _ => Ok(()),
    }
}

/// Replaces this process with the agent's program. Returns only if that fails.
fn run_agent(daemon: &UnixStream, chosen: &Chosen, failed: impl Fn(io::Error) -> Problem) -> Problem {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<AgentCommand>,
        error: Option<RpcError>,
    }
    #[derive(Deserialize)]
    struct RpcError {
        message: String,
    }
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": COMMAND, "params": chosen});
    let mut line = String::new();
    let asked = writeln!(&*daemon, "{request}").and_then(|()| BufReader::new(daemon).read_line(&mut line));
    if let Err(error) = asked {
        return failed(error);
    }
    match serde_json::from_str(&line) {
        Ok(Answer {
            result: Some(command),
            ..
        }) => {
            let mut program = Command::new(&command.program);
            program.args(command.arguments).envs(command.environment);
            for variable in command.removed_variables {
                program.env_remove(variable);
            }
            Problem::file_error("run", Path::new(&command.program), &program.exec())
        }
        Ok(Answer {
            error: Some(error), ..
        }) => Problem::new(Exit::Agent, error.message),
        Ok(_) => failed(io::Error::other("the daemon's answer has no result")),
        Err(error) => failed(error.into()),
    }
}

/// Connects, and retries for a while: the daemon creates a new socket soon after its socket was removed.
async fn connect_with_retry(socket: &Path) -> io::Result<UnixStream> {
    let began = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Err(_) if began.elapsed() < LISTEN_LIMIT => tokio::time::sleep(LISTEN_RETRY_PAUSE).await,
            other => return other,
        }
    }
}

/// Returns the stream as a file that is not buffered in this process.
fn unbuffered(stream: BorrowedFd<'_>) -> io::Result<File> {
    stream.try_clone_to_owned().map(File::from)
}

/// The ids of the editor's requests that have no answer yet.
#[derive(Default)]
struct OpenRequests(Mutex<Vec<Box<RawValue>>>);

/// The members that distinguish a request, an answer and a notification.
#[derive(Deserialize)]
struct Message {
    id: Option<Box<RawValue>>,
    method: Option<IgnoredAny>,
}

impl OpenRequests {
    /// Records a line of the editor if it is a request. The daemon's answer to one with an invalid id has no id, so
    /// such a request is not recorded.
    fn add_request(&self, line: &[u8]) {
        if let Ok(Message {
            id: Some(id),
            method: Some(_),
        }) = serde_json::from_slice(line)
            && id
                .get()
                .starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
        {
            lock(&self.0).push(id);
        }
    }

    /// Removes the request that a line of the daemon answers. Most lines are notifications, in which the daemon writes the
    /// method first, so they need not be parsed.
    fn remove_answered(&self, line: &[u8]) {
        if !line.starts_with(br#"{"jsonrpc":"2.0","method":"#)
            && let Ok(Message {
                id: Some(id),
                method: None,
            }) = serde_json::from_slice(line)
        {
            let mut open = lock(&self.0);
            open.retain(|asked| asked.get() != id.get());
        }
    }

    /// The error answers to all open requests, for the editor, after the connection has ended. Why it ended is not known: the daemon
    /// also disconnects an editor that reads too slowly.
    fn error_answers(&self) -> String {
        let error = json!({
            "code": ErrorKind::InternalError.code(),
            "message": "the connection to the daemon ended before the answer; restart the agent in the editor, and load the session again",
        });
        let open = lock(&self.0);
        let answers = open
            .iter()
            .map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n"));
        answers.collect()
    }
}

/// Which side ended a copy.
#[derive(PartialEq)]
enum CopyEnd {
    Source {
        /// Whether its last line is incomplete.
        is_cut: bool,
    },
    Target,
}

/// Copies bytes as soon as they arrive, until either side is closed. Calls `note` with each line before the line's end is
/// written. `io::copy` is not used, because it lets the kernel copy, which waits for more bytes.
fn copy(from: &mut impl Read, to: &mut impl Write, note: impl Fn(&[u8])) -> CopyEnd {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut line = Vec::new();
    loop {
        let read = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => {
                return CopyEnd::Source {
                    is_cut: !line.is_empty(),
                };
            }
            Ok(read) => read,
        };
        for part in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_LIMIT_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                note(&line);
                line.clear();
                line.shrink_to(BUFFER_BYTES);
            }
        }
        if to.write_all(&buffer[..read]).is_err() {
            return CopyEnd::Target;
        }
    }
}

//! `sessionctl acp`: an agent for an editor, on standard input and output.
//!
//! It owns the copying of bytes between the editor and the daemon's socket for editors. Of what they mean it knows only which requests
//! of the editor have no answer, because a daemon that was killed answers none.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bridge_protocol::editor::{AGENT, AgentCommand, COMMAND, Chosen, SIGN_IN};
use bridge_protocol::{AgentName, ErrorKind};
use clap::Args;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::Context;
use crate::cli::connect::{LISTEN_LIMIT, LISTEN_RETRY_PAUSE};
use crate::cli::exit::Exit;
use crate::cli::problem::{CommandResult, Problem};

/// How long the last answers may take once the editor's input has ended.
const LAST_ANSWERS_LIMIT: Duration = Duration::from_secs(2);

/// Bytes that are copied at once: as many as a pipe holds.
const BUFFER_BYTES: usize = 64 * 1024;

/// The longest line of which is noted whether it is a request or an answer: what the daemon takes by default.
const LINE_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// Act as an agent for an editor, on standard input and output
///
/// Put it where the editor's configuration has the command of an agent. Its sessions are conversations: they outlive the editor,
/// limits and crashes, and other commands show them too.
#[derive(Debug, Args)]
pub(in crate::cli) struct Acp {
    /// Agent of new conversations (default: the default agent)
    #[arg(long, short, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Arguments of the agent for the sessions of this editor, after its configured ones
    #[arg(last = true, value_name = "AGENT_ARGS")]
    arguments: Vec<String>,
}

/// What follows `--`: the arguments of the agent and, where the editor has appended them, those of a sign-in.
fn split_at_sign_in(mut arguments: Vec<String>) -> (Vec<String>, Option<Vec<String>>) {
    let Some(at) = arguments.iter().position(|argument| argument == SIGN_IN) else {
        return (arguments, None);
    };
    let sign_in = arguments.split_off(at + 1);
    arguments.pop();
    // It stands there twice if the agent has arguments.
    arguments.pop_if(|last| last == "--");
    (arguments, Some(sign_in))
}

/// Copies bytes until the editor or the daemon ends.
pub(in crate::cli) async fn acp(context: &mut Context<'_>, options: Acp) -> CommandResult {
    let daemon = context.connect().await?;
    let Some(socket) = daemon.acp_socket().map(ToOwned::to_owned) else {
        return Err(
            Problem::new(Exit::NoDaemon, "the running daemon has no socket for editors")
                .hint("restart it: sessionctl stop"),
        );
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
    // Threads, because a byte that goes through the runtime's own thread for standard input takes several times as long.
    let has_left = Arc::new(AtomicBool::new(false));
    let leaves = Arc::clone(&has_left);
    let open = Arc::<OpenRequests>::default();
    let (asking, answering) = (Arc::clone(&open), Arc::clone(&open));
    let input_ended = in_thread(move || {
        let ended = copy(&mut input, &mut to_daemon, |line| asking.asked(line));
        // Noted before the daemon can see it and close its side too.
        leaves.store(ended != CopyEnd::Target, Ordering::SeqCst);
        // It is closed already if the daemon is gone.
        let _closed = to_daemon.shutdown(Shutdown::Write);
    });
    let output_ended =
        in_thread(move || copy(&mut from_daemon, &mut output, |line| answering.answered(line)));
    tokio::pin!(output_ended);
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
            let mut answers = open.failed();
            if is_cut {
                answers.insert(0, '\n');
            }
            // An editor that has left needs none.
            let _answered =
                unbuffered(io::stdout().as_fd()).and_then(|mut output| output.write_all(answers.as_bytes()));
            Err(Problem::new(Exit::NoDaemon, "the daemon closed the connection")
                .hint("restart the agent in the editor, and open the session again"))
        }
        _ => Ok(()),
    }
}

/// Replaces this process with the program of the agent. Returns only if that fails.
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
        Ok(_) => failed(io::Error::other("the daemon gives no answer")),
        Err(error) => failed(error.into()),
    }
}

/// Connects. The daemon makes a new socket soon after one was removed.
async fn connect_with_retry(socket: &Path) -> io::Result<UnixStream> {
    let began = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Err(_) if began.elapsed() < LISTEN_LIMIT => tokio::time::sleep(LISTEN_RETRY_PAUSE).await,
            other => return other,
        }
    }
}

/// The stream without a buffer of this process.
fn unbuffered(stream: BorrowedFd<'_>) -> io::Result<File> {
    stream.try_clone_to_owned().map(File::from)
}

/// The ids of the editor's requests that have no answer yet.
#[derive(Default)]
struct OpenRequests(Mutex<Vec<Box<RawValue>>>);

/// What tells a request, an answer and a notification apart.
#[derive(Deserialize)]
struct Message {
    id: Option<Box<RawValue>>,
    method: Option<IgnoredAny>,
}

impl OpenRequests {
    /// Takes note of a line of the editor.
    fn asked(&self, line: &[u8]) {
        if let Ok(Message {
            id: Some(id),
            method: Some(_),
        }) = serde_json::from_slice(line)
        {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        }
    }

    /// Takes note of a line of the daemon. Most are notifications, which it begins with the method.
    fn answered(&self, line: &[u8]) {
        if !line.starts_with(br#"{"jsonrpc":"2.0","method":"#)
            && let Ok(Message {
                id: Some(id),
                method: None,
            }) = serde_json::from_slice(line)
        {
            let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|asked| asked.get() != id.get());
        }
    }

    /// The answers of a daemon that has ended.
    fn failed(&self) -> String {
        let error = json!({
            "code": ErrorKind::InternalError.code(),
            "message": "the daemon ended before it answered; restart the agent in the editor, and load the session again",
        });
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = open
            .iter()
            .map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n"));
        answers.collect()
    }
}

/// Which side of a copy ended it.
#[derive(PartialEq)]
enum CopyEnd {
    Source {
        /// Whether its last line has no end.
        is_cut: bool,
    },
    Target,
}

/// Copies what comes at once, until either side is gone; notes each line before its end is written. (`io::copy` would have the kernel
/// copy, which waits for more.)
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
            }
        }
        if to.write_all(&buffer[..read]).is_err() {
            return CopyEnd::Target;
        }
    }
}

/// Resolves with what the work returns.
fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (done, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        // Nobody waits once the other side has ended.
        let _ended = done.send(work());
    });
    receiver
}

//! A proxy between the daemon and the built-in agent. It drops, delays, truncates, duplicates and reorders
//! lines, closes pipes and kills processes.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use super::kinds::{CALM, Fault, Kind, losses_of, note};
use super::random::Random;

/// How long a reordered line waits for the next line, which is to overtake it.
const HOLD: Timespec = milliseconds(20);

/// The longest delay, in milliseconds.
const LONGEST_DELAY_MS: usize = 12;

const READ_BYTES: usize = 16 * 1024;

/// Whether nothing more is sent to the daemon.
static IS_MUTE: AtomicBool = AtomicBool::new(false);

const fn milliseconds(milliseconds: i64) -> Timespec {
    Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    }
}

/// Copies lines between its own input and output and those of an agent that it starts. The arguments are
/// `SESSIOND HOME SEED`.
pub(crate) fn run(arguments: &[String]) {
    let [sessiond, home, seed] = arguments else {
        panic!("SESSIOND HOME SEED")
    };
    let (home, seed) = (PathBuf::from(home), seed.parse::<u64>().unwrap());
    // A panic in any thread ends the whole process.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let number = number_of_process(&home);
    let mut agent = Command::new(sessiond)
        .args(["loopback-agent", "--data"])
        .arg(home.join("data"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (to_agent, from_agent) = (agent.stdin.take().unwrap(), agent.stdout.take().unwrap());
    let agent = Arc::new(Mutex::new(agent));
    let way = |direction: u64, sink| Way {
        home: home.clone(),
        random: Random::new(seed ^ (2 * number + direction).wrapping_mul(0x1234_5678_9abc_def1)),
        agent: Arc::clone(&agent),
        sink: Some(sink),
        held: None,
        lacks_end: false,
        unfinished: Vec::new(),
    };
    let mut down = way(0, Sink::Agent(to_agent));
    let mut up = way(1, Sink::Daemon);
    // When the input ends, this thread ends and closes the agent's input; the agent's remaining output is
    // still forwarded.
    let down = std::thread::spawn(move || down.run(rustix::stdio::stdin()));
    up.run(from_agent.as_fd());
    drop(up);
    // The agent has exited or closed its output. The other thread is not joined, because the daemon may never
    // close that pipe.
    drop(down);
    let mut agent = agent.lock().unwrap();
    drop(agent.kill());
    drop(agent.wait());
}

/// Classifies a line.
fn kind_of(line: &[u8]) -> Kind {
    let says = |word: &[u8]| line.windows(word.len()).any(|window| window == word);
    if says(br#""method":"session/update""#) {
        Kind::Update
    } else if says(br#""method":"session/prompt""#) {
        Kind::Prompt
    } else {
        Kind::Call
    }
}

/// Reports to the round that a line was lost, because a turn may now wait forever for it.
fn tell_loss(home: &Path) {
    let teller = UnixDatagram::unbound().unwrap();
    teller.set_nonblocking(true).unwrap();
    // If the socket is full, an earlier report is still unread, and the round ends all running turns when it
    // reads that one. If the receiver no longer exists, the round is over.
    drop(teller.send_to(b"lost", losses_of(home)));
}

/// Numbers the proxies of this home, starting at 0: takes the first free number by creating its file.
fn number_of_process(home: &Path) -> u64 {
    let is_free = |number: &u64| File::create_new(home.join(format!("proxy-{number}"))).is_ok();
    (0..).find(is_free).unwrap()
}

/// The destination of one direction.
enum Sink {
    Agent(ChildStdin),
    /// The daemon, which reads the proxy's stdout.
    Daemon,
}

/// One direction of the proxy.
struct Way {
    home: PathBuf,
    random: Random,
    agent: Arc<Mutex<Child>>,
    /// `None` after it was closed.
    sink: Option<Sink>,
    /// A reordered line that waits for the next line.
    held: Option<Vec<u8>>,
    /// Whether the last write ended in the middle of a line.
    lacks_end: bool,
    /// The beginning of a line whose end has not been read yet.
    unfinished: Vec<u8>,
}

impl Way {
    /// Forwards lines until the source ends.
    fn run(&mut self, source: BorrowedFd<'_>) {
        let mut chunk = vec![0; READ_BYTES];
        loop {
            let limit = self.held.is_some().then_some(&HOLD);
            match poll(&mut [PollFd::new(&source, PollFlags::IN)], limit) {
                Ok(0) => {
                    self.let_go();
                    continue;
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("{error}"),
            }
            match rustix::io::read(source, &mut chunk[..]) {
                Ok(0) => break,
                Ok(count) => self.take(&chunk[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
        }
        self.let_go();
        self.sink = None;
    }

    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.unfinished.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.unfinished);
                self.pass(line);
            }
        }
    }

    /// Forwards one line, which includes its line break, perhaps with a fault.
    fn pass(&mut self, line: Vec<u8>) {
        let is_calm = self.home.join(CALM).exists();
        let fault = kind_of(&line).draw(&mut self.random).filter(|_| !is_calm);
        match fault {
            None => self.write(&line),
            Some(Fault::Drop) => {
                self.note(Fault::Drop);
                self.lose(&line);
            }
            Some(Fault::Delay) => {
                let delay = milliseconds(1 + i64::try_from(self.random.below(LONGEST_DELAY_MS)).unwrap());
                self.note(Fault::Delay);
                poll(&mut [], Some(&delay)).unwrap();
                self.write(&line);
            }
            Some(Fault::Truncate) => {
                let length = self.random.below(line.len() - 1);
                self.note(Fault::Truncate);
                self.write(&[&line[..length], b"\n"].concat());
                self.lose(&line);
            }
            Some(Fault::Join) => {
                self.note(Fault::Join);
                self.write(&line[..line.len() - 1]);
                self.lose(&line);
            }
            Some(Fault::Duplicate) => {
                self.note(Fault::Duplicate);
                self.write(&line);
                self.write(&line);
            }
            // The fault is recorded after another line has overtaken this one.
            Some(Fault::Reorder) if self.held.is_none() => {
                self.held = Some(line);
                return;
            }
            Some(Fault::Reorder) => self.write(&line),
            Some(Fault::CloseInput) => {
                self.note(Fault::CloseInput);
                let nothing = File::open("/dev/null").unwrap();
                rustix::stdio::dup2_stdin(nothing).unwrap();
                // Requests that were in flight are lost.
                tell_loss(&self.home);
                self.write(&line);
            }
            Some(Fault::CloseOutput) => {
                self.note(Fault::CloseOutput);
                let nothing = File::options().write(true).open("/dev/null").unwrap();
                rustix::stdio::dup2_stdout(nothing).unwrap();
                IS_MUTE.store(true, Ordering::SeqCst);
                // Responses that were in flight are lost too.
                tell_loss(&self.home);
                self.write(&line);
            }
            Some(Fault::KillAgent) => {
                self.note(Fault::KillAgent);
                self.agent.lock().unwrap().kill().unwrap();
            }
            Some(Fault::KillProxy) => {
                self.note(Fault::KillProxy);
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            Some(Fault::KillDaemon) => unreachable!("the round does that"),
        }
        if self.held.is_some() && fault != Some(Fault::Drop) {
            self.note(Fault::Reorder);
            self.let_go();
        }
    }

    /// Forwards the waiting line, if any.
    fn let_go(&mut self) {
        if let Some(line) = self.held.take() {
            self.write(&line);
        }
    }

    fn note(&self, fault: Fault) {
        note(&self.home, fault);
    }

    /// Reports that a line will not arrive. Updates are not reported, because no turn waits for one.
    fn lose(&self, line: &[u8]) {
        if kind_of(line) != Kind::Update {
            tell_loss(&self.home);
        }
    }

    /// Writes to the destination. If it is closed or mute, the bytes are lost.
    fn write(&mut self, bytes: &[u8]) {
        let is_part_of_another = std::mem::replace(&mut self.lacks_end, !bytes.ends_with(b"\n"));
        let is_mute = matches!(self.sink, Some(Sink::Daemon)) && IS_MUTE.load(Ordering::SeqCst);
        if is_part_of_another || is_mute || self.sink.is_none() {
            self.lose(bytes);
        }
        let written = match &mut self.sink {
            Some(Sink::Agent(input)) => input.write_all(bytes),
            Some(Sink::Daemon) => {
                let mut output = std::io::stdout().lock();
                output.write_all(bytes).and_then(|()| output.flush())
            }
            None => return,
        };
        if written.is_err() {
            self.sink = None;
        }
    }
}

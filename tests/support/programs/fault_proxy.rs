//! A proxy between the daemon and the built-in agent that drops, delays, cuts, doubles and reorders lines,
//! closes pipes and kills processes.

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

/// How long a line waits for the next one that it is to arrive behind.
const HOLD: Timespec = milliseconds(20);

/// The longest delay, in milliseconds.
const LONGEST_DELAY_MS: usize = 12;

const READ_BYTES: usize = 16 * 1024;

/// Whether the daemon gets nothing more.
static IS_MUTE: AtomicBool = AtomicBool::new(false);

const fn milliseconds(milliseconds: i64) -> Timespec {
    Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    }
}

/// Passes lines on between its own input and output, and those of an agent that it starts: `SESSIOND HOME
/// SEED`.
pub(crate) fn run(arguments: &[String]) {
    let [sessiond, home, seed] = arguments else {
        panic!("SESSIOND HOME SEED")
    };
    let (home, seed) = (PathBuf::from(home), seed.parse::<u64>().unwrap());
    // A thread that fails takes the process along.
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
    // Ends with the input, and takes the agent's along; what the agent still says then is handed on.
    let down = std::thread::spawn(move || down.run(rustix::stdio::stdin()));
    up.run(from_agent.as_fd());
    drop(up);
    // The agent has ended, or closed its output. Nobody waits for the other way: the daemon may never end it.
    drop(down);
    let mut agent = agent.lock().unwrap();
    drop(agent.kill());
    drop(agent.wait());
}

/// What a line is.
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

/// Tells the round that a line was lost for which a turn may wait without an end.
fn tell_loss(home: &Path) {
    let teller = UnixDatagram::unbound().unwrap();
    teller.set_nonblocking(true).unwrap();
    // If there is no more room, an earlier loss is still unread, and the round ends all that runs when it reads that. If
    // nobody reads any more, the round is over.
    drop(teller.send_to(b"lost", losses_of(home)));
}

/// How many proxies of this home there were before.
fn number_of_process(home: &Path) -> u64 {
    let is_free = |number: &u64| File::create_new(home.join(format!("proxy-{number}"))).is_ok();
    (0..).find(is_free).unwrap()
}

/// Where a way leads to.
enum Sink {
    Agent(ChildStdin),
    /// Standard output.
    Daemon,
}

/// One direction.
struct Way {
    home: PathBuf,
    random: Random,
    agent: Arc<Mutex<Child>>,
    /// None once it was closed.
    sink: Option<Sink>,
    /// A line that waits for the next one.
    held: Option<Vec<u8>>,
    /// Whether the line that was written last lacks its end.
    lacks_end: bool,
    /// A line whose end has not been read.
    unfinished: Vec<u8>,
}

impl Way {
    /// Hands lines on until there are no more.
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

    /// One line, with its end.
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
            // Noted when another line has passed it.
            Some(Fault::Reorder) if self.held.is_none() => {
                self.held = Some(line);
                return;
            }
            Some(Fault::Reorder) => self.write(&line),
            Some(Fault::CloseInput) => {
                self.note(Fault::CloseInput);
                let nothing = File::open("/dev/null").unwrap();
                rustix::stdio::dup2_stdin(nothing).unwrap();
                // What was on its way is lost.
                tell_loss(&self.home);
                self.write(&line);
            }
            Some(Fault::CloseOutput) => {
                self.note(Fault::CloseOutput);
                let nothing = File::options().write(true).open("/dev/null").unwrap();
                rustix::stdio::dup2_stdout(nothing).unwrap();
                IS_MUTE.store(true, Ordering::SeqCst);
                // What was on its way is lost too.
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

    /// Hands on what waits.
    fn let_go(&mut self) {
        if let Some(line) = self.held.take() {
            self.write(&line);
        }
    }

    fn note(&self, fault: Fault) {
        note(&self.home, fault);
    }

    /// This line does not arrive. No turn waits for an update.
    fn lose(&self, line: &[u8]) {
        if kind_of(line) != Kind::Update {
            tell_loss(&self.home);
        }
    }

    /// Whoever reads no more gets nothing more.
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

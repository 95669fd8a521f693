//! The floors: the least that a process in place of the daemon could do.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Outcome;
use crate::options::AGENT;
use crate::sample::timed_us;

/// The number of bytes that the splice moves at once: what a pipe holds.
const SPLICE_BYTES: usize = 64 * 1024;

/// Copies bytes between one client of a socket and an agent without looking at them.
pub(crate) fn splice(socket: &Path) -> Outcome<()> {
    let (client, _) = UnixListener::bind(socket)?.accept()?;
    let mut agent = Ended(spawn_agent()?);
    let (Some(mut to_agent), Some(mut from_agent)) = (agent.0.stdin.take(), agent.0.stdout.take()) else {
        return Err("the agent has no pipes".into());
    };
    let mut from_client = client.try_clone()?;
    let upwards = std::thread::spawn(move || copy(&mut from_client, &mut to_agent));
    copy(&mut from_agent, &mut &client)?;
    client.shutdown(std::net::Shutdown::Both)?;
    // The thread ends with the client; its error does not matter.
    drop(upwards.join());
    Ok(())
}

/// Answers each line of one client after another with a line of this length.
pub(crate) fn answer(socket: &Path, bytes: usize) -> Outcome<()> {
    let head = "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":\"";
    let line = format!("{head}{}\"}}\n", "x".repeat(bytes.saturating_sub(head.len() + 3)));
    let listener = UnixListener::bind(socket)?;
    let mut buffer = vec![0; SPLICE_BYTES];
    loop {
        let (mut client, _) = listener.accept()?;
        loop {
            let read = client.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            let asked = memchr::memchr_iter(b'\n', buffer.get(..read).unwrap_or_default()).count();
            client.write_all(line.repeat(asked).as_bytes())?;
        }
    }
}

/// Reads a file once; then reads it again and counts its lines. Prints how long each took in microseconds,
/// and the number of lines.
pub(crate) fn read(path: &Path) -> Outcome<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut all = |mut each: Box<dyn FnMut(&[u8])>| -> std::io::Result<()> {
        let mut file = std::fs::File::open(path)?;
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(()),
                read => each(buffer.get(..read).unwrap_or_default()),
            }
        }
    };
    let (read, read_us) = timed_us(|| all(Box::new(|_| {})));
    read?;
    let mut lines = 0;
    let (counted, counted_us) = timed_us(|| {
        all(Box::new(|bytes| {
            lines += memchr::memchr_iter(b'\n', bytes).count();
        }))
    });
    counted?;
    writeln!(std::io::stdout(), "{read_us} {counted_us} {lines}")?;
    Ok(())
}

/// Starts the streaming agent of this program, with pipes.
pub(crate) fn spawn_agent() -> Outcome<Child> {
    Ok(Command::new(std::env::current_exe()?)
        .arg(AGENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?)
}

/// A process that is killed and reaped when dropped.
pub(crate) struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Connects as soon as the socket is open.
pub(crate) fn connect(socket: &Path) -> Outcome<UnixStream> {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if std::time::Instant::now() > deadline => return Err(error.into()),
            // Polls because no event reports that the measured process has created the socket.
            Err(_) => std::thread::sleep(std::time::Duration::from_micros(100)),
        }
    }
}

fn copy(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut buffer = vec![0; SPLICE_BYTES];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(buffer.get(..read).unwrap_or_default())?;
    }
}

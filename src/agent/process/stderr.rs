//! The end of an agent's standard error, for the message that says why it ended.
//!
//! It owns the reading end of the pipe and a bounded number of bytes, and must not interpret them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

/// How much of the end is kept: enough for a stack trace, little enough for an error's data.
pub const STDERR_TAIL_BYTES: usize = 8 * 1024;

/// How long the death of a process waits for the rest of its standard error. What the process wrote itself is there
/// at once; a descendant that holds the pipe open must not delay anyone.
const SETTLE: Duration = Duration::from_millis(200);

/// Read size.
const CHUNK_BYTES: usize = 4 * 1024;

/// The tail of one process's standard error; a clone sees the same.
#[derive(Debug, Clone)]
pub struct StderrTail {
    bytes: Arc<Mutex<Vec<u8>>>,
    reading: watch::Receiver<()>,
}

impl StderrTail {
    /// A tail that nothing is written to.
    pub(super) fn empty() -> Self {
        Self {
            bytes: Arc::default(),
            reading: watch::channel(()).1,
        }
    }

    /// Reads to the end in a task of its own, so that a chatty agent never blocks on its standard error.
    pub(super) fn read_from(mut input: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let (guard, reading) = watch::channel(());
        let tail = Self {
            bytes: Arc::default(),
            reading,
        };
        let bytes = Arc::clone(&tail.bytes);
        tokio::spawn(async move {
            // Dropped at the end, which is what `settle` waits for.
            let _guard = guard;
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                match input.read(&mut chunk).await {
                    Ok(0) | Err(_) => return,
                    Ok(read) => keep(&bytes, chunk.get(..read).unwrap_or_default()),
                }
            }
        });
        tail
    }

    /// Waits until all was read, but not for long.
    pub(super) async fn settle(&self) {
        let mut reading = self.reading.clone();
        let ended = async move { while reading.changed().await.is_ok() {} };
        if tokio::time::timeout(SETTLE, ended).await.is_err() {
            tracing::debug!("an agent's standard error is held open after its end");
        }
    }

    /// The tail as text; what is not UTF-8 is replaced.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let start = bytes.len().saturating_sub(STDERR_TAIL_BYTES);
        let tail = bytes.get(start..).unwrap_or_default();
        // A cut may fall inside a character, whose rest says nothing.
        let whole = tail
            .iter()
            .position(|byte| start == 0 || byte & 0xC0 != 0x80)
            .unwrap_or(0);
        String::from_utf8_lossy(tail.get(whole..).unwrap_or_default()).into_owned()
    }
}

/// Appends, and drops the oldest half when twice the limit is reached, so that a byte is moved at most once.
fn keep(bytes: &Mutex<Vec<u8>>, chunk: &[u8]) {
    let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
    bytes.extend_from_slice(chunk);
    if bytes.len() > 2 * STDERR_TAIL_BYTES {
        let excess = bytes.len() - STDERR_TAIL_BYTES;
        bytes.drain(..excess);
    }
}

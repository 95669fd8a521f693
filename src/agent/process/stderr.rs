//! The end of an agent's standard error, to report why the agent ended.
//!
//! This module owns the reading end of the pipe and a bounded number of bytes. It does not interpret them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

/// How many bytes of the end are stored: enough for a stack trace, and few enough for an error's data.
pub const STDERR_TAIL_BYTES: usize = 8 * 1024;

/// How long the end of a process waits for the rest of its standard error. The process's own output is available at
/// once; a descendant that holds the pipe open must not delay it.
const SETTLE_LIMIT: Duration = Duration::from_millis(200);

/// How many bytes are read at once.
const CHUNK_BYTES: usize = 4 * 1024;

/// The tail of one process's standard error. Clones share it.
#[derive(Debug, Clone)]
pub struct StderrTail {
    bytes: Arc<Mutex<Vec<u8>>>,
    reading: watch::Receiver<()>,
}

impl StderrTail {
    /// Creates a tail without input.
    #[cfg(test)]
    pub(super) fn empty() -> Self {
        Self {
            bytes: Arc::default(),
            reading: watch::channel(()).1,
        }
    }

    /// Reads to the end in a separate task, so that an agent never blocks on its standard error.
    pub(super) fn read_from(mut input: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let (guard, reading) = watch::channel(());
        let tail = Self {
            bytes: Arc::default(),
            reading,
        };
        let bytes = Arc::clone(&tail.bytes);
        tokio::spawn(async move {
            // Dropped at the end of the input, for which `wait_for_rest` waits.
            let _guard = guard;
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                match input.read(&mut chunk).await {
                    Ok(0) | Err(_) => return,
                    Ok(read) => append_bounded(&bytes, chunk.get(..read).unwrap_or_default()),
                }
            }
        });
        tail
    }

    /// Waits briefly until everything was read.
    pub(super) async fn wait_for_rest(&self) {
        let mut reading = self.reading.clone();
        let ended = async move { while reading.changed().await.is_ok() {} };
        if tokio::time::timeout(SETTLE_LIMIT, ended).await.is_err() {
            tracing::debug!("an agent's standard error stays open after its end");
        }
    }

    /// Returns the tail as text. Replaces invalid UTF-8.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let start = bytes.len().saturating_sub(STDERR_TAIL_BYTES);
        let tail = bytes.get(start..).unwrap_or_default();
        // The cut may split a character; skip its rest.
        let whole = tail
            .iter()
            .position(|byte| start == 0 || byte & 0xC0 != 0x80)
            .unwrap_or(0);
        String::from_utf8_lossy(tail.get(whole..).unwrap_or_default()).into_owned()
    }
}

/// Appends a chunk. Drops the oldest half at twice the limit, so that each byte is moved at most once.
fn append_bounded(bytes: &Mutex<Vec<u8>>, chunk: &[u8]) {
    let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
    bytes.extend_from_slice(chunk);
    if bytes.len() > 2 * STDERR_TAIL_BYTES {
        let excess = bytes.len() - STDERR_TAIL_BYTES;
        bytes.drain(..excess);
    }
}

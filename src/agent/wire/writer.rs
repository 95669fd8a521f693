//! The task that writes to the agent.
//!
//! It owns the agent's input. It does not know what the lines mean. Queued lines are written together.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Shared;

/// How many lines are taken from the queue at once.
const LINES_AT_ONCE: usize = 64;

/// The longest piece that is assembled from short lines, in bytes. A longer line is written separately.
const COALESCED_BYTES: usize = 64 * 1024;

/// How long closing the input waits for an agent that does not read. A queued cancel should still arrive, but a stuck
/// agent should not delay the stop.
const FLUSH_GRACE: Duration = Duration::from_millis(500);

/// Writes until the input is closed by this program, or fails.
pub(super) async fn run(
    shared: Arc<Shared>,
    output: impl AsyncWrite + Unpin + Send,
    queue: mpsc::Receiver<String>,
) {
    let close = shared.close_input.clone();
    let given_up = async {
        close.cancelled().await;
        tokio::time::sleep(FLUSH_GRACE).await;
    };
    // The output is dropped here in any case, which ends the agent's input.
    let ended = tokio::select! {
        biased;
        ended = write_queue(&shared, output, queue, &close) => ended,
        () = given_up => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "cannot write to the agent's input");
        shared.write_failed.cancel();
    }
}

async fn write_queue(
    shared: &Shared,
    mut output: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<String>,
    close: &CancellationToken,
) -> io::Result<()> {
    let mut lines = Vec::with_capacity(LINES_AT_ONCE);
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            // Write the queue before closing.
            biased;
            taken = queue.recv_many(&mut lines, LINES_AT_ONCE) => if taken == 0 { return Ok(()) },
            () = close.cancelled() => return output.shutdown().await,
        }
        let bytes: usize = lines.iter().map(String::len).sum();
        for line in lines.drain(..) {
            if batch.len() + line.len() > COALESCED_BYTES && !batch.is_empty() {
                output.write_all(&batch).await?;
                batch.clear();
            }
            if line.len() > COALESCED_BYTES {
                output.write_all(line.as_bytes()).await?;
            } else {
                batch.extend_from_slice(line.as_bytes());
            }
        }
        output.write_all(&batch).await?;
        batch.clear();
        output.flush().await?;
        shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

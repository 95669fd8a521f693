//! One JSON-RPC message a line, both ways, as jsonrpsee's transport traits want it.
//!
//! Knows no messages. An error here ends the client: jsonrpsee reports it from every call that waits.

use std::io;
use std::path::{Path, PathBuf};

use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee_core::client::{ReceivedMessage, TransportReceiverT, TransportSenderT};
use serde::Deserialize;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::error::BridgeError;

/// Read at once: as much as the daemon writes at once.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Why a connection to the daemon ended.
#[derive(Debug, Error)]
pub enum TransportError {
    /// The daemon closed it: it stopped, or was killed.
    #[error("the daemon closed the connection at {}", path.display())]
    Closed {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon said why it does not serve this connection, and closed it: too many are open.
    #[error("the daemon refused the connection at {}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// What it said.
        #[source]
        error: BridgeError,
    },
    /// The daemon sent a line that is longer than any message.
    #[error("the daemon sent a line of more than {limit_bytes} bytes at {}", path.display())]
    LineTooLong {
        /// The socket.
        path: PathBuf,
        /// The limit that was passed.
        limit_bytes: usize,
    },
    /// The system refused to read or write.
    #[error("cannot {step} the socket {}", path.display())]
    Io {
        /// What was tried, as a verb that fits before the path.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Writes each message as a line.
#[derive(Debug)]
pub(super) struct LineSender {
    stream: OwnedWriteHalf,
    path: PathBuf,
}

/// Reads each line as a message; blank ones are skipped.
#[derive(Debug)]
pub(super) struct LineReceiver {
    stream: BufReader<OwnedReadHalf>,
    path: PathBuf,
    limit_bytes: usize,
    /// What was read of a line so far; kept here so that a read that is dropped half way loses nothing.
    line: Vec<u8>,
    /// Whether a message has come: a refusal is the first, and the last.
    is_served: bool,
}

/// An answer to nothing that was asked.
#[derive(Deserialize)]
struct Refusal {
    /// Null, as nobody asked; present, unlike that of an event.
    #[serde(rename = "id")]
    _id: (),
    error: ErrorObjectOwned,
}

impl LineSender {
    pub(super) fn new(stream: OwnedWriteHalf, path: &Path) -> Self {
        Self {
            stream,
            path: path.to_owned(),
        }
    }
}

impl LineReceiver {
    pub(super) fn new(stream: OwnedReadHalf, path: &Path, limit_bytes: usize) -> Self {
        let stream = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
        Self {
            stream,
            path: path.to_owned(),
            limit_bytes,
            line: Vec::new(),
            is_served: false,
        }
    }

    async fn next_message(&mut self) -> Result<Vec<u8>, TransportError> {
        let line = self.next_line().await?;
        if !self.is_served
            && let Ok(refusal) = serde_json::from_slice::<Refusal>(&line)
        {
            return Err(TransportError::Refused {
                path: self.path.clone(),
                error: refusal.error.into(),
            });
        }
        self.is_served = true;
        Ok(line)
    }

    async fn next_line(&mut self) -> Result<Vec<u8>, TransportError> {
        loop {
            // One byte more than the limit is the line's ending.
            let room = (self.limit_bytes + 1).saturating_sub(self.line.len());
            let read = (&mut self.stream)
                .take(room as u64)
                .read_until(b'\n', &mut self.line)
                .await
                .map_err(|source| {
                    let path = self.path.clone();
                    if is_end(&source) {
                        return TransportError::Closed { path };
                    }
                    TransportError::Io {
                        step: "read from",
                        path,
                        source,
                    }
                })?;
            if self.line.last() == Some(&b'\n') {
                let mut line = std::mem::take(&mut self.line);
                line.truncate(line.trim_ascii_end().len());
                if line.is_empty() {
                    continue;
                }
                return Ok(line);
            }
            if self.line.len() > self.limit_bytes {
                let (path, limit_bytes) = (self.path.clone(), self.limit_bytes);
                return Err(TransportError::LineTooLong { path, limit_bytes });
            }
            // What stands without a line ending at the end of input is half of a message.
            if read == 0 {
                return Err(TransportError::Closed {
                    path: self.path.clone(),
                });
            }
        }
    }
}

impl TransportSenderT for LineSender {
    type Error = TransportError;

    async fn send(&mut self, mut message: String) -> Result<(), TransportError> {
        message.push('\n');
        match self.stream.write_all(message.as_bytes()).await {
            // The daemon closes both directions at once: whoever reads meets the end too, behind what the daemon said
            // last, and tells that.
            Err(source) if is_end(&source) => Ok(()),
            Err(source) => Err(TransportError::Io {
                step: "write to",
                path: self.path.clone(),
                source,
            }),
            Ok(()) => Ok(()),
        }
    }
}

/// Whether this is how the system says that the other side has closed the connection.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

impl TransportReceiverT for LineReceiver {
    type Error = TransportError;

    async fn receive(&mut self) -> Result<ReceivedMessage, TransportError> {
        self.next_message().await.map(ReceivedMessage::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    async fn received(input: &[u8], limit_bytes: usize) -> Vec<String> {
        let (client, mut server) = UnixStream::pair().unwrap();
        let (read_half, _write_half) = client.into_split();
        let mut receiver = LineReceiver::new(read_half, Path::new("/run/s.sock"), limit_bytes);
        server.write_all(input).await.unwrap();
        drop(server);
        let mut lines = Vec::new();
        loop {
            match receiver.receive().await {
                Ok(ReceivedMessage::Bytes(line)) => lines.push(String::from_utf8(line).unwrap()),
                Ok(other) => panic!("not bytes: {other:?}"),
                Err(error) => {
                    lines.push(error.to_string());
                    return lines;
                }
            }
        }
    }

    #[test]
    fn lines_become_messages_and_the_end_says_why() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let closed = "the daemon closed the connection at /run/s.sock";
        let too_long = "the daemon sent a line of more than 4 bytes at /run/s.sock";
        let table: &[(&str, &[&str])] = &[
            ("", &[closed]),
            ("1\n22\r\n\n 3\n", &["1", "22", " 3", closed]),
            ("1\nhalf", &["1", closed]),
            ("1234\n5\n", &["1234", "5", closed]),
            ("1\n12345\n", &["1", too_long]),
        ];
        for (input, expected) in table {
            assert_eq!(
                runtime.block_on(received(input.as_bytes(), 4)),
                *expected,
                "{input:?}"
            );
        }
    }

    #[test]
    fn a_refusal_at_the_door_is_told_and_an_answer_is_not_taken_for_one() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let refusal = r#"{"jsonrpc":"2.0","id":null,"error":{"code":1003,"message":"full"}}"#;
        let answer = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1003,"message":"full"}}"#;
        let event = r#"{"jsonrpc":"2.0","error":{"code":1003,"message":"full"}}"#;
        let refused = "the daemon refused the connection at /run/s.sock";
        let closed = "the daemon closed the connection at /run/s.sock";
        for (input, expected) in [
            (format!("{refusal}\n"), vec![refused]),
            (format!("{answer}\n"), vec![answer, closed]),
            (format!("{event}\n"), vec![event, closed]),
            // What is wrong with one message is for the client to judge.
            (format!("1\n{refusal}\n"), vec!["1", refusal, closed]),
        ] {
            assert_eq!(runtime.block_on(received(input.as_bytes(), 1024)), expected);
        }
    }
}

//! The client's transport: one JSON-RPC message per line in both directions, behind jsonrpsee's transport traits.
//!
//! It does not parse messages, except for a refusal of the connection. An error here ends the client: jsonrpsee returns
//! it from every pending call.

use std::io;
use std::path::{Path, PathBuf};

use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee_core::client::{ReceivedMessage, TransportReceiverT, TransportSenderT};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::{ConnectError, classify};

/// The size of a read, in bytes: as much as the daemon writes at once.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Sends each message as a line.
#[derive(Debug)]
pub(super) struct LineSender {
    pub(super) stream: OwnedWriteHalf,
    pub(super) path: PathBuf,
}

/// Receives each line as a message; skips blank lines.
#[derive(Debug)]
pub(super) struct LineReceiver {
    stream: BufReader<OwnedReadHalf>,
    path: PathBuf,
    limit_bytes: usize,
    /// The part of a line that was read so far. Kept here so that dropping a read future loses nothing.
    line: Vec<u8>,
    /// Whether a message has arrived. Only the first message can be a refusal, and nothing follows it.
    has_received_message: bool,
}

/// An error response that answers no request.
#[derive(Deserialize)]
struct Refusal {
    /// Null, because it answers no request, but present: an event has no `id` at all.
    #[serde(rename = "id")]
    _id: (),
    error: ErrorObjectOwned,
}

impl LineReceiver {
    pub(super) fn new(stream: OwnedReadHalf, path: &Path, limit_bytes: usize) -> Self {
        let stream = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
        Self {
            stream,
            path: path.to_owned(),
            limit_bytes,
            line: Vec::new(),
            has_received_message: false,
        }
    }

    async fn next_line(&mut self) -> Result<Vec<u8>, ConnectError> {
        loop {
            // One byte over the limit, for the line break.
            let room = (self.limit_bytes + 1).saturating_sub(self.line.len());
            let read = (&mut self.stream)
                .take(room as u64)
                .read_until(b'\n', &mut self.line)
                .await
                .map_err(|source| classify(&self.path, "read from", source))?;
            if self.line.last() == Some(&b'\n') {
                let mut line = std::mem::take(&mut self.line);
                line.truncate(line.trim_ascii_end().len());
                if line.is_empty() {
                    continue;
                }
                return Ok(line);
            }
            if self.line.len() > self.limit_bytes {
                let why = format!("it sent a line of more than {} bytes", self.limit_bytes);
                return Err(classify(&self.path, "read from", io::Error::other(why)));
            }
            // A last line without a line break is an incomplete message.
            if read == 0 {
                return Err(ConnectError::Closed {
                    path: self.path.clone(),
                });
            }
        }
    }
}

impl TransportSenderT for LineSender {
    type Error = ConnectError;

    async fn send(&mut self, mut message: String) -> Result<(), ConnectError> {
        message.push('\n');
        let written = self.stream.write_all(message.as_bytes()).await;
        match written.map_err(|source| classify(&self.path, "write to", source)) {
            // The daemon closes both directions at once. The receiver gets to the end too, after the daemon's last message,
            // and reports it.
            Err(ConnectError::Closed { .. }) => Ok(()),
            written => written,
        }
    }
}

impl TransportReceiverT for LineReceiver {
    type Error = ConnectError;

    async fn receive(&mut self) -> Result<ReceivedMessage, ConnectError> {
        let line = self.next_line().await?;
        let is_first = !std::mem::replace(&mut self.has_received_message, true);
        if is_first && let Ok(refusal) = serde_json::from_slice::<Refusal>(&line) {
            let (path, error) = (self.path.clone(), refusal.error.into());
            return Err(ConnectError::Refused { path, error });
        }
        Ok(ReceivedMessage::Bytes(line))
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
    fn each_line_is_a_message_and_the_end_of_the_stream_is_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let closed = "the daemon closed the connection at /run/s.sock";
        let too_long = "cannot read from the socket /run/s.sock";
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
    fn only_a_first_error_without_a_request_is_a_refused_connection() {
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
            // A later error is about one message, and the client's to handle.
            (format!("1\n{refusal}\n"), vec!["1", refusal, closed]),
        ] {
            assert_eq!(runtime.block_on(received(input.as_bytes(), 1024)), expected);
        }
    }
}

//! The small part of HTTP/1.1 that the model server needs: reads one request from a stream and writes one
//! response.

use std::io::{self, BufRead, Read, Write};

/// Largest head (request line and headers), in bytes; a real client sends less than 4 KiB.
const HEAD_LIMIT_BYTES: u64 = 64 * 1024;

/// Largest body, in bytes; large enough for a test's prompt of 20 MB.
const BODY_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path without the query.
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
}

/// Reads one request. Returns `None` at the end of the connection.
pub(crate) fn read_request(stream: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut head = stream.by_ref().take(HEAD_LIMIT_BYTES);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no request line"));
    };
    let path = target.split('?').next().unwrap_or(target).to_owned();
    let method = method.to_owned();

    let mut body_bytes = 0;
    loop {
        let mut header = String::new();
        if head.read_line(&mut header)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let header = header.trim_end();
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            body_bytes = value
                .trim()
                .parse()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
    if body_bytes > BODY_LIMIT_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "body too large"));
    }
    let mut body = vec![0; body_bytes];
    stream.read_exact(&mut body)?;
    Ok(Some(Request { method, path, body }))
}

/// Writes the head of a response. Without a body length, the end of the connection ends the body.
pub(crate) fn write_head(
    stream: &mut impl Write,
    status: u16,
    headers: &[(&str, String)],
    body_bytes: Option<usize>,
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\nrequest-id: req_scripted\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match body_bytes {
        Some(bytes) => head.push_str(&format!("content-length: {bytes}\r\n\r\n")),
        None => head.push_str("connection: close\r\n\r\n"),
    }
    stream.write_all(head.as_bytes())?;
    stream.flush()
}

/// Writes a whole response with a JSON body; `head_only` omits the body, for a HEAD request.
pub(crate) fn write_json(
    stream: &mut impl Write,
    status: u16,
    headers: &[(&str, String)],
    body: &serde_json::Value,
    head_only: bool,
) -> io::Result<()> {
    let body = body.to_string();
    let mut headers = headers.to_vec();
    headers.push(("content-type", "application/json".to_owned()));
    write_head(stream, status, &headers, Some(body.len()))?;
    if !head_only {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

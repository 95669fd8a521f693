//! A client of the daemon's socket that knows only JSON lines: everything it has read counts as acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use super::home::PATIENCE;
use crate::signs;

/// How many of the last lines are printed when no more lines come.
const LAST_LINES: usize = 8;

/// One connection.
pub(crate) struct Client {
    writer: UnixStream,
    reader: BufReader<UnixStream>,
    last_id: u64,
    /// The requests without a response so far.
    unanswered: BTreeMap<u64, Value>,
    last_lines: VecDeque<String>,
}

/// The daemon has closed the connection.
#[derive(Debug)]
pub(crate) struct Gone;

/// A response of the daemon: a result or an error object.
pub(crate) type Answer = Result<Value, Value>;

/// One line from the daemon.
#[derive(Debug)]
pub(crate) enum Line {
    Answer(u64, Answer),
    /// The envelope of an event.
    Event(Value),
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> Result<Self, Gone> {
        let writer = UnixStream::connect(socket).map_err(|_| Gone)?;
        writer.set_read_timeout(Some(PATIENCE)).unwrap();
        let reader = BufReader::new(writer.try_clone().map_err(|_| Gone)?);
        Ok(Self {
            writer,
            reader,
            last_id: 0,
            unanswered: BTreeMap::new(),
            last_lines: VecDeque::new(),
        })
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> Result<u64, Gone> {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        self.writer
            .write_all(format!("{request}\n").as_bytes())
            .map_err(|_| Gone)?;
        self.unanswered.insert(self.last_id, request);
        Ok(self.last_id)
    }

    /// Returns the next line, or `None` if `other` becomes readable first.
    pub(crate) fn read_unless(&mut self, other: impl AsFd) -> Result<Option<Line>, Gone> {
        let is_there = !self.reader.buffer().is_empty() || !signs::tells_first(other, &self.writer);
        if is_there { self.read().map(Some) } else { Ok(None) }
    }

    /// Returns the next line.
    pub(crate) fn read(&mut self) -> Result<Line, Gone> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            // A line without its line break was cut off when the daemon died; it acknowledges nothing.
            Ok(_) if !line.ends_with('\n') => return Err(Gone),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                panic!("no line from the daemon for {PATIENCE:?}{}", self.silence())
            }
            Err(_) => return Err(Gone),
        }
        self.last_lines.push_back(line.trim_end().to_owned());
        if self.last_lines.len() > LAST_LINES {
            self.last_lines.pop_front();
        }
        let mut message: Value = serde_json::from_str(&line).expect("every line is JSON");
        if let Some(id) = message.get("id").and_then(Value::as_u64) {
            self.unanswered.remove(&id);
            let answer = match message.get_mut("result") {
                Some(result) => Ok(result.take()),
                None => Err(message["error"].take()),
            };
            return Ok(Line::Answer(id, answer));
        }
        assert_eq!(message["method"], "conversation/event", "{line}");
        Ok(Line::Event(message["params"]["result"].take()))
    }

    /// The open requests and the last lines, for a failure message.
    fn silence(&self) -> String {
        let mut text = String::new();
        for request in self.unanswered.values() {
            text += &format!("\nnot answered: {request}");
        }
        for line in &self.last_lines {
            text += &format!("\nearlier: {line}");
        }
        text
    }

    /// Sends a request and waits for its response. Events before the response are dropped.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Result<Answer, Gone> {
        let id = self.send(method, params)?;
        loop {
            if let Line::Answer(answered, answer) = self.read()?
                && answered == id
            {
                return Ok(answer);
            }
        }
    }

    /// The same as [`Client::ask`], but the daemon must be running and must not refuse.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        match self.ask(method, params) {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => panic!("{method} {params}: {error}"),
            Err(Gone) => panic!("{method}: the daemon is gone"),
        }
    }

    /// The same as [`Client::ask`], but the daemon must refuse. Returns the error.
    #[track_caller]
    pub(crate) fn refused(&mut self, method: &str, params: &Value) -> Value {
        match self.ask(method, params) {
            Ok(Err(error)) => error,
            Ok(Ok(result)) => panic!("{method} {params} was not refused: {result}"),
            Err(Gone) => panic!("{method}: the daemon is gone"),
        }
    }

    /// Creates a conversation and returns its id.
    #[track_caller]
    pub(crate) fn new_conversation(&mut self, params: &Value) -> String {
        let made = self.call("conversation/new", params);
        made["conversation"]["id"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt and returns the result of the turn.
    #[track_caller]
    pub(crate) fn prompt(&mut self, id: &str, text: &str) -> Value {
        self.call(
            "conversation/prompt",
            &json!({"conversationId": id, "prompt": text}),
        )
    }
}

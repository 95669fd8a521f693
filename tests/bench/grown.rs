//! Generates a transcript like one after months of work: one conversation with records as Claude Code writes
//! them.
//!
//! A turn consists of these records: a prompt (100 bytes to 3 KB); up to twelve tool calls; and the reply. A
//! tool call is a record of the call (with arguments of up to 4 KB) and one of the result (200 bytes to 100
//! KB, mostly small), which contains the output twice, as the agent writes it. Before some calls there is a
//! thought (300 bytes to 4 KB, and a signature) or a text (100 bytes to 2 KB). One call in ten runs in
//! parallel with another, one turn in fifty is abandoned for another, and there are some records without a
//! uuid. The texts are code and logs: lines with escaped tabs, quotes and backslashes, and some words in
//! other scripts.

pub(crate) mod rollout;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// The properties of a generated file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grown {
    /// The size of the file.
    pub(crate) bytes: u64,
    /// The number of lines.
    pub(crate) lines: u64,
    /// The number of records of the conversation, or of messages in a rollout.
    pub(crate) records: u64,
    /// The uuid of a prompt near the middle.
    pub(crate) middle: String,
}

/// The lines from which all texts are cut.
struct Pool {
    text: String,
    /// The start of each line.
    lines: Vec<usize>,
}

/// A generator of pseudorandom numbers, the same ones each time.
struct Dice(u64);

/// Writes the file of one session. `S` is the state that a format keeps between lines.
struct Writer<S> {
    file: BufWriter<File>,
    pool: Pool,
    dice: Dice,
    grown: Grown,
    session: String,
    cwd: String,
    state: S,
}

#[derive(Default)]
struct Records {
    /// The uuid of the last record on the live branch.
    parent: Option<String>,
    line: String,
}

impl<S: Default> Writer<S> {
    fn create(path: &Path, session: &str, cwd: &str) -> std::io::Result<Self> {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
        Ok(Self {
            file: BufWriter::with_capacity(1 << 20, File::create(path)?),
            pool: Pool::new(&mut dice),
            dice,
            grown: Grown::default(),
            session: session.to_owned(),
            cwd: cwd.to_owned(),
            state: S::default(),
        })
    }
}

/// Writes a transcript of about this many bytes, for this session in the working directory `cwd`.
pub(crate) fn grow(path: &Path, session: &str, cwd: &str, bytes: u64) -> std::io::Result<Grown> {
    let mut writer = Writer::<Records>::create(path, session, cwd)?;
    while writer.grown.bytes < bytes {
        let before = writer.state.parent.clone();
        let asked = writer.turn()?;
        if writer.dice.below(50) == 0 {
            writer.state.parent = before;
        } else if writer.grown.middle.is_empty() && writer.grown.bytes > bytes / 2 {
            writer.grown.middle = asked;
        }
    }
    // The last message determines the live branch, so this turn must not be abandoned.
    writer.turn()?;
    writer.file.flush()?;
    Ok(writer.grown)
}

impl Writer<Records> {
    /// Writes a turn and returns the uuid of its prompt.
    fn turn(&mut self) -> std::io::Result<String> {
        let asked = self.dice.size(100, 3_000);
        let content = format!("\"{}\"", self.pool.cut(&mut self.dice, asked));
        self.record("user", &format!(r#""message":{{"role":"user","content":{content}}},"origin":{{"kind":"human"}},"promptId":"p","permissionMode":"default""#))?;
        let uuid = self.state.parent.clone().unwrap_or_default();
        self.mark(
            r#"{"type":"queue-operation","operation":"dequeue","timestamp":"2026-11-03T12:00:00.000Z"}"#,
        )?;
        for _ in 0..self.dice.below(13) {
            match self.dice.below(6) {
                0 => self.thought()?,
                1 => self.said("tool_use")?,
                _ => {}
            }
            let message = self.dice.word();
            let first = self.call(message)?;
            let caller = self.state.parent.clone();
            if self.dice.below(10) == 0 {
                let second = self.call(message)?;
                self.result(second)?;
                // The parent of each result is its call; the next record follows the result written last.
                self.state.parent = caller;
                self.result(first)?;
            } else {
                self.result(first)?;
            }
        }
        self.said("end_turn")?;
        self.mark(r#"{"type":"file-history-snapshot","messageId":"x","snapshot":{"trackedFileBackups":{}},"isSnapshotUpdate":false}"#)?;
        Ok(uuid)
    }

    fn thought(&mut self) -> std::io::Result<()> {
        let (size, id) = (self.dice.size(300, 4_000), self.dice.word());
        let text = self.pool.cut(&mut self.dice, size).to_owned();
        let signature = format!("{id:016x}").repeat(20);
        let block = format!(r#"{{"type":"thinking","thinking":"{text}","signature":"{signature}"}}"#);
        self.reply(id, &block, "null")
    }

    fn said(&mut self, stop: &str) -> std::io::Result<()> {
        let (size, id) = (self.dice.size(100, 2_000), self.dice.word());
        let text = self.pool.cut(&mut self.dice, size).to_owned();
        self.reply(
            id,
            &format!(r#"{{"type":"text","text":"{text}"}}"#),
            &format!("\"{stop}\""),
        )
    }

    /// Writes a tool call and returns its number.
    fn call(&mut self, message: u64) -> std::io::Result<u64> {
        let (size, id) = (self.dice.size(20, 4_000), self.dice.word());
        let text = self.pool.cut(&mut self.dice, size).to_owned();
        let block = format!(
            r#"{{"type":"tool_use","id":"toolu_{id:024x}","name":"Edit","input":{{"file_path":"/home/u/project/src/main.rs","old_string":"{text}","new_string":"","replace_all":false}},"caller":{{"type":"direct"}}}}"#
        );
        self.reply(message, &block, "\"tool_use\"")?;
        Ok(id)
    }

    fn result(&mut self, id: u64) -> std::io::Result<()> {
        let size = self.dice.size(200, 100_000);
        let text = self.pool.cut(&mut self.dice, size).to_owned();
        let caller = self.state.parent.clone().unwrap_or_default();
        self.record("user", &format!(
            r#""message":{{"role":"user","content":[{{"tool_use_id":"toolu_{id:024x}","type":"tool_result","content":"{text}","is_error":false}}]}},"toolUseResult":{{"stdout":"{text}","stderr":"","interrupted":false,"isImage":false}},"sourceToolAssistantUUID":"{caller}""#
        ))
    }

    fn reply(&mut self, message: u64, block: &str, stop: &str) -> std::io::Result<()> {
        self.record("assistant", &format!(
            r#""message":{{"model":"claude-opus-4-6","id":"msg_{message:024x}","type":"message","role":"assistant","content":[{block}],"stop_reason":{stop},"stop_sequence":null,"usage":{{"input_tokens":3,"cache_creation_input_tokens":1200,"cache_read_input_tokens":18000,"cache_creation":{{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0}},"output_tokens":210,"service_tier":"standard"}}}},"requestId":"req_{message:020x}""#
        ))
    }

    fn record(&mut self, kind: &str, rest: &str) -> std::io::Result<()> {
        let uuid = self.dice.uuid();
        let mut line = std::mem::take(&mut self.state.line);
        line.clear();
        match self.state.parent.take() {
            Some(parent) => write!(line, r#"{{"parentUuid":"{parent}","#),
            None => write!(line, r#"{{"parentUuid":null,"#),
        }
        .map_err(std::io::Error::other)?;
        write!(
            line,
            r#""isSidechain":false,"type":"{kind}",{rest},"uuid":"{uuid}","timestamp":"2026-11-03T12:00:00.000Z","userType":"external","entrypoint":"cli","cwd":"{}","sessionId":"{}","version":"2.1.316","gitBranch":"main"}}"#,
            self.cwd, self.session
        )
        .map_err(std::io::Error::other)?;
        self.mark(&line)?;
        self.grown.records += 1;
        self.state.line = line;
        self.state.parent = Some(uuid);
        Ok(())
    }

    fn mark(&mut self, line: &str) -> std::io::Result<()> {
        self.grown.bytes += line.len() as u64 + 1;
        self.grown.lines += 1;
        self.file.write_all(line.as_bytes())?;
        self.file.write_all(b"\n")
    }
}

impl Pool {
    /// The length of the longest text, plus the same again to choose its start from.
    const BYTES: usize = 200_000;

    fn new(dice: &mut Dice) -> Self {
        const PIECES: [&str; 12] = [
            "fn main() -> Result<(), Error> {",
            r#"\tlet name = \"value\";"#,
            r"\t\tif left.len() != right.len() { return Err(Error::Length); }",
            "warning: this is only looked at when something else has failed before it",
            r"C:\\Users\\u\\project\\src",
            r#"{\"level\":\"info\",\"took\":12,\"path\":\"/home/u/project\"}"#,
            "— naïve façade, 中文 и кириллица →",
            "0000000000000000 4889 e5ff 15c3",
            "",
            "}",
            "  at process (/home/u/project/node_modules/thing/lib/index.js:120:14)",
            "test result: ok. 113 passed; 0 failed; 0 ignored; 0 measured; finished in 0.41s",
        ];
        let (mut text, mut lines) = (String::new(), Vec::new());
        while text.len() < Self::BYTES {
            lines.push(text.len());
            text.push_str(PIECES[dice.below(PIECES.len() as u64) as usize]);
            text.push_str(r"\n");
        }
        Self { text, lines }
    }

    /// Whole lines of at most this many bytes in total, or a single longer line.
    fn cut(&self, dice: &mut Dice, bytes: usize) -> &str {
        let first = dice.below(self.lines.len() as u64 / 3) as usize;
        let start = self.lines[first];
        let last = self.lines.partition_point(|line| *line <= start + bytes);
        &self.text[start..self.lines[last.saturating_sub(1).max(first + 1)]]
    }
}

impl Dice {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.word() >> 33) % limit.max(1)
    }

    /// Returns a size; small sizes are far more frequent than large ones.
    fn size(&mut self, least: u64, most: u64) -> usize {
        let share = self.below(1_000_000) as f64 / 1e6;
        let ratio = most as f64 / least as f64;
        (least as f64 * ratio.powf(share.powi(5))) as usize
    }

    fn uuid(&mut self) -> String {
        let (high, low) = (self.word(), self.word());
        format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            high >> 32,
            high >> 16 & 0xFFFF,
            high & 0xFFF,
            low >> 52,
            low & 0xFFFF_FFFF_FFFF
        )
    }
}

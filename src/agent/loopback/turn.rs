//! One turn: what a prompt makes the agent do, from its record to the answer.
//!
//! This module owns the order: it writes the prompt to the transcript before it does anything for it, and each block as
//! it happens. An interruption, a refusal or an error ends the turn as in Claude.

mod failure;
mod tools;

use std::io;
use std::ops::ControlFlow;

use serde_json::{Value, json};
use uuid::Uuid;

use super::agent::LoopbackAgent;
use super::directive::{self, Directive, FailKind};
use super::replay::recall;
use super::report;
use super::session::{LoopbackSession, Prompt, Settings};
use super::stream::Stream;
use super::transcript_writer::TranscriptWriter;
use super::wire::RpcError;
use crate::transcript::preamble::is_preamble;

/// The name of a permission question in the transcript. As in Claude, it is a tool call, but `recall` omits it,
/// because it did nothing.
const PERMISSION_TOOL: &str = "ask_permission";

/// The reply if there was no other text, or none after a tool: a reply ends with text.
const CLOSING_WORDS: &str = "done";

/// How a turn ended.
enum TurnOutcome {
    Done,
    Interrupted,
    Failed(RpcError),
}

/// Whether the turn continues.
type Flow = ControlFlow<TurnOutcome>;

struct Turn<'a> {
    agent: &'a LoopbackAgent,
    session: &'a LoopbackSession,
    settings: Settings,
    transcript: TranscriptWriter,
    file_id: String,
    /// The last record of the history before the turn.
    history_leaf: Option<String>,
    /// The newest message's text, without a preamble.
    message: String,
    message_id: String,
    ends_with_text: bool,
    /// Whether the next text ends the reply. Its record then has a stop reason, as with Claude Code.
    is_at_end: bool,
    delays_end: bool,
    refuses_session: bool,
    refuses_copies: bool,
    deletes_transcript: bool,
}

/// Runs one prompt and returns its answer.
pub(super) fn run(
    agent: &LoopbackAgent,
    session: &LoopbackSession,
    prompt: &Prompt,
) -> Result<Value, RpcError> {
    if agent.persistent_state.is_refused(&session.id) {
        return Err(RpcError::session_not_found(&session.id));
    }
    let settings = session.settings().clone();
    let state = session.state().clone();
    let transcript = TranscriptWriter::open(&agent.root, &state.file_id, &settings.cwd, state.is_written)
        .map_err(|error| internal_error(&error))?
        .ok_or_else(|| RpcError::session_not_found(&session.id))?;
    session.state().is_written = true;
    let mut turn = Turn {
        agent,
        session,
        settings,
        history_leaf: transcript.leaf().map(str::to_owned),
        transcript,
        file_id: state.file_id,
        message: newest_message(&prompt.content),
        message_id: new_message_id(),
        ends_with_text: false,
        is_at_end: false,
        delays_end: false,
        refuses_session: false,
        refuses_copies: false,
        deletes_transcript: false,
    };
    let end = turn
        .run_prompt(prompt)
        .unwrap_or_else(|error| TurnOutcome::Failed(internal_error(&error)));
    turn.conclude(end)
}

impl Turn<'_> {
    fn run_prompt(&mut self, prompt: &Prompt) -> io::Result<TurnOutcome> {
        let content = transcript_content(&prompt.content);
        let uuid = self.transcript.prompt(&content)?;
        self.raw_init(&self.file_id);
        self.raw(
            &self.file_id,
            json!({
                "type": "user", "uuid": uuid, "parent_tool_use_id": null,
                "message": { "role": "user", "content": content },
            }),
        );

        if !self.agent.sign_in.is_accepted()
            && let ControlFlow::Break(end) = self.fail(FailKind::Auth)?
        {
            return Ok(end);
        }
        let directives = directive::parse(&self.message);
        self.is_at_end = directives.is_empty();
        if directives.is_empty() {
            let echo = format!("echo: {}", self.message);
            self.say(&echo)?;
        }
        let mut directives = directives.into_iter().peekable();
        while let Some(directive) = directives.next() {
            if self.session.is_stopped() {
                return Ok(TurnOutcome::Interrupted);
            }
            self.is_at_end = directives.peek().is_none();
            let flow = match directive {
                Directive::Ask(question) => self.ask(&question, directives.peek())?,
                directive => self.execute(directive)?,
            };
            if let ControlFlow::Break(end) = flow {
                return Ok(end);
            }
        }
        self.is_at_end = true;
        if !self.ends_with_text {
            self.say(CLOSING_WORDS)?;
        }
        Ok(TurnOutcome::Done)
    }

    fn execute(&mut self, directive: Directive) -> io::Result<Flow> {
        match directive {
            Directive::Say(text) => self.say(&text)?,
            Directive::Stream { chunks, interval_ms } => return self.stream(chunks, interval_ms),
            Directive::Tool { name, input_json } => return self.call_tool(&name, &input_json),
            Directive::Write { path, text } => return self.write_file(&path, &text),
            Directive::Call { method, params_json } => return self.call_client(&method, &params_json),
            Directive::Ask(question) => return self.ask(&question, None),
            Directive::Limit { duration_ms } => return self.limit(duration_ms),
            Directive::Fail(kind) => return self.fail(kind),
            Directive::Crash => self.crash(),
            Directive::Hang => {
                self.session.wait_for_stop();
                return Ok(Flow::Break(TurnOutcome::Interrupted));
            }
            Directive::Deaf => self.session.ignore_cancels(),
            Directive::Linger => self.delays_end = true,
            Directive::SkipNext => self.session.skip_next(),
            Directive::Forget => self.refuses_session = true,
            Directive::ForgetCopies => (self.refuses_session, self.refuses_copies) = (true, true),
            Directive::Lose => self.deletes_transcript = true,
            Directive::Clear => self.clear()?,
            Directive::Recall => {
                let history = self.recall()?;
                self.say(&history)?;
            }
            Directive::Settings => {
                let settings = self.settings.report().to_string();
                self.say(&settings)?;
            }
        }
        Ok(Flow::Continue(()))
    }

    /// Reports the file that the session writes.
    fn raw_init(&self, file_id: &str) {
        let Settings { cwd, model, .. } = &self.settings;
        self.raw(
            file_id,
            json!({
                "type": "system", "subtype": "init", "uuid": Uuid::new_v4(), "cwd": cwd.to_string_lossy(), "model": model,
            }),
        );
    }

    fn raw(&self, file_id: &str, message: Value) {
        report::raw(&self.agent.output, self.session, &self.settings, file_id, message);
    }

    /// Writes the text before sending it, so that everything that a client received is in the transcript.
    fn say(&mut self, text: &str) -> io::Result<()> {
        self.record_text(text)?;
        self.chunk(text);
        Ok(())
    }

    fn chunk(&self, text: &str) {
        self.agent.output.update(
            &self.session.id,
            &json!({
                "sessionUpdate": "agent_message_chunk",
                "content": { "type": "text", "text": text },
                "messageId": self.message_id,
            }),
        );
    }

    fn record_text(&mut self, text: &str) -> io::Result<()> {
        let block = json!({ "type": "text", "text": text });
        self.transcript
            .reply(&self.message_id, self.settings.model, &block, self.is_at_end)?;
        self.ends_with_text = true;
        Ok(())
    }

    fn stream(&mut self, chunks: u64, interval_ms: u64) -> io::Result<Flow> {
        let mut stream = Stream::new(&self.session.id, &self.message_id);
        let sent = stream.run(&self.agent.output, self.session, chunks, interval_ms);
        let interrupted = sent < chunks || self.session.is_stopped();
        self.is_at_end &= !interrupted;
        if sent > 0 {
            self.record_text(&stream.recorded_text(sent))?;
        }
        Ok(if interrupted {
            Flow::Break(TurnOutcome::Interrupted)
        } else {
            Flow::Continue(())
        })
    }

    /// Continues in a new file that begins with the command. The id stays and refers to the history before. Nothing
    /// is reported.
    fn clear(&mut self) -> io::Result<()> {
        let file_id = Uuid::new_v4().to_string();
        let cleared = TranscriptWriter::open(&self.agent.root, &file_id, &self.settings.cwd, false);
        if let Some(mut cleared) = cleared.map_err(io::Error::other)? {
            cleared.own_command("clear")?;
        }
        {
            let mut state = self.session.state();
            state.file_id.clone_from(&file_id);
            state.is_written = true;
        }
        self.ends_with_text = true;
        self.raw_init(&file_id);
        Ok(())
    }

    /// Returns the turns before this one as JSON. Reads them from the file, to show what it contains.
    fn recall(&self) -> io::Result<String> {
        let turns = match &self.history_leaf {
            None => Vec::new(),
            Some(leaf) => recall(self.transcript.path(), leaf).map_err(io::Error::other)?,
        };
        let recalled: Vec<Value> = turns
            .iter()
            .filter(|turn| !turn.is_failed)
            .map(|turn| {
                let tools = turn.tools.iter().filter(|name| *name != PERMISSION_TOOL);
                let tools: Vec<&String> = tools.collect();
                json!({ "user": turn.prompt, "assistant": turn.reply, "tools": tools })
            })
            .collect();
        Ok(Value::from(recalled).to_string())
    }

    /// Dies like a killed process: writes and answers nothing more.
    fn crash(&self) -> ! {
        self.chunk("about to crash");
        super::log_error("crashing, as the prompt asked");
        std::process::abort()
    }

    /// Ends the turn: writes its end to the transcript, applies its after-effects, and returns the answer.
    fn conclude(mut self, end: TurnOutcome) -> Result<Value, RpcError> {
        if self.delays_end && matches!(end, TurnOutcome::Interrupted) {
            self.agent.wait_for_a_turn_to_end();
        }
        let stop_reason = match end {
            TurnOutcome::Done => Ok("end_turn"),
            TurnOutcome::Interrupted => self
                .transcript
                .interruption()
                .map(|_| "cancelled")
                .map_err(|error| internal_error(&error)),
            TurnOutcome::Failed(error) => Err(error),
        };
        self.apply_directives_at_end()
            .map_err(|error| internal_error(&error))?;
        let used = report::tokens(self.transcript.bytes());
        let stop_reason = stop_reason?;
        let output = &self.agent.output;
        let announced = std::mem::replace(&mut self.session.state().has_title_reported, true);
        if !announced && let Some(first) = self.first_prompt() {
            report::title(output, &self.session.id, &first);
        }
        report::usage(
            output,
            &self.session.id,
            used,
            &json!({ "_claude/model": self.settings.model }),
        );
        Ok(json!({
            "stopReason": stop_reason,
            "usage": { "inputTokens": used, "outputTokens": 0, "totalTokens": used },
        }))
    }

    fn apply_directives_at_end(&self) -> io::Result<()> {
        if self.refuses_session || self.deletes_transcript {
            self.agent.persistent_state.refuse(&self.session.id)?;
        }
        if self.refuses_copies
            && let Some(first) = super::listing::first_record(self.transcript.path())
        {
            self.agent.persistent_state.refuse_first_record(&first)?;
        }
        if self.deletes_transcript {
            self.agent
                .remove_transcripts(&self.session.id)
                .map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn first_prompt(&self) -> Option<String> {
        if self.history_leaf.is_none() {
            return Some(self.message.clone());
        }
        super::listing::first_prompt(self.transcript.path())
    }
}

fn new_message_id() -> String {
    format!("msg_{}", &Uuid::new_v4().simple().to_string()[..24])
}

fn internal_error(error: &dyn std::error::Error) -> RpcError {
    match error.source() {
        Some(source) => RpcError::internal(format!("{error}: {source}")),
        None => RpcError::internal(error),
    }
}

/// Returns the text of the user's new message. A summary of earlier turns may precede it in a separate block; the
/// directives in that were already executed.
fn newest_message(content: &[Value]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter(|block| block["type"] == "text")
        .filter_map(|block| block["text"].as_str())
        .filter(|text| !is_preamble(text))
        .collect();
    texts.join("\n\n")
}

/// Converts content blocks to Claude's form: ACP resources become text, images keep their data.
fn transcript_content(content: &[Value]) -> Vec<Value> {
    let text = |text: String| json!({ "type": "text", "text": text });
    content
        .iter()
        .map(|block| match block["type"].as_str() {
            Some("image") => json!({
                "type": "image",
                "source": { "type": "base64", "media_type": block["mimeType"], "data": block["data"] },
            }),
            Some("resource_link") => {
                let name = |key: &str| block[key].as_str().unwrap_or_default();
                text(format!("[@{}]({})", name("name"), name("uri")))
            }
            Some("resource") => {
                let part = |key: &str| block["resource"][key].as_str().unwrap_or_default();
                text(format!(
                    "<context ref=\"{}\">\n{}\n</context>",
                    part("uri"),
                    part("text")
                ))
            }
            _ => text(block["text"].as_str().unwrap_or_default().to_owned()),
        })
        .collect()
}

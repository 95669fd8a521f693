//! Generates a rollout like one after months of work: one session with lines as Codex 0.166.0 writes them.
//!
//! A turn begins with marks, the folder and one prompt (100 bytes to 3 KB), which is written twice. Then come
//! up to twelve tool calls; each is a line with the call (arguments of up to 4 KB), a line with the output
//! (200 bytes to 100 KB, mostly small), and a line that repeats both. One call in three follows an encrypted
//! reasoning (300 bytes to 4 KB). Between them there are token counts. The turn ends with the reply, which is
//! written three times. The texts are those of the other format.

use std::io::Write;
use std::path::Path;

use super::{Grown, Writer};

/// The id of the current turn.
#[derive(Default)]
struct Turn(String);

/// Writes a rollout of about this many bytes, for this session in the working directory `cwd`.
pub(crate) fn grow(path: &Path, session: &str, cwd: &str, bytes: u64) -> std::io::Result<Grown> {
    let mut writer = Writer::<Turn>::create(path, session, cwd)?;
    writer.line("session_meta", &format!(
        r#"{{"session_id":"{session}","id":"{session}","timestamp":"2026-11-03T12:00:00.000Z","cwd":"{cwd}","originator":"codex_cli","cli_version":"0.166.0","source":"cli","model_provider":"openai"}}"#
    ))?;
    while writer.grown.bytes < bytes {
        writer.turn()?;
    }
    writer.file.flush()?;
    Ok(writer.grown)
}

impl Writer<Turn> {
    fn turn(&mut self) -> std::io::Result<()> {
        self.state.0 = self.dice.uuid();
        let (turn, cwd) = (self.state.0.clone(), self.cwd.clone());
        self.line("event_msg", &format!(
            r#"{{"type":"task_started","turn_id":"{turn}","root_turn_id":"{turn}","started_at":1795241794,"model_context_window":258400,"collaboration_mode_kind":"default"}}"#
        ))?;
        self.line("turn_context", &format!(
            r#"{{"turn_id":"{turn}","root_turn_id":"{turn}","cwd":"{cwd}","approval_policy":"on-request","model":"gpt-5"}}"#
        ))?;
        let (text, id) = (self.text(100, 3_000), self.dice.uuid());
        self.line("response_item", &format!(
            r#"{{"type":"message","id":"msg_{id}","role":"user","content":[{{"type":"input_text","text":"{text}"}}],"internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}","create_time":1795241794.504036,"content_item_kinds":["user.text"],"content_item_metadata":[{{"provenance":{{"type":"user"}}}}]}}}}"#
        ))?;
        self.item(&format!(
            r#"{{"type":"UserMessage","id":"{id}","content":[{{"type":"text","text":"{text}","text_elements":[]}}]}}"#
        ))?;
        for _ in 0..self.dice.below(13) {
            if self.dice.below(3) == 0 {
                self.thought()?;
            }
            self.call()?;
        }
        self.reply()
    }

    fn thought(&mut self) -> std::io::Result<()> {
        let (id, size) = (self.dice.uuid(), self.dice.size(300, 4_000));
        let secret = format!("{:016x}", self.dice.word()).repeat(size / 16);
        let turn = &self.state.0;
        self.line("response_item", &format!(
            r#"{{"type":"reasoning","id":"rs_{id}","summary":[],"encrypted_content":"{secret}","internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}"}}}}"#
        ))
    }

    fn call(&mut self) -> std::io::Result<()> {
        let (id, turn, cwd) = (self.dice.word(), self.state.0.clone(), self.cwd.clone());
        let (arguments, output) = (self.text(20, 4_000), self.text(200, 100_000));
        self.line("response_item", &format!(
            r#"{{"type":"function_call","status":"completed","id":"fc_{id:024x}","name":"exec_command","arguments":"{arguments}","call_id":"call_{id:020x}","internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}"}}}}"#
        ))?;
        self.tokens()?;
        self.item(&format!(
            r#"{{"type":"CommandExecution","id":"call_{id:020x}","process_id":"17614","command":["/bin/bash","-lc","{arguments}"],"cwd":"file://{cwd}","parsed_cmd":[{{"type":"unknown","cmd":"x"}}],"source":"unified_exec_startup","status":"completed","aggregated_output":"{output}","exit_code":0}}"#
        ))?;
        self.line("response_item", &format!(
            r#"{{"type":"function_call_output","id":"fco_{id:024x}","call_id":"call_{id:020x}","output":"Chunk ID: a7ab01\nWall time: 0.0000 seconds\nProcess exited with code 0\nOriginal token count: 2\nOutput:\n{output}","internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}","create_time":1795241794.624852}}}}"#
        ))
    }

    fn reply(&mut self) -> std::io::Result<()> {
        let (text, id, turn) = (self.text(100, 2_000), self.dice.word(), self.state.0.clone());
        self.item(&format!(
            r#"{{"type":"AgentMessage","id":"msg_{id:024x}","content":[{{"type":"Text","text":"{text}"}}]}}"#
        ))?;
        self.line("response_item", &format!(
            r#"{{"type":"message","status":"completed","id":"msg_{id:024x}","role":"assistant","content":[{{"type":"output_text","text":"{text}","annotations":[]}}],"internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}","content_item_kinds":["unknown"]}}}}"#
        ))?;
        self.tokens()?;
        self.line("event_msg", &format!(
            r#"{{"type":"task_complete","root_turn_id":"{turn}","turn_id":"{turn}","last_agent_message":"{text}","started_at":1795241794,"completed_at":1795241794,"duration_ms":67,"time_to_first_token_ms":61}}"#
        ))
    }

    fn tokens(&mut self) -> std::io::Result<()> {
        let (session, turn) = (&self.session, &self.state.0);
        let payload = format!(
            r#"{{"thread_id":"{session}","turn_id":"{turn}","response_id":"resp_867b6965e6c34f6db77402b9","usage":{{"input_tokens":1000,"cached_input_tokens":200,"cache_write_input_tokens":0,"output_tokens":50,"reasoning_output_tokens":0,"total_tokens":1050}}}}"#
        );
        self.line("token_usage_record", &payload)?;
        self.line("event_msg", r#"{"type":"token_count","info":null}"#)
    }

    /// Writes a line that reports a completed item.
    fn item(&mut self, item: &str) -> std::io::Result<()> {
        let (session, turn) = (&self.session, &self.state.0);
        let payload = format!(
            r#"{{"type":"item_completed","thread_id":"{session}","turn_id":"{turn}","item":{item},"started_at_ms":1795241794442,"completed_at_ms":1795241794442}}"#
        );
        self.line("event_msg", &payload)
    }

    fn text(&mut self, least: u64, most: u64) -> String {
        let size = self.dice.size(least, most);
        self.pool.cut(&mut self.dice, size).to_owned()
    }

    fn line(&mut self, kind: &str, payload: &str) -> std::io::Result<()> {
        let ordinal = self.grown.lines;
        let line = format!(
            "{{\"timestamp\":\"2026-11-03T12:00:00.000Z\",\"ordinal\":{ordinal},\"type\":\"{kind}\",\"payload\":{payload}}}\n"
        );
        self.grown.bytes += line.len() as u64;
        // Only the lines that are sent to the model count as messages, not those that repeat them.
        self.grown.records += u64::from(kind == "response_item");
        self.grown.lines += 1;
        self.file.write_all(line.as_bytes())
    }
}

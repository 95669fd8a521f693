//! Tool calls, and the question that may precede them.

use std::fs;
use std::io;
use std::path::{Component, Path};

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::report::{self, ToolCall};
use super::{Directive, Flow, PERMISSION_TOOL, Turn, TurnOutcome, new_message_id};

/// A tool call as written to the transcript.
#[derive(Serialize)]
struct ToolUse<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    id: &'a str,
    name: &'a str,
    input: &'a RawValue,
}

impl Turn<'_> {
    /// Calls a tool that does nothing and succeeds.
    pub(super) fn call_tool(&mut self, name: &str, input_json: &str) -> io::Result<Flow> {
        let id = self.begin(name, name, "other", input_json)?;
        self.end(&id, &format!("{name} ran"), false)?;
        Ok(Flow::Continue(()))
    }

    /// Calls a tool that writes a file in the working directory.
    pub(super) fn write_file(&mut self, path: &str, text: &str) -> io::Result<Flow> {
        let input_json = json!({ "path": path, "content": text }).to_string();
        let id = self.begin("write", path, "edit", &input_json)?;
        match write_below(&self.settings.cwd, path, text) {
            Ok(()) => self.end(&id, &format!("wrote {path}"), false)?,
            Err(error) => self.end(&id, &format!("could not write {path}: {error}"), true)?,
        }
        Ok(Flow::Continue(()))
    }

    /// Asks the user. Without permission, the rest of the prompt is not executed. The question is about the next
    /// directive: a file's change is sent as a diff, a command as the tool's input, as real agents do.
    pub(super) fn ask(&mut self, question: &str, next: Option<&Directive>) -> io::Result<Flow> {
        let input_json = json!({ "question": question }).to_string();
        let id = self.begin(PERMISSION_TOOL, question, "other", &input_json)?;
        let mut tool_call = json!({
            "toolCallId": id, "name": PERMISSION_TOOL, "title": question, "kind": "other",
            "status": "pending", "rawInput": { "question": question }, "content": [],
        });
        match next {
            Some(Directive::Write { path, text }) => {
                let file = self.settings.cwd.join(path);
                // Reading from a pipe would consume its content.
                let old = file.is_file().then(|| fs::read_to_string(file).ok()).flatten();
                tool_call["kind"] = json!("edit");
                tool_call["content"] =
                    json!([{ "type": "diff", "path": path, "oldText": old, "newText": text }]);
            }
            Some(Directive::Tool { input_json, .. }) if input_json.contains("\"command\"") => {
                tool_call["kind"] = json!("execute");
                tool_call["rawInput"] = serde_json::from_str(input_json)?;
            }
            _ => {}
        }
        let params = json!({
            "sessionId": self.session.id,
            "toolCall": tool_call,
            "options": [
                { "optionId": "allow_once", "name": "Allow", "kind": "allow_once" },
                { "optionId": "reject_once", "name": "Reject", "kind": "reject_once" },
            ],
        });
        let Some(answer) = self.request_answer("session/request_permission", &params) else {
            self.end(&id, "interrupted before it was answered", true)?;
            return Ok(Flow::Break(TurnOutcome::Interrupted));
        };
        let outcome = &answer["result"]["outcome"];
        match (outcome["outcome"].as_str(), outcome["optionId"].as_str()) {
            (Some("selected"), Some("allow_once")) => {
                self.end(&id, "allowed", false)?;
                Ok(Flow::Continue(()))
            }
            (Some("cancelled"), _) => {
                self.end(&id, "cancelled", true)?;
                Ok(Flow::Break(TurnOutcome::Interrupted))
            }
            // An error instead of an answer permits nothing either.
            _ => {
                self.end(&id, "refused", true)?;
                self.say(&format!("refused: {question}"))?;
                Ok(Flow::Break(TurnOutcome::Done))
            }
        }
    }

    /// Sends the client a request and answers with its result, or with its error.
    pub(super) fn call_client(&mut self, method: &str, params_json: &str) -> io::Result<Flow> {
        let mut params: IndexMap<&str, &RawValue> = serde_json::from_str(params_json)?;
        let id = serde_json::value::to_raw_value(&self.session.id)?;
        params.insert("sessionId", &id);
        let Some(answer) = self.request_answer(method, &params) else {
            return Ok(Flow::Break(TurnOutcome::Interrupted));
        };
        let said = answer.get("result").unwrap_or(&answer["error"]).to_string();
        self.say(&said)?;
        Ok(Flow::Continue(()))
    }

    /// Sends the client a request and waits for its answer. `None` if the turn is stopped first.
    fn request_answer(&self, method: &str, params: &impl Serialize) -> Option<Value> {
        let output = &self.agent.output;
        let request = output.next_request_id();
        self.session.expect_answer(request);
        output.request(request, method, params);
        let answer = self.session.wait_for_answer();
        if answer.is_none() {
            output.notify("$/cancel_request", &json!({ "requestId": request }));
        }
        answer
    }

    fn begin(&mut self, name: &str, title: &str, kind: &str, input_json: &str) -> io::Result<String> {
        let id = format!("toolu_{}", &Uuid::new_v4().simple().to_string()[..22]);
        let block = ToolUse {
            kind: "tool_use",
            id: &id,
            name,
            input: serde_json::from_str(input_json)?,
        };
        self.transcript
            .reply(&self.message_id, self.settings.model, &block, false)?;
        let call = ToolCall {
            id: &id,
            name,
            title,
            kind,
            input_json,
        };
        report::tool_call(&self.agent.output, &self.session.id, &call);
        self.ends_with_text = false;
        Ok(id)
    }

    fn end(&mut self, id: &str, text: &str, is_error: bool) -> io::Result<()> {
        self.transcript.tool_result(id, text, is_error)?;
        report::tool_result(&self.agent.output, &self.session.id, id, text, is_error);
        // After a tool result, the model answers with another message.
        self.message_id = new_message_id();
        Ok(())
    }
}

/// Writes a file below `folder`, and never elsewhere.
fn write_below(folder: &Path, path: &str, text: &str) -> io::Result<()> {
    let inside = Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not below the working directory",
        ));
    }
    let target = folder.join(path);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(target, text)
}

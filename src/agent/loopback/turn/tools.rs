//! Calls of tools, and the question that may come first.

use std::fs;
use std::io;
use std::path::{Component, Path};

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Directive, End, Flow, PERMISSION_TOOL, Turn, new_message_id};

/// A call as the transcript has it.
#[derive(Serialize)]
struct ToolUse<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    id: &'a str,
    name: &'a str,
    input: &'a RawValue,
}

/// A call as it goes over the wire.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolCallUpdate<'a> {
    session_update: &'a str,
    tool_call_id: &'a str,
    name: &'a str,
    title: &'a str,
    kind: &'a str,
    status: &'a str,
    raw_input: &'a RawValue,
    content: [Value; 0],
}

/// What a call is to do, and how it is shown.
struct Call<'a> {
    name: &'a str,
    title: &'a str,
    kind: &'a str,
    input_json: &'a str,
}

impl Turn<'_> {
    /// Calls a tool that does nothing and succeeds.
    pub(super) fn call_tool(&mut self, name: &str, input_json: &str) -> io::Result<Flow> {
        let id = self.begin(&Call {
            name,
            title: name,
            kind: "other",
            input_json,
        })?;
        self.end(&id, &format!("{name} ran"), false)?;
        Ok(Flow::Continue(()))
    }

    /// Calls a tool that writes a file below the working directory.
    pub(super) fn write_file(&mut self, path: &str, text: &str) -> io::Result<Flow> {
        let input_json = json!({ "path": path, "content": text }).to_string();
        let id = self.begin(&Call {
            name: "write",
            title: path,
            kind: "edit",
            input_json: &input_json,
        })?;
        match write_below(&self.settings.cwd, path, text) {
            Ok(()) => self.end(&id, &format!("wrote {path}"), false)?,
            Err(error) => self.end(&id, &format!("could not write {path}: {error}"), true)?,
        }
        Ok(Flow::Continue(()))
    }

    /// Asks the person; without an allowance the rest of the prompt is not done. What comes next is what is asked about: a
    /// file's change is sent as a diff, a command as the tool's input, as real agents do.
    pub(super) fn ask(&mut self, question: &str, next: Option<&Directive>) -> io::Result<Flow> {
        let input_json = json!({ "question": question }).to_string();
        let call = Call {
            name: PERMISSION_TOOL,
            title: question,
            kind: "other",
            input_json: &input_json,
        };
        let id = self.begin(&call)?;
        let mut asked = json!({
            "toolCallId": id, "name": PERMISSION_TOOL, "title": question, "kind": "other",
            "status": "pending", "rawInput": { "question": question }, "content": [],
        });
        match next {
            Some(Directive::Write { path, text }) => {
                let file = self.settings.cwd.join(path);
                // A pipe would lose what is read from it.
                let old = file.is_file().then(|| fs::read_to_string(file).ok()).flatten();
                asked["kind"] = json!("edit");
                asked["content"] = json!([{ "type": "diff", "path": path, "oldText": old, "newText": text }]);
            }
            Some(Directive::Tool { input_json, .. }) if input_json.contains("\"command\"") => {
                asked["kind"] = json!("execute");
                asked["rawInput"] = serde_json::from_str(input_json)?;
            }
            _ => {}
        }
        let output = &self.agent.output;
        let request = output.next_request_id();
        self.session.expect_answer(request);
        output.request(
            request,
            "session/request_permission",
            &json!({
                "sessionId": self.session.id,
                "toolCall": asked,
                "options": [
                    { "optionId": "allow_once", "name": "Allow", "kind": "allow_once" },
                    { "optionId": "reject_once", "name": "Reject", "kind": "reject_once" },
                ],
            }),
        );
        let Some(answer) = self.session.wait_for_answer() else {
            output.notify("$/cancel_request", &json!({ "requestId": request }));
            self.end(&id, "interrupted before it was answered", true)?;
            return Ok(Flow::Break(End::Interrupted));
        };
        let outcome = &answer["result"]["outcome"];
        match (outcome["outcome"].as_str(), outcome["optionId"].as_str()) {
            (Some("selected"), Some("allow_once")) => {
                self.end(&id, "allowed", false)?;
                Ok(Flow::Continue(()))
            }
            (Some("cancelled"), _) => {
                self.end(&id, "cancelled", true)?;
                Ok(Flow::Break(End::Interrupted))
            }
            // An error in place of an answer allows nothing either.
            _ => {
                self.end(&id, "refused", true)?;
                self.say(&format!("refused: {question}"))?;
                Ok(Flow::Break(End::Done))
            }
        }
    }

    fn begin(&mut self, call: &Call<'_>) -> io::Result<String> {
        let id = format!("toolu_{}", &Uuid::new_v4().simple().to_string()[..22]);
        let input: &RawValue = serde_json::from_str(call.input_json)?;
        let block = ToolUse {
            kind: "tool_use",
            id: &id,
            name: call.name,
            input,
        };
        self.keeper.reply(&self.message_id, self.settings.model, &block)?;
        self.agent.output.update(
            &self.session.id,
            &ToolCallUpdate {
                session_update: "tool_call",
                tool_call_id: &id,
                name: call.name,
                title: call.title,
                kind: call.kind,
                status: "pending",
                raw_input: input,
                content: [],
            },
        );
        self.said_last = false;
        Ok(id)
    }

    fn end(&mut self, id: &str, text: &str, is_error: bool) -> io::Result<()> {
        self.keeper.tool_result(id, text, is_error)?;
        self.agent.output.update(
            &self.session.id,
            &json!({
                "sessionUpdate": "tool_call_update",
                "toolCallId": id,
                "status": if is_error { "failed" } else { "completed" },
                "rawOutput": text,
                "content": [{ "type": "content", "content": { "type": "text", "text": text } }],
            }),
        );
        // Behind a result the model is asked anew, and answers with another message.
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

//! A model behind the chat completions API, which Qwen Code uses. Server, script and directives are those for
//! Claude (see [`super::model_server`] and [`super::script`]); this module has the wire format and reads
//! requests.

use std::io::{self, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::http::{self, Request};
use super::model_server::{Said, Shared, What};
use super::script::{self, Answer, AnswerBlock, HttpError};

/// Answers one request. Returns whether the connection stays open. The script's pace is ignored: each text is
/// sent whole.
pub(super) fn answer(writer: &mut TcpStream, request: &Request, shared: &Shared) -> io::Result<bool> {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/v1/chat/completions") => {}
        ("GET", "/v1/models") => {
            let models = json!({"object": "list", "data": [{"id": "scripted", "object": "model"}]});
            return http::write_json(writer, 200, &[], &models, false).map(|()| true);
        }
        _ => {
            let error = json!({"error": {"message": "not served", "type": "invalid_request_error"}});
            return http::write_json(writer, 404, &[], &error, false).map(|()| true);
        }
    }
    let (step, answer) = script::answer_to(&body, 0);
    let failed_before = shared.record(&body, step);
    match answer {
        Answer::Error(error) if error.times.is_none_or(|times| failed_before < times) => {
            write_error(writer, &error)
        }
        Answer::Error(error) => write_completion(writer, &body, &error.then),
        Answer::Silence(length) => match shared.pause(length) {
            true => write_completion(writer, &body, &Answer::text("after the silence")),
            false => Ok(false),
        },
        answer => write_completion(writer, &body, &answer),
    }
}

/// The conversation in a request, message by message, without the messages that the agent adds.
pub(super) fn conversation_of(body: &Value) -> Vec<Said> {
    let mut said = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or_default();
        let texts = script::human_texts(&message["content"]).into_iter();
        let texts = texts
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty());
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls = calls.filter_map(|call| call["function"]["name"].as_str());
        let (role, what): (_, Vec<What>) = match role {
            "system" => continue,
            "tool" => ("user", texts.map(What::ToolResult).collect()),
            role => (
                role,
                texts
                    .map(What::Text)
                    .chain(calls.map(|name| What::ToolUse(name.to_owned())))
                    .collect(),
            ),
        };
        said.extend(what.into_iter().map(|what| Said {
            role: role.to_owned(),
            what,
        }));
    }
    said
}

fn write_error(writer: &mut TcpStream, error: &HttpError) -> io::Result<bool> {
    let body = json!({"error": {"message": "scripted error", "type": "scripted", "code": "scripted"}});
    let headers = [("retry-after", error.retry_after_seconds.to_string())];
    http::write_json(writer, error.status, &headers, &body, false).map(|()| true)
}

fn write_completion(writer: &mut TcpStream, request: &Value, answer: &Answer) -> io::Result<bool> {
    let none = Vec::new();
    let blocks = match answer {
        Answer::Message { blocks, .. } => blocks,
        _ => &none,
    };
    let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
    for block in blocks {
        match block {
            AnswerBlock::Text(words) => text.push_str(words),
            AnswerBlock::Thinking(words) => thought.push_str(words),
            AnswerBlock::Tool { name, input } => calls.push(json!({
                "index": calls.len(), "id": format!("call_{}", uuid::Uuid::new_v4().simple()), "type": "function",
                "function": {"name": name, "arguments": input.to_string()},
            })),
        }
    }
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    let mut message = json!({"role": "assistant", "content": text});
    if !thought.is_empty() {
        message["reasoning_content"] = thought.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050});
    let id = format!("chatcmpl-{}", uuid::Uuid::new_v4().simple());
    let whole = |object: &str, choice: Value| {
        json!({
            "id": id, "object": object, "created": 1, "model": request["model"], "choices": [choice], "usage": usage,
        })
    };
    if request["stream"] != true {
        let choice = json!({"index": 0, "message": message, "finish_reason": reason});
        return http::write_json(writer, 200, &[], &whole("chat.completion", choice), false).map(|()| true);
    }
    let stream = [("content-type", "text/event-stream".to_owned())];
    http::write_head(writer, 200, &stream, None)?;
    if let Answer::StreamError(kind) = answer {
        let error = json!({"error": {"message": "scripted error", "type": kind, "code": kind}});
        write!(writer, "data: {error}\n\n")?;
        return Ok(false);
    }
    for (delta, reason) in [(message, Value::Null), (json!({}), json!(reason))] {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        write!(writer, "data: {}\n\n", whole("chat.completion.chunk", choice))?;
    }
    write!(writer, "data: [DONE]\n\n")?;
    Ok(false)
}

//! OpenAI's Responses API, which Codex uses. Server, script and directives are those for Claude (see
//! [`super::model_server`] and [`super::script`]); this module has the wire format and reads requests.

use std::io::{self, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::http::{self, Request};
use super::model_server::{Said, Shared, What};
use super::script::{self, Answer, AnswerBlock, HttpError, Pace};

/// Beginnings of texts that Codex adds with the role of the user.
const NOT_PROMPTS: [&str; 2] = ["<", "# AGENTS.md"];

/// A placeholder in a tool's input for the id of the newest subagent, which no prompt can know.
const AGENT: &str = "THE SUBAGENT";

/// Answers one request. Returns whether the connection stays open.
pub(super) fn answer(writer: &mut TcpStream, request: &Request, shared: &Shared) -> io::Result<bool> {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/v1/responses") => {}
        ("GET", "/v1/models") => {
            let models =
                json!({"object": "list", "data": [{"id": "scripted", "object": "model"}], "models": []});
            http::write_json(writer, 200, &[], &models, false)?;
            return Ok(true);
        }
        _ => {
            let error = json!({"error": {"message": "not served", "type": "invalid_request_error"}});
            http::write_json(writer, 404, &[], &error, false)?;
            return Ok(true);
        }
    }
    let (prompt, step) = newest_prompt(&body);
    let answer = if script::has_tools(&body) {
        with_agent(script::answer_of_turn(&prompt, step, 0), &body)
    } else {
        shared.summary().unwrap_or_else(|| Answer::text("A title"))
    };
    let failed_before = shared.record(&body, format!("{step} {prompt}"));
    match answer {
        Answer::Error(error) if error.times.is_none_or(|times| failed_before < times) => {
            write_error(writer, &error)
        }
        Answer::Error(error) => write_response(writer, &error.then, &prompt, shared),
        Answer::Silence(length) => {
            if !shared.pause(length) {
                return Ok(false);
            }
            write_response(writer, &Answer::text("after the silence"), &prompt, shared)
        }
        answer => write_response(writer, &answer, &prompt, shared),
    }
}

/// The conversation in a request, item by item, without the items that the agent adds.
pub(super) fn conversation_of(body: &Value) -> Vec<Said> {
    let mut said = Vec::new();
    for item in body["input"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
        let (role, what) = match item["type"].as_str().unwrap_or("message") {
            "message" if item["role"] == "assistant" => {
                ("assistant", texts(item).map(What::Text).collect::<Vec<_>>())
            }
            "message" if item["role"] == "user" => {
                let prompts = texts(item).filter(|text| is_prompt(text));
                ("user", prompts.map(What::Text).collect())
            }
            "message" | "additional_tools" => continue,
            "reasoning" => {
                let summaries = item["summary"].as_array().into_iter().flatten();
                let thoughts = summaries.map(|part| What::Thinking(text(&part["text"])));
                ("assistant", thoughts.collect())
            }
            "function_call" => ("assistant", vec![What::ToolUse(text(&item["name"]))]),
            "function_call_output" => ("user", vec![What::ToolResult(text(&item["output"]))]),
            other => ("", vec![What::Other(other.to_owned())]),
        };
        said.extend(what.into_iter().map(|what| Said {
            role: role.to_owned(),
            what,
        }));
    }
    said
}

fn texts(item: &Value) -> impl Iterator<Item = String> {
    let parts = item["content"].as_array().into_iter().flatten();
    parts.filter_map(|part| Some(part["text"].as_str()?.trim().to_owned()))
}

fn is_prompt(text: &str) -> bool {
    !NOT_PROMPTS.iter().any(|beginning| text.starts_with(beginning))
}

/// The newest prompt of the user, and how many times the model has answered it: each run of the model's items
/// is one answer.
fn newest_prompt(body: &Value) -> (String, usize) {
    let none = Vec::new();
    let items = body["input"].as_array().unwrap_or(&none);
    for (index, item) in items.iter().enumerate().rev() {
        let prompt = texts(item).filter(|text| is_prompt(text)).last();
        let Some(prompt) = prompt.filter(|_| item["role"] == "user") else {
            continue;
        };
        let of_model = |item: &Value| {
            item["role"] == "assistant" || item["type"] == "function_call" || item["type"] == "reasoning"
        };
        let behind = &items[index + 1..];
        let answers = (0..behind.len())
            .filter(|at| of_model(&behind[*at]) && (*at == 0 || !of_model(&behind[at - 1])))
            .count();
        return (prompt, answers);
    }
    (String::new(), 0)
}

/// Replaces [`AGENT`] in the answer's tool calls with the id of the newest subagent.
fn with_agent(mut answer: Answer, body: &Value) -> Answer {
    let Answer::Message { blocks, .. } = &mut answer else {
        return answer;
    };
    let items = body["input"].as_array().into_iter().flatten().rev();
    let mut begun = items.filter_map(|item| {
        let output: Value = serde_json::from_str(item["output"].as_str()?).ok()?;
        Some(output["agent_id"].as_str()?.to_owned())
    });
    for block in blocks {
        let AnswerBlock::Tool { input, .. } = block else {
            continue;
        };
        let text = input.to_string();
        if text.contains(AGENT) {
            let id = begun.next().expect("a subagent was begun");
            *input = serde_json::from_str(&text.replace(AGENT, &id)).expect("JSON");
        }
    }
    answer
}

fn write_error(writer: &mut TcpStream, error: &HttpError) -> io::Result<bool> {
    let kind = match error.status {
        400 => "invalid_request_error",
        401 => "invalid_api_key",
        429 => "rate_limit_exceeded",
        _ => "server_error",
    };
    let headers = [("retry-after", error.retry_after_seconds.to_string())];
    let body = match error.limit_resets_at {
        Some(resets_at) => json!({"error": {
            "type": "usage_limit_reached",
            "message": "The usage limit has been reached",
            "plan_type": "plus",
            "resets_at": resets_at,
        }}),
        None => json!({"error": {"message": "scripted error", "type": kind, "code": kind}}),
    };
    http::write_json(writer, error.status, &headers, &body, false)?;
    Ok(true)
}

fn write_response(
    writer: &mut TcpStream,
    answer: &Answer,
    prompt: &str,
    shared: &Shared,
) -> io::Result<bool> {
    let none = Vec::new();
    let (blocks, pace) = match answer {
        Answer::Message { blocks, pace } => (blocks, *pace),
        _ => (&none, Pace::AtOnce),
    };
    let id = new_id("resp");
    http::write_head(
        writer,
        200,
        &[("content-type", "text/event-stream".to_owned())],
        None,
    )?;
    let response = |status: &str, more: Value| {
        let mut response = json!({"id": id, "object": "response", "status": status, "output": []});
        if let (Some(response), Some(more)) = (response.as_object_mut(), more.as_object()) {
            response.extend(more.clone());
        }
        response
    };
    event(
        writer,
        "response.created",
        json!({"response": response("in_progress", json!({}))}),
    )?;
    if let Answer::StreamError(kind) = answer {
        let error = json!({"error": {"code": kind, "message": "scripted error"}});
        event(
            writer,
            "response.failed",
            json!({"response": response("failed", error)}),
        )?;
        return Ok(false);
    }
    let mut output = Vec::new();
    let mut sent_pieces = 0;
    for (index, block) in blocks.iter().enumerate() {
        let (begun, whole) = item_of(block);
        event(
            writer,
            "response.output_item.added",
            json!({"output_index": index, "item": begun}),
        )?;
        if let AnswerBlock::Text(text) = block {
            for piece in text.split_inclusive(' ') {
                let delta = json!({"item_id": whole["id"], "output_index": index, "content_index": 0, "delta": piece});
                event(writer, "response.output_text.delta", delta)?;
                sent_pieces += 1;
                if !shared.keep_pace(writer, pace, sent_pieces)? {
                    return Ok(false);
                }
            }
        }
        event(
            writer,
            "response.output_item.done",
            json!({"output_index": index, "item": whole}),
        )?;
        output.push(whole);
    }
    let tokens = shared.tokens(prompt);
    let usage = json!({
        "input_tokens": tokens, "input_tokens_details": {"cached_tokens": 200},
        "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": tokens + 50,
    });
    let completed = response("completed", json!({"output": output, "usage": usage}));
    event(writer, "response.completed", json!({"response": completed}))?;
    Ok(false)
}

/// How an item begins in a stream, and the complete item at its end.
fn item_of(block: &AnswerBlock) -> (Value, Value) {
    let whole = match block {
        AnswerBlock::Text(text) => json!({
            "id": new_id("msg"), "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        AnswerBlock::Thinking(text) => json!({
            "id": new_id("rs"), "type": "reasoning", "status": "completed", "encrypted_content": "c2VhbGVk",
            "summary": [{"type": "summary_text", "text": text}],
        }),
        AnswerBlock::Tool { name, input } => {
            let mut call = json!({
                "id": new_id("fc"), "type": "function_call", "status": "completed", "call_id": new_id("call"),
                "name": name, "arguments": input.to_string(),
            });
            // The tool belongs to a group of tools.
            if let Some((group, name)) = name.split_once('.') {
                call["namespace"] = group.into();
                call["name"] = name.into();
            }
            call
        }
    };
    let mut begun = whole.clone();
    begun["status"] = "in_progress".into();
    for (member, empty) in [
        ("content", json!([])),
        ("summary", json!([])),
        ("arguments", json!("")),
    ] {
        if let Some(value) = begun.get_mut(member) {
            *value = empty;
        }
    }
    (begun, whole)
}

fn event(writer: &mut TcpStream, kind: &str, mut data: Value) -> io::Result<()> {
    data["type"] = kind.into();
    writer.write_all(format!("event: {kind}\ndata: {data}\n\n").as_bytes())
}

fn new_id(kind: &str) -> String {
    format!("{kind}_{}", uuid::Uuid::new_v4().simple())
}

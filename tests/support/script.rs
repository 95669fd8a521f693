//! The behaviour of the scripted model, which the prompt contains as directives in double brackets. Each
//! directive is one step of a turn.
//!
//! | directive | the model's answer |
//! |---|---|
//! | `[[text WORDS]]` | these words |
//! | `[[think THOUGHT\|WORDS]]` | a thinking block, then words |
//! | `[[tool NAME JSON]]` | a tool call; several, separated by `;;`, in one message |
//! | `[[err CODE n=N ra=S unified=1 reset=EPOCH]]` | an HTTP error, N times (always without `n`), `retry-after` S; `unified` makes it a subscription limit until EPOCH |
//! | `[[err CODE n=N then DIRECTIVE]]` | the same, and then what the other directive says in place of plain text |
//! | `[[drop N]]` | N pieces of text, then the connection is reset |
//! | `[[slow N S]]` | N pieces of text, S seconds apart |
//! | `[[hang S]]` | silence for S seconds |
//! | `[[sse_error TYPE]]` | a stream that starts and then reports an error |
//!
//! A turn's requests follow each other: the step is the number of assistant messages after the prompt. Past
//! the last step, and without directives, the answer is plain text. Pure.

use std::time::Duration;

use serde_json::Value;

/// The model's answer to one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// A whole message.
    Message { blocks: Vec<AnswerBlock>, pace: Pace },
    /// An HTTP error.
    Error(HttpError),
    /// Silence for this long, then a message.
    Silence(Duration),
    /// A stream that starts and then reports an error of this type.
    StreamError(String),
}

/// One content block of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AnswerBlock {
    Text(String),
    Thinking(String),
    Tool { name: String, input: Value },
}

/// The timing of the pieces of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    AtOnce,
    /// A pause of this length between the pieces.
    Every(Duration),
    /// The connection is reset after this many pieces.
    ResetAfter(usize),
}

/// An HTTP error as an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HttpError {
    pub(crate) status: u16,
    /// How many requests of this step get the error, before further ones succeed. `None`: all of them.
    pub(crate) times: Option<usize>,
    pub(crate) retry_after_seconds: u64,
    /// For a limit of a subscription: its reset time in seconds since the epoch.
    pub(crate) limit_resets_at: Option<i64>,
    /// The answer after `times` errors.
    pub(crate) then: Box<Answer>,
}

impl Answer {
    pub(crate) fn text(words: impl Into<String>) -> Answer {
        Answer::Message {
            blocks: vec![AnswerBlock::Text(words.into())],
            pace: Pace::AtOnce,
        }
    }
}

/// The answer to a `/v1/messages` request, together with its step and prompt. Requests without tools do not
/// belong to the conversation (titles and the like) and get a short text.
pub(crate) fn answer_to(body: &Value, now_epoch_seconds: i64) -> (String, Answer) {
    if !has_tools(body) {
        return (String::new(), Answer::text("A title"));
    }
    let (prompt, step) = newest_prompt(body);
    let answer = answer_of_turn(&prompt, step, now_epoch_seconds);
    (format!("{step} {prompt}"), answer)
}

/// The answer to a request of a turn in which the model has already answered `step` times since the prompt.
pub(crate) fn answer_of_turn(prompt: &str, step: usize, now_epoch_seconds: i64) -> Answer {
    let directives = directives(prompt);
    match directives.get(step) {
        Some(directive) => parse(directive, now_epoch_seconds),
        None if directives.is_empty() => Answer::text(format!(
            "ok: {}",
            prompt.trim().chars().take(80).collect::<String>()
        )),
        None => Answer::text(format!("done after {step} steps")),
    }
}

/// Whether a request belongs to a conversation. Side requests of the agent have no tools.
pub(crate) fn has_tools(body: &Value) -> bool {
    body["tools"].as_array().is_some_and(|tools| !tools.is_empty())
}

/// Whether Claude Code requests a summary of a history that is too long.
pub(crate) fn asks_for_summary(body: &Value) -> bool {
    /// The beginning of Claude Code's own prompt for this.
    const COMPACTION: &str = "CRITICAL: Respond with TEXT ONLY";
    newest_prompt(body).0.starts_with(COMPACTION)
}

/// The texts of a message that the user wrote, without the agent's reminders.
pub(crate) fn human_texts(content: &Value) -> Vec<&str> {
    let texts: Vec<&str> = match content {
        Value::String(text) => vec![text.as_str()],
        Value::Array(blocks) => blocks
            .iter()
            .filter(|block| block["type"] == "text")
            .filter_map(|block| block["text"].as_str())
            .collect(),
        _ => Vec::new(),
    };
    texts.into_iter().filter(|text| !is_reminder(text)).collect()
}

/// Whether a text is context that the agent adds to the user's words.
pub(crate) fn is_reminder(text: &str) -> bool {
    /// How such a text begins. The second beginning names the file in which Claude Code has stored a picture.
    const BEGINNINGS: [&str; 2] = ["<system-reminder>", "[Image: source: "];
    let text = text.trim_start();
    BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
}

/// The newest text of the user, and how many times the model has answered since.
pub(super) fn newest_prompt(body: &Value) -> (String, usize) {
    let Some(messages) = body["messages"].as_array() else {
        return (String::new(), 0);
    };
    for (index, message) in messages.iter().enumerate().rev() {
        if message["role"] != "user" {
            continue;
        }
        if let Some(text) = human_texts(&message["content"])
            .into_iter()
            .rev()
            .find(|text| !text.trim().is_empty())
        {
            let step = messages[index + 1..]
                .iter()
                .filter(|message| message["role"] == "assistant")
                .count();
            return (text.to_owned(), step);
        }
    }
    (String::new(), 0)
}

/// The contents of all double brackets. A directive may end with a closing bracket of its JSON (`[[tool X
/// {"a":[[1]]}]]`).
fn directives(prompt: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = prompt;
    while let Some(start) = rest.find("[[") {
        let inside = &rest[start + 2..];
        let Some(end) = closing(inside) else { break };
        found.push(inside[..end].trim().to_owned());
        rest = &inside[end + 2..];
    }
    found
}

fn closing(inside: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            // Quotes matter only within JSON; a quote in prose does not open a string.
            b'"' if depth > 0 => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b']' if depth > 0 => depth -= 1,
            b']' if inside[at..].starts_with("]]") => return Some(at),
            _ => {}
        }
    }
    None
}

fn parse(directive: &str, now_epoch_seconds: i64) -> Answer {
    let (verb, rest) = directive.split_once(' ').unwrap_or((directive, ""));
    let seconds = |text: Option<&str>, default: f64| {
        Duration::from_secs_f64(text.and_then(|text| text.parse().ok()).unwrap_or(default))
    };
    let mut words = rest.split_whitespace();
    match verb {
        "text" => Answer::text(rest),
        "think" => {
            let (thought, said) = rest.split_once('|').unwrap_or((rest, "thought"));
            let blocks = vec![
                AnswerBlock::Thinking(thought.into()),
                AnswerBlock::Text(said.into()),
            ];
            Answer::Message {
                blocks,
                pace: Pace::AtOnce,
            }
        }
        "tool" => {
            let mut blocks = vec![AnswerBlock::Text("calling".into())];
            for call in rest.split(";;") {
                let (name, input) = call.trim().split_once(' ').unwrap_or((call.trim(), "{}"));
                let input = serde_json::from_str(input).expect("a tool's input is JSON");
                blocks.push(AnswerBlock::Tool {
                    name: name.to_owned(),
                    input,
                });
            }
            Answer::Message {
                blocks,
                pace: Pace::AtOnce,
            }
        }
        "err" => {
            let (error, then) = rest.split_once(" then ").unwrap_or((rest, "text recovered"));
            let then = parse(then, now_epoch_seconds);
            Answer::Error(parse_error(error, then, now_epoch_seconds))
        }
        "drop" => {
            let pieces = words.next().and_then(|count| count.parse().ok()).unwrap_or(3);
            let blocks = vec![AnswerBlock::Text(
                "partial text and then the connection breaks ".repeat(4),
            )];
            Answer::Message {
                blocks,
                pace: Pace::ResetAfter(pieces),
            }
        }
        "slow" => {
            let pieces = words.next().and_then(|count| count.parse().ok()).unwrap_or(10);
            let blocks = vec![AnswerBlock::Text("word ".repeat(pieces))];
            Answer::Message {
                blocks,
                pace: Pace::Every(seconds(words.next(), 0.2)),
            }
        }
        "hang" => Answer::Silence(seconds(words.next(), 30.0)),
        "sse_error" => {
            Answer::StreamError(if rest.is_empty() { "overloaded_error" } else { rest }.to_owned())
        }
        _ => Answer::text(directive),
    }
}

fn parse_error(rest: &str, then: Answer, now_epoch_seconds: i64) -> HttpError {
    /// Far enough in the future that the limit is not lifted during a test.
    const USUAL_LIMIT_SECONDS: i64 = 3600;
    let mut words = rest.split_whitespace();
    let status = words.next().and_then(|status| status.parse().ok()).unwrap_or(500);
    let mut error = HttpError {
        status,
        times: None,
        retry_after_seconds: 1,
        limit_resets_at: None,
        then: Box::new(then),
    };
    let mut reset = now_epoch_seconds + USUAL_LIMIT_SECONDS;
    let mut unified = false;
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        match name {
            "n" => error.times = value.parse().ok(),
            "ra" => error.retry_after_seconds = value.parse().unwrap_or(1),
            "unified" => unified = true,
            "reset" => reset = value.parse().unwrap_or(reset),
            _ => {}
        }
    }
    error.limit_resets_at = unified.then_some(reset);
    error
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(prompt: &str, answers: usize) -> Value {
        let mut messages = vec![json!({"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>\n[[text not this]]</system-reminder>"},
            {"type": "text", "text": prompt},
        ]})];
        for _ in 0..answers {
            messages.push(
                json!({"role": "assistant", "content": [{"type": "tool_use", "name": "Bash", "input": {}}]}),
            );
            messages.push(
                json!({"role": "user", "content": [{"type": "tool_result", "content": "[[text no]]"}]}),
            );
        }
        json!({"tools": [{"name": "Bash"}], "messages": messages})
    }

    #[test]
    fn steps_of_a_turn_follow_the_models_answers() {
        let prompt = r#"[[tool Bash {"command":"echo [[1]]"} ;; Read {"p":[[1]]}]] then [[text fine]]"#;
        let (_, Answer::Message { blocks, .. }) = answer_to(&request(prompt, 0), 0) else {
            panic!("no message")
        };
        let tool = |name: &str, input: Value| AnswerBlock::Tool {
            name: name.into(),
            input,
        };
        assert_eq!(
            blocks[1..],
            [
                tool("Bash", json!({"command": "echo [[1]]"})),
                tool("Read", json!({"p": [[1]]}))
            ]
        );
        assert_eq!(answer_to(&request(prompt, 1), 0).1, Answer::text("fine"));
        assert_eq!(
            answer_to(&request(prompt, 2), 0).1,
            Answer::text("done after 2 steps")
        );
    }

    #[test]
    fn other_requests_get_plain_text() {
        assert_eq!(answer_to(&request("hello", 0), 0).1, Answer::text("ok: hello"));
        assert_eq!(answer_to(&json!({"messages": []}), 0).1, Answer::text("A title"));
    }

    #[test]
    fn errors_tell_status_count_and_limit() {
        let (_, answer) = answer_to(&request("[[err 429 n=2 ra=5 unified=1 reset=77]]", 0), 0);
        let expected = HttpError {
            status: 429,
            times: Some(2),
            retry_after_seconds: 5,
            limit_resets_at: Some(77),
            then: Box::new(Answer::text("recovered")),
        };
        assert_eq!(answer, Answer::Error(expected));
        let (_, answer) = answer_to(&request("[[err 500 n=1 then text now [then] it does]]", 0), 0);
        let Answer::Error(error) = answer else {
            panic!("no error: {answer:?}")
        };
        assert_eq!((error.status, error.times), (500, Some(1)));
        assert_eq!(*error.then, Answer::text("now [then] it does"));
    }
}

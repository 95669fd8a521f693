//! A pure parser of the directives in a prompt.
//!
//! This module owns their syntax. By contract, an unknown or malformed directive is text. It does not know what
//! directives do.

use serde_json::value::RawValue;

/// One step of a turn.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Directive {
    Say(String),
    Stream {
        chunks: u64,
        interval_ms: u64,
    },
    Tool {
        name: String,
        /// The arguments as JSON on one line.
        input_json: String,
    },
    Write {
        path: String,
        text: String,
    },
    Call {
        method: String,
        /// The parameters as JSON on one line; the session's id is added.
        params_json: String,
    },
    Ask(String),
    Limit {
        duration_ms: i64,
    },
    Fail(FailKind),
    Crash,
    Hang,
    Deaf,
    /// Not in the contract: a stopped turn ends only after another one has ended, even if its session is already
    /// closed.
    Linger,
    /// Not in the contract: the session's next prompt is answered as cancelled, and nothing of it is written.
    SkipNext,
    Forget,
    /// Not in the contract: copies of the session do not work either.
    ForgetCopies,
    Lose,
    Clear,
    Recall,
    /// Not in the contract: replies with the session's settings, so that tests can see what a resume restored.
    Settings,
}

/// A failure of the model's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailKind {
    Overloaded,
    Auth,
    Network,
    Context,
}

/// Returns the directives in `text`, in order.
pub(super) fn parse(text: &str) -> Vec<Directive> {
    let mut directives = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("[[") {
        let inside = &rest[start + 2..];
        match parse_one(inside) {
            Some((directive, length)) => {
                directives.push(directive);
                rest = &inside[length..];
            }
            // The next bracket may start a directive, as in `[[[say x]]`.
            None => rest = &rest[start + 1..],
        }
    }
    directives
}

/// Parses the directive at the start of `inside`, after its opening brackets. Returns it and its length including the
/// closing brackets.
fn parse_one(inside: &str) -> Option<(Directive, usize)> {
    if let Some(call) = inside.strip_prefix("tool ") {
        let (name, input_json, length) = parse_call(call)?;
        let directive = Directive::Tool { name, input_json };
        return Some((directive, inside.len() - call.len() + length));
    }
    if let Some(call) = inside.strip_prefix("call ") {
        let (method, params_json, length) = parse_call(call)?;
        let directive = Directive::Call { method, params_json };
        return Some((directive, inside.len() - call.len() + length));
    }
    let end = inside.find("]]")?;
    let body = &inside[..end];
    let (word, argument) = match body.split_once(char::is_whitespace) {
        Some((word, argument)) => (word, Some(argument)),
        None => (body, None),
    };
    let directive = match (word, argument) {
        ("say", Some(text)) => Directive::Say(text.to_owned()),
        ("stream", Some(numbers)) => {
            let (chunks, interval_ms) = numbers.trim().split_once(char::is_whitespace)?;
            Directive::Stream {
                chunks: chunks.parse().ok()?,
                interval_ms: interval_ms.trim().parse().ok()?,
            }
        }
        ("write", Some(rest)) => {
            let (path, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            if path.is_empty() {
                return None;
            }
            Directive::Write {
                path: path.to_owned(),
                text: text.to_owned(),
            }
        }
        ("ask", Some(text)) => Directive::Ask(text.to_owned()),
        ("limit", Some(seconds)) => Directive::Limit {
            duration_ms: milliseconds(seconds.trim())?,
        },
        ("fail", Some(kind)) => Directive::Fail(match kind.trim() {
            "overloaded" => FailKind::Overloaded,
            "auth" => FailKind::Auth,
            "network" => FailKind::Network,
            "context" => FailKind::Context,
            _ => return None,
        }),
        ("crash", None) => Directive::Crash,
        ("hang", None) => Directive::Hang,
        ("deaf", None) => Directive::Deaf,
        ("linger", None) => Directive::Linger,
        ("skip", Some("next")) => Directive::SkipNext,
        ("forget", None) => Directive::Forget,
        ("forget", Some("copies")) => Directive::ForgetCopies,
        ("lose", None) => Directive::Lose,
        ("clear", None) => Directive::Clear,
        ("recall", None) => Directive::Recall,
        ("settings", None) => Directive::Settings,
        _ => return None,
    };
    Some((directive, end + 2))
}

/// `NAME JSON]]`: the arguments may contain closing brackets, so they end where the JSON ends. Returns both, and the length.
fn parse_call(call: &str) -> Option<(String, String, usize)> {
    let (name, arguments) = match (call.find(char::is_whitespace), call.find("]]")) {
        (Some(space), Some(end)) if space < end => call.split_at(space),
        (_, Some(end)) => call.split_at(end),
        _ => return None,
    };
    if name.is_empty() {
        return None;
    }
    let mut length = name.len() + arguments.len() - arguments.trim_start().len();
    let mut input_json = "{}".to_owned();
    if !call[length..].starts_with("]]") {
        let mut values = serde_json::Deserializer::from_str(&call[length..]).into_iter::<&RawValue>();
        // A line break between tokens would split the transcript's line.
        input_json = values.next()?.ok()?.get().replace(['\n', '\r'], " ");
        length += values.byte_offset();
    }
    let after_arguments = &call[length..];
    let closing = after_arguments.trim_start();
    let length = length + after_arguments.len() - closing.len() + 2;
    closing
        .starts_with("]]")
        .then(|| (name.to_owned(), input_json, length))
}

/// Parses a number of seconds, possibly with a fraction, into milliseconds.
fn milliseconds(seconds: &str) -> Option<i64> {
    let seconds: f64 = seconds.parse().ok()?;
    // A century: longer than any limit, and far below the arithmetic's range.
    const MOST_SECONDS: f64 = 3_153_600_000.0;
    (0.0..=MOST_SECONDS)
        .contains(&seconds)
        .then(|| (seconds * 1_000.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tool(name: &str, input_json: &str) -> Directive {
        Directive::Tool {
            name: name.into(),
            input_json: input_json.into(),
        }
    }

    #[test]
    fn the_arguments_of_a_call_end_where_their_json_ends() {
        for (arguments, input_json) in [
            (" {\"a\":[[1]],\"b\":\"]]\"} ", "{\"a\":[[1]],\"b\":\"]]\"}"),
            (
                " {\"n\":12345678901234567890.10}",
                "{\"n\":12345678901234567890.10}",
            ),
            (" {\n}", "{ }"),
            ("", "{}"),
        ] {
            let text = format!("[[tool Read{arguments}]]");
            assert_eq!(parse(&text), [tool("Read", input_json)], "{text}");
        }
    }

    #[test]
    fn unknown_and_malformed_directives_are_text() {
        for text in [
            "",
            "plain",
            "[[",
            "[[]]",
            "[[dance]]",
            "[[say]]",
            "[[stream ten 5]]",
            "[[stream 10]]",
            "[[limit soon]]",
            "[[limit -1]]",
            "[[limit NaN]]",
            "[[fail oddly]]",
            "[[crash now]]",
            "[[tool ]]",
            "[[tool Read {\"a\":]]",
            "[[tool Read {} {}]]",
            "[[say never closed",
            "[say x]",
        ] {
            assert_eq!(parse(text), [], "{text}");
        }
    }

    #[test]
    fn directives_are_found_in_order_between_any_text() {
        let text = "do [[dance]] [[say a]][[[say b]] and [[tool T {\"x\":\"[[say no]]\"}]] then [[recall]].";
        assert_eq!(
            parse(text),
            [
                Directive::Say("a".into()),
                Directive::Say("b".into()),
                tool("T", "{\"x\":\"[[say no]]\"}"),
                Directive::Recall,
            ]
        );
    }

    proptest! {
        #[test]
        fn any_prompt_can_be_parsed(text in "(\\[\\[|\\]\\]|tool |say |write |limit |stream |fail |[\u{130}\u{1e9e}\u{e9}\u{a0}\u{2003}]|\\{\"a\":|\"\\}|[0-9 ]|\\PC){0,16}") {
            let found = parse(&text);
            let more = parse(&format!("\u{e9}{text} [[crash]]"));
            prop_assert!(more.len() >= found.len());
        }
    }
}

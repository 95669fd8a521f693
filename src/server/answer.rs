//! The text of answers, and the errors of the transport itself.
//!
//! Pure. Knows no method.

use bridge_protocol::{BridgeError, ErrorKind};
use serde::Serialize;
use serde_json::value::RawValue;

/// The text of an answer. `None` for a notification.
pub(super) type AnswerText = Option<Box<str>>;

/// The result of a call, as JSON, or its error.
pub type CallResult = Result<String, BridgeError>;

/// Writes a result as JSON.
///
/// # Errors
/// If it cannot be encoded as JSON. The results of the contract's methods always can.
pub fn result<T: Serialize>(result: &T) -> CallResult {
    serde_json::to_string(result).map_err(|error| {
        BridgeError::new(
            ErrorKind::InternalError,
            format!("cannot write the answer: {error}"),
        )
    })
}

/// The error for a line that is not JSON.
pub(super) fn parse_error(why: impl std::fmt::Display) -> BridgeError {
    BridgeError::new(
        ErrorKind::ParseError,
        format!("the line is not valid JSON: {why}"),
    )
}

/// The error for JSON that is not a request.
pub(super) fn invalid_request(message: impl Into<String>) -> BridgeError {
    BridgeError::new(ErrorKind::InvalidRequest, message)
}

/// The answer to the request `id`. A result that makes it longer than `limit_bytes` becomes an error.
pub(super) fn response_to(id: Option<&RawValue>, outcome: CallResult, limit_bytes: usize) -> AnswerText {
    let id = id?;
    let text = outcome.map(|result| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    Some(match text {
        Ok(text) if text.len() <= limit_bytes => text.into_boxed_str(),
        Ok(_) => {
            let message = "the answer is larger than one message may be; ask for less at a time";
            error_response(Some(id), &BridgeError::new(ErrorKind::InternalError, message))
        }
        Err(error) => error_response(Some(id), &error),
    })
}

/// The error answer to the request `id`. Without an id, because it could not be read, the answer's id is `null`.
pub(super) fn error_response(id: Option<&RawValue>, error: &BridgeError) -> Box<str> {
    let id = id.unwrap_or(RawValue::NULL);
    // Strings, integers and raw JSON can always be encoded. The fallback only avoids a panic.
    let error = serde_json::to_string(error).unwrap_or_else(|_| {
        r#"{"code":-32603,"message":"an error could not be encoded","data":{"kind":"internalError","retryable":false}}"#
            .to_owned()
    });
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_boxed_str()
}

/// The answer to a batch. Entries that would make it longer than the limit of a message are answered with an error.
pub(super) fn batch_response(
    answers: Vec<(Option<Box<RawValue>>, AnswerText)>,
    limit_bytes: usize,
) -> AnswerText {
    let mut joined = String::from("[");
    for (id, answer) in answers {
        let Some(answer) = answer else { continue };
        let answer = if joined.len() + answer.len() > limit_bytes {
            let message = "the answers of this batch are larger than one message may be";
            error_response(
                id.as_deref(),
                &BridgeError::new(ErrorKind::InternalError, message),
            )
        } else {
            answer
        };
        if joined.len() > 1 {
            joined.push(',');
        }
        joined.push_str(&answer);
    }
    // A batch that contains only notifications is not answered.
    (joined.len() > 1).then(|| (joined + "]").into_boxed_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn an_answer_is_written_as_its_outcome_and_id_came() {
        let table = [
            (
                r#""\u0061""#,
                Ok(r#"{"a": 1.50}"#),
                r#"{"jsonrpc":"2.0","id":"\u0061","result":{"a": 1.50}}"#,
            ),
            (
                "1",
                Err(parse_error("why")),
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"the line is not valid JSON: why","data":{"kind":"parseError","retryable":false}}}"#,
            ),
            (
                "null",
                Err(BridgeError::new(ErrorKind::Busy, "no")
                    .with("zebra", 1)
                    .with("a", 2)),
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":1003,"message":"no","data":{"a":2,"kind":"busy","retryable":true,"zebra":1}}}"#,
            ),
        ];
        for (raw, outcome, expected) in table {
            let outcome = outcome.map(str::to_owned);
            assert_eq!(response_to(None, outcome.clone(), 1_000), None, "a notification");
            assert_eq!(
                response_to(Some(&id(raw)), outcome, 1_000).as_deref(),
                Some(expected)
            );
        }
        let unknown = error_response(None, &invalid_request("no"));
        assert!(
            unknown.starts_with(r#"{"jsonrpc":"2.0","id":null,"error":"#),
            "{unknown}"
        );
    }
}

//! Errors as answers, and the `data` that every error carries.
//!
//! Pure. An error of a method passes through unchanged; one that jsonrpsee makes itself gets its `data.kind` and
//! `data.retryable` here.

use bridge_protocol::{BridgeError, ErrorKind};
use jsonrpsee::types::ErrorObjectOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// jsonrpsee's code for an answer over the size limit. The contract has no such code: clients get an internal error.
const JSONRPSEE_OVERSIZED_RESPONSE: i32 = -32008;

/// The error of a line that is not JSON.
pub(super) fn parse_error(why: impl std::fmt::Display) -> BridgeError {
    BridgeError::new(
        ErrorKind::ParseError,
        format!("the line is not valid JSON: {why}"),
    )
}

/// The error of what is JSON and no request.
pub(super) fn invalid_request(message: impl Into<String>) -> BridgeError {
    BridgeError::new(ErrorKind::InvalidRequest, message)
}

/// The answer to the request `id`; none if the id could not be read, which is `null`.
pub(super) fn answer(id: Option<&RawValue>, error: BridgeError) -> Box<str> {
    #[derive(Serialize)]
    struct Answer<'a> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        error: ErrorObjectOwned,
    }
    let answer = Answer {
        jsonrpc: "2.0",
        id: id.unwrap_or(RawValue::NULL),
        error: error.into(),
    };
    // Strings, integers and raw JSON always encode; the other arm exists so that nothing here can panic.
    serde_json::to_string(&answer).map_or_else(
        |_| {
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"an error could not be encoded","data":{"kind":"internalError","retryable":false}}}"#.into()
        },
        String::into_boxed_str,
    )
}

/// Gives an error answer the `data` that the wire contract promises, where it lacks it. Everything else, also a notification and
/// an error that is complete, is returned byte for byte.
pub(super) fn with_complete_data(text: Box<str>) -> Box<str> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
        error: ErrorObjectOwned,
    }
    #[derive(Deserialize)]
    struct Promised {
        #[serde(rename = "kind")]
        _kind: String,
        #[serde(rename = "retryable")]
        _retryable: bool,
    }
    let Ok(Answer { id, error }) = serde_json::from_str::<Answer<'_>>(&text) else {
        return text;
    };
    let data = error.data().map_or("null", RawValue::get);
    if serde_json::from_str::<Promised>(data).is_ok() {
        return text;
    }
    // jsonrpsee puts its explanation into `data` as a plain string; a person reads the message.
    let completed = match (error.code(), serde_json::from_str::<String>(data)) {
        (JSONRPSEE_OVERSIZED_RESPONSE, _) => {
            let message = "the answer is larger than one message may be; ask for less at a time";
            BridgeError::new(ErrorKind::InternalError, message)
        }
        (code, Ok(why)) => BridgeError::from_wire(code, &format!("{}: {why}", error.message()), None),
        (_, Err(_)) => error.into(),
    };
    answer(Some(id), completed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_carries_id_kind_and_retryable() {
        let id = RawValue::from_string("\"a\"".to_owned()).unwrap();
        let text = answer(Some(&id), parse_error("why"));
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&read["id"], &read["error"]["code"]),
            (&"a".into(), &(-32700).into())
        );
        assert_eq!(read["error"]["data"]["kind"], "parseError");
        assert_eq!(read["error"]["data"]["retryable"], false);
        let unknown: serde_json::Value = serde_json::from_str(&answer(None, parse_error("why"))).unwrap();
        assert!(unknown["id"].is_null());
    }

    #[test]
    fn data_is_completed_where_it_is_missing_and_only_there() {
        let table = [
            (r#"{"jsonrpc":"2.0","id":1,"result":{"error":1}}"#, None),
            (
                r#"{"jsonrpc":"2.0","method":"e","params":{"error":{"code":1,"message":""}}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1001,"message":"m","data":{"kind":"notFound","retryable":false}}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params","data":"missing field `cwd`"}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params: missing field `cwd`","data":{"kind":"invalidParams","retryable":false}}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32603,"message":"Internal error"}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32603,"message":"Internal error","data":{"kind":"internalError","retryable":false}}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1007,"message":"m","data":{"upstream":{"code":12345678901234567890}}}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":1,"error":{"code":1007,"message":"m","data":{"kind":"agentError","retryable":false,"upstream":{"code":12345678901234567890}}}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32008,"message":"Response is too big","data":"Exceeded"}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the answer is larger than one message may be; ask for less at a time","data":{"kind":"internalError","retryable":false}}}"#,
                ),
            ),
        ];
        for (given, expected) in table {
            assert_eq!(&*with_complete_data(given.into()), expected.unwrap_or(given));
        }
    }
}

//! The errors that the socket itself answers, and the `data` that every error must carry.
//!
//! Pure. Knows JSON-RPC's own codes and the two that the transport needs from the wire contract (busy); an error that
//! a method returns passes through unchanged unless it comes without `data.kind` and `data.retryable`, as those do
//! that jsonrpsee makes by itself.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
/// The wire contract's `busy`: a limit of this socket was reached; the same request may be sent again later.
const BUSY: i32 = 1003;
/// jsonrpsee's own code for an answer over the size limit; clients are told an internal error instead, because the
/// contract does not know this code.
const JSONRPSEE_OVERSIZED_RESPONSE: i32 = -32008;

/// An error that the socket answers without any method having been called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    code: i32,
    message: String,
    data: FaultData,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FaultData {
    kind: &'static str,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_bytes: Option<usize>,
}

#[derive(Serialize)]
struct ErrorAnswer<'a, D> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    error: ErrorBody<'a, D>,
}

#[derive(Serialize)]
struct ErrorBody<'a, D> {
    code: i32,
    message: &'a str,
    data: D,
}

impl Fault {
    /// The line is not JSON at all.
    pub(super) fn parse_error(why: &str) -> Self {
        Self::new(PARSE_ERROR, format!("the line is not valid JSON: {why}"))
    }

    /// The line is JSON, but not a request.
    pub(super) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(INVALID_REQUEST, message.into())
    }

    /// The line is longer than may be held.
    pub(super) fn line_too_long(bytes_seen: u64, limit_bytes: usize) -> Self {
        let mut fault = Self::new(
            INVALID_REQUEST,
            format!("the line has {bytes_seen} bytes, more than the limit of {limit_bytes} (max_line_bytes)"),
        );
        fault.data.limit_bytes = Some(limit_bytes);
        fault
    }

    /// No such method.
    pub(super) fn method_not_found(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("there is no method {method:?}"))
    }

    /// The parameters have the wrong shape.
    pub(super) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message.into())
    }

    /// The method failed in a way that is nobody's fault but the daemon's.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, message.into())
    }

    /// A limit of this socket is reached.
    pub(super) fn busy(message: impl Into<String>) -> Self {
        Self::new(BUSY, message.into())
    }

    fn new(code: i32, message: String) -> Self {
        let (kind, retryable) = kind_of(code);
        Self {
            code,
            message,
            data: FaultData {
                kind,
                retryable,
                limit_bytes: None,
            },
        }
    }

    /// The JSON-RPC answer to the request `id`; none means that the id could not be read, which is `null`.
    pub(super) fn answer(&self, id: Option<&RawValue>) -> Box<str> {
        let error = ErrorBody {
            code: self.code,
            message: &self.message,
            data: &self.data,
        };
        encode(&ErrorAnswer {
            jsonrpc: "2.0",
            id: id.unwrap_or(RawValue::NULL),
            error,
        })
    }
}

/// Gives an error answer the `data` that the wire contract promises, where it lacks it. Everything else, also a notification and
/// an error that is complete, is returned byte for byte.
pub(super) fn with_complete_data(answer: Box<str>) -> Box<str> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
        #[serde(borrow)]
        error: Body<'a>,
    }
    #[derive(Deserialize)]
    struct Body<'a> {
        code: i32,
        message: String,
        #[serde(borrow)]
        data: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Promised {
        #[serde(rename = "kind")]
        _kind: String,
        #[serde(rename = "retryable")]
        _retryable: bool,
    }
    #[derive(Serialize)]
    struct Completed<'a> {
        kind: &'static str,
        retryable: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a RawValue>,
    }

    let Ok(Answer { id, error }) = serde_json::from_str::<Answer<'_>>(&answer) else {
        return answer;
    };
    if error
        .data
        .is_some_and(|data| serde_json::from_str::<Promised>(data.get()).is_ok())
    {
        return answer;
    }
    // jsonrpsee puts its explanation into `data` as a plain string; a person reads the message.
    let explanation = error
        .data
        .and_then(|data| serde_json::from_str::<String>(data.get()).ok());
    let (code, message) = match (error.code, explanation.as_deref()) {
        (JSONRPSEE_OVERSIZED_RESPONSE, _) => (
            INTERNAL_ERROR,
            "the answer is larger than one message may be; ask for less at a time".to_owned(),
        ),
        (code, Some(explanation)) => (code, format!("{}: {explanation}", error.message)),
        (code, None) => (code, error.message),
    };
    let (kind, retryable) = kind_of(code);
    let detail = if explanation.is_none() { error.data } else { None };
    let data = Completed {
        kind,
        retryable,
        detail,
    };
    encode(&ErrorAnswer {
        jsonrpc: "2.0",
        id,
        error: ErrorBody {
            code,
            message: &message,
            data,
        },
    })
}

/// `data.kind` and `data.retryable` of a code. Codes of methods never get here without data of their own.
fn kind_of(code: i32) -> (&'static str, bool) {
    match code {
        PARSE_ERROR => ("parseError", false),
        INVALID_REQUEST => ("invalidRequest", false),
        METHOD_NOT_FOUND => ("methodNotFound", false),
        INVALID_PARAMS => ("invalidParams", false),
        BUSY => ("busy", true),
        _ => ("internalError", false),
    }
}

fn encode(answer: &impl Serialize) -> Box<str> {
    // Strings, integers and raw JSON always encode; the other arm exists so that nothing here can panic.
    serde_json::to_string(answer).map_or_else(
        |_| {
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"an error could not be encoded","data":{"kind":"internalError","retryable":false}}}"#.into()
        },
        String::into_boxed_str,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn an_answer_carries_id_kind_and_retryable() {
        let table = [
            (Fault::parse_error("why"), -32700, "parseError", false),
            (Fault::invalid_request("why"), -32600, "invalidRequest", false),
            (Fault::line_too_long(9, 8), -32600, "invalidRequest", false),
            (Fault::method_not_found("m"), -32601, "methodNotFound", false),
            (Fault::invalid_params("why"), -32602, "invalidParams", false),
            (Fault::internal("why"), -32603, "internalError", false),
            (Fault::busy("why"), 1003, "busy", true),
        ];
        for (fault, code, kind, retryable) in table {
            let answer: serde_json::Value = serde_json::from_str(&fault.answer(Some(&raw("\"a\"")))).unwrap();
            assert_eq!(answer["id"], "a");
            assert_eq!(answer["error"]["code"], code);
            assert_eq!(answer["error"]["data"]["kind"], kind);
            assert_eq!(answer["error"]["data"]["retryable"], retryable);
        }
        let unknown: serde_json::Value =
            serde_json::from_str(&Fault::parse_error("why").answer(None)).unwrap();
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
                    r#"{"jsonrpc":"2.0","id":1,"error":{"code":1007,"message":"m","data":{"kind":"internalError","retryable":false,"detail":{"upstream":{"code":12345678901234567890}}}}}"#,
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

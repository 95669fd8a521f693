//! Checks against the contract's document: each answer, error and event in these tests must match
//! `packaging/openrpc.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::schema::misfits;

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/openrpc.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
});

fn methods() -> impl Iterator<Item = (String, &'static Value)> {
    let methods = DOCUMENT["methods"].as_array().unwrap().iter();
    methods.map(|method| (method["name"].as_str().unwrap().to_owned(), method))
}

/// The error codes that the document lists for each method.
static FORETOLD: LazyLock<BTreeMap<String, BTreeSet<i64>>> = LazyLock::new(|| {
    let code = |error: &Value| {
        let pointer = error["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix('#'))
            .unwrap();
        DOCUMENT.pointer(pointer).unwrap()["code"].as_i64().unwrap()
    };
    methods()
        .map(|(name, method)| {
            let codes = method["errors"].as_array().into_iter().flatten().map(code);
            (name, codes.collect())
        })
        .collect()
});

/// The schema of each method's result.
static ANSWERS: LazyLock<BTreeMap<String, &'static Value>> = LazyLock::new(|| {
    methods()
        .map(|(name, method)| (name, &method["result"]["schema"]))
        .collect()
});

#[track_caller]
fn check(what: &str, schema: &Value, value: &Value) {
    let wrong = misfits(&DOCUMENT, schema, value);
    assert!(
        wrong.is_empty(),
        "{what} does not match the document: {wrong:?}: {value}"
    );
}

/// Panics if a method's answer does not match its schema in the document.
#[track_caller]
pub(crate) fn check_answer(method: &str, result: &Value) {
    let schema = ANSWERS
        .get(method)
        .unwrap_or_else(|| panic!("unknown method {method}"));
    check(method, schema, result);
}

/// Panics if a notification does not match the document's schema of events.
#[track_caller]
pub(crate) fn check_notification(message: &Value) {
    assert_eq!(message["method"], "conversation/event", "{message}");
    let envelope = json!({"$ref": "#/components/schemas/EventEnvelope"});
    check("an event", &envelope, &message["params"]["result"]);
}

/// The codes that the methods define. The codes of JSON-RPC itself may come from any method.
const OWN: std::ops::RangeInclusive<i64> = 1_001..=1_999;

/// Panics if a method answered with an error code that the document does not list for it.
pub(crate) fn check_foretold(method: &str, code: i64) {
    let is_foretold = || FORETOLD.get(method).is_some_and(|codes| codes.contains(&code));
    assert!(
        !OWN.contains(&code) || is_foretold(),
        "{method} is refused with {code}, which its doc comment in bridge-protocol does not name"
    );
}

#[test]
fn what_is_not_foretold_is_found() {
    let is_fine =
        |method: &'static str, code| std::panic::catch_unwind(|| check_foretold(method, code)).is_ok();
    assert!(is_fine("conversation/prompt", 1_003));
    assert!(is_fine("conversation/prompt", -32_602));
    assert!(!is_fine("conversation/get", 1_003));
    assert!(!is_fine("rpc.neverHeardOf", 1_003));
}

#[test]
fn what_is_not_as_it_was_foretold_is_found() {
    let is_fine = |method: &'static str, value: Value| {
        std::panic::catch_unwind(|| check_answer(method, &value)).is_ok()
    };
    assert!(is_fine("conversation/cancel", json!({"cancelled": true})));
    assert!(!is_fine("conversation/cancel", json!({"cancelled": "yes"})));
    assert!(!is_fine("conversation/cancel", json!({})));
    let event = |event: Value| {
        let params = json!({"subscription": 1, "result": event});
        json!({"jsonrpc": "2.0", "method": "conversation/event", "params": params})
    };
    let bad = event(json!({"cursor": "c1"}));
    assert!(std::panic::catch_unwind(|| check_notification(&bad)).is_err());
}

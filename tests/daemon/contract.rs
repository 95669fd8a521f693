//! The refusals that the contract's document foretells: whatever a test is refused has to be among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

/// The codes that each method may answer with.
static FORETOLD: LazyLock<BTreeMap<String, BTreeSet<i64>>> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/openrpc.json");
    let document: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let code = |error: &Value| {
        let pointer = error["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix('#'))
            .unwrap();
        document.pointer(pointer).unwrap()["code"].as_i64().unwrap()
    };
    let methods = document["methods"].as_array().unwrap().iter();
    methods
        .map(|method| {
            let codes = method["errors"].as_array().into_iter().flatten().map(code);
            (method["name"].as_str().unwrap().to_owned(), codes.collect())
        })
        .collect()
});

/// Those of JSON-RPC itself may come from any method.
const OWN: std::ops::RangeInclusive<i64> = 1_001..=1_999;

/// Fails when a method answered with a code that the document does not foretell of it.
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

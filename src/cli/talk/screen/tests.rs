//! What is said beside the answer.

use serde_json::json;

use super::*;

#[test]
fn usage_is_one_line() {
    let table = [
        (
            json!({"used": 950, "size": 200_000}),
            "context 0% (950 of 200k tokens)",
        ),
        (
            json!({"used": 24_600, "size": 200_000, "cost": {"amount": 0.4217, "currency": "USD"}}),
            "context 12% (25k of 200k tokens) - $0.42",
        ),
        (
            json!({"used": 1_470_000, "size": 1_000_000}),
            "context 147% (1.5M of 1M tokens)",
        ),
        (
            json!({"used": 1, "size": 0, "cost": {"amount": 3, "currency": "EUR"}}),
            "context 100% (1 of 0 tokens) - 3.00 EUR",
        ),
    ];
    for (reported, expected) in table {
        assert_eq!(usage_line(&reported, Look::default()), expected);
    }
}

#[test]
fn a_plan_shows_what_is_done() {
    let line = |status: &str| {
        let entry = json!({"content": "Look\naround", "status": status});
        plan_line(&entry, Look::default())
    };
    assert_eq!(line("completed"), "  [x] Look around");
    assert_eq!(line("in_progress"), "  [~] Look around");
    assert_eq!(line("pending"), "  [ ] Look around");
}

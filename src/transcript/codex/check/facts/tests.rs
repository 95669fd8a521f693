use proptest::prelude::*;

use super::*;
use crate::transcript::codex::facts::MEMBERS;
use crate::transcript::fields::Fields;
use crate::transcript::scan::tests::pruned::{assert_same, json};

fn facts(fields: Fields<'_>) -> Option<CallOrResult> {
    call_or_result(&RolloutLine::of(fields))
}

const NAMES: &[&str] = &[
    "type",
    "type",
    "call_id",
    "name",
    "id",
    "payload",
    "payload",
    "cli_version",
    "role",
    "content",
    "content",
    "summary",
    "output",
    "output",
    "text",
    "image_url",
];
const STRINGS: &[&str] = &[
    "response_item",
    "response_item",
    "session_meta",
    "message",
    "function_call",
    "function_call_output",
    "local_shell_call",
    "mcp_tool_call_output",
    "hologram",
    "tool_\\u0063all",
    "c1",
    "c\\u0031",
    "reasoning",
    "user",
    "developer",
    "input_text",
    "input_image",
    "rich_text",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// The table names all that is read of a line.
    #[test]
    fn of_a_pruned_line_the_same_is_read(item in json(NAMES, STRINGS), is_bare in any::<bool>(), piece in 1usize..40) {
        let line = match is_bare {
            true => item,
            false => format!(r#"{{"type":"response_item","payload":{item}}}"#),
        };
        assert_same(&MEMBERS, line.as_bytes(), piece, facts);
    }
}

#[test]
fn calls_and_results_are_read_with_and_without_an_envelope() {
    let call = r#"{"type":"function_call","call_id":"c1","name":"exec"}"#;
    for line in [
        call.to_owned(),
        format!(r#"{{"type":"response_item","payload":{call}}}"#),
    ] {
        let tool = "exec".to_owned();
        let id = hash_of("c1");
        let read = facts(Fields::parse(&line).expect("an object"));
        assert_eq!(read, Some(CallOrResult::Call { id, tool }));
    }
}

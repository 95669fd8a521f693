use proptest::prelude::*;

use super::*;
use crate::transcript::claude::RecordFacts;
use crate::transcript::fields::Fields;
use crate::transcript::scan::Scanned;
use crate::transcript::scan::tests::pruned::{assert_same, json, pruned};

fn facts(fields: Fields<'_>) -> (MessageFacts, RecordFacts) {
    let record = Record { fields };
    (MessageFacts::of(&record), RecordFacts::of(&record))
}

const NAMES: &[&str] = &[
    "type",
    "type",
    "type",
    "id",
    "name",
    "tool_use_id",
    "content",
    "content",
    "text",
    "thinking",
    "message",
    "message",
    "toolUseResult",
    "agentId",
    "persistedOutputPath",
    "sessionId",
    "input",
    "version",
    "uuid",
];
const STRINGS: &[&str] = &[
    "tool_use",
    "tool_result",
    "text",
    "t1",
    "a/b",
    "Bash",
    "te\\u0078t",
    "user",
    "assistant",
    "system",
    "thinking",
    "image",
    "hologram",
    "saved to: tool-results/y",
    "<persisted-output>",
    "<persisted-output>\\nFull output saved to: /p/tool-results/x.txt\\n\\nPreview",
    " \\n<persisted-output> saved to: \\ud83d/tool-results/\\u00fc \\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The table names all that is read of a record.
    #[test]
    fn of_a_pruned_record_the_same_is_read(line in json(NAMES, STRINGS), piece in 1usize..40) {
        assert_same(&CHECK, line.as_bytes(), piece, facts);
    }

    #[test]
    fn of_a_pruned_message_the_same_is_read(block in json(NAMES, STRINGS), answer in json(NAMES, STRINGS)) {
        let line = format!(
            r#"{{"type":"user","uuid":"u","message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":[{answer}]}},{block},{{"type":"tool_result","tool_use_id":"t","content":{answer}}}]}}}}"#
        );
        assert_same(&CHECK, line.as_bytes(), 4096, facts);
    }
}

#[test]
fn a_long_result_is_looked_at_as_far_as_a_file_is_named_there() {
    let files = |before: usize, behind: usize| {
        let line = format!(
            r#"{{"message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":"<persisted-output>{}saved to: tool-results/é\n{}"}}]}}}}"#,
            " ".repeat(before),
            "x".repeat(behind)
        );
        let read = pruned(&CHECK, line.as_bytes(), 4096, |record| facts(record.fields()));
        let Scanned::Record((message, _)) = read else {
            panic!("a record");
        };
        assert_eq!(message.items.len(), 1);
        message.files
    };
    assert_eq!(
        files(0, 10 * RESULT_BYTES),
        [SideFile::ToolResult("tool-results/é".to_owned())]
    );
    assert_eq!(files(RESULT_BYTES, 0), []);
}

use super::*;

fn read(text: &str) -> String {
    match IdText::parse(&ConversationRef::new(text)) {
        IdText::Whole(id) => format!("whole {id}"),
        IdText::Prefix(lowest, highest) => format!(
            "{}..{}",
            ConversationId::from_bytes(lowest),
            ConversationId::from_bytes(highest)
        ),
        IdText::Other => "other".to_owned(),
    }
}

#[test]
fn ids_and_prefixes_are_distinguished_from_other_names() {
    let cases = [
        ("", "other"),
        ("01234", "other"),
        (
            "012345",
            "01234500-0000-0000-0000-000000000000..012345ff-ffff-ffff-ffff-ffffffffffff",
        ),
        (
            "0123456",
            "01234560-0000-0000-0000-000000000000..0123456f-ffff-ffff-ffff-ffffffffffff",
        ),
        (
            "ABCDEF",
            "abcdef00-0000-0000-0000-000000000000..abcdefff-ffff-ffff-ffff-ffffffffffff",
        ),
        (
            "01234567-",
            "01234567-0000-0000-0000-000000000000..01234567-ffff-ffff-ffff-ffffffffffff",
        ),
        (
            "01234567-89a",
            "01234567-89a0-0000-0000-000000000000..01234567-89af-ffff-ffff-ffffffffffff",
        ),
        (
            "0123456789a",
            "01234567-89a0-0000-0000-000000000000..01234567-89af-ffff-ffff-ffffffffffff",
        ),
        ("0123-456", "other"),
        ("0123456-7", "other"),
        ("ses_0123456", "other"),
        (
            "01234567-89ab-4def-8123-456789abcdef",
            "whole 01234567-89ab-4def-8123-456789abcdef",
        ),
        (
            "0123456789ab4def8123456789abcdef",
            "whole 01234567-89ab-4def-8123-456789abcdef",
        ),
        ("01234567-89ab-4def-8123-456789abcdef0", "other"),
        ("01234567-89ab-4def-8123-456789abcdeg", "other"),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text), expected, "{text:?}");
    }
}

#[test]
fn a_cursor_reads_back_and_nothing_else_does() {
    let cursor = RecentCursor([0xA7; 24]);
    assert_eq!(RecentCursor::from_text(&cursor.to_text()), Some(cursor));
    for text in ["", "a7", "zz", &"a7".repeat(25), &"a".repeat(47), "ä7"] {
        assert_eq!(RecentCursor::from_text(text), None, "{text:?}");
    }
}

#[test]
fn a_record_of_the_first_version_stays_readable() {
    // What the first release writes. Do not change it when members are added.
    let text = r#"{"version":1,"id":"01234567-89ab-4def-8123-456789abcdef","agent":"claude",
        "cwd":"/home/u/project","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z"}"#;
    let record: ConversationRecord = serde_json::from_str(text).unwrap();
    let at = "2026-01-02T03:04:05Z".parse().unwrap();
    let expected = ConversationRecord {
        // This record has no revision; a new one starts at 1.
        revision: 0,
        ..ConversationRecord::new(
            "01234567-89ab-4def-8123-456789abcdef".parse().unwrap(),
            AgentName::new("claude"),
            "/home/u/project".to_owned(),
            at,
        )
    };
    assert_eq!(record, expected);
}

/// Records of the first version hold only the time; those of the second also hold when it was calculated.
#[test]
fn continuations_of_earlier_versions_are_read() {
    let expected = PendingContinuation {
        attempts: 1,
        ..PendingContinuation::at_once(Timestamp::from_second(1_000).unwrap())
    };
    for old in [
        r#"{"at":"1970-01-01T00:16:40Z","attempts":1}"#,
        r#"{"at":"1970-01-01T00:16:40Z","since":"1970-01-01T00:15:40Z","attempts":1}"#,
    ] {
        let read: PendingContinuation = serde_json::from_str(old).unwrap();
        assert_eq!(read, expected, "{old}");
    }
}

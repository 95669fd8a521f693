use proptest::prelude::*;

use super::*;
use pruned::{assert_same, damaged, json, pruned, whole};

pub(in crate::transcript) mod pruned;

static JAVA_SCRIPT: PruneTable = PruneTable {
    grammar: Grammar::JavaScript,
    record: Filter::object(&[
        ("name", Filter::beginning(8)),
        ("id", Filter::whole(8)),
        ("flag", Filter::PRESENCE),
        ("list", Filter::beginning(4).or_array(&ELEMENT)),
        ("object", Filter::object(&[("id", Filter::whole(8))])),
    ]),
};
static ELEMENT: Filter = Filter::object(&[("id", Filter::whole(8))]).or_text(2);
static SERDE: PruneTable = PruneTable {
    grammar: Grammar::Serde,
    record: Filter::PRESENCE.extending(&JAVA_SCRIPT.record),
};

/// The pruned record, and whether elements were left out.
fn copied(table: &'static PruneTable, line: &[u8], piece: usize) -> Scanned<(String, bool)> {
    pruned(table, line, piece, |record| {
        (record.text.to_string(), record.has_more)
    })
}

fn text(table: &'static PruneTable, line: &[u8]) -> String {
    let whole = copied(table, line, line.len());
    for piece in 1..9 {
        assert_eq!(copied(table, line, piece), whole);
    }
    match whole {
        Scanned::Record((text, false)) => text,
        other => panic!("{other:?}: {}", String::from_utf8_lossy(line)),
    }
}

#[test]
fn what_the_table_names_is_copied_and_nothing_else() {
    for (line, copied) in [
        (r#" { } "#, "{}"),
        (
            r#"{"a":1, "name" : "x" ,"b":{"name":"y"},"flag":false}"#,
            r#"{"name":"x","flag":false}"#,
        ),
        (
            r#"{"flag":"long","id":{"id":1},"object":["x"]}"#,
            r#"{"flag":"","id":{},"object":[]}"#,
        ),
        (
            r#"{"object":{"x":[{}],"id":null,"id":true}}"#,
            r#"{"object":{"id":null,"id":true}}"#,
        ),
        (
            r#"{"list":[{"id":"a","x":1},"abc",[1],{},-2.5]}"#,
            r#"{"list":[{"id":"a"},"ab",[],{},-2.5]}"#,
        ),
        (r#"{"n\u0061me":"x","nam\\e":"y","\u00e9":1}"#, r#"{"name":"x"}"#),
        (
            r#"{"name":"12345678","id":"12345678"}"#,
            r#"{"name":"12345678","id":"12345678"}"#,
        ),
        (
            r#"{"name":"123456789","id":"123456789"}"#,
            r#"{"name":"12345678","id":null}"#,
        ),
        (r#"{"name":"1234567é"}"#, r#"{"name":"1234567"}"#),
        (r#"{"name":"1234567\n"}"#, r#"{"name":"1234567"}"#),
        (r#"{"name":"1\u00e9\u00e9"}"#, r#"{"name":"1\u00e9"}"#),
        (
            r#"{"flag":18446744073709551615,"id":184467440737095516150}"#,
            r#"{"flag":18446744073709551615,"id":0.5}"#,
        ),
    ] {
        for table in [&JAVA_SCRIPT, &SERDE] {
            assert_eq!(text(table, line.as_bytes()), copied, "{line}");
        }
    }
}

#[test]
fn what_javascript_reads_is_a_record() {
    for line in ["\u{feff}{}", "\0\0{}\0\r", "{\"a\":\"\u{7f}\\ud83d\"}"] {
        assert_eq!(text(&JAVA_SCRIPT, line.as_bytes()), "{}", "{line:?}");
        assert_eq!(copied(&SERDE, line.as_bytes(), 1), Scanned::Garbage, "{line:?}");
    }
    assert_eq!(
        text(&JAVA_SCRIPT, b"{\"name\":\"a\xFF\xC3\"}"),
        r#"{"name":"a??"}"#
    );
    for line in [
        &b"{\"a\":1}\xFF"[..],
        b"\xFF{}",
        b"\xEF\xBB{}",
        b"\xEF\xBB",
        b"{\xC3\xA9}",
        b"{\"a\":1}\0x",
        b"{\"a\" \0:1}",
        b"{\xEF\xBB\xBF}",
    ] {
        assert_eq!(copied(&JAVA_SCRIPT, line, 1), Scanned::Garbage, "{line:?}");
    }
}

#[test]
fn what_the_agents_parsers_refuse_is_garbage() {
    for line in [
        "",
        " ",
        "x",
        "[]",
        "1",
        "null",
        "{",
        "{}}",
        "{} {}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":[1,]}",
        "{\"a\":[,1]}",
        "{\"a\":[1 2]}",
        "{\"a\":{]}",
        "{\"a\":[}]}",
        "{\"a\":tru}",
        "{\"a\":truex}",
        "{\"a\":nul",
        "{'a':1}",
        "{a:1}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":+1}",
        "{\"a\":-}",
        "{\"a\":1e}",
        "{\"a\":1e+}",
        "{\"a\":--1}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\u{1}\"}",
        "{\"a\":\"\0\"}",
        "{\"a\":\"x",
        "{\"a\":\"x\\\"}",
    ] {
        for table in [&JAVA_SCRIPT, &SERDE] {
            assert_same(table, line.as_bytes(), 3, |_| ());
            assert!(
                !matches!(whole(table.grammar, line.as_bytes()), Scanned::Record(_)),
                "{line:?}"
            );
        }
    }
}

#[test]
fn only_one_of_the_agents_minds_how_deep_a_line_is() {
    for (depth, is_refused) in [(SERDE_DEPTH - 1, false), (SERDE_DEPTH, true), (10_000, true)] {
        let line = format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(text(&JAVA_SCRIPT, line.as_bytes()), "{}");
        assert_eq!(
            copied(&JAVA_SCRIPT, &line.as_bytes()[..line.len() - 2], 999),
            Scanned::Garbage
        );
        let read = copied(&SERDE, line.as_bytes(), 999);
        assert_eq!(read == Scanned::Garbage, is_refused, "{depth}");
    }
}

#[test]
fn a_pruned_record_is_of_bounded_size() {
    let list = |elements: usize| format!(r#"{{"list":[{}],"name":"x"}}"#, vec!["1"; elements].join(","));
    for (elements, has_more) in [(ELEMENTS_LIMIT, false), (ELEMENTS_LIMIT + 1, true)] {
        let Scanned::Record((text, more)) = copied(&JAVA_SCRIPT, list(elements).as_bytes(), 65_536) else {
            panic!("a record");
        };
        assert_eq!(more, has_more);
        assert_eq!(text, list(ELEMENTS_LIMIT));
    }
    let again = format!("{{{}}}", vec![r#""name":"x","id":0"#; 400_000].join(","));
    let Scanned::Record((text, _)) = copied(&JAVA_SCRIPT, again.as_bytes(), 65_536) else {
        panic!("a record");
    };
    assert!(
        text.len() < MEMBERS_LIMIT_BYTES && text.len() < again.len(),
        "{}",
        text.len()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_byte_too_many_makes_a_line_garbage_however_it_is_read(
        line in damaged(json(&["name", "id", "list", "object"], &["x", "abc"])),
        piece in 1usize..40,
    ) {
        for table in [&JAVA_SCRIPT, &SERDE] {
            assert_same(table, &line, piece, |_| ());
        }
    }

    #[test]
    fn any_bytes_are_the_same_however_they_are_read(
        line in prop::collection::vec(prop::sample::select(b"{}[]\",:\\ut1-.e \t\r\0\xEF\xBB\xBF\xFFx\x01".to_vec()), 0..30),
    ) {
        assert_same(&JAVA_SCRIPT, &line, 7, |_| ());
    }
}

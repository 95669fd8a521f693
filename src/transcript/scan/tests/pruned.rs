//! What tests of the tables need: lines with the names that matter at all depths, and each line read both pruned and whole.

use std::fmt::Debug;

use proptest::prelude::*;

use crate::transcript::fields::Fields;
use crate::transcript::lines::{text_of_same_length, trimmed};
use crate::transcript::scan::{Grammar, PruneTable, PrunedRecord, Pruner, Scanned};

/// A line pruned in pieces of so many bytes, and what is made of the record.
pub(in crate::transcript) fn pruned<T>(
    table: &'static PruneTable,
    line: &[u8],
    piece: usize,
    decode: impl FnOnce(&PrunedRecord<'_>) -> T,
) -> Scanned<T> {
    let mut pruner = Pruner::new(table);
    // What another line left behind does not count.
    pruner.feed(b"{\"type\":\"x\",\"content\":[\"");
    assert!(matches!(pruner.finish(), Scanned::Garbage));
    for piece in line.chunks(piece.max(1)) {
        assert_eq!(pruner.feed(piece), (piece.len(), false));
    }
    match pruner.finish() {
        Scanned::Blank => Scanned::Blank,
        Scanned::Garbage => Scanned::Garbage,
        Scanned::Record(record) => Scanned::Record(decode(&record)),
    }
}

/// The text of a line as an agent reads it whole.
pub(in crate::transcript) fn whole(grammar: Grammar, line: &[u8]) -> Scanned<String> {
    let line = match grammar {
        Grammar::JavaScript => trimmed(line),
        Grammar::Serde if line.iter().all(|byte| b" \t\r".contains(byte)) => b"",
        Grammar::Serde => line,
    };
    let text = text_of_same_length(line);
    // Numbers of any size are read.
    let is_strict = |error: serde_json::Error| !error.to_string().starts_with("number out of range");
    let read = || serde_json::from_slice::<serde_json::Value>(line);
    let is_refused = || grammar == Grammar::Serde && read().is_err_and(is_strict);
    match Fields::parse(&text) {
        _ if line.is_empty() => Scanned::Blank,
        Some(_) if !is_refused() => Scanned::Record(text.into_owned()),
        _ => Scanned::Garbage,
    }
}

/// Checks that a line is a record or none however it is read, and that what is decoded is the same.
pub(in crate::transcript) fn assert_same<T: PartialEq + Debug>(
    table: &'static PruneTable,
    line: &[u8],
    piece: usize,
    decoded: impl Fn(Fields<'_>) -> T,
) {
    let decoded_text = |text: &str| decoded(Fields::parse(text).expect("an object"));
    let by_spans_and_text = |record: &PrunedRecord<'_>| {
        (
            decoded(record.fields()),
            decoded_text(&record.text),
            record.text.to_string(),
        )
    };
    let said = String::from_utf8_lossy(line);
    match (
        pruned(table, line, piece, by_spans_and_text),
        whole(table.grammar, line),
    ) {
        (Scanned::Record((by_spans, by_text, pruned)), Scanned::Record(whole)) => {
            assert_eq!(by_text, decoded_text(&whole), "{said}\n{pruned}");
            assert_eq!(by_spans, by_text, "{said}\n{pruned}");
        }
        (Scanned::Blank, Scanned::Blank) | (Scanned::Garbage, Scanned::Garbage) => {}
        (pruned, whole) => panic!("{pruned:?} is {whole:?}: {said}"),
    }
}

/// JSON and nearly JSON in which these names stand at all depths, with these strings as values.
pub(in crate::transcript) fn json(
    names: &'static [&'static str],
    strings: &'static [&'static str],
) -> impl Strategy<Value = String> {
    let string = prop_oneof![
        4 => prop::sample::select(strings).prop_map(str::to_owned),
        1 => "[a-z<\\[]{0,40}",
        1 => prop::sample::select(vec!["", "\\\\", "\\\"", "é\\n", "\\ud83d", "\\ud83d\\ude00", "a rather long text with \\\"quotes\\\" that goes on"]).prop_map(str::to_owned),
    ];
    let scalar = prop_oneof![
        8 => string.prop_map(|text| format!("\"{text}\"")),
        2 => prop::sample::select(vec!["true", "false", "null", "17", "-0.5e3", "99999999999999999999999", "[]", "{}"]).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["01", "1.", "tru", "\"", "\\", "]", "", "1e"]).prop_map(str::to_owned),
    ];
    scalar.prop_recursive(6, 60, 6, move |value| {
        let name = prop_oneof![
            9 => prop::sample::select(names),
            1 => prop::sample::select(vec!["other", "t\\u0079pe", "cont\\u0065nt", "\\ud83d", "uuid\\udc00"]),
        ];
        let space = || prop::sample::select(vec!["", "", "", " ", "\t", "\r"]);
        let member = (name, space(), value.clone(), space())
            .prop_map(|(name, before, value, after)| format!("\"{name}\"{before}:{after}{value}"));
        prop_oneof![
            1 => (prop::collection::vec(value, 0..4), space()).prop_map(|(items, space)| format!("[{}{space}]", items.join(","))),
            3 => (prop::collection::vec(member, 0..7), space()).prop_map(|(members, space)| format!("{{{space}{}}}", members.join(" ,"))),
        ]
    })
}

/// A line in which a byte is another, missing or doubled.
pub(in crate::transcript) fn damaged(lines: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<u8>> {
    (lines, any::<prop::sample::Index>(), any::<u8>(), 0..3).prop_map(|(line, place, byte, way)| {
        let mut line = line.into_bytes();
        if !line.is_empty() {
            let place = place.index(line.len());
            match way {
                0 => line[place] = byte,
                1 => drop(line.remove(place)),
                _ => line.insert(place, byte),
            }
        }
        line.retain(|byte| *byte != b'\n');
        line
    })
}

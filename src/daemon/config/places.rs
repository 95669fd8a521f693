//! Where something stands in a TOML text. Pure.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// The line of an error, and what it says: on one line, with the names under which it stands.
pub(super) fn of_error(text: &str, error: &toml::de::Error) -> (usize, String) {
    let words: Vec<&str> = error.message().split_whitespace().collect();
    let words = words.join(" ");
    let Some(span) = error.span() else {
        return (1, words);
    };
    let names = DeTable::parse(text)
        .ok()
        .and_then(|table| names_at(table.get_ref(), span.start));
    let told = match names {
        Some(names) => format!("{}: {words}", names.join(".")),
        None => words,
    };
    (line(text, span.start), told)
}

/// The line of the value under these names, or under as many of them as there are.
pub(super) fn of_names(text: &str, names: &[&str]) -> usize {
    let Ok(table) = DeTable::parse(text) else {
        return 1;
    };
    let (mut table, mut found) = (table.get_ref(), 0);
    for name in names {
        let entry = table.iter().find(|(key, _)| key.get_ref().as_ref() == *name);
        let Some((key, value)) = entry else { break };
        found = key.span().start;
        let DeValue::Table(below) = value.get_ref() else {
            break;
        };
        table = below;
    }
    line(text, found)
}

/// The names of the value at this place of the text.
fn names_at(table: &DeTable<'_>, at: usize) -> Option<Vec<String>> {
    let holds = |span: Range<usize>| span.contains(&at);
    table.iter().find_map(|(key, value)| {
        let mut names = vec![key.get_ref().to_string()];
        match value.get_ref() {
            _ if holds(key.span()) => Some(names),
            DeValue::Table(below) => {
                names.extend(names_at(below, at)?);
                Some(names)
            }
            _ => holds(value.span()).then_some(names),
        }
    })
}

/// The line of a place, from 1 on.
fn line(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    1 + before.filter(|byte| **byte == b'\n').count()
}

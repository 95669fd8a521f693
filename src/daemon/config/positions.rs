//! Finds positions in a TOML text. Pure.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Returns the line of an error and its message: on one line, with the path of the setting.
pub(super) fn describe_error(text: &str, error: &toml::de::Error) -> (usize, String) {
    let words: Vec<&str> = error.message().split_whitespace().collect();
    let words = words.join(" ");
    let Some(span) = error.span() else {
        return (1, words);
    };
    let table = DeTable::parse(text).ok();
    let setting = table
        .as_ref()
        .and_then(|table| setting_at(table.get_ref(), span.start));
    let message = match setting {
        Some(setting) => match setting.value.zip(expected_value(&words)) {
            Some((value, expected)) => {
                describe_wrong_value(&setting.names, value, expected, text, span.start)
            }
            None => format!("{}: {words}", setting.names.join(".")),
        },
        None => words,
    };
    (line_number(text, span.start), message)
}

/// Returns the message for a value of the wrong type or out of range, at this position or around it.
fn describe_wrong_value(
    names: &[String],
    value: &Spanned<DeValue<'_>>,
    expected: &str,
    text: &str,
    at: usize,
) -> String {
    let (mut what, mut wrong_value) = (names.join("."), value);
    if let DeValue::Array(entries) = value.get_ref()
        && let Some(entry) = entries.iter().find(|entry| entry.span().contains(&at))
        && !expected.starts_with("an array")
    {
        (what, wrong_value) = (format!("each entry of {what}"), entry);
    }
    let wrong_value = match wrong_value.get_ref() {
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
        DeValue::String(text) if text.lines().nth(1).is_some() => "a multi-line string",
        _ => text.get(wrong_value.span()).unwrap_or("this"),
    };
    format!("{what} must be {expected}, not {wrong_value}")
}

/// Returns what the parser expected in place of a value of the wrong type or out of range, without Rust's type names.
fn expected_value(words: &str) -> Option<&str> {
    // For an enumeration, whose values are all strings.
    if words.starts_with("wanted ") {
        return Some("a string");
    }
    if !["invalid type: ", "invalid value: "]
        .iter()
        .any(|start| words.starts_with(start))
    {
        return None;
    }
    let (_, expected) = words.rsplit_once(", expected ")?;
    Some(match expected {
        "f64" => "a number",
        "u64" | "usize" => "a whole number, 0 or more",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" => "a table",
        _ if expected.starts_with("struct ") => "a table",
        _ => expected,
    })
}

/// Returns the line of the value with this path of names, or of its last existing parent.
pub(super) fn line_of_setting(text: &str, names: &[&str]) -> usize {
    let Ok(table) = DeTable::parse(text) else {
        return 1;
    };
    let (mut table, mut offset) = (table.get_ref(), 0);
    for name in names {
        let entry = table.iter().find(|(key, _)| key.get_ref().as_ref() == *name);
        let Some((key, value)) = entry else { break };
        offset = key.span().start;
        let DeValue::Table(below) = value.get_ref() else {
            break;
        };
        table = below;
    }
    line_number(text, offset)
}

/// The setting at a position of the text.
struct SettingPosition<'t, 'v> {
    names: Vec<String>,
    /// `None` if the position is in a name.
    value: Option<&'t Spanned<DeValue<'v>>>,
}

/// Returns the setting at this position.
fn setting_at<'t, 'v>(table: &'t DeTable<'v>, at: usize) -> Option<SettingPosition<'t, 'v>> {
    let contains_offset = |span: Range<usize>| span.contains(&at);
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref().to_string();
        let here = |value| SettingPosition {
            names: vec![name.clone()],
            value,
        };
        match value.get_ref() {
            _ if contains_offset(key.span()) => Some(here(None)),
            DeValue::Table(below) => {
                let mut setting = setting_at(below, at);
                if let Some(setting) = &mut setting {
                    setting.names.insert(0, name.clone());
                }
                setting.or_else(|| contains_offset(value.span()).then(|| here(Some(value))))
            }
            _ => contains_offset(value.span()).then(|| here(Some(value))),
        }
    })
}

/// Returns the line of a position, starting at 1.
fn line_number(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    1 + before.filter(|byte| **byte == b'\n').count()
}

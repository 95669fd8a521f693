//! Which parameter a parser's complaint is about. The parser tells the place in the text; a person wants the name.
//!
//! Pure. Knows serde_json's way to end a message with a place, and nothing of methods.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// What serde_json puts before the place, which is one line: what comes from the socket has no other.
const PLACE: &str = " at line 1 column ";

/// A complaint without its place, and the parameter at that place (`prompt[0].text`), where it is within one.
pub(super) fn named<'a>(complaint: &'a str, params: &str) -> (&'a str, Option<String>) {
    let parted = complaint
        .rsplit_once(PLACE)
        .and_then(|(what, column)| Some((what, column.parse().ok()?)));
    match parted {
        Some((what, column)) => {
            let path = path(params, column);
            (what, (!path.is_empty()).then_some(path))
        }
        None => (complaint, None),
    }
}

/// The members and elements that lead to a place; `column` counts bytes from 1.
fn path(json: &str, column: usize) -> String {
    let mut path = String::new();
    let (mut json, mut column) = (json, column);
    while let Some((step, value, start)) = step(json, column) {
        match step {
            Step::Member(name) if path.is_empty() => path.push_str(&name),
            Step::Member(name) => path.extend([".", &name]),
            Step::Element(index) => path.push_str(&format!("[{index}]")),
        }
        (json, column) = (value, column - start);
    }
    path
}

enum Step<'a> {
    Member(Cow<'a, str>),
    Element(usize),
}

/// The member or element at a place, its text, and where that begins.
fn step(json: &str, column: usize) -> Option<(Step<'_>, &str, usize)> {
    let within = |value: &RawValue| {
        let start = (value.get().as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
        // A complaint about a value as a whole may come when its first byte is seen, and is not counted then.
        (start..=start + value.get().len())
            .contains(&column)
            .then_some(start)
    };
    match json.as_bytes().first()? {
        b'{' => {
            let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(json).ok()?;
            members
                .into_iter()
                .find_map(|(name, value)| Some((Step::Member(name), value.get(), within(value)?)))
        }
        b'[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(json).ok()?;
            elements
                .into_iter()
                .enumerate()
                .find_map(|(index, value)| Some((Step::Element(index), value.get(), within(value)?)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::named;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "it is read to see how that fails")]
    struct Params {
        cwd: String,
        at: Option<u64>,
        names: Option<Vec<String>>,
        settings: Option<Settings>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "it is read to see how that fails")]
    struct Settings {
        model: String,
        mode: Option<Mode>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Plan,
    }

    #[test]
    fn the_parameter_of_a_complaint_is_named() {
        let table = [
            (
                r#"{"cwd":1}"#,
                Some("cwd"),
                "invalid type: integer `1`, expected a string",
            ),
            (
                r#"{"at":"x","cwd":"/"}"#,
                Some("at"),
                "invalid type: string \"x\", expected u64",
            ),
            (
                r#"{"cwd":{}}"#,
                Some("cwd"),
                "invalid type: map, expected a string",
            ),
            (
                r#"{"cwd":[]}"#,
                Some("cwd"),
                "invalid type: sequence, expected a string",
            ),
            (
                r#"{ "at" : null , "cwd" : true }"#,
                Some("cwd"),
                "invalid type: boolean `true`, expected a string",
            ),
            (
                r#"{"cwd":null}"#,
                Some("cwd"),
                "invalid type: null, expected a string",
            ),
            (
                r#"{"cwd":"/","names":["a",2]}"#,
                Some("names[1]"),
                "invalid type: integer `2`, expected a string",
            ),
            (
                r#"{"cwd":"/","names":"a"}"#,
                Some("names"),
                "invalid type: string \"a\", expected a sequence",
            ),
            (
                r#"{"cwd":"/","settings":{"model":7}}"#,
                Some("settings.model"),
                "invalid type: integer `7`, expected a string",
            ),
            (
                r#"{"cwd":"/","settings":{"model":"m","mode":"go"}}"#,
                Some("settings.mode"),
                "unknown variant `go`, expected `plan`",
            ),
            (
                r#"{"cwd":"/","settings":{}}"#,
                Some("settings"),
                "missing field `model`",
            ),
            (
                r#"{"é\n":1,"cwd":-1.5}"#,
                Some("cwd"),
                "invalid type: floating point `-1.5`, expected a string",
            ),
            (
                r#"{"at":-1,"cwd":"/"}"#,
                Some("at"),
                "invalid value: integer `-1`, expected u64",
            ),
            (r#"{"at":1}"#, None, "missing field `cwd`"),
            ("{}", None, "missing field `cwd`"),
        ];
        for (params, parameter, what) in table {
            let complaint = serde_json::from_str::<Params>(params).unwrap_err().to_string();
            let told = named(&complaint, params);
            assert_eq!(
                told,
                (what, parameter.map(str::to_owned)),
                "{params}: {complaint}"
            );
        }
        assert_eq!(named("no place", "{}"), ("no place", None));
    }
}

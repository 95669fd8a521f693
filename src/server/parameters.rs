//! Reads parameters from their text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bridge_protocol::method::{Method, parameter_names};
use bridge_protocol::{BridgeError, ErrorKind};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

/// The minimum similarity, from 0 to 1, at which a known name is suggested.
const MIN_SIMILARITY: f64 = 0.75;

/// The start of the position in serde_json's messages. The position is removed: it is useless for input of one line.
const SERDE_POSITION: &str = " at line 1 column ";

/// How deeply arrays and objects may be nested in parameters. Agents receive them in messages that are a few levels deeper, and
/// common JSON parsers refuse a message with 128 levels without saying which message it was.
const NESTING_LIMIT: usize = 100;

/// Refuses parameters that are nested too deeply.
///
/// # Errors
/// [`ErrorKind::InvalidParams`]. It names the member as `parameter`.
pub(crate) fn check_nesting(params: &str) -> Result<(), BridgeError> {
    if nesting(params) <= NESTING_LIMIT {
        return Ok(());
    }
    let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(params).unwrap_or_default();
    let nested = members
        .iter()
        .find(|(_, value)| nesting(value.get()) >= NESTING_LIMIT);
    let name = nested.map_or("params", |(name, _)| name.as_ref());
    let message = format!(
        "invalid parameter {name}: its JSON is nested too deeply; arrays and objects may be nested {NESTING_LIMIT} levels \
         deep, counted from the parameters"
    );
    Err(BridgeError::new(ErrorKind::InvalidParams, message).with("parameter", name))
}

/// Reads the parameters of a call.
///
/// # Errors
/// If a parameter is missing, unknown, of the wrong type or nested too deeply. The error names it as `parameter`.
pub(super) fn read<M: Method>(text: &str) -> Result<M, BridgeError> {
    check_nesting(text)?;
    parse(text).map_err(|(path, why)| {
        let invalid = |message: String| BridgeError::new(ErrorKind::InvalidParams, message);
        let known = parameter_names::<M>();
        let given: BTreeMap<Cow<'_, str>, IgnoredAny> = serde_json::from_str(text).unwrap_or_default();
        if let Some(unknown) = given
            .keys()
            .find(|name| !known.iter().any(|known| known == name.as_ref()))
        {
            return unknown_parameter::<M>(None, unknown, &known);
        }
        if let Some(path) = path {
            if let Some((unknown, known)) = unknown_member(&why) {
                return unknown_parameter::<M>(Some(&path), unknown, &known);
            }
            return invalid(format!("invalid parameter {path}: {why}")).with("parameter", path);
        }
        let error = invalid(format!("invalid parameters of {}: {why}", M::NAME));
        let missing = why
            .strip_prefix("missing field `")
            .and_then(|name| name.strip_suffix('`'));
        match missing {
            Some(name) => error.with("parameter", name),
            None => error,
        }
    })
}

/// The error of an unknown parameter, or of an unknown member of the parameter `within`.
fn unknown_parameter<M: Method>(within: Option<&str>, unknown: &str, known: &[String]) -> BridgeError {
    let hint = match nearest(unknown, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "it takes no parameters".to_owned(),
        None => format!("{} takes {}", within.unwrap_or("it"), known.join(", ")),
    };
    let path = within.map_or_else(|| unknown.to_owned(), |within| format!("{within}.{unknown}"));
    let message = format!("unknown parameter `{path}` of {}; {hint}", M::NAME);
    BridgeError::new(ErrorKind::InvalidParams, message).with("parameter", path)
}

/// The unknown member that serde reports, and the known ones.
fn unknown_member(why: &str) -> Option<(&str, Vec<String>)> {
    let (unknown, known) = why.strip_prefix("unknown field `")?.rsplit_once("`, expected ")?;
    let known = known.split('`').skip(1).step_by(2).map(str::to_owned);
    Some((unknown, known.collect()))
}

/// How deeply the arrays and objects of valid JSON are nested.
fn nesting(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Reads an object. The error is the path of the member (`prompt[0].text`), or `None` for the whole object, and what is
/// wrong with it.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T, (Option<String>, String)> {
    let json = &mut serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(json).map_err(|error| {
        let path = Some(error.path().to_string()).filter(|path| path != ".");
        (path, without_position(error.inner()))
    })
}

/// What is wrong with parameters, without the position.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    let why = error.to_string();
    let without_position = why.rsplit_once(SERDE_POSITION).map(|(why, _)| why.to_owned());
    without_position.unwrap_or(why)
}

/// The known name that is most similar to a misspelled one.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    let similarity = |known: &str| strsim::jaro_winkler(&known.to_lowercase(), &name.to_lowercase());
    let best = known
        .iter()
        .max_by(|one, other| similarity(one).total_cmp(&similarity(other)))?;
    (similarity(best) >= MIN_SIMILARITY).then_some(best)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::{nesting, parse};

    #[test]
    fn brackets_in_texts_do_not_nest() {
        let table = [
            ("1", 0),
            (r#"{"a":[{}]}"#, 3),
            (r#"["[[[","\\",[]]"#, 2),
            (r#"{"a\"[[":[],"b":[]}"#, 2),
        ];
        for (json, expected) in table {
            assert_eq!(nesting(json), expected, "{json}");
        }
    }

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
                r#"{ "at" : null , "cwd" : true }"#,
                Some("cwd"),
                "invalid type: boolean `true`, expected a string",
            ),
            (
                r#"{"cwd":"/","names":["a",2]}"#,
                Some("names[1]"),
                "invalid type: integer `2`, expected a string",
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
            ("{}", None, "missing field `cwd`"),
        ];
        for (params, parameter, what) in table {
            let (path, why) = parse::<Params>(params).unwrap_err();
            assert_eq!((&*why, path.as_deref()), (what, parameter), "{params}");
        }
    }
}

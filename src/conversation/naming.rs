//! Limits for the titles and namespaces of conversations, and for the names of models and modes.
//!
//! Every list and event of a conversation contains them, so they are checked when they are set. Pure.

use bridge_protocol::conversation::TITLE_LIMIT_BYTES;

use super::error::ConversationError;

/// The longest namespace: the name of an app, or its address.
pub const NAMESPACE_LIMIT_BYTES: usize = 256;

/// The longest name of a model or a mode. Cloud providers' model names have some hundred bytes.
pub const SETTING_NAME_LIMIT_BYTES: usize = 4 * 1024;

/// Checks a title.
///
/// # Errors
/// [`ConversationError::InvalidParams`] when it is too long.
pub fn check_title(title: &str) -> Result<(), ConversationError> {
    check_length("title", title, TITLE_LIMIT_BYTES)
}

/// Checks a namespace.
///
/// # Errors
/// [`ConversationError::InvalidParams`] when it is too long.
pub fn check_namespace(namespace: &str) -> Result<(), ConversationError> {
    check_length("namespace", namespace, NAMESPACE_LIMIT_BYTES)
}

/// Checks the name of a model or a mode. `parameter` names the parameter that contains it.
///
/// # Errors
/// [`ConversationError::InvalidParams`] when it is too long.
pub fn check_setting_name(parameter: &'static str, name: &str) -> Result<(), ConversationError> {
    check_length(parameter, name, SETTING_NAME_LIMIT_BYTES)
}

/// The title for display: on one line, without characters that control a terminal or change the writing direction.
#[must_use]
pub fn normalized_title(title: &str) -> String {
    let shown = title.chars().filter_map(|character| match character {
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => None,
        space if space.is_control() && space.is_whitespace() => Some(' '),
        other => (!other.is_control()).then_some(other),
    });
    shown.collect()
}

/// The title for display, shortened to the limit, for a title that no caller can be asked to shorten.
#[must_use]
pub fn shortened_title(title: &str) -> String {
    let mut title = normalized_title(title);
    let end = (0..=title.len().min(TITLE_LIMIT_BYTES))
        .rev()
        .find(|end| title.is_char_boundary(*end));
    title.truncate(end.unwrap_or(0));
    title
}

fn check_length(parameter: &'static str, text: &str, limit_bytes: usize) -> Result<(), ConversationError> {
    if text.len() <= limit_bytes {
        return Ok(());
    }
    let name = parameter.rsplit('.').next().unwrap_or_default();
    let why = format!(
        "{name} is too long: at most {limit_bytes} bytes, not {}",
        text.len()
    );
    Err(ConversationError::invalid(parameter, why))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_title_is_too_strange(text in "[\u{130}\u{1e9e}\u{1f600}a]{0,40}|\\PC{0,40}", times in 1usize..200) {
            let text = text.repeat(times);
            let title = shortened_title(&text);
            prop_assert!(text.starts_with(&title));
            prop_assert!(title == text || title.len() + 4 > TITLE_LIMIT_BYTES);
            prop_assert_eq!(check_title(&title), Ok(()));
        }
    }
}

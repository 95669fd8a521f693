//! Source text as code, without comments and strings, and split into what ships and what only tests use.

/// Replaces comments and the contents of strings by spaces; line breaks stay.
pub(crate) fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let hidden = hidden_length(rest, code.chars().next_back());
        if hidden == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(
                rest[..hidden]
                    .chars()
                    .map(|character| if character == '\n' { '\n' } else { ' ' }),
            );
            rest = &rest[hidden..];
        }
    }
    code
}

/// The length of the comment, string or character literal at this position in bytes, or 0 if there is code.
fn hidden_length(rest: &str, before: Option<char>) -> usize {
    let end_of = |end: &str, from: usize| {
        rest[from..]
            .find(end)
            .map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return end_of("*/", 2);
    }
    let in_word = before.is_some_and(|character| character.is_alphanumeric() || character == '_');
    let raw = rest.strip_prefix('b').unwrap_or(rest);
    if let Some(raw) = raw.strip_prefix('r').filter(|_| !in_word) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let start = rest.len() - raw.len() + hashes + 1;
            return end_of(&format!("\"{}", "#".repeat(hashes)), start);
        }
    }
    if rest.starts_with('"') {
        return quoted_length(rest, '"');
    }
    // A quote begins a character literal if another quote follows one character later; otherwise it begins a
    // lifetime.
    if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') && rest.starts_with('\'') {
        return quoted_length(rest, '\'');
    }
    0
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return index + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Splits code into what ships and what only tests use. An inline module under `#[cfg(test)]` is always at
/// the end of its file.
pub(crate) fn split_tests<'a>(path: &str, code: &'a str) -> (&'a str, &'a str) {
    if path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs") {
        return ("", code);
    }
    let mut from = 0;
    while let Some(at) = code[from..].find("#[cfg(test)]") {
        let at = from + at;
        let behind = code[at..].trim_start_matches("#[cfg(test)]").trim_start();
        let place = |sign| behind.find(sign).unwrap_or(usize::MAX);
        // The text up to the body may include a visibility.
        let head = behind.split(['{', ';']).next().unwrap_or_default();
        let is_module = head.split_whitespace().rev().nth(1) == Some("mod");
        let inline = is_module && place('{') < place(';');
        if inline {
            return code.split_at(at);
        }
        from = at + 1;
    }
    (code, "")
}

#[test]
fn only_code_is_looked_at() {
    let text = "let a = \"tokio\"; // tokio\nlet b = r#\"tokio \" \"#; /* tokio\n */ let c = '\"'; fn f<'a>() { tokio }";
    let code = code_of(text);
    assert_eq!(code.matches("tokio").count(), 1, "{code}");
    assert_eq!(code.lines().count(), text.lines().count());
}

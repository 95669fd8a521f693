//! What the doc comment of a method says, taken apart: what it does, its parameters, the kinds of its errors.
//!
//! Parameters are items of a list (``- `name`: what it is``), errors the words of the section `# Errors`.

use std::collections::BTreeMap;

use super::schemas::prose;
use crate::error::ErrorKind;

/// What begins the item of a parameter.
const ITEM: &str = "- `";

/// What stands between its name and its words.
const NAMED: &str = "`: ";

/// The section that names the kinds of errors.
const ERRORS: &str = "# Errors";

/// What parameters mean that many methods have, and what may go wrong for them: their name, their words, the kinds.
const SHARED: [(&str, &str, &[ErrorKind]); 2] = [
    (
        "conversationId",
        "The conversation, by its id, a prefix of it of 6 characters or more, or exactly an upstream id that it ever held.",
        &[ErrorKind::NotFound, ErrorKind::Ambiguous, ErrorKind::StoreFailed],
    ),
    (
        "requestId",
        "Names the call: the same id with the same content joins the running call or gets its result again, for 7 days or 1,000 calls. It has 1 to 256 bytes. \
         Default: the call stands alone.",
        &[ErrorKind::Conflict, ErrorKind::StoreFailed],
    ),
];

/// A doc comment, taken apart.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Docs {
    /// What the method does.
    pub(super) prose: String,
    /// What its parameters mean, by name.
    pub(super) params: BTreeMap<String, String>,
    /// The kinds of errors that it names, in the order of the contract.
    pub(super) errors: Vec<ErrorKind>,
    /// Words among the errors that are no kinds.
    pub(super) unknown: Vec<String>,
}

impl Docs {
    /// Takes the lines of a doc comment apart.
    pub(super) fn read(lines: &[&str]) -> Self {
        let section = lines.iter().position(|line| line.trim() == ERRORS);
        let (about, errors) = lines.split_at(section.unwrap_or(lines.len()));
        let mut docs = Self::default();
        let mut said = Vec::new();
        let mut items: Vec<(&str, Vec<&str>)> = Vec::new();
        for line in about {
            let item = line
                .trim()
                .strip_prefix(ITEM)
                .and_then(|item| item.split_once(NAMED));
            match (item, items.last_mut()) {
                (Some((name, words)), _) => items.push((name, vec![words])),
                (None, Some((_, words))) => words.push(line),
                (None, None) => said.push(*line),
            }
        }
        docs.prose = prose(said);
        let items = items.into_iter();
        docs.params = items
            .map(|(name, words)| (name.to_owned(), prose(words)))
            .collect();
        for word in errors.iter().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            match ErrorKind::ALL.into_iter().find(|kind| self::word(*kind) == word) {
                Some(kind) => docs.errors.push(kind),
                None => docs.unknown.push(word.to_owned()),
            }
        }
        docs
    }

    /// Takes what is said of a parameter, or what is said of it everywhere; none where neither says a word. What may go
    /// wrong for it joins the errors.
    pub(super) fn take_param(&mut self, name: &str) -> Option<String> {
        let shared = SHARED.iter().find(|(shared, ..)| *shared == name);
        if let Some((_, _, errors)) = shared {
            self.errors.extend_from_slice(errors);
        }
        let own = self.params.remove(name);
        own.or_else(|| shared.map(|(_, words, _)| (*words).to_owned()))
    }
}

/// A kind of error as the wire has it.
pub(super) fn word(kind: ErrorKind) -> String {
    let word = serde_json::to_value(kind).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn a_doc_comment_is_taken_apart() {
        let docs = Docs::read(&[
            " Does a thing,",
            " and another.",
            "",
            " - `at`: Where. Default:",
            "   here.",
            " - `how`: In which way.",
            "",
            " # Errors",
            " `busy`,",
            " `notFound`, `bust`.",
        ]);
        let params = [("at", "Where. Default: here."), ("how", "In which way.")];
        assert_eq!(
            docs,
            Docs {
                prose: "Does a thing, and another.".to_owned(),
                params: params
                    .map(|(name, words)| (name.to_owned(), words.to_owned()))
                    .into(),
                errors: vec![ErrorKind::Busy, ErrorKind::NotFound],
                unknown: vec!["bust".to_owned()],
            }
        );
    }

    #[test]
    fn what_a_method_says_of_a_parameter_goes_before_what_is_said_everywhere() {
        let mut docs = Docs::read(&[" Does a thing.", " - `requestId`: Its own."]);
        assert_eq!(docs.take_param("requestId").unwrap(), "Its own.");
        assert_eq!(docs.errors, [ErrorKind::Conflict, ErrorKind::StoreFailed]);
        assert!(docs.take_param("conversationId").is_some());
        assert_eq!(docs.take_param("other"), None);
        assert!(docs.params.is_empty());
    }
}

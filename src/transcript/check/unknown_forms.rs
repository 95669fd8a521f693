//! Collects what a transcript contains that this version does not know: kinds of records, and forms of their content. None of
//! it is damage; a newer agent may have written it.

use std::collections::HashMap;

use super::{FINDINGS_OF_A_KIND_LIMIT, hash_of};

/// A part of a record whose form is unknown to this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::transcript) enum UnknownForm {
    /// The kind of the record. The history leaves the record out.
    Kind(String),
    /// The form of the whole content.
    Content,
    /// The type or form of a part of the content. This is the type, empty if the part has none.
    Part(String),
}

/// The unknown forms, each once, by a hash.
#[derive(Debug, Default)]
pub(in crate::transcript) struct UnknownForms(HashMap<u64, Occurrences>);

#[derive(Debug)]
struct Occurrences {
    /// The line of the first occurrence.
    line: u64,
    count: u64,
    /// The form, and what is known of the writer of the first occurrence. `None` for forms beyond the reported number.
    first: Option<(UnknownForm, Option<String>)>,
}

impl UnknownForms {
    /// Counts one more occurrence. `writer` describes the agent that wrote it, if known.
    pub(in crate::transcript) fn add(
        &mut self,
        line: u64,
        strange: UnknownForm,
        writer: impl FnOnce() -> Option<String>,
    ) {
        let is_told = self.0.len() < FINDINGS_OF_A_KIND_LIMIT;
        let found = self.0.entry(strange.hash()).or_insert_with(|| Occurrences {
            line,
            count: 0,
            first: is_told.then(|| (strange, writer())),
        });
        found.count += 1;
    }

    /// The description of each form, with its line. Empty for forms after the first [`FINDINGS_OF_A_KIND_LIMIT`].
    pub(in crate::transcript) fn into_details(self) -> Vec<(u64, String)> {
        let mut told: Vec<_> = self
            .0
            .into_values()
            .map(|found| (found.line, found.detail()))
            .collect();
        told.sort();
        told
    }
}

impl UnknownForm {
    fn hash(&self) -> u64 {
        match self {
            Self::Kind(kind) => hash_of(kind),
            Self::Content => hash_of("/content"),
            Self::Part(kind) => hash_of(&format!("/part/{kind}")),
        }
    }
}

impl Occurrences {
    fn detail(self) -> String {
        let Some((strange, writer)) = self.first else {
            return String::new();
        };
        let writer = writer.map_or_else(String::new, |writer| format!(", {writer}"));
        let records = match self.count {
            1 => "1 record".to_owned(),
            count => format!("{count} records"),
        };
        let (what, effect) = match strange {
            UnknownForm::Kind(kind) => (
                format!("{records} of the unknown kind {kind:?}"),
                "kept unchanged, and not part of the reported history",
            ),
            UnknownForm::Content => (
                format!("{records} with content of an unknown form"),
                "reported in the history unchanged, as JSON",
            ),
            UnknownForm::Part(kind) if kind.is_empty() => (
                format!("{records} with a part of an unknown form"),
                "reported in the history unchanged, as JSON",
            ),
            UnknownForm::Part(kind) => (
                format!("{records} with a part of an unknown type or form, {kind:?}"),
                "reported in the history unchanged, as JSON",
            ),
        };
        format!(
            "{what}, the first in this line{writer}: {effect}; how a resume uses them is known only to the agent"
        )
    }
}

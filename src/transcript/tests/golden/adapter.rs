//! What the golden files ask of this room, in its own types.

use std::path::Path;

use crate::transcript::claude::{Index, Selection};
use crate::transcript::reading;
use crate::transcript::relocate::{Relocation, relocate};

/// What the index of a file says.
pub(super) struct Facts {
    /// Its counts, on one line.
    pub(super) counts: String,
    branch: Option<Selection>,
}

/// Reads a file of Claude's.
pub(super) fn index(path: &Path) -> Facts {
    let index: Index = reading::index(path).unwrap();
    let counts = format!(
        "records {} prompts {} garbage {} torn {} live {}",
        index.records(),
        index.prompts(),
        index.garbage_lines(),
        index.ends_torn(),
        index.live_uuid().unwrap_or_default(),
    );
    let branch = index.select(None, true);
    Facts { counts, branch }
}

/// What is known of the record that begins at this byte.
pub(super) fn flags(facts: &Facts, offset: u64) -> String {
    let Some(branch) = &facts.branch else {
        return "-".to_owned();
    };
    let mut flags = Vec::new();
    if branch.contains(offset) {
        flags.push("branch".to_owned());
    }
    if branch.prompt_offsets().contains(&offset) {
        flags.push("prompt".to_owned());
    }
    if branch.leaf_offset() == offset {
        flags.push("leaf".to_owned());
    }
    if let Some(join) = branch.join_at(offset) {
        flags.push(format!(
            "joined to {}",
            join.parent.as_deref().unwrap_or("nothing")
        ));
    }
    if flags.is_empty() {
        "-".to_owned()
    } else {
        flags.join(" ")
    }
}

/// The content in another folder.
pub(super) fn relocated(content: &[u8], from: &str, to: &str) -> Vec<u8> {
    let relocation = Relocation {
        folders: vec![(from.to_owned(), to.to_owned())],
        ..Relocation::default()
    };
    let mut moved = Vec::new();
    relocate(content, &mut moved, &relocation).unwrap();
    moved
}

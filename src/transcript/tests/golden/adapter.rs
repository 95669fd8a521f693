//! What the golden files ask of this room, in its own types.

use std::fs;
use std::path::Path;

use crate::transcript::claude::{Index, Selection};
use crate::transcript::library::Library;
use crate::transcript::opened::Opened;
use crate::transcript::relocate::{Relocation, relocate};
use crate::transcript::{reading, rollouts};

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
    if let Some(join) = branch.joins().iter().find(|join| join.offset == offset) {
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

/// Cuts a session of Codex behind its first, a middle and its last turn: each place, and the new file.
pub(super) fn cuts(root: &Path, id: &str) -> Vec<(String, Option<String>)> {
    let Ok(open) = Opened::codex(&Library::default(), root, id, None) else {
        return Vec::new();
    };
    let mut turns = vec![0, open.turns() / 2, open.turns().saturating_sub(1)];
    turns.dedup();
    turns.retain(|turn| *turn < open.turns());
    let cut = |turn: usize| {
        let last = open.turn(turn).end.checked_sub(1)?;
        let (owner, record) = (open.owner(last)?.to_owned(), open.record_id(last));
        let made = rollouts::branch_at(root, id, &owner, &record, "/home/u/elsewhere", |_, _| Ok(()));
        let made = made.ok().map(|(_, path)| {
            let text = fs::read_to_string(&path).unwrap();
            fs::remove_file(path).unwrap();
            text
        });
        Some((format!("{owner} {record}"), made))
    };
    turns.into_iter().filter_map(cut).collect()
}

/// The content in another folder.
pub(super) fn relocated(content: &[u8], from: &str, to: &str) -> Vec<u8> {
    let relocation = Relocation {
        folders: vec![(from.to_owned(), to.to_owned())],
        ..Relocation::default()
    };
    let mut moved = Vec::new();
    relocate(content, &mut moved, |line| relocation.line(line), |_| Ok(())).unwrap();
    moved
}

//! The interface of the golden tests to this module, in its own types.

use std::fmt::Write as _;
use std::path::Path;

use crate::transcript::claude::reading;
use crate::transcript::claude::{ClaudeIndex, Selection};
use crate::transcript::dialect::AgentHome;
use crate::transcript::index_cache::IndexCache;
use crate::transcript::relocate::{Relocation, rewrite_lines};
use crate::transcript::transcript_list::Format;

/// What the index of a file says.
pub(super) struct Facts {
    /// Its counts, on one line.
    pub(super) counts: String,
    branch: Option<Selection>,
}

/// Reads a file of Claude's.
pub(super) fn index(path: &Path) -> Facts {
    let index: ClaudeIndex = reading::index(path).unwrap();
    let counts = format!(
        "records {} prompts {} garbage {} torn {} live {}",
        index.records(),
        index.prompts,
        index.garbage_lines,
        index.ends_torn,
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
    if branch.prompt_offsets.contains(&offset) {
        flags.push("prompt".to_owned());
    }
    if branch.leaf_offset == offset {
        flags.push("leaf".to_owned());
    }
    if let Some(join) = branch.joins.get(&offset) {
        flags.push(format!("joined to {}", join.as_deref().unwrap_or("nothing")));
    }
    if flags.is_empty() {
        "-".to_owned()
    } else {
        flags.join(" ")
    }
}

/// What the index of a file of Qwen Code's says, and where its turns are.
pub(super) fn qwen(root: &Path, id: &str) -> String {
    let library = &IndexCache::default();
    let home = AgentHome {
        index_cache: library,
        root,
    };
    let opened = Format::Qwen.dialect().open(home.session(None, id), None).unwrap();
    let mut text = format!(
        "index messages {} turns {} prompts {} unknown {} torn {} losses {:?}\n",
        opened.messages(),
        opened.turns(),
        opened.prompts().unwrap_or_default(),
        opened.unknown_records(),
        opened.ends_torn(),
        opened.losses(),
    );
    for turn in 0..opened.turns() {
        let (begin, end) = (opened.begin_offset(turn), opened.end_offset(turn));
        let _ = writeln!(text, "turn {turn} from {begin:?} to {end:?}");
        for message in opened.turn(turn) {
            let _ = writeln!(text, "  {}", opened.record_id(message));
        }
    }
    text
}

/// The content in another folder.
pub(super) fn relocated(content: &[u8], from: &str, to: &str) -> Vec<u8> {
    let relocation = Relocation {
        folders: vec![(from.to_owned(), to.to_owned())],
        ..Relocation::default()
    };
    let mut moved = Vec::new();
    rewrite_lines(content, &mut moved, &relocation).unwrap();
    moved
}

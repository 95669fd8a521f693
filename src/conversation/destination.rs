//! The destination of a move: another folder for one conversation, or the new path of a renamed folder for everything in
//! it. Pure.

use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::Link;
use serde::{Deserialize, Serialize};

use crate::store::ConversationRecord;
use crate::transcript::relocate::Relocation;

/// The destination of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Destination {
    /// Moves one conversation to this folder, with those of its sessions that ran in its old folder.
    Folder(String),
    /// Moves everything that ran in or below a folder to the same place below the new folder.
    Tree(Tree),
}

/// A folder with everything below it, and its new path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tree {
    /// The old paths of the folder: as given, and without symbolic links.
    pub from: Vec<String>,
    /// The new path, as given.
    pub to: String,
    /// The new path without symbolic links, as agents write it.
    pub real: String,
}

impl Tree {
    /// The new path of `cwd`, as given. `None` if `cwd` is not in or below the moved folder.
    #[must_use]
    pub fn new_path(&self, cwd: &str) -> Option<String> {
        let folders = self.from.iter().map(|from| (from.clone(), self.to.clone()));
        mapped_below(folders.collect(), cwd)
    }

    /// The new path of `cwd`, as agents write it.
    #[must_use]
    pub fn new_real_path(&self, cwd: &str) -> Option<String> {
        mapped_below(self.path_mapping(), cwd)
    }

    /// Maps the paths in agents' records to the new path.
    #[must_use]
    pub fn path_mapping(&self) -> Vec<(String, String)> {
        let folders = self.from.iter();
        folders.map(|from| (from.clone(), self.real.clone())).collect()
    }

    /// Which of the old paths contains `cwd`.
    #[must_use]
    pub fn containing_path(&self, cwd: &str) -> Option<&str> {
        let mut known = self.from.iter();
        let is_below = |from: &&String| mapped_below(vec![((*from).clone(), String::new())], cwd).is_some();
        known.find(is_below).map(String::as_str)
    }
}

fn mapped_below(folders: Vec<(String, String)>, cwd: &str) -> Option<String> {
    let relocation = Relocation {
        folders,
        ..Relocation::default()
    };
    relocation.relocated_folder(cwd)
}

impl Destination {
    /// The folder of the conversation after the move.
    #[must_use]
    pub fn new_cwd(&self, record: &ConversationRecord) -> String {
        match self {
            Self::Folder(to) => to.clone(),
            Self::Tree(tree) => tree.new_path(&record.cwd).unwrap_or_else(|| record.cwd.clone()),
        }
    }

    /// The folder of a session after the move, for a conversation in `cwd`. `None` if the session stays. A move to a folder
    /// always moves the head.
    #[must_use]
    pub fn new_cwd_of_link(&self, cwd: &str, link: &Link, is_head: bool) -> Option<String> {
        match self {
            Self::Folder(to) => (is_head || link.cwd == cwd).then(|| to.clone()),
            Self::Tree(tree) => tree.new_path(&link.cwd),
        }
    }

    /// Whether this move also moves the session as part of another conversation.
    #[must_use]
    pub fn moves_session(&self, other: &ConversationRecord, session: &UpstreamId) -> bool {
        let mut links = other.chain.links().iter();
        match self {
            Self::Folder(_) => false,
            Self::Tree(tree) => {
                links.any(|link| link.upstream_id == *session && tree.new_path(&link.cwd).is_some())
            }
        }
    }

    /// Whether the move would change nothing, because the conversation and its sessions are not in the old folder.
    #[must_use]
    pub fn is_reached(&self, record: &ConversationRecord) -> bool {
        match self {
            Self::Folder(to) => *to == record.cwd,
            Self::Tree(tree) => {
                let mut links = record.chain.links().iter();
                tree.new_path(&record.cwd).is_none() && links.all(|link| tree.new_path(&link.cwd).is_none())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_goes_with_what_is_below_it_by_each_of_its_names() {
        let tree = Tree {
            from: vec!["/w/link".to_owned(), "/w/old".to_owned()],
            to: "/w/to".to_owned(),
            real: "/v/new".to_owned(),
        };
        let table = [
            ("/w/old", Some(("/w/to", "/v/new", "/w/old"))),
            ("/w/link/a b", Some(("/w/to/a b", "/v/new/a b", "/w/link"))),
            ("/w/old/x/é", Some(("/w/to/x/é", "/v/new/x/é", "/w/old"))),
            ("/w/older", None),
            ("/w/Old", None),
            ("/w", None),
            ("/w/to", None),
        ];
        for (cwd, expected) in table {
            let target = tree.new_path(cwd);
            assert_eq!(target.as_deref(), expected.map(|told| told.0), "{cwd}");
            let real = tree.new_real_path(cwd);
            assert_eq!(real.as_deref(), expected.map(|told| told.1), "{cwd}");
            assert_eq!(tree.containing_path(cwd), expected.map(|told| told.2), "{cwd}");
        }
    }
}

//! Finds the positions where the missing results of tool calls are filled in.

use std::collections::{BTreeMap, HashMap};

use super::entries::Parent;
use super::facts::Role;
use super::index::Index;
use super::walk::Selection;
use crate::transcript::record_id::RecordId;

/// A reply of the model: by a hash of its id, or by its position if it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reply {
    Message(u64),
    Record(usize),
}

/// The records that follow calls without a result. All records are given by their offsets.
#[derive(Debug, Default)]
pub(in crate::transcript) struct FillPositions {
    /// The records that continue after a reply with such calls, each with the last of the calls. Parts of the reply itself
    /// and results of its calls are not included.
    pub(in crate::transcript) children: BTreeMap<u64, u64>,
    /// The calls whose results are inserted before a record, as the agent would have written them: after the existing
    /// results. The results of calls that are not included belong at the end.
    pub(in crate::transcript) places: BTreeMap<u64, Vec<u64>>,
}

impl Index {
    /// Finds the positions for `calls`, the ascending offsets of records on the branch.
    pub(in crate::transcript) fn fill_positions(
        &self,
        branch: &Selection,
        calls: impl Iterator<Item = u64>,
    ) -> FillPositions {
        let mut behind = FillPositions::default();
        let with_reply = |call| (call, self.reply(self.entries.first_at_or_after(call)));
        let calls: Vec<(u64, Option<Reply>)> = calls.map(with_reply).collect();
        let last: HashMap<Option<Reply>, u64> = calls.iter().map(|(call, reply)| (*reply, *call)).collect();
        let mut calls = calls.into_iter().peekable();
        // The earlier calls that have no position yet: usually none.
        let mut open: Vec<(u64, Option<Reply>)> = Vec::new();
        for offset in &branch.offsets {
            let position = self.entries.first_at_or_after(*offset);
            let own = self.reply(position);
            let parent = self.parent_on(branch, position);
            // A record that follows an existing result stays after it.
            let parent =
                parent.filter(|(parent, joined)| *joined || self.entries.role(*parent) == Role::Assistant);
            let reply = parent.and_then(|(parent, _)| self.reply(parent));
            let call = last
                .get(&reply)
                .filter(|call| reply.is_some() && own != reply && *call < offset);
            if let Some(call) = call {
                behind.children.insert(*offset, *call);
            }
            let is_message = self.entries.is_message(position);
            open.retain(|(at, of)| {
                let goes_on = call.is_some() && *of == reply || is_message && *of != own;
                if goes_on {
                    behind.places.entry(*offset).or_default().push(*at);
                }
                !goes_on
            });
            open.extend(calls.next_if(|(call, _)| call == offset));
        }
        behind
    }

    /// The reply of which a record is a part, or whose call it answers.
    fn reply(&self, position: usize) -> Option<Reply> {
        let entries = &self.entries;
        let of_reply = |position| match entries.message(position) {
            0 => Reply::Record(position),
            message => Reply::Message(message),
        };
        match (entries.role(position), entries.parent(position)) {
            (Role::Assistant, _) => Some(of_reply(position)),
            (Role::ToolResult, Parent::Found(call)) if entries.role(call) == Role::Assistant => {
                Some(of_reply(call))
            }
            _ => None,
        }
    }

    /// The record before a record on a branch, if any, and whether it only replaces a missing parent.
    fn parent_on(&self, branch: &Selection, position: usize) -> Option<(usize, bool)> {
        match branch.join_at(self.entries.offset(position)) {
            Some(join) => {
                let parent = self.entries.find(&RecordId::new(join.parent.as_deref()?))?;
                Some((parent, true))
            }
            None => match self.entries.parent(position) {
                Parent::Found(parent) => Some((parent, false)),
                Parent::None | Parent::Missing => None,
            },
        }
    }
}

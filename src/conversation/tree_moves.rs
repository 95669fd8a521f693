//! Records of moves of whole folders, from their start until they can no longer be undone.
//!
//! Owns what is recorded of each: which folder moved where, and which conversations moved with it. The files move as
//! [moves](crate::transcript::moving) of their own; this record says whether all of them are done, so that a start finds
//! what a kill interrupted. Blocks.

use std::fs;
use std::io;
use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::transcript::TreeMoveAnswer;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::destination::{Destination, Tree};
use crate::files::checked_lines::ReadError;
use crate::files::intent::{self, Intent, IntentDecision, IntentKind, LogContent};
use crate::files::set_aside::Unreadable;
use crate::paths::names;
use crate::store::{CallKey, ConversationRecord};

/// The intents of tree moves. They have no steps of their own, and stay until the move can no longer be undone.
pub(crate) const TREE_MOVE_INTENTS: IntentKind<TreeMoveNote> = IntentKind {
    folder: names::TREES,
    log_name: None,
    parse_headerless: |lines| {
        let about = lines.into_iter().map(|line| serde_json::from_value(line).ok());
        Some(LogContent {
            descriptions: about.collect::<Option<_>>()?,
            groups: Vec::new(),
        })
    },
};

/// The description of a tree move: the move of a whole folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TreeMoveDescription {
    /// The old and the new folder.
    pub(super) tree: Tree,
    /// The conversations that move with the folder, in the order in which they move.
    pub(super) parts: Vec<MovedConversation>,
    /// The move that this one undoes.
    pub(super) undoes: Option<Uuid>,
    /// The idempotency key of the call.
    pub(super) asked: Option<CallKey>,
    /// Its number among the moves that were known when it began, from 1; 0 if an earlier version wrote it.
    #[serde(default)]
    pub(super) number: u64,
}

/// A conversation that moves with the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MovedConversation {
    pub(super) conversation_id: ConversationId,
    /// The move from the old to the new folder.
    pub(super) forth: Tree,
    /// The way back, to the path by which the conversation knew the folder.
    pub(super) back: Tree,
}

/// The progress of a tree move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TreeMoveState {
    /// Some files or conversations may have moved.
    Underway,
    /// Everything has moved.
    Done,
    /// It was undone.
    Undone,
}

/// An entry in the intent of a move.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TreeMoveNote {
    Begun(Box<TreeMoveDescription>),
    State(TreeMoveState),
    Answer(TreeMoveAnswer),
}

/// A recorded tree move.
#[derive(Debug)]
pub(super) struct TreeMove {
    pub(super) id: Uuid,
    pub(super) description: TreeMoveDescription,
    pub(super) state: TreeMoveState,
    /// The answer to the call. `None` until the move is done.
    pub(super) answer: Option<TreeMoveAnswer>,
    intent: Intent<TreeMoveNote>,
}

impl MovedConversation {
    /// A conversation that moves with the folder `tree`.
    pub(super) fn new(tree: &Tree, record: &ConversationRecord) -> Self {
        Self {
            conversation_id: record.id,
            forth: tree.clone(),
            back: tree.back(record),
        }
    }

    /// The same conversation, moving in the opposite direction.
    pub(super) fn reversed(&self) -> Self {
        Self {
            conversation_id: self.conversation_id,
            forth: self.back.clone(),
            back: self.forth.clone(),
        }
    }

    /// Whether the conversation has not moved, or has moved back.
    pub(super) fn is_at_origin(&self, record: &ConversationRecord) -> bool {
        !Destination::Tree(self.forth.clone()).is_reached(record)
    }

    /// The destination that moves the conversation back. `None` if it is not where it was moved to.
    pub(super) fn destination_back(&self, record: &ConversationRecord) -> Option<Destination> {
        let back = Destination::Tree(self.back.clone());
        (!self.is_at_origin(record) && !back.is_reached(record)).then_some(back)
    }
}

impl Tree {
    /// The way back, to the path by which this conversation knows the folder.
    fn back(&self, record: &ConversationRecord) -> Self {
        let links = record.chain.links().iter().map(|link| link.cwd.as_str());
        let known = std::iter::once(record.cwd.as_str())
            .chain(links)
            .find_map(|cwd| self.containing_path(cwd));
        self.back_to(known.or(self.from.first().map(String::as_str)).unwrap_or("/"))
    }

    /// The way back to the folder, under the path `known`.
    pub(super) fn back_to(&self, known: &str) -> Self {
        let mut from = vec![self.to.clone(), self.real.clone()];
        from.dedup();
        Self {
            from,
            to: known.to_owned(),
            real: self.from.last().map_or(known, String::as_str).to_owned(),
        }
    }
}

impl TreeMove {
    /// Records a move that is about to begin. Callers must not begin two moves concurrently.
    pub(super) fn begin(data: &Path, begun: TreeMoveDescription) -> io::Result<Self> {
        let id = Uuid::new_v4();
        let last = Self::read_all(data)?
            .iter()
            .map(|known| known.description.number)
            .max();
        let begun = TreeMoveDescription {
            number: last.unwrap_or_default() + 1,
            ..begun
        };
        let note = TreeMoveNote::Begun(Box::new(begun.clone()));
        let intent = Intent::begin(&TREE_MOVE_INTENTS, data, &id.to_string(), note, Vec::new())?;
        Ok(Self {
            id,
            description: begun,
            state: TreeMoveState::Underway,
            answer: None,
            intent,
        })
    }

    /// Records that everything has moved, and the answer to the call.
    pub(super) fn finish(&mut self, answer: TreeMoveAnswer) -> io::Result<()> {
        self.intent
            .add_description(TreeMoveNote::Answer(answer.clone()))?;
        self.answer = Some(answer);
        self.record_state(TreeMoveState::Done)
    }

    /// Records the progress.
    pub(super) fn record_state(&mut self, state: TreeMoveState) -> io::Result<()> {
        self.intent.add_description(TreeMoveNote::State(state))?;
        self.state = state;
        Ok(())
    }

    /// Deletes the record, because nothing of the move is left or it can no longer be undone.
    pub(super) fn delete_record(self) {
        // A failed deletion is logged.
        let _is_forgotten = self.intent.commit();
    }

    /// The move with this id. `None` if its record was deleted or is damaged.
    pub(super) fn read(data: &Path, id: Uuid) -> io::Result<Option<Self>> {
        let intent = match Intent::find(&TREE_MOVE_INTENTS, data, &id.to_string()) {
            Ok(intent) => intent,
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(ReadError::Io(error)) => return Err(error),
            // The daemon reported the damage when it started.
            Err(ReadError::Unreadable(_)) => return Ok(None),
        };
        let Some((TreeMoveNote::Begun(begun), notes)) = intent.descriptions().split_first() else {
            return Ok(None);
        };
        let (mut state, mut answer) = (TreeMoveState::Underway, None);
        for note in notes {
            match note {
                TreeMoveNote::State(noted) => state = *noted,
                TreeMoveNote::Answer(noted) => answer = Some(noted.clone()),
                TreeMoveNote::Begun(_) => {}
            }
        }
        Ok(Some(Self {
            description: TreeMoveDescription::clone(begun),
            id,
            state,
            answer,
            intent,
        }))
    }

    /// All recorded moves, in no order. A move counts as undone if the record of its undo says that it is done. Records that
    /// cannot be read are logged.
    pub(super) fn read_all(data: &Path) -> io::Result<Vec<Self>> {
        let known = intent::existing(&TREE_MOVE_INTENTS, data)?.into_iter();
        let ids = known.filter_map(|path| path.file_name()?.to_str()?.parse().ok());
        let read = ids.filter_map(|id| match Self::read(data, id) {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(%id, %error, "the record of a move cannot be read");
                None
            }
        });
        let mut moves: Vec<Self> = read.collect();
        let done = moves.iter().filter(|known| known.state == TreeMoveState::Done);
        let undone: Vec<Uuid> = done.filter_map(|known| known.description.undoes).collect();
        for known in moves.iter_mut().filter(|known| undone.contains(&known.id)) {
            known.state = TreeMoveState::Undone;
        }
        Ok(moves)
    }

    /// Deletes the remains of moves that were killed before they began, and sets aside unreadable records. Must not run while a
    /// move begins.
    pub(super) fn settle_unreadable(data: &Path) {
        // Failures to list or set aside are logged.
        let paths = intent::existing(&TREE_MOVE_INTENTS, data).unwrap_or_default();
        let _is_settled = intent::settle(&TREE_MOVE_INTENTS, &paths, &|_| true, |intent| {
            match intent.descriptions() {
                [TreeMoveNote::Begun(_), ..] => IntentDecision::Later,
                _ => {
                    let why = "it does not begin with what the move is".to_owned();
                    IntentDecision::SetAside(Unreadable::Damaged(why))
                }
            }
        });
    }

    /// The sort key that orders moves by when they began. The number comes first because a clock may have been wrong; earlier
    /// versions recorded only a time.
    pub(super) fn rank(&self) -> (u64, Option<std::time::SystemTime>) {
        (self.description.number, self.changed_at())
    }

    /// When the state last changed. `None` if unknown.
    pub(super) fn changed_at(&self) -> Option<std::time::SystemTime> {
        fs::metadata(self.intent.path())
            .and_then(|metadata| metadata.modified())
            .ok()
    }

    /// The intent name for moving the transcripts that belong to no conversation.
    pub(super) fn intent_name(id: Uuid) -> String {
        format!("tree.{id}")
    }
}

/// The tree move that moved a conversation from the folder `from` to its current one, unless it was undone.
///
/// # Errors
/// The system's error.
pub(super) fn tree_move_that_moved(
    data: &Path,
    record: &ConversationRecord,
    from: &str,
) -> io::Result<Option<Uuid>> {
    let moves = TreeMove::read_all(data)?.into_iter();
    let moves =
        moves.filter(|known| known.state == TreeMoveState::Done && known.description.undoes.is_none());
    let matching = moves.filter(|known| {
        let mut parts = known.description.parts.iter();
        parts.any(|part| {
            let back = || Destination::Tree(part.back.clone()).new_cwd(record);
            part.conversation_id == record.id && back() == from
        })
    });
    // If there are several, the last one.
    Ok(matching.max_by_key(TreeMove::rank).map(|known| known.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        Tree {
            from: vec!["/w/link".to_owned(), "/w/old".to_owned()],
            to: "/w/to".to_owned(),
            real: "/w/new".to_owned(),
        }
    }

    fn record(cwd: &str) -> ConversationRecord {
        let at = jiff::Timestamp::UNIX_EPOCH;
        ConversationRecord::new(ConversationId::mint(), "loopback".into(), cwd.to_owned(), at)
    }

    #[test]
    fn the_way_back_leads_to_the_path_that_a_conversation_had() {
        let records = [record("/w/old/a"), record("/w/link/b")];
        for record in &records {
            let part = MovedConversation::new(&tree(), record);
            assert!(part.is_at_origin(record) && part.destination_back(record).is_none());
            let mut there = record.clone();
            there.cwd = tree().new_path(&record.cwd).unwrap();
            assert!(!part.is_at_origin(&there));
            let back = part.destination_back(&there).unwrap();
            assert_eq!(back.new_cwd(&there), record.cwd);
            assert!(
                part.reversed().is_at_origin(&there) && part.reversed().destination_back(record).is_some()
            );
            // It is nowhere near any more.
            there.cwd = "/elsewhere".to_owned();
            assert!(!part.is_at_origin(&there) && part.destination_back(&there).is_none());
        }
        let part = MovedConversation::new(&tree(), &records[1]);
        assert_eq!(part.back.new_real_path("/w/new/b").as_deref(), Some("/w/old/b"));
    }
}

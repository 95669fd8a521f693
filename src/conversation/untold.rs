//! Copies of transcripts until somebody is told of them.
//!
//! Owns what is noted of each copy before it is made, in a folder of its own: a daemon that finds the note and no conversation
//! that has the session removes what a killed one left. Blocks.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bridge_protocol::UpstreamId;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::services::chain_text;
use crate::files::durable::{make_folders, missing_folders, sync_folder};
use crate::store::Store;
use crate::transcript::TranscriptError;
use crate::transcript::aside::{self, Unreadable};
use crate::transcript::copy::remove_copy;
use crate::transcript::notes::{self, NoteFile, ReadError};

/// The folder below the daemon's own in which notes are.
pub(super) const FOLDER: &str = "copies";

/// How many notes are remembered that may be of no use any more: more than copies are made at a time. Those of copies that came
/// to nothing are among them; what is forgotten the next start clears away.
const REMEMBERED: usize = 64;

/// A copy of a transcript that no conversation has yet. It is removed when this is dropped before it is kept.
#[derive(Debug)]
pub struct UncommittedCopy(Option<PathBuf>);

impl UncommittedCopy {
    /// What is at this path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(Some(path))
    }

    /// Keeps it: a conversation has it.
    pub fn keep(mut self) {
        self.0 = None;
    }

    /// Removes it on a thread that may block, and waits for that. Dropping it removes it on the caller's thread.
    pub async fn remove(self) {
        if let Some(removing) = self.remove_in_background() {
            // What could not be removed is in the log.
            let _removed = removing.await;
        }
    }

    /// Removes it on a thread that may block. None if it is removed already.
    pub fn remove_in_background(self) -> Option<JoinHandle<()>> {
        let runtime = Handle::try_current().ok()?;
        Some(runtime.spawn_blocking(move || drop(self)))
    }
}

impl Drop for UncommittedCopy {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        if let Err(error) = remove_copy(path) {
            tracing::warn!(path = %path.display(), error = chain_text(&error), "an unused copy could not be removed");
        }
    }
}

/// A copy that is about to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlannedCopy {
    upstream_id: UpstreamId,
    transcript: PathBuf,
    /// The folders that are made for it, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    folders: Vec<PathBuf>,
}

/// The notes of all copies.
#[derive(Debug)]
pub struct CopyNotes {
    folder: PathBuf,
    /// Those of daemons before this one.
    earlier: Vec<PathBuf>,
    /// Those of this one that may be of no use any more.
    noted: Mutex<VecDeque<PlannedCopy>>,
}

impl CopyNotes {
    /// Those in the data folder. What is there already is from before.
    #[must_use]
    pub fn below(data: &Path) -> Self {
        let folder = data.join(FOLDER);
        let mut earlier = aside::entries(&folder).unwrap_or_else(|error| {
            tracing::warn!(path = %folder.display(), %error, "which copies were begun cannot be looked at");
            Vec::new()
        });
        earlier.retain(|path| !aside::is_aside(path));
        Self {
            folder,
            earlier,
            noted: Mutex::default(),
        }
    }

    /// Notes a copy that is about to be made as the transcript of this session.
    ///
    /// # Errors
    /// [`TranscriptError::Io`]; then it must not be made.
    pub fn note(
        &self,
        store: &Store,
        upstream_id: &UpstreamId,
        transcript: &Path,
    ) -> Result<(), TranscriptError> {
        if store.status().is_ephemeral {
            // The next start would know of no conversation that has it, though one had.
            return Ok(());
        }
        let folder = transcript.parent().unwrap_or(Path::new("/"));
        let note = PlannedCopy {
            upstream_id: upstream_id.clone(),
            transcript: transcript.to_owned(),
            folders: missing_folders(folder).into_iter().map(Path::to_owned).collect(),
        };
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|note| match is_somebodys(store, note) {
            Some(true) => remove(&self.path(note)).is_err(),
            Some(false) | None => true,
        });
        if noted.len() >= REMEMBERED {
            noted.pop_front();
        }
        noted.push_back(note.clone());
        drop(noted);
        let path = self.path(&note);
        self.write(&path, &note)
            .map_err(TranscriptError::io("write", &path))
    }

    /// A copy stays although no conversation has it: its caller is told of it next.
    ///
    /// # Errors
    /// [`TranscriptError::Io`]; then the next start may remove it.
    pub fn release(&self, upstream_id: &UpstreamId) -> Result<(), TranscriptError> {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|note| note.upstream_id != *upstream_id);
        drop(noted);
        let path = self.folder.join(upstream_id.as_str());
        match fs::remove_file(&path) {
            Ok(()) => sync_folder(&self.folder),
            // A store that keeps nothing has no notes.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
        .map_err(TranscriptError::io("remove", &path))
    }

    /// Ends what daemons before this one have begun: a copy whose session no conversation has goes. To be called when all that
    /// they have left of turns has its end.
    pub fn settle(&self, store: &Store) {
        if store.status().is_ephemeral {
            // It knows none of the conversations that have them.
            return;
        }
        if store.opening().may_have_lost() {
            // The conversation that has a copy may be among what was lost, and its turns since are in the copy only.
            let why = "the store lost changes, so it is unknown whether a conversation has the copy";
            for path in &self.earlier {
                // What became of it is in the log.
                let _reported = aside::set_aside(path, &Unreadable::Damaged(why.to_owned()));
            }
            return;
        }
        for path in &self.earlier {
            if notes::is_unbegun(path) {
                // The copy is not begun before its note is whole.
                let _is_told = remove(path);
                continue;
            }
            let note = match notes::read::<PlannedCopy>(path) {
                Ok(mut notes) if notes.len() == 1 => notes.remove(0),
                Ok(_) => {
                    let why = Unreadable::Damaged("it says more than one thing".to_owned());
                    // What became of it is in the log.
                    let _reported = aside::set_aside(path, &why);
                    continue;
                }
                Err(ReadError::Unreadable(why)) => {
                    let _reported = aside::set_aside(path, &why);
                    continue;
                }
                Err(ReadError::Io(error)) => {
                    tracing::warn!(path = %path.display(), %error, "the note of a copy cannot be read; what was made of it stays, and the note too");
                    continue;
                }
            };
            match is_somebodys(store, &note) {
                Some(true) => {}
                Some(false) => {
                    if let Err(error) = remove_copy(&note.transcript) {
                        tracing::warn!(path = %note.transcript.display(), error = chain_text(&error), "a copy that nobody was told of could not be removed; the next start tries again");
                        continue;
                    }
                    for folder in note.folders.iter().rev() {
                        // Only one that is empty goes.
                        if fs::remove_dir(folder).is_err() {
                            break;
                        }
                    }
                    tracing::info!(upstream_id = %note.upstream_id, "a copy that nobody was told of was removed");
                }
                None => continue,
            }
            let _is_told = remove(path);
        }
    }

    fn path(&self, note: &PlannedCopy) -> PathBuf {
        self.folder.join(note.upstream_id.as_str())
    }

    fn write(&self, path: &Path, note: &PlannedCopy) -> io::Result<()> {
        make_folders(&self.folder)?;
        NoteFile::create(path, note).map(drop)
    }
}

/// Whether a conversation has the session; nothing where that cannot be read.
fn is_somebodys(store: &Store, note: &PlannedCopy) -> Option<bool> {
    match store.owners(&note.upstream_id, None) {
        Ok(owners) => Some(!owners.is_empty()),
        Err(error) => {
            tracing::warn!(upstream_id = %note.upstream_id, error = chain_text(&error), "whose a copy is cannot be read");
            None
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = fs::remove_file(path);
    if let Err(error) = &removed {
        tracing::warn!(path = %path.display(), %error, "the note of a copy could not be removed");
    }
    removed
}

#[cfg(test)]
mod tests {
    use bridge_protocol::ConversationId;
    use uuid::Uuid;

    use crate::files::durable::tests::Disk;
    use crate::store::{Change, StoreOptions, TranscriptRoot};

    use super::*;

    /// Everything that a copy may have left, by its id: the names and whether they are folders.
    fn leave(folder: &Path, id: &str) -> PathBuf {
        for name in [format!("{id}/subagents"), format!(".{id}.files.tmp")] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        for name in [
            format!("{id}.jsonl"),
            format!(".{id}.copy.tmp"),
            format!("{id}/subagents/agent-1.jsonl"),
        ] {
            fs::write(folder.join(name), "{}\n").unwrap();
        }
        folder.join(format!("{id}.jsonl"))
    }

    /// The conversation may be one of those that were lost.
    #[tokio::test]
    async fn copies_stay_where_the_store_lost_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (data, place) = (folder.path().join("data"), folder.path().join("store"));
        fs::create_dir_all(&data).unwrap();
        let (store, closing) = Store::open(&place, StoreOptions::default()).unwrap();
        let copy = leave(folder.path(), "copy");
        let notes = CopyNotes::below(&data);
        notes.note(&store, &"copy".into(), &copy).unwrap();
        for session in ["copy", "other", "another"] {
            let held = Change {
                upstream: vec![(
                    Uuid::new_v4().to_string().parse::<ConversationId>().unwrap(),
                    TranscriptRoot::new("/root"),
                    session.into(),
                )],
                ..Change::default()
            };
            store.commit(held).await.unwrap();
        }
        drop((store, notes));
        drop(closing);
        let journal = place.join("journal.jsonl");
        let text = fs::read_to_string(&journal).unwrap();
        // The change that says whose the copy is can be read nowhere.
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        lines.remove(1);
        let lost = lines.concat();
        fs::write(&journal, lost).unwrap();
        fs::remove_dir_all(place.join("store")).unwrap();
        let (store, _closing) = Store::open(&place, StoreOptions::default()).unwrap();
        assert!(store.opening().may_have_lost());
        let before = fs::read_to_string(&copy).unwrap();
        CopyNotes::below(&data).settle(&store);
        assert_eq!(fs::read_to_string(&copy).unwrap(), before);
        // A later start does not know that anything was lost.
        CopyNotes::below(&data).settle(&store);
        assert!(copy.exists());
        assert!(data.join(FOLDER).join("copy.set-aside-1").exists());
    }

    #[tokio::test]
    async fn what_no_conversation_has_goes_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let (data, project) = (folder.path().join("data"), folder.path().join("project"));
        fs::create_dir_all(&project).unwrap();
        fs::create_dir_all(&data).unwrap();
        let disk = Disk::of(&data);
        let (store, _) = Store::open(&folder.path().join("store"), StoreOptions::default()).unwrap();
        let notes = CopyNotes::below(&data);
        let stranger = leave(&project, "strange");
        let mine = leave(&project, "mine");
        for (id, path) in [("nobodys", leave(&project, "nobodys")), ("mine", mine.clone())] {
            notes.note(&store, &id.into(), &path).unwrap();
            disk.check_lasts("a note of a copy");
        }
        let held = Change {
            upstream: vec![(
                Uuid::new_v4().to_string().parse::<ConversationId>().unwrap(),
                TranscriptRoot::new("/root"),
                "mine".into(),
            )],
            ..Change::default()
        };
        store.commit(held).await.unwrap();
        fs::write(data.join(FOLDER).join("damaged"), "{\"upstr").unwrap();
        fs::write(data.join(FOLDER).join("unbegun.new"), "{\"upstr").unwrap();

        // Of a store that keeps nothing nobody can tell what is whose.
        let forgetful = Store::ephemeral().unwrap();
        CopyNotes::below(&data).settle(&forgetful);
        CopyNotes::below(&data)
            .note(&forgetful, &"unnoted".into(), &mine)
            .unwrap();
        assert_eq!(
            names(&data.join(FOLDER)),
            ["damaged", "mine", "nobodys", "unbegun.new"]
        );

        let next = CopyNotes::below(&data);
        // What is begun in the meantime is none of an earlier daemon's.
        let running = leave(&project, "running");
        next.note(&store, &"running".into(), &running).unwrap();
        next.settle(&store);
        let left: Vec<String> = names(&project);
        for id in ["mine", "running", "strange"] {
            assert!(
                left.iter().any(|name| name == &format!("{id}.jsonl")),
                "{id}: {left:?}"
            );
        }
        assert!(!left.iter().any(|name| name.contains("nobodys")), "{left:?}");
        assert!(stranger.exists() && mine.exists());
        assert_eq!(names(&data.join(FOLDER)), ["damaged.set-aside-1", "running"]);
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

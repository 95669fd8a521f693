//! Copies that a kill may leave unfinished: of transcripts, and of files that a fork names.
//!
//! Owns the plans that are written before a copy is made, in a folder of their own. A daemon that finds the plan of a transcript's
//! copy, and no conversation that owns the session, deletes the copy; one that finds the plan of a fork's files copies them again.
//! Blocks.

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
use super::unfinished::{Verdict, has_owner};
use crate::files::checked_lines::{self, CheckedFile, ReadError};
use crate::files::durable::{make_folders, missing_folders, sync_folder};
use crate::files::entries;
use crate::files::set_aside::{self, Unreadable, set_aside};
use crate::store::Store;
use crate::transcript::TranscriptError;
use crate::transcript::copy::{remove_copy, remove_unfinished_files};
use crate::transcript::cut::bring_files;

/// The folder below the daemon's own that holds the plans.
pub(super) const FOLDER: &str = "copies";

/// The end of the name of the plan for a fork's files.
const FILES: &str = ".files";

/// How many plans are remembered that may be obsolete: more than copies are made at a time. Those of copies that failed are among
/// them; the next start deletes the ones that are forgotten.
const REMEMBERED: usize = 64;

/// A copy of a transcript that no conversation refers to yet. Dropping it deletes the file, unless the copy was committed.
#[derive(Debug)]
pub struct UncommittedCopy(Option<PathBuf>);

impl UncommittedCopy {
    /// The copy at this path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(Some(path))
    }

    /// A conversation refers to it now.
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

    /// Removes it on a thread that may block. `None` if it is removed already.
    pub fn remove_in_background(self) -> Option<JoinHandle<()>> {
        let runtime = Handle::try_current().ok()?;
        Some(runtime.spawn_blocking(move || drop(self)))
    }
}

impl Drop for UncommittedCopy {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        if let Err(error) = remove_copy(path) {
            tracing::warn!(path = %path.display(), error = chain_text(&error), "could not delete a copy that no conversation uses");
        }
    }
}

/// What is about to be copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Plan {
    Transcript(CopyPlan),
    Files(FilesPlan),
}

/// A transcript that is about to be copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CopyPlan {
    upstream_id: UpstreamId,
    transcript: PathBuf,
    /// The folders that are created for it, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    folders: Vec<PathBuf>,
}

/// A fork of the agent's own, to which the files are brought that it names. Programs that know no such plan set it aside, because
/// it lacks the members of a [`CopyPlan`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilesPlan {
    fork: PathBuf,
}

/// The plans of all copies.
#[derive(Debug)]
pub struct CopyPlans {
    folder: PathBuf,
    /// Those of earlier daemons.
    earlier: Vec<PathBuf>,
    /// Those of this daemon that may be obsolete.
    recent: Mutex<VecDeque<CopyPlan>>,
}

impl CopyPlans {
    /// Those in the data folder. Whatever is there already is an earlier daemon's.
    #[must_use]
    pub fn below(data: &Path) -> Self {
        let folder = data.join(FOLDER);
        let mut earlier = entries(&folder).unwrap_or_else(|error| {
            tracing::warn!(path = %folder.display(), %error, "cannot list the unfinished copies");
            Vec::new()
        });
        earlier.retain(|path| !set_aside::is_name(path));
        Self {
            folder,
            earlier,
            recent: Mutex::default(),
        }
    }

    /// Writes the plan for a copy that is about to be made as the transcript of this session.
    ///
    /// # Errors
    /// [`TranscriptError::Io`]; then the copy must not be made.
    pub fn note(
        &self,
        store: &Store,
        upstream_id: &UpstreamId,
        transcript: &Path,
    ) -> Result<(), TranscriptError> {
        if store.status().is_ephemeral {
            // The next start would find no conversation that owns it, although one did.
            return Ok(());
        }
        let folder = transcript.parent().unwrap_or(Path::new("/"));
        let plan = CopyPlan {
            upstream_id: upstream_id.clone(),
            transcript: transcript.to_owned(),
            folders: missing_folders(folder).into_iter().map(Path::to_owned).collect(),
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|plan| match has_owner(store, &plan.upstream_id) {
            Some(true) => remove(&self.folder.join(plan.upstream_id.as_str())).is_err(),
            Some(false) | None => true,
        });
        if recent.len() >= REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(plan.clone());
        drop(recent);
        self.write(upstream_id.as_str(), &Plan::Transcript(plan))
    }

    /// A copy stays although no conversation owns it: the caller that asked for it learns of it next.
    ///
    /// # Errors
    /// [`TranscriptError::Io`]; then the next start may delete it.
    pub fn release(&self, upstream_id: &UpstreamId) -> Result<(), TranscriptError> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|plan| plan.upstream_id != *upstream_id);
        drop(recent);
        let path = self.folder.join(upstream_id.as_str());
        match fs::remove_file(&path) {
            Ok(()) => sync_folder(&self.folder),
            // A store that is not kept has no plans.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
        .map_err(TranscriptError::io("remove", &path))
    }

    /// Brings the files that a fork of the agent's own names, as [`bring_files`] does. The next start continues if this one is killed.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn bring_files(
        &self,
        store: &Store,
        upstream_id: &UpstreamId,
        fork: &Path,
    ) -> Result<(), TranscriptError> {
        if store.status().is_ephemeral {
            return bring_files(fork);
        }
        let name = format!("{upstream_id}{FILES}");
        self.write(
            &name,
            &Plan::Files(FilesPlan {
                fork: fork.to_owned(),
            }),
        )?;
        let brought = bring_files(fork);
        // After a failure, too: the files stay where they are, and nothing is left unfinished.
        let _logged = remove(&self.folder.join(name));
        brought
    }

    /// Ends what earlier daemons left unfinished: deletes a copy whose session no conversation owns. Call this when everything that
    /// they left of turns is settled.
    pub fn settle(&self, store: &Store) {
        let verdict = Verdict::of(store);
        if verdict == Verdict::Leave {
            return;
        }
        for path in &self.earlier {
            if checked_lines::is_unbegun(path) {
                // The copy is not begun before its plan is whole.
                let _logged = remove(path);
                continue;
            }
            let is_settled = match (read(path), &verdict) {
                (Some(Plan::Files(plan)), _) => finish_files(&plan.fork),
                // The turns since the copy was made may be in the copy only.
                (Some(Plan::Transcript(_)), Verdict::SetAside(why)) => {
                    // The log says what became of it.
                    let _logged = set_aside(path, why);
                    false
                }
                (Some(Plan::Transcript(plan)), _) => settle_copy(store, &plan),
                (None, _) => false,
            };
            if is_settled {
                let _logged = remove(path);
            }
        }
    }

    fn write(&self, name: &str, plan: &Plan) -> Result<(), TranscriptError> {
        let path = self.folder.join(name);
        make_folders(&self.folder)
            .and_then(|()| CheckedFile::create(&path, plan))
            .map(drop)
            .map_err(TranscriptError::io("write", &path))
    }
}

/// The plan in a file. `None` if it cannot be used: it is set aside then, or stays for the next start.
fn read(path: &Path) -> Option<Plan> {
    let why = match checked_lines::read::<Plan>(path) {
        Ok(mut plans) if plans.len() == 1 => return plans.pop(),
        Ok(_) => Unreadable::Damaged("it has more than one line".to_owned()),
        Err(ReadError::Unreadable(why)) => why,
        Err(ReadError::Io(error)) => {
            tracing::warn!(path = %path.display(), %error, "cannot read the plan of a copy; the plan and the copy stay");
            return None;
        }
    };
    // The log says what became of it.
    let _logged = set_aside(path, &why);
    None
}

/// Deletes a copy if no conversation owns it. Whether that is settled.
fn settle_copy(store: &Store, plan: &CopyPlan) -> bool {
    match has_owner(store, &plan.upstream_id) {
        Some(true) => return true,
        Some(false) => {}
        None => return false,
    }
    if let Err(error) = remove_copy(&plan.transcript) {
        tracing::warn!(path = %plan.transcript.display(), error = chain_text(&error), "could not delete an unfinished copy; the next start tries again");
        return false;
    }
    for folder in plan.folders.iter().rev() {
        // Fails if other files are in it.
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
    tracing::info!(upstream_id = %plan.upstream_id, "deleted an unfinished copy");
    true
}

/// Brings the files of a fork once more, or deletes what was copied of them if the fork is missing by now. Whether that is settled.
fn finish_files(fork: &Path) -> bool {
    let finished = match fork.symlink_metadata().is_ok() {
        true => bring_files(fork),
        false => remove_unfinished_files(fork),
    };
    match &finished {
        Ok(()) => tracing::info!(fork = %fork.display(), "brought the files that a fork names"),
        Err(error) => {
            tracing::warn!(fork = %fork.display(), error = chain_text(error), "could not bring the files that a fork names; the next start tries again");
        }
    }
    finished.is_ok()
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = fs::remove_file(path);
    if let Err(error) = &removed {
        tracing::warn!(path = %path.display(), %error, "could not delete the plan of a copy");
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

    /// Creates everything that a copy of this id may have left.
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

    /// The owner may be among what was lost.
    #[tokio::test]
    async fn copies_stay_where_the_store_lost_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (data, place) = (folder.path().join("data"), folder.path().join("store"));
        fs::create_dir_all(&data).unwrap();
        let (store, closing) = Store::open(&place, StoreOptions::default()).unwrap();
        let copy = leave(folder.path(), "copy");
        let plans = CopyPlans::below(&data);
        plans.note(&store, &"copy".into(), &copy).unwrap();
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
        drop((store, plans));
        drop(closing);
        let journal = place.join("journal.jsonl");
        let text = fs::read_to_string(&journal).unwrap();
        // Neither file has the change that names the owner of the copy.
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        lines.remove(1);
        let lost = lines.concat();
        fs::write(&journal, lost).unwrap();
        fs::remove_dir_all(place.join("store")).unwrap();
        let (store, _closing) = Store::open(&place, StoreOptions::default()).unwrap();
        assert!(store.opening().may_have_lost());
        let before = fs::read_to_string(&copy).unwrap();
        CopyPlans::below(&data).settle(&store);
        assert_eq!(fs::read_to_string(&copy).unwrap(), before);
        // A later start does not know of the loss.
        CopyPlans::below(&data).settle(&store);
        assert!(copy.exists());
        assert!(data.join(FOLDER).join("copy.set-aside-1").exists());
    }

    #[tokio::test]
    async fn copies_without_an_owner_are_deleted_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let (data, project) = (folder.path().join("data"), folder.path().join("project"));
        fs::create_dir_all(&project).unwrap();
        fs::create_dir_all(&data).unwrap();
        let disk = Disk::of(&data);
        let (store, _) = Store::open(&folder.path().join("store"), StoreOptions::default()).unwrap();
        let plans = CopyPlans::below(&data);
        let stranger = leave(&project, "strange");
        let mine = leave(&project, "mine");
        for (id, path) in [("nobodys", leave(&project, "nobodys")), ("mine", mine.clone())] {
            plans.note(&store, &id.into(), &path).unwrap();
            disk.check_lasts("the plan of a copy");
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

        // A store that is not kept knows no owners.
        let forgetful = Store::ephemeral().unwrap();
        CopyPlans::below(&data).settle(&forgetful);
        CopyPlans::below(&data)
            .note(&forgetful, &"unnoted".into(), &mine)
            .unwrap();
        assert_eq!(
            names(&data.join(FOLDER)),
            ["damaged", "mine", "nobodys", "unbegun.new"]
        );

        let next = CopyPlans::below(&data);
        // What this daemon began is not an earlier one's.
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

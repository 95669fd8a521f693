//! Copies that a kill may leave unfinished: copies of transcripts, and of files that a fork refers to.
//!
//! Owns the intents (`files::intent`), called plans here, that are written before a copy is made. At a start, the plan of a
//! transcript's copy causes the copy to be deleted if no conversation owns the session and the file is still the one that was
//! written. The plan of a fork's files causes them to be copied again. Blocks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::UpstreamId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::services::chain_text;
use super::unfinished::{UndoPolicy, has_owner};
use crate::files::durable::{missing_folders, sync_folder_of};
use crate::files::identity::FileIdentity;
use crate::files::intent::{self, Intent, IntentDecision, IntentKind, IntentStep, LogContent, NewName};
use crate::files::is_absence;
use crate::files::set_aside::Unreadable;
use crate::paths::names;
use crate::store::{RequestId, Store};
use crate::transcript::TranscriptError;
use crate::transcript::claude::cut::copy_borrowed_files;
use crate::transcript::copy::{remove_copy, remove_unfinished_files};

/// The intents of copies.
pub(crate) const COPY_INTENTS: IntentKind<CopyDescription> = IntentKind {
    folder: names::COPIES,
    log_name: None,
    parse_headerless: parse_old_log,
};

/// A line of an older version's log. The first line describes the copy.
#[derive(Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum OldLine {
    Transcript {
        upstream_id: UpstreamId,
        transcript: PathBuf,
        #[serde(default)]
        folders: Vec<PathBuf>,
    },
    Whole {
        whole: OldIdentity,
    },
    Asked {
        request: RequestId,
    },
    Files {
        fork: PathBuf,
    },
}

#[derive(Deserialize)]
struct OldIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

fn parse_old_log(lines: Vec<Value>) -> Option<LogContent<CopyDescription>> {
    let mut log = LogContent {
        descriptions: Vec::new(),
        groups: Vec::new(),
    };
    for line in lines {
        match (serde_json::from_value(line).ok()?, log.descriptions.first()) {
            (
                OldLine::Transcript {
                    upstream_id,
                    transcript,
                    folders,
                },
                None,
            ) => {
                log.groups
                    .push(folders.into_iter().map(IntentStep::Folder).collect());
                log.descriptions.push(CopyDescription::Transcript {
                    upstream_id,
                    transcript,
                });
            }
            (OldLine::Files { fork }, None) => log.descriptions.push(CopyDescription::Files { fork }),
            (OldLine::Whole { whole }, Some(CopyDescription::Transcript { transcript, .. })) => {
                let identity = FileIdentity {
                    device: whole.device,
                    inode: whole.inode,
                    bytes: whole.bytes,
                    modified: Some((whole.seconds, whole.nanoseconds)),
                };
                log.groups.push(vec![IntentStep::File(NewName {
                    path: transcript.clone(),
                    identity,
                    sha256: None,
                    session: None,
                })]);
            }
            (OldLine::Asked { request }, Some(CopyDescription::Transcript { .. })) => {
                log.descriptions.push(CopyDescription::Asked(request));
            }
            _ => return None,
        }
    }
    Some(log)
}

/// The suffix of the plan for a fork's files.
const FILES_SUFFIX: &str = ".files";

/// A copy of a transcript that no conversation refers to yet. Dropping it deletes the file and its plan, unless the copy was
/// committed.
#[derive(Debug)]
pub struct UncommittedCopy {
    /// `None` once it is decided what becomes of the copy.
    transcript: Option<PathBuf>,
    plan: PathBuf,
}

impl UncommittedCopy {
    /// Keeps the copy, because a conversation refers to it now. Deletes its plan on a blocking thread: a later start with a
    /// store restored from a backup may not know the conversation, and would delete the transcript by the plan.
    pub fn commit(mut self) {
        self.transcript = None;
        let plan = std::mem::take(&mut self.plan);
        // What could not be deleted is in the log.
        let remove = move || drop(remove(&plan));
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }

    /// Keeps the copy and its plan, because a conversation may refer to it. The next start decides.
    pub fn leave_to_next_start(mut self) {
        self.transcript = None;
    }

    /// Deletes the copy on a blocking thread, and waits. Dropping it instead deletes it on the caller's thread.
    pub async fn remove(self) {
        if let Some(removing) = self.remove_in_background() {
            // What could not be removed is in the log.
            let _removed = removing.await;
        }
    }

    /// Deletes the copy on a blocking thread. Outside a runtime it is deleted at once, and this returns `None`.
    pub fn remove_in_background(self) -> Option<JoinHandle<()>> {
        let runtime = Handle::try_current().ok()?;
        Some(runtime.spawn_blocking(move || drop(self)))
    }
}

impl Drop for UncommittedCopy {
    fn drop(&mut self) {
        let Some(transcript) = &self.transcript else {
            return;
        };
        match remove_copy(transcript) {
            // What could not be deleted is in the log.
            Ok(()) => drop(remove(&self.plan)),
            Err(error) => {
                tracing::warn!(path = %transcript.display(), error = chain_text(&error), "could not delete a copy that no conversation uses");
            }
        }
    }
}

/// An entry in the plan of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum CopyDescription {
    /// A transcript is about to be copied.
    Transcript {
        upstream_id: UpstreamId,
        transcript: PathBuf,
    },
    /// The copy is the result of this call, which concerns no conversation. Once the call is answered, the copy stays.
    Asked(RequestId),
    /// A fork made by the agent. The files that it refers to are copied to it.
    Files { fork: PathBuf },
}

/// How long after its plan an unrecorded copy may have been written, in seconds.
const MAX_UNRECORDED_SECONDS: i64 = 10;

/// The plans of all copies.
pub struct CopyPlans {
    data: PathBuf,
    store: Store,
    /// The plans of earlier daemons. `None` if they could not be listed.
    earlier: Option<Vec<PathBuf>>,
}

impl CopyPlans {
    /// The plans in the data folder. Those that exist now belong to earlier daemons. With an in-memory store none are written:
    /// the next start would find no owner, because such a store forgets the conversations.
    #[must_use]
    pub fn in_data_folder(data: &Path, store: Store) -> Self {
        Self {
            data: data.to_owned(),
            store,
            earlier: intent::existing(&COPY_INTENTS, data).ok(),
        }
    }

    fn path(&self, upstream_id: &UpstreamId) -> PathBuf {
        self.data.join(COPY_INTENTS.folder).join(upstream_id.as_str())
    }

    fn find(&self, upstream_id: &UpstreamId) -> io::Result<Intent<CopyDescription>> {
        Ok(Intent::find(&COPY_INTENTS, &self.data, upstream_id.as_str())?)
    }

    /// A complete copy, after [`record_complete`](Self::record_complete).
    #[must_use]
    pub fn uncommitted(&self, upstream_id: &UpstreamId, transcript: PathBuf) -> UncommittedCopy {
        UncommittedCopy {
            transcript: Some(transcript),
            plan: self.path(upstream_id),
        }
    }

    /// Records the identity of a complete copy. Only that file may be deleted later.
    pub fn record_complete(&self, upstream_id: &UpstreamId, transcript: &Path) {
        if self.store.status().is_ephemeral {
            return;
        }
        let record = || {
            let file = NewName {
                path: transcript.to_owned(),
                identity: FileIdentity::at(transcript)?,
                sha256: None,
                session: None,
            };
            self.find(upstream_id)?
                .record_steps(vec![vec![IntentStep::File(file)]])
        };
        if let Err(error) = record() {
            tracing::warn!(%upstream_id, %error, "could not record that a copy is whole; after a kill it would stay");
        }
    }

    /// Writes the plan for a copy that is about to become the transcript of this session.
    ///
    /// # Errors
    /// [`TranscriptError::Io`]; then the copy must not be made.
    pub fn begin(&self, upstream_id: &UpstreamId, transcript: &Path) -> Result<(), TranscriptError> {
        if self.store.status().is_ephemeral {
            return Ok(());
        }
        let folder = transcript.parent().unwrap_or(Path::new("/"));
        let folders = missing_folders(folder).into_iter();
        let about = CopyDescription::Transcript {
            upstream_id: upstream_id.clone(),
            transcript: transcript.to_owned(),
        };
        let groups = vec![
            folders
                .map(|folder| IntentStep::Folder(folder.to_owned()))
                .collect(),
        ];
        Intent::begin(&COPY_INTENTS, &self.data, upstream_id.as_str(), about, groups)
            .map(drop)
            .map_err(TranscriptError::io("write", &self.path(upstream_id)))
    }

    /// Records which call requested a copy that no conversation will own, before that call's answer is recorded.
    ///
    /// # Errors
    /// [`TranscriptError::Io`]; then the answer must not be recorded.
    pub fn record_request(
        &self,
        upstream_id: &UpstreamId,
        request: &RequestId,
    ) -> Result<(), TranscriptError> {
        if self.store.status().is_ephemeral {
            return Ok(());
        }
        self.find(upstream_id)
            .and_then(|mut intent| intent.add_description(CopyDescription::Asked(request.clone())))
            .map_err(TranscriptError::io("write", &self.path(upstream_id)))
    }

    /// Deletes the plan of a copy that no conversation owns, so that the copy stays. The caller receives its id next.
    ///
    /// # Errors
    /// [`TranscriptError::Io`]; then the next start may delete it.
    pub fn remove_plan(&self, upstream_id: &UpstreamId) -> Result<(), TranscriptError> {
        let path = self.path(upstream_id);
        match fs::remove_file(&path) {
            Ok(()) => sync_folder_of(&path),
            // With an in-memory store there are no plans.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
        .map_err(TranscriptError::io("remove", &path))
    }

    /// Copies the files that a fork made by the agent refers to, with [`copy_borrowed_files`]. After a kill, the next start
    /// continues.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn copy_borrowed_files(&self, upstream_id: &UpstreamId, fork: &Path) -> Result<(), TranscriptError> {
        if self.store.status().is_ephemeral {
            return copy_borrowed_files(fork);
        }
        let name = format!("{upstream_id}{FILES_SUFFIX}");
        let path = self.data.join(COPY_INTENTS.folder).join(&name);
        let about = CopyDescription::Files {
            fork: fork.to_owned(),
        };
        match Intent::begin(&COPY_INTENTS, &self.data, &name, about.clone(), Vec::new()) {
            // An earlier start could not finish the same plan.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && Intent::find(&COPY_INTENTS, &self.data, &name)
                        .is_ok_and(|found| found.descriptions() == [about]) => {}
            begun => drop(begun.map_err(TranscriptError::io("write", &path))?),
        }
        let copied = copy_borrowed_files(fork);
        // Even after a failure: the original files are untouched, and nothing is left unfinished.
        let _logged = remove(&path);
        copied
    }

    /// Settles the plans of earlier daemons: deletes copies whose session no conversation owns. Call this when their unfinished
    /// turns are settled. Returns whether each plan is carried out or set aside.
    #[must_use]
    pub fn settle(&self) -> bool {
        let policy = UndoPolicy::of(&self.store);
        if policy == UndoPolicy::Leave {
            return true;
        }
        let Some(earlier) = &self.earlier else {
            return false;
        };
        intent::settle(&COPY_INTENTS, earlier, &|_| true, |intent| {
            match (&intent.descriptions().first(), &policy) {
                (Some(CopyDescription::Files { fork }), _) if settle_fork_files(fork) => {
                    IntentDecision::Commit
                }
                (Some(CopyDescription::Files { .. }), _) => IntentDecision::Later,
                // The copy may be the only file with the turns since it was made.
                (Some(CopyDescription::Transcript { .. }), UndoPolicy::SetAside(why)) => {
                    IntentDecision::SetAside(why.clone())
                }
                (
                    Some(CopyDescription::Transcript {
                        upstream_id,
                        transcript,
                    }),
                    _,
                ) => {
                    let outcome = settle_copy(&self.store, intent, upstream_id, transcript);
                    outcome.unwrap_or_else(|error| {
                        tracing::warn!(path = %transcript.display(), %error, "cannot look at an unfinished copy; the next start tries again");
                        IntentDecision::Later
                    })
                }
                (Some(CopyDescription::Asked(_)) | None, _) => {
                    let why = "it does not say what is copied".to_owned();
                    IntentDecision::SetAside(Unreadable::Damaged(why))
                }
            }
        })
    }
}

/// Deletes a copy if no conversation owns it and it is not the result of an answered call. If the file has changed, it may be
/// in use by a conversation that an older store does not know: its plan is set aside.
///
/// # Errors
/// The system's error. The plan then stays for the next start.
fn settle_copy(
    store: &Store,
    intent: &Intent<CopyDescription>,
    upstream_id: &UpstreamId,
    transcript: &Path,
) -> io::Result<IntentDecision> {
    let request = intent.descriptions().iter().find_map(|about| match about {
        CopyDescription::Asked(request) => Some(request),
        _ => None,
    });
    let is_answered = request.map_or(Ok(None), |request| store.request(None, request));
    match (has_owner(store, upstream_id), is_answered) {
        (Some(true), _) | (_, Ok(Some(_))) => return Ok(IntentDecision::Commit),
        (Some(false), Ok(None)) => {}
        (None, _) | (_, Err(_)) => return Ok(IntentDecision::Later),
    }
    let recorded = intent.groups().iter().flatten().find_map(|step| match step {
        IntentStep::File(file) => Some(file.identity),
        _ => None,
    });
    match FileIdentity::at(transcript) {
        Ok(current) if recorded == Some(current) => {}
        // The daemon was killed between renaming the copy and recording it.
        Ok(current) if recorded.is_none() && is_as_new_as(&current, intent.path())? => {}
        Ok(_) => return Ok(IntentDecision::SetAside(Unreadable::CopyChanged)),
        Err(error) if is_absence(&error) => {}
        Err(error) => return Err(error),
    }
    if let Err(error) = remove_copy(transcript) {
        tracing::warn!(path = %transcript.display(), error = chain_text(&error), "could not delete an unfinished copy; the next start tries again");
        return Ok(IntentDecision::Later);
    }
    tracing::info!(%upstream_id, "deleted an unfinished copy");
    Ok(IntentDecision::Undo)
}

/// Whether a copy was last written just after its plan, so nothing used it since. If writing took longer, it counts as used.
fn is_as_new_as(copy: &FileIdentity, plan: &Path) -> io::Result<bool> {
    let planned = FileIdentity::at(plan)?.modified;
    let latest = planned.map(|(seconds, nanoseconds)| (seconds + MAX_UNRECORDED_SECONDS, nanoseconds));
    Ok(planned <= copy.modified && copy.modified <= latest)
}

/// Copies the files of a fork again, or if it is missing, deletes the unfinished ones. Returns whether this succeeded.
fn settle_fork_files(fork: &Path) -> bool {
    let settled = match fork.symlink_metadata().is_ok() {
        true => copy_borrowed_files(fork),
        false => remove_unfinished_files(fork),
    };
    match &settled {
        Ok(()) => tracing::info!(fork = %fork.display(), "copied the files that a fork refers to"),
        Err(error) => {
            tracing::warn!(fork = %fork.display(), error = chain_text(error), "could not bring the files that a fork names; the next start tries again");
        }
    }
    settled.is_ok()
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::remove_file(path) {
        // With an in-memory store there are no plans.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    if let Err(error) = &removed {
        tracing::warn!(path = %path.display(), %error, "could not delete the plan of a copy");
    }
    removed
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bridge_protocol::ConversationId;
    use serde_json::json;
    use uuid::Uuid;

    use crate::conversation::answer::{Answer, CallKey};
    use crate::conversation::services::now;
    use crate::files::checked_lines::CheckedFile;
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
        let plans = CopyPlans::in_data_folder(&data, store.clone());
        plans.begin(&"copy".into(), &copy).unwrap();
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
        assert!(store.open_report().may_have_lost());
        let before = fs::read_to_string(&copy).unwrap();
        assert!(CopyPlans::in_data_folder(&data, store.clone()).settle());
        assert_eq!(fs::read_to_string(&copy).unwrap(), before);
        // A later start does not know of the loss.
        assert!(CopyPlans::in_data_folder(&data, store.clone()).settle());
        assert!(copy.exists());
        assert!(data.join(COPY_INTENTS.folder).join("copy.set-aside-1").exists());
    }

    #[tokio::test]
    async fn copies_without_an_owner_are_deleted_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let (data, project) = (folder.path().join("data"), folder.path().join("project"));
        fs::create_dir_all(&project).unwrap();
        fs::create_dir_all(&data).unwrap();
        let disk = Disk::of(&data);
        let (store, _) = Store::open(&folder.path().join("store"), StoreOptions::default()).unwrap();
        let plans = CopyPlans::in_data_folder(&data, store.clone());
        let stranger = leave(&project, "strange");
        let mine = leave(&project, "mine");
        for (id, path) in [("nobodys", leave(&project, "nobodys")), ("mine", mine.clone())] {
            plans.begin(&id.into(), &path).unwrap();
            plans.record_complete(&id.into(), &path);
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
        fs::write(data.join(COPY_INTENTS.folder).join("damaged"), "{\"upstr").unwrap();
        fs::write(data.join(COPY_INTENTS.folder).join("unbegun.new"), "{\"upstr").unwrap();

        // A store that is not kept knows no owners.
        let forgetful = Store::ephemeral().unwrap();
        assert!(CopyPlans::in_data_folder(&data, forgetful.clone()).settle());
        CopyPlans::in_data_folder(&data, forgetful)
            .begin(&"unnoted".into(), &mine)
            .unwrap();
        assert_eq!(
            names(&data.join(COPY_INTENTS.folder)),
            ["damaged", "mine", "nobodys", "unbegun.new"]
        );

        let next = CopyPlans::in_data_folder(&data, store.clone());
        // What this daemon began is not an earlier one's.
        let running = leave(&project, "running");
        next.begin(&"running".into(), &running).unwrap();
        assert!(next.settle());
        let left: Vec<String> = names(&project);
        for id in ["mine", "running", "strange"] {
            assert!(
                left.iter().any(|name| name == &format!("{id}.jsonl")),
                "{id}: {left:?}"
            );
        }
        assert!(!left.iter().any(|name| name.contains("nobodys")), "{left:?}");
        assert!(stranger.exists() && mine.exists());
        assert_eq!(
            names(&data.join(COPY_INTENTS.folder)),
            ["damaged.set-aside-1", "running"]
        );
    }

    /// An older version wrote its plans in lines of another form.
    #[tokio::test]
    async fn what_an_older_version_left_is_settled() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(data.join(COPY_INTENTS.folder)).unwrap();
        let (store, _closing) = Store::open(&folder.path().join("store"), StoreOptions::default()).unwrap();
        let [whole, changed, begun] = ["whole", "changed", "begun"].map(|id| {
            let copy = leave(folder.path(), id);
            let plan = json!({"upstreamId": id, "transcript": copy});
            let mut file = CheckedFile::create(&data.join(COPY_INTENTS.folder).join(id), &plan).unwrap();
            if id != "begun" {
                let found = FileIdentity::at(&copy).unwrap();
                let (seconds, nanoseconds) = found.modified.unwrap();
                let whole = json!({"device": found.device, "inode": found.inode, "bytes": found.bytes,
                    "seconds": seconds, "nanoseconds": nanoseconds});
                file.append(&json!({"whole": whole})).unwrap();
            } else {
                // The plan was there first.
                leave(folder.path(), id);
            }
            copy
        });
        let files = json!({"fork": begun});
        CheckedFile::create(&data.join(COPY_INTENTS.folder).join("fork.files"), &files).unwrap();
        fs::write(&changed, "{}\n{\"more\":1}\n").unwrap();
        assert!(CopyPlans::in_data_folder(&data, store.clone()).settle());
        let is_there = [&whole, &changed, &begun].map(|copy| copy.exists());
        assert_eq!(is_there, [false, true, false]);
        assert_eq!(names(&data.join(COPY_INTENTS.folder)), ["changed.set-aside-1"]);
    }

    /// A store from a backup does not know the conversation that has used the copy since.
    #[tokio::test]
    async fn a_copy_that_was_used_stays_where_the_store_does_not_know_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(&data).unwrap();
        let (store, _closing) = Store::open(&folder.path().join("store"), StoreOptions::default()).unwrap();
        let plans = CopyPlans::in_data_folder(&data, store.clone());
        // With the plan of an older version, which did not record the whole copy.
        let [grown, rewritten, old] = ["grown", "rewritten", "old"].map(|id| {
            let copy = leave(folder.path(), id);
            plans.begin(&id.into(), &copy).unwrap();
            if id == "old" {
                let file = fs::File::options().append(true).open(&copy).unwrap();
                let written = file.metadata().unwrap().modified().unwrap();
                file.set_modified(written + Duration::from_secs(60)).unwrap();
            } else {
                plans.record_complete(&id.into(), &copy);
            }
            copy
        });
        fs::write(&grown, "{}\n{\"more\":1}\n").unwrap();
        // The same text in another file.
        fs::write(folder.path().join("other"), "{}\n").unwrap();
        fs::rename(folder.path().join("other"), &rewritten).unwrap();
        for _start in 0..2 {
            assert!(CopyPlans::in_data_folder(&data, store.clone()).settle());
            for copy in [&grown, &rewritten, &old] {
                assert!(copy.exists(), "{copy:?}");
                assert!(copy.with_extension("").exists(), "{copy:?}");
            }
        }
        let aside = ["grown", "old", "rewritten"].map(|id| format!("{id}.set-aside-1"));
        assert_eq!(names(&data.join(COPY_INTENTS.folder)), aside);
    }

    /// A kill between the rename and the record leaves a copy that nobody has used. One that was written later was used.
    #[tokio::test]
    async fn an_unrecorded_copy_is_deleted_unless_it_was_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(&data).unwrap();
        let (store, _closing) = Store::open(&folder.path().join("store"), StoreOptions::default()).unwrap();
        let plans = CopyPlans::in_data_folder(&data, store.clone());
        let [new, used] = ["new", "used"].map(|id| {
            let copy = folder.path().join(format!("{id}.jsonl"));
            plans.begin(&id.into(), &copy).unwrap();
            leave(folder.path(), id)
        });
        let file = fs::File::options().append(true).open(&used).unwrap();
        let later = file.metadata().unwrap().modified().unwrap() + Duration::from_secs(60);
        file.set_modified(later).unwrap();
        assert!(CopyPlans::in_data_folder(&data, store.clone()).settle());
        assert!(!new.exists() && used.exists());
        assert_eq!(names(&data.join(COPY_INTENTS.folder)), ["used.set-aside-1"]);
    }

    /// A kill came after the answer was recorded, or before.
    #[tokio::test]
    async fn a_copy_that_belongs_to_no_conversation_stays_if_its_call_was_answered() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(&data).unwrap();
        let (store, _closing) = Store::open(&folder.path().join("store"), StoreOptions::default()).unwrap();
        let plans = CopyPlans::in_data_folder(&data, store.clone());
        let [answered, unanswered] = ["answered", "unanswered"].map(|id| {
            let copy = leave(folder.path(), id);
            plans.begin(&id.into(), &copy).unwrap();
            plans.record_complete(&id.into(), &copy);
            plans.record_request(&id.into(), &RequestId::new(id)).unwrap();
            copy
        });
        let request = CallKey {
            id: RequestId::new("answered"),
            fingerprint: String::new(),
        };
        let change = Change {
            requests: vec![request.to_answered_record(&Answer::Done, now())],
            ..Change::default()
        };
        store.commit(change).await.unwrap();
        assert!(CopyPlans::in_data_folder(&data, store.clone()).settle());
        assert!(answered.exists() && !unanswered.exists());
        assert!(!data.join(COPY_INTENTS.folder).exists());
    }

    /// Then a later start must still know that the store lost changes.
    #[tokio::test]
    async fn plans_that_can_be_neither_read_nor_set_aside_are_not_settled() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _closing) = Store::open(&folder.path().join("store"), StoreOptions::default()).unwrap();
        for (name, is_folder) in [("data/copies", false), ("other/copies/plan", true)] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match is_folder {
                true => fs::create_dir(&path).unwrap(),
                false => fs::write(&path, "no folder").unwrap(),
            }
            let data = folder.path().join(name.split('/').next().unwrap());
            assert!(
                !CopyPlans::in_data_folder(&data, store.clone()).settle(),
                "{name}"
            );
        }
    }

    #[tokio::test]
    async fn files_are_brought_although_a_start_left_the_same_plan() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let (store, _closing) = Store::open(&folder.path().join("store"), StoreOptions::default()).unwrap();
        let fork = folder.path().join("fork.jsonl");
        fs::write(&fork, "{}\n").unwrap();
        let plans = CopyPlans::in_data_folder(&data, store.clone());
        let begin = |fork: &Path| {
            let fork = fork.to_owned();
            Intent::begin(
                &COPY_INTENTS,
                &data,
                "fork.files",
                CopyDescription::Files { fork },
                Vec::new(),
            )
            .unwrap();
        };
        begin(&fork);
        plans.copy_borrowed_files(&"fork".into(), &fork).unwrap();
        assert!(names(&data.join(COPY_INTENTS.folder)).is_empty());
        // The plan of another fork is not this one's.
        begin(&folder.path().join("other"));
        assert!(plans.copy_borrowed_files(&"fork".into(), &fork).is_err());
        assert_eq!(names(&data.join(COPY_INTENTS.folder)), ["fork.files"]);
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

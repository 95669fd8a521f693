//! Puts the files of imported sessions into the agents' folders.
//!
//! Owns these files, and deletes them again unless the import is completed. Blocks.

use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use bridge_protocol::{ConversationId, UpstreamId};
use uuid::Uuid;

use super::super::bundle::{BundleError, BundledSession, file_error};
use super::super::running_work::Progress;
use super::import_intents::IMPORT_INTENTS;
use crate::files::durable::{missing_folders, temporary_path};
use crate::files::identity::{FileIdentity, Hashed};
use crate::files::intent::{Intent, IntentStep, NewName};
use crate::files::open_file;
use crate::transcript::meter::ProgressReader;
use crate::transcript::relocate::{Relocation, rewrite_lines};
use crate::transcript::rewrite::LineChange;
use crate::transcript::{TranscriptError, copy, parts};

/// The size of read buffers, in bytes.
pub(super) const BUFFER_BYTES: usize = 256 * 1024;

/// Files and folders that an import created. Dropping this deletes those that are unchanged, unless [`PlacedFiles::commit`] was
/// called. If the daemon is killed, the next one reads the plan and deletes them.
pub(in crate::conversation) struct PlacedFiles {
    intent: Intent<ConversationId>,
    is_kept: bool,
    may_have_owner: MayHaveOwner,
}

/// Whether a conversation owns a session, or may own it: a client may adopt a session while it is being imported.
pub(super) type MayHaveOwner = Box<dyn Fn(&UpstreamId) -> bool + Send>;

impl PlacedFiles {
    /// Starts the plan of an import of the conversation `id`.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] if the plan cannot be written.
    pub(super) fn begin(
        data: &Path,
        id: ConversationId,
        may_have_owner: MayHaveOwner,
    ) -> Result<Self, TranscriptError> {
        let name = Uuid::new_v4().to_string();
        let intent = Intent::begin(&IMPORT_INTENTS, data, &name, id, Vec::new());
        Ok(Self {
            intent: intent.map_err(TranscriptError::io(
                "create",
                &data.join(IMPORT_INTENTS.folder).join(name),
            ))?,
            is_kept: false,
            may_have_owner,
        })
    }

    /// Keeps the files. Does not block, but dropping this afterwards does, because that deletes the unpacked bundle.
    pub(in crate::conversation) fn commit(&mut self) {
        self.is_kept = true;
    }

    /// The folder in which the bundle is unpacked.
    pub(super) fn staging_folder(&self) -> &Path {
        self.intent.path()
    }

    /// Creates the file `target` of a session, unless the same file exists. `fill` writes its content.
    ///
    /// # Errors
    /// [`TranscriptError::AlreadyExists`] if a different file is there, and errors of writing.
    pub(super) fn place_file(
        &mut self,
        target: &Path,
        session: &UpstreamId,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), BundleError>,
    ) -> Result<(), BundleError> {
        self.make_folder(target.parent().unwrap_or(Path::new("/")))?;
        let temporary = temporary_path(target);
        self.record_step(IntentStep::Temporary(temporary.clone()))?;
        let (written, sha256) = copy::fill_temporary(&temporary, |writer| -> Result<_, BundleError> {
            let mut hashed = Hashed::new(writer);
            fill(&mut hashed)?;
            Ok(hashed.digest())
        })?;
        if copy::target_has_same_content(&written, target)? {
            return Ok(());
        }
        let identity = FileIdentity::at(&temporary).map_err(TranscriptError::io("read", &temporary))?;
        self.record_step(IntentStep::File(NewName {
            path: target.to_owned(),
            identity,
            sha256: Some(sha256),
            session: Some(session.as_str().to_owned()),
        }))?;
        match copy::rename_to_final(&written, target) {
            Err(TranscriptError::AlreadyExists { .. })
                if copy::target_has_same_content(&written, target)? =>
            {
                Ok(())
            }
            settled => Ok(settled?),
        }
    }

    fn make_folder(&mut self, folder: &Path) -> Result<(), TranscriptError> {
        for missing in missing_folders(folder) {
            self.record_step(IntentStep::Folder(missing.to_owned()))?;
        }
        copy::make_folder(folder)
    }

    fn record_step(&mut self, step: IntentStep) -> Result<(), TranscriptError> {
        let written = self.intent.record_steps(vec![vec![step]]);
        written.map_err(TranscriptError::io("write", self.intent.path()))
    }
}

impl Drop for PlacedFiles {
    fn drop(&mut self) {
        // A failure is logged, and the next import or start tries again.
        let _is_settled = match self.is_kept {
            true => self.intent.commit().is_ok(),
            false => self
                .intent
                .undo(&|session| (self.may_have_owner)(&session.into())),
        };
    }
}

/// Puts the files of one session into the folder of its transcript. `sources` are the unpacked files in the bundle's order.
/// Returns how many lines were too long to edit.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] if a different file is there, and errors of reading and writing.
pub(super) fn place_files(
    placed: &mut PlacedFiles,
    session: &BundledSession,
    sources: &[PathBuf],
    (folder, new_id): (&Path, &UpstreamId),
    relocation: &Relocation,
    progress: &Progress,
) -> Result<u64, BundleError> {
    let mut unchanged = 0;
    let old_id = session.upstream_id.as_str();
    for (file, source) in session.files.iter().zip(sources) {
        // The manifest was checked, so a name starts with the id and does not leave the folder.
        let rest = file.name.strip_prefix(old_id).unwrap_or_default();
        let target = folder.join(format!("{new_id}{rest}"));
        placed.place_file(&target, new_id, |writer| {
            unchanged += write_relocated(source, &target, relocation, writer, progress)?;
            Ok(())
        })?;
    }
    Ok(unchanged)
}

fn write_relocated(
    source: &Path,
    target: &Path,
    relocation: &Relocation,
    writer: &mut dyn Write,
    progress: &Progress,
) -> Result<u64, BundleError> {
    let is_edited = !relocation.is_empty() && parts::is_lines(target);
    match is_edited {
        true => write_changed(source, target, writer, progress, relocation),
        false => write_changed(source, target, writer, progress, &Relocation::default()).map(|_| 0),
    }
}

/// Writes a file of the bundle with edited lines. Returns how many lines were too long to be edited.
pub(super) fn write_changed(
    source: &Path,
    target: &Path,
    writer: &mut dyn Write,
    progress: &Progress,
    change: &impl LineChange,
) -> Result<u64, BundleError> {
    let file = open_file(source).map_err(TranscriptError::io("open", source))?;
    let file = ProgressReader::new(file, |bytes| progress.add_done_bytes_io(bytes));
    let reader = BufReader::with_capacity(BUFFER_BYTES, file);
    rewrite_lines(reader, writer, change).map_err(file_error("write", target))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::sync::Arc;

    use super::super::super::running_work::RunningWork;
    use super::*;
    use crate::transcript::relocate::HELD_LINE_LIMIT_BYTES;
    use tokio_util::sync::CancellationToken;

    /// Three files of an import: one as it was put there, one that was added to, one that is another by now.
    fn placed(data: &Path) -> (PlacedFiles, [PathBuf; 3]) {
        let may_have_owner = |session: &UpstreamId| session.as_str() == "adopted";
        let mut placed = PlacedFiles::begin(data, ConversationId::mint(), Box::new(may_have_owner)).unwrap();
        let files = ["a/b/ours", "a/grown", "c/replaced"].map(|name| data.join(name));
        for file in &files {
            let filled = placed.place_file(file, &"s".into(), |writer| {
                writer.write_all(b"text").unwrap();
                Ok(())
            });
            filled.unwrap();
        }
        fs::write(&files[1], "text and more").unwrap();
        fs::write(data.join("c/other"), "text").unwrap();
        fs::rename(data.join("c/other"), &files[2]).unwrap();
        (placed, files)
    }

    /// With the other files of its session.
    #[test]
    fn a_failed_import_leaves_a_session_that_was_adopted_meanwhile() {
        let data = tempfile::tempdir().unwrap();
        let (mut placed, [ours, ..]) = placed(data.path());
        let files =
            ["adopted.jsonl", "adopted/tool-results/r.txt"].map(|name| data.path().join("a").join(name));
        for file in &files {
            let filled = placed.place_file(file, &"adopted".into(), |writer| {
                writer.write_all(b"text").unwrap();
                Ok(())
            });
            filled.unwrap();
        }
        drop(placed);
        assert!(!ours.exists() && files.iter().all(|file| file.exists()));
        assert!(!data.path().join("imports").exists());
    }

    #[test]
    fn a_plan_of_which_something_could_not_be_taken_back_stays() {
        let data = tempfile::tempdir().unwrap();
        let (mut placed, [ours, ..]) = placed(data.path());
        // No file, so that it cannot be removed as one.
        let stuck = data.path().join("a/stuck.tmp");
        placed.record_step(IntentStep::Temporary(stuck.clone())).unwrap();
        fs::create_dir(&stuck).unwrap();
        drop(placed);
        assert!(!ours.exists() && data.path().join("imports").exists());
    }

    #[test]
    fn lines_that_are_too_long_to_be_changed_are_counted_where_something_is_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("0"), folder.path().join("n.jsonl"));
        let long = "x".repeat(HELD_LINE_LIMIT_BYTES + 2 * BUFFER_BYTES);
        fs::write(
            &source,
            format!("{{\"sessionId\":\"s\",\"text\":\"{long}\"}}\n{{}}\n"),
        )
        .unwrap();
        let begun =
            Arc::new(RunningWork::default()).track("conversation/import", None, CancellationToken::new());
        let renamed = Relocation {
            sessions: BTreeMap::from([("s".to_owned(), "n".to_owned())]),
            ..Relocation::default()
        };
        for (target, relocation, count) in [
            (&target, &renamed, 1),
            (&target, &Relocation::default(), 0),
            (&folder.path().join("n/tool-results/t.txt"), &renamed, 0),
        ] {
            let unchanged = write_relocated(
                &source,
                target,
                relocation,
                &mut std::io::sink(),
                &begun.progress(),
            );
            assert_eq!(unchanged.unwrap(), count);
        }
    }
}

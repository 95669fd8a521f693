//! Copies the side files of a transcript for a copy of it: long tool results, and the transcripts of subagents.
//!
//! The files that the records name are copied, and the new records name the copies, so nothing is lost if the source session is
//! deleted. Until all copies are complete they are in a folder whose name no agent looks for; a failure deletes it. A file that
//! cannot be opened, or that is reached through a symbolic link, is not copied, and the records still name the original.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::files::durable::{self, NewFile, sync_folder, unfinished_path};
use crate::files::none_if_absent;
use crate::transcript::claude::borrowed_files::{Claimed, find_result, find_subagent};
use crate::transcript::claude::check::{SideFile, named_files};
use crate::transcript::claude::reading::Subagents;
use crate::transcript::copy::FILES;
use crate::transcript::lines::text_of_same_length;
use crate::transcript::parts::{self, SessionFile, is_lines};
use crate::transcript::relocate::{RESULTS, Relocation, named_result_paths, result_name, rewrite_lines};
use crate::transcript::rewrite::{EditableRecord, Edits};

/// The member of a record that names a subagent.
const AGENT: &[u8] = b"\"agentId\"";

/// The part of a file's name that shows it belongs to a subagent.
const SUBAGENTS: &str = "/subagents/";

/// Collects the files of one copy.
pub(in crate::transcript) struct SideFiles<'a> {
    /// The folder of the source's transcript.
    project: &'a Path,
    subagents: Subagents<'a>,
    /// The folder of the copy's transcript.
    folder: &'a Path,
    new_id: &'a str,
    claimed: Claimed,
    handled: BTreeSet<SideFile>,
    /// The new paths of the copied results, and the session ids that are replaced.
    relocation: Relocation,
    /// The transcripts of subagents. They are copied last, when all files that they name are known.
    pending: Vec<SessionFile>,
    /// The folder of the copies.
    copy_folder: Option<CopyFolder>,
}

/// A folder that is deleted on drop, unless `is_kept` is set.
struct CopyFolder {
    path: PathBuf,
    is_kept: bool,
}

impl<'a> SideFiles<'a> {
    pub(in crate::transcript) fn new(source: &'a Path, folder: &'a Path, new_id: &'a str) -> Self {
        Self {
            project: source.parent().unwrap_or(Path::new("")),
            subagents: Subagents::new(source),
            folder,
            new_id,
            claimed: Claimed::default(),
            handled: BTreeSet::new(),
            relocation: Relocation::default(),
            pending: Vec::new(),
            copy_folder: None,
        }
    }

    /// Copies all files in the folder of the source session `id`, even those that no record names. Call this before
    /// [`SideFiles::copy_named_files`].
    ///
    /// # Errors
    /// The system's error.
    pub(in crate::transcript) fn copy_own_folder(&mut self, id: &str) -> io::Result<()> {
        if parts::own_folder(&self.project.join(format!("{id}.jsonl"))).is_none() {
            return Ok(());
        }
        let own = parts::folder_parts(self.project, id);
        for what in own.left_out {
            tracing::warn!(what, "cannot copy a file of a transcript");
        }
        self.relocation
            .sessions
            .insert(id.to_owned(), self.new_id.to_owned());
        let mut subagents = Vec::new();
        for mut part in own.files {
            let relative = part.name.split_once('/').map_or("", |(_, relative)| relative);
            let name = format!("{}/{relative}", self.new_id);
            let original_name = std::mem::replace(&mut part.name, name);
            if is_subagent(&part) {
                let agent = part
                    .path
                    .file_stem()
                    .and_then(|stem| stem.to_str()?.strip_prefix("agent-"));
                self.handled
                    .extend(agent.map(|agent| SideFile::Subagent(agent.to_owned())));
                subagents.push(part);
            } else if original_name.contains(RESULTS) {
                part.borrowed_name = Some(original_name);
                self.copy_result(&part)?;
            } else {
                self.copy(&part)?;
            }
        }
        subagents
            .into_iter()
            .try_for_each(|part| self.schedule_subagent(part))
    }

    /// Copies the files that a record names, and edits its line to name the copies.
    ///
    /// # Errors
    /// The system's error.
    pub(in crate::transcript) fn copy_named_files(
        &mut self,
        line: &[u8],
        edits: &mut Edits,
    ) -> io::Result<()> {
        let contains = |text| memchr::memmem::find(line, text).is_some();
        if !contains(RESULTS.as_bytes()) && !contains(AGENT) {
            return Ok(());
        }
        let (named, _) = named_files(line)?;
        let text = text_of_same_length(line);
        let record = EditableRecord::parse(&text);
        let replaced = record
            .iter()
            .flat_map(|record| named_result_paths(&record.fields));
        for file in named.into_iter().chain(replaced.map(SideFile::ToolResult)) {
            self.copy_named_file(file)?;
        }
        if let Some(record) = record {
            self.relocation.edit_results(line, &record, edits);
        }
        Ok(())
    }

    /// Syncs the copies and renames their folder to its final name. If that name `may_exist`, adds the copies to the folder
    /// instead; existing files are not replaced.
    ///
    /// # Errors
    /// The system's error, and [`io::ErrorKind::AlreadyExists`] if the name is taken.
    pub(in crate::transcript) fn settle(&mut self, may_exist: bool) -> io::Result<()> {
        for part in std::mem::take(&mut self.pending) {
            self.copy(&part)?;
        }
        let Some(copies) = &mut self.copy_folder else {
            return Ok(());
        };
        sync_folders(&copies.path)?;
        let final_path = self.folder.join(self.new_id);
        if may_exist {
            move_into_folder(&copies.path, &final_path)?;
        } else if final_path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        } else {
            durable::rename(&copies.path, &final_path)?;
            copies.path = final_path;
        }
        sync_folder(self.folder)
    }

    /// Keeps the copies, because the transcript has been renamed to its final name.
    pub(in crate::transcript) fn keep_copies(mut self) {
        if let Some(made) = &mut self.copy_folder {
            made.is_kept = true;
        }
    }

    fn copy_named_file(&mut self, file: SideFile) -> io::Result<()> {
        if !self.handled.insert(file.clone()) {
            return Ok(());
        }
        match file {
            SideFile::ToolResult(path) => self.copy_named_result(&path),
            SideFile::Subagent(agent) => self.copy_named_subagent(&agent),
        }
    }

    fn copy_named_result(&mut self, path: &str) -> io::Result<()> {
        // Results of the session itself are in place already.
        let recorded_name = result_name(path).filter(|name| !name.starts_with(&format!("{}/", self.new_id)));
        let recorded_name = recorded_name.filter(|name| !self.relocation.results.contains_key(*name));
        let part = recorded_name
            .and_then(|name| find_result(self.project, self.new_id, name.to_owned(), &self.claimed));
        let Some(mut part) = part else {
            return Ok(());
        };
        // Another session's result may have the same name. It gets a new file name rather than a subfolder, where a cut of this
        // cut would not look.
        if let [own, folder, session, name] = part.name.split('/').collect::<Vec<_>>()[..] {
            part.name = format!("{own}/{folder}/{session}-{name}");
        }
        self.copy_result(&part)
    }

    /// Copies a result. Later records name the copy.
    fn copy_result(&mut self, part: &SessionFile) -> io::Result<()> {
        if self.copy(part)?
            && let Some(known_as) = part.borrowed_name.clone()
        {
            self.claimed.add(self.project, part);
            let place = self.folder.join(&part.name).to_string_lossy().into_owned();
            self.relocation.results.insert(known_as, place);
        }
        Ok(())
    }

    fn copy_named_subagent(&mut self, agent: &str) -> io::Result<()> {
        let own = self.folder.join(self.new_id);
        let found = find_subagent(&self.subagents, self.project, self.new_id, agent);
        let Some((part, meta)) = found.filter(|(part, _)| !part.path.starts_with(&own)) else {
            return Ok(());
        };
        // The session that owns the file.
        let relative = part.path.strip_prefix(self.project).ok();
        let session = relative.and_then(|relative| relative.iter().next()?.to_str());
        if let Some(session) = session {
            let sessions = &mut self.relocation.sessions;
            sessions.insert(session.to_owned(), self.new_id.to_owned());
        }
        if let Some(meta) = meta {
            self.copy(&meta)?;
        }
        self.schedule_subagent(part)
    }

    /// Schedules the transcript of a subagent to be copied last, and copies the files that it names.
    fn schedule_subagent(&mut self, part: SessionFile) -> io::Result<()> {
        let Some(file) = open_if_permitted(&part)? else {
            return Ok(());
        };
        let (named, _) = named_files(BufReader::new(file.take(part.bytes)))?;
        self.pending.push(part);
        for file in named {
            self.copy_named_file(file)?;
        }
        Ok(())
    }

    /// Copies a file. Returns whether it could be opened.
    fn copy(&mut self, part: &SessionFile) -> io::Result<bool> {
        let Some(file) = open_if_permitted(part)? else {
            return Ok(false);
        };
        let copies = match &mut self.copy_folder {
            Some(copies) => copies,
            none => none.insert(CopyFolder {
                path: unfinished_path(self.folder, self.new_id, FILES),
                is_kept: false,
            }),
        };
        let relative = part.name.split_once('/').map_or("", |(_, relative)| relative);
        let target = copies.path.join(relative);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(target.parent().unwrap_or(&copies.path))?;
        let mut target = NewFile::create(&target)?;
        let mut reader = BufReader::new(file.take(part.bytes));
        if is_subagent(part) {
            rewrite_lines(reader, &mut target, &self.relocation)?;
        } else {
            io::copy(&mut reader, &mut target)?;
        }
        target.sync()?;
        Ok(true)
    }
}

/// Whether a file is the transcript of a subagent.
fn is_subagent(part: &SessionFile) -> bool {
    part.name.contains(SUBAGENTS) && is_lines(&part.path)
}

/// The content of a file to copy. `None` if this user cannot open it.
fn open_if_permitted(part: &SessionFile) -> io::Result<Option<Box<dyn Read>>> {
    match part.open() {
        Ok(file) => Ok(Some(file)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            tracing::warn!(path = %part.path.display(), %error, "a file of a transcript is not copied with it");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Moves files into a folder that may exist, except those whose names are taken there.
fn move_into_folder(from: &Path, to: &Path) -> io::Result<()> {
    if to.is_symlink() {
        let why = format!("{} is a link, and links are not followed", to.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            move_into_folder(&entry.path(), &target)?;
        } else if target.symlink_metadata().is_err() {
            durable::rename(&entry.path(), &target)?;
        }
    }
    sync_folder(to)
}

/// Syncs a folder and its subfolders.
fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    sync_folder(folder)
}

impl Drop for CopyFolder {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = none_if_absent(fs::remove_dir_all(&self.path))
        {
            tracing::warn!(path = %self.path.display(), %error, "could not delete the files of a failed copy");
        }
    }
}

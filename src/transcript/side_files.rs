//! Copies of the files beside a transcript, for a copy of that: long results of tools, and what subagents said.
//!
//! The files that the records name are copied, and the records name the copies, so that nothing is lost when the session
//! that they come from is deleted. Until all are whole they lie in a folder of no name that anybody looks for; a failure leaves
//! nothing of it. What is named and cannot be opened, or to which a symbolic link leads, stays named as it was.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::files::durable::{self, NewFile, sync_folder};
use crate::transcript::check::{SideFile, named_files};
use crate::transcript::copy::unfinished_files;
use crate::transcript::fields::Fields;
use crate::transcript::lent::{Taken, is_within, result};
use crate::transcript::lines::{text_of_same_length, trimmed};
use crate::transcript::moving::MEMORY;
use crate::transcript::parts::{self, Part, is_lines, side_part};
use crate::transcript::reading::Subagents;
use crate::transcript::relocate::{RESULTS, Relocation, named_results, relocate, result_name};

/// What a record has that names a subagent.
const AGENT: &[u8] = b"\"agentId\"";

/// What the names of their files have.
const SUBAGENTS: &str = "/subagents/";

/// Gathers the files of one copy.
pub(in crate::transcript) struct Beside<'a> {
    /// Where the transcripts of the source's project are.
    project: &'a Path,
    subagents: Subagents<'a>,
    /// Where the copy's transcript will be.
    folder: &'a Path,
    new_id: &'a str,
    taken: Taken,
    seen: BTreeSet<SideFile>,
    /// Where the results are that were taken, and which sessions' ids become the new one.
    relocation: Relocation,
    /// What subagents said, which is written when all is known that they name.
    said: Vec<Part>,
    /// Where the files are.
    made: Option<Made>,
    /// What their folder is called until all of them are there.
    until_whole: String,
}

/// A folder that is removed unless it stays.
struct Made {
    folder: PathBuf,
    stays: bool,
}

impl<'a> Beside<'a> {
    pub(in crate::transcript) fn new(source: &'a Path, folder: &'a Path, new_id: &'a str) -> Self {
        Self {
            project: source.parent().unwrap_or(Path::new("")),
            subagents: Subagents::new(source),
            folder,
            new_id,
            taken: Taken::default(),
            seen: BTreeSet::new(),
            relocation: Relocation::default(),
            said: Vec::new(),
            made: None,
            until_whole: unfinished_files(new_id),
        }
    }

    /// Takes all files in the folder of the session `id`, which is the source's, also those that no record names. To be called
    /// before any record is taken.
    ///
    /// # Errors
    /// What the system answers.
    pub(in crate::transcript) fn own(&mut self, id: &str) -> io::Result<()> {
        if id == MEMORY {
            // What the agent remembers of the project has this name.
            return Ok(());
        }
        let own = parts::beside(self.project, id);
        for what in own.left_out {
            tracing::warn!(what, "a file beside a transcript is not copied with it");
        }
        self.relocation
            .sessions
            .insert(id.to_owned(), self.new_id.to_owned());
        let mut said = Vec::new();
        for mut part in own.files {
            let below = part.name.split_once('/').map_or("", |(_, below)| below);
            let name = format!("{}/{below}", self.new_id);
            let known_as = std::mem::replace(&mut part.name, name);
            if is_said(&part) {
                let agent = part
                    .path
                    .file_stem()
                    .and_then(|stem| stem.to_str()?.strip_prefix("agent-"));
                self.seen
                    .extend(agent.map(|agent| SideFile::Subagent(agent.to_owned())));
                said.push(part);
            } else if known_as.contains(RESULTS) {
                part.known_as = Some(known_as);
                self.put_result(&part)?;
            } else {
                self.copy(&part)?;
            }
        }
        said.into_iter().try_for_each(|part| self.put_said(part))
    }

    /// Takes the files that a record names, and says what is to stand in its line instead.
    ///
    /// # Errors
    /// What the system answers.
    pub(in crate::transcript) fn record(&mut self, line: &[u8]) -> io::Result<Vec<(Range<usize>, String)>> {
        let names_results = memchr::memmem::find(line, RESULTS.as_bytes()).is_some();
        if !names_results && memchr::memmem::find(line, AGENT).is_none() {
            return Ok(Vec::new());
        }
        let (named, _) = named_files(line)?;
        let text = text_of_same_length(trimmed(line));
        let replaced = Fields::parse(&text).map(|fields| named_results(&fields));
        let replaced = replaced.unwrap_or_default().into_iter().map(SideFile::ToolResult);
        for file in named.into_iter().chain(replaced) {
            self.take(file)?;
        }
        if !names_results || self.relocation.results.is_empty() {
            return Ok(Vec::new());
        }
        let results = Relocation {
            results: std::mem::take(&mut self.relocation.results),
            ..Relocation::default()
        };
        let places = results.replacements(line);
        self.relocation.results = results.results;
        Ok(places.unwrap_or_default())
    }

    /// Gives the files their place, where all of them are synced before.
    ///
    /// # Errors
    /// What the system answers, also where the place is taken.
    pub(in crate::transcript) fn settle(&mut self) -> io::Result<()> {
        for part in std::mem::take(&mut self.said) {
            self.copy(&part)?;
        }
        let Some(made) = &mut self.made else {
            return Ok(());
        };
        sync_folders(&made.folder)?;
        let place = self.folder.join(self.new_id);
        if place.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        durable::rename(&made.folder, &place)?;
        made.folder = place;
        sync_folder(self.folder)
    }

    /// As [`settle`](Self::settle), beside files that are there already, which stay as they are.
    ///
    /// # Errors
    /// What the system answers.
    pub(in crate::transcript) fn join(mut self) -> io::Result<()> {
        for part in std::mem::take(&mut self.said) {
            self.copy(&part)?;
        }
        let Some(made) = &self.made else {
            return Ok(());
        };
        sync_folders(&made.folder)?;
        let place = self.folder.join(self.new_id);
        join_folders(&made.folder, &place)?;
        sync_folder(self.folder)
    }

    /// The files stay: the transcript has got its name.
    pub(in crate::transcript) fn keep(mut self) {
        if let Some(made) = &mut self.made {
            made.stays = true;
        }
    }

    fn take(&mut self, file: SideFile) -> io::Result<()> {
        if !self.seen.insert(file.clone()) {
            return Ok(());
        }
        match file {
            SideFile::ToolResult(path) => self.take_result(&path),
            SideFile::Subagent(agent) => self.take_subagent(&agent),
        }
    }

    fn take_result(&mut self, path: &str) -> io::Result<()> {
        // Its own are there.
        let known_as = result_name(path).filter(|name| !name.starts_with(&format!("{}/", self.new_id)));
        let known_as = known_as.filter(|name| !self.relocation.results.contains_key(*name));
        let part = known_as.and_then(|name| result(self.project, self.new_id, name.to_owned(), &self.taken));
        let Some(mut part) = part else {
            return Ok(());
        };
        // One of the same name as another session's: no folder of its own, in which a cut of the cut would not look.
        if let [own, folder, session, name] = part.name.split('/').collect::<Vec<_>>()[..] {
            part.name = format!("{own}/{folder}/{session}-{name}");
        }
        self.put_result(&part)
    }

    /// Copies a result, which records name from now on by its place in the copy.
    fn put_result(&mut self, part: &Part) -> io::Result<()> {
        if self.copy(part)?
            && let Some(known_as) = part.known_as.clone()
        {
            self.taken.add(self.project, part);
            let place = self.folder.join(&part.name).to_string_lossy().into_owned();
            self.relocation.results.insert(known_as, place);
        }
        Ok(())
    }

    fn take_subagent(&mut self, agent: &str) -> io::Result<()> {
        let found = self.subagents.find(agent);
        let own = self.folder.join(self.new_id);
        let found = found.filter(|path| is_within(self.project, path) && !path.starts_with(&own));
        let Some(path) = found else {
            return Ok(());
        };
        let name = format!("{}{SUBAGENTS}agent-{agent}.jsonl", self.new_id);
        let Some(part) = side_part(&path, name.clone()) else {
            return Ok(());
        };
        // Whose it was.
        let below = path.strip_prefix(self.project).ok();
        let session = below.and_then(|below| below.iter().next()?.to_str());
        if let Some(session) = session {
            let sessions = &mut self.relocation.sessions;
            sessions.insert(session.to_owned(), self.new_id.to_owned());
        }
        if let Some(meta) = side_part(
            &path.with_extension("meta.json"),
            name.replace(".jsonl", ".meta.json"),
        ) {
            self.copy(&meta)?;
        }
        self.put_said(part)
    }

    /// Has what a subagent said copied at the end, and takes the files that it names.
    fn put_said(&mut self, part: Part) -> io::Result<()> {
        let Some(file) = opened(&part)? else {
            return Ok(());
        };
        let (named, _) = named_files(BufReader::new(file.take(part.bytes)))?;
        self.said.push(part);
        for file in named {
            self.take(file)?;
        }
        Ok(())
    }

    /// Copies a file; whether it could be opened.
    fn copy(&mut self, part: &Part) -> io::Result<bool> {
        let Some(file) = opened(part)? else {
            return Ok(false);
        };
        let made = match &mut self.made {
            Some(made) => made,
            none => none.insert(Made {
                folder: self.folder.join(&self.until_whole),
                stays: false,
            }),
        };
        let below = part.name.split_once('/').map_or("", |(_, below)| below);
        let target = made.folder.join(below);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(target.parent().unwrap_or(&made.folder))?;
        let mut target = NewFile::create(&target)?;
        let mut reader = BufReader::new(file.take(part.bytes));
        if is_said(part) {
            relocate(reader, &mut target, |line| self.relocation.line(line), |_| Ok(()))?;
        } else {
            io::copy(&mut reader, &mut target)?;
        }
        target.sync()?;
        Ok(true)
    }
}

/// Whether a file is what a subagent said.
fn is_said(part: &Part) -> bool {
    part.name.contains(SUBAGENTS) && is_lines(&part.path)
}

/// A file to be copied; none where this user cannot open it, for then nobody who reads the copy could either.
fn opened(part: &Part) -> io::Result<Option<Box<dyn Read>>> {
    match part.open() {
        Ok(file) => Ok(Some(file)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            tracing::warn!(path = %part.path.display(), %error, "a file beside a transcript is not copied with it");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Moves files, but those whose names are taken, into a folder that may be there.
fn join_folders(from: &Path, to: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            join_folders(&entry.path(), &target)?;
        } else if target.symlink_metadata().is_err() {
            durable::rename(&entry.path(), &target)?;
        }
    }
    sync_folder(to)
}

/// Syncs a folder and those in it.
fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    sync_folder(folder)
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.stays
            && let Err(error) = fs::remove_dir_all(&self.folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.folder.display(), %error, "the files of a copy that failed could not be removed");
        }
    }
}

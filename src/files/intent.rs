//! Intents: logs of changes that the daemon makes outside its own folders, written before the changes.
//!
//! Copies without a conversation, imports, moves and tree moves work alike. A log is synced before the first change.
//! It describes the work, and each step before that step begins. It is deleted when a record elsewhere says that the
//! work is done. A start that finds a log asks its owner whether that record exists. If so, the work is committed;
//! otherwise it is undone. An unreadable log is set aside, a log of a newer version stays in place, and neither is
//! undone.
//!
//! | work | log | what else it needs |
//! |---|---|---|
//! | copies | `copies/ID` | the file's identity once it is complete; the request; a fork's files, which are copied again |
//! | imports | `imports/ID/plan` | a folder for the unpacked files; each file's session, which may have an owner by now |
//! | moves | `moves/NAME/journal` | the originals, kept until the record is written |
//! | tree moves | `trees/ID` | no steps: its moves have their own logs. The log stays, so that it can be undone |
//!
//! This module owns the format of a log, and how a step is undone. An undo deletes a file only if it is unchanged,
//! and never replaces one. Blocks. Does not know what the work is for.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checked_lines::{self, CheckedFile, ReadError};
use super::durable::{self, NewFile, make_folders, rename_if_free, sync_folder};
use super::identity::{FileIdentity, has_content, same_content};
use super::set_aside::{self, Unreadable, set_aside};
use super::{entries, is_absence, open_file, refuse_links_below};

/// The format of a log.
const FORMAT: u64 = 1;

/// The folder of an intent for the originals that it moved away.
const KEPT: &str = "kept";

/// Locked shared while creating a folder of intents, and exclusively while removing one: no folder is removed before
/// its first log is written.
static FOLDERS: RwLock<()> = RwLock::new(());

/// A kind of intents. `S` is their owner's description of the work.
pub(crate) struct IntentKind<S> {
    /// Their folder in the data folder.
    pub(crate) folder: &'static str,
    /// The name of the log in an intent's folder. `None` if an intent is only a log.
    pub(crate) log_name: Option<&'static str>,
    /// Parses the lines of versions that wrote no header.
    pub(crate) parse_headerless: fn(Vec<Value>) -> Option<LogContent<S>>,
}

/// The content of a log.
#[derive(Debug)]
pub(crate) struct LogContent<S> {
    /// The description of the work, and later additions.
    pub(crate) descriptions: Vec<S>,
    /// Groups of steps. If a step cannot be undone, the earlier steps of its group are not undone either.
    pub(crate) groups: Vec<Vec<IntentStep>>,
}

/// A step of the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum IntentStep {
    /// A folder is created. Undo: remove it if it is empty.
    Folder(#[serde(with = "any_path")] PathBuf),
    /// A file is written under a unique name. Undo: delete it.
    Temporary(#[serde(with = "any_path")] PathBuf),
    /// A file gets its name. Undo: delete it if it is unchanged.
    File(NewName),
    /// The original of a copied file is moved away. Undo: move it back.
    Taken(Original),
}

/// A file and its new name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewName {
    #[serde(with = "any_path")]
    pub(crate) path: PathBuf,
    #[serde(flatten)]
    pub(crate) identity: FileIdentity,
    /// The hash of the content, if it must be compared too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
    /// The session of the file, if the session may have an owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
}

/// A file that is moved away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Original {
    #[serde(with = "any_path")]
    pub(crate) from: PathBuf,
    /// The path of its copy.
    #[serde(with = "any_path")]
    pub(crate) to: PathBuf,
    /// Its name in the intent's own folder.
    pub(crate) kept: String,
}

/// A line of a log.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum LogLine<S> {
    /// The first line.
    Intent {
        format: u64,
        /// The folder of the intent's kind.
        kind: String,
        about: S,
        groups: Vec<Vec<IntentStep>>,
    },
    Steps(Vec<IntentStep>),
    About(S),
}

/// What to do with an intent found at a start.
pub(crate) enum IntentDecision {
    /// The work is done, or there is nothing to undo.
    Commit,
    Undo,
    /// It cannot be decided.
    SetAside(Unreadable),
    /// A later start may be able to decide.
    Later,
}

/// Work in progress.
#[derive(Debug)]
pub(crate) struct Intent<S> {
    /// The path of its folder, or of its log.
    path: PathBuf,
    log_name: Option<&'static str>,
    /// The folder of its kind.
    kind_folder: &'static str,
    file: Option<CheckedFile>,
    content: LogContent<S>,
    /// Whether an earlier version wrote the log. Nothing can be appended to its format.
    is_old: bool,
}

impl<S: Serialize + DeserializeOwned> Intent<S> {
    /// Writes the log of work that is about to begin, with the steps known so far. The intent's folder may exist.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::AlreadyExists`] if the intent exists.
    pub(crate) fn begin(
        kind: &IntentKind<S>,
        data: &Path,
        name: &str,
        about: S,
        groups: Vec<Vec<IntentStep>>,
    ) -> io::Result<Self> {
        let path = data.join(kind.folder).join(name);
        let log = log_of(&path, kind.log_name);
        let line = LogLine::Intent {
            format: FORMAT,
            kind: kind.folder.to_owned(),
            about: &about,
            groups: groups.clone(),
        };
        refuse_links_below(data, &log)?;
        let _nothing_is_removed = FOLDERS.read().unwrap_or_else(PoisonError::into_inner);
        make_folders(log.parent().unwrap_or(data))?;
        let file = CheckedFile::create(&log, &line)?;
        Ok(Self {
            path,
            log_name: kind.log_name,
            kind_folder: kind.folder,
            file: Some(file),
            content: LogContent {
                descriptions: vec![about],
                groups,
            },
            is_old: false,
        })
    }

    /// Reads the intent with this name.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn find(kind: &IntentKind<S>, data: &Path, name: &str) -> Result<Self, ReadError> {
        Self::read(kind, &data.join(kind.folder).join(name))
    }

    fn read(kind: &IntentKind<S>, path: &Path) -> Result<Self, ReadError> {
        let wrong = |why: String| Unreadable::Damaged(why);
        let log = log_of(path, kind.log_name);
        // Do not follow links: the daemon does not own their targets, so it must not read them as a log, move or delete
        // them.
        let own = [path.parent().unwrap_or(path), path, &log, &path.join(KEPT)];
        if own.into_iter().any(Path::is_symlink) {
            return Err(wrong("it is a symbolic link, which is not followed".to_owned()).into());
        }
        let lines: Vec<Value> = checked_lines::read(&log)?;
        check_format(&lines)?;
        let has_header = lines.first().is_some_and(|first| first.get("intent").is_some());
        let content = if has_header {
            let mut content = LogContent {
                descriptions: Vec::new(),
                groups: Vec::new(),
            };
            for (number, line) in lines.into_iter().enumerate() {
                let line = serde_json::from_value(line);
                match line.map_err(|error| wrong(format!("line {}: {error}", number + 1)))? {
                    LogLine::Intent { kind: found, .. } if number > 0 || found != kind.folder => {
                        return Err(
                            wrong(format!("line {}: it belongs to another intent", number + 1)).into(),
                        );
                    }
                    LogLine::Intent { about, groups, .. } => {
                        content.descriptions.push(about);
                        content.groups = groups;
                    }
                    LogLine::Steps(group) => content.groups.push(group),
                    LogLine::About(about) => content.descriptions.push(about),
                }
            }
            content
        } else {
            (kind.parse_headerless)(lines)
                .ok_or_else(|| wrong("its first line does not describe the work".to_owned()))?
        };
        Ok(Self {
            path: path.to_owned(),
            log_name: kind.log_name,
            kind_folder: kind.folder,
            file: None,
            content,
            is_old: !has_header,
        })
    }

    /// Returns the description of the work, and later additions.
    pub(crate) fn descriptions(&self) -> &[S] {
        &self.content.descriptions
    }

    pub(crate) fn groups(&self) -> &[Vec<IntentStep>] {
        &self.content.groups
    }

    /// Returns the path of its folder, or of its log if it has no folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path to which an original was moved away.
    pub(crate) fn original_path(&self, original: &Original) -> PathBuf {
        self.path.join(KEPT).join(&original.kept)
    }

    /// Records steps that are about to begin, one group per line. Syncs them together.
    ///
    /// # Errors
    /// The system's error. The steps must not begin then.
    pub(crate) fn record_steps(&mut self, groups: Vec<Vec<IntentStep>>) -> io::Result<()> {
        if groups.iter().flatten().any(|step| step.original().is_some()) {
            make_folders(&self.path.join(KEPT))?;
        }
        let lines: Vec<LogLine<&S>> = groups.iter().cloned().map(LogLine::Steps).collect();
        self.file()?.append_all(&lines)?;
        self.content.groups.extend(groups);
        Ok(())
    }

    /// Adds to the description of the work.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn add_description(&mut self, about: S) -> io::Result<()> {
        self.file()?.append(&LogLine::About(&about))?;
        self.content.descriptions.push(about);
        Ok(())
    }

    /// Opens the log for appending. A log of an earlier version is rewritten in the current format first.
    fn file(&mut self) -> io::Result<&mut CheckedFile> {
        let log = log_of(&self.path, self.log_name);
        let file = match self.file.take() {
            Some(file) => file,
            None if self.is_old => {
                let about = self.content.descriptions.iter().enumerate();
                let lines = about.map(|(number, about)| match number {
                    0 => LogLine::Intent {
                        format: FORMAT,
                        kind: self.kind_folder.to_owned(),
                        about,
                        groups: self.content.groups.clone(),
                    },
                    _ => LogLine::About(about),
                });
                CheckedFile::replace(&log, &lines.collect::<Vec<_>>())?
            }
            None => CheckedFile::open(&log)?,
        };
        self.is_old = false;
        Ok(self.file.insert(file))
    }

    /// Finishes the work: deletes the originals and the log.
    ///
    /// # Errors
    /// The system's error, which is logged. A later start tries again.
    pub(crate) fn commit(&self) -> io::Result<()> {
        let removed = remove(&self.path, self.log_name);
        if let Err(error) = &removed {
            tracing::warn!(path = %self.path.display(), %error, "cannot delete the log of finished work; the next start retries");
        }
        removed
    }

    /// Undoes all steps, the last group first, and deletes the log. Does not touch a file that was changed or
    /// replaced, or whose session may have an owner. Returns whether everything was undone; otherwise the log stays.
    pub(crate) fn undo(&self, may_have_owner: &dyn Fn(&str) -> bool) -> bool {
        let mut is_done = true;
        let mut changed_folders = BTreeSet::new();
        for group in self.content.groups.iter().rev() {
            changed_folders.extend(group.iter().flat_map(IntentStep::paths).filter_map(Path::parent));
            let undo_step = |step| self.undo_step(step, may_have_owner);
            let undone = self.check_originals(group);
            if let Err(error) = undone.and_then(|()| group.iter().rev().try_for_each(undo_step)) {
                tracing::warn!(?group, %error, "cannot undo steps of unfinished work");
                is_done = false;
            }
        }
        for folder in changed_folders.into_iter().filter(|folder| folder.exists()) {
            if let Err(error) = sync_folder(folder) {
                tracing::warn!(path = %folder.display(), %error, "cannot sync a folder after undoing a step");
                is_done = false;
            }
        }
        is_done && self.remove_undone()
    }

    /// Deletes the log of undone work. If originals remain that no step names, the intent is set aside instead.
    fn remove_undone(&self) -> bool {
        match fs::remove_dir(self.path.join(KEPT)) {
            Err(error) if !is_absence(&error) => {
                let why = Unreadable::Damaged("no log describes where its files belong".to_owned());
                set_aside(&self.path, &why).is_ok()
            }
            _ => self.commit().is_ok(),
        }
    }

    /// Checks that each original exists, moved away or in its place. Otherwise an undo would delete the only copy.
    fn check_originals(&self, group: &[IntentStep]) -> io::Result<()> {
        for original in group.iter().filter_map(IntentStep::original) {
            let current = match fs::symlink_metadata(&original.from) {
                Err(error) if is_absence(&error) => None,
                found => Some(found?),
            };
            let is_new = |step: &IntentStep| match (step, &current) {
                (IntentStep::File(file), Some(current)) => file.identity.matches(current),
                _ => false,
            };
            if !exists(&self.original_path(original))? && (current.is_none() || group.iter().any(is_new)) {
                return Err(io::Error::new(io::ErrorKind::NotFound, "its original is missing"));
            }
        }
        Ok(())
    }

    fn undo_step(&self, step: &IntentStep, may_have_owner: &dyn Fn(&str) -> bool) -> io::Result<()> {
        match step {
            IntentStep::Folder(path) => match fs::remove_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
                removed => ok_if_absent(removed),
            },
            IntentStep::Temporary(path) => ok_if_absent(fs::remove_file(path)),
            IntentStep::File(file) => {
                let is_owned = file.session.as_deref().is_some_and(may_have_owner);
                let is_unchanged = match file.is_unchanged() {
                    Err(error) if is_absence(&error) => return Ok(()),
                    found => found?,
                };
                if is_owned || !is_unchanged {
                    tracing::warn!(path = %file.path.display(), is_owned, "leaving a file of unfinished work that was changed, replaced or taken over");
                    return Ok(());
                }
                ok_if_absent(fs::remove_file(&file.path))
            }
            IntentStep::Taken(original) => restore_original(&self.original_path(original), &original.from),
        }
    }
}

impl IntentStep {
    pub(crate) fn original(&self) -> Option<&Original> {
        match self {
            Self::Taken(original) => Some(original),
            _ => None,
        }
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let (first, second) = match self {
            Self::Folder(path) | Self::Temporary(path) => (path, None),
            Self::File(file) => (&file.path, None),
            Self::Taken(original) => (&original.from, Some(&original.to)),
        };
        std::iter::once(first).chain(second).map(PathBuf::as_path)
    }
}

impl NewName {
    /// Whether the file is unchanged.
    fn is_unchanged(&self) -> io::Result<bool> {
        let found = fs::symlink_metadata(&self.path)?;
        if !found.is_file() || !self.identity.matches(&found) {
            return Ok(false);
        }
        match &self.sha256 {
            Some(sha256) => has_content(&self.path, self.identity.bytes, sha256),
            None => Ok(true),
        }
    }
}

/// Returns the existing intents of a kind, in no particular order.
///
/// # Errors
/// The system's error, which is logged.
pub(crate) fn existing<S>(kind: &IntentKind<S>, data: &Path) -> io::Result<Vec<PathBuf>> {
    let all = data.join(kind.folder);
    let listed = refuse_links_below(data, &all.join("any")).and_then(|()| entries(&all));
    let paths = listed.inspect_err(|error| {
        tracing::warn!(path = %all.display(), %error, "cannot list unfinished work");
    });
    let paths = paths?;
    // A kill may leave an empty folder before the first log.
    if paths.is_empty() {
        remove_if_empty(&all);
    }
    Ok(paths
        .into_iter()
        .filter(|path| !set_aside::is_set_aside(path))
        .collect())
}

/// Settles the intents that earlier daemons left, as `decide` says. Returns whether all are settled; the others are
/// logged.
pub(crate) fn settle<S: Serialize + DeserializeOwned>(
    kind: &IntentKind<S>,
    intents: &[PathBuf],
    may_have_owner: &dyn Fn(&str) -> bool,
    mut decide: impl FnMut(&Intent<S>) -> IntentDecision,
) -> bool {
    let mut is_all_settled = true;
    for path in intents {
        // No step begins before the log has its final name.
        if kind.log_name.is_none() && checked_lines::is_incomplete_name(path) {
            is_all_settled &= ok_if_absent(fs::remove_file(path)).is_ok();
            continue;
        }
        is_all_settled &= match Intent::read(kind, path) {
            Ok(intent) => match decide(&intent) {
                IntentDecision::Commit => intent.commit().is_ok(),
                IntentDecision::Undo => intent.undo(may_have_owner),
                // `set_aside` logs the result.
                IntentDecision::SetAside(why) => set_aside(path, &why).is_ok(),
                IntentDecision::Later => false,
            },
            Err(error) => settle_unreadable(kind.log_name, path, error),
        };
    }
    if let Some(all) = intents.first().and_then(|path| path.parent()) {
        remove_if_empty(all);
    }
    is_all_settled
}

/// Settles an intent without a readable log. Returns whether that succeeded.
fn settle_unreadable(log: Option<&'static str>, path: &Path, error: ReadError) -> bool {
    let why = match error {
        ReadError::Unreadable(why) => why,
        // Ignore files: each intent of this kind is a folder.
        ReadError::Io(error) if log.is_some() && error.kind() == io::ErrorKind::NotADirectory => return true,
        ReadError::Io(error) if error.kind() == io::ErrorKind::NotFound => match entries(path) {
            Ok(entries) if entries.iter().all(|path| is_from_unbegun_intent(path)) => {
                return remove(path, log).is_ok();
            }
            Ok(_) => Unreadable::Damaged("no log describes where its files belong".to_owned()),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot list the files of unfinished work");
                return false;
            }
        },
        ReadError::Io(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot read the log of unfinished work; leaving the log and the work");
            return false;
        }
    };
    // `set_aside` logs the result.
    set_aside(path, &why).is_ok()
}

/// Whether a kill left this entry of an intent's folder before the intent had a log.
fn is_from_unbegun_intent(path: &Path) -> bool {
    let is_empty_folder = || entries(path).is_ok_and(|kept| kept.is_empty());
    checked_lines::is_incomplete_name(path) || path.ends_with(KEPT) && is_empty_folder()
}

/// Returns an error if a newer version of the program wrote the log.
pub(crate) fn newer_version(log: &Path) -> Option<Unreadable> {
    let format = checked_lines::read::<Value>(log).and_then(|lines| Ok(check_format(&lines)?));
    match format {
        Err(ReadError::Unreadable(why @ Unreadable::Newer { .. })) => Some(why),
        _ => None,
    }
}

fn check_format(lines: &[Value]) -> Result<(), Unreadable> {
    let format = lines.first().and_then(|first| first["intent"]["format"].as_u64());
    match format {
        Some(version) if version > FORMAT => Err(Unreadable::Newer {
            version,
            newest: FORMAT,
        }),
        _ => Ok(()),
    }
}

fn log_of(path: &Path, log: Option<&'static str>) -> PathBuf {
    log.map_or_else(|| path.to_owned(), |log| path.join(log))
}

/// Deletes an intent. The log is deleted last, because a start would set the files aside without it.
fn remove(path: &Path, log: Option<&'static str>) -> io::Result<()> {
    if let Some(log) = log {
        for path in entries(path)?.into_iter().filter(|path| !path.ends_with(log)) {
            ok_if_absent(match path.is_dir() && !path.is_symlink() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            })?;
        }
        if path.exists() {
            sync_folder(path)?;
        }
        ok_if_absent(fs::remove_dir_all(path))?;
    } else {
        ok_if_absent(fs::remove_file(path))?;
    }
    if let Some(all) = path.parent() {
        remove_if_empty(all);
    }
    Ok(())
}

fn remove_if_empty(all: &Path) {
    let _nothing_begins = FOLDERS.write().unwrap_or_else(PoisonError::into_inner);
    // Ignore the error: this fails if the folder is not empty.
    let _ = fs::remove_dir(all);
}

fn exists(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Err(error) if is_absence(&error) => Ok(false),
        found => found.map(|_| true),
    }
}

fn ok_if_absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if is_absence(&error) => Ok(()),
        removed => removed,
    }
}

/// Moves an original back. If a different file exists there, both files stay and this fails.
fn restore_original(stored: &Path, from: &Path) -> io::Result<()> {
    if !exists(stored)? {
        // The original was never moved away, or is already back.
        return Ok(());
    }
    make_folders(from.parent().unwrap_or(Path::new("/")))?;
    match rename(stored, from) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && same_content(stored, from)? => {
            fs::remove_file(stored)
        }
        renamed => renamed,
    }
}

/// Renames a file if the new name is free, even to another file system.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if the name is taken, or the system's error.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match rename_if_free(from, to) {
        Ok(()) => {
            // On some file systems, `rename_if_free` only creates a hard link.
            let both = (fs::symlink_metadata(from), fs::symlink_metadata(to));
            match both {
                (Ok(left), Ok(right)) if FileIdentity::of(&left) == FileIdentity::of(&right) => {
                    fs::remove_file(from)
                }
                _ => Ok(()),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => copy_over(from, to),
        Err(error) => Err(error),
    }
}

fn copy_over(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
        durable::sync_folder_of(to)?;
        return fs::remove_file(from);
    }
    let mut source = open_file(from)?;
    let mut name = OsString::from(".");
    name.push(to.file_name().unwrap_or_default());
    name.push(".new");
    let temporary = to.with_file_name(name);
    let mut copy = || -> io::Result<()> {
        let mut file = NewFile::create_or_replace(&temporary)?;
        io::copy(&mut source, &mut file)?;
        io::Write::flush(&mut file)?;
        file.file().set_modified(source.metadata()?.modified()?)?;
        file.sync()?;
        if !same_content(from, &temporary)? {
            return Err(io::Error::other("it changed while it was copied"));
        }
        rename_if_free(&temporary, to)?;
        durable::sync_folder_of(to)
    };
    let copied = copy();
    // If `rename_if_free` only creates a hard link, the copy has both names.
    ok_if_absent(fs::remove_file(&temporary))?;
    copied?;
    fs::remove_file(from)
}

/// Serializes paths as text, or as bytes if they are not UTF-8.
mod any_path {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum AnyPath {
        Text(String),
        Bytes(OsString),
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => text.serialize(serializer),
            None => path.as_os_str().serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(match AnyPath::deserialize(deserializer)? {
            AnyPath::Text(path) => path.into(),
            AnyPath::Bytes(path) => path.into(),
        })
    }
}

#[cfg(test)]
mod tests;

//! Restores sessions from their copies to where their agents look for them. Restored files are always copies and never replace
//! a file that differs. The transcript is restored last, after the files that belong to it.

use std::collections::HashSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Component, Path, PathBuf};

use super::folder::{LIST_FILE, SessionFolder};
use super::list::{ArchivedCopy, BUFFER_BYTES, is_transcript};
use super::rejoining::{RejoinedCopy, set_transcript_aside};
use super::{Archive, MissingTurns, SessionKey, root_name};
use crate::files::digest::sha256;
use crate::files::durable::unfinished_path;
use crate::files::identity::Hashed;
use crate::files::set_aside::Unreadable;
use crate::files::{is_absence, none_if_absent, refuse_links_below};
use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::codex::rollouts::LINEAGE_LIMIT;
use crate::transcript::copy::{fill_temporary, make_folder, rename_to_final};
use crate::transcript::dialect::Dialect;
use crate::transcript::fields::Fields;
use crate::transcript::lines::{Lines, line_text, trimmed};
use crate::transcript::meter::Metered;
use crate::transcript::moving::comparison::begins_with_lines_of;
use crate::transcript::parts::{is_lines, open_text};
use crate::transcript::relocate::{Relocation, rewrite_lines};

/// Called right before a restored transcript gets its name, with the session's id and the transcript's length in
/// bytes.
pub type OnPlacing<'a> = &'a mut dyn FnMut(&str, u64) -> Result<(), TranscriptError>;

/// Returns which folders to change in the records of a copy that is restored or unpacked.
pub type RelocationLookup<'a> = &'a dyn Fn(&CopyOrigin) -> Result<Relocation, TranscriptError>;

/// The origin of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOrigin {
    /// The transcript's folder when it was copied, relative to the agent's folder of transcripts.
    pub folder: PathBuf,
    /// The first folder that its records name.
    pub cwd: Option<String>,
}

/// Facts that the caller provides about the sessions to restore.
#[derive(Clone, Copy)]
pub struct RestoreCallbacks<'a> {
    /// Which folders to change in the restored records. The copies do not change between this call and the restore.
    pub find_relocation: RelocationLookup<'a>,
    /// How many turns the copy of the session with this id lacks.
    pub count_missing_turns: &'a dyn Fn(&str) -> Result<MissingTurns, TranscriptError>,
}

/// A copy that has turns which the transcript lacks.
#[derive(Debug)]
pub struct CopyWithLostTurns {
    /// Its path.
    pub path: PathBuf,
    /// How many turns the transcript lacks.
    pub turns: usize,
    /// Whether it lacks turns that the transcript has.
    pub lacks_turns: bool,
    /// The copies to move away so that a restore uses this one; empty if it does so anyway.
    pub copies_to_move: Vec<PathBuf>,
    /// Whether the transcript has a copy that is a link, so that the next backup changes the paths.
    pub has_links: bool,
}

/// A session of a history.
pub(super) struct HistorySession {
    pub(super) key: SessionKey,
    /// The agent's transcript. `None` if it is missing, blank or must be rejoined, so that the copy is read.
    pub(super) transcript: Option<PathBuf>,
    /// The joined copy, if the transcript or the newest copies have lost their beginning.
    pub(super) rejoined: Option<RejoinedCopy>,
    /// A text that changes whenever unpacking would give a different result.
    pub(super) state: String,
}

impl Archive {
    /// Restores a session, and the sessions that it continues by reference, to where their agent looks for them. Without `cwd`,
    /// they go to their former folder. Before a transcript gets its name, its missing turns are recorded and `placing` is
    /// called. Returns the restored files; empty if the transcript exists and has everything that the copy has. Other existing
    /// files are not changed. A [blank](is_blank) transcript, or a link to a missing file, counts as missing, and is set aside if
    /// it is in the way.
    ///
    /// # Errors
    /// [`TranscriptError::NotFound`] if the transcript has no copy, [`TranscriptError::AlreadyExists`] if there is a
    /// transcript with different content, [`TranscriptError::Io`].
    pub fn restore(
        &self,
        dialect: &dyn Dialect,
        key: &SessionKey,
        cwd: Option<&Path>,
        advice: RestoreCallbacks<'_>,
        placing: OnPlacing<'_>,
    ) -> Result<Vec<PathBuf>, TranscriptError> {
        let mut existing = dialect.locate(&key.root, &key.upstream_id)?;
        let members = self.history_sessions(dialect, key, advice.find_relocation)?;
        let rejoined = members.first().and_then(|own| own.rejoined.as_ref());
        existing.retain(|path| !rejoined.is_some_and(|rejoined| rejoined.continues_with(path)));
        let is_whole = has_all_of_copy(&self.archived_folder(key)?, &existing)?;
        let members = members.into_iter().rev();
        let missing =
            members.filter(|member| member.transcript.is_none() && !(is_whole && member.key == *key));
        let mut restored = Vec::new();
        for HistorySession { key, rejoined, .. } in missing {
            let rejoined = rejoined.as_ref();
            let lacking = match rejoined.filter(|rejoined| rejoined.continues_with_transcript()) {
                Some(rejoined) => rejoined.missing_turns(0),
                None => (advice.count_missing_turns)(&key.upstream_id)?,
            };
            let folder = self.archived_folder(&key)?;
            let relocation = folder.relocation(advice.find_relocation)?;
            let places = target_paths(dialect, &folder, &key.root, cwd)?;
            self.restore_with_mark(&key, lacking, |mark| {
                for (name, path) in places {
                    let placed = |bytes| match folder.transcript() == Some(name.as_str()) {
                        true => mark().and_then(|()| placing(&key.upstream_id, bytes)),
                        false => Ok(()),
                    };
                    if restore_file(&folder, &name, &path, (&relocation, rejoined), placed)? {
                        restored.push(path);
                    }
                }
                Ok(())
            })?;
        }
        Ok(restored)
    }

    /// Whether a transcript has lost lines that the copy to restore has, and that copy lacks no acknowledged turn.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn has_lost_lines(
        &self,
        key: &SessionKey,
        transcript: &Path,
        acknowledged: u64,
    ) -> Result<bool, TranscriptError> {
        if self.missing_turns(key, acknowledged)? != Some(MissingTurns::Known(0)) {
            return Ok(false);
        }
        let folder = self.archived_folder(key)?;
        let compared = has_all_of_copy(&folder, &[transcript.to_owned()]);
        let (Err(TranscriptError::AlreadyExists { .. }), Some((copy, bytes))) =
            (&compared, folder.best_transcript()?)
        else {
            return compared.map(|_| false);
        };
        let failed = |error| TranscriptError::io("read", transcript)(error);
        let mut text = BufReader::new(open_text(transcript).map_err(failed)?);
        let (mut lines, mut present) = (Lines::new(&mut text, 0), HashSet::new());
        while let Some(line) = lines.next_line().map_err(failed)? {
            present.insert(sha256(trimmed(line.bytes)));
        }
        let mut text = folder.text(copy, bytes)?;
        let mut lines = Lines::new(&mut text, 0);
        while let Some(line) = lines.next_line().map_err(failed)? {
            if !present.contains(&sha256(trimmed(line.bytes))) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds the copy with the most turns that a transcript lacks.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn copy_with_lost_turns(
        &self,
        dialect: &dyn Dialect,
        key: &SessionKey,
        transcript: &Path,
    ) -> Result<Option<CopyWithLostTurns>, TranscriptError> {
        let Some(folder) = self.open(key)? else {
            return Ok(None);
        };
        let text = || open_text(transcript).map(|text| BufReader::with_capacity(BUFFER_BYTES, text));
        let copies = folder.usable_transcripts()?;
        let best = folder.best_transcript()?.map(|(best, _)| best.file.as_str());
        let (mut present, mut found) = (None, None);
        for (index, (copy, bytes)) in copies.iter().enumerate() {
            let mut compare = || -> io::Result<(usize, bool)> {
                let kept = || folder.text(copy, *bytes).map_err(io::Error::other);
                if begins_with_lines_of(kept()?, text()?)? {
                    return Ok((0, false));
                }
                let present = match &mut present {
                    Some(present) => present,
                    None => present.insert(prompts(dialect, text()?)?),
                };
                let kept = prompts(dialect, kept()?)?;
                Ok((kept.difference(present).count(), !present.is_subset(&kept)))
            };
            match compare() {
                Ok((lost, lacks_turns)) => {
                    let is_best = best == Some(copy.file.as_str());
                    found = found.max(Some((lost, is_best, index, lacks_turns)));
                }
                // A damaged copy does not hide the others.
                Err(error) => {
                    let copy = folder.path.join(&copy.file);
                    tracing::warn!(copy = %copy.display(), %error, "a transcript cannot be compared with a backup");
                }
            }
        }
        let Some((turns, is_best, index, lacks_turns)) = found.filter(|(turns, ..)| *turns > 0) else {
            return Ok(None);
        };
        let paths: Vec<PathBuf> = copies
            .iter()
            .map(|(copy, _)| folder.path.join(&copy.file))
            .collect();
        let path = paths[index].clone();
        Ok(Some(CopyWithLostTurns {
            turns,
            lacks_turns,
            copies_to_move: paths
                .into_iter()
                .filter(|other| !is_best && *other != path)
                .collect(),
            path,
            has_links: copies.iter().any(|(copy, _)| copy.is_link()),
        }))
    }

    /// Opens the folder of a session whose transcript has a copy.
    pub(super) fn archived_folder(&self, key: &SessionKey) -> Result<SessionFolder<'_>, TranscriptError> {
        let folder = self.open(key)?.filter(|folder| folder.transcript().is_some());
        folder.ok_or_else(|| TranscriptError::NotFound {
            upstream_id: key.upstream_id.clone(),
            root: self.folder.join(root_name(&key.root)),
        })
    }

    /// Returns a session and the sessions that it continues by reference, nearest first. Stops at the first one that
    /// has neither a transcript nor a copy.
    pub(super) fn history_sessions(
        &self,
        dialect: &dyn Dialect,
        key: &SessionKey,
        relocation: RelocationLookup<'_>,
    ) -> Result<Vec<HistorySession>, TranscriptError> {
        let mut members: Vec<HistorySession> = Vec::new();
        let mut next_key = Some(key.clone());
        while let Some(key) = next_key.take() {
            if members.len() >= LINEAGE_LIMIT || members.iter().any(|member| member.key == key) {
                break;
            }
            let mut transcript = dialect.locate(&key.root, &key.upstream_id)?.into_iter();
            let transcript = transcript.find(|path| !is_blank(path).unwrap_or(false));
            let rejoined = self
                .open(&key)?
                .map(|folder| folder.rejoin(dialect, transcript.as_deref()));
            let rejoined = rejoined.transpose()?.flatten();
            let transcript = transcript.filter(|path| {
                !rejoined
                    .as_ref()
                    .is_some_and(|rejoined| rejoined.continues_with(path))
            });
            let (base, state) = match &transcript {
                Some(path) => {
                    let base = open_text(path).and_then(|text| {
                        dialect.continued_session(&mut BufReader::with_capacity(BUFFER_BYTES, text))
                    });
                    let base = base.map_err(TranscriptError::io("read", path))?;
                    (base, path.to_string_lossy().into_owned())
                }
                None => match self.archived_folder(&key) {
                    Ok(folder) => {
                        let folders = folder.relocation(relocation)?.folders;
                        let rest = rejoined.as_ref().map(RejoinedCopy::state);
                        (
                            folder.continued_session()?,
                            format!("{folders:?} {rest:?} {}", folder.state()),
                        )
                    }
                    // It may never have been backed up. The reader of the session that continues it reports that.
                    Err(TranscriptError::NotFound { .. }) => break,
                    Err(error) => return Err(error),
                },
            };
            next_key = base.map(|upstream_id| SessionKey {
                root: key.root.clone(),
                upstream_id,
            });
            members.push(HistorySession {
                key,
                transcript,
                rejoined,
                state,
            });
        }
        Ok(members)
    }
}

/// The prompts in a text: their uuids, which stay if a move or another program writes the records anew, or else their digests.
fn prompts(dialect: &dyn Dialect, text: impl BufRead) -> io::Result<HashSet<String>> {
    let (mut lines, mut prompts) = (Lines::new(text, 0), HashSet::new());
    while let Some(line) = lines.next_line()? {
        if dialect.is_prompt(line.bytes) {
            let uuid = Fields::parse(&line_text(line.bytes)).and_then(|record| record.text("uuid"));
            prompts.insert(uuid.unwrap_or_else(|| sha256(trimmed(line.bytes))));
        }
    }
    Ok(prompts)
}

/// Returns the names of a session's copied files, and the path of each below `root`, which has the layout of the agent's
/// folder. The transcript is last, so that it is missing if restoring another file fails.
pub(super) fn target_paths(
    dialect: &dyn Dialect,
    folder: &SessionFolder<'_>,
    root: &Path,
    cwd: Option<&Path>,
) -> Result<Vec<(String, PathBuf)>, TranscriptError> {
    let best = folder.best_transcript()?;
    let relative_folder = best.map_or("", |(copy, _)| copy.folder.as_str());
    let relative_folder = checked_relative_path(Path::new(relative_folder), &folder.path)?;
    let path_for = |name: &str| -> Result<PathBuf, TranscriptError> {
        let name = checked_relative_path(Path::new(name), &folder.path)?;
        Ok(dialect.expected_path(root, cwd, relative_folder, name))
    };
    let transcript = folder.transcript();
    let names = folder.list.files.keys().map(String::as_str);
    let others: Vec<&str> = names.filter(|name| Some(*name) != transcript).collect();
    let mut files = Vec::new();
    if let Some((copy, bytes)) = best.filter(|_| !others.is_empty()) {
        let named = dialect.named_files(&folder.key().root, &mut folder.text(copy, bytes)?);
        for (name, relative_folder) in named.map_err(TranscriptError::io("read a copy in", &folder.path))? {
            let path = root.join(relative_folder);
            if others.contains(&name.as_str()) && path != path_for(&name)? {
                files.push((name, path));
            }
        }
    }
    for name in others.into_iter().chain(transcript) {
        files.push((name.to_owned(), path_for(name)?));
    }
    Ok(files)
}

/// Checks that a path from the list is relative and does not leave its folder.
fn checked_relative_path<'a>(path: &'a Path, place: &Path) -> Result<&'a Path, TranscriptError> {
    if path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(path);
    }
    let what = format!("it names {}, which is no name below a folder", path.display());
    Err(TranscriptError::Unreadable {
        path: place.join(LIST_FILE),
        why: Unreadable::Damaged(what),
    })
}

/// Whether one of the existing transcripts has everything that the copy has. Ignores the folder that the records name.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] if none has, but one of them is not blank.
fn has_all_of_copy(folder: &SessionFolder<'_>, existing: &[PathBuf]) -> Result<bool, TranscriptError> {
    if existing.is_empty() {
        return Ok(false);
    }
    let Some((copy, bytes)) = folder.best_transcript()? else {
        return Ok(false);
    };
    if bytes == 0 {
        // The copy is empty, so there is nothing to restore.
        return Ok(true);
    }
    let mut differing = None;
    for path in existing {
        let failed = |error| TranscriptError::io("read", path)(error);
        if is_blank(path).map_err(failed)? {
            continue;
        }
        let text = open_text(path).map_err(failed)?;
        let text = BufReader::with_capacity(BUFFER_BYTES, text);
        if begins_with_lines_of(folder.text(copy, bytes)?, text).map_err(failed)? {
            return Ok(true);
        }
        differing = differing.or(Some(path.clone()));
    }
    differing.map_or(Ok(false), |path| Err(TranscriptError::AlreadyExists { path }))
}

/// Writes the text of a copy, applies `relocation` to its records if the file has records, and adds what continues it. Stops
/// if no caller waits for the result any more. Returns the length of the copy in bytes.
///
/// # Errors
/// [`TranscriptError::Io`], also if the copy is damaged.
pub(super) fn write_copy(
    folder: &SessionFolder<'_>,
    copy: (&ArchivedCopy, u64),
    path: &Path,
    (relocation, rejoined): (&Relocation, Option<&RejoinedCopy>),
    output: &mut dyn Write,
) -> Result<u64, TranscriptError> {
    let (copy, bytes) = rejoined.map_or(copy, |rejoined| (&rejoined.copy, rejoined.bytes));
    let mut text = Hashed::new(Metered::new(folder.text(copy, bytes)?, bytes));
    let mut pour = || -> io::Result<()> {
        if relocation.is_empty() || !is_lines(path) {
            io::copy(&mut text, output)?;
        } else {
            let reader = BufReader::with_capacity(BUFFER_BYTES, &mut text);
            let unchanged = rewrite_lines(reader, output, relocation)?;
            if unchanged > 0 {
                tracing::warn!(path = %path.display(), unchanged, "lines are too long to be changed; they are restored as they are");
            }
        }
        let (digest, read) = text.digest_and_bytes();
        if read < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match copy.is_link() || digest == copy.sha256 {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the backup is damaged",
            )),
        }
    };
    pour().map_err(TranscriptError::io("restore", path))?;
    if let Some(rejoined) = rejoined {
        let ends_with_newline = text.last_byte().is_none_or(|last| last == b'\n');
        rejoined.write_continuation(folder, ends_with_newline, output)?;
    }
    Ok(bytes)
}

/// Restores a file from its copy, unless a file of its name exists. A blank transcript in its place is set aside after the
/// temporary file is complete. Returns whether the file was restored. `placing` is called with its length before it gets its
/// name.
fn restore_file(
    folder: &SessionFolder<'_>,
    name: &str,
    path: &Path,
    (relocation, rejoined): (&Relocation, Option<&RejoinedCopy>),
    placing: impl FnOnce(u64) -> Result<(), TranscriptError>,
) -> Result<bool, TranscriptError> {
    let rejoined = rejoined.filter(|_| is_transcript(name));
    let is_rest = rejoined.is_some_and(|rejoined| rejoined.continues_with(path));
    let is_empty = |at: &Path| match is_blank(at) {
        Err(error) if is_absence(&error) && at.is_symlink() => Ok(true),
        blank => blank.map_err(TranscriptError::io("read", at)),
    };
    // Only a blank transcript or a link to nothing is replaced. The other files of a session may be empty on purpose.
    let is_in_the_way = match path.symlink_metadata() {
        Ok(_) if is_rest => false,
        Ok(_) if is_transcript(name) && is_empty(path)? => true,
        Ok(_) => return Ok(false),
        Err(error) if is_absence(&error) => false,
        Err(error) => return Err(TranscriptError::io("look at", path)(error)),
    };
    let Some((copy, bytes)) = folder.best(name)? else {
        return Ok(false);
    };
    let parent = path.parent().unwrap_or(path);
    // The folder of the transcript may be a link, but none of the session's own subfolders may be one.
    let project_folder = path.ancestors().nth(Path::new(name).components().count());
    refuse_links_below(project_folder.unwrap_or(parent), path).map_err(TranscriptError::io("write", path))?;
    make_folder(parent)?;
    // Use the same name in each attempt, so that the next one finds what a kill left.
    let new = unfinished_path(parent, &sha256(name.as_bytes())[..16], "restored");
    none_if_absent(fs::remove_file(&new)).map_err(TranscriptError::io("remove", &new))?;
    let (temporary, _) = fill_temporary(&new, |writer: &mut dyn Write| {
        write_copy(folder, (copy, bytes), path, (relocation, rejoined), writer)
    })?;
    if let Some(rejoined) = rejoined.filter(|_| is_rest) {
        rejoined.set_aside(path)?;
    } else if is_in_the_way {
        let why = match path.exists() {
            true => "it holds nothing but zeros",
            false => "it is a link to a missing file",
        };
        set_transcript_aside(path, why, is_empty)?;
    }
    placing(
        new.metadata()
            .map_err(TranscriptError::io("look at", &new))?
            .len(),
    )?;
    match rename_to_final(&temporary, path) {
        Ok(()) => Ok(true),
        // Another process created the file in the meantime. Only transcripts are compared.
        Err(TranscriptError::AlreadyExists { .. }) if !is_transcript(name) => Ok(false),
        Err(error) => Err(error),
    }
}

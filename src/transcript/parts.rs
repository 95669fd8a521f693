//! The files of a session on disk: for Claude its transcript and the files in the folder of the same name next to it,
//! for Codex its rollout.
//!
//! This module decides which files belong to a session, and how much of each is complete while the agent is still
//! writing. It only reads names, sizes and the ends of files, and follows no symbolic link. Blocks.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::TranscriptError;
use super::codex::decompressed::DecompressedReader;
use super::codex::is_compressed;
use super::fields::Fields;
use super::meter::Metered;
use super::moving::MEMORY;
use crate::files::{open_file, open_with_metadata};

/// The maximum number of files next to a transcript. A long session has some hundreds of tools' results.
pub(super) const FILE_LIMIT: usize = 100_000;

/// How many levels of folders are read. The agents make two.
const DEPTH_LIMIT: usize = 8;

/// How much of the end of a file is read at once to find its last newline, in bytes.
const TAIL_BYTES: u64 = 64 * 1024;

/// The longest last line without a newline that is read, in bytes. A longer one is treated as not yet written.
const UNENDED_LIMIT_BYTES: u64 = 16 * 1024 * 1024;

/// The end of a compressed file's name.
const COMPRESSED_EXTENSION: &str = ".zst";

/// One file of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFile {
    /// The path of the file.
    pub path: PathBuf,
    /// Its name relative to the transcript's folder, with `/` between the folders.
    pub name: String,
    /// How many bytes of it are complete. For a file of lines: those of its whole lines. For a compressed file: those
    /// of its text.
    pub bytes: u64,
    /// Whether the file is compressed and its text is the content.
    pub is_compressed: bool,
    /// The name by which the session's records refer to the file, if it belongs to another session.
    pub borrowed_name: Option<String>,
}

impl SessionFile {
    /// A file that is not compressed and has its own name.
    pub(crate) fn plain(path: &Path, name: String, bytes: u64) -> Self {
        Self {
            path: path.to_owned(),
            name,
            bytes,
            is_compressed: false,
            borrowed_name: None,
        }
    }

    /// Opens its content at the beginning. Reading does not stop at [`SessionFile::bytes`].
    ///
    /// # Errors
    /// The system's error.
    pub fn open(&self) -> io::Result<Box<dyn Read>> {
        open_content(&self.path, self.is_compressed)
    }
}

/// The text of a transcript, decompressed.
///
/// # Errors
/// The system's error.
pub fn open_text(path: &Path) -> io::Result<Box<dyn Read>> {
    open_content(path, is_compressed(path))
}

fn open_content(path: &Path, is_compressed: bool) -> io::Result<Box<dyn Read>> {
    let file = open_file(path)?;
    Ok(match is_compressed {
        true => Box::new(DecompressedReader::sequential(file)?),
        false => Box::new(file),
    })
}

/// The single file of a session without side files. For a link: its target, under the name of the link.
///
/// # Errors
/// [`TranscriptError::Io`] when it cannot be read.
pub(super) fn only_part(transcript: &Path) -> Result<SessionFiles, TranscriptError> {
    let path = fs::canonicalize(transcript).map_err(TranscriptError::io("look for", transcript))?;
    let mut part = rollout_part(&path)?;
    part.name = plain_name(transcript);
    Ok(SessionFiles {
        files: vec![part],
        left_out: Vec::new(),
    })
}

/// The name of a file without the extension of its compression.
fn plain_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(COMPRESSED_EXTENSION)
        .unwrap_or(&name)
        .to_owned()
}

/// The rollout of a Codex session, as it is now. The name omits the extension of the compression, because copies contain the
/// text.
///
/// # Errors
/// [`TranscriptError::Io`] when it cannot be read.
pub fn rollout_part(rollout: &Path) -> Result<SessionFile, TranscriptError> {
    let is_compressed = is_compressed(rollout);
    let bytes = if is_compressed {
        // A compressed rollout no longer changes.
        let count = || -> io::Result<u64> {
            let (file, metadata) = open_with_metadata(rollout)?;
            let mut text = DecompressedReader::sequential(Metered::new(file, metadata.len()))?;
            io::copy(&mut text, &mut io::sink())
        };
        count().map_err(TranscriptError::io("read", rollout))?
    } else {
        complete_line_bytes(rollout)?
    };
    Ok(SessionFile {
        is_compressed,
        ..SessionFile::plain(rollout, plain_name(rollout), bytes)
    })
}

/// The files of a session and what was not included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFiles {
    /// The transcript first, then the others in the order of their names.
    pub files: Vec<SessionFile>,
    /// The files that are not included, with the reasons.
    pub left_out: Vec<String>,
}

impl SessionFiles {
    /// Notes why a file or folder is not included.
    fn leave(&mut self, path: &Path, why: &str) {
        self.left_out.push(format!("{} {why}", path.display()));
    }
}

/// The folder of a session's own files, next to its transcript. A session called `memory` has none: the folder of that
/// name belongs to the project.
pub(super) fn own_folder(transcript: &Path) -> Option<PathBuf> {
    let folder = transcript.with_extension("");
    (folder.file_name()? != MEMORY).then_some(folder)
}

/// The files of the session with this transcript, as they are now.
///
/// # Errors
/// [`TranscriptError::Io`] if the transcript cannot be read.
pub fn parts(transcript: &Path) -> Result<SessionFiles, TranscriptError> {
    let id = transcript.file_stem().unwrap_or_default().to_string_lossy();
    let mut parts = SessionFiles::default();
    let bytes = complete_line_bytes(transcript)?;
    parts
        .files
        .push(SessionFile::plain(transcript, format!("{id}.jsonl"), bytes));
    let Some(own_folder_path) = own_folder(transcript) else {
        return Ok(parts);
    };
    match own_folder_path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => add_files_below(&own_folder_path, &id, DEPTH_LIMIT, &mut parts),
        Ok(_) => parts.leave(&own_folder_path, "is not a folder (links are not followed)"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => parts.leave(&own_folder_path, &format!("cannot be looked at ({error})")),
    }
    parts.files[1..].sort_by(|left, right| left.name.cmp(&right.name));
    Ok(parts)
}

/// The files of a folder next to a project's transcripts that belongs to none of their sessions. Empty if there is no such
/// folder.
pub(super) fn folder_parts(project: &Path, name: &str) -> SessionFiles {
    let mut parts = SessionFiles::default();
    let folder = project.join(name);
    if folder.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        add_files_below(&folder, name, DEPTH_LIMIT, &mut parts);
    }
    parts.files.sort_by(|left, right| left.name.cmp(&right.name));
    parts
}

fn add_files_below(folder: &Path, name: &str, depth: usize, parts: &mut SessionFiles) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return parts.leave(folder, &format!("cannot be read ({error})")),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                parts.leave(folder, &format!("cannot be read to its end ({error})"));
                continue;
            }
        };
        let path = entry.path();
        let file_name = entry.file_name();
        let Some(file_name) = file_name.to_str() else {
            parts.leave(&path, "has a name that is not UTF-8");
            continue;
        };
        let name = format!("{name}/{file_name}");
        // Links are not followed: they may lead anywhere.
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) => {
                parts.leave(&path, &format!("cannot be looked at ({error})"));
                continue;
            }
        };
        if kind.is_dir() {
            match depth.checked_sub(1) {
                Some(depth) => add_files_below(&path, &name, depth, parts),
                None => parts.leave(&path, "is in too many nested folders"),
            }
        } else if !kind.is_file() {
            parts.leave(&path, "is not a regular file");
        } else if parts.files.len() > FILE_LIMIT {
            parts.leave(&path, "is one file too many");
            return;
        } else {
            match size(&path) {
                Ok(bytes) => parts.files.push(SessionFile::plain(&path, name, bytes)),
                Err(error) => parts.leave(&path, &format!("cannot be read ({error})")),
            }
        }
    }
}

/// A file at any path, under this name. `None` if it is not a regular file that can be read.
pub(super) fn side_part(path: &Path, name: String) -> Option<SessionFile> {
    path.symlink_metadata().ok().filter(fs::Metadata::is_file)?;
    Some(SessionFile::plain(path, name, size(path).ok()?))
}

fn size(path: &Path) -> io::Result<u64> {
    if is_lines(path) {
        return complete_lines_end(path);
    }
    Ok(path.symlink_metadata()?.len())
}

/// Whether a file consists of lines and is only appended to.
#[must_use]
pub fn is_lines(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl")
}

/// Returns how many bytes of a file are whole lines, including a last line without a newline if it is a complete
/// record.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn complete_line_bytes(path: &Path) -> Result<u64, TranscriptError> {
    complete_lines_end(path).map_err(TranscriptError::io("read", path))
}

fn complete_lines_end(path: &Path) -> io::Result<u64> {
    let (mut file, metadata) = open_with_metadata(path)?;
    let length = metadata.len();
    let mut end = length;
    let mut complete = 0;
    let mut tail = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(TAIL_BYTES);
        tail.clear();
        file.seek(SeekFrom::Start(start))?;
        file.by_ref().take(end - start).read_to_end(&mut tail)?;
        if let Some(newline) = memchr::memrchr(b'\n', &tail) {
            complete = start + newline as u64 + 1;
            break;
        }
        end = start;
    }
    let unended = length - complete;
    if unended == 0 || unended > UNENDED_LIMIT_BYTES {
        return Ok(complete);
    }
    tail.clear();
    file.seek(SeekFrom::Start(complete))?;
    file.take(unended).read_to_end(&mut tail)?;
    let is_record = std::str::from_utf8(&tail).is_ok_and(|text| Fields::parse(text.trim()).is_some());
    Ok(if is_record { length } else { complete })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_that_takes_much_memory_to_read_is_told_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollout-1.jsonl.zst");
        let put = |distance_log| {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(distance_log).unwrap();
            io::Write::write_all(&mut encoder, b"{}\n").unwrap();
            fs::write(&path, encoder.finish().unwrap()).unwrap();
        };
        put(20);
        let part = rollout_part(&path).unwrap();
        assert_eq!((part.name.as_str(), part.bytes), ("rollout-1.jsonl", 3));
        assert_eq!(io::read_to_string(part.open().unwrap()).unwrap(), "{}\n");
        put(26);
        let of_count = rollout_part(&path).unwrap_err();
        let of_count = std::error::Error::source(&of_count).unwrap().to_string();
        let of_text = io::read_to_string(part.open().unwrap()).unwrap_err().to_string();
        for words in [of_count, of_text] {
            assert!(words.contains("zstd -d"), "{words}");
        }
    }

    #[test]
    fn a_session_called_memory_takes_nothing_of_the_project() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("memory")).unwrap();
        fs::write(at("memory/MEMORY.md"), "the project's").unwrap();
        fs::write(at("memory.jsonl"), "{}\n").unwrap();
        let found = parts(&at("memory.jsonl")).unwrap();
        let names: Vec<_> = found.files.iter().map(|part| part.name.as_str()).collect();
        assert_eq!((names, found.left_out), (vec!["memory.jsonl"], vec![]));
    }

    #[test]
    fn a_link_gives_its_name_to_what_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("elsewhere.jsonl"), "{}\n").unwrap();
        std::os::unix::fs::symlink(at("elsewhere.jsonl"), at("s.jsonl")).unwrap();
        let found = only_part(&at("s.jsonl")).unwrap();
        let expected = SessionFile::plain(
            &fs::canonicalize(at("elsewhere.jsonl")).unwrap(),
            "s.jsonl".to_owned(),
            3,
        );
        assert_eq!(found.files, [expected]);
    }

    #[test]
    fn the_files_of_a_session_are_found_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("s/subagents/deep")).unwrap();
        fs::create_dir_all(at("s/tool-results")).unwrap();
        fs::create_dir_all(at("other")).unwrap();
        fs::write(at("s.jsonl"), "{}\n{").unwrap();
        fs::write(at("s/tool-results/t.txt"), "no newline").unwrap();
        fs::write(at("s/subagents/deep/agent-2.jsonl"), "{}\n").unwrap();
        fs::write(at("s/subagents/agent-1.jsonl"), "{}\n{\"torn").unwrap();
        fs::write(at("other/x"), "x").unwrap();
        std::os::unix::fs::symlink(at("other"), at("s/link")).unwrap();
        let found = parts(&at("s.jsonl")).unwrap();
        let told: Vec<_> = found
            .files
            .iter()
            .map(|part| (part.name.as_str(), part.bytes))
            .collect();
        assert_eq!(
            told,
            [
                ("s.jsonl", 3),
                ("s/subagents/agent-1.jsonl", 3),
                ("s/subagents/deep/agent-2.jsonl", 3),
                ("s/tool-results/t.txt", 10),
            ]
        );
        assert_eq!(found.left_out.len(), 1);
        crate::words::check("a link beside a transcript", "leftOut", &found.left_out[0]);

        // The session's folder may itself be a link.
        fs::write(at("t.jsonl"), "{}\n").unwrap();
        std::os::unix::fs::symlink(at("s"), at("t")).unwrap();
        let found = parts(&at("t.jsonl")).unwrap();
        assert_eq!(found.files.len(), 1);
        crate::words::check(
            "a link as the folder of a transcript",
            "leftOut",
            &found.left_out[0],
        );
    }
}

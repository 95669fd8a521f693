//! Files that a Claude session's records name and that are in the folder of another session.
//!
//! The long tool results and the subagents of a fork stay in the folder of the session from which it was forked (Claude
//! Code 2.1.316), so a copy or a move of the fork must collect them. This module decides which of the named files those
//! are, and how the copy names them. It searches only the folder of the same project, and follows no symbolic link.
//! Blocks.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::check::{SideFile, named_files};
use super::reading::Subagents;
use crate::transcript::TranscriptError;
use crate::transcript::check::quoted;
use crate::transcript::meter::Metered;
use crate::transcript::parts::{FILE_LIMIT, SessionFile, side_part};
use crate::transcript::reading::READ_BYTES;
use crate::transcript::relocate::result_name;

/// How many missing files a message names. A longer list would not help the user.
const NAMED_LIMIT: usize = 5;

/// The longest name of a file in the copy, in bytes. The agents' names are far shorter.
const NAME_LIMIT_BYTES: usize = 1024;

/// The files that were collected already, by the names that records use.
#[derive(Debug, Default)]
pub struct Claimed {
    names: BTreeSet<String>,
    /// The transcripts of subagents, with the folder of their project. Other projects are not searched.
    subagents: BTreeSet<(PathBuf, String)>,
}

impl Claimed {
    /// Adds a file of a session whose transcript is in the folder `project`.
    pub fn add(&mut self, project: &Path, part: &SessionFile) {
        for name in [Some(&part.name), part.borrowed_name.as_ref()]
            .into_iter()
            .flatten()
        {
            let file_name = name.rsplit_once('/').map(|(_, file_name)| file_name);
            if let Some(file_name) = file_name.filter(|file_name| is_subagent(file_name)) {
                self.subagents.insert((project.to_owned(), file_name.to_owned()));
            }
            self.names.insert(name.clone());
        }
    }
}

/// Whether this is a name of a subagent's transcript.
fn is_subagent(name: &str) -> bool {
    name.strip_prefix("agent-")
        .is_some_and(|agent| agent.ends_with(".jsonl"))
}

/// Adds the files of other sessions that a session's records name to `files`, unless they are claimed already. The first of
/// `files` is the session's transcript. Returns messages about the named files that are missing, the subagents' transcripts
/// that could not be read and were left out, and the transcripts that may name more files.
///
/// # Errors
/// [`TranscriptError::Io`] if the transcript cannot be read.
pub fn collect_borrowed(
    files: &mut Vec<SessionFile>,
    claimed: &mut Claimed,
) -> Result<Option<String>, TranscriptError> {
    let Some(transcript) = files.first().cloned() else {
        return Ok(None);
    };
    let path = transcript.path.clone();
    let subagents = Subagents::new(&path);
    let project = path.parent().unwrap_or(Path::new(""));
    let session = path.file_stem().unwrap_or_default().to_string_lossy();
    let (mut seen, mut missing, mut unsure) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut unread = vec![transcript];
    while let Some(read) = unread.pop() {
        let (named_files, has_more) = match files_named_by(&read) {
            Ok(named_files) => named_files,
            Err(error) if read.path == path => return Err(TranscriptError::io("read", &path)(error)),
            Err(error) => {
                files.retain(|part| part.path != read.path);
                missing.push(format!("{} ({error})", quoted(&read.name)));
                continue;
            }
        };
        if has_more {
            unsure.push(quoted(&read.name));
        }
        for file in named_files {
            if !seen.insert(file.clone()) {
                continue;
            }
            let (name, collected) = match &file {
                SideFile::ToolResult(path) => {
                    let name = result_name(path).map(str::to_owned);
                    if name.as_ref().is_some_and(|name| claimed.names.contains(name)) {
                        continue;
                    }
                    let collected = name.and_then(|name| find_result(project, &session, name, claimed));
                    (path, collected.map(|part| (part, None)))
                }
                SideFile::Subagent(agent) => {
                    let name = format!("agent-{agent}.jsonl");
                    if claimed.subagents.contains(&(project.to_owned(), name)) {
                        continue;
                    }
                    (agent, find_subagent(&subagents, project, &session, agent))
                }
            };
            let has_room = |(part, _): &(SessionFile, _)| {
                part.name.len() <= NAME_LIMIT_BYTES && files.len() < FILE_LIMIT
            };
            let Some((part, meta)) = collected.filter(has_room) else {
                missing.push(quoted(name));
                continue;
            };
            if matches!(file, SideFile::Subagent(_)) {
                unread.push(part.clone());
                files.extend(meta);
            }
            claimed.add(project, &part);
            files.push(part);
        }
    }
    let notes = [missing_note(&missing), unchecked_note(&unsure)];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    Ok((!notes.is_empty()).then(|| notes.join("; ")))
}

/// Returns the files that the first [`SessionFile::bytes`] of a transcript name, and whether it may name more.
fn files_named_by(part: &SessionFile) -> io::Result<(BTreeSet<SideFile>, bool)> {
    let file = Metered::new(part.open()?.take(part.bytes), part.bytes);
    named_files(BufReader::with_capacity(READ_BYTES, file))
}

/// The transcript of a subagent under its name in the copy, and the file with its task, which not every subagent has.
pub(super) fn find_subagent(
    subagents: &Subagents<'_>,
    project: &Path,
    own: &str,
    agent: &str,
) -> Option<(SessionFile, Option<SessionFile>)> {
    let path = subagents.find(agent).filter(|path| is_within(project, path))?;
    let name = format!("{own}/subagents/agent-{agent}.jsonl");
    let task = name.replace(".jsonl", ".meta.json");
    let task = side_part(&path.with_extension("meta.json"), task);
    Some((side_part(&path, name)?, task))
}

/// Whether the path from the project's folder to a file contains no link.
fn is_within(project: &Path, path: &Path) -> bool {
    let Ok(rest) = path.strip_prefix(project) else {
        return false;
    };
    let mut way = project.to_owned();
    let folders = rest.parent().into_iter().flat_map(Path::components);
    folders.into_iter().all(|folder| {
        way.push(folder);
        fs::symlink_metadata(&way).is_ok_and(|metadata| metadata.is_dir())
    })
}

/// A tool's result in another session's folder, by its name relative to the project's folder.
pub(super) fn find_result(
    project: &Path,
    own: &str,
    recorded_name: String,
    claimed: &Claimed,
) -> Option<SessionFile> {
    let [session, folder, name] = recorded_name.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    if [session, name]
        .iter()
        .any(|part| matches!(*part, "" | "." | ".."))
        || recorded_name.contains('\0')
    {
        return None;
    }
    let mut path = project.to_owned();
    for part in [session, folder] {
        path.push(part);
        fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_dir)?;
    }
    let mut called = format!("{own}/{folder}/{name}");
    if claimed.names.contains(&called) {
        called = format!("{own}/{folder}/{session}/{name}");
    }
    let part = side_part(&path.join(name), called)?;
    Some(SessionFile {
        borrowed_name: Some(recorded_name),
        ..part
    })
}

fn missing_note(missing: &[String]) -> Option<String> {
    let names = join_names(missing);
    match missing.len() {
        0 => None,
        1 => Some(format!("1 file that its records name is missing: {names}")),
        count => Some(format!(
            "{count} files that its records name are missing: {names}"
        )),
    }
}

fn unchecked_note(unsure: &[String]) -> Option<String> {
    let names = join_names(unsure);
    (!unsure.is_empty()).then(|| {
        format!(
            "some records have too many calls and results to look for the files that they name; files named only there are missing: \
             {names}"
        )
    })
}

fn join_names(names: &[String]) -> String {
    let shown = names.get(..NAMED_LIMIT).unwrap_or(names).join(", ");
    match names.len().saturating_sub(NAMED_LIMIT) {
        0 => shown,
        more => format!("{shown}, and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use serde_json::json;

    use super::*;
    use crate::transcript::meter::{Meter, with_meter};
    use crate::transcript::parts::parts;

    fn put(project: &Path, name: &str, text: &str) -> PathBuf {
        let path = project.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Returns records that name these results and subagents.
    fn record(results: &[&str], subagents: &[&str]) -> String {
        let text = |path: &&str| {
            json!({"type": "tool_result", "tool_use_id": "t", "content":
            format!("<persisted-output>\nFull output saved to: {path}\n\nPreview")})
        };
        let content: Vec<_> = results.iter().map(text).collect();
        let of_results = json!({"type": "user", "uuid": "u", "message": {"content": content}});
        let of_agents = subagents.iter().map(
            |agent| json!({"type": "user", "uuid": "v", "toolUseResult": {"agentId": agent}, "message": {"content": []}}),
        );
        let records = std::iter::once(of_results).chain(of_agents);
        records.map(|record| format!("{record}\n")).collect()
    }

    /// Returns the names of the collected files, in order, and the message about missing ones.
    fn collected(
        transcript: &Path,
        claimed: &mut Claimed,
    ) -> (Vec<(String, Option<String>)>, Option<String>) {
        let mut files = parts(transcript).unwrap().files;
        let own = files.len();
        let project = transcript.parent().unwrap();
        files.iter().for_each(|part| claimed.add(project, part));
        let told = collect_borrowed(&mut files, claimed).unwrap();
        let found = files.drain(own..).map(|part| (part.name, part.borrowed_name));
        (found.collect(), told)
    }

    /// A conversation may have moved from one folder to another, and a session looks only in its own.
    #[test]
    fn what_goes_along_with_another_project_is_none_of_this_one() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let first = put(&one, "first.jsonl", &record(&[], &["x1"]));
        put(&one, "first/subagents/agent-x1.jsonl", "{}\n");
        let fork = put(&other, "fork.jsonl", &record(&[], &["x1"]));
        put(&other, "first/subagents/agent-x1.jsonl", "{}\n");
        let mut claimed = Claimed::default();
        assert_eq!(collected(&first, &mut claimed), (Vec::new(), None));
        let borrowed = ("fork/subagents/agent-x1.jsonl".to_owned(), None);
        assert_eq!(collected(&fork, &mut claimed), (vec![borrowed], None));
    }

    /// A meter that fails once, after this many bytes.
    struct OnceBroken {
        left: AtomicU64,
        was_told: AtomicBool,
    }

    impl Meter for OnceBroken {
        fn expect_bytes(&self, _: u64) {}

        fn count_bytes(&self, bytes: u64) -> io::Result<()> {
            let left = self.left.load(Ordering::Relaxed).saturating_sub(bytes);
            self.left.store(left, Ordering::Relaxed);
            if left == 0 && bytes > 0 && !self.was_told.swap(true, Ordering::Relaxed) {
                return Err(io::Error::other("a bad sector"));
            }
            Ok(())
        }
    }

    #[test]
    fn a_subagent_that_cannot_be_read_stays_behind_alone() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path();
        let said = record(&[], &["x1", "x2"]);
        let fork = put(project, "fork.jsonl", &said);
        for agent in ["x1", "x2"] {
            let result = format!("source/tool-results/{agent}.txt");
            put(project, &result, agent);
            let name = format!("source/subagents/agent-{agent}.jsonl");
            put(project, &name, &record(&[&format!("/p/{result}")], &[]));
        }
        let names = |meter: OnceBroken| {
            let mut claimed = Claimed::default();
            let (found, told) = with_meter(Arc::new(meter), || collected(&fork, &mut claimed));
            let names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
            (names, told)
        };
        let broken_after = |bytes: usize| OnceBroken {
            left: AtomicU64::new(bytes as u64),
            was_told: AtomicBool::new(false),
        };
        let (found, told) = names(broken_after(said.len() + 1));
        assert_eq!(
            found,
            ["fork/subagents/agent-x1.jsonl", "fork/tool-results/x1.txt"]
        );
        crate::words::check(
            "a fork with a file that cannot be read",
            "leftOut",
            &told.unwrap(),
        );
        assert_eq!(names(broken_after(usize::MAX)).0.len(), 4);
    }

    #[test]
    fn more_files_than_are_looked_for_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let results = vec!["/p/source/tool-results/a.txt"; 10_001];
        put(folder.path(), "source/tool-results/a.txt", "a");
        let fork = put(folder.path(), "fork.jsonl", &record(&results, &[]));
        let (found, told) = collected(&fork, &mut Claimed::default());
        assert_eq!(found.len(), 1);
        crate::words::check("a fork with very many files", "leftOut", &told.unwrap());
    }

    #[test]
    fn a_result_is_found_by_a_relative_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = "source/tool-results/a.txt";
        put(folder.path(), path, "a");
        let fork = put(folder.path(), "fork.jsonl", &record(&[path], &[]));
        let found = ("fork/tool-results/a.txt".to_owned(), Some(path.to_owned()));
        assert_eq!(collected(&fork, &mut Claimed::default()), (vec![found], None));
    }

    #[test]
    fn what_is_not_there_or_leads_elsewhere_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        put(&project, "real/tool-results/a.txt", "a");
        put(folder.path(), "tool-results/secret", "out of the project");
        std::os::unix::fs::symlink(project.join("real"), project.join("linked")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", project.join("real/tool-results/link")).unwrap();
        let table = [
            "/p/gone/tool-results/a.txt",
            "/p/linked/tool-results/a.txt",
            "/p/real/tool-results/link",
            "/p/../tool-results/secret",
            "/p/real/tool-results/../../../tool-results/secret",
            "tool-results",
        ];
        for path in table {
            let fork = put(&project, "fork.jsonl", &record(&[path], &[]));
            let (found, told) = collected(&fork, &mut Claimed::default());
            assert_eq!(found, [], "{path}");
            assert_eq!(
                told.unwrap(),
                format!("1 file that its records name is missing: {path}")
            );
        }
        // A subagent is not found through a link either, neither to a session's folder nor to its subagents' folder.
        put(
            folder.path(),
            "elsewhere/subagents/agent-o1.jsonl",
            "out of the project",
        );
        let elsewhere = folder.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, project.join("led")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("subagents"), project.join("real/subagents")).unwrap();
        let fork = put(&project, "fork.jsonl", &record(&[], &["o1"]));
        let (found, told) = collected(&fork, &mut Claimed::default());
        assert_eq!((found, told.is_some()), (Vec::new(), true));
        let fork = put(
            &project,
            "fork.jsonl",
            &record(&[], &["x1", "x2", "x3", "x4", "x5", "x6", "x7"]),
        );
        let (_, told) = collected(&fork, &mut Claimed::default());
        let words = "7 files that its records name are missing: x1, x2, x3, x4, x5, and 2 more";
        assert_eq!(told.unwrap(), words);
    }
}

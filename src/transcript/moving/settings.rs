//! What Claude Code notes of folders beside its transcripts: its settings by project, and what was typed in which.
//!
//! Owns which files those are and which of their bytes name a folder. Whoever wants them changed asks for it, and gets the
//! file as it was kept aside. Blocks, but for the [rewriting](rewritten) itself, which is pure.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::super::TranscriptError;
use super::super::fields::{Fields, lenient_text};
use super::super::parts;
use super::super::relocate::Relocation;
use super::journal::rename;
use super::{Content, Kind, Step};
use crate::files::durable::{self, NewFile};

/// The file with the settings, a member of which has one entry for each project.
const SETTINGS: &str = ".claude.json";

/// That member.
const PROJECTS: &str = "projects";

/// The file with what was typed.
const TYPED: &str = "history.jsonl";

/// What names the folder in each of its lines.
pub(super) const PROJECT: &str = "project";

/// The folder with one of each background task's, in which [`JOB`] says where that runs.
const JOBS: &str = "jobs";

/// See [`JOBS`].
const JOB: &str = "state.json";

/// The largest of them that is looked at, in bytes. They are of some kilobytes.
const JOB_LIMIT_BYTES: u64 = 1024 * 1024;

/// What names a folder in it.
const JOB_FOLDERS: [&str; 3] = ["cwd", "originCwd", "worktreePath"];

/// The largest of these files that is held to be rewritten, in bytes. They are of some megabytes.
const LIMIT_BYTES: u64 = 256 * 1024 * 1024;

/// A file as it is with other folders, and what of it could not be changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rewritten<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// Folders that both have an entry, so that the old one stays.
    pub(super) taken: Vec<String>,
}

/// The steps that have the files of the agent with this folder name other folders, and what stays as it is.
///
/// # Errors
/// [`TranscriptError::Io`] when one is there and cannot be read.
pub fn plan_settings(
    root: &Path,
    folders: &[(String, String)],
) -> Result<(Vec<Step>, Vec<String>), TranscriptError> {
    let mut files = vec![root.join(SETTINGS), root.join(TYPED)];
    if root.file_name().is_some_and(|name| name == ".claude") {
        // Where the folder has its usual place the settings lie beside it.
        files.extend(root.parent().map(|home| home.join(SETTINGS)));
    }
    let relocation = Relocation {
        folders: folders.to_vec(),
        ..Relocation::default()
    };
    files.extend(jobs_of(root, &relocation));
    let (mut steps, mut left_out) = (Vec::new(), Vec::new());
    for file in files {
        // What a link leads to is changed, and the link stays.
        let file = match fs::canonicalize(&file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(TranscriptError::io("look at", &file)(error)),
        };
        let bytes = fs::metadata(&file)
            .map_err(TranscriptError::io("look at", &file))?
            .len();
        if bytes > LIMIT_BYTES {
            left_out.push(format!("{} is too large to be changed", file.display()));
            continue;
        }
        let now = fs::read(&file).map_err(TranscriptError::io("read", &file))?;
        let Some(then) = rewritten(&file, &now, folders) else {
            left_out.push(format!(
                "{} is not what it is known as, and stays",
                file.display()
            ));
            continue;
        };
        let taken = then.taken.iter();
        left_out.extend(taken.map(|folder| format!("{} has an entry for {folder} already", file.display())));
        if *then.bytes == *now {
            continue;
        }
        steps.push(Step {
            session: String::new(),
            from: file.clone(),
            to: file,
            kind: Kind::Settings,
            bytes,
            stays: false,
            folders: folders.to_vec(),
            content: Content::Relocated,
        });
    }
    Ok((steps, left_out))
}

/// The states of background tasks that name a folder that goes. What cannot be read, or is none, names nothing that is known.
fn jobs_of(root: &Path, relocation: &Relocation) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join(JOBS)).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path().join(JOB))
        .filter(|file| {
            let is_short = fs::metadata(file).is_ok_and(|metadata| metadata.len() <= JOB_LIMIT_BYTES);
            let state = is_short.then(|| fs::read_to_string(file).ok()).flatten();
            let places = state.and_then(|state| Some(job_places(&state, relocation)?.len()));
            places.is_some_and(|places| places > 0)
        })
        .collect();
    found.sort();
    found
}

/// Where the state of a background task names such a folder, and the folder in its place; none when it cannot be read.
fn job_places(text: &str, relocation: &Relocation) -> Option<Vec<(Range<usize>, String)>> {
    let mut places: Vec<_> = job_folders(text)?
        .into_iter()
        .filter_map(|(_, place, old)| Some((place, relocation.folder(&old).filter(|new| *new != old)?)))
        .collect();
    places.sort_by_key(|(place, _)| place.start);
    Some(places)
}

/// The folders that it names: by which member, where that stands, and what it says.
fn job_folders(text: &str) -> Option<Vec<(&'static str, Range<usize>, String)>> {
    let members = Members::parse(text)?;
    let folders = JOB_FOLDERS.iter().filter_map(|name| {
        let value = members.get(name)?.get();
        let start = value.as_ptr() as usize - text.as_ptr() as usize;
        Some((*name, start..start + value.len(), lenient_text(value)?))
    });
    Some(folders.collect())
}

/// Whether two states of a background task have the same but for the folders that they name; else the line 1.
fn is_same_job(theirs: &[u8], ours: &[u8]) -> Result<(), u64> {
    fn others(text: &[u8]) -> Option<Vec<(&str, &str)>> {
        let members = Members::parse(std::str::from_utf8(text).ok()?)?.0.into_iter();
        let is_folder = |name: &str| lenient_text(name).is_some_and(|name| JOB_FOLDERS.contains(&&*name));
        let members = members.map(|(name, value)| (name.get(), value.get()));
        Some(
            members
                .map(|(name, value)| (name, if is_folder(name) { "" } else { value }))
                .collect(),
        )
    }
    match (others(theirs), others(ours)) {
        (Some(theirs), Some(ours)) if theirs == ours => Ok(()),
        _ => Err(1),
    }
}

/// What a state is when a change of its folders is taken back: those that it was given name what they named `before`.
fn job_taken_back(before: &str, now: &str, relocation: &Relocation) -> Option<Vec<u8>> {
    let before = job_folders(before)?;
    let mut places: Vec<_> = job_folders(now)?
        .into_iter()
        .filter_map(|(name, place, now)| {
            let (_, _, old) = before.iter().find(|(other, _, _)| *other == name)?;
            (relocation.folder(old)? == now).then(|| (place, old.clone()))
        })
        .collect();
    places.sort_by_key(|(place, _)| place.start);
    Some(replaced(now.as_bytes(), places).into_owned())
}

fn is_job(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == JOB)
}

/// Such a file with other folders; none when it cannot be read.
pub(super) fn rewritten<'a>(
    file: &Path,
    text: &'a [u8],
    folders: &[(String, String)],
) -> Option<Rewritten<'a>> {
    let relocation = Relocation {
        folders: folders.to_vec(),
        ..Relocation::default()
    };
    if parts::is_lines(file) {
        return Some(typed(text, &relocation));
    }
    let text = std::str::from_utf8(text).ok()?;
    if is_job(file) {
        return Some(Rewritten {
            bytes: replaced(text.as_bytes(), job_places(text, &relocation)?),
            taken: Vec::new(),
        });
    }
    by_project(text, &relocation)
}

/// Checks that a copy is what its source is with other folders, and can be read as well.
///
/// # Errors
/// [`TranscriptError::Unlike`] when it is not; what cannot be read.
pub(super) fn check(step: &Step, copy: &Path) -> Result<(), TranscriptError> {
    let read = |path: &Path| fs::read(path).map_err(TranscriptError::io("read", path));
    let (theirs, ours) = (read(&step.from)?, read(copy)?);
    let is_alike = match parts::is_lines(&step.from) {
        true => super::comparing::are_alike(&theirs, &ours, PROJECT),
        false if is_job(&step.from) => is_same_job(&theirs, &ours),
        false => has_same_values(&theirs, &ours),
    };
    is_alike.map_err(|line| TranscriptError::Unlike {
        path: step.from.clone(),
        line,
    })
}

/// Writes what the file is behind the step.
///
/// # Errors
/// [`TranscriptError::Io`], and [`TranscriptError::Changed`] when it is no such file any more.
pub(super) fn fill(step: &Step, writer: &mut dyn Write) -> Result<(), TranscriptError> {
    let now = fs::read(&step.from).map_err(TranscriptError::io("read", &step.from))?;
    let changed = || TranscriptError::Changed {
        path: step.from.clone(),
    };
    if let Content::Restored { original } = &step.content {
        let before = fs::read(original).map_err(TranscriptError::io("read", original))?;
        let back = taken_back(&step.from, &before, &now, &reversed(step)).ok_or_else(changed)?;
        return writer
            .write_all(&back)
            .map_err(TranscriptError::io("write", &step.to));
    }
    let then = rewritten(&step.from, &now, &step.folders).ok_or_else(changed)?;
    writer
        .write_all(&then.bytes)
        .map_err(TranscriptError::io("write", &step.to))
}

/// What was typed: a line for each, and the project in it.
fn typed<'a>(text: &'a [u8], relocation: &Relocation) -> Rewritten<'a> {
    let mut places = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let start = at;
        at += line.len();
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        let place = Fields::parse(line).and_then(|fields| fields.place(line, PROJECT));
        let Some(place) = place else { continue };
        let old = lenient_text(&line[place.clone()]);
        if let Some(new) = old.and_then(|old| relocation.folder(&old)) {
            places.push((start + place.start..start + place.end, new));
        }
    }
    Rewritten {
        bytes: replaced(text, places),
        taken: Vec::new(),
    }
}

/// The settings: one object, a member of which has a project's folder for each name.
fn by_project<'a>(text: &'a str, relocation: &Relocation) -> Option<Rewritten<'a>> {
    let names = names(text)?;
    let (renamed, taken) = renamed(&names, relocation);
    Some(Rewritten {
        bytes: with_names(text, &names, &renamed),
        taken,
    })
}

/// Each project of these settings: the token that names it, and what that says.
fn names(text: &str) -> Option<Vec<(&str, String)>> {
    let Some(projects) = Members::parse(text)?.get(PROJECTS) else {
        return Some(Vec::new());
    };
    let members = Members::parse(projects.get())?.0.into_iter();
    let names = members.map(|(name, _)| Some((name.get(), lenient_text(name.get())?)));
    names.collect()
}

/// Which of these projects have another name behind a move, and the names that are another's already.
fn renamed(names: &[(&str, String)], relocation: &Relocation) -> (HashMap<String, String>, Vec<String>) {
    let mut there: HashSet<String> = names.iter().map(|(_, name)| name.clone()).collect();
    let (mut renamed, mut taken) = (HashMap::new(), Vec::new());
    for (_, old) in names {
        match relocation.folder(old).filter(|new| new != old) {
            // Two that become one would be one entry to the agent.
            Some(new) if !there.insert(new.clone()) => taken.push(new),
            Some(new) => {
                renamed.insert(old.clone(), new);
            }
            None => {}
        }
    }
    (renamed, taken)
}

/// Settings in which some projects have other names.
fn with_names<'a>(
    text: &'a str,
    names: &[(&str, String)],
    others: &HashMap<String, String>,
) -> Cow<'a, [u8]> {
    let places = names.iter().filter_map(|(token, name)| {
        let start = token.as_ptr() as usize - text.as_ptr() as usize;
        Some((start..start + token.len(), others.get(name)?.clone()))
    });
    replaced(text.as_bytes(), places.collect())
}

/// What a file is when a change of its folders is taken back: what it was `before`, with what was written to it since.
fn taken_back(file: &Path, before: &[u8], now: &[u8], forth: &[(String, String)]) -> Option<Vec<u8>> {
    let relocation = Relocation {
        folders: forth.to_vec(),
        ..Relocation::default()
    };
    if parts::is_lines(file) {
        let made = typed(before, &relocation).bytes;
        let lines = |text| <[u8]>::split_inclusive(text, |byte| *byte == b'\n');
        let before: HashMap<&[u8], &[u8]> = lines(&made).zip(lines(before)).collect();
        let back = lines(now).map(|line| before.get(line).copied().unwrap_or(line));
        return Some(back.flatten().copied().collect());
    }
    let (before, now) = (std::str::from_utf8(before).ok()?, std::str::from_utf8(now).ok()?);
    if is_job(file) {
        return job_taken_back(before, now, &relocation);
    }
    let there = names(now)?;
    let (renamed, _) = renamed(&names(before)?, &relocation);
    let is_free = |old: &String| there.iter().all(|(_, name)| name != old);
    let back = renamed.into_iter().filter(|(old, _)| is_free(old));
    let back = back.map(|(old, new)| (new, old)).collect();
    let bytes = with_names(now, &there, &back).into_owned();
    Some(bytes)
}

/// A text in which JSON strings stand in these places, which come in their order.
fn replaced(text: &[u8], places: Vec<(Range<usize>, String)>) -> Cow<'_, [u8]> {
    if places.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut written = Vec::with_capacity(text.len() + 64);
    let mut at = 0;
    for (place, new) in places {
        written.extend_from_slice(&text[at..place.start]);
        written.extend_from_slice(serde_json::Value::from(new).to_string().as_bytes());
        at = place.end;
    }
    written.extend_from_slice(&text[at..]);
    Cow::Owned(written)
}

/// Whether two settings have the same but for the names of their projects; else the line 1.
fn has_same_values(theirs: &[u8], ours: &[u8]) -> Result<(), u64> {
    match (values(theirs), values(ours)) {
        (Some(theirs), Some(ours)) if theirs == ours => Ok(()),
        _ => Err(1),
    }
}

/// All that stands in settings but for the names of projects.
fn values(text: &[u8]) -> Option<Vec<&str>> {
    let settings = Members::parse(std::str::from_utf8(text).ok()?)?;
    let mut values = Vec::new();
    for (name, value) in &settings.0 {
        values.push(name.get());
        match Members::parse(value.get()).filter(|_| lenient_text(name.get()).as_deref() == Some(PROJECTS)) {
            Some(projects) => values.extend(projects.0.iter().map(|(_, value)| value.get())),
            None => values.push(value.get()),
        }
    }
    Some(values)
}

/// The members of a JSON object, names too as they stand in the text.
struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'a> Members<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text.trim_start_matches('\u{feff}')).ok()
    }

    fn get(&self, wanted: &str) -> Option<&'a RawValue> {
        let mut members = self.0.iter().rev();
        let is_wanted =
            |(name, _): &&(&RawValue, &RawValue)| lenient_text(name.get()).as_deref() == Some(wanted);
        members.find(is_wanted).map(|(_, value)| *value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// Takes a change back that may have been made or not: what somebody has written since stays.
///
/// # Errors
/// [`TranscriptError::Io`].
pub(super) fn put_back(kept: &Path, step: &Step, temporary: &Path) -> Result<(), TranscriptError> {
    let before = fs::read(kept).map_err(TranscriptError::io("read", kept))?;
    let now = match fs::read(&step.to) {
        Ok(now) => now,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return rename(kept, &step.to),
        Err(error) => return Err(TranscriptError::io("read", &step.to)(error)),
    };
    if now != before {
        match taken_back(&step.to, &before, &now, &step.folders) {
            // Whoever reads it meanwhile finds the one or the other.
            Some(back) if back == before && durable::rename(kept, &step.to).is_ok() => return Ok(()),
            Some(back) => replace(temporary, &step.to, &back)?,
            None => {
                tracing::warn!(path = %step.to.display(), "is not what it was any more, and stays as it is");
            }
        }
    }
    fs::remove_file(kept).map_err(TranscriptError::io("remove", kept))
}

/// The folders of a step, the other way round.
fn reversed(step: &Step) -> Vec<(String, String)> {
    let folders = step.folders.iter();
    folders.map(|(from, to)| (to.clone(), from.clone())).collect()
}

/// Puts these bytes in the place of a file.
fn replace(temporary: &Path, path: &Path, bytes: &[u8]) -> Result<(), TranscriptError> {
    let written = || -> io::Result<()> {
        let permissions = fs::metadata(path)?.permissions();
        let mut made = NewFile::anew(temporary)?;
        made.file().set_permissions(permissions)?;
        made.write_all(bytes)?;
        made.sync()
    };
    written().map_err(TranscriptError::io("write", temporary))?;
    durable::rename(temporary, path).map_err(TranscriptError::io("rename", temporary))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> Vec<(String, String)> {
        vec![("/w/old".to_owned(), "/w/new \"é\"".to_owned())]
    }

    fn rewrite(name: &str, text: &str) -> Option<(String, Vec<String>)> {
        let made = rewritten(Path::new(name), text.as_bytes(), &folders())?;
        Some((String::from_utf8(made.bytes.into_owned()).unwrap(), made.taken))
    }

    #[test]
    fn projects_are_named_by_their_new_folders_and_nothing_else_changes() {
        let before = "{\n  \"n\": 1.50, \"x\": \"/w/old\",\n  \"projects\": {\n    \"/w/old\": {\"projects\": {\"/w/old\": 1}},\n    \"/w\\/old/sub\" : [1],\n    \"/w/older\": {}\n  },\n  \"z\":null }\n";
        let after = before
            .replacen("    \"/w/old\"", "    \"/w/new \\\"é\\\"\"", 1)
            .replacen("\"/w\\/old/sub\"", "\"/w/new \\\"é\\\"/sub\"", 1);
        assert_eq!(rewrite(".claude.json", before), Some((after.clone(), Vec::new())));
        assert_eq!(has_same_values(before.as_bytes(), after.as_bytes()), Ok(()));
        for other in [
            after.replace("1.50", "1.5"),
            after.replace("[1]", "[2]"),
            after.replace("\"/w/older\": {}", ""),
            after.replace("\"z\"", "\"y\""),
        ] {
            assert_eq!(
                has_same_values(before.as_bytes(), other.as_bytes()),
                Err(1),
                "{other}"
            );
        }
        // Nothing in it names the folder.
        for text in ["{}", "{\"projects\":{}}", "{\"projects\":{\"/w\":1}}"] {
            assert_eq!(rewrite(".claude.json", text), Some((text.to_owned(), Vec::new())));
        }
        assert_eq!(rewrite(".claude.json", "no object"), None);
        assert_eq!(rewrite(".claude.json", "{\"projects\":[]}"), None);
    }

    #[test]
    fn a_project_that_has_an_entry_already_keeps_it() {
        let both = r#"{"projects":{"/w/old":1,"/w/new \"é\"":2,"/w/old/a":3}}"#;
        let (text, taken) = rewrite(".claude.json", both).unwrap();
        assert_eq!(
            text,
            r#"{"projects":{"/w/old":1,"/w/new \"é\"":2,"/w/new \"é\"/a":3}}"#
        );
        assert_eq!(taken, ["/w/new \"é\""]);

        // By a link and by the folder it led to.
        let folders = [
            ("/link".to_owned(), "/w/new".to_owned()),
            ("/w/old".to_owned(), "/w/new".to_owned()),
        ];
        let both = br#"{"projects":{"/w/old":1,"/link":2}}"#;
        let made = rewritten(Path::new(".claude.json"), both, &folders).unwrap();
        assert_eq!(&*made.bytes, br#"{"projects":{"/w/new":1,"/link":2}}"#);
        assert_eq!(made.taken, ["/w/new"]);
    }

    #[test]
    fn what_was_written_since_outlives_that_a_change_is_taken_back() {
        let table = [
            (
                ".claude.json",
                r#"{"n":1,"projects":{"/w/old":1,"/w/old/a":2,"/w/new \"é\"/b":3}}"#,
                r#"{"n":2,"projects":{"/w/new \"é\"":9,"/w/new \"é\"/a":2,"/w/new \"é\"/b":3,"/w/old/a":4}}"#,
                // What has come back by itself keeps its name.
                r#"{"n":2,"projects":{"/w/old":9,"/w/new \"é\"/a":2,"/w/new \"é\"/b":3,"/w/old/a":4}}"#,
            ),
            (
                "history.jsonl",
                "{\"project\":\"/w/old\"}\n{\"project\":\"/w/new \\\"é\\\"/b\"}\n",
                "{\"project\":\"/w/new \\\"é\\\"\"}\n{\"project\":\"/w/new \\\"é\\\"/b\"}\n{\"project\":\"/w/new \\\"é\\\"/c\"}\n",
                "{\"project\":\"/w/old\"}\n{\"project\":\"/w/new \\\"é\\\"/b\"}\n{\"project\":\"/w/new \\\"é\\\"/c\"}\n",
            ),
        ];
        for (name, before, since, back) in table {
            let made = rewrite(name, before).unwrap().0;
            let taken = |now: &str| {
                let back = taken_back(Path::new(name), before.as_bytes(), now.as_bytes(), &folders());
                String::from_utf8(back.unwrap()).unwrap()
            };
            assert_eq!(taken(&made), before, "{name}");
            assert_eq!(taken(since), back, "{name}");
            assert_eq!(taken(before), before, "{name}");
        }
    }

    #[test]
    fn what_was_typed_is_found_in_the_new_folder() {
        let before = "{\"display\":\"in /w/old\",\"project\":\"/w/old/x\",\"n\":1}\n@@@\n{\"project\":\"/w/older\"}\n{\"project\":\"/w/old\"}";
        let after = before
            .replace("\"/w/old/x\"", "\"/w/new \\\"é\\\"/x\"")
            .replace("\"/w/old\"", "\"/w/new \\\"é\\\"\"");
        assert_eq!(rewrite("history.jsonl", before), Some((after, Vec::new())));
    }
}

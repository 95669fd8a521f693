//! A copy of a recorded data folder that looks as if it had been written at its new path.
//!
//! Lists, intents and the journal contain paths, inodes and times of files, protected by checksums. In the copy they
//! are replaced by its own, so that the daemon judges each file as it would have at the recorded path. Recorded sizes
//! stay: a file that had changed since counts as changed in the copy too. Therefore the path of the copy is as long as
//! the recorded one. Checksums are computed again as the version that wrote them did.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::carrying::files_below;
use crate::home::Home;

/// The recorded folders.
pub(super) const VERSIONS: [&str; 2] = ["v1", "v2"];

/// The agent's folder in a home.
const AGENT: &str = "data/loopback";

pub(super) fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data")
}

pub(super) fn fixture(version: &str, name: &str) -> PathBuf {
    recordings().join(version).join(name)
}

/// A copy of a recorded home.
pub(super) struct Recorded {
    pub(super) home: Home,
    /// The answers of the version that wrote the folder, with the paths of the copy.
    pub(super) expected: Value,
    _folder: TempDir,
}

impl Recorded {
    /// Copies the home that a version left when it was killed.
    pub(super) fn open(version: &str) -> Self {
        Self::with(version, &[])
    }

    /// Does the same as [`Recorded::open`], but replaces texts in each file. Both texts of a pair must have the same
    /// length.
    pub(super) fn with(version: &str, others: &[(&str, &str)]) -> Self {
        Self::of(version, Copy::begin(version, "home", others))
    }

    /// Does the same as [`Recorded::open`], but lists and intents do not match the files' identities, as in a restored
    /// backup.
    pub(super) fn restored(version: &str) -> Self {
        let mut copy = Copy::begin(version, "home", &[]);
        copy.are_same_files = false;
        Self::of(version, copy)
    }

    fn of(version: &str, copy: Copy) -> Self {
        let expected = copy.replaced(&fs::read(fixture(version, "expected.json")).unwrap());
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let recorded = copy.finish(&fixture(version, "home"), expected);
        for folder in recorded.expected["folders"].as_array().unwrap() {
            recorded.home.folder_named(folder.as_str().unwrap());
        }
        recorded
    }

    /// Copies the home that a version left when it was stopped.
    pub(super) fn closed(version: &str) -> Self {
        let folder = fixture(version, "closed");
        let expected = fs::read(folder.join("conversations.json")).unwrap();
        let copy = Copy::begin(version, "closed", &[]);
        copy.finish(&folder, serde_json::from_slice(&expected).unwrap())
    }

    /// Returns the recorded answers about each conversation, with its name.
    pub(super) fn conversations(&self) -> impl Iterator<Item = (&str, &Value)> {
        let all = self.expected["conversations"].as_object().unwrap().iter();
        all.map(|(name, expected)| (name.as_str(), expected))
    }

    /// Returns the id of the conversation that was recorded under this name.
    pub(super) fn id(&self, name: &str) -> ConversationId {
        let id = &self.expected["conversations"][name]["conversation"]["id"];
        serde_json::from_value(id.clone()).unwrap()
    }

    /// Returns the recorded head of a conversation.
    pub(super) fn head(&self, name: &str) -> &str {
        let head = &self.expected["conversations"][name]["conversation"]["head"];
        head.as_str().unwrap()
    }
}

/// A copy that is being made.
struct Copy {
    folder: TempDir,
    /// The texts to replace: each recorded text and its replacement.
    texts: Vec<(String, String)>,
    /// The hash of each recorded file content, and that of its copy.
    digests: HashMap<String, String>,
    /// Whether lists and intents are changed to match the copied files.
    are_same_files: bool,
}

impl Copy {
    fn begin(version: &str, recording: &str, others: &[(&str, &str)]) -> Self {
        let recorded = format!("/tmp/session-bridge-{version}");
        let prefix = "sb-";
        let folder = tempfile::Builder::new()
            .prefix(prefix)
            .rand_bytes(recorded.len() - "/tmp/".len() - prefix.len())
            .tempdir_in("/tmp")
            .unwrap();
        let here = folder.path().to_str().unwrap();
        assert_eq!(here.len(), recorded.len());
        let as_name = |path: &str| path.replace('/', "-");
        let mut texts = vec![
            (recorded.clone(), here.to_owned()),
            (as_name(&recorded), as_name(here)),
            // The folder for the kept copies of the agent's transcripts has a name that depends on the home's path.
            (root_name(&recorded), root_name(here)),
        ];
        // Intents of imports contain paths as lists of bytes.
        let of_bytes = texts.iter().map(|(from, to)| (listed(from), listed(to)));
        texts.extend(of_bytes.collect::<Vec<_>>());
        // The marker by which a daemon recognizes its processes: copies that are used at the same time need different
        // ones.
        let name = fs::read_to_string(fixture(version, &format!("{recording}/data/instance"))).unwrap();
        texts.push((name, ConversationId::mint().to_string().replace('-', "")));
        texts.extend(
            others
                .iter()
                .map(|(from, to)| ((*from).to_owned(), (*to).to_owned())),
        );
        Self {
            folder,
            texts,
            digests: HashMap::new(),
            are_same_files: true,
        }
    }

    fn finish(mut self, from: &Path, expected: Value) -> Recorded {
        let home = Home::at(self.folder.path());
        self.copy(from, home.path());
        for path in files_below(&home.data()) {
            self.fit(&path);
        }
        Recorded {
            home,
            expected,
            _folder: self.folder,
        }
    }

    fn copy(&mut self, from: &Path, to: &Path) {
        // The mode does not depend on the umask of the test, since the daemon refuses folders that others can write to.
        DirBuilder::new().recursive(true).mode(0o700).create(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(OsStr::from_bytes(&self.replaced(entry.file_name().as_bytes())));
            if entry.file_type().unwrap().is_dir() {
                self.copy(&entry.path(), &target);
                continue;
            }
            let file = fs::read(entry.path()).unwrap();
            let is_packed = target.extension() == Some(OsStr::new("zst"));
            let text = if is_packed {
                zstd::decode_all(&file[..]).unwrap()
            } else {
                file
            };
            let copied = self.replaced(&text);
            self.digests.insert(digest(&text), digest(&copied));
            let file = if is_packed {
                zstd::encode_all(&copied[..], 3).unwrap()
            } else {
                copied
            };
            fs::write(target, file).unwrap();
        }
    }

    /// Returns the text with each recorded text replaced. Bytes that are not UTF-8 stay: they belong to a database,
    /// which is rebuilt from the journal because the machine was restarted since.
    fn replaced(&self, text: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(text) else {
            return text.to_owned();
        };
        let replace = |text: String, (from, to): &(String, String)| text.replace(from, to);
        self.texts.iter().fold(text.to_owned(), replace).into_bytes()
    }

    /// Changes the copy of a list, an intent or the journal so that it matches the copied files, and renews its
    /// checksums.
    fn fit(&self, path: &Path) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let below = path.strip_prefix(self.folder.path().join("data")).unwrap();
        let is_lines = match below.iter().next().unwrap().to_str().unwrap() {
            "journal.jsonl" | "copies" | "trees" => true,
            "kept" => name.ends_with(".json") || name.ends_with(".mark"),
            "moves" | "imports" => name == "journal" || name == "plan",
            _ => false,
        };
        if !is_lines {
            return;
        }
        let text = fs::read_to_string(path).unwrap();
        let mut first = Value::Null;
        let mut fitted = String::new();
        for line in text.split_inclusive('\n') {
            let Ok(mut value) = serde_json::from_str::<Value>(line) else {
                fitted += line;
                continue;
            };
            if let Some((start, change)) = line.split_once("\"change\":") {
                let change = change.trim_end().strip_suffix('}').unwrap();
                let (seq, _) = start.split_once("\"sum\"").unwrap();
                let sum = journal_sum(value["seq"].as_u64().unwrap(), change);
                writeln!(fitted, "{seq}\"sum\":\"{sum:08x}\",\"change\":{change}}}").unwrap();
                continue;
            }
            let is_checked = value.get("crc32").is_some();
            let note = if is_checked {
                &mut value["note"]
            } else {
                &mut value
            };
            self.fit_note(note, &first, path.parent().unwrap());
            if first.is_null() {
                first = note.clone();
            }
            if is_checked {
                value["crc32"] = json!(crc32fast::hash(value["note"].to_string().as_bytes()));
            }
            writeln!(fitted, "{value}").unwrap();
        }
        fs::write(path, fitted).unwrap();
    }

    /// Replaces the identities of files in a line with those of the copies. `first` is the first line of the file.
    fn fit_note(&self, note: &mut Value, first: &Value, folder: &Path) {
        self.fit_copies(note, folder);
        if let Some(whole) = note.get_mut("whole") {
            self.identify(whole, Path::new(first["transcript"].as_str().unwrap()));
        }
        let steps = first["begun"]["steps"].as_array();
        let copied = note.get_mut("copied").and_then(Value::as_array_mut);
        for (step, written) in steps.into_iter().flatten().zip(copied.into_iter().flatten()) {
            self.identify(written, Path::new(step["to"].as_str().unwrap()));
        }
        if let Some(file) = note.get_mut("file") {
            let bytes: Vec<u8> = serde_json::from_value(file["path"]["Unix"].clone()).unwrap();
            self.identify(file, Path::new(OsStr::from_bytes(&bytes)));
            self.rehash(file);
        }
    }

    /// Does the same as [`Copy::fit_note`] for a list of kept copies, and makes links to the agent's files again.
    fn fit_copies(&self, note: &mut Value, folder: &Path) {
        let files = note.get_mut("files").and_then(Value::as_object_mut);
        for (name, copies) in files.into_iter().flatten() {
            for copy in copies.as_array_mut().unwrap() {
                let file = folder.join(copy["file"].as_str().unwrap());
                let agents = self.folder.path().join(AGENT);
                let source = agents.join(copy["folder"].as_str().unwrap()).join(name);
                if copy.get("packedBytes").is_some() {
                    copy["packedBytes"] = json!(fs::metadata(&file).unwrap().len());
                    self.rehash(copy);
                } else if self.are_same_files && fs::read(&source).ok() == fs::read(&file).ok() {
                    fs::remove_file(&file).unwrap();
                    fs::hard_link(&source, &file).unwrap();
                }
                self.identify(&mut copy["source"], &source);
            }
        }
    }

    /// Replaces the recorded identity of a file, except for its size.
    fn identify(&self, record: &mut Value, path: &Path) {
        let found = fs::symlink_metadata(path).ok();
        let Some(found) = found.filter(|_| self.are_same_files) else {
            return;
        };
        let members = [
            ("device", json!(found.dev())),
            ("inode", json!(found.ino())),
            ("seconds", json!(found.mtime())),
            ("nanoseconds", json!(found.mtime_nsec())),
            ("modifiedSecs", json!(found.mtime())),
            ("modifiedNanos", json!(found.mtime_nsec())),
        ];
        for (name, value) in members {
            if let Some(member) = record.get_mut(name) {
                *member = value;
            }
        }
    }

    /// Replaces the hash of a recorded content with that of its copy.
    fn rehash(&self, record: &mut Value) {
        if let Some(copied) = self.digests.get(record["sha256"].as_str().unwrap()) {
            record["sha256"] = json!(copied);
        }
    }
}

/// Returns the name of the folder for the kept copies of the transcripts of a home's agent.
fn root_name(home: &str) -> String {
    digest(format!("{home}/{AGENT}").as_bytes())[..16].to_owned()
}

fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Returns the bytes of a text as the items of a JSON list.
fn listed(text: &str) -> String {
    let numbers: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
    numbers.join(",")
}

/// Returns the checksum of a journal line.
fn journal_sum(sequence: u64, change: &str) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&sequence.to_be_bytes());
    sum.update(change.as_bytes());
    sum.finalize()
}

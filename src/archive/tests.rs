mod bad_input;
mod blank;
mod copies;
mod lists;
mod misplaced;
mod moved;
mod released;
mod unpacked;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use tempfile::TempDir;

use super::folder::LIST_FILE;
use super::*;
use crate::files::durable::tests::Disk;
use crate::transcript::locate::own_folder;
use crate::transcript::relocate::Relocation;
use crate::transcript::transcript_list::Format;

fn claude() -> &'static dyn Dialect {
    Format::Claude.dialect()
}

fn codex() -> &'static dyn Dialect {
    Format::Codex.dialect()
}

const CWD: &str = "/nowhere/project";

/// An agent's folder and ours.
struct Place {
    _held: TempDir,
    root: PathBuf,
    archive: Archive,
}

impl Place {
    fn new() -> Self {
        let held = tempfile::tempdir().unwrap();
        Self {
            root: held.path().join("agent"),
            archive: Archive::new(held.path().join("kept")),
            _held: held,
        }
    }

    fn key(&self, id: &str) -> SessionKey {
        SessionKey {
            root: self.root.clone(),
            upstream_id: id.to_owned(),
        }
    }

    /// Writes a file below the folder of the sessions of [`CWD`].
    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = own_folder(&self.root, Path::new(CWD)).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Links a session. Returns whether its transcript was rewritten.
    fn link(&self, id: &str, path: &Path) -> bool {
        rewritten(&self.archive.back_up(&self.key(id), claude(), path, None, false))
    }

    /// Copies a session with no acknowledged turn. Returns whether its transcript was rewritten.
    fn pack(&self, id: &str, path: &Path) -> bool {
        self.pack_with(id, path, Some(0))
    }

    fn pack_with(&self, id: &str, path: &Path, turns: Option<u64>) -> bool {
        rewritten(&self.archive.back_up(&self.key(id), claude(), path, turns, true))
    }

    fn restore(&self, id: &str) -> Result<Vec<PathBuf>, TranscriptError> {
        self.restore_in(id, Some(CWD), &Relocation::default())
    }

    fn restore_in(
        &self,
        id: &str,
        cwd: Option<&str>,
        relocation: &Relocation,
    ) -> Result<Vec<PathBuf>, TranscriptError> {
        let advice = RestoreCallbacks {
            find_relocation: &|_| Ok(relocation.clone()),
            ..ADVICE
        };
        let (archive, cwd) = (&self.archive, cwd.map(Path::new));
        archive.restore(claude(), &self.key(id), cwd, advice, &mut |_, _| Ok(()))
    }

    fn kept_from(&self, id: &str) -> CopyOrigin {
        let folder = self.archive.archived_folder(&self.key(id)).unwrap();
        folder.copy_origin().unwrap().unwrap()
    }

    fn files(&self, id: &str) -> Vec<(String, u64)> {
        let held = self.archive.archived_files(&self.key(id)).unwrap();
        let name = |file: &ArchivedFile| file.path.file_name().unwrap().to_str().unwrap().to_owned();
        held.iter().map(|file| (name(file), file.bytes)).collect()
    }

    fn names(&self, id: &str) -> Vec<String> {
        self.files(id).into_iter().map(|(name, _)| name).collect()
    }

    fn folder(&self, id: &str) -> PathBuf {
        self.archive.session_folder(&self.key(id)).unwrap()
    }

    /// Deletes all that the agent has.
    fn lose(&self) {
        if let Err(error) = fs::remove_dir_all(self.root.join("projects")) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        }
    }

    /// Restores a session to where it was, without its last turns. `placing` is called before the transcript is there.
    fn restore_lacking(
        &self,
        id: &str,
        turns: u64,
        placing: OnPlacing<'_>,
    ) -> Result<Vec<PathBuf>, TranscriptError> {
        let advice = RestoreCallbacks {
            count_missing_turns: &|_| Ok(MissingTurns::Known(turns)),
            ..ADVICE
        };
        self.archive
            .restore(claude(), &self.key(id), None, advice, placing)
    }
}

/// Nothing was moved, and nothing is missing.
const ADVICE: RestoreCallbacks<'static> = RestoreCallbacks {
    find_relocation: &|_| Ok(Relocation::default()),
    count_missing_turns: &|_| Ok(MissingTurns::Known(0)),
};

fn rewritten(kept: &BackupOutcome) -> bool {
    assert!(kept.error.is_none(), "{kept:?}");
    kept.is_rewritten
}

fn pack_rollout(place: &Place, id: &str, path: &Path) -> bool {
    rewritten(
        &place
            .archive
            .back_up(&place.key(id), codex(), path, Some(0), true),
    )
}

fn append(path: &Path, text: &str) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Lines that do not compress to nothing.
fn lines(from: u32, to: u32) -> String {
    let line = |n: u32| {
        let word = n.wrapping_mul(2_654_435_761);
        format!("{{\"n\":{n},\"word\":\"{word:x}\"}}\n")
    };
    (from..to).map(line).collect()
}

#[test]
fn packing_takes_the_place_of_links_and_adds_only_what_was_appended() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 1_000));
    let disk = Disk::of(place._held.path());
    place.link("s", &path);
    assert!(!place.pack("s", &path));
    let [(name, first)] = &place.files("s")[..] else {
        panic!("{:?}", place.files("s"))
    };
    assert!(name.ends_with(".zst") && *first > 0);
    let packed = fs::read(place.folder("s").join(name)).unwrap();
    // Nothing has changed: nothing is written.
    assert!(!place.pack("s", &path));
    assert_eq!(fs::read(place.folder("s").join(name)).unwrap(), packed);

    append(&path, &lines(1_000, 1_010));
    append(&path, "{\"torn");
    place.link("s", &path);
    assert_eq!(
        place.names("s").len(),
        2,
        "what was appended is linked until it is packed"
    );
    assert!(!place.pack("s", &path));
    assert_eq!(place.names("s"), [name.as_str()]);
    let grown = fs::read(place.folder("s").join(name)).unwrap();
    assert!(grown.starts_with(&packed) && grown.len() > packed.len());
    assert!(grown.len() < packed.len() + packed.len() / 4);
    // What the agent appends is its own matter.
    assert_eq!(
        disk.lost(),
        BTreeSet::from([path.strip_prefix(place._held.path()).unwrap().to_owned()])
    );
    place.lose();
    place.restore("s").unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        lines(0, 1_010),
        "whole lines count"
    );
}

/// Each state in which a kill can leave the files is one from which everything goes on.
#[test]
fn what_a_kill_leaves_is_not_taken_for_more_than_it_is() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 20));
    place.pack("s", &path);
    let folder = place.folder("s");
    // A frame was appended, and the list does not say so; a copy was begun; a list was written.
    append(&folder.join("1.zst"), "half a frame");
    for name in ["2.zst", "3.link", "kept.json.new"] {
        fs::write(folder.join(name), "half").unwrap();
    }
    // And half a restored file where the agent has its own.
    place.lose();
    place.restore("s").unwrap();
    let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!((fs::read_to_string(&path).unwrap(), left), (lines(0, 20), 1));

    append(&path, &lines(20, 40));
    assert!(!place.pack("s", &path));
    let mut there: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    there.sort();
    assert_eq!(there, ["1.zst", LIST_FILE]);
    place.lose();
    let temporary = {
        let digest = sha256(b"s.jsonl");
        place.put(&format!(".{}.restored.tmp", &digest[..16]), "half")
    };
    place.restore("s").unwrap();
    assert!(!temporary.exists());
    assert_eq!(fs::read_to_string(&path).unwrap(), lines(0, 40));
}

#[test]
fn a_copy_that_is_damaged_is_neither_restored_nor_added_to() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 500));
    place.pack("s", &path);
    let packed = place.folder("s").join("1.zst");
    let whole = fs::read(&packed).unwrap();
    let mut broken = whole.clone();
    let middle = broken.len() / 2;
    broken[middle] ^= 0xff;
    fs::write(&packed, &broken).unwrap();
    place.lose();
    assert!(place.restore("s").is_err());
    let folder = path.parent().unwrap();
    let left = crate::files::entries(folder).unwrap();
    assert_eq!(left.len(), 0, "nothing of it is left there");
    // One of which the end is missing is begun anew.
    fs::write(&packed, &whole[..middle]).unwrap();
    place.put("s.jsonl", &lines(0, 501));
    place.pack("s", &path);
    assert_eq!(place.names("s"), ["1.zst", "2.zst"]);
}

#[test]
fn what_something_newer_goes_on_from_is_as_old_as_that() {
    let place = Place::new();
    for id in ["old", "continued"] {
        let path = place.put(&format!("{id}.jsonl"), &lines(0, 100));
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000);
        fs::File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_modified(at)
            .unwrap();
        place.pack(id, &path);
    }
    let day = 24 * 60 * 60 * 1_000;
    place
        .archive
        .record_continued(&place.key("continued"), 3 * day)
        .unwrap();
    place
        .archive
        .record_continued(&place.key("none"), 3 * day)
        .unwrap();
    place.archive.prune(Some(2 * day), None).unwrap();
    assert_eq!(place.names("old"), [] as [String; 0]);
    assert_eq!(place.names("continued"), ["1.zst"]);
}

const PARENT: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";
const CHILD: &str = "01a1fc16-ffed-7ff1-b050-3a83130f7a04";

fn rollout(place: &Place, id: &str, base: Option<&str>) -> PathBuf {
    let folder = place.root.join("sessions/2026/11/03");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("rollout-2026-11-03T10-00-00-{id}.jsonl"));
    let base = base.map_or_else(String::new, |base| {
        format!(
            ",\"history_base\":{{\"thread_id\":\"{base}\",\"end_ordinal_exclusive\":3,\"end_byte_offset\":9}}"
        )
    });
    let meta = format!("{{\"type\":\"session_meta\",\"payload\":{{\"id\":\"{id}\"{base}}}}}\n");
    fs::write(&path, meta + &lines(0, 10)).unwrap();
    path
}

// Against D14.

#[test]
fn nobody_else_can_look_into_it() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 5));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    place.pack("s", &path);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let folder = place.folder("s");
    assert_eq!(mode(place.archive.folder()), 0o700);
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("1.zst")), 0o600);
    assert_eq!(mode(&folder.join(LIST_FILE)), 0o600);
    place.lose();
    place.restore("s").unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[test]
fn nothing_is_restored_through_a_link() {
    let place = Place::new();
    let path = place.put("s.jsonl", &lines(0, 5));
    place.put("s/tool-results/t.txt", "a result");
    place.pack("s", &path);
    place.lose();
    let elsewhere = place._held.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, path.with_extension("")).unwrap();
    let refused = place.restore("s").unwrap_err();
    let why = std::error::Error::source(&refused).unwrap().to_string();
    crate::words::check("a restore through a link", "archive", &why);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(!path.exists(), "the transcript comes after its files");
}

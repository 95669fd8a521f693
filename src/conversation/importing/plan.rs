//! What an import is about to put into the agents' folders, on disk before it happens.
//!
//! Owns the folder in which a bundle is unpacked and the plan in it, so that a daemon that finds what a killed one left can
//! take it back: a file only when it is the very one, byte for byte, and only when the conversation was not written down.
//! Blocks.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bridge_protocol::{ConversationId, UpstreamId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::files::durable;
use crate::transcript::TranscriptError;
use crate::transcript::aside::{self, Unreadable};
use crate::transcript::copy::make_folder;
use crate::transcript::notes::{self, NoteFile, ReadError};

/// The folder below the daemon's own in which bundles are unpacked.
pub(in crate::conversation) const FOLDER: &str = "imports";

/// The plan's name there.
pub(in crate::conversation) const PLAN: &str = "plan";

/// How much is read at once, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// A line of a plan.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Note {
    /// What the import makes. The first line.
    Conversation(ConversationId),
    /// A folder that is made.
    Folder(OsString),
    /// A file that is written beside its place.
    Temporary(OsString),
    /// The same file, whole, that gets its name.
    File(PlannedFile),
}

#[derive(Debug, Serialize, Deserialize)]
struct PlannedFile {
    path: OsString,
    /// The session that it belongs to: its transcript, or one of the files beside that.
    session: UpstreamId,
    device: u64,
    inode: u64,
    bytes: u64,
    sha256: String,
}

/// The plan of an import that runs.
#[derive(Debug)]
pub(super) struct Plan {
    path: PathBuf,
    file: NoteFile,
    /// What stands in it: what could not be written there was not begun.
    notes: Vec<Note>,
}

impl Plan {
    /// A plan in this folder for a conversation of this id.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub(super) fn begin(staging: &Staging, id: ConversationId) -> Result<Self, TranscriptError> {
        let path = staging.folder().join(PLAN);
        let begun = Note::Conversation(id);
        let file = NoteFile::create(&path, &begun).map_err(TranscriptError::io("create", &path))?;
        sync_folder(&staging.all)?;
        Ok(Self {
            path,
            file,
            notes: vec![begun],
        })
    }

    pub(super) fn folder(&mut self, folder: &Path) -> Result<(), TranscriptError> {
        self.note(Note::Folder(folder.into()))
    }

    pub(super) fn temporary(&mut self, path: &Path) -> Result<(), TranscriptError> {
        self.note(Note::Temporary(path.into()))
    }

    pub(super) fn file(
        &mut self,
        path: &Path,
        session: &UpstreamId,
        metadata: &Metadata,
        sha256: String,
    ) -> Result<(), TranscriptError> {
        self.note(Note::File(PlannedFile {
            path: path.into(),
            session: session.clone(),
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            sha256,
        }))
    }

    /// Takes back what was done of it, as [`take_back`] does: it was not written down. Whether nothing of it is left to be
    /// taken back.
    pub(super) fn undo(&self, is_somebodys: &impl Fn(&UpstreamId) -> bool) -> bool {
        undo(&self.notes, &|_| false, is_somebodys)
    }

    fn note(&mut self, note: Note) -> Result<(), TranscriptError> {
        let written = self.file.append(&note);
        written.map_err(TranscriptError::io("write", &self.path))?;
        self.notes.push(note);
        Ok(())
    }
}

/// Takes back what imports have left that did not come to their end, and what they unpacked. `is_written` says whether a
/// conversation was written down, `is_somebodys` whether a session has become another one's since: its files may have lain
/// there for long. Where the store may have lost changes, a conversation that it does not know may be among them: its plan is set
/// aside, and its files stay.
pub(in crate::conversation) fn take_back(
    data: &Path,
    is_written: impl Fn(ConversationId) -> bool,
    is_somebodys: impl Fn(&UpstreamId) -> bool,
    may_have_lost: bool,
) {
    let all = data.join(FOLDER);
    let entries = match fs::read_dir(&all) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!(path = %all.display(), %error, "what an import left cannot be looked at");
            return;
        }
    };
    for entry in entries {
        let folder = match entry {
            Ok(entry) => entry.path(),
            Err(error) => {
                tracing::warn!(path = %all.display(), %error, "what an import left cannot be looked at");
                continue;
            }
        };
        if !aside::is_aside(&folder) {
            take_back_one(&folder, &is_written, &is_somebodys, may_have_lost);
        }
    }
    // What is left in it is kept.
    let _ = fs::remove_dir(&all);
}

fn take_back_one(
    folder: &Path,
    is_written: &impl Fn(ConversationId) -> bool,
    is_somebodys: &impl Fn(&UpstreamId) -> bool,
    may_have_lost: bool,
) {
    let path = folder.join(PLAN);
    let notes: Vec<Note> = match notes::read(&path) {
        Ok(notes) => notes,
        // What is no folder is nothing of an import's.
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => return,
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return remove_unbegun(folder);
        }
        Err(ReadError::Io(error)) => {
            // Nothing else knows what lies in the agents' folders; the next start may be able to read it.
            tracing::warn!(path = %path.display(), %error, "the plan of an import cannot be read; what it has put in place stays, and the plan too");
            return;
        }
        Err(ReadError::Unreadable(why)) => {
            // What became of it is in the log.
            let _reported = aside::set_aside(folder, &why);
            return;
        }
    };
    let why = match notes.first() {
        Some(Note::Conversation(id)) if may_have_lost && !is_written(*id) => {
            "the store lost changes, so it is unknown whether the conversation was imported"
        }
        Some(Note::Conversation(_)) => {
            if undo(&notes, is_written, is_somebodys) {
                remove(folder);
            }
            return;
        }
        _ => "it does not begin with the conversation",
    };
    let _reported = aside::set_aside(folder, &Unreadable::Damaged(why.to_owned()));
}

/// Removes the folder of an import that was killed before it had begun. Nothing is unpacked there yet, and where something is,
/// the plan was lost that said what became of it.
fn remove_unbegun(folder: &Path) {
    match aside::entries(folder) {
        Ok(entries) if entries.iter().all(|path| notes::is_unbegun(path)) => remove(folder),
        Ok(_) => {
            let why = Unreadable::Damaged("no plan says what was put in place".to_owned());
            // What became of it is in the log.
            let _reported = aside::set_aside(folder, &why);
        }
        Err(error) => {
            tracing::warn!(path = %folder.display(), %error, "what an import left cannot be looked at");
        }
    }
}

/// Whether nothing is left that could be taken back later.
fn undo(
    notes: &[Note],
    is_written: &impl Fn(ConversationId) -> bool,
    is_somebodys: &impl Fn(&UpstreamId) -> bool,
) -> bool {
    let Some(Note::Conversation(id)) = notes.first() else {
        return true;
    };
    let stays = is_written(*id);
    let mut is_done = true;
    for note in notes.iter().rev() {
        let (path, removed) = match note {
            Note::Conversation(_) => continue,
            Note::Temporary(path) => (path, fs::remove_file(path)),
            Note::File(_) | Note::Folder(_) if stays => continue,
            Note::File(file) if is_somebodys(&file.session) => continue,
            Note::File(file) => match is_it(file) {
                Ok(true) => (&file.path, fs::remove_file(&file.path)),
                Ok(false) => {
                    tracing::warn!(path = ?file.path, "a file of an import that was broken off is another one now, and stays");
                    continue;
                }
                Err(error) => (&file.path, Err(error)),
            },
            // What somebody else has put something into stays.
            Note::Folder(path) => (path, fs::remove_dir(path)),
        };
        match removed {
            Ok(()) => tracing::info!(?path, "what an import left that was broken off was taken back"),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::DirectoryNotEmpty
                ) => {}
            Err(error) => {
                tracing::warn!(?path, %error, "what an import left that was broken off could not be removed");
                is_done = false;
            }
        }
    }
    is_done
}

/// Whether a file is still the one that was put there.
fn is_it(planned: &PlannedFile) -> io::Result<bool> {
    let found = fs::symlink_metadata(&planned.path)?;
    let is_same = found.is_file()
        && (found.dev(), found.ino(), found.len()) == (planned.device, planned.inode, planned.bytes);
    if !is_same {
        return Ok(false);
    }
    holds(Path::new(&planned.path), planned.bytes, &planned.sha256)
}

/// Whether a file is a regular one of this size and hash. No link is followed.
///
/// # Errors
/// What the system answers.
pub(super) fn holds(path: &Path, bytes: u64, sha256: &str) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_file() || found.len() != bytes {
        return Ok(false);
    }
    let mut nowhere = io::sink();
    let mut hashed = Hashed::new(&mut nowhere);
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?.take(bytes));
    io::copy(&mut reader, &mut hashed)?;
    Ok(hashed.digest().eq_ignore_ascii_case(sha256))
}

/// A folder of the daemon's own in which a bundle is unpacked. It goes with what is in it, but for [`Staging::keep`].
#[derive(Debug)]
pub(super) struct Staging {
    all: PathBuf,
    folder: PathBuf,
    stays: bool,
}

impl Staging {
    /// A new one beside those that are there.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub(super) fn make(data: &Path) -> Result<Self, TranscriptError> {
        let all = data.join(FOLDER);
        let staging = Self {
            folder: all.join(Uuid::new_v4().to_string()),
            all,
            stays: false,
        };
        make_folder(&staging.folder)?;
        Ok(staging)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// It stays for the next import or start, which reads the plan in it.
    pub(super) fn keep(&mut self) {
        self.stays = true;
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.stays {
            remove(&self.folder);
        }
        // What else is there is not of this import, and it or the next start sees to it.
        let _ = fs::remove_dir(&self.all);
    }
}

/// Removes a folder with what is in it, or a file that stands in a folder's place.
fn remove(folder: &Path) {
    let removed = match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(folder),
        removed => removed,
    };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %folder.display(), %error, "what an import unpacked could not be removed");
    }
}

fn sync_folder(folder: &Path) -> Result<(), TranscriptError> {
    durable::sync_folder(folder).map_err(TranscriptError::io("sync the folder", folder))
}

/// Passes on what is written, and knows its hash.
pub(super) struct Hashed<'a> {
    writer: &'a mut dyn Write,
    hash: Sha256,
}

impl<'a> Hashed<'a> {
    pub(super) fn new(writer: &'a mut dyn Write) -> Self {
        Self {
            writer,
            hash: Sha256::new(),
        }
    }

    /// The hash of what was written, in hexadecimal digits.
    pub(super) fn digest(self) -> String {
        let digits = self.hash.finalize();
        digits.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Write for Hashed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.writer.write(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::durable::tests::Disk;

    /// A plan of one folder and these files, in which `left` was written and renamed. As a killed daemon leaves it.
    fn killed(data: &Path, files: &[(&Path, &str)]) -> ConversationId {
        let id = ConversationId::mint();
        let disk = Disk::of(data);
        let staging = Staging::make(data).unwrap();
        let mut plan = Plan::begin(&staging, id).unwrap();
        for (path, text) in files {
            let folder = path.parent().unwrap();
            plan.folder(folder).unwrap();
            let lost = disk.lost();
            assert!(
                lost.iter().all(|path| path.starts_with("agent")),
                "before it is done it is written down: {lost:?}"
            );
            fs::create_dir_all(folder).unwrap();
            let temporary = folder.join(".t.tmp");
            plan.temporary(&temporary).unwrap();
            fs::write(&temporary, text).unwrap();
            let mut nowhere = io::sink();
            let mut hashed = Hashed::new(&mut nowhere);
            hashed.write_all(text.as_bytes()).unwrap();
            let metadata = fs::metadata(&temporary).unwrap();
            let session = UpstreamId::new(path.file_name().unwrap().to_str().unwrap());
            plan.file(path, &session, &metadata, hashed.digest()).unwrap();
            fs::rename(&temporary, path).unwrap();
        }
        plan.temporary(&data.join("agent/.last.tmp")).unwrap();
        fs::create_dir_all(data.join("agent")).unwrap();
        fs::write(data.join("agent/.last.tmp"), "half").unwrap();
        // Torn, as a kill may leave a line.
        let mut torn = fs::read(&plan.path).unwrap();
        torn.extend(b"{\"version\":1,\"crc32\":12");
        fs::write(&plan.path, torn).unwrap();
        // As a kill does: nobody tidies up.
        let _ = std::mem::ManuallyDrop::new(staging);
        id
    }

    #[test]
    fn only_what_the_import_wrote_is_taken_back() {
        let data = tempfile::tempdir().unwrap();
        let at = |name: &str| data.path().join("agent").join(name);
        let (ours, grown, edited, replaced) = (at("p/a"), at("p/b"), at("p/c"), at("q/d"));
        killed(
            data.path(),
            &[
                (&ours, "one"),
                (&grown, "two"),
                (&edited, "three"),
                (&replaced, "four"),
            ],
        );
        fs::write(&grown, "two and more").unwrap();
        fs::write(&edited, "THREE").unwrap();
        // The same words, but not our file.
        fs::write(at("q/x"), "four").unwrap();
        fs::rename(at("q/x"), &replaced).unwrap();
        take_back(data.path(), |_| false, |_| false, false);
        assert!(!ours.exists() && !at(".last.tmp").exists());
        assert!(grown.exists() && edited.exists() && replaced.exists());
        assert!(!data.path().join(FOLDER).exists());
    }

    #[test]
    fn all_goes_with_its_folders_unless_the_conversation_is_there() {
        for stays in [false, true] {
            let data = tempfile::tempdir().unwrap();
            let at = |name: &str| data.path().join("agent").join(name);
            let (one, other) = (at("p/a"), at("p/s/b"));
            let id = killed(data.path(), &[(&one, "one"), (&other, "two")]);
            let is_written = |asked| {
                assert_eq!(asked, id);
                stays
            };
            take_back(data.path(), is_written, |_| false, false);
            assert_eq!(
                (one.exists(), other.exists(), at("p").exists()),
                (stays, stays, stays)
            );
            assert!(!at(".last.tmp").exists());
        }
    }

    /// The conversation may be among the changes that the store has lost, and goes on with these files.
    #[test]
    fn files_of_an_import_stay_where_the_store_lost_changes() {
        for is_known in [false, true] {
            let data = tempfile::tempdir().unwrap();
            let file = data.path().join("agent/p/a");
            killed(data.path(), &[(&file, "one")]);
            for _start in 0..2 {
                take_back(data.path(), |_| is_known, |_| false, true);
                assert!(file.exists(), "{is_known}");
            }
            // A later start, which has lost nothing more, finds nothing to take back.
            take_back(data.path(), |_| false, |_| false, false);
            assert!(file.exists(), "{is_known}");
            let left = aside::all_in(&data.path().join(FOLDER)).unwrap();
            assert_eq!(left.len(), usize::from(!is_known));
        }
    }

    /// A plan may be read long after it was made, and another conversation may have one of its files by then.
    #[test]
    fn what_is_somebodys_by_now_stays() {
        let data = tempfile::tempdir().unwrap();
        let at = |name: &str| data.path().join("agent").join(name);
        let (adopted, other) = (at("p/a"), at("p/b"));
        killed(data.path(), &[(&adopted, "one"), (&other, "two")]);
        take_back(data.path(), |_| false, |session| session.as_str() == "a", false);
        assert!(adopted.exists() && !other.exists());
        assert!(!data.path().join(FOLDER).exists());
    }

    #[test]
    fn what_another_import_left_is_none_of_a_new_ones_business() {
        let data = tempfile::tempdir().unwrap();
        let left = data.path().join("agent/p/a");
        killed(data.path(), &[(&left, "one")]);
        drop(Staging::make(data.path()).unwrap());
        assert!(left.exists());
        // And it can still be taken back.
        take_back(data.path(), |_| false, |_| false, false);
        assert!(!left.exists() && !data.path().join(FOLDER).exists());
    }

    #[test]
    fn what_cannot_be_read_or_removed_now_is_kept_for_later() {
        let data = tempfile::tempdir().unwrap();
        let (other, taken) = (data.path().join("agent/p/a"), data.path().join("agent/q/b"));
        killed(data.path(), &[(&other, "one")]);
        let imports = data.path().join(FOLDER);
        let folder = fs::read_dir(&imports).unwrap().next().unwrap().unwrap().path();
        // One that answers with an error to everybody, also to root.
        fs::rename(folder.join(PLAN), folder.join("aside")).unwrap();
        fs::create_dir(folder.join(PLAN)).unwrap();
        killed(data.path(), &[(&taken, "two")]);
        take_back(data.path(), |_| false, |_| false, false);
        assert!(other.exists() && !taken.exists());
        assert_eq!(fs::read_dir(&imports).unwrap().count(), 1);
        fs::remove_dir(folder.join(PLAN)).unwrap();
        fs::rename(folder.join("aside"), folder.join(PLAN)).unwrap();

        // A folder in the place of a file that was about to be written cannot be removed as a file.
        let temporary = data.path().join("agent/.last.tmp");
        fs::create_dir_all(&temporary).unwrap();
        take_back(data.path(), |_| false, |_| false, false);
        assert!(folder.join(PLAN).exists() && !other.exists());
        fs::remove_dir(&temporary).unwrap();
        take_back(data.path(), |_| false, |_| false, false);
        assert!(!imports.exists());
    }

    #[test]
    fn what_had_not_begun_goes_and_what_says_nothing_of_itself_stays() {
        let data = tempfile::tempdir().unwrap();
        take_back(data.path(), |_| false, |_| false, false);
        let imports = data.path().join(FOLDER);
        for (name, text) in [
            ("unbegun/plan.new", "{"),
            ("lost/0", "unpacked"),
            ("broken/plan", "garbage"),
            ("file", "no folder"),
        ] {
            fs::create_dir_all(imports.join(name).parent().unwrap()).unwrap();
            fs::write(imports.join(name), text).unwrap();
        }
        fs::create_dir(imports.join("empty")).unwrap();
        for _start in 0..2 {
            take_back(data.path(), |_| false, |_| false, false);
            let left = aside::entries(&imports).unwrap();
            let expected = ["broken.set-aside-1", "file", "lost.set-aside-1"];
            assert_eq!(left, expected.map(|name| imports.join(name)));
            assert_eq!(fs::read(left[0].join("plan")).unwrap(), b"garbage");
        }
    }
}

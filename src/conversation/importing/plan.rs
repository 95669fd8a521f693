//! Plans of imports: what an import is about to put into the agents' folders, on disk before it happens.
//!
//! Owns the folder in which a bundle is unpacked, and the plan in it. A daemon that finds the plan of a killed import undoes it: it
//! deletes a file only if that is still the file that was written, byte for byte, and if the conversation was not recorded. Blocks.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bridge_protocol::{ConversationId, UpstreamId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::files::checked_lines::{self, CheckedFile, ReadError};
use crate::files::entries;
use crate::files::set_aside::{self, Unreadable, set_aside};
use crate::paths::names::IMPORTS;
use crate::transcript::TranscriptError;
use crate::transcript::copy::make_folder;

/// The plan's name there.
pub(in crate::conversation) const PLAN: &str = "plan";

/// How much is read at once, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// One line of a plan.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Step {
    /// The conversation that the import creates. The first line.
    Conversation(ConversationId),
    /// A folder that is created.
    Folder(OsString),
    /// A file under a temporary name.
    Temporary(OsString),
    /// The same file, when it is whole and gets its name.
    File(PlannedFile),
}

#[derive(Debug, Serialize, Deserialize)]
struct PlannedFile {
    path: OsString,
    /// The session whose transcript it is, or beside whose transcript it belongs.
    session: UpstreamId,
    device: u64,
    inode: u64,
    bytes: u64,
    sha256: String,
}

/// The plan of a running import.
#[derive(Debug)]
pub(super) struct Plan {
    path: PathBuf,
    file: CheckedFile,
    /// What is in the file. A step that could not be written there was not begun.
    steps: Vec<Step>,
}

impl Plan {
    /// Creates the plan for a conversation of this id.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub(super) fn begin(staging: &Staging, id: ConversationId) -> Result<Self, TranscriptError> {
        let path = staging.folder().join(PLAN);
        let begun = Step::Conversation(id);
        let file = CheckedFile::create(&path, &begun).map_err(TranscriptError::io("create", &path))?;
        Ok(Self {
            path,
            file,
            steps: vec![begun],
        })
    }

    pub(super) fn folder(&mut self, folder: &Path) -> Result<(), TranscriptError> {
        self.record(Step::Folder(folder.into()))
    }

    pub(super) fn temporary(&mut self, path: &Path) -> Result<(), TranscriptError> {
        self.record(Step::Temporary(path.into()))
    }

    pub(super) fn file(
        &mut self,
        path: &Path,
        session: &UpstreamId,
        metadata: &Metadata,
        sha256: String,
    ) -> Result<(), TranscriptError> {
        self.record(Step::File(PlannedFile {
            path: path.into(),
            session: session.clone(),
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            sha256,
        }))
    }

    /// Undoes it, as [`undo_all`] does: the conversation was not recorded. Whether everything is undone.
    pub(super) fn undo(&self, may_have_owner: &impl Fn(&UpstreamId) -> bool) -> bool {
        undo(&self.steps, &|_| false, may_have_owner)
    }

    fn record(&mut self, step: Step) -> Result<(), TranscriptError> {
        let written = self.file.append(&step);
        written.map_err(TranscriptError::io("write", &self.path))?;
        self.steps.push(step);
        Ok(())
    }
}

/// Undoes all imports that are unfinished, and deletes what they unpacked. `is_written` says whether a conversation was recorded,
/// `may_have_owner` whether a conversation may own a session by now: its files may have been there for long. Whether each of them
/// is undone or set aside.
pub(in crate::conversation) fn undo_all(
    data: &Path,
    is_written: impl Fn(ConversationId) -> bool,
    may_have_owner: impl Fn(&UpstreamId) -> bool,
) -> bool {
    each_folder(data, |folder, steps| {
        let is_undone = undo(&steps, &is_written, &may_have_owner);
        if is_undone {
            remove(folder);
        }
        // Otherwise a later start may be able to delete the rest.
        is_undone
    })
}

/// Sets all imports aside that are unfinished: what they put in place stays. Whether that succeeded for each of them.
pub(in crate::conversation) fn set_aside_all(data: &Path, why: &Unreadable) -> bool {
    // The log says what became of each.
    each_folder(data, |folder, _| set_aside(folder, why).is_ok())
}

/// Passes on the folder and the plan of each unfinished import. Folders without a readable plan are handled here. Whether every
/// import is settled: `settle` says so of those with a plan.
fn each_folder(data: &Path, mut settle: impl FnMut(&Path, Vec<Step>) -> bool) -> bool {
    let all = data.join(IMPORTS);
    let mut is_all_settled = true;
    match entries(&all) {
        Ok(folders) => {
            for folder in folders.iter().filter(|folder| !set_aside::is_name(folder)) {
                is_all_settled &= match read_plan(folder) {
                    Ok(Some(steps)) => settle(folder, steps),
                    Ok(None) => true,
                    // The log has it.
                    Err(_) => false,
                };
            }
        }
        Err(error) => {
            tracing::warn!(path = %all.display(), %error, "cannot list the unfinished imports");
            return false;
        }
    }
    // Fails if something is left in it.
    let _ = fs::remove_dir(&all);
    is_all_settled
}

/// The plan in the folder of an import. `None` if there is none that can be used; then nothing else is to be done.
///
/// # Errors
/// The system's error, which is logged: the folder stays for a later start.
fn read_plan(folder: &Path) -> io::Result<Option<Vec<Step>>> {
    let path = folder.join(PLAN);
    let why = match checked_lines::read::<Step>(&path) {
        Ok(steps) if matches!(steps.first(), Some(Step::Conversation(_))) => return Ok(Some(steps)),
        Ok(_) => Unreadable::Damaged("it does not begin with the conversation".to_owned()),
        Err(ReadError::Unreadable(why)) => why,
        // A file is not the folder of an import.
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return remove_unbegun(folder).map(|()| None);
        }
        Err(ReadError::Io(error)) => {
            // Nothing else knows which files are in the agents' folders; the next start may be able to read it.
            tracing::warn!(path = %path.display(), %error, "cannot read the plan of an import; the plan and the imported files stay");
            return Err(error);
        }
    };
    // The log says what became of it.
    set_aside(folder, &why)?;
    Ok(None)
}

/// Deletes the folder of an import that was killed before it began. Nothing is unpacked there yet. If something is, the plan was
/// lost, and the folder is set aside.
///
/// # Errors
/// The system's error, which is logged: the folder stays for a later start.
fn remove_unbegun(folder: &Path) -> io::Result<()> {
    let entries = entries(folder).inspect_err(|error| {
        tracing::warn!(path = %folder.display(), %error, "cannot list what an import left");
    })?;
    if entries.iter().all(|path| checked_lines::is_unbegun(path)) {
        remove(folder);
        return Ok(());
    }
    let why = Unreadable::Damaged("no plan says what was put in place".to_owned());
    // The log says what became of it.
    set_aside(folder, &why).map(drop)
}

/// Undoes a plan, the last step first. Whether everything is undone that can be.
fn undo(
    steps: &[Step],
    is_written: &impl Fn(ConversationId) -> bool,
    may_have_owner: &impl Fn(&UpstreamId) -> bool,
) -> bool {
    let Some(Step::Conversation(id)) = steps.first() else {
        return true;
    };
    let stays = is_written(*id);
    let mut is_done = true;
    for step in steps.iter().rev() {
        let (path, removed) = match step {
            Step::Conversation(_) => continue,
            Step::Temporary(path) => (path, fs::remove_file(path)),
            Step::File(_) | Step::Folder(_) if stays => continue,
            Step::File(file) if may_have_owner(&file.session) => continue,
            Step::File(file) => match is_unchanged(file) {
                Ok(true) => (&file.path, fs::remove_file(&file.path)),
                Ok(false) => {
                    tracing::warn!(path = ?file.path, "a file of an unfinished import was changed or replaced, and stays");
                    continue;
                }
                Err(error) => (&file.path, Err(error)),
            },
            // Fails if other files are in it.
            Step::Folder(path) => (path, fs::remove_dir(path)),
        };
        match removed {
            Ok(()) => tracing::info!(?path, "undid a step of an unfinished import"),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::DirectoryNotEmpty
                ) => {}
            Err(error) => {
                tracing::warn!(?path, %error, "could not undo a step of an unfinished import");
                is_done = false;
            }
        }
    }
    is_done
}

/// Whether a file is still the one that the import wrote.
fn is_unchanged(planned: &PlannedFile) -> io::Result<bool> {
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
/// The system's error.
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

/// A folder of the daemon's own in which a bundle is unpacked. Dropping it deletes the folder, except after [`Staging::keep`].
#[derive(Debug)]
pub(super) struct Staging {
    all: PathBuf,
    folder: PathBuf,
    stays: bool,
}

impl Staging {
    /// Creates a new one beside those that exist.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub(super) fn make(data: &Path) -> Result<Self, TranscriptError> {
        let all = data.join(IMPORTS);
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

    /// The folder stays for the next import or start, which reads the plan in it.
    pub(super) fn keep(&mut self) {
        self.stays = true;
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.stays {
            remove(&self.folder);
        }
        // Fails if other imports left something.
        let _ = fs::remove_dir(&self.all);
    }
}

/// Deletes a folder with its contents, or a file in its place. The plan goes last: a kill must not leave contents without it, which
/// would be set aside.
fn remove(folder: &Path) {
    let contents = entries(folder).unwrap_or_default().into_iter();
    for path in contents.filter(|path| !path.ends_with(PLAN)) {
        // What cannot be deleted is reported below.
        let _ = match path.is_dir() && !path.is_symlink() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
    }
    let removed = match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(folder),
        removed => removed,
    };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %folder.display(), %error, "could not delete what an import unpacked");
    }
}

/// A writer that hashes what it passes on.
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

    /// What a killed daemon leaves: a plan with these files, which are in place, and one that is half written.
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
                "each step is on disk before it is done: {lost:?}"
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
        // A kill runs no destructors.
        let _ = std::mem::ManuallyDrop::new(staging);
        id
    }

    #[test]
    fn only_what_the_import_wrote_is_deleted() {
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
        assert!(undo_all(data.path(), |_| false, |_| false));
        assert!(!ours.exists() && !at(".last.tmp").exists());
        assert!(grown.exists() && edited.exists() && replaced.exists());
        assert!(!data.path().join(IMPORTS).exists());
    }

    #[test]
    fn everything_is_undone_unless_the_conversation_was_recorded() {
        for stays in [false, true] {
            let data = tempfile::tempdir().unwrap();
            let at = |name: &str| data.path().join("agent").join(name);
            let (one, other) = (at("p/a"), at("p/s/b"));
            let id = killed(data.path(), &[(&one, "one"), (&other, "two")]);
            let is_written = |asked| {
                assert_eq!(asked, id);
                stays
            };
            assert!(undo_all(data.path(), is_written, |_| false));
            assert_eq!(
                (one.exists(), other.exists(), at("p").exists()),
                (stays, stays, stays)
            );
            assert!(!at(".last.tmp").exists());
        }
    }

    /// A plan may be read long after it was made, and another conversation may have one of its files by then.
    #[test]
    fn files_of_a_session_with_an_owner_stay() {
        let data = tempfile::tempdir().unwrap();
        let at = |name: &str| data.path().join("agent").join(name);
        let (adopted, other) = (at("p/a"), at("p/b"));
        killed(data.path(), &[(&adopted, "one"), (&other, "two")]);
        assert!(undo_all(
            data.path(),
            |_| false,
            |session| session.as_str() == "a"
        ));
        assert!(adopted.exists() && !other.exists());
        assert!(!data.path().join(IMPORTS).exists());
    }

    #[test]
    fn a_new_import_leaves_the_plans_of_others_alone() {
        let data = tempfile::tempdir().unwrap();
        let left = data.path().join("agent/p/a");
        killed(data.path(), &[(&left, "one")]);
        drop(Staging::make(data.path()).unwrap());
        assert!(left.exists());
        // And it can still be undone.
        assert!(undo_all(data.path(), |_| false, |_| false));
        assert!(!left.exists() && !data.path().join(IMPORTS).exists());
    }

    #[test]
    fn what_cannot_be_read_or_deleted_now_stays_for_later() {
        let data = tempfile::tempdir().unwrap();
        let (other, taken) = (data.path().join("agent/p/a"), data.path().join("agent/q/b"));
        killed(data.path(), &[(&other, "one")]);
        let imports = data.path().join(IMPORTS);
        let folder = fs::read_dir(&imports).unwrap().next().unwrap().unwrap().path();
        // Reading a folder fails for root too.
        fs::rename(folder.join(PLAN), folder.join("aside")).unwrap();
        fs::create_dir(folder.join(PLAN)).unwrap();
        killed(data.path(), &[(&taken, "two")]);
        assert!(!undo_all(data.path(), |_| false, |_| false));
        assert!(other.exists() && !taken.exists());
        assert_eq!(fs::read_dir(&imports).unwrap().count(), 1);
        fs::remove_dir(folder.join(PLAN)).unwrap();
        fs::rename(folder.join("aside"), folder.join(PLAN)).unwrap();

        // A folder in the place of a file that was about to be written cannot be removed as a file.
        let temporary = data.path().join("agent/.last.tmp");
        fs::create_dir_all(&temporary).unwrap();
        assert!(!undo_all(data.path(), |_| false, |_| false));
        assert!(folder.join(PLAN).exists() && !other.exists());
        fs::remove_dir(&temporary).unwrap();
        assert!(undo_all(data.path(), |_| false, |_| false));
        assert!(!imports.exists());
    }

    /// The conversation may be among the changes that were lost.
    #[test]
    fn plans_that_are_set_aside_undo_nothing() {
        let data = tempfile::tempdir().unwrap();
        let file = data.path().join("agent/p/a");
        killed(data.path(), &[(&file, "one")]);
        let imports = data.path().join(IMPORTS);
        fs::create_dir(imports.join("unbegun")).unwrap();
        assert!(set_aside_all(data.path(), &Unreadable::OwnerUnknown));
        // A later start knows nothing of the loss.
        assert!(undo_all(data.path(), |_| false, |_| false));
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        let left = entries(&imports).unwrap();
        assert!(
            matches!(&left[..], [aside] if aside.join(PLAN).exists()),
            "{left:?}"
        );
    }

    #[test]
    fn an_import_that_had_not_begun_is_deleted_and_one_without_a_readable_plan_is_set_aside() {
        let data = tempfile::tempdir().unwrap();
        assert!(undo_all(data.path(), |_| false, |_| false));
        let imports = data.path().join(IMPORTS);
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
            assert!(undo_all(data.path(), |_| false, |_| false));
            let left = entries(&imports).unwrap();
            let expected = ["broken.set-aside-1", "file", "lost.set-aside-1"];
            assert_eq!(left, expected.map(|name| imports.join(name)));
            assert_eq!(fs::read(left[0].join("plan")).unwrap(), b"garbage");
        }
    }
}

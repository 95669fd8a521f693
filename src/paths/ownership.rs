//! Checks whether another user can change what both programs trust: the configuration, the data, the sockets and the
//! log.
//!
//! This module owns the rule and all disk access to apply it. It walks a path from the root. Each folder and link on
//! the way must belong to this user or to the system, and no folder may let others replace its entries. Then no other
//! user can change what the path refers to, so it can be opened again later.
//!
//! A check covers only what exists at that time, so nothing is trusted that was missing during its check. The walk
//! itself creates a missing folder and then checks it. A file is opened before its path is walked.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

use super::Paths;
use super::shell_word;

/// For [`OpenOptionsExt::custom_flags`]: fail if the last component of the path is a link.
#[allow(clippy::cast_possible_wrap, reason = "the flags are bits")]
pub const NO_LINK: i32 = OFlags::NOFOLLOW.bits() as i32;

/// Do not wait for a writer if another user put a pipe there.
#[allow(clippy::cast_possible_wrap, reason = "the flags are bits")]
const NO_WAIT: i32 = OFlags::NONBLOCK.bits() as i32;

/// The group may write.
const GROUP_WRITABLE: u32 = 0o020;

/// Others may write.
const OTHERS_WRITABLE: u32 = 0o002;

/// In such a folder, only the owner of an entry may rename or remove it.
const STICKY: u32 = 0o1000;

/// How many links Linux follows in one path.
const MAX_LINKS: usize = 40;

/// The purpose of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The folder that holds everything.
    Home,
    /// The configuration file.
    Configuration,
    /// The data folder.
    Data,
    /// The folder of the sockets.
    Run,
    /// The folder of the log.
    Log,
}

/// A problem with a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It belongs to another user.
    Foreign,
    /// Other users can change it or replace its entries.
    Writable,
}

/// A path that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refusing {} {}: {}", role.name(), path.display(), self.reason())]
pub struct Untrusted {
    /// The purpose of the path.
    pub role: Role,
    /// The path.
    pub path: PathBuf,
    /// The file, folder or link with the problem: the path itself, or a part of it.
    pub culprit: PathBuf,
    /// The problem.
    pub fault: Fault,
    /// The owner of the culprit.
    pub owner_uid: u32,
    /// The user of this process.
    pub own_uid: u32,
    /// The permission bits of the culprit.
    pub mode: u32,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CreateFolderError {
    /// Another user owns it or can change it.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// It cannot be created, or is not a folder.
    #[error("cannot make the folder {}", path.display())]
    Make {
        /// The folder.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Home => "the home folder",
            Self::Configuration => "the configuration",
            Self::Data => "the data folder",
            Self::Run => "the socket folder",
            Self::Log => "the log folder",
        }
    }

    /// Whether root may own it. The administrator's configuration is trusted.
    const fn may_be_system_owned(self) -> bool {
        matches!(self, Self::Configuration)
    }
}

impl Untrusted {
    fn reason(&self) -> String {
        let culprit = match self.culprit == self.path {
            true => "it".to_owned(),
            false => self.culprit.display().to_string(),
        };
        let (owner, own, mode) = (self.owner_uid, self.own_uid, self.mode);
        match self.fault {
            Fault::Foreign => {
                format!("{culprit} belongs to user {owner} (mode {mode:03o}), and you are user {own}")
            }
            Fault::Writable => {
                format!("other users can write to {culprit} (owner {owner}, mode {mode:03o})")
            }
        }
    }

    /// Returns what to do, with a command that can be pasted. `program` is the program in that command.
    #[must_use]
    pub fn hint(&self, program: &str) -> String {
        let culprit = shell_word(&self.culprit.to_string_lossy());
        if self.fault == Fault::Writable && self.owner_uid == self.own_uid {
            return format!("remove the write permission of other users: chmod go-w {culprit}");
        }
        let user = User::of_this_process();
        let is_usable = |path: &Path| check_path(user, Role::Home, path).is_ok();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        self.hint_elsewhere(program, home.as_deref(), is_usable)
    }

    /// The hint for a path whose permissions this user cannot change. Suggests a folder only if it passes the check:
    /// if the home or a folder above it is at fault, all folders in the home fail.
    fn hint_elsewhere(
        &self,
        program: &str,
        home: Option<&Path>,
        is_usable: impl Fn(&Path) -> bool,
    ) -> String {
        let is_home_usable =
            home.is_some_and(|home| home.is_absolute() && is_usable(&home.join(".sessiond")));
        if is_home_usable && self.role == Role::Configuration {
            let path = shell_word(&self.path.to_string_lossy());
            return format!(
                "review it, and use your own copy: cp {path} \"$HOME/sessiond.toml\" && {program} --config \
                 \"$HOME/sessiond.toml\""
            );
        }
        if is_home_usable {
            return format!("use your own folder: {program} --home \"$HOME/.sessiond\"");
        }
        let temporary = format!("/tmp/sessiond-{}", self.own_uid);
        if is_usable(Path::new(&temporary)) {
            return format!(
                "ask the administrator for a folder that other users cannot change, and give it with --home; for a trial, \
                 with data that a restart of the machine may delete: {program} --home {temporary}"
            );
        }
        "ask the administrator for a folder that other users cannot change, and give it with --home"
            .to_owned()
    }
}

/// Checks all files and folders that a daemon trusts. A missing one passes: use [`create_and_check`] to create a folder, and
/// [`open_configuration`] to read the configuration.
///
/// # Errors
/// The first one that another user owns or can change.
pub fn check(paths: &Paths) -> Result<(), Untrusted> {
    checks(paths).collect()
}

/// Returns everything that [`check`] refuses, each culprit once.
pub fn untrusted(paths: &Paths) -> Vec<Untrusted> {
    let mut all: Vec<Untrusted> = Vec::new();
    for found in checks(paths).filter_map(Result::err) {
        if all.iter().all(|other| other.culprit != found.culprit) {
            all.push(found);
        }
    }
    all
}

fn checks(paths: &Paths) -> impl Iterator<Item = Result<(), Untrusted>> {
    let home = paths.home.as_deref().map(|home| (Role::Home, home));
    let rest = [
        (Role::Configuration, paths.config_file.as_path()),
        (Role::Data, &paths.data),
        (Role::Run, &paths.runtime),
        (Role::Log, &paths.log),
    ];
    let user = User::of_this_process();
    // A folder in place of the configuration is never read, and its permissions are no fault.
    let is_used = |(role, path): &(Role, &Path)| *role != Role::Configuration || !path.is_dir();
    home.into_iter()
        .chain(rest)
        .filter(is_used)
        .map(move |(role, path)| check_path(user, role, path))
}

/// Creates a folder and its missing parents with mode 0700, and checks the whole path. An existing folder keeps its
/// mode.
///
/// # Errors
/// [`CreateFolderError::Untrusted`] also if another user creates the folder first.
pub fn create_and_check(role: Role, path: &Path) -> Result<(), CreateFolderError> {
    let mut make = |folder: &Path| DirBuilder::new().mode(0o700).create(folder);
    create_and_check_by(User::of_this_process(), role, path, &mut make)
}

/// Like [`create_and_check`]; `make` creates one folder.
fn create_and_check_by(
    user: User,
    role: Role,
    path: &Path,
    make: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> Result<(), CreateFolderError> {
    walk(path, user, role, Some(make))?;
    let failed = |source| CreateFolderError::Make {
        path: path.to_path_buf(),
        source,
    };
    match fs::metadata(path).map_err(failed)?.is_dir() {
        true => Ok(()),
        false => Err(failed(io::ErrorKind::NotADirectory.into())),
    }
}

/// Opens the configuration for reading. The inner error is the operating system's, including the error for a missing
/// file.
///
/// # Errors
/// If another user owns it or can change it.
pub fn open_configuration(path: &Path) -> Result<io::Result<File>, Untrusted> {
    let opened = OpenOptions::new().read(true).custom_flags(NO_WAIT).open(path);
    check_opened(path, opened)
}

/// Returns an opened file, if the file and its path can be trusted. Walks the path after the opening: a check before
/// it would not cover a file that appeared in between.
fn check_opened(path: &Path, opened: io::Result<File>) -> Result<io::Result<File>, Untrusted> {
    let (user, role) = (User::of_this_process(), Role::Configuration);
    let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
    if let Ok((metadata, _)) = &opened
        && !metadata.is_file()
        && !is_null_device(metadata)
    {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
        return Ok(Err(error));
    }
    check_path(user, role, path)?;
    let (metadata, file) = match opened {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error)),
    };
    // The path may refer to another file by now.
    user.check(role, path, (path, &metadata), true)?;
    Ok(Ok(file))
}

/// Opens a file of this user for reading. Does not follow a link.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if another user owns it or it is not a regular file, or else the system's
/// error.
pub fn open_own(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(NO_LINK | NO_WAIT)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != own_uid() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "not a regular file of this user",
        ));
    }
    Ok(file)
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Checks one path. An unreadable path passes: the code that uses it reports the failure.
fn check_path(user: User, role: Role, path: &Path) -> Result<(), Untrusted> {
    match walk(path, user, role, None) {
        Err(CreateFolderError::Untrusted(untrusted)) => Err(untrusted),
        Ok(()) | Err(CreateFolderError::Make { .. }) => Ok(()),
    }
}

/// The user of this process.
#[derive(Clone, Copy, Debug)]
struct User {
    uid: u32,
    /// The owner of `/`. In a user namespace, the system's files may belong to the overflow user instead of root.
    system_uid: u32,
    /// The group in which this user is the only member. On systems with such groups, files are group-writable (umask
    /// 002).
    private_group: Option<u32>,
}

impl User {
    fn of_this_process() -> Self {
        let own = own_uid();
        Self {
            uid: own,
            system_uid: Path::new("/").metadata().map_or(0, |root| root.uid()),
            private_group: private_group(own),
        }
    }

    /// Checks a file, folder or link that is a part of `path`, or all of it if it `is_last`.
    fn check(
        &self,
        role: Role,
        path: &Path,
        (part, metadata): (&Path, &Metadata),
        is_last: bool,
    ) -> Result<(), Untrusted> {
        match self.fault(metadata, is_last, role.may_be_system_owned()) {
            None => Ok(()),
            Some(fault) => Err(Untrusted {
                role,
                path: path.to_path_buf(),
                culprit: part.to_path_buf(),
                fault,
                owner_uid: metadata.uid(),
                own_uid: self.uid,
                mode: metadata.mode() & 0o7777,
            }),
        }
    }

    /// Returns the problem with a file, folder or link, if any. The last component of a path must not be writable by
    /// others; a folder on the way may be if it is sticky.
    fn fault(&self, metadata: &Metadata, is_last: bool, may_be_system_owned: bool) -> Option<Fault> {
        // Every user may write to the null device, but no write changes its content.
        if is_last && may_be_system_owned && is_null_device(metadata) {
            return None;
        }
        let (owner, mode) = (metadata.uid(), metadata.mode());
        let is_systems = owner == 0 || owner == self.system_uid;
        let is_believed =
            owner == self.uid || is_systems && (!is_last || may_be_system_owned || metadata.is_symlink());
        if !is_believed {
            return Some(Fault::Foreign);
        }
        let writable = match self.private_group {
            Some(group) if group == metadata.gid() && owner == self.uid => OTHERS_WRITABLE,
            _ => GROUP_WRITABLE | OTHERS_WRITABLE,
        };
        let is_open = mode & writable != 0 && (is_last || mode & STICKY == 0);
        (is_open && !metadata.is_symlink()).then_some(Fault::Writable)
    }
}

/// Whether this is `/dev/null`, a usual name for an empty file.
fn is_null_device(metadata: &Metadata) -> bool {
    metadata.file_type().is_char_device()
        && Path::new("/dev/null")
            .metadata()
            .is_ok_and(|null| null.file_type().is_char_device() && null.rdev() == metadata.rdev())
}

/// Returns the group whose only member is this user, according to the system's files. `None` for root, whose files
/// are never shared.
fn private_group(own: u32) -> Option<u32> {
    if own == 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let groups = fs::read_to_string("/etc/group").ok()?;
    private_group_of(own, rustix::process::getgid().as_raw(), &users, &groups)
}

/// `users` and `groups` are in the form of `passwd(5)` and `group(5)`; `group` is the group of this process.
///
/// A directory service may know more users and groups than these files. The group of a user that only the service
/// knows is private if it has the user's number, because such services and `useradd` create private groups that way.
/// Any other group may belong to all users of the service.
fn private_group_of(own: u32, group: u32, users: &str, groups: &str) -> Option<u32> {
    let users: Vec<(&str, u32, u32)> = users
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid = fields.nth(1)?.parse().ok()?;
            Some((name, uid, fields.next()?.parse().ok()?))
        })
        .collect();
    let listed = users.iter().find(|(_, uid, _)| *uid == own);
    let (name, group) = match listed {
        Some((name, _, group)) => (Some(*name), *group),
        None if group == own => (None, group),
        None => return None,
    };
    let is_shared = users.iter().any(|(_, uid, other)| *other == group && *uid != own);
    let mut entries = groups.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let gid: u32 = fields.nth(2)?.parse().ok()?;
        (gid == group).then_some(fields.next().unwrap_or_default())
    });
    let members = match entries.next() {
        Some(members) => members,
        None if listed.is_none() => "",
        None => return None,
    };
    let is_only = members
        .split(',')
        .all(|member| member.is_empty() || Some(member) == name);
    (!is_shared && is_only).then_some(group)
}

/// Walks an absolute path, and each link in it, to the end. Fails at a missing component, unless `make` is given and
/// the component belongs to `path` itself and not to a link: then creates it as a folder and checks it. Never creates the
/// target of a link, because its disk may just not be mounted.
fn walk(
    path: &Path,
    user: User,
    role: Role,
    mut make: Option<&mut dyn FnMut(&Path) -> io::Result<()>>,
) -> Result<(), CreateFolderError> {
    let failed = |source| CreateFolderError::Make {
        path: path.to_path_buf(),
        source,
    };
    let mut current = PathBuf::from("/");
    let mut remaining = names(path);
    // How many of the remaining components belong to a link.
    let mut of_links = 0;
    let mut links = 0;
    while let Some(name) = remaining.pop_front() {
        let is_links = of_links > 0;
        of_links -= usize::from(is_links);
        if name == ".." {
            current.pop();
            continue;
        }
        let next = current.join(&name);
        let metadata = match (next.symlink_metadata(), &mut make) {
            (Err(error), Some(make)) if error.kind() == io::ErrorKind::NotFound && !is_links => {
                match make(&next) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => next.symlink_metadata(),
                }
            }
            (inspected, _) => inspected,
        };
        let metadata = metadata.map_err(failed)?;
        user.check(role, path, (&next, &metadata), remaining.is_empty())?;
        if metadata.is_symlink() {
            links += 1;
            // The system does not follow more links either.
            if links > MAX_LINKS {
                return Err(failed(rustix::io::Errno::LOOP.into()));
            }
            let target = next.read_link().map_err(failed)?;
            if target.is_absolute() {
                current = PathBuf::from("/");
            }
            for name in names(&target).into_iter().rev() {
                remaining.push_front(name);
                of_links += 1;
            }
            continue;
        }
        current = next;
    }
    Ok(())
}

/// Returns the components of a path, including `..`.
fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_os_string()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests;

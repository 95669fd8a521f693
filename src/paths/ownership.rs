//! Whether another user can change what both programs believe: the configuration, the data, the sockets and the log.
//!
//! It owns the rule and the look at the disk. A path is walked from the root: every folder and every link on the way must
//! belong to this user or to the system, and no folder may let others replace what comes next. After that nobody else can
//! change what the path leads to, so it can be opened later without another look.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

use super::Paths;
use super::told::shell_word;

/// For [`OpenOptionsExt::custom_flags`]: fail where the last name of the path is a link.
#[allow(clippy::cast_possible_wrap, reason = "the flags are bits")]
pub const NO_LINK: i32 = OFlags::NOFOLLOW.bits() as i32;

/// The group may write.
const GROUP_WRITABLE: u32 = 0o020;

/// Others may write.
const OTHERS_WRITABLE: u32 = 0o002;

/// In such a folder only the owner of an entry may rename or remove it.
const STICKY: u32 = 0o1000;

/// As many links as Linux follows in one path.
const LINKS: usize = 40;

/// What a path is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one folder that everything is under.
    Home,
    /// The configuration file.
    Configuration,
    /// The folder of the data.
    Data,
    /// The folder of the sockets.
    Run,
    /// The folder of the log.
    Log,
}

/// What is wrong with a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It belongs to another user.
    Foreign,
    /// Other users can change it, or replace what is in it.
    Writable,
}

/// A path that is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refusing {} {}: {}", role.name(), path.display(), self.reason())]
pub struct Untrusted {
    /// What the path is for.
    pub role: Role,
    /// The path.
    pub path: PathBuf,
    /// The file, folder or link on the way to it that is to blame; often the path itself.
    pub culprit: PathBuf,
    /// What is wrong with that.
    pub fault: Fault,
    /// The user who owns it.
    pub owner: u32,
    /// The user of this process.
    pub own: u32,
    /// Its permission bits.
    pub mode: u32,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Home => "the home",
            Self::Configuration => "the configuration",
            Self::Data => "the data folder",
            Self::Run => "the folder of the sockets",
            Self::Log => "the folder of the log",
        }
    }

    /// Whether the system's own will do: what the administrator configures is believed.
    const fn may_be_systems(self) -> bool {
        matches!(self, Self::Configuration)
    }
}

impl Untrusted {
    fn reason(&self) -> String {
        let culprit = match self.culprit == self.path {
            true => "it".to_owned(),
            false => self.culprit.display().to_string(),
        };
        let (owner, own, mode) = (self.owner, self.own, self.mode);
        match self.fault {
            Fault::Foreign => {
                format!("{culprit} belongs to user {owner} (mode {mode:03o}), and you are user {own}")
            }
            Fault::Writable => {
                format!("other users can write to {culprit} (owner {owner}, mode {mode:03o})")
            }
        }
    }

    /// What to do, with a command that can be pasted. `program` is the one to name in it.
    #[must_use]
    pub fn hint(&self, program: &str) -> String {
        let culprit = shell_word(&self.culprit.to_string_lossy());
        if self.fault == Fault::Writable && self.owner == self.own {
            return format!("close it to other users: chmod go-w {culprit}");
        }
        if self.role == Role::Configuration {
            let path = shell_word(&self.path.to_string_lossy());
            return format!(
                "read it, and use a copy of your own: cp {path} \"$HOME/sessiond.toml\" && {program} --config \
                 \"$HOME/sessiond.toml\""
            );
        }
        format!("use a folder of your own: {program} --home \"$HOME/.sessiond\"")
    }
}

/// Checks all that is believed of a daemon's files and folders. What is not there is fine: the daemon makes it.
///
/// # Errors
/// The first that another user owns or can change.
pub fn check(paths: &Paths) -> Result<(), Untrusted> {
    looks(paths).collect()
}

/// All that [`check`] refuses, each culprit once.
pub fn untrusted(paths: &Paths) -> Vec<Untrusted> {
    let mut all: Vec<Untrusted> = Vec::new();
    for found in looks(paths).filter_map(Result::err) {
        if all.iter().all(|other| other.culprit != found.culprit) {
            all.push(found);
        }
    }
    all
}

fn looks(paths: &Paths) -> impl Iterator<Item = Result<(), Untrusted>> {
    let home = paths.home.as_deref().map(|home| (Role::Home, home));
    let rest = [
        (Role::Configuration, paths.config_file.as_path()),
        (Role::Data, &paths.data),
        (Role::Run, &paths.runtime),
        (Role::Log, &paths.log),
    ];
    home.into_iter().chain(rest).map(|(role, path)| look(role, path))
}

/// Checks the configuration alone.
///
/// # Errors
/// Where another user owns it or can change it.
pub fn check_configuration(path: &Path) -> Result<(), Untrusted> {
    look(Role::Configuration, path)
}

/// Opens a file of this user's own for reading, and no link.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] for another user's file and for what is no file; the system's otherwise.
pub fn open_own(path: &Path) -> io::Result<File> {
    // Another user's pipe must not make this wait for whoever writes to it.
    #[allow(clippy::cast_possible_wrap, reason = "the flags are bits")]
    let at_once = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(NO_LINK | at_once)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != own_uid() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "not a file of this user's own",
        ));
    }
    Ok(file)
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// What [`check`] does with one path. Nothing that cannot be looked at is refused here: whoever uses it says why it failed.
fn look(role: Role, path: &Path) -> Result<(), Untrusted> {
    let own = own_uid();
    let user = User {
        own,
        private_group: private_group(own),
    };
    walk(path, user, role.may_be_systems()).map_err(|found| Untrusted {
        role,
        path: path.to_path_buf(),
        culprit: found.culprit,
        fault: found.fault,
        owner: found.owner,
        own,
        mode: found.mode,
    })
}

/// The user of this process.
#[derive(Clone, Copy, Debug)]
struct User {
    own: u32,
    /// The group that has no other member. Where the system gives each user one, files are writable by it (umask 002).
    private_group: Option<u32>,
}

/// The group whose only member is this user, by the system's own files. None for root, whose files nobody shares.
fn private_group(own: u32) -> Option<u32> {
    if own == 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let groups = fs::read_to_string("/etc/group").ok()?;
    private_group_of(own, &users, &groups)
}

/// `users` and `groups` are `passwd(5)` and `group(5)`.
fn private_group_of(own: u32, users: &str, groups: &str) -> Option<u32> {
    let users: Vec<(&str, u32, u32)> = users
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid = fields.nth(1)?.parse().ok()?;
            Some((name, uid, fields.next()?.parse().ok()?))
        })
        .collect();
    let &(name, _, group) = users.iter().find(|(_, uid, _)| *uid == own)?;
    let is_shared = users.iter().any(|(_, uid, other)| *other == group && *uid != own);
    let mut members = groups.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let gid: u32 = fields.nth(2)?.parse().ok()?;
        (gid == group).then_some(fields.next().unwrap_or_default())
    });
    let members = members.next()?;
    let is_only = members
        .split(',')
        .all(|member| member.is_empty() || member == name);
    (!is_shared && is_only).then_some(group)
}

/// What a walk along a path came upon.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    culprit: PathBuf,
    fault: Fault,
    owner: u32,
    mode: u32,
}

/// Walks along an absolute path, through each link, to what it leads to, or to where nothing is any more.
fn walk(path: &Path, user: User, may_be_systems: bool) -> Result<(), Found> {
    let own = user.own;
    let mut place = PathBuf::from("/");
    let Ok(root) = place.symlink_metadata() else {
        return Ok(());
    };
    // In a namespace the system's files may belong to a number that stands for all users outside.
    let is_systems = |owner| owner == 0 || owner == root.uid();
    let found = |culprit: &Path, metadata: &Metadata, fault| Found {
        culprit: culprit.to_path_buf(),
        fault,
        owner: metadata.uid(),
        mode: metadata.mode() & 0o7777,
    };
    let mut left = names(path);
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == ".." {
            place.pop();
            continue;
        }
        let next = place.join(&name);
        let Ok(metadata) = next.symlink_metadata() else {
            return Ok(());
        };
        let owner = metadata.uid();
        if owner != own && !is_systems(owner) {
            return Err(found(&next, &metadata, Fault::Foreign));
        }
        if metadata.is_symlink() {
            links += 1;
            let Ok(target) = next.read_link() else {
                return Ok(());
            };
            // The system follows no more of them either.
            if links > LINKS {
                return Ok(());
            }
            if target.is_absolute() {
                place = PathBuf::from("/");
            }
            for name in names(&target).into_iter().rev() {
                left.push_front(name);
            }
            continue;
        }
        let is_last = left.is_empty();
        if is_last && owner != own && !may_be_systems {
            return Err(found(&next, &metadata, Fault::Foreign));
        }
        let mode = metadata.mode();
        let writable = match user.private_group {
            Some(group) if group == metadata.gid() && owner == own => OTHERS_WRITABLE,
            _ => GROUP_WRITABLE | OTHERS_WRITABLE,
        };
        if mode & writable != 0 && (is_last || mode & STICKY == 0) {
            return Err(found(&next, &metadata, Fault::Writable));
        }
        place = next;
    }
    Ok(())
}

/// The names on a path, `..` among them.
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
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A user who owns nothing here.
    const STRANGER: u32 = 4_000_000;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn fault(path: &Path, own: u32, may_be_systems: bool) -> Option<(PathBuf, Fault)> {
        let user = User {
            own,
            private_group: None,
        };
        let found = walk(path, user, may_be_systems).err()?;
        Some((found.culprit, found.fault))
    }

    #[test]
    fn what_the_system_owns_is_believed_only_as_a_configuration() {
        let path = Path::new("/etc/passwd");
        assert_eq!(fault(path, STRANGER, true), None);
        assert_eq!(
            fault(path, STRANGER, false),
            Some((path.canonicalize().unwrap(), Fault::Foreign))
        );
    }

    #[test]
    fn what_is_not_there_is_judged_by_what_is_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let path = folder.join("a/b/c");
        assert_eq!(fault(&path, own_uid(), false), None);
        mode(&folder, 0o720);
        assert_eq!(
            fault(&path, own_uid(), false),
            Some((folder.clone(), Fault::Writable))
        );
        mode(&folder, 0o1777);
        assert_eq!(fault(&path, own_uid(), false), None);
        assert_eq!(
            fault(&folder, own_uid(), false),
            Some((folder.clone(), Fault::Writable)),
            "in the folder itself anybody may put something"
        );
    }

    #[test]
    fn the_group_may_write_where_nobody_else_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let gid = folder.metadata().unwrap().gid();
        let fault = |group| {
            let user = User {
                own: own_uid(),
                private_group: group,
            };
            walk(&folder, user, false).err().map(|found| found.fault)
        };
        mode(&folder, 0o770);
        assert_eq!(fault(Some(gid)), None);
        assert_eq!(fault(Some(gid + 1)), Some(Fault::Writable));
        assert_eq!(fault(None), Some(Fault::Writable));
        mode(&folder, 0o777);
        assert_eq!(fault(Some(gid)), Some(Fault::Writable));
    }

    #[test]
    fn a_private_group_has_one_member() {
        let users = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/:/bin/sh\nbob:x:1001:100::/:/bin/sh\neve:x:1002:100::/:/bin/sh\n";
        let groups = |members| format!("root:x:0:\nada:x:1000:{members}\nusers:x:100:\n");
        let table = [
            (1000, groups(""), Some(1000)),
            (1000, groups("ada"), Some(1000)),
            (1000, groups("ada,eve"), None),
            (1001, groups(""), None),
            (1003, groups(""), None),
            (1000, "root:x:0:\n".to_owned(), None),
            (1000, "broken\n::\n".to_owned(), None),
        ];
        for (own, groups, expected) in table {
            assert_eq!(private_group_of(own, users, &groups), expected, "{own}: {groups}");
        }
    }

    #[test]
    fn links_are_walked_as_the_system_walks_them() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        fs::create_dir_all(folder.join("open/inner")).unwrap();
        fs::create_dir(folder.join("closed")).unwrap();
        fs::write(folder.join("closed/file"), "").unwrap();
        symlink("../closed/file", folder.join("open/relative")).unwrap();
        symlink(folder.join("open/inner"), folder.join("closed/absolute")).unwrap();
        symlink("loop", folder.join("loop")).unwrap();
        mode(&folder.join("open"), 0o777);
        let open = Some((folder.join("open"), Fault::Writable));
        let table = [
            ("closed/file", None),
            ("closed/../closed/file", None),
            ("open/relative", open.clone()),
            ("closed/absolute/x", open.clone()),
            ("closed/absolute/../../closed/file", open),
            ("loop/x", None),
        ];
        for (path, expected) in table {
            assert_eq!(fault(&folder.join(path), own_uid(), false), expected, "{path}");
        }
    }

    #[test]
    fn the_hint_is_what_helps() {
        let untrusted = |role, fault, owner| Untrusted {
            role,
            path: "/t/my home".into(),
            culprit: "/t/my home".into(),
            fault,
            owner,
            own: 1000,
            mode: 0o777,
        };
        let table = [
            (Role::Data, Fault::Writable, 1000, "chmod go-w '/t/my home'"),
            (Role::Home, Fault::Foreign, 1001, "sessionctl --home \"$HOME/"),
            (Role::Home, Fault::Writable, 0, "sessionctl --home \"$HOME/"),
            (
                Role::Configuration,
                Fault::Foreign,
                1001,
                "cp '/t/my home' \"$HOME/",
            ),
        ];
        for (role, fault, owner, command) in table {
            let hint = untrusted(role, fault, owner).hint("sessionctl");
            assert!(hint.contains(command), "{hint}");
        }
    }

    #[test]
    fn only_a_file_of_ones_own_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "text").unwrap();
        assert!(open_own(&file).is_ok());
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(open_own(&link).is_err());
        assert!(open_own(folder.path()).is_err());
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            let pipe = folder.path().join("pipe");
            mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
            assert!(open_own(&pipe).is_err());
        }
    }
}

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A user who owns nothing here.
const STRANGER: u32 = 4_000_000;

fn user(own: u32) -> User {
    User {
        uid: own,
        private_group: None,
        ..User::of_this_process()
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn fault(path: &Path, own: u32, may_be_system_owned: bool) -> Option<(PathBuf, Fault)> {
    let user = user(own);
    let role = match may_be_system_owned {
        true => Role::Configuration,
        false => Role::Data,
    };
    match walk(path, user, role, None) {
        Err(CreateFolderError::Untrusted(found)) => Some((found.culprit, found.fault)),
        Ok(()) | Err(CreateFolderError::Make { .. }) => None,
    }
}

#[test]
fn a_file_of_the_system_is_trusted_only_as_configuration() {
    let path = Path::new("/etc/passwd");
    assert_eq!(fault(path, STRANGER, true), None);
    assert_eq!(
        fault(path, STRANGER, false),
        Some((path.canonicalize().unwrap(), Fault::Foreign))
    );
}

#[test]
fn a_missing_entry_is_judged_by_its_parents() {
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
fn missing_folders_are_made_private() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    mode(&folder, 0o1777);
    let path = folder.join("home/data");
    for _ in 0..2 {
        create_and_check(Role::Data, &path).unwrap();
        for made in [&path, &folder.join("home")] {
            assert_eq!(made.metadata().unwrap().mode() & 0o7777, 0o700);
        }
    }
    fs::write(folder.join("file"), "").unwrap();
    for path in ["file", "file/data"] {
        let error = create_and_check(Role::Data, &folder.join(path)).unwrap_err();
        assert!(
            matches!(error, CreateFolderError::Make { .. }),
            "{path}: {error:?}"
        );
    }
    // An unmounted disk must not be replaced by a folder.
    symlink(folder.join("disk/data"), folder.join("link")).unwrap();
    create_and_check(Role::Data, &folder.join("link")).unwrap_err();
    assert!(!folder.join("disk").exists());
    fs::create_dir(folder.join("disk")).unwrap();
    fs::create_dir(folder.join("disk/data")).unwrap();
    create_and_check(Role::Data, &folder.join("link/below")).unwrap();
    assert!(folder.join("disk/data/below").is_dir());
}

/// In a sticky folder any user may create a missing entry, even between the check and the creation.
#[test]
fn a_folder_that_another_user_makes_first_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    mode(&folder, 0o1777);
    let home = folder.join("home");
    // The parent is root's, like `/tmp`, and everything that this process creates is another user's.
    let user = User {
        system_uid: own_uid(),
        ..user(STRANGER)
    };
    let mut make = |path: &Path| {
        fs::create_dir(path)?;
        Err(io::ErrorKind::AlreadyExists.into())
    };
    match create_and_check_by(user, Role::Home, &home, &mut make) {
        Err(CreateFolderError::Untrusted(untrusted)) => {
            assert_eq!((untrusted.culprit, untrusted.fault), (home, Fault::Foreign));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_configuration_is_judged_by_the_opened_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let file = folder.join("config.toml");
    let opened =
        |path: &Path| open_configuration(path).map(|opened| opened.map(drop).map_err(|error| error.kind()));
    assert_eq!(opened(&file), Ok(Err(io::ErrorKind::NotFound)));
    fs::write(&file, "").unwrap();
    assert_eq!(opened(&file), Ok(Ok(())));
    assert_eq!(opened(&folder), Ok(Err(io::ErrorKind::InvalidInput)));
    // Another file was opened before.
    let other = folder.join("other.toml");
    fs::write(&other, "").unwrap();
    mode(&other, 0o602);
    let untrusted = check_opened(&file, File::open(&other)).unwrap_err();
    assert_eq!((untrusted.culprit, untrusted.fault), (file, Fault::Writable));
}

#[test]
fn a_private_group_may_write() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let gid = folder.metadata().unwrap().gid();
    let fault = |group| {
        let user = User {
            private_group: group,
            ..user(own_uid())
        };
        let metadata = folder.symlink_metadata().unwrap();
        user.fault(&metadata, true, false)
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
        let group = private_group_of(own, 100, users, &groups);
        assert_eq!(group, expected, "{own}: {groups}");
    }
}

/// A directory service knows the user, but the system's files do not.
#[test]
fn a_private_group_of_an_unlisted_user_has_the_users_number() {
    let users = "root:x:0:0::/root:/bin/sh\nada:x:1000:5002::/:/bin/sh\n";
    let table = [
        ((5001, 5001), "root:x:0:\n", Some(5001)),
        ((5001, 5001), "eve:x:5001:\n", Some(5001)),
        ((5001, 5001), "eve:x:5001:ada\n", None),
        ((5001, 513), "root:x:0:\n", None),
        ((5001, 0), "root:x:0:\n", None),
        ((5002, 5002), "root:x:0:\n", None),
    ];
    for ((own, group), groups, expected) in table {
        let found = private_group_of(own, group, users, groups);
        assert_eq!(found, expected, "{own}, {group}: {groups}");
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
fn the_hint_fits_the_fault() {
    let untrusted = |role, fault, owner| Untrusted {
        role,
        path: "/t/my home".into(),
        culprit: "/t/my home".into(),
        fault,
        owner_uid: owner,
        own_uid: 1000,
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
        let untrusted = untrusted(role, fault, owner);
        let hint = match fault == Fault::Writable && owner == untrusted.own_uid {
            true => untrusted.hint("sessionctl"),
            false => untrusted.hint_elsewhere("sessionctl", Some(Path::new("/t/ada")), |_| true),
        };
        assert!(hint.contains(command), "{hint}");
    }
}

/// In a container, the user may have a number that owns nothing, and another user's home.
#[test]
fn the_hint_suggests_no_folder_that_would_be_refused() {
    let home = Path::new("/opt/app/home");
    for role in [Role::Home, Role::Configuration, Role::Data] {
        let untrusted = Untrusted {
            role,
            path: home.join(".config/sessiond.toml"),
            culprit: "/opt/app".into(),
            fault: Fault::Foreign,
            owner_uid: 1001,
            own_uid: 1_000_680_000,
            mode: 0o775,
        };
        let outside = |path: &Path| !path.starts_with("/opt/app");
        for home in [Some(home), None] {
            let hint = untrusted.hint_elsewhere("sessionctl", home, outside);
            assert!(
                hint.ends_with("sessionctl --home /tmp/sessiond-1000680000"),
                "{hint}"
            );
            let hint = untrusted.hint_elsewhere("sessionctl", home, |_| false);
            assert!(!hint.contains("sessionctl"), "{hint}");
        }
    }
}

#[test]
fn the_null_device_is_an_empty_configuration() {
    let null = Path::new("/dev/null");
    assert!(open_configuration(null).unwrap().is_ok());
    // As data it is not trusted.
    assert_eq!(fault(null, STRANGER, true), None);
    assert!(fault(null, STRANGER, false).is_some());
}

#[test]
fn only_an_own_file_is_opened() {
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

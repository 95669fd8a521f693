//! Folders and files that another user owns or can change: the daemon trusts none of them and does not start.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use super::error_words::check_start;
use crate::home::Home;

/// The uid of another user.
pub(crate) const STRANGER: u32 = 65534;

/// Returns whether the test can give files to another user.
#[allow(
    clippy::print_stdout,
    reason = "whoever runs the tests is told what was left out"
)]
pub(crate) fn can_give_away() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root can give a file to another user");
    }
    is_root
}

pub(crate) fn give_away(path: &Path) {
    std::os::unix::fs::lchown(path, Some(STRANGER), Some(STRANGER)).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Runs a daemon that must not start, and returns its error. It must not have made its socket.
#[track_caller]
fn refusal(home: &Home, arguments: &[&str]) -> String {
    let (status, said) = home.run(arguments);
    assert!(!home.socket().exists(), "{said}");
    // For a home that another user owns, the hint names /tmp. The tests' homes may be in another temporary folder.
    let temporary = std::env::temp_dir().join("");
    let said = said.replace("/tmp/", temporary.to_str().unwrap());
    check_start(&arguments.join(" "), status.code(), &said).to_owned()
}

/// Each trusted file and folder is given to another user or opened to all. The error names it and says what to do.
#[test]
fn what_another_user_owns_or_can_change_is_refused() {
    // The new mode, or `None` to give the file to another user.
    let changes = [None, Some(0o772), Some(0o707), Some(0o1777)];
    let (folder, file) = (&changes[..], &changes[..3]);
    let table = [
        (".", folder),
        // In a sticky folder, other users cannot replace the file.
        ("config", file),
        ("config/config.toml", file),
        ("data", folder),
        ("run", folder),
        ("log", folder),
    ];
    let can_give_away = can_give_away();
    for (name, changes) in table {
        for change in changes {
            let home = Home::new();
            let path = match name {
                "." => home.path().to_owned(),
                name => home.path().join(name),
            };
            if !path.exists() {
                fs::create_dir(&path).unwrap();
            }
            match change {
                Some(mode) => set_mode(&path, *mode),
                None if can_give_away => give_away(&path),
                None => continue,
            }
            let error = refusal(&home, &[]);
            assert!(
                error.contains(path.to_str().unwrap()),
                "{name} {change:?}: {error}"
            );
            assert!(!home.data().join("journal.jsonl").exists(), "{name} {change:?}");
        }
    }
}

/// If other users can rename entries of a folder above the home, they can replace the home. In a sticky folder such as
/// `/tmp`, they cannot; all other tests have their homes there.
#[test]
fn a_home_that_others_can_replace_is_refused() {
    let home = Home::new();
    let above = home.path().join("above");
    let below = above.join("home");
    fs::create_dir_all(&below).unwrap();
    set_mode(&above, 0o777);
    let arguments = ["--home", below.to_str().unwrap()];
    let said = refusal(&home, &arguments);
    assert!(said.contains(above.to_str().unwrap()), "{said}");
    assert!(!below.join("data").exists(), "{said}");
}

/// A configuration that is named by an argument is checked like the default one.
#[test]
fn a_named_configuration_of_another_user_is_refused() {
    if !can_give_away() {
        return;
    }
    let home = Home::new();
    let other = home.path().join("other.toml");
    fs::write(&other, "default_agent = \"loopback\"\n").unwrap();
    give_away(&other);
    let said = refusal(&home, &["--config", other.to_str().unwrap()]);
    assert!(said.contains(other.to_str().unwrap()), "{said}");
}

/// A link that another user owns is refused. A link of the user's own is checked by its target.
#[test]
fn a_link_is_judged_by_its_owner_and_by_what_it_names() {
    let home = Home::new();
    let (target, link) = (home.path().join("target"), home.path().join("link"));
    fs::create_dir(&target).unwrap();
    symlink(&target, &link).unwrap();
    let arguments = ["--home", link.to_str().unwrap()];
    let mut command = home.command();
    command.env_remove("SESSIOND_HOME");
    drop(home.start_command(command, &arguments));
    assert!(target.join("data/journal.jsonl").exists());

    set_mode(&target, 0o777);
    let said = refusal(&home, &arguments);
    assert!(said.contains(target.to_str().unwrap()), "{said}");
    set_mode(&target, 0o700);
    if can_give_away() {
        give_away(&link);
        let said = refusal(&home, &arguments);
        assert!(said.contains(link.to_str().unwrap()), "{said}");
        fs::remove_file(&link).unwrap();
        symlink(&target, &link).unwrap();
        chown(&target, Some(STRANGER), None).unwrap();
        let said = refusal(&home, &arguments);
        assert!(said.contains(target.to_str().unwrap()), "{said}");
    }
}

/// A data folder that others can only read is made private. That is no reason to refuse it.
#[test]
fn a_data_folder_that_others_can_only_read_is_closed() {
    let home = Home::new();
    fs::create_dir(home.data()).unwrap();
    set_mode(&home.data(), 0o755);
    drop(home.start());
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.data()), 0o700);
}

/// If the lock file is a link, the daemon must not write to the link's target.
#[test]
fn a_lock_file_is_not_followed() {
    let home = Home::new();
    fs::create_dir(home.data()).unwrap();
    let precious = home.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, home.data().join("sessiond.lock")).unwrap();
    let said = refusal(&home, &[]);
    assert!(said.contains("sessiond.lock"), "{said}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

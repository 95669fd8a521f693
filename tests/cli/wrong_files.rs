//! Files and folders that a command cannot use: what is wrong, and a command that helps.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use super::home::Home;
use super::printed::{check_printed, commands};
use super::text;

#[test]
fn a_file_that_cannot_be_sent_is_named_with_what_helps() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let folder = home.path().join("folder");
    fs::create_dir(&folder).unwrap();
    for (file, code) in [
        ("./none.txt", 2),
        ("./folder/none.txt", 2),
        (folder.to_str().unwrap(), 2),
        // It can be opened, and reading it fails, also for root.
        ("/proc/self/mem", 1),
    ] {
        let printed = home.printed(&["send", &id, "--file", file, "Look"], code);
        assert!(printed.contains("hint: "), "{printed}");
    }
    assert_eq!(home.said(&["history", &id]), "");
}

/// A device that never ends.
#[test]
fn an_endless_file_is_refused_after_the_longest_prompt() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let printed = home.printed(&["send", &id, "--file", "/dev/zero"], 2);
    assert!(printed.contains("12.00 MiB"), "{printed}");
}

#[test]
fn an_export_to_a_folder_names_a_file_in_it() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let folder = home.path().join("exports here");
    fs::create_dir(&folder).unwrap();
    let printed = home.printed(&["export", &id, "-o", folder.to_str().unwrap()], 2);
    let path = home.said_pasted(commands(&printed)[0]);
    assert!(path.starts_with(folder.to_str().unwrap()) && fs::exists(path).unwrap());
}

/// The user knows the folder, not the file that is written there first. The store has no part in it.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_exported_or_imported_is_named() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    // Nobody can create a file there, not even root.
    for file in ["/sys/talk.json", "/sys/talk.session-bundle.tar.zst"] {
        let printed = home.printed(&["export", &id, "-o", file], 1);
        assert!(printed.contains("in /sys: "), "{printed}");
        // The path of the file, or the JSON itself.
        let exported = home.said_pasted(commands(&printed)[0]);
        assert!(exported.starts_with('{') || fs::exists(exported).unwrap());
    }
    let printed = home.printed(&["import", "/proc/self/mem", "--cwd", "."], 1);
    assert!(
        printed.contains("/proc/self/mem") && !printed.contains("doctor"),
        "{printed}"
    );
}

#[test]
fn text_that_is_not_utf_8_is_refused() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let file = home.path().join("latin");
    fs::write(&file, b"caf\xe9").unwrap();
    let send = ["send", id.as_str(), "-"];
    let input = fs::File::open(&file).unwrap();
    let output = home.command(&send).stdin(input).output().unwrap();
    check_printed(&["send, not UTF-8"], &output, 2);
    // Nor is a configuration read that is not.
    let other = Home::new();
    let output = other.run(&["--config", file.to_str().unwrap(), "ls"]);
    let printed = check_printed(&["ls, with a configuration that is not UTF-8"], &output, 3);
    assert!(printed.contains("EDITOR"), "{printed}");
}

/// Its permissions are not at fault, and other programs need them.
#[test]
fn a_folder_in_place_of_the_configuration_keeps_its_permissions() {
    let home = Home::new();
    let folder = home.path().join("shared");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let output = home.run(&["--config", folder.to_str().unwrap(), "ls"]);
    let printed = check_printed(&["ls, with a folder as configuration"], &output, 3);
    assert!(!printed.contains("chmod"), "{printed}");
}

/// Only one daemon can use a data folder.
#[test]
fn another_socket_of_a_running_daemon_is_named() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let other = home.path().join("other.sock");
    let output = home.run(&["--socket", other.to_str().unwrap(), "ls"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let printed = text(&output.stderr);
    assert!(
        home.said_pasted(commands(&printed)[0]).contains(&id[..8]),
        "{printed}"
    );
    // Also if another program listens there.
    let listener = UnixListener::bind(&other).unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // An error is ignored: the client may have disconnected.
        drop(stream.write_all(b"HTTP/1.1 400 No\r\n\r\n"));
    });
    let output = home.run(&["--socket", other.to_str().unwrap(), "ls"]);
    serving.join().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let printed = text(&output.stderr);
    assert!(
        home.said_pasted(commands(&printed)[0]).contains(&id[..8]),
        "{printed}"
    );
}

/// The hint names a shorter socket, and not another data folder, in which no conversation is.
#[test]
fn a_socket_with_a_long_path_is_given_a_shorter_one() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("a".repeat(120));
    let user = folder.path().join("user");
    fs::create_dir(&user).unwrap();
    let (long, socket) = (long.to_str().unwrap(), user.join("sessiond.sock"));
    let call = |arguments: &[&str]| super::run(folder.path(), &[&["--home", long], arguments].concat());
    let named = ["--socket", socket.to_str().unwrap()];
    let id = text(&call(&[&named[..], &["new"]].concat()).stdout);
    assert_eq!(call(&[&named[..], &["stop"]].concat()).status.code(), Some(0));
    let refused = call(&["ls"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let told = text(&refused.stderr);
    let hint = commands(&told)[0].replace("sessionctl", env!("CARGO_BIN_EXE_sessionctl"));
    let mut shell = std::process::Command::new("sh");
    let listed = shell
        .args(["-c", &hint])
        .env_clear()
        .env("HOME", &user)
        .output()
        .unwrap();
    assert!(text(&listed.stdout).contains(id.trim()), "{told} {listed:?}");
    assert_eq!(call(&[&named[..], &["stop"]].concat()).status.code(), Some(0));
}

//! Checks that what packages and scripts install works, also as a service, and that it can be removed
//! completely.
//!
//! The programs are those built for the tests. A script that builds from source uses the profile of the
//! tests, so nothing is built twice. A test that needs something that the system lacks prints `skipped: ` and
//! the reason.
//!
//! The user has an empty home and almost no environment variables except `PATH` and those that cargo needs;
//! everything is installed into temporary folders. The machine itself is not isolated: programs use the
//! libraries, shell and tools of this system (`/usr`), and scripts also use the `PATH` of the caller. A build
//! from source uses the caller's toolchain, the crates fetched before, and this checkout's `target` folder,
//! so it does not prove that a fresh checkout builds on a new machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test may fail by panicking, its helpers too, and tells what it leaves out"
)]

mod client_scripts;
mod clients;
#[cfg(target_os = "linux")]
mod debian;
mod launchd;
#[cfg(target_os = "linux")]
mod manager;
mod readme;
mod registry;
#[cfg(target_os = "linux")]
mod service;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
#[cfg(target_os = "linux")]
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::daemon::error_words::{compare, plain};

/// The root of this source tree.
const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// The folder of the programs that were built for the tests.
fn built() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_sessiond")).parent().unwrap()
}

/// Where a script gets the programs from.
#[derive(Clone, Copy)]
enum Programs {
    /// The programs that were built for the tests.
    Built,
    /// The script builds them in this checkout's own target folder, so that what exists is not built again.
    Source,
}

impl Programs {
    /// Runs a script of `packaging` with these arguments. It must succeed; its output is returned.
    fn script(self, name: &str, home: &Path, arguments: &[&str]) -> String {
        let mut command = command(Path::new(SOURCE).join("packaging").join(name), home);
        match self {
            Self::Built => drop(command.arg("--from").arg(built())),
            Self::Source => {
                let own = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
                for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
                    let set = std::env::var_os(name).map(PathBuf::from);
                    command.env(name, set.unwrap_or_else(|| own.join(folder)));
                }
                // With the profile of the tests, everything is already built.
                let profile = built().file_name().unwrap().to_str().unwrap();
                command.env("BUILD_PROFILE", if profile == "debug" { "dev" } else { profile });
                for name in ["CARGO_TARGET_DIR", "RUSTFLAGS", "RUSTUP_TOOLCHAIN"] {
                    command.envs(std::env::var_os(name).map(|value| (name, value)));
                }
            }
        }
        said(name, &command.args(arguments).output().unwrap())
    }
}

/// A command without the user's own settings; only `PATH` is kept.
fn command(program: impl AsRef<std::ffi::OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("HOME", home)
        .env("SESSIOND_HOME", home.join("sessiond"))
        .current_dir(home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // The programs are large because they are built without optimisation, and the package is deleted after
    // the test.
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    command
}

/// Runs a script of `packaging`. It must succeed; its output is returned.
fn script(name: &str, home: &Path, arguments: &[&str]) -> String {
    let mut command = command(Path::new(SOURCE).join("packaging").join(name), home);
    said(name, &command.args(arguments).output().unwrap())
}

fn said(what: &str, output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{what}: {}: {stdout}{stderr}",
        output.status
    );
    stdout
}

/// Checks the last line that a script printed against the snapshot.
#[track_caller]
fn check_last(what: &str, printed: &str) {
    let words = plain(printed.trim_end().lines().last().unwrap_or_default());
    compare("printed-words.txt", &format!("{what}{words}"));
}

/// Checks the exit code of a script and the last line of its stderr against the snapshot. After a usage error
/// this line follows the usage.
#[track_caller]
fn check_words(name: &str, arguments: &[&str], output: &Output, code: i32) {
    let printed = String::from_utf8_lossy(&output.stderr);
    let command = format!("{name} {}", arguments.join(" "));
    assert_eq!(output.status.code(), Some(code), "{command}: {printed}");
    let usage = if printed.starts_with(&format!("Usage: packaging/{name} ")) {
        "usage, and "
    } else {
        ""
    };
    check_last(&format!("{command} => {code}: {usage}"), &printed);
}

/// All files below a folder, without folders.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = entries(folder);
    found.retain(|path| !path.is_dir() || path.is_symlink());
    found
}

/// All files and all empty folders below a folder.
fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(within) = folders.pop() {
        let mut is_empty = within != folder;
        for entry in fs::read_dir(&within).into_iter().flatten() {
            is_empty = false;
            let path = entry.unwrap().path();
            match path.is_dir() && !path.is_symlink() {
                true => folders.push(path),
                false => drop(found.insert(path)),
            }
        }
        if is_empty {
            found.insert(within);
        }
    }
    found
}

/// Whether a message contains the path of a prefix as an argument of a command to paste.
#[cfg(target_os = "linux")]
fn names(message: &[u8], prefix: &Path) -> bool {
    String::from_utf8_lossy(message).contains(&format!("--prefix '{}'\n", prefix.display()))
}

/// Whether the system has this program. Prints a message if not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

/// Checks that the files of a package are below its prefix.
fn check_installed(prefix: &Path, compressed: bool) {
    let end = if compressed { ".gz" } else { "" };
    for file in [
        "bin/sessiond",
        "bin/sessionctl",
        "share/bash-completion/completions/sessionctl",
        "share/bash-completion/completions/sessiond",
        "share/fish/vendor_completions.d/sessionctl.fish",
        "share/fish/vendor_completions.d/sessiond.fish",
        &format!("share/man/man1/sessiond.1{end}"),
        &format!("share/man/man1/sessionctl.1{end}"),
        &format!("share/man/man1/sessionctl-fork.1{end}"),
        "share/doc/session-bridge/packaging/docs/guide.md",
        "share/doc/session-bridge/packaging/openrpc.json",
        "share/doc/session-bridge/packaging/clients/chat.mjs",
        "share/doc/session-bridge/packaging/clients/chat.py",
        "share/doc/session-bridge/packaging/clients/chat.rs",
        "share/doc/session-bridge/packaging/clients/session-bridge.mjs",
        "share/doc/session-bridge/packaging/clients/session-bridge-contract.d.mts",
        "share/doc/session-bridge/packaging/clients/session_bridge.py",
        "share/doc/session-bridge/packaging/clients/session_bridge_contract.py",
    ] {
        assert!(prefix.join(file).is_file(), "there is no {file}");
    }
    let [sessiond, sessionctl] = ["sessiond", "sessionctl"].map(|name| {
        let program = fs::metadata(prefix.join("bin").join(name)).unwrap();
        (program.dev(), program.ino())
    });
    assert_eq!(sessiond, sessionctl, "the two names are not the same file");
    readme::leads_to_what_is_there(&prefix.join("share/doc/session-bridge"), compressed);
}

#[test]
fn the_script_installs_twice_what_works_and_takes_away_only_that() {
    installs_twice(Programs::Built);
}

#[test]
fn from_source_the_script_installs_twice_what_works_and_takes_away_only_that() {
    installs_twice(Programs::Source);
}

fn installs_twice(programs: Programs) {
    let folder = tempfile::tempdir().unwrap();
    let (home, prefix) = (
        folder.path().join("home"),
        folder.path().join("prefix with spaces"),
    );
    fs::create_dir_all(&home).unwrap();
    let others = prefix.join("bin/of another");
    fs::create_dir_all(others.parent().unwrap()).unwrap();
    fs::write(&others, "").unwrap();
    let to = ["--prefix", prefix.to_str().unwrap()];
    let words = programs.script("install.sh", &home, &to);
    check_last("install.sh shows 0: ", &words);
    let first = files(&prefix);
    // Simulates an older version that had installed one more file.
    let older = prefix.join("share/man/man1/sessionctl-older.1");
    fs::write(&older, "").unwrap();
    let list = prefix.join("share/session-bridge/installed");
    let listed = fs::read_to_string(&list).unwrap();
    fs::write(&list, format!("{listed}{}\n", older.display())).unwrap();
    programs.script("install.sh", &home, &to);
    assert_eq!(files(&prefix), first);
    check_installed(&prefix, false);
    if cfg!(target_os = "linux") {
        let unit = fs::read_to_string(prefix.join("share/systemd/user/sessiond.service")).unwrap();
        assert!(
            unit.contains(&format!("ExecStart=\"{}/bin/sessiond\"\n", prefix.display())),
            "{unit}"
        );
    }

    let program = prefix.join("bin/sessionctl");
    let played = said("demo", &command(&program, &home).arg("demo").output().unwrap());
    assert!(!played.is_empty());
    #[cfg(target_os = "linux")]
    service::serves(&service::Installed {
        units: prefix.join("share/systemd/user"),
        root: Path::new("/"),
        sessionctl: program.clone(),
        home: &home,
    });
    // A running daemon is stopped, and its data is kept.
    said(
        "new",
        &command(&program, &home)
            .args(["new", "--agent", "loopback"])
            .output()
            .unwrap(),
    );
    let socket = home.join("sessiond/run/sessiond.sock");
    assert!(socket.exists());
    script("uninstall.sh", &home, &to);
    assert!(!socket.exists());
    assert!(home.join("sessiond/data/journal.jsonl").exists());
    assert_eq!(entries(&prefix), BTreeSet::from([others]));
    let words = script("uninstall.sh", &home, &to);
    check_last("uninstall.sh again shows 0: ", &words);
}

/// Replaces `systemctl`: records its calls and which units are enabled.
#[cfg(target_os = "linux")]
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >>"$HOME/systemctl.calls"
case "$2" in
    enable) touch "$HOME/systemctl.enabled" ;;
    disable) rm "$HOME/systemctl.enabled" ;;
    show) echo "$HOME/.local/share/systemd/user/sessiond.socket" ;;
esac
"#;

/// The path of the home contains a space and a percent sign, which must be escaped in units.
#[cfg(target_os = "linux")]
#[test]
fn the_service_of_the_script_is_enabled_serves_and_leaves_the_data_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (home, programs) = (folder.path().join("5 % & more"), folder.path().join("programs"));
    for folder in [&home, &programs] {
        fs::create_dir(folder).unwrap();
    }
    let systemctl = programs.join("systemctl");
    fs::write(&systemctl, SYSTEMCTL).unwrap();
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
    let output = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(Path::new(SOURCE).join("packaging").join(name));
        command.env_clear().env("HOME", &home).current_dir(&home);
        command.env("PATH", format!("{}:{}", programs.display(), service::BARE_PATH));
        command.args(arguments).output().unwrap()
    };
    let run = |name: &str, arguments: &[&str]| {
        said(name, &output(name, arguments));
        let calls = home.join("systemctl.calls");
        let called = fs::read_to_string(&calls).unwrap_or_default();
        let _none = fs::remove_file(calls);
        called
    };
    let prefix = home.join(".local");
    let asked = "--user show --property FragmentPath --value sessiond.socket\n";
    for _twice in 1..=2 {
        let called = run("install.sh", &["--from", built().to_str().unwrap(), "--service"]);
        assert_eq!(
            called,
            format!(
                "{asked}--user daemon-reload\n--user enable sessiond.socket sessiond.service\n\
                 --user restart sessiond.socket sessiond.service\n"
            )
        );
        check_installed(&prefix, false);
    }
    let units = prefix.join("share/systemd/user");
    if has("systemd-analyze") {
        are_taken(&units);
    }
    service::serves(&service::Installed {
        units,
        root: Path::new("/"),
        sessionctl: prefix.join("bin/sessionctl"),
        home: &home,
    });
    // Another copy is installed and removed, which does not affect the service. The copy cannot become the
    // service too.
    let other = home.join("other");
    let to = ["--prefix", other.to_str().unwrap()];
    let install = [&to[..], &["--from", built().to_str().unwrap()]].concat();
    assert_eq!(run("install.sh", &install), "");
    assert_eq!(run("uninstall.sh", &to), asked);
    let served = [&install[..], &["--service"]].concat();
    let refused = output("install.sh", &served);
    check_words("install.sh", &["beside the service"], &refused, 1);
    assert!(names(&refused.stderr, &prefix), "{refused:?}");
    assert_eq!(entries(&other), [].into(), "a refused installation left files");
    fs::remove_file(home.join("systemctl.calls")).unwrap();

    let called = run("uninstall.sh", &[]);
    let disabled = "--user stop sessiond.socket sessiond.service\n\
                    --user disable sessiond.socket sessiond.service\n--user daemon-reload\n";
    assert_eq!(called, format!("{asked}{disabled}"));
    // Without the first service it can. Its units must be linked, because systemd does not search its prefix.
    let called = run("install.sh", &served);
    let units = other.join("share/systemd/user");
    let links = format!(
        "--user link {0}/sessiond.socket {0}/sessiond.service\n",
        units.display()
    );
    assert!(called.contains(&links), "{called}");
    run("uninstall.sh", &to);
    fs::remove_dir(other).unwrap();
    fs::remove_file(home.join("systemctl.enabled")).unwrap();
    only_data_are_left(&home);
}

/// Replaces `systemctl`: reports the unit through its link, records `stop`, and fails without doing anything
/// else.
#[cfg(target_os = "linux")]
const IDLE_SYSTEMCTL: &str = r#"#!/bin/sh
case "$2" in
    show) echo "$HOME/.config/systemd/user/sessiond.socket" ;;
    stop) touch "$HOME/stopped" ;;
esac
exit 1
"#;

/// Simulates an enabled service whose links the manager does not remove.
#[cfg(target_os = "linux")]
#[test]
fn links_to_units_that_are_gone_are_taken_away_and_those_of_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let [home, programs, prefix, alias] =
        ["home", "programs", "prefix", "alias"].map(|name| folder.path().join(name));
    for folder in [&home, &programs, &prefix] {
        fs::create_dir(folder).unwrap();
    }
    symlink(&prefix, &alias).unwrap();
    let systemctl = programs.join("systemctl");
    fs::write(&systemctl, IDLE_SYSTEMCTL).unwrap();
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
    let links = home.join(".config/systemd/user");
    let link = |name: &str, prefix: &Path| {
        let (link, unit) = (links.join(name), Path::new(name).file_name().unwrap());
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(prefix.join("share/systemd/user").join(unit), &link).unwrap();
        link
    };
    let others = BTreeSet::from([
        link(
            "default.target.wants/sessiond.service",
            &folder.path().join("other"),
        ),
        link("default.target.wants/other.service", &folder.path().join("other")),
        link("default.target.wants/shared.service", &prefix),
    ]);
    let uninstall = || {
        let mut command = command(Path::new(SOURCE).join("packaging/uninstall.sh"), &home);
        command.env("PATH", format!("{}:{}", programs.display(), service::BARE_PATH));
        said(
            "uninstall.sh",
            &command
                .args(["--prefix", alias.to_str().unwrap()])
                .output()
                .unwrap(),
        );
    };
    let linked = || {
        link("sessiond.service", &prefix);
        link("sessiond.socket", &alias);
        link("sockets.target.wants/sessiond.socket", &prefix);
        link("of-another.target.wants/sessiond.service", &alias);
    };

    Programs::Built.script("install.sh", &home, &["--prefix", alias.to_str().unwrap()]);
    linked();
    uninstall();
    fs::remove_file(home.join("stopped")).unwrap();
    assert_eq!(entries(&home), others);
    // Again, but nothing is installed any more.
    linked();
    uninstall();
    fs::remove_file(home.join("stopped")).unwrap();
    assert_eq!(entries(&home), others);
    // Now the units belong to another program, so the links stay.
    linked();
    let all = entries(&home);
    for unit in ["sessiond.service", "sessiond.socket"] {
        let unit = prefix.join("share/systemd/user").join(unit);
        fs::create_dir_all(unit.parent().unwrap()).unwrap();
        fs::write(unit, "").unwrap();
    }
    uninstall();
    assert_eq!(entries(&home), all);
}

/// Checks that a home contains the daemon's data and nothing else.
#[cfg(target_os = "linux")]
#[track_caller]
fn only_data_are_left(home: &Path) {
    let (data, others): (Vec<_>, Vec<_>) = entries(home)
        .into_iter()
        .partition(|path| path.starts_with(home.join(".local/share/sessiond")));
    assert_eq!(others, Vec::<PathBuf>::new());
    assert!(
        data.iter().any(|path| path.ends_with("journal.jsonl")),
        "{data:?}"
    );
}

/// Invalid arguments are refused before anything is done or built.
#[test]
fn the_scripts_refuse_what_they_do_not_know() {
    let home = tempfile::tempdir().unwrap();
    let refused = |name: &str, arguments: &[&str], code: i32| {
        let mut command = command(Path::new(SOURCE).join("packaging").join(name), home.path());
        command.env("PATH", "/usr/bin:/bin");
        let output = command.args(arguments).output().unwrap();
        check_words(name, arguments, &output, code);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "",
            "{name} {arguments:?}"
        );
        assert_eq!(entries(home.path()), BTreeSet::new());
    };
    refused("install.sh", &["--from", "/nowhere"], 1);
    for arguments in [
        &["--prefix", "relative"][..],
        &["--prefix"],
        &["--prefix", ""],
        &["--what"],
        &["/prefix"],
        &[""],
    ] {
        refused("install.sh", arguments, 2);
        refused("uninstall.sh", arguments, 2);
    }
    for arguments in [
        &["--service", "/prefix"][..],
        &["--prefix", "--service"],
        &["--from"],
        &["--from", ""],
        &["--from", "--service"],
    ] {
        refused("install.sh", arguments, 2);
    }
    refused("uninstall.sh", &["--prefix", "--what"], 2);
    for arguments in [
        &[][..],
        &[""],
        &["--what"],
        &["one", "two"],
        &["--from"],
        &["--from", "", "out"],
        &["--from", "built"],
    ] {
        refused("deb.sh", arguments, 2);
    }
    for name in ["install.sh", "uninstall.sh"] {
        let mut command = command(Path::new(SOURCE).join("packaging").join(name), home.path());
        let output = command.env_remove("HOME").output().unwrap();
        check_words(name, &["without HOME"], &output, 2);
    }
}

/// Runs `systemd-analyze verify` on the units in a folder.
fn verify(units: &Path) -> Output {
    let mut command = command("systemd-analyze", units);
    // systemd-analyze creates folders in the runtime folder.
    let runtime = tempfile::tempdir().unwrap();
    command.env("XDG_RUNTIME_DIR", runtime.path()).args([
        "--user",
        "--man=no",
        "verify",
        "./sessiond.service",
        "./sessiond.socket",
    ]);
    command.output().unwrap()
}

/// Checks that systemd has no complaints about the units in a folder.
#[track_caller]
fn are_taken(units: &Path) {
    let output = verify(units);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !stderr.contains("sessiond."),
        "{stderr}"
    );
}

#[test]
fn the_units_are_what_systemd_takes() {
    if !has("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let put = |change: &dyn Fn(String) -> String| {
        for unit in ["sessiond.service", "sessiond.socket"] {
            let text = fs::read_to_string(Path::new(SOURCE).join("packaging/systemd").join(unit)).unwrap();
            let text = text.replace("@bindir@/sessiond", env!("CARGO_BIN_EXE_sessiond"));
            fs::write(folder.path().join(unit), change(text)).unwrap();
        }
    };
    put(&|text| text);
    are_taken(folder.path());
    put(&|text| text.replace("ListenStream", "ListenSteam"));
    assert!(
        !verify(folder.path()).status.success(),
        "systemd-analyze did not notice the wrong unit"
    );
}

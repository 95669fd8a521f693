//! Runs the installed service under systemd itself, as a user's manager, if this machine permits that.
//!
//! The manager runs in its own namespaces. It takes over all processes of the cgroup in which it starts and
//! changes files below `/run`, so it gets a cgroup that contains no other processes, and does not see any
//! others. It ends with the test, even if the test is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use tempfile::TempDir;

use super::{
    Programs, SOURCE, check_last, check_words, debian, entries, files, has, names, only_data_are_left, said,
    service,
};
use crate::signs;

/// Creates the cgroup and removes it after all processes in it have ended.
const AROUND: &str = r#"
own="$(sed -n 's/^0:://p' /proc/self/cgroup)"
own="${own%/}"
tree="$(sed -n 's/^[^ ]* [^ ]* [^ ]* \/ \([^ ]*\) .* - cgroup2 .*/\1/p' /proc/self/mountinfo | head -n 1)"
[ -n "$tree" ] || { echo "no groups of processes as of cgroup2"; exit; }
group="$tree$own/session-bridge.$$"
if ! mkdir "$group" 2>/dev/null; then
    echo "no group of processes may be made in $tree$own"
    exit
fi
if echo $$ 2>/dev/null >"$group/cgroup.procs"; then
    unshare --user --map-root-user --mount --cgroup --pid --fork --kill-child sh -euc "$1" sh "$2" "$3" 2>&1
    echo $$ >"$tree$own/cgroup.procs"
else
    echo "no process may be moved to a group in $tree$own"
fi
find "$group" -depth -type d -exec rmdir {} \;
"#;

/// Starts the manager, and ends everything when its input is closed. `$2` lists folders that the manager may
/// change; the changes go to an overlay.
const WITHIN: &str = r#"
# The process id as seen from outside: /proc is still the outer one.
read -r pid rest </proc/self/stat
mount -t proc proc /proc
mount -t cgroup2 cgroup2 /sys/fs/cgroup
while read -r process; do
    [ "$process" != 0 ] || outside=$((${outside:-0} + 1))
done </sys/fs/cgroup/cgroup.procs
[ "${outside:-0}" -le 2 ] || { echo "others are in the group of processes"; exit 1; }
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
mkdir "$1/changed"
mount -t tmpfs tmpfs "$1/changed"
for folder in $2; do
    mkdir -p "$1/changed/$folder/upper" "$1/changed/$folder/work"
    mount -t overlay -o "userxattr,lowerdir=/$folder,upperdir=$1/changed/$folder/upper,workdir=$1/changed/$folder/work" overlay "/$folder"
done
[ ! -d /etc/systemd/user ] || mount -t tmpfs tmpfs /etc/systemd/user
echo "within $pid"
/usr/lib/systemd/systemd --user --unit=basic.target &
unset NOTIFY_SOCKET
cat
"#;

/// A user's manager and that user's folders.
struct Manager {
    folder: TempDir,
    keeper: Child,
    /// Closing this pipe ends everything.
    input: Option<ChildStdin>,
    /// The process id of a process in the manager's namespaces.
    within: String,
    home: PathBuf,
}

impl Manager {
    /// Starts a manager. Returns `None` and prints the reason if this machine does not permit it.
    fn start(changeable: &str) -> Option<Self> {
        if !Path::new("/usr/lib/systemd/systemd").exists() {
            eprintln!("skipped: there is no systemd");
            return None;
        }
        if !has("unshare") || !has("nsenter") {
            return None;
        }
        // The path of a socket is limited in length.
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let home = folder.path().join("5 % & more");
        for folder in [&home, &folder.path().join("run")] {
            fs::create_dir(folder).unwrap();
        }
        let address = folder.path().join("ready");
        let ready = UnixDatagram::bind(&address).unwrap();
        let mut keeper = user(Command::new("sh"), folder.path(), &home);
        keeper
            .args(["-c", AROUND, "sh", WITHIN])
            .arg(folder.path())
            .arg(changeable);
        keeper.env("NOTIFY_SOCKET", &address);
        keeper.env("SYSTEMD_LOG_TARGET", "console");
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = keeper.spawn().unwrap();
        let mut output = BufReader::new(keeper.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let Some(within) = line.strip_prefix("within ") else {
            drop(keeper.stdin.take());
            output.read_to_string(&mut line).unwrap();
            keeper.wait().unwrap();
            eprintln!(
                "skipped: no manager of systemd may be started here: {}",
                line.trim()
            );
            return None;
        };
        let manager = Self {
            within: within.trim().to_owned(),
            input: keeper.stdin.take(),
            folder,
            keeper,
            home,
        };
        // The manager also sends other messages before the one that says it is ready.
        let mut message = [0; 4096];
        let is_ready = loop {
            if !signs::is_readable_within(&ready, signs::PATIENCE) {
                break false;
            }
            let length = ready.recv(&mut message).unwrap();
            let message = String::from_utf8_lossy(&message[..length]).into_owned();
            if message.lines().any(|line| line == "READY=1") {
                break true;
            }
        };
        if !is_ready {
            // Nothing is installed yet, so the reason is this machine.
            eprintln!("skipped: systemd starts here, and is not ready");
            return None;
        }
        // The log is not read, but the pipe must not fill up.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Some(manager)
    }

    /// A command that the user runs in the manager's namespaces.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = user(Command::new("nsenter"), self.folder.path(), &self.home);
        command.arg(format!("--target={}", self.within));
        command.args([
            "--user",
            "--mount",
            "--cgroup",
            "--pid",
            "--preserve-credentials",
            "--",
        ]);
        command.arg(program).stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn told(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().unwrap();
        said(&format!("{arguments:?}"), &output).trim_end().to_owned()
    }

    /// Reads a property of a unit from systemd.
    #[track_caller]
    fn shown(&self, unit: &str, property: &str) -> String {
        self.told(
            "systemctl",
            &["--user", "show", "--property", property, "--value", unit],
        )
    }

    /// Runs a script of `packaging` as the user.
    #[track_caller]
    fn script(&self, name: &str, arguments: &[&str]) -> String {
        self.told(Path::new(SOURCE).join("packaging").join(name), arguments)
    }

    /// Runs install.sh, which must fail with the text in the snapshot for this case. Returns its stderr.
    #[track_caller]
    fn refused(&self, case: &str, arguments: &[&str]) -> Vec<u8> {
        let script = Path::new(SOURCE).join("packaging/install.sh");
        let output = self.command(script).args(arguments).output().unwrap();
        check_words("install.sh", &[case], &output, 1);
        output.stderr
    }

    /// The folder with the links of the user's linked and enabled units.
    fn links(&self) -> PathBuf {
        self.home.join(".config/systemd/user")
    }

    /// Checks that systemd knows neither the service nor its socket.
    #[track_caller]
    fn knows_no_service(&self) {
        for unit in ["sessiond.socket", "sessiond.service"] {
            assert_eq!(self.shown(unit, "LoadState"), "not-found");
            assert_eq!(self.shown(unit, "ActiveState"), "inactive");
        }
    }

    /// Checks that the user's home contains the daemon's data and nothing else.
    #[track_caller]
    fn only_data_are_left(&self) {
        // systemd leaves these folders behind. `remove_dir` fails unless they are empty.
        for folder in [".config/systemd/user", ".config/systemd", ".config"] {
            fs::remove_dir(self.home.join(folder)).unwrap();
        }
        only_data_are_left(&self.home);
    }

    /// Checks that the service runs before the first client, starts with the next client after a stop, is
    /// restarted after a crash, and keeps its data. Returns the id of a conversation.
    fn serves(&self, sessionctl: &Path) -> String {
        let told = |arguments: &[&str]| self.told(sessionctl, &[&["--no-start"], arguments].concat());
        assert_eq!(self.shown("sessiond.socket", "ActiveState"), "active");
        assert_eq!(self.shown("sessiond.socket", "WantedBy"), "sockets.target");
        // The manager of these tests has no session that would start the service.
        let enabled = self.links().join("default.target.wants/sessiond.service");
        assert!(
            enabled.is_symlink(),
            "the service is not enabled to start with the session"
        );
        assert_eq!(self.shown("sessiond.service", "ActiveState"), "active");
        let waiting = self.shown("sessiond.service", "MainPID");
        assert_ne!(
            waiting, "0",
            "the service is not running, so a due continuation would wait for a client"
        );
        let id = told(&["new", "--agent", "loopback", "--title", "served"]);
        assert_eq!(told(&["send", &id, "hello"]), "echo: hello");
        let serving = || {
            let status: serde_json::Value = serde_json::from_str(&told(&["--json", "status"])).unwrap();
            let pid = status["pid"].to_string();
            assert_eq!(self.shown("sessiond.service", "MainPID"), pid);
            pid
        };
        let first = serving();
        assert_eq!(first, waiting);
        assert!(!self.told(sessionctl, &["demo"]).is_empty());

        self.told("systemctl", &["--user", "stop", "sessiond.service"]);
        assert_eq!(self.shown("sessiond.service", "Result"), "success");
        assert!(told(&["ls"]).contains(&id[..8]));
        let second = serving();
        assert_ne!(second, first);
        self.told("kill", &["-KILL", &second]);
        assert!(told(&["ls"]).contains(&id[..8]));
        assert_ne!(serving(), second);
        assert_eq!(self.shown("sessiond.service", "NRestarts"), "1");
        id
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ended = self.keeper.wait();
    }
}

/// Runs a command as a user who has only a home.
fn user(mut command: Command, folder: &Path, home: &Path) -> Command {
    command
        .env_clear()
        .env("PATH", service::BARE_PATH)
        .env("HOME", home)
        .env("XDG_RUNTIME_DIR", folder.join("run"))
        .current_dir("/");
    command
}

#[test]
fn systemd_runs_the_service_of_the_script_until_that_is_taken_away() {
    let Some(manager) = Manager::start("") else {
        return;
    };
    let install = ["--from", super::built().to_str().unwrap(), "--service"];
    // If the service cannot start, the script reports that; the service starts after the configuration is
    // fixed.
    let config = manager.home.join(".config/sessiond");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("config.toml"), "colour = \"red\"\n").unwrap();
    manager.refused("with a wrong configuration", &install);
    fs::remove_dir_all(config).unwrap();
    manager.told("systemctl", &["--user", "reset-failed"]);
    for _twice in 1..=2 {
        manager.script("install.sh", &install);
    }
    manager.serves(&manager.home.join(".local/bin/sessionctl"));
    // The script stops the running service and starts the new one.
    let served = manager.shown("sessiond.service", "MainPID");
    manager.script("install.sh", &install);
    assert_eq!(manager.shown("sessiond.socket", "ActiveState"), "active");
    let serving = manager.shown("sessiond.service", "MainPID");
    assert!(serving != served && serving != "0");
    manager.told(manager.home.join(".local/bin/sessionctl"), &["--no-start", "ls"]);

    manager.script("uninstall.sh", &[]);
    manager.knows_no_service();
    manager.only_data_are_left();
}

#[test]
fn systemd_runs_the_service_of_another_prefix_until_that_very_one_is_taken_away() {
    let Some(manager) = Manager::start("") else {
        return;
    };
    let [prefix, other, none] =
        ["5 % & more of it", "other", "none"].map(|name| manager.folder.path().join(name));
    let from = ["--from", super::built().to_str().unwrap()];
    let to = |prefix| ["--prefix", Path::to_str(prefix).unwrap()];
    for _twice in 1..=2 {
        manager.script("install.sh", &[&to(&prefix)[..], &from, &["--service"]].concat());
    }
    manager.serves(&prefix.join("bin/sessionctl"));
    let serving = || {
        let pid = manager.shown("sessiond.service", "MainPID");
        (manager.told("readlink", &[&format!("/proc/{pid}/exe")]), pid)
    };
    let served = serving();
    assert_eq!(Path::new(&served.0), prefix.join("bin/sessiond"));
    let links = files(&manager.links());
    assert_eq!(links.len(), 4, "{links:?}");

    // Only one installation can be the service, and install.sh reports that itself, not systemd.
    let message = manager.refused(
        "beside the service",
        &[&to(&other)[..], &from, &["--service"]].concat(),
    );
    assert!(names(&message, &prefix));

    // Other installations, including one with the default prefix, are installed and removed. The third prefix
    // has nothing installed.
    manager.script("install.sh", &[&to(&other)[..], &from].concat());
    manager.script("install.sh", &from);
    for others in [&to(&other)[..], &[], &to(&none)] {
        manager.script("uninstall.sh", others);
        assert_eq!(manager.shown("sessiond.socket", "ActiveState"), "active");
        assert_eq!(serving(), served);
        assert_eq!(files(&manager.links()), links);
    }
    assert_eq!(entries(&other), [].into());

    manager.script("uninstall.sh", &to(&prefix));
    manager.knows_no_service();
    assert_eq!(entries(&prefix), [].into());
    manager.only_data_are_left();
}

/// The user deletes the units or the whole prefix and runs uninstall.sh afterwards.
#[test]
fn a_service_whose_files_are_gone_is_stopped_and_its_links_are_taken_away() {
    let Some(manager) = Manager::start("") else {
        return;
    };
    let own = manager.home.join(".local");
    let [other, third] = ["other", "third"].map(|name| manager.folder.path().join(name));
    let from = ["--from", super::built().to_str().unwrap(), "--service"];
    let cases = [(&own, "share/systemd"), (&other, "share/systemd"), (&other, ".")];
    for ((prefix, gone), is_forgotten) in cases.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let to = ["--prefix", prefix.to_str().unwrap()];
        manager.script("install.sh", &[&to[..], &from].concat());
        manager.told(
            prefix.join("bin/sessionctl"),
            &["--no-start", "new", "--agent", "loopback"],
        );
        assert_ne!(manager.shown("sessiond.service", "MainPID"), "0");
        for link in [
            "default.target.wants/sessiond.service",
            "sockets.target.wants/sessiond.socket",
        ] {
            assert!(manager.links().join(link).is_symlink(), "{link}");
        }
        fs::remove_dir_all(prefix.join(gone).components().collect::<PathBuf>()).unwrap();
        if is_forgotten {
            // systemd then no longer has a file for the units, but the socket still listens.
            manager.told("systemctl", &["--user", "daemon-reload"]);
            assert_eq!(manager.shown("sessiond.socket", "FragmentPath"), "");
            assert_eq!(manager.shown("sessiond.socket", "ActiveState"), "active");
        }
        if prefix == &other {
            // install.sh prints how the other installation can become the service. It does so before it
            // installs anything and ends any turn.
            let pid = manager.shown("sessiond.service", "MainPID");
            let message = manager.refused(
                "beside the service",
                &[&["--prefix", third.to_str().unwrap()][..], &from].concat(),
            );
            assert!(names(&message, prefix));
            assert_eq!(manager.shown("sessiond.service", "MainPID"), pid);
            assert!(!third.exists(), "a refused installation left files");
        }

        let case = if gone == "." { "again" } else { "without units" };
        check_last(
            &format!("uninstall.sh {case} shows 0: "),
            &manager.script("uninstall.sh", &to),
        );
        manager.knows_no_service();
        assert_eq!(entries(&manager.links()), [].into());
    }
    manager.only_data_are_left();
}

/// systemd finds the units in the default prefix automatically, even if no service was requested.
#[test]
fn a_copy_that_is_no_service_keeps_none_from_being_it_and_units_of_ones_own_do() {
    let Some(manager) = Manager::start("") else {
        return;
    };
    let other = manager.folder.path().join("other");
    let from = ["--from", super::built().to_str().unwrap()];
    let to = ["--prefix", other.to_str().unwrap()];
    let service = [&to[..], &from, &["--service"]].concat();
    manager.script("install.sh", &from);
    manager.told("systemctl", &["--user", "daemon-reload"]);
    assert_eq!(manager.shown("sessiond.socket", "LoadState"), "loaded");
    manager.script("install.sh", &service);
    let pid = manager.shown("sessiond.service", "MainPID");
    let program = manager.told("readlink", &[&format!("/proc/{pid}/exe")]);
    assert_eq!(Path::new(&program), other.join("bin/sessiond"));
    manager.script("uninstall.sh", &to);
    assert_eq!(manager.shown("sessiond.service", "ActiveState"), "inactive");
    assert_eq!(manager.shown("sessiond.socket", "ActiveState"), "inactive");
    manager.script("uninstall.sh", &[]);

    fs::create_dir_all(manager.links()).unwrap();
    let own = manager.links().join("sessiond.socket");
    fs::write(&own, "[Socket]\nListenStream=%t/own.sock\n").unwrap();
    manager.told("systemctl", &["--user", "daemon-reload"]);
    manager.refused("beside a unit of another program", &service);
    assert_eq!(entries(&other), [].into(), "a refused installation left files");
    fs::remove_file(own).unwrap();
    manager.told("systemctl", &["--user", "daemon-reload"]);
    manager.knows_no_service();
    manager.only_data_are_left();
}

/// Replaces `systemctl` for the package's scripts, because the system's does not list the manager of this
/// test: lists only this manager.
const SYSTEMCTL: &str = r#"#!/bin/sh
case "$*" in
    *list-units*) echo "user@0.service loaded active running"; exit ;;
esac
for word; do
    shift
    case "$word" in
        --machine | 0@) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec /usr/bin/systemctl "$@"
"#;

/// The manager and the package see this system's own folders, but their changes go to an overlay that ends
/// with the test.
#[test]
fn systemd_runs_the_service_of_the_package_until_that_is_removed() {
    if !has("dpkg-deb") || !has("dpkg") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can install a package, be it in a namespace");
        return;
    }
    let Some(manager) = Manager::start("usr etc var") else {
        return;
    };
    for folder in ["/usr", "/etc", "/var"] {
        let kind = manager.told("stat", &["-f", "-c", "%T", folder]);
        assert_eq!(
            kind, "overlayfs",
            "changes in {folder} would reach the system itself"
        );
    }
    let package = debian::build(Programs::Built, manager.folder.path(), &manager.home);
    let programs = manager.folder.path().join("programs");
    fs::create_dir(&programs).unwrap();
    fs::write(programs.join("systemctl"), SYSTEMCTL).unwrap();
    fs::set_permissions(programs.join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}:{}", programs.display(), service::BARE_PATH);
    let dpkg =
        |arguments: &[&str]| manager.told("env", &[&[&path, "dpkg", "--force-depends"], arguments].concat());
    // In an image for containers, this file forbids packages to start and stop services.
    manager.told("rm", &["-f", "/usr/sbin/policy-rc.d"]);
    dpkg(&["--install", package.to_str().unwrap()]);
    manager.told("systemctl", &["--user", "enable", "--now", "sessiond.service"]);
    let sessionctl = Path::new("/usr/bin/sessionctl");
    manager.serves(sessionctl);
    // A daemon that no unit has started.
    let other = manager.folder.path().join("other");
    let folder = format!("SESSIOND_HOME={}", other.display());
    manager.told(
        "env",
        &[&folder, "/usr/bin/sessionctl", "new", "--agent", "loopback"],
    );
    assert!(other.join("run/sessiond.sock").exists());

    dpkg(&["--purge", "session-bridge"]);
    assert_eq!(manager.shown("sessiond.service", "ActiveState"), "inactive");
    assert_eq!(manager.shown("sessiond.service", "Result"), "success");
    if has("deb-systemd-invoke") {
        assert_eq!(manager.shown("sessiond.socket", "ActiveState"), "inactive");
    }
    assert!(!other.join("run/sessiond.sock").exists());

    let root = format!("/proc/{}/root", manager.within);
    let changed = |folder: &str| {
        let changed = Path::new(&root).join(manager.folder.path().strip_prefix("/").unwrap());
        entries(&changed.join("changed").join(folder).join("upper"))
    };
    for folder in ["usr", "etc", "var"] {
        let left: Vec<_> = changed(folder)
            .into_iter()
            .filter(|path| path.to_string_lossy().contains("session"))
            .collect();
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}

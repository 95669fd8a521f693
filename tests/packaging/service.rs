//! Runs the installed service as a user's service manager would. The test listens where the installed units
//! say, starts the service when the first client connects, and stops it with a signal. No real manager is
//! needed, so this runs on every machine.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::said;
use crate::signs;

/// The manager's `PATH`, which contains no folder with programs that a user has installed.
pub(crate) const BARE_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Starts a program with a socket the way systemd passes it: as descriptor 3, for this process only.
const PASS: &str = r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&0 0</dev/null"#;

/// An installation and its user.
pub(crate) struct Installed<'a> {
    /// The folder with the units.
    pub(crate) units: PathBuf,
    /// The folder that the absolute paths in the units are relative to: `/`, or the folder in which a package
    /// was unpacked.
    pub(crate) root: &'a Path,
    /// The path of `sessionctl`.
    pub(crate) sessionctl: PathBuf,
    /// The home of the user.
    pub(crate) home: &'a Path,
}

/// The members of one section of a unit. A duplicate member fails the test.
fn section(unit: &Path, name: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(unit).unwrap_or_else(|error| panic!("{}: {error}", unit.display()));
    let lines = text.lines().skip_while(|line| *line != format!("[{name}]"));
    let mut members = BTreeMap::new();
    for line in lines.skip(1).take_while(|line| !line.starts_with('[')) {
        if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            let before = members.insert(key.to_owned(), value.to_owned());
            assert_eq!(before, None, "{key} in {}", unit.display());
        }
    }
    members
}

/// Replaces the specifiers in a value: `%t` is the runtime folder, `%%` a percent sign.
fn specified(value: &str, runtime: &Path) -> String {
    let mut parts = value.split('%');
    let mut text = parts.next().unwrap().to_owned();
    while let Some(part) = parts.next() {
        match part.strip_prefix('t') {
            Some(rest) => text.extend([runtime.to_str().unwrap(), rest]),
            None if part.is_empty() => text.extend(["%", parts.next().unwrap_or_default()]),
            None => panic!("this test does not know the specifier %{part}"),
        }
    }
    text
}

/// Splits a command line as systemd does: at spaces outside double quotes; `\` keeps the next character
/// unchanged.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' if !is_quoted => words.extend(word.take()),
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// A simulated user's manager.
struct Manager<'a> {
    installed: &'a Installed<'a>,
    /// `$XDG_RUNTIME_DIR`. Its path is short because the path of a socket is limited in length.
    runtime: TempDir,
    listener: UnixListener,
    socket: PathBuf,
    notify: UnixDatagram,
}

/// The running service.
struct Service {
    child: Child,
    errors: PathBuf,
}

impl<'a> Manager<'a> {
    /// Does what `systemctl --user start sessiond.socket` does.
    fn listen(installed: &'a Installed<'a>) -> Self {
        let runtime = tempfile::tempdir_in("/tmp").unwrap();
        let unit = section(&installed.units.join("sessiond.socket"), "Socket");
        let socket = PathBuf::from(specified(&unit["ListenStream"], runtime.path()));
        let mode = |key: &str| u32::from_str_radix(&unit[key], 8).unwrap();
        let mut folder = DirBuilder::new();
        folder.recursive(true).mode(mode("DirectoryMode"));
        folder.create(socket.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(mode("SocketMode"))).unwrap();
        let notify = UnixDatagram::bind(runtime.path().join("notify")).unwrap();
        Self {
            installed,
            runtime,
            listener,
            socket,
            notify,
        }
    }

    /// A command of this user, who has only a home.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", BARE_PATH)
            .env("HOME", self.installed.home)
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .current_dir(self.installed.home)
            .stdin(Stdio::null());
        command
    }

    /// The installed `sessionctl`, which must not start a daemon itself.
    fn sessionctl(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.installed.sessionctl);
        command.arg("--no-start").args(arguments);
        command
    }

    #[track_caller]
    fn told(&self, arguments: &[&str]) -> String {
        let told = said("sessionctl", &self.sessionctl(arguments).output().unwrap());
        told.trim_end().to_owned()
    }

    /// Runs the first client and starts the service for it. Returns the service and the client's output.
    fn started_by(&self, arguments: &[&str]) -> (Service, String) {
        let mut client = self.sessionctl(arguments);
        let client = client.stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = client.spawn().unwrap();
        assert!(
            signs::is_readable_within(&self.listener, signs::PATIENCE),
            "no client came to {}",
            self.socket.display()
        );
        let service = self.start();
        let told = said("sessionctl", &client.wait_with_output().unwrap());
        (service, told.trim_end().to_owned())
    }

    /// Starts the command of the service's unit and waits until the service is ready.
    fn start(&self) -> Service {
        let unit = self.installed.units.join("sessiond.service");
        assert_eq!(section(&unit, "Unit")["Requires"], "sessiond.socket");
        let unit = section(&unit, "Service");
        assert_eq!(unit["Type"], "notify");
        // By default the signal is SIGTERM; with `mixed` it is sent only to the main process.
        assert_eq!(unit.get("KillSignal"), None);
        assert_eq!(unit["KillMode"], "mixed");
        let line = words(&specified(&unit["ExecStart"], self.runtime.path()));
        let program = line[0].strip_prefix('/').expect("an absolute path");
        let errors = self.runtime.path().join("errors");
        let child = self
            .command("/bin/sh")
            .args(["-c", PASS, "sh"])
            .arg(self.installed.root.join(program))
            .args(&line[1..])
            .env("NOTIFY_SOCKET", self.runtime.path().join("notify"))
            .stdin(Stdio::from(OwnedFd::from(self.listener.try_clone().unwrap())))
            .stdout(Stdio::null())
            .stderr(fs::File::create(&errors).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{line:?}: {error}"));
        let service = Service { child, errors };
        let mut message = [0; 64];
        assert!(
            signs::is_readable_within(&self.notify, signs::PATIENCE),
            "{line:?} is not ready: {}",
            service.log()
        );
        let length = self.notify.recv(&mut message).unwrap();
        assert_eq!(message[..length], *b"READY=1");
        service
    }

    /// The command lines of the processes that belong to this user.
    fn processes(&self) -> Vec<String> {
        let folders = [self.installed.home, self.runtime.path()].map(|folder| folder.to_str().unwrap());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let shown = |file: &str| {
                let mut bytes = Vec::new();
                // A process that ends meanwhile can no longer be read.
                let read =
                    fs::File::open(entry.path().join(file)).and_then(|mut file| file.read_to_end(&mut bytes));
                read.map_or_else(
                    |_| String::new(),
                    |_| String::from_utf8_lossy(&bytes).replace('\0', " "),
                )
            };
            let told = ["cmdline", "environ"].map(shown);
            if folders
                .iter()
                .any(|folder| told.iter().any(|text| text.contains(folder)))
            {
                found.push(told[0].clone());
            }
        }
        found
    }
}

impl Service {
    fn log(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// Does what `systemctl --user stop sessiond.service` does.
    fn stop(self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        self.ended();
    }

    /// Checks that the service ends with an exit code after which `Restart=on-failure` does not restart it.
    fn ended(mut self) {
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }
}

impl Drop for Service {
    /// Kills the service, so that a failed test leaves none running.
    fn drop(&mut self) {
        let _has_ended = (self.child.kill(), self.child.wait());
    }
}

/// Checks that the service starts with its first client, listens at the default socket, stops cleanly, and
/// keeps its data for the next start. The demo must work at the same time.
pub(crate) fn serves(installed: &Installed<'_>) {
    let manager = Manager::listen(installed);
    let (service, id) = manager.started_by(&["new", "--agent", "loopback", "--title", "served"]);
    assert_eq!(manager.told(&["send", &id, "hello"]), "echo: hello");
    let socket = manager.socket.to_str().unwrap();
    let status = manager.told(&["--socket", socket, "--json", "status"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["pid"], service.child.id(), "{status}");

    let demo = manager.command(&installed.sessionctl).arg("demo").output();
    assert!(!said("demo", &demo.unwrap()).is_empty());

    // An agent of the daemon is running; the daemon must end it too.
    service.stop();
    assert_eq!(manager.processes(), Vec::<String>::new());
    assert!(manager.socket.exists(), "the socket of the manager was deleted");

    let (service, list) = manager.started_by(&["ls"]);
    assert!(list.contains(&id[..8]) && list.contains("served"), "{list}");
    manager.told(&["stop"]);
    service.ended();
    assert_eq!(manager.processes(), Vec::<String>::new());

    let (socket, runtime) = (manager.socket.clone(), manager.runtime.path().to_owned());
    drop(manager.listener);
    fs::remove_file(&socket).unwrap();
    for ours in ["notify", "errors"] {
        fs::remove_file(runtime.join(ours)).unwrap();
    }
    assert_eq!(super::files(&runtime), [].into(), "left in the runtime folder");
}

#[test]
fn units_are_read_as_the_manager_reads_them() {
    let line = words(&specified(r#""/a b/50%%/\"c\"" --to  %t/x ""#, Path::new("/run")));
    assert_eq!(line, [r#"/a b/50%/"c""#, "--to", "/run/x", ""]);
    assert_eq!(words("/a b/c"), ["/a", "b/c"]);
}

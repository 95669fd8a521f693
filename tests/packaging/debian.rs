//! Installs the Debian package in a root folder of its own: checks its contents, what happens to daemons that
//! run from it, and what a removal leaves.
//!
//! Nothing else is installed in that root, so dpkg is told to ignore dependencies. The root is not entered
//! with chroot: the programs and the package's scripts use the libraries and tools of this system. The
//! dependencies are checked against what the programs link to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{
    Programs, check_installed, check_last, command, entries, has, only_data_are_left, said, service,
};
use crate::signs;

/// An empty root folder, and a user with an empty home.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(machine.home()).unwrap();
        fs::create_dir_all(machine.root().join("var/lib/dpkg")).unwrap();
        fs::write(machine.root().join("var/lib/dpkg/status"), "").unwrap();
        machine
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn package(&self, programs: Programs) -> PathBuf {
        build(programs, self.folder.path(), &self.home())
    }

    /// The root contains no shell, so the package's scripts run outside of it and are given its path.
    fn dpkg(&self, arguments: &[&str]) -> String {
        let mut dpkg = command("dpkg", &self.home());
        dpkg.args(["--force-not-root", "--force-depends", "--force-script-chrootless"]);
        dpkg.args(["--log=/dev/null", "--root"]).arg(self.root());
        said("dpkg", &dpkg.args(arguments).output().unwrap())
    }

    fn install(&self, package: &Path) -> String {
        self.dpkg(&["--install", package.to_str().unwrap()])
    }

    /// Checks that nothing is left in the root, except for those files of dpkg itself that do not name the
    /// package.
    #[track_caller]
    fn nothing_is_left(&self) {
        let own = self.root().join("var/lib/dpkg");
        let left: Vec<_> = entries(&self.root())
            .into_iter()
            .filter(|path| !path.starts_with(&own) || path.to_string_lossy().contains("session-bridge"))
            .collect();
        assert_eq!(left, Vec::<PathBuf>::new());
    }

    /// The installed `sessionctl`, with its data in this folder.
    fn sessionctl(&self, data: &str) -> Command {
        self.with(self.root().join("usr/bin/sessionctl"), data)
    }

    /// Starts the installed daemon as a user would, and waits until it is ready.
    fn start(&self, data: &str) -> Child {
        let address = self.folder.path().join("ready");
        let ready = UnixDatagram::bind(&address).unwrap();
        let mut sessiond = self.with(self.root().join("usr/bin/sessiond"), data);
        sessiond.env("NOTIFY_SOCKET", address).stderr(Stdio::null());
        let sessiond = sessiond.spawn().unwrap();
        assert!(
            signs::is_readable_within(&ready, signs::PATIENCE),
            "the daemon does not become ready"
        );
        sessiond
    }

    fn with(&self, program: impl AsRef<std::ffi::OsStr>, data: &str) -> Command {
        let mut command = command(program, &self.home());
        command.env("SESSIOND_HOME", self.folder.path().join(data));
        command
    }
}

impl Drop for Machine {
    /// Stops the daemons, so that a failed test leaves none running.
    fn drop(&mut self) {
        for data in ["first", "second", "others"] {
            let mut stop = self.with(env!("CARGO_BIN_EXE_sessionctl"), data);
            let _stopped = stop.args(["--no-start", "stop"]).output();
        }
    }
}

/// Builds the package and returns its path.
pub(crate) fn build(programs: Programs, folder: &Path, home: &Path) -> PathBuf {
    let said = programs.script("deb.sh", home, &[folder.join("out").to_str().unwrap()]);
    let package = PathBuf::from(said.trim());
    assert!(package.is_file(), "{said}");
    package
}

#[test]
fn the_package_is_installed_works_and_is_removed() {
    is_installed_works_and_is_removed(Programs::Built);
}

#[test]
fn from_source_the_package_is_installed_works_and_is_removed() {
    is_installed_works_and_is_removed(Programs::Source);
}

fn is_installed_works_and_is_removed(programs: Programs) {
    if !has("dpkg-deb") || !has("dpkg") {
        return;
    }
    let machine = Machine::new();
    let (home, root) = (machine.home(), machine.root());
    machine.install(&machine.package(programs));
    check_installed(&root.join("usr"), true);
    for program in ["sessionctl", "sessiond"] {
        let completions = root
            .join("usr/share/zsh/vendor-completions")
            .join(format!("_{program}"));
        assert!(completions.is_file(), "there is no {}", completions.display());
    }
    let unit = fs::read_to_string(root.join("usr/lib/systemd/user/sessiond.service")).unwrap();
    assert!(unit.contains("ExecStart=\"/usr/bin/sessiond\"\n"), "{unit}");
    // This also runs the demo.
    service::serves(&service::Installed {
        units: root.join("usr/lib/systemd/user"),
        root: &root,
        sessionctl: root.join("usr/bin/sessionctl"),
        home: &home,
    });
    assert_eq!(machine.dpkg(&["--verify", "session-bridge"]), "");
    machine.dpkg(&["--purge", "session-bridge"]);
    machine.nothing_is_left();
    only_data_are_left(&home);
}

/// The process id of a daemon, as `status` reports it.
fn daemon_of(sessionctl: &mut Command) -> u32 {
    let told = said("status", &sessionctl.args(["--json", "status"]).output().unwrap());
    let status: serde_json::Value = serde_json::from_str(&told).unwrap();
    status["pid"].as_u64().unwrap().try_into().unwrap()
}

/// The lines that the package's scripts printed.
fn reported(printed: &str) -> Vec<&str> {
    let own = |line: &&str| line.starts_with("session-bridge: ");
    printed.lines().filter(own).collect()
}

#[test]
fn an_upgrade_leaves_daemons_alone_and_a_removal_stops_those_of_the_package() {
    if !has("dpkg-deb") || !has("dpkg") {
        return;
    }
    let machine = Machine::new();
    let package = machine.package(Programs::Built);
    assert_eq!(reported(&machine.install(&package)), [""; 0]);
    let new = |mut sessionctl: Command| {
        let new = ["new", "--agent", "loopback", "--title", "kept"];
        let id = said("new", &sessionctl.args(new).output().unwrap());
        id.trim().to_owned()
    };
    // Three daemons: one started by `sessionctl`, with a running agent; one started directly; and one of
    // another installation.
    let id = new(machine.sessionctl("first"));
    said(
        "send",
        &machine
            .sessionctl("first")
            .args(["send", &id, "hello"])
            .output()
            .unwrap(),
    );
    let mut sessiond = machine.start("second");
    let socket = |data: &str| machine.folder.path().join(data).join("run/sessiond.sock");
    let second = new(machine.sessionctl("second"));
    assert_eq!(
        daemon_of(&mut machine.sessionctl("second")),
        sessiond.id(),
        "{second}"
    );
    let others = || machine.with(env!("CARGO_BIN_EXE_sessionctl"), "others");
    new(others());
    let pids = [daemon_of(&mut machine.sessionctl("first")), sessiond.id()];
    let other = daemon_of(&mut others());
    let [first, _] = pids.map(|pid| signs::descriptor_of(pid).unwrap());

    let told = machine.install(&package);
    let lines = reported(&told);
    assert_eq!(lines.len(), 2, "{told}");
    for (pid, line) in pids.map(|pid| pid.to_string()).into_iter().zip(&lines) {
        check_last("an upgrade shows 0: ", line);
        let has_it = |line: &&str| line.split(' ').any(|word| word == pid);
        assert!(lines.iter().any(has_it), "{told}");
    }
    assert_eq!(daemon_of(&mut machine.sessionctl("first")), pids[0]);
    // The old daemon can still start the built-in agent, although that is its own program file, which was
    // replaced.
    let later = new(machine.sessionctl("first"));
    said(
        "send",
        &machine
            .sessionctl("first")
            .args(["send", &later, "hello"])
            .output()
            .unwrap(),
    );
    let doctor = machine
        .sessionctl("first")
        .args(["--json", "doctor", "--no-agents"])
        .output()
        .unwrap();
    let found: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let is_replaced = |one: &serde_json::Value| {
        one["kind"] == "daemon" && one["severity"] == "warning" && one["data"]["pid"] == pids[0]
    };
    let found = found["diagnostics"].as_array().unwrap();
    assert!(found.iter().any(is_replaced), "{found:?}");

    machine.dpkg(&["--remove", "session-bridge"]);
    assert!(signs::ends_within(&first, signs::PATIENCE));
    assert_eq!(sessiond.wait().unwrap().code(), Some(0));
    for data in ["first", "second"] {
        assert!(
            !socket(data).exists(),
            "the daemon of {data} was killed instead of stopped"
        );
    }
    assert_eq!(daemon_of(&mut others()), other);
    machine.dpkg(&["--purge", "session-bridge"]);
    machine.nothing_is_left();

    // The data is kept for the next installation.
    for (data, id) in [("first", &id), ("second", &second)] {
        let mut list = machine.with(env!("CARGO_BIN_EXE_sessionctl"), data);
        let list = said("ls", &list.arg("ls").output().unwrap());
        assert!(list.contains(&id[..8]), "{list}");
    }
}

/// Reads the output of `objdump -p`: the shared libraries that a program needs, and the newest version of
/// glibc whose symbols it uses.
fn needs(told: &str) -> (BTreeSet<&str>, Vec<u32>) {
    let libraries = told
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED "))
        .map(str::trim);
    let versions = told
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("GLIBC_"))
        .filter_map(version);
    (libraries.collect(), versions.max().unwrap_or_default())
}

/// Parses a version such as `2.34` into numbers.
fn version(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}

/// Returns what is wrong with the declared dependencies of a package. `bringing` lists for each needed
/// library the packages that contain it; one of them is enough.
fn wrong_dependencies(
    depends: &str,
    bringing: &BTreeMap<&str, BTreeSet<String>>,
    glibc: &[u32],
) -> Vec<String> {
    let told: BTreeMap<&str, Option<&str>> = depends
        .split(',')
        .map(str::trim)
        .map(|one| {
            one.split_once(" (>= ")
                .map_or((one, None), |(name, least)| (name, least.strip_suffix(')')))
        })
        .collect();
    let mut wrong = Vec::new();
    for (library, packages) in bringing {
        if !packages.iter().any(|package| told.contains_key(package.as_str())) {
            wrong.push(format!("{library} of {packages:?} is not among {depends:?}"));
        }
    }
    for name in told.keys() {
        if !bringing.values().any(|packages| packages.contains(*name)) {
            wrong.push(format!("nothing needs {name:?}"));
        }
    }
    let least = told.get("libc6").copied().flatten().and_then(version);
    if least.is_none_or(|least| least.as_slice() < glibc) {
        wrong.push(format!("libc6 has to be {glibc:?} or newer, not {depends:?}"));
    }
    wrong
}

#[test]
fn the_package_depends_on_what_brings_the_libraries_of_its_programs() {
    if !has("dpkg-deb") || !has("dpkg") || !has("objdump") {
        return;
    }
    let machine = Machine::new();
    let bringing = |library: &str| {
        let found = command("dpkg", &machine.home())
            .args(["--search", &format!("*/{library}")])
            .output()
            .unwrap();
        let lines = String::from_utf8(found.stdout).unwrap();
        let end = format!("/{library}");
        let names = lines
            .lines()
            .filter(|line| line.ends_with(&end) && !line.starts_with("diversion "))
            .filter_map(|line| line.split_once(": "))
            .flat_map(|(packages, _)| packages.split(", "))
            .map(|package| package.split(':').next().unwrap().to_owned());
        names.collect::<BTreeSet<_>>()
    };
    if !bringing("libc.so.6").contains("libc6") {
        eprintln!("skipped: the libraries of this system are not of Debian's packages");
        return;
    }
    let (package, unpacked) = (
        machine.package(Programs::Built),
        machine.folder.path().join("unpacked"),
    );
    let packed = |arguments: &[&std::ffi::OsStr]| {
        let output = command("dpkg-deb", &machine.home()).args(arguments).output();
        said("dpkg-deb", &output.unwrap())
    };
    packed(&["--extract".as_ref(), package.as_ref(), unpacked.as_ref()]);
    let depends = packed(&["--field".as_ref(), package.as_ref(), "Depends".as_ref()]);
    let programs = entries(&unpacked.join("usr/bin"));
    assert_eq!(programs.len(), 2, "{programs:?}");
    let told = command("objdump", &machine.home())
        .arg("-p")
        .args(&programs)
        .output()
        .unwrap();
    let told = said("objdump", &told);
    let (libraries, glibc) = needs(&told);
    assert!(libraries.contains("libc.so.6") && glibc > vec![2, 2], "{told}");
    let bringing = libraries.into_iter().map(|library| (library, bringing(library)));
    let wrong = wrong_dependencies(depends.trim(), &bringing.collect(), &glibc);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_rules_of_dependencies_can_fail() {
    let told = "  NEEDED               libc.so.6\n  NEEDED   libz.so.1\n 0x0 0x00 03 GLIBC_2.9\n 0x0 0x00 04 GLIBC_2.34\n";
    let (libraries, glibc) = needs(told);
    assert_eq!(libraries, ["libc.so.6", "libz.so.1"].into());
    assert_eq!(glibc, [2, 34]);

    let packages = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let bringing = [
        ("libc.so.6", packages(&["libc6"])),
        ("libz.so.1", packages(&["zlib1g", "lib32z1"])),
    ]
    .into();
    for (depends, count) in [
        ("libc6 (>= 2.34), zlib1g", 0),
        ("lib32z1, libc6 (>= 2.36)", 0),
        ("libc6 (>= 2.9), zlib1g", 1),
        ("libc6, zlib1g", 1),
        ("libc6 (>= 2.34)", 1),
        ("libc6 (>= 2.34), zlib1g, libssl3", 1),
        // Two errors: libc6 is missing, and with it the version.
        ("zlib1g", 2),
    ] {
        let wrong = wrong_dependencies(depends, &bringing, &glibc);
        assert_eq!(wrong.len(), count, "{depends}: {wrong:?}");
    }
}

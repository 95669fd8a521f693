//! The launchd agent: what the script creates on macOS, whose programs are simulated here, and what that
//! agent starts.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{SOURCE, built, files, has, said};

/// Simulated programs of macOS: the shell commands that each runs.
const PLAYED: [(&str, &str); 3] = [
    ("uname", "echo Darwin"),
    (
        "dscl",
        r#"[ -z "$LOGIN_SHELL" ] || echo "UserShell: $LOGIN_SHELL""#,
    ),
    ("launchctl", r#"echo "$*" >>"$HOME/launchctl.calls""#),
];

/// Replaces the daemon: prints how it was started.
const DAEMON: &str = "#!/bin/sh\necho \"$# $0\"\necho \"$PATH\"\n";

fn put(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// A user of macOS. The path of the home contains every character that is special in a shell or in XML.
struct User {
    folder: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        let user = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(user.home()).unwrap();
        fs::create_dir(user.programs()).unwrap();
        for (name, script) in PLAYED {
            put(&user.programs().join(name), &format!("#!/bin/sh\n{script}\n"));
        }
        user
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join(r#"A & B's "<home>" | 5% $HOME"#)
    }

    fn programs(&self) -> PathBuf {
        self.folder.path().join("programs")
    }

    fn agent(&self) -> PathBuf {
        self.home()
            .join("Library/LaunchAgents/io.session-bridge.sessiond.plist")
    }

    /// Runs a script of `packaging`. `shells` are the user's login shell, first in the directory of users and
    /// then in the environment.
    fn script(&self, name: &str, arguments: &[&str], shells: [&str; 2]) -> Output {
        let mut command = Command::new(Path::new(SOURCE).join("packaging").join(name));
        command.args(arguments).env_clear().current_dir(self.home());
        command
            .env("HOME", self.home())
            .env("PATH", format!("{}:/usr/bin:/bin", self.programs().display()));
        command.env("LOGIN_SHELL", shells[0]).env("SHELL", shells[1]);
        command.output().unwrap()
    }

    /// Installs the service and returns the strings of the agent's property list.
    #[track_caller]
    fn installed(&self, shells: [&str; 2]) -> Vec<String> {
        let install = ["--from", built().to_str().unwrap(), "--service"];
        said("install.sh", &self.script("install.sh", &install, shells));
        strings(&fs::read_to_string(self.agent()).unwrap())
    }
}

/// The strings of a property list that has one per line.
fn strings(list: &str) -> Vec<String> {
    let lines = list
        .lines()
        .filter_map(|line| line.trim().strip_prefix("<string>")?.strip_suffix("</string>"));
    lines
        .map(|text| {
            assert!(!text.contains(['<', '>', '@']), "{text}");
            let text = text.replace("&lt;", "<").replace("&gt;", ">");
            assert_eq!(text.matches('&').count(), text.matches("&amp;").count(), "{text}");
            text.replace("&amp;", "&")
        })
        .collect()
}

/// Reads the property list with Python, if it is installed; on macOS also checks it with `plutil`.
#[track_caller]
fn read_by_others(list: &Path) -> Option<serde_json::Value> {
    if cfg!(target_vendor = "apple") {
        let checked = Command::new("plutil").arg("-lint").arg(list).output().unwrap();
        said("plutil", &checked);
    }
    if !has("python3") {
        return None;
    }
    let read = "import json, plistlib, sys; print(json.dumps(plistlib.load(open(sys.argv[1], 'rb'))))";
    let read = Command::new("python3")
        .args(["-c", read])
        .arg(list)
        .output()
        .unwrap();
    Some(serde_json::from_str(&said("plistlib", &read)).unwrap())
}

#[test]
fn the_agent_of_launchd_starts_the_daemon_by_a_login_shell_and_has_a_log() {
    let user = User::new();
    let home = user.home();
    let strings = user.installed(["/bin/bash", "/bin/sh"]);
    let [label, shell, flags, line, log, session, kind] = &strings[..] else {
        panic!("{strings:?}");
    };
    assert_eq!(
        [label, session, kind],
        ["io.session-bridge.sessiond", "Aqua", "Interactive"]
    );
    assert_eq!([shell, flags], ["/bin/bash", "-lc"]);
    assert_eq!(Path::new(log), home.join("Library/Logs/sessiond.log"));
    assert!(
        Path::new(log).parent().unwrap().is_dir(),
        "the folder of the log is missing, and launchd does not create it"
    );
    if let Some(read) = read_by_others(&user.agent()) {
        assert_eq!(read["ProgramArguments"], serde_json::json!([shell, flags, line]));
        assert_eq!(read["StandardErrorPath"], serde_json::json!(log));
        assert_eq!(read["KeepAlive"]["SuccessfulExit"], false);
    }

    let daemon = home.join(".local/bin/sessiond");
    fs::remove_file(&daemon).unwrap();
    put(&daemon, DAEMON);
    fs::write(home.join(".profile"), "PATH=/of/the/profile:$PATH\n").unwrap();
    let started = Command::new(shell)
        .arg(flags)
        .arg(line)
        .env_clear()
        .env("HOME", &home)
        .output();
    let told = said("the agent", &started.unwrap());
    let (first, path) = told.split_once('\n').unwrap();
    assert_eq!(first, format!("0 {}", daemon.display()));
    assert!(path.contains("/of/the/profile:"), "{path}");
}

#[test]
fn the_agent_is_started_and_ended_by_the_scripts_which_leave_its_log() {
    let user = User::new();
    let home = user.home();
    user.installed(["/bin/sh", ""]);
    let log = home.join("Library/Logs/sessiond.log");
    fs::write(&log, "told\n").unwrap();
    said("uninstall.sh", &user.script("uninstall.sh", &[], ["", ""]));
    let calls = home.join("launchctl.calls");
    let called = fs::read_to_string(&calls).unwrap();
    let lines: Vec<&str> = called.lines().collect();
    let [out, in_place, ended] = lines[..] else {
        panic!("{called}");
    };
    assert!(out.starts_with("bootout gui/") && ended == out, "{called}");
    let service = out.strip_prefix("bootout ").unwrap();
    let (domain, label) = service.rsplit_once('/').unwrap();
    assert_eq!(label, "io.session-bridge.sessiond");
    assert_eq!(in_place, format!("bootstrap {domain} {}", user.agent().display()));
    assert_eq!(files(&home), [calls, log].into());
}

#[test]
fn the_shell_of_the_agent_is_one_that_can_start_it() {
    let user = User::new();
    // This is the default shell of macOS.
    let system = "/bin/zsh";
    for (of_the_directory, of_the_environment, expected) in [
        ("/bin/sh", "/bin/bash", "/bin/sh"),
        ("", "/bin/bash", "/bin/bash"),
        ("", "", system),
        // tcsh accepts "-l" only as its only argument.
        ("/bin/tcsh", "/bin/bash", system),
        ("/nowhere/bash", "", system),
        ("bash", "", system),
    ] {
        let strings = user.installed([of_the_directory, of_the_environment]);
        assert_eq!(
            strings[1], expected,
            "{of_the_directory:?} {of_the_environment:?}"
        );
    }
}

#[test]
fn a_user_of_zsh_sees_once_where_its_completions_are() {
    let user = User::new();
    let folder = user.home().join(".local/share/zsh/site-functions");
    let install = ["--from", built().to_str().unwrap()];
    let prints = |shell: &str| {
        let printed = said("install.sh", &user.script("install.sh", &install, ["", shell]));
        printed.contains(folder.to_str().unwrap())
    };
    assert!(prints("/usr/bin/zsh"));
    assert!(folder.join("_sessionctl").is_file());
    assert!(!prints("/usr/bin/zsh"), "the folder is printed a second time");
    said("uninstall.sh", &user.script("uninstall.sh", &[], ["", ""]));
    assert!(
        !prints("/bin/bash"),
        "the folder is printed to a user of another shell"
    );
}

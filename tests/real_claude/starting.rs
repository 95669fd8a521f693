//! The first use of the real adapter: it is on `PATH`, and nothing is configured.

mod smoke {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use tempfile::TempDir;

    use crate::pty::Terminal;
    use crate::support::claude::{Account, ClaudeLab};
    use crate::support::model_server::{model, user};

    /// The beginning of the chat's input prompt.
    const MARK: &str = "› ";

    /// A user who has installed the adapter and `sessionctl`. Dropping it stops the daemon.
    struct Newcomer {
        lab: ClaudeLab,
        /// Not below the lab's folder, because the path of a socket is limited in length.
        home: TempDir,
    }

    impl Newcomer {
        fn new() -> Option<Self> {
            let lab = ClaudeLab::new(Account::Key)?;
            let home = tempfile::Builder::new().prefix("sb").tempdir().expect("a home");
            let (node, arguments) = lab.command();
            let adapter = home.path().join("claude-agent-acp");
            let script = format!(
                "#!/bin/sh\nexec '{}' '{}' \"$@\"\n",
                node.display(),
                arguments[0].display()
            );
            fs::write(&adapter, script).expect("the adapter");
            fs::set_permissions(&adapter, Permissions::from_mode(0o755)).expect("an executable adapter");
            Some(Self { lab, home })
        }

        fn sessionctl(&self, arguments: &[&str]) -> Command {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
            command.args(arguments).env_clear().envs(self.lab.environment());
            let path = self
                .lab
                .environment()
                .into_iter()
                .find(|(name, _)| name == "PATH");
            let (_, path) = path.expect("a PATH");
            command
                .env("PATH", format!("{}:{path}", self.home.path().display()))
                .env("SESSIOND_HOME", self.home.path())
                .current_dir(self.lab.project());
            command
        }

        /// The output of a command that must succeed.
        fn said(&self, arguments: &[&str]) -> String {
            let mut command = self.sessionctl(arguments);
            let output = command.stdin(Stdio::null()).output().expect("a process");
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8(output.stdout)
                .expect("UTF-8")
                .trim_end()
                .to_owned()
        }
    }

    impl Drop for Newcomer {
        fn drop(&mut self) {
            let stopped = self.sessionctl(&["stop", "--no-start"]).output();
            assert!(
                stopped.is_ok_and(|stopped| stopped.status.success()) || std::thread::panicking(),
                "the daemon does not stop"
            );
        }
    }

    #[test]
    #[ignore = "installs the real adapter"]
    fn the_first_answer_takes_two_commands() {
        let newcomer = or_skip!(Newcomer::new());
        // First: one command, and a prompt in the chat that it opens.
        let mut terminal = Terminal::of(100, &newcomer.sessionctl(&[]));
        let begun = terminal.until(MARK);
        assert!(begun.contains("claude in "), "{begun:?}");
        terminal.type_in("[[text At your service]]\r");
        // The end of the echo of the typed line.
        terminal.until("\x1b[?2004l");
        terminal.until("At your service");
        terminal.until(MARK);
        terminal.type_in("\x04");
        let (shown, code) = terminal.ended();
        assert_eq!(code, Some(0), "{shown:?}");

        // Second: two commands.
        let id = newcomer.said(&["new"]);
        assert_eq!(newcomer.said(&["send", &id, "hello"]), "ok: hello");
        let asked = newcomer.lab.model.asked("hello");
        assert_eq!(
            asked,
            [user("hello")],
            "the second conversation contains the first"
        );
        let whole = [
            user("[[text At your service]]"),
            model("At your service"),
            user("again"),
        ];
        let first = newcomer.said(&["ls", "-q"]);
        let first = first.lines().last().and_then(|line| line.split('\t').next());
        newcomer.said(&["send", first.expect("a conversation"), "again"]);
        assert_eq!(newcomer.lab.model.asked("again"), whole);
    }
}

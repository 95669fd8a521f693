//! The built-in agent with a program in front of it that records the lines sent to each process.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::home::Home;

/// The recorded lines and arguments of the agent's processes.
pub(super) struct Recorder {
    folder: PathBuf,
}

impl Recorder {
    /// Makes the recorded agent the default agent of a home.
    pub(super) fn in_home(home: &Home) -> Self {
        Self::filtered(home, "cat")
    }

    /// The same as [`Self::in_home`], with a filter for the agent's output. Started with the argument
    /// `login`, the program prints its arguments and a variable from its configuration instead, and exits
    /// with code 7.
    pub(super) fn filtered(home: &Home, filter: &str) -> Self {
        let folder = home.path().join("recorded");
        fs::create_dir(&folder).unwrap();
        let program = home.path().join("recorded-agent");
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *login*) echo \"$*, $CONFIGURED\"; exit 7;; esac\n\
             echo \"$*\" > '{folder}'/$$.args\n\
             while IFS= read -r line; do printf '%s\\n' \"$line\" >> '{folder}'/$$.lines; printf '%s\\n' \"$line\"; done \
             | '{agent}' loopback-agent --data '{data}' | {filter}\n",
            folder = folder.display(),
            agent = env!("CARGO_BIN_EXE_sessiond"),
            data = home.data().display()
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        home.configure(&format!(
            "default_agent = \"recorded\"\n[agents.recorded]\nkind = \"loopback\"\ncommand = \"{}\"\nargs = [\"configured\"]\n\
             env = {{ CONFIGURED = \"a variable\" }}\ntranscripts = \"{}\"\n",
            program.display(),
            home.data().join("loopback").display()
        ));
        Self { folder }
    }

    fn texts(&self, extension: &str) -> Vec<String> {
        let files = fs::read_dir(&self.folder)
            .unwrap()
            .map(|file| file.unwrap().path());
        let wanted = files.filter(|path| path.extension().unwrap() == extension);
        wanted.map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    /// The number of processes started so far.
    pub(super) fn processes(&self) -> usize {
        self.texts("lines").len()
    }

    /// The arguments of each process.
    pub(super) fn arguments(&self) -> Vec<String> {
        let texts = self.texts("args").into_iter();
        texts.map(|text| text.trim().to_owned()).collect()
    }

    /// The lines that were sent to all processes.
    pub(super) fn all_lines(&self) -> Vec<String> {
        let texts = self.texts("lines");
        texts
            .iter()
            .flat_map(|text| text.lines())
            .map(str::to_owned)
            .collect()
    }

    /// The lines that were sent to the process of the client with this name.
    pub(super) fn lines_for(&self, client: &str) -> Vec<String> {
        let is_its = |text: &String| {
            let first = text
                .lines()
                .next()
                .and_then(|line| serde_json::from_str(line).ok());
            first.is_some_and(|first: Value| first["params"]["clientInfo"]["name"] == client)
        };
        let found = self.texts("lines").into_iter().find(is_its).unwrap_or_default();
        found.lines().map(str::to_owned).collect()
    }

    /// The texts of the prompts that were sent to the process of the client with this name.
    pub(super) fn prompts_for(&self, client: &str) -> Vec<String> {
        let lines = self.lines_for(client).into_iter();
        let messages = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
        let prompts = messages.filter(|message| message["method"] == "session/prompt");
        prompts
            .map(|prompt| prompt["params"]["prompt"][0]["text"].as_str().unwrap().to_owned())
            .collect()
    }
}

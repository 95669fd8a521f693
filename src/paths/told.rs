//! What the help and the manual of both programs tell beside the options, as data, and where things are, in words.
//!
//! It owns the form, of which help and manual are made; what a program tells of itself is where its options are.

/// What is told of a program, or of one command.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Paragraphs that go on with the description.
    pub description: &'static [&'static str],
    /// When a command exits with which code, where it is not told by `codes` alone.
    pub exits: &'static str,
    /// Command lines.
    pub examples: &'static [&'static str],
    /// The exit codes with what each means.
    pub codes: &'static [Item],
    /// What `--help` and the manual tell further.
    pub sections: &'static [Section],
}

/// A name, and what is said of it.
pub type Item = (&'static str, &'static str);

/// A part under a heading.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The heading.
    pub heading: &'static str,
    /// The items, in one list or several that follow on another.
    pub items: &'static [&'static [Item]],
    /// Paragraphs behind them.
    pub words: &'static [&'static str],
}

/// A word as shells take it.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+,:@%=".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

impl Told {
    /// Nothing.
    pub const NOTHING: Self = Self {
        description: &[],
        exits: "",
        examples: &[],
        codes: &[],
        sections: &[],
    };

    /// What `-h` says behind the options.
    pub fn help(&self) -> String {
        let mut blocks: Vec<String> = self.description.iter().map(ToString::to_string).collect();
        if !self.exits.is_empty() {
            blocks.push(self.exits.to_owned());
        }
        if !self.examples.is_empty() {
            blocks.push(format!("Examples:\n  {}", self.examples.join("\n  ")));
        }
        if !self.codes.is_empty() {
            let codes: Vec<String> = self
                .codes
                .iter()
                .map(|(code, meaning)| format!("{code} {meaning}"))
                .collect();
            blocks.push(format!("Exit codes: {}.", codes.join(", ")));
        }
        blocks.join("\n\n")
    }

    /// What `--help` says there.
    pub fn long_help(&self) -> String {
        let mut help = self.help();
        for section in self.sections {
            help.push_str(&format!("\n\n{}:", section.heading));
            for (name, words) in section.items.iter().copied().flatten() {
                help.push_str(&format!("\n  {name}\n    {words}"));
            }
            for words in section.words {
                help.push_str(&format!("\n  {words}"));
            }
        }
        help
    }
}

/// The variables that both programs read for where things are.
pub const VARIABLES: &[Item] = &[
    (
        "SESSIOND_HOME",
        "One folder that everything is under, as --home names it",
    ),
    (
        "SESSIOND_SOCKET",
        "The daemon's socket, as --socket names it. Each option goes before its variable, and --home before both",
    ),
    (
        "XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_RUNTIME_DIR",
        "The folders in place of ~/.config and ~/.local/share, and the one for sockets",
    ),
];

/// The files and folders, where no option and no variable names others.
pub const FILES: Section = Section {
    heading: "Files",
    items: &[&[
        (
            "~/.config/sessiond/config.toml",
            "The configuration, read when the daemon starts. It need not exist",
        ),
        (
            "~/.local/share/sessiond",
            "The daemon's data: journal.jsonl and bodies, which are what it knows; store, which is made of them; kept, copies \
             of the agents' transcripts; exports, bundles",
        ),
        (
            "~/.local/share/sessiond/sessiond.lock",
            "Who runs, as JSON: pid and socket",
        ),
        (
            "~/.local/share/sessiond/log/sessiond.log",
            "The log of a daemon that sessionctl started",
        ),
        (
            "$XDG_RUNTIME_DIR/sessiond/sessiond.sock",
            "The socket. Where that variable is not set it is run/sessiond.sock in the folder of the data",
        ),
    ]],
    words: &[
        "Below the one folder of --home these are config/config.toml, data, log/sessiond.log and run/sessiond.sock. On macOS \
         configuration and data are in ~/Library/Application Support/sessiond.",
    ],
};

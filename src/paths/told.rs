//! Help and manual texts beyond the options, as data, and the texts about paths that both programs share.
//!
//! It owns the format. The texts of a program are next to its options.

/// Help and manual texts of a program or of one command.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Paragraphs after the first line of the description.
    pub description: &'static [&'static str],
    /// Exit codes of this command, if `codes` needs an explanation.
    pub exits: &'static str,
    /// Example command lines.
    pub examples: &'static [&'static str],
    /// The exit codes with their meanings.
    pub codes: &'static [Item],
    /// Further sections of `--help` and the manual.
    pub sections: &'static [Section],
}

/// A name and its description.
pub type Item = (&'static str, &'static str);

/// A section with a heading.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The heading.
    pub heading: &'static str,
    /// Lists of items, printed one after the other.
    pub items: &'static [&'static [Item]],
    /// Paragraphs after the items.
    pub words: &'static [&'static str],
}

/// Quotes a word for a shell, if needed.
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
    /// No texts.
    pub const NOTHING: Self = Self {
        description: &[],
        exits: "",
        examples: &[],
        codes: &[],
        sections: &[],
    };

    /// The text after the options in `-h`.
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

    /// The text after the options in `--help`.
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

/// The environment variables for paths, which both programs read.
pub const VARIABLES: &[Item] = &[
    (
        "SESSIOND_HOME",
        "Folder for configuration, data, log and socket, as --home",
    ),
    (
        "SESSIOND_SOCKET",
        "Socket of the daemon, as --socket. An option overrides its variable, and --home overrides both variables",
    ),
    (
        "XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_RUNTIME_DIR",
        "Base folders for configuration (default: ~/.config), data (default: ~/.local/share) and the socket",
    ),
];

/// The default files and folders.
pub const FILES: Section = Section {
    heading: "Files",
    items: &[&[
        (
            "~/.config/sessiond/config.toml",
            "Configuration, read when the daemon starts. Optional",
        ),
        (
            "~/.local/share/sessiond",
            "Data: journal.jsonl and bodies (all conversations), store (an index, rebuilt from them), kept (copies of \
             transcripts), exports (bundles)",
        ),
        (
            "~/.local/share/sessiond/sessiond.lock",
            "Process id and socket of the running daemon, as JSON",
        ),
        (
            "~/.local/share/sessiond/log/sessiond.log",
            "Log of a daemon that sessionctl started",
        ),
        (
            "$XDG_RUNTIME_DIR/sessiond/sessiond.sock",
            "Socket. If XDG_RUNTIME_DIR is not set: run/sessiond.sock in the data folder",
        ),
    ]],
    words: &[
        "With --home, the paths in that folder are config/config.toml, data, log/sessiond.log and run/sessiond.sock. On macOS, \
         configuration and data are in ~/Library/Application Support/sessiond.",
    ],
};

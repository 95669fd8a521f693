//! What the help and the manual tell beside the options: of the program, and of each command that there is more to tell of.

use crate::paths::told::{self, Section, Told};

/// What is told of `sessionctl` as a whole.
pub(super) const PROGRAM: Told = Told {
    description: &[
        "CONV is a conversation's id, a prefix of it of 6 characters or more, any upstream id that it ever held, or . for the \
         newest conversation of this folder.",
        "The first command that needs the daemon starts it. sessionctl demo shows what all this is for.",
    ],
    examples: &[
        "sessionctl new --title 'First steps'",
        "sessionctl send . 'Hello there'",
        "sessionctl history .",
    ],
    codes: &[
        ("0", "done"),
        ("1", "failed"),
        ("2", "usage"),
        ("3", "no daemon"),
        ("4", "not found"),
        ("5", "busy or conflict"),
        ("6", "agent failure"),
        ("7", "limited"),
        ("8", "the agent asks and nobody is there to answer"),
    ],
    sections: &[
        Section {
            heading: "Environment",
            items: &[
                told::VARIABLES,
                &[
                    ("VISUAL, EDITOR", "What sessionctl edit opens the old prompt with"),
                    (
                        "PAGER",
                        "What sessionctl history shows its text with on a terminal; less unless it is set, nothing when it is empty",
                    ),
                    ("NO_COLOR", "Nothing is coloured where it is set"),
                    (
                        "LC_ALL, LC_CTYPE, LANG",
                        "Signs beyond ASCII are used where the locale is UTF-8",
                    ),
                ],
            ],
            words: &[
                "A daemon that is started gets all variables of the command that starts it; see sessiond for those that it reads.",
            ],
        },
        told::FILES,
    ],
    ..Told::NOTHING
};

/// What is told of commands, by their names.
pub(super) const COMMANDS: &[(&str, Told)] = &[
    (
        "new",
        Told {
            examples: &[
                "sessionctl new --title 'Fix the build'",
                "sessionctl new --agent claude --cwd ~/project",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "ls",
        Told {
            description: &[
                "Shown are the id's beginning, how long ago the conversation changed, its state, its agent and its title.",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "transcripts",
        Told {
            description: &[
                "Shown are the session id's beginning, how long ago the transcript changed, its size, its agent, the \
                 conversation that holds it, and its title; of a session with several files also where each is. --long shows \
                 the turns too, where they are known without reading the file.",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "send",
        Told {
            description: &["Ctrl-C cancels the turn, a second one leaves it running."],
            examples: &[
                "sessionctl send . 'Why does the test fail?'",
                "git diff | sessionctl send 90e2e180 -",
                "sessionctl send . -- --a prompt that begins with dashes",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "continue",
        Told {
            description: &[
                "Where the agent has the prompt that was cut short, a word that it go on is sent, or TEXT; where it has not, \
                 the prompt is, with TEXT behind it. That outlives the daemon. A prompt of your own that is answered before \
                 takes its place.",
            ],
            examples: &[
                "sessionctl continue . --at-reset",
                "sessionctl continue . --at 06:30 'Now run the long tests'",
                "sessionctl continue . --cancel",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "recover",
        Told {
            description: &[
                "A limit that is still on is waited for, by the daemon. A question that was open is answered with sessionctl \
                 answer.",
            ],
            exits: "Exits with 1 when one could not be brought back.",
            ..Told::NOTHING
        },
    ),
    (
        "fork",
        Told {
            examples: &[
                "sessionctl send \"$(sessionctl fork . --title 'Another way')\" 'Try it without the cache'",
                "sessionctl checkpoints .",
                "sessionctl fork . --at 3",
                "sessionctl fork . --at CHECKPOINT",
                "sessionctl fork . --cwd ../another-checkout",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "edit",
        Told {
            examples: &[
                "sessionctl edit . --at 3 Use a trait instead",
                "sessionctl edit . --at -2",
                "sessionctl undo .",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "mv",
        Told {
            examples: &[
                "sessionctl mv 5d0c2a ~/src/renamed --dry-run",
                "sessionctl mv 5d0c2a ~/src/renamed",
                "mv ~/src/old ~/src/new && sessionctl mv ~/src/old ~/src/new --settings",
                "sessionctl mv --list",
                "sessionctl mv --undo 6f0b2f8e-4d6a-4d0e-9c5b-0a4f3f1c9d11",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "adopt",
        Told {
            description: &[
                "A transcript that a conversation holds already gives that conversation's id. The next prompt resumes it with \
                 its history.",
            ],
            examples: &[
                "sessionctl adopt 6d7e3074-ff17-4e38-b74e-98c3c4cf9faf",
                "sessionctl send \"$(sessionctl adopt ID --agent claude)\" 'Go on'",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "check",
        Told {
            description: &[
                "The transcript itself is never changed.",
                "With --repair lines that are no records are left out of the copy, records whose parents are missing are \
                 joined to what stands before them, and calls of tools without results get those that the agent itself fills \
                 in. A conversation that goes on with the session goes on with the copy; of a session that is nobody's the \
                 copy can be adopted (sessionctl adopt).",
            ],
            exits: "Exits with 0 when nothing is wrong, or not any more, with 1 when something is.",
            examples: &[
                "sessionctl check .",
                "sessionctl check . --repair",
                "sessionctl check 6d7e3074-ff17-4e38-b74e-98c3c4cf9faf --repair --cut-output 20000",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "keep",
        Told {
            description: &[
                "Transcripts are kept by themselves unless [keep] enabled = false stands in the configuration; this is for \
                 those of which a copy is wanted now. What each copy takes on the disk is printed, and where it is.",
                "Copies outlive the conversation where that was deleted without its transcripts. Without a name those are listed too: \
                 sessionctl restore ID puts one back, after which it can be adopted, and --forget deletes its copies; the agent's own \
                 file stays.",
            ],
            examples: &[
                "sessionctl keep",
                "sessionctl keep .",
                "sessionctl keep --forget 6d7e3074-ff17-4e38-b74e-98c3c4cf9faf",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "restore",
        Told {
            description: &[
                "A conversation whose transcript is gone is restored by its next prompt, and its history can be read without; \
                 this is for other programs. Nothing that is there is written over. sessionctl keep tells what is kept.",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "export",
        Told {
            description: &[
                "A bundle holds the agents' own transcripts and all that is known of the conversation; sessionctl import \
                 makes it go on, also on another machine. It is a tar archive compressed with zstd. The path of the file is \
                 printed.",
                "A bundle has the keys too that MCP servers are started and called with (env, headers); the JSON form leaves \
                 them out.",
            ],
            examples: &[
                "sessionctl export .",
                "sessionctl export . -o conversation.json",
                "sessionctl export 90e2e180 -o - | jq '.messages[].content'",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "import",
        Told {
            examples: &[
                "sessionctl import fix-the-build.session-bundle.tar.zst --cwd ~/project",
                "sessionctl send \"$(sessionctl import FILE --cwd .)\" 'Go on'",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "answer",
        Told {
            examples: &[
                "sessionctl answer . INTERRUPT allow_once",
                "sessionctl answer . INTERRUPT '{\"action\":\"decline\"}'",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "doctor",
        Told {
            description: &[
                "Looked at are the folders, the configuration, the daemon and others of this user, store and disks, each \
                 agent (whether it starts, its version, what it offers, who is signed in), its transcripts and how long they \
                 are kept, and processes that were left behind. No conversation is changed; a daemon is started unless \
                 --no-start says otherwise.",
            ],
            exits: "Exits with 1 when there is an error, and with 3 when there is no daemon; warnings do not count.",
            ..Told::NOTHING
        },
    ),
    (
        "completions",
        Told {
            description: &[
                "Packages and packaging/install.sh put this to where the shells look. zsh has to be told of a folder below \
                 your home: fpath=(~/.zfunc $fpath) in ~/.zshrc, before compinit.",
            ],
            examples: &[
                "source <(sessionctl completions bash)",
                "sessionctl completions bash sessiond",
                "sessionctl completions fish > ~/.config/fish/completions/sessionctl.fish",
                "sessionctl completions zsh > ~/.zfunc/_sessionctl",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "man",
        Told {
            description: &[
                "On a terminal the page is shown by man, and elsewhere printed as roff, so that it can be kept or given on. \
                 Where the pages are installed, man sessionctl finds them by itself.",
            ],
            examples: &[
                "sessionctl man send",
                "sessionctl man sessiond",
                "sessionctl man > sessionctl.1",
                "sessionctl man fork | man -l -",
            ],
            ..Told::NOTHING
        },
    ),
];

//! Help and manual texts beyond the options: for `sessionctl` as a whole, and for single commands.

use crate::paths::told::{self, Section, Told};

/// The texts of `sessionctl` as a whole.
pub(super) const PROGRAM: Told = Told {
    description: &[
        "CONV names a conversation: its id, an agent session id that it has used, the first 6 or more characters of either, a \
         part of its title, or . for the conversation that you last used in this folder. On a terminal, a command without CONV \
         lets you pick one, and so does sessionctl without a command.",
        "The first command that needs the daemon starts it. Run sessionctl demo for a tour, and sessionctl help COMMAND for the \
         options of a command.",
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
        ("8", "unanswered question"),
    ],
    sections: &[
        Section {
            heading: "Environment",
            items: &[
                told::VARIABLES,
                &[
                    ("VISUAL, EDITOR", "Editor for sessionctl edit"),
                    (
                        "PAGER",
                        "Pager for sessionctl history on a terminal (default: less). Set it to an empty value for no pager",
                    ),
                    ("NO_COLOR", "If set, print without color"),
                    (
                        "LC_ALL, LC_CTYPE, LANG",
                        "Locale. Symbols beyond ASCII are printed only in a UTF-8 locale",
                    ),
                ],
            ],
            words: &[
                "A daemon that a command starts inherits the command's environment. See sessiond for the variables that the \
                 daemon reads.",
            ],
        },
        told::FILES,
    ],
    ..Told::NOTHING
};

/// The texts of single commands, by command name.
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
                "On a terminal, the list is a table that fits the width. Otherwise each line has these columns, separated by tabs: \
                 id, time of the last change, state, agent, folder and title.",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "transcripts",
        Told {
            description: &[
                "On a terminal, the list is a table that fits the width. Otherwise each line has these columns, separated by tabs: \
                 session id, time of the last change, size, agent, conversation, number of turns if it is known without reading \
                 the file, folder, path and title.",
            ],
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
        "mv",
        Told {
            description: &[
                "With a conversation, only that conversation moves. With the old path of a folder, every session that ran in that \
                 folder or below moves, including sessions that were not started by sessionctl.",
                "To undo the move of one conversation, use sessionctl undo.",
            ],
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
                "Prints the id of the conversation. If a conversation already uses the transcript, its id is printed. The next \
                 prompt resumes the session with its history.",
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
                "Prints the damage and whether the session can still be resumed. The transcript itself is never changed.",
                "--repair writes a copy without the lines that are not valid records. In the copy, a record with a missing parent \
                 is attached to the record before it, and a tool call without a result gets the result that the agent would fill in.",
                "A conversation that uses the session continues with the copy. If no conversation uses it, adopt the copy with \
                 sessionctl adopt.",
            ],
            exits: "Exits with 0 if the transcript is sound or was repaired, and with 1 if it is damaged.",
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
                "Transcripts are backed up automatically unless the configuration has [keep] enabled = false. With a target, this \
                 command makes a copy now and prints its path and size.",
                "Copies remain when a conversation is deleted without its transcripts. Without a target, this command lists these \
                 orphaned copies too. sessionctl restore ID restores one, so that it can be adopted. --forget deletes it; the \
                 agent's own file is not deleted.",
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
                "The next prompt of a conversation restores a deleted transcript automatically, and its history can be read without \
                 a restore. Use this command to restore the file for other programs. Existing files are never overwritten. sessionctl \
                 keep lists the copies.",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "export",
        Told {
            description: &[
                "A bundle holds the transcripts and everything else that sessionctl import needs to continue the conversation, also \
                 on another machine. It is a tar archive compressed with zstd. The path of the file is printed.",
                "With --secrets, the file contains the env and header values of MCP servers, which may be keys.",
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
        "doctor",
        Told {
            description: &[
                "Checks the folders, the configuration, this daemon and other daemons of this user, the store, free disk space, \
                 leftover processes, and each agent: whether it starts, its version and features, its login, its transcripts and how \
                 long it keeps them. No conversation is changed. The daemon is started unless --no-start is given.",
            ],
            exits: "Exits with 1 on an error and with 3 if no daemon runs. Warnings do not change the exit code.",
            ..Told::NOTHING
        },
    ),
    (
        "completions",
        Told {
            description: &[
                "Packages and packaging/install.sh install the completions. To load them from your home in zsh, add \
                 fpath=(~/.zfunc $fpath) to ~/.zshrc before compinit.",
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
                "On a terminal, opens the page in man. Otherwise prints it as roff. If the pages are installed, man sessionctl \
                 works too.",
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
    (
        "chain",
        Told {
            description: &[
                "The oldest session is listed first. The last is the head, which the next prompt resumes.",
            ],
            ..Told::NOTHING
        },
    ),
    (
        "lineage",
        Told {
            description: &["The log is complete: it includes sessions that the chain no longer lists."],
            ..Told::NOTHING
        },
    ),
    (
        "history",
        Told {
            description: &["The oldest message is printed first. Each tool call is shortened to one line."],
            ..Told::NOTHING
        },
    ),
];

//! Whole screens as a person sees them: each scene at 80 and 200 columns, in colour and without, and what a pipe gets.
//!
//! `tests/fixtures/screens.txt` has them, with `{bold red}` where a style begins and `{/}` where it ends. A screen that is the same
//! without colour is there once. Ids, times, paths and process ids are replaced. Run with `WRITE_SCREENS=1` to write the
//! file, and read it as a person would before you commit.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::finding::ESCAPE;
use super::home::Home;
use super::terminal::{ASKED, MARK, Terminal};
use super::{sessionctl, text};
use crate::words::{DAYS, MONTHS};

/// What Ctrl-D sends.
const CTRL_D: &str = "\x04";

/// Three days and half an hour, so that the reset has a day at each hour and is as far away for as long as a test takes.
const LIMITED: &str = "Write it [[limit 261000]]";

/// The agent's answer in Markdown, with a tool call in the middle.
const MARKDOWN: &str = "[[say # Plan\n\nFirst **look**, then `run`:\n\n- one item\n- another\n\n]] [[tool Read {}]] \
                        [[say ```sh\nls *.rs\n```\n\n| a | b |\n|---|---|\n| one | two |\n| three | a cell that \
                        is too long for the table to fit into a terminal of eighty columns |\n\n> a quote that is longer \
                        than a line of eighty columns, with its bar on each line of it\n]]";

const DIFF: &str = "[[ask Edit a.txt?]] [[write a.txt one\nzwei\nthree\n]] [[say Written]]";

const THREE_LINES: &str = r#"[[ask Run the clean-up?]] [[tool Bash {"command":"set -e\ncd build\nrm -r old","description":"Clean up"}]] [[say Cleaned]]"#;

/// A title that a narrow terminal has no room for.
const LONG_TITLE: &str =
    "Find out why the nightly build of the site takes three times as long as on the machines of the office";

/// Where a command runs.
#[derive(Clone, Copy)]
enum View {
    Terminal { columns: u16, is_coloured: bool },
    Pipe,
}

const VIEWS: [View; 5] = [
    View::Terminal {
        columns: 80,
        is_coloured: true,
    },
    View::Terminal {
        columns: 80,
        is_coloured: false,
    },
    View::Terminal {
        columns: 200,
        is_coloured: true,
    },
    View::Terminal {
        columns: 200,
        is_coloured: false,
    },
    View::Pipe,
];

/// A screen: as text, and with its styles.
struct Shot {
    text: String,
    painted: String,
}

/// The screens of a scene, in the order of the views.
type Shots = Vec<Shot>;

impl View {
    /// Runs a command to its end; at a terminal, a person does this first.
    fn shot(self, home: &Path, mut command: Command, act: impl FnOnce(&mut Terminal)) -> Shot {
        command.env("HOME", home);
        let View::Terminal { columns, is_coloured } = self else {
            let output = command.output().unwrap();
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            let code = output.status.code().unwrap();
            let seen = format!("{stdout}--- standard error, exit code {code}\n{stderr}");
            let seen = steady(&seen, home);
            return Shot {
                text: seen.clone(),
                painted: seen,
            };
        };
        if !is_coloured {
            command.env("NO_COLOR", "1");
        }
        let mut terminal = Terminal::of(columns, &command);
        act(&mut terminal);
        let (display, _) = terminal.display_at_end();
        Shot {
            text: steady(&display.whole_lines(), home),
            painted: steady(&display.painted(), home),
        }
    }

    /// The same with a command of a home, and nobody does anything.
    fn plain(self, home: &Home, arguments: &[&str]) -> Shot {
        self.shot(home.path(), home.command(arguments), |_| {})
    }
}

fn in_each_view(shot: impl Fn(View) -> Shot) -> Shots {
    VIEWS.into_iter().map(shot).collect()
}

/// A home with a conversation of three turns, one of which replaced another.
fn with_turns() -> (Home, String) {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Blue heron"]);
    home.said(&["send", &id, "Where does the heron nest?"]);
    home.said(&["send", &id, "And in winter?"]);
    home.said(&["edit", &id, "And in spring?"]);
    (home, id)
}

fn list() -> Shots {
    let home = Home::new();
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    let new = |title: &str, cwd: &Path| home.said(&["new", "--title", title, "--cwd", cwd.to_str().unwrap()]);
    let elsewhere = new("Fix the build", &other);
    let long = new(LONG_TITLE, home.path());
    let asks = new("Write a poem", home.path());
    new("", home.path());
    home.said(&["send", &long, "hello"]);
    home.run(&["send", &elsewhere, LIMITED]);
    home.run(&["send", &asks, "[[ask Really?]]"]);
    in_each_view(|view| view.plain(&home, &["ls"]))
}

fn picker() -> Shots {
    let (home, _) = with_turns();
    home.said(&["new", "--title", LONG_TITLE]);
    let first = home.said(&["new", "--title", "Write a poem"]);
    home.said(&["send", &first, "Four lines about rain"]);
    in_each_view(|view| {
        let mut command = home.command(&["show"]);
        let View::Terminal { columns, is_coloured } = view else {
            return view.plain(&home, &["show"]);
        };
        command.env("HOME", home.path());
        if !is_coloured {
            command.env("NO_COLOR", "1");
        }
        let mut terminal = Terminal::of(columns, &command);
        // The preview is read after the list was drawn.
        terminal.until("echo: Four lines");
        terminal.until("\x1b[J");
        let display = terminal.display();
        let shot = Shot {
            text: steady(&display.whole_lines(), home.path()),
            painted: steady(&display.painted(), home.path()),
        };
        terminal.type_in(ESCAPE);
        terminal.exits(1);
        shot
    })
}

fn chat() -> Shots {
    let home = Home::new();
    in_each_view(|view| {
        let id = home.said(&["new", "--title", "Plans"]);
        if matches!(view, View::Pipe) {
            return view.plain(&home, &["send", &id, MARKDOWN]);
        }
        view.shot(home.path(), home.command(&["chat", &id]), |terminal| {
            terminal.until(MARK);
            // Lines of a prompt end with a backslash.
            terminal.enter(&MARKDOWN.replace('\n', "\\\r"));
            terminal.until("context ");
            terminal.until(MARK);
            terminal.type_in(CTRL_D);
        })
    })
}

/// A prompt that asks, with the key that answers it.
fn approval(prompt: &str, key: &str) -> Shots {
    let home = Home::new();
    fs::write(home.path().join("a.txt"), "one\ntwo\nthree\n").unwrap();
    in_each_view(|view| {
        let id = home.said(&["new"]);
        view.shot(home.path(), home.command(&["send", &id, prompt]), |terminal| {
            terminal.until(ASKED);
            terminal.type_in(key);
        })
    })
}

fn limit() -> Shots {
    let home = Home::new();
    in_each_view(|view| {
        let id = home.said(&["new"]);
        view.plain(&home, &["send", &id, LIMITED])
    })
}

fn reset() -> Shots {
    let (home, id) = with_turns();
    in_each_view(|view| {
        let shot = view.shot(home.path(), home.command(&["reset", &id]), |terminal| {
            terminal.until("[y/N] ");
            terminal.type_in("y\r");
        });
        home.said(&["undo", &id]);
        shot
    })
}

fn undo() -> Shots {
    let (home, id) = with_turns();
    in_each_view(|view| {
        home.said(&["edit", &id, "And in autumn?"]);
        view.plain(&home, &["undo", &id])
    })
}

/// A command about a conversation with turns, the same in each view.
fn about_turns(arguments: &[&str]) -> Shots {
    let (home, id) = with_turns();
    in_each_view(|view| {
        let arguments: Vec<&str> = arguments
            .iter()
            .map(|word| if *word == "." { &*id } else { word })
            .collect();
        view.plain(&home, &arguments)
    })
}

fn stopped_daemon() -> Shots {
    let home = Home::new();
    home.said(&["start"]);
    let _frozen = home.freeze_daemon();
    // Each waits for seconds.
    let shots = thread::scope(|scope| {
        let home = &home;
        let shots = VIEWS.map(|view| scope.spawn(move || in_sentences(&view.plain(home, &["ls"]))));
        shots.map(|shot| shot.join().unwrap())
    });
    shots.into()
}

fn foreign_listener() -> Shots {
    in_each_view(|view| {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        DirBuilder::new().mode(0o700).create(&run).unwrap();
        let listener = UnixListener::bind(run.join("sessiond.sock")).unwrap();
        // It ends with this process.
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                // The client is gone and needs no answer.
                if connection.read_exact(&mut [0]).is_ok() {
                    drop(connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
                }
            }
        });
        let command = sessionctl(folder.path(), &["ls", "--no-start"]);
        in_sentences(&view.shot(folder.path(), command, |_| {}))
    })
}

/// Only root can listen as another user; for others there is nothing to see.
fn socket_of_another_user() -> Shots {
    if !rustix::process::geteuid().is_root() {
        return Shots::new();
    }
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    for (folder, mode) in [(folder.path(), 0o755), (&open, 0o777)] {
        fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
    }
    let socket = open.join("s.sock");
    let path = socket.clone();
    // Linux keeps the user per thread.
    let listening = thread::spawn(move || {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).unwrap();
        UnixListener::bind(path).unwrap()
    });
    let _listener = listening.join().unwrap();
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    in_each_view(|view| {
        let command = sessionctl(&home, &["ls", "--no-start", "--socket", socket.to_str().unwrap()]);
        in_sentences(&view.shot(folder.path(), command, |_| {}))
    })
}

/// Joins lines that were broken between words: where, depends on how long a path or a process id is.
fn in_sentences(shot: &Shot) -> Shot {
    let join = |text: &str| {
        let mut joined = String::new();
        for line in text.lines().map(|line| line.trim_end_matches('⏎')) {
            let plain = line.trim_start_matches("{yellow}").trim_start_matches("{red}");
            let begins = ["error", "hint", "---"]
                .iter()
                .any(|word| plain.starts_with(word));
            match begins || joined.is_empty() {
                true => joined.push('\n'),
                false => joined.push(' '),
            }
            joined.push_str(line);
        }
        format!("{}\n", joined.trim_start())
    };
    Shot {
        text: join(&shot.text),
        painted: join(&shot.painted),
    }
}

/// The text without what differs between runs. What stands in a table keeps its width.
fn steady(text: &str, home: &Path) -> String {
    let real = home.canonicalize().unwrap();
    let text = text
        .replace(real.to_str().unwrap(), "/home/u")
        .replace(home.to_str().unwrap(), "/home/u");
    let mut ids: Vec<String> = Vec::new();
    let lines = text
        .lines()
        .map(|line| match line.contains("context ") && line.contains("token") {
            true => "context of so many tokens".to_owned(),
            false => steady_line(line, &mut ids),
        });
    lines.map(|line| format!("{line}\n")).collect()
}

fn steady_line(line: &str, ids: &mut Vec<String>) -> String {
    let is_end = |letter: char| !(letter.is_alphanumeric() || "-:".contains(letter));
    let parts: Vec<&str> = line.split_inclusive(is_end).collect();
    let words: Vec<&str> = parts.iter().map(|part| part.trim_end_matches(is_end)).collect();
    let mut steady = String::new();
    for (at, (part, word)) in parts.iter().zip(&words).enumerate() {
        let before = at.checked_sub(1).map_or("", |at| words[at]);
        let after = words.get(at + 1).copied().unwrap_or_default();
        let is_number = !word.is_empty() && word.bytes().all(|letter| letter.is_ascii_digit());
        let written = match *word {
            id if is_id(id) => numbered(id, ids),
            _ if is_number && MONTHS.contains(&after) => "00".to_owned(),
            month if MONTHS.contains(&month) => "Month".to_owned(),
            day if DAYS.contains(&day) => "Day".to_owned(),
            time if time.contains(':') && time.ends_with(['a', 'p', 'm']) => "1:23pm".to_owned(),
            time if time.starts_with(|digit: char| digit.is_ascii_digit()) && time.contains([':', '-']) => {
                let zero = |letter: char| if letter.is_ascii_digit() { '0' } else { letter };
                time.chars().map(zero).collect()
            }
            _ if is_number && ["process", "CONT", "-CONT", "-KILL"].contains(&before) => "PID".to_owned(),
            number if is_number && ["s", "min", "h"].contains(&after) => {
                // An age is padded before it is painted.
                let before = steady.strip_suffix("{dim}").map(|before| (before.len(), "{dim}"));
                let (end, paint) = before.unwrap_or((steady.len(), ""));
                steady.truncate(end);
                steady.push_str(&" ".repeat(number.len() - 1));
                format!("{paint}0")
            }
            word => word.to_owned(),
        };
        steady.push_str(&written);
        steady.push_str(&part[word.len()..]);
    }
    steady
}

/// Whether a word is an id, or the beginning of one as it is shown.
fn is_id(word: &str) -> bool {
    let is_hex = |letter: u8| letter.is_ascii_hexdigit() || letter == b'-';
    (word.len() == 8 || word.len() == 36) && word.bytes().all(is_hex) && !word.starts_with('-')
}

/// The same for each occurrence of an id: the first is all of `1`, the next one of `2`.
fn numbered(id: &str, ids: &mut Vec<String>) -> String {
    let begin = &id[..8];
    let known = ids.iter().position(|known| known == begin);
    let number = known.unwrap_or_else(|| {
        ids.push(begin.to_owned());
        ids.len() - 1
    });
    let digit = char::from_digit(u32::try_from(number).unwrap() + 1, 16).unwrap();
    id.chars()
        .map(|letter| if letter == '-' { '-' } else { digit })
        .collect()
}

/// The sections of a scene by their names.
fn sections(scene: &str, shots: &Shots) -> Vec<(String, String)> {
    let [narrow, narrow_plain, wide, wide_plain, pipe] = shots.as_slice() else {
        return Vec::new();
    };
    let mut sections = Vec::new();
    for (columns, painted, plain) in [(80, narrow, narrow_plain), (200, wide, wide_plain)] {
        sections.push((format!("{scene}, {columns} columns"), painted.painted.clone()));
        assert_eq!(
            plain.text, plain.painted,
            "{scene}: nothing is coloured without colour"
        );
        if plain.text != painted.text {
            sections.push((
                format!("{scene}, {columns} columns without colour"),
                plain.text.clone(),
            ));
        }
    }
    sections.push((format!("{scene}, pipe"), pipe.text.clone()));
    sections
}

/// A line between screens.
const HEAD: &str = "======== ";

#[test]
fn screens_are_as_in_the_fixture() {
    let scenes: [(&str, fn() -> Shots); 14] = [
        ("list", list),
        ("picker", picker),
        ("chat", chat),
        ("approval of a change", || approval(DIFF, "n")),
        ("approval of a command of three lines", || {
            approval(THREE_LINES, "y")
        }),
        ("limit", limit),
        ("reset", reset),
        ("undo", undo),
        ("fork", || about_turns(&["fork", ".", "--at", "1"])),
        ("chain", || about_turns(&["chain", "."])),
        ("lineage", || about_turns(&["lineage", "."])),
        ("stopped daemon", stopped_daemon),
        ("foreign listener", foreign_listener),
        ("socket of another user", socket_of_another_user),
    ];
    let shots = thread::scope(|scope| {
        let shots = scenes.map(|(name, scene)| scope.spawn(move || sections(name, &scene())));
        shots.map(|shots| shots.join().unwrap())
    });
    let seen: BTreeMap<String, String> = shots.into_iter().flatten().collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/screens.txt");
    if std::env::var_os("WRITE_SCREENS").is_some() {
        let text = seen
            .iter()
            .map(|(name, screen)| format!("{HEAD}{name}\n{screen}"));
        fs::write(&path, text.collect::<String>()).unwrap();
        return;
    }
    let written = fs::read_to_string(&path).unwrap();
    let mut expected: BTreeMap<String, String> = BTreeMap::new();
    for section in written.split(HEAD).filter(|section| !section.is_empty()) {
        let (name, screen) = section.split_once('\n').unwrap();
        expected.insert(name.to_owned(), screen.to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        expected.retain(|name, _| !name.starts_with("socket of another user"));
    }
    let names = |screens: &BTreeMap<String, String>| screens.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&seen), names(&expected), "WRITE_SCREENS=1 writes the file");
    for (name, screen) in &seen {
        let expected = &expected[name];
        assert!(
            screen == expected,
            "{name}\nseen:\n{screen}\nin the file:\n{expected}"
        );
    }
}

/// At any width the table has all of its text, as the ids that other commands take.
#[test]
fn chain_and_lineage_keep_their_ids_in_a_narrow_terminal() {
    let (home, id) = with_turns();
    home.said(&["fork", &id, "--in-place"]);
    let words = |lines: &[String]| {
        let words = lines.iter().flat_map(|line| line.split_whitespace());
        let words: Vec<String> = words.map(str::to_owned).collect();
        // How long ago it was may differ.
        let is_age = |at: usize| words.get(at + 1).is_some_and(|unit| unit == "s");
        let steady = (0..words.len()).filter(|at| !is_age(*at));
        steady.map(|at| words[at].clone()).collect::<Vec<String>>()
    };
    for command in ["chain", "lineage"] {
        let shown = |columns| super::finding::shown(&home, columns, &[command, &id]);
        let wide = shown(200);
        for columns in [40, 80] {
            let lines = shown(columns);
            let width = lines.iter().map(|line| line.chars().count()).max();
            assert!(width <= Some(columns.into()), "{columns}: {lines:?}");
            assert_eq!(words(&lines), words(&wide), "{columns}: {lines:?}");
        }
    }
}

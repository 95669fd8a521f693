//! `chat` and `send` at a terminal, with what a person sees.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use super::home::Home;
use super::printed::with_whole_ids;
use super::questions::kill_daemon;
use super::terminal::{ASKED, Terminal};
use crate::daemon::error_words::{compare, plain};

/// What the prompt of `chat` begins with.
const MARK: &str = "› ";

/// The agent's answer in Markdown, with a tool call in the middle.
const MARKDOWN: &str = "[[say # Plan\n\nFirst **look**, then `run`:\n\n- one item\n- another\n\n]] [[tool Read {}]] \
                        [[say ```sh\nls *.rs\n```\n\n| a | b |\n|---|---|\n| one | two |\n]]";

/// Checks what is seen on a terminal against `printed-words.txt`; ids, times and the size of the context do not matter.
#[track_caller]
pub(crate) fn check_seen(what: &str, seen: &str) {
    let lines = seen
        .trim_end()
        .lines()
        .map(|line| match line.starts_with("context ") {
            true => "context of so many tokens",
            false => line,
        });
    let seen = plain(&with_whole_ids(&lines.collect::<Vec<_>>().join("\n")));
    compare("printed-words.txt", &format!("screen of {what}: {seen}"));
}

/// Types a line into a chat that waits for it. What is shown after this is no echo of it.
fn enter(terminal: &mut Terminal, line: &str) {
    terminal.type_in(&format!("{line}\r"));
    terminal.until("\x1b[?2004l");
}

#[test]
fn a_chat_shows_markdown_and_tool_calls() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Plans"]);
    for (columns, colours) in [(80, true), (200, true), (80, false)] {
        let mut terminal = match colours {
            true => Terminal::run(&home, columns, &["send", &id, MARKDOWN]),
            false => Terminal::run_plain(&home, columns, &["send", &id, MARKDOWN]),
        };
        let raw = match colours {
            true => terminal.until("\x1b[36mls *.rs\x1b[0m"),
            false => String::new(),
        };
        assert_eq!(raw.contains("\x1b[1mlook\x1b[0m"), colours, "{raw:?}");
        let (seen, code) = terminal.seen();
        let style = if colours {
            "with colours"
        } else {
            "without colours"
        };
        check_seen(&format!("Markdown {style} at {columns} columns"), &seen);
        assert_eq!(code, Some(0), "{seen}");
    }
    // A pipe gets the text as it is, and nothing else.
    let piped = home.run(&["send", &id, MARKDOWN]);
    let text = super::text(&piped.stdout);
    assert!(
        text.starts_with("# Plan\n\nFirst **look**, then `run`:\n\n- one item\n"),
        "{text}"
    );
    assert!(
        text.ends_with("| one | two |\n") && !text.contains("Read"),
        "{text}"
    );
    assert_eq!(super::text(&piped.stderr), "✓ Read  Read ran\n");
}

#[test]
fn a_chat_takes_prompts_and_commands() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Talk"]);
    let mut terminal = Terminal::run(&home, 80, &["chat", &id]);
    terminal.until(MARK);
    // Before the first prompt no session is open that could refuse it.
    enter(&mut terminal, "/mode dance");
    terminal.until("mode is one of default, plan");
    terminal.until(MARK);
    enter(&mut terminal, "/mode plan");
    terminal.until("Changed");
    terminal.until(MARK);
    terminal.type_in("first\\\r");
    enter(&mut terminal, "line two");
    terminal.until("echo: first");
    terminal.until(MARK);
    enter(&mut terminal, "second");
    terminal.until("echo: second");
    terminal.until(MARK);
    enter(&mut terminal, "/edit 2 zwei");
    terminal.until("echo: zwei");
    terminal.until("Replaced 1 turn");
    terminal.until(MARK);
    enter(&mut terminal, "/undo");
    terminal.until("is the head again");
    terminal.until(MARK);
    enter(&mut terminal, "/rewind");
    terminal.until("2  second");
    terminal.until(MARK);
    enter(&mut terminal, "/rewind 1");
    terminal.until("Went back to after turn 1.");
    terminal.until(MARK);
    enter(&mut terminal, "[[recall]]");
    let recalled = terminal.until("\"user\":\"first\\nline two\"");
    assert!(!recalled.contains("second"), "{recalled:?}");
    terminal.until(MARK);
    enter(&mut terminal, "/nonsense");
    terminal.until("unknown command: /nonsense");
    terminal.until(MARK);
    enter(&mut terminal, "/help");
    terminal.until("/rewind [TURN]");
    terminal.until(MARK);
    enter(&mut terminal, "/fork 1");
    terminal.until(&format!("a branch of {}", &id[..8]));
    terminal.until(MARK);
    enter(&mut terminal, "only here");
    terminal.until("echo: only here");
    terminal.until(MARK);
    terminal.type_in("\x04");
    let (shown, code) = terminal.ended();
    assert_eq!(code, Some(0), "{shown:?}");
    // The branch is another conversation.
    assert!(!home.said(&["history", &id]).contains("only here"));
    // What was typed is there the next time, and nobody else's to read.
    let history = home.path().join("data/chat-history");
    assert_eq!(
        fs::metadata(&history).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(fs::read_to_string(&history).unwrap().contains("only here"));
    let mut terminal = Terminal::run(&home, 80, &["chat", &id]);
    terminal.until(MARK);
    enter(&mut terminal, "\x1b[A");
    terminal.until("echo: only here");
    terminal.until(MARK);
    terminal.type_in("\x04");
    let (_, code) = terminal.ended();
    assert_eq!(code, Some(0));
}

/// The agent's commands are known once its session is open, and it is opened to know them.
#[test]
fn an_unknown_command_is_never_sent() {
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]);
    terminal.until("/exit or Ctrl-D leaves");
    terminal.until(MARK);
    enter(&mut terminal, "/nonsense");
    terminal.until("unknown command: /nonsense");
    terminal.until(MARK);
    enter(&mut terminal, "first");
    terminal.until("echo: first");
    terminal.until(MARK);
    enter(&mut terminal, "/fork");
    // The title came with the first prompt.
    terminal.until("first (fork)");
    terminal.until("a branch of");
    terminal.until(MARK);
    enter(&mut terminal, "/nonsense");
    terminal.until("unknown command: /nonsense");
    terminal.until(MARK);
    enter(&mut terminal, "/exit");
    let (shown, code) = terminal.ended();
    assert_eq!(code, Some(0), "{shown:?}");
    assert!(!home.said(&["history", "."]).contains("nonsense"));
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "."]);
    terminal.until("Ctrl-D leaves");
    terminal.until(MARK);
    terminal.type_in("/quit\r");
    assert_eq!(terminal.ended().1, Some(0));
}

/// Advice is what can be typed where it is read.
#[test]
fn a_chat_names_its_own_commands() {
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]);
    terminal.until(MARK);
    enter(&mut terminal, "one");
    terminal.until("echo: one");
    terminal.until(MARK);
    enter(&mut terminal, "/edit 1 two");
    terminal.until("Undo with: /undo");
    terminal.until(MARK);
    enter(&mut terminal, "/undo");
    terminal.until("/fork cp.");
    terminal.until(MARK);
    enter(&mut terminal, "[[crash]]");
    terminal.until("continue with: /continue");
    terminal.until(MARK);
    terminal.type_in("\x04");
    let (shown, code) = terminal.ended();
    assert_eq!(code, Some(0), "{shown:?}");
}

/// What a chat advises can be typed in it, and no word is taken that means nothing.
#[test]
fn a_chat_advises_what_can_be_typed_in_it() {
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]);
    terminal.until("/exit or Ctrl-D leaves");
    terminal.until(MARK);
    let mut told = |line: &str| {
        enter(&mut terminal, line);
        terminal.until(MARK)
    };
    told("one");
    for (line, words) in [
        ("/edit", "hint: type the new prompt: /edit TURN TEXT"),
        ("/rewind zero", "hint: /rewind lists the turns"),
        ("/fork zero", "hint: /rewind lists the turns"),
        ("/rewind 9", "hint: /rewind lists the turns"),
        ("/edit 9 text", "hint: /rewind lists the turns"),
        ("/continue", "hint: send a prompt: Continue"),
        ("[[limit 3600]]", "/continue --at-reset"),
        ("/continue --at-reset", "Cancel with: /continue --cancel"),
        ("/continue --cancel", "Cancelled the scheduled continuation."),
        ("/continue --at +1h --text 'Now go on'", "Continues at "),
        ("/continue --at soon", "hint: give a time of day"),
        ("/undo 3", "error: unexpected argument: 3"),
        ("/history 3", "hint: type /history alone"),
        ("/exit now", "error: unexpected argument: now"),
    ] {
        let told = told(line);
        assert!(told.contains(words), "{line}: {told}");
        assert!(
            !told.contains("sessionctl") && !told.contains("command line"),
            "{line}: {told}"
        );
    }
    terminal.type_in("\x04");
    let (shown, code) = terminal.ended();
    assert_eq!(code, Some(0), "{shown:?}");
}

/// Where the user is and how to leave is said once, and words are not torn.
#[test]
fn a_chat_begins_with_three_lines_and_tears_no_word() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "A talk"]);
    home.said(&["send", &id, "hello"]);
    for arguments in [&["chat", "."][..], &["chat", &id], &["chat", "talk"]] {
        let mut terminal = Terminal::run_plain(&home, 80, arguments);
        let begun = terminal.until("Ctrl-D leaves");
        let lines: Vec<&str> = begun.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 5, "three, and what was said last: {begun:?}");
        assert_eq!(begun.matches("A talk").count(), 1, "{begun:?}");
        terminal.until(MARK);
        terminal.type_in("\x04");
        terminal.ended();
    }
    let mut terminal = Terminal::run_plain(&home, 40, &["chat", &id]);
    terminal.until("leaves");
    terminal.until(MARK);
    enter(&mut terminal, "/help");
    let shown = terminal.until(MARK);
    let mut lines = shown.lines().filter(|line| !line.contains('\x1b'));
    let too_long = lines.find(|line| line.trim_end().chars().count() > 40);
    assert_eq!(too_long, None, "{shown}");
    terminal.type_in("\x04");
    terminal.ended();
}

/// The agent's own message about a limit is its answer; the error after it must add something.
#[test]
fn a_limit_is_said_once() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let output = home.run(&["send", &id, "[[limit 3600]]"]);
    assert_eq!(output.status.code(), Some(7));
    let said = super::text(&output.stdout);
    let told = super::text(&output.stderr);
    assert!(
        !said.trim().is_empty() && !told.contains(said.trim()),
        "{said} {told}"
    );
    assert!(
        told.starts_with("error: usage limit; the limit resets at ") && told.contains("--at-reset"),
        "{told}"
    );
}

/// The warning about the built-in agent is printed only before a conversation's first turn.
#[test]
fn the_echo_warning_is_for_new_conversations() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let warned = || {
        let (shown, code) = Terminal::run_plain(&home, 200, &["send", &id, "hello"]).ended();
        assert_eq!(code, Some(0), "{shown}");
        shown.contains("no coding agent is installed")
    };
    assert_eq!([warned(), warned()], [true, false]);
}

/// Both streams in one file, as `2>&1` has them.
#[test]
fn a_lost_daemon_is_told_on_a_line_of_its_own() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let (mut both, end) = std::io::pipe().unwrap();
    let mut command = home.command(&["send", &id, "[[say Begun]] [[hang]]"]);
    let mut child = command
        .stdout(end.try_clone().unwrap())
        .stderr(end)
        .spawn()
        .unwrap();
    // It holds further ends of the pipe.
    drop(command);
    let mut said = [0; 5];
    both.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"Begun");
    kill_daemon(&home);
    let mut said = String::new();
    both.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.starts_with("\nthe daemon closed the connection"), "{said}");
}

#[test]
fn a_chat_says_what_it_attached_and_what_it_did_not() {
    let home = Home::new();
    fs::write(home.path().join("notes.md"), "The secret is 42.\n").unwrap();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]);
    terminal.until(MARK);
    enter(&mut terminal, "see @notes.md, @missing and @a/b.rs");
    terminal.until("no such file: missing, a/b.rs; sent as text");
    terminal.until("attached: notes.md (18 B)");
    terminal.until("echo: see @notes.md");
    terminal.until(MARK);
    let file = home.path().canonicalize().unwrap().join("notes.md");
    enter(&mut terminal, "/history");
    terminal.until(&format!("@{}", file.display()));
    terminal.until(MARK);
    terminal.type_in("\x04");
    let (shown, code) = terminal.ended();
    assert_eq!(code, Some(0), "{shown:?}");
    // So does the text of an editor.
    let editor = "write() { printf 'now @notes.md' > \"$1\"; }; write";
    let mut command = home.command(&["chat", "."]);
    let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1").env("EDITOR", editor));
    terminal.until("Ctrl-D leaves");
    terminal.until(MARK);
    enter(&mut terminal, "/edit");
    terminal.until("attached: notes.md (18 B)");
    terminal.until("echo: now @notes.md");
    terminal.until(MARK);
    terminal.type_in("\x04");
    let (shown, code) = terminal.ended();
    assert_eq!(code, Some(0), "{shown:?}");
    let history = home.said(&["history", "."]);
    assert!(
        !history.contains("<context") && !history.contains("secret"),
        "{history}"
    );
    assert!(
        home.said(&["--json", "history", "."])
            .contains("The secret is 42.")
    );
}

#[test]
fn ctrl_c_cancels_the_turn_and_a_second_one_leaves() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run(&home, 80, &["chat", &id]);
    terminal.until(MARK);
    enter(&mut terminal, "[[say Begun]] [[hang]]");
    terminal.until("Begun");
    terminal.type_in("\x03");
    terminal.until("the turn was cancelled");
    terminal.until(MARK);
    // A turn that does not end for it.
    enter(&mut terminal, "[[say Still]] [[deaf]] [[hang]]");
    terminal.until("Still");
    terminal.type_in("\x03");
    terminal.until("Ctrl-C again leaves at once");
    terminal.type_in("\x03");
    let (shown, code) = terminal.ended();
    assert!(
        shown.contains(&format!("sessionctl attach {}", &id[..8])),
        "{shown:?}"
    );
    assert_eq!(code, Some(0), "{shown:?}");
    home.said(&["cancel", &id]);
    // At the prompt two leave as well.
    let mut terminal = Terminal::run(&home, 80, &["chat", &id]);
    // The last prompt, which is shown first, has the mark too.
    terminal.until("Ctrl-D leaves");
    terminal.until(MARK);
    terminal.type_in("\x03");
    terminal.until("Ctrl-C again");
    terminal.until(MARK);
    terminal.type_in("\x03");
    let (shown, code) = terminal.ended();
    assert_eq!(code, Some(0), "{shown:?}");
}

#[test]
fn a_chat_asks_attaches_and_outlives_its_daemon() {
    let home = Home::new();
    let notes = home.path().join("notes.md");
    fs::write(&notes, "The secret is 42.\n").unwrap();
    let mut terminal = Terminal::run(&home, 80, &["chat", "--new"]);
    terminal.until(MARK);
    enter(&mut terminal, "see @notes.md, please");
    terminal.until("echo: see @notes.md, please");
    terminal.until(MARK);
    assert!(
        home.said(&["history", ".", "--json"])
            .contains("The secret is 42.")
    );
    enter(&mut terminal, "[[ask Really?]] [[say Done it]]");
    terminal.until(ASKED);
    terminal.type_in("y");
    terminal.until("Done it");
    terminal.until(MARK);
    enter(&mut terminal, "[[say Begun]] [[hang]]");
    terminal.until("Begun");
    kill_daemon(&home);
    terminal.until("the turn was cut short; continuing it");
    terminal.until("echo: ");
    terminal.until(MARK);
    kill_daemon(&home);
    enter(&mut terminal, "after");
    terminal.until("echo: after");
    terminal.until(MARK);
    terminal.type_in("\x04");
    let (shown, code) = terminal.ended();
    assert_eq!(code, Some(0), "{shown:?}");
}

#[test]
fn files_and_standard_input_are_part_of_a_prompt() {
    let home = Home::new();
    fs::write(home.path().join("a.txt"), "of the file\n").unwrap();
    let mut command = home.command(&["send", "--new", "--file", "a.txt", "look:", "-"]);
    command.stdin(fs::File::open(home.path().join("a.txt")).unwrap());
    let output = command.output().unwrap();
    let answer = super::text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(answer, "echo: look:\n\nof the file\n");
    let history = home.said(&["history", ".", "--json"]);
    assert!(history.contains("a.txt\\\">\\nof the file"), "{history}");
    let missing = home.run(&["send", ".", "--file", "none", "x"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
}

#[test]
fn a_chat_needs_a_terminal() {
    let home = Home::new();
    home.printed(&["chat", "--new"], 2);
}

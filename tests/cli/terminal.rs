//! The command line at a terminal, with a person who types.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::history;
use super::home::Home;
use super::printed::check_seen;
use super::stub::{ID, Stub};
pub(crate) use crate::pty::Terminal;
use crate::screen::Screen;

/// What Ctrl-C sends.
const CTRL_C: &str = "\x03";

/// What is shown after a key that does nothing.
const NO_SUCH_KEY: &str = "Other keys do nothing.";

/// How a letter vanishes.
const TAKEN_BACK: &str = "\u{8} \u{8}";

/// What is shown while a cancelled turn has not ended.
const LEAVES_NEXT: &str = "Ctrl-C again leaves at once";

/// What Ctrl-D sends.
const CTRL_D: &str = "\x04";

impl Terminal {
    /// Runs a command of this home at a terminal of its own, so many columns wide.
    pub(crate) fn run(home: &Home, columns: u16, arguments: &[&str]) -> Self {
        Self::of(columns, &home.command(arguments))
    }

    /// The same without colours.
    pub(crate) fn run_plain(home: &Home, columns: u16, arguments: &[&str]) -> Self {
        Self::of(columns, home.command(arguments).env("NO_COLOR", "1"))
    }

    /// The chat that was started, once it waits for a line. A last prompt, which is shown before, has the mark too.
    pub(crate) fn waiting(mut self) -> Self {
        self.until("Ctrl-D leaves");
        self.until(MARK);
        self
    }

    /// Types a line into a chat that waits for it. What is shown after this is no echo of it.
    pub(crate) fn enter(&mut self, line: &str) {
        self.type_in(&format!("{line}\r"));
        self.until("\x1b[?2004l");
    }

    /// Types a line into a chat, which has to show these words, and then waits for the next line.
    #[track_caller]
    pub(crate) fn says(&mut self, line: &str, words: &str) -> String {
        self.enter(line);
        let shown = self.until(words);
        self.until(MARK);
        shown
    }

    /// Types a line into a chat, and checks what a person sees before the next line is asked for; see [`check_seen`].
    #[track_caller]
    pub(crate) fn check_answer(&mut self, line: &str) -> String {
        self.enter(line);
        self.check_before_line(&format!("chat, after {line}"), 80)
    }

    /// Checks what a person sees from here on before a chat asks for the next line; see [`check_seen`].
    #[track_caller]
    pub(crate) fn check_before_line(&mut self, what: &str, columns: usize) -> String {
        let mut screen = Screen::new(columns);
        screen.take(self.until(MARK).as_bytes());
        let seen = screen.text();
        let lines = seen
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with(MARK.trim_end()));
        let seen = lines.collect::<Vec<_>>().join("\n");
        check_seen(what, &seen);
        seen
    }

    /// Leaves a chat that waits for a line.
    #[track_caller]
    pub(crate) fn leave(mut self) {
        self.type_in(CTRL_D);
        self.exits(0);
    }

    /// What is shown up to the end, which has to have this exit code.
    #[track_caller]
    pub(crate) fn exits(self, expected: i32) -> String {
        let (shown, code) = self.ended();
        assert_eq!(code, Some(expected), "{shown:?}");
        shown
    }

    /// Checks what a person sees at the end, and the exit code; see [`check_seen`].
    #[track_caller]
    pub(crate) fn check_end(self, what: &str, expected: i32) {
        let (seen, code) = self.seen();
        assert_eq!(code, Some(expected), "{seen}");
        check_seen(what, &seen);
    }
}

/// What the prompt of `chat` begins with.
pub(crate) const MARK: &str = "› ";

/// The end of the last line of a question.
pub(crate) const ASKED: &str = "? helps";

/// A command as it is run by this script of a shell, which has its words as `"$0" "$@"`.
pub(crate) fn in_shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(command.get_program());
    shell.args(command.get_args());
    shell.current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        value.map(|value| shell.env(name, value));
    }
    shell.env("NO_COLOR", "1");
    shell
}

#[test]
fn a_key_answers_a_question_and_others_do_nothing() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let prompt = "[[ask Really?]] [[say Done it]]";
    for (key, allowed) in [("y", true), ("n", false)] {
        let mut terminal = Terminal::run(&home, 80, &["send", &id, prompt]);
        terminal.until("? Really?");
        terminal.until(ASKED);
        // No keys of this question, the arrow up, and text that is pasted.
        terminal.type_in("9aq\r\x1b[A\x1b[200~yes\x1b[201~?");
        terminal.until(NO_SUCH_KEY);
        terminal.type_in(key);
        let shown = terminal.exits(0);
        assert_eq!(shown.contains("Done it"), allowed, "{key:?}: {shown:?}");
    }
}

/// A letter that was typed by mistake does not stand in the way of the key that answers, whether the user takes it back or waits.
#[test]
fn what_is_typed_at_a_question_can_be_taken_back() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let prompt = "[[ask Really?]] [[say Done it]]";
    for taken_back in ["x\x7f", "xyes\x7f\x7f\x7f\x7f\x7f", "x never mind\x15", "x"] {
        let mut terminal = Terminal::run(&home, 80, &["send", &id, prompt]);
        terminal.until(ASKED);
        terminal.type_in(taken_back);
        terminal.until(TAKEN_BACK);
        terminal.type_in("y");
        let shown = terminal.exits(0);
        assert!(shown.contains("Done it"), "{taken_back:?}: {shown:?}");
    }
}

/// The keys come from the terminal, whatever standard input is.
#[test]
fn a_question_about_a_piped_prompt_is_answered_at_the_terminal() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let script = "echo '[[ask Really?]] [[say Done it]]' | \"$0\" \"$@\"";
    let mut terminal = Terminal::of(80, &in_shell(script, &home.command(&["send", &id, "-"])));
    terminal.until(ASKED);
    terminal.type_in("y");
    let shown = terminal.exits(0);
    assert!(shown.contains("Done it"), "{shown:?}");
}

/// A word is read to its end: a letter in it is no key.
#[test]
fn a_typed_word_answers_only_as_a_whole() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for (words, allowed) in [
        (&["maybe", "yes"][..], true),
        (&["nothing", "no"], false),
        (&["anything", "deny"], false),
    ] {
        let mut terminal = Terminal::run(&home, 80, &["send", &id, "[[ask Really?]] [[say Done it]]"]);
        terminal.until(ASKED);
        terminal.type_in(&format!("{}\r", words[0]));
        terminal.until(NO_SUCH_KEY);
        terminal.type_in(&format!("{}\r", words[1]));
        let (shown, code) = terminal.ended();
        assert_eq!(shown.contains("Done it"), allowed, "{words:?}: {shown:?}");
        assert_eq!(code, Some(0), "{shown:?}");
    }
}

#[test]
fn what_was_typed_before_the_question_is_no_answer_to_it() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let prompt = "[[say Working]] [[tool wait {}]] [[stream 10 20]] [[ask Really?]] [[say Done it]]";
    let mut terminal = Terminal::run(&home, 80, &["send", &id, prompt]);
    terminal.until("Working");
    terminal.type_in("yyy\ny");
    terminal.until(ASKED);
    terminal.type_in("n");
    let (shown, _) = terminal.ended();
    assert!(!shown.contains("Done it"), "{shown:?}");
}

#[test]
fn the_first_ctrl_c_cancels_the_turn_and_the_second_leaves() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run(&home, 80, &["send", &id, "[[say Begun]] [[hang]]"]);
    terminal.until("Begun");
    terminal.type_in(CTRL_C);
    terminal.exits(1);
    assert_eq!(home.shown(&id)["state"], "idle");

    let mut terminal = Terminal::run(&home, 80, &["send", &id, "[[say Begun]] [[deaf]] [[hang]]"]);
    terminal.until("Begun");
    terminal.type_in(CTRL_C);
    terminal.until(LEAVES_NEXT);
    terminal.type_in(CTRL_C);
    let shown = terminal.exits(1);
    assert!(
        shown.contains(&format!("sessionctl attach {}", &id[..8])),
        "{shown:?}"
    );
    home.said(&["cancel", &id]);
}

#[test]
fn no_escape_sequence_of_a_title_or_the_agent_reaches_the_terminal() {
    let home = Home::new();
    let title = "\x1b[2Jred\x07\u{9b}31m\u{202e}dne";
    let id = home.said(&["new", "--title", title]);
    let prompt = "[[say \x1b]0;owned\x07 done]] [[tool read\x1b[2J {}]]";
    // Without colours no escape sequence is this program's own.
    for arguments in [
        &["send", &id, prompt][..],
        &["ls"],
        &["show", &id],
        &["tree", &id],
        &["lineage", &id],
        &["chain", &id],
        &["show", "\x1b[2Jnone"],
    ] {
        let (shown, _) = Terminal::run_plain(&home, 40, arguments).ended();
        assert!(!shown.is_empty(), "{arguments:?}");
        // The spinner's own.
        let shown = shown.replace("\x1b[2K", "");
        let steers = |character: char| {
            character == '\u{202e}' || (character.is_control() && !"\r\n\t".contains(character))
        };
        assert!(!shown.contains(steers), "{arguments:?}: {shown:?}");
    }
}

#[test]
fn a_plan_and_what_was_used_are_shown() {
    let stub = Stub::start();
    let send = super::sessionctl(&stub.home(), &["send", ID, "think"]);
    let (seen, code) = Terminal::of(80, &in_shell("\"$0\" \"$@\"", &send)).seen();
    assert_eq!(code, Some(0), "{seen}");
    check_seen("send with a thought, a plan and a cost", &seen);
    assert!(seen.contains("12% (25k of 200k tokens) · $0.42"), "{seen}");
}

/// The time shows that it has not stopped.
#[test]
fn a_tool_that_runs_is_shown_with_the_time() {
    let stub = Stub::start();
    let mut send = super::sessionctl(&stub.home(), &["send", ID, "work"]);
    let mut terminal = Terminal::of(80, send.env("NO_COLOR", "1"));
    for seconds in ["0s", "1s"] {
        terminal.until(&format!("{seconds} Run the tests"));
    }
    terminal.type_in(CTRL_C);
    let (seen, code) = terminal.seen();
    assert_eq!(code, Some(1), "{seen}");
    // The terminal's echo of the key goes with the spinner's line.
    check_seen("send, cancelled while a tool runs", &seen);
    // So is an agent that does nothing which can be shown.
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 80, &["send", "--new", "[[hang]]"]);
    terminal.until("1s waiting for the agent");
    terminal.type_in(CTRL_C);
    let (seen, code) = terminal.seen();
    assert_eq!(code, Some(1), "{seen}");
    assert!(!seen.contains("waiting"), "{seen}");
    assert!(!seen.contains("^C"), "{seen}");
}

/// The thoughts go to the terminal, whatever becomes of the answer.
#[test]
fn no_escape_sequence_of_a_thought_reaches_the_terminal() {
    let stub = Stub::start();
    let send = super::sessionctl(&stub.home(), &["send", ID, "think"]);
    let shown = Terminal::of(80, &in_shell("\"$0\" \"$@\" | cat", &send)).exits(0);
    let shown = shown.replace("\x1b[2K", "");
    assert!(shown.contains("deep31m thought\r\n"), "{shown:?}");
    assert!(!shown.contains(['\x1b', '\u{9b}']), "{shown:?}");
}

#[test]
fn a_narrow_terminal_is_not_overrun() {
    let home = Home::new();
    let (shown, _) = Terminal::run_plain(&home, 40, &["--help"]).ended();
    for line in shown.lines() {
        // A path is not broken.
        let can_be_broken = line.trim().contains(' ');
        assert!(
            line.chars().count() <= 40 || !can_be_broken,
            "{line:?} in {shown}"
        );
    }
}

#[test]
fn history_goes_through_the_pager_that_is_asked_for() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let body = "long words ".repeat(400 * 1024 / 11);
    for text in ["first", "last"] {
        history::send(&home, &id, &format!("{text} [[say {text} reply]] {body}"));
    }
    let paged = |pager: &str| {
        let mut command = home.command(&["history", &id]);
        Terminal::of(80, command.env("NO_COLOR", "1").env("PAGER", pager)).ended()
    };
    let lines = |shown: &str| -> Vec<String> {
        let lines = shown
            .lines()
            .map(|line| line.trim_end().chars().take(20).collect::<String>());
        lines.filter(|line| line.contains("reply")).collect()
    };
    let (shown, code) = paged("sed s/^/PAGED:/");
    assert_eq!(
        (lines(&shown), code),
        (
            vec!["PAGED:first reply".to_owned(), "PAGED:last reply".to_owned()],
            Some(0)
        )
    );
    let (shown, code) = paged(" ");
    assert_eq!(
        (lines(&shown), code),
        (vec!["first reply".to_owned(), "last reply".to_owned()], Some(0))
    );
    // One who has seen enough leaves, while there is more than a pipe holds.
    let (shown, code) = paged("head -c 6 && echo ' and so on'");
    // On a busy machine a spinner was there before, which leaves the cursor in the first column.
    let shown = shown.rsplit("\x1b[2K").next().unwrap().trim_start_matches('\r');
    assert_eq!((shown, code), ("turn 1 and so on\r\n", Some(0)));
    // What cannot be started is told by the shell.
    let (_, code) = paged("/nonexistent/pager");
    assert_eq!(code, Some(0));
}

#[test]
fn a_manual_page_is_shown_by_man() {
    let folder = tempfile::tempdir().unwrap();
    let (programs, temporary) = (folder.path().join("programs"), folder.path().join("temporary"));
    for folder in [&programs, &temporary] {
        fs::create_dir(folder).unwrap();
    }
    for name in ["setsid", "sh", "cat"] {
        let path = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        symlink(
            path.iter().find(|path| path.exists()).unwrap(),
            programs.join(name),
        )
        .unwrap();
    }
    let shown = |arguments: &[&str]| {
        let mut command = super::sessionctl(folder.path(), arguments);
        command
            .env("PATH", &programs)
            .env("TMPDIR", &temporary)
            .env("NO_COLOR", "1");
        let (shown, code) = Terminal::of(80, &command).ended();
        let left: Vec<_> = fs::read_dir(&temporary).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        (shown.replace("\r\n", "\n"), code)
    };
    let page = |name: &str| super::text(&super::run(folder.path(), &["man", name]).stdout);

    let (told, code) = shown(&["man", "send"]);
    check_seen("man without man", told.strip_prefix(&page("send")).unwrap());
    assert_eq!(code, Some(0));

    let man = programs.join("man");
    let put = |script: &str| {
        fs::write(&man, script).unwrap();
        fs::set_permissions(&man, Permissions::from_mode(0o755)).unwrap();
    };
    put("#!/bin/sh\necho \"$# ${1##*/}\"\ncat \"$1\"\n");
    for (arguments, name) in [
        (&["man", "fork"][..], "sessionctl-fork"),
        (&["man"], "sessionctl"),
        (&["man", "sessiond"], "sessiond"),
    ] {
        let page = page(name);
        assert_eq!(shown(arguments), (format!("1 {name}.1\n{page}"), Some(0)));
    }
    // Who asks for JSON is a program, and a page is none.
    assert_eq!(shown(&["--json", "man", "send"]).1, Some(2));

    put("#!/bin/sh\nexit 3\n");
    let (told, code) = shown(&["man", "send"]);
    check_seen("a failing man", &told);
    assert_eq!(code, Some(1));
}

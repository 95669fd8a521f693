//! Questions and errors in the middle of the agent's words, at a terminal.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use super::home::Home;
use super::printed::check_seen;
use super::printed::{check_shown, commands};
use super::stub::{ID, Stub};
use super::terminal::{ASKED, MARK, Terminal, in_shell};
use super::{run, sessionctl, text};

/// How the line about a question that needs no answer any more begins.
const WITHDRAWN: &str = "question withdrawn";

/// What is shown when a command starts the next daemon.
const STARTS_AGAIN: &str = "starting it again";

fn plain(stub: &Stub) -> Terminal {
    let mut command = sessionctl(&stub.home(), &["send", ID, "split"]);
    Terminal::of(80, command.env("NO_COLOR", "1"))
}

/// Sends a prompt whose agent asks "Really?", and waits for the question.
fn at_question(home: &Home, id: &str) -> Terminal {
    let mut terminal = Terminal::run_plain(home, 80, &["send", id, "[[ask Really?]] [[say Done it]]"]);
    terminal.until(ASKED);
    terminal
}

/// The agent may have gone on before this is told that the question was answered.
#[test]
fn an_answered_question_splits_no_word() {
    let stub = Stub::start();
    let mut terminal = plain(&stub);
    terminal.until(ASKED);
    terminal.type_in("y");
    let (shown, code) = terminal.seen();
    assert!(shown.contains("\none word\nmore\n"), "{shown:?}");
    // Whoever typed the answer knows of it, and is not told who answered.
    assert!(!shown.contains("sessionctl"), "{shown:?}");
    assert_eq!(code, Some(0), "{shown:?}");

    let mut terminal = plain(&stub);
    terminal.until(ASKED);
    let answered = run(&stub.home(), &["answer", ID, "split", "--question", "int-1"]);
    assert_eq!(answered.status.code(), Some(0), "{answered:?}");
    let (shown, code) = terminal.seen();
    assert!(shown.contains("\none word\n"), "{shown:?}");
    assert!(shown.contains("sessionctl"), "{shown:?}");
    assert_eq!(code, Some(0), "{shown:?}");
}

/// What failed because it was cancelled is named as when it began.
#[test]
fn a_tool_that_is_cancelled_at_its_question_is_named() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = at_question(&home, &id);
    terminal.type_in("\x03");
    let (shown, code) = terminal.seen();
    assert_eq!(code, Some(1), "{shown}");
    // The agent may say that its tool was cancelled before the daemon withdraws the question, or after it.
    let (mut withdrawn, rest): (Vec<&str>, Vec<&str>) =
        shown.lines().partition(|line| line.starts_with(WITHDRAWN));
    assert_eq!(withdrawn.len(), 1, "{shown}");
    withdrawn.extend(rest);
    check_seen("cancelling at a question", &withdrawn.join("\n"));
    let after = home.shown(&id);
    assert_eq!(
        (&after["state"], &after["interrupts"]),
        (&json!("idle"), &json!([]))
    );
}

/// The next daemon is started, and the turn that died with its daemon is continued.
#[test]
fn a_turn_whose_daemon_dies_is_picked_up() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["send", &id, "[[say Begun]] [[hang]]"]);
    terminal.until("Begun");
    home.kill_daemon();
    terminal.until(STARTS_AGAIN);
    terminal.check_end("send whose daemon is killed", 0);
    let history = home.said(&["history", &id]);
    assert_eq!(history.matches("[[hang]]").count(), 1, "{history}");
}

/// The question of a turn whose daemon died is asked again, and the answer continues the turn.
#[test]
fn a_question_whose_daemon_dies_is_asked_again() {
    let home = Home::new();
    for chats in [false, true] {
        let id = home.said(&["new"]);
        let prompt = "[[ask Really?]] [[say Done it]]";
        let mut terminal = match chats {
            true => Terminal::run_plain(&home, 80, &["chat", &id]).waiting(),
            false => Terminal::run_plain(&home, 80, &["send", &id, prompt]),
        };
        if chats {
            terminal.enter(prompt);
        }
        terminal.until(ASKED);
        home.kill_daemon();
        terminal.until("the daemon answers again");
        let again = terminal.until(ASKED);
        assert!(
            again.contains("? Really?") && !again.contains("sessionctl"),
            "{again:?}"
        );
        terminal.type_in("y");
        match chats {
            true => {
                terminal.until("context ");
                terminal.until(MARK);
                terminal.leave();
            }
            false => {
                terminal.exits(0);
            }
        }
        let state: Value = serde_json::from_str(&home.said(&["show", &id, "--json"])).unwrap();
        assert_eq!(
            state["conversation"]["interrupts"],
            Value::from(Vec::<Value>::new())
        );
        assert_eq!(state["conversation"]["cutShort"], Value::Null, "{state}");
    }
}

/// A chat asks what was left open, and shows what the answer brings, however fast that comes.
#[test]
fn a_chat_asks_what_was_left_open_and_shows_the_turn() {
    let home = Home::new();
    for command in ["", "/answer", "/continue"] {
        let id = home.said(&["new"]);
        assert_eq!(home.run(&["send", &id, "[[ask Really?]]"]).status.code(), Some(8));
        home.kill_daemon();
        let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]);
        terminal.until(ASKED);
        if !command.is_empty() {
            // The question stays open, and is asked again.
            terminal.type_in("\x03");
            terminal.until("answer it later: /answer");
            terminal.until(MARK);
            terminal.enter(command);
            terminal.until(ASKED);
        }
        terminal.type_in("y");
        terminal.until("Before the session was interrupted");
        terminal.until("context ");
        terminal.until(MARK);
        terminal.leave();
    }
}

/// After a refusal the output names the command that continues, and that command works.
#[test]
fn a_refusal_after_the_daemon_died_ends_the_turn() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["send", &id, "[[ask Really?]]"]);
    terminal.until(ASKED);
    home.kill_daemon();
    terminal.until("the daemon answers again");
    terminal.until(ASKED);
    terminal.type_in("n");
    let shown = terminal.exits(1).replace('\r', "");
    let hint = format!("sessionctl send {} 'Continue'", &id[..8]);
    assert_eq!(commands(&shown), [&hint], "{shown:?}");
    home.said_pasted(&hint);
}

/// Without a terminal the command that answers is named, by `continue` too.
#[test]
fn a_question_whose_daemon_dies_is_left_open_without_a_terminal() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let left = home.run(&["send", &id, "[[ask Really?]]"]);
    assert_eq!(left.status.code(), Some(8), "{left:?}");
    home.kill_daemon();
    let refused = home.printed(&["continue", &id], 5);
    let answers = commands(&refused);
    assert_eq!(answers, [answers[0]; 2]);
    home.said_pasted(answers[0]);
}

/// Whoever waits for another client's answer waits on when the daemon has died, and follows the turn that the answer brings.
#[test]
fn a_question_whose_daemon_dies_is_waited_for() {
    let home = Home::new();
    for (answer, code) in [("allow", 0), ("deny", 1)] {
        let id = home.said(&["new"]);
        let mut child = home
            .command(&["send", &id, "[[ask Really?]]", "--on-question", "wait"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut until = |words: &str| {
            let found = told
                .by_ref()
                .map(Result::unwrap)
                .find(|line| line.contains(words));
            assert!(found.is_some(), "{words} is told");
        };
        until("answer it");
        home.kill_daemon();
        until("the daemon answers again");
        until("answer it");
        home.said(&["answer", &id, answer]);
        let output = child.wait_with_output().unwrap();
        check_shown(
            &["send", &id, "[[ask Really?]]", "--on-question", "wait"],
            &output,
            code,
        );
    }
}

/// A daemon that was stopped on purpose stays stopped.
#[test]
fn a_stopped_daemon_is_not_started_again() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["send", &id, "[[say Begun]] [[hang]]"]);
    terminal.until("Begun");
    home.said(&["stop"]);
    let (shown, code) = terminal.ended();
    assert_ne!(code, Some(0), "{shown:?}");
    let status = home.run(&["--no-start", "ls"]);
    assert_eq!(status.status.code(), Some(3), "{shown:?}");
}

/// More lines than a question shows.
fn long() -> String {
    (0..60).map(|line| format!("line {line}\n")).collect()
}

/// A terminal at which the agent asks whether it may write a file.
fn asked_to_write(home: &Home, text: &str, pager: &str) -> Terminal {
    let id = home.said(&["new"]);
    let prompt = format!("[[ask Edit a.txt?]] [[write a.txt {text}]] [[say Written]]");
    let mut command = home.command(&["send", &id, &prompt]);
    let mut terminal = Terminal::of(80, command.env("PAGER", pager));
    terminal.until(ASKED);
    terminal
}

/// Who allows a change must have seen all of it; who refuses it need not.
#[test]
fn a_change_that_is_not_shown_whole_is_read_before_it_is_allowed() {
    let home = Home::new();
    let asked = || asked_to_write(&home, &long(), "sed s/^/PAGED:/");
    let mut terminal = asked();
    terminal.type_in("n");
    assert!(!terminal.exits(0).contains("PAGED:"));
    // Who reads it first is asked once.
    let mut terminal = asked();
    terminal.type_in("d");
    terminal.until("line 59");
    terminal.until(ASKED);
    terminal.type_in("y");
    terminal.exits(0);
    assert_eq!(
        std::fs::read_to_string(home.path().join("a.txt")).unwrap(),
        long()
    );
    std::fs::remove_file(home.path().join("a.txt")).unwrap();
    let file = home.path().join("a.txt");
    let mut terminal = asked();
    terminal.type_in("y");
    terminal.until("line 59");
    terminal.until(ASKED);
    assert!(!file.exists());
    terminal.type_in("y");
    terminal.exits(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), long());
}

/// The question outlives the command that met it.
#[test]
fn answer_shows_the_question_and_asks() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let prompt = r#"[[ask Run it?]] [[tool Bash {"command":"make\nmake install"}]] [[say Done]]"#;
    let asked = home.run(&["send", &id, prompt]);
    assert_eq!(asked.status.code(), Some(8));
    let told = text(&asked.stderr);
    assert!(told.contains("    make\n    make install\n"), "{told}");
    // Whoever leaves cancels nothing.
    let mut terminal = Terminal::run(&home, 80, &["answer", &id]);
    terminal.until(ASKED);
    terminal.type_in("\x03");
    terminal.exits(1);
    assert_eq!(home.shown(&id)["interrupts"].as_array().unwrap().len(), 1);
    let mut terminal = Terminal::run(&home, 80, &["answer", &id]);
    let shown = terminal.until(ASKED);
    assert!(shown.contains("make install"), "{shown:?}");
    terminal.type_in("y");
    terminal.until("Done");
    terminal.exits(0);
}

/// A person who answers in one command sees the question, and can allow only what was shown whole.
#[test]
fn an_answer_in_a_command_shows_what_it_is_about() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let asks = |prompt: &str| {
        let asked = home.run(&["send", &id, prompt]);
        assert_eq!(asked.status.code(), Some(8), "{asked:?}");
    };
    let at = |answer: &str| {
        let mut command = home.command(&["--quiet", "answer", &id, answer]);
        Terminal::of(80, command.env("NO_COLOR", "1").env("PAGER", "sed s/^/PAGED:/"))
    };
    let command = r#"[[ask Run it?]] [[tool Bash {"command":"make\nmake install"}]] [[say Done]]"#;
    let change = format!("[[ask Edit a.txt?]] [[write a.txt {}]] [[say Written]]", long());
    for (prompt, answer) in [
        (command, "allow"),
        (command, r#"{"outcome":"cancelled"}"#),
        (&change, "deny"),
    ] {
        asks(prompt);
        let shown = at(answer).exits(0);
        let is_whole = prompt == command;
        assert_eq!(shown.contains("    make install\r\n"), is_whole, "{shown:?}");
        assert_eq!(shown.contains("+ line 0\r\n"), !is_whole, "{shown:?}");
        assert!(!shown.contains("line 59"), "{shown:?}");
        // The turn ends in its own time.
        home.run(&["--quiet", "cancel", &id]);
    }
    let file = home.path().join("a.txt");
    for answer in ["allow", r#"{"outcome":"selected", "optionId":"allow_once"}"#] {
        asks(&change);
        let mut terminal = at(answer);
        terminal.until(ASKED);
        assert_eq!(home.shown(&id)["interrupts"].as_array().unwrap().len(), 1);
        assert!(!file.exists());
        terminal.type_in("y");
        terminal.until("PAGED:");
        terminal.until("line 59");
        terminal.until(ASKED);
        terminal.type_in("y");
        terminal.exits(0);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), long());
        std::fs::remove_file(&file).unwrap();
    }
}

/// A long line, many lines, a long title or a long folder push the start of the question off the screen. The first `y` then
/// opens the pager.
#[test]
fn what_left_the_screen_is_read_before_it_is_allowed() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let wide = format!("echo first; echo {}", "x".repeat(5_000));
    let tall = format!("echo first\\n{}", "echo next\\n".repeat(30));
    let bash =
        |command: &str| format!(r#"[[ask Run it?]] [[tool Bash {{"command":"{command}"}}]] [[say Done]]"#);
    let titled = format!("[[ask first {}]] [[say Done]]", "long title ".repeat(300));
    let folder = format!("first/{}", "long/".repeat(500));
    let placed = format!(r#"[[ask Run it?]] [[tool Bash {{"command":"ls","cwd":"{folder}"}}]] [[say Done]]"#);
    for prompt in [bash(&wide), bash(&tall), titled, placed] {
        let paged = |arguments: &[&str]| {
            let mut command = home.command(arguments);
            Terminal::of(80, command.env("NO_COLOR", "1").env("PAGER", "sed s/^/PAGED:/"))
        };
        let answers = [
            &["send", &id, &prompt][..],
            &["answer", &id, "allow"],
            &["answer", &id, "y"],
        ];
        for arguments in answers {
            if arguments[0] == "answer" {
                assert_eq!(home.run(&["send", &id, &prompt]).status.code(), Some(8));
            }
            let mut terminal = paged(arguments);
            terminal.until(ASKED);
            terminal.type_in("y");
            let read = terminal.until(ASKED);
            let paged = read
                .lines()
                .any(|line| line.contains("PAGED:") && line.contains("first"));
            assert!(paged, "{arguments:?}: {read}");
            terminal.type_in("y");
            terminal.exits(0);
        }
    }
    // What fits is allowed at once.
    let tall = format!("echo first\\n{}", "echo next\\n".repeat(10));
    assert_eq!(home.run(&["send", &id, &bash(&tall)]).status.code(), Some(8));
    Terminal::run_plain(&home, 80, &["answer", &id, "allow"]).exits(0);
}

/// An error names text that is not an answer. The key for help prints no error.
#[test]
fn what_was_not_understood_is_named() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = at_question(&home, &id);
    terminal.type_in("?");
    let helped = terminal.until("Other keys do nothing.");
    assert!(!helped.contains("no answer"), "{helped}");
    terminal.type_in("perhaps\r");
    terminal.until("perhaps is not one of the answers");
    terminal.until("Other keys do nothing.");
    terminal.type_in("y");
    terminal.exits(0);
}

/// A key that was typed just before answers nothing either.
#[test]
fn ctrl_d_leaves_the_question_open() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let answer = format!("sessionctl answer {}", &id[..8]);
    for (arguments, typed, code) in [
        (&["send", &id, "[[ask Really?]] [[say Done it]]"][..], "y\x04", 8),
        (&["answer", &id], "\x04", 8),
        (&["attach", &id], "\x04", 8),
        (&["chat", &id], "ye\x04", 0),
    ] {
        let mut terminal = Terminal::run_plain(&home, 80, arguments);
        terminal.until(ASKED);
        terminal.type_in(typed);
        let shown = terminal.exits(code).replace('\r', "");
        assert_eq!(commands(&shown), [&answer], "{arguments:?}: {shown}");
        // Leaving a chat is no failure.
        assert_eq!(shown.contains("error: "), code != 0, "{arguments:?}: {shown}");
        let open = home.shown(&id)["interrupts"].clone();
        assert_eq!(open.as_array().unwrap().len(), 1, "{arguments:?}: {shown}");
        if arguments[0] == "send" {
            let (_, told) = shown.split_once("error: ").unwrap();
            check_seen("send, after Ctrl-D at the question", told);
        }
    }
    home.said(&["answer", &id, "allow"]);
}

/// A person who is asked sees it, also if only results are wanted; nothing else is shown.
#[test]
fn a_question_is_shown_although_the_rest_is_quiet() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let prompt = "[[ask Really?]] [[say Done it]]";
    let mut terminal = Terminal::run_plain(&home, 80, &["--quiet", "send", &id, prompt]);
    let before = terminal.until("? Really?");
    terminal.until(ASKED);
    terminal.type_in("?");
    terminal.until("Other keys do nothing.");
    terminal.type_in("y");
    let shown = terminal.exits(0);
    assert!(shown.contains("Done it"), "{shown:?}");
    assert!(
        !format!("{before}{shown}").contains("waiting for the agent"),
        "{before:?} {shown:?}"
    );
}

/// The file gets the answer only.
#[test]
fn a_change_is_read_at_the_terminal_when_the_answer_goes_to_a_file() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let prompt = "[[ask Edit a.txt?]] [[write a.txt one\ntwo\n]] [[say Written]]";
    let mut command = in_shell("\"$0\" \"$@\" > out.txt", &home.command(&["send", &id, prompt]));
    let mut terminal = Terminal::of(80, command.env("PAGER", "sed s/^/PAGED:/"));
    terminal.until(ASKED);
    terminal.type_in("d");
    terminal.until("PAGED:");
    terminal.until(ASKED);
    terminal.type_in("y");
    terminal.exits(0);
    let written = std::fs::read_to_string(home.path().join("out.txt")).unwrap();
    assert_eq!(written, "Written\n");
}

/// Nothing is taken for read because a pager was started.
#[test]
fn a_change_that_the_pager_could_not_show_is_shown_without_it() {
    let home = Home::new();
    let mut terminal = asked_to_write(&home, &long(), "false");
    terminal.type_in("y");
    terminal.until("line 59");
    terminal.until(ASKED);
    terminal.type_in("n");
    terminal.exits(0);
}

/// What changes after a question was shown does not stand for what was hidden of it.
#[test]
fn a_change_that_became_short_meanwhile_is_read_before_it_is_allowed() {
    let home = Home::new();
    let mut terminal = asked_to_write(&home, &long(), "sed s/^/PAGED:/");
    std::fs::write(home.path().join("a.txt"), long()).unwrap();
    terminal.type_in("y");
    terminal.until("line 59");
    terminal.until(ASKED);
    terminal.type_in("n");
    assert!(!terminal.exits(0).contains("Written to"));
}

/// A question may leave out what was said of its tool call before.
#[test]
fn a_question_that_is_left_open_shows_what_was_said_of_its_call() {
    let stub = Stub::start();
    let sent = run(&stub.home(), &["send", ID, "known"]);
    assert_eq!(sent.status.code(), Some(8), "{sent:?}");
    let shown = run(&stub.home(), &["show", ID]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    // Where a word ends is seen.
    let asked = "? Run in /home/u/project\n    rm -r 'a b'\n";
    for told in [&sent.stderr, &shown.stdout] {
        assert!(text(told).contains(asked), "{}", text(told));
    }
}

/// A command in the agent's words is no advice about the chat.
#[test]
fn a_chat_leaves_the_agents_words_as_they_are() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let words = format!("sessionctl undo {}", &id[..8]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    terminal.enter(&format!("[[ask {words}]]"));
    terminal.until(&format!("? {words}"));
    terminal.until(ASKED);
    terminal.type_in("y");
    terminal.until(MARK);
    terminal.leave();
}

/// A shell sets its own modes of the terminal while the command is stopped.
#[test]
fn a_question_is_asked_again_after_ctrl_z() {
    let home = Home::new();
    for chats in [false, true] {
        let id = home.said(&["new"]);
        let prompt = "[[ask Really?]] [[say Done it]]";
        let command = match chats {
            true => home.command(&["chat", &id]),
            false => home.command(&["send", &id, prompt]),
        };
        // With job control.
        let mut shell = in_shell("set -m; \"$0\" \"$@\"; stty sane; echo stopped; fg", &command);
        let mut terminal = Terminal::of(80, shell.env("NO_COLOR", "1"));
        if chats {
            terminal = terminal.waiting();
            terminal.enter(prompt);
        }
        terminal.until(ASKED);
        terminal.type_in("\x1a");
        terminal.until("stopped\r\n");
        let again = terminal.until(ASKED);
        assert!(again.contains("? Really?"), "{again:?}");
        terminal.type_in("y");
        terminal.until("Done it");
        if chats {
            terminal.until("context ");
            terminal.until(MARK);
            terminal.type_in("\x04");
        }
        terminal.exits(0);
    }
}

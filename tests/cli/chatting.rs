//! `chat` and `send` at a terminal, with what a person sees.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use super::continuing::begin;
use super::home::Home;
use super::printed::{check_seen, commands};
use super::sessionctl;
use super::stub::{ID, Stub};
use super::terminal::{ASKED, MARK, Terminal, in_shell};
use crate::screen::Screen;

/// An empty line stands between messages, unless a line about a tool does.
#[test]
fn messages_are_paragraphs() {
    let stub = Stub::start();
    let piped = super::run(&stub.home(), &["send", ID, "messages"]);
    super::check(&piped, 0, "hi\n\n**Warning:** slow\n\ndone\n\nbye\n");
    let mut command = sessionctl(&stub.home(), &["send", ID, "messages"]);
    let shown = Terminal::of(80, command.env("NO_COLOR", "1")).exits(0);
    let mut screen = Screen::new(80);
    screen.take(shown.as_bytes());
    let seen = screen.text();
    let expected = "hi\n\nWarning: slow\n✓ Read a.rs\ndone\n\nbye";
    assert!(seen.contains(expected), "{seen}");
}

#[test]
fn a_chat_takes_prompts_and_commands() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Talk"]);
    let mut terminal = Terminal::run(&home, 80, &["chat", &id]).waiting();
    // Before the first prompt no session is open that could refuse it.
    terminal.check_answer("/mode dance");
    terminal.check_answer("/mode plan");
    terminal.type_in("first\\\r");
    terminal.says("line two", "echo: first");
    terminal.says("second", "echo: second");
    terminal.enter("/edit 2 zwei");
    terminal.until("echo: zwei");
    terminal.until(MARK);
    terminal.says("/undo", "/fork cp.");
    terminal.says("/rewind", "2  second");
    terminal.check_answer("/rewind 1");
    terminal.enter("[[recall]]");
    let recalled = terminal.until("\"user\":\"first\\nline two\"");
    assert!(!recalled.contains("second"), "{recalled:?}");
    terminal.until(MARK);
    terminal.check_answer("/nonsense");
    terminal.check_answer("/help");
    terminal.says("/fork 1", &id[..8]);
    terminal.says("only here", "echo: only here");
    terminal.leave();
    // The branch is another conversation.
    assert!(!home.said(&["history", &id]).contains("only here"));
    // What was typed is there the next time, and nobody else's to read.
    let history = home.path().join("data/chat-history");
    assert_eq!(
        fs::metadata(&history).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(fs::read_to_string(&history).unwrap().contains("only here"));
    let mut terminal = Terminal::run(&home, 80, &["chat", &id]).waiting();
    terminal.says("\x1b[A", "echo: only here");
    terminal.leave();
}

#[test]
fn a_chat_lists_and_changes_model_and_mode() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Models"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    terminal.says("one", "echo: one");
    terminal.check_answer("/model");
    terminal.check_answer("/model loop-9");
    terminal.check_answer("/model loop-2");
    terminal.says("/model", "● loop-2");
    terminal.check_answer("/mode");
    terminal.check_answer("/mode plan");
    terminal.says("/mode", "● plan");
    terminal.leave();
    let settings = home.shown(&id)["settings"].clone();
    assert_eq!(
        (&settings["model"], &settings["mode"]),
        (&"loop-2".into(), &"plan".into())
    );
}

/// The agent's commands are known once its session is open, and it is opened to know them.
#[test]
fn an_unknown_command_is_never_sent() {
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]).waiting();
    terminal.check_answer("/nonsense");
    terminal.says("first", "echo: first");
    // The title came with the first prompt.
    terminal.says("/fork", "first (fork)");
    terminal.check_answer("/nonsense");
    terminal.enter("/exit");
    terminal.exits(0);
    assert!(!home.said(&["history", "."]).contains("nonsense"));
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "."]).waiting();
    terminal.type_in("/quit\r");
    terminal.exits(0);
}

/// The chat deletes the conversation that it created unless it was used.
#[test]
fn a_new_conversation_without_a_prompt_is_not_left_behind() {
    let home = Home::new();
    let listed = || home.said(&["ls", "--all", "-q"]).lines().count();
    let chat = |arguments: &[&str]| Terminal::run_plain(&home, 80, arguments).waiting();
    chat(&["chat", "--new"]).leave();
    // Each of these opens a session.
    let mut opened = chat(&["chat", "--new"]);
    opened.says("/nonsense", "unknown command");
    opened.says("/mode plan", "Changed");
    opened.leave();
    assert_eq!(listed(), 0);
    let made = home.said(&["new"]);
    chat(&["chat", &made]).leave();
    assert_eq!(listed(), 1);
    for line in ["/continue --at +1h --text later", "[[fail context]]"] {
        let before = listed();
        let mut used = chat(&["chat", "--new"]);
        used.enter(line);
        used.until(MARK);
        used.leave();
        assert_eq!(listed(), before + 1, "{line}");
    }
}

/// The first command that begins so, also one of the agent.
#[test]
fn tab_completes_a_command() {
    let stub = Stub::start();
    let mut terminal = Terminal::of(80, &sessionctl(&stub.home(), &["chat", ID])).waiting();
    terminal.type_in("/hel");
    terminal.until("p");
    terminal.type_in("\t");
    terminal.says("", "Show this list");
    terminal.type_in("/revi");
    terminal.until("ew");
    terminal.type_in("\t");
    terminal.says("", "echo: /review");
    // Not what was shown before another key.
    terminal.type_in("/hel");
    terminal.until("p");
    terminal.type_in("x\t");
    let shown = terminal.says("", "/helx");
    assert!(!shown.contains("helxp"), "{shown}");
    // Only at the beginning.
    terminal.type_in("see /revi");
    terminal.until("/revi");
    terminal.type_in("\t");
    terminal.says("", "echo: see /revi");
    terminal.leave();
}

/// Commands of other programs are not sent either. The agent's own are.
#[test]
fn a_mistyped_command_is_answered_with_the_one_that_was_meant() {
    let stub = Stub::start();
    let mut chat = sessionctl(&stub.home(), &["chat", ID]);
    let mut terminal = Terminal::of(80, chat.env("NO_COLOR", "1")).waiting();
    for line in ["/reset", "/new", "/hlep", "/modle loop-2", "/reviw", "/nonsense"] {
        terminal.check_answer(line);
    }
    assert_eq!(stub.calls_of("conversation/prompt"), [""; 0]);
    terminal.says("/clear", "echo: /clear");
    terminal.leave();
}

/// Advice is what can be typed where it is read.
#[test]
fn a_chat_names_its_own_commands() {
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]).waiting();
    terminal.says("one", "echo: one");
    terminal.check_answer("/edit 1 two");
    terminal.says("/undo", "/fork cp.");
    terminal.says("[[crash]]", ": /continue");
    terminal.says("/continue", "echo: ");
    terminal.leave();
}

/// The hints of a chat can be typed in the chat, and extra words are refused.
#[test]
fn a_chat_advises_what_can_be_typed_in_it() {
    let home = Home::new();
    // No editor is installed there.
    let chat = in_shell(r#"PATH=/none exec "$0" "$@""#, &home.command(&["chat", "--new"]));
    let mut terminal = Terminal::of(80, &chat);
    terminal.until("/exit or Ctrl-D leaves");
    terminal.until(MARK);
    terminal.says("one", "echo: one");
    for line in [
        "/edit",
        "/rewind zero",
        "/fork zero",
        "/rewind 9",
        "/edit 9 text",
        "/continue",
        "[[limit 5400]]",
        "/continue --at-reset",
        "/continue --cancel",
        "/continue --at +1h30m --text 'Now go on'",
        "/continue --at soon",
        "/undo 3",
        "/history 3",
        "/exit now",
    ] {
        let told = terminal.check_answer(line);
        assert!(!told.contains("sessionctl"), "{line}: {told}");
    }
    terminal.type_in("\x04");
    let (shown, code) = terminal.ended();
    assert_eq!(code, Some(0), "{shown:?}");
}

/// A chat says once where the user is and how to leave, and breaks no word.
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
    terminal.enter("/help");
    let shown = terminal.until(MARK);
    let mut lines = shown.lines().filter(|line| !line.contains('\x1b'));
    let too_long = lines.find(|line| line.trim_end().chars().count() > 40);
    assert_eq!(too_long, None, "{shown}");
    terminal.type_in("\x04");
    terminal.ended();
}

/// Several lines that are pasted or typed are one prompt.
#[test]
fn alt_enter_begins_a_new_line() {
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]).waiting();
    terminal.type_in("one\x1b\rtwo\x1b\r");
    terminal.says("three", "echo: one");
    terminal.says("[[recall]]", "\"user\":\"one\\ntwo\\nthree\"");
    terminal.leave();
}

/// The user learns before the first prompt, and once, that the built-in agent only echoes.
#[test]
fn a_chat_with_the_built_in_agent_says_so() {
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]);
    let begun = terminal.check_before_line("chat with the built-in agent", 80);
    assert!(begun.starts_with("warning: "), "{begun}");
    let later = terminal.says("hello", "echo: hello");
    let later = later + &terminal.says("again", "echo: again");
    assert!(!later.contains("warning: "), "{later}");
    terminal.leave();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "."]);
    let begun = terminal.until("Ctrl-D leaves");
    assert!(!begun.contains("warning: "), "{begun}");
    terminal.until(MARK);
    terminal.leave();
}

/// What was typed meanwhile is kept, and the next line is edited again.
#[test]
fn a_terminal_that_reports_its_cursor_late_loses_nothing() {
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]).silent();
    terminal.until("\x1b[6n");
    terminal.type_in("fir");
    terminal.until("lines cannot be edited");
    terminal.until("fir");
    terminal.type_in("\x1b[3;1Rst\n");
    terminal.until("echo: first");
    terminal.until("\x1b[6n");
    terminal.type_in("\x1b[3;1R");
    terminal.until(MARK);
    // Which only the editor takes back.
    terminal.type_in("secnd\x1b[D\x7fon\r");
    terminal.until("echo: second");
    terminal.until("\x1b[6n");
    terminal.type_in("\x1b[3;1R");
    terminal.until(MARK);
    terminal.leave();
}

/// Such as that of an editor, or one that a slow line is in front of.
#[test]
fn a_chat_works_at_a_terminal_that_does_not_report_its_cursor() {
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]).silent();
    terminal.until("Ctrl-D leaves");
    terminal.check_before_line("chat at a terminal that does not report its cursor", 80);
    for (typed, answer) in [
        ("first\n", "echo: first"),
        ("one\\\ntwo\n", "echo: one"),
        ("[[recall]]\n", "\"user\":\"one\\ntwo\""),
        ("/undo\n", "error: "),
    ] {
        terminal.type_in(typed);
        terminal.until(answer);
        terminal.until(MARK);
    }
    // A turn is cancelled, and two leave, as elsewhere.
    terminal.type_in("[[say Begun]] [[hang]]\n");
    terminal.until("s Begun");
    terminal.type_in("\x03");
    terminal.until(MARK);
    terminal.type_in("not sent\x03");
    terminal.until("Ctrl-C again");
    terminal.until(MARK);
    terminal.type_in("\x04");
    terminal.exits(0);
    assert!(!home.said(&["history", "."]).contains("not sent"));
}

/// The warning about the built-in agent is printed only before a conversation's first turn.
#[test]
fn the_echo_warning_is_for_new_conversations() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for turn in ["the first turn", "a later turn"] {
        let terminal = Terminal::run_plain(&home, 200, &["send", &id, "hello"]);
        terminal.check_end(&format!("send to the built-in agent, {turn}"), 0);
    }
}

/// Both streams in one file, as `2>&1` has them.
#[test]
fn a_lost_daemon_is_told_on_a_line_of_its_own() {
    let home = Home::new();
    let id = home.said(&["new"]);
    // The warning of the built-in agent is printed before the first turn only.
    home.said(&["send", &id, "hello"]);
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
    home.kill_daemon();
    let mut said = String::new();
    both.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.starts_with('\n'), "{said}");
}

#[test]
fn a_chat_says_what_it_attached_and_what_it_did_not() {
    let home = Home::new();
    fs::write(home.path().join("notes.md"), "The secret is 42.\n").unwrap();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", "--new"]).waiting();
    terminal.check_answer("see @notes.md, @missing and @a/b.rs");
    let file = home.path().canonicalize().unwrap().join("notes.md");
    terminal.says("/history", &format!("@{}", file.display()));
    // Nor is its text in the list of prompts.
    let listed = terminal.says("/rewind", "/rewind TURN");
    assert!(
        listed.contains("1  see @notes.md") && !listed.contains("<context"),
        "{listed:?}"
    );
    terminal.leave();
    let mut attached = Terminal::run_plain(&home, 200, &["attach", "."]);
    let last = attached.until("echo: see");
    assert!(
        last.contains("> see @notes.md") && !last.contains("<context"),
        "{last:?}"
    );
    attached.type_in("\x03");
    attached.exits(0);
    // So does the text of an editor.
    let editor = "write() { printf 'now @notes.md' > \"$1\"; }; write";
    let mut command = home.command(&["chat", "."]);
    let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1").env("EDITOR", editor));
    terminal.until("Ctrl-D leaves");
    terminal.until(MARK);
    terminal.enter("/edit");
    terminal.until("notes.md (18 B)");
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
    let mut terminal = Terminal::run(&home, 80, &["chat", &id]).waiting();
    terminal.enter("[[say Begun]] [[hang]]");
    terminal.until("Begun");
    terminal.type_in("\x03");
    terminal.until(MARK);
    // A turn that does not end for it.
    terminal.enter("[[say Still]] [[deaf]] [[hang]]");
    terminal.until("Still");
    terminal.type_in("\x03");
    terminal.until("Ctrl-C again leaves at once");
    terminal.type_in("\x03");
    let shown = terminal.exits(0);
    assert!(
        shown.contains(&format!("sessionctl attach {}", &id[..8])),
        "{shown:?}"
    );
    home.said(&["cancel", &id]);
    // At the prompt it takes back what was typed, and where nothing was, two leave as well.
    let mut terminal = Terminal::run(&home, 80, &["chat", &id]).waiting();
    for typed in ["abc", "def"] {
        terminal.type_in(typed);
        terminal.until(typed);
        terminal.type_in("\x03");
        let shown = terminal.until(MARK);
        assert!(!shown.contains("Ctrl-C again"), "{shown:?}");
    }
    terminal.type_in("\x03");
    terminal.until("Ctrl-C again");
    terminal.until(MARK);
    terminal.type_in("\x03");
    terminal.exits(0);
}

/// `chat` reports a turn that a limit ended, and `reset` what it cancels.
#[test]
fn a_chat_says_that_its_last_turn_was_interrupted() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.run(&["send", &id, "[[limit 86400]]"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]);
    terminal.until("the last turn was cut short; /continue continues it");
    terminal.waiting().leave();
    home.said(&["continue", &id, "--at-reset"]);
    let reset = home.run(&["reset", &id]);
    let told = super::text(&reset.stderr);
    assert!(
        told.contains("The scheduled continuation is cancelled."),
        "{told}"
    );
}

/// A prompt that is queued is sent whether or not its sender waits.
#[test]
fn who_leaves_a_queued_prompt_is_told_how_to_withdraw_it() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut running = Terminal::run_plain(&home, 80, &["send", &id, "[[say Begun]] [[hang]]"]);
    running.until("Begun");
    let mut queued = Terminal::run_plain(&home, 200, &["send", &id, "--queue", "second"]);
    queued.until("queued");
    queued.type_in("\x03");
    let withdraw = format!("withdraw it: sessionctl cancel {} --queued", &id[..8]);
    let shown = queued.exits(1);
    assert!(shown.contains(&withdraw), "{shown:?}");
    home.said(&["cancel", &id, "--queued"]);
    running.exits(1);
    assert!(!home.said(&["history", &id]).contains("second"));
}

#[test]
fn a_chat_asks_attaches_and_outlives_its_daemon() {
    let home = Home::new();
    let notes = home.path().join("notes.md");
    fs::write(&notes, "The secret is 42.\n").unwrap();
    let mut terminal = Terminal::run(&home, 80, &["chat", "--new"]).waiting();
    terminal.says("see @notes.md, please", "echo: see @notes.md, please");
    assert!(
        home.said(&["history", ".", "--json"])
            .contains("The secret is 42.")
    );
    terminal.enter("[[ask Really?]] [[say Done it]]");
    terminal.until(ASKED);
    terminal.type_in("y");
    terminal.until("Done it");
    terminal.until(MARK);
    terminal.enter("[[say Begun]] [[hang]]");
    terminal.until("Begun");
    home.kill_daemon();
    terminal.until("echo: ");
    terminal.until(MARK);
    home.kill_daemon();
    terminal.says("after", "echo: after");
    terminal.leave();
}

#[test]
fn files_and_standard_input_are_part_of_a_prompt() {
    let home = Home::new();
    let file = home.path().join("a b.txt");
    fs::write(&file, "of the file\n").unwrap();
    let mut command = home.command(&["send", "--new", "--file", "a b.txt", "look:", "-"]);
    command.stdin(fs::File::open(&file).unwrap());
    let output = command.output().unwrap();
    let answer = super::text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(answer, "echo: look:\n\nof the file\n");
    let history = home.said(&["history", ".", "--json"]);
    assert!(history.contains("a%20b.txt\\\">\\nof the file"), "{history}");
    // A person sees its path.
    let attached = format!("> @{}\n", file.canonicalize().unwrap().display());
    let history = home.said(&["history", "."]);
    assert!(history.contains(&attached), "{history}");
    let missing = home.run(&["send", ".", "--file", "none", "x"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
}

#[test]
fn a_chat_needs_a_terminal() {
    let home = Home::new();
    home.printed(&["chat", "--new"], 2);
}

/// A backslash that was pasted is part of the text; one before Enter begins a new line.
#[test]
fn a_pasted_text_keeps_its_backslashes() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    terminal.type_in("\x1b[200~run \\\n  it\x1b[201~\\\r");
    terminal.says("now", "echo: run");
    terminal.leave();
    let history = home.said(&["history", &id]);
    assert!(history.contains("> run \\\n>   it\n> now\n"), "{history}");
}

/// Meanwhile another client deletes the conversation.
#[test]
fn what_was_written_for_an_edit_of_a_chat_is_kept_if_it_is_refused() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let temporary = home.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut command = home.command(&["chat", &id]);
    let remove = format!("'{}' rm {id} --yes >&2", env!("CARGO_BIN_EXE_sessionctl"));
    command.env(
        "EDITOR",
        format!("edit() {{ printf mine > \"$1\"; {remove}; }}; edit"),
    );
    command.env("TMPDIR", &temporary).env("NO_COLOR", "1");
    let mut terminal = Terminal::of(80, &command).waiting();
    terminal.says("/edit", "what you wrote is in");
    terminal.leave();
    let files: Vec<_> = fs::read_dir(&temporary).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(
        fs::read_to_string(files[0].as_ref().unwrap().path()).unwrap(),
        "mine"
    );
}

#[test]
fn a_tool_with_a_wide_title_stays_on_its_line() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let terminal = Terminal::run_plain(&home, 30, &["send", &id, "[[tool 題名が長すぎて {}]]"]);
    let (seen, _) = terminal.seen();
    let line = seen.lines().find(|line| line.starts_with("✓ 題名が長すぎて"));
    assert!(line.unwrap().ends_with('…'), "{seen}");
}

/// A prompt in the place of the conversation is sent as the hint says.
#[test]
fn a_chat_is_not_begun_with_a_prompt() {
    let home = Home::new();
    let (seen, code) = Terminal::run_plain(&home, 200, &["chat", "Fix the build"]).seen();
    assert_eq!(code, Some(4), "{seen}");
    check_seen("chat with a prompt for a conversation", &seen);
    assert_eq!(home.said_pasted(commands(&seen)[0]), "echo: Fix the build");
}

/// What was typed until then is kept.
#[test]
fn a_chat_that_waits_for_a_line_shows_the_turns_of_others() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 40, &["chat", &id]).waiting();
    terminal.says("first", "echo: first");
    let half = "the beginning of a line that is longer than the terminal";
    terminal.type_in(half);
    terminal.until("terminal");
    home.said(&["send", &id, "from [[say Else]][[say where]]"]);
    let mut screen = Screen::new(40);
    screen.take(terminal.until("terminal").as_bytes());
    let seen = screen.text();
    assert!(seen.contains("Another client sent a prompt\n> from "), "{seen}");
    assert!(seen.contains("\nElsewhere\n"), "{seen}");
    // It was taken off the screen meanwhile.
    assert_eq!(seen.matches("the beginning").count(), 1, "{seen}");
    terminal.says(" and its end", "echo: the beginning of a line");
    home.said(&["continue", &id, "--text", "go on"]);
    terminal.until("A continuation began");
    terminal.until("echo: go on");
    terminal.until(MARK);
    terminal.leave();
    assert!(
        home.said(&["history", &id])
            .contains(&format!("{half} and its end"))
    );
}

/// Its own changes are not reported as those of others.
#[test]
fn a_chat_that_waits_for_a_line_shows_the_changes_of_others() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    terminal.says("first", "echo: first");
    terminal.says("second", "echo: second");
    home.said(&["edit", &id, "--at", "1", "other words"]);
    let seen = terminal.until("echo: other words");
    assert!(seen.contains("Another client replaced 2 turns"), "{seen}");
    assert!(!seen.contains("Another client sent"), "{seen}");
    terminal.until(MARK);
    home.said(&["undo", &id]);
    terminal.until("Another client undid the last change");
    terminal.until(MARK);
    terminal.enter("/rewind 1");
    terminal.until("Rewound to turn 1");
    terminal.until(MARK);
    terminal.enter("/undo");
    let seen = terminal.until(MARK);
    assert!(!seen.contains("Another client"), "{seen}");
    home.said(&["reset", &id]);
    let seen = terminal.until("Another client reset the conversation");
    assert!(!seen.contains("undid") && !seen.contains("rewound"), "{seen}");
    terminal.leave();
}

/// Not the turns that the chat showed itself.
#[test]
fn a_chat_shows_what_happened_while_a_command_ran() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut command = home.command(&["chat", &id]);
    command
        .env("NO_COLOR", "1")
        .env("PAGER", "cat; echo PAGED; read line < /dev/tty");
    let mut terminal = Terminal::of(80, &command).waiting();
    terminal.says("first", "echo: first");
    terminal.enter("/history");
    terminal.until("PAGED");
    home.said(&["send", &id, "second"]);
    terminal.type_in("\n");
    let shown = terminal.until("echo: second");
    assert!(!shown.contains("first"), "{shown:?}");
    terminal.until(MARK);
    terminal.leave();
}

/// The daemon ended while nothing was typed: each command meets the next one.
#[test]
fn every_command_of_an_idle_chat_starts_the_daemon_again() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    terminal.says("first", "echo: first");
    terminal.says("second", "echo: second");
    for (line, answer) in [
        ("/edit 2 another", "echo: another"),
        ("/rewind", "/rewind TURN"),
        ("/rewind 1", "Rewound to turn 1"),
        ("/mode", "reported its modes"),
        ("/continue", "no turn was interrupted"),
        ("/answer", "no question is open"),
        ("/nonsense", "unknown command"),
        ("/fork", "a branch of"),
    ] {
        home.kill_daemon();
        let shown = terminal.says(line, answer);
        assert!(!shown.contains("closed the connection"), "{line}: {shown}");
    }
    terminal.leave();
}

#[test]
fn a_chat_that_opens_on_a_question_shows_its_turn_once() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut asking = begin(
        &home,
        &[
            "send",
            &id,
            "--on-question",
            "wait",
            "[[say calling]] [[ask Really?]]",
        ],
    );
    home.once(&id, |shown| shown["state"] == "awaiting");
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]);
    let shown = terminal.until(ASKED);
    assert_eq!(shown.matches("[[ask").count(), 1, "{shown}");
    terminal.type_in("y");
    terminal.until(MARK);
    terminal.leave();
    asking.wait().unwrap();
}

/// Nothing but text goes to a terminal that knows no control sequences.
#[test]
fn a_dumb_terminal_gets_no_control_sequences() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let command = home.command(&["chat", &id]);
    let mut terminal = Terminal::of(80, &in_shell("TERM=dumb \"$0\" \"$@\"", &command));
    let mut shown = terminal.until(MARK);
    terminal.type_in("[[ask Really?]] [[say Done it]]\r");
    shown += &terminal.until(ASKED);
    terminal.type_in("y");
    shown += &terminal.until("Done it\r\n");
    shown += &terminal.until(MARK);
    terminal.type_in("\x04");
    shown += &terminal.exits(0);
    assert!(!shown.contains('\x1b'), "{shown:?}");
}

#[test]
fn a_chat_notices_a_new_width() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    let words = "word ".repeat(12);
    terminal.says("[[say first]]", "first");
    terminal.resize(40);
    let shown = terminal.says(&format!("[[say {words}end]]"), "end\r\n");
    let lines = shown.split(['\r', '\n']);
    let longest = lines.map(|line| line.matches("word").count()).max();
    assert!(longest < Some(12), "{shown:?}");
    terminal.leave();
}

//! What the picker's filter takes, and its other keys.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::json;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::finding::{CTRL_F, CTRL_N, CTRL_U, CTRL_X, DOWN, ENTER, ESCAPE, titles, until};
use super::home::Home;
use super::printed::{check_seen, commands};
use super::terminal::Terminal;

const UP: &str = "\x1b[A";
const BACKSPACE: &str = "\x7f";

/// A home with conversations of these titles, and their ids.
fn home_with<const N: usize>(titles: [&str; N]) -> (Home, [String; N]) {
    let home = Home::new();
    let ids = titles.map(|title| home.said(&["new", "--title", title]));
    (home, ids)
}

/// Types into the filter, and checks how many are listed then.
#[track_caller]
fn filter(terminal: &mut Terminal, typed: &str, listed: &str) -> Vec<String> {
    terminal.type_in(typed);
    let screen = until(terminal, &format!("> {typed}"));
    assert!(screen.last().unwrap().starts_with(listed), "{typed}: {screen:?}");
    terminal.type_in(CTRL_U);
    until(terminal, "2 of 2");
    screen
}

#[test]
fn the_filter_takes_the_agent_the_id_and_any_case() {
    let (home, [first, _]) = home_with(["Alpha", "Beta"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    until(&mut terminal, "2 of 2");
    for (typed, listed) in [
        ("LOOPBACK", "2 of 2"),
        (&first[..8], "1 of 2"),
        ("ALPHA loopback", "1 of 2"),
        ("alpha beta", "0 of 2"),
    ] {
        filter(&mut terminal, typed, listed);
    }
    // The end of a long filter is seen.
    let screen = filter(&mut terminal, &format!("{}end", "x".repeat(74)), "0 of 2");
    assert!(screen[0].len() < 80 && screen[0].ends_with("xend"), "{screen:?}");
    let long = "x".repeat(90);
    terminal.type_in(&format!("{long}end"));
    let screen = until(&mut terminal, "xend");
    assert!(screen[0].len() < 80, "{screen:?}");
    // So does the line that says that nothing matches, with the keys that help.
    assert!(
        screen[1].width() <= 80 && screen[1].ends_with("Esc leaves"),
        "{screen:?}"
    );
    // Keys that the list does not offer do nothing.
    terminal.type_in(CTRL_U);
    terminal.type_in(&format!("{CTRL_N}zz"));
    until(&mut terminal, "> zz");
    terminal.type_in(BACKSPACE);
    until(&mut terminal, "> z\x1b");
    terminal.type_in(BACKSPACE);
    until(&mut terminal, "2 of 2");
    terminal.type_in(ESCAPE);
    terminal.exits(1);
    assert_eq!(titles(&home), ["Beta", "Alpha"]);
}

/// An empty list is not shown, because no key works in it.
#[test]
fn without_a_conversation_there_is_nothing_to_pick() {
    let home = Home::new();
    for command in ["send", "show", "rm"] {
        let (seen, code) = Terminal::run_plain(&home, 120, &[command]).seen();
        assert_eq!(code, Some(4), "{seen}");
        check_seen("a command that needs a conversation, before the first", &seen);
    }
    let mut chat = Terminal::run_plain(&home, 80, &["chat"]).waiting();
    chat.says("first", "echo: first");
    chat.leave();
    // From then on a new one is offered.
    let mut chat = Terminal::run_plain(&home, 80, &["chat"]);
    until(
        &mut chat,
        "1 of 1 · Enter opens · ^F fork · ^R rename · ^X delete · ^N new",
    );
    chat.type_in(CTRL_N);
    let mut chat = chat.waiting();
    chat.says("second", "echo: second");
    chat.leave();
    assert_eq!(titles(&home), ["second", "first"]);
}

/// However far down it is: only some ends of conversations are read before anything is typed.
#[test]
fn the_last_prompt_of_the_oldest_of_many_is_found() {
    let home = Home::new();
    let oldest = home.said(&["new", "--title", "oldest"]);
    home.said(&["send", &oldest, "-q", "the red bicycle"]);
    for number in 2..=60 {
        home.said(&["new", "--title", &format!("number {number}")]);
    }
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    until(&mut terminal, "60 of 60");
    terminal.type_in("bicycle");
    until(&mut terminal, &format!("❯ {}", &oldest[..8]));
    terminal.type_in(ENTER);
    let shown = terminal.exits(0);
    assert!(shown.contains(&oldest), "{shown:?}");
}

/// The list has the newest; the daemon searches all.
#[test]
fn a_conversation_that_is_not_listed_is_found_by_its_title() {
    let home = Home::new();
    let oldest = home.said(&["new", "--title", "the red bicycle"]);
    let socket = UnixStream::connect(home.said(&["start", "--print-socket"])).unwrap();
    let mut answers = BufReader::new(&socket).lines();
    for number in 1..=1_000 {
        let params = json!({"cwd": home.path(), "title": format!("number {number}")});
        let call = json!({"jsonrpc": "2.0", "id": number, "method": "conversation/new", "params": params});
        writeln!(&socket, "{call}").unwrap();
        answers.next().unwrap().unwrap();
    }
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    until(&mut terminal, "1000 of 1000+");
    terminal.type_in("unheard");
    until(&mut terminal, "in the newest 1000 only");
    terminal.type_in(&format!("{CTRL_U}bicycle"));
    until(&mut terminal, &format!("❯ {}", &oldest[..8]));
    terminal.type_in(ENTER);
    let shown = terminal.exits(0);
    assert!(shown.contains(&oldest), "{shown:?}");
}

#[test]
fn a_long_list_scrolls_with_the_selected_one() {
    let home = Home::new();
    for number in 1..=13 {
        home.said(&["new", "--title", &format!("number {number}")]);
    }
    let listed = home.said(&["ls"]);
    let ids: Vec<&str> = listed.lines().map(|line| &line[..8]).collect();
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    let screen = until(&mut terminal, &format!("❯ {}", ids[0]));
    assert!(!screen.join("\n").contains(ids[11]), "{screen:?}");
    terminal.type_in(&DOWN.repeat(11));
    let screen = until(&mut terminal, &format!("❯ {}", ids[11]));
    assert!(screen[1].contains("UPDATED"), "{screen:?}");
    terminal.type_in(UP);
    until(&mut terminal, &format!("❯ {}", ids[10]));
    terminal.type_in(ENTER);
    let shown = terminal.exits(0);
    assert!(shown.contains("number 3"), "{shown:?}");
}

#[test]
fn what_the_daemon_refuses_is_shown_until_the_next_key() {
    let (home, [gone, _]) = home_with(["Alpha", "Beta"]);
    let zone = "Asia/Tokyo";
    let mut command = home.command(&["show"]);
    let mut terminal = Terminal::of(120, command.env("NO_COLOR", "1").env("TZ", zone));
    until(&mut terminal, "2 of 2");
    terminal.type_in(DOWN);
    until(&mut terminal, &format!("❯ {}", &gone[..8]));
    home.said(&["rm", &gone]);
    terminal.type_in(CTRL_F);
    let screen = until(&mut terminal, "was deleted");
    let refused: Value = serde_json::from_slice(&home.run(&["show", &gone, "--json"]).stderr).unwrap();
    let at: Timestamp = refused["error"]["data"]["deletedAt"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let at = at
        .to_zoned(TimeZone::get(zone).unwrap())
        .strftime("%Y-%m-%d %H:%M");
    let last = screen.last().unwrap();
    assert!(last.contains(&format!("{gone} was deleted at {at};")), "{last}");
    terminal.type_in(UP);
    until(&mut terminal, "2 of 2");
    terminal.type_in(ESCAPE);
    terminal.exits(1);
}

#[test]
fn a_missing_conversation_is_picked() {
    let (home, [id]) = home_with(["Alpha"]);
    home.said(&["send", &id, "one"]);
    home.said(&["close", &id]);
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.canonicalize().unwrap();
    let other = other.to_str().unwrap();
    let picked = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env("NO_COLOR", "1");
        command.env("EDITOR", "write() { printf 'from the editor' > \"$1\"; }; write");
        let mut terminal = Terminal::of(80, &command);
        until(&mut terminal, "1 of 1");
        terminal.type_in(ENTER);
        terminal
    };
    picked(&["set", "title=Beta"]).exits(0);
    assert_eq!(titles(&home), ["Beta"]);
    picked(&["rename", "Gamma ray"]).exits(0);
    assert_eq!(titles(&home), ["Gamma ray"]);
    picked(&["mv", other]).exits(0);
    assert_eq!(home.shown(&id)["cwd"], other);
    let shown = picked(&["edit"]).exits(0);
    assert!(shown.contains("echo: from the editor"), "{shown:?}");
    let mut terminal = picked(&["send"]);
    terminal.until("Ctrl-D sends it");
    terminal.type_in("from the keyboard\n\x04");
    let shown = terminal.exits(0);
    assert!(shown.contains("echo: from the keyboard"), "{shown:?}");
    // Without a terminal the error says what is missing.
    for arguments in [
        &["set", "title=Delta"][..],
        &["rename", "Delta wing"],
        &["mv", other],
        &["edit"],
        &["send"],
    ] {
        home.printed(arguments, 2);
    }
    // One word that names a conversation is no title.
    home.printed(&["rename", "gamma"], 2);
    home.printed(&["rename"], 2);
    assert_eq!(titles(&home), ["Gamma ray"]);
}

/// Every command that is about a conversation opens the picker if none was named, and leaving it does nothing. That fails a
/// command that needs a conversation.
#[test]
fn each_command_without_a_conversation_opens_the_picker() {
    let (home, [id]) = home_with(["Alpha"]);
    home.said(&["send", &id, "one"]);
    let before = home.shown(&id);
    for command in [
        "chat",
        "send",
        "attach",
        "answer",
        "cancel",
        "continue",
        "resume",
        "show",
        "history",
        "tree",
        "checkpoints",
        "fork",
        "edit",
        "undo",
        "reset",
        "close",
        "rm",
        "archive add",
        "archive restore",
        "keep",
        "restore",
        "check",
        "export",
        "chain",
        "lineage",
    ] {
        let arguments: Vec<&str> = command.split(' ').collect();
        let mut terminal = Terminal::run_plain(&home, 80, &arguments);
        until(&mut terminal, "1 of 1");
        terminal.type_in(ESCAPE);
        let left = terminal.exits(i32::from(command != "chat"));
        let says = left.contains("error: cancelled: no conversation was picked");
        assert_eq!(says, command != "chat", "{command}: {left:?}");
        assert_eq!(home.shown(&id), before, "{command}");
    }
    // What deletes asks about the one that was picked.
    for command in ["reset", "rm"] {
        let mut terminal = Terminal::run_plain(&home, 80, &[command]);
        until(&mut terminal, "1 of 1");
        terminal.type_in(ENTER);
        let asked = terminal.until("? [y/N] ");
        assert!(asked.contains(&format!("{} (Alpha)", &id[..8])), "{asked:?}");
        terminal.type_in("n\r");
        terminal.exits(1);
        assert_eq!(home.shown(&id), before, "{command}");
    }
}

#[test]
fn what_was_deleted_in_the_picker_can_be_had_back() {
    let (home, [id]) = home_with(["Alpha"]);
    home.said(&["send", &id, "one"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    until(&mut terminal, "1 of 1");
    terminal.type_in(CTRL_X);
    until(&mut terminal, "Delete ");
    terminal.type_in("y");
    until(&mut terminal, "Deleted ");
    terminal.type_in(ESCAPE);
    let rest = terminal.exits(1);
    let (_, after) = rest.split_once("\x1b[?1049l").unwrap();
    let after = after.replace('\r', "");
    check_seen("the picker, after a conversation with a turn was deleted", &after);
    let command = commands(&after)[0];
    let again = home.said_pasted(command);
    // The session means the conversation that exists.
    let session = command.rsplit(' ').next().unwrap();
    assert_eq!(home.shown(session)["id"], again.as_str());
}

/// As many of the last turns as there is room for.
#[test]
fn the_preview_fills_the_screen_below_the_list() {
    let (home, [id]) = home_with(["Alpha"]);
    for prompt in ["one", "two", "three", "four", "five", "six"] {
        home.said(&["send", &id, prompt]);
    }
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    let screen = until(&mut terminal, "echo: six");
    assert_eq!(screen[4], "> two", "{screen:?}");
    terminal.type_in(ESCAPE);
    terminal.exits(1);
}

/// A key that the list does not know moves nothing.
#[test]
fn the_list_is_paged_and_other_keys_move_nothing() {
    let home = Home::new();
    for number in 1..=13 {
        home.said(&["new", "--title", &format!("number {number}")]);
    }
    let listed = home.said(&["ls"]);
    let ids: Vec<&str> = listed.lines().map(|line| &line[..8]).collect();
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    let mut selects = |key: &str, at: usize| {
        terminal.type_in(key);
        until(&mut terminal, &format!("❯ {}", ids[at]));
    };
    selects("", 0);
    let (page_down, page_up, home_key, end) = ("\x1b[6~", "\x1b[5~", "\x1b[H", "\x1b[F");
    selects(end, 12);
    selects(home_key, 0);
    selects(page_down, 9);
    // An insert key, a function key, and one that deletes nothing.
    selects(&format!("\x1b[2~\x1bOP{BACKSPACE}{DOWN}"), 10);
    selects(page_up, 1);
    terminal.type_in(ESCAPE);
    terminal.exits(1);
}

//! Ctrl-Z while a line or a key is read: the shell gets the terminal, and `fg` gives it back.

use super::finding::{CTRL_F, ENTER, until};
use super::home::Home;
use super::terminal::{MARK, Terminal, in_shell};

const CTRL_Z: &str = "\x1a";

/// Runs a command as a job of a shell, which says when it has the terminal and takes the job up again after a line.
fn job(home: &Home, arguments: &[&str]) -> Terminal {
    let script = r#"set -m; "$0" "$@"; echo the job stopped; read line; echo "read $line"; fg"#;
    Terminal::of(80, &in_shell(script, &home.command(arguments)))
}

#[test]
fn a_chat_that_waits_for_a_line_is_suspended_and_keeps_what_was_typed() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = job(&home, &["chat", &id]).waiting();
    terminal.type_in("half a");
    terminal.until("half a");
    terminal.type_in(CTRL_Z);
    terminal.until("the job stopped");
    // The shell's line editing is as it was.
    terminal.type_in("another comand\x7f\x7f\x7fmand\r");
    terminal.until("read another command");
    terminal.until(MARK);
    terminal.until("half a");
    terminal.enter(" line");
    terminal.until("echo: half a line");
    terminal.until(MARK);
    terminal.type_in("\x04");
    terminal.exits(0);
}

#[test]
fn the_picker_is_suspended_and_shown_again() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Alpha"]);
    let mut terminal = job(&home, &["show"]);
    until(&mut terminal, "1 of 1");
    terminal.type_in("alp");
    until(&mut terminal, "> alp");
    terminal.type_in(CTRL_Z);
    // The screen is the shell's.
    let left = terminal.until("the job stopped");
    assert!(left.contains("\x1b[?1049l"), "{left:?}");
    terminal.type_in("x\r");
    terminal.until("\x1b[?1049h");
    until(&mut terminal, "> alp");
    terminal.type_in(CTRL_F);
    until(&mut terminal, "Forked as");
    terminal.type_in(ENTER);
    let shown = terminal.exits(0);
    assert!(shown.contains("Alpha"), "{shown:?}");
    assert!(!home.shown(&id).is_null());
}

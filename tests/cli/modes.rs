//! Modes in a chat.

use super::home::Home;
use super::printed::check_seen;
use super::terminal::{MARK, Terminal};
use crate::screen::Screen;

/// Once a session is open, `/mode` lists what the agent offers and marks the one that is set.
#[test]
fn an_open_chat_lists_the_modes() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    terminal.check_answer("/mode");
    let changed = terminal.check_answer("/mode plan");
    assert!(changed.contains("plan"), "{changed}");
    terminal.enter("/mode");
    let mut screen = Screen::new(80);
    screen.take(terminal.until(MARK).as_bytes());
    let listed = screen.text();
    let current: Vec<&str> = listed.lines().filter(|line| line.starts_with('●')).collect();
    assert_eq!(current.len(), 1, "{listed}");
    assert!(current[0].contains("plan"), "{listed}");
    check_seen("chat, the mode that is set", current[0]);
    terminal.leave();
}

//! A conversation that another client deletes while it is shown.

use super::home::Home;
use super::terminal::{MARK, Terminal};

#[test]
fn a_chat_whose_conversation_is_deleted_says_so_and_ends() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Alpha"]);
    home.said(&["send", &id, "one"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    terminal.type_in("half a line");
    terminal.until("half a line");
    home.said(&["rm", &id]);
    let (seen, code) = terminal.seen();
    assert_eq!(code, Some(0), "{seen}");
    let (_, last) = seen
        .rsplit_once("Another client deleted the conversation")
        .unwrap();
    // What was typed can be copied.
    assert!(
        last.contains("half a line") && !last.contains(MARK.trim_end()),
        "{seen}"
    );
}

#[test]
fn an_attached_client_is_not_told_to_send_a_prompt_to_what_is_deleted() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Alpha"]);
    home.said(&["send", &id, "one"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["attach", &id]);
    terminal.until("(idle)");
    terminal.until("echo: one");
    home.said(&["rm", &id]);
    let (seen, code) = terminal.seen();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("the conversation was deleted"), "{seen}");
    assert!(!seen.contains("the next prompt"), "{seen}");
}

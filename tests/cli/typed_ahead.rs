//! Lines that are typed in a chat while a turn runs.

use super::home::Home;
use super::terminal::{ASKED, MARK, Terminal};

/// Typed lines are the next prompts, in their order, and a line without an end can be finished.
#[test]
fn what_is_typed_during_a_turn_is_the_next_lines() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    terminal.enter("[[say Begun]] [[hang]]");
    terminal.until("Begun");
    terminal.type_in("second\rthird one\r/mode\rwithout an en");
    for line in ["queued: second", "queued: third one", "queued: /mode"] {
        terminal.until(line);
    }
    home.said(&["cancel", &id]);
    terminal.until("the turn was cancelled");
    for answer in ["echo: second", "echo: third one", "Plan", "without an en"] {
        terminal.until(answer);
    }
    terminal.type_in("d\r");
    terminal.until("echo: without an end");
    terminal.until(MARK);
    terminal.leave();
}

/// It is not taken for the answer to the question, and it is not lost.
#[test]
fn what_is_typed_before_a_question_is_the_next_line() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    terminal.enter("[[say Begun]][[stream 2 500]][[ask Really?]]");
    terminal.until("Begun");
    terminal.type_in("second\rthi");
    terminal.until(ASKED);
    terminal.type_in("y");
    terminal.until("echo: second");
    terminal.until("thi");
    terminal.type_in("rd\r");
    terminal.until("echo: third");
    terminal.until(MARK);
    terminal.leave();
}

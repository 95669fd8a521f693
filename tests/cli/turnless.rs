//! Commands that need a turn, in a conversation that has none: they say so, and which command makes the first one.

use super::home::Home;
use super::printed::commands;

#[test]
fn a_conversation_without_turns_is_named_with_the_command_that_helps() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let first = format!("sessionctl send {} 'Hello'", &id[..8]);
    for (arguments, code) in [
        (&["edit", &id][..], 4),
        (&["edit", &id, "--at", "2", "text"], 4),
        (&["fork", &id, "--at", "-1"], 4),
        (&["fork", &id, "--at", "nowhere"], 4),
        (&["check", &id], 4),
        (&["continue", &id], 5),
        (&["continue", &id, "--at-reset"], 5),
        (&["resume", &id], 0),
    ] {
        assert_eq!(
            commands(&home.printed(arguments, code)),
            [&first],
            "{arguments:?}"
        );
    }
    assert_eq!(home.said_pasted(&first), "echo: Hello");
    home.said(&["edit", &id, "Hello again"]);
}

//! What `send` says if the agent does not open a session whose transcript is whole.

use super::home::Home;
use super::printed::commands;
use crate::daemon::refused_sessions::{OPENS_NOTHING, change_requests, configure};

#[test]
fn a_whole_session_that_is_left_for_text_is_named_with_the_command_that_goes_back_to_it() {
    let home = Home::new();
    configure(home.path(), "");
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let head = home.shown(&id)["head"].clone();
    home.kill_daemon();
    change_requests(home.path(), OPENS_NOTHING);
    let told = home.printed(&["send", &id, "after the agent refused its session"], 0);
    assert_ne!(home.shown(&id)["head"], head);
    let [back] = commands(&told)[..] else {
        panic!("{told}")
    };
    home.kill_daemon();
    change_requests(home.path(), "");
    home.said_pasted(back);
    assert_eq!(home.shown(&id)["head"], head);
    let recalled = home.said(&["send", &id, "[[recall]]"]);
    assert!(
        recalled.contains("echo: one") && !recalled.contains("refused"),
        "{recalled}"
    );
}

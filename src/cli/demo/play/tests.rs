//! The demonstration's own judgement: it must see what is missing, doubled or out of order.

use super::{AUTOMATIC, History, RECALL, Recalled};
use bridge_protocol::turn::CONTINUE_PROMPT;

fn recalled(users: &[&str]) -> Vec<Recalled> {
    users
        .iter()
        .map(|user| Recalled {
            user: (*user).to_owned(),
        })
        .collect()
}

#[test]
fn only_the_whole_history_once_and_in_order_is_right() {
    let history = History {
        prompts: ["one", RECALL, AUTOMATIC, "two"].map(str::to_owned).to_vec(),
        cut_short: vec!["crashed".to_owned()],
    };
    let table: [(&[&str], bool); 9] = [
        (&["one", RECALL, CONTINUE_PROMPT, "two"], true),
        (&["one", RECALL, "crashed", CONTINUE_PROMPT, "two"], true),
        (&["one", RECALL, "two"], false),
        (&["one", CONTINUE_PROMPT, "two"], false),
        (&["one"], false),
        (&["two", RECALL, CONTINUE_PROMPT, "one"], false),
        (&["one", RECALL, CONTINUE_PROMPT, "two", "two"], false),
        (&["one", RECALL, CONTINUE_PROMPT, CONTINUE_PROMPT, "two"], false),
        (&[], false),
    ];
    for (users, right) in table {
        assert_eq!(history.fault(&recalled(users)).is_none(), right, "{users:?}");
    }
}

//! The demonstration's own judgement: it must see what is missing, doubled or out of order.

use super::{History, RECALL, Recalled};

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
        prompts: vec!["one".to_owned(), RECALL.to_owned(), "two".to_owned()],
        cut_short: vec!["crashed".to_owned()],
    };
    let table: [(&[&str], bool); 8] = [
        (&["one", RECALL, "two"], true),
        (&["one", RECALL, "crashed", "two"], true),
        (&["one", "two"], false),
        (&["one"], false),
        (&["two", RECALL, "one"], false),
        (&["one", RECALL, "two", "two"], false),
        (&["one", RECALL, "two", RECALL], false),
        (&[], false),
    ];
    for (users, right) in table {
        assert_eq!(history.fault(&recalled(users)).is_none(), right, "{users:?}");
    }
}

//! Data that must survive a power loss is written by one module, whose tests check the order of the syncs.

use super::code::{code_of, split_tests};
use super::{check, named, root};

/// That module.
const DURABLE: &str = "src/files/durable.rs";

/// The rooms that must write through it. The store has its own module for its journal.
const ROOMS: [&str; 2] = ["src/transcript/", "src/conversation/"];

/// The calls that only this module may make.
const BY_HAND: [&str; 6] = [
    "sync_all",
    "sync_data",
    "fs::rename",
    "fs::hard_link",
    "renameat",
    "renameat_with",
];

fn synced_by_hand(path: &str, text: &str) -> Vec<String> {
    if path == DURABLE || !ROOMS.iter().any(|room| path.starts_with(room)) {
        return Vec::new();
    }
    let code = code_of(text);
    let (shipped, _) = split_tests(path, &code);
    named(path, shipped, &BY_HAND, "to be left to files/durable:")
}

#[test]
fn what_is_to_last_is_written_in_one_place() {
    check(synced_by_hand);
}

#[test]
fn the_rule_of_what_is_to_last_can_fail() {
    let line = "file.sync_all()?;\nfs::rename(from, to)?;\nrenameat_with(CWD, from, CWD, to, flags)?;";
    for path in ["src/transcript/x.rs", "src/conversation/x/y.rs"] {
        assert_eq!(synced_by_hand(path, line).len(), 3, "{path}");
    }
    for path in [DURABLE, "src/store/x.rs", "src/transcript/x/tests.rs"] {
        assert_eq!(synced_by_hand(path, line).len(), 0, "{path}");
    }
    assert!(root().join(DURABLE).exists());
    for visible in ["", "pub(super) "] {
        let in_tests = format!("fn f() {{}}\n#[cfg(test)]\n{visible}mod tests {{\n{line}\n}}");
        assert_eq!(synced_by_hand("src/transcript/x.rs", &in_tests).len(), 0);
    }
}

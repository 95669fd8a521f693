//! Files and folders that a command cannot use: what is wrong, and a command that helps.

use std::fs;

use super::home::Home;

#[test]
fn a_file_that_cannot_be_sent_is_named_with_what_helps() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let folder = home.path().join("folder");
    fs::create_dir(&folder).unwrap();
    for (file, code) in [
        ("./none.txt", 2),
        ("./folder/none.txt", 2),
        (folder.to_str().unwrap(), 2),
        // It can be opened, and reading it fails, also for root.
        ("/proc/self/mem", 1),
    ] {
        let printed = home.printed(&["send", &id, "--file", file, "Look"], code);
        assert!(printed.contains("hint: "), "{printed}");
    }
    assert_eq!(home.said(&["history", &id]), "");
}

//! The log of a command with `-v`, and the note about a new data folder.

use super::home::Home;
use super::text;

#[test]
fn a_verbose_command_says_which_daemon_it_uses_and_what_it_asks() {
    let home = Home::new();
    let first = text(&home.run(&["-v", "new"]).stderr);
    assert!(first.contains("no daemon answers; starting one on "), "{first}");
    for call in [
        &["ls", "-v"][..],
        &["-v", "show", "."],
        &["send", ".", "hi", "-v"],
    ] {
        let output = home.run(call);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let told = text(&output.stderr);
        assert!(told.contains("sessiond.sock"), "{told}");
        assert!(
            told.contains("conversation/") && told.contains(" answered after "),
            "{told}"
        );
        // Its messages are only in the longer log.
        assert!(!told.contains("jsonrpc"), "{told}");
    }
    let all = text(&home.run(&["-vv", "ls"]).stderr);
    assert!(all.contains("jsonrpc"), "{all}");
}

/// The option may be mistyped, and then nothing is found there.
#[test]
fn a_new_data_folder_of_a_named_home_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("typo");
    let call = |arguments: &[&str]| {
        let named = [&["--home", home.to_str().unwrap()], arguments].concat();
        super::run(folder.path(), &named)
    };
    let first = call(&["ls"]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    let told = text(&first.stderr);
    assert!(
        told.contains(&format!(
            "created a new data folder: {}",
            home.join("data").display()
        )),
        "{told}"
    );
    let again = text(&call(&["ls"]).stderr);
    assert!(!again.contains("data folder"), "{again}");
    assert_eq!(call(&["stop"]).status.code(), Some(0));
}

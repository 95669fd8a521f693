//! The command that helps next: after a turn that was cut short, in a renamed folder, and where a word does not fit.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::io::Errno;

use super::home::Home;
use super::printed::{check_printed, commands};
use super::terminal::{MARK, Terminal};
use super::{check, run, text};
use crate::failing_calls::{Call, Calls};

/// The conversation is idle again, but the user has not yet got what they wanted.
#[test]
fn a_turn_that_was_cut_short_is_marked_where_the_user_looks() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let failed = home.run(&["send", &id, "do it [[fail network]]"]);
    assert_eq!(failed.status.code(), Some(6), "{failed:?}");
    let listed = home.said(&["ls"]);
    assert!(listed.contains("\tidle (cut short)\t"), "{listed}");
    let show = ["show", &id];
    let output = home.run(&show);
    let told = check_printed(&show, &output, 0);
    assert_eq!(commands(&told), [format!("sessionctl continue {}", &id[..8])]);
    assert!(
        text(&output.stdout).contains("idle, last turn cut short"),
        "{output:?}"
    );
    home.said(&["send", &id, "something else"]);
    for command in [&["ls"][..], &show] {
        assert!(!home.said(command).contains("cut short"), "{command:?}");
    }
}

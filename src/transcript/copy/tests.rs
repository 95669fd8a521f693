use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::transcript::tests::{NEW, OLD, names, transcript};

/// F40: never over a file that exists, and nothing half-done is left behind.
#[test]
fn of_several_names_the_first_that_is_free_at_the_end_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    // The first is taken while the file is written.
    let fill = |writer: &mut dyn Write| -> Result<(), TranscriptError> {
        fs::write(at("1"), "somebody else's").expect("a file");
        writer
            .write_all(b"whole")
            .map_err(TranscriptError::io("write", folder.path()))
    };
    fs::write(at("2"), "another's").expect("a file");
    let made = create_first(at("1"), ["2", "3", "4"].map(at), fill).expect("a free name");
    assert_eq!(made, at("3"));
    assert_eq!(fs::read_to_string(made).expect("a file"), "whole");
    let full = create_first(at("1"), ["2", "3"].map(at), fill);
    assert!(matches!(full, Err(TranscriptError::AlreadyExists { .. })));
    assert_eq!(names(folder.path()).len(), 3, "no temporary file is left");
}

/// F40: a copy is whole or not there.
#[test]
fn a_failure_leaves_no_temporary_file() {
    let (folder, _source) = transcript(b"{\"a\":1}\n");
    let failed = create_in(folder.path(), NEW, "fork", |_| {
        Err(TranscriptError::RecordNotFound {
            path: PathBuf::new(),
            uuid: String::new(),
        })
    });
    assert!(failed.is_err());
    assert_eq!(names(folder.path()), [format!("{OLD}.jsonl")]);
}

#[test]
fn a_name_that_may_not_last_is_not_left_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("a mode");
    // Files can be made in it, and it cannot be opened to be synced.
    mode(0o300);
    let made = create(&folder.path().join("new"), |writer| {
        writer
            .write_all(b"x")
            .map_err(TranscriptError::io("write", folder.path()))
    });
    mode(0o700);
    // Nothing is closed to root.
    if !rustix::process::geteuid().is_root() {
        made.expect_err("the folder is not synced");
        assert_eq!(names(folder.path()), [] as [String; 0]);
    }
}

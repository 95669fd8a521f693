//! Tests that take too long for every check.

use super::sdks::{PYTHON, RUST};
use super::smoke::acplint::{WAITING, check};
use super::smoke::faults::{outlives_all, outlives_all_in_acpx};
use super::smoke::live_with_claude;

#[test]
#[ignore = "installs the real adapter"]
fn a_session_of_claude_lives_in_an_editor_on_the_python_sdk() {
    or_skip!(live_with_claude(&PYTHON));
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_of_claude_lives_in_an_editor_on_the_rust_sdk() {
    or_skip!(live_with_claude(&RUST));
}

#[test]
#[ignore = "installs the real adapter"]
fn acplint_has_no_complaint_about_the_daemon_after_it_has_waited() {
    or_skip!(check(WAITING));
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_outlives_each_fault_between_turns_in_acpx() {
    or_skip!(outlives_all_in_acpx());
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_outlives_each_fault_in_an_editor_on_the_python_sdk() {
    or_skip!(outlives_all(&PYTHON));
}

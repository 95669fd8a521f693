//! What takes too long for every check.

use super::smoke::{PROMPTS_TO_CLAUDE, python_sdk, with_claude};

#[test]
#[ignore = "installs the real adapter"]
fn a_session_of_claude_lives_in_an_editor_on_the_python_sdk() {
    or_skip!(with_claude(|lab| python_sdk(lab, PROMPTS_TO_CLAUDE)));
}

//! Events about the real agent's rollouts while it writes them.

use super::bridge::Bridge;
use super::transcripts::WITH_TOOL;
use crate::reading::prompts;

/// Neither a branch nor a compaction counts as another writer.
#[test]
#[ignore = "installs the real adapter"]
fn each_turn_with_tools_is_saved_once_in_order_and_nobody_else_writes() {
    let mut bridge = or_skip!(Bridge::start());
    let id = bridge.each_turn_is_saved_once((WITH_TOOL, "calling\n\ngreeted", "exec_command"));
    bridge.prompted(id, "/compact");
    let branch = bridge.fork(id, false).conversation.id;
    bridge.prompted(branch, "on the branch");
    bridge.prompted(id, "on the source");
    let of_branch = bridge.saved_until(branch, "on the branch");
    assert_eq!(prompts(&of_branch), ["on the branch"]);
    let saved = bridge.saved_until(id, "on the source");
    assert_eq!(prompts(&saved), ["in the next life", "on the source"]);
    assert_eq!(
        (bridge.foreign_writers(id), bridge.foreign_writers(branch)),
        (0, 0)
    );
}

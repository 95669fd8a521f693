//! Events about the real agent's rollouts while it writes them.

use bridge_protocol::conversation::Settings;
use bridge_protocol::event::Event;
use bridge_protocol::turn::StopReason;

use super::bridge::Bridge;
use super::transcripts::WITH_TOOL;
use crate::reading::prompts;

/// No turn may be reported before its end: the last report must contain the whole reply.
#[test]
#[ignore = "installs the real adapter"]
fn each_turn_with_tools_is_saved_once_in_order_and_nobody_else_writes() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    bridge.prompted(id, "first");
    bridge.prompted(id, WITH_TOOL);
    bridge.prompted(id, "third");
    let running = bridge.begin_prompt(id, "long [[slow 300 0.1]]", None);
    bridge.wait_event("the first word", |event| {
        matches!(&event.event, Event::Update { update, .. } if update.get().contains("word ")).then_some(())
    });
    assert!(bridge.cancel(id));
    let cancelled = running.wait().expect("a turn result");
    assert_eq!(cancelled.stop_reason, StopReason::Cancelled);
    bridge.prompted(id, "after the cancel");
    let saved = bridge.saved_until(id, "after the cancel");
    let expected = [
        "first",
        WITH_TOOL,
        "third",
        "long [[slow 300 0.1]]",
        "after the cancel",
    ];
    assert_eq!(prompts(&saved), expected);
    let steps: Vec<u64> = saved.iter().map(|checkpoint| checkpoint.step).collect();
    assert_eq!(steps, [1, 2, 3, 4, 5]);
    assert_eq!(
        (saved[1].reply.as_str(), &saved[1].tools[..]),
        ("calling\n\ngreeted", &["exec_command".to_owned()][..])
    );
    assert_eq!(
        saved,
        bridge.checkpoints(id),
        "the events differ from conversation/checkpoints"
    );
    assert_eq!(bridge.foreign_writers(id), 0);

    // After a restart the daemon reports only new turns. Neither a branch nor a compaction counts as another
    // writer.
    bridge.stop_daemon();
    bridge.start_daemon();
    bridge.prompted(id, "in the next life");
    let saved = bridge.saved_until(id, "in the next life");
    assert_eq!(prompts(&saved), ["in the next life"]);
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

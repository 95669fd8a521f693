//! Branches at each place of a history, and edits of each prompt, in the same words for every real agent.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::link::{Fidelity, LinkReason};

use crate::bridge::Bridge;
use crate::support::model_server::{Said, user};

/// What the model was sent before this prompt.
fn before(whole: &[Said], prompt: &str) -> Vec<Said> {
    whole
        .iter()
        .take_while(|said| **said != user(prompt))
        .cloned()
        .collect()
}

/// Branches behind each of these turns, which `whole` was sent behind, and prompts there: the model is sent exactly what stands up
/// to the place. `whole` ends with the prompt `last`.
pub(crate) fn branches_behind_each(
    bridge: &Bridge,
    id: ConversationId,
    prompts: &[&str],
    last: &str,
    via: BranchedVia,
    asked: impl Fn(&Bridge, &str) -> Vec<Said>,
) {
    let whole = asked(bridge, last);
    let checkpoints = bridge.checkpoints(id);
    for (index, checkpoint) in checkpoints.iter().take(prompts.len()).enumerate() {
        let at = Some(checkpoint.id.as_str().to_owned());
        let fork = bridge.fork_at(id, false, at).expect("conversation/fork");
        assert_eq!((fork.fidelity, fork.via), (Fidelity::Full, Some(via)), "{index}");
        let text = format!("behind {index}");
        bridge.prompted(fork.conversation.id, &text);
        let next = prompts.get(index + 1).copied().unwrap_or(last);
        let expected = [&before(&whole, next)[..], &[user(&text)]].concat();
        assert_eq!(asked(bridge, &text), expected, "{index}");
    }
    assert_eq!(checkpoints.len(), prompts.len() + 1);
}

/// Replaces each of these prompts, and takes that back: the model is sent what stood before the prompt and the new one, and
/// after the undo all that it was sent at first.
pub(crate) fn edits_of_each(
    bridge: &Bridge,
    id: ConversationId,
    prompts: &[&str],
    last: &str,
    via: BranchedVia,
    asked: impl Fn(&Bridge, &str) -> Vec<Said>,
) {
    let whole = asked(bridge, last);
    let source = bridge.head(id);
    let checkpoints = bridge.checkpoints(id);
    for (index, prompt) in prompts.iter().enumerate() {
        let text = format!("instead of {index}");
        let edited = bridge.edit(id, checkpoints[index].id.as_str(), &text);
        let edited = edited.expect("conversation/edit");
        let via = if index == 0 { BranchedVia::Fresh } else { via };
        assert_eq!(
            (edited.fidelity, edited.via),
            (Fidelity::Full, Some(via)),
            "{index}"
        );
        assert_eq!(edited.dropped, (checkpoints.len() - index) as u64, "{index}");
        let link = edited.link.expect("a link");
        assert_eq!((link.reason, link.turns), (LinkReason::Edited, 1));
        let expected = [&before(&whole, prompt)[..], &[user(&text)]].concat();
        assert_eq!(asked(bridge, &text), expected, "{index}");
        let undone = bridge.undo(id);
        assert_eq!(
            (undone.link.upstream_id.as_str(), undone.dropped),
            (source.as_str(), 1)
        );
    }
    let text = "after all";
    let turn = bridge.prompted(id, text);
    assert_eq!(turn.upstream_id.as_str(), source);
    let said = asked(bridge, text);
    assert_eq!(said[..whole.len()], whole);
    assert_eq!(said.last(), Some(&user(text)));
}

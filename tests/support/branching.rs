//! Scenarios for real agents, the same for each kind: branches at every turn, edits of every prompt, forks,
//! restarts, moves and restores.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{BranchedVia, Settings};
use bridge_protocol::history::{Message, MessageKind};
use bridge_protocol::link::{Fidelity, LinkReason, Via};

use crate::bridge_of::Bridge;
use crate::reading::said;
use crate::support::lab::Agent;
use crate::support::model_server::{What, model, user};
use crate::support::prefix::Prefix;

/// The first request of a prompt's turn, with a placeholder for the prompt itself.
pub(crate) fn asked_before(bridge: &Bridge<impl Agent>, prompt: &str) -> Prefix {
    Prefix::with(&bridge.lab.model.first_asked(prompt), prompt)
}

/// Branches after each of these turns, which all ran in one session, and sends a prompt on each branch. The
/// model must receive exactly what it received before the next prompt of the original. `last` is the prompt
/// after `prompts`; `before` runs before each branch.
pub(crate) fn branches_behind_each(
    bridge: &Bridge<impl Agent>,
    id: ConversationId,
    prompts: &[&str],
    last: &str,
    via: BranchedVia,
    before: impl Fn(),
) {
    let checkpoints = bridge.checkpoints(id);
    for (index, checkpoint) in checkpoints.iter().take(prompts.len()).enumerate() {
        before();
        let at = Some(checkpoint.id.as_str().to_owned());
        let fork = bridge.fork_at(id, false, at).expect("conversation/fork");
        assert_eq!((fork.fidelity, fork.via), (Fidelity::Full, Some(via)), "{index}");
        let text = format!("behind {index}");
        bridge.prompted(fork.conversation.id, &text);
        let next = prompts.get(index + 1).copied().unwrap_or(last);
        asked_before(bridge, &text).check_is(&asked_before(bridge, next), &text);
    }
    assert_eq!(checkpoints.len(), prompts.len() + 1);
}

/// Replaces each of these prompts and undoes the edit. The model must receive exactly what it received before
/// the original prompt. After the last undo the history is complete again. `before` runs before each edit.
pub(crate) fn edits_of_each(
    bridge: &Bridge<impl Agent>,
    id: ConversationId,
    prompts: &[&str],
    last: &str,
    via: BranchedVia,
    before: impl Fn(),
) {
    let source = bridge.head(id);
    let checkpoints = bridge.checkpoints(id);
    for (index, prompt) in prompts.iter().enumerate() {
        before();
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
        let [said, expected] = [asked_before(bridge, &text), asked_before(bridge, prompt)];
        match index {
            0 => said.of_any_session().check_is(&expected.of_any_session(), &text),
            _ => said.check_is(&expected, &text),
        }
        let undone = bridge.undo(id);
        assert_eq!(
            (undone.link.upstream_id.as_str(), undone.dropped),
            (source.as_str(), 1)
        );
    }
    before();
    let text = "after all";
    let turn = bridge.prompted(id, text);
    assert_eq!(turn.upstream_id.as_str(), source);
    let [whole, said] = [last, text].map(|prompt| Prefix::of(&bridge.lab.model.first_asked(prompt)));
    whole.check_begins(&said, text);
    assert_eq!(bridge.lab.model.asked(text).last(), Some(&user(text)));
}

/// Branches after two tool results between which the agent compacted the history automatically. The branch
/// after the first result must contain everything said up to it. The branch after the second must contain
/// what the model received up to it together with the `next` prompt. From each branch, and from a native
/// fork, a further branch to before the compaction must work. `first` is the first prompt.
pub(crate) fn branches_around_a_compaction(
    bridge: &Bridge<impl Agent>,
    id: ConversationId,
    first: &str,
    results: [&str; 2],
    next: &str,
) {
    let history = bridge.history(id);
    let place = |result: &str| {
        let is_it = |message: &Message| {
            let mut parts = message.content.iter().filter(|part| part.kind == "toolResult");
            parts.any(|part| {
                part.text
                    .as_deref()
                    .is_some_and(|text| text.trim().ends_with(result))
            })
        };
        history.iter().position(is_it).expect("the result")
    };
    let sent = bridge.lab.model.asked(next);
    let is_last = |what: &What| matches!(what, What::ToolResult(text) if text.ends_with(results[1]));
    let until = sent
        .iter()
        .position(|said| is_last(&said.what))
        .expect("the result");
    let [before, behind] = results.map(place);
    let is_aside = |message: &&Message| message.kind == Some(MessageKind::Aside);
    let until_then = history[..=before].iter().filter(|message| !is_aside(message));
    let until_then: Vec<_> = until_then.cloned().collect();
    let mut branches = Vec::new();
    for (at, expected, text) in [
        (before, said(&until_then), "before the compaction"),
        (behind, sent[..=until].to_vec(), "behind the compaction"),
    ] {
        let fork = bridge.fork_at(id, false, Some(history[at].id.as_str().to_owned()));
        let fork = fork.expect("conversation/fork");
        assert_eq!(
            (fork.fidelity, fork.via),
            (Fidelity::Full, Some(BranchedVia::Cut)),
            "{text}"
        );
        bridge.prompted(fork.conversation.id, text);
        let mut asked = bridge.lab.model.asked(text);
        // Claude Code inserts this reply into a turn that has none.
        asked.retain(|said| *said != model("No response requested."));
        assert_eq!(asked, [&expected[..], &[user(text)]].concat(), "{text}");
        branches.push((fork.conversation.id, text));
    }
    let native = bridge.fork(id, false);
    assert_eq!(native.via, Some(BranchedVia::Native));
    bridge.prompted(native.conversation.id, "on a fork by the agent");
    branches.push((native.conversation.id, "on a fork by the agent"));
    for (branch, name) in branches {
        let checkpoint = &bridge.checkpoints(branch)[0];
        assert_eq!(checkpoint.prompt, first, "{name}");
        let fork = bridge.fork_at(branch, false, Some(checkpoint.id.as_str().to_owned()));
        let text = format!("{name}, and back");
        bridge.prompted(fork.expect("conversation/fork").conversation.id, &text);
        let expected = [user(first), model(&format!("ok: {first}")), user(&text)];
        assert_eq!(bridge.lab.model.asked(&text), expected);
    }
}

/// Runs a conversation with these prompts and one more. Branches it after each, edits each and undoes the
/// edit, runs [`goes_through`], and deletes the transcript. The model must always receive the complete
/// history before each prompt.
pub(crate) fn survives_everything(bridge: &mut Bridge<impl Agent>, prompts: &[&str], via: BranchedVia) {
    let id = bridge.conversation(Settings::default());
    let last = "at the end";
    for prompt in prompts.iter().chain([&last]) {
        bridge.prompted(id, prompt);
    }
    branches_behind_each(bridge, id, prompts, last, via, || {});
    edits_of_each(bridge, id, prompts, last, via, || {});
    let last = goes_through(bridge, id);
    bridge.close(id);
    bridge.keep(id);
    let transcript = bridge.lab.transcript(&bridge.head(id)).expect("the transcript");
    let kept = fs::read(&transcript).expect("the transcript");
    fs::remove_file(&transcript).expect("removed");
    goes_on(bridge, id, [last, "restored"], Via::Archive);
    assert!(
        fs::read(&transcript)
            .expect("the restored transcript")
            .starts_with(&kept)
    );
}

/// Forks a conversation natively, resumes it, resumes it with a restarted daemon, and moves it into another
/// folder. After each step it sends a prompt; the model must receive the complete previous request and its
/// reply. Returns the last prompt.
pub(crate) fn goes_through(bridge: &mut Bridge<impl Agent>, id: ConversationId) -> &'static str {
    let native = bridge.fork(id, false);
    assert_eq!(native.via, Some(BranchedVia::Native));
    bridge.prompted(id, "live");
    bridge.prompted(native.conversation.id, "on a fork");
    asked_before(bridge, "on a fork").check_is(&asked_before(bridge, "live"), "a fork by the agent");
    bridge.close(id);
    goes_on(bridge, id, ["live", "resumed"], Via::Resume);
    bridge.stop_daemon();
    bridge.start_daemon();
    goes_on(bridge, id, ["resumed", "by another process"], Via::Resume);
    let folder = bridge.lab.scratch().join("Größe & more");
    fs::create_dir_all(&folder).expect("a folder");
    bridge.move_to(id, &folder).expect("conversation/move");
    goes_on(bridge, id, ["by another process", "moved"], Via::Resume);
    "moved"
}

/// Continues with the second prompt. The model must receive the complete request of the first prompt, the
/// reply to it, and nothing else.
pub(crate) fn goes_on(bridge: &Bridge<impl Agent>, id: ConversationId, prompts: [&str; 2], via: Via) {
    let head = bridge.head(id);
    let turn = bridge.prompted(id, prompts[1]);
    assert_eq!(turn.upstream_id.as_str(), head);
    let resumed = turn.resumed.expect("the session was resumed");
    assert_eq!((resumed.via, resumed.fidelity), (via, Fidelity::Full));
    let [before, now] = prompts.map(|prompt| Prefix::of(&bridge.lab.model.first_asked(prompt)));
    before.check_begins(&now, prompts[1]);
    let [mut expected, said] = prompts.map(|prompt| bridge.lab.model.asked(prompt));
    expected.extend([model(&format!("ok: {}", prompts[0])), user(prompts[1])]);
    assert_eq!(said, expected, "{}", prompts[1]);
}

//! A conversation with everything that one can hold: tools that ran side by side, thinking, a subagent, a
//! compaction, turns that failed and that were interrupted. Wherever one goes back to in it, and however it
//! is brought back, the model is sent what it would have been sent there, to the letter: so that what its
//! server has kept of the conversation serves still.

mod deleted;
mod moved;
mod repaired;

use bridge_protocol::client::Call as _;
use bridge_protocol::method::Edit;
use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{BranchedVia, Settings};
use bridge_protocol::history::MessageKind;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::StopReason;
use serde_json::json;

use super::bridge::Bridge;
use super::carrying::PARALLEL;
use super::sdk;
use crate::branching::{branches_behind_each, edits_of_each, goes_on, goes_through};
use crate::bridge_of::{PNG, with_picture};
use crate::reading::said;
use crate::support::claude::Account;
use crate::support::model_server::{What, model, user};
use crate::support::prefix::Prefix;

const SUBAGENT: &str = r#"[[tool Agent {"description":"look","prompt":"[[text words of the subagent]]","subagent_type":"general-purpose","run_in_background":false}]] [[text looked]]"#;

const FAILED: &str = "failed [[err 500]]";

const INTERRUPTED: &str = "interrupted [[slow 300 0.1]]";

const BEHIND_COMPACTION: &str = "behind the compaction";

/// The prompts of [`whole`], but for what was asked of the agent itself, and the last.
const PROMPTS: [&str; 6] = [
    "first",
    PARALLEL,
    BEHIND_COMPACTION,
    SUBAGENT,
    FAILED,
    INTERRUPTED,
];

const LAST: &str = "at the end";

/// Has the conversation.
fn whole(bridge: &Bridge) -> ConversationId {
    let id = bridge.conversation(Settings::default());
    for prompt in ["first", PARALLEL, "/compact", BEHIND_COMPACTION, SUBAGENT] {
        bridge.prompted(id, prompt);
    }
    bridge.prompt(id, FAILED).expect("a turn");
    let running = bridge.begin_prompt(id, INTERRUPTED, None);
    bridge.wait_written(id, INTERRUPTED);
    bridge.lab.model.wait_for(INTERRUPTED);
    assert!(bridge.cancel(id));
    let turn = running.wait().expect("a turn");
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    // Behind a mark of interruption the agent fills in a reply when it resumes, and a branch is always
    // resumed.
    bridge.close(id);
    bridge.prompted(id, LAST);
    id
}

/// The first request of a prompt's turn.
fn asked(bridge: &Bridge, prompt: &str) -> Prefix {
    Prefix::of(&bridge.lab.model.first_asked(prompt))
}

// Against D2.
#[test]
#[ignore = "installs the real adapter"]
fn d7_branches_and_edits_have_to_the_letter_what_stands_before_their_place() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = whole(&bridge);
    let source = bridge.lab.transcript(&bridge.head(id)).expect("the source");
    let before = fs::read(&source).expect("the source");
    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Cut, || {});
    assert_eq!(fs::read(&source).expect("the source"), before);
    edits_of_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Cut, || {});
    assert!(fs::read(&source).expect("the source").starts_with(&before));
}

/// The place before a compaction, which a message and the checkpoint that was told then name, has what was
/// compacted later.
#[test]
#[ignore = "installs the real adapter"]
fn d7_before_a_compaction_stands_what_was_compacted() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.conversation(Settings::default());
    bridge.prompted(id, "first");
    bridge.prompted(id, PARALLEL);
    let told = bridge.saved_until(id, PARALLEL).pop().expect("a checkpoint");
    bridge.prompted(id, "/compact");
    bridge.prompted(id, BEHIND_COMPACTION);
    // The turn's end is now behind the compaction, which nobody's prompt began.
    let now = bridge.checkpoints(id);
    assert_ne!(now[1].id, told.id);
    let history = bridge.history(id);
    let compared = history.iter().find(|message| {
        let mut parts = message.content.iter();
        parts.any(|part| part.text.as_deref() == Some("compared"))
    });
    let compared = compared.expect("the reply").id.clone();
    let summary = history
        .iter()
        .position(|message| message.kind == Some(MessageKind::Summary));
    let expected = said(&history[..summary.expect("a summary")]);
    for (at, text) in [
        (told.id.as_str(), "at the checkpoint"),
        (compared.as_str(), "at the message"),
    ] {
        let fork = bridge
            .fork_at(id, false, Some(at.to_owned()))
            .expect("conversation/fork");
        assert_eq!(
            (fork.fidelity, fork.via),
            (Fidelity::Full, Some(BranchedVia::Cut))
        );
        bridge.prompted(fork.conversation.id, text);
        let asked = bridge.lab.model.asked(text);
        assert_eq!(asked, [&expected[..], &[user(text)]].concat());
    }
    // Compacted, as its own source.
    let fork = bridge
        .fork_at(id, false, Some(now[1].id.as_str().to_owned()))
        .expect("conversation/fork");
    bridge.prompted(fork.conversation.id, "behind it");
    let asked = bridge.lab.model.asked("behind it");
    assert!(!asked.contains(&user("first")), "{asked:#?}");
    assert_eq!(
        asked[..asked.len() - 1],
        bridge.lab.model.asked(BEHIND_COMPACTION)[..asked.len() - 1]
    );
}

/// The vendor's own library makes forks up to a record too: with them the model is sent the same history.
#[test]
#[ignore = "installs the real adapter"]
fn d7_the_vendors_own_forks_have_the_same_history() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = whole(&bridge);
    let head = bridge.head(id);
    for (index, checkpoint) in bridge.checkpoints(id).iter().enumerate() {
        let place = checkpoint.id.as_str();
        let fork = bridge
            .fork_at(id, false, Some(place.to_owned()))
            .expect("conversation/fork");
        let ours = format!("on ours {index}");
        bridge.prompted(fork.conversation.id, &ours);
        let record = place.rsplit('.').next().expect("a record");
        let theirs = sdk::fork(&bridge.lab, &head, record);
        let adopted = bridge.adopt(&theirs).expect("conversation/adopt").id;
        let on_theirs = format!("on theirs {index}");
        bridge.prompted(adopted, &on_theirs);
        let [mut ours, mut theirs] = [&ours, &on_theirs].map(|text| bridge.lab.model.asked(text));
        ours.pop();
        theirs.pop();
        assert_eq!(ours, theirs, "{index}");
    }
}

/// One after the other of one conversation, each with all that was sent before it.
#[test]
#[ignore = "installs the real adapter"]
fn whatever_a_conversation_goes_through_the_model_is_sent_the_same_beginning() {
    let Some(mut bridge) = Bridge::start(Account::Key) else {
        return;
    };
    let id = whole(&bridge);
    let head = bridge.head(id);
    let last = goes_through(&mut bridge, id);

    // Deleted with all that stands beside it, and restored from what was kept.
    bridge.close(id);
    bridge.keep(id);
    let path = bridge.lab.transcript(&head).expect("the transcript");
    let kept = fs::read(&path).expect("the transcript");
    fs::remove_file(&path).expect("removed");
    fs::remove_dir_all(path.with_extension("")).expect("removed");
    goes_on(&bridge, id, [last, "restored"], Via::Archive);
    let restored = bridge.lab.transcript(&head).expect("the transcript");
    assert!(fs::read(restored).expect("the transcript").starts_with(&kept));
    // And a branch of it is whole.
    let place = bridge.checkpoints(id)[3].id.as_str().to_owned();
    let branch = bridge.fork_at(id, false, Some(place)).expect("conversation/fork");
    bridge.prompted(branch.conversation.id, "on a branch of it");
    asked(&bridge, SUBAGENT).check_begins(
        &asked(&bridge, "on a branch of it"),
        "a branch of what was restored",
    );
}

/// The prompts that hold a picture in the newest request of a prompt, by their text.
fn pictured(bridge: &Bridge, text: &str) -> Vec<What> {
    let asked = bridge.lab.model.asked(text);
    let pictures = asked
        .windows(2)
        .filter(|pair| pair[0].what == What::Other("image".to_owned()));
    pictures.map(|pair| pair[1].what.clone()).collect()
}

/// Pictures come and go with the prompts that hold them; the turn behind has a tool.
#[test]
#[ignore = "installs the real adapter"]
fn d2_a_picture_comes_with_an_edit_and_goes_with_one() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.conversation(Settings::default());
    bridge.prompted(id, "first");
    bridge.prompted(id, PARALLEL);
    let edit = |index: usize, prompt: PromptContent| {
        let (client, at) = (
            bridge.client(),
            bridge.checkpoints(id)[index].id.as_str().to_owned(),
        );
        let edited = bridge.call(async move {
            client
                .call(Edit {
                    conversation_id: id.into(),
                    at,
                    prompt,
                    ..Default::default()
                })
                .await
        });
        let edited = edited.expect("conversation/edit");
        assert_eq!(
            (edited.fidelity, edited.via),
            (Fidelity::Full, Some(BranchedVia::Cut))
        );
    };
    let text = |text: &str| What::Text(text.to_owned());
    edit(1, with_picture("look at this"));
    assert_eq!(pictured(&bridge, "look at this"), [text("look at this")]);
    let body = bridge.lab.model.first_asked("look at this");
    let sent = Prefix::of(&body).conversation.to_string();
    assert!(sent.contains(PNG), "{sent}");
    bridge.prompted(id, "what was it");
    assert_eq!(pictured(&bridge, "what was it"), [text("look at this")]);
    // Also behind it, on a branch.
    edit(
        2,
        with_picture("and this [[tool Bash {\"command\":\"echo seen\",\"description\":\"d\"}]]"),
    );
    assert_eq!(pictured(&bridge, "and this").len(), 2);
    edit(2, PromptContent::text("in words"));
    assert_eq!(pictured(&bridge, "in words"), [text("look at this")]);
    edit(1, PromptContent::text("without it"));
    assert_eq!(pictured(&bridge, "without it"), []);
    let asked = bridge.lab.model.asked("without it");
    assert_eq!(asked, [user("first"), model("ok: first"), user("without it")]);
}

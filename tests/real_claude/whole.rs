//! A conversation with everything that a conversation can contain: parallel tools, thinking, a subagent, a
//! compaction, failed turns and interrupted turns. Wherever it is branched and however it is resumed, the
//! model must receive exactly what it would have received there, so that the server's cache still applies.

mod deleted;
mod moved;
mod repaired;

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::BranchedVia;
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

/// The prompts of [`whole`], without the commands for the agent itself and without the last prompt.
const PROMPTS: [&str; 6] = [
    "first",
    PARALLEL,
    BEHIND_COMPACTION,
    SUBAGENT,
    FAILED,
    INTERRUPTED,
];

const LAST: &str = "at the end";

/// Runs the whole conversation.
fn whole(bridge: &Bridge) -> ConversationId {
    let id = bridge.begun(&["first", PARALLEL, "/compact", BEHIND_COMPACTION, SUBAGENT]);
    bridge.prompt(id, FAILED).expect("a turn");
    let running = bridge.begin_prompt(id, INTERRUPTED, None);
    bridge.wait_written(id, INTERRUPTED);
    bridge.lab.model.wait_for(INTERRUPTED);
    assert!(bridge.cancel(id));
    let turn = running.wait().expect("a turn");
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    // After an interruption the agent inserts a reply when it resumes. A branch is always resumed, so the
    // source is resumed too.
    bridge.close(id);
    bridge.prompted(id, LAST);
    id
}

/// The first request in the turn of a prompt.
fn asked(bridge: &Bridge, prompt: &str) -> Prefix {
    Prefix::of(&bridge.lab.model.first_asked(prompt))
}

// D2: the edits replace earlier prompts.
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

/// A branch before a compaction must contain what was compacted later. The place is named by a message, and
/// by the checkpoint that was reported before the compaction.
#[test]
#[ignore = "installs the real adapter"]
fn d7_before_a_compaction_stands_what_was_compacted() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first", PARALLEL]);
    let told = bridge.saved_until(id, PARALLEL).pop().expect("a checkpoint");
    bridge.prompted(id, "/compact");
    bridge.prompted(id, BEHIND_COMPACTION);
    // The end of this turn is now after the compaction, which no prompt has started.
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
    // This branch is compacted like its source.
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

/// The vendor's own library can also fork up to a record; with its forks the model must receive the same
/// history.
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

/// Does everything to one conversation in sequence; each request must begin with the whole previous one.
#[test]
#[ignore = "installs the real adapter"]
fn whatever_a_conversation_goes_through_the_model_is_sent_the_same_beginning() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = whole(&bridge);
    let head = bridge.head(id);
    let last = goes_through(&mut bridge, id);

    // Deletes the transcript with all its files, and restores it from the copy.
    bridge.close(id);
    bridge.keep(id);
    let path = bridge.lab.transcript(&head).expect("the transcript");
    let kept = fs::read(&path).expect("the transcript");
    fs::remove_file(&path).expect("removed");
    fs::remove_dir_all(path.with_extension("")).expect("removed");
    goes_on(&bridge, id, [last, "restored"], Via::Archive);
    let restored = bridge.lab.transcript(&head).expect("the transcript");
    assert!(fs::read(restored).expect("the transcript").starts_with(&kept));
    // A branch of the restored session must be complete too.
    let place = bridge.checkpoints(id)[3].id.as_str().to_owned();
    let branch = bridge.fork_at(id, false, Some(place)).expect("conversation/fork");
    bridge.prompted(branch.conversation.id, "on a branch of it");
    asked(&bridge, SUBAGENT).check_begins(
        &asked(&bridge, "on a branch of it"),
        "a branch of what was restored",
    );
}

/// The texts of the prompts that contain a picture, in the newest request of a prompt.
fn pictured(bridge: &Bridge, text: &str) -> Vec<What> {
    let asked = bridge.lab.model.asked(text);
    let pictures = asked
        .windows(2)
        .filter(|pair| pair[0].what == What::Other("image".to_owned()));
    pictures.map(|pair| pair[1].what.clone()).collect()
}

/// Pictures are added and removed with the prompts that contain them. The next turn has a tool.
#[test]
#[ignore = "installs the real adapter"]
fn d2_a_picture_comes_with_an_edit_and_goes_with_one() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first", PARALLEL]);
    let edit = |index: usize, prompt: PromptContent| {
        let edited = bridge.edit_with(id, bridge.checkpoints(id)[index].id.as_str(), prompt);
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
    // The same for a later prompt, in a branch that already has a picture.
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

//! Usage limits, and resumes after them with parts of the conversation lost.

use bridge_protocol::method::Prompt;
use std::fs;
use std::os::unix::fs::symlink;

use bridge_protocol::conversation::{ConversationState, OnLimit, Settings};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, LinkReason, Relation, RollCause, Via};
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::{FailureKind, StopReason};
use bridge_protocol::{ConversationId, ErrorKind};
use jiff::Timestamp;

use super::bridge::Bridge;
use crate::continuation::GO_ON;
use crate::processes::assert_gone;
use crate::resumed::check_resumed;
use crate::support::claude::Account;
use crate::support::model_server::{Said, What, model, user};

pub(crate) fn echoed(text: &str) -> [Said; 2] {
    [user(text), model(&format!("ok: {text}"))]
}

/// Sends a prompt that meets a limit and checks how the limit is reported. Returns the prompt's text.
fn meet_limit(bridge: &Bridge, id: ConversationId) -> String {
    let resets_at = Timestamp::now().as_second() + 5400;
    let text = format!("too much [[err 429 unified=1 ra=1 reset={resets_at}]]");
    let turn = bridge.prompt(id, &text).expect("a turn result");
    assert_eq!(turn.stop_reason, StopReason::Failed);
    let failure = turn.failure.expect("a failure");
    assert_eq!(failure.kind, FailureKind::RateLimited);
    assert_eq!(failure.resets_at.map(Timestamp::as_second), Some(resets_at));
    let now = bridge.get(id);
    assert_eq!(now.state, ConversationState::Limited);
    let limit = now.limit.expect("a limit");
    assert_eq!(limit.resets_at.map(Timestamp::as_second), Some(resets_at));
    let told = bridge.wait_event("the limit", |event| match &event.event {
        Event::Limited { limit } if event.conversation_id == id => Some(limit.clone()),
        _ => None,
    });
    assert_eq!(told, limit);
    text
}

#[test]
#[ignore = "installs the real adapter"]
fn a_limit_is_told_with_its_end_and_the_session_stays() {
    let bridge = or_skip!(Bridge::start(Account::Subscription));
    let id = bridge.begun(&["first"]);
    let head = bridge.head(id);
    let limited = meet_limit(&bridge, id);

    // After the reset the same session continues, and contains the refused prompt once.
    bridge.prompted(id, "after it");
    let expected = [&echoed("first")[..], &[user(&limited), user("after it")]].concat();
    assert_eq!(bridge.lab.model.asked("after it"), expected);
    let now = bridge.get(id);
    assert_eq!(
        (bridge.head(id), now.state, now.limit),
        (head.clone(), ConversationState::Idle, None)
    );
    bridge.close(id);
    let turn = bridge.prompted(id, "resumed");
    assert_eq!(turn.upstream_id.as_str(), head);
    let expected = [
        &echoed("first")[..],
        &[user(&limited)],
        &echoed("after it"),
        &[user("resumed")],
    ]
    .concat();
    assert_eq!(bridge.lab.model.asked("resumed"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_limit_at_the_first_prompt_is_told_with_its_end_over_a_restart() {
    let mut bridge = or_skip!(Bridge::start(Account::Subscription));
    let id = bridge.conversation(Settings::default());
    let limited = meet_limit(&bridge, id);
    bridge.stop_daemon();
    bridge.start_daemon();
    assert_eq!(bridge.get(id).state, ConversationState::Limited);
    bridge.prompted(id, "after it");
    assert_eq!(
        bridge.lab.model.asked("after it"),
        [user(&limited), user("after it")]
    );
    assert_eq!(bridge.chain(id).len(), 1);
}

mod smoke {
    use super::*;

    /// The daemon is killed while it waits, and the next one continues at the reset. The agent has kept the
    /// refused prompt, so the model must receive it only once.
    #[test]
    #[ignore = "installs the real adapter"]
    fn d3_a_limited_prompt_goes_on_by_itself_and_reaches_the_model_once() {
        let mut bridge = or_skip!(Bridge::start(Account::Subscription));
        let id = bridge.begun(&["first"]);
        let resets_at = Timestamp::now().as_second() + 4;
        let limited = format!("too much [[err 429 unified=1 ra=1 reset={resets_at}]]");
        let turn = bridge.answer(Prompt {
            conversation_id: id.into(),
            prompt: PromptContent::text(&limited),
            on_limit: OnLimit::Wait,
            ..Default::default()
        });
        let continuation = turn.continuation.expect("a continuation");
        assert_eq!(continuation.at.as_second(), resets_at);
        bridge.kill_daemon();
        bridge.start_daemon();
        let went_on = bridge.wait_event("the turn that goes on", |event| match &event.event {
            Event::TurnEnded { turn } if event.conversation_id == id => Some(turn.stop_reason.clone()),
            _ => None,
        });
        assert_eq!(went_on, StopReason::EndTurn);
        let expected = [&echoed("first")[..], &[user(&limited), user(GO_ON)]].concat();
        assert_eq!(bridge.lab.model.asked(GO_ON), expected);
        let now = bridge.get(id);
        assert_eq!((now.state, now.continuation), (ConversationState::Idle, None));
    }
}

#[test]
#[ignore = "installs the real adapter"]
fn after_a_limit_a_session_that_is_refused_goes_on_as_a_copy() {
    let bridge = or_skip!(Bridge::start(Account::Subscription));
    let id = bridge.begun(&["first"]);
    let head = bridge.head(id);
    let limited = meet_limit(&bridge, id);
    forget(&bridge, id, &head);

    let turn = bridge.prompted(id, "after it");
    let resumed = turn.resumed.expect("a resume");
    check_resumed(&resumed, Via::Copied, Fidelity::Full, 0);
    let expected = [&echoed("first")[..], &[user(&limited), user("after it")]].concat();
    assert_eq!(bridge.lab.model.asked("after it"), expected);
    check_roll(&bridge, id, &head, LinkReason::Copied, Relation::Carries);
}

#[test]
#[ignore = "installs the real adapter"]
fn after_a_limit_a_lost_session_falls_back_to_its_ancestor() {
    let bridge = or_skip!(Bridge::start_changed(Account::Subscription, |entry| entry
        .keeps =
        false));
    let id = bridge.begun(&["first"]);
    bridge.fork(id, true);
    bridge.prompted(id, "second");
    let head = bridge.head(id);
    meet_limit(&bridge, id);
    bridge.close(id);
    fs::remove_file(bridge.lab.transcript(&head).expect("the transcript")).expect("the deletion");

    let turn = bridge.prompted(id, "after it");
    let resumed = turn.resumed.expect("a resume");
    check_resumed(&resumed, Via::OlderLink, Fidelity::Partial, 1);
    let expected = [&echoed("first")[..], &[user("after it")]].concat();
    assert_eq!(bridge.lab.model.asked("after it"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn after_a_limit_a_history_that_the_agent_will_not_have_is_told_in_words() {
    // The agent now uses another configuration folder, as with another account. It knows neither the sessions
    // in the old folder, nor would it know a copy there.
    let mut old_root = std::path::PathBuf::new();
    let mut bridge = or_skip!(Bridge::start_changed(Account::Subscription, |entry| {
        old_root.clone_from(&entry.transcripts);
    }));
    let id = bridge.begun(&["first"]);
    let head = bridge.head(id);
    meet_limit(&bridge, id);
    bridge.stop_daemon();
    let new_root = bridge.lab.scratch().join("other");
    fs::create_dir_all(&new_root).expect("a folder");
    bridge.reconfigure(|entry| {
        entry.transcripts.clone_from(&old_root);
        for (name, value) in &mut entry.env {
            if name == "CLAUDE_CONFIG_DIR" {
                new_root.to_str().expect("a path in UTF-8").clone_into(value);
            }
        }
    });
    bridge.start_daemon();

    let refused = bridge.prompt_at_least(id, "not in words", Fidelity::Partial);
    assert_eq!(
        refused
            .expect_err("a text summary is less than the requested fidelity")
            .kind,
        ErrorKind::NotResumable
    );
    assert_eq!(bridge.head(id), head);

    let turn = bridge.prompted(id, "after it");
    let resumed = turn.resumed.expect("a resume");
    assert_eq!(
        (resumed.via, resumed.fidelity),
        (Via::Text, Fidelity::Text),
        "{resumed:?}"
    );
    let said = bridge.lab.model.asked("after it");
    let [
        Said {
            role,
            what: What::Text(told),
        },
        rest @ ..,
    ] = &said[..]
    else {
        panic!("{said:?}")
    };
    assert_eq!(role, "user");
    let place = |text: &str| told.find(text).unwrap_or_else(|| panic!("no {text:?} in {told}"));
    assert!(place("first") < place("ok: first"));
    assert!(rest.len() <= 1, "{said:?}");
    check_roll(&bridge, id, &head, LinkReason::Rolled, Relation::Follows);
}

#[test]
#[ignore = "installs the real adapter"]
fn after_a_limit_a_session_that_is_lost_for_good_is_said_to_be_lost() {
    let bridge = or_skip!(Bridge::start_changed(Account::Subscription, |entry| entry
        .keeps =
        false));
    let id = bridge.begun(&["first"]);
    let head = bridge.head(id);
    meet_limit(&bridge, id);
    bridge.close(id);
    let transcript = bridge.lab.transcript(&head).expect("the transcript");
    let kept = transcript.with_extension("kept");
    fs::rename(&transcript, &kept).expect("the transcript taken away");

    let error = bridge
        .prompt(id, "after it")
        .expect_err("there is nothing to continue from");
    assert_eq!(error.kind, ErrorKind::NotResumable);
    let attempts = error.detail("attempts");
    assert_eq!(attempts[0]["upstreamId"], head.as_str());
    assert_eq!(bridge.get(id).state, ConversationState::Failed);
    assert_eq!(bridge.chain(id).len(), 1);

    // The chain is unchanged, so the conversation continues once the file is restored.
    fs::rename(&kept, &transcript).expect("the transcript put back");
    let turn = bridge.prompted(id, "it is back");
    assert_eq!(turn.upstream_id.as_str(), head);
    let said = bridge.lab.model.asked("it is back");
    assert_eq!(said[..2], echoed("first"));

    // A new session is started only if the caller accepts that.
    bridge.close(id);
    fs::remove_file(&transcript).expect("the deletion");
    let turn = bridge
        .prompt_at_least(id, "anything", Fidelity::None)
        .expect("a turn");
    let resumed = turn.resumed.expect("a resume");
    assert_eq!((resumed.via, resumed.fidelity), (Via::Fresh, Fidelity::None));
    assert_eq!(bridge.lab.model.asked("anything"), [user("anything")]);
}

/// Makes the agent forget a session whose transcript is complete: moves its folder away and leaves a link, as
/// users do who keep transcripts on another disk. The agent looks directly into the folder of the working
/// directory; among the other folders it skips links.
pub(super) fn forget(bridge: &Bridge, id: ConversationId, head: &str) {
    let mut children = bridge.agent_processes();
    children.retain(|process| !process.is_adapter());
    bridge.close(id);
    assert_gone(&children);
    let transcript = bridge.lab.transcript(head).expect("the transcript");
    let own = transcript.parent().expect("a folder");
    let another_disk = bridge.lab.scratch().join("another-disk");
    fs::rename(own, &another_disk).expect("the folder moved");
    symlink(&another_disk, own.with_file_name("-another-folder")).expect("a link");
    // The agent leaves such a file without a turn if its transcript is deleted.
    fs::create_dir(own).expect("the folder again");
    let stub = format!("{{\"type\":\"last-prompt\",\"sessionId\":\"{head}\"}}\n");
    fs::write(&transcript, stub).expect("a stub");
}

/// Checks that the roll from this head was reported and is in the chain, with the limit as its cause.
fn check_roll(bridge: &Bridge, id: ConversationId, from: &str, reason: LinkReason, relation: Relation) {
    let links = bridge.chain(id);
    let link = links.last().expect("a head");
    assert_eq!(
        (link.reason, link.relation, link.cause),
        (reason, relation, Some(RollCause::Limit))
    );
    assert_eq!(
        link.from_upstream_id
            .as_ref()
            .map(bridge_protocol::UpstreamId::as_str),
        Some(from)
    );
    let told = bridge.wait_event("the roll", |event| match &event.event {
        Event::Rolled { from, to, cause, .. } if event.conversation_id == id => {
            Some((from.clone(), to.clone(), *cause))
        }
        _ => None,
    });
    assert_eq!(
        told.0.as_ref().map(bridge_protocol::UpstreamId::as_str),
        Some(from)
    );
    assert_eq!((&told.1, told.2), (&link.upstream_id, RollCause::Limit));
}

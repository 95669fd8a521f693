//! Deaths of the agent by SIGKILL in each state of a conversation: waiting calls get an error at once, or the next
//! process does the work. The next prompt continues with the whole history, and no process is left running.
//!
//! If the agent is a shell with a child, the test kills each of the two. States that need no gate are tested elsewhere:
//! an open idle session in `ladder`, partial replies in `prompts`, an open question in `interrupts`, an unread prompt
//! in `continuing`. Agents that die repeatedly are in `broken_agents`.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::link::Via;
use bridge_protocol::turn::StopReason;
use serde_json::json;

use crate::gate::Gate;
use crate::scene::{BOTH, Scene, Victim, is_told};
use crate::signs::Watched;
use crate::support::{id_in, tried};

#[tokio::test]
async fn at_rest_with_an_open_session() {
    let (home, gate) = Gate::home();
    let daemon = home.start();
    let scene = Scene::begun(&daemon, &gate).await;
    let dead = scene.kill(Victim::Child);
    let conversation = scene.app.once(scene.id, |conversation| !conversation.live).await;
    assert_eq!(
        (conversation.state, conversation.failure),
        (ConversationState::Idle, None)
    );
    scene.goes_on(dead).await;
}

/// The agent dies before it answers `initialize`: one attempt is made, and all waiting calls get its error.
#[tokio::test]
async fn at_its_start() {
    for victim in BOTH {
        let (home, gate) = Gate::home();
        let daemon = home.start();
        let mut scene = Scene::new(&daemon, &gate).await;
        let prompt = scene.prompt_held("initialize").await;
        let resume = scene.begin("conversation/resume", json!({})).await;
        // This call comes after the others on the same connection, so its answer shows that they were admitted.
        let queued = scene.begin("conversation/prompt", json!({"prompt": "y"})).await;
        assert_eq!(scene.answer(queued).await["error"]["data"]["kind"], "busy");
        let dead = scene.kill(victim);
        for request in [prompt, resume] {
            is_told(&scene.answer(request).await);
        }
        let conversation = scene.get().await;
        assert_eq!(
            (conversation.state, conversation.head),
            (ConversationState::Failed, None)
        );
        assert!(conversation.failure.is_some());
        assert_eq!(gate.starts().len(), 1, "{victim:?}");
        scene.goes_on(dead).await;
        assert_eq!(gate.starts().len(), 2, "{victim:?}");
    }
}

/// The agent dies while opening its first session, when nothing can be lost.
#[tokio::test]
async fn while_it_opens_a_new_session() {
    for victim in BOTH {
        let (home, gate) = Gate::home();
        let daemon = home.start();
        let mut scene = Scene::new(&daemon, &gate).await;
        let prompt = scene.prompt_held("session/new").await;
        let dead = scene.kill(victim);
        is_told(&scene.answer(prompt).await);
        let conversation = scene.get().await;
        assert_eq!(
            (conversation.state, conversation.head),
            (ConversationState::Failed, None)
        );
        assert!(conversation.failure.is_some());
        scene.goes_on(dead).await;
    }
}

/// The agent's process has taken the prompt, but its child has not. The prompt is in no transcript, so it is sent
/// again.
#[tokio::test]
async fn with_a_prompt_that_is_in_no_transcript() {
    for victim in BOTH {
        let (home, gate) = Gate::home();
        let daemon = home.start();
        let mut scene = Scene::begun(&daemon, &gate).await;
        let prompt = scene.prompt_held("session/prompt").await;
        let dead = scene.kill(victim);
        let turn = scene.turn(prompt).await;
        assert_eq!(
            (turn.stop_reason, turn.failure),
            (StopReason::EndTurn, None),
            "{victim:?}"
        );
        scene.said.push("x".to_owned());
        scene.goes_on(dead).await;
    }
}

/// The prompt is in the transcript, although no reply was shown. It is not sent again.
// Against F18.
#[tokio::test]
async fn with_a_prompt_in_the_transcript_and_nothing_shown() {
    for victim in BOTH {
        let (home, gate) = Gate::home();
        let daemon = home.start();
        let mut scene = Scene::begun(&daemon, &gate).await;
        let transcript = home.transcript_of(&scene.app, scene.id).await;
        let prompt = scene
            .begin("conversation/prompt", json!({"prompt": "[[hang]]"}))
            .await;
        Watched::below(transcript.parent().unwrap()).wait_for("prompt", || {
            let text = std::fs::read_to_string(&transcript).unwrap();
            text.contains("[[hang]]").then_some(())
        });
        let dead = scene.kill(victim);
        scene.ends_as_cut_short(prompt, "[[hang]]").await;
        scene.goes_on(dead).await;
    }
}

#[tokio::test]
async fn with_some_text_shown() {
    let (home, gate) = Gate::home();
    let daemon = home.start();
    let mut scene = Scene::begun(&daemon, &gate).await;
    let text = "[[say hanging]][[hang]]";
    let (prompt, _) = scene.raw.run(scene.id, text).await;
    let dead = scene.kill(Victim::Child);
    scene.ends_as_cut_short(prompt, text).await;
    scene.goes_on(dead).await;
}

/// A tool has begun and may be half done, so it is not run again.
// Against F18.
#[tokio::test]
async fn in_a_tool() {
    for victim in BOTH {
        let (home, gate) = Gate::home();
        // No process reads from the pipe, so the tool that writes to it never ends.
        let pipe = home.path().join("project/pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let daemon = home.start();
        let mut scene = Scene::begun(&daemon, &gate).await;
        let text = "[[write pipe words]]";
        let (prompt, _) = scene.raw.run(scene.id, text).await;
        let shown = scene.raw.event("update").await["update"].clone();
        assert_eq!(
            (&shown["sessionUpdate"], &shown["status"]),
            (&json!("tool_call"), &json!("pending"))
        );
        let dead = scene.kill(victim);
        scene.ends_as_cut_short(prompt, text).await;
        scene.goes_on(dead).await;
    }
}

#[tokio::test]
async fn with_an_open_question() {
    let (home, gate) = Gate::home();
    let daemon = home.start();
    let mut scene = Scene::begun(&daemon, &gate).await;
    let text = "[[ask may I?]]";
    let (prompt, _) = scene.raw.run(scene.id, text).await;
    scene.raw.event("interruptRaised").await;
    let dead = scene.kill(Victim::Child);
    scene.ends_as_cut_short(prompt, text).await;
    let [question] = &scene.get().await.interrupts[..] else {
        panic!("no question is left")
    };
    assert!(question.orphaned);
    let no =
        json!({"interruptId": question.id, "outcome": {"outcome": "selected", "optionId": "reject_once"}});
    let answered = scene.begin("conversation/respond", no).await;
    assert_eq!(scene.answer(answered).await["result"], json!({}));
    scene.goes_on(dead).await;
}

/// The user cancelled, and the agent has not reacted yet. The turn ends at once as cancelled.
#[tokio::test]
async fn with_a_cancel_on_its_way() {
    for victim in BOTH {
        let (home, gate) = Gate::home_with("[limits]\ncancel_grace_ms = 3600000\n");
        let daemon = home.start();
        let mut scene = Scene::begun(&daemon, &gate).await;
        let text = "[[deaf]][[say deaf]][[hang]]";
        let (prompt, _) = scene.raw.run(scene.id, text).await;
        let cancel = scene.begin("conversation/cancel", json!({})).await;
        while scene.raw.event("stateChanged").await["state"] != "cancelling" {}
        let dead = scene.kill(victim);
        let turn = scene.turn(prompt).await;
        assert_eq!((turn.stop_reason, turn.failure), (StopReason::Cancelled, None));
        assert_eq!(scene.answer(cancel).await["result"], json!({"cancelled": true}));
        assert_eq!(scene.get().await.state, ConversationState::Idle);
        scene.said.push(text.to_owned());
        scene.goes_on(dead).await;
    }
}

/// The agent dies while bringing back a session. The next process does it, and all waiting calls get that result.
// Against F31.
#[tokio::test]
async fn while_it_resumes_or_loads_a_session() {
    for victim in BOTH {
        for (method, via) in [("session/resume", Via::Resume), ("session/load", Via::Load)] {
            let (home, gate) = Gate::home();
            if via == Via::Load {
                gate.offer_no_resume();
            }
            let daemon = home.start();
            let mut scene = Scene::begun(&daemon, &gate).await;
            scene.app.close(scene.id).await;
            let resume = scene.begin_held(method, "conversation/resume", json!({})).await;
            let prompt = scene.begin("conversation/prompt", json!({"prompt": "x"})).await;
            let dead = scene.kill(victim);
            let answer = scene.answer(resume).await;
            assert_eq!(answer["result"]["resumed"]["via"], "freshProcess", "{answer}");
            assert_eq!(answer["result"]["conversation"]["live"], true, "{answer}");
            let turn = scene.turn(prompt).await;
            assert_eq!(
                tried(&turn.resumed.unwrap()),
                [(via, false), (Via::FreshProcess, true)]
            );
            scene.said.push("x".to_owned());
            assert_eq!(scene.get().await.chain_length, 1);
            scene.goes_on(dead).await;
        }
    }
}

/// The agent dies while it applies settings to a resumed session. Unlike a refused setting, this makes the attempt
/// fail, and a new process resumes the session.
// Against F31.
#[tokio::test]
async fn while_it_is_configured_behind_a_resume() {
    for victim in BOTH {
        let (home, gate) = Gate::home();
        let daemon = home.start();
        let mut scene = Scene::begun(&daemon, &gate).await;
        let update = json!({"settings": {"mode": "plan"}});
        let updated = scene.begin("conversation/update", update).await;
        scene.answer(updated).await;
        scene.app.close(scene.id).await;
        let prompt = scene.prompt_held("session/set_mode").await;
        let dead = scene.kill(victim);
        let turn = scene.turn(prompt).await;
        let resumed = turn.resumed.unwrap();
        assert_eq!(tried(&resumed), [(Via::Resume, false), (Via::FreshProcess, true)]);
        scene.said.push("x".to_owned());
        let settings = scene.app.say(scene.id, "[[settings]]").await.words;
        assert!(settings.contains(r#""mode":"plan""#), "{settings}");
        scene.said.push("[[settings]]".to_owned());
        scene.goes_on(dead).await;
    }
}

/// The agent dies while a setting is changed: the setting keeps its old value.
#[tokio::test]
async fn while_it_is_configured() {
    for victim in BOTH {
        let (home, gate) = Gate::home();
        let daemon = home.start();
        let mut scene = Scene::begun(&daemon, &gate).await;
        let before = scene.get().await.settings;
        let update = json!({"settings": {"mode": "plan"}});
        let updated = scene
            .begin_held("session/set_mode", "conversation/update", update)
            .await;
        let dead = scene.kill(victim);
        let answer = scene.answer(updated).await;
        is_told(&answer);
        let conversation = scene.app.once(scene.id, |conversation| !conversation.live).await;
        assert_eq!(
            (conversation.state, conversation.settings),
            (ConversationState::Idle, before)
        );
        scene.goes_on(dead).await;
    }
}

/// The agent dies while forking: the branch is copied from the transcript instead, and both conversations continue.
#[tokio::test]
async fn while_it_forks() {
    for victim in BOTH {
        for in_place in [false, true] {
            let (home, gate) = Gate::home();
            let daemon = home.start();
            let mut scene = Scene::begun(&daemon, &gate).await;
            let fork = json!({"inPlace": in_place});
            let forked = scene.begin_held("session/fork", "conversation/fork", fork).await;
            let list = scene.app.call("daemon/work", json!({})).await.unwrap();
            let told = (&list["work"][0]["method"], &list["work"][0]["conversationId"]);
            assert_eq!(told, (&json!("conversation/fork"), &json!(scene.id)), "{list}");
            let dead = scene.kill(victim);
            let answer = scene.answer(forked).await["result"].take();
            assert_eq!(answer["fidelity"], "full", "{answer}");
            let branch = id_in(&answer);
            assert_eq!(branch == scene.id, in_place);
            let list = scene.app.call("daemon/work", json!({})).await.unwrap();
            assert_eq!(list, json!({"work": []}));
            assert_eq!(scene.app.remembered(branch).await, ["first"]);
            if in_place {
                scene.said.push("[[recall]]".to_owned());
            }
            scene.goes_on(dead).await;
        }
    }
}

/// The agent dies while closing a session: the session counts as closed.
#[tokio::test]
async fn while_it_closes_a_session() {
    for victim in BOTH {
        for method in ["close", "reset"] {
            let (home, gate) = Gate::home();
            let daemon = home.start();
            let mut scene = Scene::begun(&daemon, &gate).await;
            let closed = scene
                .begin_held("session/close", &format!("conversation/{method}"), json!({}))
                .await;
            let prompt = scene.begin("conversation/prompt", json!({"prompt": "x"})).await;
            let dead = scene.kill(victim);
            assert!(scene.answer(closed).await["result"].is_object());
            assert_eq!(scene.turn(prompt).await.failure, None);
            if method == "reset" {
                scene.said.clear();
            }
            scene.said.push("x".to_owned());
            scene.goes_on(dead).await;
        }
    }
}

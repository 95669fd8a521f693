//! Agents that die repeatedly: there are few attempts, each failure is reported, and once the user fixed the program,
//! the conversation continues.

use std::fs;

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::turn::FailureKind;
use serde_json::{Value, json};

use super::error_words;
use crate::continuing::AT_ONCE;
use crate::gate::Gate;
use crate::home::{Home, wait_for_end};
use crate::scene::{Scene, Victim};

/// The last line that the agent writes before it dies; errors contain it.
const LAST_WORDS: &str = "the licence has run out";

/// The agent dies at every start: each call makes one attempt and reports the agent's last words, until the program is
/// fixed.
#[tokio::test]
async fn at_each_start() {
    for mended_by in ["prompt", "resume"] {
        let (home, gate) = Gate::home();
        let daemon = home.start();
        let mut scene = Scene::begun(&daemon, &gate).await;
        gate.break_with(Some("usage: agent\nthe licence has run out"));
        let dead = scene.kill(Victim::Process);
        scene.app.once(scene.id, |conversation| !conversation.live).await;
        let more = json!({"prompt": "x"});
        let table = [
            ("prompt", more.clone(), LAST_WORDS),
            ("prompt", more, LAST_WORDS),
            ("resume", json!({}), "the licence is for another machine"),
        ];
        for (tries, (method, more, words)) in table.into_iter().enumerate() {
            gate.break_with(Some(words));
            let request = scene.begin(&format!("conversation/{method}"), more).await;
            let answer = scene.answer(request).await;
            assert_eq!(answer["error"]["data"]["kind"], "agentUnavailable", "{answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains(words), "{message}");
            let conversation = scene.get().await;
            assert_eq!(conversation.state, ConversationState::Failed);
            assert_eq!(
                conversation.failure.as_deref(),
                Some(message),
                "the last failure must be shown"
            );
            assert_eq!(gate.starts().len(), 2 + tries, "one attempt each");
        }
        gate.break_with(None);
        if mended_by == "resume" {
            let request = scene.begin("conversation/resume", json!({})).await;
            let answer = scene.answer(request).await["result"].take();
            assert_eq!(answer["resumed"]["fidelity"], "full", "{answer}");
            assert_eq!(answer["conversation"]["state"], "idle", "{answer}");
        }
        scene.goes_on(dead).await;
        assert_eq!(gate.starts().len(), 5);
    }
}

/// The agent dies with a prompt that it has not read, and again at its next start. If the turn was announced, its end
/// is announced too.
#[tokio::test]
async fn with_a_prompt_that_no_other_process_can_take() {
    let (home, gate) = Gate::home();
    let daemon = home.start();
    let mut scene = Scene::begun(&daemon, &gate).await;
    let prompt = scene.prompt_held("session/prompt").await;
    gate.break_with(Some(LAST_WORDS));
    let dead = scene.kill(Victim::Process);
    // The answer is a turn or an error, depending on whether the turn was accepted in time.
    let answer = scene.answer(prompt).await;
    let (kind, told) = match answer["result"]["failure"].as_object() {
        Some(failure) => (
            (&failure["kind"], json!("agentDied")),
            failure["message"].as_str(),
        ),
        None => (
            (&answer["error"]["data"]["kind"], json!("agentUnavailable")),
            answer["error"]["message"].as_str(),
        ),
    };
    assert_eq!(*kind.0, kind.1, "{answer}");
    assert!(told.unwrap().contains(LAST_WORDS), "{answer}");
    let conversation = scene.get().await;
    assert_eq!(conversation.state, ConversationState::Failed);
    assert!(conversation.failure.unwrap().contains(LAST_WORDS));
    assert_eq!(gate.starts().len(), 2);
    gate.break_with(None);
    scene.goes_on(dead).await;
}

/// A start that no user asked for is not repeated at once.
#[tokio::test]
async fn at_its_start_with_nobody_there_to_see() {
    let (home, gate) = Gate::home();
    let daemon = home.start();
    let mut scene = Scene::begun(&daemon, &gate).await;
    scene.app.close(scene.id).await;
    gate.break_with(Some(LAST_WORDS));
    let dead = scene.kill(Victim::Process);
    dead.iter().copied().for_each(wait_for_end);
    let before = scene.app.get(scene.id).await.updated_at;
    let request = scene
        .begin("conversation/continue", json!({"at": AT_ONCE, "text": "go on"}))
        .await;
    scene.answer(request).await;
    let conversation = scene
        .app
        .once(scene.id, |conversation| conversation.failure.is_some())
        .await;
    assert_eq!(conversation.state, ConversationState::Failed);
    let continuation = conversation.continuation.unwrap();
    assert_eq!(continuation.attempts, 1);
    assert!(
        continuation.at.duration_since(before).as_secs() >= 60,
        "{}",
        continuation.at
    );
    assert_eq!(gate.starts().len(), 2);
    gate.break_with(None);
    scene.goes_on(dead).await;
}

/// The agent dies each time after it has opened a session: the number of attempts is bounded, and the failure is
/// reported.
#[tokio::test]
async fn each_time_that_it_has_opened_a_session() {
    let script = r#"echo $$ >> starts
while read -r line; do
    id=${line#*\"id\":}; id=${id%%[,\}]*}
    case $line in
        *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}' ;;
        *) result="{\"sessionId\":\"s$$\"}" ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
    case $line in *'"session/'*) echo 'the licence has run out' >&2; exit 3 ;; esac
done"#;
    let home = Home::with_config(&format!(
        "[agents.mortal]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {script:?}]\n"
    ));
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "mortal").await;
    for calls in 1..4 {
        // The agent's death may be noticed before or after the prompt is sent.
        match app.try_send(id, "x").await {
            Ok(turn) => assert_eq!(turn.failure.unwrap().kind, FailureKind::AgentDied),
            Err(error) => assert_eq!(error.kind, ErrorKind::AgentUnavailable, "{error:?}"),
        }
        let starts = std::fs::read_to_string(home.path().join("starts")).unwrap();
        assert!(starts.lines().count() <= 8 * calls, "{starts}");
    }
}

/// Returns the answer to a prompt by an agent whose output is edited by this `sed` command.
async fn answer_changed_by(command: &str) -> Value {
    let home = Home::new();
    let script = home.path().join("answers.sed");
    fs::write(&script, command).unwrap();
    home.configure(&format!(
        "default_agent = \"odd\"\n[agents.odd]\nkind = \"loopback\"\ncommand = \"/bin/sh\"\n\
         args = [\"-c\", '\"$0\" loopback-agent --data \"$1\" | LC_ALL=C sed -u -f \"$2\"', '{}', '{}', '{}']\n",
        env!("CARGO_BIN_EXE_sessiond"),
        home.data().display(),
        script.display()
    ));
    let (daemon, _app, id) = home.begun(&[]).await;
    let mut raw = daemon.raw().await;
    let prompt = json!({"conversationId": id, "prompt": "one"});
    raw.ask("conversation/prompt", prompt).await
}

/// The result does not say how the turn ended, so the turn counts as failed, always with the same message.
#[tokio::test]
async fn a_prompt_that_is_answered_with_nothing_has_not_ended_well() {
    for result in ["null", "{}", r#"{"stopReason":null}"#] {
        let answer = answer_changed_by(&format!(r#"s/"result":{{"stopReason.*/"result":{result}}}/"#)).await;
        let turn = &answer["result"];
        assert_eq!(turn["stopReason"], "failed", "{result}: {answer}");
        assert_eq!(
            turn["failure"]["message"], "the agent answered the prompt without a readable result",
            "{result}: {answer}"
        );
    }
}

/// Python's `json.dumps` writes `NaN`, which is not JSON. The turn must not wait for another response, which never
/// comes.
#[tokio::test]
async fn a_prompt_whose_answer_is_not_json_ends_as_failed() {
    let answer = answer_changed_by(r#"s/"result":{"stopReason"/"result":{"cost":NaN,"stopReason"/"#).await;
    let why = answer["result"]["failure"]["message"]
        .as_str()
        .unwrap_or_default();
    error_words::check("an answer that is not JSON", "unknown", why);
}

/// Most clients of agents accept two messages on one line, and bytes that are not UTF-8.
#[tokio::test]
async fn an_answer_behind_another_message_or_with_odd_bytes_is_read() {
    for command in [
        r#"s/^.*"result":{"stopReason"/{"jsonrpc":"2.0","method":"odd\/note","params":{}}&/"#,
        r#"s/"result":{"stopReason"/"result":{"note":"\xff","stopReason"/"#,
    ] {
        let answer = answer_changed_by(command).await;
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{command}: {answer}");
    }
}

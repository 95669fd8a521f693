//! Conversations through the daemon, and the transcripts of them that the real agent wrote.

use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::UpstreamId;
use bridge_protocol::check::FindingKind;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::history::{Message, MessageKind};
use bridge_protocol::link::{Fidelity, LinkReason, Relation, Via};
use bridge_protocol::turn::StopReason;
use serde_json::{Value, json};

use super::bridge::Bridge;
use crate::reading::said;
use crate::support::model_server::{Said, What, model, tool_use, user};

pub(crate) const WITH_TOOL: &str =
    r#"[[tool exec_command {"cmd":"echo hi"}]] [[think a long thought|greeted]]"#;

pub(crate) const BROKEN_OFF: &str = "broken off [[slow 300 0.1]]";

/// The messages that the model receives of the turn [`WITH_TOOL`]. The tool's result is shortened to its
/// output, because Codex puts numbers before it.
fn with_tool() -> Vec<Said> {
    vec![
        user(WITH_TOOL),
        model("calling"),
        tool_use("exec_command"),
        Said {
            role: "user".into(),
            what: What::ToolResult("hi".into()),
        },
        Said {
            role: "assistant".into(),
            what: What::Thinking("a long thought".into()),
        },
        model("greeted"),
    ]
}

/// An echoed turn in the form in which the model receives it later.
pub(crate) fn echoed(text: &str) -> Vec<Said> {
    vec![user(text), model(&format!("ok: {text}"))]
}

/// The messages that the model received with a prompt; tool results are shortened to their outputs.
pub(crate) fn asked(bridge: &Bridge, text: &str) -> Vec<Said> {
    only_output(bridge.lab.model.asked(text))
}

/// A history block by block, without the messages that Codex adds in the user's name; the model server leaves
/// those out too.
pub(crate) fn conversed(history: &[Message]) -> Vec<Said> {
    let is_aside = |message: &&Message| message.kind == Some(MessageKind::Aside);
    let kept = history.iter().filter(|message| !is_aside(message));
    said(&kept.cloned().collect::<Vec<_>>())
}

/// Shortens tool results to the tools' outputs. Codex puts numbers before the output; old versions put it
/// into an object, which a history does not show.
pub(crate) fn only_output(mut said: Vec<Said>) -> Vec<Said> {
    for said in &mut said {
        let What::ToolResult(result) = &mut said.what else {
            continue;
        };
        if let Some((_, output)) = result.split_once("Output:\n") {
            *result = output.to_owned();
        } else if let Ok(object) = serde_json::from_str::<Value>(result) {
            let output = object["output"].as_str().expect("an output");
            *result = output.trim().to_owned();
        } else if result.ends_with("aborted by user") {
            // If Codex has recorded how long the tool ran, that precedes this text.
            *result = "aborted".to_owned();
        }
    }
    said
}

#[test]
#[ignore = "installs the real adapter"]
fn a_conversation_goes_on_whole_after_a_restart() {
    let mut bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["first words", WITH_TOOL]);
    let head = bridge.head(id);
    bridge.stop_daemon();
    bridge.start_daemon();
    let turn = bridge.prompted(id, "and now");
    assert_eq!(turn.upstream_id.as_str(), head);
    let resumed = turn.resumed.expect("a resume");
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
    let expected = [echoed("first words"), with_tool(), vec![user("and now")]].concat();
    assert_eq!(asked(&bridge, "and now"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn branches_and_their_source_go_on_each_with_its_own_history_and_are_listed() {
    let mut bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["first words", WITH_TOOL]);
    let source = bridge.head(id);
    let fork = bridge.fork(id, false);
    assert_eq!(fork.fidelity, Fidelity::Full);
    let branch = fork.conversation.id;
    bridge.prompted(branch, "on the branch");
    let in_place = bridge.fork(id, true).link.expect("a link");
    assert_eq!(
        (in_place.reason, in_place.relation),
        (LinkReason::Forked, Relation::Carries)
    );
    bridge.prompted(id, "in place");

    // The same after both were resumed by another process.
    bridge.stop_daemon();
    bridge.start_daemon();
    let common = [echoed("first words"), with_tool()].concat();
    for (conversation, own) in [(branch, "on the branch"), (id, "in place")] {
        assert_eq!(asked(&bridge, own), [&common[..], &[user(own)]].concat());
        let again = format!("again {own}");
        bridge.prompted(conversation, &again);
        let expected = [&common[..], &echoed(own), &[user(&again)]].concat();
        assert_eq!(asked(&bridge, &again), expected);
    }

    // Only the source has the first prompt in its file; a branch gets its title from its own first prompt.
    let forked = bridge.head(branch);
    let in_place = in_place.upstream_id.as_str().to_owned();
    assert_eq!(bridge.head(id), in_place);
    assert_eq!(bridge.listed().len(), 3);
    let adapter = bridge.lab.adapter();
    let of_adapter = adapter.call("session/list", json!({})).expect("session/list");
    for (upstream_id, title, owner, origin) in [
        (&source, "first words", id, None),
        (&forked, "on the branch", branch, Some(&source)),
        (&in_place, "in place", id, Some(&source)),
    ] {
        let listed = bridge.listed_of(upstream_id);
        assert_eq!(
            (listed.title.as_str(), listed.conversation_id),
            (title, Some(owner))
        );
        assert_eq!(
            listed.forked_from.as_ref().map(UpstreamId::as_str),
            origin.map(String::as_str)
        );
        let path = bridge.lab.transcript(upstream_id).expect("a rollout");
        assert_eq!(listed.path, path.to_str().expect("a path in UTF-8"));
        assert_eq!(
            listed.cwd,
            bridge.lab.project().to_str().expect("a path in UTF-8")
        );
        let sessions = of_adapter["sessions"].as_array().expect("sessions");
        let session = sessions
            .iter()
            .find(|session| session["sessionId"] == upstream_id.as_str());
        let session = session.unwrap_or_else(|| panic!("the agent does not list {title}: {of_adapter}"));
        assert_eq!(
            (&session["title"], &session["cwd"]),
            (&json!(title), &json!(listed.cwd))
        );
    }
}

/// Includes interrupted, refused and compacted turns, and histories across the files that a fork continues.
#[test]
#[ignore = "installs the real adapter"]
fn what_is_read_is_what_the_model_was_sent() {
    let bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["first words", WITH_TOOL]);
    let branch = bridge.fork(id, false).conversation.id;
    bridge.prompted(branch, "on the branch");
    let second = bridge.fork(branch, false).conversation.id;
    bridge.prompted(second, "on the second branch");
    let refused = bridge.prompt(id, "refused [[err 400]]").expect("a turn result");
    assert_eq!(refused.stop_reason, StopReason::Failed);
    let running = bridge.begin_prompt(id, BROKEN_OFF, None);
    bridge.wait_written(id, BROKEN_OFF);
    assert!(bridge.cancel(id));
    running.wait().expect("a turn result");
    bridge.prompted(id, "and now");

    let common = ["first words", WITH_TOOL];
    for (conversation, last, own) in [
        (id, "and now", &["refused [[err 400]]", BROKEN_OFF, "and now"][..]),
        (branch, "on the branch", &["on the branch"]),
        (
            second,
            "on the second branch",
            &["on the branch", "on the second branch"],
        ),
    ] {
        let mut asked = bridge.lab.model.asked(last);
        asked.push(model(&format!("ok: {last}")));
        assert_eq!(conversed(&bridge.history(conversation)), asked);
        assert_eq!(bridge.findings(&bridge.head(conversation)), []);
        let checkpoints = bridge.checkpoints(conversation);
        let prompts: Vec<&str> = checkpoints.iter().map(|place| place.prompt.as_str()).collect();
        assert_eq!(prompts, [&common[..], own].concat());
        assert_eq!(checkpoints[1].reply, "calling\n\ngreeted");
        assert_eq!(checkpoints[1].tools, ["exec_command"]);
        assert_eq!(
            checkpoints.last().expect("a checkpoint").reply,
            format!("ok: {last}")
        );
    }

    // The reported number of loaded messages is what the model receives: for a history with errors, for one
    // in three files, and for a compacted one.
    for (conversation, text, turns) in [(id, "loaded", 5), (second, "loaded in parts", 4)] {
        let loaded = bridge.loaded_for(conversation, text);
        assert_eq!(loaded, (turns, sent_before(&bridge, text)));
    }

    // After a compaction the model receives only the prompts and a summary; the history still shows
    // everything.
    let before = bridge.history(id);
    bridge.prompted(id, "/compact");
    bridge.prompted(id, "at last");
    let history = bridge.history(id);
    assert_eq!(history[..before.len()], before);
    let mut asked = bridge.lab.model.asked("at last");
    asked.push(model("ok: at last"));
    assert_eq!(asked, as_sent(&history));
    assert_eq!(bridge.findings(&bridge.head(id)), []);
    let loaded = bridge.loaded_for(id, "loaded after all");
    assert_eq!(loaded, (7, sent_before(&bridge, "loaded after all")));
}

/// How many messages the model received before a prompt, without instructions.
fn sent_before(bridge: &Bridge, text: &str) -> u64 {
    let requests = bridge.lab.model.requests();
    let items = requests.iter().rev().find_map(|request| {
        let items = request["input"].as_array().expect("the input");
        let asks = |item: &Value| item["role"] == "user" && item["content"][0]["text"] == text;
        Some(&items[..items.iter().position(asks)?])
    });
    let items = items.expect("a request with the prompt");
    let is_message = |item: &&Value| item["type"] != "message" || item["role"] != "developer";
    items.iter().filter(is_message).count() as u64
}

/// The bare adapter makes the sessions, as an editor would, without the daemon.
#[test]
#[ignore = "installs the real adapter"]
fn what_was_made_elsewhere_is_read_and_goes_on_whole() {
    let bridge = or_skip!(Bridge::start());
    let cwd = bridge.lab.scratch().join("Größe & more");
    fs::create_dir_all(&cwd).expect("a folder");
    let adapter = bridge.lab.adapter();
    let made = |method: &str, of: Option<&str>| {
        let mut params = json!({"cwd": cwd, "mcpServers": []});
        if let Some(session) = of {
            params["sessionId"] = session.into();
        }
        let result = adapter.call(method, params).expect(method);
        result["sessionId"].as_str().expect("an id").to_owned()
    };
    let source = made("session/new", None);
    adapter.prompt(&source, "elsewhere").expect("a turn");
    adapter.prompt(&source, WITH_TOOL).expect("a turn");
    let fork = made("session/fork", Some(&source));
    adapter.prompt(&fork, "on its branch").expect("a turn");
    adapter.prompt(&source, "behind the fork").expect("a turn");
    adapter.stop();

    for (upstream_id, own, text) in [
        (&fork, "on its branch", "taken up"),
        (&source, "behind the fork", "taken up too"),
    ] {
        let listed = bridge.listed_of(upstream_id);
        assert_eq!(listed.cwd, cwd.to_str().expect("a path in UTF-8"));
        assert_eq!(listed.conversation_id, None);
        let id = bridge.adopt(upstream_id).expect("conversation/adopt").id;
        assert_eq!(bridge.head(id), *upstream_id);
        let before = conversed(&bridge.history(id));
        let expected = [echoed("elsewhere"), with_tool(), echoed(own)].concat();
        assert_eq!(only_output(before.clone()), expected);
        bridge.prompted(id, text);
        assert_eq!(
            bridge.lab.model.asked(text),
            [&before[..], &[user(text)]].concat()
        );
        assert_eq!(bridge.findings(upstream_id), []);
        assert_eq!(bridge.listed_of(upstream_id).conversation_id, Some(id));
    }

    // Without its source the fork cannot be read, which must be reported.
    let path = bridge.lab.transcript(&source).expect("a rollout");
    let away = bridge.lab.scratch().join("away.jsonl");
    fs::rename(&path, &away).expect("moved away");
    assert_eq!(bridge.found(&fork), [FindingKind::MissingSource]);
    fs::rename(&away, &path).expect("moved back");
    assert_eq!(bridge.findings(&fork), []);
}

/// The bare adapter makes the sessions, and the forked ones were not continued.
#[test]
#[ignore = "installs the real adapter"]
fn forks_of_forks_are_adopted_each_by_itself() {
    let bridge = or_skip!(Bridge::start());
    let id = bridge.adopts_forks_of_forks();
    let before = conversed(&bridge.history(id));
    bridge.prompted(id, "taken up");
    assert_eq!(
        bridge.lab.model.asked("taken up"),
        [&before[..], &[user("taken up")]].concat()
    );
}

/// Rollouts in the fixtures that several versions have written. The current agent must continue each, and the
/// daemon must read what the model receives.
#[test]
#[ignore = "installs the real adapter"]
fn what_other_versions_wrote_goes_on_whole() {
    // The names of the model providers in the fixtures.
    let mut tried = 0;
    for provider in ["scripted", "fake"] {
        let bridge = or_skip!(Bridge::start());
        tried += goes_on_whole(&bridge, provider);
    }
    assert_eq!(tried, fixtures().len(), "a fixture was not tried");
}

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/transcripts/codex");
    let entries = fs::read_dir(folder).expect("the fixtures");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Tries the fixtures with this model provider; fixtures without one count as `scripted`. Returns how many
/// were tried.
fn goes_on_whole(bridge: &Bridge, provider: &str) -> usize {
    bridge.lab.name_provider(provider);
    let folder = bridge.lab.transcript_root().join("sessions/2026/11/21");
    fs::create_dir_all(&folder).expect("a folder");
    let mut sessions = Vec::new();
    for fixture in fixtures() {
        let content = fs::read_to_string(&fixture).expect("a fixture");
        let first: Value = serde_json::from_str(content.lines().next().expect("a line")).expect("a record");
        let id = first["payload"]["id"]
            .as_str()
            .or(first["id"].as_str())
            .expect("an id")
            .to_owned();
        if first["payload"]["model_provider"].as_str().unwrap_or("scripted") != provider {
            continue;
        }
        fs::write(
            folder.join(format!("rollout-2026-11-21T06-34-43-{id}.jsonl")),
            content,
        )
        .expect("a rollout");
        sessions.push((fixture, id));
    }
    let project = bridge.lab.project();
    for (fixture, id) in &sessions {
        let adopted = bridge
            .adopt_into(id, Some(&project))
            .expect("conversation/adopt")
            .id;
        let history = bridge.history(adopted);
        let text = format!("taken up {id}");
        if fixture.ends_with("0.29.0.jsonl") {
            // Codex refuses this session, and the check says so; the daemon can still read it.
            assert_eq!(bridge.found(id), [FindingKind::NothingToResume]);
            assert_eq!(conversed(&history).last(), Some(&model("greeted")));
            let error = bridge.prompt(adopted, &text).expect_err("a refusal");
            assert_eq!(error.kind, ErrorKind::NotResumable);
            continue;
        }
        bridge.prompted(adopted, &text);
        let mut expected = only_output([&as_sent(&history)[..], &[user(&text)]].concat());
        if fixture.ends_with("0.166.0-limit.jsonl") {
            // Codex's compaction has kept only the first prompt for the model, neither the other prompts nor
            // the summary.
            let summary = history
                .iter()
                .rposition(|message| message.kind == Some(MessageKind::Summary));
            let behind = conversed(&history[summary.expect("a summary") + 1..]);
            expected = [&expected[..1], &behind, &[user(&text)]].concat();
        }
        assert_eq!(asked(bridge, &text), expected, "{}", fixture.display());
        assert_eq!(bridge.findings(id), [], "{}", fixture.display());
    }
    sessions.len()
}

/// The messages that Codex sends of a history: if it was compacted, the prompts before the last summary and
/// everything from the summary on.
fn as_sent(history: &[Message]) -> Vec<Said> {
    let summary = history
        .iter()
        .rposition(|message| message.kind == Some(MessageKind::Summary));
    let (before, behind) = history.split_at(summary.unwrap_or(0));
    let mut sent = conversed(before);
    sent.retain(|said| said.role == "user" && matches!(said.what, What::Text(_)));
    sent.extend(conversed(behind));
    sent
}

/// Codex deletes a session by moving its file into another folder.
#[test]
#[ignore = "installs the real adapter"]
fn an_archived_transcript_is_listed_where_it_is() {
    let bridge = or_skip!(Bridge::start());
    let adapter = bridge.lab.adapter();
    let opening = json!({"cwd": bridge.lab.project(), "mcpServers": []});
    let made = adapter.call("session/new", opening).expect("session/new");
    let session = made["sessionId"].as_str().expect("an id").to_owned();
    adapter.prompt(&session, "put away").expect("a turn");
    let before = bridge.listed_of(&session);
    assert_eq!(
        (before.title.as_str(), before.conversation_id),
        ("put away", None)
    );
    adapter
        .call("session/delete", json!({"sessionId": session}))
        .expect("session/delete");
    adapter.stop();
    let after = bridge.listed_of(&session);
    assert_ne!(before.path, after.path);
    assert!(after.path.contains("/archived_sessions/"), "{}", after.path);
    assert_eq!(
        (after.title, after.cwd, after.bytes),
        (before.title, before.cwd, before.bytes)
    );
}

/// Codex remembers the path of a rollout. If the rollout was moved, Codex resumes the session without an
/// error, but refuses the prompt.
#[test]
#[ignore = "installs the real adapter"]
fn located_a_rollout_that_was_moved_is_brought_back_and_goes_on() {
    let mut bridge = or_skip!(Bridge::start());
    let root = bridge.lab.transcript_root();
    for (number, folder) in ["sessions/2020/01/01", "sessions"].into_iter().enumerate() {
        let id = bridge.begun(&["first words"]);
        let session = bridge.head(id);
        let place = bridge.lab.transcript(&session).expect("the rollout");
        bridge.stop_daemon();
        let folder = root.join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        let moved = folder.join(place.file_name().expect("a name"));
        fs::rename(&place, &moved).expect("a move");
        bridge.start_daemon();
        let text = format!("and on {number}");
        let turn = bridge.prompted(id, &text);
        let resumed = turn.resumed.expect("a resume");
        assert_eq!((resumed.via, resumed.fidelity), (Via::Located, Fidelity::Full));
        assert_eq!(turn.upstream_id.as_str(), session);
        assert_eq!(
            asked(&bridge, &text),
            [&echoed("first words")[..], &[user(&text)]].concat()
        );
        assert!(place.exists() && !moved.exists());
    }
}

/// Codex compresses rollouts that are not in use. One case is at its place, the other at a different place.
#[test]
#[ignore = "installs the real adapter"]
fn a_packed_session_comes_back_whole() {
    let mut bridge = or_skip!(Bridge::start());
    for is_moved in [false, true] {
        let id = bridge.begun(&["first words"]);
        let session = bridge.head(id);
        let place = bridge.lab.transcript(&session).expect("the rollout");
        bridge.stop_daemon();
        let packed = zstd::encode_all(&fs::read(&place).expect("the rollout")[..], 3).expect("packed");
        let folder = match is_moved {
            true => bridge.lab.transcript_root().join("sessions/2020/01/01"),
            false => place.parent().expect("a folder").to_owned(),
        };
        fs::create_dir_all(&folder).expect("a folder");
        let name = place.with_extension("jsonl.zst");
        fs::write(folder.join(name.file_name().expect("a name")), packed).expect("the packed rollout");
        fs::remove_file(&place).expect("the rollout");
        bridge.start_daemon();
        let text = format!("and on, moved: {is_moved}");
        let turn = bridge.prompted(id, &text);
        let resumed = turn.resumed.expect("a resume");
        assert_eq!(resumed.fidelity, Fidelity::Full, "{resumed:?}");
        assert_eq!(turn.upstream_id.as_str(), session);
        assert_eq!(
            asked(&bridge, &text),
            [&echoed("first words")[..], &[user(&text)]].concat()
        );
    }
}

/// One command of the user makes the session available again. So the daemon neither sends a summary of it nor
/// unarchives it silently.
#[test]
#[ignore = "installs the real adapter"]
fn a_session_that_was_archived_says_how_it_comes_back() {
    let mut bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["put away"]);
    let session = bridge.head(id);
    bridge.stop_daemon();
    let adapter = bridge.lab.adapter();
    adapter
        .call("session/delete", json!({"sessionId": session}))
        .expect("session/delete");
    adapter.stop();
    bridge.start_daemon();
    let refused = bridge.prompt(id, "go on").expect_err("it is archived");
    assert_eq!(refused.kind, ErrorKind::NotResumable);
    assert!(
        refused.message.contains(&format!("codex unarchive {session}")),
        "{refused:?}"
    );
}

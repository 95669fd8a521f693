//! Transcripts written by the real agent, through the daemon and without it. Lists, histories and findings
//! must agree with what the model received and with what the vendor's own library reads.

use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::UpstreamId;
use bridge_protocol::check::FindingKind;
use bridge_protocol::history::{Message, MessageKind, Role};
use bridge_protocol::turn::StopReason;
use serde_json::{Value, json};

use super::bridge::Bridge;
use super::sdk::{self, Told};
use crate::reading::{said, uuid_of};
use crate::support::claude::Account;
use crate::support::model_server::{Said, What, model, user};

const PARALLEL: &str = r#"[[tool Bash {"command":"echo one","description":"one"} ;; Bash {"command":"echo two","description":"two"}]] [[think a long thought|compared]]"#;

const LONG: &str = r#"[[tool Bash {"command":"seq 1 20000","description":"count"}]] [[text counted]]"#;

const SUBAGENT: &str = r#"[[tool Agent {"description":"look","prompt":"[[text words of the subagent]]","subagent_type":"general-purpose","run_in_background":false}]] [[text looked]]"#;

#[test]
#[ignore = "installs the real adapter"]
fn what_is_read_is_what_the_model_was_sent_and_what_the_vendors_library_reads() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first words", PARALLEL, SUBAGENT, LONG]);
    let failed = bridge.prompt(id, "refused [[err 500]]").expect("a turn result");
    assert_eq!(failed.stop_reason, StopReason::Failed);
    let running = bridge.begin_prompt(id, "broken off [[slow 300 0.1]]", None);
    bridge.wait_written(id, "broken off");
    assert!(bridge.cancel(id));
    running.wait().expect("a turn result");
    bridge.prompted(id, "and now");

    let head = bridge.head(id);
    let history = bridge.history(id);
    let mut asked = bridge.lab.model.asked("and now");
    asked.push(model("ok: and now"));
    assert_eq!(said(&history), asked);
    let thoughts = asked
        .iter()
        .filter(|said| said.what == What::Thinking("a long thought".into()));
    assert_eq!(thoughts.count(), 1);

    let told = Told::of(&bridge.lab);
    assert_eq!(of_library(&history), told.message_uuids(&head));
    assert_eq!(texts(&history), told.texts(&head));
    assert_eq!(bridge.findings(&head), []);

    let checkpoints = bridge.checkpoints(id);
    let prompts: Vec<&str> = checkpoints.iter().map(|place| place.prompt.as_str()).collect();
    let expected = [
        "first words",
        PARALLEL,
        SUBAGENT,
        LONG,
        "refused [[err 500]]",
        "broken off [[slow 300 0.1]]",
        "and now",
    ];
    assert_eq!(prompts, expected);
    let replies: Vec<&str> = checkpoints.iter().map(|place| place.reply.as_str()).collect();
    assert_eq!(
        replies[..5],
        [
            "ok: first words",
            "calling\n\ncompared",
            "calling\n\nlooked",
            "calling\n\ncounted",
            ""
        ]
    );
    assert_eq!(replies[6], "ok: and now");
    let tools: Vec<Vec<String>> = checkpoints.iter().map(|place| place.tools.clone()).collect();
    assert_eq!(
        tools[..5],
        [
            vec![],
            vec!["Bash".to_owned()],
            vec!["Agent".to_owned()],
            vec!["Bash".to_owned()],
            vec![]
        ]
    );

    let listed = bridge.listed_of(&head);
    let session = told.session(&head);
    assert_eq!(
        (listed.title.as_str(), listed.conversation_id),
        ("first words", Some(id))
    );
    assert_eq!(session["firstPrompt"], listed.title.as_str());
    assert_eq!(session["cwd"], listed.cwd.as_str());
    assert_eq!(session["fileSize"], listed.bytes);
    // The library reports the modification time of the file, which is later than its last record. The file
    // system's clock has a coarse resolution.
    let changed = session["lastModified"].as_i64().expect("a time");
    let last = listed.updated_at.as_millisecond();
    assert!(last <= changed + 2_000, "{last} {changed}");
    let records = fs::read_to_string(&listed.path).expect("the transcript");
    // With all three digits of the milliseconds, as the agent writes them.
    let newest = format!("\"timestamp\":\"{:.3}\"", listed.updated_at);
    assert!(records.contains(&newest), "{newest} is not in {records}");
    assert_eq!(listed.turns, Some(expected.len() as u64));
    assert_eq!(
        listed.cwd,
        bridge.lab.project().to_str().expect("a path in UTF-8")
    );
    assert_eq!(bridge.listed().len(), told.sessions().len());

    // The other files that the agent wrote for the session.
    let beside = PathBuf::from(&listed.path).with_extension("");
    let results = files_in(&beside.join("tool-results"));
    assert_eq!(results.len(), 1, "{results:?}");
    let [subagent] = &told.subagents(&head)[..] else {
        panic!("not exactly one subagent: {told:?}")
    };
    let words = beside.join(format!("subagents/agent-{subagent}.jsonl"));
    for (file, named) in [
        (&results[0], results[0].display().to_string()),
        (&words, subagent.clone()),
    ] {
        let kept = fs::read(file).expect("a file beside the transcript");
        fs::remove_file(file).expect("removed");
        let findings = bridge.findings(&head);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!(findings[0].kind, FindingKind::MissingSideFile);
        assert!(
            findings[0].detail.contains(&named),
            "{findings:?} does not name {named}"
        );
        fs::write(file, kept).expect("put back");
    }
    assert_eq!(bridge.findings(&head), []);
}

/// Includes a compaction because the model refused the length; the agent then keeps some of the last
/// messages.
#[test]
#[ignore = "installs the real adapter"]
fn what_was_compacted_away_stays_readable() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first words", PARALLEL]);
    bridge.prompt(id, "too long [[err 400]]").expect("a turn result");
    bridge.prompted(id, "in between");
    bridge.prompted(id, "/compact");
    bridge.prompted(id, "at last");

    let head = bridge.head(id);
    assert_eq!(bridge.findings(&head), []);
    let history = bridge.history(id);
    let summaries: Vec<usize> = (0..history.len())
        .filter(|at| history[*at].kind == Some(MessageKind::Summary))
        .collect();
    assert_eq!(summaries.len(), 3);
    let prompts = |messages: &[Message]| -> Vec<Said> {
        said(messages)
            .into_iter()
            .filter(|said| {
                [
                    "first words",
                    PARALLEL,
                    "too long [[err 400]]",
                    "in between",
                    "at last",
                ]
                .map(user)
                .contains(said)
            })
            .collect()
    };
    assert_eq!(prompts(&history).len(), 5);
    let steps: Vec<String> = bridge
        .checkpoints(id)
        .into_iter()
        .map(|place| place.prompt)
        .collect();
    assert_eq!(
        steps,
        [
            "first words",
            PARALLEL,
            "too long [[err 400]]",
            "in between",
            "at last"
        ]
    );

    // The model receives the messages after the last summary, and directly after the summary the message that
    // it says it kept.
    let last = *summaries.last().expect("a summary");
    let (before, behind) = history.split_at(last);
    let mut expected = said(behind);
    expected.insert(1, model("ok: in between"));
    let mut asked = bridge.lab.model.asked("at last");
    asked.push(model("ok: at last"));
    assert_eq!(asked, expected);
    assert_eq!(said(before).last(), Some(&model("ok: in between")));

    // The library reads the same.
    let mut told = Told::of(&bridge.lab).message_uuids(&head);
    assert_eq!(told.remove(1), uuid_of(before.last().expect("a message")));
    assert_eq!(of_library(behind), told);

    // The reported number of loaded messages is what the model receives before the next prompt; here each
    // message is one block.
    let loaded = bridge.loaded_for(id, "loaded");
    let sent = bridge.lab.model.asked("loaded").len() as u64 - 1;
    assert_eq!(loaded, (5, sent));
}

#[test]
#[ignore = "installs the real adapter"]
fn forks_and_cleared_sessions_are_listed_and_read_each_as_its_own() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first words", PARALLEL]);
    let source = bridge.head(id);
    let branch = bridge.fork(id, false).conversation.id;
    bridge.prompted(branch, "on the branch");
    bridge.prompted(id, "/clear");
    bridge.prompted(id, "behind the clear");
    let (cleared, forked) = (bridge.head(id), bridge.head(branch));

    let told = Told::of(&bridge.lab);
    assert_eq!(bridge.listed().len(), 3);
    assert_eq!(told.sessions().len(), 3, "{:?}", told.sessions());
    // The agent gives a fork its own title.
    for (upstream_id, title, owner, origin) in [
        (&source, "first words", id, None),
        (&forked, "first words (fork)", branch, Some(&source)),
        (&cleared, "behind the clear", id, None),
    ] {
        assert_eq!(bridge.findings(upstream_id), [], "{title}");
        let listed = bridge.listed_of(upstream_id);
        assert_eq!(
            (listed.title.as_str(), listed.conversation_id),
            (title, Some(owner))
        );
        assert_eq!(
            listed.forked_from.as_ref().map(UpstreamId::as_str),
            origin.map(String::as_str)
        );
        let session = told.session(upstream_id);
        let titles = [&session["customTitle"], &session["firstPrompt"]];
        assert_eq!(
            titles.into_iter().find(|title| title.is_string()),
            Some(&json!(title))
        );
    }
    for (conversation, head, last) in [
        (branch, &forked, "on the branch"),
        (id, &cleared, "behind the clear"),
    ] {
        let history = bridge.history(conversation);
        let mut asked = bridge.lab.model.asked(last);
        // The output of the agent's own commands is marked as the agent's and not as a message; the output of
        // `/clear` is empty.
        asked.retain(|said| *said != user("<local-command-stdout></local-command-stdout>"));
        asked.push(model(&format!("ok: {last}")));
        assert_eq!(said(&history), asked);
        assert_eq!(of_library(&history), told.message_uuids(head));
    }
    let of_branch = bridge.checkpoints(branch);
    let origins: Vec<bool> = of_branch.iter().map(|place| place.origin.is_some()).collect();
    assert_eq!(origins, [true, true, false]);
}

/// The bare adapter makes the sessions, as an editor would, without the daemon.
#[test]
#[ignore = "installs the real adapter"]
fn what_was_made_elsewhere_is_listed_read_and_goes_on_whole() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let cwd = bridge.lab.scratch().join("Größe & more");
    fs::create_dir_all(&cwd).expect("a folder");
    let adapter = bridge.lab.adapter();
    let opening = |more: Value| {
        let mut params = json!({"cwd": cwd, "mcpServers": []});
        params
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        params
    };
    let made = |method: &str, more: Value| {
        let result = adapter.call(method, opening(more)).expect(method);
        result["sessionId"].as_str().expect("an id").to_owned()
    };
    let source = made("session/new", json!({}));
    for prompt in ["elsewhere", PARALLEL, SUBAGENT] {
        adapter.prompt(&source, prompt).expect("a turn");
    }
    let fork = made("session/fork", json!({"sessionId": source}));
    adapter.prompt(&fork, "on its branch").expect("a turn");
    adapter.prompt(&source, LONG).expect("a turn");
    adapter.stop();
    sdk::rename(&bridge.lab, &source, "A person's title");

    let told = Told::of(&bridge.lab);
    for (upstream_id, title) in [(&source, "A person's title"), (&fork, "elsewhere (fork)")] {
        assert_eq!(bridge.findings(upstream_id), []);
        let listed = bridge.listed_of(upstream_id);
        assert_eq!((listed.title.as_str(), listed.conversation_id), (title, None));
        assert_eq!(listed.cwd, cwd.to_str().expect("a path in UTF-8"));
        assert_eq!(told.session(upstream_id)["cwd"], listed.cwd.as_str());
    }
    assert_eq!(told.session(&source)["customTitle"], "A person's title");

    for (upstream_id, text) in [(&source, "taken up"), (&fork, "taken up too")] {
        let adopted = bridge.adopt(upstream_id).expect("conversation/adopt");
        let id = adopted.id;
        assert_eq!(bridge.head(id), *upstream_id);
        assert_eq!(bridge.listed_of(upstream_id).conversation_id, Some(id));
        let before = bridge.history(id);
        assert_eq!(of_library(&before), told.message_uuids(upstream_id));
        bridge.prompted(id, text);
        let mut expected = said(&before);
        expected.push(user(text));
        assert_eq!(bridge.lab.model.asked(text), expected);
        assert_eq!(bridge.found(upstream_id), []);
    }
}

/// The bare adapter makes the sessions, and the forked ones were not continued.
#[test]
#[ignore = "installs the real adapter"]
fn forks_of_forks_are_adopted_each_by_itself() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.adopts_forks_of_forks();
    let before = said(&bridge.history(id));
    bridge.prompted(id, "taken up");
    assert_eq!(
        bridge.lab.model.asked("taken up"),
        [&before[..], &[user("taken up")]].concat()
    );
}

/// Transcripts in the fixtures that several versions have written. The current agent must continue each, and
/// the daemon must read what the model receives.
#[test]
#[ignore = "installs the real adapter"]
fn what_other_versions_wrote_goes_on_whole() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let project = bridge.lab.transcript_root().join("projects/-home-u-project");
    fs::create_dir_all(&project).expect("a folder");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/transcripts/claude");
    for fixture in files_in(&fixtures) {
        let content = fs::read_to_string(&fixture).expect("a fixture");
        let mut records = content
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a record"));
        let id = records
            .find_map(|record| Some(record["sessionId"].as_str()?.to_owned()))
            .expect("an id");
        fs::write(project.join(format!("{id}.jsonl")), content).expect("a transcript");

        let folder = bridge.lab.project();
        let adopted = bridge.adopt_into(&id, Some(&folder)).expect("conversation/adopt");
        assert_eq!(adopted.cwd, folder.to_str().expect("a path in UTF-8"));
        let history = bridge.history(adopted.id);
        // Compacted messages are in the history, but no longer sent.
        let summary = history
            .iter()
            .rposition(|message| message.kind == Some(MessageKind::Summary));
        let (before, sent) = history.split_at(summary.unwrap_or(0));
        let mut told = Told::of(&bridge.lab).message_uuids(&id);
        told.retain(|uuid| !before.iter().any(|message| uuid_of(message) == *uuid));
        assert_eq!(of_library(sent), told, "{}", fixture.display());

        let text = format!("taken up {id}");
        bridge.prompted(adopted.id, &text);
        let mut expected = said(sent);
        expected.push(user(&text));
        let asked = bridge.lab.model.asked(&text);
        assert_eq!(as_of_today(asked), as_of_today(expected), "{}", fixture.display());
    }
}

/// Removes from a history what depends on the version that continues it: the tool for subagents has another
/// name, the agent may drop thoughts of other models, and it formats its own messages in the user's name
/// differently.
fn as_of_today(mut said: Vec<Said>) -> Vec<Said> {
    said.retain(|said| match &said.what {
        What::Thinking(_) => false,
        What::Text(text) => !text.starts_with("<task-notification>"),
        _ => true,
    });
    for said in &mut said {
        if said.what == What::ToolUse("Task".into()) {
            said.what = What::ToolUse("Agent".into());
        }
    }
    said
}

/// The texts of a history with their roles, including texts in place of replies.
fn texts(history: &[Message]) -> Vec<(String, String)> {
    let parts = history
        .iter()
        .flat_map(|message| message.content.iter().map(move |part| (message.role, part)));
    let texts = parts.filter(|(_, part)| part.kind == "text").map(|(role, part)| {
        let role = if role == Role::User { "user" } else { "assistant" };
        let text = part.text.as_deref().unwrap_or_default().trim();
        (role.to_owned(), text.to_owned())
    });
    texts.collect()
}

/// The uuids of the messages that the library also reads. It leaves out a note that the agent adds for the
/// model.
fn of_library(history: &[Message]) -> Vec<String> {
    let is_remark = |message: &&Message| {
        said(std::slice::from_ref(message))
            .iter()
            .any(|said| matches!(&said.what, What::Text(text) if text.starts_with("<local-command-caveat>")))
    };
    let told = history.iter().filter(|message| !is_remark(message));
    told.map(uuid_of).collect()
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

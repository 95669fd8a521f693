//! `adopt` and `check` with a real daemon and the built-in agent.

use std::fs;
use std::path::{Path, PathBuf};

use super::home::Home;
use super::printed::{check_printed, check_shown};
use super::stub::Stub;
#[cfg(target_os = "linux")]
use super::terminal::Terminal;
use super::{sessionctl, text};

const ID: &str = "11111111-2222-4333-8444-555555555555";

/// What a check of a whole transcript prints with `--json`.
const NO_FINDINGS: &str = r#"{"findings":[]}"#;

/// A copy is made where something is wrong that it does not have, and the conversation goes on with it.
#[test]
fn a_damaged_transcript_is_repaired() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    home.said(&["close", &id]);
    home.shows(&["check", &id, "--repair"]);
    let status: serde_json::Value = serde_json::from_str(&home.said(&["--json", "status"])).unwrap();
    let projects = Path::new(status["home"].as_str().unwrap()).join("data/loopback/projects");
    let chain: serde_json::Value = serde_json::from_str(&home.said(&["--json", "chain", &id])).unwrap();
    let old = chain["links"][0]["upstreamId"].as_str().unwrap().to_owned();
    let folders = fs::read_dir(projects).unwrap();
    let files = folders.map(|folder| folder.unwrap().path().join(format!("{old}.jsonl")));
    let path: PathBuf = files.into_iter().find(|path| path.exists()).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("@@@\n{whole}{{\"ty")).unwrap();

    let output = home.run(&["check", &id, "--repair"]);
    let told = check_shown(&["check a damaged transcript", "--repair"], &output, 0);
    check_printed(&["check a damaged transcript", "--repair"], &output, 0);
    let chain: serde_json::Value = serde_json::from_str(&home.said(&["--json", "chain", &id])).unwrap();
    assert!(
        told.contains(chain["links"][1]["upstreamId"].as_str().unwrap()),
        "{told}"
    );
    assert_eq!(home.said(&["--json", "check", &id]), NO_FINDINGS);
    // The other one is in the past now, and as it was.
    let output = home.run(&["check", &old, "--repair"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let answer = home.run(&["--json", "check", &old]);
    let answer: serde_json::Value = serde_json::from_str(&text(&answer.stdout)).unwrap();
    assert_eq!(
        (
            answer["findings"].as_array().unwrap().len(),
            answer.get("repaired")
        ),
        (2, None)
    );
    // Of what no copy would have repaired that is said.
    fs::write(path.with_file_name(format!("{ID}.jsonl")), "").unwrap();
    home.printed(&["check", ID, "--repair"], 1);
    // Of one that is nobody's the copy can be adopted.
    fs::write(
        path.with_file_name(format!("{ID}.jsonl")),
        format!("@@@\n{}", whole.replace(&old, ID)),
    )
    .unwrap();
    home.printed(&["check", ID, "--repair"], 0);
}

/// The copy lacks the line that is not a record. The agent itself copes with the call, which stays.
#[test]
fn a_repair_lists_each_finding_once() {
    let home = Home::new();
    home.said(&["start"]);
    let record = |kind: &str, uuid: &str, parent: &str, content: &str| {
        format!(
            "{{\"type\":\"{kind}\",\"uuid\":\"{uuid}\",\"parentUuid\":{parent},\"sessionId\":\"{ID}\",\"cwd\":\"/p\",\
             \"message\":{{\"role\":\"{kind}\",\"content\":{content}}}}}\n"
        )
    };
    let call = r#"[{"type":"tool_use","id":"t1","name":"Read","input":{}}]"#;
    let records = [
        record("user", "u1", "null", r#""one""#),
        record("assistant", "a1", r#""u1""#, call),
        record("user", "u2", r#""a1""#, r#""two""#),
        record("assistant", "a2", r#""u2""#, r#"[{"type":"text","text":"yes"}]"#),
    ];
    let folder = home.path().join("data/loopback/projects/-p");
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        folder.join(format!("{ID}.jsonl")),
        format!("@@@\n{}", records.concat()),
    )
    .unwrap();
    let repaired = home.run(&["check", ID, "--repair"]);
    assert_eq!(repaired.status.code(), Some(1), "{repaired:?}");
    let told = text(&repaired.stdout);
    for kind in ["garbage line: ", "tool use without result: ", "repaired as "] {
        assert_eq!(told.matches(kind).count(), 1, "{kind}: {told}");
    }
}

#[test]
fn a_transcript_is_checked_adopted_and_talked_to() {
    let home = Home::new();
    let folder = home.said(&["--json", "new"]);
    let made: serde_json::Value = serde_json::from_str(&folder).unwrap();
    let cwd = made["conversation"]["cwd"].as_str().unwrap();
    let lines = format!(
        "{{\"type\":\"user\",\"uuid\":\"u1\",\"parentUuid\":null,\"sessionId\":\"{ID}\",\"cwd\":\"{cwd}\",\
         \"origin\":{{\"kind\":\"human\"}},\"message\":{{\"role\":\"user\",\"content\":\"long ago\"}}}}\n\
         {{\"type\":\"assistant\",\"uuid\":\"a1\",\"parentUuid\":\"u1\",\"sessionId\":\"{ID}\",\"cwd\":\"{cwd}\",\
         \"message\":{{\"id\":\"m1\",\"role\":\"assistant\",\"content\":[{{\"type\":\"text\",\"text\":\"yes\"}}]}}}}\n"
    );
    let status: serde_json::Value = serde_json::from_str(&home.said(&["--json", "status"])).unwrap();
    let data = Path::new(status["home"].as_str().unwrap()).join("data");
    let path = data.join(format!("loopback/projects/-x/{ID}.jsonl"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("@@@\n{lines}")).unwrap();

    let output = home.run(&["check", ID]);
    check_shown(&["check a line of garbage"], &output, 1);
    fs::write(&path, lines).unwrap();
    assert_eq!(home.said(&["--json", "check", ID]), NO_FINDINGS);

    let conversation = home.said(&["adopt", ID, "--title", "Found"]);
    assert_eq!(home.said(&["adopt", ID]), conversation);
    for command in ["chain", "lineage", "tree"] {
        home.shows(&[command, &conversation]);
    }
    let recalled = home.said(&["send", &conversation, "[[recall]]"]);
    assert!(
        recalled.contains("long ago") && recalled.contains("yes"),
        "{recalled}"
    );
    assert_eq!(home.said(&["--json", "check", &conversation[..8]]), NO_FINDINGS);

    for command in ["adopt", "check"] {
        home.printed(&[command, "nothing"], 4);
    }
}

/// What a list shows of an id is enough to name it, also where many ids begin alike.
#[cfg(target_os = "linux")]
#[test]
fn a_transcript_is_named_by_the_beginning_of_its_id() {
    const IDS: [&str; 2] = [
        "01a1fcd0-7929-7e93-a128-e1fa7e8a5751",
        "01a1fcd0-7adf-7ec0-9d1b-dd3180ecd393",
    ];
    let home = Home::new();
    home.said(&["agents"]);
    let status: serde_json::Value = serde_json::from_str(&home.said(&["--json", "status"])).unwrap();
    let data = Path::new(status["home"].as_str().unwrap()).join("data");
    let folder = data.join("loopback/projects/-x");
    fs::create_dir_all(&folder).unwrap();
    let cwd = home.path().display();
    for id in IDS {
        let line = format!(
            "{{\"type\":\"user\",\"uuid\":\"u1\",\"parentUuid\":null,\"sessionId\":\"{id}\",\"cwd\":\"{cwd}\",\
             \"message\":{{\"role\":\"user\",\"content\":\"long ago\"}}}}\n"
        );
        fs::write(folder.join(format!("{id}.jsonl")), line).unwrap();
    }
    let listed = |arguments: &[&str]| -> Vec<String> {
        let (listed, _) = Terminal::run_plain(&home, 80, arguments).ended();
        let rows = listed.lines().filter(|row| row.starts_with('0'));
        rows.filter_map(|row| row.split_whitespace().next().map(str::to_owned))
            .collect()
    };
    let shown = listed(&["transcripts"]);
    assert_eq!(shown.len(), 2, "{shown:?}");
    for short in &shown {
        assert!(short.len() < IDS[0].len(), "{short}");
        assert_eq!(home.said(&["--json", "check", short]), NO_FINDINGS);
    }
    // Also where the other one is not shown.
    for only in [["transcripts", "7e93"].as_slice(), &["transcripts", "-n", "1"]] {
        let shown = listed(only);
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert_eq!(
            home.said(&["--json", "check", &shown[0]]),
            NO_FINDINGS,
            "{only:?}"
        );
    }
    for command in ["adopt", "check"] {
        let told = home.printed(&[command, "01a1fcd0"], 4);
        assert!(IDS.iter().all(|id| told.contains(id)), "{told}");
    }
    // Too short to be meant, though only one begins so.
    assert_eq!(home.run(&["check", &shown[0][..5]]).status.code(), Some(4));
    let adopted = home.said(&["adopt", &shown[0]]);
    let shown_again = home.said(&["transcripts", IDS[0]]) + &home.said(&["transcripts", IDS[1]]);
    assert!(shown_again.contains(&adopted), "{shown_again}");

    // The same of conversations that hold them. A whole id is enough, and so is a conversation's own.
    let other = home.said(&["adopt", &shown[1]]);
    let told = home.printed(&["close", "01a1fcd0"], 4);
    assert!(told.contains(&adopted) && told.contains(&other), "{told}");
    for (word, id) in [(&shown[0], &adopted), (&shown[1], &other)] {
        assert_eq!(home.shown(word)["id"], id.as_str());
    }
    for short in [&shown[0][..5], &adopted[..5]] {
        assert_eq!(home.run(&["close", short]).status.code(), Some(4), "{short}");
    }
}

/// Configures Codex with the transcripts of this folder and no program.
fn configure_codex(home: &Home, transcripts: &Path) {
    home.configure(&format!(
        "default_agent = \"loopback\"\n[agents.codex]\ncommand = \"/nonexistent/codex\"\ntranscripts = \"{}\"\n",
        transcripts.display()
    ));
}

/// It can be read, and what has to be done before it can be resumed is said beside the answer.
#[test]
fn adopting_what_is_archived_says_how_it_is_taken_out() {
    const SESSION: &str = "01a1fcbf-db36-73c1-ae0a-836a46b096da";
    let rollout = include_str!("../fixtures/transcripts/codex/0.166.0-limit.jsonl");
    let home = Home::new();
    let codex = home.path().join("codex");
    configure_codex(&home, &codex);
    let archived = codex.join("archived_sessions");
    fs::create_dir_all(&archived).unwrap();
    let name = format!("rollout-2026-11-21T06-16-34-{SESSION}.jsonl");
    fs::write(archived.join(name), rollout).unwrap();
    let cwd = home.path().join("project");
    fs::create_dir(&cwd).unwrap();
    let output = home.run(&["adopt", SESSION, "--cwd", cwd.to_str().unwrap()]);
    let told = text(&output.stderr);
    check_printed(&["adopt an archived session"], &output, 0);
    assert!(told.contains(&format!("codex unarchive {SESSION}")), "{told}");
    assert_eq!(text(&output.stdout).lines().count(), 1);
    // It still is.
    let again = home.run(&["adopt", SESSION]);
    assert_eq!((again.stdout, text(&again.stderr)), (output.stdout, told));
}

/// What cannot be adopted says where more is said of it, and what is adopted and cannot go on, or not with
/// all of it, says why.
#[test]
fn adopting_what_cannot_be_resumed_says_why() {
    const OLD: &str = "82ace22b-a325-4eb4-b3c2-75701e12acde";
    const PACKED: &str = "82ace22b-a325-4eb4-b3c2-75701e12acdf";
    let home = Home::new();
    configure_codex(&home, &home.path().join("codex"));
    let reply = r#"{"type":"assistant","uuid":"a1","parentUuid":null,"message":{"content":"hello"}}"#;
    let asked = |uuid: &str, parent: &str| {
        format!(
            r#"{{"type":"user","uuid":"{uuid}","parentUuid":{parent},"sessionId":"aside","origin":{{"kind":"human"}},"message":{{"content":"x"}}}}"#
        )
    };
    let aside = [
        asked("u1", "null"),
        asked("u2", r#""u1""#),
        asked("u3", r#""u1""#),
        r#"{"type":"last-prompt","leafUuid":"u2"}"#.to_owned(),
    ];
    let aside = aside.join("\n") + "\n";
    let gone = asked("u1", "null").replace("aside\"", "gone\",\"cwd\":\"/nonexistent/folder\"");
    for (path, content) in [
        (
            &*format!("codex/sessions/2025/09/01/rollout-2025-09-01T00-00-00-{OLD}.jsonl"),
            include_str!("../fixtures/transcripts/codex/0.29.0.jsonl"),
        ),
        (
            &format!("codex/sessions/2025/09/01/rollout-2025-09-01T00-00-00-{PACKED}.jsonl.zst"),
            "not compressed",
        ),
        ("data/loopback/projects/-p/unasked.jsonl", reply),
        ("data/loopback/projects/-p/aside.jsonl", &aside),
        ("data/loopback/projects/-p/gone.jsonl", &gone),
        ("project/here", ""),
    ] {
        let path = home.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let cwd = home.path().join("project");
    let adopt = |id: &str| home.run(&["adopt", id, "--cwd", cwd.to_str().unwrap()]);
    let adopted = |id: &str, code| check_printed(&["adopt", id], &adopt(id), code);
    adopted("unasked", 1);
    check_shown(&["check unasked"], &home.run(&["check", "unasked"]), 1);
    // A program gets a title only where there is one.
    let listed = text(&home.run(&["transcripts", "unasked"]).stdout);
    assert!(listed.ends_with("\t\n"), "{listed:?}");
    // A check says no more of what cannot be read.
    let told = adopted(PACKED, 1);
    assert_eq!(text(&home.run(&["check", PACKED]).stderr), told);
    check_printed(&["adopt gone"], &home.run(&["adopt", "gone"]), 1);
    adopted(OLD, 0);
    check_shown(&["check aside"], &home.run(&["check", "aside"]), 1);
    adopted("aside", 0);
}

/// The daemon looks at its folders for the first page, and tells only there what it cannot watch.
#[test]
fn what_each_page_says_of_folders_is_told_once() {
    let stub = Stub::start();
    let output = sessionctl(&stub.home(), &["transcripts", "-n", "1000"])
        .output()
        .unwrap();
    let listed = text(&output.stdout);
    assert!(listed.contains("first") && listed.contains("second"), "{listed}");
    check_printed(&["transcripts on two pages"], &output, 0);
    assert_eq!(stub.calls_of("transcript/list").len(), 2);
}

/// The folder in which the built-in agent's transcripts are looked for.
fn transcripts_of(home: &Home) -> PathBuf {
    home.said(&["agents"]);
    let status: serde_json::Value = serde_json::from_str(&home.said(&["--json", "status"])).unwrap();
    let folder = Path::new(status["home"].as_str().unwrap()).join("data/loopback/projects/-x");
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_name_that_leads_nowhere_comes_with_what_leads_on() {
    let home = Home::new();
    let folder = transcripts_of(&home);
    let cwd = home.path().display();
    let user = |session: &str, cwd: &str| {
        format!(
            "{{\"type\":\"user\",\"uuid\":\"u1\",\"parentUuid\":null,\"sessionId\":\"{session}\",{cwd}\
             \"message\":{{\"role\":\"user\",\"content\":\"long ago\"}}}}\n"
        )
    };
    let path = folder.join(format!("{ID}.jsonl"));
    fs::write(&path, user(ID, &format!("\"cwd\":\"{cwd}\","))).unwrap();
    for command in ["history", "checkpoints", "show"] {
        for name in [ID, &ID[..8]] {
            let told = home.printed(&[command, name], 4);
            assert!(told.contains(&format!("sessionctl adopt {ID}")), "{told}");
        }
    }
    home.printed(&["history", "nothing"], 4);
    for command in [&["transcripts"][..], &["check", ID], &["adopt", ID]] {
        home.printed(&[command, &["--agent", "nope"]].concat(), 4);
    }

    let conversation = home.said(&["adopt", ID]);
    fs::remove_file(&path).unwrap();
    let told = home.printed(&["check", &conversation], 4);
    assert!(
        told.contains(&format!("sessionctl resume {}", &conversation[..8])),
        "{told}"
    );
    // The beginning of a session's id names the conversation that has it.
    let history = home.run(&["history", &ID[..8]]);
    assert_eq!(history.status.code(), Some(0), "{history:?}");

    const HOMELESS: &str = "22222222-2222-4333-8444-555555555555";
    fs::write(folder.join(format!("{HOMELESS}.jsonl")), user(ID, "")).unwrap();
    home.printed(&["adopt", HOMELESS], 2);
    let checked = home.run(&["check", HOMELESS]);
    check_shown(&["check records of another session"], &checked, 1);

    let garbage = home.path().join("garbage");
    fs::write(&garbage, "garbage").unwrap();
    home.printed(&["import", garbage.to_str().unwrap(), "--same-folders"], 1);
}

#[test]
fn calls_that_are_made_together_are_told_with_their_answers() {
    let home = Home::new();
    let folder = transcripts_of(&home);
    let lines = include_str!("../fixtures/transcripts/claude/2.1.329.jsonl");
    fs::write(folder.join(format!("{ID}.jsonl")), lines).unwrap();
    let cwd = home.path().to_str().unwrap();
    let conversation = home.said(&["adopt", ID, "--cwd", cwd]);
    let told = home.said(&["history", &conversation]);
    let answered: Vec<&str> = told
        .lines()
        .filter(|line| line.starts_with("[Bash") || line.starts_with("  -> "))
        .map(|line| if line.contains("one") { "one" } else { "two" })
        .take(4)
        .collect();
    assert_eq!(answered, ["one", "one", "two", "two"], "{told}");

    // A prompt that is only a picture, and a turn that was interrupted.
    const SEEN: &str = "33333333-2222-4333-8444-555555555555";
    let line = |uuid: &str, parent: &str, content: &str| {
        format!(
            "{{\"type\":\"user\",\"uuid\":\"{uuid}\",\"parentUuid\":{parent},\"sessionId\":\"{SEEN}\",\
             \"cwd\":\"{cwd}\",\"message\":{{\"role\":\"user\",\"content\":[{content}]}}}}\n"
        )
    };
    let image = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}"#;
    let stopped = r#"{"type":"text","text":"[Request interrupted by user]"}"#;
    let lines = line("u1", "null", image) + &line("u2", "\"u1\"", stopped);
    fs::write(folder.join(format!("{SEEN}.jsonl")), lines).unwrap();
    let conversation = home.said(&["adopt", SEEN]);
    assert_eq!(
        home.said(&["history", &conversation]),
        "> [image]\n\n[Request interrupted by user]"
    );
    let checkpoints = home.said(&["checkpoints", &conversation]);
    assert!(
        checkpoints.lines().next().unwrap().ends_with("[no text]"),
        "{checkpoints}"
    );
}

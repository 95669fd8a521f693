//! `history` and `checkpoints` with a real daemon and the built-in agent.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use super::home::Home;
use super::printed::check_printed;
#[cfg(target_os = "linux")]
use super::printed::check_seen;
#[cfg(target_os = "linux")]
use super::terminal::{MARK, Terminal};
use super::text;

fn lines(printed: &str) -> Vec<Value> {
    printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Sends a prompt through standard input: it would be too long for an argument.
#[track_caller]
pub(crate) fn send(home: &Home, id: &str, prompt: &str) {
    let mut child = home
        .command(&["send", id, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(prompt.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn history_is_what_was_said_with_tools_folded() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let output = home.run(&["history", &id]);
    assert_eq!(text(&output.stdout), "");
    check_printed(&["history", &id], &output, 0);

    home.said(&[
        "send",
        &id,
        "[[say First words]] [[tool read {\"path\":\"a.rs\"}]]",
    ]);
    home.said(&["send", &id, "second"]);
    let told = home.said(&["history", &id]);
    let at = |words: &str| told.find(words).unwrap_or_else(|| panic!("{words:?}: {told}"));
    assert!(at("> [[say First words]]") < at("First words\n"));
    assert!(at("[read {\"path\":\"a.rs\"}]") < at("> second") && at("> second") < at("echo: second"));
    // Never a reply without its prompt.
    assert_eq!(
        home.said(&["history", &id, "-n", "1"]),
        "> second\n\necho: second"
    );
    home.printed(&["history", &id, "-n", "1"], 0);
    let all = home.run(&["history", &id, "-n", "100"]);
    assert_eq!(text(&all.stderr), "");

    let pages = lines(&home.said(&["--json", "history", &id]));
    assert_eq!(pages.len(), 1);
    let messages = pages[0]["messages"].as_array().unwrap();
    assert_eq!(messages[0]["role"], "user");
    let last = lines(&home.said(&["--json", "history", &id, "-n", "2"]));
    assert_eq!(
        last[0]["messages"].as_array().unwrap()[..],
        messages[messages.len() - 2..]
    );
}

/// What is seen is what `fork --at` and `edit --at` take.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_shows_the_numbers_of_the_turns() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "first\nwith a line more"]);
    home.said(&["send", &id, "second"]);
    let shown = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env("PAGER", "").env("NO_COLOR", "1");
        let shown = super::terminal::Terminal::of(80, &command).exits(0);
        shown.replace('\r', "")
    };
    let all = shown(&["history", &id]);
    check_seen("history", &all);
    let numbers = |shown: &str| -> Vec<String> {
        let heads = shown.lines().filter_map(|line| line.strip_prefix("turn "));
        heads
            .map(|rest| rest.split(',').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(numbers(&all), ["1", "2"], "{all}");
    assert_eq!(numbers(&shown(&["history", &id, "-n", "2"])), ["2"]);
    // A pipe gets what was said.
    assert_eq!(numbers(&home.shows(&["history", &id])), [""; 0]);
    let long = format!("[[tool read {{\"path\":\"{}\"}}]]", "x".repeat(90));
    home.said(&["send", &id, &long]);
    let all = shown(&["history", &id]);
    let call = all.lines().find(|line| line.starts_with("[read")).unwrap();
    assert!(call.ends_with('…') && call.chars().count() <= 80, "{call}");
}

/// Writes a transcript of Claude Code into this home and adopts it; returns the conversation's id.
fn adopted(home: &Home, messages: &[Value]) -> String {
    const ID: &str = "41111111-2222-4333-8444-555555555555";
    let folder = home.path().join("user/.claude/projects/-x");
    fs::create_dir_all(&folder).unwrap();
    let uuid = |at: usize| format!("00000000-0000-4000-9000-{at:012}");
    let lines = messages.iter().enumerate().map(|(at, message)| {
        let parent = at.checked_sub(1).map(uuid);
        let line = json!({"type": message["role"], "uuid": uuid(at), "parentUuid": parent, "sessionId": ID,
            "cwd": home.path(), "isSidechain": false, "timestamp": "2026-11-20T22:05:50.054Z", "message": message});
        format!("{line}\n")
    });
    fs::write(folder.join(format!("{ID}.jsonl")), lines.collect::<String>()).unwrap();
    home.said(&["adopt", ID, "--agent", "claude"])
}

fn user(content: impl Into<Value>) -> Value {
    json!({"role": "user", "content": content.into()})
}

fn assistant(block: &Value) -> Value {
    json!({"role": "assistant", "content": [block], "stop_reason": "end_turn"})
}

/// Claude Code writes commands, their output and shell lines in tags.
#[test]
fn a_command_of_claude_is_shown_as_it_was_typed() {
    let home = Home::new();
    let local = "<command-name>/cost</command-name>\n  <command-message>cost</command-message>\n  <command-args></command-args>";
    let custom = "<command-message>deploy</command-message>\n<command-name>/deploy</command-name>\n\
                  <command-args>staging now</command-args>";
    let messages = [
        user(local),
        user("<local-command-stdout>Total: \u{1b}[1m$1\u{1b}[22m</local-command-stdout>"),
        user(custom),
        assistant(&json!({"type": "text", "text": "Deployed."})),
        user("<bash-input>ls -l</bash-input>"),
        user("<bash-stdout>a &lt;b&gt;</bash-stdout><bash-stderr></bash-stderr>"),
        assistant(&json!({"type": "text", "text": "Listed."})),
    ];
    let id = adopted(&home, &messages);
    assert_eq!(
        home.said(&["history", &id]),
        "[/cost]\n  -> Total: $1\n\n> /deploy staging now\n\nDeployed.\n\n> ! ls -l\n\n  -> a <b>\n\nListed."
    );
    let turns = home.said(&["checkpoints", &id]);
    let turns: Vec<&str> = turns
        .lines()
        .map(|line| line.rsplit('\t').next().unwrap())
        .collect();
    assert_eq!(turns, ["! ls -l", "/deploy staging now"]);
    let tree = home.said(&["tree", &id]);
    assert!(tree.contains("turn 1 \"/deploy staging now\""), "{tree}");
    let mut edit = home.command(&["edit", &id, "--at", "1"]);
    let opened = edit.env("EDITOR", "cat").output().unwrap();
    assert_eq!(text(&opened.stdout), "/deploy staging now");
    // A program gets what stands there.
    let pages = lines(&home.said(&["--json", "history", &id]));
    let told: Vec<&Value> = pages[0]["messages"].as_array().unwrap().iter().collect();
    assert_eq!(told[2]["content"][0]["text"], custom);
}

/// A result at the beginning of a page has its call at the end of the one before.
#[test]
fn a_call_is_shown_once() {
    let home = Home::new();
    let call = json!({"type": "tool_use", "id": "call-1", "name": "Bash", "input": {"command": "ls"}});
    let result = json!({"type": "tool_result", "tool_use_id": "call-1", "content": "listed"});
    let mut messages = vec![user("begin")];
    messages.extend((2..500).map(|at| assistant(&json!({"type": "text", "text": format!("word {at}")}))));
    messages.extend([assistant(&call), user(json!([result]))]);
    messages.push(assistant(&json!({"type": "text", "text": "done"})));
    let id = adopted(&home, &messages);
    assert_eq!(lines(&home.said(&["--json", "history", &id])).len(), 2);
    let told = home.said(&["history", &id]);
    assert_eq!(told.matches("[Bash").count(), 1, "{told}");
    assert!(
        told.ends_with("[Bash {\"command\":\"ls\"}]\n  -> listed\n\ndone"),
        "{told}"
    );
}

/// A page ends at so many bytes, and a count means messages all the same.
#[test]
fn a_count_is_kept_over_pages_that_hold_less() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let body = "x".repeat(700 * 1024);
    for number in 1..=4 {
        send(
            &home,
            &id,
            &format!("prompt {number} [[say reply {number}]] {body}"),
        );
    }
    let told = home.said(&["history", &id, "-n", "4"]);
    let heads: Vec<String> = told
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.chars().take(10).collect())
        .collect();
    assert_eq!(heads, ["> prompt 3", "reply 3", "> prompt 4", "reply 4"]);
    assert!(told.len() > 2 * body.len());

    let pages = lines(&home.said(&["--json", "history", &id, "-n", "4"]));
    assert!(pages.len() > 1, "one page holds no two such prompts");
    let messages: usize = pages
        .iter()
        .map(|page| page["messages"].as_array().unwrap().len())
        .sum();
    assert_eq!(messages, 4);
    // In their order, each page shown as it comes.
    let first = &pages[0]["messages"][0]["content"][0]["text"];
    assert!(first.as_str().unwrap().starts_with("prompt 3"), "{first}");
    let all = home.said(&["history", &id]);
    assert_eq!(all.matches("> prompt ").count(), 4);
    let steps: Vec<String> = home
        .said(&["checkpoints", &id, "-n", "3"])
        .lines()
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert_eq!(steps, ["4", "3", "2"]);
}

#[test]
fn checkpoints_have_their_steps_and_ids() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let output = home.run(&["checkpoints", &id]);
    assert_eq!(text(&output.stdout), "");
    check_printed(&["checkpoints", &id], &output, 0);

    home.said(&["send", &id, "first"]);
    home.said(&["send", &id, "second\nwith a line more"]);
    let told = lines(&home.said(&["--json", "checkpoints", &id]));
    let checkpoints = told[0]["checkpoints"].as_array().unwrap();
    let steps: Vec<u64> = checkpoints
        .iter()
        .map(|one| one["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, [2, 1]);
    assert_eq!(checkpoints[0]["parentId"], checkpoints[1]["id"]);

    let shown = home.said(&["checkpoints", &id]);
    let shown: Vec<&str> = shown.lines().collect();
    assert_eq!(shown.len(), 2);
    for ((line, own), (step, prompt)) in shown
        .iter()
        .zip(checkpoints)
        .zip([("2", "second"), ("1", "first")])
    {
        let columns: Vec<&str> = line.split('\t').collect();
        assert_eq!(
            (columns[0], columns[2]),
            (step, own["id"].as_str().unwrap()),
            "{shown:?}"
        );
        assert!(columns[3].starts_with(prompt), "{shown:?}");
    }
    assert_eq!(home.said(&["checkpoints", &id, "-n", "1"]).lines().count(), 1);
    let one = lines(&home.said(&["--json", "checkpoints", &id, "-n", "1"]));
    assert_eq!(one[0]["checkpoints"].as_array().unwrap().len(), 1);
}

#[test]
fn a_pipe_gets_no_pager() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "words"]);
    let output = home
        .command(&["history", &id])
        .env("PATH", "/usr/bin:/bin")
        .env("PAGER", "echo paged; cat >&2")
        .output()
        .unwrap();
    let told = text(&output.stdout);
    assert!(told.contains("echo: words") && !told.contains("paged"), "{told}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_conversation_that_is_not_there_is_told() {
    let home = Home::new();
    home.said(&["new"]);
    for command in ["history", "checkpoints", "export"] {
        let output = home.run(&[command, "nothing"]);
        assert_eq!(text(&output.stdout), "");
        check_printed(&[command, "nothing"], &output, 4);
    }
    let output = home.run(&["history", "nothing", "-n", "0"]);
    assert_eq!(output.status.code(), Some(2));
}

/// As `send` does; a program gets it as it was written.
#[test]
#[cfg(target_os = "linux")]
fn history_on_a_terminal_renders_markdown() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "[[say A **bold** word]]"]);
    let mut command = home.command(&["history", &id]);
    command.env("NO_COLOR", "1").env("PAGER", "cat");
    let (seen, _) = Terminal::of(80, &command).seen();
    assert!(seen.contains("\nA bold word"), "{seen}");
    assert!(home.said(&["history", &id]).contains("A **bold** word"));
    let chat = Terminal::run_plain(&home, 80, &["chat", &id]);
    let mut chat = chat.waiting();
    chat.enter("/fork");
    let shown = chat.until("a branch of");
    assert!(shown.contains("A bold word"), "{shown:?}");
    chat.until(MARK);
    chat.leave();
}

/// That no history can be read is not a matter of the version, and no list of turns helps.
#[test]
fn an_agent_whose_transcripts_are_not_read_has_no_history() {
    let home = Home::new();
    let config = format!(
        "[agents.mine]\nkind = \"generic\"\ncommand = \"{}\"\nargs = [\"loopback-agent\", \"--data\", \"{}\"]\n",
        env!("CARGO_BIN_EXE_sessiond"),
        home.path().join("data").display(),
    );
    home.configure(&config);
    let id = home.said(&["new", "--agent", "mine"]);
    assert_eq!(home.said(&["send", &id, "one"]), "echo: one");
    for arguments in [
        &["history", &id][..],
        &["checkpoints", &id],
        &["fork", &id, "--at", "1"],
        &["fork", &id, "--at", "abc"],
        &["edit", &id, "--at", "1", "two"],
        &["export", &id, "-o", "-"],
    ] {
        let told = home.printed(arguments, 1);
        assert!(
            told.contains("sessionctl agents") && !told.contains("checkpoints"),
            "{told}"
        );
    }
    home.printed(&["export", &id], 0);
}

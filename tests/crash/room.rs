//! A full disk and a read-only one: a change that cannot be made durable is refused, and the daemon works
//! again when there is space.
//!
//! The disk is a small one in memory, in its own mount namespace. Tests that need one are skipped if the
//! system does not allow such a namespace; their lines in the snapshots are then not checked.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::client::{Client, Line};
use super::home::{Daemon, Home};
use crate::daemon::error_words;
use crate::daemon::external_changes::limit_files_of;

/// The length of a title, in bytes: the maximum.
const TITLE_BYTES: usize = 4 * 1024;

/// How much the database collects before it has to write, in bytes. It also writes once per second.
const COLLECTED_BYTES: usize = 1024 * 1024;

/// A namespace in which the data folder of a home is a disk in memory; it exists until this is dropped.
pub(super) struct Disk {
    pub(super) keeper: Child,
    data: PathBuf,
}

impl Disk {
    /// Returns `None` and prints the reason if the system does not allow this user to mount a disk.
    pub(super) fn mount(home: &Home, options: &str) -> Option<Self> {
        let script = "mount -t tmpfs -o \"mode=700,$1\" none \"$2\" && echo mounted && exec cat";
        let mut command = Command::new("unshare");
        command
            .args(["-Urm", "sh", "-c", script, "sh", options])
            .arg(home.data());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = match command.spawn() {
            Ok(keeper) => keeper,
            Err(error) => {
                eprintln!("skipped: unshare cannot be run: {error}");
                return None;
            }
        };
        let mut told = String::new();
        BufReader::new(keeper.stdout.take().unwrap())
            .read_line(&mut told)
            .unwrap();
        if told != "mounted\n" {
            eprintln!("skipped: this user may not mount a disk in memory");
            keeper.wait().unwrap();
            return None;
        }
        let data = PathBuf::from(format!("/proc/{}/root{}", keeper.id(), home.data().display()));
        Some(Self { keeper, data })
    }

    /// Starts a daemon that sees the disk.
    pub(super) fn spawn(&self, home: &Home) -> Daemon {
        let inner = home.command();
        let mut command = Command::new("nsenter");
        command.env_clear().envs(home.environment());
        let target = format!("--target={}", self.keeper.id());
        command.args([&target, "--user", "--mount", "--preserve-credentials"]);
        command
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir("/");
        home.spawn_as(command)
    }

    /// Starts a daemon that sees the disk, waits until it is ready, and connects to it.
    pub(super) fn start(&self, home: &Home) -> (Daemon, Client) {
        let mut daemon = self.spawn(home);
        assert!(daemon.wait_ready(), "{}", home.last_words());
        (daemon, Client::connect(&home.socket()).unwrap())
    }

    /// Writes until the disk is completely full.
    pub(super) fn fill(&self) {
        let path = self.data.join("filler");
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        for size in [1 << 16, 1] {
            while file.write(&vec![b'x'; size]).is_ok() {}
        }
    }

    /// Frees enough space for a page of the journal.
    fn make_little_room(&self) {
        self.free(4_096);
    }

    /// Frees this many bytes of a full disk.
    pub(super) fn free(&self, bytes: u64) {
        let filler = File::options()
            .write(true)
            .open(self.data.join("filler"))
            .unwrap();
        let length = filler.metadata().unwrap().len();
        let left = length
            .checked_sub(bytes)
            .expect("the filler file is too small to free this much");
        filler.set_len(left).unwrap();
    }

    /// Removes the databases that were replaced by rebuilt ones, as a user would.
    pub(super) fn remove_unused_databases(&self) {
        for entry in fs::read_dir(&self.data).unwrap() {
            let path = entry.unwrap().path();
            if path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("store.broken-")
            {
                fs::remove_dir_all(path).unwrap();
            }
        }
    }

    pub(super) fn make_room(&self) {
        fs::remove_file(self.data.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The keeper reads until its input ends.
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }
}

fn assert_store_failed(error: &Value) {
    assert_eq!(error["code"], 1015, "{error}");
    assert_eq!(error["data"]["kind"], "storeFailed", "{error}");
    assert_eq!(error["data"]["retryable"], true, "{error}");
    error_words::check("a full disk", "storeFailed", error["message"].as_str().unwrap());
}

fn recalled(client: &mut Client, id: &str) -> String {
    client.call("conversation/subscribe", &json!({"conversationId": id}));
    let request = json!({"conversationId": id, "prompt": "[[recall]]"});
    let request = client.send("conversation/prompt", &request).unwrap();
    let mut words = String::new();
    loop {
        match client.read().unwrap() {
            Line::Event(event) => {
                let update = &event["event"]["update"];
                if update["sessionUpdate"] == "agent_message_chunk" {
                    words.push_str(update["content"]["text"].as_str().unwrap());
                }
            }
            Line::Answer(id, answer) if id == request => {
                assert_eq!(answer.unwrap()["stopReason"], "end_turn");
                return words;
            }
            Line::Answer(..) => {}
        }
    }
}

#[test]
fn without_room_nothing_is_acknowledged_and_nothing_is_lost() {
    let home = Home::new("");
    let Some(disk) = Disk::mount(&home, "size=8m") else {
        return;
    };
    let make = json!({"agent": "loopback", "cwd": home.project()});
    let mut ids: Vec<String> = Vec::new();
    for round in 0..3 {
        let (mut daemon, mut client) = disk.start(&home);
        ids.push(client.new_conversation(&make));
        let (first, last) = (ids[0].clone(), ids[ids.len() - 1].clone());
        let turn = client.prompt(&first, &format!("before {round}"));
        assert_eq!(turn["stopReason"], "end_turn", "{turn}");

        disk.fill();
        // The journal has some room left. When a new conversation no longer fits, a smaller change may still
        // fit, and clears the failure.
        let mut refusals = 0;
        let status = loop {
            match client.ask("conversation/new", &make).unwrap() {
                Ok(made) => ids.push(made["conversation"]["id"].as_str().unwrap().to_owned()),
                Err(error) => {
                    assert_store_failed(&error);
                    refusals += 1;
                    let status = client.call("daemon/status", &json!({}));
                    if status["store"]["failure"].is_string() {
                        break status;
                    }
                    assert!(refusals < 100, "{status}");
                }
            }
        };
        assert_eq!(status["conversations"], ids.len());
        // Existing conversations can be read, and changes that cannot be written are not made.
        let chain = client.call("conversation/chain", &json!({"conversationId": first}));
        let view = client.call("conversation/get", &json!({"conversationId": last}));
        let changes = [
            (
                "conversation/prompt",
                json!({"conversationId": first, "prompt": "while there is no room"}),
            ),
            (
                "conversation/update",
                json!({"conversationId": last, "title": "no room ".repeat(500)}),
            ),
            ("conversation/fork", json!({"conversationId": first})),
        ];
        for (method, params) in changes {
            let error = client.refused(method, &params);
            assert!(
                [1007, 1015].contains(&error["code"].as_i64().unwrap()),
                "{method}: {error}"
            );
        }
        let after = client.call("conversation/get", &json!({"conversationId": last}));
        assert_eq!(after["conversation"]["title"], view["conversation"]["title"]);
        assert_eq!(
            client.call("conversation/chain", &json!({"conversationId": first})),
            chain
        );

        disk.make_room();
        ids.push(client.new_conversation(&make));
        let status = client.call("daemon/status", &json!({}));
        assert!(status["store"]["failure"].is_null(), "{status}");
        let turn = client.prompt(&first, &format!("after {round}"));
        assert_eq!(turn["stopReason"], "end_turn", "{turn}");
        daemon.kill();
    }

    let (daemon, mut client) = disk.start(&home);
    let listed = client.call("conversation/list", &json!({"limit": 500}));
    assert_eq!(listed["conversations"].as_array().unwrap().len(), ids.len());
    let words = recalled(&mut client, &ids[0]);
    for said in [
        "before 0", "before 1", "before 2", "after 0", "after 1", "after 2",
    ] {
        assert!(words.contains(said), "{said} is not in {words}");
    }
    assert!(!words.contains("while there is no room"), "{words}");
    daemon.stop();
    home.assert_nobody_but(&[disk.keeper.id()]);
}

/// An agent's answer to a prompt: a result with this many additional bytes, or an error whose message has
/// this many bytes.
#[derive(Clone, Copy)]
enum AgentAnswer {
    Result(usize),
    Error(usize),
}

/// Configures an agent `plain` whose transcripts do not show how a turn ended.
fn configure_plain(home: &Home, answer: AgentAnswer) {
    let edit = match answer {
        AgentAnswer::Result(bytes) => {
            format!(r#"s/\"stopReason\"/\"_meta\":{{\"x\":\"$(printf %0{bytes}d 0)\"}},&/"#)
        }
        AgentAnswer::Error(bytes) => format!(
            r#"s/\"result\":{{[^{{]*\"stopReason\".*/\"error\":{{\"code\":-32603,\"message\":\"$(printf %0{bytes}d 0)\"}}}}/"#
        ),
    };
    let script = format!(r#""$0" loopback-agent --data "$1" | sed -u "{edit}""#);
    home.configure(&format!(
        "[agents.plain]\nkind = \"generic\"\ncommand = \"/bin/sh\"\nargs = [\"-c\", '''{script}''', '{}', '{}']\n",
        env!("CARGO_BIN_EXE_sessiond"),
        home.path().join("agent").display(),
    ));
}

/// A turn that waits for the answer to its question.
struct Asked {
    prompt: Value,
    request: u64,
    question: Value,
}

/// Starts such a turn in a new conversation.
fn ask_of(client: &mut Client, make: &Value) -> Asked {
    let id = client.new_conversation(make);
    client.call("conversation/subscribe", &json!({"conversationId": id}));
    let prompt = json!({"conversationId": id, "prompt": "[[ask May I?]]", "requestId": "key"});
    let request = client.send("conversation/prompt", &prompt).unwrap();
    let question = loop {
        if let Line::Event(event) = client.read().unwrap()
            && event["event"]["type"] == "interruptRaised"
        {
            break event["event"]["interrupt"]["id"].clone();
        }
    };
    Asked {
        prompt,
        request,
        question,
    }
}

/// Answers the question of the turn and returns the result of the prompt.
fn allow(client: &mut Client, asked: &Asked) -> Value {
    let outcome = json!({"outcome": "selected", "optionId": "allow_once"});
    let id = &asked.prompt["conversationId"];
    client
        .send(
            "conversation/respond",
            &json!({"conversationId": id, "interruptId": asked.question, "outcome": outcome}),
        )
        .unwrap();
    loop {
        if let Line::Answer(answered, answer) = client.read().unwrap()
            && answered == asked.request
        {
            break answer.unwrap();
        }
    }
}

/// Checks that the same prompt gets the same answer after a kill as before, except for what the agent added
/// to it: without room, that is not stored. The agent's error must be the same or absent.
fn assert_ended_alike(again: &Value, told: &Value) {
    let end = |answer: &Value| {
        let mut failure = answer["failure"].clone();
        if let Some(members) = failure.as_object_mut() {
            members.remove("upstream");
        }
        (answer["stopReason"].clone(), answer["turnId"].clone(), failure)
    };
    assert_eq!(end(again), end(told), "{again}");
    let upstream = |answer: &Value| answer["failure"].get("upstream").cloned();
    assert!(
        upstream(again).is_none() || upstream(again) == upstream(told),
        "{again}, {told}"
    );
}

/// When a turn starts, room for its end is reserved. So the turn ends the same way after a kill as in the
/// response to its caller, even if no transcript shows how.
#[test]
fn a_turn_that_ends_without_room_has_the_same_end_after_a_kill() {
    ends_alike_after_a_kill(AgentAnswer::Result(0));
}

/// The answer alone is so large that it is usually stored in a separate file.
#[test]
fn a_turn_with_a_large_answer_that_ends_without_room_has_the_same_end_after_a_kill() {
    ends_alike_after_a_kill(AgentAnswer::Result(20_000));
}

/// The answer alone is so large that the journal would refuse it, and a few such answers would use up the
/// reserved room.
#[test]
fn a_turn_with_a_very_large_answer_that_ends_without_room_has_the_same_end_after_a_kill() {
    ends_alike_after_a_kill(AgentAnswer::Result(90_000));
}

#[test]
fn many_turns_with_large_answers_that_end_without_room_have_the_same_ends_after_a_kill() {
    many_end_alike_after_a_kill(50_000, false);
}

/// The same, but the agent's error is so long that the journal would refuse it.
#[test]
fn a_turn_with_a_very_long_error_that_ends_without_room_has_the_same_end_after_a_kill() {
    ends_alike_after_a_kill(AgentAnswer::Error(90_000));
}

fn ends_alike_after_a_kill(answer: AgentAnswer) {
    let home = Home::new("");
    configure_plain(&home, answer);
    let Some(disk) = Disk::mount(&home, "size=8m") else {
        return;
    };
    let (mut daemon, mut client) = disk.start(&home);
    // Too large for a line of the journal, so it is stored in a separate file.
    let large = "word ".repeat(4_000);
    let server = json!({"name": "large", "command": "true", "args": [large], "env": []});
    let settings = json!({"mcpServers": [server]});
    let make = json!({"agent": "plain", "cwd": home.project()});
    let other = client.new_conversation(&make);
    let make = json!({"agent": "plain", "cwd": home.project(), "settings": settings});
    let asked = ask_of(&mut client, &make);
    disk.fill();
    let title = json!({"conversationId": asked.prompt["conversationId"], "title": "t".repeat(TITLE_BYTES)});
    // The journal has some room left.
    while client.ask("conversation/update", &title).unwrap().is_ok() {}
    let refused = client.refused(
        "conversation/prompt",
        &json!({"conversationId": other, "prompt": large}),
    );
    assert_store_failed(&refused);
    let told = allow(&mut client, &asked);
    let expected = match answer {
        AgentAnswer::Result(_) => "end_turn",
        AgentAnswer::Error(_) => "failed",
    };
    assert_eq!(told["stopReason"], expected, "{told}");
    assert_store_failed(&client.refused("conversation/update", &title));
    daemon.kill();
    disk.make_room();

    let (daemon, mut client) = disk.start(&home);
    assert_ended_alike(&client.call("conversation/prompt", &asked.prompt), &told);
    daemon.stop();
    home.assert_nobody_but(&[disk.keeper.id()]);
}

/// The same with room on the disk, but separate files cannot be created.
#[test]
fn a_turn_with_a_large_answer_that_no_file_can_hold_has_the_same_end_after_a_kill() {
    let home = Home::new("");
    configure_plain(&home, AgentAnswer::Result(20_000));
    let mut daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    let asked = ask_of(&mut client, &json!({"agent": "plain", "cwd": home.project()}));
    let bodies = home.data().join("bodies");
    // The folder may not exist yet.
    drop(fs::remove_dir_all(&bodies));
    fs::write(&bodies, "").unwrap();
    let told = allow(&mut client, &asked);
    daemon.kill();
    fs::remove_file(&bodies).unwrap();

    let daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    assert_ended_alike(&client.call("conversation/prompt", &asked.prompt), &told);
    daemon.stop();
    home.assert_nobody_but(&[]);
}

/// The same for turns that run while the journal is rewritten because a conversation is deleted with its
/// transcripts.
#[test]
fn turns_that_end_without_room_after_an_erasure_have_the_same_end_after_a_kill() {
    many_end_alike_after_a_kill(0, true);
}

fn many_end_alike_after_a_kill(answer_bytes: usize, erases: bool) {
    let home = Home::new("");
    configure_plain(&home, AgentAnswer::Result(answer_bytes));
    let Some(disk) = Disk::mount(&home, "size=32m") else {
        return;
    };
    let (mut daemon, mut client) = disk.start(&home);
    // Almost large enough to be stored in separate files.
    let server = json!({"name": "large", "command": "true", "args": ["x".repeat(6_500)], "env": []});
    let make = json!({"agent": "plain", "cwd": home.project(), "settings": {"mcpServers": [server]}});
    let deleted = client.new_conversation(&make);
    let asking: Vec<_> = (0..60).map(|_| ask_of(&mut client, &make)).collect();
    if erases {
        let delete = json!({"conversationId": deleted, "transcripts": "delete"});
        assert_eq!(client.call("conversation/delete", &delete), json!({}));
    }
    disk.fill();
    let title =
        json!({"conversationId": asking[0].prompt["conversationId"], "title": "t".repeat(TITLE_BYTES)});
    while client.ask("conversation/update", &title).unwrap().is_ok() {}
    let told: Vec<Value> = asking.iter().map(|asked| allow(&mut client, asked)).collect();
    daemon.kill();
    disk.make_room();

    let (daemon, mut client) = disk.start(&home);
    for (asked, told) in asking.iter().zip(told) {
        assert_ended_alike(&client.call("conversation/prompt", &asked.prompt), &told);
    }
    daemon.stop();
    home.assert_nobody_but(&[disk.keeper.id()]);
}

/// sled accepts no changes after a failed write, even if there is space again. The daemon then continues
/// without sled, with the journal alone, and nothing is lost.
#[test]
fn a_database_that_found_no_room_is_rebuilt_at_the_next_start() {
    let home = Home::new("");
    let Some(disk) = Disk::mount(&home, "size=32m") else {
        return;
    };
    let (mut daemon, mut client) = disk.start(&home);
    let make = json!({"agent": "loopback", "cwd": home.project()});
    let first = client.new_conversation(&make);
    let mut made = 1;
    let has_failed = |client: &mut Client| {
        let found = client.call("daemon/diagnose", &json!({"agents": false}));
        let all = found["diagnostics"].as_array().unwrap();
        all.iter().any(|one| one["data"]["databaseFailed"] == true)
    };
    let mut titled = make.clone();
    titled["title"] = json!("t".repeat(TITLE_BYTES));
    disk.fill();
    // A failed write of sled is not reported to the caller. But sled must write after a certain amount of
    // data: each change here has a long title, so after this many changes sled has certainly tried. The space
    // that is freed for each change is used up by its line in the journal.
    let most = made + 2 * COLLECTED_BYTES / TITLE_BYTES;
    while !has_failed(&mut client) {
        assert!(made < most, "the database has not written");
        while let Err(error) = client.ask("conversation/new", &titled).unwrap() {
            assert_store_failed(&error);
            disk.make_little_room();
        }
        made += 1;
    }
    client.call("conversation/get", &json!({"conversationId": first}));
    disk.fill();
    disk.make_room();
    for _ in 0..3 {
        client.new_conversation(&make);
        made += 1;
    }
    let status = client.call("daemon/status", &json!({}));
    assert!(status["store"]["failure"].is_null(), "{status}");
    assert_eq!(status["conversations"], made);
    daemon.kill();

    let (daemon, mut client) = disk.start(&home);
    assert_eq!(client.call("daemon/status", &json!({}))["conversations"], made);
    assert!(!has_failed(&mut client));
    daemon.stop();
    home.assert_nobody_but(&[disk.keeper.id()]);
}

#[test]
fn a_disk_that_cannot_be_written_is_told_at_the_start() {
    let home = Home::new("");
    let Some(disk) = Disk::mount(&home, "ro") else {
        return;
    };
    let mut daemon = disk.spawn(&home);
    assert!(!daemon.wait_ready(), "the daemon started on a read-only disk");
    error_words::check_start("on a read-only disk", daemon.wait().code(), &home.last_words());
    home.assert_nobody_but(&[disk.keeper.id()]);
}

/// A journal line that is only partly written because the space runs out is removed again, wherever it was
/// cut off.
#[test]
fn a_line_that_was_written_in_part_was_not_acknowledged_and_does_no_harm() {
    let home = Home::new("");
    let make = json!({"agent": "loopback", "cwd": home.project()});
    let mut ids = Vec::new();
    for more in [0, 1, 17, 100] {
        let mut daemon = home.start();
        let mut client = Client::connect(&home.socket()).unwrap();
        ids.push(client.new_conversation(&make));
        let length = fs::metadata(home.data().join("journal.jsonl")).unwrap().len();
        limit_files_of(daemon.pid(), Some(length + more));
        for _ in 0..3 {
            assert_store_failed(&client.refused("conversation/new", &make));
        }
        client.call("daemon/status", &json!({}));
        limit_files_of(daemon.pid(), None);
        ids.push(client.new_conversation(&make));
        daemon.kill();
    }
    let daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    let listed = client.call("conversation/list", &json!({}));
    assert_eq!(listed["conversations"].as_array().unwrap().len(), ids.len());
    for id in ids {
        client.call("conversation/get", &json!({"conversationId": id}));
    }
    client.new_conversation(&make);
    daemon.stop();
    home.assert_at_rest();
}

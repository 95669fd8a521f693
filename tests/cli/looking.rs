//! What commands that only look print: short ids, questions, agents, sizes and cut cells.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::finding::shown;
use super::home::Home;
use super::printed::{check_printed, check_seen, commands};
use super::sessionctl;
use super::stub::{ID, Stub};
use super::terminal::{ASKED, Terminal};
use super::text;

/// Two sessions that begin alike, each with a transcript of this many bytes.
fn two_alike(home: &Home, bytes: usize) -> [String; 2] {
    let folder = home.path().join("data/loopback/projects/-x");
    fs::create_dir_all(&folder).unwrap();
    ["5", "6"].map(|end| {
        let id = format!("11111111-2222-4333-8444-55555555555{end}");
        let record = json!({"type": "user", "uuid": "u1", "parentUuid": null, "sessionId": id, "cwd": home.path(),
            "message": {"role": "user", "content": "words"}});
        let line = format!("{record}\n");
        let blank = "\n".repeat(bytes - line.len());
        fs::write(folder.join(format!("{id}.jsonl")), line + &blank).unwrap();
        id
    })
}

#[test]
fn an_id_that_several_begin_with_is_refused_with_those_that_do() {
    let home = Home::new();
    let sessions = two_alike(&home, 2_048);
    let adopted = sessions.map(|id| home.said(&["adopt", &id]));
    home.printed(&["show", "11111111"], 4);
    // One character more than they have in common.
    let told = home.shown("11111111-2222-4333-8444-555555555556");
    assert_eq!(told["id"], adopted[1].as_str());
}

#[test]
fn sizes_are_shown_in_a_unit_that_fits() {
    let home = Home::new();
    for (bytes, size) in [(2_048, "2.00 KiB"), (3 << 20, "3.00 MiB")] {
        two_alike(&home, bytes);
        for line in home.said(&["transcripts"]).lines() {
            assert_eq!(line.split('\t').nth(2), Some(size), "{line}");
        }
    }
    // Also in a refusal.
    let long = home.path().join("long.txt");
    fs::File::create(&long).unwrap().set_len((12 << 20) + 1).unwrap();
    let mut command = home.command(&["send", "--new", "-"]);
    let output = command.stdin(fs::File::open(long).unwrap()).output().unwrap();
    let told = check_printed(&["send", "a long text"], &output, 2);
    assert!(told.contains("12.00 MiB"), "{told}");
}

#[test]
fn an_open_question_is_shown_with_the_command_that_answers_it() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let asked = home.run(&["send", &id, "[[ask May I?]] [[say Done]]"]);
    assert_eq!(asked.status.code(), Some(8), "{asked:?}");
    let told = home.said(&["show", &id]);
    let question = &told[told.find("? ").unwrap()..];
    check_seen("show with an open question", question);
    home.said_pasted(commands(question)[0]);
    let after = home.once(&id, |shown| shown["state"] == "idle");
    assert_eq!(after["interrupts"], json!([]), "{after}");
    assert!(!home.said(&["show", &id]).contains("? "));
}

#[test]
fn an_agent_without_its_program_is_listed_so() {
    let home = Home::new();
    let config = "[agents.mine]\ncommand = \"/no/such/program\"\n";
    home.configure(config);
    let listed = home.said(&["agents"]);
    let line = listed.lines().find(|line| line.starts_with("mine\t")).unwrap();
    check_seen("agents without a program", &line.replace('\t', "|"));
    let listed: Value = serde_json::from_str(&home.said(&["--json", "agents"])).unwrap();
    assert_eq!(
        (&listed["agents"][0]["name"], &listed["agents"][0]["found"]),
        (&json!("mine"), &json!(false)),
        "{listed}"
    );
}

/// The chain ends with the session that the next prompt resumes, also after an undo.
#[test]
fn what_an_undo_left_is_marked() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    home.said(&["edit", &id, "two"]);
    home.said(&["undo", &id]);
    for command in ["chain", "lineage"] {
        let shown = home.shows(&[command, &id]);
        let of = |mark: &str| {
            let lines = shown.lines().filter(|line| line.contains(&format!("\t{mark}\t")));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let (head, undone) = (of("head"), of("undone"));
        assert_eq!(
            head.last().map(String::as_str),
            shown.trim_end().lines().last(),
            "{shown}"
        );
        assert_eq!(undone.len(), 1, "{shown}");
        assert!(undone[0].contains("edited"), "{shown}");
    }
    let tree = home.shows(&["tree", &id]);
    assert_eq!(tree.matches(", undone").count(), 1, "{tree}");
}

/// A history has every prompt, and a session counts those that were answered to the end.
#[test]
fn turns_that_failed_are_in_the_history_and_not_among_those_completed() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let failed = home.run(&["send", &id, "[[fail network]]"]);
    assert_eq!(failed.status.code(), Some(6), "{failed:?}");
    home.said(&["send", &id, "two"]);
    let turns = home.said(&["checkpoints", &id]);
    assert_eq!(turns.lines().count(), 3, "{turns}");
    for command in ["chain", "tree"] {
        let shown = home.said(&[command, &id]);
        assert!(shown.contains("created, 2 turns completed"), "{shown}");
    }
}

/// Characters may be two columns wide.
#[test]
fn a_cell_is_cut_to_the_columns_that_are_left() {
    let home = Home::new();
    home.said(&["new", "--title", &"漢字".repeat(40)]);
    for columns in [60, 61] {
        let lines = shown(&home, columns, &["ls"]);
        let line = &lines[1];
        assert!(line.ends_with("字…") || line.ends_with("漢…"), "{line}");
        let width = line.width();
        let most = usize::from(columns);
        assert!((most - 1..=most).contains(&width), "{columns}: {width}: {line}");
    }
}

#[test]
fn a_question_is_answered_for_always_where_the_agent_offers_that() {
    let stub = Stub::start();
    let mut command = sessionctl(&stub.home(), &["send", ID, "ask for long"]);
    let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1"));
    let asked = terminal.until(ASKED);
    let means = asked
        .lines()
        .find(|line| line.trim_start().starts_with("a  always"));
    check_seen("the key that allows for always", means.unwrap());
    terminal.type_in("a");
    terminal.exits(0);
    let answered = stub.calls_of("conversation/respond");
    assert_eq!(answered[0]["outcome"]["optionId"], "for-long", "{answered:?}");

    // The same by a command, while another one waits.
    let waiting = ["send", ID, "ask for long", "--on-question", "wait"];
    let mut waiting = sessionctl(&stub.home(), &waiting);
    let waiting = waiting.stderr(Stdio::piped()).spawn().unwrap();
    stub.wait_for_calls("conversation/prompt", 2);
    let output = super::run(&stub.home(), &["answer", ID, "always"]);
    super::check(&output, 0, "");
    let waiting = waiting.wait_with_output().unwrap();
    assert_eq!(waiting.status.code(), Some(0));
    let told = String::from_utf8(waiting.stderr).unwrap();
    assert!(told.contains("  always means: Allow this tool\n"), "{told}");
    let answered = stub.calls_of("conversation/respond");
    assert_eq!(answered[1]["outcome"]["optionId"], "for-long", "{answered:?}");
}

#[test]
fn cancel_ends_the_running_turn() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut sent = home.command(&["send", &id, "[[say Begun]] [[hang]]"]);
    let mut sent = sent.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut begun = [0; 5];
    sent.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"Begun");
    home.printed(&["cancel", &id], 0);
    assert_eq!(sent.wait().unwrap().code(), Some(1));
    assert_eq!(home.shown(&id)["state"], "idle");
    // Nothing runs any more.
    home.printed(&["cancel", &id], 0);
}

#[test]
fn status_is_of_the_running_daemon() {
    let home = Home::new();
    home.said(&["start"]);
    let shown = home.shows(&["status"]);
    let status: Value = serde_json::from_str(&home.said(&["--json", "status"])).unwrap();
    assert!(shown.contains(&status["pid"].to_string()), "{shown}");
}

/// What `show` names can be done: a turn with an open question is continued by the answer, and a copy has no turn to continue.
#[test]
fn continue_is_named_only_where_it_works() {
    let home = Home::new();
    let id = home.said(&["new"]);
    assert_eq!(home.run(&["send", &id, "[[ask May I?]]"]).status.code(), Some(8));
    home.kill_daemon();
    let told = home.run(&["show", &id]);
    assert!(!text(&told.stderr).contains("sessionctl continue"), "{told:?}");
    assert!(text(&told.stdout).contains("sessionctl answer"), "{told:?}");
    // The edit discards the question.
    let edited = home.run(&["edit", &id, "--at", "1", "Hello"]);
    assert_eq!(edited.status.code(), Some(0), "{edited:?}");
    assert!(!text(&edited.stderr).contains("sessionctl answer"), "{edited:?}");

    let limited = home.said(&["new"]);
    assert_eq!(
        home.run(&["send", &limited, "[[limit 3600]]"]).status.code(),
        Some(7)
    );
    let told = home.run(&["show", &limited]);
    assert!(text(&told.stderr).contains("--at-reset"), "{told:?}");
    let file = home.said(&["export", &limited]);
    let copy = home.said(&["import", &file, "--new-ids", "--same-folders"]);
    let told = home.run(&["show", &copy]);
    assert!(!text(&told.stderr).contains("--at-reset"), "{told:?}");
}

/// Without a turn there is no transcript yet, and nothing is missing.
#[test]
fn a_check_before_the_first_turn_names_the_first_prompt() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["resume", &id]);
    let told = home.printed(&["check", &id], 4);
    assert!(told.contains("no turns yet"), "{told}");
    home.said_pasted(commands(&told)[0]);
}

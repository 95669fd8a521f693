//! Finding a conversation: lists, the picker, names, and what is shown of one, as a person sees it.

use rustix::process::Signal;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::home::Home;
use super::printed::check_seen;
use super::terminal::{Terminal, in_shell};
use super::text;

pub(super) const ESCAPE: &str = "\x1b";
pub(super) const ENTER: &str = "\r";
pub(super) const DOWN: &str = "\x1b[B";
const CTRL_C: &str = "\x03";
pub(super) const CTRL_F: &str = "\x06";
pub(super) const CTRL_N: &str = "\x0e";
const CTRL_R: &str = "\x12";
pub(super) const CTRL_U: &str = "\x15";
pub(super) const CTRL_X: &str = "\x18";

/// Shown at the end of each screen of the picker, after which it waits for a key.
const KEYS: &str = "Esc leaves";

/// The command is shown at a terminal of this size without colours.
#[track_caller]
pub(super) fn shown(home: &Home, columns: u16, arguments: &[&str]) -> Vec<String> {
    let shown = Terminal::run_plain(home, columns, arguments).exits(0);
    lines(&shown)
}

fn lines(shown: &str) -> Vec<String> {
    shown.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// The lines of the last screen in the output of the picker, without what steers the terminal.
pub(super) fn screen(shown: &str) -> Vec<String> {
    let last = shown.rsplit("\x1b[1;1H").next().unwrap();
    let mut text = String::new();
    let mut parts = last.split("\x1b[");
    text.push_str(parts.next().unwrap());
    for part in parts {
        let end = part.find(|letter: char| letter.is_ascii_alphabetic()).unwrap();
        text.push_str(&part[end + 1..]);
    }
    lines(&text)
}

/// Reads on until the picker's next screen has these words, and gives that screen.
#[track_caller]
pub(super) fn until(terminal: &mut Terminal, words: &str) -> Vec<String> {
    loop {
        let shown = terminal.until("\x1b[J");
        if shown.contains(words) {
            return screen(&shown);
        }
    }
}

#[track_caller]
fn json(home: &Home, arguments: &[&str]) -> Value {
    serde_json::from_str(&home.said(&[&["--json"], arguments].concat())).unwrap()
}

pub(super) fn titles(home: &Home) -> Vec<String> {
    let listed = json(home, &["ls"]);
    let listed = listed["conversations"].as_array().unwrap().iter();
    listed
        .map(|one| one["title"].as_str().unwrap().to_owned())
        .collect()
}

/// A home with three conversations, the first of another folder, and their ids.
fn home() -> (Home, [String; 3]) {
    let home = Home::new();
    let other = home.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    let elsewhere = home.said(&["new", "--title", "Fix the build", "--cwd", other]);
    let first = home.said(&["new", "--title", "Deploy the site"]);
    let last = home.said(&["new", "--title", "Write a poem"]);
    (home, [elsewhere, first, last])
}

/// The title is cut, never an id.
#[test]
fn a_narrow_list_keeps_its_ids_whole() {
    let (home, ids) = home();
    let lines = shown(&home, 48, &["ls"]);
    assert_eq!(lines.len(), 1 + ids.len(), "{lines:?}");
    for line in &lines[1..] {
        assert!(line.chars().count() <= 48, "{line}");
        assert!(ids.iter().any(|id| line.starts_with(&id[..8])), "{line}");
    }
}

#[test]
fn a_list_can_be_narrowed() {
    let (home, [elsewhere, first, last]) = home();
    home.run(&["send", &first, "[[fail auth]]"]);
    let folder = home.path().join("other");
    let ids = |arguments: &[&str]| -> Vec<String> {
        let listed = home.said(&[&["ls"], arguments].concat());
        listed
            .lines()
            .map(|line| line.split('\t').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&["the", "build"]), [elsewhere.as_str()]);
    // Each word anywhere; programs find what people find.
    for (words, found) in [
        (&["BUILD", "fix", "other"][..], vec![elsewhere.as_str()]),
        (&["write", "loopback", &last[..4]], vec![&last]),
        (&["write", "build"], vec![]),
    ] {
        assert_eq!(ids(words), found, "{words:?}");
        let listed = json(&home, &[&["ls"], words].concat());
        let listed = listed["conversations"].as_array().unwrap().iter();
        let listed: Vec<&str> = listed.map(|one| one["id"].as_str().unwrap()).collect();
        assert_eq!(listed, found, "{words:?}");
    }
    assert_eq!(ids(&["--cwd", folder.to_str().unwrap()]), [elsewhere.as_str()]);
    assert_eq!(ids(&["--cwd", "."]).len(), 2);
    assert_eq!(ids(&["--agent", "loopback", "--all"]).len(), 3);
    assert_eq!(ids(&["--state", "idle", "poem"]), [last.as_str()]);
    assert_eq!(ids(&["the", "-n", "1"]).len(), 1);
    home.printed(&["ls", "-n", "2"], 0);
    // What is not there says so, with a command that helps.
    home.printed(&["ls", "nothing like it"], 0);
    home.printed(&["ls", "--agent", "zork"], 4);
    home.printed(&["ls", "--state", "idel"], 2);
    for list in ["ls", "transcripts"] {
        home.printed(&[list, "--cwd", "./nowhere"], 4);
    }
    home.printed(&["transcripts", "nothing like it"], 0);
    for id in [&first, &last, &elsewhere] {
        home.said(&["rm", id]);
    }
    home.printed(&["ls"], 0);
}

#[test]
fn a_conversation_is_found_by_its_title_and_by_this_folder() {
    let (home, [elsewhere, first, last]) = home();
    let show = |word: &str| {
        let output = home.run(&["show", word]);
        assert_eq!(output.status.code(), Some(0), "{word}: {output:?}");
        (text(&output.stdout), text(&output.stderr))
    };
    // `.` is the conversation of this folder that was used last.
    for (word, id, name) in [
        (".", &last, "Write a poem"),
        ("deploy", &first, "Deploy the site"),
        (".", &first, "Deploy the site"),
        ("BUILD", &elsewhere, "Fix the build"),
        (".", &first, "Deploy the site"),
    ] {
        let (shown, told) = show(word);
        assert!(shown.contains(id), "{shown}");
        assert_eq!(told, format!("→ {} {name}\n", &id[..8]));
    }
    // An id says itself which it is.
    assert_eq!(show(&first[..6]).1, "");
    assert_eq!(text(&home.run(&["--json", "show", "deploy"]).stderr), "");

    let told = home.printed(&["show", "e"], 4);
    assert!(told.contains(&first), "{told}");
    // A line each, with what tells them apart.
    let (seen, code) = Terminal::run_plain(&home, 120, &["show", "e"]).seen();
    assert_eq!(code, Some(4), "{seen}");
    for (id, title) in [
        (&elsewhere, "Fix the build"),
        (&first, "Deploy the site"),
        (&last, "Write a poem"),
    ] {
        let line = seen.lines().find(|line| line.contains(&id[..8])).unwrap();
        let folder = home.shown(id)["cwd"].as_str().unwrap().to_owned();
        assert!(
            line.contains(&folder) && line.ends_with(title) && !line.contains(id.as_str()),
            "{seen}"
        );
    }
    let told = home.run(&["--json", "show", "the"]);
    let error: Value = serde_json::from_str(&text(&told.stderr)).unwrap();
    assert_eq!(
        error["error"]["data"]["candidates"].as_array().unwrap().len(),
        2,
        "{error}"
    );
    home.printed(&["show", "no such title"], 4);
    // A deleted one says when, on this machine's clock.
    home.said(&["rm", &last]);
    home.printed(&["show", &last], 4);
    // Without a terminal nobody can pick one.
    for command in [
        "show",
        "chain",
        "lineage",
        "history",
        "checkpoints",
        "tree",
        "check",
    ] {
        home.printed(&[command], 2);
    }
}

/// A fork's title differs from its parent's wherever it is shown, and a fork without a title is marked as one.
#[test]
fn a_branch_is_marked_in_lists() {
    let (home, [_, first, _]) = home();
    home.said(&["send", &first, "one"]);
    let titled = home.said(&["fork", &first]);
    let again = home.said(&["fork", &titled]);
    let title = |id: &str| json(&home, &["show", id])["conversation"]["title"].clone();
    assert_eq!(title(&titled), "Deploy the site (fork)");
    assert_eq!(title(&again), "Deploy the site (fork 2)");
    home.printed(&["show", "deploy"], 4);
    let untitled = home.said(&["new"]);
    let branch = home.said(&["fork", &untitled]);
    let lines = shown(&home, 200, &["ls"]);
    let shown = |id: &String| {
        let line = lines.iter().find(|line| line.starts_with(&id[..8])).unwrap();
        line.rsplit("  ").next().unwrap()
    };
    check_seen(
        "ls, titles of a branch, of no title, of a titled branch",
        &[&branch, &untitled, &titled].map(shown).join("\n"),
    );
    // A program gets titles only.
    let piped = text(&home.run(&["ls"]).stdout);
    let titles = [&branch, &untitled, &titled].map(|id| {
        let line = piped.lines().find(|line| line.starts_with(id.as_str())).unwrap();
        line.split('\t').nth(5).unwrap()
    });
    assert_eq!(titles, ["", "", "Deploy the site (fork)"], "{piped}");
}

/// What is printed of an id is enough for every command.
#[test]
fn printed_ids_are_accepted() {
    let (home, [_, id, _]) = home();
    home.said(&["send", &id, "one"]);
    let session = shown(&home, 80, &["chain", &id])[1]
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let transcript = shown(&home, 80, &["transcripts"])[1]
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let listed = shown(&home, 80, &["ls"]);
    let short = listed.iter().find(|line| line.contains("Deploy")).unwrap()[..8].to_owned();
    // Less than what is printed may be too little.
    for word in [&session[..5], &short[..5]] {
        assert_eq!(home.run(&["show", word]).status.code(), Some(4), "{word}");
    }
    for word in [&session, &transcript, &short] {
        for command in [
            "show",
            "history",
            "checkpoints",
            "tree",
            "lineage",
            "check",
            "resume",
        ] {
            home.said(&[command, word]);
        }
    }
    let checkpoints = home.said(&["checkpoints", &id]);
    let columns: Vec<&str> = checkpoints.split('\t').collect();
    assert_eq!((columns[0], columns[3]), ("1", "one"));
    home.said(&["fork", &id, "--at", columns[2]]);
    home.said(&["fork", &id, "--at", columns[0]]);
}

#[test]
fn the_picker_filters_and_shows_the_last_turns() {
    let (home, [elsewhere, first, last]) = home();
    home.said(&["send", &first, "the red bicycle"]);
    home.said(&["send", &last, "a haiku"]);
    home.said(&["send", &elsewhere, "make it green"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    let screen = until(&mut terminal, "echo: a haiku");
    assert_eq!(screen[0], ">");
    let rows: Vec<&str> = screen[2..5].iter().map(|row| &row[..row.len().min(12)]).collect();
    let row = |pointer: &str, id: &str| format!("{pointer} {}  ", &id[..8]);
    assert_eq!(screen[1].split_whitespace().next(), Some("ID"));
    assert!(
        screen[2].starts_with("❯ ") && screen[2].contains("a poem"),
        "{rows:?}"
    );
    assert!(
        screen[3].starts_with(&row(" ", &first)) && screen[4].starts_with(&row(" ", &elsewhere)),
        "{rows:?}"
    );
    check_seen("the picker, its keys", screen.last().unwrap());
    // The arrow selects the next one, and its last turn is shown.
    terminal.type_in(DOWN);
    until(&mut terminal, "echo: the red bicycle");
    // A folder, and the last prompt, are found too.
    for (typed, id) in [
        ("other", &elsewhere),
        ("bicycle", &first),
        ("haiku", &last),
        ("deploy", &first),
    ] {
        terminal.type_in(CTRL_U);
        until(&mut terminal, "3 of 3");
        terminal.type_in(typed);
        let screen = until(&mut terminal, &format!("> {typed}"));
        assert!(
            screen[2].starts_with(&format!("❯ {}", &id[..8])),
            "{typed}: {screen:?}"
        );
    }
    terminal.type_in(ENTER);
    let rest = terminal.exits(0);
    // The screen is restored before the answer.
    let (_, answer) = rest.split_once("\x1b[?1049l").unwrap();
    assert!(answer.contains(&first), "{answer:?}");
}

/// The first shell leads the session. In the second the signal is ignored, as it is after `nohup`.
#[test]
fn nothing_outlives_its_terminal() {
    let (home, ids) = home();
    for script in ["\"$0\" \"$@\"; true", "trap '' HUP; exec \"$0\" \"$@\""] {
        for (arguments, shown) in [
            (&["show"][..], KEYS),
            (&["chat", &ids[0]], "Ctrl-D leaves"),
            (&["attach", &ids[0]], &ids[0][..8]),
            (&["send", &ids[0], "[[ask May I?]]"], "? helps"),
        ] {
            let mut terminal = Terminal::of(80, &in_shell(script, &home.command(arguments)));
            terminal.until(shown);
            terminal.close_window();
        }
        home.said(&["cancel", &ids[0]]);
    }
}

#[test]
fn leaving_the_picker_does_nothing() {
    let (home, ids) = home();
    let cancelled = "error: cancelled: no conversation was picked\r\n";
    for (typed, expected, said) in [(ESCAPE, 1, cancelled), (CTRL_C, 130, "")] {
        let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
        until(&mut terminal, KEYS);
        terminal.type_in(typed);
        let (rest, code) = terminal.ended();
        assert_eq!(code, Some(expected), "{rest:?}");
        assert!(rest.ends_with(&format!("\x1b[?1049l{said}")), "{rest:?}");
    }
    // A signal leaves the terminal as it was, too.
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    until(&mut terminal, KEYS);
    terminal.signal(Signal::TERM);
    let (rest, code) = terminal.ended();
    assert_eq!(
        (code, rest.ends_with("\x1b[?1049l")),
        (Some(143), true),
        "{rest:?}"
    );
    // No names match, and Enter picks nothing.
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    until(&mut terminal, KEYS);
    terminal.type_in("qqqqqq");
    let screen = until(&mut terminal, "no match for qqqqqq").join("\n");
    check_seen("the picker without a match", &screen);
    terminal.type_in(ENTER);
    terminal.type_in(ESCAPE);
    terminal.exits(1);
    assert_eq!(titles(&home).len(), ids.len());
}

#[test]
fn the_picker_forks_renames_and_deletes_after_a_question() {
    let (home, [_, first, last]) = home();
    home.said(&["send", &first, "one"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    until(&mut terminal, "3 of 3");
    terminal.type_in("deploy");
    until(&mut terminal, "> deploy");
    terminal.type_in(CTRL_R);
    until(&mut terminal, "New title: Deploy the site");
    // Esc keeps the title.
    terminal.type_in(ESCAPE);
    until(&mut terminal, "> deploy");
    terminal.type_in(CTRL_R);
    until(&mut terminal, "New title: ");
    terminal.type_in(&format!("{CTRL_U}Deploy it{ENTER}"));
    until(&mut terminal, "Renamed to");
    assert!(titles(&home).contains(&"Deploy it".to_owned()));

    terminal.type_in(CTRL_F);
    let screen = until(&mut terminal, "Forked as ");
    assert!(
        screen[2].starts_with("❯ ") && screen[2].ends_with("Deploy it (fork)"),
        "{screen:?}"
    );
    assert_eq!(titles(&home).len(), 4);

    terminal.type_in(&format!("{CTRL_U}poem"));
    until(&mut terminal, "> poem");
    terminal.type_in(CTRL_X);
    let question = until(&mut terminal, "Delete ");
    check_seen("the picker, deleting", &question[0]);
    assert!(question[0].contains(&last[..8]), "{question:?}");
    // Anything but y keeps it.
    terminal.type_in(ENTER);
    until(&mut terminal, "> poem");
    assert_eq!(titles(&home).len(), 4);
    terminal.type_in(CTRL_X);
    until(&mut terminal, "Delete ");
    terminal.type_in("y");
    until(&mut terminal, "Deleted ");
    assert!(!titles(&home).contains(&"Write a poem".to_owned()));
    terminal.type_in(ESCAPE);
    let rest = terminal.exits(1);
    let (_, after) = rest.split_once("\x1b[?1049l").unwrap();
    check_seen("the picker, afterwards", &after.replace('\r', ""));
}

#[test]
fn without_a_command_the_user_picks_or_starts_a_conversation() {
    let home = Home::new();
    let output = home.run(&[]);
    super::check(&output, 2, "");
    assert_eq!(text(&output.stderr).trim_end(), home.said(&["-h"]));
    assert_eq!(home.run(&["--json"]).status.code(), Some(2));

    // The first one is started at once. One without a prompt is not left behind.
    for (typed, prompt, count) in [
        ("", "", 0),
        ("", "one", 1),
        (ENTER, "", 1),
        (CTRL_N, "", 1),
        (CTRL_N, "two", 2),
    ] {
        let mut terminal = Terminal::run_plain(&home, 80, &[]);
        if !typed.is_empty() {
            until(&mut terminal, "1 of 1 · Enter opens · ");
            terminal.type_in(typed);
        }
        terminal.until("loopback in ");
        let mut terminal = terminal.waiting();
        if !prompt.is_empty() {
            terminal.says(prompt, &format!("echo: {prompt}"));
        }
        terminal.leave();
        assert_eq!(titles(&home).len(), count, "{typed:?} {prompt:?}");
    }
}

/// A home in whose folder Claude Code was used, but where Claude Code is not installed.
fn home_with_transcripts_only() -> Home {
    let home = Home::new();
    let claude = home.path().join("claude");
    home.configure(&format!(
        "default_agent = \"loopback\"\n[agents.claude]\ncommand = \"/nonexistent/adapter\"\ntranscripts = {:?}\n",
        claude.to_str().unwrap()
    ));
    let cwd = home.path().canonicalize().unwrap();
    let line = format!(
        "{{\"type\":\"user\",\"uuid\":\"u1\",\"parentUuid\":null,\"sessionId\":\"s\",\"cwd\":{:?},\
         \"message\":{{\"role\":\"user\",\"content\":\"long ago\"}}}}\n",
        cwd.to_str().unwrap()
    );
    let folder = cwd.to_str().unwrap().replace(['/', '.'], "-");
    let projects = claude.join("projects").join(folder);
    std::fs::create_dir_all(&projects).unwrap();
    std::fs::write(projects.join("11111111-2222-4333-8444-555555555555.jsonl"), line).unwrap();
    home
}

/// Transcripts of an agent whose program is missing: one command to paste.
#[test]
fn a_folder_with_transcripts_and_no_agent_says_what_to_install() {
    let home = home_with_transcripts_only();
    let shown = Terminal::run_plain(&home, 80, &[]).exits(6);
    check_seen(
        "no agent for the transcripts of the folder",
        &shown.replace("\r\n", "\n"),
    );
    let hint = shown.lines().find(|line| line.starts_with("hint: ")).unwrap();
    // `doctor` knows the same line.
    let (_, install) = hint.split_once(": ").unwrap();
    let doctor = text(&home.run(&["doctor", "--no-agents"]).stdout);
    assert!(doctor.contains(install.trim_end()), "{doctor}");
    let adopted = text(&home.run(&["adopt", "111111"]).stdout);
    let refused = home.run(&["send", adopted.trim(), "hi"]);
    assert_eq!(refused.status.code(), Some(6));
    let install = install.trim_end().split(" && ").next().unwrap();
    assert!(
        text(&refused.stderr).contains(install),
        "{}",
        text(&refused.stderr)
    );
    // A conversation can be picked and read all the same.
    let mut terminal = Terminal::run_plain(&home, 80, &[]);
    until(&mut terminal, "1 of 1");
    terminal.type_in(ESCAPE);
    terminal.exits(0);
}

/// Also if there are conversations in other folders, which the picker shows.
#[test]
fn the_picker_says_which_agent_the_folder_lacks() {
    let home = home_with_transcripts_only();
    let elsewhere = home.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    home.said(&["new", "--agent", "loopback", "--cwd", elsewhere.to_str().unwrap()]);
    let mut terminal = Terminal::run_plain(&home, 200, &[]);
    until(&mut terminal, "whose program is not installed");
    terminal.type_in(ESCAPE);
    let shown = terminal.exits(0);
    assert!(shown.contains("install it with: npm"), "{shown}");
}

#[test]
fn what_is_shown_of_a_conversation_fits_the_terminal() {
    let (home, [_, id, _]) = home();
    home.said(&["send", &id, "[[tool read {\"path\":\"a.rs\"}]] [[say Done.]]"]);
    let title = "A title of many words ".repeat(10);
    home.said(&["new", "--title", &title]);
    for columns in [80, 200] {
        let lines = shown(&home, columns, &["show", &id]);
        let names: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(
            names,
            [
                "id", "title", "state", "agent", "folder", "model", "mode", "session", "changed", "created"
            ]
        );
        let named = shown(&home, columns, &["chain", &title[..20]]);
        assert!(
            named[0].starts_with("→ ") && named[0].width() <= columns.into(),
            "{named:?}"
        );
        let tree = shown(&home, columns, &["tree", &id]);
        check_seen(&format!("tree at {columns} columns"), &tree.join("\n"));
        for list in [
            &["chain", &id][..],
            &["lineage", &id],
            &["checkpoints", &id],
            &["agents"],
        ] {
            for line in shown(&home, columns, list) {
                assert!(line.chars().count() <= columns.into(), "{line}");
            }
        }
    }
}

/// However narrow it is: whole facts are left out, and titles and prompts are shortened.
#[test]
fn a_narrow_tree_keeps_ids_states_and_turns_whole() {
    let home = Home::new();
    let id = home.said(&[
        "new",
        "--title",
        "Deploy the billing service to staging and check the alerts",
    ]);
    home.said(&["send", &id, "one"]);
    home.said(&["send", &id, "[[forget]] two"]);
    home.said(&["send", &id, "three"]);
    home.said(&["edit", &id, "another three"]);
    home.said(&["undo", &id]);
    let fork = home.said(&["fork", &id, "--at", "2"]);
    home.said(&["send", &fork, &"of many words ".repeat(5)]);
    for columns in [80, 60] {
        let tree = shown(&home, columns, &["tree", &fork]);
        check_seen(&format!("tree with forks at {columns} columns"), &tree.join("\n"));
        assert!(
            tree.iter().all(|line| line.width() <= columns.into()),
            "{tree:#?}"
        );
        let line = |id: &str| {
            let of_it = |line: &&String| line.contains(&format!(" {} ", &id[..8]));
            tree.iter()
                .find(of_it)
                .unwrap_or_else(|| panic!("{id}: {tree:#?}"))
        };
        let fork = line(&fork);
        assert!(fork.ends_with("idle, forked after turn 2)  ← this"), "{fork}");
        let json = json(&home, &["tree", &id]);
        for entry in json["conversations"][0]["entries"].as_array().unwrap() {
            let line = line(entry["upstreamId"].as_str().unwrap());
            let reason = entry["reason"].as_str().unwrap();
            assert!(
                reason == "undone" || line.contains(&format!(" {reason}")),
                "{line}"
            );
            assert!(!line.contains('…'), "{line}");
        }
    }
}

/// Where a branch began is seen in its parent, and of the branch.
#[test]
fn a_branch_names_its_parent_and_the_turn() {
    let (home, [_, id, _]) = home();
    for prompt in 1..=7 {
        home.said(&[
            "send",
            &id,
            &format!("prompt {prompt} {}", "of many words ".repeat(5)),
        ]);
    }
    let branch = home.said(&["fork", &id, "--at", "1"]);
    let seen = |what: &str| {
        let shown = home.said(&["show", &branch]);
        let parent = shown.lines().find(|line| line.starts_with("parent ")).unwrap();
        check_seen(what, parent);
    };
    seen("show, the parent of a branch");
    let parent = json(&home, &["show", &branch])["conversation"]["parent"].clone();
    assert_eq!(parent["conversationId"], id.as_str(), "{parent}");
    let tree = shown(&home, 80, &["tree", &branch]);
    for line in &tree {
        assert!(line.chars().count() <= 80, "{tree:?}");
    }
    assert!(
        tree.iter().any(|line| line.contains("turn 1 \"prompt 1")),
        "{tree:?}"
    );
    home.said(&["rm", &id]);
    seen("show, a deleted parent");
}

#[test]
fn the_picker_filters_and_can_be_left_while_the_daemon_does_not_answer() {
    let (home, _) = home();
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    until(&mut terminal, "3 of 3");
    let _frozen = home.freeze_daemon();
    terminal.type_in("poem");
    until(&mut terminal, "> poem");
    terminal.type_in(ESCAPE);
    terminal.exits(1);
}

/// The agent gives the title at the end of the turn.
#[test]
fn a_conversation_whose_first_turn_runs_is_listed_with_its_prompt() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let sent = home.run(&["send", &id, "Really delete it? [[ask Really?]]"]);
    assert_eq!(sent.status.code(), Some(8), "{sent:?}");
    let lines = shown(&home, 120, &["ls"]);
    let line = lines.iter().find(|line| line.starts_with(&id[..8])).unwrap();
    assert!(line.contains("Really delete it?"), "{lines:?}");
    assert_eq!(home.shown(&id)["title"], "");
    home.said(&["cancel", &id]);
}

#[test]
fn a_whole_title_names_its_conversation_though_other_titles_contain_it() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "First steps"]);
    home.said(&["new", "--title", "First steps (fork)"]);
    let shown: Value = serde_json::from_str(&home.said(&["show", "First steps", "--json"])).unwrap();
    assert_eq!(shown["conversation"]["id"], id);
    home.printed(&["show", "First step"], 4);
}

#[test]
fn a_title_is_one_line_without_control_characters() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "a\nb\u{1b}[2J\u{202e}c"]);
    assert_eq!(home.shown(&id)["title"], "a b[2Jc");
    home.said(&["set", &id, "title=x\ty\u{7}"]);
    assert_eq!(home.shown(&id)["title"], "x y");
}

#[test]
fn the_word_that_means_this_folder_lists_its_conversations() {
    let home = Home::new();
    let other = home.path().join("other");
    std::fs::create_dir(&other).unwrap();
    home.said(&["new", "--title", "Here"]);
    home.said(&["new", "--title", "There", "--cwd", other.to_str().unwrap()]);
    for arguments in [&["ls", "."][..], &["ls", "here", "."]] {
        let listed = home.said(arguments);
        assert!(listed.contains("Here") && !listed.contains("There"), "{listed}");
    }
}

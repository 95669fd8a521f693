//! What `ls` prints for each conversation, and its colours.

use std::fs;
use std::process::Child;

use serde_json::json;

use super::continuing::begin;
use super::finding::shown;
use super::home::Home;
use super::printed::{check_printed, check_seen, commands};
use super::terminal::Terminal;
use super::text;

/// A conversation at a usage limit with a scheduled continuation, one with a running turn and a queued prompt, and the commands
/// that wait for those two.
fn waiting() -> (Home, [String; 2], [Child; 2]) {
    let home = Home::new();
    let limited = home.said(&["new", "--title", "Limited"]);
    assert_eq!(
        home.run(&["send", &limited, "[[limit 86400]]"]).status.code(),
        Some(7)
    );
    home.said(&["continue", &limited, "--at-reset"]);
    let busy = home.said(&["new", "--title", "Busy"]);
    let first = begin(&home, &["send", &busy, "[[say so]][[hang]]"]);
    home.once_agent_spoke(&busy);
    let second = begin(&home, &["send", &busy, "--queue", "it waited"]);
    home.once(&busy, |shown| {
        shown["queue"].as_array().is_some_and(|queue| queue.len() == 1)
    });
    (home, [limited, busy], [first, second])
}

#[test]
fn a_list_says_what_is_waited_for_and_since_when() {
    let (home, [limited, busy], commands) = waiting();
    let lines = shown(&home, 200, &["ls"]);
    let line = |id: &str| lines.iter().find(|line| line.starts_with(&id[..8])).unwrap();
    let end = lines[0].find("UPDATED").unwrap() + "UPDATED".len();
    for id in [&limited, &busy] {
        // How long ago, below the end of its header.
        let (left, right) = line(id).split_at(end);
        let is_age = left.ends_with(" s") || left.ends_with(" min");
        assert!(is_age && right.starts_with("  "), "{lines:?}");
    }
    let state = |id: &String| line(id)[end..].split("  ").find(|part| !part.is_empty()).unwrap();
    check_seen("ls, what is waited for", &[&limited, &busy].map(state).join("\n"));
    let names = |id: &str| -> Vec<String> {
        let lines = shown(&home, 80, &["show", id]);
        let names = lines.iter().filter_map(|line| line.split_whitespace().next());
        names.map(str::to_owned).collect()
    };
    for (id, expected) in [(&limited, &["limit", "continues"][..]), (&busy, &["queued"])] {
        let names = names(id);
        assert!(
            expected.iter().all(|name| names.contains(&(*name).to_owned())),
            "{names:?}"
        );
    }

    let (coloured, _) = Terminal::run(&home, 200, &["ls"]).ended();
    let line = |title: &str| coloured.lines().find(|line| line.contains(title)).unwrap();
    assert!(line("Busy").contains("\x1b[32mprompting"), "{coloured:?}");
    home.said(&["cancel", &busy, "--queued"]);
    for mut command in commands {
        command.wait().unwrap();
    }
}

#[test]
fn forks_with_the_same_title_are_told_apart() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Deploy the site"]);
    home.said(&["send", &id, "one"]);
    let forks = [(); 2].map(|()| home.said(&["fork", &id]));
    let mut command = home.command(&["ls"]);
    command.env("TZ", "UTC").env("NO_COLOR", "1");
    let seen = Terminal::of(200, &command).exits(0);
    let line = |id: &str| seen.lines().find(|line| line.starts_with(&id[..8])).unwrap();
    assert!(line(&id).ends_with("  Deploy the site"), "{seen}");
    for fork in &forks {
        let made = home.shown(fork)["createdAt"].clone();
        let (_, title) = line(fork).split_once("Deploy the site (fork), forked ").unwrap();
        assert!(title.contains(&made.as_str().unwrap()[11..16]), "{made}: {seen}");
    }
    // Programs get the titles as they are.
    assert_eq!(
        home.said(&["ls"]).matches("\tDeploy the site (fork)\n").count(),
        2
    );
    home.said(&["rm", &forks[0]]);
    let seen = shown(&home, 200, &["ls"]).join("\n");
    assert!(seen.contains("  Deploy the site (fork)\n"), "{seen}");
}

#[test]
fn folder_moves_are_a_table_on_a_terminal() {
    let home = Home::new();
    let [old, new] = ["old", "new"].map(|name| home.path().join(name));
    fs::create_dir(&old).unwrap();
    let id = home.said(&["new", "--cwd", old.to_str().unwrap()]);
    home.said(&["send", &id, "one"]);
    home.said(&["close", &id]);
    fs::rename(&old, &new).unwrap();
    home.said(&["mv", old.to_str().unwrap(), new.to_str().unwrap()]);
    let columns = |line: &str| -> Vec<String> {
        let parts = line.split("  ").map(str::trim).filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let piped = home.said(&["mv", "--list"]);
    let piped: Vec<&str> = piped.split('\t').collect();
    let lines = shown(&home, 200, &["mv", "--list"]);
    assert_eq!(
        columns(&lines[0]),
        [
            "UNDO ID",
            "MOVED",
            "UNDO UNTIL",
            "CONVERSATIONS",
            "FILES",
            "FROM",
            "TO"
        ]
    );
    assert_eq!(columns(&lines[1]), piped);
    let lines = shown(&home, 80, &["mv", "--list"]);
    assert_eq!(columns(&lines[0]), ["UNDO ID", "FROM", "TO"]);
    assert!(
        lines[1].starts_with(piped[0]) && lines[1].ends_with("/new"),
        "{lines:?}"
    );
    assert!(lines[1].chars().count() <= 80, "{lines:?}");
}

/// Beginnings of ids are as long as it takes to tell them apart.
#[test]
fn ids_that_begin_alike_are_shown_apart() {
    let home = Home::new();
    let folder = home.path().join("data/loopback/projects/-x");
    fs::create_dir_all(&folder).unwrap();
    for (end, words) in [("5", "long ago"), ("6", "lately")] {
        let id = format!("11111111-2222-4333-8444-55555555555{end}");
        let line = json!({"type": "user", "uuid": "u1", "parentUuid": null, "sessionId": id, "cwd": home.path(),
            "message": {"role": "user", "content": words}});
        fs::write(folder.join(format!("{id}.jsonl")), format!("{line}\n")).unwrap();
    }
    for line in &shown(&home, 200, &["transcripts"])[1..] {
        let id = line.split(' ').next().unwrap();
        let adopted = home.said(&["adopt", id]);
        let title = home.shown(&adopted)["title"].clone();
        assert!(line.ends_with(title.as_str().unwrap()), "{line}: {title}");
    }
}

#[test]
fn colours_are_shown_where_they_are_wanted() {
    let home = Home::new();
    home.said(&["new"]);
    for (arguments, no_color, expected) in [
        (&["ls"][..], false, true),
        (&["ls"], true, false),
        (&["--color", "never", "ls"], false, false),
        (&["ls", "--color", "always"], true, true),
    ] {
        let mut command = home.command(arguments);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let (shown, _) = Terminal::of(80, &command).ended();
        assert_eq!(
            shown.contains("\x1b["),
            expected,
            "{arguments:?} {no_color}: {shown:?}"
        );
    }
    // A list in a pipe has tabs and nothing else, and what is for people has colours if they are asked for.
    for (arguments, expected) in [
        (&["show", "."][..], false),
        (&["show", ".", "--color", "always"], true),
        (&["--color", "always", "show", "."], true),
        (&["ls", "--color", "always"], false),
    ] {
        let printed = text(&home.run(arguments).stdout);
        assert_eq!(printed.contains("\x1b["), expected, "{arguments:?}: {printed:?}");
    }
}

/// Options of all commands stand before or after the command.
#[test]
fn options_of_all_commands_stand_before_or_after_the_command() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let socket = home.path().join("run/sessiond.sock");
    let (socket, folder) = (socket.to_str().unwrap(), home.path().to_str().unwrap());
    let config = home.path().join("config/config.toml");
    for option in [
        &["--json"][..],
        &["--socket", socket],
        &["--home", folder],
        &["--config", config.to_str().unwrap()],
        &["--color", "never"],
        &["--yes"],
        &["-y"],
        &["-q"],
        &["-v"],
        &["--no-start"],
    ] {
        for call in [
            [option, &["show", &id]].concat(),
            [&["show", &id], option].concat(),
        ] {
            let printed = home.run(&call);
            assert_eq!(printed.status.code(), Some(0), "{call:?}: {printed:?}");
            assert!(text(&printed.stdout).contains(&id), "{call:?}: {printed:?}");
        }
    }
    // Only results and errors are left.
    assert_eq!(text(&home.run(&["-q", "close", "."]).stderr), "");
    assert_ne!(text(&home.run(&["close", "."]).stderr), "");
}

/// A list shows 50 entries unless all are asked for, and says so.
#[test]
fn a_long_list_is_cut_and_says_how_to_see_all() {
    let home = Home::new();
    for number in 1..=51 {
        home.said(&["new", "--title", &format!("number {number}")]);
    }
    let cut = home.run(&["ls"]);
    check_printed(&["ls", "of 51"], &cut, 0);
    assert_eq!(text(&cut.stdout).lines().count(), 50);
    assert!(text(&cut.stderr).starts_with("50 shown"), "{cut:?}");
    let whole = home.run(&["ls", "--all"]);
    super::check(&whole, 0, &text(&whole.stdout));
    assert_eq!(text(&whole.stdout).lines().count(), 51);
    assert_eq!(text(&whole.stderr), "");
}

/// The rest of a filtered list has the same filter.
#[test]
fn a_list_that_is_cut_names_the_command_with_its_filters() {
    let home = Home::new();
    for title in ["heron one", "heron two", "fox"] {
        home.said(&["new", "--title", title]);
    }
    let filters = [
        "ls", "-n", "1", "heron", "--agent", "loopback", "--state", "idle", ".",
    ];
    let told = home.printed(&filters, 0);
    assert_eq!(home.said_pasted(commands(&told)[0]).lines().count(), 2, "{told}");
    home.said(&["send", "fox", "one"]);
    home.said(&["send", "heron one", "two"]);
    let told = home.printed(&["transcripts", "-n", "1", "--agent", "loopback"], 0);
    assert_eq!(home.said_pasted(commands(&told)[0]).lines().count(), 2, "{told}");
}

/// The error lists so many at most.
#[test]
fn many_conversations_that_match_a_name_are_not_counted() {
    let home = Home::new();
    for number in 1..=18 {
        home.said(&["new", "--title", &format!("heron {number}")]);
    }
    let output = home.run(&["show", "heron"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("at least 16"), "{told}");
    assert_eq!(home.said_pasted(commands(&told)[0]).lines().count(), 18, "{told}");
}

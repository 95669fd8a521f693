//! Help, manual pages and completions: what the definitions of the command lines give.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::home::Home;
use super::printed::{check_printed, commands};
#[cfg(target_os = "linux")]
use super::terminal::{Terminal, in_shell};
use super::{check, run, sessionctl, text};

/// What a call prints that needs no daemon.
#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), arguments);
    check(&output, 0, &text(&output.stdout));
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    text(&output.stdout)
}

/// The help of the program in a terminal of this width, as a user sees it. `WRITE_HELP=1` writes the snapshot.
#[track_caller]
fn check_help(columns: u16) {
    let folder = tempfile::tempdir().unwrap();
    let columns = columns.to_string();
    let output = sessionctl(folder.path(), &["help"])
        .env("COLUMNS", &columns)
        .output();
    let help = text(&output.unwrap().stdout);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/help-{columns}.txt"));
    if std::env::var_os("WRITE_HELP").is_some() {
        fs::write(&path, &help).unwrap();
    }
    assert_eq!(help, fs::read_to_string(&path).unwrap());
}

#[test]
fn the_help_groups_the_commands_in_80_columns() {
    check_help(80);
}

#[test]
fn the_help_groups_the_commands_in_200_columns() {
    check_help(200);
}

/// A full stop at the end is taken off, so that a sign there is lost.
#[test]
fn no_description_ends_in_the_sign_for_this_folder() {
    for page in pages().values() {
        assert!(!page.contains(", or\n"), "{page}");
    }
    for command in ["set", "send", "fork", "show"] {
        let help = printed(&["help", command]);
        assert!(help.contains("or . ("), "{help}");
    }
}

/// Other names of commands have a help of their own or that of the command, and are not listed.
#[test]
fn aliases_are_described_and_not_listed() {
    let listed = printed(&["help"]) + &printed(&["help", "archive"]);
    for (alias, command) in [
        ("recover", "continue"),
        ("rename", "rename"),
        ("keep", "keep"),
        ("restore", "restore"),
    ] {
        let help = printed(&["help", alias]);
        assert!(help.contains(&format!("Usage: sessionctl {command} ")), "{help}");
        assert!(!listed.contains(&format!("sessionctl {alias} ")), "{listed}");
        let row = format!("  {alias} ");
        let rows = listed.lines().filter(|line| line.starts_with(&row));
        assert_eq!(rows.count(), usize::from(alias == "restore"), "{listed}");
    }
}

#[test]
fn a_mistyped_command_is_a_usage_error_that_names_no_destructive_one() {
    let folder = tempfile::tempdir().unwrap();
    for (line, suggested) in [
        (&["sned"][..], Some("'send'")),
        (&["rn"], Some("'transcripts'")),
        (&["rest"], Some("'resume'")),
        (&["resett"], None),
        (&["rmm"], None),
        (&["stpo"], None),
        (&["generat"], None),
        (&["renam"], None),
        (&["recov"], None),
        (&["remov"], None),
        (&["restor"], None),
    ] {
        let output = run(folder.path(), line);
        check(&output, 2, "");
        let told = text(&output.stderr);
        let without_call = told.lines().skip(1).collect::<String>();
        for never in [
            "reset", "rm", "stop", "generate", "prune", "rename", "restore", "keep", "recover",
        ] {
            assert!(!without_call.contains(&format!("'{never}'")), "{told}");
        }
        assert!(suggested.is_none_or(|name| told.contains(name)), "{told}");
    }
}

#[test]
fn a_wrong_call_is_one_sentence_and_one_command() {
    let folder = tempfile::tempdir().unwrap();
    for (line, helps) in [
        (&["nonsense"][..], "sessionctl help"),
        (&["--nonsense"], "sessionctl help"),
        (&["help", "nonsense"], "sessionctl help"),
        (&["ls", "-n", "x"], "sessionctl help ls"),
        (&["ls", "-n", "0"], "sessionctl help ls"),
        (&["ls", "--staet", "idle"], "sessionctl help ls"),
        (&["fork", ".", "3"], "sessionctl help fork"),
        (&["import"], "sessionctl help import"),
        (&["archive", "rm"], "sessionctl help archive"),
        (&["chat", ".", "--new"], "sessionctl help chat"),
        (&["-q", "-v", "--home", ".", "ls"], "sessionctl help ls"),
    ] {
        let output = run(folder.path(), line);
        let told = check_printed(line, &output, 2);
        assert_eq!(told.lines().count(), 2, "{told}");
        assert_eq!(commands(&told), [helps]);
        let words: Vec<&str> = helps.split(' ').skip(1).collect();
        assert_eq!(run(folder.path(), &words).status.code(), Some(0));
    }
}

/// The pages that packages install, by name.
fn pages() -> BTreeMap<String, String> {
    let prefix = tempfile::tempdir().unwrap();
    let output = run(prefix.path(), &["generate", prefix.path().to_str().unwrap()]);
    let files = text(&output.stdout);
    let pages = files
        .lines()
        .map(Path::new)
        .filter(|path| path.extension().is_some_and(|end| end == "1"));
    let page = |path: &Path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    pages.map(page).collect()
}

#[test]
fn each_command_of_the_help_has_the_page_that_is_installed() {
    let help = printed(&["-h"]);
    let lines = help.lines().skip_while(|line| *line != "Talk:");
    let lines = lines.take_while(|line| *line != "Options:");
    let commands = lines.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let pages = pages();
    let mut count = 0;
    for command in commands {
        let page = printed(&["man", command]);
        assert_eq!(page, pages[&format!("sessionctl-{command}")]);
        assert!(page.contains("\n.SH SYNOPSIS\n"), "{page}");
        count += 1;
    }
    assert!(count > 30, "{count}");
    for program in ["sessionctl", "sessiond"] {
        assert_eq!(printed(&["man", program]), pages[program]);
    }
    assert_eq!(printed(&["man"]), pages["sessionctl"]);
    let synopsis = |name: &str| {
        let lines = pages[name].lines().skip_while(|line| *line != ".SH SYNOPSIS");
        lines.take(2).last().unwrap().to_owned()
    };
    for (page, words) in [
        ("sessionctl-send", r"[\fB\-\-file\fR \fIPATH\fR]"),
        ("sessionctl-send", r"[\fB\-y\fR|\fB\-\-yes\fR]"),
        ("sessionctl-send", r"[\fICONV\fR] [\fITEXT\fR]..."),
        ("sessionctl-ls", r"[\fB\-n\fR|\fB\-\-limit\fR \fICOUNT\fR]"),
        ("sessiond", r"[\fB\-\-home\fR \fIDIR\fR]"),
    ] {
        assert!(synopsis(page).contains(words), "{words}: {}", synopsis(page));
    }
    let folder = tempfile::tempdir().unwrap();
    check(&run(folder.path(), &["man", "sned"]), 2, "");
}

#[test]
fn groff_has_nothing_to_say_of_a_page() {
    for (name, page) in pages() {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-Tutf8", "-z"]);
        let child = groff.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            eprintln!("skipped: there is no groff");
            return;
        };
        child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "", "{name}");
    }
}

/// What bash offers at the end of a command line; its last word is what was typed of the next one. The script calls the program
/// by its name on `PATH`.
#[track_caller]
fn offered(folder: &Path, program: &str, line: &[&str]) -> Vec<String> {
    let script = r#"
        complete() { :; }
        source "$1"
        shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9 COMPREPLY=()
        "_clap_complete_$1" "$1" "${COMP_WORDS[COMP_CWORD]}" 2>/dev/null
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let file = folder.join(format!("completions of {program}"));
    fs::write(&file, printed(&["completions", "bash", program])).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_sessionctl")).parent().unwrap();
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-c", script, "bash"])
        .arg(file)
        .arg(program)
        .args(line)
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .env("SESSIOND_HOME", folder)
        .current_dir(folder);
    let output = bash.output().unwrap();
    let words = text(&output.stdout);
    let words = words.lines().filter(|word| !word.is_empty());
    words.map(|word| word.trim_end().to_owned()).collect()
}

/// bash shows no descriptions, so that a list of ids has the titles beside them.
#[cfg(target_os = "linux")]
#[test]
fn bash_at_a_terminal_completes_an_id_and_lists_ids_with_their_titles() {
    if Command::new("bash").arg("--version").output().is_err() {
        eprintln!("skipped: there is no bash");
        return;
    }
    let home = Home::new();
    let id = home.said(&["new", "--title", "Deploy the site"]);
    let other = home.said(&["new", "--title", "Review"]);
    let programs = Path::new(env!("CARGO_BIN_EXE_sessionctl")).parent().unwrap();
    let mut bash = home.command(&[]);
    bash.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    bash.env("PS1", "ready> ");
    let mut bash = Terminal::of(120, &in_shell("exec bash --noprofile --norc -i", &bash));
    bash.until("ready> ");
    bash.type_in("source <(sessionctl completions bash)\r");
    bash.until("ready> ");
    bash.type_in(&format!("sessionctl show {}\t", &id[..7]));
    bash.until(&id[..8]);
    // Ctrl-U deletes the line.
    bash.type_in("\x15sessionctl close \t\t");
    // The line is shown again below the list.
    bash.until("close ");
    let listed = bash.until("close ");
    for (id, title) in [(&id, "Deploy the site"), (&other, "Review")] {
        let line = format!("{}  {title}", &id[..8]);
        assert!(listed.contains(&line), "{listed:?}");
    }
    bash.type_in("\x15exit\r");
    bash.exits(0);
}

#[test]
fn bash_completes_commands_options_values_conversations_and_checkpoints() {
    if Command::new("bash").arg("--version").output().is_err() {
        eprintln!("skipped: there is no bash");
        return;
    }
    let home = Home::new();
    let folder = home.path();
    // No daemon runs: nothing is offered, and none is started.
    let offers = |line: &[&str]| offered(folder, "sessionctl", line);
    assert_eq!(offers(&["close", "0"]), Vec::<String>::new());
    assert!(!folder.join("data").exists());
    let id = home.said(&["new", "--title", "Deploy the site"]);
    home.said(&["send", &id, "first"]);
    home.said(&["new", "--title", "Review"]);
    home.said(&["new", "--title", "Review (fork)"]);
    let session = home.shown(&id)["head"].as_str().unwrap().to_owned();
    let forgotten = home.said(&["new", "--title", "Forgotten"]);
    home.said(&["send", &forgotten, "second"]);
    let unclaimed = home.shown(&forgotten)["head"].as_str().unwrap().to_owned();
    home.said(&["archive", "add", &forgotten]);
    home.said(&["rm", &forgotten]);
    let asking = home.said(&["new", "--title", "Asks"]);
    assert_eq!(
        home.run(&["send", &asking, "[[ask Really?]]"]).status.code(),
        Some(8)
    );
    let question = home.shown(&asking)["interrupts"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let table: [(&str, &[&str], &[&str]); 16] = [
        ("sessionctl", &["sen"], &["send"]),
        ("sessionctl", &["send", "--que"], &["--queue"]),
        ("sessionctl", &["--color", "ne"], &["never"]),
        ("sessionctl", &["close", &id[..3]], &[&id[..8]]),
        ("sessionctl", &["close", "Dep"], &[r"Deploy\ the\ site"]),
        ("sessionctl", &["close", r"deploy\ t"], &[r"Deploy\ the\ site"]),
        // As bash asks for `'Deploy t`.
        ("sessionctl", &["close", "Deploy t"], &["Deploy the site"]),
        // A word in the middle is too little.
        ("sessionctl", &["close", "site"], &[]),
        ("sessionctl", &["fork", r"Deploy\ the\ site", "--at", "1"], &["1"]),
        ("sessionctl", &["fork", &id, "--at", "1"], &["1"]),
        ("sessionctl", &["answer", "As"], &["Asks"]),
        ("sessionctl", &["answer", &asking, "--question", ""], &[&question]),
        ("sessionctl", &["set", &id[..3]], &[&id[..8]]),
        ("sessionctl", &["adopt", &session[..3]], &[&session]),
        ("sessionctl", &["archive", "rm", &unclaimed[..3]], &[&unclaimed]),
        ("sessiond", &["--ep"], &["--ephemeral"]),
    ];
    for (program, line, expected) in table {
        assert_eq!(offered(folder, program, line), expected, "{program} {line:?}");
    }
    // A whole title names its conversation, also if it is part of another one.
    let offered_titles = offered(folder, "sessionctl", &["close", "Rev"]);
    assert_eq!(offered_titles, [r"Review\ \(fork\)", "Review"]);
    assert_eq!(home.run(&["show", "Review"]).status.code(), Some(0));
    // zsh and fish drop candidates that do not begin with the typed text.
    let [older, newer] = ["Same", "Same"].map(|title| home.said(&["new", "--title", title]));
    let mut asked = sessionctl(folder, &["--", "sessionctl", "close", "Sa"]);
    let output = asked.env("COMPLETE", "fish").output().unwrap();
    let described = format!("Same\t{}, {}\n", &newer[..8], &older[..8]);
    assert_eq!(text(&output.stdout).trim_end(), described.trim_end());
    // A shell that shows descriptions gets the titles and the prompts.
    for (line, described) in [
        (&["sessionctl", "close", &id[..3]][..], "Deploy the site"),
        (&["sessionctl", "close", "Dep"], &id[..8]),
        (&["sessionctl", "fork", &id, "--at", ""], "first"),
        (&["sessionctl", "set", &id, "mo"], "model=\nmode="),
        (&["sessionctl", "adopt", &session[..3]], "first"),
        (&["sessionctl", "archive", "rm", ""], "Forgotten"),
        (&["sessionctl", "answer", &asking, "--question", ""], "Really?"),
        (&["sessionctl", "new", "--agent", "loo"], "loopback"),
        (&["sessionctl", "ls", "--agent", ""], "loopback"),
    ] {
        let mut asked = sessionctl(folder, &["--"]);
        let output = asked.args(line).env("COMPLETE", "fish").output().unwrap();
        assert!(text(&output.stdout).contains(described), "{output:?}");
    }
}

/// A line that ends early is followed by a word that would not fit.
#[test]
fn the_daemons_help_is_filled() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sessiond"));
    let output = command.arg("--help").env_clear().output().unwrap();
    let help = text(&output.stdout);
    let indent = |line: &str| line.len() - line.trim_start().len();
    for pair in help.lines().collect::<Vec<_>>().windows(2) {
        let word = pair[1].split_whitespace().next().unwrap_or_default();
        // A line that continues the sentence of the line before.
        let continues = word.starts_with(|letter: char| letter.is_ascii_lowercase());
        let is_same = indent(pair[0]) == indent(pair[1]) && !pair[0].is_empty();
        assert!(
            !(continues && is_same) || pair[0].len() + 1 + word.len() > 100,
            "{pair:?}"
        );
    }
}

/// Aliases that users know from other programs.
#[test]
fn other_words_for_a_list_and_a_deletion_are_understood() {
    let home = Home::new();
    for word in ["remove", "delete"] {
        let id = home.said(&["new"]);
        assert!(home.said(&["list"]).contains(&id));
        home.said(&[word, &id]);
        assert_eq!(home.run(&["show", &id]).status.code(), Some(4));
    }
    for word in ["remove", "delete", "list"] {
        assert!(!printed(&["help"]).contains(&format!("  {word} ")));
    }
}

/// The list to pick from cannot be shown there, which is not a mistake in the call.
#[test]
#[cfg(target_os = "linux")]
fn without_cursor_control_a_bare_call_says_what_is_missing() {
    let home = Home::new();
    let script = "TERM=dumb \"$0\"";
    let shown = Terminal::of(80, &in_shell(script, &home.command(&[]))).exits(2);
    assert!(
        shown.contains("TERM is dumb") && shown.contains("sessionctl ls"),
        "{shown}"
    );
    assert!(!shown.contains("Usage:"), "{shown}");
}

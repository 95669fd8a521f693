use clap::Parser;

use super::{Arguments, Command, GROUPS, command, parse};

#[test]
fn the_definition_is_sound() {
    command().debug_assert();
}

#[test]
fn global_options_are_accepted_before_and_after_the_command() {
    for line in [
        "sessionctl --json --yes -q --color never --home /t --socket /s --no-start ls",
        "sessionctl ls --json --yes -q --color never --home /t --socket /s --no-start",
    ] {
        let global = Arguments::try_parse_from(line.split(' ')).unwrap().global;
        assert!(
            global.json && global.no_start && global.yes && global.quiet,
            "{line}"
        );
        assert_eq!(global.color, clap::ColorChoice::Never, "{line}");
        assert_eq!(global.launch.home.as_deref(), Some("/t".as_ref()), "{line}");
        assert_eq!(global.launch.socket.as_deref(), Some("/s".as_ref()), "{line}");
    }
}

#[test]
fn a_prompt_may_be_several_words_or_standard_input() {
    for (line, words) in [
        ("sessionctl send . hello there", &["hello", "there"][..]),
        ("sessionctl send 5d0c2a -", &["-"]),
    ] {
        let arguments = Arguments::try_parse_from(line.split(' ')).unwrap();
        let Some(Command::Send(send)) = arguments.command else {
            panic!("{line}");
        };
        assert_eq!(send.text, words, "{line}");
    }
}

#[test]
fn each_visible_command_is_in_exactly_one_group() {
    let command = command();
    let visible = command.get_subcommands().filter(|below| !below.is_hide_set());
    let mut visible: Vec<&str> = visible.map(clap::Command::get_name).collect();
    let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.split(' ')).collect();
    visible.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(grouped, visible);
}

/// On a terminal of 80 columns a command and its description fit on one line.
#[test]
fn command_descriptions_fit_on_one_line() {
    for below in command().get_subcommands() {
        let about = below.get_about().unwrap().to_string();
        assert!(about.len() <= 60 && !about.ends_with('.'), "{about}");
    }
}

/// What would be ignored is refused.
#[test]
fn an_agent_is_named_for_a_new_conversation_only() {
    for (line, is_taken) in [
        (&["chat", "--new", "--agent", "echo"][..], true),
        (&["chat", ".", "--agent", "echo"], false),
        (&["chat", "--agent", "echo"], false),
    ] {
        let words = ["sessionctl"].iter().chain(line).map(Into::into);
        let parsed = parse(&words.collect::<Vec<_>>());
        assert_eq!(parsed.is_ok(), is_taken, "{line:?}");
    }
}

#[test]
fn a_mistyped_command_never_leads_to_a_destructive_or_hidden_one() {
    for (word, suggested) in [
        ("rn", Some("'transcripts'")),
        ("rest", Some("'resume'")),
        ("renam", None),
        ("generat", None),
        ("sned", Some("'send'")),
        ("recov", None),
        ("remov", None),
        ("restor", None),
    ] {
        let line = ["sessionctl", word].map(Into::into);
        let printed = parse(&line).unwrap_err().to_string();
        let tip = printed.lines().find(|line| line.contains("similar"));
        if let Some(name) = suggested {
            assert!(tip.is_some_and(|tip| tip.contains(name)), "{printed}");
        }
        let tip = tip.unwrap_or_default();
        for harmful in [
            "rm", "reset", "stop", "rename", "restore", "keep", "generate", "recover",
        ] {
            assert!(!tip.contains(&format!("'{harmful}'")), "{printed}");
        }
    }
}

use clap::Parser;

use super::{Arguments, Command, GROUPS, command, parse};

#[test]
fn the_definition_is_sound() {
    command().debug_assert();
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

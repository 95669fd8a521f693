use clap::{Parser, ValueHint};

use super::{Arguments, Command, command, groups, told};
use crate::cli::exit::Exit;

#[test]
fn the_definition_is_sound() {
    command().debug_assert();
}

#[test]
fn global_options_are_accepted_before_and_after_the_command() {
    for line in [
        "sessionctl --json --home /t --socket /s --no-start ls",
        "sessionctl ls --json --home /t --socket /s --no-start",
    ] {
        let arguments = Arguments::try_parse_from(line.split(' ')).unwrap();
        assert!(arguments.global.json && arguments.global.no_start, "{line}");
        assert_eq!(arguments.global.home.as_deref(), Some("/t".as_ref()), "{line}");
        assert_eq!(arguments.global.socket.as_deref(), Some("/s".as_ref()), "{line}");
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
fn a_path_is_completed_as_the_file_or_the_folder_that_it_is() {
    let mut paths = 0;
    for below in command().get_subcommands() {
        for arg in below.get_arguments() {
            let hint = arg.get_value_hint();
            assert_ne!(hint, ValueHint::AnyPath, "{} {}", below.get_name(), arg.get_id());
            paths += usize::from([ValueHint::FilePath, ValueHint::DirPath].contains(&hint));
        }
    }
    assert!(paths > 5, "only {paths} paths");
}

#[test]
fn the_texts_of_a_command_are_in_its_help() {
    let command = command();
    for (name, told) in told::COMMANDS {
        let below = command.find_subcommand(name).expect(name);
        assert_eq!(below.get_after_help().unwrap().to_string(), told.help(), "{name}");
    }
}

#[test]
fn the_help_lists_each_exit_code() {
    let told: Vec<u8> = told::PROGRAM
        .codes
        .iter()
        .map(|(code, _)| code.parse().unwrap())
        .collect();
    let real = [
        Exit::Done,
        Exit::Failed,
        Exit::Usage,
        Exit::NoDaemon,
        Exit::NotFound,
        Exit::Busy,
        Exit::Agent,
        Exit::Limited,
        Exit::Asked,
    ];
    assert_eq!(told, real.map(Exit::code));
}

#[test]
fn each_visible_command_is_in_exactly_one_group() {
    let command = command();
    let visible = command.get_subcommands().filter(|below| !below.is_hide_set());
    let mut visible: Vec<&str> = visible.map(clap::Command::get_name).collect();
    let mut grouped: Vec<&str> = groups::GROUPS
        .iter()
        .flat_map(|(_, names)| *names)
        .copied()
        .collect();
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

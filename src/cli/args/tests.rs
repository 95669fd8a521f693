use clap::{CommandFactory, Parser};

use super::{Arguments, Command};

#[test]
fn the_definition_is_sound() {
    Arguments::command().debug_assert();
}

#[test]
fn global_options_stand_before_or_after_the_command() {
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
        let Command::Send(send) = arguments.command else {
            panic!("{line}");
        };
        assert_eq!(send.text, words, "{line}");
    }
}

//! Pages of a small definition, and text that roff must not take for its own.

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, ArgGroup, Command};

use super::{Definition, Page, page, pages};
use crate::paths::told::{Section, Told};

/// A program with a command of each kind.
fn program() -> Command {
    let value = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let at = Command::new("at")
        .about("Wait, and go")
        .arg(
            value("time", "TIME")
                .short('t')
                .help("When. [env: WHEN]")
                .default_value("06:30"),
        )
        .arg(flag("now").help("At once"))
        .group(ArgGroup::new("when").required(true).args(["time", "now"]))
        .arg(flag("dry-run").help(".dry: tell only, as prog to does"))
        .arg(flag("secret").hide(true))
        .arg(
            Arg::new("who")
                .value_name("WHO|ALL")
                .required(true)
                .help("'Who' goes"),
        )
        .arg(
            Arg::new("what")
                .value_name("WHAT")
                .num_args(0..)
                .help("What WHO takes along"),
        );
    let ways = [
        PossibleValue::new("sea").help("a ship"),
        PossibleValue::new("land").help("a horse"),
    ];
    let to = Command::new("to")
        .about("Go there")
        .override_usage("prog to [OPTIONS] <PLACE>\n       prog to --list")
        .arg(value("by", "WAY").value_parser(ways).help("How"))
        .arg(value("on", "DAY").value_parser(["today", "never"]).help("When"))
        .arg(flag("list").help("List them"))
        .arg(Arg::new("place").value_name("PLACE").help("Where"));
    Command::new("prog")
        .about("Goes places")
        .arg(
            value("map", "FILE")
                .global(true)
                .help_heading("Global options")
                .help("The map"),
        )
        .subcommand_required(true)
        .subcommands([at, to, Command::new("hidden").hide(true)])
}

/// What is told of it.
fn told(name: &str) -> Told {
    match name {
        "prog" => Told {
            codes: &[("0", "done"), ("1", "lost")],
            sections: &[Section {
                heading: "Old files",
                items: &[&[("~/map", "the map")], &[("~/other", "another")]],
                words: &["And \"others\"."],
            }],
            ..Told::NOTHING
        },
        "to" => Told {
            description: &["'Far' is far.", ".br stands alone, \\fB does too."],
            exits: "Exits with 1 when PLACE is gone.",
            examples: &["prog to 'far away' --by sea", ".prog \\to `x` ^"],
            ..Told::NOTHING
        },
        _ => Told::NOTHING,
    }
}

const PROGRAMS: [Definition; 2] = [
    Definition {
        command: program,
        told,
    },
    Definition {
        command: || Command::new("progd").about("Goes"),
        told: |_| Told::NOTHING,
    },
];

fn of(name: &str) -> String {
    page(name, PROGRAMS).unwrap().text
}

/// The lines of one section.
#[track_caller]
fn section<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let headings = [format!(".SH {name}"), format!(".SH \"{name}\"")];
    let mut lines = text.lines();
    assert!(
        lines.any(|line| headings.iter().any(|heading| heading == line)),
        "{name} in {text}"
    );
    lines.take_while(|line| !line.starts_with(".SH ")).collect()
}

#[test]
fn each_program_and_each_command_that_is_shown_has_a_page() {
    let names: Vec<String> = pages(PROGRAMS).iter().map(Page::file_name).collect();
    assert_eq!(names, ["prog.1", "prog-at.1", "prog-to.1", "progd.1"]);
}

#[test]
fn the_head_of_a_page_has_its_title_and_no_date() {
    let text = of("prog-at");
    let version = env!("CARGO_PKG_VERSION");
    let head = format!(
        ".TH PROG\\-AT 1 \"\" \"session\\-bridge {version}\" \"session\\-bridge manual\"\n.nh\n.ad l\n.SH NAME\n\
         prog\\-at \\- Wait, and go\n"
    );
    assert!(text.contains(&head), "{text}");
    assert_eq!(text.matches(".ds Aq").count(), 2, "{text}");
}

#[test]
fn a_synopsis_has_what_a_command_takes_and_what_its_values_are_called() {
    let at = [
        ".PD 0",
        ".TP 8",
        r"\fBprog\ at\fR",
        r"[\-\-dry\-run] <\-\-time <TIME>|\-\-now> <WHO|ALL> [WHAT]...",
        ".PD",
    ];
    assert_eq!(section(&of("prog-at"), "SYNOPSIS"), at);
    let to = [
        ".PD 0",
        ".TP 8",
        r"\fBprog\ to\fR",
        r"[\-\-by\ <WAY>] [\-\-on\ <DAY>] <PLACE>",
        ".TP 8",
        r"\fBprog\ to\fR",
        r"\-\-list",
        ".PD",
    ];
    assert_eq!(section(&of("prog-to"), "SYNOPSIS"), to);
    let main = [
        ".PD 0",
        ".TP 5",
        r"\fBprog\fR",
        r"[\-\-map\ <FILE>] <COMMAND>",
        ".PD",
    ];
    assert_eq!(section(&of("prog"), "SYNOPSIS"), main);
    assert_eq!(
        section(&of("progd"), "SYNOPSIS"),
        [".PD 0", ".TP 6", r"\fBprogd\fR", ".PD"]
    );
}

#[test]
fn arguments_and_options_stand_under_their_headings() {
    let at = of("prog-at");
    let arguments = section(&at, "ARGUMENTS");
    assert_eq!(arguments[1..3], [r"<\fIWHO|ALL\fR>", r"\*(AqWho\*(Aq goes"]);
    let options = section(&at, "OPTIONS");
    assert_eq!(
        options[1..3],
        [
            r"\fB\-t\fR, \fB\-\-time\fR \fI<TIME>\fR [default: 06:30]",
            "When. [env: WHEN]"
        ]
    );
    assert_eq!(options.last(), Some(&r"\&.dry: tell only, as prog to does"));
    assert_eq!(
        section(&at, "GLOBAL OPTIONS"),
        [
            ".TP",
            r"\fB\-\-map\fR \fI<FILE>\fR",
            "The map",
            ".TP",
            r"\fB\-h\fR, \fB\-\-help\fR",
            "Print help"
        ]
    );
    assert!(!at.contains("secret"), "{at}");
}

#[test]
fn what_is_told_beside_the_options_has_sections_of_its_own() {
    let main = of("prog");
    assert_eq!(
        section(&main, "COMMANDS"),
        [
            ".TP",
            r"prog\-at(1)",
            "Wait, and go",
            ".TP",
            r"prog\-to(1)",
            "Go there"
        ]
    );
    assert_eq!(
        section(&main, "EXIT STATUS"),
        [".TP", r"\fB0\fR", "done", ".TP", r"\fB1\fR", "lost"]
    );
    assert_eq!(
        section(&main, "OLD FILES"),
        [
            ".TP",
            r"\fB\(ti/map\fR",
            "the map",
            ".TP",
            r"\fB\(ti/other\fR",
            "another",
            ".PP",
            "And \"others\"."
        ]
    );
    let to = of("prog-to");
    assert_eq!(
        section(&to, "EXIT STATUS"),
        [
            ".PP",
            "Exits with 1 when PLACE is gone.",
            ".PP",
            "See prog(1) for all exit codes."
        ]
    );
    assert_eq!(section(&to, "SEE ALSO"), [r"\fBprog\fR(1),", r"\fBprogd\fR(1)"]);
    assert_eq!(section(&main, "SEE ALSO"), [r"\fBprogd\fR(1)"]);
}

#[test]
fn no_text_is_taken_for_a_request() {
    let to = of("prog-to");
    assert_eq!(
        section(&to, "DESCRIPTION"),
        [
            "Go there",
            ".PP",
            r"\*(AqFar\*(Aq is far.",
            ".PP",
            r"\&.br stands alone, \\fB does too."
        ]
    );
    assert_eq!(
        section(&to, "EXAMPLES"),
        [
            ".RS 4",
            ".nf",
            r"prog to \*(Aqfar away\*(Aq \-\-by sea",
            r"\&.prog \\to \(gax\(ga \(ha",
            ".fi",
            ".RE"
        ]
    );
}

//! Pages of a small definition, and the text that roff must not take for its own.

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, ArgGroup, Command};

use super::roff::{Font, Roff};
use super::{Page, page, pages};

/// A program with a command of each kind, and another one.
fn definition() -> (Command, Command) {
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
        .arg(Arg::new("place").value_name("PLACE").help("Where"))
        .after_help(
            "It takes `long` with --by WAY. Exits with 1 when PLACE is gone.\n\nExamples:\n  prog to 'far away' --by sea\n  .prog \\to",
        );
    let main = Command::new("prog")
        .about("goes places")
        .arg(value("map", "FILE").global(true).help_heading("Global options").help("The map"))
        .subcommand_required(true)
        .subcommands([at, to, Command::new("hidden").hide(true)])
        .after_help(
            "Exit codes: 0 done, 1 lost.\n\nFiles:\n  ~/map, ~/other\n    the map\n  And \"others\".\n\nAt the end.",
        );
    (
        main,
        Command::new("progd")
            .about("Goes")
            .after_help("prog to starts it"),
    )
}

fn all() -> Vec<Page> {
    let (main, daemon) = definition();
    pages(main, daemon)
}

fn of(name: &str) -> String {
    let (main, daemon) = definition();
    page(name, main, daemon).unwrap().text
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
    let names: Vec<String> = all().iter().map(Page::file_name).collect();
    assert_eq!(names, ["prog.1", "prog-at.1", "prog-to.1", "progd.1"]);
}

#[test]
fn the_head_of_a_page_has_its_title_and_no_date() {
    let text = of("prog-at");
    let version = env!("CARGO_PKG_VERSION");
    let head = format!(
        ".TH PROG\\-AT 1 \"\" \"session\\-bridge {version}\" \"session\\-bridge manual\"\n.nh\n.ad l\n.SH NAME\n\
         prog\\-at \\- wait, and go\n"
    );
    assert!(text.starts_with(&head), "{text}");
}

#[test]
fn a_synopsis_has_what_a_command_takes_and_what_its_values_are_called() {
    let at = [
        ".TP 8",
        r"\fBprog\ at\fR",
        r"[\fB\-\-dry\-run\fR] {\fB\-\-time\fR\ \fITIME\fR|\fB\-\-now\fR} \fIWHO\fR|\fIALL\fR [\fIWHAT\fR]...",
    ];
    assert_eq!(section(&of("prog-at"), "SYNOPSIS"), at);
    let to = [
        ".TP 8",
        r"\fBprog\ to\fR",
        r"[\fB\-\-by\fR\ \fIWAY\fR] [\fB\-\-on\fR\ \fIDAY\fR] \fIPLACE\fR",
        ".PD 0",
        ".TP 8",
        r"\fBprog\ to\fR",
        r"\fB\-\-list\fR",
        ".PD",
    ];
    assert_eq!(section(&of("prog-to"), "SYNOPSIS"), to);
    let main = [
        ".TP 5",
        r"\fBprog\fR",
        r"[\fB\-\-map\fR\ \fIFILE\fR] \fICOMMAND\fR ...",
    ];
    assert_eq!(section(&of("prog"), "SYNOPSIS"), main);
}

#[test]
fn arguments_and_options_are_told_in_sentences() {
    let at = of("prog-at");
    assert_eq!(
        section(&at, "ARGUMENTS"),
        [
            ".TP",
            r"\fIWHO\fR|\fIALL\fR",
            r"\(aqWho\(aq goes.",
            ".TP",
            r"\fIWHAT\fR...",
            r"What \fIWHO\fR takes along."
        ]
    );
    assert_eq!(
        section(&at, "OPTIONS"),
        [
            ".TP",
            r"\fB\-t\fR, \fB\-\-time\fR\ \fITIME\fR",
            r"When. The variable \fBWHEN\fR says it too. Unless given it is \fB06:30\fR.",
            ".TP",
            r"\fB\-\-now\fR",
            "At once.",
            ".TP",
            r"\fB\-\-dry\-run\fR",
            r"\&.dry: tell only, as \fBprog\ to\fR does.",
        ]
    );
    let global = section(&at, "GLOBAL OPTIONS");
    assert_eq!(global[..3], [".TP", r"\fB\-\-map\fR\ \fIFILE\fR", "The map."]);
    assert_eq!(global[3..], [".TP", r"\fB\-h\fR, \fB\-\-help\fR", "Print help."]);
    assert_eq!(
        section(&of("prog-to"), "OPTIONS"),
        [
            ".TP",
            r"\fB\-\-by\fR\ \fIWAY\fR",
            "How.",
            ".RS",
            ".TP",
            r"\fBsea\fR",
            "A ship.",
            ".TP",
            r"\fBland\fR",
            "A horse.",
            ".RE",
            ".TP",
            r"\fB\-\-on\fR\ \fIDAY\fR",
            r"When. It is one of \fBtoday\fR, \fBnever\fR.",
            ".TP",
            r"\fB\-\-list\fR",
            "List them.",
        ]
    );
}

#[test]
fn what_the_help_says_behind_the_options_has_sections_of_its_own() {
    let main = of("prog");
    assert_eq!(
        section(&main, "DESCRIPTION"),
        ["Goes places.", ".PP", "At the end."]
    );
    assert_eq!(
        section(&main, "COMMANDS"),
        [
            ".TP",
            r"\fBprog\-at\fR(1)",
            "Wait, and go.",
            ".TP",
            r"\fBprog\-to\fR(1)",
            "Go there."
        ]
    );
    assert_eq!(
        section(&main, "EXIT STATUS"),
        [".TP", r"\fB0\fR", "Done.", ".TP", r"\fB1\fR", "Lost."]
    );
    assert_eq!(
        section(&main, "FILES"),
        [
            ".TP",
            r"\fB\(ti/map\fR, \fB\(ti/other\fR",
            "The map.",
            ".PP",
            "And \"others\"."
        ]
    );
    let to = of("prog-to");
    assert_eq!(
        section(&to, "DESCRIPTION"),
        [
            "Go there.",
            ".PP",
            r"It takes \fBlong\fR with \fB\-\-by\fR \fIWAY\fR."
        ]
    );
    assert_eq!(
        section(&to, "EXIT STATUS"),
        [
            r"Exits with 1 when \fIPLACE\fR is gone.",
            ".PP",
            "All codes are told in",
            r"\fBprog\fR(1)."
        ]
    );
    assert_eq!(
        section(&to, "EXAMPLES"),
        [
            ".RS 4",
            ".nf",
            r"prog to \(aqfar away\(aq \-\-by sea",
            r"\&.prog \eto",
            ".fi",
            ".RE"
        ]
    );
}

#[test]
fn pages_lead_to_those_they_name_and_back() {
    let table = [
        ("prog", &["progd"][..]),
        ("prog-at", &["prog", "prog-to", "progd"]),
        ("prog-to", &["prog", "prog-at", "progd"]),
        ("progd", &["prog", "prog-to"]),
    ];
    for (name, others) in table {
        let last = others.len() - 1;
        let expected: Vec<String> = (0..=last)
            .map(|at| {
                let other = others[at].replace('-', "\\-");
                format!("\\fB{other}\\fR(1){}", if at == last { "" } else { "," })
            })
            .collect();
        assert_eq!(section(&of(name), "SEE ALSO"), expected, "{name}");
    }
}

#[test]
fn no_text_is_taken_for_a_request() {
    let mut page = Roff::new("a \"b\"", "1", "", "c");
    page.line(&[(Font::Roman, ".SH it's")]);
    page.line(&[(Font::Roman, "'br `x` ^ ~ \\fB - …")]);
    page.line(&[(Font::Roman, "  .x"), (Font::Bold, ".y z")]);
    page.line(&[(Font::Roman, "two\n.lines")]);
    assert_eq!(
        page.finish(),
        ".TH \"A \\(dqB\\(dq\" 1 \"\" \"\" c\n.nh\n.ad l\n\\&.SH it\\(aqs\n\
         \\(aqbr \\(gax\\(ga \\(ha \\(ti \\efB \\- \\[u2026]\n\\&.x\\fB.y\\ z\\fR\ntwo .lines\n"
    );
}

//! The groups of commands in `sessionctl --help`. clap prints all subcommands under one heading, so the list is built here.

use clap::builder::StyledStr;

/// The help of `sessionctl`: clap's own layout, with the groups (`before-help`) in place of the list of commands.
pub(super) const TEMPLATE: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";

/// The headings in order, each with its commands.
pub(super) const GROUPS: [(&str, &[&str]); 6] = [
    ("Talk", &["chat", "send", "attach", "answer", "cancel"]),
    ("Continue", &["continue", "resume"]),
    (
        "Find",
        &[
            "ls",
            "show",
            "history",
            "tree",
            "checkpoints",
            "transcripts",
            "adopt",
        ],
    ),
    (
        "Change",
        &[
            "new", "fork", "edit", "undo", "rename", "mv", "reset", "close", "rm",
        ],
    ),
    (
        "Keep",
        &["keep", "restore", "check", "export", "import", "chain", "lineage"],
    ),
    (
        "Set up",
        &["agents", "doctor", "status", "stop", "demo", "completions", "man"],
    ),
];

/// Lists the commands under their headings, in the styles of the help.
pub(super) fn listing(program: &clap::Command) -> StyledStr {
    let styles = program.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let groups = GROUPS.map(|(heading, names)| {
        let lines = names.iter().map(|name| {
            let about = program.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            format!("\n  {literal}{name:width$}{literal:#}  {about}")
        });
        format!("{header}{heading}:{header:#}{}", lines.collect::<String>())
    });
    groups.join("\n\n").into()
}

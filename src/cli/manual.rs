//! The manual pages, from the one definition of the command lines.
//!
//! It owns which sections a page has and what stands in each. Pure: clap's definition in, roff out. It must not know what
//! a command does; whatever a page says is in the definition, but for the words that bind it together.

mod prose;
mod roff;
mod synopsis;

use std::collections::{BTreeMap, BTreeSet};

use clap::builder::StyledStr;

use prose::{Block, Prose, as_sentence};
use roff::{Font, Roff};

#[cfg(test)]
mod tests;

/// How a page begins to list codes.
const EXIT_CODES: &str = "Exit codes: ";

/// How a sentence begins that tells what a code means for one command. It goes on to the end of its paragraph.
const EXITS: &str = "Exits with ";

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// What it is called: `sessionctl-send`.
    pub(super) name: String,
    /// The text, for `man`.
    pub(super) text: String,
}

impl Page {
    /// The name of its file.
    pub(super) fn file_name(&self) -> String {
        format!("{}.{SECTION}", self.name)
    }
}

/// Commands of users.
const SECTION: &str = "1";

/// A command that has a page.
struct Subject {
    command: clap::Command,
    name: String,
    /// The commands that its own words name, by the names of their pages.
    mentions: BTreeSet<String>,
}

/// All pages of both programs: of each a page of its own, and one of each command.
pub(super) fn pages(commands: clap::Command, daemon: clap::Command) -> Vec<Page> {
    let (commands, daemon) = (built(commands), built(daemon));
    let [main, daemon_name] = [&commands, &daemon].map(|command| command.get_name().to_owned());
    let mut subjects: Vec<Subject> = commands
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .map(|below| Subject::of(format!("{main}-{}", below.get_name()), below.clone()))
        .collect();
    subjects.insert(0, Subject::of(main.clone(), commands));
    subjects.push(Subject::of(daemon_name.clone(), daemon));

    let names: BTreeSet<String> = subjects.iter().map(|subject| subject.name.clone()).collect();
    for subject in &mut subjects {
        subject.mentions = subject.mentions.intersection(&names).cloned().collect();
    }
    let related = related(&subjects, [&main, &daemon_name]);
    subjects
        .iter()
        .map(|subject| Page {
            name: subject.name.clone(),
            text: text(subject, &main, &names, &related[&subject.name]),
        })
        .collect()
}

/// With what clap adds of its own accord, but for `help`.
fn built(command: clap::Command) -> clap::Command {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command
}

/// The pages that each page leads to: the programs, the commands that it names and, so that who is led there finds the way
/// back, those that name it. The page of all commands lists them anyway.
fn related(subjects: &[Subject], programs: [&str; 2]) -> BTreeMap<String, BTreeSet<String>> {
    let mut related: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for subject in subjects {
        related
            .entry(subject.name.clone())
            .or_default()
            .extend(programs.map(str::to_owned));
        if subject.name == programs[0] {
            continue;
        }
        for other in &subject.mentions {
            related
                .entry(subject.name.clone())
                .or_default()
                .insert(other.clone());
            related
                .entry(other.clone())
                .or_default()
                .insert(subject.name.clone());
        }
    }
    for (name, others) in &mut related {
        others.remove(name);
        if name == programs[0] {
            others.retain(|other| other == programs[1]);
        }
    }
    related
}

impl Subject {
    fn of(name: String, command: clap::Command) -> Self {
        let mut words = behind(&command);
        for arg in command.get_arguments().filter(|arg| !arg.is_global_set()) {
            words.push('\n');
            words.push_str(&plain(arg.get_help()));
            for value in arg.get_possible_values() {
                words.push('\n');
                words.push_str(&plain(value.get_help()));
            }
        }
        Self {
            mentions: prose::mentioned(&words),
            command,
            name,
        }
    }

    /// Whether it has commands below it.
    fn is_main(&self) -> bool {
        self.command.has_subcommands()
    }
}

/// What the help says behind the options, as much as there is.
fn behind(command: &clap::Command) -> String {
    plain(command.get_after_long_help().or_else(|| command.get_after_help()))
}

fn plain(text: Option<&StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

fn text(subject: &Subject, main: &str, pages: &BTreeSet<String>, related: &BTreeSet<String>) -> String {
    let command = &subject.command;
    let about = plain(command.get_about());
    let mut page = Roff::new(
        &subject.name,
        SECTION,
        &format!("{} {}", env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")),
        &format!("{} manual", env!("CARGO_PKG_NAME")),
    );
    page.section("NAME");
    let name = format!("{} - {}", subject.name, prose::as_phrase(&about));
    page.line(&[(Font::Roman, name)]);
    page.section("SYNOPSIS");
    synopsis::put(&mut page, command);

    let values = value_names(command);
    let prose = Prose {
        values: &values,
        pages,
    };
    let behind = behind(command);
    let blocks = prose::blocks(&behind);
    page.section("DESCRIPTION");
    prose.put(&mut page, &as_sentence(&about));
    let paragraphs = || {
        blocks.iter().filter_map(|block| match block {
            Block::Paragraph(text) => Some(*text),
            Block::Named { .. } => None,
        })
    };
    for text in paragraphs().filter(|text| !text.starts_with(EXIT_CODES)) {
        let text = text.split(EXITS).next().unwrap_or(text);
        if !text.is_empty() {
            page.paragraph();
            prose.put(&mut page, text);
        }
    }
    if subject.is_main() {
        page.section("COMMANDS");
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            page.tag();
            page.reference(&format!("{main}-{}", below.get_name()), SECTION, "");
            prose.put(&mut page, &as_sentence(&plain(below.get_about())));
        }
    }
    arguments(&mut page, command, &prose);
    page.section("EXIT STATUS");
    match paragraphs().find_map(|text| text.strip_prefix(EXIT_CODES)) {
        Some(codes) => exit_codes(&mut page, codes),
        None => {
            let told = paragraphs().find_map(|text| text.split_once(EXITS));
            if let Some((_, told)) = told {
                prose.put(&mut page, &format!("{EXITS}{told}"));
                page.paragraph();
            }
            page.line(&[(Font::Roman, "All codes are told in")]);
            page.reference(main, SECTION, ".");
        }
    }
    // Examples stand last, as in other manuals.
    for is_last in [false, true] {
        for block in &blocks {
            if let Block::Named { name, lines } = block
                && prose::are_examples(name) == is_last
            {
                page.section(&name.to_uppercase());
                prose.put_block(&mut page, name, lines);
            }
        }
    }
    page.section("SEE ALSO");
    let last = related.len().saturating_sub(1);
    for (at, other) in related.iter().enumerate() {
        page.reference(other, SECTION, if at == last { "" } else { "," });
    }
    page.finish()
}

/// The names that stand for values on this page.
fn value_names(command: &clap::Command) -> BTreeSet<String> {
    // The page of all commands speaks of what they take.
    let commands = std::iter::once(command).chain(command.get_subcommands());
    let args = commands.flat_map(clap::Command::get_arguments);
    args.filter_map(clap::Arg::get_value_names)
        .flatten()
        .flat_map(|name| name.split('|'))
        .map(str::to_owned)
        .collect()
}

/// Positional arguments first, then the options under their headings; help and version are the last.
fn arguments(page: &mut Roff, command: &clap::Command, prose: &Prose<'_>) {
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    let mut sections: Vec<(String, Vec<&clap::Arg>)> = Vec::new();
    let mut put = |heading: &str, arg| match sections.iter_mut().find(|(known, _)| known == heading) {
        Some((_, args)) => args.push(arg),
        None => sections.push((heading.to_owned(), vec![arg])),
    };
    let is_of_clap = |arg: &&clap::Arg| synopsis::is_of_clap(arg);
    for arg in shown().filter(|arg| arg.is_positional()) {
        put("ARGUMENTS", arg);
    }
    let headings = shown().filter_map(|arg| arg.get_help_heading()).last();
    let last = headings.unwrap_or("Options").to_uppercase();
    for arg in shown().filter(|arg| !arg.is_positional() && !is_of_clap(arg)) {
        put(&arg.get_help_heading().unwrap_or("Options").to_uppercase(), arg);
    }
    for arg in shown().filter(is_of_clap) {
        put(&last, arg);
    }
    // The options that every command has come behind its own.
    sections.sort_by_key(|(heading, _)| {
        ["ARGUMENTS", "OPTIONS"]
            .iter()
            .position(|first| first == heading)
            .unwrap_or(2)
    });
    for (heading, args) in sections {
        page.section(&heading);
        for arg in args {
            page.tag();
            page.line(&synopsis::named(arg));
            argument(page, arg, prose);
        }
    }
}

/// What is said of an argument, below its name.
fn argument(page: &mut Roff, arg: &clap::Arg, prose: &Prose<'_>) {
    let help = match arg.get_id().as_str() {
        // Clap's own words tell `-h` and `--help` apart, which lead to the same here.
        "help" => "Print help".to_owned(),
        _ => plain(arg.get_help()),
    };
    let (help, variable) = match help.split_once(" [env: ") {
        Some((help, variable)) => (help.to_owned(), Some(variable.trim_end_matches(']').to_owned())),
        None => (help, None),
    };
    let mut text = as_sentence(&help);
    if let Some(variable) = variable {
        text.push_str(&format!(" The variable `{variable}` says it too."));
    }
    if arg.get_action().takes_values()
        && let [default] = arg.get_default_values()
    {
        text.push_str(&format!(" Unless given it is `{}`.", default.to_string_lossy()));
    }
    let takes_values = arg.get_action().takes_values() && !arg.is_hide_possible_values_set();
    let values = if takes_values {
        arg.get_possible_values()
    } else {
        Vec::new()
    };
    let are_told = values.iter().any(|value| value.get_help().is_some());
    if !values.is_empty() && !are_told {
        let names: Vec<String> = values
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        text.push_str(&format!(" It is one of {}.", names.join(", ")));
    }
    prose.put(page, &text);
    if are_told {
        page.indented(|page| {
            for value in values.iter().filter(|value| !value.is_hide_set()) {
                page.tag();
                page.line(&[(Font::Bold, value.get_name())]);
                prose.put(page, &as_sentence(&plain(value.get_help())));
            }
        });
    }
}

/// The codes, as items.
fn exit_codes(page: &mut Roff, codes: &str) {
    for code in codes.trim_end_matches('.').split(", ") {
        let (code, meaning) = code.split_once(' ').unwrap_or((code, ""));
        page.tag();
        page.line(&[(Font::Bold, code)]);
        page.line(&[(Font::Roman, as_sentence(meaning))]);
    }
}

/// The page of this name, where there is one.
pub(super) fn page(name: &str, commands: clap::Command, daemon: clap::Command) -> Option<Page> {
    pages(commands, daemon).into_iter().find(|page| page.name == name)
}

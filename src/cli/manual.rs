//! The manual pages, generated from the definitions of the command lines.
//!
//! It owns the list of sections. clap_mangen renders them; sections that it does not know are written with the roff crate.
//! Pure: takes a definition, returns roff. All texts come from the definition.

use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::paths::told::{Item, Told};

#[cfg(test)]
mod tests;

/// A program's command line and its help texts.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Commands and options.
    pub command: fn() -> clap::Command,
    /// The texts of the program or the command of this name.
    pub told: fn(&str) -> Told,
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The name, such as `sessionctl-send`.
    pub(super) name: String,
    /// The page as roff.
    pub(super) text: String,
}

impl Page {
    /// The name of the installed file.
    pub(super) fn file_name(&self) -> String {
        format!("{}.{SECTION}", self.name)
    }
}

/// The manual section of user commands.
const SECTION: &str = "1";

/// A no-break space.
const HOLDS: &str = "\u{a0}";

/// Returns the page of this name, if any.
pub(super) fn page(name: &str, programs: [Definition; 2]) -> Option<Page> {
    pages(programs).into_iter().find(|page| page.name == name)
}

/// Returns all pages: one for each program and one for each command.
pub(super) fn pages(programs: [Definition; 2]) -> Vec<Page> {
    let built = programs.map(|program| {
        let mut command = (program.command)().disable_help_subcommand(true);
        command.build();
        (command, program.told)
    });
    let names = built.each_ref().map(|(command, _)| command.get_name().to_owned());
    let mut pages = Vec::new();
    for (program, told) in &built {
        let below = program.get_subcommands().filter(|below| !below.is_hide_set());
        for command in std::iter::once(program).chain(below) {
            let name = command.get_display_name().unwrap_or_else(|| command.get_name());
            let subject = Subject {
                command: &with_headings(command),
                name,
                program: program.get_name(),
                told: told(command.get_name()),
                see_also: names
                    .iter()
                    .map(String::as_str)
                    .filter(|other| *other != name)
                    .collect(),
            };
            pages.push(Page {
                name: name.to_owned(),
                text: subject.text(),
            });
        }
    }
    pages
}

/// Adds the headings of the help, because clap_mangen puts all options under OPTIONS. clap's own options come last.
fn with_headings(command: &clap::Command) -> clap::Command {
    let headings = command.get_arguments().filter_map(clap::Arg::get_help_heading);
    let last = headings.last().unwrap_or("Options").to_owned();
    let command = command.clone().subcommand_help_heading("COMMANDS");
    command.mut_args(|arg| match arg.get_help_heading() {
        Some(_) => arg,
        None if arg.is_positional() => arg.help_heading("Arguments"),
        None if is_of_clap(&arg) => arg.help_heading(last.clone()),
        None => arg.help_heading("Options"),
    })
}

fn is_of_clap(arg: &clap::Arg) -> bool {
    ["help", "version"].contains(&arg.get_id().as_str())
}

/// The subject of a page.
struct Subject<'a> {
    command: &'a clap::Command,
    /// The name of the page.
    name: &'a str,
    /// The program that the command belongs to.
    program: &'a str,
    told: Told,
    /// The pages of the other programs.
    see_also: Vec<&'a str>,
}

impl Subject<'_> {
    #[expect(clippy::expect_used, reason = "memory takes all that is written")]
    fn text(&self) -> String {
        let mut page = Vec::new();
        self.write(&mut page).expect("memory takes all that is written");
        let text = String::from_utf8_lossy(&page);
        // Each part starts with the preamble; keep only one.
        let preamble = Roff::new().render();
        let mut text = format!("{preamble}{}", text.replace(&preamble, ""));
        // roff would replace these characters with ones that a shell does not understand.
        for (sign, shown) in [("~", r"\(ti"), ("^", r"\(ha"), ("`", r"\(ga"), (HOLDS, r"\ ")] {
            text = text.replace(sign, shown);
        }
        text
    }

    fn write(&self, page: &mut Vec<u8>) -> io::Result<()> {
        // The roff crate does not escape the arguments of requests.
        let argument = |text: String| text.replace('-', r"\-");
        let man = Man::new(self.command.clone())
            .title(argument(self.name.to_uppercase()))
            .section(SECTION)
            // An empty date would be omitted, and the next argument would take its place.
            .date("\"\"")
            .source(argument(format!(
                "{} {}",
                env!("CARGO_PKG_NAME"),
                env!("CARGO_PKG_VERSION")
            )))
            .manual(argument(format!("{} manual", env!("CARGO_PKG_NAME"))));
        man.render_title(page)?;
        // Do not hyphenate names or stretch the gaps between words.
        Roff::new()
            .control("nh", [])
            .control("ad", ["l"])
            .to_writer(page)?;
        man.render_name_section(page)?;
        self.synopsis().to_writer(page)?;
        man.render_description_section(page)?;
        paragraphs(&mut Roff::new(), self.told.description).to_writer(page)?;
        let (words, _) = self.after_help();
        let words: Vec<&str> = words
            .split("\n\n")
            .filter(|words| !words.trim().is_empty())
            .collect();
        paragraphs(&mut Roff::new(), &words).to_writer(page)?;
        if self.command.has_subcommands() {
            man.render_subcommands_section(page)?;
        }
        man.render_options_section(page)?;
        self.rest().to_writer(page)
    }

    /// The text after the options of a command whose texts stand beside its arguments, and its examples.
    fn after_help(&self) -> (String, String) {
        let is_told = !(self.told.description.is_empty() && self.told.examples.is_empty());
        let text = self
            .command
            .get_after_help()
            .filter(|_| !is_told && self.told.exits.is_empty());
        let text = text.map(ToString::to_string).unwrap_or_default();
        let (words, examples) = text.split_once("Examples:\n").unwrap_or((&text, ""));
        (words.to_owned(), examples.to_owned())
    }

    /// Writes clap's usage lines, with the command's own options in place of `[OPTIONS]`.
    fn synopsis(&self) -> Roff {
        let mut roff = Roff::new();
        roff.control("SH", ["SYNOPSIS"]);
        let name = self.command.get_bin_name().unwrap_or(self.name);
        let usage = self.command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        let options: String = self
            .command
            .get_arguments()
            .filter(|arg| self.is_in_synopsis(arg, usage))
            .map(|arg| format!(" [{}]", arg.to_string().replace(' ', HOLDS)))
            .collect();
        // One usage line below the other, each starting with the name.
        roff.control("PD", ["0"]);
        for line in usage.lines().map(str::trim) {
            let rest = line.strip_prefix(name).unwrap_or(line);
            let rest = rest.replace(" [OPTIONS]", &options);
            roff.control("TP", [(name.len() + 1).to_string().as_str()]);
            roff.text([bold(name.replace(' ', HOLDS))]);
            if !rest.is_empty() {
                roff.text([roman(rest.trim_start())]);
            }
        }
        roff.control("PD", []);
        roff
    }

    /// Whether to add an option to the synopsis. Global options are only on the program's page, and the usage line already
    /// contains some.
    fn is_in_synopsis(&self, arg: &clap::Arg, usage: &str) -> bool {
        let is_of_all = arg.is_global_set() && !self.command.has_subcommands();
        let mut words = usage.split(|sign: char| !sign.is_alphanumeric() && sign != '-');
        let is_shown = words.any(|word| {
            word.strip_prefix("--")
                .is_some_and(|name| arg.get_long() == Some(name))
        });
        !(arg.is_positional() || arg.is_hide_set() || is_of_clap(arg) || is_of_all || is_shown)
    }

    /// Writes the sections after the options.
    fn rest(&self) -> Roff {
        let mut roff = Roff::new();
        roff.control("SH", ["EXIT STATUS"]);
        if !self.told.exits.is_empty() {
            paragraphs(&mut roff, &[self.told.exits]);
        }
        items(&mut roff, self.told.codes);
        if self.told.codes.is_empty() {
            paragraphs(
                &mut roff,
                &[&format!("See {}({SECTION}) for all exit codes.", self.program)],
            );
        }
        for section in self.told.sections {
            roff.control("SH", [section.heading.to_uppercase().as_str()]);
            for list in section.items {
                items(&mut roff, list);
            }
            paragraphs(&mut roff, section.words);
        }
        let (_, examples) = self.after_help();
        let examples: Vec<&str> = self
            .told
            .examples
            .iter()
            .copied()
            .chain(examples.lines().map(str::trim))
            .collect();
        if !examples.is_empty() {
            roff.control("SH", ["EXAMPLES"]);
            roff.control("RS", ["4"]).control("nf", []);
            for line in examples {
                roff.text([roman(line)]);
            }
            roff.control("fi", []).control("RE", []);
        }
        roff.control("SH", ["SEE ALSO"]);
        for (at, other) in self.see_also.iter().enumerate() {
            let comma = if at + 1 < self.see_also.len() { "," } else { "" };
            roff.text([bold(*other), roman(format!("({SECTION}){comma}"))]);
        }
        roff
    }
}

fn paragraphs<'a>(roff: &'a mut Roff, texts: &[&str]) -> &'a mut Roff {
    for text in texts {
        roff.control("PP", []).text([roman(*text)]);
    }
    roff
}

fn items(roff: &mut Roff, items: &[Item]) {
    for (name, words) in items {
        roff.control("TP", []).text([bold(*name)]).text([roman(*words)]);
    }
}

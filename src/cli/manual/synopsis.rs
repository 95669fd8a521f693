//! How a command is called: clap's own lines of usage, with the options of the command in place of `[OPTIONS]`.

use super::roff::{Font, Parts, Roff};

/// What stands for the options of a command in clap's usage.
const OPTIONS: &str = "[OPTIONS]";

/// A space at which no line is broken.
const HOLDS: &str = "\u{a0}";

/// Writes the lines, each with the name before what follows it.
pub(super) fn put(page: &mut Roff, command: &clap::Command) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let usage = command.clone().render_usage().to_string();
    let lines: Vec<&str> = usage
        .trim_start_matches("Usage: ")
        .lines()
        .map(str::trim)
        .collect();
    for (at, line) in lines.iter().enumerate() {
        if at == 1 {
            page.close_together(true);
        }
        page.tag_of(name.len() + 1);
        page.line(&[(Font::Bold, name)]);
        let rest = line.strip_prefix(name).unwrap_or(line).trim();
        let mut words = Vec::new();
        match rest.split_once(OPTIONS) {
            Some((before, behind)) => {
                words.extend(parts(before));
                for arg in options(command, &usage) {
                    words.push((Font::Roman, " [".to_owned()));
                    words.extend(called(arg, "|"));
                    words.push((Font::Roman, "]".to_owned()));
                }
                words.extend(parts(behind));
            }
            None => words.extend(parts(rest)),
        }
        if command.has_subcommands() {
            words.push((Font::Roman, " ...".to_owned()));
        }
        page.line(&words);
    }
    if lines.len() > 1 {
        page.close_together(false);
    }
}

/// The options that the usage does not show by itself. Those that every command has are on the page of them all.
fn options<'a>(command: &'a clap::Command, usage: &'a str) -> impl Iterator<Item = &'a clap::Arg> {
    command.get_arguments().filter(|arg| {
        let option = arg.get_long().map(|long| format!("--{long}"));
        let mut words = usage.split(|sign: char| !sign.is_alphanumeric() && sign != '-');
        let is_shown = option.is_some_and(|option| words.any(|word| word == option));
        let is_of_all = arg.is_global_set() && !command.has_subcommands();
        let is_left_out = arg.is_positional() || arg.is_hide_set() || is_of_clap(arg);
        !(is_shown || is_of_all || is_left_out)
    })
}

/// Whether clap adds it to every command.
pub(super) fn is_of_clap(arg: &clap::Arg) -> bool {
    ["help", "version"].contains(&arg.get_id().as_str())
}

/// An argument as it is named above what is said of it.
pub(super) fn named(arg: &clap::Arg) -> Parts {
    called(arg, ", ")
}

/// An argument as it is given, with this between its short and its long name.
fn called(arg: &clap::Arg, between: &str) -> Parts {
    let mut parts = Parts::new();
    if let Some(short) = arg.get_short() {
        parts.push((Font::Bold, format!("-{short}")));
    }
    if let Some(long) = arg.get_long() {
        if !parts.is_empty() {
            parts.push((Font::Roman, between.to_owned()));
        }
        parts.push((Font::Bold, format!("--{long}")));
    }
    if !arg.get_action().takes_values() {
        return parts;
    }
    for name in arg.get_value_names().unwrap_or_default() {
        if !parts.is_empty() {
            parts.push((Font::Roman, HOLDS.to_owned()));
        }
        parts.extend(value(name));
    }
    if arg.is_positional() && arg.get_num_args().is_some_and(|count| count.max_values() > 1) {
        parts.push((Font::Roman, "...".to_owned()));
    }
    parts
}

/// The name of a value, which may be one of several.
fn value(name: &str) -> Parts {
    let mut parts = Parts::new();
    for (at, name) in name.split('|').enumerate() {
        if at > 0 {
            parts.push((Font::Roman, "|".to_owned()));
        }
        parts.push((Font::Italic, name.to_owned()));
    }
    parts
}

/// What clap writes, in the letters of a manual. Its angle brackets go: letters tell what stands for a value. Around several
/// of which one is needed there are braces.
fn parts(usage: &str) -> Parts {
    let mut parts = Parts::new();
    let mut rest = usage.trim_end();
    while let Some(first) = rest.chars().next() {
        let (taken, said) = match first {
            '<' => {
                let inner = &rest[1..closing(rest)];
                let said = match inner.contains("--") {
                    true => {
                        let mut said: Parts = vec![(Font::Roman, "{".to_owned())];
                        said.extend(
                            self::parts(inner)
                                .into_iter()
                                .map(|(font, text)| (font, text.replace(' ', HOLDS))),
                        );
                        said.push((Font::Roman, "}".to_owned()));
                        said
                    }
                    false => value(inner),
                };
                (inner.len() + 2, said)
            }
            '-' => {
                let end = rest
                    .find(|sign: char| !sign.is_alphanumeric() && sign != '-')
                    .unwrap_or(rest.len());
                (end, vec![(Font::Bold, rest[..end].to_owned())])
            }
            letter if letter.is_alphanumeric() => {
                let end = rest
                    .find(|sign: char| !sign.is_alphanumeric())
                    .unwrap_or(rest.len());
                (end, vec![(Font::Italic, rest[..end].to_owned())])
            }
            sign => (sign.len_utf8(), vec![(Font::Roman, sign.to_string())]),
        };
        parts.extend(said);
        rest = &rest[taken..];
    }
    parts
}

/// Where the bracket ends with which a text begins.
fn closing(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, sign) in text.char_indices() {
        match sign {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

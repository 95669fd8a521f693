//! What the definition says in words, as a page has it: in blocks and sentences, with names in the letters that they have in
//! manuals.

use std::collections::BTreeSet;

use super::roff::{Font, Parts, Roff};

/// A part of what the help says behind the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Block<'a> {
    /// Sentences.
    Paragraph(&'a str),
    /// What stands indented below a line with a name.
    Named { name: &'a str, lines: Vec<&'a str> },
}

/// The blocks of a text, which stand apart by an empty line.
pub(super) fn blocks(text: &str) -> Vec<Block<'_>> {
    let blocks = text.split("\n\n").filter(|block| !block.trim().is_empty());
    blocks
        .map(|block| match block.split_once(":\n  ") {
            Some((name, lines)) if !name.contains('\n') => Block::Named {
                name,
                // The first is indented as the others are.
                lines: block[block.len() - lines.len() - 2..].lines().collect(),
            },
            _ => Block::Paragraph(block),
        })
        .collect()
}

/// Whether a block of this name has command lines.
pub(super) fn are_examples(name: &str) -> bool {
    name == "Examples"
}

/// The text as a sentence.
pub(super) fn as_sentence(text: &str) -> String {
    let text = text.trim();
    let mut characters = text.chars();
    let first: String = characters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    let end = if text.is_empty() || text.ends_with(['.', '!', '?']) {
        ""
    } else {
        "."
    };
    format!("{first}{}{end}", characters.as_str())
}

/// The text as it stands behind a name.
pub(super) fn as_phrase(text: &str) -> String {
    let mut characters = text.trim().trim_end_matches('.').chars();
    let first: String = characters
        .next()
        .into_iter()
        .flat_map(char::to_lowercase)
        .collect();
    format!("{first}{}", characters.as_str())
}

/// A word without the signs around it, and these.
fn bare(word: &str) -> (&str, &str, &str) {
    let is_sign = |character: char| !character.is_alphanumeric() && !"-_$~/".contains(character);
    let core = word.trim_start_matches(is_sign);
    let before = &word[..word.len() - core.len()];
    let bare = core.trim_end_matches(is_sign);
    (before, bare, &core[bare.len()..])
}

/// A program and its command, as a page of it would be called.
fn page_of(program: &str, command: &str) -> String {
    format!("{program}-{command}")
}

/// Each pair of words that may be a program and its command, as a page of it would be called.
pub(super) fn mentioned(text: &str) -> BTreeSet<String> {
    let words: Vec<&str> = text.split_whitespace().map(|word| bare(word).1).collect();
    words.windows(2).map(|pair| page_of(pair[0], pair[1])).collect()
}

/// How names are told from other words.
pub(super) struct Prose<'a> {
    /// What stands for values on the page.
    pub(super) values: &'a BTreeSet<String>,
    /// The names of all pages.
    pub(super) pages: &'a BTreeSet<String>,
}

impl Prose<'_> {
    /// Writes sentences.
    pub(super) fn put(&self, page: &mut Roff, text: &str) {
        page.line(&self.parts(text));
    }

    /// Options, commands and what stands between backticks are bold, what stands for a value is italic.
    fn parts(&self, text: &str) -> Parts {
        let mut parts = Parts::new();
        for (at, piece) in text.split('`').enumerate() {
            match at % 2 {
                0 => self.words(piece, &mut parts),
                _ => parts.push((Font::Bold, piece.to_owned())),
            }
        }
        parts
    }

    fn words(&self, text: &str, parts: &mut Parts) {
        let mut words = text.split_inclusive(char::is_whitespace).peekable();
        while let Some(word) = words.next() {
            let (before, core, behind) = bare(word);
            let next = words.peek().map(|next| bare(next));
            let command = next.filter(|(_, next, _)| self.pages.contains(&page_of(core, next)));
            let is_option = core.strip_prefix("--").is_some_and(|name| !name.is_empty());
            let said = match command {
                // The name goes on with the next word only where nothing stands between.
                Some((_, command, end)) if behind.trim().is_empty() => {
                    words.next();
                    [
                        (Font::Bold, format!("{core} {command}")),
                        (Font::Roman, end.to_owned()),
                    ]
                }
                _ => {
                    let font = match () {
                        () if is_option || self.pages.contains(core) => Font::Bold,
                        () if self.values.contains(core) => Font::Italic,
                        () => Font::Roman,
                    };
                    [(font, core.to_owned()), (Font::Roman, behind.to_owned())]
                }
            };
            parts.push((Font::Roman, before.to_owned()));
            parts.extend(said);
        }
    }

    /// Writes a block that has a name: command lines as they are, else names with what is said of each, and sentences.
    pub(super) fn put_block(&self, page: &mut Roff, name: &str, lines: &[&str]) {
        if are_examples(name) {
            page.literal(lines.iter().map(|line| line.trim_start()));
            return;
        }
        let mut lines = lines.iter().peekable();
        let mut is_first = true;
        while let Some(line) = lines.next() {
            match lines.next_if(|next| next.starts_with("    ")) {
                Some(words) => {
                    page.tag();
                    page.line(&listed(line.trim()));
                    self.put(page, &as_sentence(words));
                }
                None => {
                    if !is_first {
                        page.paragraph();
                    }
                    self.put(page, line.trim());
                }
            }
            is_first = false;
        }
    }
}

/// Names with commas between.
fn listed(names: &str) -> Parts {
    let mut parts = Parts::new();
    for (at, name) in names.split(", ").enumerate() {
        if at > 0 {
            parts.push((Font::Roman, ", ".to_owned()));
        }
        parts.push((Font::Bold, name.to_owned()));
    }
    parts
}

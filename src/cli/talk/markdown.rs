//! Markdown as it streams, for a terminal.
//!
//! It owns which part of a text can be shown already: whole lines, and of a table all rows at once, since their widths
//! depend on each other. Pure: text in, styled text out. It must not know where the text comes from.

use std::collections::BTreeMap;
use std::mem;

use anstyle::{AnsiColor, Style};
use minimad::{Composite, CompositeStyle, Compound, Line, TableRow};
use unicode_width::UnicodeWidthStr;

use crate::cli::output::{DIM, Look, STRONG, wrapped};

#[cfg(test)]
mod tests;

/// Text that the eye should find as code.
const CODE: Style = AnsiColor::Cyan.on_default();

/// Lines are not made longer than this, because long lines are hard to read.
const MAX_COLUMNS: usize = 100;

/// Stands for a star that styles nothing, which the parser would take away. No text has this character of its own.
const STAR: char = '\u{f8ff}';

/// The state between two pieces of text.
#[derive(Debug)]
pub(super) struct Markdown {
    look: Look,
    /// The text after the last line break.
    partial: String,
    /// The marks that opened the block of code, while in one.
    fence: Option<String>,
    /// The rows of the table that is being read.
    table: Vec<String>,
}

impl Markdown {
    /// Nothing was read yet.
    pub(super) fn new(look: Look) -> Self {
        Self {
            look,
            partial: String::new(),
            fence: None,
            table: Vec::new(),
        }
    }

    /// The line that has not ended yet.
    pub(super) fn partial(&self) -> &str {
        &self.partial
    }

    /// Takes more text; returns the lines that it completes.
    pub(super) fn push(&mut self, text: &str) -> String {
        let lines = take_lines(&mut self.partial, text);
        lines.lines().map(|line| self.line(line)).collect()
    }

    /// Ends the text; returns what has not been shown.
    pub(super) fn end(&mut self) -> String {
        let rest = mem::take(&mut self.partial);
        let mut shown = match rest.is_empty() {
            true => String::new(),
            false => self.line(&rest),
        };
        shown.push_str(&self.end_table());
        self.fence = None;
        shown
    }

    fn line(&mut self, line: &str) -> String {
        if let Some(fence) = &self.fence {
            if line.trim_start().starts_with(fence.as_str()) {
                self.fence = None;
                return self.painted(DIM, line);
            }
            return self.painted(CODE, line);
        }
        if line.starts_with('|') {
            self.table.push(with_plain_stars(line));
            return String::new();
        }
        let mut shown = self.end_table();
        let marks = line.trim_start();
        if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| marks.starts_with(mark)) {
            self.fence = Some(mark.to_owned());
            shown.push_str(&self.painted(DIM, line));
            return shown;
        }
        shown.push_str(&self.text_line(line));
        shown
    }

    fn text_line(&self, line: &str) -> String {
        // Deeper lists are code to the parser, which reads up to three spaces.
        let indent = line.len() - line.trim_start().len();
        let content = with_plain_stars(&line[indent..]);
        let (lead, composite) = match Line::from(content.as_str()) {
            Line::HorizontalRule => {
                return self.painted(DIM, &self.look.sign("─", "-").repeat(self.columns()));
            }
            Line::Normal(composite) => (self.lead(&composite), composite),
            Line::TableRow(_) | Line::TableRule(_) | Line::CodeFence(_) => return format!("{line}\n"),
        };
        let base = match composite.style {
            CompositeStyle::Header(_) => STRONG.underline(),
            CompositeStyle::Quote => DIM,
            _ => Style::new(),
        };
        let lead = format!("{}{lead}", " ".repeat(indent));
        let text = self.inline(&composite, base);
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = format!("{lead}{}", words.join(" "));
        format!("{}\n", wrapped(&text, self.columns(), lead.width()).trim_end())
    }

    /// What stands before the words.
    fn lead(&self, composite: &Composite<'_>) -> String {
        match composite.style {
            CompositeStyle::ListItem(_) => format!("{} ", self.look.sign("•", "*")),
            CompositeStyle::OrderedListItem { index, .. } => format!("{index}. "),
            CompositeStyle::Quote => format!("{} ", self.look.sign("│", "|")),
            _ => String::new(),
        }
    }

    /// Shows the table that has ended, its columns aligned.
    fn end_table(&mut self) -> String {
        let lines = mem::take(&mut self.table);
        let parsed: Vec<Line<'_>> = lines.iter().map(|line| Line::from(line.as_str())).collect();
        let rows = || {
            parsed.iter().filter_map(|line| match line {
                Line::TableRow(TableRow { cells }) => Some(cells),
                _ => None,
            })
        };
        let width = |cell: &Composite<'_>| {
            cell.compounds
                .iter()
                .map(|part| self.text_of(part).width())
                .sum::<usize>()
        };
        let count = rows().map(Vec::len).max().unwrap_or(0);
        let column = |at: usize| rows().filter_map(move |cells| cells.get(at)).map(width).max();
        let widths: Vec<usize> = (0..count).map(|at| column(at).unwrap_or(0)).collect();
        let mut shown = String::new();
        for line in &parsed {
            match line {
                Line::TableRow(TableRow { cells }) => {
                    let cell = |(at, wide): (usize, &usize)| {
                        let text = cells
                            .get(at)
                            .map_or_else(String::new, |cell| self.inline(cell, Style::new()));
                        let used = cells.get(at).map_or(0, width);
                        format!("{text}{}", " ".repeat(wide - used))
                    };
                    let cells: Vec<String> = widths.iter().enumerate().map(cell).collect();
                    let between = format!(" {} ", self.look.sign("│", "|"));
                    shown.push_str(cells.join(&between).trim_end());
                    shown.push('\n');
                }
                _ => {
                    let dashes = |wide: &usize| self.look.sign("─", "-").repeat(*wide);
                    let dashes: Vec<String> = widths.iter().map(dashes).collect();
                    let between = self.look.sign("─┼─", "-+-");
                    shown.push_str(&self.painted(DIM, &dashes.join(between)));
                }
            }
        }
        shown
    }

    fn inline(&self, text: &Composite<'_>, base: Style) -> String {
        let part = |part: &Compound<'_>| self.look.paint(style_of(part, base), &self.text_of(part));
        text.compounds.iter().map(part).collect()
    }

    /// The text of a part. Without colours code keeps its marks.
    fn text_of(&self, part: &Compound<'_>) -> String {
        let text = part.src.replace(STAR, "*");
        match part.code && !self.look.coloured {
            true => format!("`{text}`"),
            false => text,
        }
    }

    fn painted(&self, style: Style, line: &str) -> String {
        match line.is_empty() {
            true => "\n".to_owned(),
            false => format!("{}\n", self.look.paint(style, line)),
        }
    }

    fn columns(&self) -> usize {
        self.look.columns.unwrap_or(MAX_COLUMNS).clamp(20, MAX_COLUMNS)
    }
}

/// Adds text to a line that has not ended, and takes the lines that have.
pub(super) fn take_lines(partial: &mut String, more: &str) -> String {
    partial.push_str(more);
    let whole = partial.rfind('\n').map_or(0, |at| at + 1);
    let rest = partial.split_off(whole);
    mem::replace(partial, rest)
}

fn style_of(part: &Compound<'_>, base: Style) -> Style {
    let mut style = if part.code { CODE } else { base };
    if part.bold {
        style = style.bold();
    }
    if part.italic {
        style = style.italic();
    }
    if part.strikeout {
        style = style.strikethrough();
    }
    style
}

/// The line with [`STAR`] for each star that styles nothing: those that no equal mark after a word closes.
fn with_plain_stars(line: &str) -> String {
    let letters: Vec<char> = line.chars().collect();
    let is_blank = |at: Option<usize>| {
        at.and_then(|at| letters.get(at))
            .is_none_or(|letter| letter.is_whitespace())
    };
    let mut shown = letters.clone();
    // Of each length of mark the one that waits for its end.
    let (mut open, mut is_code, mut at) = (BTreeMap::new(), false, 0);
    while at < letters.len() {
        let length = letters[at..].iter().take_while(|letter| **letter == '*').count();
        is_code ^= letters[at] == '`';
        let (starts, ends) = (!is_blank(Some(at + length)), !is_blank(at.checked_sub(1)));
        let is_bullet = at == 0 && length == 1 && !starts;
        if length > 0 && !is_code && !is_bullet {
            shown[at..at + length].fill(STAR);
            match open.remove(&length).filter(|_| ends) {
                Some(start) => {
                    shown[start..start + length].fill('*');
                    shown[at..at + length].fill('*');
                }
                None if starts => drop(open.insert(length, at)),
                None => {}
            }
        }
        at += length.max(1);
    }
    shown.into_iter().collect()
}

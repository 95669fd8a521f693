//! Markdown as it streams, for a terminal.
//!
//! It owns which part of a text can be shown already: whole lines, and of a table all rows at once, since their widths
//! depend on each other. Pure: text in, styled text out. It must not know where the text comes from.

use std::iter;
use std::mem;
use std::ops::Range;

use anstyle::{AnsiColor, Style};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd, TextMergeWithOffset};
use unicode_width::UnicodeWidthStr;

use crate::cli::output::{DIM, Look, STRONG, width_of, wrap_line};

#[cfg(test)]
mod tests;

/// Text that the eye should find as code.
const CODE: Style = AnsiColor::Cyan.on_default();

/// Lines are not made longer than this, because long lines are hard to read.
const MAX_COLUMNS: usize = 100;

/// What is understood beyond CommonMark.
const EXTENSIONS: Options = Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH);

/// The state between two pieces of text.
#[derive(Debug)]
pub(in crate::cli) struct Markdown {
    look: Look,
    /// The text after the last line break.
    partial: String,
    /// The marks that end the block of code, while in one, after those of the quote that it is in.
    fence: Option<String>,
    /// The lines of the table that is being read.
    table: String,
}

impl Markdown {
    /// Nothing was read yet.
    pub(super) fn new(look: Look) -> Self {
        Self {
            look,
            partial: String::new(),
            fence: None,
            table: String::new(),
        }
    }

    /// The whole of a text, without the end of its last line; as it came where there is no terminal.
    pub(in crate::cli) fn render(text: &str, look: Look) -> String {
        if look.columns.is_none() {
            return text.to_owned();
        }
        let mut markdown = Self::new(look);
        let shown = markdown.push(text) + &markdown.end();
        shown.trim_end_matches('\n').to_owned()
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
            let marks: String = line.split_whitespace().collect();
            let more = marks.strip_prefix(fence.as_str());
            if more.is_some_and(|more| more.chars().all(|mark| fence.ends_with(mark))) {
                self.fence = None;
                return self.painted(DIM, line);
            }
            if marks.starts_with('>') || !fence.starts_with('>') {
                return self.painted(CODE, line);
            }
            // The quote has ended, and its block of code with it.
            self.fence = None;
        }
        if line.trim_start().starts_with('|') {
            self.table.extend([line, "\n"]);
            return String::new();
        }
        self.end_table() + &self.block(line)
    }

    /// Shows the table that has ended.
    fn end_table(&mut self) -> String {
        let lines = mem::take(&mut self.table);
        match lines.is_empty() {
            true => lines,
            false => self.block(&lines),
        }
    }

    /// Shows a line, or lines that may be a table.
    fn block(&mut self, lines: &str) -> String {
        // Deeper lists are code to the parser, which reads up to three spaces.
        let source = lines.trim_start();
        let indent = lines[..lines.len() - source.len()].replace('\t', "    ");
        let mut block = Block::new(self.look, source, &indent);
        for (event, range) in TextMergeWithOffset::new(Parser::new_ext(source, EXTENSIONS).into_offset_iter())
        {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => {
                    self.fence = Some(fence_at(source, range.start));
                    return self.painted(DIM, lines);
                }
                Event::Start(tag) => block.start(&tag, range),
                Event::End(tag) => block.end(tag, range),
                Event::Rule => {
                    let columns = self.columns().saturating_sub(block.prefix.width());
                    block.text = self.look.paint(DIM, &self.look.sign("─", "-").repeat(columns));
                }
                inline => block.inline(&inline),
            }
        }
        let Block {
            prefix: mut lead,
            text,
            rows,
            ..
        } = block;
        if lines.ends_with('\n') {
            return match text.is_empty() {
                true => self.table(&indent, &rows),
                false => lines.lines().map(|line| self.block(line)).collect(),
            };
        }
        let mut text = collapse_spaces(&text);
        // What later links refer to, or marks without words.
        if text.is_empty() && !source.trim_matches(['>', ' ']).is_empty() {
            (lead, text) = (indent, collapse_spaces(source));
        }
        // The bars of a quote stand on each of its lines.
        let further: String = lead
            .chars()
            .map(|sign| if "│|".contains(sign) { sign } else { ' ' })
            .collect();
        let style = match further.trim().is_empty() {
            true => Style::new(),
            false => DIM,
        };
        let leads = iter::once(lead.as_str()).chain(iter::repeat(further.as_str()));
        let lines = styled_lines(&text, self.columns().saturating_sub(lead.width()));
        let lines = leads.zip(&lines).map(|(lead, line)| match line.is_empty() {
            true => format!("{}\n", self.look.paint(style, lead.trim_end())),
            false => format!("{}{line}\n", self.look.paint(style, lead)),
        });
        lines.collect()
    }

    /// Shows the rows of a table, its columns aligned. If it is too wide, the widest columns become narrower, down to their
    /// longest words. If that is not enough, each row is a line of text.
    fn table(&self, indent: &str, rows: &[Vec<String>]) -> String {
        let columns = self.look.columns.unwrap_or(MAX_COLUMNS);
        let bar = self.look.sign(" │ ", " | ");
        let (mut widths, mut words) = (Vec::new(), Vec::new());
        for row in rows {
            widths.resize(row.len().max(widths.len()), 0);
            words.resize(widths.len(), 0);
            for (at, cell) in row.iter().enumerate() {
                widths[at] = width_of(cell).max(widths[at]);
                words[at] = cell.split(' ').map(width_of).fold(words[at], usize::max);
            }
        }
        let taken = indent.width() + bar.width() * widths.len().saturating_sub(1);
        let Some(widths) = narrow_columns(widths, &words, columns.saturating_sub(taken)) else {
            let rows = rows.iter().map(|row| format!("{indent}{}", row.join(bar)));
            let rows = rows.map(|row| format!("{}\n", wrap_line(&row, columns, indent.width() + 2)));
            return rows.collect();
        };
        let dashes = widths.iter().map(|width| self.look.sign("─", "-").repeat(*width));
        let rule = dashes.collect::<Vec<_>>().join(self.look.sign("─┼─", "-+-"));
        let mut rows = rows.iter().map(|row| {
            let cells = row.iter().zip(&widths);
            let cells: Vec<_> = cells.map(|(cell, width)| styled_lines(cell, *width)).collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(0);
            let lines = (0..height).map(|at| {
                let cells = cells.iter().zip(&widths).map(|(lines, width)| {
                    let line = lines.get(at).map_or("", String::as_str);
                    format!("{line}{}", " ".repeat(width.saturating_sub(width_of(line))))
                });
                format!("{indent}{}\n", cells.collect::<Vec<_>>().join(bar).trim_end())
            });
            lines.collect::<String>()
        });
        let head = rows.next().unwrap_or_default() + indent + &self.painted(DIM, &rule);
        rows.fold(head, |shown, row| shown + &row)
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

/// What the parser has said of a line, or of the lines of a table.
struct Block<'source> {
    look: Look,
    source: &'source str,
    /// What stands before the text; on its further lines only the bars of quotes.
    prefix: String,
    text: String,
    /// The styles of the marks that have not ended.
    styles: Vec<Style>,
    /// Where in the text each open link begins, and its address.
    links: Vec<(usize, String)>,
    rows: Vec<Vec<String>>,
    row: Vec<String>,
    /// Where in the source the last cell of the row ends.
    row_end: usize,
}

impl<'source> Block<'source> {
    fn new(look: Look, source: &'source str, indent: &str) -> Self {
        Self {
            look,
            source,
            prefix: indent.to_owned(),
            text: String::new(),
            styles: vec![Style::new()],
            links: Vec::new(),
            rows: Vec::new(),
            row: Vec::new(),
            row_end: 0,
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    /// One tilde is more often a home folder than a mark.
    fn is_struck(&self, range: &Range<usize>) -> bool {
        self.source[range.clone()].starts_with("~~")
    }

    fn start(&mut self, tag: &Tag<'_>, range: Range<usize>) {
        let style = self.style();
        self.styles.push(match tag {
            Tag::Heading { .. } => STRONG.underline(),
            Tag::BlockQuote(_) => {
                self.prefix.push_str(self.look.sign("│ ", "| "));
                DIM
            }
            Tag::Item => {
                let mark = self.source[range].split_whitespace().next().unwrap_or_default();
                let is_number = mark.len() > 1;
                let mark = if is_number {
                    mark
                } else {
                    self.look.sign("•", "*")
                };
                self.prefix.extend([mark, " "]);
                style
            }
            Tag::Strong => style.bold(),
            Tag::Emphasis => style.italic(),
            Tag::Strikethrough if self.is_struck(&range) => style.strikethrough(),
            Tag::Strikethrough => {
                self.text.push('~');
                style
            }
            Tag::Link { dest_url, title, .. } | Tag::Image { dest_url, title, .. } => {
                let address = self.look.sanitize(format!("{dest_url} {title}").trim());
                self.links.push((self.text.len(), address));
                style
            }
            _ => style,
        });
    }

    fn end(&mut self, tag: TagEnd, range: Range<usize>) {
        self.styles.pop();
        match tag {
            TagEnd::Strikethrough if !self.is_struck(&range) => self.text.push('~'),
            TagEnd::Link | TagEnd::Image => {
                let (start, address) = self.links.pop().unwrap_or_default();
                match anstream::adapter::strip_str(&self.text[start..]).to_string() {
                    said if said == address => {}
                    said if said.is_empty() => self.text.push_str(&address),
                    _ => self.text.extend([" (", &address, ")"]),
                }
            }
            TagEnd::TableCell => {
                self.row.push(collapse_spaces(&mem::take(&mut self.text)));
                self.row_end = range.end;
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                // The parser drops cells beyond those of the head.
                let excess = self.source.get(self.row_end..range.end).unwrap_or_default();
                let excess = excess.trim_matches(|letter: char| letter == '|' || letter.is_whitespace());
                self.row
                    .extend(Some(excess.to_owned()).filter(|excess| !excess.is_empty()));
                self.rows.push(mem::take(&mut self.row));
            }
            _ => {}
        }
    }

    fn inline(&mut self, event: &Event<'_>) {
        let style = self.style();
        match event {
            // An entity can stand for a control character.
            Event::Text(part) | Event::Html(part) | Event::InlineHtml(part) => {
                let part = self.look.sanitize(part);
                self.text.push_str(&self.look.paint(style, &part));
            }
            // Without colours code keeps its marks.
            Event::Code(code) if !self.look.coloured => self.text.extend(["`", code, "`"]),
            Event::Code(code) => {
                let style = style.fg_color(CODE.get_fg_color());
                self.text.push_str(&self.look.paint(style, code));
            }
            _ => self.text.push(' '),
        }
    }
}

/// The marks that end the block of code which begins there, after those of the quotes before it.
fn fence_at(source: &str, start: usize) -> String {
    let (before, fence) = source.split_at(start);
    let quotes = before.chars().filter(|letter| *letter == '>');
    let marks = fence.chars().take_while(|letter| fence.starts_with(*letter));
    quotes.chain(marks).collect()
}

/// Adds text to a line that has not ended, and takes the lines that have.
pub(super) fn take_lines(partial: &mut String, more: &str) -> String {
    partial.push_str(more);
    let whole = partial.rfind('\n').map_or(0, |at| at + 1);
    let rest = partial.split_off(whole);
    mem::replace(partial, rest)
}

/// The widths of columns that fit into this room together, each at least as wide as its longest word; nothing if none do.
fn narrow_columns(mut widths: Vec<usize>, words: &[usize], room: usize) -> Option<Vec<usize>> {
    while widths.iter().sum::<usize>() > room {
        let wider = widths
            .iter_mut()
            .zip(words)
            .filter(|(width, word)| **width > **word);
        let (widest, _) = wider.max_by_key(|(width, _)| **width)?;
        *widest -= 1;
    }
    Some(widths)
}

/// Breaks a line between words. Styles end with each line and begin again on the next, so that what stands between has its own.
fn styled_lines(text: &str, columns: usize) -> Vec<String> {
    let mut open = String::new();
    let lines = wrap_line(text, columns, 0);
    let lines = lines.trim_end().split('\n').map(|line| {
        let mut shown = format!("{open}{line}");
        for sequence in line.split('\x1b').skip(1) {
            let end = sequence.find('m').map_or(sequence.len(), |at| at + 1);
            match &sequence[..end] {
                "[0m" => open.clear(),
                style => open.extend(["\x1b", style]),
            }
        }
        if !open.is_empty() {
            shown.push_str("\x1b[0m");
        }
        shown
    });
    lines.collect()
}

fn collapse_spaces(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

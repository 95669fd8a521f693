//! Renders Markdown for a terminal while it streams.
//!
//! It owns which part of a text can be shown already: whole lines, but all rows of a table at once, since their widths
//! depend on each other. Pure: text in, styled text out. It must not know where the text comes from.

use std::iter;
use std::mem;
use std::ops::Range;

use anstyle::{AnsiColor, Style};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, Options, Parser, Tag, TagEnd, TextMergeWithOffset};
use unicode_width::UnicodeWidthStr;

use crate::cli::output::{DIM, Look, STRONG, width_of, wrap_line};

#[cfg(test)]
mod tests;

/// The style of code.
const CODE: Style = AnsiColor::Cyan.on_default();

/// The maximum width of lines, because longer lines are hard to read.
const MAX_COLUMNS: usize = 100;

/// The supported extensions of CommonMark.
const EXTENSIONS: Options = Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH);

/// A renderer with its state between two pieces of text.
#[derive(Debug, Default)]
pub(in crate::cli) struct Markdown {
    look: Look,
    /// The text after the last line break.
    partial: String,
    /// While in a block of code, the marks that end it, after the marks of the quote that contains it.
    fence: Option<String>,
    /// The lines of the table that is being read.
    table: String,
}

impl Markdown {
    /// Creates a renderer without text.
    pub(super) fn new(look: Look) -> Self {
        Self {
            look,
            ..Self::default()
        }
    }

    /// Renders a whole text, without its last line break. If the output is not a terminal, returns the text unchanged.
    pub(in crate::cli) fn render(text: &str, look: Look) -> String {
        if look.columns.is_none() {
            return text.to_owned();
        }
        let mut markdown = Self::new(look);
        let shown = markdown.push(text) + &markdown.end();
        shown.trim_end_matches('\n').to_owned()
    }

    /// The last line, which is not complete yet.
    pub(super) fn partial(&self) -> &str {
        &self.partial
    }

    /// Adds text; returns the lines that it completes.
    pub(super) fn push(&mut self, text: &str) -> String {
        let lines = take_lines(&mut self.partial, text);
        lines.lines().map(|line| self.line(line)).collect()
    }

    /// Ends the text; returns the rest that was not shown yet.
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
            // The quote has ended, which also ends its block of code.
            self.fence = None;
        }
        if line.trim_start().starts_with('|') {
            self.table.extend([line, "\n"]);
            return String::new();
        }
        self.end_table() + &self.block(line)
    }

    /// Renders the table, which is complete now.
    fn end_table(&mut self) -> String {
        let lines = mem::take(&mut self.table);
        match lines.is_empty() {
            true => lines,
            false => self.block(&lines),
        }
    }

    /// Renders a line, or several lines that may be a table.
    fn block(&mut self, lines: &str) -> String {
        // Remove the indent: the parser takes lines indented by more than three spaces as code, also those of nested lists.
        let source = without_break_mark(lines.trim_start());
        let indent = lines[..lines.len() - lines.trim_start().len()].replace('\t', "    ");
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
            alignments,
            ..
        } = block;
        if lines.ends_with('\n') {
            return match text.is_empty() {
                true => self.table(&indent, &rows, &alignments),
                false => lines.lines().map(|line| self.block(line)).collect(),
            };
        }
        let mut text = collapse_spaces(&text);
        // A link definition, or marks without text.
        if text.is_empty() && !source.trim_matches(['>', ' ']).is_empty() {
            (lead, text) = (indent, collapse_spaces(source));
        }
        // Each line of a quote begins with its bars.
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

    /// Renders the rows of a table with aligned columns. If the table is too wide, the widest columns are narrowed, down to
    /// their longest words. If that is not enough, each row becomes a line of text.
    fn table(&self, indent: &str, rows: &[Vec<String>], alignments: &[Alignment]) -> String {
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
                let cells = cells
                    .iter()
                    .zip(&widths)
                    .enumerate()
                    .map(|(column, (lines, width))| {
                        let line = lines.get(at).map_or("", String::as_str);
                        let room = width.saturating_sub(width_of(line));
                        let before = match alignments.get(column) {
                            Some(Alignment::Right) => room,
                            Some(Alignment::Center) => room / 2,
                            _ => 0,
                        };
                        format!("{}{line}{}", " ".repeat(before), " ".repeat(room - before))
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

/// The parser's result for a line, or for the lines of a table.
#[derive(Default)]
struct Block<'source> {
    look: Look,
    source: &'source str,
    /// The text before the first line; further lines have only the bars of quotes.
    prefix: String,
    text: String,
    /// The styles of the open marks.
    styles: Vec<Style>,
    /// The position in the text where each open link begins, and its address.
    links: Vec<(usize, String)>,
    /// How the columns of the table are aligned.
    alignments: Vec<Alignment>,
    rows: Vec<Vec<String>>,
    row: Vec<String>,
    /// The position in the source where the last cell of the row ends.
    row_end: usize,
}

impl<'source> Block<'source> {
    fn new(look: Look, source: &'source str, indent: &str) -> Self {
        Self {
            look,
            source,
            prefix: indent.to_owned(),
            ..Self::default()
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    /// Whether this range is struck through with two tildes. A single tilde more often means a home folder.
    fn is_struck(&self, range: &Range<usize>) -> bool {
        self.source[range.clone()].starts_with("~~")
    }

    fn start(&mut self, tag: &Tag<'_>, range: Range<usize>) {
        let style = self.style();
        if let Tag::Table(alignments) = tag {
            self.alignments.clone_from(alignments);
        }
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
                // The parser drops cells if a row has more of them than the header.
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
            // An entity can encode a control character.
            Event::Text(part) | Event::Html(part) | Event::InlineHtml(part) => {
                let part = self.look.sanitize(part);
                self.text.push_str(&self.look.paint(style, &part));
            }
            // Without colours, code keeps its backticks.
            Event::Code(code) if !self.look.coloured => self.text.extend(["`", code, "`"]),
            Event::Code(code) => {
                let style = style.fg_color(CODE.get_fg_color());
                self.text.push_str(&self.look.paint(style, code));
            }
            _ => self.text.push(' '),
        }
    }
}

/// The line without the backslash that marks a line break at its end. A path with several backslashes is not changed.
fn without_break_mark(line: &str) -> &str {
    let last = line.rsplit(' ').next().unwrap_or_default();
    let is_mark = last.matches('\\').count() == 1 && !last.ends_with(":\\") && last.len() < line.len();
    line.strip_suffix('\\').filter(|_| is_mark).unwrap_or(line)
}

/// The marks that end the block of code that begins at `start`, after the marks of the quotes that contain it.
fn fence_at(source: &str, start: usize) -> String {
    let (before, fence) = source.split_at(start);
    let quotes = before.chars().filter(|letter| *letter == '>');
    let marks = fence.chars().take_while(|letter| fence.starts_with(*letter));
    quotes.chain(marks).collect()
}

/// Adds text to an incomplete line, and removes and returns the complete lines.
pub(super) fn take_lines(partial: &mut String, more: &str) -> String {
    partial.push_str(more);
    let whole = partial.rfind('\n').map_or(0, |at| at + 1);
    let rest = partial.split_off(whole);
    mem::replace(partial, rest)
}

/// Narrows columns until they fit into `room`, each at least as wide as its longest word. Returns `None` if that is impossible.
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

/// Breaks a line between words. Styles end with each line and begin again on the next, so that text between the lines is not
/// styled.
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

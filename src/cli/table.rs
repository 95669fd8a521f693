//! Lists as tables: aligned columns with headers on a terminal, tab-separated lines elsewhere.
//!
//! It owns which columns fit and where a line is cut. It must not know what is listed.

use anstyle::Style;
use comfy_table::{
    Attribute, Cell as Column, CellAlignment, Color, ColumnConstraint, Row, Table as Layout, Width,
};
use unicode_width::UnicodeWidthStr;

use super::output::{ATTENTION, BAD, DIM, GOOD, Look, STRONG, one_line};

#[cfg(test)]
mod tests;

/// The least width of the last column. Optional columns are left out until it has that much.
const LEAST_COLUMNS: usize = 24;

/// The space between two columns.
const GAP: u16 = 2;

/// A cell: its text and its style.
pub(super) type Cell = (String, Style);

/// A cell without a style.
pub(super) fn plain(text: impl Into<String>) -> Cell {
    (text.into(), Style::new())
}

/// A dimmed cell.
pub(super) fn dim(text: impl Into<String>) -> Cell {
    (text.into(), DIM)
}

/// A list. The header of an optional column ends in `?`: it is left out if the terminal is too narrow, the last one first.
/// A header that begins with `>` aligns to the right. The last column is cut to the terminal's width, no other is cut.
pub(super) struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty list with these headers.
    pub(super) fn new(headers: &[&str]) -> Self {
        Self {
            headers: headers.iter().map(|header| (*header).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, one cell for each header.
    pub(super) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into().into_iter();
        self.rows
            .push(cells.map(|(text, style)| (one_line(&text), style)).collect());
    }

    /// The lines as they are printed: on a terminal the headers are the first line.
    pub(super) fn lines(&self, look: Look) -> Vec<String> {
        match look.columns {
            _ if self.rows.is_empty() => Vec::new(),
            Some(columns) => self.laid_out(columns, look),
            None => self.tab_separated(),
        }
    }

    fn tab_separated(&self) -> Vec<String> {
        let line = |row: &Vec<Cell>| {
            let cells: Vec<&str> = row.iter().map(|(text, _)| text.as_str()).collect();
            cells.join("\t")
        };
        self.rows.iter().map(line).collect()
    }

    fn laid_out(&self, columns: usize, look: Look) -> Vec<String> {
        let shown = self.that_fit(columns);
        let mut layout = Layout::new();
        layout
            .load_style(comfy_table::presets::NOTHING)
            .set_truncation_indicator(look.sign("…", "~"))
            .force_no_tty();
        if look.coloured {
            crossterm::style::force_color_output(true);
            layout.enforce_styling().style_text_only();
        }
        let row = |cell: &dyn Fn(usize) -> Column| {
            let mut row = Row::from(shown.iter().map(|index| cell(*index)));
            row.max_height(1);
            row
        };
        layout.set_header(row(&|index| laid_out(&dim(self.name(index)))));
        for cells in &self.rows {
            layout.add_row(row(&|index| laid_out(&cells[index])));
        }
        let last = shown.len().saturating_sub(1);
        let taken: usize = shown[..last].iter().map(|index| self.width(*index)).sum();
        for (position, column) in layout.column_iter_mut().enumerate() {
            column.set_padding((0, if position == last { 0 } else { GAP }));
            if self.headers[shown[position]].starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if position == last {
                let room = columns.saturating_sub(taken).max(1);
                let room = u16::try_from(room).unwrap_or(u16::MAX);
                column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(room)));
                // Cut at the character, not at the word.
                column.set_delimiter('\0');
            }
        }
        layout.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// The columns for which there is room.
    fn that_fit(&self, columns: usize) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.headers.len()).collect();
        let least = |shown: &[usize]| {
            let [fixed @ .., last] = shown else { return 0 };
            let taken: usize = fixed.iter().map(|index| self.width(*index)).sum();
            let last = self.width(*last).saturating_sub(usize::from(GAP));
            taken + last.min(LEAST_COLUMNS)
        };
        while least(&shown) > columns {
            match shown
                .iter()
                .rposition(|index| self.headers[*index].ends_with('?'))
            {
                Some(position) => shown.remove(position),
                None => break,
            };
        }
        shown
    }

    /// The header as it is shown.
    fn name(&self, index: usize) -> &str {
        self.headers[index].trim_matches(['>', '?'])
    }

    /// The width of a column with the gap after it.
    fn width(&self, index: usize) -> usize {
        let header = self.name(index).width();
        let cells = self.rows.iter().map(|row| row[index].0.width());
        cells.max().unwrap_or_default().max(header) + usize::from(GAP)
    }
}

/// A cell in the words of the layout.
fn laid_out((text, style): &Cell) -> Column {
    let cell = Column::new(text);
    match *style {
        DIM => cell.add_attribute(Attribute::Dim),
        STRONG => cell.add_attribute(Attribute::Bold),
        GOOD => cell.fg(Color::DarkGreen),
        BAD => cell.fg(Color::DarkRed),
        ATTENTION => cell.fg(Color::DarkYellow),
        _ => cell,
    }
}

//! Lists as tables: aligned columns with headers on a terminal, tab-separated lines elsewhere.
//!
//! It owns which columns fit and where a line is cut. It must not know what is listed.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::output::{DIM, Look, cut, cut_middle, one_line};

/// The least width of the last column. Optional columns are left out until it has that much.
const LEAST_COLUMNS: usize = 24;

/// The space between two columns.
const GAP: usize = 2;

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
/// A header that begins with `>` aligns to the right, and one that begins with `/` is of what loses its middle where there is no
/// room, such as paths. The last column is cut to the terminal's width, no other is cut.
pub(super) struct Table {
    headers: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty list with these headers.
    pub(super) fn new(headers: &'static [&'static str]) -> Self {
        Self {
            headers,
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
        let Some(columns) = look.columns else {
            let texts = |row: &Vec<Cell>| row.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>();
            return self.rows.iter().map(|row| texts(row).join("\t")).collect();
        };
        if self.rows.is_empty() {
            return Vec::new();
        }
        let mut widths: Vec<(usize, usize)> = (0..self.headers.len())
            .map(|index| (index, self.width(index)))
            .collect();
        self.leave_out(&mut widths, columns);
        self.narrow(&mut widths, columns);
        let headers = (0..self.headers.len()).map(|index| dim(self.name(index)));
        let headers: Vec<Cell> = headers.collect();
        let rows = std::iter::once(&headers).chain(&self.rows);
        rows.map(|row| self.line(row, &widths, columns, look)).collect()
    }

    /// A row with these columns, each an index and its width.
    fn line(&self, row: &[Cell], widths: &[(usize, usize)], columns: usize, look: Look) -> String {
        let (mut line, mut taken) = (String::new(), 0);
        for (place, (index, width)) in widths.iter().enumerate() {
            let (text, style) = &row[*index];
            let is_last = place + 1 == widths.len();
            let text = match self.is_path(*index) {
                true => cut_middle(text, *width, look),
                false if is_last => cut(text, columns.saturating_sub(taken).max(1), look),
                false => text.clone(),
            };
            let space = " ".repeat(width.saturating_sub(text.width()));
            let text = look.paint(*style, &text);
            line.push_str(&match self.headers[*index].starts_with('>') {
                true => space + &text,
                false => text + &space,
            });
            line.push_str(&" ".repeat(GAP));
            taken += width + GAP;
        }
        line.trim_end().to_owned()
    }

    /// Takes out optional columns until the last one has room.
    fn leave_out(&self, widths: &mut Vec<(usize, usize)>, columns: usize) {
        let least = |(index, width): &(usize, usize)| match self.is_path(*index) {
            true => (*width).min(LEAST_COLUMNS),
            false => *width,
        };
        while let [fixed @ .., (_, last)] = widths.as_slice()
            && fixed.iter().map(|column| least(column) + GAP).sum::<usize>() + (*last).min(LEAST_COLUMNS)
                > columns
            && let Some(place) = widths
                .iter()
                .rposition(|(index, _)| self.headers[*index].ends_with('?'))
        {
            widths.remove(place);
        }
    }

    /// Narrows the columns of paths until the line fits.
    fn narrow(&self, widths: &mut [(usize, usize)], columns: usize) {
        let gaps = GAP * widths.len().saturating_sub(1);
        let (mut paths, others): (Vec<_>, Vec<_>) =
            widths.iter_mut().partition(|(index, _)| self.is_path(*index));
        let taken: usize = others.iter().map(|(_, width)| width).sum();
        let mut room = columns.saturating_sub(gaps + taken);
        // What a short one does not need is left to the long ones.
        paths.sort_unstable_by_key(|(_, width)| *width);
        let count = paths.len();
        for (place, (index, width)) in paths.into_iter().enumerate() {
            *width = (*width)
                .min(room / (count - place))
                .max(self.name(*index).width());
            room = room.saturating_sub(*width);
        }
    }

    fn is_path(&self, index: usize) -> bool {
        self.headers[index].starts_with('/')
    }

    /// The header as it is shown.
    fn name(&self, index: usize) -> &'static str {
        self.headers[index].trim_matches(['>', '/', '?'])
    }

    /// The width of a column.
    fn width(&self, index: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[index].0.width());
        cells.max().unwrap_or_default().max(self.name(index).width())
    }
}

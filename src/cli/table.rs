//! Formats lists as tables: aligned columns with headers on a terminal, tab-separated lines elsewhere.
//!
//! It owns which columns fit and where a line is cut. It must not know what is listed.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::output::{DIM, Look, one_line, truncate, truncate_middle, wrap_clauses};

/// The minimum width of the last column. Optional columns are omitted until it has this width.
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

/// A column of a list.
pub(super) struct Column {
    header: &'static str,
    layout: Layout,
    is_optional: bool,
}

/// How a column is laid out.
#[derive(PartialEq)]
enum Layout {
    Left,
    Right,
    /// Its middle is cut out if it does not fit.
    Path,
    /// Continues on further lines if it is the last column.
    Clauses,
}

impl Column {
    const fn new(header: &'static str, layout: Layout) -> Self {
        Self {
            header,
            layout,
            is_optional: false,
        }
    }

    /// Makes the column optional: it is omitted if the terminal is too narrow, the last such column first.
    pub(super) const fn optional(self) -> Self {
        Self {
            is_optional: true,
            ..self
        }
    }
}

/// A left-aligned column.
pub(super) const fn left(header: &'static str) -> Column {
    Column::new(header, Layout::Left)
}

/// A right-aligned column.
pub(super) const fn right(header: &'static str) -> Column {
    Column::new(header, Layout::Right)
}

/// A column whose cells, such as paths, lose their middle if they do not fit.
pub(super) const fn path(header: &'static str) -> Column {
    Column::new(header, Layout::Path)
}

/// A column of lists of clauses, which continue on further lines if it is the last column.
pub(super) const fn wrapped(header: &'static str) -> Column {
    Column::new(header, Layout::Clauses)
}

/// A list. Only the last column is cut to the terminal's width.
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Creates an empty list with these columns.
    pub(super) fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self {
            columns: columns.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, one cell for each column.
    pub(super) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into().into_iter();
        self.rows
            .push(cells.map(|(text, style)| (one_line(&text), style)).collect());
    }

    /// The lines to print. On a terminal, the headers are the first line.
    pub(super) fn lines(&self, look: Look) -> Vec<String> {
        let Some(columns) = look.columns else {
            let texts = |row: &Vec<Cell>| row.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>();
            return self.rows.iter().map(|row| texts(row).join("\t")).collect();
        };
        if self.rows.is_empty() {
            return Vec::new();
        }
        let mut widths: Vec<(usize, usize)> = (0..self.columns.len())
            .map(|index| (index, self.width(index)))
            .collect();
        self.omit_columns(&mut widths, columns);
        self.narrow(&mut widths, columns);
        let headers: Vec<Cell> = self.columns.iter().map(|column| dim(column.header)).collect();
        let rows = std::iter::once(&headers).chain(&self.rows);
        rows.flat_map(|row| self.row_lines(row, &widths, columns, look))
            .collect()
    }

    /// Renders a row with these columns, each an index and a width: one line, and further lines on which the last cell
    /// continues.
    fn row_lines(&self, row: &[Cell], widths: &[(usize, usize)], columns: usize, look: Look) -> Vec<String> {
        let (mut line, mut taken, mut further) = (String::new(), 0, Vec::new());
        for (place, (index, width)) in widths.iter().enumerate() {
            let (text, style) = &row[*index];
            let is_last = place + 1 == widths.len();
            let room = columns.saturating_sub(taken).max(1);
            let text = match self.is_path(*index) {
                true => truncate_middle(text, *width, look),
                false if is_last && self.columns[*index].layout == Layout::Clauses => {
                    let mut lines = wrap_clauses(text, room).into_iter();
                    let first = lines.next().unwrap_or_default();
                    further = lines.collect();
                    first
                }
                false if is_last => truncate(text, room, look),
                false => text.clone(),
            };
            let space = " ".repeat(width.saturating_sub(text.width()));
            let text = look.paint(*style, &text);
            line.push_str(&match self.columns[*index].layout == Layout::Right {
                true => space + &text,
                false => text + &space,
            });
            line.push_str(&" ".repeat(GAP));
            if is_last {
                let indent = " ".repeat(taken);
                let further = further
                    .iter()
                    .map(|text| indent.clone() + &look.paint(*style, text));
                return std::iter::once(line.trim_end().to_owned())
                    .chain(further)
                    .collect();
            }
            taken += width + GAP;
        }
        Vec::new()
    }

    /// Removes optional columns until the last one has room.
    fn omit_columns(&self, widths: &mut Vec<(usize, usize)>, columns: usize) {
        let least = |(index, width): &(usize, usize)| match self.is_path(*index) {
            true => (*width).min(LEAST_COLUMNS),
            false => *width,
        };
        while let [fixed @ .., (_, last)] = widths.as_slice()
            && fixed.iter().map(|column| least(column) + GAP).sum::<usize>() + (*last).min(LEAST_COLUMNS)
                > columns
            && let Some(place) = widths
                .iter()
                .rposition(|(index, _)| self.columns[*index].is_optional)
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
        // Begin with the shortest, so that the room it does not need is available for longer ones.
        paths.sort_unstable_by_key(|(_, width)| *width);
        let count = paths.len();
        for (place, (index, width)) in paths.into_iter().enumerate() {
            *width = (*width)
                .min(room / (count - place))
                .max(self.columns[*index].header.width());
            room = room.saturating_sub(*width);
        }
    }

    fn is_path(&self, index: usize) -> bool {
        self.columns[index].layout == Layout::Path
    }

    /// The width of a column.
    fn width(&self, index: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[index].0.width());
        cells
            .max()
            .unwrap_or_default()
            .max(self.columns[index].header.width())
    }
}

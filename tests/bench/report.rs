//! The table at the end.

use std::fmt::Write as _;
use std::io::Write as _;

use crate::Outcome;

/// The most that a figure may be, or the least.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// Not more than this.
    AtMost(f64),
    /// Not less.
    AtLeast(f64),
    /// None was set.
    Unset,
}

/// One measured thing.
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// The daemon's figure.
    pub(crate) ours: f64,
    /// The same without a daemon, measured in this run.
    pub(crate) floor: Option<f64>,
    /// What is demanded.
    pub(crate) limit: Limit,
    /// The unit of all of them.
    pub(crate) unit: &'static str,
    /// What else is to be said: the spread, other programs' figures.
    pub(crate) note: String,
}

/// What has been measured so far.
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// An empty table.
    pub(crate) fn begin() -> Self {
        Self { rows: Vec::new() }
    }

    /// Tells whoever waits what goes on.
    pub(crate) fn working_on(&self, scenario: &str) {
        complain(&format!("measuring {scenario} …"));
    }

    /// Adds a figure.
    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Whether a limit was passed.
    pub(crate) fn any_over(&self) -> bool {
        self.rows.iter().any(|row| !row.is_kept())
    }

    /// Writes the table to standard output.
    pub(crate) fn print(&self) -> Outcome<()> {
        let head = ["measured", "ours", "floor", "limit", "", "note"].map(str::to_owned);
        let mut lines = vec![head];
        lines.extend(self.rows.iter().map(Row::cells));
        let mut widths = [0; 6];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for line in &lines {
            let cells: Vec<String> = line
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            writeln!(text, "{}", cells.join("  ").trim_end())?;
        }
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(())
    }
}

impl Row {
    fn is_kept(&self) -> bool {
        match self.limit {
            Limit::AtMost(most) => self.ours <= most,
            Limit::AtLeast(least) => self.ours >= least,
            Limit::Unset => true,
        }
    }

    fn cells(&self) -> [String; 6] {
        let figure = |value: f64| match value {
            value if value >= 1_000.0 => format!("{value:.0} {}", self.unit),
            value if value >= 10.0 => format!("{value:.1} {}", self.unit),
            value => format!("{value:.2} {}", self.unit),
        };
        let (limit, verdict) = match self.limit {
            Limit::AtMost(most) => (format!("≤ {}", figure(most)), self.verdict()),
            Limit::AtLeast(least) => (format!("≥ {}", figure(least)), self.verdict()),
            Limit::Unset => (String::new(), ""),
        };
        [
            self.what.clone(),
            figure(self.ours),
            self.floor.map(figure).unwrap_or_default(),
            limit,
            verdict.to_owned(),
            self.note.clone(),
        ]
    }

    fn verdict(&self) -> &'static str {
        if self.is_kept() { "ok" } else { "OVER" }
    }
}

/// A line to standard error.
pub(crate) fn complain(what: &(impl std::fmt::Display + ?Sized)) {
    // Nobody is left to tell when this fails.
    let _unwritten = writeln!(std::io::stderr().lock(), "{what}");
}

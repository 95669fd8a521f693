//! The table of results.

use std::fmt::Write as _;
use std::io::Write as _;

use crate::Outcome;

/// The limit of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// The maximum.
    AtMost(f64),
    /// The minimum.
    AtLeast(f64),
    /// No limit.
    Unset,
}

/// A row of the table.
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// The figure with the daemon.
    pub(crate) ours: f64,
    /// The figure without a daemon, measured in the same run.
    pub(crate) floor: Option<f64>,
    /// The limit.
    pub(crate) limit: Limit,
    /// The unit of the figures.
    pub(crate) unit: &'static str,
    /// Further remarks, for example the spread or the figures of other programs.
    pub(crate) note: String,
}

/// The rows measured so far.
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Starts an empty table.
    pub(crate) fn begin() -> Self {
        Self { rows: Vec::new() }
    }

    /// Prints which scenario is running.
    pub(crate) fn working_on(&self, scenario: &str) {
        complain(&format!("measuring {scenario} …"));
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Whether a limit was exceeded.
    pub(crate) fn any_over(&self) -> bool {
        self.rows.iter().any(|row| !row.is_kept())
    }

    /// Prints the table to stdout.
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

/// Prints a line to stderr.
pub(crate) fn complain(what: &(impl std::fmt::Display + ?Sized)) {
    // If this fails, there is no other place to report it.
    let _unwritten = writeln!(std::io::stderr().lock(), "{what}");
}

//! A terminal's screen: what the user sees after all control sequences have been applied.

use std::collections::BTreeSet;
use std::mem;

use vte::{Params, Parser, Perform};

/// The number of rows of the terminals in these tests.
pub(crate) const ROWS: usize = 24;

/// Marks a line that was wrapped because it was too long for the terminal.
const TOO_LONG: char = '⏎';

/// The screen, including everything that has scrolled off it.
pub(crate) struct Screen {
    parser: Parser,
    cells: Cells,
}

/// The style of a character.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Look {
    /// Indexed by the code that sets the style, for example 1 for bold.
    styles: [bool; 8],
    /// The code of the colour, or 0 for the default.
    colour: u16,
}

/// The names of the styles and their codes.
const STYLES: [(usize, &str); 5] = [
    (1, "bold"),
    (2, "dim"),
    (3, "italic"),
    (4, "underlined"),
    (7, "reversed"),
];

#[derive(Default)]
struct Cells {
    columns: usize,
    lines: Vec<Vec<(char, Look)>>,
    look: Look,
    /// Rows that continue the previous row, because the line was too long.
    continued: BTreeSet<usize>,
    row: usize,
    column: usize,
    saved: (usize, usize),
    answers: String,
}

impl Screen {
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            parser: Parser::new(),
            cells: Cells {
                columns,
                lines: vec![Vec::new()],
                ..Cells::default()
            },
        }
    }

    /// Processes a program's output. Returns the terminal's answers to questions in it.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> String {
        self.parser.advance(&mut self.cells, bytes);
        mem::take(&mut self.cells.answers)
    }

    /// The visible text, without spaces at the ends of lines and without empty lines at its end.
    pub(crate) fn text(&self) -> String {
        let lines = self
            .cells
            .lines
            .iter()
            .map(|line| line.iter().map(|(letter, _)| letter).collect::<String>());
        joined(lines)
    }

    /// The visible text with each wrapped line joined to one line, as a terminal copies it, and [`TOO_LONG`]
    /// at its end.
    pub(crate) fn whole_lines(&self) -> String {
        joined(
            self.whole()
                .map(|line| line.iter().map(|(letter, _)| letter).collect()),
        )
    }

    /// The same as [`Self::whole_lines`], with `{bold red}` where a style begins and `{/}` where it ends.
    pub(crate) fn painted(&self) -> String {
        joined(self.whole().map(|line| {
            let (mut text, mut before) = (String::new(), Look::default());
            let end = line
                .iter()
                .rposition(|(letter, _)| *letter != ' ')
                .map_or(0, |at| at + 1);
            for (letter, look) in &line[..end] {
                if *look != before {
                    let end = if before == Look::default() { "" } else { "{/}" };
                    text.push_str(&format!("{end}{}", look.mark()));
                    before = *look;
                }
                text.push(*letter);
            }
            if before != Look::default() {
                text.push_str("{/}");
            }
            text
        }))
    }

    /// The lines, each joined with its continuation.
    fn whole(&self) -> impl Iterator<Item = Vec<(char, Look)>> {
        let mut whole: Vec<Vec<(char, Look)>> = Vec::new();
        for (row, line) in self.cells.lines.iter().enumerate() {
            match whole.last_mut() {
                Some(last) if self.cells.continued.contains(&row) => {
                    last.retain(|(letter, _)| *letter != TOO_LONG);
                    last.extend(line);
                    last.push((TOO_LONG, Look::default()));
                }
                _ => whole.push(line.clone()),
            }
        }
        whole.into_iter()
    }
}

/// Joins lines, without spaces at their ends and without empty lines at the end.
fn joined(lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    format!("{}\n", lines.join("\n").trim_end())
}

impl Look {
    /// Applies the codes of a control sequence.
    fn set(&mut self, codes: &[u16]) {
        for code in codes {
            match code {
                0 => *self = Self::default(),
                1..=7 => self.styles[usize::from(*code)] = true,
                22 => self.styles[1..=2].fill(false),
                23..=27 => self.styles[usize::from(*code - 20)] = false,
                30..=37 | 90..=97 => self.colour = *code,
                39 => self.colour = 0,
                // A colour given by number; the number is the last code.
                38 => {
                    self.colour = *codes.last().unwrap_or(code);
                    return;
                }
                _ => {}
            }
        }
    }

    fn mark(self) -> String {
        let colour = match self.colour {
            0 => String::new(),
            31 => "red".to_owned(),
            32 => "green".to_owned(),
            33 => "yellow".to_owned(),
            34 => "blue".to_owned(),
            35 => "magenta".to_owned(),
            36 => "cyan".to_owned(),
            other => format!("colour {other}"),
        };
        let styles = STYLES.iter().filter(|(code, _)| self.styles[*code]);
        let names = styles
            .map(|(_, name)| *name)
            .chain((!colour.is_empty()).then_some(colour.as_str()));
        let names: Vec<&str> = names.collect();
        match names.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", names.join(" ")),
        }
    }
}

impl Cells {
    /// The index of the first line on the screen.
    fn top(&self) -> usize {
        self.lines.len().saturating_sub(ROWS)
    }

    fn go_to(&mut self, row: usize, column: usize) {
        self.row = row;
        self.column = column;
        while self.lines.len() <= row {
            self.lines.push(Vec::new());
        }
    }
}

impl Perform for Cells {
    fn print(&mut self, letter: char) {
        if self.column >= self.columns {
            self.go_to(self.row + 1, 0);
            self.continued.insert(self.row);
        }
        let line = &mut self.lines[self.row];
        while line.len() <= self.column {
            line.push((' ', Look::default()));
        }
        line[self.column] = (letter, self.look);
        self.column += 1;
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => self.go_to(self.row + 1, self.column),
            b'\r' => self.column = 0,
            0x08 => self.column = self.column.saturating_sub(1),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _: bool, action: char) {
        let given: Vec<usize> = params.iter().map(|param| usize::from(param[0])).collect();
        let count = given.first().copied().unwrap_or(0);
        let many = count.max(1);
        match action {
            _ if !intermediates.is_empty() => {}
            'A' => self.row = self.row.saturating_sub(many).max(self.top()),
            'B' => self.go_to(self.row + many, self.column),
            'C' => self.column = (self.column + many).min(self.columns - 1),
            'D' => self.column = self.column.saturating_sub(many),
            'E' => self.go_to(self.row + many, 0),
            'G' => self.column = many - 1,
            'H' | 'f' => {
                let column = given.get(1).copied().unwrap_or(1).max(1);
                self.go_to(self.top() + many - 1, column - 1);
            }
            'J' if count == 0 => {
                self.lines[self.row].truncate(self.column);
                self.lines.truncate(self.row + 1);
                self.continued.retain(|row| *row <= self.row);
            }
            'K' => match count {
                0 => self.lines[self.row].truncate(self.column),
                _ => self.lines[self.row].clear(),
            },
            'm' => {
                let codes: Vec<u16> = params.iter().flatten().copied().collect();
                self.look.set(if codes.is_empty() { &[0] } else { &codes });
            }
            'n' if count == 6 => {
                let (row, column) = (self.row - self.top() + 1, self.column + 1);
                self.answers.push_str(&format!("\x1b[{row};{column}R"));
            }
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, _: &[u8], _: bool, byte: u8) {
        match byte {
            b'7' => self.saved = (self.row, self.column),
            b'8' => self.go_to(self.saved.0, self.saved.1),
            _ => {}
        }
    }
}

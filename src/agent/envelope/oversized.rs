//! Finds the owner of a line that is too long to buffer.
//!
//! [`IdScanner`] gets the bytes as they pass and stores a few bounded values: the top-level `id` and `method`, and
//! `params.sessionId`. It never fails. In text that is not a JSON object, it finds nothing.

use super::MAX_DEPTH;
use crate::transcript::fields::Json;
use crate::transcript::scan::{Filter, Grammar, PruneTable, Pruner, Scanned};

/// The longest id, method or session id that is stored, in bytes as written without quotes. Ids are numbers or UUIDs, so
/// this program never sends a longer one.
const MAX_ID_BYTES: usize = 256;

const ID: Filter = Filter::whole(MAX_ID_BYTES);

/// The values to extract from a line.
static TABLE: PruneTable = PruneTable {
    grammar: Grammar::JavaScript,
    record: Filter::object(&[
        ("id", ID),
        ("method", ID),
        ("params", Filter::object(&[("sessionId", ID)])),
    ]),
};

/// What was found in a skipped line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OversizedLineIds {
    /// The id as written; a string has its quotes.
    pub id: Option<String>,
    /// The method's name.
    pub method: Option<String>,
    /// `params.sessionId`.
    pub session_id: Option<String>,
}

impl OversizedLineIds {
    /// Scans a whole line. `None` if it has none of the values.
    #[must_use]
    pub fn in_line(line: &[u8]) -> Option<Self> {
        let mut scanner = IdScanner::default();
        scanner.feed(line);
        Some(scanner.finish()).filter(|found| *found != Self::default())
    }
}

/// A streaming scanner with bounded state; see the module's documentation.
#[derive(Debug)]
pub struct IdScanner(Pruner);

impl Default for IdScanner {
    /// Creates a scanner at the beginning of a line.
    fn default() -> Self {
        Self(Pruner::new(&TABLE))
    }
}

impl IdScanner {
    /// Scans the next bytes of the line, in pieces of any size.
    pub fn feed(&mut self, bytes: &[u8]) {
        // Each level that is open takes memory.
        if self.0.depth() <= MAX_DEPTH {
            self.0.feed(bytes);
        }
    }

    /// Ends the line and returns what was found.
    #[must_use]
    pub fn finish(mut self) -> OversizedLineIds {
        let Scanned::Record(record) = self.0.finish() else {
            return OversizedLineIds::default();
        };
        let fields = record.fields();
        let is_id =
            |id: &&str| id.starts_with(['"', '-']) || id.starts_with(|first: char| first.is_ascii_digit());
        let id = fields.raw("id").map(Json::get).filter(is_id);
        OversizedLineIds {
            id: id.map(str::to_owned),
            method: fields.text("method"),
            session_id: fields
                .object("params")
                .and_then(|params| params.text("sessionId")),
        }
    }
}

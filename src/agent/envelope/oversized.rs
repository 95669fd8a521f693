//! Finds the owner of a line that is too long to hold.
//!
//! [`IdScanner`] gets the bytes as they pass and keeps a few bounded values: the top-level `id` and `method`, and
//! `params.sessionId`. It expects JSON and never fails. For other input it finds nothing, or values that match
//! nothing.

/// The longest id, method or session id that is kept, in bytes as written. Ids are numbers or UUIDs; a longer one is
/// not ours.
pub const MAX_ID_BYTES: usize = 256;

/// The longest key that is compared, in bytes as written: the longest known key with every letter as a Unicode escape
/// of six bytes.
const MAX_KEY_BYTES: usize = 64;

/// What was found in a skipped line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Oversized {
    /// The id as written; a string has its quotes.
    pub id: Option<String>,
    /// The method's name.
    pub method: Option<String>,
    /// `params.sessionId`.
    pub session_id: Option<String>,
}

/// The level whose keys are being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Top,
    Params,
}

/// A value to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Id,
    Method,
    SessionId,
}

/// The part of the line that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing of interest.
    Elsewhere,
    /// Before a possible key.
    BeforeKey,
    /// Inside a key.
    InKey,
    /// After a key, before its colon.
    BeforeColon,
    /// After the colon of a wanted key, or inside its value.
    InValue(Wanted),
}

/// A streaming scanner with bounded state; see the module's documentation.
#[derive(Debug)]
pub struct IdScanner {
    depth: usize,
    in_string: bool,
    after_backslash: bool,
    place: Place,
    top_is_object: bool,
    /// The second level is the object that the top-level key `params` holds.
    inside_params: bool,
    last_top_key_is_params: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    found: Oversized,
}

impl Default for IdScanner {
    fn default() -> Self {
        Self::new()
    }
}

impl IdScanner {
    /// Creates a scanner at the beginning of a line.
    #[must_use]
    pub fn new() -> Self {
        Self {
            depth: 0,
            in_string: false,
            after_backslash: false,
            place: Place::Elsewhere,
            top_is_object: false,
            inside_params: false,
            last_top_key_is_params: false,
            key: Vec::new(),
            value: Vec::new(),
            found: Oversized::default(),
        }
    }

    /// Scans the next bytes of the line, in pieces of any size.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.in_string && !self.after_backslash && self.place == Place::Elsewhere {
                // A line is nearly always too long because of one long string that is not needed.
                match memchr::memchr2(b'"', b'\\', bytes) {
                    None => return,
                    Some(0) => {}
                    Some(skipped) => {
                        bytes = bytes.get(skipped..).unwrap_or_default();
                        continue;
                    }
                }
            }
            self.step(first);
            bytes = rest;
        }
    }

    /// Ends the line and returns what was found.
    #[must_use]
    pub fn finish(self) -> Oversized {
        self.found
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.step_in_string(byte);
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if self.place == Place::BeforeKey {
                    self.place = Place::InKey;
                    self.key.clear();
                }
                self.keep(byte);
            }
            b'{' | b'[' => self.open(byte == b'{'),
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
                if self.depth < 2 {
                    self.inside_params = false;
                }
                self.place = Place::Elsewhere;
            }
            b',' => {
                self.end_value();
                self.place = if self.level().is_some() {
                    Place::BeforeKey
                } else {
                    Place::Elsewhere
                };
            }
            b':' if self.place == Place::BeforeColon => {
                self.place = self.wanted().map_or(Place::Elsewhere, Place::InValue);
                self.value.clear();
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.keep(byte),
        }
    }

    fn step_in_string(&mut self, byte: u8) {
        self.keep(byte);
        if self.after_backslash {
            self.after_backslash = false;
        } else if byte == b'\\' {
            self.after_backslash = true;
        } else if byte == b'"' {
            self.in_string = false;
            if self.place == Place::InKey {
                self.place = Place::BeforeColon;
                if self.level() == Some(Level::Top) {
                    self.last_top_key_is_params = self.key_is("params");
                }
            }
        }
    }

    fn open(&mut self, is_object: bool) {
        self.depth = self.depth.saturating_add(1);
        match self.depth {
            1 => self.top_is_object = is_object,
            2 => {
                self.inside_params = self.top_is_object && is_object && self.last_top_key_is_params;
                if self.inside_params {
                    // A second `params` replaces the first one.
                    self.found.session_id = None;
                }
            }
            _ => {}
        }
        self.place = if self.level().is_some() {
            Place::BeforeKey
        } else {
            Place::Elsewhere
        };
    }

    /// The level of the innermost open container, if its keys matter.
    fn level(&self) -> Option<Level> {
        match self.depth {
            1 if self.top_is_object => Some(Level::Top),
            2 if self.inside_params => Some(Level::Params),
            _ => None,
        }
    }

    fn wanted(&self) -> Option<Wanted> {
        match self.level()? {
            Level::Top if self.key_is("id") => Some(Wanted::Id),
            Level::Top if self.key_is("method") => Some(Wanted::Method),
            Level::Params if self.key_is("sessionId") => Some(Wanted::SessionId),
            Level::Top | Level::Params => None,
        }
    }

    fn key_is(&self, name: &str) -> bool {
        self.key.len() <= MAX_KEY_BYTES && text_of(&self.key).is_some_and(|key| key == name)
    }

    /// Keeps a byte of a key or a wanted value. Keeps one byte more than the limit, to detect that it was exceeded.
    fn keep(&mut self, byte: u8) {
        match self.place {
            Place::InKey if self.key.len() <= MAX_KEY_BYTES => self.key.push(byte),
            Place::InValue(_) if self.value.len() <= MAX_ID_BYTES => self.value.push(byte),
            _ => {}
        }
    }

    fn end_value(&mut self) {
        let Place::InValue(wanted) = self.place else {
            return;
        };
        let fits = !self.value.is_empty() && self.value.len() <= MAX_ID_BYTES;
        let value = if fits {
            String::from_utf8(std::mem::take(&mut self.value)).ok()
        } else {
            None
        };
        match wanted {
            Wanted::Id => self.found.id = value,
            Wanted::Method => self.found.method = value.and_then(|raw| text_of(raw.as_bytes())),
            Wanted::SessionId => self.found.session_id = value.and_then(|raw| text_of(raw.as_bytes())),
        }
    }
}

/// Decodes a JSON string with its quotes.
fn text_of(raw: &[u8]) -> Option<String> {
    super::decode_string(std::str::from_utf8(raw).ok()?).map(std::borrow::Cow::into_owned)
}

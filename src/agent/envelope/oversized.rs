//! Finding who a line belongs to when the line is too long to hold.
//!
//! [`IdScanner`] is fed the bytes as they pass and keeps only a few bounded values: the top-level `id` and `method`,
//! and `params.sessionId`. It trusts its input to be JSON and never fails; on anything else it finds nothing, or
//! something that no one waits for.

/// Longest id, method or session id that is kept, in bytes as written. Ids are numbers or UUIDs; a longer one is not
/// ours.
pub const MAX_ID_BYTES: usize = 256;

/// Longest key that is compared, in bytes as written: the longest known one, every letter as a Unicode escape of six.
const MAX_KEY_BYTES: usize = 64;

/// What could be learnt of a line that was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Oversized {
    /// The id as written, a string with its quotes.
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

/// A value that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Id,
    Method,
    SessionId,
}

/// What the bytes that arrive now belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing that matters.
    Elsewhere,
    /// Where a key may start.
    BeforeKey,
    /// Inside a key.
    InKey,
    /// Behind a key, before its colon.
    BeforeColon,
    /// Behind the colon of a wanted key, or inside its value.
    InValue(Wanted),
}

/// A streaming scanner with bounded state; see the module.
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
    /// A scanner at the beginning of a line.
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

    /// The next bytes of the line, in pieces of any size.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.in_string && !self.after_backslash && self.place == Place::Elsewhere {
                // What makes a line too long is nearly always one string that nobody looks at.
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

    /// The line has ended: what was found.
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
                    // A second `params` replaces the first one as a whole.
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

    /// The level of the container that is open now, where its keys matter.
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

    /// Keeps a byte of a key or a wanted value; one more than the limit is kept, to know that it was passed.
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

/// The text of a JSON string given with its quotes.
fn text_of(raw: &[u8]) -> Option<String> {
    super::decode_string(std::str::from_utf8(raw).ok()?).map(std::borrow::Cow::into_owned)
}

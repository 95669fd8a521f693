//! Finds the top-level `id` of a JSON object that streams past and is never held.
//!
//! Pure. Bounded: it keeps the id itself, up to a limit, and a few counters. It does not check the JSON; what it
//! returns is only used to address an error.

use jsonrpsee::types::Id;
use memchr::memchr2;
use serde_json::value::RawValue;

/// The longest id that is echoed; longer ones are answered as `null`. Ids are counters or UUIDs.
const ID_LIMIT_BYTES: usize = 1024;

/// A streaming scanner; see [`IdScanner::feed`].
#[derive(Debug, Default)]
pub(super) struct IdScanner {
    place: Place,
    /// The bytes of the id, quotes included.
    id: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Place {
    #[default]
    BeforeObject,
    BeforeKey,
    /// In a key of the object: how many bytes of it were seen, and whether they are those of `id` so far.
    InKey {
        length: usize,
        is_id: bool,
        escaped: bool,
    },
    AfterKey {
        is_id: bool,
    },
    BeforeValue {
        is_id: bool,
    },
    InIdText {
        escaped: bool,
    },
    InIdScalar,
    /// In a value that is not the id, outside of a string; `depth` counts the brackets that it opened.
    InValue {
        depth: u64,
    },
    InValueText {
        depth: u64,
        escaped: bool,
    },
    Found,
    Lost,
}

impl IdScanner {
    /// Takes the next bytes of the line.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut index = 0;
        while let Some(&byte) = bytes.get(index) {
            match self.place {
                Place::Found | Place::Lost => return,
                // Long texts are what makes lines long: they are skipped without looking at each byte.
                Place::InValueText {
                    depth,
                    escaped: false,
                } => {
                    let Some(offset) = memchr2(b'"', b'\\', &bytes[index..]) else {
                        return;
                    };
                    index += offset;
                    self.place = if bytes[index] == b'"' {
                        Place::InValue { depth }
                    } else {
                        Place::InValueText { depth, escaped: true }
                    };
                }
                place => self.place = self.after(place, byte),
            }
            index += 1;
        }
    }

    /// The id, if it was found and is one.
    pub(super) fn finish(self) -> Option<Box<RawValue>> {
        if !matches!(self.place, Place::Found) {
            return None;
        }
        let text = String::from_utf8(self.id).ok()?;
        serde_json::from_str::<Id<'_>>(&text).ok()?;
        RawValue::from_string(text).ok()
    }

    fn after(&mut self, place: Place, byte: u8) -> Place {
        match place {
            Place::BeforeObject if byte == b'{' => Place::BeforeKey,
            Place::BeforeKey if byte == b'"' => Place::InKey {
                length: 0,
                is_id: true,
                escaped: false,
            },
            Place::BeforeKey if byte == b',' => Place::BeforeKey,
            Place::InKey {
                escaped: false,
                length,
                is_id,
            } => match byte {
                b'"' => Place::AfterKey {
                    is_id: is_id && length == 2,
                },
                b'\\' => Place::InKey {
                    length,
                    is_id: false,
                    escaped: true,
                },
                byte => Place::InKey {
                    length: length.saturating_add(1),
                    is_id: is_id && b"id".get(length) == Some(&byte),
                    escaped: false,
                },
            },
            Place::InKey {
                escaped: true,
                length,
                ..
            } => Place::InKey {
                length,
                is_id: false,
                escaped: false,
            },
            Place::AfterKey { is_id } if byte == b':' => Place::BeforeValue { is_id },
            Place::BeforeObject | Place::BeforeKey | Place::AfterKey { .. } | Place::BeforeValue { .. }
                if byte.is_ascii_whitespace() =>
            {
                place
            }
            Place::BeforeValue { is_id: true } => match byte {
                b'{' | b'[' => Place::Lost,
                b'"' => self.keep(byte, Place::InIdText { escaped: false }),
                _ => self.keep(byte, Place::InIdScalar),
            },
            Place::BeforeValue { is_id: false } => Self::in_value(0, byte),
            Place::InIdText { escaped: true } => self.keep(byte, Place::InIdText { escaped: false }),
            Place::InIdText { escaped: false } => match byte {
                b'"' => self.keep(byte, Place::Found),
                byte => self.keep(
                    byte,
                    Place::InIdText {
                        escaped: byte == b'\\',
                    },
                ),
            },
            Place::InIdScalar if byte == b',' || byte == b'}' || byte.is_ascii_whitespace() => Place::Found,
            Place::InIdScalar => self.keep(byte, Place::InIdScalar),
            Place::InValue { depth } => Self::in_value(depth, byte),
            Place::InValueText { depth, escaped: true } => Place::InValueText {
                depth,
                escaped: false,
            },
            // The object is over without an id, or this is not an object at all.
            _ => Place::Lost,
        }
    }

    fn in_value(depth: u64, byte: u8) -> Place {
        match (byte, depth) {
            (b'"', _) => Place::InValueText {
                depth,
                escaped: false,
            },
            (b'{' | b'[', _) => Place::InValue { depth: depth + 1 },
            (b'}' | b']', 0) => Place::Lost,
            (b'}' | b']', _) => Place::InValue { depth: depth - 1 },
            (b',', 0) => Place::BeforeKey,
            _ => Place::InValue { depth },
        }
    }

    fn keep(&mut self, byte: u8, next: Place) -> Place {
        if self.id.len() == ID_LIMIT_BYTES {
            return Place::Lost;
        }
        self.id.push(byte);
        next
    }
}

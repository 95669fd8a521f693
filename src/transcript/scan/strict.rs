//! Checks strings as strictly as `serde_json`: UTF-8, and surrogates only in pairs.
//!
//! Keeps the state between one piece of a string and the next. Pure.

/// The first code unit of each kind of surrogate, and the first one after them.
const HIGH: u16 = 0xD800;
const LOW: u16 = 0xDC00;
const BEHIND: u16 = 0xE000;

/// The state of the string that is being read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StringValidator {
    /// The beginning of a character that continues in the next piece.
    tail: [u8; 4],
    tail_bytes: usize,
    /// The code unit whose digits are being read.
    unit: u16,
    /// Whether the first half of a pair was read, so that the second must follow.
    expects_low_surrogate: bool,
}

impl StringValidator {
    /// Adds unescaped bytes. Returns whether they are valid.
    pub(super) fn plain(&mut self, mut bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        if self.expects_low_surrogate {
            return false;
        }
        if self.tail_bytes == 0 && bytes.is_ascii() {
            return true;
        }
        while self.tail_bytes > 0 {
            let Some((&byte, rest)) = bytes.split_first() else {
                return true;
            };
            bytes = rest;
            let Some(slot) = self.tail.get_mut(self.tail_bytes) else {
                return false;
            };
            *slot = byte;
            self.tail_bytes += 1;
            let tail = self.tail.get(..self.tail_bytes).unwrap_or_default();
            match std::str::from_utf8(tail) {
                Ok(_) => self.tail_bytes = 0,
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        let Err(error) = std::str::from_utf8(bytes) else {
            return true;
        };
        let tail = bytes.get(error.valid_up_to()..).unwrap_or_default();
        self.tail_bytes = tail.len();
        match self.tail.get_mut(..tail.len()) {
            Some(slot) if error.error_len().is_none() => slot.copy_from_slice(tail),
            _ => return false,
        }
        true
    }

    /// Whether a run of unescaped bytes may end here, at a quote or a backslash.
    pub(super) fn ends_run(&self) -> bool {
        self.tail_bytes == 0
    }

    /// Whether the string may end here, or continue with an escape that is not a code unit.
    pub(super) fn may_end(&self) -> bool {
        self.tail_bytes == 0 && !self.expects_low_surrogate
    }

    /// Adds a digit of a code unit.
    pub(super) fn digit(&mut self, digit: u8) {
        let value = char::from(digit).to_digit(16).unwrap_or(0);
        self.unit = self.unit << 4 | u16::try_from(value).unwrap_or(0);
    }

    /// Ends a code unit. Returns whether it is valid here.
    pub(super) fn ends_unit(&mut self) -> bool {
        let unit = std::mem::take(&mut self.unit);
        let was_half = std::mem::replace(&mut self.expects_low_surrogate, (HIGH..LOW).contains(&unit));
        was_half == (LOW..BEHIND).contains(&unit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether the string is accepted in pieces of this size.
    fn is_taken(bytes: &[u8], piece: usize) -> bool {
        let mut strict = StringValidator::default();
        bytes.chunks(piece).all(|piece| strict.plain(piece)) && strict.may_end()
    }

    proptest! {
        #[test]
        fn bytes_are_taken_when_they_are_utf8(
            text in "[a\u{e9}\u{20ac}\u{1f600}]{0,6}",
            bad in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            piece in 1usize..9,
        ) {
            let mut bytes = text.into_bytes();
            if let Some((place, byte)) = bad {
                let place = place.index(bytes.len() + 1);
                bytes.insert(place, byte);
            }
            prop_assert_eq!(is_taken(&bytes, piece), std::str::from_utf8(&bytes).is_ok());
        }

        #[test]
        fn units_are_taken_when_surrogates_are_paired(units in prop::collection::vec(prop::sample::select(vec![
            0x41_u16, 0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000,
        ]), 0..5)) {
            let mut strict = StringValidator::default();
            let taken = units.iter().all(|unit| {
                for digit in format!("{unit:04x}").bytes() {
                    strict.digit(digit);
                }
                strict.ends_unit()
            });
            prop_assert_eq!(taken && strict.may_end(), String::from_utf16(&units).is_ok());
        }
    }
}

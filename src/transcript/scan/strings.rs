//! The bytes of JSON strings: where their plain text ends, and the beginnings of those that matter.

use std::borrow::Cow;

use crate::transcript::fields::lenient_text;
use crate::transcript::lines::text_of_same_length;

/// How many bytes there are before the first that is not plain text of a string: a quote, a backslash or a control
/// character.
#[inline]
pub(super) fn special(bytes: &[u8]) -> usize {
    let mut at = 0;
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let found = specials(u64::from_le_bytes(*word));
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + tail
        .iter()
        .position(|byte| is_special(*byte))
        .unwrap_or(tail.len())
}

/// As [`special`], and goes over escapes of two characters too.
#[inline]
pub(super) fn unfinished(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        at += special(&bytes[at..]);
        match bytes.get(at..at + 2) {
            Some([b'\\', escaped]) if IS_ESCAPE[*escaped as usize] => at += 2,
            _ => return at,
        }
    }
}

/// The characters that may stand behind a backslash and need nothing more.
static IS_ESCAPE: [bool; 256] = {
    let mut table = [false; 256];
    let escapes = br#""\\/bfnrt"#;
    let mut at = 0;
    while at < escapes.len() {
        table[escapes[at] as usize] = true;
        at += 1;
    }
    table
};

fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// The high bit of the lowest byte that is special is set; those below it are not, those above may be wrong.
fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let quote = zero(word ^ (ONES * b'"' as u64));
    let backslash = zero(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (quote | backslash | control) & HIGH
}

/// A string as it stands between its quotes, up to a limit.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Held {
    bytes: Vec<u8>,
    limit_bytes: usize,
    has_escapes: bool,
    is_cut: bool,
}

impl Held {
    /// Begins with a string, of which this much is held.
    pub(super) fn begin(&mut self, limit_bytes: usize) {
        self.bytes.clear();
        self.limit_bytes = limit_bytes;
        self.has_escapes = false;
        self.is_cut = false;
    }

    pub(super) fn clear(&mut self) {
        self.begin(0);
    }

    /// Whether no more is held of the string.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.limit_bytes == self.bytes.len()
    }

    /// Goes over some of the string without holding it.
    #[inline]
    pub(super) fn skip(&mut self, bytes: usize) {
        self.is_cut |= bytes > 0;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = self.limit_bytes - self.bytes.len();
        if room == 0 || bytes.len() > room {
            self.is_cut |= !bytes.is_empty();
            self.bytes.extend_from_slice(&bytes[..room.min(bytes.len())]);
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    pub(super) fn push_escaped(&mut self, bytes: &[u8]) {
        self.has_escapes = true;
        self.push(bytes);
    }

    /// The text, or as much of it as is held.
    pub(in crate::transcript) fn prefix(&self) -> String {
        match self.text() {
            Some(text) => text.into_owned(),
            None => String::from_utf8_lossy(&self.beginning()).into_owned(),
        }
    }

    /// The whole text; none when it was longer than what is held.
    pub(in crate::transcript) fn text(&self) -> Option<Cow<'_, str>> {
        if self.is_cut {
            return None;
        }
        let text = text_of_same_length(&self.bytes);
        match self.has_escapes {
            true => lenient_text(&format!("\"{text}\"")).map(Cow::Owned),
            false => Some(text),
        }
    }

    /// As much of the text as was held, for comparing with ASCII text.
    pub(in crate::transcript) fn beginning(&self) -> Cow<'_, [u8]> {
        if !self.has_escapes {
            return Cow::Borrowed(&self.bytes);
        }
        let mut decoded = Vec::with_capacity(self.bytes.len());
        let mut rest = self.bytes.as_slice();
        loop {
            rest = match rest {
                [b'\\', b'u', digits @ ..] => {
                    let Some((digits, tail)) = digits.split_first_chunk::<4>() else {
                        break;
                    };
                    let code = std::str::from_utf8(digits).ok();
                    let code = code.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                    // Half of a pair is no ASCII, and neither is the pair.
                    let decoded_char = code
                        .and_then(char::from_u32)
                        .unwrap_or(char::REPLACEMENT_CHARACTER);
                    let mut buffer = [0; 4];
                    decoded.extend_from_slice(decoded_char.encode_utf8(&mut buffer).as_bytes());
                    tail
                }
                [b'\\', escape, tail @ ..] => {
                    decoded.push(match escape {
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        other => *other,
                    });
                    tail
                }
                [b'\\'] | [] => break,
                [byte, tail @ ..] => {
                    decoded.push(*byte);
                    tail
                }
            };
        }
        Cow::Owned(decoded)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn plain_text_ends_where_the_first_special_byte_is(bytes in prop::collection::vec(any::<u8>(), 0..12), plain in 0usize..120) {
            let bytes: Vec<u8> = std::iter::repeat_n(b'x', plain).chain(bytes).collect();
            let expected = bytes.iter().position(|byte| is_special(*byte)).unwrap_or(bytes.len());
            prop_assert_eq!(special(&bytes), expected);
        }

        #[test]
        fn each_byte_is_judged_as_in_a_word(byte in any::<u8>(), place in 0usize..8) {
            let mut word = [b'x'; 8];
            word[place] = byte;
            prop_assert_eq!(special(&word), if is_special(byte) { place } else { 8 });
        }
    }

    fn held(raw: &str, limit_bytes: usize) -> Held {
        let mut held = Held::default();
        held.begin(limit_bytes);
        if raw.contains('\\') {
            held.push_escaped(raw.as_bytes());
        } else {
            held.push(raw.as_bytes());
        }
        held
    }

    #[test]
    fn what_is_held_is_decoded() {
        assert_eq!(
            held(r"a\u0062\n\ud83d\ude00", 99).text().as_deref(),
            Some("ab\n😀")
        );
        assert_eq!(held("plain", 99).text().as_deref(), Some("plain"));
        assert_eq!(held("plain", 4).text(), None);
        assert_eq!(held("plain", 4).beginning().as_ref(), b"plai");
        assert_eq!(
            held(r"\u003ccommand-\/\t", 99).beginning().as_ref(),
            b"<command-/\t"
        );
        assert_eq!(held(r"ab\u00", 99).beginning().as_ref(), b"ab");
        assert_eq!(held(r"ab\n", 3).beginning().as_ref(), b"ab");
    }
}

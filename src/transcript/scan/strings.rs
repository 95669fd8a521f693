//! Finds where the plain text of a JSON string ends, and where a string can be cut.

/// The number of bytes before the first one that is not plain text of a string: a quote, a backslash or a control
/// character.
#[inline]
pub(crate) fn special(bytes: &[u8]) -> usize {
    let mut at = 0;
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let special_bits = specials(u64::from_le_bytes(*word));
        if special_bits != 0 {
            return at + (special_bits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + tail
        .iter()
        .position(|byte| is_special(*byte))
        .unwrap_or(tail.len())
}

/// As [`special`], but also skips escapes of two characters.
#[inline]
pub(super) fn plain_length_with_escapes(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        at += special(&bytes[at..]);
        match bytes.get(at..at + 2) {
            Some([b'\\', escaped]) if IS_ESCAPE[*escaped as usize] => at += 2,
            _ => return at,
        }
    }
}

/// The characters that form a complete escape after a backslash.
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

/// Sets the high bit of each special byte. Only the lowest set bit is reliable: the bits above it may be wrong.
fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let quote = zero(word ^ (ONES * b'"' as u64));
    let backslash = zero(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (quote | backslash | control) & HIGH
}

/// Removes an incomplete escape or character from the end of a cut string, which begins at `start`.
pub(super) fn trim_cut(text: &mut Vec<u8>, start: usize) {
    let string = text.get(start..).unwrap_or_default();
    let backslashes = string.iter().rev().take_while(|byte| **byte == b'\\').count();
    if backslashes % 2 == 1 {
        text.truncate(text.len() - 1);
        return;
    }
    let last = string.iter().rposition(|byte| byte & 0xC0 != 0x80);
    let character = last.and_then(|last| string.get(last..)).unwrap_or_default();
    if std::str::from_utf8(character).is_err_and(|error| error.error_len().is_none()) {
        text.truncate(text.len() - character.len());
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

    #[test]
    fn a_string_is_cut_between_characters_and_escapes() {
        for (cut, whole) in [
            ("ab", "ab"),
            ("a\\", "a"),
            (r"a\\", r"a\\"),
            (r"a\\\", r"a\\"),
            (r"\n\\n", r"\n\\n"),
            ("", ""),
            ("é", "é"),
        ] {
            let mut text = format!("\\\"{cut}").into_bytes();
            trim_cut(&mut text, 2);
            assert_eq!(text, format!("\\\"{whole}").into_bytes(), "{cut}");
        }
        let character = "a😀".as_bytes();
        for length in 1..character.len() {
            let mut text = character[..length].to_vec();
            trim_cut(&mut text, 0);
            assert_eq!(text, b"a");
        }
    }
}

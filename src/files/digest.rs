//! SHA-256 digests, and hexadecimal text.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of the bytes as 64 lower-case hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Encodes bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0x0F)]])
        .map(char::from)
        .collect()
}

/// Decodes hexadecimal digits. `None` for any other text.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks_exact(2)
        .map(|pair| Some((digit(pair[0])? << 4) | digit(pair[1])?))
        .collect()
}

fn digit(character: u8) -> Option<u8> {
    char::from(character)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

//! The ids of records. A UUID is stored in 16 bytes, any other id as text. Pure.

use uuid::Uuid;

/// The id of a record: 16 bytes for a UUID, otherwise text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum RecordId {
    Uuid([u8; 16]),
    Text(Box<str>),
}

impl RecordId {
    pub(super) fn new(text: &str) -> Self {
        const HYPHENATED_CHARS: usize = 36;
        // Only the canonical form may be stored as a number. Otherwise two different ids could become one.
        let may_be = text.len() == HYPHENATED_CHARS && !text.bytes().any(|byte| byte.is_ascii_uppercase());
        match may_be.then(|| Uuid::try_parse(text)) {
            Some(Ok(uuid)) => Self::Uuid(uuid.into_bytes()),
            _ => Self::Text(text.into()),
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Uuid(bytes) => Uuid::from_bytes(*bytes).hyphenated().to_string(),
            Self::Text(text) => text.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_told_as_it_was_written() {
        let uuid = "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5b";
        assert!(matches!(RecordId::new(uuid), RecordId::Uuid(_)));
        for text in [
            uuid,
            "",
            "u1",
            "0B7E5B0E-1F7C-4D3A-9A51-8D6F2C3E4A5B",
            "0b7e5b0e1f7c4d3a9a518d6f2c3e4a5b",
            "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5g",
            "0b7e5b0e-1f7c-4d3a-9a5108d6f2c3e4a5b",
        ] {
            assert_eq!(RecordId::new(text).text(), text);
        }
    }
}

//! The ids of records. A UUID is stored in 16 bytes, any other id as text. Pure.

use uuid::Uuid;

/// The id of a record: 16 bytes for a UUID, otherwise text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum RecordId {
    Uuid(u128),
    Text(Box<str>),
}

/// A borrowed [`RecordId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum IdRef<'a> {
    Uuid(u128),
    Text(&'a str),
}

impl RecordId {
    pub(super) fn new(text: &str) -> Self {
        IdRef::new(text).to_owned()
    }

    pub(super) fn as_ref(&self) -> IdRef<'_> {
        match self {
            Self::Uuid(value) => IdRef::Uuid(*value),
            Self::Text(text) => IdRef::Text(text),
        }
    }
}

impl<'a> IdRef<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        // Only the canonical form may be stored as a number. Otherwise two different ids could become one.
        canonical_uuid(text).map_or(Self::Text(text), Self::Uuid)
    }

    pub(super) fn to_owned(self) -> RecordId {
        match self {
            Self::Uuid(value) => RecordId::Uuid(value),
            Self::Text(text) => RecordId::Text(text.into()),
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Self::Uuid(value) => Uuid::from_u128(value).hyphenated().to_string(),
            Self::Text(text) => text.into(),
        }
    }
}

/// Parses a UUID in lower case with hyphens.
fn canonical_uuid(text: &str) -> Option<u128> {
    const HYPHENATED_CHARS: usize = 36;
    let may_be = text.len() == HYPHENATED_CHARS && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let uuid = may_be.then(|| Uuid::try_parse(text))?.ok()?;
    Some(uuid.as_u128())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_told_as_it_was_written() {
        let uuid = "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5b";
        assert!(matches!(IdRef::new(uuid), IdRef::Uuid(_)));
        for text in [
            uuid,
            "",
            "u1",
            "0B7E5B0E-1F7C-4D3A-9A51-8D6F2C3E4A5B",
            "0b7e5b0e1f7c4d3a9a518d6f2c3e4a5b",
            "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5g",
            "0b7e5b0e-1f7c-4d3a-9a5108d6f2c3e4a5b",
        ] {
            assert_eq!(RecordId::new(text).as_ref().text(), text);
        }
    }
}

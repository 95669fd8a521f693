//! Filters that select the members of a record to copy. The formats' tables consist of them.

/// The longest id, in bytes; agents write 36. A longer one counts as missing.
pub(in crate::transcript) const ID_LIMIT_BYTES: usize = 4096;

/// How much of a text is enough to distinguish names and beginnings, in bytes: everything that the decoders compare with
/// is shorter than 64 characters, and each character may be escaped.
pub(in crate::transcript) const BEGINNING_BYTES: usize = 64 * 6;

/// What to copy of a value. Numbers, `true`, `false` and `null` are copied unchanged. An object or array that the filter does
/// not enter is copied as `{}` or `[]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filter {
    /// How much of a string to copy.
    pub(super) text_bytes: usize,
    /// Whether `null` replaces a longer string.
    pub(super) is_whole: bool,
    /// Which members of an object to copy.
    members: &'static [(&'static str, Filter)],
    /// A filter with more members.
    base: Option<&'static Filter>,
    /// What to copy of each element of an array.
    pub(super) elements: Option<&'static Filter>,
}

impl Filter {
    /// Only the value's type.
    pub(crate) const PRESENCE: Self = Self::beginning(0);

    /// Enough of a string to recognize it.
    pub(in crate::transcript) const NAME: Self = Self::beginning(BEGINNING_BYTES);

    /// An id.
    pub(in crate::transcript) const ID: Self = Self::whole(ID_LIMIT_BYTES);

    /// The first bytes of a string.
    pub(crate) const fn beginning(bytes: usize) -> Self {
        Self {
            text_bytes: bytes,
            is_whole: false,
            members: &[],
            base: None,
            elements: None,
        }
    }

    /// A string of at most this many bytes; a longer one counts as missing.
    pub(crate) const fn whole(bytes: usize) -> Self {
        Self {
            is_whole: true,
            ..Self::beginning(bytes)
        }
    }

    /// These members of an object.
    pub(crate) const fn object(members: &'static [(&'static str, Self)]) -> Self {
        Self {
            members,
            ..Self::PRESENCE
        }
    }

    /// Adds a string's first bytes.
    pub(in crate::transcript) const fn or_text(self, bytes: usize) -> Self {
        Self {
            text_bytes: bytes,
            ..self
        }
    }

    /// Adds a filter for each element of an array.
    pub(in crate::transcript) const fn or_array(self, elements: &'static Self) -> Self {
        Self {
            elements: Some(elements),
            ..self
        }
    }

    /// Adds the members of another filter.
    pub(in crate::transcript) const fn extending(self, base: &'static Self) -> Self {
        Self {
            base: Some(base),
            ..self
        }
    }

    /// Whether the filter copies anything inside an object or array.
    pub(super) fn enters(&self, is_object: bool) -> bool {
        match is_object {
            true => !self.members.is_empty() || self.base.is_some(),
            false => self.elements.is_some(),
        }
    }

    /// The filter of a member. `None` if the member is omitted.
    pub(super) fn member(&'static self, name: &[u8]) -> Option<&'static (&'static str, Self)> {
        let own = self.members.iter().find(|(own, _)| own.as_bytes() == name);
        own.or_else(|| self.base?.member(name))
    }
}

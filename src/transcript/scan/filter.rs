//! Which parts of a record are copied: the tables that the formats give.

/// The longest id that counts, in bytes; agents write 36. A record with a longer one is as good as without.
pub(in crate::transcript) const ID_LIMIT_BYTES: usize = 4096;

/// As much of a text or a name as decides what it is, in bytes: all names and beginnings that are asked for are shorter
/// than 64 characters, of which each may be escaped.
pub(in crate::transcript) const BEGINNING_BYTES: usize = 64 * 6;

/// What is copied of a value. Numbers and words are copied as they stand; an object or array of which nothing is wanted is
/// copied without content.
#[derive(Debug, Clone, Copy)]
pub(in crate::transcript) struct Filter {
    /// How much of a string is copied.
    pub(super) text_bytes: usize,
    /// Whether a longer string is replaced by `null`.
    pub(super) is_whole: bool,
    /// The members of an object that are copied.
    members: &'static [(&'static str, Filter)],
    /// Where the others are that are copied too.
    base: Option<&'static Filter>,
    /// What is copied of each element of an array; of all others nothing.
    pub(super) elements: Option<&'static Filter>,
}

impl Filter {
    /// That there is a value, and of which type.
    pub(in crate::transcript) const PRESENCE: Self = Self::beginning(0);

    /// Enough of a string to tell names and beginnings apart.
    pub(in crate::transcript) const NAME: Self = Self::beginning(BEGINNING_BYTES);

    /// An id.
    pub(in crate::transcript) const ID: Self = Self::whole(ID_LIMIT_BYTES);

    /// So much of a string.
    pub(in crate::transcript) const fn beginning(bytes: usize) -> Self {
        Self {
            text_bytes: bytes,
            is_whole: false,
            members: &[],
            base: None,
            elements: None,
        }
    }

    /// A string of at most so many bytes; a longer one counts as absent.
    pub(in crate::transcript) const fn whole(bytes: usize) -> Self {
        Self {
            is_whole: true,
            ..Self::beginning(bytes)
        }
    }

    /// These members of an object.
    pub(in crate::transcript) const fn object(members: &'static [(&'static str, Self)]) -> Self {
        Self {
            members,
            ..Self::PRESENCE
        }
    }

    /// Or so much of a string.
    pub(in crate::transcript) const fn or_text(self, bytes: usize) -> Self {
        Self {
            text_bytes: bytes,
            ..self
        }
    }

    /// Or of an array, this of each element.
    pub(in crate::transcript) const fn or_array(self, elements: &'static Self) -> Self {
        Self {
            elements: Some(elements),
            ..self
        }
    }

    /// And of an object, the members that another filter copies.
    pub(in crate::transcript) const fn extending(self, base: &'static Self) -> Self {
        Self {
            base: Some(base),
            ..self
        }
    }

    /// Whether anything is copied of what is in an object, or in an array.
    pub(super) fn enters(&self, is_object: bool) -> bool {
        match is_object {
            true => !self.members.is_empty() || self.base.is_some(),
            false => self.elements.is_some(),
        }
    }

    /// What is copied of a member; none if it is left out.
    pub(super) fn member(&'static self, name: &[u8]) -> Option<&'static (&'static str, Self)> {
        let own = self.members.iter().find(|(own, _)| own.as_bytes() == name);
        own.or_else(|| self.base?.member(name))
    }
}

//! The open brackets of a line, one bit each: a line of nothing but brackets takes an eighth of its length.

/// Open objects and arrays.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    depth: usize,
    /// The innermost brackets, up to 64.
    word: u64,
    /// The full words of the brackets outside `word`.
    outer: Vec<u64>,
}

const BITS: usize = u64::BITS as usize;

impl Nesting {
    /// How many are open.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the innermost open bracket is an object's. `false` if none is open.
    pub(super) fn is_object(&self) -> bool {
        self.word & 1 == 1
    }

    pub(super) fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(BITS) {
            self.outer.push(self.word);
            self.word = 0;
        }
        self.word = self.word << 1 | u64::from(is_object);
        self.depth += 1;
    }

    /// Closes the innermost bracket. One must be open.
    pub(super) fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.word >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(BITS) {
            self.word = self.outer.pop().unwrap_or_default();
        }
    }

    /// Closes all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_close_in_the_order_in_which_they_were_opened() {
        let mut nesting = Nesting::default();
        let is_object = |depth: usize| depth.is_multiple_of(3) || depth % 7 == 1;
        for depth in 0..1000 {
            assert_eq!(nesting.depth(), depth);
            nesting.push(is_object(depth));
            assert_eq!(nesting.is_object(), is_object(depth));
            if depth % 64 == 5 {
                nesting.push(!is_object(depth));
                nesting.pop();
            }
        }
        for depth in (0..1000).rev() {
            assert_eq!(nesting.is_object(), is_object(depth));
            nesting.pop();
            assert_eq!(nesting.depth(), depth);
        }
    }
}

//! Which brackets are open, one bit each: a line that is nothing but brackets takes an eighth of its length.

/// Open objects and arrays.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    depth: usize,
    /// Those of the innermost 64 that stand in the same word.
    word: u64,
    /// Full words of those further out.
    outer: Vec<u64>,
}

const BITS: usize = u64::BITS as usize;

impl Nesting {
    /// How many are open.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the innermost is an object; false when none is open.
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

    /// Closes the innermost; there must be one.
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

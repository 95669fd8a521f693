//! Counts how many entries of a list are missing if the rest must appear in order.

/// Returns the smallest number of entries of `known` that must be considered missing so that all others
/// appear in order.
///
/// `after` finds an entry at or after a position and returns where the following text begins. An entry for
/// which `is_told_elsewhere` holds costs nothing if it is not in its position. Texts may repeat: the first
/// position at which an entry appears need not be its own.
pub(crate) fn fewest_missing(
    known: &[String],
    after: impl Fn(&str, usize) -> Option<usize>,
    is_told_elsewhere: impl Fn(&str) -> bool,
) -> usize {
    // Indexed by the number of missing entries: the earliest position after all other entries so far.
    let mut reached = vec![Some(0)];
    for entry in known {
        let cost = usize::from(!is_told_elsewhere(entry));
        let there = reached
            .iter()
            .map(|place| place.and_then(|place| after(entry, place)));
        let mut next: Vec<Option<usize>> = there.chain([None]).collect();
        for (missing, place) in reached.iter().enumerate() {
            let without = &mut next[missing + cost];
            *without = match (*without, *place) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        reached = next;
    }
    reached.iter().position(Option::is_some).unwrap()
}

#[test]
fn a_text_that_stands_twice_is_not_taken_for_a_later_one() {
    let missing = |known: &[&str], there: &[&str], elsewhere: &str| {
        let known: Vec<String> = known.iter().map(|text| (*text).to_owned()).collect();
        let after = |text: &str, from: usize| {
            let found = there[from..].iter().position(|other| *other == text)?;
            Some(from + found + 1)
        };
        fewest_missing(&known, after, |text| text == elsewhere)
    };
    assert_eq!(missing(&["a", "b"], &["a", "x", "b"], ""), 0);
    assert_eq!(missing(&["a", "b"], &["b", "a"], ""), 1);
    assert_eq!(missing(&["a", "b", "c"], &["c"], ""), 2);
    assert_eq!(missing(&["a", "b", "c"], &["c"], "a"), 1);
    // The missing entry appears again after the others.
    assert_eq!(missing(&["a", "on", "b", "c"], &["a", "b", "c", "on"], ""), 1);
    assert_eq!(missing(&["a", "on", "b", "on"], &["a", "b", "on"], ""), 1);
}

//! How much of a list is there in its order.

/// The fewest of `known` that have to be taken for missing, so that all others stand in their order.
///
/// `after` finds an entry at or behind a place and says where what comes after it begins. What
/// `is_told_elsewhere` counts for nothing when it is not in its place. Texts may repeat: the first place
/// where one stands need not be its own.
pub(crate) fn fewest_missing(
    known: &[String],
    after: impl Fn(&str, usize) -> Option<usize>,
    is_told_elsewhere: impl Fn(&str) -> bool,
) -> usize {
    // By how many are missing, the first place behind all the others.
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
    // The one that is missing stands again behind the others.
    assert_eq!(missing(&["a", "on", "b", "c"], &["a", "b", "c", "on"], ""), 1);
    assert_eq!(missing(&["a", "on", "b", "on"], &["a", "b", "on"], ""), 1);
}

//! Times as the wire has them: RFC 3339 in UTC, with exactly three fraction digits. Any RFC 3339 time is read.

use jiff::Timestamp;
use serde::Serializer;

/// A time in the form of the wire.
#[must_use]
pub fn text(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// Writes a time, or an optional one; for serde's `serialize_with`.
///
/// # Errors
/// Only if the serializer has one.
pub fn write<'a, T, S>(time: &'a T, serializer: S) -> Result<S::Ok, S::Error>
where
    Option<Timestamp>: From<T>,
    T: Copy + 'a,
    S: Serializer,
{
    match Option::<Timestamp>::from(*time) {
        Some(time) => serializer.collect_str(&format_args!("{time:.3}")),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::text;

    #[test]
    fn a_time_has_three_fraction_digits() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_999_999, "1970-01-01T00:00:00.001Z"),
            (1_700_000_000_120_000_000, "2023-11-14T22:13:20.120Z"),
            (1_700_000_000_999_999_999, "2023-11-14T22:13:20.999Z"),
        ];
        for (nanoseconds, expected) in table {
            assert_eq!(
                Timestamp::from_nanosecond(nanoseconds).map(text).ok().as_deref(),
                Some(expected)
            );
        }
    }
}

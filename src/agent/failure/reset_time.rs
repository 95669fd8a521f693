//! Parses reset times in the agents' messages: "resets 10:59pm (UTC)", "resets Nov 21, 3am (Europe/Berlin)", "try
//! again at 11:13 PM", "try again in 20s". The agents round to the minute and omit what seems obvious: the date if it
//! is today, and nearly always the year.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

/// The words before a time.
const BEFORE_A_TIME: &[&str] = &["resets at ", "resets ", "try again at ", "available again at "];

/// The words before a duration.
const BEFORE_A_DURATION: &[&str] = &["resets in ", "try again in ", "retry after ", "retry in "];

/// How many seconds ago a time of day may be and still count as today's. Times are truncated to the minute and
/// messages take a while, so such a limit has just reset; an earlier time is tomorrow's.
const JUST_RESET_SECONDS: i64 = 300;

/// Finds a reset time in a text. `None` if there is none, or if its zone is unknown.
pub(super) fn find(text: &str, now: &Zoned) -> Option<Timestamp> {
    find_with(text, now, zone)
}

/// Like [`find`], with the zones as a parameter, for tests on machines without a zone database.
pub(super) fn find_with(
    text: &str,
    now: &Zoned,
    zone: impl Fn(&str) -> Option<TimeZone>,
) -> Option<Timestamp> {
    // Lower-cases only ASCII, so that byte offsets are the same in both texts.
    let lower = text.to_ascii_lowercase();
    let found = BEFORE_A_TIME.iter().find_map(|words| {
        let start = lower.find(words)? + words.len();
        clock_time(&lower[start..], &text[start..], now, &zone)
    });
    found.or_else(|| epoch_seconds(&lower)).or_else(|| {
        BEFORE_A_DURATION.iter().find_map(|words| {
            let start = lower.find(words)? + words.len();
            now.timestamp().checked_add(duration(&lower[start..])?).ok()
        })
    })
}

fn zone(name: &str) -> Option<TimeZone> {
    match name {
        "UTC" | "GMT" | "Etc/UTC" => Some(TimeZone::UTC),
        _ => TimeZone::get(name).ok(),
    }
}

/// `[month day[, year][,] [at]] hour[:minute][am|pm] [(zone)]`
fn clock_time(
    lower: &str,
    original: &str,
    now: &Zoned,
    zone: &impl Fn(&str) -> Option<TimeZone>,
) -> Option<Timestamp> {
    let zone_name = zone_name(original);
    let time_zone = match zone_name {
        Some(name) => zone(name)?,
        None => now.time_zone().clone(),
    };
    let here = now.with_time_zone(time_zone.clone());
    let mut words = lower
        .split([' ', ',', '\u{a0}', '\u{202f}'])
        .filter(|word| !word.is_empty())
        .peekable();

    let month = words.peek().copied().and_then(month);
    let day_and_year = match month {
        Some(_) => {
            words.next();
            let day: i8 = words
                .next()?
                .trim_end_matches(|c: char| c.is_ascii_alphabetic())
                .parse()
                .ok()?;
            let year: Option<i16> = words
                .peek()
                .and_then(|word| (word.len() == 4).then(|| word.parse().ok())?);
            if year.is_some() {
                words.next();
            }
            Some((day, year))
        }
        None => None,
    };
    if words.peek() == Some(&"at") {
        words.next();
    }
    let time = time_of_day(words.next()?, words.next())?;

    let at = |date: Date| DateTime::from_parts(date, time).to_zoned(time_zone.clone()).ok();
    let earliest = here.timestamp().as_second() - JUST_RESET_SECONDS;
    let not_past = |at: &Zoned| at.timestamp().as_second() >= earliest;
    let reset = match (month, day_and_year) {
        (Some(month), Some((day, Some(year)))) => at(Date::new(year, month, day).ok()?)?,
        (Some(month), Some((day, None))) => (0..=1)
            .filter_map(|later| at(Date::new(here.year() + later, month, day).ok()?))
            .find(not_past)?,
        _ => [here.date(), here.date().tomorrow().ok()?]
            .into_iter()
            .filter_map(at)
            .find(not_past)?,
    };
    Some(reset.timestamp())
}

/// Returns the text in the first parentheses, if it looks like a zone rather than a remark.
fn zone_name(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('(')?;
    let (name, _) = rest.split_once(')')?;
    let looks_right = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
    (!name.is_empty() && name.chars().all(looks_right)).then_some(name)
}

fn month(word: &str) -> Option<i8> {
    const MONTHS: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let start = word.get(..3)?;
    let at = MONTHS.iter().position(|month| *month == start)?;
    word.chars()
        .all(|c| c.is_ascii_alphabetic() || c == '.')
        .then(|| i8::try_from(at + 1).ok())?
}

/// "10:59pm", "3am", "11:13" + "pm", "23:13".
fn time_of_day(word: &str, next: Option<&str>) -> Option<Time> {
    let digits = word
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || *byte == b':')
        .count();
    let (clock, suffix) = word.split_at(digits);
    let trimmed = |text: &str| text.trim_end_matches(['.', ')', ';']).replace('.', "");
    let half = match trimmed(suffix) {
        suffix if suffix.is_empty() => next.map(trimmed).filter(|next| next == "am" || next == "pm"),
        suffix => Some(suffix),
    };
    let (hour, minute) = match clock.split_once(':') {
        Some((hour, minute)) => (hour.parse::<i8>().ok()?, minute.parse::<i8>().ok()?),
        // A bare number needs "am" or "pm" to be a time of day.
        None if half.is_some() => (clock.parse::<i8>().ok()?, 0),
        None => return None,
    };
    let hour = match half.as_deref() {
        Some("am") if (1..=12).contains(&hour) => hour % 12,
        Some("pm") if (1..=12).contains(&hour) => hour % 12 + 12,
        None => hour,
        Some(_) => return None,
    };
    Time::new(hour, minute, 0, 0).ok()
}

/// "usage limit reached|1795215564": an older form.
fn epoch_seconds(text: &str) -> Option<Timestamp> {
    let (_, rest) = text.split_once("limit reached|")?;
    let digits: &str = &rest[..rest.bytes().take_while(u8::is_ascii_digit).count()];
    Timestamp::from_second(digits.parse().ok()?).ok()
}

/// "1s", "20 seconds", "1.5s", "3 days 4 hours 2 minutes": reads parts until something else follows.
fn duration(text: &str) -> Option<Span> {
    let mut total_ms: i64 = 0;
    let mut rest = text.trim_start();
    loop {
        let digits = rest
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
            .count();
        let Ok(amount) = rest[..digits].trim_end_matches('.').parse::<f64>() else {
            break;
        };
        let unit_text = rest[digits..].trim_start();
        let letters = unit_text.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit_ms = match &unit_text[..letters] {
            "ms" => 1.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000.0,
            "d" | "day" | "days" => 86_400_000.0,
            _ => break,
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a float cast saturates, and the sum is checked"
        )]
        let part = (amount * unit_ms) as i64;
        total_ms = total_ms.checked_add(part)?;
        rest = unit_text[letters..].trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    (total_ms > 0).then(|| Span::new().try_milliseconds(total_ms).ok())?
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;

    fn now() -> Zoned {
        date(2026, 11, 20)
            .at(22, 0, 0, 0)
            .to_zoned(TimeZone::UTC)
            .unwrap()
    }

    #[test]
    fn reset_times_are_read_from_words() {
        let berlin = || TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let zone = |name: &str| match name {
            "UTC" => Some(TimeZone::UTC),
            "Europe/Berlin" => Some(berlin()),
            _ => None,
        };
        let table = [
            (
                "You've hit your limit · resets 10:59pm (UTC)",
                Some("2026-11-20T22:59:00Z"),
            ),
            ("resets 3am (UTC)", Some("2026-11-21T03:00:00Z")),
            ("resets 12am (UTC)", Some("2026-11-21T00:00:00Z")),
            ("resets 12pm (UTC)", Some("2026-11-21T12:00:00Z")),
            ("resets 9:58pm (UTC)", Some("2026-11-20T21:58:00Z")),
            ("resets 9:50pm (UTC)", Some("2026-11-21T21:50:00Z")),
            ("resets Nov 21, 3am (Europe/Berlin)", Some("2026-11-21T02:00:00Z")),
            ("resets 3am (Europe/Berlin)", Some("2026-11-21T02:00:00Z")),
            ("resets Nov 24 at 3:30pm (UTC)", Some("2026-11-24T15:30:00Z")),
            ("resets Jan 2, 3am (UTC)", Some("2027-01-02T03:00:00Z")),
            ("resets Jul 2, 3am (Europe/Berlin)", Some("2027-07-02T01:00:00Z")),
            ("try again at 11:13 PM.", Some("2026-11-20T23:13:00Z")),
            ("try again at 23:13.", Some("2026-11-20T23:13:00Z")),
            (
                "try again at Nov 22nd, 2026 3:04 AM.",
                Some("2026-11-22T03:04:00Z"),
            ),
            ("Please try again in 1s.", Some("2026-11-20T22:00:01Z")),
            ("try again in 1.5s", Some("2026-11-20T22:00:01.5Z")),
            (
                "Resets in 3 days 4 hours and 2 minutes.",
                Some("2026-11-24T02:02:00Z"),
            ),
            (
                "Claude AI usage limit reached|1795215564",
                Some("2026-11-20T22:59:24Z"),
            ),
            ("resets 10:59pm (Mars/Olympus)", None),
            ("resets Feb 30, 3am (UTC)", None),
            ("resets 25:00 (UTC)", None),
            ("resets 13pm (UTC)", None),
            ("resets 7 (UTC)", None),
            ("resets soon", None),
            ("resets ", None),
            ("try again later", None),
            ("try again in 99999999999999999999 days", None),
            // Letters whose lower-case form has another length, and two whose differences cancel out.
            ("\u{130} limit: resets 3am (UTC)", Some("2026-11-21T03:00:00Z")),
            (
                "\u{1e9e} limit: resets 3am (Europe/Berlin)",
                Some("2026-11-21T02:00:00Z"),
            ),
            (
                "\u{1e9e}\u{130}\u{1e9e}\u{130} resets 3am (UTC)",
                Some("2026-11-21T03:00:00Z"),
            ),
            ("\u{1e9e}resets \u{e9}\u{130}", None),
            ("\u{130}resets \u{e9}\u{1e9e}", None),
            ("resets 3\u{e9}m (\u{130})", None),
        ];
        for (text, expected) in table {
            let found = find_with(text, &now(), zone).map(|at| at.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_time_without_a_zone_is_of_the_zone_of_now() {
        let zone = TimeZone::posix("EST5").unwrap();
        let now = now().with_time_zone(zone);
        let found = find("try again at 6:13 PM.", &now).map(|at| at.to_string());
        assert_eq!(found.as_deref(), Some("2026-11-20T23:13:00Z"));
    }

    proptest! {
        /// The agents' words in any order, between letters of any alphabet. Text before them must not change the
        /// result.
        #[test]
        fn any_text_can_be_searched_for_a_reset_time(text in "(resets |RESETS AT |try again at |try again in |retry after |limit reached\\||[\u{130}\u{1e9e}\u{212a}\u{df}\u{e9}]|jan |Feb|at |[0-9]{1,3}|am|PM|[:.,() ]|UTC|days|\\PC){0,14}") {
            let found = find(&text, &now());
            prop_assert_eq!(find(&format!("\u{130}\u{1e9e}{text}"), &now()), found);
        }
    }
}

//! For how long the agents keep their transcripts, against for how long copies of them are kept.

use std::fs;
use std::path::Path;

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};
use serde_json::Value;

use super::{count, size};
use crate::agent::profile::AgentKind;
use crate::conversation::keeping::KeepRules;
use crate::conversation::services::{Services, chain_text};

/// After so many days Claude Code deletes what nobody has written to, unless `cleanupPeriodDays` says otherwise. Read in the
/// program of version 2.1.316, as that the least is 1.
const CLAUDE_DAYS: u64 = 30;

/// From this share of its bound on, in percent, what is kept is about to lose its oldest.
const NEARLY_FULL_PERCENT: u128 = 90;

/// Every agent whose transcripts can be kept, and what is kept of all.
pub(super) fn all(services: &Services) -> Vec<Diagnostic> {
    let rules = services.keeper.rules;
    let entries = services.catalog.entries().iter();
    let mut found: Vec<Diagnostic> = entries
        .filter_map(|entry| {
            let (folder, _) = entry.listed_transcripts()?;
            let vendor = match entry.kind {
                AgentKind::Claude => claude_days(folder),
                AgentKind::Codex => {
                    let what =
                        "it deletes no transcripts by itself, as far as is known; idle ones it compresses";
                    let found = Diagnostic::new(DiagnosticKind::Retention, Severity::Ok, what);
                    return Some(found.about(entry.name.as_str()));
                }
                _ => return None,
            };
            Some(judged(vendor, rules).about(entry.name.as_str()))
        })
        .collect();
    found.push(match services.keeper.archive.total() {
        Ok(total) => {
            kept(total.sessions, total.bytes, rules).about(services.keeper.archive.folder().to_string_lossy())
        }
        Err(error) => {
            let what = format!("what is kept cannot be read: {}", chain_text(&error));
            Diagnostic::new(DiagnosticKind::Retention, Severity::Error, what)
                .next("look at the permissions of the data folder")
        }
    });
    found
}

/// What the agent's own settings say, or why that is not known. Those of an organization, which go before them, are not looked at.
fn claude_days(folder: &Path) -> Result<u64, String> {
    let path = folder.join("settings.json");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(CLAUDE_DAYS),
        Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
    };
    let settings: Value =
        serde_json::from_str(&text).map_err(|error| format!("{} is not JSON: {error}", path.display()))?;
    match settings.get("cleanupPeriodDays") {
        None | Some(Value::Null) => Ok(CLAUDE_DAYS),
        Some(days) => days.as_u64().filter(|days| *days > 0).ok_or_else(|| {
            format!(
                "cleanupPeriodDays in {} is {days}; Claude Code wants 1 or more",
                path.display()
            )
        }),
    }
}

fn judged(vendor: Result<u64, String>, rules: KeepRules) -> Diagnostic {
    let of = |severity, what: String| Diagnostic::new(DiagnosticKind::Retention, severity, what);
    let vendor = match vendor {
        Ok(days) => days,
        Err(why) => {
            return of(
                Severity::Warning,
                format!("for how long it keeps transcripts is not known: {why}"),
            )
            .next("mend that file");
        }
    };
    let deletes = format!(
        "it deletes transcripts {} after they were last written to",
        count(vendor, "day")
    );
    let found = match (rules.is_on, rules.days) {
        (false, _) => of(Severity::Warning, format!("{deletes}, and no copies are kept of them"))
            .next("set enabled = true below [keep], sessionctl keep CONV for some, or a larger cleanupPeriodDays in its settings.json"),
        (true, Some(ours)) if ours <= vendor => of(
            Severity::Warning,
            format!("{deletes}, and copies are kept for {}, which is no longer", count(ours, "day")),
        )
        .next("raise days below [keep], or leave it out"),
        (true, Some(ours)) => of(Severity::Ok, format!("{deletes}; copies are kept for {}", count(ours, "day"))),
        (true, None) => of(Severity::Ok, format!("{deletes}; copies stay until you delete the conversation")),
    };
    let found = found.fact("vendorDays", vendor);
    match rules.days.filter(|_| rules.is_on) {
        Some(ours) => found.fact("keepDays", ours),
        None => found,
    }
}

fn kept(sessions: u64, bytes: u64, rules: KeepRules) -> Diagnostic {
    let takes = format!("copies of {} take {}", count(sessions, "session"), size(bytes));
    let is_nearly_full = |bound: &u64| u128::from(bytes) * 100 >= u128::from(*bound) * NEARLY_FULL_PERCENT;
    let found = match rules.bytes {
        Some(bound) if is_nearly_full(&bound) => Diagnostic::new(
            DiagnosticKind::Retention,
            Severity::Note,
            format!("{takes} of at most {}: the oldest go next", size(bound)),
        )
        .next("raise bytes below [keep] where that is too early"),
        Some(bound) => Diagnostic::new(
            DiagnosticKind::Retention,
            Severity::Ok,
            format!("{takes} of at most {}", size(bound)),
        ),
        None => Diagnostic::new(DiagnosticKind::Retention, Severity::Ok, takes),
    };
    found.fact("keptSessions", sessions).fact("keptBytes", bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vendors_days_come_from_its_settings() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(claude_days(folder.path()), Ok(30));
        let table = [
            ("{}", Some(30)),
            (r#"{"cleanupPeriodDays":null}"#, Some(30)),
            (r#"{"cleanupPeriodDays":365,"theme":"dark"}"#, Some(365)),
            (r#"{"cleanupPeriodDays":0}"#, None),
            (r#"{"cleanupPeriodDays":"7"}"#, None),
            ("{", None),
        ];
        for (text, expected) in table {
            fs::write(folder.path().join("settings.json"), text).unwrap();
            assert_eq!(claude_days(folder.path()).ok(), expected, "{text}");
        }
    }

    #[test]
    fn copies_that_go_no_later_than_the_transcripts_are_told() {
        let rules = |is_on, days| KeepRules {
            is_on,
            days,
            bytes: None,
        };
        let table = [
            (Ok(30), rules(true, None), Severity::Ok),
            (Ok(30), rules(true, Some(31)), Severity::Ok),
            (Ok(30), rules(true, Some(30)), Severity::Warning),
            (Ok(30), rules(false, None), Severity::Warning),
            (Ok(30), rules(false, Some(365)), Severity::Warning),
            (Err("why".to_owned()), rules(true, None), Severity::Warning),
        ];
        for (vendor, rules, expected) in table {
            let found = judged(vendor, rules);
            assert_eq!(found.severity, expected, "{found:?}");
            assert_eq!(found.next_step.is_some(), expected != Severity::Ok);
        }
    }

    #[test]
    fn a_bound_that_is_nearly_reached_is_told() {
        let bound = |bytes| KeepRules {
            is_on: true,
            days: None,
            bytes,
        };
        assert_eq!(kept(1, 89, bound(Some(100))).severity, Severity::Ok);
        assert_eq!(kept(1, 90, bound(Some(100))).severity, Severity::Note);
        assert_eq!(kept(1, u64::MAX, bound(None)).severity, Severity::Ok);
    }
}

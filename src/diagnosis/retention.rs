//! For how long the agents keep their transcripts, against for how long copies of them are kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
                AgentKind::Claude => claude_days(Path::new(CLAUDE_MANAGED), folder),
                AgentKind::Codex => {
                    let what =
                        "it deletes no transcripts, as far as is known; it compresses those that are not in use";
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
            let what = format!("the backups cannot be read: {}", chain_text(&error));
            Diagnostic::new(DiagnosticKind::Retention, Severity::Error, what)
                .next("look at the permissions of the data folder")
        }
    });
    found
}

/// For how long an agent keeps transcripts, and the file that says so where one does.
#[derive(Debug, PartialEq)]
struct Vendor {
    days: u64,
    told_by: Option<PathBuf>,
}

/// Where an organization puts settings that go before those of people. Read in the program of version 2.1.316.
const CLAUDE_MANAGED: &str = if cfg!(target_os = "macos") {
    "/Library/Application Support/ClaudeCode"
} else {
    "/etc/claude-code"
};

/// What the agent's own settings say, or why that is not known: those of an organization, as far as they are files, go
/// before those of the user. Those of projects and those that a server sends are not looked at.
fn claude_days(managed: &Path, folder: &Path) -> Result<Vendor, String> {
    // Of these the last goes first.
    let parts = managed.join("managed-settings.d");
    let mut files = match fs::read_dir(&parts) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<PathBuf>, io::Error>>(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
    .map_err(|error| format!("{} cannot be read: {error}", parts.display()))?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort_unstable_by(|one, other| other.cmp(one));
    files.push(managed.join("managed-settings.json"));
    files.push(folder.join("settings.json"));
    for path in files {
        if let Some(days) = days_in(&path)? {
            return Ok(Vendor {
                days,
                told_by: Some(path),
            });
        }
    }
    Ok(Vendor {
        days: CLAUDE_DAYS,
        told_by: None,
    })
}

/// What one file of settings says, if it does.
fn days_in(path: &Path) -> Result<Option<u64>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
    };
    let settings: Value =
        serde_json::from_str(&text).map_err(|error| format!("{} is not JSON: {error}", path.display()))?;
    match settings.get("cleanupPeriodDays") {
        None | Some(Value::Null) => Ok(None),
        Some(days) => days.as_u64().filter(|days| *days > 0).map(Some).ok_or_else(|| {
            format!(
                "cleanupPeriodDays in {} is {days}; Claude Code wants 1 or more",
                path.display()
            )
        }),
    }
}

fn judged(vendor: Result<Vendor, String>, rules: KeepRules) -> Diagnostic {
    let of = |severity, what: String| Diagnostic::new(DiagnosticKind::Retention, severity, what);
    let vendor = match vendor {
        Ok(vendor) => vendor,
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
        count(vendor.days, "day")
    );
    let settings = vendor.told_by.as_ref().map_or_else(
        || "its settings.json".to_owned(),
        |path| path.display().to_string(),
    );
    let found = match (rules.is_on, rules.days) {
        (false, _) => of(Severity::Warning, format!("{deletes}, and they are not backed up"))
            .next(format!(
                "set enabled = true below [keep], sessionctl archive add CONV for some, or a larger cleanupPeriodDays in {settings}"
            )),
        (true, Some(ours)) if ours <= vendor.days => of(
            Severity::Warning,
            format!("{deletes}, and backups are kept only for {}", count(ours, "day")),
        )
        .next("raise days below [keep], or leave it out"),
        (true, Some(ours)) => of(Severity::Ok, format!("{deletes}; backups are kept for {}", count(ours, "day"))),
        (true, None) => {
            let stay = match rules.bytes {
                Some(_) => "as long as there is room for them",
                None => "until sessionctl rm --transcripts or archive rm deletes them",
            };
            of(Severity::Ok, format!("{deletes}; backups stay {stay}"))
        }
    };
    let found = found.fact("vendorDays", vendor.days);
    let found = match vendor.told_by {
        Some(path) => found.fact("vendorSettings", path.to_string_lossy()),
        None => found,
    };
    match rules.days.filter(|_| rules.is_on) {
        Some(ours) => found.fact("keepDays", ours),
        None => found,
    }
}

fn kept(sessions: u64, bytes: u64, rules: KeepRules) -> Diagnostic {
    let takes = format!("backups of {} take {}", count(sessions, "session"), size(bytes));
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
        let days = || claude_days(&folder.path().join("managed"), folder.path()).map(|vendor| vendor.days);
        assert_eq!(days(), Ok(30));
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
            assert_eq!(days().ok(), expected, "{text}");
        }
    }

    #[test]
    fn an_organizations_settings_go_before_those_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let (managed, own) = (folder.path().join("managed"), folder.path().join("own"));
        fs::create_dir_all(managed.join("managed-settings.d")).unwrap();
        fs::create_dir(&own).unwrap();
        let steps = [
            (own.join("settings.json"), 90, 90),
            (managed.join("managed-settings.json"), 7, 7),
            (managed.join("managed-settings.d/20-late.json"), 3, 3),
            (managed.join("managed-settings.d/10-early.json"), 5, 3),
            (managed.join("managed-settings.d/30-not-read.json.old"), 1, 3),
        ];
        let told = || claude_days(&managed, &own).map(|vendor| vendor.days);
        for (path, days, expected) in steps {
            fs::write(&path, format!(r#"{{"cleanupPeriodDays":{days}}}"#)).unwrap();
            assert_eq!(told(), Ok(expected), "{}", path.display());
        }
        let late = managed.join("managed-settings.d/20-late.json");
        assert_eq!(claude_days(&managed, &own).unwrap().told_by, Some(late));
        fs::write(managed.join("managed-settings.json"), "{").unwrap();
        assert_eq!(told(), Ok(3), "one that says it goes before it");
        fs::remove_dir_all(managed.join("managed-settings.d")).unwrap();
        assert!(told().is_err());
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
        for (days, rules, expected) in table {
            let vendor = days.map(|days| Vendor { days, told_by: None });
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

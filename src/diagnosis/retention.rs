//! Compares how long agents keep their transcripts with how long backups are kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};
use serde_json::Value;

use super::{count, size};
use crate::agent::kinds::Retention;
use crate::conversation::backup::BackupRules;
use crate::conversation::services::{Services, chain_text};

/// The share of its limit, in percent, from which the archive is reported as about to delete its oldest copies.
const NEARLY_FULL_PERCENT: u128 = 90;

/// Reports on every agent whose transcripts can be backed up, and on the backups.
pub(super) fn check_retention(services: &Services) -> Vec<Diagnostic> {
    let rules = services.backups.rules;
    let entries = services.catalog.entries();
    let mut diagnostics: Vec<Diagnostic> = entries
        .filter_map(|entry| {
            let (folder, _) = entry.listed_transcripts()?;
            let diagnostic = match entry.kind.retention {
                Retention::Unknown => return None,
                Retention::NotDeleted(what) => Diagnostic::new(DiagnosticKind::Retention, Severity::Ok, what),
                Retention::DeletedAfter { days, managed } => {
                    diagnose_agent_retention(read_agent_retention(days, Path::new(managed), folder), rules)
                }
            };
            Some(diagnostic.about(entry.name.as_str()))
        })
        .collect();
    diagnostics.push(match services.backups.archive.total() {
        Ok(total) => diagnose_archive(total.sessions, total.bytes, rules)
            .about(services.backups.archive.folder().to_string_lossy()),
        Err(error) => {
            let what = format!("cannot read the backups: {}", chain_text(&error));
            Diagnostic::new(DiagnosticKind::Retention, Severity::Error, what)
                .next("check the permissions of the data folder")
        }
    });
    diagnostics
}

/// How long an agent keeps transcripts, and the file with that setting, if any.
#[derive(Debug, PartialEq)]
struct AgentRetention {
    days: u64,
    source: Option<PathBuf>,
}

/// Reads the agent's settings, or returns why they are unknown. An organization's settings in files override the
/// user's. Settings of projects and from a server are not read.
fn read_agent_retention(usual_days: u64, managed: &Path, folder: &Path) -> Result<AgentRetention, String> {
    // The last of these wins.
    let parts = managed.join("managed-settings.d");
    let mut files = match fs::read_dir(&parts) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<PathBuf>, io::Error>>(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
    .map_err(|error| format!("cannot read {}: {error}", parts.display()))?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort_unstable_by(|one, other| other.cmp(one));
    files.push(managed.join("managed-settings.json"));
    files.push(folder.join("settings.json"));
    for path in files {
        if let Some(days) = days_in(&path)? {
            return Ok(AgentRetention {
                days,
                source: Some(path),
            });
        }
    }
    Ok(AgentRetention {
        days: usual_days,
        source: None,
    })
}

/// Reads the setting from one file, if present.
fn days_in(path: &Path) -> Result<Option<u64>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
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

fn diagnose_agent_retention(vendor: Result<AgentRetention, String>, rules: BackupRules) -> Diagnostic {
    let diagnostic = |severity, what: String| Diagnostic::new(DiagnosticKind::Retention, severity, what);
    let vendor = match vendor {
        Ok(vendor) => vendor,
        Err(why) => {
            return diagnostic(
                Severity::Warning,
                format!("unknown how long it keeps transcripts: {why}"),
            )
            .next("fix that file");
        }
    };
    let deletes = format!(
        "it deletes transcripts {} after the last write",
        count(vendor.days, "day")
    );
    let settings = vendor.source.as_ref().map_or_else(
        || "its settings.json".to_owned(),
        |path| path.display().to_string(),
    );
    let found = match (rules.is_enabled, rules.max_days) {
        (false, _) => diagnostic(Severity::Warning, format!("{deletes}, and they are not backed up"))
            .next(format!(
                "set enabled = true in [keep], back up single sessions with sessionctl archive add, or raise cleanupPeriodDays in {settings}"
            )),
        (true, Some(backup_days)) if backup_days <= vendor.days => diagnostic(
            Severity::Warning,
            format!("{deletes}, and backups are kept for only {}", count(backup_days, "day")),
        )
        .next("raise days in [keep], or remove it"),
        (true, Some(backup_days)) => diagnostic(Severity::Ok, format!("{deletes}; backups are kept for {}", count(backup_days, "day"))),
        (true, None) => {
            let stay = match rules.max_bytes {
                Some(_) => "as long as there is room for them",
                None => "until sessionctl rm --transcripts or archive rm deletes them",
            };
            diagnostic(Severity::Ok, format!("{deletes}; backups stay {stay}"))
        }
    };
    let found = found.fact("vendorDays", vendor.days);
    let found = match vendor.source {
        Some(path) => found.fact("vendorSettings", path.to_string_lossy()),
        None => found,
    };
    match rules.max_days.filter(|_| rules.is_enabled) {
        Some(backup_days) => found.fact("keepDays", backup_days),
        None => found,
    }
}

fn diagnose_archive(sessions: u64, bytes: u64, rules: BackupRules) -> Diagnostic {
    let takes = format!("backups of {} take {}", count(sessions, "session"), size(bytes));
    let is_nearly_full = |bound: &u64| u128::from(bytes) * 100 >= u128::from(*bound) * NEARLY_FULL_PERCENT;
    let found = match rules.max_bytes {
        Some(bound) if is_nearly_full(&bound) => Diagnostic::new(
            DiagnosticKind::Retention,
            Severity::Note,
            format!("{takes} of at most {}: the oldest are deleted next", size(bound)),
        )
        .next("to keep them longer, raise bytes in [keep]"),
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
        let days = || {
            read_agent_retention(30, &folder.path().join("managed"), folder.path()).map(|found| found.days)
        };
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
    fn an_organizations_settings_override_the_users() {
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
        let days_of_vendor = || read_agent_retention(30, &managed, &own).map(|found| found.days);
        for (path, days, expected) in steps {
            fs::write(&path, format!(r#"{{"cleanupPeriodDays":{days}}}"#)).unwrap();
            assert_eq!(days_of_vendor(), Ok(expected), "{}", path.display());
        }
        let late = managed.join("managed-settings.d/20-late.json");
        assert_eq!(
            read_agent_retention(30, &managed, &own).unwrap().source,
            Some(late)
        );
        fs::write(managed.join("managed-settings.json"), "{").unwrap();
        assert_eq!(days_of_vendor(), Ok(3), "another file overrides the broken one");
        fs::remove_dir_all(managed.join("managed-settings.d")).unwrap();
        assert!(days_of_vendor().is_err());
    }

    #[test]
    fn backups_deleted_before_the_transcripts_are_reported() {
        let rules = |is_on, days| BackupRules {
            is_enabled: is_on,
            max_days: days,
            max_bytes: None,
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
            let vendor = days.map(|days| AgentRetention { days, source: None });
            let found = diagnose_agent_retention(vendor, rules);
            assert_eq!(found.severity, expected, "{found:?}");
            assert_eq!(found.next_step.is_some(), expected != Severity::Ok);
        }
    }

    #[test]
    fn a_nearly_reached_limit_is_reported() {
        let bound = |bytes| BackupRules {
            is_enabled: true,
            max_days: None,
            max_bytes: bytes,
        };
        assert_eq!(diagnose_archive(1, 89, bound(Some(100))).severity, Severity::Ok);
        assert_eq!(diagnose_archive(1, 90, bound(Some(100))).severity, Severity::Note);
        assert_eq!(diagnose_archive(1, u64::MAX, bound(None)).severity, Severity::Ok);
    }
}

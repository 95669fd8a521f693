//! What the daemon stands on, looked at when somebody asks: store, disks, agents, transcripts, and what was left behind.
//!
//! It changes nothing that is whole: an agent that it has started is ended again unless somebody else has come to use it, and only
//! a journal that is damaged is written anew, for which changes wait. It must not know a socket, and what belongs to the program that
//! asks (folders' rights, the lock, another daemon) is that program's to look at.

mod agents;
mod disks;
mod left_over;
mod quirks;
mod retention;

use std::path::Path;
use std::sync::Arc;

use bridge_protocol::diagnosis::{Diagnosis, Diagnostic, DiagnosticKind, Severity};

use crate::conversation::services::{Services, chain_text};
use crate::conversation::set_aside;
use crate::store;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Whether agents are started that do not run.
    pub with_agents: bool,
    /// The `PATH` of the one who asks: an agent that is only there is not the daemon's to start, and that is told.
    pub path: Option<String>,
}

/// Looks at everything.
pub async fn diagnose(services: &Arc<Services>, question: &Question) -> Diagnosis {
    let mut diagnostics = on_the_disk(services, stored).await;
    diagnostics.extend(on_the_disk(services, unread).await);
    diagnostics.extend(on_the_disk(services, disks::room).await);
    diagnostics.extend(agents::all(services, question).await);
    diagnostics.extend(on_the_disk(services, agents::all_transcripts).await);
    diagnostics.extend(on_the_disk(services, retention::all).await);
    diagnostics.extend(on_the_disk(services, left_over::processes).await);
    Diagnosis { diagnostics }
}

/// What blocks, off the runtime's own threads. A look that panics is told of as nothing, and logged.
async fn on_the_disk(services: &Arc<Services>, look: fn(&Services) -> Vec<Diagnostic>) -> Vec<Diagnostic> {
    let services = Arc::clone(services);
    let looked = tokio::task::spawn_blocking(move || look(&services)).await;
    looked.unwrap_or_else(|error| {
        tracing::error!(%error, "a check of the daemon's surroundings failed");
        Vec::new()
    })
}

fn stored(services: &Services) -> Vec<Diagnostic> {
    let status = services.store.status();
    let data = services.data.to_string_lossy();
    let store = if let Some(failure) = &status.failure {
        let what = format!("changes can no longer be stored: {}", chain_text(failure));
        Diagnostic::new(DiagnosticKind::Store, Severity::Error, what).next(
            "check the free space and the permissions of the data folder; confirmed changes are not lost",
        )
    } else if status.is_ephemeral {
        let what = "all data is in memory only and is lost when the daemon stops";
        Diagnostic::new(DiagnosticKind::Store, Severity::Note, what)
            .next("start sessiond without --ephemeral")
    } else {
        let what = format!(
            "{}, {} on record, {} of journal",
            count(status.conversations, "conversation"),
            count(status.sequence.0, "change"),
            size(status.journal_bytes)
        );
        Diagnostic::new(DiagnosticKind::Store, Severity::Ok, what)
    };
    let store = store
        .about(data.clone())
        .fact("conversations", status.conversations)
        .fact("journalBytes", status.journal_bytes);
    let mut found = vec![store];
    if let Some(failure) = &status.database_failure {
        let what = format!(
            "the database failed: {}; everything is read from memory, and changes are kept in the journal",
            chain_text(failure)
        );
        found.push(
            Diagnostic::new(DiagnosticKind::Store, Severity::Warning, what)
                .about(data.clone())
                .fact("databaseFailed", true)
                .next("check the disk and its free space, then restart the daemon, which rebuilds the database: sessionctl stop"),
        );
    }
    found.extend(opening(services));
    found.extend(journal(services));
    for path in damaged_stores(&services.data) {
        let what = "a part of the store that could not be used is kept here; what could be read of it is in use again";
        found.push(
            Diagnostic::new(DiagnosticKind::SetAside, Severity::Warning, what)
                .about(path.to_string_lossy())
                .next("compare sessionctl ls with what you remember; when nothing is missing, remove it"),
        );
    }
    found
}

/// The daemon's own files that are kept although they are of no use as they are.
fn unread(services: &Services) -> Vec<Diagnostic> {
    let all = set_aside::all(services).into_iter();
    let found = all.map(|kept| {
        let (severity, what, next) = match kept.is_strange {
            false => (
                Severity::Warning,
                format!("this cannot be used, and nothing in it was deleted: {}", kept.why),
                "the log says when and why; save what is needed of it, and remove it when nothing is",
            ),
            true => (Severity::Note, kept.why, "move it away if it is still needed"),
        };
        Diagnostic::new(DiagnosticKind::SetAside, severity, what)
            .about(kept.path.to_string_lossy())
            .next(next)
    });
    found.collect()
}

/// What was wrong with the store's files when the daemon started.
fn opening(services: &Services) -> Option<Diagnostic> {
    let report = services.store.opening();
    if !report.is_damaged() {
        return None;
    }
    let restored = count(report.restored, "change");
    let found = if report.may_have_lost() {
        let missing = match report.missing {
            0 => "an unknown number of changes".to_owned(),
            missing => count(missing, "change"),
        };
        let unreadable = match report.unreadable_values {
            0 => String::new(),
            values => format!("; {} of the database cannot be read", count(values, "value")),
        };
        let what = format!(
            "the journal was damaged or missing when the daemon started: {restored} restored from the database, and {missing} may be lost{unreadable}"
        );
        Diagnostic::new(DiagnosticKind::Store, Severity::Error, what)
            .next("check for missing conversations with: sessionctl ls; the damaged files are kept in the data folder")
    } else {
        let what = format!(
            "the journal was damaged or missing when the daemon started; nothing is lost: {restored} restored from the database"
        );
        Diagnostic::new(DiagnosticKind::Store, Severity::Warning, what)
            .next("check the disk: something has changed or damaged a file of the daemon")
    };
    let subject = report.journal_kept.as_deref().unwrap_or(&services.data);
    Some(
        found
            .about(subject.to_string_lossy())
            .fact("missingChanges", report.missing)
            .fact("restoredChanges", report.restored)
            .fact("unreadableValues", report.unreadable_values),
    )
}

/// What is wrong with the journal, and what became of that.
fn journal(services: &Services) -> Option<Diagnostic> {
    let damage = match services.store.check_journal() {
        Ok(None) => return None,
        Ok(Some(damage)) => damage,
        Err(error) => {
            let what = format!(
                "the journal could not be checked or rewritten: {}",
                chain_text(&error)
            );
            let found = Diagnostic::new(DiagnosticKind::Store, Severity::Error, what);
            return Some(found.about(services.data.to_string_lossy()).next(
                "check the free space, the permissions and the health of the disk, and run sessionctl doctor again; if that does not help, save a copy of the data folder",
            ));
        }
    };
    let bytes = damage.damaged.iter().map(|region| region.bytes).sum();
    let what = format!(
        "{} of the journal could not be read, with {} that no other line has; it was rewritten from the database",
        size(bytes),
        count(damage.missing, "change"),
    );
    let found = Diagnostic::new(DiagnosticKind::Store, Severity::Warning, what)
        .about(damage.kept.to_string_lossy())
        .fact("damagedBytes", bytes)
        .next("another program changed a file of the daemon, or the disk is failing: check both; the damaged file was kept there");
    Some(found)
}

fn damaged_stores(data: &Path) -> Vec<std::path::PathBuf> {
    store::set_aside_in(data).unwrap_or_else(|error| {
        tracing::warn!(%error, "the data folder cannot be listed");
        Vec::new()
    })
}

/// So many of something, for people.
fn count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// So many bytes, for people: a number below 1024 with its unit.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut scale = 1_u64;
    while bytes / scale >= 1024 && unit + 1 < UNITS.len() {
        scale *= 1024;
        unit += 1;
    }
    let tenths = (u128::from(bytes) * 10 / u128::from(scale)) % 10;
    match (unit, tenths) {
        (0, _) => format!("{bytes} bytes"),
        _ => format!("{}.{tenths} {}", bytes / scale, UNITS.get(unit).unwrap_or(&"")),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_told_with_one_digit_behind_the_point() {
        let table = [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (21 * 1024 * 1024, "21.0 MiB"),
            (1024_u64.pow(4) * 2048, "2048.0 TiB"),
        ];
        for (bytes, expected) in table {
            assert_eq!(size(bytes), expected);
        }
    }
}

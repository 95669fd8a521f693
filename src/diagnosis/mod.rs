//! Diagnoses what the daemon depends on: store, disks, agents, transcripts and left-over processes.
//!
//! A diagnosis changes nothing that is intact: it rewrites only a damaged journal, and changes to the store wait
//! meanwhile. It ends the agents that it started, unless a client uses them by then. This module does not know sockets.
//! The calling program checks the permissions of folders, the lock and other daemons.

mod agents;
mod disks;
mod quirks;
mod retention;
mod stray_processes;

use std::path::Path;
use std::sync::Arc;

use bridge_protocol::diagnosis::{Diagnosis, Diagnostic, DiagnosticKind, Severity};
use indicatif::BinaryBytes;

use crate::conversation::read_queues::ReadClass;
use crate::conversation::services::{Services, chain_text};
use crate::conversation::{lost_parts, unusable_files};
use crate::paths::names::BODIES;
use crate::store;

/// How many conversations with lost parts are reported one by one.
const REPORTED_LOSSES: usize = 20;

/// The options of a diagnosis.
#[derive(Clone, Debug, Default)]
pub struct DiagnosisOptions {
    /// Whether to start agents that are not running.
    pub with_agents: bool,
    /// The caller's `PATH`. An agent found only there is reported, because the daemon cannot start it.
    pub path: Option<String>,
}

/// Runs all checks.
pub async fn diagnose(services: &Arc<Services>, question: &DiagnosisOptions) -> Diagnosis {
    let mut diagnostics = run_blocking(services, check_store).await;
    diagnostics.extend(run_blocking(services, incomplete_conversations).await);
    diagnostics.extend(run_blocking(services, set_aside_files).await);
    let (room, transcripts) = tokio::join!(
        run_unless_stalled(services, DiagnosticKind::Room, disks::check_free_space),
        run_unless_stalled(services, DiagnosticKind::Transcripts, check_transcripts),
    );
    diagnostics.extend(room);
    diagnostics.extend(agents::check_all(services, question).await);
    diagnostics.extend(transcripts);
    diagnostics.extend(run_blocking(services, stray_processes::check_stray_processes).await);
    Diagnosis { diagnostics }
}

/// Runs a blocking check outside the runtime's threads. A check that panics is logged and reports nothing.
async fn run_blocking(services: &Arc<Services>, check: fn(&Services) -> Vec<Diagnostic>) -> Vec<Diagnostic> {
    let services = Arc::clone(services);
    let checked = tokio::task::spawn_blocking(move || check(&services)).await;
    checked.unwrap_or_else(|error| {
        tracing::error!(%error, "a diagnostic check panicked");
        Vec::new()
    })
}

/// Runs a check that looks at agents' folders. If one of them does not respond, the result is an error that says so.
async fn run_unless_stalled(
    services: &Arc<Services>,
    kind: DiagnosticKind,
    check: fn(&Services) -> Vec<Diagnostic>,
) -> Vec<Diagnostic> {
    let place = services.read_queues.folder_queue(None, ReadClass::Look);
    let services = Arc::clone(services);
    let looked = place.run_blocking(move || Ok(check(&services))).await;
    looked.unwrap_or_else(|error| vec![Diagnostic::new(kind, Severity::Error, chain_text(&error))])
}

fn check_transcripts(services: &Services) -> Vec<Diagnostic> {
    [
        agents::check_all_transcripts(services),
        retention::check_retention(services),
    ]
    .concat()
}

fn check_store(services: &Services) -> Vec<Diagnostic> {
    let status = services.store.status();
    let data = services.data_folder.to_string_lossy();
    let store = if let Some(failure) = &status.failure {
        let what = format!("changes can no longer be saved: {}", chain_text(failure));
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
    let mut diagnostics = vec![store];
    if let Some(failure) = &status.database_failure {
        let what = format!(
            "the database failed: {}; reading from memory; changes are still saved in the journal",
            chain_text(failure)
        );
        diagnostics.push(
            Diagnostic::new(DiagnosticKind::Store, Severity::Warning, what)
                .about(data.clone())
                .fact("databaseFailed", true)
                .next("check the disk and its free space, then restart the daemon, which rebuilds the database: sessionctl stop"),
        );
    }
    diagnostics.extend(store_damage(services));
    diagnostics.extend(journal_damage(services));
    for path in damaged_stores(&services.data_folder) {
        let what = "an unusable part of the store was set aside here; everything readable in it is in use";
        diagnostics.push(
            Diagnostic::new(DiagnosticKind::SetAside, Severity::Warning, what)
                .about(path.to_string_lossy())
                .next("check for missing conversations with: sessionctl ls; if none is missing, remove it"),
        );
    }
    diagnostics
}

/// Reports the conversations whose records lack parts, because files of the store cannot be read.
fn incomplete_conversations(services: &Services) -> Vec<Diagnostic> {
    let error = |what: String| Diagnostic::new(DiagnosticKind::Store, Severity::Error, what);
    let lost = match services.store.lost_parts() {
        Ok(lost) => lost,
        Err(failure) => {
            let what = format!("cannot check the conversations: {}", chain_text(&failure));
            let diagnostic = error(what).about(services.data_folder.to_string_lossy());
            return vec![diagnostic.next("check the disk and the permissions of the data folder")];
        }
    };
    let named = lost.iter().take(REPORTED_LOSSES).filter_map(|(id, parts)| {
        let path = &parts.first()?.path;
        let diagnostic = error(lost_parts::describe_loss(*id, parts)).about(path.to_string_lossy());
        Some(
            diagnostic
                .next(lost_parts::loss_advice(*id, parts))
                .fact("conversationId", id.to_string()),
        )
    });
    let mut diagnostics: Vec<Diagnostic> = named.collect();
    if let Some(more) = lost.len().checked_sub(REPORTED_LOSSES + 1) {
        let what = match more {
            0 => "1 more conversation lacks parts whose files cannot be read".to_owned(),
            _ => format!(
                "{} more conversations lack parts whose files cannot be read",
                more + 1
            ),
        };
        let bodies = services.data_folder.join(BODIES);
        diagnostics.push(
            error(what)
                .about(bodies.to_string_lossy())
                .next("restore the folder from a backup of the data folder"),
        );
    }
    diagnostics
}

/// Reports set-aside files of the daemon, which are kept although they are unusable.
fn set_aside_files(services: &Services) -> Vec<Diagnostic> {
    let all = unusable_files::list_unusable_files(services).into_iter();
    let found = all.map(|file| {
        let (severity, what, next) = match file.is_foreign {
            false => (
                Severity::Warning,
                format!(
                    "set aside because it cannot be used; nothing was deleted: {}",
                    file.reason
                ),
                "see the log for the reason; save what you need from it, then remove it",
            ),
            true => (Severity::Note, file.reason, "move it away if it is still needed"),
        };
        Diagnostic::new(DiagnosticKind::SetAside, severity, what)
            .about(file.path.to_string_lossy())
            .next(next)
    });
    found.collect()
}

/// Reports what was wrong with the store's files when the daemon started.
fn store_damage(services: &Services) -> Option<Diagnostic> {
    let report = services.store.open_report();
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
            .next("check the disk: a file of the daemon was changed or damaged")
    };
    let subject = report.journal_copy.as_deref().unwrap_or(&services.data_folder);
    Some(
        found
            .about(subject.to_string_lossy())
            .fact("missingChanges", report.missing)
            .fact("restoredChanges", report.restored)
            .fact("unreadableValues", report.unreadable_values),
    )
}

/// Reports damage of the journal, and what was done about it.
fn journal_damage(services: &Services) -> Option<Diagnostic> {
    let damage = match services.store.check_journal() {
        Ok(None) => return None,
        Ok(Some(damage)) => damage,
        Err(error) => {
            let what = format!("cannot check or rewrite the journal: {}", chain_text(&error));
            let diagnostic = Diagnostic::new(DiagnosticKind::Store, Severity::Error, what);
            return Some(diagnostic.about(services.data_folder.to_string_lossy()).next(
                "check free space, permissions and the health of the disk, then run sessionctl doctor again; if that does not help, copy the data folder",
            ));
        }
    };
    let bytes = damage.damaged.iter().map(|region| region.bytes).sum();
    let what = format!(
        "{} of the journal were unreadable, and {} had no readable line; the journal was rewritten from the database",
        size(bytes),
        count(damage.missing, "change"),
    );
    let diagnostic = Diagnostic::new(DiagnosticKind::Store, Severity::Warning, what)
        .about(damage.copy.to_string_lossy())
        .fact("damagedBytes", bytes)
        .next(
            "another program changed the file, or the disk is failing: check both; the damaged file was kept",
        );
    Some(diagnostic)
}

fn damaged_stores(data: &Path) -> Vec<std::path::PathBuf> {
    store::set_aside_in(data).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot list the data folder");
        Vec::new()
    })
}

/// Formats a number of things.
fn count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// Formats bytes in the largest unit that fits.
fn size(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

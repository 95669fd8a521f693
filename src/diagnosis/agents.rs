//! Checks the agents: whether each is found and starts, what it offers, who is signed in, and whether its transcripts
//! are usable.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};
use futures_util::stream::{self, StreamExt};
use rustix::fs::{Access, access};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{DiagnosisOptions, count, quirks};
use crate::agent::catalog::{AgentEntry, find_program};
use crate::agent::kinds;
use crate::agent::pool::Lease;
use crate::agent::session::{Capabilities, Initialized};
use crate::conversation::climbing::acquire_process;
use crate::conversation::error::ConversationError;
use crate::conversation::services::Services;
use crate::conversation::transcript_facts::turns_without_transcripts;
use crate::paths::shell_word;

/// How many agents are started at a time. Each is up to three processes.
const STARTS_AT_A_TIME: usize = 4;

/// How many characters of an agent's text are shown.
const SHOWN_CHARS: usize = 200;

/// How long an agent may take to find out who is signed in. Claude's adapter allows 5 s for its own check.
const AUTH_STATUS_LIMIT: Duration = Duration::from_secs(6);

/// Checks all agents that are configured or found, and those that only the caller's `PATH` has.
pub(super) async fn check_all(services: &Arc<Services>, options: &DiagnosisOptions) -> Vec<Diagnostic> {
    let entries: Vec<_> = services.catalog.entries().cloned().collect();
    let each = entries.iter().cloned();
    let checks = each.map(|entry| async move { check(services, &entry, options).await });
    let mut diagnostics = stream::iter(checks).buffered(STARTS_AT_A_TIME).concat().await;
    let on_callers_path = found_on_callers_path(services, options);
    // A known agent that is missing already says how to install it.
    if on_callers_path.is_empty() && entries.iter().all(|entry| *entry.kind == kinds::LOOPBACK) {
        let what = "the daemon found no coding agent, only the built-in one, which echoes prompts";
        let install = kinds::CLAUDE.install_command().unwrap_or_default();
        diagnostics.push(
            Diagnostic::new(DiagnosticKind::Agent, Severity::Warning, what).next(with_restart(&install)),
        );
    }
    diagnostics.extend(on_callers_path);
    diagnostics
}

async fn check(services: &Services, entry: &AgentEntry, options: &DiagnosisOptions) -> Vec<Diagnostic> {
    if !entry.is_program_found() {
        return vec![not_found(services, entry, options)];
    }
    if let Some(lease) = services.pool.lease_for_inspection(entry.name.as_str()) {
        return diagnose_running(entry, &lease).await;
    }
    if !options.with_agents {
        let what = "installed, but not running; not started for this check";
        return vec![agent_diagnostic(
            entry,
            DiagnosticKind::Agent,
            Severity::Note,
            what,
        )];
    }
    match acquire_process(services, entry).await {
        Ok(lease) => {
            // Called first, because the caller may disconnect before the agent answers.
            lease.end_after_inspection();
            diagnose_running(entry, &lease).await
        }
        Err(ConversationError::ShuttingDown) => Vec::new(),
        Err(error) => vec![not_started(entry, &error)],
    }
}

fn agent_diagnostic(
    entry: &AgentEntry,
    kind: DiagnosticKind,
    severity: Severity,
    what: impl Into<String>,
) -> Diagnostic {
    let diagnostic = Diagnostic::new(kind, severity, what).about(entry.name.as_str());
    match kind {
        DiagnosticKind::Agent => diagnostic
            .fact("command", entry.command_line())
            .fact("agentKind", entry.kind.name),
        _ => diagnostic,
    }
}

fn not_found(services: &Services, entry: &AgentEntry, options: &DiagnosisOptions) -> Diagnostic {
    let program = &entry.launch.command.program;
    let severity = match entry.name == services.catalog.default_agent() {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let path = options.path.as_deref().map(OsStr::new);
    if let Some(program_path) = find_program(program, path) {
        let what = format!(
            "its program {} is not on the daemon's PATH, but on yours",
            program.display()
        );
        return agent_diagnostic(entry, DiagnosticKind::Agent, severity, what)
            .next(path_hint(&program_path, entry.name.as_str()));
    }
    if let Some(program_path) = entry.find_unusable_program() {
        let words = |program_path: &Path| program_path.display().to_string();
        let (what, next) = match program_path.is_dir() {
            true => (
                format!("its program {} is a folder", words(&program_path)),
                format!("set command in [agents.{}] to the program", entry.name),
            ),
            false => (
                format!("its program {} is not executable", words(&program_path)),
                format!("chmod +x {}", quoted(&[words(&program_path)])),
            ),
        };
        return agent_diagnostic(entry, DiagnosticKind::Agent, severity, what).next(next);
    }
    let configured = format!("set command in [agents.{}] to its path", entry.name);
    // The program is installed for the caller.
    let is_searched = options.path.is_none() || path == entry.search_path().as_deref();
    let next = match entry.kind.install_command() {
        Some(install) if is_searched => format!("{install}; or {configured}"),
        Some(install) => format!("{}; or {configured}", with_restart(&install)),
        None => configured,
    };
    let what = format!("its program {} was not found", program.display());
    let diagnostic = agent_diagnostic(entry, DiagnosticKind::Agent, severity, what).next(next);
    match entry.kind.install_command() {
        Some(install) => diagnostic.fact("install", install),
        None => diagnostic,
    }
}

fn not_started(entry: &AgentEntry, error: &ConversationError) -> Diagnostic {
    let (kind, next) = match error {
        ConversationError::AuthRequired { .. } => (DiagnosticKind::SignIn, entry.kind.sign_in.to_owned()),
        _ => (
            DiagnosticKind::Agent,
            format!(
                "check the daemon's log, or run it yourself: {}; if it needs more time to start, raise agent_start_ms in \
                 [limits]",
                quoted(&entry.command_line())
            ),
        ),
    };
    agent_diagnostic(entry, kind, Severity::Error, error.to_string()).next(next)
}

/// Reports what a running agent declares.
async fn diagnose_running(entry: &AgentEntry, lease: &Lease) -> Vec<Diagnostic> {
    let initialized = lease.initialized();
    let name = agent_name(initialized);
    let version = initialized.agent_version.as_deref();
    let offers = optional_methods(&initialized.capabilities);
    let what = format!(
        "{} {} offers {}",
        name.as_deref().unwrap_or("it"),
        version.unwrap_or("(unknown version)"),
        match offers.is_empty() {
            true => "only new sessions".to_owned(),
            false => offers.join(", "),
        }
    );
    let mut diagnostics = vec![
        agent_diagnostic(entry, DiagnosticKind::Agent, Severity::Ok, what)
            .fact("version", version.map_or(Value::Null, Value::from))
            .fact("offers", offers),
    ];
    diagnostics.extend(diagnose_sign_in(entry, lease).await);
    let declared = quirks::DeclaredAgent {
        name: name.as_deref(),
        version,
        reads_transcripts: entry.transcript_format.or(entry.kind.transcript_format).is_some(),
        capabilities: &initialized.capabilities,
    };
    let quirks = quirks::quirks_of(entry.kind, &declared).into_iter();
    diagnostics.extend(quirks.map(|quirk| quirk.about(entry.name.as_str())));
    diagnostics
}

fn agent_name(initialized: &Initialized) -> Option<String> {
    let info: Value = serde_json::from_str(initialized.agent_info.as_deref()?.get()).ok()?;
    Some(info.get("name")?.as_str()?.to_owned())
}

/// Returns the names of the optional methods that it offers.
fn optional_methods(capabilities: &Capabilities) -> Vec<&'static str> {
    let all = [
        (capabilities.load_session, "load"),
        (capabilities.resume, "resume"),
        (capabilities.fork, "fork"),
        (capabilities.list, "list"),
        (capabilities.close, "close"),
        (capabilities.delete, "delete"),
        (capabilities.images, "images"),
        (capabilities.logout, "logout"),
    ];
    all.into_iter()
        .filter(|(is_offered, _)| *is_offered)
        .map(|(_, name)| name)
        .collect()
}

async fn diagnose_sign_in(entry: &AgentEntry, lease: &Lease) -> Option<Diagnostic> {
    if !lease.initialized().capabilities.auth_status {
        let what = "it does not report whether you are signed in; the first prompt shows it";
        let is_quiet = *entry.kind == kinds::LOOPBACK;
        return (!is_quiet).then(|| agent_diagnostic(entry, DiagnosticKind::SignIn, Severity::Note, what));
    }
    // If this times out, the agent counts as not reporting.
    let _late = tokio::time::timeout(AUTH_STATUS_LIMIT, lease.connection().auth_status_reported()).await;
    let Some(status) = lease.connection().auth_status() else {
        let what = "it did not report in time whether you are signed in; the first prompt shows it";
        return Some(agent_diagnostic(
            entry,
            DiagnosticKind::SignIn,
            Severity::Note,
            what,
        ));
    };
    Some(sign_in_status(entry, &status))
}

fn sign_in_status(entry: &AgentEntry, status: &RawValue) -> Diagnostic {
    let status: Value = serde_json::from_str(status.get()).unwrap_or_default();
    let text = |name: &str| status.get(name).and_then(Value::as_str);
    let label: String = text("label")
        .unwrap_or("method unknown")
        .chars()
        .take(SHOWN_CHARS)
        .collect();
    let found = match text("kind") {
        Some("none") => {
            let what = format!("not signed in, as last reported: {label}");
            agent_diagnostic(entry, DiagnosticKind::SignIn, Severity::Warning, what)
                .next(entry.kind.sign_in.to_owned())
        }
        Some(_) => agent_diagnostic(
            entry,
            DiagnosticKind::SignIn,
            Severity::Ok,
            format!("signed in, as last reported: {label}"),
        ),
        None => agent_diagnostic(
            entry,
            DiagnosticKind::SignIn,
            Severity::Note,
            "cannot read its report of who is signed in",
        ),
    };
    found.fact("authStatus", status)
}

/// The command that installs an agent and then stops the daemon. A running daemon finds only some agents that are installed
/// later, and only in its own `PATH`.
fn with_restart(install: &str) -> String {
    format!("{install} && sessionctl stop")
}

fn path_hint(place: &Path, name: &str) -> String {
    format!(
        "restart the daemon with your PATH: sessionctl stop, then any command (for a service, first run systemctl --user \
         import-environment PATH); or set command = {:?} in [agents.{name}], and env = {{ PATH = \"…\" }} if the program needs it",
        place.display().to_string()
    )
}

/// Returns programs of known agents that are on the caller's `PATH` and unknown to the daemon.
fn found_on_callers_path(services: &Services, question: &DiagnosisOptions) -> Vec<Diagnostic> {
    let Some(path) = question.path.as_deref().map(OsStr::new) else {
        return Vec::new();
    };
    let is_known = |kind| services.catalog.entries().any(|entry| entry.kind == kind);
    let unknown = kinds::ALL.iter().copied().filter(|kind| !is_known(*kind));
    let found = unknown.filter_map(|kind| {
        let programs = kind.programs.iter();
        let program_path: PathBuf = programs
            .filter_map(|program| find_program(Path::new(program), Some(path)))
            .next()?;
        let what = format!("the daemon did not find its program {}", program_path.display());
        let found = Diagnostic::new(DiagnosticKind::Agent, Severity::Warning, what).about(kind.name);
        Some(found.next(path_hint(&program_path, kind.name)))
    });
    found.collect()
}

/// Quotes a command line for a shell.
fn quoted(words: &[String]) -> String {
    let quoted = words.iter().map(|word| shell_word(word));
    quoted.collect::<Vec<_>>().join(" ")
}

/// Checks whether the transcripts of each agent can be read and restored.
pub(super) fn check_all_transcripts(services: &Services) -> Vec<Diagnostic> {
    let entries = services.catalog.entries();
    entries
        .filter_map(|entry| check_transcripts_of(services, entry))
        .collect()
}

fn check_transcripts_of(services: &Services, entry: &AgentEntry) -> Option<Diagnostic> {
    let (root, format) = entry.listed_transcripts()?;
    // The daemon's own folder.
    if *entry.kind == kinds::LOOPBACK {
        return None;
    }
    let place = root.display();
    let diagnostic = |severity, what| Diagnostic::new(DiagnosticKind::Transcripts, severity, what);
    let is_missing = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let diagnostic = if root.symlink_metadata().is_err_and(is_missing) {
        diagnostic(
            Severity::Note,
            format!("no transcripts yet: {place} does not exist"),
        )
    } else {
        let tops = format.top_folders(root);
        let mut all = std::iter::once(root).chain(tops.iter().map(PathBuf::as_path));
        let fault = all
            .find_map(unusable_folder)
            .or_else(|| first_unusable_below(&tops));
        fault.unwrap_or_else(|| match turns_without_transcripts(services, entry) {
            0 => diagnostic(Severity::Ok, format!("its transcripts are in {place}")),
            turns => {
                let turns = count(turns, "turn");
                let what = format!("{turns} completed, but {place} has no transcript of them, so they cannot be backed up");
                diagnostic(Severity::Warning, what).next(format!(
                    "set transcripts in [agents.{}] to the folder in which the agent stores them, then restart the daemon: sessionctl stop",
                    entry.name
                ))
            }
        })
    };
    Some(diagnostic.about(entry.name.as_str()))
}

/// How many project folders are checked. There may be very many, and an unusable one is rarely the only one.
const CHECKED_FOLDERS: usize = 1_000;

/// Returns why a folder of transcripts cannot be used, if so. A missing one is fine.
fn unusable_folder(folder: &Path) -> Option<Diagnostic> {
    let place = folder.display();
    let fault = |severity, what: String, next: &str| {
        Some(Diagnostic::new(DiagnosticKind::Transcripts, severity, what).next(next))
    };
    match folder.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // If it is not a link, it does not exist.
            let to = folder.read_link().ok()?;
            fault(
                Severity::Error,
                format!(
                    "its transcript folder {place} is a link to {}, which does not exist",
                    to.display()
                ),
                "restore what the link points to, or remove the link",
            )
        }
        Err(error) => fault(
            Severity::Error,
            format!("its transcripts cannot be read: {place}: {error}"),
            "let this user read the folder",
        ),
        Ok(metadata) if !metadata.is_dir() => fault(
            Severity::Error,
            format!("its transcript folder {place} is not a folder"),
            "move it away, or set transcripts in the agent's section of the configuration to the folder",
        ),
        Ok(_) if access(folder, Access::READ_OK | Access::EXEC_OK).is_err() => fault(
            Severity::Error,
            format!("its transcripts in {place} cannot be read"),
            "let this user read the folder",
        ),
        Ok(_) if access(folder, Access::WRITE_OK).is_err() => fault(
            Severity::Warning,
            format!("cannot restore or branch transcripts in {place}: it is not writable"),
            "let this user write to the folder",
        ),
        Ok(_) => None,
    }
}

/// Returns the first fault of the folders in `tops`, as a warning, because it affects only a few transcripts. Files
/// there are not transcripts of the agent.
fn first_unusable_below(tops: &[PathBuf]) -> Option<Diagnostic> {
    let entries = tops
        .iter()
        .filter_map(|top| top.read_dir().ok())
        .flatten()
        .flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| !path.is_file())
        .take(CHECKED_FOLDERS)
        .find_map(|folder| unusable_folder(&folder))
        .map(|fault| Diagnostic {
            severity: Severity::Warning,
            ..fault
        })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_of_transcripts_that_cannot_be_used_is_a_fault() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("projects");
        let found = || unusable_folder(&folder).map(|fault| (fault.severity, fault.message));
        assert_eq!(found(), None, "it does not exist yet");
        fs::create_dir(&folder).unwrap();
        assert_eq!(found(), None);
        fs::remove_dir(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        let check = |case| {
            let (severity, what) = found().unwrap();
            assert_eq!(severity, Severity::Error);
            crate::words::check(case, "diagnosis", &what);
        };
        check("a file as the folder of transcripts");
        fs::remove_file(&folder).unwrap();
        symlink(home.path().join("elsewhere"), &folder).unwrap();
        check("a link to no folder of transcripts");
        fs::create_dir(home.path().join("elsewhere")).unwrap();
        assert_eq!(found(), None, "a link to a folder is fine");
    }

    #[test]
    fn a_limited_number_of_folders_is_checked() {
        let root = tempfile::tempdir().unwrap();
        // The first folder is read completely before the second.
        let tops = ["many", "behind"].map(|name| root.path().join(name));
        for number in 0..CHECKED_FOLDERS {
            fs::create_dir_all(tops[0].join(number.to_string())).unwrap();
        }
        fs::write(tops[0].join("a file does not count"), "").unwrap();
        fs::create_dir(&tops[1]).unwrap();
        symlink("/nonexistent", tops[1].join("link")).unwrap();
        assert!(first_unusable_below(&tops).is_none());
        fs::remove_dir(tops[0].join("0")).unwrap();
        assert!(
            first_unusable_below(&tops)
                .unwrap()
                .message
                .contains("/nonexistent")
        );
    }

    #[test]
    fn a_folder_of_transcripts_needs_permissions() {
        if rustix::process::geteuid().is_root() {
            eprintln!("skipped: no rights keep root out");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        for (mode, expected) in [
            (0o500, Some(Severity::Warning)),
            (0o300, Some(Severity::Error)),
            (0o600, Some(Severity::Error)),
            (0o700, None),
        ] {
            fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                unusable_folder(folder.path()).map(|fault| fault.severity),
                expected,
                "{mode:o}"
            );
        }
    }
}

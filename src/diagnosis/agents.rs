//! The agents: whether each is found and starts, what it is and offers, who is signed in, and whether its transcripts can be had.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};
use futures_util::stream::{self, StreamExt};
use rustix::fs::{Access, access};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Question, quirks};
use crate::agent::catalog::{AgentEntry, find_program};
use crate::agent::pool::Lease;
use crate::agent::profile::AgentKind;
use crate::agent::session::{Capabilities, Initialized};
use crate::conversation::climbing::acquire;
use crate::conversation::error::ConversationError;
use crate::conversation::services::Services;
use crate::paths::shell_word;

/// An agent is a process or three of its own.
const STARTS_AT_A_TIME: usize = 4;

/// As much is told of what an agent says.
const TOLD_CHARS: usize = 200;

/// How long one that tells who is signed in may take to find out. Claude's adapter gives its own look 5 s.
const AUTH_STATUS_LIMIT: Duration = Duration::from_secs(6);

/// All that are configured or found, and those that only the one who asks could start.
pub(super) async fn all(services: &Arc<Services>, question: &Question) -> Vec<Diagnostic> {
    let entries = services.catalog.entries();
    let each = entries.iter().cloned();
    let looks = each.map(|entry| async move { one(services, &entry, question).await });
    let mut found = stream::iter(looks).buffered(STARTS_AT_A_TIME).concat().await;
    let elsewhere = on_the_other_path(services, question);
    // One that is known and not there tells how it is to be had.
    if elsewhere.is_empty() && entries.iter().all(|entry| entry.kind == AgentKind::Loopback) {
        let what = "no coding agent is installed where the daemon looks: only the built-in one, which echoes";
        found.push(
            Diagnostic::new(DiagnosticKind::Agent, Severity::Warning, what)
                .next(AgentKind::Claude.install_command().unwrap_or_default()),
        );
    }
    found.extend(elsewhere);
    found
}

async fn one(services: &Services, entry: &AgentEntry, question: &Question) -> Vec<Diagnostic> {
    if !entry.is_found() {
        return vec![not_found(services, entry, question)];
    }
    if let Some(lease) = services.pool.look_at(entry.name.as_str()) {
        return told(entry, &lease).await;
    }
    if !question.with_agents {
        let what = "installed; it does not run, and was not to be started";
        return vec![of(entry, DiagnosticKind::Agent, Severity::Note, what)];
    }
    match acquire(services, entry).await {
        Ok(lease) => {
            // At once: nobody may be there any more when it has told what it is.
            lease.note_look();
            told(entry, &lease).await
        }
        Err(ConversationError::ShuttingDown) => Vec::new(),
        Err(error) => vec![not_started(entry, &error)],
    }
}

fn of(entry: &AgentEntry, kind: DiagnosticKind, severity: Severity, what: impl Into<String>) -> Diagnostic {
    let found = Diagnostic::new(kind, severity, what).about(entry.name.as_str());
    match kind {
        DiagnosticKind::Agent => found
            .fact("command", entry.command_line())
            .fact("agentKind", entry.kind.as_str()),
        _ => found,
    }
}

fn not_found(services: &Services, entry: &AgentEntry, question: &Question) -> Diagnostic {
    let program = &entry.launch.command.program;
    let severity = match entry.name == *services.catalog.default_agent() {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let path = question.path.as_deref().map(OsStr::new);
    if let Some(place) = find_program(program, path) {
        let what = format!(
            "its program {} is not on the daemon's PATH, but on yours",
            program.display()
        );
        return of(entry, DiagnosticKind::Agent, severity, what).next(elsewhere(&place, entry.name.as_str()));
    }
    if let Some(place) = entry.find_unusable() {
        let words = |place: &Path| place.display().to_string();
        let (what, next) = match place.is_dir() {
            true => (
                format!("its program {} is a folder", words(&place)),
                format!("set command below [agents.{}] to the program", entry.name),
            ),
            false => (
                format!("its program {} is not executable", words(&place)),
                format!("chmod +x {}", quoted(&[words(&place)])),
            ),
        };
        return of(entry, DiagnosticKind::Agent, severity, what).next(next);
    }
    let configured = format!("set command below [agents.{}] to where it is", entry.name);
    let next = match entry.kind.install_command() {
        Some(install) => format!("{install}; or {configured}"),
        None => configured,
    };
    let what = format!("its program {} is not found", program.display());
    let found = of(entry, DiagnosticKind::Agent, severity, what).next(next);
    match entry.kind.install_command() {
        Some(install) => found.fact("install", install),
        None => found,
    }
}

fn not_started(entry: &AgentEntry, error: &ConversationError) -> Diagnostic {
    let (kind, next) = match error {
        ConversationError::AuthRequired(_) => (DiagnosticKind::SignIn, sign_in(entry.kind)),
        _ => (
            DiagnosticKind::Agent,
            format!(
                "the daemon's log may have more, and so may a start by hand: {}; if it only needs more time, raise agent_start_ms \
                 below [limits]",
                quoted(&entry.command_line())
            ),
        ),
    };
    of(entry, kind, Severity::Error, error.to_string()).next(next)
}

/// What one that runs has told of itself.
async fn told(entry: &AgentEntry, lease: &Lease) -> Vec<Diagnostic> {
    let initialized = lease.initialized();
    let name = agent_name(initialized);
    let version = initialized.agent_version.as_deref();
    let offers = offers(&initialized.capabilities);
    let what = format!(
        "{} {} offers {}",
        name.as_deref().unwrap_or("it"),
        version.unwrap_or("(of a version that it does not tell)"),
        match offers.is_empty() {
            true => "nothing beyond new sessions".to_owned(),
            false => offers.join(", "),
        }
    );
    let mut found = vec![
        of(entry, DiagnosticKind::Agent, Severity::Ok, what)
            .fact("version", version.map_or(Value::Null, Value::from))
            .fact("offers", offers),
    ];
    found.extend(signed_in(entry, lease).await);
    let told = quirks::Told {
        name: name.as_deref(),
        version,
        reads_transcripts: entry
            .transcript_format
            .or(entry.profile().transcript_format)
            .is_some(),
        capabilities: &initialized.capabilities,
    };
    found.extend(quirks::of(entry.profile(), &told).into_iter().map(|quirk| {
        let found = of(entry, DiagnosticKind::Quirk, quirk.severity, quirk.what);
        match quirk.next {
            Some(next) => found.next(next),
            None => found,
        }
    }));
    found
}

fn agent_name(initialized: &Initialized) -> Option<String> {
    let info: Value = serde_json::from_str(initialized.agent_info.as_deref()?.get()).ok()?;
    Some(info.get("name")?.as_str()?.to_owned())
}

/// The optional methods that it offers, by their names in ACP.
fn offers(capabilities: &Capabilities) -> Vec<&'static str> {
    let all = [
        (capabilities.load_session, "load"),
        (capabilities.resume, "resume"),
        (capabilities.fork, "fork"),
        (capabilities.list, "list"),
        (capabilities.close, "close"),
        (capabilities.delete, "delete"),
        (capabilities.prompt.image, "images"),
        (capabilities.logout, "logout"),
    ];
    all.into_iter()
        .filter(|(is_offered, _)| *is_offered)
        .map(|(_, name)| name)
        .collect()
}

async fn signed_in(entry: &AgentEntry, lease: &Lease) -> Option<Diagnostic> {
    if !lease.initialized().capabilities.auth_status {
        let what = "it does not report whether you are signed in; the first prompt shows it";
        let is_quiet = entry.kind == AgentKind::Loopback;
        return (!is_quiet).then(|| of(entry, DiagnosticKind::SignIn, Severity::Note, what));
    }
    // Where it does not find out in time, it is as if it did not tell.
    let _late = tokio::time::timeout(AUTH_STATUS_LIMIT, lease.connection().tells_auth_status()).await;
    let Some(status) = lease.connection().auth_status() else {
        let what = "it did not report in time whether you are signed in; the first prompt shows it";
        return Some(of(entry, DiagnosticKind::SignIn, Severity::Note, what));
    };
    Some(sign_in_told(entry, &status))
}

fn sign_in_told(entry: &AgentEntry, status: &RawValue) -> Diagnostic {
    let status: Value = serde_json::from_str(status.get()).unwrap_or_default();
    let text = |name: &str| status.get(name).and_then(Value::as_str);
    let label: String = text("label")
        .unwrap_or("it does not say how")
        .chars()
        .take(TOLD_CHARS)
        .collect();
    let found = match text("kind") {
        Some("none") => {
            let what = format!("it last reported that nobody is signed in ({label})");
            of(entry, DiagnosticKind::SignIn, Severity::Warning, what).next(sign_in(entry.kind))
        }
        Some(_) => of(
            entry,
            DiagnosticKind::SignIn,
            Severity::Ok,
            format!("signed in, as last reported: {label}"),
        ),
        None => of(
            entry,
            DiagnosticKind::SignIn,
            Severity::Note,
            "its report of who is signed in cannot be read",
        ),
    };
    found.fact("authStatus", status)
}

/// What a person does to be signed in. With a token in its environment Claude says `none` all the same.
fn sign_in(kind: AgentKind) -> String {
    match kind {
        AgentKind::Claude => {
            "run claude in a terminal and sign in there with /login; with CLAUDE_CODE_OAUTH_TOKEN in the daemon's environment it \
             works all the same"
        }
        AgentKind::Codex => "run codex login in a terminal",
        AgentKind::Gemini => "run gemini in a terminal and sign in there",
        AgentKind::Opencode => "run opencode auth login in a terminal",
        AgentKind::Loopback | AgentKind::Generic => "sign in with the agent's own program",
    }
    .to_owned()
}

fn elsewhere(place: &Path, name: &str) -> String {
    format!(
        "sessionctl stop, and the next command starts the daemon with your PATH (of a service, systemctl --user import-environment \
         PATH before that); or set command = {:?} below [agents.{name}], and env = {{ PATH = \"…\" }} where it needs more of it",
        place.display().to_string()
    )
}

/// Programs of known agents that are on the PATH of the one who asks, and of which the daemon knows nothing.
fn on_the_other_path(services: &Services, question: &Question) -> Vec<Diagnostic> {
    let Some(path) = question.path.as_deref().map(OsStr::new) else {
        return Vec::new();
    };
    let is_known = |kind: AgentKind| services.catalog.entries().iter().any(|entry| entry.kind == kind);
    let unknown = AgentKind::ALL.into_iter().filter(|kind| !is_known(*kind));
    let found = unknown.filter_map(|kind| {
        let programs = kind.profile().programs.iter();
        let place: PathBuf = programs
            .filter_map(|program| find_program(Path::new(program), Some(path)))
            .next()?;
        let what = format!(
            "the daemon does not find its program, which is {}",
            place.display()
        );
        let found = Diagnostic::new(DiagnosticKind::Agent, Severity::Warning, what).about(kind.as_str());
        Some(found.next(elsewhere(&place, kind.as_str())))
    });
    found.collect()
}

/// A command line that a shell can be given.
fn quoted(words: &[String]) -> String {
    let quoted = words.iter().map(|word| shell_word(word));
    quoted.collect::<Vec<_>>().join(" ")
}

/// Whether the transcripts of each agent can be read, and put back.
pub(super) fn all_transcripts(services: &Services) -> Vec<Diagnostic> {
    let entries = services.catalog.entries().iter();
    entries.filter_map(|entry| transcripts(entry)).collect()
}

fn transcripts(entry: &AgentEntry) -> Option<Diagnostic> {
    let (root, format) = entry.listed_transcripts()?;
    // Its folder is the daemon's own.
    if entry.kind == AgentKind::Loopback {
        return None;
    }
    let of = |severity, what: String| of(entry, DiagnosticKind::Transcripts, severity, what);
    if root
        .symlink_metadata()
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    {
        let what = format!("no transcripts yet: {} is not there", root.display());
        return Some(of(Severity::Note, what));
    }
    let tops = format.tops(root);
    let all = std::iter::once(root).chain(tops.iter().map(PathBuf::as_path));
    let fault = all.clone().find_map(fault).or_else(|| first_fault_below(&tops));
    Some(match fault {
        Some(fault) => of(fault.severity, fault.what).next(fault.next),
        None => of(Severity::Ok, format!("its transcripts are in {}", root.display())),
    })
}

/// So many folders of projects are looked at: there may be a great many, and one that cannot be used is mostly not alone.
const LOOKED_AT_BELOW: usize = 1_000;

/// What keeps transcripts from being used.
#[derive(Debug)]
struct Fault {
    severity: Severity,
    what: String,
    next: String,
}

/// What is wrong with a folder of transcripts; nothing with one that is not there yet.
fn fault(folder: &Path) -> Option<Fault> {
    let place = folder.display();
    let fault = |severity, what: String, next: &str| {
        Some(Fault {
            severity,
            what,
            next: next.to_owned(),
        })
    };
    match folder.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // What is no link is not there at all.
            let to = folder.read_link().ok()?;
            fault(
                Severity::Error,
                format!(
                    "{place}, the folder of its transcripts, is a link to {}, which is not there",
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
            format!("{place}, the folder of its transcripts, is no folder"),
            "move it out of the way, or set transcripts below the agent's section of the configuration to the folder",
        ),
        Ok(_) if access(folder, Access::READ_OK | Access::EXEC_OK).is_err() => fault(
            Severity::Error,
            format!("its transcripts in {place} cannot be read"),
            "let this user read the folder",
        ),
        Ok(_) if access(folder, Access::WRITE_OK).is_err() => fault(
            Severity::Warning,
            format!("nothing can be put back or branched in {place}: it cannot be written to"),
            "let this user write to the folder",
        ),
        Ok(_) => None,
    }
}

/// The first fault of the folders that lie in these: a warning, since it keeps from few of them. Files there are none of the
/// agent's transcripts.
fn first_fault_below(tops: &[PathBuf]) -> Option<Fault> {
    let entries = tops
        .iter()
        .filter_map(|top| top.read_dir().ok())
        .flatten()
        .flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| !path.is_file())
        .take(LOOKED_AT_BELOW)
        .find_map(|folder| fault(&folder))
        .map(|fault| Fault {
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
        let said = || fault(&folder).map(|fault| (fault.severity, fault.what));
        assert_eq!(said(), None, "it is not there yet");
        fs::create_dir(&folder).unwrap();
        assert_eq!(said(), None);
        fs::remove_dir(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        assert!(said().unwrap().1.ends_with("is no folder"));
        fs::remove_file(&folder).unwrap();
        symlink(home.path().join("elsewhere"), &folder).unwrap();
        let (severity, what) = said().unwrap();
        assert!(
            severity == Severity::Error && what.contains("elsewhere, which is not there"),
            "{what}"
        );
        fs::create_dir(home.path().join("elsewhere")).unwrap();
        assert_eq!(said(), None, "a link to a folder is one");
    }

    #[test]
    fn so_many_folders_are_looked_at_and_no_more() {
        let root = tempfile::tempdir().unwrap();
        // One is read to its end before the other.
        let tops = ["many", "behind"].map(|name| root.path().join(name));
        for number in 0..LOOKED_AT_BELOW {
            fs::create_dir_all(tops[0].join(number.to_string())).unwrap();
        }
        fs::write(tops[0].join("a file does not count"), "").unwrap();
        fs::create_dir(&tops[1]).unwrap();
        symlink("/nonexistent", tops[1].join("link")).unwrap();
        assert!(first_fault_below(&tops).is_none());
        fs::remove_dir(tops[0].join("0")).unwrap();
        assert!(first_fault_below(&tops).unwrap().what.contains("/nonexistent"));
    }

    #[test]
    fn a_folder_of_transcripts_needs_its_rights() {
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
                fault(folder.path()).map(|fault| fault.severity),
                expected,
                "{mode:o}"
            );
        }
    }
}

//! The quirks of an agent that its user should know. Pure.

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};

use crate::agent::kinds::{AgentKind, Package};
use crate::agent::session::Capabilities;

/// What an agent declares about itself.
pub(super) struct DeclaredAgent<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) version: Option<&'a str>,
    /// Whether its transcripts can be read.
    pub(super) reads_transcripts: bool,
    pub(super) capabilities: &'a Capabilities,
}

fn quirk(what: impl Into<String>) -> Diagnostic {
    Diagnostic::new(DiagnosticKind::Quirk, Severity::Note, what)
}

/// Returns the known quirks of an agent.
pub(super) fn quirks_of(kind: &AgentKind, declared: &DeclaredAgent<'_>) -> Vec<Diagnostic> {
    let capabilities = declared.capabilities;
    let mut diagnostics = Vec::new();
    diagnostics.extend(kind.package.and_then(|package| check_version(package, declared)));
    if !capabilities.resume && !capabilities.load_session {
        let what = "it cannot resume sessions: once its process has ended, a conversation continues from a copy or from its history as text";
        diagnostics.push(quirk(what));
    }
    if !declared.reads_transcripts {
        let what = match capabilities.fork {
            true => "its transcripts cannot be read: no search, no backups, and forks only at the end",
            false => "its transcripts cannot be read and it cannot fork: no search, no backups, no forks",
        };
        diagnostics.push(quirk(what));
    }
    diagnostics.extend(kind.warning.map(quirk));
    diagnostics
}

/// Checks whether it is the program and version on which the facts about its kind were measured.
fn check_version(package: Package, declared: &DeclaredAgent<'_>) -> Option<Diagnostic> {
    let version = declared.version?;
    let Package {
        name,
        measured_version: measured,
        ..
    } = package;
    let is_other = package.reports_own_name && declared.name.is_some_and(|declared| declared != name);
    let what = match is_other {
        true => "it is another adapter than the tested one".to_owned(),
        false if version != measured => format!("tested with version {measured}, this is {version}"),
        false => return None,
    };
    let next = format!("in case of problems, try npm install -g {name}@{measured}");
    Some(quirk(what).next(next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::kinds::{CLAUDE, GEMINI, GENERIC, LOOPBACK};

    const ALL: Capabilities = Capabilities {
        load_session: true,
        list: true,
        resume: true,
        fork: true,
        close: true,
        delete: true,
        additional_directories: true,
        logout: true,
        auth_status: true,
        images: true,
    };

    fn words(
        kind: &AgentKind,
        name: &str,
        version: &str,
        capabilities: Capabilities,
    ) -> Vec<(Severity, String)> {
        let declared = DeclaredAgent {
            name: Some(name),
            version: Some(version),
            reads_transcripts: kind.transcript_format.is_some(),
            capabilities: &capabilities,
        };
        let quirks = quirks_of(kind, &declared);
        quirks
            .into_iter()
            .map(|quirk| (quirk.severity, quirk.message))
            .collect()
    }

    #[test]
    fn only_another_than_the_measured_version_is_reported() {
        let claude = CLAUDE.package.unwrap();
        assert_eq!(words(&CLAUDE, claude.name, claude.measured_version, ALL).len(), 1);
        let newer = words(&CLAUDE, claude.name, "999.0.0", ALL);
        assert!(newer[0].1.ends_with("this is 999.0.0"), "{newer:?}");
        let other = words(&CLAUDE, "an-older-adapter", claude.measured_version, ALL);
        assert!(other[0].1.contains("another adapter"), "{other:?}");
        // Agents that speak the protocol themselves may have any name.
        let measured = GEMINI.package.unwrap().measured_version;
        assert_eq!(words(&GEMINI, "gemini-cli", measured, ALL).len(), 1);
    }

    #[test]
    fn missing_capabilities_are_reported() {
        let none = Capabilities::default();
        let lacking = words(&GENERIC, "x", "1", none);
        assert_eq!(lacking.len(), 2);
        let load = Capabilities {
            load_session: true,
            fork: true,
            ..none
        };
        let forks = words(&GENERIC, "x", "1", load);
        assert_eq!(forks.len(), 1);
        assert!(!lacking.contains(&forks[0]), "{forks:?}");
        assert_eq!(words(&LOOPBACK, "loopback", "1", ALL), []);
    }
}

//! The quirks of an agent that its user should know. Pure.

use bridge_protocol::diagnosis::Severity;

use crate::agent::profile::{AgentKind, MEASURED_VERSIONS, Profile};
use crate::agent::session::Capabilities;

/// What an agent declares about itself.
pub(super) struct Declared<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) version: Option<&'a str>,
    /// Whether its transcripts can be read.
    pub(super) reads_transcripts: bool,
    pub(super) capabilities: &'a Capabilities,
}

/// A quirk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Quirk {
    pub(super) severity: Severity,
    pub(super) what: String,
    pub(super) next: Option<String>,
}

fn quirk(severity: Severity, what: impl Into<String>) -> Quirk {
    Quirk {
        severity,
        what: what.into(),
        next: None,
    }
}

/// Returns the known quirks of an agent.
pub(super) fn of(profile: &Profile, declared: &Declared<'_>) -> Vec<Quirk> {
    let capabilities = declared.capabilities;
    let mut found = Vec::new();
    found.extend(version(profile.kind, declared));
    if !capabilities.resume && !capabilities.load_session {
        let what = "it cannot resume sessions: once its process has ended, a conversation continues from a copy or from its history as text";
        found.push(quirk(Severity::Note, what));
    }
    if !declared.reads_transcripts {
        let what = match capabilities.fork {
            true => "its transcripts cannot be read: no search, no backups, and forks only at the end",
            false => "its transcripts cannot be read and it cannot fork: no search, no backups, no forks",
        };
        found.push(quirk(Severity::Note, what));
    }
    match profile.kind {
        AgentKind::Claude => found.push(quirk(
            Severity::Note,
            "do not continue one session in two programs at once: what one of them writes is lost",
        )),
        AgentKind::Codex => found.push(quirk(
            Severity::Note,
            "it refuses a session that another program has open; close it there, or fork",
        )),
        AgentKind::Gemini | AgentKind::Opencode | AgentKind::Loopback | AgentKind::Generic => {}
    }
    found
}

/// Checks whether it is the program and version on which the profile's facts were measured.
fn version(kind: AgentKind, declared: &Declared<'_>) -> Option<Quirk> {
    let package = kind.package()?;
    let (_, measured) = MEASURED_VERSIONS.iter().find(|(name, _)| *name == package)?;
    let version = declared.version?;
    let is_adapter = matches!(kind, AgentKind::Claude | AgentKind::Codex);
    if is_adapter && declared.name.is_some_and(|name| name != package) {
        let what = "it is another adapter than the tested one";
        return Some(Quirk {
            next: Some(format!(
                "in case of problems, try npm install -g {package}@{measured}"
            )),
            ..quirk(Severity::Note, what)
        });
    }
    (version != *measured).then(|| Quirk {
        next: Some(format!(
            "in case of problems, try npm install -g {package}@{measured}"
        )),
        ..quirk(
            Severity::Note,
            format!("tested with version {measured}, this is {version}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        prompt: crate::agent::session::PromptCapabilities {
            image: true,
            audio: false,
            embedded_context: true,
        },
    };

    fn words(
        kind: AgentKind,
        name: &str,
        version: &str,
        capabilities: Capabilities,
    ) -> Vec<(Severity, String)> {
        let declared = Declared {
            name: Some(name),
            version: Some(version),
            reads_transcripts: kind.profile().transcript_format.is_some(),
            capabilities: &capabilities,
        };
        let quirks = of(kind.profile(), &declared);
        quirks
            .into_iter()
            .map(|quirk| (quirk.severity, quirk.what))
            .collect()
    }

    #[test]
    fn each_measured_package_is_that_of_an_agent() {
        let packages: Vec<_> = AgentKind::ALL
            .into_iter()
            .filter_map(AgentKind::package)
            .collect();
        let measured: Vec<_> = MEASURED_VERSIONS.iter().map(|(package, _)| *package).collect();
        assert_eq!(packages, measured);
    }

    #[test]
    fn only_another_than_the_measured_version_is_reported() {
        let (claude, measured) = MEASURED_VERSIONS[0];
        assert_eq!(words(AgentKind::Claude, claude, measured, ALL).len(), 1);
        let newer = words(AgentKind::Claude, claude, "999.0.0", ALL);
        assert!(newer[0].1.ends_with("this is 999.0.0"), "{newer:?}");
        let other = words(AgentKind::Claude, "an-older-adapter", measured, ALL);
        assert!(other[0].1.contains("another adapter"), "{other:?}");
        // Agents that speak the protocol themselves may have any name.
        let (_, measured) = MEASURED_VERSIONS[2];
        assert_eq!(words(AgentKind::Gemini, "gemini-cli", measured, ALL).len(), 1);
    }

    #[test]
    fn missing_capabilities_are_reported() {
        let none = Capabilities::default();
        let lacking = words(AgentKind::Generic, "x", "1", none);
        assert_eq!(lacking.len(), 2);
        let load = Capabilities {
            load_session: true,
            fork: true,
            ..none
        };
        let forks = words(AgentKind::Generic, "x", "1", load);
        assert_eq!(forks.len(), 1);
        assert!(!lacking.contains(&forks[0]), "{forks:?}");
        assert_eq!(words(AgentKind::Loopback, "loopback", "1", ALL), []);
    }
}

//! Diagnostics of `daemon/diagnose`: the state of the daemon and of everything that it depends on.

use serde_json::{Map, Value};

use crate::declare::{objects, words};

words! {
    /// The severity of a diagnostic.
    /// In Rust, `Unknown` ranks above `Error`, so that nothing serious is overlooked.
    #[derive(PartialOrd, Ord)]
    Severity {
        /// As expected.
        Ok,
        /// Worth knowing; no action is needed.
        Note,
        /// It works, but something may be missed or lost.
        Warning,
        /// Something does not work.
        Error,
    }

    /// What a diagnostic is about.
    DiagnosticKind {
        /// The daemon: whether one runs, which one, and whether it fits the calling program. Reported by `sessionctl`.
        Daemon,
        /// Another daemon of this user, with another data folder. Reported by `sessionctl`.
        OtherDaemon,
        /// The configuration file: whether it changed since the daemon read it, and whether the next daemon could read
        /// it. If no daemon runs, `sessionctl` reports a file that cannot be read.
        Configuration,
        /// One of the daemon's own folders: whether it exists, who owns it, and who may read it. Reported by
        /// `sessionctl`.
        Folder,
        /// The journal and the database.
        Store,
        /// One of the daemon's own files or folders that it cannot read: set aside if it is damaged, left in place if a
        /// newer version wrote it.
        SetAside,
        /// Free space on a disk.
        Room,
        /// An agent: whether it starts, its version, and what it offers.
        Agent,
        /// Whether an agent is signed in.
        SignIn,
        /// An agent's behaviour that differs from what users expect.
        Quirk,
        /// The folder of an agent's transcripts.
        Transcripts,
        /// For how long an agent keeps its transcripts, and for how long the daemon keeps copies.
        Retention,
        /// Left-over processes of an agent. If no daemon runs, `sessionctl` looks for them.
        LeftOver,
    }
}

objects! {
    /// One diagnostic, with what to do about it.
    Diagnostic {
        /// What it is about.
        kind: DiagnosticKind,
        /// How severe it is.
        severity: Severity,
        /// The agent or the path that it is about; absent if it is about neither.
        subject: Option<String> = default,
        /// What was found, as a sentence.
        message: String,
        /// What to do next; absent if nothing has to be done.
        next_step: Option<String> = default,
        /// The same as data, for programs; absent when empty. For an agent `version`, `command` and `offers`; for
        /// [`DiagnosticKind::SignIn`] the agent's own `authStatus`; for a disk `freeBytes` and `totalBytes`; for
        /// [`DiagnosticKind::Retention`] `vendorDays`, `keepDays` and `keptBytes`; for processes their `pids`. More may
        /// be added.
        data: Map<String, Value> = default,
    }
}

impl Diagnostic {
    /// Creates a diagnostic without subject, next step and data.
    #[must_use]
    pub fn new(kind: DiagnosticKind, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            kind,
            severity,
            subject: None,
            message: message.into(),
            next_step: None,
            data: Map::new(),
        }
    }

    /// Sets the agent or path that it is about.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Sets what to do next.
    #[must_use]
    pub fn next(mut self, step: impl Into<String>) -> Self {
        self.next_step = Some(step.into());
        self
    }

    /// Adds a member to the data.
    #[must_use]
    pub fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }
}

objects! {
    /// The answer of `daemon/diagnose`.
    #[derive(Default)]
    Diagnosis {
        /// The diagnostics, in the order of the checks.
        diagnostics: Vec<Diagnostic>,
    }
}

#[cfg(test)]
mod tests {
    use super::{Diagnosis, DiagnosticKind, Severity};

    #[test]
    fn unknown_kinds_and_severities_of_a_newer_daemon_are_accepted() {
        let text = r#"{"diagnostics":[{"kind":"weather","severity":"dire","message":"rain"}],"more":1}"#;
        let [one] = &serde_json::from_str::<Diagnosis>(text).unwrap().diagnostics[..] else {
            panic!("{text}");
        };
        assert_eq!(
            (one.kind, one.severity),
            (DiagnosticKind::Unknown, Severity::Unknown)
        );
        assert!(one.severity > Severity::Error);
    }
}

//! The configuration as read at the start, and how the file differs now.

use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};

use super::config::Config;
use super::failure::StartError;
use crate::conversation::services::chain_text;
use crate::paths::ownership;

/// The configuration and its text.
#[derive(Debug)]
pub(super) struct LoadedConfig {
    pub(super) config: Config,
    path: PathBuf,
    is_explicit: bool,
    text: String,
}

impl LoadedConfig {
    /// Reads the file. A missing file is an empty configuration, unless the user named it.
    ///
    /// # Errors
    /// [`StartError::Untrusted`], [`StartError::ReadConfig`] and [`StartError::Config`].
    pub(super) fn read(path: &Path, is_named: bool) -> Result<Self, StartError> {
        let opened = ownership::open_configuration(path)?;
        let text = match opened.and_then(io::read_to_string) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_named => String::new(),
            Err(source) => {
                let path = path.to_owned();
                return Err(StartError::ReadConfig { path, source });
            }
        };
        let config = Config::parse(&text).map_err(|problem| StartError::Config {
            path: path.to_owned(),
            problem,
        })?;
        Ok(Self {
            config,
            path: path.to_owned(),
            is_explicit: is_named,
            text,
        })
    }

    /// Compares the file with the configuration in use, for `doctor`.
    pub(super) fn diagnose(&self) -> Diagnostic {
        let diagnostic = |severity, what: &str| {
            Diagnostic::new(DiagnosticKind::Configuration, severity, what).about(self.path.to_string_lossy())
        };
        match Self::read(&self.path, self.is_explicit) {
            Err(error) => diagnostic(
                Severity::Error,
                &format!("the daemon would not start with it: {}", chain_text(&error)),
            )
            .next("fix the file before you stop this daemon"),
            Ok(now) if now.text != self.text => diagnostic(
                Severity::Warning,
                "changed since the daemon started",
            )
            .next(
                "restart the daemon to apply it, which ends running turns: sessionctl stop, then any command",
            ),
            Ok(_) if self.text.is_empty() => diagnostic(Severity::Ok, "not present or empty; using defaults"),
            Ok(_) => diagnostic(Severity::Ok, "unchanged since the daemon read it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_changed_or_broken_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        assert!(LoadedConfig::read(&path, true).is_err());
        let none = LoadedConfig::read(&path, false).unwrap();
        assert_eq!(none.diagnose().severity, Severity::Ok);
        fs::write(&path, "default_agent = \"loopback\"\n").unwrap();
        assert_eq!(none.diagnose().severity, Severity::Warning);
        let some = LoadedConfig::read(&path, false).unwrap();
        assert_eq!(some.diagnose().severity, Severity::Ok);
        fs::write(&path, "no_such_option = 1\n").unwrap();
        let broken = some.diagnose();
        assert_eq!(broken.severity, Severity::Error);
        assert!(broken.message.contains("no_such_option"), "{broken:?}");
        fs::remove_file(&path).unwrap();
        assert_eq!(some.diagnose().severity, Severity::Warning);
    }
}

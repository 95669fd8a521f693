//! The configuration as it was read at the start, and what has become of its file since.

use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};

use super::config::Config;
use super::failure::StartError;
use crate::conversation::services::chain_text;
use crate::paths::ownership;

/// What was read.
#[derive(Debug)]
pub(super) struct Configured {
    pub(super) config: Config,
    path: PathBuf,
    is_named: bool,
    text: String,
}

impl Configured {
    /// Reads the file. None there is no configuration, unless it was asked for by name.
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
            is_named,
            text,
        })
    }

    /// What is to be said of the file as it is now.
    pub(super) fn now(&self) -> Diagnostic {
        let of = |severity, what: &str| {
            Diagnostic::new(DiagnosticKind::Configuration, severity, what).about(self.path.to_string_lossy())
        };
        match Self::read(&self.path, self.is_named) {
            Err(error) => of(
                Severity::Error,
                &format!("the next daemon would not start: {}", chain_text(&error)),
            )
            .next("fix the file before this daemon is stopped"),
            Ok(now) if now.text != self.text => {
                of(Severity::Warning, "was changed since the daemon started, which has not read it again").next(
                    "sessionctl stop, and the next command starts a daemon that reads it; running turns end with that",
                )
            }
            Ok(_) if self.text.is_empty() => of(Severity::Ok, "says nothing; it need not be there"),
            Ok(_) => of(Severity::Ok, "is as the daemon has read it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_changed_file_is_told_and_a_broken_one_before_the_daemon_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        assert!(Configured::read(&path, true).is_err());
        let none = Configured::read(&path, false).unwrap();
        assert_eq!(none.now().severity, Severity::Ok);
        fs::write(&path, "default_agent = \"loopback\"\n").unwrap();
        assert_eq!(none.now().severity, Severity::Warning);
        let some = Configured::read(&path, false).unwrap();
        assert_eq!(some.now().severity, Severity::Ok);
        fs::write(&path, "no_such_option = 1\n").unwrap();
        let broken = some.now();
        assert_eq!(broken.severity, Severity::Error);
        assert!(broken.message.contains("no_such_option"), "{broken:?}");
        fs::remove_file(&path).unwrap();
        assert_eq!(some.now().severity, Severity::Warning);
    }
}

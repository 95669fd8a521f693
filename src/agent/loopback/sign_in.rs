//! Whether somebody is signed in, where the agent is to have accounts.
//!
//! A file stands for the vendor's server: it holds the one token that is good. As the agents in the field do, this one
//! reads it at its start and keeps it; what is signed in anew afterwards only the next process knows. Without a file there
//! are no accounts, and everybody is let in.

use std::fs;
use std::path::PathBuf;

/// The token that the process began with, and where the good one is.
#[derive(Debug)]
pub(super) struct SignIn {
    file: Option<PathBuf>,
    held: Option<String>,
}

impl SignIn {
    /// Reads the token now, and never again.
    pub(super) fn at_start(file: Option<PathBuf>) -> Self {
        let held = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        Self { file, held }
    }

    /// Whether there are accounts at all.
    pub(super) fn has_accounts(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the agent has anything to show to the server.
    pub(super) fn holds_a_token(&self) -> bool {
        self.file.is_none() || self.held.is_some()
    }

    /// Whether the server takes what the agent holds. A file that is gone means that nobody is signed in.
    pub(super) fn is_accepted(&self) -> bool {
        let Some(file) = &self.file else { return true };
        let good = fs::read_to_string(file).ok();
        good.is_some() && good == self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_as_long_as_no_other_has_taken_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let nobody = SignIn::at_start(Some(file.clone()));
        assert!(!nobody.holds_a_token() && !nobody.is_accepted());

        fs::write(&file, "one").expect("a token");
        let first = SignIn::at_start(Some(file.clone()));
        assert!(first.holds_a_token() && first.is_accepted());
        assert!(
            !nobody.holds_a_token() && !nobody.is_accepted(),
            "read at its start only"
        );
        fs::remove_file(&file).expect("no token");
        assert!(first.holds_a_token() && !first.is_accepted());

        fs::write(&file, "two").expect("a token");
        let second = SignIn::at_start(Some(file.clone()));
        assert!(second.is_accepted() && !first.is_accepted());
        fs::write(&file, "one").expect("a token");
        assert!(first.is_accepted() && !second.is_accepted());

        let without = SignIn::at_start(None);
        assert!(without.holds_a_token() && without.is_accepted());
    }
}

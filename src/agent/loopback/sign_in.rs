//! Whether the user is signed in, if the agent has accounts.
//!
//! A file represents the vendor's server: it contains the only valid token. Like real agents, this one reads the token
//! only at its start, so a later sign-in takes effect in the next process. Without a file there are no accounts, and
//! every user is accepted.

use std::fs;
use std::path::PathBuf;

/// The token read at the start, and the path of the valid one.
#[derive(Debug)]
pub(super) struct SignIn {
    file: Option<PathBuf>,
    token: Option<String>,
}

impl SignIn {
    /// Reads the token, once.
    pub(super) fn at_start(file: Option<PathBuf>) -> Self {
        let token = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        Self { file, token }
    }

    /// Whether there are accounts.
    pub(super) fn has_accounts(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the agent has a token to send to the server, or needs none.
    pub(super) fn has_token(&self) -> bool {
        self.file.is_none() || self.token.is_some()
    }

    /// Whether the server accepts the agent's token. A missing file means that nobody is signed in.
    pub(super) fn is_accepted(&self) -> bool {
        let Some(file) = &self.file else { return true };
        let good = fs::read_to_string(file).ok();
        good.is_some() && good == self.token
    }
}

//! The folders that an imported conversation and its sessions run in.
//!
//! A bundle may come from another user, so it does not choose a folder. Everything runs in or below the folder that the
//! caller gives, unless the caller accepts the folders of the bundle. Reads the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::conversation::bundle::Manifest;
use crate::conversation::error::ConversationError;
use crate::conversation::folder::{resolve_dots, usable_folder, usable_stored_folder};
use bridge_protocol::method::Import;

/// The caller's choice of folders for an import.
pub(super) enum FolderChoice {
    /// In this folder and below it.
    Below(String),
    /// The folders that the bundle names.
    Same,
}

impl FolderChoice {
    /// The choice that a call makes.
    ///
    /// # Errors
    /// [`ConversationError::InvalidParams`] if the call gives neither `cwd` nor `sameFolders`, or both.
    pub(super) fn of(import: &Import) -> Result<Self, ConversationError> {
        match (&import.cwd, import.same_folders) {
            (Some(cwd), false) => Ok(Self::Below(usable_folder("cwd", cwd)?)),
            (None, true) => Ok(Self::Same),
            (Some(_), true) => Err(ConversationError::invalid(
                "sameFolders",
                "give cwd or sameFolders, not both",
            )),
            (None, false) => Err(ConversationError::invalid(
                "cwd",
                "no folder was given for the conversation: give cwd, or sameFolders: true to use the folders that \
                 the bundle names",
            )),
        }
    }

    /// The local folder of the bundle's conversation, and the local folders of those that the bundle names. A folder that is not
    /// in the map stays as it is: something ran there once, but none of its files are in the bundle.
    ///
    /// # Errors
    /// [`ConversationError::InvalidCwd`] if a folder of the bundle is to be used and cannot be.
    pub(super) fn folders(
        &self,
        manifest: &Manifest,
    ) -> Result<(String, BTreeMap<String, String>), ConversationError> {
        let old_cwd = &manifest.conversation.cwd;
        match self {
            Self::Below(cwd) => {
                let of_links = manifest.chain.iter().map(|link| &link.cwd);
                let of_lineage = manifest.lineage.iter().map(|entry| &entry.cwd);
                let of_sessions = manifest.sessions.iter().map(|session| &session.cwd);
                let all: BTreeSet<&String> = of_links.chain(of_lineage).chain(of_sessions).collect();
                let sessions = all.into_iter();
                let sessions = sessions.map(|old| (old.clone(), folder_below(old, old_cwd, cwd)));
                Ok((cwd.clone(), sessions.collect()))
            }
            Self::Same => {
                let head = manifest.chain.last().map(|head| &head.cwd);
                let own = manifest.sessions.iter().filter(|session| !session.continued);
                let used = head.into_iter().chain(own.map(|session| &session.cwd));
                let sessions = used.map(|old| Ok((old.clone(), unchanged_folder(old)?)));
                Ok((
                    unchanged_folder(old_cwd)?,
                    sessions.collect::<Result<_, ConversationError>>()?,
                ))
            }
        }
    }
}

/// Checks a folder of the bundle that is used unchanged.
fn unchanged_folder(folder: &str) -> Result<String, ConversationError> {
    usable_stored_folder(folder).map_err(|error| match error {
        ConversationError::InvalidCwd(why) => ConversationError::InvalidCwd(format!(
            "the bundle names a folder that cannot be used here: {why}; give cwd to use another one"
        )),
        other => other,
    })
}

/// The new path of the folder `old` when a conversation moves from `from` to `to`: the same path below `to` if `old` is below
/// `from` and that folder exists, else `to` itself. Neither `..` nor a symbolic link leads out of `to`.
fn folder_below(old: &str, from: &str, to: &str) -> String {
    let (old, from) = (resolve_dots(Path::new(old)), resolve_dots(Path::new(from)));
    let rest = old.strip_prefix(&from).ok().filter(|_| from.is_absolute());
    let found = rest.map(|rest| Path::new(to).join(rest)).filter(|found| {
        let real =
            |path: &Path| -> Option<PathBuf> { fs::canonicalize(path).ok().filter(|path| path.is_dir()) };
        let both = real(found).zip(real(Path::new(to)));
        both.is_some_and(|(found, to)| found.starts_with(to))
    });
    let found = found.and_then(|found| found.into_os_string().into_string().ok());
    found.map_or_else(|| to.to_owned(), |found| found.trim_end_matches('/').to_owned())
}

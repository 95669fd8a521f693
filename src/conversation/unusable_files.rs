//! Files in the data folder that the daemon cannot use and does not delete, for `daemon/diagnose`. Blocks.

use std::io;
use std::path::{Path, PathBuf};

use super::services::{Services, chain_text};
use super::{importing, tree_moves, uncommitted_copies};
use crate::files::{entries, intent, set_aside};
use crate::paths::names;
use crate::store;
use crate::transcript::moving::journal;

/// A file or folder that the daemon cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableFile {
    /// Where it is.
    pub path: PathBuf,
    /// Why it cannot be used.
    pub reason: String,
    /// Whether another program or the user put it there.
    pub is_foreign: bool,
}

/// The folders of plans. If an entry is a folder, also the name of the plan in it.
const PLANS: [(&str, Option<&str>); 4] = [
    (journal::KIND.folder, journal::KIND.log_name),
    (
        tree_moves::TREE_MOVE_INTENTS.folder,
        tree_moves::TREE_MOVE_INTENTS.log_name,
    ),
    (
        importing::IMPORT_INTENTS.folder,
        importing::IMPORT_INTENTS.log_name,
    ),
    (uncommitted_copies::COPY_INTENTS.folder, None),
];

/// Whether a daemon with a store left other files in the data folder. True if a folder cannot be listed.
#[must_use]
pub fn has_earlier_data(data: &Path) -> bool {
    let folders = PLANS.iter().map(|(folder, _)| *folder).chain([names::KEPT]);
    let mut listed = folders.map(|folder| entries(&data.join(folder)));
    listed.any(|entries| entries.map_or(true, |entries| !entries.is_empty()))
}

/// All unusable files except those of the store, in no particular order.
#[must_use]
pub fn list_unusable_files(services: &Services) -> Vec<UnusableFile> {
    let mut found = Vec::new();
    match in_data_folder(&services.data_folder) {
        Ok(more) => found.extend(more),
        Err(error) => tracing::warn!(%error, "cannot list what was set aside in the data folder"),
    }
    for (folder, plan) in PLANS {
        let folder = services.data_folder.join(folder);
        match in_folder(&folder, plan) {
            Ok(more) => found.extend(more),
            Err(error) => {
                tracing::warn!(path = %folder.display(), %error, "cannot list what was set aside");
            }
        }
    }
    match set_aside::set_aside_files_in(&services.data_folder.join(names::BODIES)) {
        Ok(bodies) => found.extend(bodies.into_iter().map(was_set_aside)),
        Err(error) => tracing::warn!(%error, "cannot list the bodies of the store"),
    }
    match services.backups.archive.unusable() {
        Ok(unusable) => found.extend(unusable.into_iter().map(|(path, why)| UnusableFile {
            path,
            is_foreign: why.is_none(),
            reason: why.unwrap_or_else(|| {
                "it is in the backup folder of a session but was not written by sessiond".to_owned()
            }),
        })),
        Err(error) => tracing::warn!(error = chain_text(&error), "cannot list the backups"),
    }
    found
}

/// The entries of the data folder that were set aside, except those that the store lists.
fn in_data_folder(data: &Path) -> io::Result<Vec<UnusableFile>> {
    let of_store = store::set_aside_in(data).map_err(io::Error::other)?;
    let others = set_aside::set_aside_files_in(data)?
        .into_iter()
        .filter(|path| !of_store.contains(path));
    Ok(others.map(was_set_aside).collect())
}

fn was_set_aside(path: PathBuf) -> UnusableFile {
    UnusableFile {
        path,
        reason: "it could not be used, and was set aside".to_owned(),
        is_foreign: false,
    }
}

fn in_folder(folder: &Path, plan: Option<&str>) -> io::Result<Vec<UnusableFile>> {
    let entries = entries(folder)?.into_iter();
    let found = entries.filter_map(|path| {
        let file = plan.map_or_else(|| path.clone(), |plan| path.join(plan));
        if set_aside::is_set_aside(&path) {
            return Some(was_set_aside(path));
        }
        Some(UnusableFile {
            path,
            reason: intent::newer_version(&file)?.to_string(),
            is_foreign: false,
        })
    });
    Ok(found.collect())
}

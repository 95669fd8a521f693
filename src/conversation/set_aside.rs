//! Files of its own that the daemon cannot use and does not delete, as `daemon/diagnose` reports them. Blocks.

use std::io;
use std::path::{Path, PathBuf};

use super::services::{Services, chain_text};
use super::{importing, trees, uncommitted_copies};
use crate::files::{entries, intent, set_aside};
use crate::paths::names;
use crate::transcript::moving::journal;

/// A file or folder that the daemon cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableFile {
    /// Where it is.
    pub path: PathBuf,
    /// Why it cannot be used.
    pub why: String,
    /// Whether another program or the user put it there.
    pub is_strange: bool,
}

/// The folders of plans. Where an entry is a folder, the name of the plan in it.
const PLANS: [(&str, Option<&str>); 4] = [
    (journal::KIND.folder, journal::KIND.log),
    (trees::KIND.folder, trees::KIND.log),
    (importing::KIND.folder, importing::KIND.log),
    (uncommitted_copies::KIND.folder, None),
];

/// Whether a daemon with a store left something else in its data folder. A folder that cannot be listed counts.
#[must_use]
pub fn has_past(data: &Path) -> bool {
    let folders = PLANS.iter().map(|(folder, _)| *folder).chain([names::KEPT]);
    let mut listed = folders.map(|folder| entries(&data.join(folder)));
    listed.any(|entries| entries.map_or(true, |entries| !entries.is_empty()))
}

/// All of them, in no particular order.
#[must_use]
pub fn all(services: &Services) -> Vec<UnusableFile> {
    let mut found = Vec::new();
    for (folder, plan) in PLANS {
        let folder = services.data.join(folder);
        match in_folder(&folder, plan) {
            Ok(more) => found.extend(more),
            Err(error) => {
                tracing::warn!(path = %folder.display(), %error, "cannot list what was set aside");
            }
        }
    }
    match services.keeper.archive.unusable() {
        Ok((unreadable, strangers)) => {
            found.extend(unreadable.into_iter().map(|(path, why)| UnusableFile {
                path,
                why,
                is_strange: false,
            }));
            found.extend(strangers.into_iter().map(|path| UnusableFile {
                path,
                why: "it is among the kept copies of a session, and sessiond did not write it".to_owned(),
                is_strange: true,
            }));
        }
        Err(error) => tracing::warn!(error = chain_text(&error), "cannot list the kept copies"),
    }
    found
}

fn in_folder(folder: &Path, plan: Option<&str>) -> io::Result<Vec<UnusableFile>> {
    let entries = entries(folder)?.into_iter();
    let found = entries.filter_map(|path| {
        let file = plan.map_or_else(|| path.clone(), |plan| path.join(plan));
        let why = match set_aside::is_name(&path) {
            true => "it could not be used, and was set aside".to_owned(),
            false => intent::newer_version(&file)?.to_string(),
        };
        Some(UnusableFile {
            path,
            why,
            is_strange: false,
        })
    });
    Ok(found.collect())
}

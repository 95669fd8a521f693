//! What the daemon could not read of its own files, and keeps: for whoever asks how the daemon is. Blocks.

use std::io;
use std::path::{Path, PathBuf};

use super::services::{Services, chain_text};
use super::{importing, keeping};
use super::{trees, untold};
use crate::transcript::aside;
use crate::transcript::moving::journal;
use crate::transcript::notes;

/// A file or folder that is kept, and is of no use as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where it is.
    pub path: PathBuf,
    /// Why it is of no use.
    pub why: String,
    /// Whether the daemon did not make it.
    pub is_strange: bool,
}

/// The folders of notes, each with the name of the notes in an entry; none where an entry is the notes itself.
const NOTES: [(&str, Option<&str>); 4] = [
    (journal::FOLDER, Some(journal::JOURNAL)),
    (trees::FOLDER, None),
    (importing::FOLDER, Some(importing::PLAN)),
    (untold::FOLDER, None),
];

/// Whether a daemon with a store has left something else in its data folder. What cannot be listed counts.
#[must_use]
pub fn has_past(data: &Path) -> bool {
    let folders = NOTES.iter().map(|(folder, _)| *folder).chain([keeping::FOLDER]);
    let mut listed = folders.map(|folder| aside::entries(&data.join(folder)));
    listed.any(|entries| entries.map_or(true, |entries| !entries.is_empty()))
}

/// All of it, in no order that means something.
#[must_use]
pub fn all(services: &Services) -> Vec<Kept> {
    let mut found = Vec::new();
    for (folder, notes) in NOTES {
        let folder = services.data.join(folder);
        match in_folder(&folder, notes) {
            Ok(more) => found.extend(more),
            Err(error) => {
                tracing::warn!(path = %folder.display(), %error, "what was set aside cannot be listed");
            }
        }
    }
    match services.keeper.archive.unusable() {
        Ok((unreadable, strangers)) => {
            found.extend(unreadable.into_iter().map(|(path, why)| Kept {
                path,
                why,
                is_strange: false,
            }));
            found.extend(
                strangers.into_iter().map(|path| Kept {
                    path,
                    why: "it lies among the kept copies of a session, and sessiond did not put it there"
                        .to_owned(),
                    is_strange: true,
                }),
            );
        }
        Err(error) => tracing::warn!(error = chain_text(&error), "the kept copies cannot be listed"),
    }
    found
}

fn in_folder(folder: &Path, notes: Option<&str>) -> io::Result<Vec<Kept>> {
    let entries = aside::entries(folder)?.into_iter();
    let found = entries.filter_map(|path| {
        let file = notes.map_or_else(|| path.clone(), |notes| path.join(notes));
        let why = match aside::is_aside(&path) {
            true => "it could not be read, and was set aside".to_owned(),
            false => notes::newer_version(&file)?.to_string(),
        };
        Some(Kept {
            path,
            why,
            is_strange: false,
        })
    });
    Ok(found.collect())
}

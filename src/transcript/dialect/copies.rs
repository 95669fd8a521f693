//! Which of several copies of a transcript of Claude's counts, for all who look: adoption, history, the ladder, checks, exports.
//!
//! Owns the rule, which is the agent's as far as that has one. Claude (2.1.316) takes the copy in the folder of the
//! session's cwd, unless no message is in it, as in the stub that a writer leaves whose file was taken from under it; else
//! the first in the folders of the other worktrees of the cwd's repository. One that lies elsewhere it takes where it is the
//! only one, and of several none: it says that there is no such session. Then the one counts that a resume is to go on with:
//! that with the most turns. Blocks.

use std::path::{Path, PathBuf};

use bridge_protocol::check::{Finding, FindingKind};

use super::turns_in_words as words;
use crate::transcript::TranscriptError;
use crate::transcript::claude::BranchOptions;
use crate::transcript::library::Library;
use crate::transcript::locate::{Located, locate, located, own_folder};
use crate::transcript::origin::Origin;

/// The transcript of a session that runs in the folder `cwd`. What is read to know it stays in the library.
///
/// # Errors
/// [`TranscriptError`] when there is none or the folders cannot be read.
pub fn find(library: &Library, root: &Path, cwd: &str, id: &str) -> Result<PathBuf, TranscriptError> {
    let Located {
        paths: mut found,
        by_folder,
    } = located(root, id, Some(Path::new(cwd)))?;
    let holds_turns = |path: &PathBuf| turns(library, path) > 0;
    let best = match found.as_slice() {
        [] => {
            return Err(TranscriptError::NotFound {
                upstream_id: id.to_owned(),
                root: root.to_path_buf(),
            });
        }
        [_] => 0,
        several => {
            let taken = several[..by_folder].iter().position(holds_turns);
            taken.unwrap_or_else(|| {
                let ranks = several.iter().map(|path| rank(library, path)).enumerate();
                // Of equal ones the first.
                let best = ranks.rev().max_by_key(|(_, rank)| *rank);
                best.map_or(0, |(best, _)| best)
            })
        }
    };
    Ok(found.swap_remove(best))
}

/// The transcript of a session of which nobody says where it runs: the one that counts in the folder that the best copy
/// says it ran in, which is then the folder that is told.
///
/// # Errors
/// As [`find`], and when no copy can be read.
pub(super) fn find_recorded(
    library: &Library,
    root: &Path,
    id: &str,
) -> Result<(PathBuf, Origin), TranscriptError> {
    let mut failure = TranscriptError::NotFound {
        upstream_id: id.to_owned(),
        root: root.to_path_buf(),
    };
    let mut best = None;
    for path in locate(root, id, None)? {
        let origin = match library.origin(&path) {
            Ok(origin) => origin,
            Err(error) => {
                failure = error;
                continue;
            }
        };
        let is_home = origin.cwd.as_deref().is_some_and(|cwd| is_in(root, cwd, &path));
        let rank = (origin.turns > 0, is_home, rank(library, &path));
        if best.as_ref().is_none_or(|(highest, _, _)| rank > *highest) {
            best = Some((rank, path, origin));
        }
    }
    let (_, path, origin) = best.ok_or(failure)?;
    let Some(cwd) = &origin.cwd else {
        return Ok((path, origin));
    };
    // Another copy may lie where the best one ran.
    let counts = find(library, root, cwd, id)?;
    if counts == path {
        return Ok((path, origin));
    }
    let cwd = origin.cwd;
    let origin = library.origin(&counts)?;
    Ok((counts, Origin { cwd, ..origin }))
}

/// What is to be said of copies beside the one that counts: that one has more turns and the agent does not take it, or that
/// the agent takes none of them.
pub(super) fn beside(library: &Library, root: &Path, cwd: &str, counts: &Path) -> Option<Finding> {
    let id = counts.file_stem()?.to_str()?;
    let Located {
        paths: mut others,
        by_folder,
    } = located(root, id, Some(Path::new(cwd))).ok()?;
    let is_taken = others[..by_folder].iter().any(|path| path == counts);
    others.retain(|path| path != counts);
    if others.is_empty() {
        return None;
    }
    let others = others.into_iter().map(|path| (turns(library, &path), path));
    let (most, best) = others.max_by_key(|(turns, _)| *turns)?;
    let (own, best) = (turns(library, counts), best.display());
    let detail = if is_taken {
        if most <= own {
            return None;
        }
        let folder = match is_in(root, cwd, counts) {
            true => "",
            false => "a worktree of the repository of ",
        };
        format!(
            "another copy has {}, {best}, and this one {}: the agent takes this one, since it lies in the folder of \
             {folder}{cwd}",
            words(most),
            words(own)
        )
    } else {
        if most == 0 {
            return None;
        }
        format!(
            "another copy is {best} ({}), and none lies in the folder of {cwd}: the agent takes neither and says that there is \
             no such session; a resume goes on in a copy of this one ({}), {}",
            words(most),
            words(own),
            counts.display()
        )
    };
    Some(Finding {
        line: 0,
        kind: FindingKind::OtherCopy,
        detail,
    })
}

fn is_in(root: &Path, cwd: &str, path: &Path) -> bool {
    path.parent() == Some(own_folder(root, Path::new(cwd)).as_path())
}

/// How much a copy has to go on with: its turns, and when it was written last.
fn rank(library: &Library, path: &Path) -> (usize, Option<std::time::SystemTime>) {
    let written = path.metadata().and_then(|metadata| metadata.modified());
    (turns(library, path), written.ok())
}

/// How many turns a copy has on its live branch, those before a compaction too; 0 where it cannot be read.
fn turns(library: &Library, path: &Path) -> usize {
    let counted = BranchOptions {
        follow_compaction: true,
        last_turns: Some(0),
        ..BranchOptions::default()
    };
    library
        .branch(path, &counted)
        .map_or(0, |branch| branch.total_turns)
}

//! Chooses among several copies of a Claude transcript, for all callers: adoption, history, the ladder, checks, exports.
//!
//! Where the agent has a rule, this module follows it. Claude (2.1.316) uses the copy in the folder of the session's
//! cwd, unless that copy has no message: a writer leaves such a stub after its file was moved away. A single copy is
//! used wherever it is. If there are several and none is in that folder, Claude uses none of them, or one in another
//! worktree of the same repository. The bridge does not ask Claude to resume those, but resumes a copy of the one with
//! the most turns. Blocks.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use bridge_protocol::check::{Finding, FindingKind};
use jiff::Timestamp;

use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::dialect::{AgentHome, format_turns as words};
use crate::transcript::file_read::FileVersion;
use crate::transcript::index_cache::IndexCache;
use crate::transcript::locate::{file_name, locate, own_folder};
use crate::transcript::open_transcript::OpenTranscript;
use crate::transcript::origin::Origin;

/// The maximum size of a stub, in bytes: a few records without a message.
const STUB_LIMIT_BYTES: u64 = 64 * 1024;

/// The transcript of a session that runs in the folder `cwd`. Indexes that are read for this stay in the cache.
///
/// # Errors
/// [`TranscriptError`] if there is none or the folders cannot be read.
pub(super) fn find(home: AgentHome<'_>, cwd: &str, id: &str) -> Result<PathBuf, TranscriptError> {
    // Check this folder first: another project's folder may be on a mount that does not respond.
    let own_path = own_folder(home.root, Path::new(cwd)).join(file_name(id)?);
    if has_messages(home.index_cache, &own_path) {
        return Ok(own_path);
    }
    let paths = locate(home.root, id, Some(Path::new(cwd)))?;
    let best = match paths.as_slice() {
        [only] => Some(only),
        // The first one if several are equal.
        several => several
            .iter()
            .rev()
            .max_by_key(|path| rank(home.index_cache, path)),
    };
    best.cloned()
        .ok_or_else(|| TranscriptError::not_found(home.root, id))
}

/// The transcript of a session whose folder is unknown. The best copy names a folder; the result is the copy to use in that
/// folder, with that folder as its `cwd`.
///
/// # Errors
/// As [`find`], and if no copy can be read.
pub(super) fn find_recorded(home: AgentHome<'_>, id: &str) -> Result<(PathBuf, Origin), TranscriptError> {
    let AgentHome { index_cache, root } = home;
    let mut failure = TranscriptError::not_found(root, id);
    let mut best = None;
    for path in locate(root, id, None)? {
        let origin = match index_cache.origin(&path) {
            Ok(origin) => origin,
            Err(error) => {
                failure = error;
                continue;
            }
        };
        let is_home = origin
            .cwd
            .as_deref()
            .is_some_and(|cwd| is_in_folder_of(root, cwd, &path));
        let rank = (origin.turns > 0, is_home, rank(index_cache, &path));
        if best.as_ref().is_none_or(|(highest, _, _)| rank > *highest) {
            best = Some((rank, path, origin));
        }
    }
    let (_, path, origin) = best.ok_or(failure)?;
    let Some(cwd) = &origin.cwd else {
        return Ok((path, origin));
    };
    // There may be another copy in the folder of the best one.
    let used_path = find(home, cwd, id)?;
    if used_path == path {
        return Ok((path, origin));
    }
    let cwd = origin.cwd;
    let origin = index_cache.origin(&used_path)?;
    Ok((used_path, Origin { cwd, ..origin }))
}

/// Whether several copies have turns and none is in the folder `cwd`, so that the agent may use another one than [`find`]
/// returns.
pub(super) fn are_ambiguous(home: AgentHome<'_>, cwd: &str, id: &str) -> bool {
    // Check this first, because the search for others reads all folders.
    let own_path = file_name(id).map(|name| own_folder(home.root, Path::new(cwd)).join(name));
    if own_path.is_ok_and(|own_path| own_path.symlink_metadata().is_ok()) {
        return false;
    }
    let found = locate(home.root, id, None).unwrap_or_default();
    let has_turns = |path: &&PathBuf| turns(home.index_cache, path) > 0;
    found.len() > 1 && found.iter().filter(has_turns).count() > 1
}

/// A finding about copies other than the one in use: another copy has more turns and the agent does not use it, or the
/// agent uses none of them.
pub(super) fn find_better_copy(home: AgentHome<'_>, cwd: &str, used_path: &Path) -> Option<Finding> {
    let AgentHome { index_cache, root } = home;
    let id = used_path.file_stem()?.to_str()?;
    let mut others = locate(root, id, Some(Path::new(cwd))).ok()?;
    let is_taken = is_in_folder_of(root, cwd, used_path);
    others.retain(|path| path != used_path);
    let others = others.into_iter().map(|path| (turns(index_cache, &path), path));
    let (best_turns, best) = others.max_by_key(|(turns, _)| *turns)?;
    let (used_turns, best) = (turns(index_cache, used_path), best.display());
    let detail = if is_taken {
        if best_turns <= used_turns {
            return None;
        }
        format!(
            "another copy, {best}, has {}, and this one has {}: the agent uses this one, because it is in the folder of {cwd}",
            words(best_turns),
            words(used_turns)
        )
    } else {
        if best_turns == 0 {
            return None;
        }
        format!(
            "there is another copy, {best} ({}), and none in the folder of {cwd}: the agent uses neither and reports that the \
             session does not exist; a resume continues in a copy of this one ({}), {}",
            words(best_turns),
            words(used_turns),
            used_path.display()
        )
    };
    Some(Finding {
        line: 0,
        kind: FindingKind::OtherCopy,
        detail,
    })
}

/// Whether there is a transcript with messages. Large files that are not blank are assumed to have some.
fn has_messages(index_cache: &IndexCache, path: &Path) -> bool {
    let bytes = path
        .metadata()
        .ok()
        .filter(Metadata::is_file)
        .map(|file| file.len());
    bytes.is_some_and(|bytes| match bytes > STUB_LIMIT_BYTES {
        true => is_blank(path).is_ok_and(|is_blank| !is_blank),
        false => turns(index_cache, path) > 0,
    })
}

fn is_in_folder_of(root: &Path, cwd: &str, path: &Path) -> bool {
    path.parent() == Some(own_folder(root, Path::new(cwd)).as_path())
}

/// The rank of a copy: its number of turns, and the time of its last write.
fn rank(index_cache: &IndexCache, path: &Path) -> (usize, Option<Timestamp>) {
    let metadata = path.metadata();
    let written = metadata.map(|metadata| FileVersion::of(&metadata).modified_at());
    (turns(index_cache, path), written.ok())
}

/// How many turns a copy has on its live branch, including those before a compaction; 0 if it cannot be read.
fn turns(index_cache: &IndexCache, path: &Path) -> usize {
    index_cache.open(path, None).map_or(0, |open| open.turns())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn several_copies_are_ambiguous_where_none_is_in_the_folder_of_the_session() {
        const TURN: &str = r#"{"type":"user","uuid":"u1","timestamp":"2020-11-03T12:00:00.000Z","origin":{"kind":"human"},"message":{"role":"user","content":"hello"}}"#;
        const STUB: &str = r#"{"type":"custom-title","customTitle":"x"}"#;
        let table: [(&[(&str, &str)], bool); 6] = [
            (&[], false),
            (&[("-a", TURN)], false),
            (&[("-a", TURN), ("-b", TURN)], true),
            // A copy without a turn is never used.
            (&[("-a", TURN), ("-b", STUB)], false),
            (&[("-a", TURN), ("-b", TURN), ("-p", TURN)], false),
            (&[("-a", TURN), ("-p", TURN)], false),
        ];
        for (copies, expected) in table {
            let root = tempfile::tempdir().unwrap();
            for (folder, text) in copies {
                let folder = root.path().join("projects").join(folder);
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("s1.jsonl"), format!("{text}\n")).unwrap();
            }
            let home = AgentHome {
                index_cache: &IndexCache::default(),
                root: root.path(),
            };
            let are = are_ambiguous(home, "/p", "s1");
            assert_eq!(are, expected, "{copies:?}");
        }
    }
}

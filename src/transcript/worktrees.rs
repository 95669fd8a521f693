//! The worktrees of a git repository, in the order in which Claude goes through them.
//!
//! Claude (2.1.316) looks for a session in the folder of its cwd, and then in those of all worktrees that `git worktree list`
//! names there, whether they are still on disk or not: first in that of the worktree in which the cwd lies, then in the others by
//! name. Read here are the files from which git knows them; git itself is not run, so that what it leaves out for reasons of its own,
//! as in a repository that belongs to somebody else, counts here. Blocks; knows nothing of transcripts.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// How much is read of a file that names a folder: more than the longest path that a system takes.
const PATH_LIMIT_BYTES: u64 = 8 * 1024;

/// What stands before the path in a `.git` that is a file.
const GIT_FOLDER_BEGINNING: &str = "gitdir:";

/// ASCII as `localeCompare` orders it, by which Claude orders worktrees; letters come behind, small and large ones side by side.
const BEFORE_LETTERS: &str = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789";

/// The worktrees of the repository in which `cwd` lies, its main one among them; none where it lies in none, or in one that cannot be
/// read. `cwd` must be resolved already (no symbolic links).
#[must_use]
pub fn worktrees(cwd: &Path) -> Vec<PathBuf> {
    let Some(git_folder) = git_folder(cwd) else {
        return Vec::new();
    };
    let common = match read_path(&git_folder.join("commondir")) {
        Some(common) => git_folder.join(common),
        None => git_folder,
    };
    let common = common.canonicalize().unwrap_or(common);
    let linked = fs::read_dir(common.join("worktrees")).into_iter().flatten();
    let linked = linked
        .flatten()
        .filter_map(|entry| linked_worktree(&entry.path()))
        .collect();
    in_order(cwd, main_worktree(&common), linked)
}

/// The folder that git takes for the repository's at `cwd`.
fn git_folder(cwd: &Path) -> Option<PathBuf> {
    for folder in cwd.ancestors() {
        let inside = folder.join(".git");
        if inside.is_file() {
            // It leads there or nowhere: git looks no further up.
            let named = read_path(&inside)?;
            let named = folder.join(named.strip_prefix(GIT_FOLDER_BEGINNING)?.trim_start());
            return is_git_folder(&named).then_some(named);
        }
        let found = [inside, folder.to_owned()]
            .into_iter()
            .find(|at| is_git_folder(at));
        if found.is_some() {
            return found;
        }
    }
    None
}

fn is_git_folder(path: &Path) -> bool {
    let holds = |name: &str| path.join(name).symlink_metadata().is_ok();
    holds("HEAD") && (holds("commondir") || (holds("objects") && holds("refs")))
}

/// The folder of a repository that is nowhere checked out by itself stands for its main worktree.
fn main_worktree(common: &Path) -> PathBuf {
    let above = common.parent().filter(|_| common.ends_with(".git"));
    above.unwrap_or(common).to_owned()
}

/// The worktree that git has noted in one of its folders for them.
fn linked_worktree(noted: &Path) -> Option<PathBuf> {
    let named = read_path(&noted.join("gitdir"))?;
    let worktree = noted.join(named.strip_suffix("/.git").unwrap_or(&named));
    if Path::new(&named).is_absolute() {
        return Some(worktree);
    }
    Some(worktree.canonicalize().unwrap_or(worktree))
}

/// What the file says, but for the end of its line; none where there is no such file or it is no path.
fn read_path(path: &Path) -> Option<String> {
    // What is no file may keep its reader waiting.
    if !path.is_file() {
        return None;
    }
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(PATH_LIMIT_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}

fn in_order(cwd: &Path, main: PathBuf, mut linked: Vec<PathBuf>) -> Vec<PathBuf> {
    // So git lists them; of several around the cwd the first counts, which may be the outermost.
    linked.sort();
    let mut all = vec![main];
    all.append(&mut linked);
    let own = all.iter().position(|worktree| cwd.starts_with(worktree));
    let own = own.map(|own| all.remove(own));
    all.sort_by_cached_key(|worktree| by_name(worktree));
    own.into_iter().chain(all).collect()
}

/// What orders paths by name: the case of letters counts where all else is the same, small ones first. Letters beyond ASCII come
/// last, in the order of their code points, which is not always Claude's.
fn by_name(path: &Path) -> (Vec<u32>, Vec<bool>) {
    let text = path.to_string_lossy();
    let letters = BEFORE_LETTERS.len() as u32;
    let weight = |letter: char| match BEFORE_LETTERS.find(letter) {
        Some(place) => place as u32,
        None => letters + u32::from(letter.to_ascii_lowercase()),
    };
    let is_large = |letter: char| letter.is_ascii_uppercase();
    (
        text.chars().map(weight).collect(),
        text.chars().map(is_large).collect(),
    )
}

#[cfg(test)]
pub(super) mod tests;

//! Maps the folders that a backup names to the folder in which it is restored. Pure.

use std::path::Path;

use crate::archive::CopyOrigin;
use crate::transcript::locate::project_folder;

/// Maps each name of the folder in which a backup was made to the folder in which the session is now. `known` are the folders
/// in which the session ran; `real` resolves symbolic links, because agents write resolved paths. Only the backup's own folder
/// is mapped: folders below it moved with it, even if the session ran there later.
pub(super) fn map_folders(
    known: &[String],
    now: &str,
    from: &CopyOrigin,
    real: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let is_of_folder = |cwd: &str| {
        let folder = from.folder.file_name();
        folder.is_some_and(|folder| folder == project_folder(Path::new(cwd)).as_str())
    };
    let names = |cwd: &str| [Some(cwd.to_owned()), real(cwd)].into_iter().flatten();
    let has = |cwd: &str, is_name: &dyn Fn(&str) -> bool| names(cwd).any(|name| is_name(&name));
    let depth = |cwd: &str| {
        let named = from.cwd.as_deref().unwrap_or_default();
        let around = names(cwd).filter(|name| Path::new(named).starts_with(name));
        around.map(|name| Path::new(&name).components().count()).max()
    };
    let own = from.cwd.as_deref().filter(|cwd| is_of_folder(cwd));
    // The agent may use one name for different folders, so the records decide.
    let copied_in: Vec<&String> = match own {
        Some(own) if known.iter().any(|cwd| has(cwd, &|name| name == own)) => {
            known.iter().filter(|cwd| has(cwd, &|name| name == own)).collect()
        }
        // Missing folders may have been links to it.
        Some(_) => known.iter().filter(|cwd| real(cwd).is_none()).collect(),
        None => {
            let of_folder = known.iter().filter(|cwd| has(cwd, &is_of_folder));
            let of_folder: Vec<&String> = match known.iter().any(|cwd| has(cwd, &is_of_folder)) {
                true => of_folder.collect(),
                false => known.iter().collect(),
            };
            of_folder
                .into_iter()
                .max_by_key(|cwd| depth(cwd))
                .into_iter()
                .collect()
        }
    };
    let now = real(now).unwrap_or_else(|| now.to_owned());
    let mut found: Vec<String> = copied_in.into_iter().flat_map(|cwd| names(cwd)).collect();
    found.extend(own.map(str::to_owned));
    found.sort();
    found.dedup();
    found.retain(|cwd| *cwd != now);
    found.into_iter().map(|cwd| (cwd, now.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folders of the session, the one that it has now, where a copy is from, and what becomes of what.
    type Case<'a> = (
        &'a [&'a str],
        &'a str,
        (&'a str, Option<&'a str>),
        &'a [(&'a str, &'a str)],
    );

    #[test]
    fn the_folder_of_the_copy_becomes_the_folder_of_the_session() {
        let real = |cwd: &str| match cwd {
            "/link" => Some("/real".to_owned()),
            _ => cwd.starts_with("/there").then(|| cwd.to_owned()),
        };
        let table: [Case<'_>; 15] = [
            (&[], "/a", ("-a", Some("/a")), &[]),
            (&["/a"], "/a", ("-a", Some("/a")), &[]),
            (
                &["/a", "/there/b"],
                "/there/b",
                ("-a", Some("/a")),
                &[("/a", "/there/b")],
            ),
            (
                &["/a", "/there/b"],
                "/there/b",
                ("-there-b", Some("/there/b")),
                &[],
            ),
            (&["/a", "/b", "/c"], "/c", ("-a", Some("/a")), &[("/a", "/c")]),
            (&["/a", "/b"], "/a", ("-b", Some("/b")), &[("/b", "/a")]),
            // It left the chain before the conversation was moved.
            (&["/a"], "/b", ("-a", Some("/a")), &[("/a", "/b")]),
            // Both have the same name at the agent.
            (
                &["/a b", "/a-b"],
                "/a-b",
                ("-a-b", Some("/a b/deep")),
                &[("/a b", "/a-b")],
            ),
            (&["/a b", "/a-b"], "/a-b", ("-a-b", Some("/a-b")), &[]),
            // One is in the other: the records of a copy do not tell them apart.
            (&["/a", "/a/b"], "/a/b", ("-a", Some("/a/b")), &[("/a", "/a/b")]),
            (&["/a", "/a/b"], "/a/b", ("-a-b", None), &[]),
            (&["/a", "/a/b", "/c"], "/c", ("-a", Some("/a")), &[("/a", "/c")]),
            // Agents write what links lead to.
            (
                &["/link", "/b"],
                "/b",
                ("-real", Some("/real")),
                &[("/link", "/b"), ("/real", "/b")],
            ),
            // The link is gone.
            (
                &["/gone", "/link"],
                "/link",
                ("-other", Some("/other")),
                &[("/gone", "/real"), ("/other", "/real")],
            ),
            // An old list does not know the folder.
            (&["/a", "/b"], "/b", ("", Some("/a")), &[("/a", "/b")]),
        ];
        for (known, now, (folder, cwd), expected) in table {
            let from = CopyOrigin {
                folder: Path::new("projects").join(folder),
                cwd: cwd.map(str::to_owned),
            };
            let known: Vec<String> = known.iter().map(|cwd| (*cwd).to_owned()).collect();
            let folders = map_folders(&known, now, &from, real);
            let folders: Vec<_> = folders
                .iter()
                .map(|(from, to)| (from.as_str(), to.as_str()))
                .collect();
            assert_eq!(folders, expected, "{known:?} {now} {folder}");
        }
    }
}

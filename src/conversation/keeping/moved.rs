//! Maps the folders in a backup to the folders that its session has been moved to since. Pure.

use std::path::Path;

use bridge_protocol::UpstreamId;
use bridge_protocol::link::{LineageEntry, LineageReason};

use crate::archive::KeptFrom;
use crate::transcript::locate::project_folder;

/// The folders that a session had one after the other, each but the first by a move. The last is the one that it has.
pub(super) fn stations<'a>(lineage: &'a [LineageEntry], id: &UpstreamId) -> Vec<&'a str> {
    let mut stations: Vec<&str> = Vec::new();
    for entry in lineage.iter().filter(|entry| entry.upstream_id == *id) {
        let is_move = matches!(entry.reason, LineageReason::Moved | LineageReason::Undone);
        match stations.last_mut() {
            Some(last) if *last == entry.cwd => {}
            // It is there, and nobody has changed what its records name.
            Some(last) if !is_move => *last = &entry.cwd,
            _ => stations.push(&entry.cwd),
        }
    }
    stations
}

/// The folders that the copy of a session may name, and that which it has now. `real` gives the path without links of a folder
/// that is there: agents write that.
pub(super) fn folders(
    stations: &[&str],
    from: &KeptFrom,
    real: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let Some((now, left)) = stations.split_last().filter(|(_, left)| !left.is_empty()) else {
        return Vec::new();
    };
    let written = |cwd: &str| real(cwd).unwrap_or_else(|| cwd.to_owned());
    // Folders may be within each other: the innermost that the copy names. Of several times in one folder the last.
    let copied_at = from.cwd.as_deref().and_then(|named| {
        let depth = |cwd: &str| {
            let is_named = |folder: &str| Path::new(named).starts_with(folder);
            let folders = [cwd.to_owned(), written(cwd)].into_iter();
            let named = folders.filter(|folder| is_named(folder));
            named.map(|folder| Path::new(&folder).components().count()).max()
        };
        let stations = stations.iter().enumerate();
        let (_, number) = stations
            .filter_map(|(number, cwd)| Some((depth(cwd)?, number)))
            .max()?;
        Some(number)
    });
    let now = written(now);
    let mut named: Vec<String> = Vec::new();
    for cwd in &left[copied_at.unwrap_or(0).min(left.len())..] {
        named.push((*cwd).to_owned());
        named.extend(real(cwd));
    }
    // Only the records know where a link led that is gone.
    if copied_at.is_none() && left.iter().any(|cwd| real(cwd).is_none()) {
        let is_of_folder = |cwd: &String| {
            let name = project_folder(Path::new(cwd));
            from.folder
                .file_name()
                .is_some_and(|folder| folder == name.as_str())
        };
        named.extend(from.cwd.clone().filter(is_of_folder));
    }
    named.retain(|cwd| *cwd != now);
    named.dedup();
    named.into_iter().map(|cwd| (cwd, now.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_copy_names_is_what_was_left_since_it_was_made() {
        // Which folders are there is told by what they are called.
        let real = |cwd: &str| match cwd {
            "/link" => Some("/real".to_owned()),
            _ => cwd.starts_with("/there").then(|| cwd.to_owned()),
        };
        let table: [(&[&str], (&str, &str), &[(&str, &str)]); 13] = [
            // Nothing was moved.
            (&[], ("-a", "/a"), &[]),
            (&["/a"], ("-a", "/a"), &[]),
            (&["/a"], ("-b", "/b"), &[]),
            // It was, before and behind the copy.
            (&["/a", "/there/b"], ("-a", "/a"), &[("/a", "/there/b")]),
            (&["/a", "/there/b"], ("-there-b", "/there/b"), &[]),
            (&["/a", "/b", "/c"], ("-a", "/a"), &[("/a", "/c"), ("/b", "/c")]),
            (&["/a", "/b", "/c"], ("-b", "/b"), &[("/b", "/c")]),
            // And back.
            (&["/a", "/b", "/a"], ("-a", "/a"), &[]),
            (&["/a", "/b", "/a"], ("-b", "/b"), &[("/b", "/a")]),
            // Both have the same name at the agent.
            (&["/a b", "/a-b"], ("-a-b", "/a b/deep"), &[("/a b", "/a-b")]),
            (&["/a b", "/a-b"], ("-a-b", "/a-b"), &[]),
            // Agents write what links lead to; where a link is gone the records know.
            (
                &["/link", "/b"],
                ("-real", "/real"),
                &[("/link", "/b"), ("/real", "/b")],
            ),
            (
                &["/gone", "/link"],
                ("-other", "/other"),
                &[("/gone", "/real"), ("/other", "/real")],
            ),
        ];
        for (stations, (folder, cwd), expected) in table {
            let from = KeptFrom {
                folder: Path::new("projects").join(folder),
                cwd: Some(cwd.to_owned()),
            };
            let told = folders(stations, &from, real);
            let told: Vec<_> = told
                .iter()
                .map(|(from, to)| (from.as_str(), to.as_str()))
                .collect();
            assert_eq!(told, expected, "{stations:?} {folder}");
        }
    }
}

//! Checks the links of the README and of the documentation pages where only the package is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::said;

/// Files that have another name in the Debian package.
const RENAMED: [(&str, &str); 3] = [
    ("README.md", "README.md.gz"),
    ("CHANGELOG.md", "changelog.gz"),
    ("LICENSE", "copyright"),
];

/// Checks that each link of the installed README and pages leads to an installed file.
#[track_caller]
pub(crate) fn leads_to_what_is_there(doc: &Path, is_debian: bool) {
    let name = |path: &str| {
        let renamed = RENAMED.iter().find(|(name, _)| is_debian && path == *name);
        renamed.map_or_else(|| path.to_owned(), |(_, name)| (*name).to_owned())
    };
    let file = doc.join(name("README.md"));
    let text = if is_debian {
        said(
            "gzip",
            &Command::new("gzip").arg("-dc").arg(&file).output().unwrap(),
        )
    } else {
        fs::read_to_string(&file).unwrap()
    };
    let missing: Vec<&str> = links(&text)
        .filter(|link| !doc.join(name(link)).exists())
        .collect();
    assert!(missing.is_empty(), "{} links to {missing:?}", file.display());
    for page in fs::read_dir(doc.join("packaging/docs")).unwrap() {
        let page = page.unwrap().path();
        let text = fs::read_to_string(&page).unwrap();
        let missing: Vec<&str> = links(&text)
            .filter(|link| !page.parent().unwrap().join(link).exists())
            .collect();
        assert!(missing.is_empty(), "{} links to {missing:?}", page.display());
    }
}

/// The files that a text links to, without their `#anchors`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#']).next())
        .filter(|link| !link.is_empty() && !link.contains("://"))
}

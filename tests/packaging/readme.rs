//! What the README and the pages of the documentation refer to, checked where only the package is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{SOURCE, said};

/// What Debian has by names of its own.
const RENAMED: [(&str, &str); 3] = [
    ("README.md", "README.md.gz"),
    ("CHANGELOG.md", "changelog.gz"),
    ("LICENSE", "copyright"),
];

/// That each file and folder that the README in a folder names is there, or said to be in the source.
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
    let is_in = |folder: &Path, path: &str| folder.join(path).exists();
    let lost = lost(
        &text,
        |path| is_in(Path::new(SOURCE), path),
        |path| is_in(doc, &name(path)),
    );
    assert!(lost.is_empty(), "{} leads nowhere with {lost:?}", file.display());
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

/// Paragraphs and items of lists, each with the blocks behind it.
fn passages(text: &str) -> Vec<String> {
    let (mut passages, mut is_block) = (vec![String::new()], false);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_fence = line.starts_with("```");
        is_block ^= is_fence;
        let begins_block = lines.peek().is_some_and(|next| next.starts_with("```"));
        let is_end = line.is_empty() && !begins_block;
        if !is_block && (is_end || line.starts_with("- ") || line.starts_with('#')) {
            passages.push(String::new());
        }
        let passage = passages.last_mut().unwrap();
        passage.extend([line, "\n"]);
    }
    passages
}

/// What a text names that is in the source and not where the text is, though it does not say so; and what it
/// links to there.
fn lost(text: &str, is_in_source: impl Fn(&str) -> bool, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lost = Vec::new();
    for passage in passages(text) {
        let words = passage.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.to_lowercase().contains("in the source") {
            continue;
        }
        let is_part = |character: char| character.is_alphanumeric() || "_-./*~".contains(character);
        let named = words.split(|character| !is_part(character)).filter(|word| {
            // A mere word may happen to be the name of a folder.
            let is_path = word.contains('/') || word.contains(".md") || *word == "LICENSE";
            is_path && !word.starts_with(['/', '~', '.'])
        });
        let named = named
            .map(|word| word.split('*').next().unwrap().trim_end_matches('.'))
            .filter(|path| is_in_source(path));
        let missing = named.chain(links(&words)).filter(|path| !is_there(path));
        lost.extend(missing.map(str::to_owned));
        let is_built = passage.contains("`cargo ") || passage.lines().any(|line| line.starts_with("cargo "));
        lost.extend(is_built.then(|| "cargo".to_owned()));
    }
    lost
}

#[test]
fn the_rules_of_what_is_named_can_fail() {
    let source = ["a/b", "a/c/", "D.md", "LICENSE", "src", "e/f.json"];
    let lost = |text: &str| lost(text, |path| source.contains(&path), |path| path == "e/f.json");
    for text in [
        "See `e/f.json`.",
        "Of `src/old`, `~/a/b`, `/a/b` and src.",
        "[here](#there), [there](https://example.org/a)",
        "In\nthe source `a/b` and `D.md`.",
        "In the source:\n\n```sh\ncargo test\na/b\n```\n",
        "```sh\ncargo test    # in the source\n```\n",
    ] {
        assert_eq!(lost(text), [""; 0], "{text}");
    }
    for (text, expected) in [
        ("See `a/b`.", "a/b"),
        ("See `a/c/*.json`", "a/c/"),
        ("(`LICENSE`).", "LICENSE"),
        ("What D.md.\n\nIn the source.", "D.md"),
        ("- In the source.\n- But a/b", "a/b"),
        ("[this](of/none.txt#part)", "of/none.txt"),
        ("In the source.\n\n## Next\n\n```sh\na/b --now\n```\n", "a/b"),
        ("By `cargo run`.", "cargo"),
        ("```sh\ncargo run\n```\n\nIn the source.", "cargo"),
    ] {
        assert_eq!(lost(text), [expected], "{text}");
    }
}

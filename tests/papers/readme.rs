//! README.md taken apart: its blocks, with the section that each stands in, its snippets within sentences, its links.

use std::collections::BTreeSet;

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// The heading above it.
    pub(crate) section: &'a str,
    /// What stands behind the fence.
    pub(crate) language: &'a str,
    pub(crate) lines: Vec<&'a str>,
}

/// Something between backticks within a sentence or a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snippet {
    pub(crate) section: String,
    /// On one line, whatever it was broken into.
    pub(crate) text: String,
}

/// A paper in its parts.
#[derive(Debug)]
pub(crate) struct Paper<'a> {
    pub(crate) headings: Vec<&'a str>,
    pub(crate) blocks: Vec<Block<'a>>,
    pub(crate) snippets: Vec<Snippet>,
}

impl<'a> Paper<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let (mut headings, mut blocks, mut snippets) = (Vec::new(), Vec::new(), Vec::new());
        let (mut section, mut prose) = ("", String::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let lines = lines.by_ref().take_while(|line| *line != "```").collect();
                blocks.push(Block {
                    section,
                    language,
                    lines,
                });
            } else if line.starts_with('#') {
                snippets.extend(snippets_of(section, &prose));
                prose.clear();
                section = line.trim_start_matches(['#', ' ']);
                headings.push(section);
            } else {
                prose.extend([line, "\n"]);
            }
        }
        snippets.extend(snippets_of(section, &prose));
        Self {
            headings,
            blocks,
            snippets,
        }
    }
}

fn snippets_of(section: &str, prose: &str) -> Vec<Snippet> {
    let parts: Vec<&str> = prose.split('`').collect();
    assert_eq!(parts.len() % 2, 1, "a backtick without another in {section}");
    let texts = parts.into_iter().skip(1).step_by(2);
    texts
        .map(|text| Snippet {
            section: section.to_owned(),
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        })
        .collect()
}

/// The name by which a link within a paper leads to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|character| character.is_alphanumeric() || [' ', '-'].contains(character));
    kept.map(|character| if character == ' ' { '-' } else { character })
        .flat_map(char::to_lowercase)
        .collect()
}

/// The links within a paper that lead nowhere.
fn dead_links(text: &str) -> Vec<&str> {
    let anchors: BTreeSet<String> = Paper::of(text)
        .headings
        .iter()
        .map(|heading| anchor(heading))
        .collect();
    let links = text
        .split("](#")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    links.filter(|link| !anchors.contains(*link)).collect()
}

#[test]
fn each_link_within_the_readme_leads_somewhere() {
    let readme = super::paper("README.md");
    assert_eq!(dead_links(&readme), [""; 0]);
    assert!(readme.contains("](#"));
}

#[test]
fn a_paper_is_taken_apart() {
    let text = "# A, b\n\n`x\ny` and [z](#a-b), [w](#a)\n```sh\nls  # here\n```\n## C\n| `d` |\n";
    let paper = Paper::of(text);
    assert_eq!(paper.headings, ["A, b", "C"]);
    assert_eq!(
        paper.blocks,
        [Block {
            section: "A, b",
            language: "sh",
            lines: vec!["ls  # here"]
        }]
    );
    let snippets: Vec<_> = paper
        .snippets
        .iter()
        .map(|snippet| (&*snippet.section, &*snippet.text))
        .collect();
    assert_eq!(snippets, [("A, b", "x y"), ("C", "d")]);
    assert_eq!(dead_links(text), ["a"]);
}

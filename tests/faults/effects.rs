//! Counts how often each prompt took effect: the agent's tool that writes a file writes into a pipe.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

/// The name of the pipe in the working directory of the conversations.
pub(crate) const NAME: &str = "effects";

/// The pipe and everything read from it.
pub(crate) struct Effects {
    pipe: File,
    words: String,
}

impl Effects {
    pub(crate) fn below(project: &Path) -> Self {
        let path = project.join(NAME);
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        // Opened for reading and writing, so that a writer never waits for a reader.
        let pipe = open(
            &path,
            OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .unwrap();
        Self {
            pipe: File::from(pipe),
            words: String::new(),
        }
    }

    /// The directive that writes this mark into the pipe.
    pub(crate) fn directive(mark: &str) -> String {
        format!("[[write {NAME} <{mark}>]]")
    }

    /// How often each mark was written.
    pub(crate) fn counted(&mut self) -> BTreeMap<String, usize> {
        let mut bytes = Vec::new();
        // The read always ends with "would block", because this descriptor also keeps the pipe open for
        // writing.
        drop(self.pipe.read_to_end(&mut bytes));
        self.words.push_str(std::str::from_utf8(&bytes).unwrap());
        let mut counts = BTreeMap::new();
        for mark in self.words.split_terminator('>') {
            let mark = mark.strip_prefix('<').expect("a mark is written in one piece");
            *counts.entry(mark.to_owned()).or_default() += 1;
        }
        counts
    }
}

#[test]
fn an_effect_that_comes_twice_is_counted_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut effects = Effects::below(folder.path());
    std::fs::write(folder.path().join(NAME), "<a>").unwrap();
    std::fs::write(folder.path().join(NAME), "<b>").unwrap();
    std::fs::write(folder.path().join(NAME), "<a>").unwrap();
    let expected = BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]);
    assert_eq!(effects.counted(), expected);
    assert_eq!(
        effects.counted(),
        expected,
        "marks that were read earlier were forgotten"
    );
}

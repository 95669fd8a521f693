//! The names of the files and folders that the daemon creates in its data folder. Paths are built from them, and each
//! start checks all of them.

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A file.
    File,
    /// A folder.
    Folder,
}

/// Declares the names of a folder, and the list of all of them.
macro_rules! entries {
    ($(#[$about:meta])* $all:ident; $($(#[$doc:meta])* $id:ident = $kind:ident $name:literal;)*) => {
        $($(#[$doc])* pub(crate) const $id: &str = $name;)*

        $(#[$about])*
        pub(crate) const $all: &[(&str, EntryKind)] = &[$(($id, EntryKind::$kind)),*];
    };
}

entries! {
    /// The entries of the data folder.
    DATA;
    /// The lock file. A process that holds its lock is a daemon.
    LOCK = File "sessiond.lock";
    /// The data folder's random name, which is part of the marks of its daemons' processes.
    INSTANCE = File "instance";
    /// The journal of the store.
    JOURNAL = File "journal.jsonl";
    /// The journal while it is rewritten.
    NEW_JOURNAL = File "journal.new";
    /// The conversation last used in each folder: what `.` means.
    LAST_USED = File "last-used.json";
    /// Exported bundles without a given path.
    EXPORTS = Folder "exports";
    /// The database of the store.
    STORE = Folder "store";
    /// The database while it is rebuilt.
    NEXT_STORE = Folder "store.next";
    /// The boot in which the database can be trusted.
    TRUST = File "store.trust";
    /// The saved report of what a start found in the store's files.
    REPORT = File "store.report";
    /// Large values of the store.
    BODIES = Folder "bodies";
    /// The transcripts of the built-in agent.
    LOOPBACK = Folder "loopback";
    /// Copies of transcripts.
    KEPT = Folder "kept";
    /// Intents of copies that no conversation refers to yet.
    COPIES = Folder "copies";
    /// Intents of imports.
    IMPORTS = Folder "imports";
    /// Intents of tree moves, and records of finished ones, which can be undone.
    TREES = Folder "trees";
    /// Intents of moves.
    MOVES = Folder "moves";
}

entries! {
    /// The entries of the folder [`KEPT`], besides a folder per root of transcripts.
    IN_KEPT;
    /// How many turns restored transcripts lack.
    UNREPORTED = Folder "unreported";
    /// Copies that are unpacked for reading.
    UNPACKED = Folder "unpacked";
    /// When all transcripts were last backed up.
    PASSED = File "passed";
}

/// Returns all entries as paths below the data folder, a folder before its content.
pub(crate) fn all_entries() -> impl Iterator<Item = (String, EntryKind)> {
    let data = DATA.iter().map(|(name, kind)| ((*name).to_owned(), *kind));
    let kept = IN_KEPT
        .iter()
        .map(|(name, kind)| (format!("{KEPT}/{name}"), *kind));
    data.chain(kept)
}

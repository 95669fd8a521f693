//! Plans of imports: the files that an import is about to put into the agents' folders.
//!
//! Owns how an import that an earlier daemon left unfinished is settled: its files are deleted, unless its conversation
//! was recorded. If the store cannot answer that, the plan is set aside. Blocks.

use std::path::Path;

use bridge_protocol::{ConversationId, UpstreamId};
use serde_json::Value;

use super::super::unfinished::UndoPolicy;
use crate::files::intent::{self, Intent, IntentDecision, IntentKind, IntentStep, LogContent};
use crate::paths::names;

/// The intents of imports. A bundle is unpacked next to the log.
pub(crate) const IMPORT_INTENTS: IntentKind<ConversationId> = IntentKind {
    folder: names::IMPORTS,
    log_name: Some("plan"),
    parse_headerless: parse_old_log,
};

/// Parses the log of older versions: first the conversation, then one step per line.
fn parse_old_log(lines: Vec<Value>) -> Option<LogContent<ConversationId>> {
    let mut lines = lines.into_iter();
    let id = lines.next()?.get_mut("conversation")?.take();
    let step = |line| {
        serde_json::from_value::<IntentStep>(line)
            .ok()
            .map(|step| vec![step])
    };
    Some(LogContent {
        descriptions: vec![serde_json::from_value(id).ok()?],
        groups: lines.map(step).collect::<Option<_>>()?,
    })
}

/// Settles unfinished imports. `is_written` returns whether a conversation was recorded, `may_have_owner` whether a
/// conversation may own a session by now: the files may be old. Returns whether all are settled.
pub(in crate::conversation) fn settle(
    data: &Path,
    policy: &UndoPolicy,
    is_written: impl Fn(ConversationId) -> bool,
    may_have_owner: impl Fn(&UpstreamId) -> bool,
) -> bool {
    let decide = |intent: &Intent<ConversationId>| match (policy, intent.descriptions().first()) {
        (UndoPolicy::Leave, _) => IntentDecision::Later,
        (UndoPolicy::SetAside(why), _) => IntentDecision::SetAside(why.clone()),
        (UndoPolicy::Undo, Some(id)) if is_written(*id) => IntentDecision::Commit,
        (UndoPolicy::Undo, _) => IntentDecision::Undo,
    };
    // A failure to list is logged.
    intent::existing(&IMPORT_INTENTS, data).is_ok_and(|intents| {
        intent::settle(
            &IMPORT_INTENTS,
            &intents,
            &|session| may_have_owner(&session.into()),
            decide,
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{self, Write};

    use super::*;
    use crate::files::durable::tests::Disk;
    use crate::files::identity::{FileIdentity, Hashed};
    use crate::files::intent::NewName;

    fn undo_all(
        data: &Path,
        is_written: impl Fn(ConversationId) -> bool,
        may_have_owner: impl Fn(&UpstreamId) -> bool,
    ) -> bool {
        settle(data, &UndoPolicy::Undo, is_written, may_have_owner)
    }

    fn begin(data: &Path, id: ConversationId) -> Intent<ConversationId> {
        Intent::begin(&IMPORT_INTENTS, data, &id.to_string(), id, Vec::new()).unwrap()
    }

    /// What a killed daemon leaves: a plan with these files, which are in place, and one that is half written.
    fn killed(data: &Path, files: &[(&Path, &str)]) -> ConversationId {
        let id = ConversationId::mint();
        let disk = Disk::of(data);
        let mut plan = begin(data, id);
        for (path, text) in files {
            let folder = path.parent().unwrap();
            plan.record_steps(vec![vec![IntentStep::Folder(folder.to_owned())]])
                .unwrap();
            let lost = disk.lost();
            assert!(
                lost.iter().all(|path| path.starts_with("agent")),
                "each step is on disk before it is done: {lost:?}"
            );
            fs::create_dir_all(folder).unwrap();
            let temporary = folder.join(".t.tmp");
            plan.record_steps(vec![vec![IntentStep::Temporary(temporary.clone())]])
                .unwrap();
            fs::write(&temporary, text).unwrap();
            let mut nowhere = io::sink();
            let mut hashed = Hashed::new(&mut nowhere);
            hashed.write_all(text.as_bytes()).unwrap();
            let file = NewName {
                path: path.to_path_buf(),
                identity: FileIdentity::at(&temporary).unwrap(),
                sha256: Some(hashed.digest()),
                session: path.file_name().unwrap().to_str().map(str::to_owned),
            };
            plan.record_steps(vec![vec![IntentStep::File(file)]]).unwrap();
            fs::rename(&temporary, path).unwrap();
        }
        let last = data.join("agent/.last.tmp");
        plan.record_steps(vec![vec![IntentStep::Temporary(last.clone())]])
            .unwrap();
        fs::create_dir_all(data.join("agent")).unwrap();
        fs::write(last, "half").unwrap();
        // Torn, as a kill may leave a line.
        let log = plan.path().join("plan");
        let mut torn = fs::read(&log).unwrap();
        torn.extend(b"{\"version\":1,\"crc32\":12");
        fs::write(log, torn).unwrap();
        id
    }

    /// A plan may be read long after it was made, and another conversation may have one of its files by then.
    #[test]
    fn files_of_a_session_with_an_owner_stay() {
        let data = tempfile::tempdir().unwrap();
        let at = |name: &str| data.path().join("agent").join(name);
        let (adopted, other) = (at("p/a"), at("p/b"));
        killed(data.path(), &[(&adopted, "one"), (&other, "two")]);
        assert!(undo_all(
            data.path(),
            |_| false,
            |session| session.as_str() == "a"
        ));
        assert!(adopted.exists() && !other.exists());
        assert!(!data.path().join(IMPORT_INTENTS.folder).exists());
    }

    #[test]
    fn what_cannot_be_read_or_deleted_now_stays_for_later() {
        let data = tempfile::tempdir().unwrap();
        let (other, taken) = (data.path().join("agent/p/a"), data.path().join("agent/q/b"));
        killed(data.path(), &[(&other, "one")]);
        let imports = data.path().join(IMPORT_INTENTS.folder);
        let folder = fs::read_dir(&imports).unwrap().next().unwrap().unwrap().path();
        // Reading a folder fails for root too.
        fs::rename(folder.join("plan"), folder.join("aside")).unwrap();
        fs::create_dir(folder.join("plan")).unwrap();
        killed(data.path(), &[(&taken, "two")]);
        assert!(!undo_all(data.path(), |_| false, |_| false));
        assert!(other.exists() && !taken.exists());
        assert_eq!(fs::read_dir(&imports).unwrap().count(), 1);
        fs::remove_dir(folder.join("plan")).unwrap();
        fs::rename(folder.join("aside"), folder.join("plan")).unwrap();

        // A folder in the place of a file that was about to be written cannot be removed as a file.
        let temporary = data.path().join("agent/.last.tmp");
        fs::create_dir_all(&temporary).unwrap();
        assert!(!undo_all(data.path(), |_| false, |_| false));
        assert!(folder.join("plan").exists() && !other.exists());
        fs::remove_dir(&temporary).unwrap();
        assert!(undo_all(data.path(), |_| false, |_| false));
        assert!(!imports.exists());
    }
}

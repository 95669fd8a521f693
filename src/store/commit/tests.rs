use std::path::Path;

use super::*;
use crate::store::journal::tests::{FaultyFile, nowhere};
use crate::store::keyspace::Keyspace;
use crate::store::tests::{change, id, record};

/// A writer whose trees are in memory and whose journal is a file that can be made to fail.
fn writer() -> (Writer, Arc<Shared>, FaultyFile) {
    let file = FaultyFile::default();
    let journal = Journal::over(Box::new(file.clone()), Path::new("journal.jsonl"), nowhere());
    let mark = Mark::at(nowhere());
    let shared = Arc::new(Shared::new(Keyspace::in_memory(), None, &mark));
    let writer = Writer::new(Arc::clone(&shared), Some(journal), None, mark);
    (writer, shared, file)
}

fn commit(writer: &mut Writer, changes: Vec<Change>) -> Vec<Result<Sequence, StoreError>> {
    let (group, answers): (Vec<_>, Vec<_>) = changes
        .into_iter()
        .map(|change| {
            let (answer, answered) = oneshot::channel();
            ((change, answer), answered)
        })
        .unzip();
    writer.commit(group);
    answers
        .into_iter()
        .map(|mut answered| answered.try_recv().unwrap())
        .collect()
}

fn lines(file: &FaultyFile) -> usize {
    let state = file.state.lock().unwrap();
    state.bytes.iter().filter(|byte| **byte == b'\n').count()
}

#[test]
fn what_cannot_be_written_down_fails_alone() {
    let (mut writer, shared, file) = writer();
    let too_long = Change {
        upstream: vec![(
            id(2),
            super::super::TranscriptRoot::new("/r"),
            "x".repeat(5_000).as_str().into(),
        )],
        ..change(record(2, 1))
    };
    let outcomes = commit(
        &mut writer,
        vec![change(record(1, 1)), too_long, change(record(3, 1))],
    );
    assert_eq!(outcomes[0].as_ref().unwrap(), &Sequence(1));
    assert!(matches!(outcomes[1], Err(StoreError::TooLarge { .. })));
    assert_eq!(outcomes[2].as_ref().unwrap(), &Sequence(2));
    assert!(shared.conversation(id(2)).unwrap().is_none());
    assert_eq!(lines(&file), 2);
}

#[test]
fn a_change_sees_those_before_it_in_its_group() {
    let (mut writer, shared, _) = writer();
    commit(&mut writer, (0..10).map(|at| change(record(1, at))).collect());
    assert_eq!(shared.figures().conversations, 1);
    assert_eq!(shared.recent_page(None, 10).unwrap().len(), 1);
}

#[test]
fn when_the_disk_is_full_nothing_is_applied_and_later_changes_are_tried() {
    let (mut writer, shared, file) = writer();
    assert!(commit(&mut writer, vec![change(record(1, 1))])[0].is_ok());
    file.state.lock().unwrap().room = Some(100);
    let outcomes = commit(&mut writer, vec![change(record(2, 1)), change(record(3, 1))]);
    for outcome in &outcomes {
        assert!(
            matches!(outcome, Err(StoreError::Io { action: "write", .. })),
            "{outcome:?}"
        );
    }
    assert!(matches!(shared.figures().failure, Some(StoreError::Io { .. })));
    assert!(shared.conversation(id(2)).unwrap().is_none());
    assert_eq!(shared.figures().sequence, Sequence(1));

    file.state.lock().unwrap().room = None;
    let outcomes = commit(&mut writer, vec![change(record(4, 1))]);
    assert_eq!(outcomes[0].as_ref().unwrap(), &Sequence(2));
    assert!(shared.figures().failure.is_none());
    assert_eq!(lines(&file), 2);
}

#[test]
fn a_failed_sync_fails_the_commit() {
    let (mut writer, shared, file) = writer();
    file.state.lock().unwrap().sync_fails = true;
    let outcomes = commit(&mut writer, vec![change(record(1, 1))]);
    assert!(matches!(outcomes[0], Err(StoreError::Io { action: "sync", .. })));
    assert!(shared.conversation(id(1)).unwrap().is_none());
}

#[test]
fn out_of_service_every_change_is_refused() {
    let (mut writer, _, file) = writer();
    assert!(commit(&mut writer, vec![change(record(1, 1))])[0].is_ok());
    let before = Some(nowhere());
    writer.leave_service(before);
    assert_eq!(lines(&file), 0, "lines that were not carried out are taken back");
    let outcomes = commit(&mut writer, vec![change(record(2, 1)), Change::default()]);
    for outcome in outcomes {
        assert!(matches!(outcome, Err(StoreError::OutOfService)));
    }
}

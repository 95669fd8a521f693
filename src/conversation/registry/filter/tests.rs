use jiff::Timestamp;

use super::*;
use crate::store::{Change, ConversationRecord, SCAN_STEP_ENTRIES};

/// More than some steps.
const MANY: u16 = SCAN_STEP_ENTRIES as u16 * 3;

fn id(number: u16) -> ConversationId {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    ConversationId::from_bytes(bytes)
}

fn record(number: u16, at: i64) -> ConversationRecord {
    let cwd = format!("/home/u/{}", number % 10);
    let at = Timestamp::from_second(at).unwrap();
    let mut record = ConversationRecord::new(id(number), AgentName::new("claude"), cwd, at);
    record.title = format!("Number {number}");
    record
}

fn commit(store: &Store, records: impl IntoIterator<Item = ConversationRecord>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let waiting: Vec<_> = records
        .into_iter()
        .map(|record| {
            store.commit(Change {
                conversation: Some(record),
                ..Change::default()
            })
        })
        .collect();
    for written in waiting {
        runtime.block_on(written).unwrap();
    }
}

/// A store in memory with many conversations, the higher the number the newer.
fn filled() -> Store {
    let store = Store::ephemeral().unwrap();
    commit(&store, (0..MANY).map(|number| record(number, i64::from(number))));
    store
}

fn search(store: &Store, filter: &Filter, after: Option<RecentCursor>, limit: usize) -> Search {
    Search::new(store.clone(), filter.clone(), HashMap::new(), after, limit)
}

fn all(mut search: Search) -> Vec<(RecentCursor, ConversationId)> {
    while !search.step().unwrap() {}
    search.into_found()
}

fn ids(found: &[(RecentCursor, ConversationId)]) -> Vec<ConversationId> {
    found.iter().map(|(_, id)| *id).collect()
}

fn in_folder(number: u16) -> Filter {
    Filter {
        cwd: Some(format!("/home/u/{number}")),
        ..Filter::default()
    }
}

#[test]
fn one_step_is_bounded() {
    let store = filled();
    let mut nothing = search(
        &store,
        &Filter {
            query: Some("no such title".to_owned()),
            ..Filter::default()
        },
        None,
        1,
    );
    let mut steps = 1;
    while !nothing.step().unwrap() {
        steps += 1;
    }
    // One more looks whether anything came to the front meanwhile.
    assert_eq!(steps, usize::from(MANY) / SCAN_STEP_ENTRIES + 1);
    assert!(nothing.into_found().is_empty());
}

#[test]
fn what_moves_to_the_front_meanwhile_is_not_lost() {
    let store = filled();
    for steps_before in 1..=3 {
        let mut search = search(&store, &in_folder(0), None, usize::MAX);
        for _ in 0..steps_before {
            assert!(!search.step().unwrap());
        }
        // The oldest, which the search has not reached, and a newer one, which it has.
        let later = 100_000 + i64::from(steps_before);
        commit(
            &store,
            [record(0, later), record(MANY - 8, later), record(10, later)],
        );
        let found = ids(&all(search));
        let expected = usize::from(MANY).div_ceil(10);
        assert_eq!(found.len(), expected, "{steps_before}");
        let unique: HashSet<ConversationId> = found.iter().copied().collect();
        assert_eq!(unique.len(), expected, "{steps_before}");
    }
}

#[test]
fn more_than_a_step_may_move_meanwhile() {
    let store = filled();
    let mut search = search(&store, &in_folder(0), None, usize::MAX);
    search.step().unwrap();
    commit(
        &store,
        (0..MANY - 1).map(|number| record(number, 100_000 + i64::from(number))),
    );
    let found = ids(&all(search));
    let expected: Vec<ConversationId> = (0..MANY)
        .rev()
        .filter(|number| number % 10 == 0)
        .map(id)
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_page_behind_a_cursor_does_not_go_back() {
    let store = filled();
    let first = all(search(&store, &in_folder(0), None, 5));
    let after = first.last().map(|(place, _)| *place);
    let mut second = search(&store, &in_folder(0), after, usize::MAX);
    second.step().unwrap();
    commit(&store, [record(MANY - 8, 100_000)]);
    let second = ids(&all(second));
    assert!(ids(&first).iter().all(|id| !second.contains(id)));
    assert_eq!(first.len() + second.len(), usize::from(MANY).div_ceil(10));
}

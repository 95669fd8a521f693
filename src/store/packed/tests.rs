use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SPACE: TreeId = TreeId::Recent;

fn contents(keyspace: &Keyspace, page_length: usize) -> Vec<KeyValue> {
    let mut all: Vec<KeyValue> = Vec::new();
    loop {
        let from = all
            .last()
            .map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key.as_slice()));
        let next = page(keyspace, SPACE, from, &[], page_length).unwrap();
        if next.is_empty() {
            return all;
        }
        all.extend(next);
    }
}

fn chunks(keyspace: &Keyspace) -> Vec<KeyValue> {
    keyspace.page(SPACE, Bound::Unbounded, usize::MAX).unwrap()
}

#[test]
fn entries_before_all_others_share_the_first_chunk() {
    let keyspace = Keyspace::in_memory();
    for number in (0..1_000_u32).rev() {
        let mut draft = WriteBatch::new(&keyspace);
        insert(&mut draft, SPACE, &number.to_be_bytes(), &[7; 20]).unwrap();
        keyspace.apply(draft.into_writes()).unwrap();
    }
    assert_eq!(contents(&keyspace, 100).len(), 1_000);
    assert!(chunks(&keyspace).len() < 40, "{} chunks", chunks(&keyspace).len());
}

#[test]
fn chunks_are_joined_again_when_they_empty() {
    let keyspace = Keyspace::in_memory();
    let mut draft = WriteBatch::new(&keyspace);
    for number in 0..1_000_u32 {
        insert(&mut draft, SPACE, &number.to_be_bytes(), &[7; 20]).unwrap();
    }
    for number in 0..1_000_u32 {
        if number % 100 != 0 {
            assert!(
                remove(&mut draft, SPACE, &number.to_be_bytes())
                    .unwrap()
                    .is_some()
            );
        }
    }
    keyspace.apply(draft.into_writes()).unwrap();
    assert_eq!(contents(&keyspace, 3).len(), 10);
    assert!(chunks(&keyspace).len() <= 4, "{} chunks", chunks(&keyspace).len());
}

#[test]
fn a_chunk_in_another_form_is_an_error() {
    let keyspace = Keyspace::in_memory();
    let mut draft = WriteBatch::new(&keyspace);
    draft.put(SPACE, FIRST_CHUNK_KEY, vec![0, 9, 0, 1, 5]);
    keyspace.apply(draft.into_writes()).unwrap();
    assert!(matches!(
        page(&keyspace, SPACE, Bound::Unbounded, &[], 1),
        Err(StoreError::DamagedChunk { space: "recent" })
    ));
}

proptest! {
    /// The packed map behaves like an ordered map, whether or not changes share a batch.
    #[test]
    fn packed_entries_form_an_ordered_map(
        steps in proptest::collection::vec((any::<bool>(), 0..200_u16, 0..900_usize), 1..200),
        batch in 1..9_usize,
        page_length in 1..40_usize,
    ) {
        let keyspace = Keyspace::in_memory();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for group in steps.chunks(batch) {
            let mut draft = WriteBatch::new(&keyspace);
            for (is_insert, key, length) in group {
                let key = key.to_be_bytes().to_vec();
                if *is_insert {
                    let value = vec![1; *length];
                    let previous = insert(&mut draft, SPACE, &key, &value).unwrap();
                    prop_assert_eq!(previous, model.insert(key, value));
                } else {
                    prop_assert_eq!(remove(&mut draft, SPACE, &key).unwrap(), model.remove(&key));
                }
            }
            keyspace.apply(draft.into_writes()).unwrap();
        }
        let expected: Vec<KeyValue> = model.into_iter().collect();
        prop_assert_eq!(contents(&keyspace, page_length), expected);
        for (key, chunk) in chunks(&keyspace) {
            prop_assert!(chunk.len() <= CHUNK_LIMIT_BYTES);
            if key != FIRST_CHUNK_KEY {
                let (lowest, _) = Entries::new(SPACE, &chunk).next().unwrap().unwrap();
                prop_assert_eq!(key, further_chunk_key(lowest));
            }
        }
    }
}

//! Copies that others continue.

use super::*;

const GRANDCHILD: &str = "01a1fc17-ffed-7ff1-b050-3a83130f7a05";

#[test]
fn what_others_continue_stays_until_none_of_them_is_left() {
    let table: [(&[&[&str]], &[&str], &[&str]); 7] = [
        // What is removed at once, who is used again, and what is left.
        (&[&[PARENT]], &[], &[PARENT, CHILD, GRANDCHILD]),
        (&[&[PARENT, CHILD]], &[], &[PARENT, CHILD, GRANDCHILD]),
        (&[&[PARENT], &[CHILD], &[GRANDCHILD]], &[], &[]),
        (&[&[PARENT], &[GRANDCHILD]], &[], &[CHILD, PARENT]),
        (&[&[PARENT], &[GRANDCHILD, CHILD]], &[PARENT], &[PARENT]),
        (&[&[GRANDCHILD], &[CHILD]], &[], &[PARENT]),
        (&[&["nobody"]], &[], &[PARENT, CHILD, GRANDCHILD]),
    ];
    for (removed, used, left) in table {
        let place = Place::new();
        for (id, base) in [(PARENT, None), (CHILD, Some(PARENT)), (GRANDCHILD, Some(CHILD))] {
            let path = rollout(&place, id, base);
            place
                .archive
                .pack(&place.key(id), Format::Codex, Some(&path), None)
                .unwrap();
        }
        for ids in removed {
            let ids = ids.iter().map(|id| (*id).to_owned()).collect();
            let is_used = |id: &str| used.contains(&id);
            place.archive.remove_rollouts(&place.root, &ids, is_used).unwrap();
        }
        for id in [PARENT, CHILD, GRANDCHILD] {
            let is_kept = place.archive.has_transcript(&place.key(id)).unwrap();
            assert_eq!(is_kept, left.contains(&id), "{removed:?} {id}");
        }
    }
}

//! Copies of sessions that other sessions continue.

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
            pack_rollout(&place, id, &path);
        }
        for ids in removed {
            let ids = ids.iter().map(|id| (*id).to_owned()).collect();
            let is_used = |id: &str| used.contains(&id);
            place.archive.remove_unneeded(&place.root, &ids, is_used).unwrap();
        }
        for id in [PARENT, CHILD, GRANDCHILD] {
            let is_kept = place.archive.has_transcript(&place.key(id)).unwrap();
            assert_eq!(is_kept, left.contains(&id), "{removed:?} {id}");
        }
    }
}

/// Nobody knows whether it continues one of the others.
#[test]
fn nothing_is_deleted_while_a_kept_session_cannot_be_read() {
    let hides: [fn(&Path); 4] = [
        |folder| fs::write(folder.join(LIST_FILE), "{").unwrap(),
        |folder| fs::rename(folder, folder.with_extension("set-aside-1")).unwrap(),
        |folder| fs::write(folder.join("1.zst"), "").unwrap(),
        |folder| fs::write(folder.join("1.zst.set-aside-1"), "").unwrap(),
    ];
    for (number, hide) in hides.into_iter().enumerate() {
        let place = Place::new();
        for (id, base) in [(PARENT, None), (CHILD, Some(PARENT))] {
            let path = rollout(&place, id, base);
            pack_rollout(&place, id, &path);
        }
        hide(&place.folder(CHILD));
        let ids = BTreeSet::from([PARENT.to_owned()]);
        place
            .archive
            .remove_unneeded(&place.root, &ids, |_| false)
            .unwrap();
        assert!(
            place.archive.has_transcript(&place.key(PARENT)).unwrap(),
            "{number}"
        );
    }
}

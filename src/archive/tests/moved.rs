//! Sessions that were moved before or after their copies were made.

use super::*;

const LONG: &str = "/nowhere/a/folder/with/a/long/name";
const SHORT: &str = "/b";

fn relocation(from: &str, to: &str) -> Relocation {
    Relocation {
        folders: vec![(from.to_owned(), to.to_owned())],
        ..Relocation::default()
    }
}

/// Records that name a folder, one a turn, and a line that nobody understands.
fn records(cwd: &str, count: usize) -> String {
    let record =
        |number: usize| format!("{{\"uuid\":\"{number}\",\"cwd\":\"{cwd}\",\"said\":\"in {LONG}\"}}\n");
    (0..count).map(record).chain(["@@@\n".to_owned()]).collect()
}

fn in_folder(place: &Place, cwd: &str, name: &str) -> PathBuf {
    own_folder(&place.root, Path::new(cwd)).join(name)
}

fn put_in(place: &Place, cwd: &str, name: &str, text: &str) -> PathBuf {
    let path = in_folder(place, cwd, name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn f12_what_is_restored_into_another_folder_names_it_wherever_it_named_the_old_one() {
    let place = Place::new();
    for is_packed in [false, true] {
        let path = put_in(&place, LONG, "s.jsonl", &records(LONG, 3));
        let result = put_in(&place, LONG, "s/tool-results/r.txt", LONG);
        let named = format!(
            "{{\"cwd\":\"{LONG}/deep\",\"toolUseResult\":{{\"persistedOutputPath\":\"{}\"}}}}\n",
            result.display()
        );
        append(&path, &named);
        put_in(&place, LONG, "s/subagents/agent-1.jsonl", &records(LONG, 1));
        match is_packed {
            true => place.pack("s", &path),
            false => place.link("s", &path),
        };
        place.lose();
        let from = place.kept_from("s");
        assert_eq!(
            (place.root.join(from.folder).as_path(), from.cwd.as_deref()),
            (path.parent().unwrap(), Some(LONG))
        );
        let relocation = relocation(LONG, SHORT);
        let expected = records(SHORT, 3) + &named.replace(&format!("{LONG}/deep"), &format!("{SHORT}/deep"));
        let mut told = Vec::new();
        let mut placing = |id: &str, bytes: u64| {
            assert!(!in_folder(&place, SHORT, "s.jsonl").exists());
            told.push((id.to_owned(), bytes));
            Ok(())
        };
        let advice = RestoreCallbacks {
            find_relocation: &|_| Ok(relocation.clone()),
            ..ADVICE
        };
        let (archive, cwd) = (&place.archive, Some(Path::new(SHORT)));
        let restored = archive.restore(claude(), &place.key("s"), cwd, advice, &mut placing);
        let restored = restored.unwrap();
        assert_eq!(told, [("s".to_owned(), expected.len() as u64)]);
        let there = in_folder(&place, SHORT, "s.jsonl");
        assert_eq!(restored.last(), Some(&there));
        assert_eq!(fs::read_to_string(&there).unwrap(), expected);
        let side = |name: &str| fs::read_to_string(in_folder(&place, SHORT, name)).unwrap();
        assert_eq!(side("s/subagents/agent-1.jsonl"), records(SHORT, 1));
        // What is no record goes as it is, and is where the records name it, too.
        assert_eq!(side("s/tool-results/r.txt"), LONG);
        assert_eq!(fs::read_to_string(&result).unwrap(), LONG);
        // It holds all that is kept, whichever folder it names.
        for relocation in [&relocation, &Relocation::default()] {
            let again = place.restore_in("s", Some(SHORT), relocation).unwrap();
            assert_eq!(again, [] as [PathBuf; 0]);
        }
        place.lose();
    }
}

#[test]
fn a_copy_in_a_folder_of_a_shorter_name_counts_before_the_one_that_it_goes_on_from() {
    for is_linked in [true, false] {
        let place = Place::new();
        let path = put_in(&place, LONG, "s.jsonl", &records(LONG, 9));
        place.link("s", &path);
        if is_linked {
            place.pack("s", &path);
        }
        // It goes there with other folders, and goes on.
        let moved = put_in(&place, SHORT, "s.jsonl", &records(SHORT, 9));
        fs::remove_file(&path).unwrap();
        append(&moved, &records(SHORT, 1));
        assert!(fs::metadata(&moved).unwrap().len() < records(LONG, 9).len() as u64);
        let is_rewritten = match is_linked {
            true => place.link("s", &moved),
            false => place.pack("s", &moved),
        };
        assert!(!is_rewritten);
        let text = fs::read_to_string(&moved).unwrap();
        place.lose();
        place
            .restore_in("s", Some(SHORT), &Relocation::default())
            .unwrap();
        assert_eq!(fs::read_to_string(&moved).unwrap(), text);
        // A file with fewer lines is kept too, and does not count.
        let other = put_in(&place, "/c", "s.jsonl", &records("/c", 2));
        fs::remove_file(&moved).unwrap();
        place.pack("s", &other);
        let from = place.kept_from("s");
        assert_eq!(from.cwd.as_deref(), Some(SHORT));
    }
}

/// The list knows of each copy where it is from and how many turns it has, not only of the newest.
#[test]
fn an_older_copy_that_has_more_is_known_as_what_it_is() {
    let place = Place::new();
    let path = put_in(&place, LONG, "s.jsonl", &records(LONG, 9));
    place.pack_with("s", &path, Some(9));
    fs::remove_file(&path).unwrap();
    let moved = put_in(&place, SHORT, "s.jsonl", &records(SHORT, 2));
    assert!(place.pack_with("s", &moved, Some(12)));
    place.lose();
    let from = place.kept_from("s");
    assert_eq!(
        (place.root.join(&from.folder).as_path(), from.cwd.as_deref()),
        (path.parent().unwrap(), Some(LONG))
    );
    let behind = place.archive.missing_turns(&place.key("s"), 12).unwrap();
    assert_eq!(behind, Some(MissingTurns::Known(3)));
    place.restore_in("s", None, &Relocation::default()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), records(LONG, 9));
}

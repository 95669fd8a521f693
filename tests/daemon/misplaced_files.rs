//! Links, files and folders in the data folder that the daemon did not make, under names that it uses: it follows no link, changes
//! nothing, and says what to do.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::carrying::files_below;
use crate::home::Home;

/// What the daemon keeps in its data folder, and whether it is a folder.
const NAMES: [(&str, bool); 18] = [
    ("sessiond.lock", false),
    ("instance", false),
    ("journal.jsonl", false),
    ("journal.new", false),
    ("last-used.json", false),
    ("exports", true),
    ("store", true),
    ("store.next", true),
    ("store.trust", false),
    ("store.report", false),
    ("bodies", true),
    ("loopback", true),
    ("kept", true),
    ("kept/unreported", true),
    ("copies", true),
    ("imports", true),
    ("trees", true),
    ("moves", true),
];

/// Starts a daemon, which refuses. What it says makes the next start succeed.
#[track_caller]
fn check_refused(home: &Home, name: &str) {
    let (status, said) = home.run(&[]);
    assert_eq!(status.code(), Some(1), "{name}: {said}");
    let (_, command) = said.trim_end().rsplit_once("start again: ").expect(&said);
    assert!(
        Command::new("sh")
            .args(["-c", command])
            .status()
            .unwrap()
            .success()
    );
    assert!(!fs::exists(home.data().join(name)).unwrap(), "{name}: {command}");
    drop(home.start());
}

#[test]
fn no_link_in_the_data_folder_is_followed() {
    for (name, is_folder) in NAMES {
        let (home, foreign) = (Home::new(), tempfile::tempdir().unwrap());
        let target = match is_folder {
            true => foreign.path().to_owned(),
            false => foreign.path().join("journal"),
        };
        fs::create_dir_all(foreign.path().join("mine/empty")).unwrap();
        for file in ["mine/plan", "journal", "plan.json"] {
            fs::write(foreign.path().join(file), "mine").unwrap();
        }
        let before = files_below(foreign.path());
        fs::create_dir_all(home.data().join(name).parent().unwrap()).unwrap();
        symlink(target, home.data().join(name)).unwrap();
        check_refused(&home, name);
        assert_eq!(files_below(foreign.path()), before, "{name}");
        assert!(
            before.iter().all(|file| fs::read(file).unwrap() == b"mine"),
            "{name}"
        );
        assert!(foreign.path().join("mine/empty").exists(), "{name}");
    }
}

#[test]
fn a_file_in_place_of_a_folder_and_the_other_way_round_stay() {
    for (name, is_folder) in NAMES {
        let home = Home::new();
        let path = home.data().join(name);
        let mine: &Path = match is_folder {
            true => &path,
            false => &path.join("mine"),
        };
        fs::create_dir_all(mine.parent().unwrap()).unwrap();
        fs::write(mine, "mine").unwrap();
        check_refused(&home, name);
        let aside = format!("{}.moved-away", path.display());
        let kept = Path::new(&aside).join(mine.strip_prefix(&path).unwrap());
        let kept = if is_folder { Path::new(&aside) } else { &kept };
        assert_eq!(fs::read(kept).unwrap(), b"mine", "{name}");
    }
}

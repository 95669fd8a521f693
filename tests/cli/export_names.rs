//! The names of exported files say what is in them.

use super::home::Home;
use super::printed::commands;

/// A name that promises another format is refused, with the commands that make a file of a format that there
/// is.
#[test]
fn a_name_that_promises_another_format_is_refused() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for name in [
        "talk.md",
        "my talk.txt",
        "talk.jsonl",
        "talk.tar",
        "fix-v1.2.md",
        "talk.tar.gz",
    ] {
        let told = home.printed(&["export", &id, "-o", name], 2);
        assert!(!home.path().join(name).exists(), "{name}");
        assert_eq!(commands(&told).len(), 2, "{told}");
        for command in commands(&told) {
            let path = home.said_pasted(command);
            let stem = name.trim_end_matches(".gz").rsplit_once('.').unwrap().0;
            assert!(path.contains(&format!("/{stem}.")), "{name}: {path}");
            std::fs::remove_file(path).unwrap();
        }
    }
    // Whoever names the format has said what the file is.
    home.said(&["export", &id, "--format", "json", "-o", "talk.txt"]);
    for name in ["a", "b.tar.zst", "c.zst", "d.session-bundle.tar.zst", "e.JSON"] {
        home.said(&["export", &id, "-o", name]);
    }
    // A dot alone promises nothing.
    for name in ["fix-v1.2", "2026.11.24", "talk.final"] {
        let path = home.said(&["export", &id, "-o", name]);
        assert!(path.ends_with(&format!("/{name}")), "{path}");
        home.said(&["import", name, "--cwd", ".", "--new-ids"]);
    }
    let json = std::fs::read_to_string(home.path().join("e.JSON")).unwrap();
    assert!(json.starts_with('{'), "{json}");
}

/// However the folder is written, and whether or not it exists.
#[test]
fn a_folder_in_place_of_a_file_is_refused_with_a_file_in_it() {
    let home = Home::new();
    let id = home.said(&["new"]);
    std::fs::create_dir(home.path().join("there")).unwrap();
    for (folder, exists) in [
        ("there", true),
        ("./there/", true),
        ("../none/", false),
        (".", true),
    ] {
        let told = home.printed(&["export", &id, "-o", folder], 2);
        if exists {
            let path = home.said_pasted(commands(&told)[0]);
            std::fs::remove_file(path).unwrap();
        }
    }
}

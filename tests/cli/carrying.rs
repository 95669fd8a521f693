//! `export` and `import` with real daemons and the built-in agent.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::home::Home;
use super::printed::{check_printed, commands};
use super::text;

fn json(printed: &str) -> Value {
    serde_json::from_str(printed).unwrap()
}

#[test]
fn a_conversation_goes_on_in_another_home() {
    let (there, here) = (Home::new(), Home::new());
    let id = there.said(&["new", "--title", "Carried"]);
    there.said(&["send", &id, "long ago"]);
    // Without a place it goes into the daemon's own folder.
    let own = there.said(&["export", &id]);
    assert!(
        own.ends_with(".session-bundle.tar.zst") && Path::new(&own).is_file(),
        "{own}"
    );
    let told = json(&there.said(&["--json", "export", &id, "-o", "x.tar.zst"]));
    let path = told["path"].as_str().unwrap();
    assert!(
        Path::new(path).is_absolute() && Path::new(path).is_file(),
        "{told}"
    );

    let cwd = tempfile::tempdir().unwrap();
    let imported = here.said(&["import", path, "--cwd", cwd.path().to_str().unwrap()]);
    assert_eq!(imported, id);
    let recalled = here.said(&["send", &imported, "[[recall]]"]);
    assert!(recalled.contains("long ago"), "{recalled}");
    // Once more is a conflict, and says what to do.
    here.printed(&["import", path, "--cwd", cwd.path().to_str().unwrap()], 5);
    let again = here.said(&[
        "--json",
        "import",
        path,
        "--cwd",
        cwd.path().to_str().unwrap(),
        "--new-ids",
    ]);
    let again = json(&again);
    assert_ne!(again["conversation"]["id"], Value::from(id));
    assert_eq!(again["conversation"]["title"], "Carried");
}

/// A bundle does not choose where it runs: the command asks, and each answer that it suggests works as it
/// stands.
#[test]
fn an_import_without_a_folder_asks_for_one() {
    let (there, here) = (Home::new(), Home::new());
    let id = there.said(&["new"]);
    there.said(&["send", &id, "long ago"]);
    let path = there.said(&["export", &id]);
    let told = here.printed(&["import", &path], 2);
    let [into_this_folder, same_folders] = commands(&told)[..] else {
        panic!("{told}")
    };
    assert!(into_this_folder.contains(" --cwd "), "{told}");
    assert!(same_folders.contains(" --same-folders"), "{told}");
    assert_eq!(here.said_pasted(into_this_folder), id);
    assert_ne!(here.said_pasted(&format!("{same_folders} --new-ids")), id);
    let output = here.run(&["import", &path, "--same-folders", "--cwd", "."]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn settings_that_were_left_out_are_named_with_what_takes_them() {
    let (there, here) = (Home::new(), Home::new());
    let id = there.said(&["new", "--mode", "plan"]);
    let path = there.said(&["export", &id]);
    let cwd = tempfile::tempdir().unwrap();
    let told = here.printed(&["import", &path, "--cwd", cwd.path().to_str().unwrap()], 0);
    // As it is told, it does what it says.
    let output = here.pasted(commands(&told)[0]);
    check_printed(&["import with its settings"], &output, 0);
    let trusted = text(&output.stdout);
    let shown = json(&here.said(&["--json", "show", trusted.trim_end()]));
    assert_eq!(shown["conversation"]["settings"]["mode"], "plan", "{shown}");
}

#[test]
fn plain_json_goes_to_a_file_or_to_standard_output() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "words"]);
    let status = json(&home.said(&["--json", "status"]));
    for arguments in [
        &["export", &id, "-o", "-"][..],
        &["export", &id, "--format", "json"],
        &["--json", "export", &id, "-o", "-"],
    ] {
        let told = json(&home.said(arguments));
        assert_eq!(told["messages"][0]["role"], "user", "{arguments:?}");
        assert_eq!(told["turns"], 1, "{arguments:?}");
    }
    let path = home.said(&["export", &id, "-o", "./out.json"]);
    assert_eq!(
        Path::new(&path).canonicalize().unwrap().parent().unwrap(),
        Path::new(status["home"].as_str().unwrap())
            .canonicalize()
            .unwrap()
    );
    assert_eq!(json(&fs::read_to_string(&path).unwrap())["turns"], 1);
    // Never over a file that is there.
    home.printed(&["export", &id, "-o", "out.json"], 5);
}

#[test]
fn what_cannot_be_done_is_said() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.printed(&["export", &id, "--format", "bundle", "-o", "-"], 2);
    let told = home.printed(&["import", "nothing.tar.zst", "--cwd", "."], 2);
    assert_eq!(home.printed(&["import", "nothing.tar.zst"], 2), told);
    home.printed(&["import", "."], 2);
    let bundle = home.said(&["export", &id]);
    fs::write(
        home.said(&["export", &id, "-o", "torn.tar.zst"]),
        &fs::read(&bundle).unwrap()[..200],
    )
    .unwrap();
    let output = home.run(&["--json", "import", "torn.tar.zst", "--new-ids", "--cwd", "."]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&text(&output.stderr))["error"]["kind"], "transcriptDamaged");
    home.printed(&["import", &bundle, "--new-ids", "--cwd", "/nowhere/at/all"], 1);
}

//! A daemon on a copy of another daemon's data folder, for example a backup that is tried in another home. The copy
//! contains the marker by which a daemon recognizes its processes, and the records of them. The other daemon's
//! processes are left alone.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::home::Home;

/// Returns the severity and the data of each diagnostic about left-over processes.
fn left_over(found: &Value) -> Vec<(&str, &Value)> {
    let found = found["diagnostics"].as_array().unwrap().iter();
    let left_over = found.filter(|one| one["kind"] == "leftOver");
    left_over
        .map(|one| (one["severity"].as_str().unwrap(), &one["data"]))
        .collect()
}

#[tokio::test]
async fn a_daemon_on_a_copy_of_the_data_folder_spares_the_agents_of_the_original() {
    let (original, copy) = (Home::new(), Home::new());
    let (_daemon, app, id) = original.begun(&["one"]).await;
    let agent = original.only_agent();
    fs::create_dir_all(copy.data()).unwrap();
    for name in ["instance", "journal.jsonl"] {
        fs::copy(original.data().join(name), copy.data().join(name)).unwrap();
    }

    let mut doctor = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
    doctor.env_clear().env("SESSIOND_HOME", copy.path());
    let output = doctor.args(["--json", "doctor", "--no-start"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(left_over(&found), []);

    let (copied, other) = copy.opened().await;
    assert_eq!(original.only_agent(), agent);
    let found = other.call("daemon/diagnose", json!({"agents": false})).await;
    assert_eq!(left_over(&found.unwrap()), [("ok", &Value::Null)]);
    // The second daemon ends only its own processes, also when it stops and after a kill.
    other.begun(&copy.project(), &["two"]).await;
    copied.kill();
    drop(other);
    drop(copy.start());
    assert_eq!(original.only_agent(), agent);
    assert_eq!(app.send(id, "three").await.resumed, None);
    assert_eq!(app.remembered(id).await, ["one", "three"]);
}

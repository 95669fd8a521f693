//! `adopt` and `check` with a real daemon and the built-in agent.

use std::fs;
use std::path::Path;

use super::home::Home;
use super::text;

const ID: &str = "11111111-2222-4333-8444-555555555555";

#[test]
fn a_transcript_is_checked_adopted_and_talked_to() {
    let home = Home::new();
    let folder = home.said(&["--json", "new"]);
    let made: serde_json::Value = serde_json::from_str(&folder).unwrap();
    let cwd = made["conversation"]["cwd"].as_str().unwrap();
    let lines = format!(
        "{{\"type\":\"user\",\"uuid\":\"u1\",\"parentUuid\":null,\"sessionId\":\"{ID}\",\"cwd\":\"{cwd}\",\
         \"origin\":{{\"kind\":\"human\"}},\"message\":{{\"role\":\"user\",\"content\":\"long ago\"}}}}\n\
         {{\"type\":\"assistant\",\"uuid\":\"a1\",\"parentUuid\":\"u1\",\"sessionId\":\"{ID}\",\"cwd\":\"{cwd}\",\
         \"message\":{{\"id\":\"m1\",\"role\":\"assistant\",\"content\":[{{\"type\":\"text\",\"text\":\"yes\"}}]}}}}\n"
    );
    let status: serde_json::Value = serde_json::from_str(&home.said(&["--json", "status"])).unwrap();
    let data = Path::new(status["home"].as_str().unwrap()).join("data");
    let path = data.join(format!("loopback/projects/-x/{ID}.jsonl"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("@@@\n{lines}")).unwrap();

    let output = home.run(&["check", ID]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.starts_with("line 1  garbage line: not a record"), "{told}");
    fs::write(&path, lines).unwrap();
    assert_eq!(home.said(&["check", ID]), "nothing is wrong with it");

    let conversation = home.said(&["adopt", ID, "--title", "Found"]);
    assert_eq!(home.said(&["adopt", ID]), conversation);
    let recalled = home.said(&["send", &conversation, "[[recall]]"]);
    assert!(
        recalled.contains("long ago") && recalled.contains("yes"),
        "{recalled}"
    );
    assert_eq!(
        home.said(&["--json", "check", &conversation[..8]]),
        r#"{"findings":[]}"#
    );

    for command in ["adopt", "check"] {
        let output = home.run(&[command, "nothing"]);
        assert_eq!(output.status.code(), Some(4), "{command}");
        assert!(text(&output.stderr).contains("there is no transcript \"nothing\""));
    }
}

//! Transcripts that only the agent's terminal program and editors write, never ACP; the test writes them
//! itself. The daemon's titles must equal those of the vendor's own library, and each prompt in the user's
//! name must count as a turn.

use std::fs;

use bridge_protocol::history::Checkpoint;
use serde_json::{Value, json};

use super::bridge::Bridge;
use super::sdk::Told;
use crate::reading::said;
use crate::support::claude::Account;
use crate::support::model_server::user;

/// Writes a transcript of these records, each the parent of the next, and returns its id.
fn written(bridge: &Bridge, number: usize, records: &[Value]) -> String {
    let id = format!("00000000-0000-4000-8000-{number:012x}");
    let uuid = |place: usize| format!("00000000-0000-4000-9000-{number:06x}{place:06x}");
    let cwd = bridge.lab.project();
    let lines = records.iter().enumerate().map(|(place, record)| {
        let mut line = record.clone();
        line["sessionId"] = json!(id);
        if line["message"].is_object() {
            line["uuid"] = json!(uuid(place));
            line["parentUuid"] = place
                .checked_sub(1)
                .map_or(Value::Null, |before| json!(uuid(before)));
            line["cwd"] = json!(cwd);
            line["isSidechain"] = json!(false);
            line["timestamp"] = json!("2026-11-20T22:05:50.054Z");
        }
        format!("{line}\n")
    });
    let folder = bridge.lab.transcript_root().join("projects/by-hand");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(format!("{id}.jsonl")), lines.collect::<String>()).expect("a transcript");
    id
}

fn says(content: impl Into<Value>) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": content.into()}})
}

fn replies(number: u32, text: &str) -> Value {
    json!({"type": "assistant", "message": {
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "claude-opus-4-8",
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
#[ignore = "installs the real adapter"]
fn a_transcript_is_called_what_the_vendors_library_calls_it() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let asked = || says(json!("a question"));
    let made = |title: &str| json!({"type": "ai-title", "aiTitle": title});
    let given = |title: &str| json!({"type": "custom-title", "customTitle": title});
    let summary = || json!({"type": "summary", "summary": "A summary", "leafUuid": "x"});
    let opened = "<ide_opened_file>a.rs</ide_opened_file>";
    let clear = || {
        says(json!(
            "<command-name>/clear</command-name>\n<command-message>clear</command-message>"
        ))
    };
    let init = || {
        says(json!(
            "<command-message>init is analyzing</command-message>\n<command-name>/init</command-name>"
        ))
    };
    let image = || says(json!([{"type": "image", "source": {}}]));
    let table = [
        ("Made", vec![asked(), made("Made")]),
        ("Made", vec![asked(), made("Made"), summary()]),
        ("Newer", vec![asked(), made("Made"), made("Newer")]),
        ("Given", vec![asked(), given("Given"), made("Made")]),
        ("Made", vec![asked(), made("Made"), given("")]),
        ("A summary", vec![asked(), summary()]),
        (
            "a question",
            vec![says(json!([text(opened), text("a question")]))],
        ),
        ("a question", vec![says(json!([text(opened)])), asked()]),
        (
            "do it",
            vec![says(json!("<context>a</context> words")), says(json!("do it"))],
        ),
        (
            "! ls",
            vec![
                says(json!("<bash-input>ls</bash-input>")),
                says(json!("<bash-stdout>a</bash-stdout>")),
                asked(),
            ],
        ),
        ("/clear", vec![clear()]),
        ("/init", vec![init()]),
        ("a question", vec![clear(), init(), asked()]),
        (
            "a question",
            vec![says(json!("[Request interrupted by user]")), asked()],
        ),
        (
            "a question",
            vec![says(json!("<task-notification>a</task-notification>")), asked()],
        ),
        ("Image", vec![image()]),
        ("/clear", vec![image(), clear()]),
        (
            "pasted",
            vec![says(json!(
                "<pasted_content id=\"00ff\">\npasted\n</pasted_content id=\"00ff\">\n"
            ))],
        ),
        ("<Foo> is what?", vec![says(json!("<Foo> is what?"))]),
    ];
    let ids: Vec<String> = (0..table.len())
        .map(|number| written(&bridge, number, &table[number].1))
        .collect();
    let told = Told::of(&bridge.lab);
    for ((title, records), id) in table.iter().zip(&ids) {
        assert_eq!(told.session(id)["summary"], *title, "{records:?}");
        assert_eq!(bridge.listed_of(id).title, *title, "{records:?}");
    }
}

/// In a file without `origin`, the model must receive every record, and what the agent wrote itself must not
/// count as a turn.
#[test]
#[ignore = "installs the real adapter"]
fn what_an_agent_or_an_editor_wrote_is_read_and_is_no_turn() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let records = [
        says(json!("<context>a</context> first words")),
        replies(1, "one"),
        says(json!("<bash-input>ls</bash-input>")),
        says(json!("<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>")),
        replies(2, "two"),
        says(json!("<task-notification>done</task-notification>")),
        replies(3, "three"),
        says(json!([text("<ide_opened_file>a.rs</ide_opened_file>")])),
        says(json!([text("a question")])),
        replies(4, "four"),
    ];
    let id = written(&bridge, 1, &records);
    let adopted = bridge.adopt(&id).expect("conversation/adopt");
    let before = bridge.history(adopted.id);
    bridge.prompted(adopted.id, "taken up");
    let mut expected = said(&before);
    expected.push(user("taken up"));
    assert_eq!(expected.len(), records.len() + 1);
    assert_eq!(bridge.lab.model.asked("taken up"), expected);
    let turns: Vec<(String, String)> = bridge
        .checkpoints(adopted.id)
        .into_iter()
        .map(|Checkpoint { prompt, reply, .. }| (prompt, reply))
        .collect();
    let expected = [
        ("<context>a</context> first words", "one"),
        ("<bash-input>ls</bash-input>", "two\n\nthree"),
        ("a question", "four"),
        ("taken up", "ok: taken up"),
    ];
    assert_eq!(
        turns,
        expected.map(|(prompt, reply)| (prompt.to_owned(), reply.to_owned()))
    );
}

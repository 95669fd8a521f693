//! Session options that some editors cannot show.

use serde_json::{Value, json};

use super::editor::{Editor, run};
use crate::home::Home;
use crate::scripted;

/// Some editors ignore a whole list that contains a boolean option. Only editors that advertise boolean
/// options get them.
#[test]
fn a_boolean_option_is_sent_to_editors_that_advertise_it() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let able = json!({"session": {"configOptions": {"boolean": {}}}});
    let (mut able, mut other) = (Editor::with(&home, able), Editor::start(&home));
    let session = able.new_session_of("scripted", &home);
    other.on("session/resume", &session, &home).result();
    let quiet = json!({"id": "quiet", "name": "Quiet", "type": "boolean", "currentValue": false});
    let values = json!([{"value": "a", "name": "A"}, {"value": "b", "name": "B"}]);
    let tone =
        json!({"id": "tone", "name": "Tone", "type": "select", "currentValue": "a", "options": values});
    let update = json!({"sessionUpdate": "config_option_update", "configOptions": [quiet, tone]});
    let script = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":$S,"update":{update}}}}}"#
    );
    let answered = able.prompt(&session, &script);
    assert!(answered.updates().contains(&&update), "{answered:?}");
    let is_update = |message: &Value| message["params"]["update"]["sessionUpdate"] == "config_option_update";
    let seen = other.until(is_update);
    let seen = &seen.last().unwrap()["params"]["update"]["configOptions"];
    assert_eq!(*seen, json!([tone]));

    let on = json!({"sessionId": session, "configId": "quiet", "type": "boolean", "value": true});
    let set = able.call("session/set_config_option", on);
    let mut changed = quiet.clone();
    changed["currentValue"] = json!(true);
    assert_eq!(
        set.result()["configOptions"],
        json!([changed, tone]),
        "the answer does not have the whole list"
    );
    let heard = scripted::heard(&home, "scripted");
    let heard = heard
        .iter()
        .find(|line| line["method"] == "session/set_config_option");
    let params = &heard.unwrap()["params"];
    assert_eq!(
        (&params["type"], &params["value"]),
        (&json!("boolean"), &json!(true))
    );

    let other_tone = json!({"sessionId": session, "configId": "tone", "value": "b"});
    let set = other.call("session/set_config_option", other_tone);
    let mut tone_b = tone.clone();
    tone_b["currentValue"] = json!("b");
    assert_eq!(set.result()["configOptions"], json!([tone_b]));
    let loaded = other.on("session/load", &session, &home);
    let ids = |options: &Value| -> Vec<Value> {
        options
            .as_array()
            .unwrap()
            .iter()
            .map(|option| option["id"].clone())
            .collect()
    };
    assert_eq!(ids(&loaded.result()["configOptions"]), ["tone"]);
    let loaded = able.on("session/load", &session, &home);
    assert_eq!(ids(&loaded.result()["configOptions"]), ["quiet", "tone"]);
}

/// A setting that the agent would refuse must not be stored: every later prompt would fail, and no editor
/// could undo it.
#[test]
fn a_setting_of_a_session_that_is_closed_in_its_agent_is_checked_by_the_agent() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    let refused = [
        (
            "session/set_config_option",
            json!({"sessionId": session, "configId": "unknown", "value": "x"}),
        ),
        (
            "session/set_mode",
            json!({"sessionId": session, "modeId": "unknown"}),
        ),
    ];
    for (method, params) in refused {
        run(&home, &["close", &session]);
        assert_eq!(editor.call(method, params).code(), -32602, "{method}");
    }
    run(&home, &["close", &session]);
    let model = json!({"sessionId": session, "configId": "model", "value": "loop-2"});
    let set = editor.call("session/set_config_option", model);
    assert_eq!(set.result()["configOptions"][0]["currentValue"], "loop-2");
    assert_eq!(editor.prompt(&session, "two").said(), "echo: two");
}

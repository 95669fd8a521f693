//! `set`, and settings of `new`: what the agent does not know is refused, and can be changed afterwards.

use std::fs;

use serde_json::{Value, json};

use super::home::Home;
use super::printed::{check_printed, commands};
use super::text;
use crate::scripted;

fn shown(home: &Home, id: &str) -> Value {
    let show: Value = serde_json::from_str(&home.said(&["--json", "show", id])).unwrap();
    show["conversation"].clone()
}

#[test]
fn the_title_and_the_settings_are_changed() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["set", &id, "title=Blue = heron", "model=loop-2", "mode=plan"]);
    let conversation = shown(&home, &id);
    assert_eq!(conversation["title"], "Blue = heron");
    assert_eq!(conversation["settings"]["model"], "loop-2");
    assert_eq!(conversation["settings"]["mode"], "plan");
    home.said(&["set", &id, "model=loop-1"]);
    let conversation = shown(&home, &id);
    assert_eq!(conversation["settings"]["model"], "loop-1");
    assert_eq!(conversation["settings"]["mode"], "plan", "the others stay");
    // The form with only a title.
    home.said(&["rename", &id, "a=b"]);
    assert_eq!(shown(&home, &id)["title"], "a=b");
    for line in [&["set", &id][..], &["set", &id, "title"], &["set", &id, "=x"]] {
        assert_eq!(home.run(line).status.code(), Some(2), "{line:?}");
    }
}

#[test]
fn what_the_agent_does_not_know_is_refused_and_changes_nothing() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for setting in ["model=loop-9", "mode=dance", "no-such-option=1"] {
        for closed in [true, false] {
            if closed {
                home.said(&["close", &id]);
            }
            home.printed(&["set", &id, setting], 6);
        }
    }
    let settings = shown(&home, &id)["settings"].clone();
    assert!(settings.get("config").is_none_or(Value::is_null), "{settings}");
    assert_ne!(settings["model"], "loop-9");
    home.said(&["send", &id, "works"]);
}

#[test]
fn new_refuses_a_model_or_mode_and_leaves_no_conversation() {
    let home = Home::new();
    for setting in [["--model", "loop-9"], ["--mode", "dance"]] {
        let output = home.run(&["new", setting[0], setting[1]]);
        assert_eq!(output.status.code(), Some(6), "{output:?}");
        assert_eq!(text(&output.stdout), "");
    }
    let listed: Value = serde_json::from_str(&home.said(&["--json", "ls"])).unwrap();
    assert_eq!(listed["conversations"], serde_json::json!([]));
    let id = home.said(&["new", "--model", "loop-2", "--mode", "plan"]);
    assert_eq!(shown(&home, &id)["settings"]["model"], "loop-2");
}

/// What was meant is a command that can be pasted.
#[test]
fn a_change_that_is_written_otherwise_says_how_it_is_written() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for (line, title, model) in [
        (&["set", &id, "New title"][..], "New title", ""),
        (&["set", &id, "model", "loop-2"], "New title", "loop-2"),
        (&["set", &id, "title"], "New title", "loop-2"),
        (&["rename", &id, "title=Better"], "Better", "loop-2"),
        (&["rename", &id, "model=loop-1"], "Better", "loop-1"),
        (&["rename", &id], "New title", "loop-1"),
        (&["set", &id], "New title", "loop-1"),
    ] {
        let told = home.printed(line, 2);
        home.said_pasted(commands(&told)[0]);
        let conversation = shown(&home, &id);
        assert_eq!(conversation["title"], title, "{told}");
        assert!(
            model.is_empty() || conversation["settings"]["model"] == model,
            "{told}"
        );
    }
}

/// An option in place of a pair, and a model that the agent does not know, say how it is done.
#[test]
fn a_model_that_is_given_wrongly_says_how_it_is_given() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for option in ["--model", "--mode", "--title"] {
        let told = home.printed(&["set", &id, option, "xx"], 2);
        let pair = format!("sessionctl set {id} {}=xx", option.trim_start_matches('-'));
        assert_eq!(commands(&told)[0], pair);
        let told = home.run(&["set", &id, option, "xx", "--json"]);
        let told: Value = serde_json::from_slice(&told.stderr).unwrap();
        assert_eq!(told["error"]["kind"], "usage");
        assert_eq!(commands(told["error"]["hint"].as_str().unwrap()), [&pair]);
    }
    home.printed(&["new", "--model", "xx"], 6);
    let told = home.printed(&["set", &id, "mode=xx"], 6);
    home.said_pasted(commands(&told)[0]);
}

/// Whatever else was to be changed, and whether or not the agent has such a setting.
#[test]
fn the_hint_is_about_the_setting_that_was_refused() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let refused = |changes: &[&str]| home.printed(&[&["set", &id], changes].concat(), 6);
    let hint = refused(&["model=nope", "mode=nope"]);
    assert!(
        hint.contains(" model=loop-1") && !hint.contains("mode="),
        "{hint}"
    );
    home.said_pasted(commands(&hint)[0]);
    let hint = refused(&["model=loop-2", "mode=nope"]);
    assert!(hint.contains(" mode=default"), "{hint}");
    let hint = refused(&["a.b=1"]);
    assert!(hint.contains("no setting a.b"), "{hint}");
    home.said_pasted(commands(&hint)[0]);
    // What was not refused is asked for again.
    let hint = home.printed(&["new", "--model", "nope", "--mode", "plan"], 6);
    let made = home.said_pasted(commands(&hint)[0]);
    let settings = &shown(&home, &made)["settings"];
    assert_eq!(
        (&settings["model"], &settings["mode"]),
        (&json!("loop-1"), &json!("plan"))
    );
}

/// `modle` is as near to `mode` as to `model`: the value decides.
#[test]
fn a_misspelled_setting_is_named_with_the_value_that_was_given() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for (change, meant) in [
        ("modle=loop-2", "model=loop-2"),
        ("Mod=plan", "mode=plan"),
        ("modle=nope", "model=loop-1"),
        ("titel=Blue heron", "title='Blue heron'"),
    ] {
        let told = home.printed(&["set", &id, change], 6);
        let set = format!("sessionctl set {} {meant}", &id[..8]);
        assert_eq!(commands(&told), [&set], "{told}");
        home.said_pasted(&set);
    }
    let conversation = shown(&home, &id);
    assert_eq!(conversation["settings"]["mode"], "plan");
    assert_eq!(conversation["title"], "Blue heron");
}

#[test]
fn a_setting_without_a_value_says_which_are_valid() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for key in ["model", "mode"] {
        let told = home.printed(&["set", &id, &format!("{key}=")], 2);
        home.said_pasted(commands(&told)[0]);
    }
}

/// A value is JSON if it can be read as such, else text.
#[test]
fn an_option_of_the_agents_own_is_set() {
    let home = Home::new();
    let log = home.path().join("mine.log");
    let resumes = r#"{"sessionCapabilities":{"resume":{},"close":{}}}"#;
    let config = scripted::configured("mine", Some(resumes)).replace("mine.log", log.to_str().unwrap());
    home.configure(&config);
    let id = home.said(&["new", "--agent", "mine"]);
    let set = ["set", &id, "effort=high", "budget=7"];
    check_printed(&set, &home.run(&set), 0);
    assert_eq!(
        shown(&home, &id)["settings"]["config"],
        json!({"effort": "high", "budget": 7})
    );
    let heard = fs::read_to_string(log).unwrap();
    let heard = heard
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let set: Vec<Value> = heard
        .filter(|call| call["method"] == "session/set_config_option")
        .map(|call| json!([call["params"]["configId"], call["params"]["value"]]))
        .collect();
    assert!(
        set.contains(&json!(["effort", "high"])) && set.contains(&json!(["budget", 7])),
        "{set:?}"
    );
}

/// `null` removes an option of the agent. It is no title, model or mode.
#[test]
fn null_is_no_value_and_an_equal_value_is_no_change() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Heron"]);
    for key in ["title", "model", "mode"] {
        let told = home.printed(&["set", &id, &format!("{key}=null")], 2);
        assert!(told.contains("hint: "), "{told}");
    }
    assert_eq!(shown(&home, &id)["title"], "Heron");
    home.said(&["set", &id, "mode=plan"]);
    let told = home.printed(&["set", &id, "mode=plan"], 0);
    assert_eq!(told.matches("plan").count(), 1, "{told}");
    let told = home.printed(&["stop", "--grace-ms", "abc"], 2);
    assert!(told.contains("sessionctl stop --grace-ms "), "{told}");
}

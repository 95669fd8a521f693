//! Settings of a session: each is requested from the agent once, and the agent's reports are authoritative.

use std::process::Stdio;

use serde_json::{Value, json};

use super::editor::{Answered, Editor, run, sessionctl, show};
use crate::gate::Gate;
use crate::home::{Daemon, Home};
use crate::scripted;

const RESUMES: &str = r#"{"sessionCapabilities":{"resume":{},"close":{}}}"#;

/// A session of a scripted agent, and the editor that has it open.
struct Stage<'a> {
    editor: Editor,
    session: String,
    _daemon: Daemon<'a>,
    home: &'a Home,
    answers: Value,
    seen: usize,
}

impl<'a> Stage<'a> {
    /// `opened` is the agent's answer to requests that open a session.
    fn new(home: &'a Home, opened: Value) -> Self {
        let daemon = home.start();
        let opened = json!({"result": opened});
        let answers = json!({"session/new": opened, "session/resume": opened});
        scripted::answer(home, &answers);
        let mut editor = Editor::start(home);
        let session = editor.new_session_of("scripted", home);
        Self {
            editor,
            session,
            _daemon: daemon,
            home,
            answers,
            seen: 0,
        }
    }

    /// Makes the agent answer this request in this way from now on.
    fn answer(&mut self, request: &str, answer: Value) {
        self.answers[request] = answer;
        scripted::answer(self.home, &self.answers);
    }

    fn set_mode(&mut self, mode: &str) -> Answered {
        let params = json!({"sessionId": self.session, "modeId": mode});
        self.editor.call("session/set_mode", params)
    }

    fn set(&mut self, option: &str, value: Value) -> Answered {
        let params = json!({"sessionId": self.session, "configId": option, "value": value});
        self.editor.call("session/set_config_option", params)
    }

    /// Makes the agent report this update.
    fn report(&mut self, update: &Value) {
        let session = self.session.clone();
        self.editor.prompt(&session, &scripted::update(update)).result();
    }

    fn report_options(&mut self, options: &Value) {
        self.report(&json!({"sessionUpdate": "config_option_update", "configOptions": options}));
    }

    /// Closes the session in the agent and reopens it with a prompt.
    fn reopen(&mut self) {
        run(self.home, &["close", &self.session]);
        let session = self.session.clone();
        self.editor.prompt(&session, &scripted::chunk("hello")).result();
    }

    /// The settings requested from the agent since the last call of this function.
    fn asked(&mut self) -> Vec<String> {
        let heard = scripted::heard(self.home, "scripted");
        let asked = heard.iter().filter_map(|line| {
            let params = &line["params"];
            match line["method"].as_str()? {
                "session/set_mode" => Some(format!("mode={}", params["modeId"].as_str()?)),
                "session/set_model" => Some(format!("set_model={}", params["modelId"].as_str()?)),
                "session/set_config_option" => {
                    Some(format!("{}={}", params["configId"].as_str()?, params["value"]).replace('"', ""))
                }
                _ => None,
            }
        });
        let asked: Vec<String> = asked.skip(self.seen).collect();
        self.seen += asked.len();
        asked
    }

    fn stored(&self) -> Value {
        show(self.home, &self.session)["settings"].clone()
    }

    /// The answer to an editor that opens the session now.
    fn opened(&mut self) -> Value {
        let session = self.session.clone();
        let opened = self.editor.on("session/resume", &session, self.home);
        opened.result().clone()
    }
}

fn home() -> Home {
    Home::with_config(&scripted::configured("scripted", Some(RESUMES)))
}

fn modes(current: &str) -> Value {
    json!({"currentModeId": current, "availableModes": [{"id": "default", "name": "Default"}, {"id": "full", "name": "Full"}]})
}

/// An option with these values; the first one is current.
fn option(id: &str, category: &str, values: &[&str]) -> Value {
    let offered: Vec<Value> = values
        .iter()
        .map(|value| json!({"value": value, "name": value}))
        .collect();
    json!({"id": id, "name": id, "category": category, "type": "select", "currentValue": values[0], "options": offered})
}

/// The same option with another current value.
fn with(option: &Value, value: &str) -> Value {
    let mut option = option.clone();
    option["currentValue"] = json!(value);
    option
}

fn mode_update(mode: &str) -> Value {
    json!({"sessionUpdate": "current_mode_update", "currentModeId": mode})
}

/// An agent need not report the mode that was requested. If the daemon skipped the request for the first
/// mode, the agent would stay in full access.
#[test]
fn the_agent_is_asked_for_every_mode_also_for_the_one_it_began_with() {
    let home = home();
    let mut stage = Stage::new(&home, json!({"modes": modes("default")}));
    stage.answer("session/set_mode", json!({"result": {}}));
    for mode in ["full", "default"] {
        assert_eq!(stage.set_mode(mode).result(), &json!({}));
        assert_eq!(stage.opened()["modes"]["currentModeId"], mode);
    }
    for mode in ["full", "default"] {
        run(stage.home, &["set", &stage.session, &format!("mode={mode}")]);
        assert_eq!(stage.stored()["mode"], mode);
    }
    assert_eq!(
        stage.asked(),
        ["mode=full", "mode=default", "mode=full", "mode=default"]
    );
    stage.reopen();
    assert_eq!(
        stage.asked(),
        [] as [String; 0],
        "a new session already has that mode, so it must not be requested"
    );
    assert_eq!(stage.opened()["modes"], modes("default"));
}

/// The same with `session/set_model`, the older way to choose a model.
#[test]
fn the_agent_is_asked_for_every_model_also_for_the_one_it_began_with() {
    let offered = [json!({"modelId": "a"}), json!({"modelId": "b"})];
    let home = home();
    let mut stage = Stage::new(
        &home,
        json!({"models": {"currentModelId": "a", "availableModels": offered}}),
    );
    stage.answer("session/set_model", json!({"result": {}}));
    for model in ["b", "a"] {
        let params = json!({"sessionId": stage.session, "modelId": model});
        stage.editor.call("session/set_model", params).result();
        assert_eq!(stage.opened()["models"]["currentModelId"], model);
    }
    assert_eq!(stage.asked(), ["set_model=b", "set_model=a"]);
}

/// The agent also has an option for the mode, and reports the mode with it.
#[test]
fn a_mode_that_is_reported_as_an_option_is_the_current_one() {
    let mode = option("mode", "mode", &["default", "full"]);
    let home = home();
    let mut stage = Stage::new(&home, json!({"modes": modes("default"), "configOptions": [mode]}));
    stage.answer("session/set_mode", json!({"result": {}}));
    stage.set_mode("full").result();
    assert_eq!(stage.opened()["configOptions"], json!([with(&mode, "full")]));
    stage.report_options(&json!([mode]));
    assert_eq!(stage.opened()["modes"], modes("default"));
    stage.asked();
    stage.reopen();
    assert_eq!(
        stage.asked(),
        [] as [String; 0],
        "the last reported mode must not be requested again"
    );
    stage.set_mode("full").result();
    stage.reopen();
    assert_eq!(stage.asked(), ["mode=full", "mode=full"]);
}

/// An update before the answer to a request is older than the answer; an update after it is newer.
#[test]
fn reports_and_answers_count_in_their_order() {
    let home = home();
    let mut stage = Stage::new(&home, json!({"modes": modes("default")}));
    let before = json!({"before": [mode_update("default")], "result": {}});
    stage.answer("session/set_mode", before);
    stage.set_mode("full").result();
    assert_eq!(stage.stored()["mode"], "full");
    stage.asked();
    stage.reopen();
    assert_eq!(stage.asked(), ["mode=full"]);
    assert_eq!(stage.stored()["mode"], "full");
    assert_eq!(stage.opened()["modes"], modes("full"));
    // This agent reports its old mode again after its answer.
    let after = json!({"result": {}, "after": [mode_update("default")]});
    stage.answer("session/set_mode", after);
    stage.set_mode("full").result();
    stage.report(&json!({"sessionUpdate": "plan", "entries": []}));
    assert_eq!(stage.stored()["mode"], "default");
    assert_eq!(stage.opened()["modes"], modes("default"));
}

/// With each request the agent resets another option. Its answer is stored, and the reset option is not
/// requested again.
#[test]
fn a_setting_is_one_request_and_its_answer_is_the_agents() {
    let [model, effort, tone] = [
        option("model", "model", &["a", "b"]),
        option("effort", "thought_level", &["low", "high"]),
        option("tone", "other", &["plain", "rich"]),
    ];
    let home = home();
    let mut stage = Stage::new(&home, json!({"configOptions": [model, effort, tone]}));
    let of = |options: &Value| json!({"result": {"configOptions": options}});
    let rich = json!([model, effort, with(&tone, "rich")]);
    stage.answer("session/set_config_option tone=rich", of(&rich));
    let high = json!([model, with(&effort, "high"), tone]);
    stage.answer("session/set_config_option effort=high", of(&high));
    let other = json!([with(&model, "b"), effort, tone]);
    stage.answer("session/set_config_option model=b", of(&other));
    for (id, value, options) in [
        ("tone", "rich", &rich),
        ("effort", "high", &high),
        ("model", "b", &other),
        ("effort", "high", &high),
        ("effort", "high", &high),
    ] {
        let answered = stage.set(id, json!(value));
        assert_eq!(answered.result()["configOptions"], *options);
        assert_eq!(stage.asked(), [format!("{id}={value}")]);
        assert_eq!(stage.opened()["configOptions"], *options);
    }
    // The agent has lowered the effort itself. Requesting the previous value again must still be sent.
    stage.report_options(&json!([with(&model, "b"), effort, tone]));
    assert_eq!(stage.stored()["config"]["effort"], "low");
    stage.set("effort", json!("high")).result();
    assert_eq!(stage.asked(), ["effort=high"]);
    stage.report_options(&json!([with(&model, "b"), effort, with(&tone, "rich")]));
    stage.reopen();
    assert_eq!(
        stage.asked(),
        ["model=b", "tone=rich"],
        "the settings that the agent reported last"
    );
}

/// Only one model has this option; with other models the agent refuses it.
#[test]
fn an_option_that_the_agent_no_longer_offers_is_forgotten() {
    let model = option("model", "model", &["a", "b"]);
    let fast = option("fast", "other", &["off", "on"]);
    let effort = option("effort", "thought_level", &["low", "high"]);
    let all = json!([model, fast, effort]);
    let home = home();
    let mut stage = Stage::new(&home, json!({"configOptions": all}));
    let of = |options: Value| json!({"result": {"configOptions": options}});
    let on = of(json!([model, with(&fast, "on"), effort]));
    stage.answer("session/set_config_option fast=on", on.clone());
    let other = with(&model, "b");
    stage.answer("session/set_config_option model=b", of(json!([other, effort])));
    let high = of(json!([other, with(&effort, "high")]));
    stage.answer("session/set_config_option effort=high", high);
    stage.set("fast", json!("on")).result();
    stage.set("model", json!("b")).result();
    let unknown = json!({"error": {"code": -32602, "message": "Unknown config option: fast"}});
    stage.answer("session/set_config_option fast=on", unknown);
    stage.set("effort", json!("high")).result();
    assert_eq!(stage.asked(), ["fast=on", "model=b", "effort=high"]);
    assert_eq!(stage.stored()["config"].get("fast"), None);
    stage.reopen();
    assert_eq!(stage.asked(), ["model=b", "effort=high"]);

    // A new version of the agent no longer has the option.
    stage.answer("session/set_config_option fast=on", on);
    stage.set("fast", json!("on")).result();
    stage.answer("session/resume", of(json!([model])));
    stage.asked();
    stage.reopen();
    assert_eq!(
        stage.asked(),
        [] as [String; 0],
        "the model is current and must not be requested"
    );
    assert_eq!(stage.stored()["config"].get("fast"), None);
    // An option that the agent never had is refused.
    let unknown = json!({"error": {"code": -32602, "message": "Unknown config option: colour"}});
    stage.answer("session/set_config_option colour=red", unknown);
    run(stage.home, &["close", &stage.session]);
    let answered = stage.set("colour", json!("red"));
    assert_eq!(answered.code(), -32602);
}

/// Such an agent lists the options of the session's own model when it opens the session.
#[test]
fn an_option_of_a_model_is_kept_whose_options_are_reported_after_the_answer() {
    let effort = option("effort", "thought_level", &["low", "high"]);
    let of = |options: Value| json!({"result": {"configOptions": options}});
    let high = with(&effort, "high");
    for (opened, reported, is_kept) in [
        // The first model does not have it, or has it with another value.
        (json!([]), json!([effort]), true),
        (json!([high]), json!([effort]), true),
        (json!([]), json!([]), false),
    ] {
        let home = home();
        let mut stage = Stage::new(&home, json!({"configOptions": [effort]}));
        stage.answer("session/set_config_option effort=high", of(json!([high])));
        stage.set("effort", json!("high")).result();
        stage.answer("session/set_model", json!({"result": {}}));
        let model = json!({"sessionId": stage.session, "modelId": "b"});
        stage.editor.call("session/set_model", model).result();
        let update = json!({"sessionUpdate": "config_option_update", "configOptions": reported});
        stage.answer("session/resume", of(opened));
        stage.answer("session/set_model", json!({"result": {}, "after": [update]}));
        if !is_kept {
            let unknown = json!({"error": {"code": -32602, "message": "Unknown config option: effort"}});
            stage.answer("session/set_config_option effort=high", unknown);
        }
        stage.asked();
        stage.reopen();
        assert_eq!(stage.asked(), ["set_model=b", "effort=high"], "{reported}");
        let kept = if is_kept { json!("high") } else { Value::Null };
        assert_eq!(stage.stored()["config"]["effort"], kept, "{reported}");
    }
}

#[test]
fn an_option_that_the_agent_no_longer_offers_is_forgotten_after_a_reset_too() {
    let effort = option("effort", "thought_level", &["low", "high"]);
    let of = |options: Value| json!({"result": {"configOptions": options}});
    let home = home();
    let mut stage = Stage::new(&home, json!({"configOptions": [effort]}));
    let high = of(json!([with(&effort, "high")]));
    stage.answer("session/set_config_option effort=high", high);
    stage.set("effort", json!("high")).result();
    let unknown = json!({"error": {"code": -32602, "message": "Unknown config option: effort"}});
    stage.answer("session/set_config_option effort=high", unknown);
    stage.answer("session/new", of(json!([])));
    run(&home, &["reset", &stage.session]);
    let session = stage.session.clone();
    stage.editor.prompt(&session, &scripted::chunk("hello")).result();
    assert_eq!(stage.stored()["config"].get("effort"), None);
}

/// The option for the mode has other values than the ids of the modes.
#[test]
fn a_mode_and_an_option_of_the_same_meaning_are_not_mixed_up() {
    let access = option("access", "mode", &["ask", "all"]);
    let home = home();
    let mut stage = Stage::new(
        &home,
        json!({"modes": modes("default"), "configOptions": [access]}),
    );
    for request in ["session/set_mode", "session/set_config_option"] {
        stage.answer(request, json!({"result": {}}));
    }
    stage.set("access", json!("all")).result();
    stage.set_mode("full").result();
    stage.asked();
    stage.reopen();
    assert_eq!(
        stage.asked(),
        ["mode=full"],
        "only the newest choice must be requested"
    );
    stage.set("access", json!("all")).result();
    stage.asked();
    stage.reopen();
    assert_eq!(
        stage.asked(),
        ["access=all"],
        "only the newest choice must be requested"
    );
}

/// The second setting arrives before the agent has answered the first.
#[test]
fn settings_of_two_clients_at_once_are_both_asked_for() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    gate.hold("session/set_mode");
    let mut other = sessionctl(&home, &["set", &session, "mode=plan"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    gate.wait_until_held();
    let model = json!({"sessionId": session, "configId": "model", "value": "loop-2"});
    let set = editor.begin("session/set_config_option", model);
    editor.call("session/list", json!({})).result();
    gate.open();
    let options = editor.finish(set);
    assert_eq!(options.result()["configOptions"][0]["currentValue"], "loop-2");
    assert!(other.wait().unwrap().success());
    let said = editor.prompt(&session, "[[settings]]").said();
    assert!(said.contains("loop-2") && said.contains("plan"), "{said}");
}

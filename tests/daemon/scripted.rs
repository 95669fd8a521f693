//! An ACP agent that sends exactly what its prompt tells it to, byte for byte.
//!
//! The program is `tests/support/programs/scripted_agent.rs`. A prompt's first own text is its script, one line each:
//! `await ID` waits for the client's answer to the agent's own request with that id, `hold` waits for a cancel and
//! sends what follows it after the cancelled answer (`instead LINE` right after it is sent in place of that answer),
//! where `until FIFO` waits for a pipe, every other line is sent as it stands, with `$S` for the session's id (as
//! JSON), `$P` for the id of the prompt's request and `$LONG` for 20 KB of words. Then the prompt is answered with
//! `end_turn`. What the client sends is logged, one line each, before it is acted on. A request `_echo` is answered
//! with its parameters, `_silence` is not answered.

use std::fs;

use serde_json::{Value, json};

use crate::home::Home;
use crate::test_programs;

#[path = "../support/programs/scripted_names.rs"]
mod names;

pub(crate) use names::{
    ANSWERS, BEFORE_OPENING, CRASH_ON_LOAD, HELD, HELD_BY, LOAD_NEEDS, NEXT_SESSION, REFUSE_LOAD, REFUSE_NEW,
    SILENT_ON_LOAD,
};
use names::{CAPABILITIES, LOG};

/// The configuration of a scripted agent of this name.
pub(crate) fn configured(name: &str, capabilities: Option<&str>) -> String {
    configured_with(name, capabilities, "kind = \"generic\"")
}

/// The same for an agent that is named after its kind. The test writes its transcripts to the home's folder of that
/// name.
pub(crate) fn configured_kind(home: &Home, kind: &str, capabilities: &str) -> String {
    let transcripts = home.folder_named(kind);
    let settings = format!("kind = \"{kind}\"\ntranscripts = \"{transcripts}\"");
    configured_with(kind, Some(capabilities), &settings)
}

/// The configuration of a scripted agent of this name, with these settings besides the command.
pub(crate) fn configured_with(name: &str, capabilities: Option<&str>, settings: &str) -> String {
    let program = test_programs::path();
    let capabilities = capabilities.map_or_else(String::new, |capabilities| {
        format!("{CAPABILITIES} = '{capabilities}'\n")
    });
    // The daemon runs in the home of its test, and its agents with it.
    format!(
        "[agents.{name}]\ncommand = '{}'\n{settings}\nargs = [\"scripted-agent\"]\n\
         [agents.{name}.env]\n{LOG} = \"{name}.log\"\n{capabilities}",
        program.display()
    )
}

/// The line of a script that sends a chunk of the agent's message.
pub(crate) fn chunk(text: &str) -> String {
    update(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
}

/// Makes the agents answer like this from now on: see [`ANSWERS`].
pub(crate) fn answer(home: &Home, answers: &Value) {
    fs::write(home.path().join(ANSWERS), answers.to_string()).unwrap();
}

/// The line of a script that sends this update.
pub(crate) fn update(update: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":$S,"update":{update}}}}}"#)
}

/// All messages that the processes of this agent were sent, in order.
pub(crate) fn heard(home: &Home, name: &str) -> Vec<Value> {
    heard_lines(home, name)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The same messages as text.
pub(crate) fn heard_lines(home: &Home, name: &str) -> Vec<String> {
    let log = fs::read_to_string(home.path().join(format!("{name}.log"))).unwrap();
    log.lines().map(str::to_owned).collect()
}

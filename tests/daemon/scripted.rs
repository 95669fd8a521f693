//! An ACP agent that says exactly what its prompt tells it to say, byte for byte.
//!
//! It is this test program, run again as a process of the daemon. A prompt's first own text is its script, one line each:
//! `await ID` waits for the client's answer to the agent's own request with that id, `hold` waits for a cancel, every
//! other line is sent as it stands, with `$S` for the session's id (as JSON), `$P` for the id of the prompt's request and
//! `$LONG` for 20 KB of words. Then the prompt is answered with `end_turn`. What the client sends is logged, one line
//! each, before it is acted on.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, Write};
use std::path::PathBuf;

use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use session_bridge::transcript::preamble::is_preamble;

use crate::home::Home;

/// Names the log, and that this process is the agent.
const LOG: &str = "SCRIPTED_AGENT_LOG";

/// Its capabilities, where the usual ones will not do.
const CAPABILITIES: &str = "SCRIPTED_AGENT_CAPABILITIES";

/// A file in the home of the test, at whose sight the agent dies once instead of loading a session.
pub(crate) const CRASH_ON_LOAD: &str = "crash-on-load";

/// A file in the home of the test with the error that the agent answers to `session/load` while it is there.
pub(crate) const REFUSE_LOAD: &str = "refuse-load";

/// A file in the home of the test with the id of a process. While that lives the agent opens no session: as Codex does not open
/// what another process still holds.
pub(crate) const HELD_BY: &str = "held-by";

/// What Codex answers for a session that somebody else writes to.
pub(crate) const HELD: &str =
    r#"{"code":-32600,"message":"Invalid request","data":{"reason":"thread_active_writer"}}"#;

/// A file in the home of the test with the error that the agent answers to `session/new` while it is there.
pub(crate) const REFUSE_NEW: &str = "refuse-new";

/// A file in the home of the test with the id, as JSON, that the agent gives to each new session while it is there.
pub(crate) const NEXT_SESSION: &str = "next-session";

/// The configuration of a scripted agent of this name.
pub(crate) fn configured(name: &str, capabilities: Option<&str>) -> String {
    let program = std::env::current_exe().unwrap();
    // The harness of the tests writes to standard output, so the agent's own goes elsewhere.
    let command = r#"exec "$0" -q --exact daemon::scripted::agent_process --nocapture 3>&1 >/dev/null"#;
    let capabilities = capabilities.map_or_else(String::new, |capabilities| {
        format!("{CAPABILITIES} = '{capabilities}'\n")
    });
    // The daemon runs in the home of its test, and its agents with it.
    format!(
        "[agents.{name}]\ncommand = \"/bin/sh\"\nkind = \"generic\"\nargs = [\"-c\", '{command}', '{}']\n\
         [agents.{name}.env]\n{LOG} = \"{name}.log\"\n{capabilities}",
        program.display()
    )
}

/// What the agent of this name was sent, in order, by all its processes.
pub(crate) fn heard(home: &Home, name: &str) -> Vec<Value> {
    heard_lines(home, name)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The same as text.
pub(crate) fn heard_lines(home: &Home, name: &str) -> Vec<String> {
    let log = fs::read_to_string(home.path().join(format!("{name}.log"))).unwrap();
    log.lines().map(str::to_owned).collect()
}

/// Not a test: the agent, when the daemon runs this program as one.
#[test]
fn agent_process() {
    let Some(log) = std::env::var_os(LOG) else { return };
    let mut agent = Agent {
        output: File::options().write(true).open("/dev/fd/3").unwrap(),
        log: PathBuf::from(log),
        sessions: 0,
        waiting: Vec::new(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        if line.contains("\"session/load\"") && fs::remove_file(CRASH_ON_LOAD).is_ok() {
            return;
        }
        agent.take(&line);
    }
}

struct Agent {
    output: File,
    log: PathBuf,
    sessions: usize,
    waiting: Vec<Prompt>,
}

/// A prompt that is not answered yet.
struct Prompt {
    id: Value,
    session: Value,
    script: VecDeque<String>,
    awaited: Option<Value>,
}

impl Agent {
    fn take(&mut self, line: &str) {
        let mut log = File::options().create(true).append(true).open(&self.log).unwrap();
        log.write_all(format!("{line}\n").as_bytes()).unwrap();
        let message: Value = serde_json::from_str(line).unwrap();
        let (id, params) = (message["id"].clone(), &message["params"]);
        match message["method"].as_str() {
            None => self.go_on(&id),
            Some("session/cancel") => self.cancel(&params["sessionId"]),
            Some("session/prompt") => {
                let mut blocks = params["prompt"].as_array().unwrap().iter();
                let text = blocks.find_map(|block| block["text"].as_str().filter(|text| !is_preamble(text)));
                let text = text.unwrap();
                self.play(Prompt {
                    id,
                    session: params["sessionId"].clone(),
                    script: text.lines().map(str::to_owned).collect(),
                    awaited: None,
                });
            }
            Some(_) if id.is_null() => {}
            Some("initialize") => {
                let capabilities = std::env::var(CAPABILITIES).ok();
                let capabilities = capabilities.unwrap_or_else(|| {
                    r#"{"loadSession":false,"sessionCapabilities":{"close":{}}}"#.to_owned()
                });
                self.send(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"protocolVersion\":1,\"agentCapabilities\":{capabilities}}}}}"
                ));
            }
            Some("session/new") => {
                if let Ok(error) = fs::read_to_string(REFUSE_NEW) {
                    return self.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}"));
                }
                self.sessions += 1;
                let session = match fs::read_to_string(NEXT_SESSION) {
                    Ok(given) => serde_json::from_str(&given).unwrap(),
                    Err(_) => json!(format!("s{}-{}", std::process::id(), self.sessions)),
                };
                self.answer(&id, &json!({ "sessionId": session }));
            }
            Some("session/load") => {
                if fs::read_to_string(HELD_BY).is_ok_and(|pid| is_alive(&pid)) {
                    return self.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{HELD}}}"));
                }
                if let Ok(error) = fs::read_to_string(REFUSE_LOAD) {
                    return self.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}"));
                }
                let session = &params["sessionId"];
                for kind in ["user_message_chunk", "agent_message_chunk"] {
                    let update =
                        json!({"sessionUpdate": kind, "content": {"type": "text", "text": "replayed"}});
                    let params = json!({"sessionId": session, "update": update});
                    self.send(
                        &json!({"jsonrpc": "2.0", "method": "session/update", "params": params}).to_string(),
                    );
                }
                self.answer(&id, &json!({}));
            }
            Some("session/close" | "session/resume" | "session/set_config_option") => {
                self.answer(&id, &json!({}));
            }
            Some(_) => {
                let error = json!({"code": -32601, "message": "not in the script"});
                self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
            }
        }
    }

    fn play(&mut self, mut prompt: Prompt) {
        while let Some(line) = prompt.script.pop_front() {
            if line == "hold" {
                return self.waiting.push(prompt);
            }
            if let Some(awaited) = line.strip_prefix("await ") {
                prompt.awaited = Some(serde_json::from_str(awaited).unwrap());
                return self.waiting.push(prompt);
            }
            let line = line.replace("$S", &prompt.session.to_string());
            let line = line.replace("$LONG", &"long ".repeat(4_096));
            self.send(&line.replace("$P", &prompt.id.to_string()));
        }
        self.answer(&prompt.id, &json!({"stopReason": "end_turn"}));
    }

    fn go_on(&mut self, answered: &Value) {
        let waits = |prompt: &Prompt| prompt.awaited.as_ref() == Some(answered);
        if let Some(index) = self.waiting.iter().position(waits) {
            let mut prompt = self.waiting.remove(index);
            prompt.awaited = None;
            self.play(prompt);
        }
    }

    fn cancel(&mut self, session: &Value) {
        let of_session = |prompt: &mut Prompt| prompt.session == *session;
        let cancelled: Vec<Prompt> = self.waiting.extract_if(.., of_session).collect();
        for prompt in cancelled {
            self.answer(&prompt.id, &json!({"stopReason": "cancelled"}));
        }
    }

    fn answer(&mut self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string());
    }

    fn send(&mut self, line: &str) {
        self.output.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

fn is_alive(pid: &str) -> bool {
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    test_kill_process(pid).is_ok()
}

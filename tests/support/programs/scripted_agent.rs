//! An ACP agent that sends exactly what its prompt says, byte for byte. `tests/daemon/scripted.rs` describes
//! the language of the scripts.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, Write};
use std::path::PathBuf;

use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use super::scripted_names::{
    ANSWERS, BEFORE_OPENING, CAPABILITIES, CRASH_ON_LOAD, HELD, HELD_BY, LOAD_NEEDS, LOG, NEXT_SESSION,
    REFUSE_LOAD, REFUSE_NEW, SILENT_ON_LOAD,
};

/// The beginning of the daemon's summary of the earlier session, which it inserts before the user's own text.
const RETELLING: &str = "The earlier session of this conversation could not be opened again.";

/// Answers requests until the input ends.
pub(crate) fn run() {
    let mut agent = Agent {
        log: PathBuf::from(std::env::var_os(LOG).unwrap()),
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
    log: PathBuf,
    sessions: usize,
    waiting: Vec<Prompt>,
}

/// A prompt or a request that opens a session, not yet answered.
struct Prompt {
    id: Value,
    session: Value,
    script: VecDeque<String>,
    awaited: Option<Value>,
    result: Value,
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
                let text = blocks
                    .find_map(|block| block["text"].as_str().filter(|text| !text.starts_with(RETELLING)));
                let text = text.unwrap();
                self.play(Prompt {
                    id,
                    session: params["sessionId"].clone(),
                    script: text.lines().map(str::to_owned).collect(),
                    awaited: None,
                    result: json!({"stopReason": "end_turn"}),
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
                let mut scripted = scripted_answer("session/new", params).unwrap_or_else(|| json!({}));
                scripted["result"]["sessionId"] = session.clone();
                self.open(id, session, scripted["result"].take());
            }
            Some(method) if scripted_answer(method, params).is_some() => {
                let scripted = scripted_answer(method, params).unwrap();
                self.answer_as_scripted(&id, &params["sessionId"], &scripted);
            }
            Some("session/load") if lacks_file() => {
                let error = json!({"code": -32603, "message": "no rollout found for thread id 1"});
                self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
            }
            Some("session/load") if fs::exists(SILENT_ON_LOAD).unwrap() => {}
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
                self.open(id, session.clone(), json!({}));
            }
            Some("session/resume") => self.open(id, params["sessionId"].clone(), json!({})),
            Some("session/close" | "session/set_config_option") => {
                self.answer(&id, &json!({}));
            }
            Some("_echo") => {
                let params = line.split_once("\"params\":").unwrap().1;
                self.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{params}"));
            }
            Some("_silence") => {}
            Some(_) => {
                let error = json!({"code": -32601, "message": "not in the script"});
                self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
            }
        }
    }

    /// Answers a request that opens a session, after playing the script for it.
    fn open(&mut self, id: Value, session: Value, result: Value) {
        let script = fs::read_to_string(BEFORE_OPENING).unwrap_or_default();
        self.play(Prompt {
            id,
            session,
            script: script.lines().map(str::to_owned).collect(),
            awaited: None,
            result,
        });
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
            self.send_filled_in(&line, &prompt);
        }
        self.answer(&prompt.id, &prompt.result);
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
        for mut prompt in cancelled {
            let instead = prompt
                .script
                .front()
                .and_then(|line| line.strip_prefix("instead "));
            match instead.map(str::to_owned) {
                Some(instead) => {
                    self.send_filled_in(&instead, &prompt);
                    prompt.script.pop_front();
                }
                None => self.answer(&prompt.id, &json!({"stopReason": "cancelled"})),
            }
            while let Some(line) = prompt.script.pop_front() {
                match line.strip_prefix("until ") {
                    Some(pipe) => drop(fs::read(pipe).unwrap()),
                    None => self.send_filled_in(&line, &prompt),
                }
            }
        }
    }

    fn answer_as_scripted(&mut self, id: &Value, session: &Value, scripted: &Value) {
        if scripted["silent"] == true {
            return;
        }
        let updates = |when: &str| {
            let updates = scripted[when].as_array().into_iter().flatten();
            let params = updates.map(|update| json!({"sessionId": session, "update": update}));
            let lines =
                params.map(|params| json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
            lines.map(|line| line.to_string()).collect::<Vec<_>>()
        };
        let mut answer = json!({"jsonrpc": "2.0", "id": id});
        match &scripted["error"] {
            Value::Null => answer["result"] = scripted["result"].clone(),
            error => answer["error"] = error.clone(),
        }
        let lines = [updates("before"), vec![answer.to_string()], updates("after")].concat();
        // Sent at once, because the daemon waits only so long for what follows the answer.
        self.send(&lines.join("\n"));
    }

    fn answer(&mut self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string());
    }

    fn send_filled_in(&mut self, line: &str, prompt: &Prompt) {
        let line = line.replace("$S", &prompt.session.to_string());
        let line = line.replace("$LONG", &"long ".repeat(4_096));
        self.send(&line.replace("$P", &prompt.id.to_string()));
    }

    fn send(&mut self, line: &str) {
        let mut output = std::io::stdout().lock();
        output.write_all(format!("{line}\n").as_bytes()).unwrap();
        output.flush().unwrap();
    }
}

/// The answer that the test has configured for this request, if any.
fn scripted_answer(method: &str, params: &Value) -> Option<Value> {
    let answers: Value = serde_json::from_str(&fs::read_to_string(ANSWERS).ok()?).unwrap();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let set = match &params["configId"] {
        Value::Null => text(&params["modeId"]),
        id => format!("{}={}", text(id), text(&params["value"])),
    };
    let named = answers.get(format!("{method} {set}"));
    named.or_else(|| answers.get(method)).cloned()
}

/// Whether the file that is required for loading a session is missing.
fn lacks_file() -> bool {
    fs::read_to_string(LOAD_NEEDS).is_ok_and(|path| !fs::exists(path).unwrap())
}

fn is_alive(pid: &str) -> bool {
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    test_kill_process(pid).is_ok()
}

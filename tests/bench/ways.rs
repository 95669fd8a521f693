//! The three ways from the agent to the reader: the pipe itself, the splice, and the daemon.

use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Outcome;
use crate::client::{Arrived, Client};
use crate::daemon::{Daemon, Home, SocketClient, client};
use crate::floor::{Ended, spawn_agent};
use crate::options::SPLICE;

/// A way on which prompts are sent and their updates return.
pub(crate) trait Way {
    /// Sends a prompt and passes each update to `each` until the prompt is answered.
    fn prompt(&mut self, text: &str, each: &mut dyn FnMut(Arrived)) -> Outcome<()>;
}

/// The pipes of the agent itself.
pub(crate) struct Direct {
    client: Client<ChildStdout, ChildStdin>,
    session: String,
    _agent: Ended,
}

impl Direct {
    /// Starts the streaming agent of this program.
    pub(crate) fn open() -> Outcome<Self> {
        Self::to(spawn_agent()?)
    }

    /// Starts the daemon's built-in agent, which writes transcripts into this folder.
    pub(crate) fn to_loopback(data: &std::path::Path) -> Outcome<Self> {
        let mut command = Command::new(crate::daemon::program());
        command.arg("loopback-agent").arg("--data").arg(data);
        Self::to(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
    }

    /// Starts `sessionctl acp` for the daemon in this home, as an editor would, with the streaming agent
    /// behind it.
    pub(crate) fn to_daemon(home: &Home) -> Outcome<Self> {
        Self::to(acp(home).spawn()?)
    }

    fn to(child: std::process::Child) -> Outcome<Self> {
        let mut agent = Ended(child);
        let (Some(input), Some(output)) = (agent.0.stdout.take(), agent.0.stdin.take()) else {
            return Err("the agent has no pipes".into());
        };
        let mut client = Client::over(input, output);
        let session = open_session(&mut client)?;
        Ok(Self {
            client,
            session,
            _agent: agent,
        })
    }
}

impl Way for Direct {
    fn prompt(&mut self, text: &str, each: &mut dyn FnMut(Arrived)) -> Outcome<()> {
        prompt_agent(&mut self.client, &self.session, text, each)
    }
}

/// The command that an editor starts, with the agent `bench`.
pub(crate) fn acp(home: &Home) -> Command {
    let mut command = Command::new(crate::daemon::command_line());
    command
        .arg("--home")
        .arg(home.path())
        .args(["acp", "--agent", "bench"]);
    command.env("HOME", home.path()).current_dir(home.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// The splice, a process between a socket and the streaming agent.
pub(crate) struct Splice {
    client: SocketClient,
    session: String,
    _process: Ended,
    _folder: TempDir,
}

impl Splice {
    /// Starts the splice and the agent.
    pub(crate) fn open() -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("sb").tempdir()?;
        let socket = folder.path().join("splice.sock");
        let mut command = Command::new(std::env::current_exe()?);
        let process = Ended(command.arg(SPLICE).arg(&socket).spawn()?);
        let mut client = client(&socket)?;
        let session = open_session(&mut client)?;
        Ok(Self {
            client,
            session,
            _process: process,
            _folder: folder,
        })
    }
}

impl Way for Splice {
    fn prompt(&mut self, text: &str, each: &mut dyn FnMut(Arrived)) -> Outcome<()> {
        prompt_agent(&mut self.client, &self.session, text, each)
    }
}

/// The daemon, with one conversation and one subscriber.
pub(crate) struct Bridge {
    client: SocketClient,
    conversation: Value,
    _daemon: Daemon,
    _home: Home,
}

impl Bridge {
    /// Starts the daemon with this agent: `bench` or `loopback`.
    pub(crate) fn open(agent: &str) -> Outcome<Self> {
        let home = Home::new()?;
        let daemon = home.start()?;
        let mut client = daemon.connect()?;
        let made = client.call(
            "conversation/new",
            &json!({"agent": agent, "cwd": home.path(), "open": true}),
        )?;
        let conversation = made["conversation"]["id"].clone();
        client.call("conversation/subscribe", &json!({"conversationId": conversation}))?;
        Ok(Self {
            client,
            conversation,
            _daemon: daemon,
            _home: home,
        })
    }
}

impl Way for Bridge {
    fn prompt(&mut self, text: &str, each: &mut dyn FnMut(Arrived)) -> Outcome<()> {
        let params = json!({"conversationId": self.conversation, "prompt": text});
        let id = self.client.send("conversation/prompt", &params)?;
        let result = self.client.updates_until(id, each)?;
        if result["stopReason"] != "end_turn" {
            return Err(format!("the turn ended otherwise: {result}").into());
        }
        Ok(())
    }
}

fn open_session<R: Read, W: Write>(client: &mut Client<R, W>) -> Outcome<String> {
    client.call(
        "initialize",
        &json!({"protocolVersion": 1, "clientCapabilities": {}}),
    )?;
    let folder = std::env::temp_dir();
    let opened = client.call("session/new", &json!({"cwd": folder, "mcpServers": []}))?;
    Ok(opened["sessionId"].as_str().unwrap_or_default().to_owned())
}

fn prompt_agent<R: Read, W: Write>(
    client: &mut Client<R, W>,
    session: &str,
    text: &str,
    each: &mut dyn FnMut(Arrived),
) -> Outcome<()> {
    let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
    let id = client.send("session/prompt", &params)?;
    client.updates_until(id, each)?;
    Ok(())
}

//! The handshake (`initialize`), and signing in and out.
//!
//! The agent is started when the editor initializes, because only the agent knows its sign-in methods, and because the first
//! session needs the process anyway.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::editor::{AgentCommand, Chosen, SIGN_IN};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{AgentName, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::editor::Connection;
use super::editor_capabilities::EditorCapabilities;
use super::message::{self, Failure, Reply};
use crate::agent::client::ClientProfile;
use crate::agent::members::Members;
use crate::agent::session::{Initialized, PROTOCOL_VERSION};

/// How long the answer to `initialize` waits for the agent's answer. Some editors give up after 20 s.
const AGENT_WAIT: Duration = Duration::from_secs(10);

/// The capabilities that most agents have, used if the agent's own are unknown.
const USUAL_CAPABILITIES: &str = r#"{"promptCapabilities":{"image":true,"audio":false,"embeddedContext":true},
    "mcpCapabilities":{"http":true,"sse":true},"auth":{}}"#;

impl Connection {
    pub(super) async fn initialize(&self, params: &str) -> Reply {
        self.peer.set_capabilities(EditorCapabilities::read(params)?);
        let initialized = tokio::time::timeout(AGENT_WAIT, self.agent_initialization()).await;
        // If the agent does not start, the first session reports why.
        let agent = initialized.ok().and_then(Result::ok);
        // The agent's other members are forwarded byte for byte.
        let raw = agent.as_ref().map_or("{}", |agent| agent.raw.get());
        let mut answer: Members = message::read(raw)?;
        let members = |raw: Option<&RawJson>| raw.and_then(|raw| raw.read().ok()).unwrap_or_default();
        let mut capabilities: Members = match &agent {
            Some(_) => members(answer.get("agentCapabilities")),
            None => message::read(USUAL_CAPABILITIES)?,
        };
        // The methods of `providers` name no session, so they could not be forwarded to an agent.
        capabilities.shift_remove("providers");
        for (name, unreachable) in [("auth", "status"), ("mcpCapabilities", "acp")] {
            let mut rest: Members = members(capabilities.get(name));
            if rest.shift_remove(unreachable).is_some() {
                set(&mut capabilities, name, &rest);
            }
        }
        let mut sessions: Members = members(capabilities.get("sessionCapabilities"));
        let mut meta: Members = members(capabilities.get("_meta"));
        let methods = agent.as_ref().map(|agent| self.sign_in_methods(agent));
        for name in ["list", "resume", "fork", "close", "delete"] {
            set(&mut sessions, name, &json!({}));
        }
        let extras = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "new": {"agent": {}, "namespace": {}},
            "fork": {"at": {}},
            "prompt": {"edit": {}, "checkpointId": {}},
        });
        set(&mut meta, "sessiond", &extras);
        set(&mut capabilities, "loadSession", &true);
        set(&mut capabilities, "sessionCapabilities", &sessions);
        set(&mut capabilities, "_meta", &meta);
        set(&mut answer, "protocolVersion", &PROTOCOL_VERSION);
        set(&mut answer, "agentCapabilities", &capabilities);
        set(&mut answer, "authMethods", &methods.unwrap_or_default());
        let own = json!({
            "name": "sessiond",
            "title": "session-bridge",
            "version": env!("CARGO_PKG_VERSION"),
        });
        set(&mut answer, "agentInfo", &own);
        message::result(&answer)
    }

    /// Signs in with a method that the agent offers.
    pub(super) async fn authenticate(&self, params: &str) -> Reply {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            method_id: String,
        }
        let Params { method_id } = message::read(params)?;
        let offered = methods_of(&*self.agent_initialization().await?);
        if offered.is_empty() {
            return Err(not_offered("authenticate"));
        }
        if !offered
            .iter()
            .any(|method| id_of(method).as_ref() == Some(&method_id))
        {
            let why = format!("the agent has no sign-in method \"{method_id}\"");
            return Err(Failure::of(ErrorKind::InvalidParams, why));
        }
        let (agent, client) = (self.agent_or_default(), self.profile());
        let other = message::other_params(params, &["methodId"]);
        self.bridge.sign_in(&agent, &client, &method_id, other).await?;
        Ok("{}".to_owned())
    }

    /// Signs out, if the agent supports it.
    pub(super) async fn logout(&self, params: &str) -> Reply {
        if !self.agent_initialization().await?.capabilities.logout {
            return Err(not_offered("logout"));
        }
        let (agent, client) = (self.agent_or_default(), self.profile());
        let other = message::other_params(params, &[]);
        self.bridge.sign_out(&agent, &client, other).await?;
        Ok("{}".to_owned())
    }

    /// The command that signs in to an agent in a terminal: the agent's command with these arguments appended.
    pub(super) fn command_of(&self, params: &str) -> Reply {
        let Chosen { agent, arguments } = message::read(params)?;
        let agent = agent.unwrap_or_else(|| self.agent_or_default());
        let client = ClientProfile {
            arguments: Some((agent.clone(), arguments)),
            ..self.peer.capabilities().profile()
        };
        let command = self.bridge.agent_command(&agent, &client)?;
        let text = |text: &OsStr| {
            let why = || {
                Failure::of(
                    ErrorKind::InvalidParams,
                    format!("the command of {agent} is not UTF-8"),
                )
            };
            text.to_str().map(str::to_owned).ok_or_else(why)
        };
        let arguments = command.args.iter().map(|argument| text(argument));
        message::result(&AgentCommand {
            program: text(command.program.as_os_str())?,
            arguments: arguments.collect::<Result<_, _>>()?,
            environment: command.env,
            removed_variables: command.env_remove,
        })
    }

    /// The client description that agents receive.
    pub(super) fn profile(&self) -> ClientProfile {
        let arguments = self.chosen_agent().arguments;
        let arguments = (!arguments.is_empty()).then(|| (self.agent_or_default(), arguments));
        ClientProfile {
            arguments,
            ..self.peer.capabilities().profile()
        }
    }

    fn agent_or_default(&self) -> AgentName {
        self.chosen_agent_name()
            .unwrap_or_else(|| self.bridge.default_agent())
    }

    /// The agent's own answer to `initialize`. Starts the agent for this editor, unless the answer is known.
    async fn agent_initialization(&self) -> Result<Arc<Initialized>, Failure> {
        let (agent, client) = (self.agent_or_default(), self.profile());
        Ok(self.bridge.initialize_agent(&agent, &client).await?)
    }

    /// The agent's sign-in methods that the editor can use. For a sign-in in a terminal, the editor appends the method's
    /// arguments to the command that it knows: `sessionctl acp`, not the agent's command.
    fn sign_in_methods(&self, agent: &Initialized) -> Vec<RawJson> {
        #[derive(Deserialize)]
        struct Method {
            r#type: Option<String>,
            args: Option<Vec<String>>,
        }
        let usable = |raw: RawJson| {
            let method: Method = raw.read().ok()?;
            if method.r#type.as_deref() != Some("terminal") {
                return Some(raw);
            }
            let mut members: Members = raw
                .read()
                .ok()
                .filter(|_| self.peer.capabilities().has_terminal_sign_in())?;
            let own = ["--", SIGN_IN].map(str::to_owned).into_iter();
            let arguments: Vec<String> = own.chain(method.args.unwrap_or_default()).collect();
            members.insert("args".to_owned(), RawJson::from_value(&arguments).ok()?);
            RawJson::from_value(&members).ok()
        };
        methods_of(agent).into_iter().filter_map(usable).collect()
    }
}

fn set(members: &mut Members, name: &str, value: &impl Serialize) {
    let value = RawJson::from_value(value).unwrap_or_default();
    members.insert(name.to_owned(), value);
}

fn methods_of(agent: &Initialized) -> Vec<RawJson> {
    let methods = agent.auth_methods.as_ref();
    methods
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}

fn id_of(method: &RawJson) -> Option<String> {
    #[derive(Deserialize)]
    struct Method {
        id: String,
    }
    method.read().ok().map(|Method { id }| id)
}

fn not_offered(method: &str) -> Failure {
    let why = format!("the agent does not offer {method}");
    Failure::of(ErrorKind::MethodNotFound, why)
}

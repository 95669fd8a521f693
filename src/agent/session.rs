//! The protocol's methods: typed where the bridge acts on a value, raw elsewhere.
//!
//! Parameters keep every member from the caller, byte for byte, with `_meta` merged. Results stay as the agent wrote
//! them. A method that the agent does not offer is refused here and never sent. Only protocol version 1 is spoken;
//! support for other versions belongs here.
//!
//! This module owns only a connection and the agent's `initialize` answer. It does not know conversations, or how
//! failures are handled.

mod capabilities;
mod params;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::inbox::InboxSender;
use super::message::{AgentRequestId, CallError, MethodName, method};
use super::wire::{Attachment, Connection, SessionHandle};

pub use capabilities::{Capabilities, Initialized};
pub use params::Params;

/// The protocol version.
pub const PROTOCOL_VERSION: u64 = 1;

/// How long an agent may take to change a setting. No model is involved.
pub const SETTING_DEADLINE: Duration = Duration::from_secs(60);

/// How long `authenticate` may take. It may open a browser and wait for the user.
pub const AUTHENTICATE_DEADLINE: Duration = Duration::from_secs(15 * 60);

/// What `initialize` reports about the client.
#[derive(Debug, Clone, Default)]
pub struct InitializeRequest {
    /// `clientCapabilities`, raw; an object.
    pub client_capabilities: Option<Box<RawValue>>,
    /// `clientInfo`, raw; omitted if absent.
    pub client_info: Option<Box<RawValue>>,
    /// The client's other parameters, an object.
    pub client_params: Option<Box<RawValue>>,
}

/// Options for opening a session.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// The session's folder, absolute.
    pub cwd: PathBuf,
    /// Raw `mcpServers`; an empty list if absent.
    pub mcp_servers: Option<Box<RawValue>>,
    /// Omitted if the agent does not support it.
    pub additional_directories: Vec<PathBuf>,
    /// This program's `_meta`. For equal keys, the client's value is used.
    pub meta: Map<String, Value>,
    /// The client's own parameters, an object. Members that are not set above are kept.
    pub client_params: Option<Box<RawValue>>,
}

/// Sends `initialize`. Call this once per process.
///
/// # Errors
///
/// [`CallError`]; [`CallError::BadAnswer`] if the answer is not an object, or has no protocol version.
pub async fn initialize(
    connection: &Connection,
    request: &InitializeRequest,
    deadline: Duration,
) -> Result<Initialized, CallError> {
    let mut params = Params::from_client(method::INITIALIZE, request.client_params.as_deref())?;
    params.set("protocolVersion", &PROTOCOL_VERSION)?;
    match &request.client_capabilities {
        Some(capabilities) => params.set_raw("clientCapabilities", capabilities.clone()),
        None => params.set("clientCapabilities", &Map::<String, Value>::new())?,
    }
    if let Some(info) = &request.client_info {
        params.set_raw("clientInfo", info.clone());
    }
    let answer = connection
        .call_within(method::INITIALIZE, &params.build()?, deadline)
        .await?;
    Initialized::decode(answer)
}

/// The methods of one agent.
#[derive(Debug, Clone)]
pub struct AgentCalls {
    connection: Connection,
    initialized: Arc<Initialized>,
}

impl AgentCalls {
    /// Creates the methods of an initialized agent.
    #[must_use]
    pub fn new(connection: Connection, initialized: Arc<Initialized>) -> Self {
        Self {
            connection,
            initialized,
        }
    }

    /// `session/new`. The answer arrives in the inbox, with the new session attached to it.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent then.
    pub fn new_session(
        &self,
        options: &SessionOptions,
        inbox: &InboxSender,
    ) -> Result<AgentRequestId, CallError> {
        let params = self.session_params(method::SESSION_NEW, None, options)?;
        self.connection.open(method::SESSION_NEW, &params, inbox)
    }

    /// `session/load`. The agent replays the session as updates, then answers. Everything arrives in the inbox.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent or attached then.
    pub fn load(
        &self,
        handle: &SessionHandle,
        options: &SessionOptions,
        inbox: &InboxSender,
    ) -> Result<(AgentRequestId, Attachment), CallError> {
        self.check_offered(self.capabilities().load_session, method::SESSION_LOAD)?;
        self.reopen(method::SESSION_LOAD, handle, options, inbox)
    }

    /// `session/resume`: like `load`, without the replay.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent or attached then.
    pub fn resume(
        &self,
        handle: &SessionHandle,
        options: &SessionOptions,
        inbox: &InboxSender,
    ) -> Result<(AgentRequestId, Attachment), CallError> {
        self.check_offered(self.capabilities().resume, method::SESSION_RESUME)?;
        self.reopen(method::SESSION_RESUME, handle, options, inbox)
    }

    /// `session/fork`. The answer arrives in the inbox, with the branch attached to it.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent then.
    pub fn fork(
        &self,
        source: &SessionHandle,
        options: &SessionOptions,
        inbox: &InboxSender,
    ) -> Result<AgentRequestId, CallError> {
        self.check_offered(self.capabilities().fork, method::SESSION_FORK)?;
        let params = self.session_params(method::SESSION_FORK, Some(source), options)?;
        self.connection.open(method::SESSION_FORK, &params, inbox)
    }

    /// `session/prompt`. `prompt` is the raw list of content blocks. The answer arrives in the inbox, after the
    /// updates of its turn.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent then.
    pub fn prompt(
        &self,
        handle: &SessionHandle,
        prompt: &RawValue,
        client_params: Option<&RawValue>,
        inbox: &InboxSender,
    ) -> Result<AgentRequestId, CallError> {
        let mut params = Params::from_client(method::SESSION_PROMPT, client_params)?;
        params.set("sessionId", handle.as_str())?;
        params.set_raw("prompt", prompt.to_owned());
        self.connection
            .start(method::SESSION_PROMPT, &params.build()?, inbox)
    }

    /// `session/cancel`: the running prompt answers `cancelled`.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent then.
    pub fn cancel(&self, handle: &SessionHandle, client_params: Option<&RawValue>) -> Result<(), CallError> {
        let params = Self::params_for_session(method::SESSION_CANCEL, handle, client_params)?.build()?;
        self.connection.notify(method::SESSION_CANCEL, &params)
    }

    /// `session/close`. Some agents answer before their own child has ended: see `close_answers_early` of their kind.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn close(
        &self,
        handle: &SessionHandle,
        deadline: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        self.check_offered(self.capabilities().close, method::SESSION_CLOSE)?;
        let params = Self::params_for_session(method::SESSION_CLOSE, handle, None)?.build()?;
        self.connection
            .call_within(method::SESSION_CLOSE, &params, deadline)
            .await
    }

    /// `session/delete`. Some agents do delete the transcript.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn delete(&self, handle: &SessionHandle) -> Result<Box<RawValue>, CallError> {
        self.check_offered(self.capabilities().delete, method::SESSION_DELETE)?;
        self.call_setting(Self::params_for_session(method::SESSION_DELETE, handle, None)?)
            .await
    }

    /// `session/set_mode`. The answer arrives in the inbox, after everything that the agent wrote before it.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent then.
    pub fn set_mode(
        &self,
        handle: &SessionHandle,
        mode_id: &str,
        client_params: Option<&RawValue>,
        inbox: &InboxSender,
    ) -> Result<AgentRequestId, CallError> {
        let mut params = Self::params_for_session(method::SESSION_SET_MODE, handle, client_params)?;
        params.set("modeId", mode_id)?;
        self.start_setting(&params, inbox)
    }

    /// `session/set_config_option`; the value is raw, since its type depends on the option.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub fn set_config_option(
        &self,
        handle: &SessionHandle,
        config_id: &str,
        value: &RawValue,
        client_params: Option<&RawValue>,
        inbox: &InboxSender,
    ) -> Result<AgentRequestId, CallError> {
        let mut params = Self::params_for_session(method::SESSION_SET_CONFIG_OPTION, handle, client_params)?;
        params.set("configId", config_id)?;
        if matches!(value.get(), "true" | "false") {
            params.set("type", "boolean")?;
        }
        params.set_raw("value", value.to_owned());
        self.start_setting(&params, inbox)
    }

    /// `session/set_model`. No longer in the protocol, so an agent may answer -32601. Prefer the config option of
    /// category `model` if there is one.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub fn set_model(
        &self,
        handle: &SessionHandle,
        model_id: &str,
        client_params: Option<&RawValue>,
        inbox: &InboxSender,
    ) -> Result<AgentRequestId, CallError> {
        let mut params = Self::params_for_session(method::SESSION_SET_MODEL, handle, client_params)?;
        params.set("modelId", model_id)?;
        self.start_setting(&params, inbox)
    }

    /// `authenticate`. May wait for the user.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn authenticate(
        &self,
        method_id: &str,
        client_params: Option<&RawValue>,
    ) -> Result<Box<RawValue>, CallError> {
        let mut params = Params::from_client(method::AUTHENTICATE, client_params)?;
        params.set("methodId", method_id)?;
        self.connection
            .call_within(method::AUTHENTICATE, &params.build()?, AUTHENTICATE_DEADLINE)
            .await
    }

    /// `logout`.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn logout(&self, client_params: Option<&RawValue>) -> Result<Box<RawValue>, CallError> {
        self.check_offered(self.capabilities().logout, method::LOGOUT)?;
        self.call_setting(Params::from_client(method::LOGOUT, client_params)?)
            .await
    }

    fn capabilities(&self) -> &Capabilities {
        &self.initialized.capabilities
    }

    fn check_offered(&self, is_offered: bool, method: &'static str) -> Result<(), CallError> {
        if is_offered {
            Ok(())
        } else {
            Err(CallError::Unsupported(MethodName::known(method)))
        }
    }

    fn params_for_session(
        method: &'static str,
        handle: &SessionHandle,
        client_params: Option<&RawValue>,
    ) -> Result<Params, CallError> {
        let mut params = Params::from_client(method, client_params)?;
        params.set("sessionId", handle.as_str())?;
        Ok(params)
    }

    fn start_setting(&self, params: &Params, inbox: &InboxSender) -> Result<AgentRequestId, CallError> {
        let method = params.method();
        self.connection.start(method, &params.build()?, inbox)
    }

    async fn call_setting(&self, params: Params) -> Result<Box<RawValue>, CallError> {
        let method = params.method();
        self.connection
            .call_within(method, &params.build()?, SETTING_DEADLINE)
            .await
    }

    fn session_params(
        &self,
        method: &'static str,
        handle: Option<&SessionHandle>,
        options: &SessionOptions,
    ) -> Result<Box<RawValue>, CallError> {
        let mut params = Params::from_client(method, options.client_params.as_deref())?;
        if let Some(handle) = handle {
            params.set("sessionId", handle.as_str())?;
        }
        params.set("cwd", &options.cwd)?;
        match &options.mcp_servers {
            Some(servers) => params.set_raw("mcpServers", servers.clone()),
            None => params.set_if_absent("mcpServers", &[(); 0])?,
        }
        if self.capabilities().additional_directories && !options.additional_directories.is_empty() {
            params.set("additionalDirectories", &options.additional_directories)?;
        }
        params.merge_meta(&options.meta)?;
        params.build()
    }

    fn reopen(
        &self,
        method: &'static str,
        handle: &SessionHandle,
        options: &SessionOptions,
        inbox: &InboxSender,
    ) -> Result<(AgentRequestId, Attachment), CallError> {
        let params = self.session_params(method, Some(handle), options)?;
        // Attach before the request, because the agent starts the replay at once.
        let attachment = self.connection.attach(handle, inbox)?;
        match self.connection.start(method, &params, inbox) {
            Ok(request) => Ok((request, attachment)),
            Err(error) => {
                self.connection.detach(&attachment);
                Err(error)
            }
        }
    }
}
